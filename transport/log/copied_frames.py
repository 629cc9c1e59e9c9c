"""The frames of a segment that is trimmed, and overwritten, while it is read.

What is trimmed by others than the reader may be overwritten at any moment: a view of the mapped file is right when a
checksum is verified, and wrong when its rows are decoded or sent. So the bytes are copied before anything is looked at.
What passes the checksums then is right and stays so. A frame that was overwritten while it was copied does not pass:
its header says another position, or its checksum is wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Self

from ..protocol.intervals import IntervalSet
from ..wire.samples import U8, Run
from .buffers import buffer
from .checkpoint import read_tail
from .frame import ALIGNMENT, HEADER_BYTES, align
from .frame_walk import Header, SegmentFrames, mapped
from .segment import SegmentFile

#: Copied at once: what the second-level cache holds, so that the checksum finds it there.
_COPIED_BYTES: Final = 512 << 10


class CopiedFrames(SegmentFrames):
    """The buffer is as long as the segment, so that frames lie where they do in its file; no byte is copied twice, as
    views of it may have been handed out."""

    __slots__ = ("_copied", "_directory", "_last", "_source")

    def __init__(self, directory: Path, base: int, source: U8, seed: int) -> None:
        super().__init__(base, buffer(source.size), seed)
        self._directory = directory
        self._source = source
        self._copied = IntervalSet()
        #: The bytes that were copied last, and those before them.
        self._last = (0, 0)

    @classmethod
    def map(cls, directory: Path, file: SegmentFile, seed: int) -> Self:
        return cls(directory, file.base, mapped(directory, file), seed)

    def header(self, position: int) -> Header | None:
        at = position - self.base
        self._need(at, min(at + HEADER_BYTES, self.data.size))
        return super().header(position)

    def next_header(self, position: int, stop: int) -> Header | None:
        stop = min(stop, self.end)
        while position < stop:
            high = min(stop, self.base + align(position - self.base + _COPIED_BYTES))
            self._need(max(0, position - self.base), min(align(high - self.base), self.data.size))
            found = super().next_header(position, high)
            if found is not None:
                return found
            position = high
        return None

    def is_committed(self, position: int) -> bool:
        if self.base <= position < self.end:
            at = position - self.base
            self._need(at, min(at + ALIGNMENT, self.data.size))
        return super().is_committed(position)

    def is_whole(self, header: Header) -> bool:
        self._need_all(header)
        return super().is_whole(header)

    def read(self, header: Header) -> tuple[int, Run]:
        self._need_all(header)
        return super().read(header)

    def _need_all(self, header: Header) -> None:
        at = header.position - self.base
        self._need(at, at + header.length)

    def _need(self, start: int, stop: int) -> None:
        """Have the bytes [start, stop) copied; those that are not appended yet are zeros for now."""
        low, high = self._last
        if low <= start and stop <= high:
            return
        tail = read_tail(self._directory)
        limit = self.data.size
        if tail is not None:
            limit = min(limit, max(0, tail.most - tail.most % ALIGNMENT - self.base))
        if limit < stop:
            self.data[max(start, limit) : stop] = 0
            stop = limit
        at = start - start % ALIGNMENT
        while at < stop:
            held = self._copied.around(at)
            if held is not None:
                at = held[1] + 1
                continue
            behind = min((first for first, _ in self._copied if first > at), default=limit)
            high = min(limit, behind, max(align(stop), at + _COPIED_BYTES))
            self.data[at:high] = self._source[at:high]
            self._copied.add(at, high - 1)
            at = high
        held = self._copied.around(start)
        if held is not None:
            self._last = held[0], held[1] + 1
