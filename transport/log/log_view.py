"""Reads a stream log, in place or from another source, while another process appends to it and trims it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from ..errors import LogLostError, UsageError
from .damage import Damage
from .frame import Cursor, Frame, PadFrame
from .frame_index import FrameIndex
from .frame_reader import FrameReader, Item, check_range
from .frame_scan import FrameHeader
from .frame_search import FrameSearch, byte_at, cursor_at
from .log_files import LogDirectory, LogFiles
from .log_segments import MAPPED_MAX, LogSegments
from .segment import JSON, SegmentFile

__all__ = ["Cursor", "Damage", "Frame", "Item", "LogView", "PadFrame"]

_UNLIMITED: Final = 1 << 63

OnDamage: TypeAlias = Callable[[Damage], None]


class LogView:
    """A read-only view of the log in ``directory``. Not thread-safe; cheap to make.

    Positions passed in are those of frames, as in cursors and in the log's own ``position``. A range that the log does
    not hold completely, because a part was trimmed or is not appended yet, raises LogLostError.

    Frames are verified before they are returned, and their headers before they are used to plan. Planning (``advance``,
    ``split``) skips damage silently, since the reader of the range reports it.
    """

    def __init__(
        self,
        directory: Path,
        files: LogFiles | None = None,
        *,
        index: FrameIndex | None = None,
        still: Callable[[], None] | None = None,
    ) -> None:
        """``index`` is the index of the log, for many searches in it; ``still`` is called from time to time during a
        search, and may raise."""
        self.directory = directory
        self._files: LogFiles = LogDirectory(directory) if files is None else files
        self._segments = LogSegments(self._files)
        self._reader = FrameReader(self._files, self._segments)
        self._search = FrameSearch(self._segments, index, still)

    @classmethod
    def over(cls, files: LogFiles) -> LogView:
        """A view of a log whose files come from another source."""
        return cls(files.directory, files)

    @classmethod
    def copying(cls, directory: Path) -> LogView:
        """A view of a log in ``directory`` that another process than the reader trims: it returns copies."""
        return cls(directory, LogDirectory(directory, in_place=False))

    @property
    def metadata(self) -> dict[str, JSON]:
        """The metadata that the log's creator gave; LogError if there is no log."""
        return self._segments.settings.given

    @property
    def segments(self) -> list[SegmentFile]:
        """The existing segments, by base."""
        return self._files.segments()

    # --- begin, end and cuts -----------------------------------------------------------------------

    @property
    def base(self) -> int:
        """The lowest position behind which no sample is trimmed. Raises LogLostError if its record is damaged."""
        return self._files.base(self._segments.seed).position

    @property
    def end(self) -> int:
        """The position behind the last appended frame."""
        tail = self._files.tail()
        if tail is not None and tail.position == tail.most:
            return tail.position
        end = 0 if tail is None else tail.position
        for file in self._files.segments()[-MAPPED_MAX:]:
            segment = self._segments.map(file.base)
            for item in () if segment is None else segment.scan_frames(segment.base, segment.end):
                if isinstance(item, FrameHeader):
                    end = max(end, item.stop)
        return end

    def is_frame(self, position: int) -> bool:
        """Whether a frame starts at ``position``, is known to have started there, or will be appended there."""
        if position == self.end:
            return True
        segment = self._segments.map(position)
        if segment is None:
            return self._segments.start_behind(position) is not None or self._reader.ends_at(position)
        if position == segment.base or segment.header(position) is not None:
            return True
        start = self._search.position_of_mark(segment.base, position, lambda mark: mark.position > position)
        return any(item.stop == position for item in segment.scan_frames(start, position))

    def next_frame(self, position: int) -> int:
        """The position of the first undamaged frame at or behind ``position``; the log's end if there is none."""
        end = self.end
        for item in self._segments.scan_frames(position, end):
            if isinstance(item, FrameHeader):
                return item.position
        return max(position, end)

    def rows_before(self, position: int) -> int | None:
        """The number of samples before the frame at ``position``; None: no frame is there."""
        segment = self._segments.map(position)
        if segment is None:
            try:
                position = self._segments.start_behind(position) or position
            except LogLostError:
                return None  # the frame was trimmed meanwhile
            segment = self._segments.map(position)
        header = None if segment is None else segment.header(position)
        return None if header is None else header.rows_before

    def at(self, time_ns: int) -> Cursor:
        """The first sample that was received at or after ``time_ns`` (ns since 1970), the end if there is none.

        Segments whose successor begins with an earlier sample are not scanned. If the clock was set back, an earlier
        sample may follow. Samples that are trimmed meanwhile are skipped.
        """
        while True:
            try:
                return self._at(time_ns)
            except LogLostError as error:
                if error.position is None or self.base <= error.position:
                    raise

    def _at(self, time_ns: int) -> Cursor:
        end = self.end
        files = self._files.segments()
        position = min((file.base for file in files), default=end)
        for file in files:
            first = next(self._segments.headers(file.base, min(file.end, end)), None)
            if first is None or first.position >= file.end:
                continue
            if self._is_since(first, time_ns):
                break
            position = first.position
        for header in self._search.headers_towards(position, end, lambda mark: mark.received >= time_ns):
            if self._is_since(header, time_ns):
                return Cursor(header.position)
        return Cursor(end)

    def _is_since(self, header: FrameHeader, time_ns: int) -> bool:
        """Whether a frame was received at ``time_ns`` or later. Raises LogLostError if it was overwritten meanwhile."""
        if header.segment.reception(header) < time_ns:
            return False
        if header.segment.header(header.position) is None:
            self._segments.check_trimmed(header.position)
        return True

    # --- reading -----------------------------------------------------------------------------------

    def frames(self, start: Cursor, end: Cursor, on_damage: OnDamage | None = None) -> Iterator[Frame]:
        """The frames from ``start`` to ``end``, the first and last one sliced; their runs view the log, or a copy.

        LogLostError is raised by this call for positions that are trimmed already, or not appended yet, and during the
        iteration for those that are trimmed meanwhile. If the log is read in place, the content of a frame is valid
        only if :meth:`check_held` raises nothing after its use. Damage with lost samples raises LogDamagedError during
        the iteration. With ``on_damage`` all damage is reported to it instead, and the frames behind it follow.
        """
        items = self._reader.read_items(start, end, bodies=True, exact=on_damage is None)
        return self._frames(start, items, on_damage)

    def check_held(self, start: Cursor) -> None:
        """Raise LogLostError if the frames read from ``start`` on may have been overwritten since.

        That is so if they were trimmed, and the log is read in place.
        """
        if self._files.in_place:
            self._segments.check_trimmed(start.position)

    def items(self, start: Cursor, end: Cursor, *, bodies: bool = True) -> Iterator[Item]:
        """The items from ``start`` to ``end``: frames, PADs and damage, in the order of their positions.

        Raises LogLostError as :meth:`frames` does. The range may end inside a frame. Without ``bodies`` the bodies are
        not verified, except where the headers do not have all sequence numbers.
        """
        return self._reader.read_items(start, end, bodies=bodies, exact=False)

    def advance(
        self, start: Cursor, *, max_rows: int | None = None, max_bytes: int | None = None, tail: int
    ) -> Cursor:
        """The furthest cursor up to ``tail`` within the limits, but at least one sample after ``start``.

        ``max_bytes`` counts positions; inside a frame its bytes are spread evenly over its samples. Lost samples count
        as well.
        """
        if tail <= start.position:
            return start
        if max_rows is None and max_bytes is None:
            return Cursor(tail)
        first = self._search.first_header(start, tail)
        if first is None:
            return Cursor(tail)
        skip = start.row if first.position == start.position else 0
        rows_end = _UNLIMITED if max_rows is None else first.rows_before + skip + max_rows
        bytes_end = tail if max_bytes is None else byte_at(first, skip) + max_bytes
        least = cursor_at(first, skip + 1)
        position = self._search.skip_segments(first.position, tail, rows_end, bytes_end)
        headers = self._search.headers_towards(
            position, tail, lambda mark: mark.rows_before > rows_end or mark.position > bytes_end
        )
        for header in headers:
            nbytes = header.stop - header.position
            room = min(rows_end - header.rows_before, (bytes_end - header.position) * header.count // nbytes)
            if room < header.count:
                return max(least, cursor_at(header, max(room, 0)))
        return Cursor(tail)

    def split(self, start: Cursor, end: Cursor, pieces: int) -> list[tuple[Cursor, Cursor]]:
        """Split the range into at most ``pieces`` of about equal bytes.

        The cuts lie between frames, and inside a frame only where it is longer than half a piece.
        """
        check_range(start, end)
        if pieces < 1:
            raise UsageError(f"cannot split into {pieces} pieces")
        if start == end:
            return []
        cuts = [start]
        if pieces > 1:
            low, high = self._search.byte_of(start), self._search.byte_of(end)
            long, position, stop = (high - low) // pieces // 2, start.position, end.position + (end.row > 0)
            for target in (low + (high - low) * k // pieces for k in range(1, pieces)):
                header = self._search.find_header_behind(target, position, stop)
                if header is None:
                    break
                position, nbytes = header.position, header.stop - header.position
                inside = max(0, target - position)
                if nbytes > long:
                    cut = Cursor(position, inside * header.count // nbytes)
                else:
                    cut = Cursor(header.stop if inside * 2 > nbytes else position)
                if cuts[-1] < cut < end:
                    cuts.append(cut)
        return list(zip(cuts, [*cuts[1:], end], strict=True))

    # --- inside: frames ----------------------------------------------------------------------------

    def _frames(self, start: Cursor, items: Iterator[Item], on_damage: OnDamage | None) -> Iterator[Frame]:
        is_empty = True
        for item in items:
            if isinstance(item, Frame):
                yield item
            elif isinstance(item, Damage):
                if on_damage is not None:
                    on_damage(item)
                elif item.rows != 0:
                    raise item.error()
            is_empty = False
        if not is_empty:
            self.check_held(start)
