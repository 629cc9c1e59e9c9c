"""The instances of a subscription, from runs that are made here: bounds, and keys that come in all ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.api import instances as instances_module
from spark_rtps.api.instances import Instances
from spark_rtps.api.sample_cache import SampleCache
from spark_rtps.transport.log.frame import Frame
from spark_rtps.transport.structure import INFINITE, Guid
from spark_rtps.transport.types.arrow import struct_from_arrow
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.wire.samples import (
    DISPOSED,
    HAS_KEY_HASH,
    KEY_ONLY,
    SAMPLE_INDEX,
    UNREGISTERED,
    Run,
    Samples,
)

SCHEMA = pa.schema([("id", pa.int32()), ("x", pa.float64())])
TYPE = struct_from_arrow(SCHEMA, "T", key=("id",), optional=False)
CODEC = Codec(TYPE)
ALIVE, DISPOSED_STATE, NO_WRITERS = "ALIVE", "NOT_ALIVE_DISPOSED", "NOT_ALIVE_NO_WRITERS"


def writer(number: int) -> Guid:
    return Guid(number.to_bytes(12, "big"), b"\0\0\1\2")


def batch(*ids: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": each, "x": 0.5} for each in ids], schema=SCHEMA)


def frame(samples: Samples, *, of: int = 1, flags: int = 0, hashes: np.ndarray | None = None) -> Frame:
    index = np.zeros(samples.count, SAMPLE_INDEX)
    index["offset"], index["length"] = samples.all_offsets(), samples.all_lengths()
    index["flags"] = flags | (0 if hashes is None else HAS_KEY_HASH)
    if hashes is not None:
        index["key_hash"] = np.ascontiguousarray(hashes).view("V16").reshape(-1)
    return Frame(0, 0, 0, 0, Run(writer(of), 1, samples.count, samples.data, index=index))


def written(*ids: int, of: int = 1, flags: int = 0) -> Frame:
    return frame(CODEC.encode_batch(batch(*ids)), of=of, flags=flags)


def only_keys(*ids: int, of: int = 1, flags: int = DISPOSED) -> Frame:
    return frame(CODEC.encode_keys(batch(*ids)), of=of, flags=flags | KEY_ONLY)


def bare(*ids: int, of: int = 1, flags: int = DISPOSED) -> Frame:
    """Samples without a payload, of which a key hash is all that is known."""
    nothing = Samples.ragged(
        np.zeros(0, np.uint8), np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int64)
    )
    return frame(nothing, of=of, flags=flags, hashes=CODEC.key_hashes(batch(*ids)))


def states(instances: Instances) -> dict[int, tuple[str, int]]:
    """State and number of writers, by key."""
    return {
        each.key["id"]: (each.state, len(each.writers)) for each in instances.all() if each.key is not None
    }


@pytest.mark.parametrize("end", [only_keys, bare, written], ids=["key", "key_hash", "sample"])
def test_the_states_of_an_instance(end: Callable[..., Frame]) -> None:
    instances = Instances(TYPE, keyed=True)
    (rows,) = instances.note_frames([written(1, 2, 1)])
    assert rows.tolist() == [0, 1, 0]
    assert states(instances) == {1: (ALIVE, 1), 2: (ALIVE, 1)}
    instances.note_frames([end(1, flags=DISPOSED), end(2, flags=UNREGISTERED)])
    assert states(instances) == {1: (DISPOSED_STATE, 1), 2: (NO_WRITERS, 0)}
    instances.note_frames([written(1, of=2), end(1, flags=DISPOSED | UNREGISTERED)])
    assert states(instances) == {1: (DISPOSED_STATE, 1), 2: (NO_WRITERS, 0)}
    instances.note_frames([written(2, 1)])
    assert states(instances) == {1: (ALIVE, 2), 2: (ALIVE, 1)}
    instances.writer_lost(writer(1))
    assert states(instances) == {1: (ALIVE, 1), 2: (NO_WRITERS, 0)}
    instances.writer_lost(writer(2))
    assert states(instances) == {1: (NO_WRITERS, 0), 2: (NO_WRITERS, 0)}


@pytest.mark.parametrize("end", [only_keys, bare], ids=["key", "key_hash"])
def test_an_instance_known_by_its_dispose_alone_has_its_key(end: Callable[..., Frame]) -> None:
    instances = Instances(TYPE, keyed=True)
    instances.note_frames([end(7)])
    (only,) = instances.all()
    assert (only.key, only.state, len(only.writers)) == ({"id": 7}, DISPOSED_STATE, 1)
    assert only.key_hash == (7).to_bytes(4, "big") + bytes(12)


def test_without_the_type_key_hashes_are_all_that_is_known() -> None:
    instances = Instances(None, keyed=True)
    instances.note_frames([frame(CODEC.encode_batch(batch(1, 2)), hashes=CODEC.key_hashes(batch(1, 2)))])
    assert [each.key for each in instances.all()] == [None, None]
    assert [each.key_hash[3] for each in instances.all()] == [1, 2]


def test_instances_without_writers_are_replaced() -> None:
    instances = Instances(TYPE, keyed=True, limit=3)
    (rows,) = instances.note_frames([written(1, 2, 3, 4)])
    assert rows.tolist() == [0, 1, 2, -1]
    instances.note_frames([only_keys(2, flags=UNREGISTERED)])
    (rows,) = instances.note_frames([written(4)])
    assert rows.tolist() == [3], "no number of another instance, of which samples may wait"
    assert states(instances) == {1: (ALIVE, 1), 4: (ALIVE, 1), 3: (ALIVE, 1)}


def test_writers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances_module, "INSTANCE_WRITERS_MAX", 2)
    for keyed in (True, False):
        instances = Instances(TYPE if keyed else None, keyed=keyed)
        instances.note_frames([written(1, of=number) for number in range(5)])
        (only,) = instances.all()
        assert len(only.writers) == 2


def test_a_run_that_is_longer_than_a_chunk() -> None:
    instances = Instances(TYPE, keyed=True)
    count = 70_000
    ids = pa.array(np.arange(count) % 7, pa.int32())
    long = pa.RecordBatch.from_arrays([ids, pa.array(np.zeros(count))], schema=SCHEMA)
    first, second = instances.note_frames([frame(CODEC.encode_batch(long)), written(3)])
    assert (first == np.arange(count) % 7).all()
    assert second.tolist() == [3]


def test_samples_of_a_forgotten_instance_are_separate_from_its_successors() -> None:
    """KEEP_LAST: the place of an instance without writers is another one's, while its sample still waits."""
    instances, cache = Instances(TYPE, keyed=True, limit=2), SampleCache(depth=1)
    sent = [written(1), only_keys(1, flags=UNREGISTERED), written(2), written(3), written(1)]
    for number, each in enumerate(sent):
        frames = [replace(each, rows_before=number)]
        cache.add_frames(frames, instances.note_frames(frames), [INFINITE])
    assert len(instances) == 2, "the table is full"
    taken = [lent.rows_before for lent in cache.take_samples(99, unread=False).frames]
    assert {0, 2, 3} <= set(taken) and cache.replaced == 0
