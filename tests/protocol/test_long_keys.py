"""Serialized keys are lengthened for readers that would take them for key hashes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.transport.protocol.writing.intake.intake import lengthened
from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.structure import VENDOR_CYCLONE, VENDOR_FAST_DDS, VENDOR_ID
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Extensibility, Struct
from spark_rtps.transport.wire.samples import DISPOSED, KEY_ONLY, Samples
from tests.protocol.type_pair import reader, writer
from tests.support.virtual_network import SECOND, VirtualNetwork

IDL = "@final struct Pair { @key short a; @key string b; double c; };"


def pair() -> Struct:
    found = parse_idl(IDL)["Pair"]
    assert isinstance(found, Struct)
    return found


def payloads(samples: Samples) -> list[bytes]:
    return [bytes(samples.payload(i)) for i in range(samples.count)]


def test_uniform_ones() -> None:
    data = np.arange(64, dtype=np.uint8)
    for size in (4, 8, 16):
        keys = Samples.uniform(data, 3, size, start=4, stride=20)
        found = lengthened(keys)
        assert found.is_uniform and found.size == 20
        assert payloads(found) == [each + bytes(20 - size) for each in payloads(keys)]


def test_keys_of_many_lengths() -> None:
    lengths = np.array([8, 16, 0, 20, 24, 8])
    offsets = np.array([100, 0, 4, 24, 60, 16])
    keys = Samples.ragged(np.arange(128, dtype=np.uint8), offsets, lengths)
    found = lengthened(keys)
    assert payloads(found) == [
        each + bytes(20 - len(each) if 0 < len(each) <= 16 else 0) for each in payloads(keys)
    ]
    assert not found.all_offsets().astype(int).tolist()[0] and not (found.all_offsets() % 4).any()


def test_long_ones_stay_as_they_are() -> None:
    keys = Samples.uniform(np.zeros(64, np.uint8), 2, 20)
    assert lengthened(keys) is keys
    none = Samples(np.empty(0, np.uint8), 2)
    assert lengthened(none) is none


@pytest.mark.parametrize("representation", [DataRepresentation.XCDR1, DataRepresentation.XCDR2])
@pytest.mark.parametrize("extensibility", list(Extensibility))
def test_lengthened_keys_are_read_as_before(
    extensibility: Extensibility, representation: DataRepresentation
) -> None:
    codec = Codec(replace(pair(), extensibility=extensibility))
    rows = [{"a": 1, "b": "", "c": None}, {"a": -2, "b": "two", "c": None}]
    schema = pa.schema([field.with_nullable(True) for field in codec.arrow_schema])
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    keys = codec.encode_keys(batch.select(["a", "b"]), representation=representation)
    for each in (keys, lengthened(keys)):
        decoded = codec.decode_samples(each, keys_only=True)
        assert decoded.malformed is None
        assert decoded.batch.to_pylist() == rows


@pytest.mark.parametrize(("vendor", "size"), [(VENDOR_FAST_DDS, 20), (VENDOR_CYCLONE, 8), (VENDOR_ID, 8)])
def test_keys_are_lengthened_by_the_vendor_of_a_matched_reader(vendor: bytes, size: int) -> None:
    network = VirtualNetwork()
    one, two = network.add(), network.add()
    network.run(SECOND)
    remote = one._spdp.remotes[two.prefix]
    remote.data = replace(remote.data, vendor=vendor)
    mine, theirs = writer(one, network.now, None), reader(two, network.now, None)
    network.run(SECOND)
    sent = Samples.uniform(np.zeros(8, np.uint8), 1, 8)
    hashes = np.ones((1, 16), np.uint8)
    for flags in (DISPOSED | KEY_ONLY, 0):
        mine.write_samples(sent, timestamp=0, now=network.now, flags=flags, key_hashes=hashes)
    found: list[int] = []

    def arrived() -> bool:
        found.extend(len(each) for run in theirs.take_runs() for each in payloads(run.samples()))
        return len(found) == 2

    assert network.run(SECOND, arrived)
    assert found == [size, 8]
