"""What a batch holds: source timestamps, what its samples share, and whose memory it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from spark_rtps.transport.errors import UsageError
from spark_rtps.transport.protocol.writing.batching.batcher import Batcher, FlushReason, PendingBatch
from spark_rtps.transport.structure import INFINITE
from spark_rtps.transport.wire.samples import DISPOSED, KEY_ONLY, NO_TIMESTAMP, UNREGISTERED, Samples
from tests.protocol.batcher_script import (
    CDR2_LE,
    CDR_LE,
    LIMIT,
    OPEN,
    Script,
    apart,
    counts,
    hashes,
    payloads,
    ragged,
    reasons,
    strided,
    timestamps,
    uniform,
)

# --- source timestamps --------------------------------------------------------------------------------


def stamped(resolution: int, *written: int) -> PendingBatch:
    s = Script(replace(OPEN, source_timestamp_resolution=resolution))
    for each in written:
        s.write(1, timestamp=each)
    (batch,) = s.flush()
    return batch


def test_source_timestamp_resolution_infinite_shares_the_first_one() -> None:
    batch = stamped(INFINITE, 5, 6, 10**18)
    assert (batch.timestamp, batch.timestamps) == (5, None)
    assert stamped(INFINITE, NO_TIMESTAMP, 5, 10**18).timestamp == NO_TIMESTAMP


def test_source_timestamp_resolution_zero_gives_each_its_own() -> None:
    batch = stamped(0, 5, 6, 6, 9)
    assert batch.timestamp == 5
    assert timestamps(batch) == [5, 6, 6, 9]


def test_source_timestamp_resolution_is_measured_from_the_inherited_timestamp() -> None:
    batch = stamped(10, 100, 106, 110, 111, 121, 122)
    assert timestamps(batch) == [100, 100, 100, 111, 111, 122]
    assert stamped(10, 100, 110).timestamps is None, "a difference that equals the resolution inherits"


def test_source_timestamp_resolution_inherits_where_time_goes_back() -> None:
    assert timestamps(stamped(0, 5, 3, 6)) == [5, 5, 6]


def test_source_timestamp_resolution_one_write_gives_all_its_samples_one() -> None:
    s = Script(replace(OPEN, source_timestamp_resolution=0, max_samples=4))
    s.write(2, timestamp=1)
    first, second = s.write(6, timestamp=2)
    assert timestamps(first) == [1, 1, 2, 2]
    assert (second.timestamp, second.timestamps) == (2, None)


def test_source_timestamp_resolution_a_batch_begins_with_its_own() -> None:
    s = Script(replace(OPEN, max_samples=2))
    assert [batch.timestamp for i in range(6) for batch in s.write(1, timestamp=i)] == [0, 2, 4]


# --- what a batch shares ------------------------------------------------------------------------------


def test_another_encapsulation_begins_another_batch() -> None:
    s = Script()
    s.write(2)
    (batch,) = s.add(uniform(2, 3, encapsulation=CDR2_LE))
    assert (batch.count, batch.reason) == (2, FlushReason.FORMAT)
    assert s.add(Samples.uniform(np.empty(0, np.uint8), 1, 0), flags=DISPOSED) == []
    assert s.add(uniform(6, 1, encapsulation=CDR2_LE)) == []
    assert counts(s.write(1)) == [5]


def test_another_encapsulation_within_a_block() -> None:
    s = Script()
    sizes = [8, 0, 16, 0, 8, 8, 0]
    parts = [ragged(0, sizes, encapsulation=each) for each in (CDR_LE, CDR2_LE)]
    pair = ragged(0, sizes * 2)
    pair.data[:] = np.concatenate((parts[0].data[:-3], parts[1].data))
    (batch,) = s.add(pair)
    assert batch.count == 7
    assert s.batcher.count == 7
    even = np.concatenate([uniform(0, 5).data, uniform(5, 5, encapsulation=CDR2_LE).data, uniform(9, 1).data])
    assert counts(s.add(Samples.uniform(even, 11, 16))) == [7, 5, 5]


def test_key_hashes_or_none_for_all_of_a_batch() -> None:
    s = Script()
    s.write(2)
    (batch,) = s.write(1, key_hashes=hashes(1))
    assert (batch.count, batch.key_hashes, batch.reason) == (2, None, FlushReason.FORMAT)


def test_flags_of_each_sample_are_kept() -> None:
    s = Script()
    s.write(2, key_hashes=hashes(1, 2))
    s.add(Samples(np.empty(0, np.uint8), 2), flags=DISPOSED, key_hashes=hashes(2, 1))
    s.write(1, 8, flags=UNREGISTERED | KEY_ONLY, key_hashes=hashes(1))
    (batch,) = s.flush()
    assert np.array_equal(batch.flags, [0, 0, DISPOSED, DISPOSED, UNREGISTERED | KEY_ONLY])
    assert batch.samples.all_lengths().tolist() == [16, 16, 0, 0, 8]
    assert batch.key_hashes is not None
    assert batch.key_hashes[:, 15].tolist() == [1, 2, 2, 1, 1]


def test_samples_without_payload_are_batched_too() -> None:
    s = Script(replace(OPEN, max_samples=3))
    batches = s.add(Samples(np.empty(0, np.uint8), 7), flags=DISPOSED, key_hashes=hashes(*range(7)))
    assert [(batch.count, batch.nbytes, batch.flags) for batch in batches] == [(3, 0, DISPOSED)] * 2
    assert s.batcher.count == 1


# --- memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [uniform, strided])
def test_a_block_is_cut_into_batches_and_the_rest_has_memory_of_its_own(make: Callable[..., Any]) -> None:
    batcher = Batcher(replace(OPEN, max_data_bytes=1600), limit=LIMIT)
    samples = make(0, 1_030)
    samples.data = samples.data.copy()
    expected = [bytes(samples.payload(i)) for i in range(1_030)]
    batches = apart(batcher.add_samples(samples, timestamp=0, now=0))
    assert counts(batches) == [100] * 10
    assert all(batch.samples.is_uniform for batch in batches)
    written = [each for batch in batches for each in payloads(batch)]
    samples.data[:] = 0xFF
    (rest,) = batcher.flush_batch()
    assert written + payloads(rest) == expected


@pytest.mark.parametrize("backwards", [False, True])
def test_a_ragged_block_is_cut_into_batches(backwards: bool) -> None:
    s = Script(replace(OPEN, max_data_bytes=1000))
    sizes = (np.random.default_rng(1).integers(0, 60, 2_000) * 4).tolist()
    batches = s.add(ragged(0, sizes, backwards=backwards))
    assert all(batch.nbytes > 1000 - 240 for batch in batches)
    assert counts(s.flush()) != []
    assert len([each for batch in s.sent for each in payloads(batch)]) == 2_000


def test_a_large_block_costs_by_call_and_not_by_batch_or_sample() -> None:
    calls = 0

    class Counting(Batcher):
        def _emit(self, batch: PendingBatch) -> None:
            nonlocal calls
            calls += 1
            super()._emit(batch)

    batcher = Counting(OPEN, limit=LIMIT)
    data = np.zeros(100_000 * 64, np.uint8)
    batches = batcher.add_samples(Samples.uniform(data, 100_000, 64), timestamp=0, now=0)
    assert calls == len(batches) == 1
    assert batches[0].batches == len(apart(batches)) == 100_000 * 72 // LIMIT
    assert batcher.flushes[FlushReason.AUTO_FLUSH_SIZE] == 100_000 * 72 // LIMIT
    assert sum(counts(batches)) + batcher.count == 100_000


@pytest.mark.parametrize(
    ("limits", "options"),
    [
        ({"max_samples": 7}, {}),
        ({"max_samples": 6, "max_data_bytes": 96}, {}),
        ({"max_data_bytes": 100}, {}),
        ({"max_data_bytes": 96}, {}),
        ({"auto_flush_size": 100}, {}),
        ({}, {"limit": 150}),
        ({}, {"limit": 144}),
        ({}, {"max_samples": 9}),
        ({"max_samples": 1}, {}),
    ],
)
def test_a_block_makes_the_batches_that_samples_make_one_by_one(
    limits: dict[str, int], options: dict[str, int]
) -> None:
    block, single = (Script(replace(OPEN, **limits), **options) for _ in range(2))
    for count in (2, 100, 1, 36):
        block.write(count)
        for _ in range(count):
            single.write(1)
    for script in (block, single):
        script.flush()
    assert (counts(block.sent), reasons(block.sent)) == (counts(single.sent), reasons(single.sent))
    assert block.batcher.flushes == single.batcher.flushes


def test_the_caller_may_reuse_its_memory() -> None:
    s = Script()
    samples = uniform(0, 3)
    samples.data = samples.data.copy()
    s.add(samples, key_hashes=(keys := hashes(1, 2, 3)))
    samples.data[:] = 0xFF
    keys[:] = 0
    (batch,) = s.flush()
    assert payloads(batch) == s.written
    assert batch.key_hashes is not None
    assert batch.key_hashes[:, 15].tolist() == [1, 2, 3]


def test_a_batch_sent_is_not_written_to_again() -> None:
    s = Script(replace(OPEN, max_samples=400))
    for _ in range(3):
        for _ in range(400):
            s.write(1)
    assert counts(s.sent) == [400] * 3, "and Script compares all that was ever sent each time"


def test_payloads_that_are_not_padded_are_refused() -> None:
    batcher = Batcher(OPEN, limit=LIMIT)
    with pytest.raises(UsageError, match="padded"):
        batcher.add_samples(Samples.uniform(np.zeros(10, np.uint8), 1, 10), timestamp=0, now=0)
    odd = Samples.ragged(np.zeros(10, np.uint8), np.array([0]), np.array([10]))
    with pytest.raises(UsageError, match="padded"):
        batcher.add_samples(odd, timestamp=0, now=0)
    assert batcher.count == 0


def test_no_samples_are_no_batch() -> None:
    s = Script()
    assert s.add(Samples(np.empty(0, np.uint8), 0)) == []
    assert s.add(ragged(0, [])) == []
    assert s.flush() == []
