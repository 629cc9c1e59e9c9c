"""The frames of a segment that may be trimmed and overwritten while it is read.

If another process than the reader trims the log, a segment may be overwritten at any moment: a view of the mapped file
may be right when its checksum is verified, and wrong when its rows are decoded or sent. So the bytes are copied before
they are read. A copy that passes the checksums stays right. A frame that was overwritten during the copy does not pass:
its header has another position, or its checksum is wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Self

from ..protocol.intervals import IntervalSet
from ..wire.samples import U8
from .buffers import buffer
from .checkpoint import read_tail
from .frame import ALIGNMENT, align
from .frame_scan import mapped
from .partial_frames import PartialFrames
from .segment import SegmentFile

#: Bytes copied at once: they fit the second-level cache, so that the checksum finds them there.
_COPIED_BYTES: Final = 512 << 10


class CopiedFrames(PartialFrames):
    """Copies no byte twice."""

    __slots__ = ("_copied", "_directory", "_last", "_source")

    searched_bytes = _COPIED_BYTES

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

    def _bring(self, start: int, stop: int) -> None:
        """Copy the bytes [start, stop); those that are not appended yet are zeros for now."""
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
            self._copied.add_range(at, high - 1)
            at = high
        held = self._copied.around(start)
        if held is not None:
            self._last = held[0], held[1] + 1
