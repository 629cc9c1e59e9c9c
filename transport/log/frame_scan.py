"""Scans the frames of a segment, and finds the next one behind damage.

A header is valid only if its checksum is right, it has its own position, and its frame ends within the segment.
Everything else is a gap, which reaches to the next valid header. Bodies are not read here.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Self

import numpy as np

from ..value_classes import slotted
from ..wire.samples import U8, Run
from .frame import ALIGNMENT, HOLE, PAD, RECEPTION, RUN, WALK, align, is_body, is_header, read_run
from .segment import SegmentFile, segment_path

_POSITION: Final = 8  # offset of the position in a header
_WORDS: Final = ALIGNMENT // 8
#: Bytes searched for a header at once.
_SEARCHED_BYTES: Final = 1 << 20


@slotted
class FrameHeader:
    """A frame with a valid header."""

    segment: SegmentFrames
    position: int
    length: int  # not aligned
    kind: int
    rows_before: int
    count: int

    @property
    def stop(self) -> int:
        """The position of the next frame."""
        return self.position + align(self.length)

    @property
    def is_run(self) -> bool:
        return self.kind == RUN

    @property
    def is_hole(self) -> bool:
        """Whether it marks samples that a recovery found lost."""
        return self.kind == HOLE


class FrameGap(NamedTuple):
    """Bytes without a frame; ``is_hole``: a recovery found that samples are lost there."""

    position: int
    stop: int
    is_hole: bool = False


def mapped(directory: Path, file: SegmentFile) -> U8:
    """A segment of the log in ``directory``, mapped. Raises OSError."""
    fd = os.open(segment_path(directory, file.base), os.O_RDONLY)
    try:
        view = mmap.mmap(fd, file.size, access=mmap.ACCESS_READ)
    finally:
        os.close(fd)
    return np.frombuffer(view, np.uint8)


class SegmentFrames:
    """The frames in ``data``, a segment that starts at the position ``base``."""

    __slots__ = ("_bytes", "base", "data", "end", "seed")

    def __init__(self, base: int, data: U8, seed: int) -> None:
        self.base = base
        self.data = data[: data.size // ALIGNMENT * ALIGNMENT]  # a truncated file may end anywhere
        self.end = base + self.data.size
        self.seed = seed
        self._bytes = memoryview(self.data)

    @classmethod
    def map(cls, directory: Path, file: SegmentFile, seed: int) -> Self:
        """Map a segment of the log in ``directory``. Raises OSError."""
        return cls(file.base, mapped(directory, file), seed)

    def header(self, position: int) -> FrameHeader | None:
        """The frame at ``position``, which lies in the segment; None: there is none."""
        at = position - self.base
        if at % ALIGNMENT:
            return None
        length, kind, _, found, rows_before, count, _ = WALK.unpack_from(self._bytes, at)
        if (
            length <= 0
            or found != position
            or align(length) > self.end - position
            or not is_header(self._bytes, at, length, kind, self.seed)
        ):
            return None
        return FrameHeader(self, position, length, kind, rows_before, count)

    def next_header(self, position: int, stop: int) -> FrameHeader | None:
        """The first frame from ``position`` on and before ``stop``."""
        at = align(max(0, position - self.base))
        last = align(min(stop, self.end) - self.base)
        while at < last:
            data = self.data[at : min(last, at + _SEARCHED_BYTES)]
            found = data.view("<i8")[_POSITION // 8 :: _WORDS]
            starts = self.base + at + ALIGNMENT * np.arange(len(found))
            for number in np.flatnonzero(found == starts).tolist():
                header = self.header(self.base + at + ALIGNMENT * number)
                if header is not None:
                    return header
            at += _SEARCHED_BYTES
        return None

    def pad(self) -> int | None:
        """The position of the PAD at the segment's end; None: there is none."""
        stop = self.data.size
        while stop > 0:
            start = max(0, stop - _SEARCHED_BYTES)
            found = self.data[start:stop].view("<i8")[_POSITION // 8 :: _WORDS]
            starts = self.base + start + ALIGNMENT * np.arange(len(found))
            for number in np.flatnonzero(found == starts)[::-1].tolist():
                header = self.header(self.base + start + ALIGNMENT * number)
                if header is not None:
                    return header.position if header.kind == PAD and header.stop == self.end else None
            stop = start
        return None

    def is_committed(self, position: int) -> bool:
        """Whether the length at ``position`` is that of an appended frame, even if the frame is damaged by now."""
        if not self.base <= position < self.end:
            return False
        length: int = WALK.unpack_from(self._bytes, position - self.base)[0]
        return length > 0

    def scan_frames(self, position: int, stop: int) -> Iterator[FrameHeader | FrameGap]:
        """The frames and the gaps from ``position`` on that start before ``stop`` and before the segment's end."""
        stop = min(stop, self.end)
        while position < stop:
            header = self.header(position)
            if header is None:
                header = self.next_header(position + 1, stop)
                yield FrameGap(position, stop if header is None else header.position)
                if header is None:
                    return
            position = header.stop
            yield header

    def is_whole(self, header: FrameHeader) -> bool:
        """Whether the body of a run matches its checksum."""
        return is_body(self.data, header.position - self.base, header.length, self.seed)

    def reception(self, header: FrameHeader) -> int:
        """The reception time of a run, in ns since the epoch."""
        at: int = RECEPTION.unpack_from(self._bytes, header.position - self.base)[0]
        return at

    def read_frame(self, header: FrameHeader) -> tuple[int, Run]:
        """Reception and run of a frame; the run views the segment."""
        return read_run(self.data, header.position - self.base)
