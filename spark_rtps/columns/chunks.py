"""Gathers frames of the log into chunks that are large enough for columnar decoding.

The frames of a slow writer hold one sample each, those of a fast writer thousands. Small samples are copied into one
buffer; big ones are read in place from the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..transport.log.frame import Frame
from ..transport.value_classes import slotted
from ..transport.wire.samples import HAS_KEY_HASH, I64, KEY_ONLY, SAMPLE_INDEX, U8, Run, Samples

#: A chunk is closed when it has this many samples or bytes. Spark spends 12 µs on a batch; large ones miss the caches.
ROWS: Final = 32_768
BYTES: Final = 8 << 20
#: Samples of this many bytes on average are big: they miss the caches anyway, and the number of calls sets the cost.
BIG: Final = 64 << 10
#: A margin of one sample below 32 MiB, where the C library begins to return blocks to the system at once: new pages
#: halve the speed.
BIG_BYTES: Final = 28 << 20
_ZEROS: Final = np.zeros(3, np.uint8)


@slotted
class Chunk:
    """Samples of some consecutive frames, in order."""

    frames: list[Frame]
    samples: Samples
    #: SAMPLE_INDEX of all samples, if all runs have one; its offsets count from the start of each run.
    index: npt.NDArray[Any] | None = None
    counts: I64 = field(init=False)

    def __post_init__(self) -> None:
        self.counts = np.array([f.run.count for f in self.frames], np.int64)

    @property
    def count(self) -> int:
        return self.samples.count

    def frame_index(self) -> I64:
        """The index of each sample's frame."""
        return np.repeat(np.arange(len(self.frames), dtype=np.int64), self.counts)

    def sequence_numbers(self) -> I64:
        if any(f.run.sparse for f in self.frames):
            return np.concatenate([f.run.sequence_numbers() for f in self.frames])
        first = np.array([f.run.first_sn for f in self.frames], np.int64)
        before = np.cumsum(self.counts) - self.counts
        numbers: I64 = np.arange(self.count, dtype=np.int64) + np.repeat(first - before, self.counts)
        return numbers

    def receptions(self) -> I64:
        """Reception times in ns since the epoch."""
        if all(f.receptions is None for f in self.frames):
            return np.repeat(np.array([f.reception for f in self.frames], np.int64), self.counts)
        return np.concatenate(
            [
                np.full(f.run.count, f.reception, np.int64) if f.receptions is None else f.receptions
                for f in self.frames
            ]
        )

    def source_timestamps(self) -> I64:
        """Source timestamps in ns since the epoch; NO_TIMESTAMP where absent."""
        if self.index is not None:
            return self.index["timestamp"].astype(np.int64)
        runs = [f.run for f in self.frames]
        if all(r.stride and r.timestamp_offset < 0 for r in runs):
            return np.repeat(np.array([r.timestamp for r in runs], np.int64), self.counts)
        return np.concatenate([r.timestamps() for r in runs])

    def flags(self) -> npt.NDArray[np.uint32]:
        if self.index is not None:
            return self.index["flags"].astype(np.uint32)
        runs = [f.run for f in self.frames]
        hashed = np.array(
            [HAS_KEY_HASH if r.stride and r.key_hash_offset >= 0 else 0 for r in runs], np.uint32
        )
        if all(r.stride for r in runs):
            return np.repeat(np.array([r.flags for r in runs], np.uint32) | hashed, self.counts)
        flags = np.concatenate([r.sample_flags() for r in runs])
        flags |= np.repeat(hashed, self.counts)
        return flags

    def key_hashes(self) -> U8 | None:
        """(count, 16), zeros where a sample has none; None if no sample has one."""
        if self.index is not None and not int(np.bitwise_or.reduce(self.index["flags"])) & HAS_KEY_HASH:
            return None
        hashes = [f.run.key_hashes() for f in self.frames]
        if all(h is None for h in hashes):
            return None
        filled = [
            np.zeros((f.run.count, 16), np.uint8) if h is None else h
            for f, h in zip(self.frames, hashes, strict=True)
        ]
        return np.ascontiguousarray(np.concatenate(filled))

    def has_data(self) -> npt.NDArray[np.bool_] | None:
        """A mask of the samples with data, not only a key or nothing; None: all. Data may be too short to decode."""
        if all(f.run.stride and not f.run.flags & KEY_ONLY and f.run.payload_length for f in self.frames):
            return None
        mask = ((self.flags() & KEY_ONLY) == 0) & (self.samples.all_lengths() > 0)
        return None if mask.all() else mask


def chunks(
    frames: Iterable[Frame], *, rows: int = ROWS, nbytes: int = BYTES, big_bytes: int = BIG_BYTES
) -> Iterator[Chunk]:
    """Gather frames; a frame longer than twice ``rows`` is cut. A chunk of big samples views one segment of the log."""
    held: list[Frame] = []
    held_rows = held_bytes = 0
    for whole in frames:
        for frame in (whole,) if whole.run.count <= 2 * rows else _cut(whole, rows):
            data = frame.run.data
            if held_bytes > held_rows * BIG and data.base is not held[-1].run.data.base:
                yield gather(held)
                held, held_rows, held_bytes = [], 0, 0
            held.append(frame)
            held_rows += frame.run.count
            held_bytes += data.nbytes
            enough = big_bytes if held_bytes > held_rows * BIG else nbytes
            if held_rows >= rows or held_bytes >= enough:
                yield gather(held)
                held, held_rows, held_bytes = [], 0, 0
    if held:
        yield gather(held)


def gather(frames: list[Frame]) -> Chunk:
    """One chunk of all frames. Samples are not copied if there is only one frame, or if they are big."""
    if len(frames) == 1:
        return Chunk(frames, frames[0].run.samples())
    runs = [f.run for f in frames]
    if (spanned := _span(frames, runs)) is not None:
        return spanned
    first, size = runs[0], runs[0].payload_length
    if not first.stride and all(r.index is not None for r in runs):
        return _gather_indexed(frames, runs)
    if all(
        r.stride == first.stride > 0
        and r.payload_offset == first.payload_offset
        and r.payload_length == size
        and r.data.nbytes == r.count * r.stride
        for r in runs
    ):
        # the usual case, one writer's stream: copied as it lies, headers included, with one call
        data = np.concatenate([r.data for r in runs])
        count = sum(r.count for r in runs)
        return Chunk(
            frames, Samples.uniform(data, count, size, start=first.payload_offset, stride=first.stride)
        )
    if all(r.stride and r.payload_length == size for r in runs):
        return Chunk(frames, _pack([r.samples() for r in runs], size))
    return Chunk(frames, _concatenate([r.samples() for r in runs]))


def _span(frames: list[Frame], runs: list[Run]) -> Chunk | None:
    """Big samples in place: one view, from the first to the last, of the segment that contains them.

    The view keeps the segment mapped even after the log is trimmed.
    """
    nbytes = [r.data.nbytes for r in runs]
    segment = runs[0].data.base
    if sum(nbytes) <= sum(r.count for r in runs) * BIG:
        return None
    if not isinstance(segment, np.ndarray) or segment.dtype != np.uint8 or not segment.flags.c_contiguous:
        return None
    if any(r.data.base is not segment for r in runs):
        return None
    starts = np.array([r.data.ctypes.data for r in runs], np.int64) - segment.ctypes.data
    low, high = int(starts.min()), int((starts + np.array(nbytes)).max())
    if ((starts - low) & 3).any():
        return None
    parts = [r.samples() for r in runs]
    offsets = np.concatenate([p.all_offsets() + at for p, at in zip(parts, starts - low, strict=True)])
    lengths = np.concatenate([p.all_lengths() for p in parts])
    index = [r.index for r in runs if r.index is not None]
    known = np.concatenate(index) if len(index) == len(runs) else None
    return Chunk(frames, Samples.ragged(segment.reshape(-1)[low:high], offsets, lengths), known)


def _gather_indexed(frames: list[Frame], runs: list[Run]) -> Chunk:
    """A chunk of runs that all have an index: the only call for each run is the copy of its bytes."""
    # as bytes, because NumPy compares structured types field by field for each array
    index = np.concatenate([r.index.view(np.uint8) for r in runs if r.index is not None]).view(SAMPLE_INDEX)
    data, starts = _end_to_end([r.data for r in runs])
    offsets = index["offset"].astype(np.int64) + np.repeat(starts, np.array([r.count for r in runs]))
    return Chunk(frames, Samples.ragged(data, offsets, index["length"].astype(np.int64)), index)


def _pack(parts: list[Samples], size: int) -> Samples:
    """Payloads of equal size, one behind the other."""
    count = sum(p.count for p in parts)
    stride = max(4, -(-size // 4) * 4)
    data = np.empty(count * stride, np.uint8)
    rows = data.reshape(count, stride)
    at = 0
    for part in parts:
        rows[at : at + part.count, :size] = part.rows()
        at += part.count
    return Samples.uniform(data, count, size, stride=stride)


def _concatenate(parts: list[Samples]) -> Samples:
    """Payloads of different sizes: the buffers one behind the other, each at a multiple of 4."""
    data, starts = _end_to_end([p.data for p in parts])
    offsets = np.concatenate([p.all_offsets() + at for p, at in zip(parts, starts, strict=True)])
    return Samples.ragged(data, offsets, np.concatenate([p.all_lengths() for p in parts]))


def _end_to_end(parts: list[U8]) -> tuple[U8, I64]:
    """The parts one behind the other, and the start of each, a multiple of 4."""
    lengths = np.array([part.nbytes for part in parts], np.int64)
    padded = (lengths + 3) & -4
    if (padded != lengths).any():
        gaps = (padded - lengths).tolist()
        parts = [piece for part, gap in zip(parts, gaps, strict=True) for piece in (part, _ZEROS[:gap])]
    return np.concatenate(parts), np.cumsum(padded) - padded


def halves(chunk: Chunk) -> Iterator[Chunk]:
    """The chunk's samples in two chunks; no copy of payloads."""
    ends = np.cumsum(chunk.counts).tolist()
    for first, last in ((0, chunk.count // 2), (chunk.count // 2, chunk.count)):
        frames = []
        for frame, end in zip(chunk.frames, ends, strict=True):
            before = end - frame.run.count
            if first < end and before < last:
                frames.append(_part(frame, max(0, first - before), min(last, end) - before))
        index = None if chunk.index is None else chunk.index[first:last]
        yield Chunk(frames, chunk.samples.take_range(first, last), index)


def _cut(frame: Frame, rows: int) -> Iterator[Frame]:
    count = frame.run.count
    for first in range(0, count, rows):
        yield _part(frame, first, min(first + rows, count))


def _part(frame: Frame, first: int, last: int) -> Frame:
    run = frame.run.take_range(first, last)
    receptions = None if frame.receptions is None else frame.receptions[first:last]
    return Frame(frame.position, frame.length, frame.reception, frame.rows_before + first, run, receptions)
