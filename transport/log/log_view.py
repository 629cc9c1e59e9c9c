"""Reads a stream log in place, from any process, while another process appends to it and trims it."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from ..errors import LogLostError, UsageError
from ..wire.samples import SAMPLE_INDEX, U8
from .frame import ALIGNMENT, HEADER_BYTES, RUN, WALK, Cursor, Frame, align, read_run
from .segment import JSON, SegmentFile, list_segments, read_metadata, segment_path

__all__ = ["Cursor", "Frame", "LogView"]

#: Segments kept mapped for the next call. Few, since a mapped segment holds its disk space though trimmed.
_MAPPED_MAX: Final = 2
_UNLIMITED: Final = 1 << 63


@dataclass(slots=True)
class _Mapped:
    base: int
    end: int
    data: U8  # the mapping goes with the last view of it


@dataclass(slots=True)
class _Header:
    segment: _Mapped
    position: int
    length: int  # aligned
    rows_before: int
    count: int

    def byte(self, row: int) -> int:
        """The position behind ``row`` samples, if all are equally long."""
        return self.position + self.length * row // self.count

    def cursor(self, row: int) -> Cursor:
        return Cursor(self.position, row) if row < self.count else Cursor(self.position + self.length)


class LogView:
    """A read-only view of the log in ``directory``. Not thread-safe; cheap to make.

    Positions handed in are those of frames, as in cursors and in the log's own ``position``. A range that the log
    does not hold whole, because a part was trimmed or is not appended yet, raises LogLostError.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._mapped: dict[int, _Mapped] = {}

    @property
    def metadata(self) -> dict[str, JSON]:
        """The metadata that the log's creator gave; LogError if there is no log."""
        return read_metadata(self.directory).given

    def frames(self, start: Cursor, end: Cursor) -> Iterator[Frame]:
        """The frames from ``start`` to ``end``, the first and last one sliced; their runs view the log.

        LogLostError is raised here for what is trimmed already, or not appended yet, and while iterating for what is
        trimmed meanwhile.
        """
        self._check_range(start, end)
        if start == end:
            return iter(())
        self._locate(start.position)
        self._locate(end.position if end.row else end.position - 1)
        return self._frames(start, end)

    def advance(
        self, start: Cursor, *, max_rows: int | None = None, max_bytes: int | None = None, tail: int
    ) -> Cursor:
        """The furthest cursor up to ``tail`` within the limits, but at least one sample after ``start``.

        ``max_bytes`` counts positions; inside a frame its bytes are spread evenly over its samples.
        """
        if tail <= start.position:
            return start
        if max_rows is None and max_bytes is None:
            return Cursor(tail)
        end = Cursor(tail)
        first = self._first_header(start, end)
        if first is None:
            return end
        skip = start.row if first.position == start.position else 0
        rows_end = _UNLIMITED if max_rows is None else first.rows_before + skip + max_rows
        bytes_end = tail if max_bytes is None else first.byte(skip) + max_bytes
        least = first.cursor(skip + 1)
        for header in self._headers(self._skip_segments(first.position, tail, rows_end, bytes_end), end):
            room = min(
                rows_end - header.rows_before, (bytes_end - header.position) * header.count // header.length
            )
            if room < header.count:
                return max(least, header.cursor(max(room, 0)))
        return end

    def split(self, start: Cursor, end: Cursor, pieces: int) -> list[tuple[Cursor, Cursor]]:
        """Split the range into at most ``pieces`` of about equal bytes.

        The cuts lie between frames, and inside a frame only where it is longer than half a piece.
        """
        self._check_range(start, end)
        if pieces < 1:
            raise UsageError(f"cannot split into {pieces} pieces")
        if start == end:
            return []
        cuts = [start]
        if pieces > 1:
            low, high = self._byte(start), self._byte(end)
            targets = [low + (high - low) * k // pieces for k in range(1, pieces)]
            long = (high - low) // pieces // 2
            for header in self._headers(start.position, end):
                while targets and targets[0] < header.position + header.length:
                    inside = max(0, targets.pop(0) - header.position)
                    if header.length > long:
                        cut = Cursor(header.position, inside * header.count // header.length)
                    else:
                        cut = Cursor(header.position + (header.length if inside * 2 > header.length else 0))
                    if cuts[-1] < cut < end:
                        cuts.append(cut)
                if not targets:
                    break
        return list(zip(cuts, [*cuts[1:], end], strict=True))

    # --- inside ----------------------------------------------------------------------------------

    def _frames(self, start: Cursor, end: Cursor) -> Iterator[Frame]:
        for header in self._headers(start.position, end):
            first = start.row if header.position == start.position else 0
            last = end.row if header.position == end.position else header.count
            if last > header.count:
                raise UsageError(f"the frame at {header.position} has no row {last}, only {header.count}")
            if first >= last:
                continue
            segment = header.segment
            reception, rows_before, run = read_run(segment.data, header.position - segment.base)
            if last - first < header.count:
                run, rows_before = run.take(first, last), rows_before + first
            yield Frame(header.position, header.length, reception, rows_before, run)

    def _headers(self, position: int, end: Cursor) -> Iterator[_Header]:
        """The run frames from ``position`` up to ``end``, the frame that ``end`` cuts included."""
        unpack = WALK.unpack_from
        stop = end.position + (1 if end.row else 0)
        while position < stop:
            segment = self._map(position)
            data, base, here = segment.data, segment.base, min(stop, segment.end)
            while position < here:
                room = segment.end - position
                if position % ALIGNMENT or room < ALIGNMENT:
                    raise self._lost(position)
                length, kind, _, found, rows_before, count, stride = unpack(data, position - base)
                if length <= 0 or found != position:
                    raise self._lost(position)
                step = align(length)
                if step > room:
                    raise self._damaged(position)
                if kind == RUN:
                    if not 0 < count * (stride or SAMPLE_INDEX.itemsize) <= length - HEADER_BYTES:
                        raise self._damaged(position)
                    yield _Header(segment, position, step, rows_before, count)
                position += step
        if position != end.position and not end.row:
            raise LogLostError(
                f"no frame ends at position {end.position} in the log in {self.directory}",
                path=self.directory,
                position=end.position,
            )

    def _first_header(self, start: Cursor, end: Cursor) -> _Header | None:
        """The header of the frame that holds the first sample after ``start``."""
        for header in self._headers(start.position, end):
            if header.position > start.position or header.count > start.row:
                return header
        return None

    def _skip_segments(self, position: int, tail: int, rows_end: int, bytes_end: int) -> int:
        """The start of the last segment within the limits, or ``position``: the frames before need no walk."""
        for file in list_segments(self.directory):
            if position < file.base < tail and file.base <= bytes_end:
                first = self._first_header(Cursor(file.base), Cursor(tail))
                if first is None or first.rows_before > rows_end:
                    break
                position = file.base
        return position

    def _byte(self, cursor: Cursor) -> int:
        """The cursor in bytes."""
        if not cursor.row:
            return cursor.position
        header = self._first_header(Cursor(cursor.position), cursor)
        return cursor.position if header is None else header.byte(cursor.row)

    def _check_range(self, start: Cursor, end: Cursor) -> None:
        if not (0, 0) <= start <= end or start.row < 0 or end.row < 0:
            raise UsageError(f"there is no range from {start} to {end}")

    def _map(self, position: int) -> _Mapped:
        """The segment that holds ``position``, mapped."""
        for mapped in self._mapped.values():
            if mapped.base <= position < mapped.end:
                return mapped
        file = self._locate(position)
        try:
            fd = os.open(segment_path(self.directory, file.base), os.O_RDONLY)
        except FileNotFoundError:
            raise self._lost(position) from None
        try:
            view = mmap.mmap(fd, file.size, access=mmap.ACCESS_READ)
        finally:
            os.close(fd)
        mapped = _Mapped(file.base, file.end, np.frombuffer(view, np.uint8))
        self._mapped.pop(file.base, None)
        while len(self._mapped) >= _MAPPED_MAX:
            del self._mapped[next(iter(self._mapped))]
        self._mapped[file.base] = mapped
        return mapped

    def _locate(self, position: int) -> SegmentFile:
        for file in list_segments(self.directory):
            if file.base <= position < file.end:
                return file
        raise self._lost(position)

    def _damaged(self, position: int) -> LogLostError:
        return LogLostError(
            f"the log in {self.directory} is damaged at position {position}",
            path=self.directory,
            position=position,
        )

    def _lost(self, position: int) -> LogLostError:
        read_metadata(self.directory)  # raises an error of its own where there is no log at all
        files = list_segments(self.directory)
        held = f"which holds segments [{files[0].base}, {files[-1].end})" if files else "which holds nothing"
        when = "no longer" if files and position < files[0].base else "not (yet)"
        return LogLostError(
            f"position {position} is {when} in the log in {self.directory}, {held}",
            path=self.directory,
            position=position,
        )
