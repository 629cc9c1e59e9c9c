"""Marks along the frames of a log, so that a search in a segment need not scan from its beginning.

A segment of one-sample frames has half a million of them, whose headers take a second to scan. An index is kept between
views of the same log: each part of a segment is scanned once.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from .frame_scan import FrameHeader, SegmentFrames

#: Frames between two marks: a scan of this many takes milliseconds.
MARK_FRAMES: Final = 1024


class Mark(NamedTuple):
    """A frame, the number of samples before it, and the latest reception (ns since 1970) up to it in its segment."""

    position: int
    rows_before: int
    received: int


class FrameIndex:
    """The marks of one log. Calls from several threads run one after the other."""

    def __init__(self) -> None:
        self._marks: dict[int, list[Mark]] = {}
        self._lock = threading.Lock()

    def last_before(
        self,
        segment: SegmentFrames,
        stop: int,
        is_beyond: Callable[[Mark], bool],
        still: Callable[[], None] | None,
    ) -> Mark | None:
        """The last mark of a segment before ``stop`` for which ``is_beyond`` is false; None: there is none.

        ``still`` is called while frames are scanned, and ends the scan by raising: scanned frames are not scanned
        again.
        """
        with self._lock:
            marks = self._marks.setdefault(segment.base, [])
            if not marks or not is_beyond(marks[-1]):
                self._scan_on(segment, stop, marks, is_beyond, still)
            at = bisect_left(marks, True, key=is_beyond)
            return marks[at - 1] if at else None

    def keep(self, bases: Collection[int]) -> None:
        """Forget the segments that no longer exist."""
        with self._lock:
            for base in self._marks.keys() - set(bases):
                del self._marks[base]

    def _scan_on(
        self,
        segment: SegmentFrames,
        stop: int,
        marks: list[Mark],
        is_beyond: Callable[[Mark], bool],
        still: Callable[[], None] | None,
    ) -> None:
        position, received = (marks[-1].position, marks[-1].received) if marks else (segment.base, 0)
        count = 0
        for item in segment.scan_frames(position, stop):
            if not isinstance(item, FrameHeader) or not item.is_run:
                continue
            if count == MARK_FRAMES:
                count = 0
                marks.append(Mark(item.position, item.rows_before, received))
                if is_beyond(marks[-1]):
                    return
                if still is not None:
                    still()
            received = max(received, segment.reception(item))
            count += 1
