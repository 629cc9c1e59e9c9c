"""Chunks: frames gathered without losing, doubling or reordering a sample."""

import gc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.columns.chunks import Chunk, chunks, gather, halves
from spark_rtps.transport.log.frame import Cursor, Frame
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.wire.samples import DISPOSED, HAS_KEY_HASH, KEY_ONLY, Run
from tests.support.stream_logs import NOTE, OTHER, POINT, WRITER, encoded, notes, points, run_of, write_log


def frame(run: Run, rows_before: int = 0) -> Frame:
    return Frame(0, run.nbytes, 7, rows_before, run)


def test_equal_sizes_are_packed() -> None:
    chunk = gather([frame(run_of(encoded(points(i, 3)), 1 + i)) for i in range(0, 30, 3)])
    assert chunk.samples.is_uniform
    assert Codec(POINT).decode_samples(chunk.samples).batch.equals(points(0, 30))
    assert chunk.sequence_numbers().tolist() == list(range(1, 31))
    assert chunk.frame_index().tolist() == [i // 3 for i in range(30)]


def test_equal_sizes_with_other_submessages_around_are_packed() -> None:
    wide = encoded(points(3, 2))
    framed = np.zeros((2, 24 + wide.size), np.uint8)
    framed[:, 24:] = wide.rows()
    other = Run(WRITER, 4, 2, framed.reshape(-1), stride=24 + wide.size, payload_offset=24)
    other.payload_length = wide.size
    chunk = gather([frame(run_of(encoded(points(0, 3)), 1)), frame(other)])
    assert chunk.samples.is_uniform
    assert Codec(POINT).decode_samples(chunk.samples).batch.equals(points(0, 5))


def test_unequal_sizes_are_concatenated() -> None:
    runs = [run_of(encoded(notes(i, 5), NOTE), i) for i in range(0, 20, 5)]
    chunk = gather([frame(r) for r in runs])
    assert not chunk.samples.is_uniform
    assert (chunk.samples.all_offsets() % 4 == 0).all()
    assert Codec(NOTE).decode_samples(chunk.samples).batch.equals(notes(0, 20))


def test_indexed_samples_of_odd_lengths_keep_what_is_known_of_each() -> None:
    key_hash = bytes(range(16))
    payloads = [bytes([i]) * n for i, n in enumerate((5, 8, 4, 0, 7))]
    runs = [
        Run.single(
            WRITER,
            i + 1,
            np.frombuffer(p, np.uint8),
            timestamp=i * 10,
            flags=DISPOSED if not p else 0,
            key_hash=key_hash if i == 3 else None,
        )
        for i, p in enumerate(payloads)
    ]
    chunk = gather([frame(r) for r in runs])
    assert [bytes(chunk.samples.payload(i)) for i in range(5)] == payloads
    assert (chunk.samples.all_offsets() % 4 == 0).all()
    assert chunk.source_timestamps().tolist() == [0, 10, 20, 30, 40]
    assert chunk.flags().tolist() == [0, 0, 0, DISPOSED | HAS_KEY_HASH, 0]
    hashes = chunk.key_hashes()
    assert hashes is not None and [h.tobytes() for h in hashes] == [bytes(16)] * 3 + [key_hash, bytes(16)]
    assert gather([frame(r) for r in runs[:3]]).key_hashes() is None


def test_uniform_and_indexed_mix() -> None:
    one = run_of(encoded(points(0, 4)), 1)
    two = Run.single(OTHER, 9, np.ascontiguousarray(encoded(points(4, 1)).data))
    chunk = gather([frame(one), frame(two)])
    assert Codec(POINT).decode_samples(chunk.samples).batch.equals(points(0, 5))
    assert chunk.sequence_numbers().tolist() == [1, 2, 3, 4, 9]


def test_one_frame_is_not_copied() -> None:
    run = run_of(encoded(points(0, 100)), 1)
    assert gather([frame(run)]).samples.data is run.data


@pytest.mark.parametrize("sizes", [[1] * 100, [7, 1000, 3], [250, 250, 1]])
def test_all_samples_once_and_in_order(tmp_path: Path, sizes: list[int]) -> None:
    starts = np.cumsum([0, *sizes])
    runs = [run_of(encoded(points(int(a), int(b - a))), int(a) + 1) for a, b in pairwise(starts)]
    end = write_log(tmp_path, runs)
    parts = list(chunks(LogView(tmp_path).frames(Cursor(0), end), rows=100))
    decoded = [Codec(POINT).decode_samples(c.samples).batch for c in parts]
    assert pa.Table.from_batches(decoded).equals(pa.Table.from_batches([points(0, sum(sizes))]))
    assert max(c.count for c in parts) <= 2 * 100 + 100
    sns = np.concatenate([c.sequence_numbers() for c in parts])
    assert sns.tolist() == list(range(1, sum(sizes) + 1))


def test_data_or_not() -> None:
    data = run_of(encoded(points(0, 2)), 1)
    assert gather([frame(data)]).has_data() is None
    key = Run.single(WRITER, 3, np.zeros(8, np.uint8), flags=KEY_ONLY)
    nothing = Run.single(WRITER, 4, np.zeros(0, np.uint8))
    mask = gather([frame(data), frame(key), frame(nothing)]).has_data()
    assert mask is not None
    assert mask.tolist() == [True, True, False, False]


def big_runs(count: int, size: int = 100_001) -> list[Run]:
    return [Run.single(WRITER, i + 1, np.full(size + i, i, np.uint8)) for i in range(count)]


def payloads_of(parts: list[Chunk]) -> list[bytes]:
    return [bytes(c.samples.payload(i)) for c in parts for i in range(c.count)]


def test_big_samples_are_taken_as_they_lie(tmp_path: Path) -> None:
    runs = big_runs(5)
    end = write_log(tmp_path, runs)
    (chunk,) = chunks(LogView(tmp_path).frames(Cursor(0), end))
    assert all(np.shares_memory(chunk.samples.data, f.run.data) for f in chunk.frames)
    assert (chunk.samples.all_offsets() % 4 == 0).all()
    assert payloads_of([chunk]) == [r.data.tobytes() for r in runs]
    assert chunk.sequence_numbers().tolist() == [1, 2, 3, 4, 5]
    assert chunk.flags().tolist() == [0] * 5


def test_big_samples_of_equal_size_and_others_between_are_taken_as_they_lie(tmp_path: Path) -> None:
    blob = np.arange(2 * 80_000, dtype=np.int64).astype(np.uint8)
    uniform = Run(WRITER, 1, 2, blob, stride=80_000, payload_offset=24, payload_length=79_000)
    nothing = Run.single(WRITER, 3, np.zeros(0, np.uint8), flags=DISPOSED)
    last = Run.single(WRITER, 4, np.full(150_001, 9, np.uint8))
    end = write_log(tmp_path, [uniform, nothing, last])
    (chunk,) = chunks(LogView(tmp_path).frames(Cursor(0, 1), end))
    assert all(np.shares_memory(chunk.samples.data, f.run.data) for f in chunk.frames if f.run.nbytes)
    assert payloads_of([chunk]) == [blob[80_024:159_024].tobytes(), b"", last.data.tobytes()]
    assert chunk.has_data().tolist() == [True, False, True]
    assert chunk.flags().tolist() == [0, DISPOSED, 0]


def test_chunks_of_big_samples_hold_more_bytes(tmp_path: Path) -> None:
    end = write_log(tmp_path, big_runs(9))
    parts = list(chunks(LogView(tmp_path).frames(Cursor(0), end), nbytes=150_000, big_bytes=400_000))
    assert [c.count for c in parts] == [4, 4, 1]


def test_chunks_of_big_samples_end_with_the_segment(tmp_path: Path) -> None:
    runs = big_runs(20)
    end = write_log(tmp_path, runs)
    frames = list(LogView(tmp_path).frames(Cursor(0), end))
    parts = list(chunks(frames))
    assert len(parts) == len({id(f.run.data.base) for f in frames}) > 1
    assert payloads_of(parts) == [r.data.tobytes() for r in runs]
    # of both segments at once, they are copied
    assert payloads_of([gather(frames)]) == payloads_of(parts)


def test_big_samples_outlive_their_segment(tmp_path: Path) -> None:
    runs = big_runs(20)
    end = write_log(tmp_path, runs)
    view = LogView(tmp_path)
    parts = list(chunks(view.frames(Cursor(0), end)))
    del view
    for chunk in parts:
        del chunk.frames[:]
    for file in tmp_path.glob("*"):
        file.unlink()
    gc.collect()
    assert payloads_of(parts) == [r.data.tobytes() for r in runs]


def test_halves_keep_what_is_known_of_each() -> None:
    """Of uniform and indexed frames, cut in between or not."""
    uniform = [frame(run_of(encoded(points(i, 7)), 1 + i), i) for i in (0, 7, 14)]
    indexed = [frame(run_of(encoded(notes(i, 5), NOTE), 1 + i, writer=OTHER, timestamp=i), i) for i in (0, 5)]
    for frames in (uniform, indexed, [*uniform, *indexed], indexed[:1]):
        chunk = gather(frames)
        low, high = halves(chunk)
        assert (low.count, high.count) == (chunk.count // 2, -(-chunk.count // 2))
        assert (low.index is None) == (high.index is None) == (chunk.index is None)
        for of in (
            Chunk.sequence_numbers,
            Chunk.source_timestamps,
            Chunk.flags,
            lambda c: np.array([str(c.frames[i].run.writer) for i in c.frame_index().tolist()]),
            lambda c: np.array([bytes(c.samples.payload(i)).hex() for i in range(c.count)]),
        ):
            assert (np.concatenate([of(low), of(high)]) == of(chunk)).all()
        assert high.frames[0].rows_before == chunk.frames[0].rows_before + low.count or len(frames) > 3
