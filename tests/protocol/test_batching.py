"""When a batch is sent, in virtual time: each limit of the BATCH QoS, Ice's automatic flush, and flushes by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spark_rtps.transport.protocol.policies import BatchPolicy
from spark_rtps.transport.protocol.writing.batching.batcher import FlushReason, sample_metadata
from spark_rtps.transport.structure import INFINITE
from spark_rtps.transport.wire.batch import frame_batch
from spark_rtps.transport.wire.samples import DISPOSED, KEY_ONLY, UNREGISTERED, Samples
from tests.protocol.batcher_script import (
    DATA_BATCH_HEADER,
    LIMIT,
    MS,
    OPEN,
    Script,
    counts,
    hashes,
    ragged,
    reasons,
    timestamps,
)

# --- limits -------------------------------------------------------------------------------------------


def test_max_data_bytes_counts_payloads_with_padding_and_without_metadata() -> None:
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


@pytest.mark.parametrize("max_samples", [INFINITE, 12])
@pytest.mark.parametrize("limit", [1, 2, 3, 50])
def test_max_samples_per_instance_as_counted_one_by_one(limit: int, max_samples: int) -> None:
    random = np.random.default_rng(limit)
    keys = hashes(*random.integers(0, 6, 500).tolist())
    policy = replace(OPEN, max_samples=max_samples)
    block, single = (Script(policy, max_samples_per_instance=limit) for _ in range(2))
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
            s.add(Samples(np.empty(0, np.uint8), count), flags=DISPOSED, **options)
        else:
            s.add(ragged(0, (random.integers(1, 30, count) * 4).tolist()), **options)
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
