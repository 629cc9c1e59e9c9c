"""Reads the frames of a stream log in a range, and finds damage between them and the samples lost there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from ..errors import LogLostError, UsageError
from ..wire.samples import Run
from .checkpoint import Tail
from .damage import Damage
from .frame import Cursor, Frame, PadFrame
from .frame_scan import FrameGap, FrameHeader
from .log_files import LogFiles
from .log_segments import LogSegments, holder

Item: TypeAlias = Frame | PadFrame | Damage


class FrameReader:
    """Reads the frames in ``segments``, which are those of ``files``."""

    def __init__(self, files: LogFiles, segments: LogSegments) -> None:
        self._directory = files.directory
        self._files = files
        self._segments = segments

    def read_items(self, start: Cursor, end: Cursor, *, bodies: bool, exact: bool) -> Iterator[Item]:
        """Read the items from ``start`` to ``end``: frames, PADs and damage.

        ``bodies``: verify the frames' bodies; ``exact``: the range must end at the end of a frame, or at one of its
        rows.
        """
        check_range(start, end)
        if start == end:
            return iter(())
        tail = self._files.tail()
        last = end.position if end.row else end.position - 1
        if tail is not None and last >= tail.most:
            raise self._segments.lost(last, "not (yet)")
        held = self._segments.list_now()
        for position in (start.position, last):
            if holder(held, position) is None:
                self._segments.check_trimmed(position)
        self._files.expect(start.position, end.position + (end.row > 0))
        return self._scan_items(start, end, tail, bodies=bodies, exact=exact)

    def _scan_items(
        self, start: Cursor, end: Cursor, tail: Tail | None, *, bodies: bool, exact: bool
    ) -> Iterator[Item]:
        before = _Before(None, None)
        gap: FrameGap | None = None
        for item in self._segments.scan_frames(start.position, end.position + (end.row > 0)):
            if isinstance(item, FrameGap):
                gap = item if gap is None else FrameGap(gap.position, item.stop, gap.is_hole or item.is_hole)
                continue
            if gap is not None:
                yield self._unknown(gap, start, before, self._after(item))
                before, gap = _Before(None, None), None
            if not item.is_run:
                before = _Before(item, before.run)
                yield PadFrame(item.position, item.stop, item.rows_before)
                continue
            reception, run = self._read(item)
            is_whole = not (bodies or run.sparse) or item.segment.is_whole(item)
            before = _Before(item, run if is_whole else None)
            first = start.row if item.position == start.position else 0
            last = end.row if item.position == end.position else item.count
            if last > item.count:
                if exact:
                    raise UsageError(f"the frame at {item.position} has no row {last}, only {item.count}")
                last = item.count
            if first >= last:
                continue
            if not is_whole:
                self._segments.check_trimmed(item.position)
                number = run.first_sn + first
                yield Damage(self._directory, item.position, item.stop, last - first, run.writer, number)
                continue
            if last - first < item.count:
                run = run.take_range(first, last)
            yield Frame(item.position, item.stop - item.position, reception, item.rows_before + first, run)
        if gap is not None:
            yield self._unknown(gap, start, before, self._behind(gap.stop, tail))
        elif exact and before.header is not None and before.header.stop > end.position and not end.row:
            raise LogLostError(
                f"no frame ends at position {end.position} in the log in {self._directory}",
                path=self._directory,
                position=end.position,
            )

    def _read(self, header: FrameHeader) -> tuple[int, Run]:
        """Reception and run of a frame. Raises LogLostError if it was overwritten meanwhile and cannot be decoded."""
        try:
            return header.segment.read_frame(header)
        except ValueError:
            self._segments.check_trimmed(header.position)
            raise

    def _unknown(self, gap: FrameGap, start: Cursor, before: _Before, after: _After) -> Damage | PadFrame:
        """Describe a gap by the frames before and behind it; a PAD: the log was resumed behind it without a loss."""
        if before.header is None:
            before = self._before(gap.position)
        rows_before = before.rows if gap.position else 0
        if rows_before is None or after.rows is None:
            return Damage(self._directory, gap.position, gap.stop)
        read = start.row if gap.position == start.position else 0
        rows = max(0, after.rows - rows_before - read)
        if gap.is_hole and not rows:  # the recovery did not know either
            return Damage(self._directory, gap.position, gap.stop)
        if not (rows or read or gap.is_hole) and holder(self._segments.list_now(), gap.position) is None:
            return PadFrame(gap.position, gap.stop, rows_before)
        left, right = before.run, after.run
        if left is not None and right is not None and left.writer == right.writer:
            # The same writer is on both sides, and its missing numbers are as many as the lost samples: they are its
            # samples.
            if right.first_sn - left.last_sn - 1 == rows + read:
                first_sn = left.last_sn + 1 + read
                return Damage(self._directory, gap.position, gap.stop, rows, left.writer, first_sn)
        return Damage(self._directory, gap.position, gap.stop, rows)

    def ends_at(self, position: int) -> bool:
        """Whether a frame ends at ``position``."""
        return self._before(position).header is not None

    def _before(self, position: int) -> _Before:
        """The frame that ends at ``position``."""
        segment = self._segments.map(position - 1) if position else None
        found = _Before(None, None)
        for item in () if segment is None else segment.scan_frames(segment.base, position):
            if isinstance(item, FrameGap) or item.is_hole or item.stop > position:
                found = _Before(None, None)
            elif not item.is_run:
                found = _Before(item, found.run)
            else:
                found = _Before(item, self._read(item)[1] if item.segment.is_whole(item) else None)
        return found

    def _after(self, header: FrameHeader) -> _After:
        """The frame that begins with ``header``; for a PAD, the next segment's first frame."""
        behind = header if header.is_run else None
        if behind is None:
            segment = self._segments.map(header.stop)
            behind = None if segment is None else segment.header(header.stop)
        is_next = behind is not None and behind.is_run and behind.rows_before == header.rows_before
        return _After(header.rows_before, self._read(behind)[1] if behind and is_next else None)

    def _behind(self, position: int, tail: Tail | None) -> _After:
        """The known facts about the frame at ``position``."""
        if tail is not None and tail.position == position:
            return _After(tail.rows, None)
        segment = self._segments.map(position)
        header = None if segment is None else segment.header(position)
        return _After(None, None) if header is None else self._after(header)


def check_range(start: Cursor, end: Cursor) -> None:
    """Raise UsageError for an invalid range."""
    if not (0, 0) <= start <= end or start.row < 0 or end.row < 0:
        raise UsageError(f"there is no range from {start} to {end}")


class _Before(NamedTuple):
    """The frame that ends where a gap begins, and the last run before the gap; None: unknown."""

    header: FrameHeader | None
    run: Run | None

    @property
    def rows(self) -> int | None:
        return None if self.header is None else self.header.rows_before + self.header.count


class _After(NamedTuple):
    """The number of samples in the log before the end of a gap, and the run that begins there; None: unknown."""

    rows: int | None
    run: Run | None
