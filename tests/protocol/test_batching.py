"""Each parameter and rule of the BATCH QoS, and of Ice's automatic flush, in virtual time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spark_rtps.transport.errors import UsageError
from spark_rtps.transport.protocol.policies import BatchPolicy
from spark_rtps.transport.protocol.writing.batching import (
    Batcher,
    FlushReason,
    PendingBatch,
    sample_metadata,
)
from spark_rtps.transport.qos import LENGTH_UNLIMITED
from spark_rtps.transport.structure import INFINITE
from spark_rtps.transport.wire.batch import frame_batch
from spark_rtps.transport.wire.samples import DISPOSED, I64, KEY_ONLY, NO_TIMESTAMP, U8, UNREGISTERED, Samples

MS = 1_000_000
LIMIT = 60_000
#: Of a DATA_BATCH: all but sample infos and payloads.
DATA_BATCH_HEADER = 48
#: No limit but the datagram.
OPEN = BatchPolicy(enable=True, max_data_bytes=LENGTH_UNLIMITED)
CDR_LE, CDR2_LE = 0x0001, 0x0007


def payload(number: int, size: int, encapsulation: int = CDR_LE) -> bytes:
    head = encapsulation.to_bytes(2, "big") + b"\0\0"
    return (head + number.to_bytes(4, "little") * (size // 4))[:size]


def uniform(first: int, count: int, size: int = 16, encapsulation: int = CDR_LE) -> Samples:
    raw = b"".join(payload(first + i, size, encapsulation) for i in range(count))
    return Samples.uniform(np.frombuffer(raw, np.uint8), count, size)


def strided(first: int, count: int, size: int = 16) -> Samples:
    """Every second one of what lies in memory."""
    whole = uniform(first, 2 * count, size)
    data = np.concatenate((np.full(8, 0xEE, np.uint8), whole.data))
    rows = data[8:].reshape(-1, size)
    rows[::2] = uniform(first, count, size).data.reshape(-1, size)
    return Samples.uniform(data, count, size, start=8, stride=2 * size)


def ragged(first: int, sizes: list[int], *, backwards: bool = False, encapsulation: int = CDR_LE) -> Samples:
    lengths = np.array(sizes, np.int64)
    offsets = np.cumsum(lengths) - lengths
    if backwards:
        offsets = lengths.sum() - np.cumsum(lengths)
    data = np.zeros(int(lengths.sum()) + 3, np.uint8)
    for i, (at, size) in enumerate(zip(offsets.tolist(), sizes, strict=True)):
        data[at : at + size] = np.frombuffer(payload(first + i, size, encapsulation), np.uint8)
    return Samples.ragged(data, offsets, lengths)


def payloads(batch: PendingBatch) -> list[bytes]:
    sizes, data = batch.samples.all_lengths(), batch.samples.data.tobytes()
    return [
        data[at : at + size]
        for at, size in zip(batch.samples.all_offsets().tolist(), sizes.tolist(), strict=True)
    ]


def counts(batches: list[PendingBatch]) -> list[int]:
    return [batch.count for batch in batches]


def reasons(batches: list[PendingBatch]) -> list[FlushReason]:
    return [batch.reason for batch in batches]


class Script:
    """A batcher written to step by step; checks that all comes out as it went in."""

    def __init__(self, policy: BatchPolicy = OPEN, limit: int = LIMIT, **options: object) -> None:
        self.batcher = Batcher(policy, limit=limit, **options)  # type: ignore[arg-type]
        self.now = 1_000 * MS
        self.written: list[bytes] = []
        self.sent: list[PendingBatch] = []

    def add(self, samples: Samples, timestamp: int | None = None, **options: object) -> list[PendingBatch]:
        data = samples.data.tobytes()
        for at, size in zip(samples.all_offsets().tolist(), samples.all_lengths().tolist(), strict=True):
            self.written.append(data[at : at + size])
        stamp = self.now if timestamp is None else timestamp
        return self._out(self.batcher.add(samples, timestamp=stamp, now=self.now, **options))  # type: ignore[arg-type]

    def write(self, count: int, size: int = 16, **options: object) -> list[PendingBatch]:
        return self.add(uniform(len(self.written), count, size), **options)  # type: ignore[arg-type]

    def flush(self, *reason: FlushReason) -> list[PendingBatch]:
        return self._out(self.batcher.flush(*reason))

    def timer(self) -> list[PendingBatch]:
        return self._out(self.batcher.handle_timer(self.now))

    def _out(self, batches: list[PendingBatch]) -> list[PendingBatch]:
        self.sent += batches
        got = [each for batch in self.sent for each in payloads(batch)]
        assert got == self.written[: len(got)]
        assert len(got) + self.batcher.count == len(self.written)
        return batches


# --- limits -------------------------------------------------------------------------------------------


def test_max_data_bytes_counts_payloads_with_encapsulation_and_padding_and_no_metadata() -> None:
    s = Script(replace(OPEN, max_data_bytes=160))
    assert s.write(9) == []
    assert (s.batcher.count, s.batcher.nbytes) == (9, 144)
    (batch,) = s.write(1)
    assert (batch.count, batch.nbytes, batch.reason) == (10, 160, FlushReason.MAX_DATA_BYTES)
    assert (s.batcher.count, s.batcher.nbytes) == (0, 0)


def test_max_data_bytes_exceeded_sends_what_is_queued_and_keeps_the_newest() -> None:
    s = Script(replace(OPEN, max_data_bytes=100))
    s.write(4)
    assert s.batcher.count == 4
    (batch,) = s.write(1, 40)
    assert (batch.count, batch.reason) == (4, FlushReason.MAX_DATA_BYTES)
    assert (s.batcher.count, s.batcher.nbytes) == (1, 40)


def test_max_data_bytes_default_is_1024() -> None:
    s = Script(BatchPolicy(enable=True))
    assert counts(s.write(1000, 64)) == [16] * 62
    assert s.batcher.count == 8


def test_max_samples_flushes_when_reached() -> None:
    s = Script(replace(OPEN, max_samples=3))
    assert s.write(2) == []
    batches = s.write(5)
    assert counts(batches) == [3, 3]
    assert reasons(batches) == [FlushReason.MAX_SAMPLES] * 2
    assert s.batcher.count == 1
    assert s.batcher.flushes[FlushReason.MAX_SAMPLES] == 2


def test_max_samples_of_one_sends_each_at_once() -> None:
    s = Script(replace(OPEN, max_samples=1))
    assert counts(s.write(3)) == [1, 1, 1]
    assert counts(s.write(1)) == [1]
    assert s.batcher.get_timer() is None


def test_the_first_limit_reached_counts() -> None:
    s = Script(replace(OPEN, max_data_bytes=64, max_samples=3))
    assert reasons(s.write(3)) == [FlushReason.MAX_SAMPLES]
    assert reasons(s.write(2, 32)) == [FlushReason.MAX_DATA_BYTES]


def test_a_batch_holds_whole_samples() -> None:
    s = Script(replace(OPEN, max_data_bytes=100))
    batches = s.add(ragged(0, [48, 48, 8, 92, 4, 4, 96]))
    assert counts(batches) == [2, 2, 2]
    assert [batch.nbytes for batch in batches] == [96, 100, 8]
    assert s.batcher.count == 1
    assert counts(s.flush()) == [1]


def test_resource_limits_max_samples_flushes() -> None:
    s = Script(OPEN, max_samples=4)
    assert s.write(3) == []
    (batch,) = s.write(1)
    assert (batch.count, batch.reason) == (4, FlushReason.RESOURCE_LIMITS)
    s = Script(replace(OPEN, max_samples=2), max_samples=4)
    assert reasons(s.write(2)) == [FlushReason.MAX_SAMPLES]


def hashes(*instances: int) -> U8:
    keys = np.zeros((len(instances), 16), np.uint8)
    keys[:, 15] = instances
    return keys


def test_max_samples_per_instance_flushes_keyed() -> None:
    s = Script(OPEN, max_samples_per_instance=2)
    for instance in (1, 2, 3):
        assert s.write(1, key_hashes=hashes(instance)) == []
    (batch,) = s.write(1, key_hashes=hashes(2))
    assert (batch.count, batch.reason) == (4, FlushReason.RESOURCE_LIMITS)
    assert batch.key_hashes is not None
    assert batch.key_hashes[:, 15].tolist() == [1, 2, 3, 2]
    assert s.write(1, key_hashes=hashes(2)) == [], "counted anew in each batch"


def test_max_samples_per_instance_cuts_a_block() -> None:
    s = Script(OPEN, max_samples_per_instance=2)
    s.write(3, key_hashes=hashes(1, 2, 3))
    batches = s.write(9, key_hashes=hashes(4, 3, 3, 1, 2, 1, 1, 1, 2))
    assert counts(batches) == [5, 4, 2]
    assert [batch.key_hashes[-1, 15] for batch in batches if batch.key_hashes is not None] == [3, 1, 1]
    assert s.batcher.count == 1
    assert counts(s.write(2, key_hashes=hashes(1, 2))) == [3]


@pytest.mark.parametrize("limit", [1, 2, 3, 50])
def test_max_samples_per_instance_as_counted_one_by_one(limit: int) -> None:
    random = np.random.default_rng(limit)
    keys = hashes(*random.integers(0, 6, 500).tolist())
    block, single = (Script(OPEN, max_samples_per_instance=limit) for _ in range(2))
    for first in range(0, 500, 100):
        expected = [
            each for i in range(first, first + 100) for each in single.write(1, key_hashes=keys[i : i + 1])
        ]
        assert counts(block.write(100, key_hashes=keys[first : first + 100])) == counts(expected)
    assert single.batcher.count == block.batcher.count


def test_max_samples_per_instance_does_not_concern_unkeyed_samples() -> None:
    s = Script(OPEN, max_samples_per_instance=2)
    assert s.write(100) == []


# --- automatic flush ----------------------------------------------------------------------------------


def test_auto_flush_size_counts_where_it_is_the_smaller_one() -> None:
    s = Script(replace(OPEN, max_data_bytes=1000, auto_flush_size=64))
    assert reasons(s.write(5)) == [FlushReason.AUTO_FLUSH_SIZE]
    assert s.batcher.count == 1
    s = Script(replace(OPEN, max_data_bytes=64, auto_flush_size=1000))
    assert reasons(s.write(5)) == [FlushReason.MAX_DATA_BYTES]


def test_limit_holds_payloads_and_their_metadata() -> None:
    """What Ice forgets: the headers take room in the datagram too."""
    s = Script(limit=10 * (16 + 8) + 5)
    batches = s.write(25)
    assert counts(batches) == [10, 10]
    assert reasons(batches) == [FlushReason.AUTO_FLUSH_SIZE] * 2
    s = Script(limit=10 * (16 + 8))
    assert counts(s.write(20)) == [10, 10], "exactly reached: it goes at once"


def test_limit_counts_key_hashes_and_own_timestamps() -> None:
    s = Script(limit=320)
    assert counts(s.write(7, key_hashes=hashes(*range(7)))) == [6]
    s = Script(replace(OPEN, disable_inline_keyhash=True), limit=320)
    assert counts(s.write(14, key_hashes=hashes(*range(14)))) == [13]
    s = Script(replace(OPEN, source_timestamp_resolution=0), limit=320)
    assert counts(s.write(11)) == [10]


@pytest.mark.parametrize(
    ("flags", "key_hash", "own_timestamp", "expected"),
    [
        (0, False, False, 8),
        (0, True, False, 32),
        (DISPOSED, True, False, 40),
        (UNREGISTERED, False, False, 20),
        (KEY_ONLY, False, True, 16),
        (DISPOSED, True, True, 48),
    ],
)
def test_metadata_is_what_the_manual_says(
    flags: int, key_hash: bool, own_timestamp: bool, expected: int
) -> None:
    assert sample_metadata(flags, key_hash=key_hash, own_timestamp=own_timestamp) == expected


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("resolution", [0, INFINITE])
def test_limit_is_what_a_data_batch_takes_besides_its_header(keyed: bool, resolution: int) -> None:
    random = np.random.default_rng(4)
    s = Script(replace(OPEN, source_timestamp_resolution=resolution), limit=1_500)
    for i in range(200):
        count = int(random.integers(1, 20))
        options = {"timestamp": 10**9 + i, "key_hashes": hashes(*range(count)) if keyed else None}
        if i % 5 == 4:
            s.add(Samples(np.empty(0, np.uint8), count), flags=DISPOSED, **options)  # type: ignore[arg-type]
        else:
            s.add(ragged(0, (random.integers(1, 30, count) * 4).tolist()), **options)  # type: ignore[arg-type]
    sizes = [
        frame_batch(
            batch.samples,
            b"\0\0\1\2",
            1,
            1,
            flags=batch.flags,
            key_hashes=batch.key_hashes,
            timestamps=batch.timestamps,
        ).nbytes
        for batch in s.sent
    ]
    assert 1_200 < max(sizes) <= 1_500 + DATA_BATCH_HEADER


def test_limit_may_grow() -> None:
    s = Script(limit=240)
    s.write(5)
    s.batcher.limit = 2400
    assert s.write(90) == []
    assert counts(s.write(10)) == [100]


def test_limit_made_smaller_sends_what_is_queued_in_pieces_that_fit() -> None:
    s = Script(replace(OPEN, source_timestamp_resolution=0), limit=LIMIT)
    for i in range(10):
        s.write(1, timestamp=i, flags=KEY_ONLY if i == 9 else 0, key_hashes=hashes(i))
    s.write(1, 400, key_hashes=hashes(10))
    assert s.batcher.count == 11
    s.batcher.limit = 4 * (16 + 40)
    assert s.batcher.get_timer() == 0
    batches = s.timer()
    assert counts(batches) == [4, 4, 2, 1]
    assert [batch.alone for batch in batches] == [False] * 3 + [True]
    stamps = [each for batch in batches[:3] for each in timestamps(batch)]
    assert stamps == list(range(10))
    assert batches[0].flags == batches[1].flags == 0
    assert np.array_equal(batches[2].flags, [0, KEY_ONLY])
    assert [h[15] for b in batches if b.key_hashes is not None for h in b.key_hashes] == list(range(11))
    assert reasons(batches) == [FlushReason.AUTO_FLUSH_SIZE] * 4


def test_limit_made_smaller_keeps_what_still_fits() -> None:
    s = Script()
    s.write(10)
    s.batcher.limit = 300
    assert (s.batcher.count, s.batcher.get_timer()) == (10, None)


# --- oversized samples --------------------------------------------------------------------------------


def test_an_oversized_first_sample_goes_alone() -> None:
    s = Script(replace(OPEN, max_data_bytes=100))
    (batch,) = s.write(1, 104)
    assert (batch.count, batch.alone) == (1, True)
    assert batch.reason is FlushReason.MAX_DATA_BYTES
    assert s.batcher.get_timer() is None


def test_an_oversized_sample_goes_after_what_is_queued() -> None:
    s = Script(replace(OPEN, max_data_bytes=100))
    s.write(2)
    batches = s.write(1, 104)
    assert [(batch.count, batch.alone) for batch in batches] == [(2, False), (1, True)]


def test_a_sample_that_fills_the_batch_exactly_is_a_batch() -> None:
    s = Script(replace(OPEN, max_data_bytes=100))
    (batch,) = s.write(1, 100)
    assert not batch.alone


def test_oversized_samples_of_a_block_go_one_by_one() -> None:
    s = Script(replace(OPEN, max_data_bytes=100))
    assert [batch.alone for batch in s.write(3, 104)] == [True] * 3
    batches = s.add(ragged(3, [16, 16, 200, 300, 16, 100, 16]))
    expected = [(2, False), (1, True), (1, True), (1, False), (1, False)]
    assert [(batch.count, batch.alone) for batch in batches] == expected
    assert s.batcher.count == 1


def test_a_sample_larger_than_the_datagram_goes_alone() -> None:
    s = Script(limit=1000)
    (batch,) = s.write(1, 70_000)
    assert (batch.alone, batch.reason) == (True, FlushReason.AUTO_FLUSH_SIZE)


# --- flush --------------------------------------------------------------------------------------------


def test_flush_sends_what_is_queued() -> None:
    s = Script()
    s.write(3)
    (batch,) = s.flush()
    assert (batch.count, batch.reason) == (3, FlushReason.FLUSH)
    assert s.flush() == []
    assert s.batcher.flushes == {FlushReason.FLUSH: 1}


def test_flush_by_a_coherent_set() -> None:
    s = Script()
    s.write(3)
    assert reasons(s.flush(FlushReason.COHERENT_SET)) == [FlushReason.COHERENT_SET]


def test_max_flush_delay_is_measured_from_the_first_sample() -> None:
    s = Script(replace(OPEN, max_flush_delay=10 * MS))
    assert s.batcher.get_timer() is None
    s.write(1)
    first = s.now
    s.now += 4 * MS
    s.write(1)
    assert s.batcher.get_timer() == first + 10 * MS
    s.now = first + 10 * MS - 1
    assert s.timer() == []
    s.now += 1
    (batch,) = s.timer()
    assert (batch.count, batch.reason) == (2, FlushReason.MAX_FLUSH_DELAY)
    assert s.batcher.get_timer() is None
    assert s.timer() == []


def test_max_flush_delay_begins_anew_with_each_batch() -> None:
    s = Script(replace(OPEN, max_flush_delay=10 * MS, max_samples=3))
    s.write(2)
    s.now += 4 * MS
    s.write(2)
    assert s.batcher.get_timer() == s.now + 10 * MS, "the rest of the second write is a batch of its own"
    s.flush()
    assert s.batcher.get_timer() is None


def test_max_flush_delay_infinite_has_no_timer() -> None:
    s = Script(OPEN)
    s.write(5)
    assert s.batcher.get_timer() is None
    s.now = INFINITE - 1
    assert s.timer() == []


# --- source timestamps --------------------------------------------------------------------------------


def timestamps(batch: PendingBatch) -> list[int]:
    stamps: I64 | None = batch.timestamps
    return [batch.timestamp] * batch.count if stamps is None else stamps.tolist()


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


def test_source_timestamp_resolution_between_is_measured_from_the_timestamp_inherited() -> None:
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
def test_a_block_is_cut_into_batches_and_the_rest_has_memory_of_its_own(make) -> None:  # type: ignore[no-untyped-def]
    batcher = Batcher(replace(OPEN, max_data_bytes=1600), limit=LIMIT)
    samples = make(0, 1_030)
    samples.data = samples.data.copy()
    expected = [bytes(samples.payload(i)) for i in range(1_030)]
    batches = batcher.add(samples, timestamp=0, now=0)
    assert counts(batches) == [100] * 10
    assert all(batch.samples.is_uniform for batch in batches)
    written = [each for batch in batches for each in payloads(batch)]
    samples.data[:] = 0xFF
    (rest,) = batcher.flush()
    assert written + payloads(rest) == expected


@pytest.mark.parametrize("backwards", [False, True])
def test_a_ragged_block_is_cut_into_batches(backwards: bool) -> None:
    s = Script(replace(OPEN, max_data_bytes=1000))
    sizes = (np.random.default_rng(1).integers(0, 60, 2_000) * 4).tolist()
    batches = s.add(ragged(0, sizes, backwards=backwards))
    assert all(batch.nbytes > 1000 - 240 for batch in batches)
    assert counts(s.flush()) != []
    assert len([each for batch in s.sent for each in payloads(batch)]) == 2_000


def test_a_large_block_costs_by_batch_and_not_by_sample() -> None:
    calls = 0

    class Counting(Batcher):
        def _emit(self, batch: PendingBatch) -> None:
            nonlocal calls
            calls += 1
            super()._emit(batch)

    batcher = Counting(OPEN, limit=LIMIT)
    data = np.zeros(100_000 * 64, np.uint8)
    batches = batcher.add(Samples.uniform(data, 100_000, 64), timestamp=0, now=0)
    assert calls == len(batches) == 100_000 * 72 // LIMIT
    assert sum(counts(batches)) + batcher.count == 100_000


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
        batcher.add(Samples.uniform(np.zeros(10, np.uint8), 1, 10), timestamp=0, now=0)
    odd = Samples.ragged(np.zeros(10, np.uint8), np.array([0]), np.array([10]))
    with pytest.raises(UsageError, match="padded"):
        batcher.add(odd, timestamp=0, now=0)
    assert batcher.count == 0


def test_no_samples_are_no_batch() -> None:
    s = Script()
    assert s.add(Samples(np.empty(0, np.uint8), 0)) == []
    assert s.add(ragged(0, [])) == []
    assert s.flush() == []


# --- interceptors -------------------------------------------------------------------------------------


def test_interceptor_sees_each_sample_before_it_is_queued() -> None:
    seen: list[tuple[int, int, int]] = []
    s = Script(
        replace(OPEN, max_samples=3),
        interceptor=lambda size, n, nbytes, flush: seen.append((size, n, nbytes)),
    )
    s.write(2)
    s.add(ragged(2, [8, 20]))
    assert seen == [(16, 0, 0), (16, 1, 16), (8, 2, 32), (20, 0, 0)]


def test_interceptor_may_flush() -> None:
    def limit_to_40(size: int, samples: int, nbytes: int, flush) -> None:  # type: ignore[no-untyped-def]
        if nbytes + size > 40:
            flush()

    s = Script(interceptor=limit_to_40)
    batches = s.write(5)
    assert counts(batches) == [2, 2]
    assert reasons(batches) == [FlushReason.INTERCEPTOR] * 2
    assert s.batcher.count == 1


def test_interceptor_errors_reach_the_writer_and_lose_nothing() -> None:
    def refuse_fourth(size: int, samples: int, nbytes: int, flush) -> None:  # type: ignore[no-untyped-def]
        if samples == 1 and batcher.flushes:
            raise RuntimeError("no more")

    batcher = Batcher(replace(OPEN, max_samples=2), limit=LIMIT, interceptor=refuse_fourth)
    with pytest.raises(RuntimeError, match="no more"):
        batcher.add(uniform(0, 5), timestamp=0, now=0)
    assert batcher.get_timer() == 0
    assert counts(batcher.handle_timer(0)) == [2]
    assert batcher.count == 1
    assert counts(batcher.flush()) == [1]


def test_interceptor_may_flush_later_too() -> None:
    kept = []
    s = Script(interceptor=lambda size, n, nbytes, flush: kept.append(flush))
    s.write(2)
    kept[0]()
    assert s.batcher.get_timer() == 0
    assert reasons(s.timer()) == [FlushReason.INTERCEPTOR]
