"""Telling instances apart on the receiver: by the key hash that was sent, by the key where none was."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.receiver.instance_keys import InstanceKeys
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.types.cdr import lanes
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.wire.framing import frame
from spark_rtps.transport.wire.runs import scan
from spark_rtps.transport.wire.samples import KEY_ONLY, Run, Samples

IDL = "struct Car { @key string plate; long speed; @key long seat; };"
WRITER = Guid(b"\1" * 12, b"\0\0\1\2")
CARS = pa.record_batch(
    {
        "plate": ["A", "BB", "A", "A"],
        "speed": pa.array([1, 2, 3, 4], pa.int32()),
        "seat": pa.array([1, 1, 1, 2], pa.int32()),
    }
)


def codec() -> Codec:
    struct = parse_idl(IDL)["Car"]
    assert isinstance(struct, Struct)
    return Codec(struct)


def run_of(samples: Samples, flags: int = 0, key_hashes: np.ndarray | None = None) -> Run:
    (block,) = frame(samples, WRITER.entity, 1, budget=60_000, key_hashes=key_hashes, flags=flags)
    (run,) = scan(block.data, 0, len(block.data), WRITER.prefix, 7).runs
    return run


@pytest.mark.parametrize("representation", [DataRepresentation.XCDR1, DataRepresentation.XCDR2])
def test_keys_are_taken_from_the_data_where_no_hash_was_sent(representation: DataRepresentation) -> None:
    keys = InstanceKeys(codec().struct)
    expected = codec().key_hashes(CARS, representation=representation)
    samples = codec().encode(CARS, representation=representation)
    assert (keys(run_of(samples)) == expected).all()
    assert (keys(run_of(samples, key_hashes=expected)) == expected).all()
    only_keys = codec().encode_keys(CARS, representation=representation)
    assert (keys(run_of(only_keys, flags=KEY_ONLY)) == expected).all()


def test_what_cannot_be_read_is_of_no_instance() -> None:
    samples = codec().encode(CARS)
    samples.data[4:8] = 255  # the length of the first plate
    hashes = InstanceKeys(codec().struct)(run_of(samples))
    assert not hashes[0].any()
    assert hashes[1:].any(axis=1).all()


def test_keys_that_take_much_memory_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "DECODE_LEAVES_MAX", 1)
    samples = codec().encode(CARS)
    samples.data[4:8] = 255
    hashes = InstanceKeys(codec().struct)(run_of(samples))
    assert not hashes[0].any()
    assert (hashes[1:] == codec().key_hashes(CARS, representation=DataRepresentation.XCDR1)[1:]).all()


def test_without_a_type_only_what_was_sent_tells_instances_apart() -> None:
    samples = codec().encode(CARS)
    sent = codec().key_hashes(CARS)
    assert not InstanceKeys(None)(run_of(samples)).any()
    assert (InstanceKeys(None)(run_of(samples, key_hashes=sent)) == sent).all()
