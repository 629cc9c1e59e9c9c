"""Finds frames of a stream log by their headers: the first one behind a number of bytes or rows, or since a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from .frame import Cursor
from .frame_index import MARK_FRAMES, FrameIndex, Mark
from .frame_scan import FrameHeader
from .log_segments import LogSegments, base_of, holder


class FrameSearch:
    """Searches the log that has ``segments``.

    ``index`` is the index of the log, if there is one; ``still`` is called from time to time during a search, and may
    raise.
    """

    def __init__(
        self, segments: LogSegments, index: FrameIndex | None, still: Callable[[], None] | None
    ) -> None:
        self._segments = segments
        self._index = index
        self._still = still

    def find_header_behind(self, byte: int, position: int, stop: int) -> FrameHeader | None:
        """The first run frame from ``position`` on that ends behind ``byte`` and starts before ``stop``."""
        if (file := holder(self._segments.list_now(), byte)) is not None:
            position = max(position, file.base)
        for header in self.headers_towards(position, stop, lambda mark: mark.position > byte):
            if byte < header.stop:
                return header
        return None

    def headers_towards(
        self, position: int, stop: int, is_beyond: Callable[[Mark], bool]
    ) -> Iterator[FrameHeader]:
        """The run frames from ``position`` on that start before ``stop``, for a search of the first one with some
        property.

        If the log has an index, most frames before the last mark that is not beyond are skipped.
        """
        if self._index is None:
            yield from self._segments.headers(position, stop)
            return
        for number, header in enumerate(self._segments.headers(position, stop)):
            if number == MARK_FRAMES:  # scanning fewer frames is faster than marking them
                yield from self._segments.headers(
                    self.position_of_mark(header.position, stop, is_beyond), stop
                )
                return
            yield header

    def position_of_mark(self, position: int, stop: int, is_beyond: Callable[[Mark], bool]) -> int:
        """The position of the last mark that is not beyond, in the segment of ``position``; at least ``position``."""
        segment = self._segments.map(position) if self._index is not None else None
        if self._index is None or segment is None:
            return position
        self._index.keep([file.base for file in self._segments.list_now()])
        mark = self._index.last_before(segment, stop, is_beyond, self._still)
        return position if mark is None else max(position, mark.position)

    def first_header(self, start: Cursor, stop: int) -> FrameHeader | None:
        """The header of the frame that holds the first sample after ``start``."""
        for header in self._segments.headers(start.position, stop):
            if header.position > start.position or header.count > start.row:
                return header
        return None

    def skip_segments(self, position: int, tail: int, rows_end: int, bytes_end: int) -> int:
        """The start of the last segment within the limits, or ``position``: the frames before it need no scan."""
        files = self._segments.list_now()
        for file in files[bisect_right(files, position, key=base_of) :]:
            if file.base >= tail or file.base > bytes_end:
                break
            first = self.first_header(Cursor(file.base), tail)
            if first is None or first.rows_before > rows_end:
                break
            position = file.base
        return position

    def byte_of(self, cursor: Cursor) -> int:
        """The cursor as a number of bytes."""
        segment = self._segments.map(cursor.position) if cursor.row else None
        header = None if segment is None else segment.header(cursor.position)
        if header is None or not header.is_run:
            return cursor.position
        return byte_at(header, min(cursor.row, header.count))


def byte_at(header: FrameHeader, row: int) -> int:
    """The position behind ``row`` samples, assuming that all are equally long."""
    return header.position + (header.stop - header.position) * row // header.count


def cursor_at(header: FrameHeader, row: int) -> Cursor:
    return Cursor(header.position, row) if row < header.count else Cursor(header.stop)
