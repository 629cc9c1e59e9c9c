"""The frames of a segment of which only parts are present: parts are fetched before they are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from ..wire.samples import Run
from .frame import ALIGNMENT, HEADER_BYTES, align
from .frame_scan import FrameHeader, SegmentFrames


class PartialFrames(SegmentFrames, ABC):
    """``data`` is as long as the segment, so that frames have the offsets of its file; :meth:`_bring` fills it."""

    __slots__ = ()

    #: Bytes that are fetched and searched for a header at once.
    searched_bytes: ClassVar[int]

    @abstractmethod
    def _bring(self, start: int, stop: int) -> None:
        """Fetch ``data[start:stop]``. Bytes fetched before do not change: views of them may be in use."""

    def header(self, position: int) -> FrameHeader | None:
        at = position - self.base
        self._need(at, at + HEADER_BYTES)
        return super().header(position)

    def next_header(self, position: int, stop: int) -> FrameHeader | None:
        stop = min(stop, self.end)
        while position < stop:
            high = min(stop, self.base + align(position - self.base + self.searched_bytes))
            self._need(position - self.base, align(high - self.base))
            found = super().next_header(position, high)
            if found is not None:
                return found
            position = high
        return None

    def is_committed(self, position: int) -> bool:
        if self.base <= position < self.end:
            self._need(position - self.base, position - self.base + ALIGNMENT)
        return super().is_committed(position)

    def is_whole(self, header: FrameHeader) -> bool:
        self._need_all(header)
        return super().is_whole(header)

    def read_frame(self, header: FrameHeader) -> tuple[int, Run]:
        self._need_all(header)
        return super().read_frame(header)

    def _need_all(self, header: FrameHeader) -> None:
        at = header.position - self.base
        self._need(at, at + header.length)

    def _need(self, start: int, stop: int) -> None:
        self._bring(max(0, start), min(stop, self.data.size))
