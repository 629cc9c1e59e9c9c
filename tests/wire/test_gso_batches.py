"""GSO buffers of DATA_BATCHes against batches framed one at a time: the same bytes."""

from __future__ import annotations

import numpy as np
import pytest

from spark_rtps.transport.errors import UsageError
from spark_rtps.transport.wire.batch import frame_batch
from spark_rtps.transport.wire.gso_batches import GsoBatches, gso_batch_framer
from spark_rtps.transport.wire.samples import DISPOSED, KEY_ONLY, U8, UNREGISTERED, Samples
from tests.support.campaigns import seeds

WRITER = b"\x00\x00\x01\x02"
HEADERS = bytes(range(32))


def uniform(random: np.random.Generator, count: int, size: int) -> Samples:
    """Random bytes behind encapsulation headers of one kind; in half of the cases with padding, or with holes."""
    stride = size + 4 * int(random.integers(0, 3))
    rows = random.integers(0, 256, (count, stride), np.uint8)
    if size:
        rows[:, :4] = (0, 1, 0, 0)
        if random.random() < 0.5:
            rows[:, 3] = random.integers(0, 4, count)
    start = 4 * int(random.integers(0, 3))
    data = np.concatenate((np.zeros(start, np.uint8), rows.reshape(-1)))
    return Samples.uniform(data, count, size, start=start, stride=stride or 4)


def one_at_a_time(
    samples: Samples, per: int, batch_sn: int, first_sn: int, hashes: U8 | None, flags: int, coherent_set: int
) -> list[bytes]:
    return [
        frame_batch(
            samples.take_range(i, i + per),
            WRITER,
            batch_sn + i // per,
            first_sn + i,
            flags=flags,
            key_hashes=None if hashes is None else hashes[i : i + per],
            coherent_set=coherent_set,
        ).data.tobytes()
        for i in range(0, samples.count, per)
    ]


def messages(gso_buffer: GsoBatches) -> list[bytes]:
    data = gso_buffer.data.tobytes()
    return [data[at : at + gso_buffer.segment] for at in range(0, len(data), gso_buffer.segment)]


@pytest.mark.parametrize("seed", seeds(60))
def test_the_bytes_are_those_of_batches_framed_one_at_a_time(seed: int) -> None:
    random = np.random.default_rng(seed)
    per, batches = int(random.integers(1, 40)), int(random.integers(1, 12))
    count, size = per * batches, 4 * int(random.integers(1, 40))
    flags = int(random.choice([0, 0, DISPOSED, UNREGISTERED, DISPOSED | KEY_ONLY]))
    samples = uniform(random, count, size)
    if flags and not flags & KEY_ONLY and random.random() < 0.5:
        samples = Samples.uniform(np.zeros(4 * count, np.uint8), count, 0, stride=4)
    hashes = random.integers(0, 256, (count, 16), np.uint8) if random.random() < 0.5 else None
    coherent_set = int(random.choice([0, 0, 7, 2**33 + 1]))
    # across the border between the two words of a sequence number, too
    first_sn, batch_sn = (int(random.choice([1, 77, 2**32 - 20])) for _ in range(2))
    expected = one_at_a_time(samples, per, batch_sn, first_sn, hashes, flags, coherent_set)

    framer = gso_batch_framer(
        HEADERS, samples, per, WRITER, flags=flags, key_hashes=hashes, coherent_set=coherent_set
    )
    done: list[bytes] = []
    while (start := len(done)) < batches:
        some = int(random.integers(1, batches - start + 1))
        out = np.full(some * framer.segment, 0xEE, np.uint8)
        gso_buffer = framer.frame(
            out, start, some, batch_sn=batch_sn + start, first_sn=first_sn + start * per
        )
        assert (gso_buffer.count, gso_buffer.last_sn) == (some * per, first_sn + (start + some) * per - 1)
        assert gso_buffer.last_batch_sn == batch_sn + start + some - 1
        for i in range(some):
            block = gso_buffer.block(i)
            assert block.data.tobytes() == expected[start + i]
            assert gso_buffer.index(block.first_sn) == gso_buffer.index(block.last_sn) == i
            assert messages(gso_buffer.part(i, some)) == messages(gso_buffer)[i:]
        done += messages(gso_buffer)
    assert done == [HEADERS + each for each in expected]


def test_a_batch_of_a_gso_buffer_marks_its_removed_samples() -> None:
    random = np.random.default_rng(1)
    samples = uniform(random, 12, 16)
    framer = gso_batch_framer(HEADERS, samples, 4, WRITER, flags=0, key_hashes=None, coherent_set=0)
    out = np.zeros(3 * framer.segment, np.uint8)
    block = framer.frame(out, 0, 3, batch_sn=1, first_sn=1).block(1)
    block.mark_removed(6, 7)
    removed = frame_batch(
        samples.take_range(4, 8), WRITER, 2, 5, removed=np.array([False, True, True, False])
    )
    assert block.data.tobytes() == removed.data.tobytes()


def test_a_batch_too_long_for_a_submessage_is_refused() -> None:
    samples = uniform(np.random.default_rng(1), 4_000, 64)
    with pytest.raises(UsageError, match="a submessage has at most"):
        gso_batch_framer(HEADERS, samples, 2_000, WRITER, flags=0, key_hashes=None, coherent_set=0)
