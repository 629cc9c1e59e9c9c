"""Reads a stream log, in place or from where its files can be had, while another process appends to it and trims it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from ..errors import LogLostError, UsageError
from ..wire.samples import Run
from .checkpoint import Tail
from .damage import Damage
from .frame import Cursor, Frame, Pad
from .frame_index import MARK_FRAMES, FrameIndex, Mark
from .frame_walk import Gap, Header
from .log_files import LogDirectory, LogFiles
from .log_segments import MAPPED_MAX, LogSegments, base_of, holder
from .segment import JSON, SegmentFile

__all__ = ["Cursor", "Damage", "Frame", "Item", "LogView", "Pad"]

_UNLIMITED: Final = 1 << 63

OnDamage: TypeAlias = Callable[[Damage], None]
Item: TypeAlias = Frame | Pad | Damage


class LogView:
    """A read-only view of the log in ``directory``. Not thread-safe; cheap to make.

    Positions handed in are those of frames, as in cursors and in the log's own ``position``. A range that the log
    does not hold whole, because a part was trimmed or is not appended yet, raises LogLostError.

    Frames are verified before they are handed out, and their headers before anything is planned by them. Planning
    (``advance``, ``split``) goes past damage without a word, since those who read the range come across it.
    """

    def __init__(
        self,
        directory: Path,
        files: LogFiles | None = None,
        *,
        index: FrameIndex | None = None,
        still: Callable[[], None] | None = None,
    ) -> None:
        """``index`` is that of the log, for who looks for many places in it; ``still`` is called now and then while one
        is looked for, and may raise."""
        self.directory = directory
        self._index = index
        self._still = still
        self._files: LogFiles = LogDirectory(directory) if files is None else files
        self._segments = LogSegments(self._files)

    @classmethod
    def over(cls, files: LogFiles) -> LogView:
        """A view of a log whose files lie elsewhere."""
        return cls(files.directory, files)

    @classmethod
    def copying(cls, directory: Path) -> LogView:
        """A view of a log in ``directory`` that others than its reader trim: what it hands out is a copy."""
        return cls(directory, LogDirectory(directory, in_place=False))

    @property
    def metadata(self) -> dict[str, JSON]:
        """The metadata that the log's creator gave; LogError if there is no log."""
        return self._segments.settings.given

    @property
    def segments(self) -> list[SegmentFile]:
        """The segments that are there, by base."""
        return self._files.segments()

    # --- where it begins, ends and can be cut ------------------------------------------------------

    @property
    def base(self) -> int:
        """The lowest position behind which no sample is trimmed. Raises LogLostError if that is damaged."""
        return self._files.base(self._segments.seed).position

    @property
    def end(self) -> int:
        """The position behind the last frame that was appended."""
        tail = self._files.tail()
        if tail is not None and tail.position == tail.most:
            return tail.position
        end = 0 if tail is None else tail.position
        for file in self._files.segments()[-MAPPED_MAX:]:
            segment = self._segments.map(file.base)
            for item in () if segment is None else segment.walk(segment.base, segment.end):
                if isinstance(item, Header):
                    end = max(end, item.stop)
        return end

    def is_frame(self, position: int) -> bool:
        """Whether a frame starts at ``position``, is known to have started there, or will be appended there."""
        if position == self.end:
            return True
        segment = self._segments.map(position)
        if segment is None:
            return (
                self._segments.start_behind(position) is not None or self._before(position).header is not None
            )
        if position == segment.base or segment.header(position) is not None:
            return True
        start = self._marked(segment.base, position, lambda mark: mark.position > position)
        return any(item.stop == position for item in segment.walk(start, position))

    def next_frame(self, position: int) -> int:
        """Where the first undamaged frame at or behind ``position`` starts; the log's end if there is none."""
        end = self.end
        for item in self._segments.walk(position, end):
            if isinstance(item, Header):
                return item.position
        return max(position, end)

    def rows_before(self, position: int) -> int | None:
        """How many samples lie before the frame at ``position``; None: no frame is there."""
        segment = self._segments.map(position)
        if segment is None:
            try:
                position = self._segments.start_behind(position) or position
            except LogLostError:
                return None  # it is trimmed meanwhile
            segment = self._segments.map(position)
        header = None if segment is None else segment.header(position)
        return None if header is None else header.rows_before

    def at(self, time_ns: int) -> Cursor:
        """The first sample that was received at or after ``time_ns`` (ns since 1970), the end if there is none.

        Segments whose successor begins with an earlier sample are not walked. Where the clock was set back, an earlier
        sample may follow. What is trimmed meanwhile is passed over.
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
        for header in self._towards(position, end, lambda mark: mark.received >= time_ns):
            if self._is_since(header, time_ns):
                return Cursor(header.position)
        return Cursor(end)

    def _is_since(self, header: Header, time_ns: int) -> bool:
        """Whether a frame was received at ``time_ns`` or later. Raises LogLostError if it was overwritten meanwhile."""
        if header.segment.reception(header) < time_ns:
            return False
        if header.segment.header(header.position) is None:
            self._segments.check_trimmed(header.position)
        return True

    # --- reading -----------------------------------------------------------------------------------

    def frames(self, start: Cursor, end: Cursor, on_damage: OnDamage | None = None) -> Iterator[Frame]:
        """The frames from ``start`` to ``end``, the first and last one sliced; their runs view the log, or a copy.

        LogLostError is raised here for what is trimmed already, or not appended yet, and while iterating for what is
        trimmed meanwhile. Where the log is read in place, what a frame holds is sure only if :meth:`check_held` raises
        nothing once it is used. Damage by which samples are lost raises LogDamagedError while iterating. With
        ``on_damage`` all damage is handed over instead, and the frames behind it follow.
        """
        items = self._items(start, end, bodies=True, exact=on_damage is None)
        return self._frames(start, items, on_damage)

    def check_held(self, start: Cursor) -> None:
        """Raise LogLostError if what was read from ``start`` on may have been overwritten since.

        It may if it was trimmed, and the log is read in place.
        """
        if self._files.in_place:
            self._segments.check_trimmed(start.position)

    def items(self, start: Cursor, end: Cursor, *, bodies: bool = True) -> Iterator[Item]:
        """What lies from ``start`` to ``end``: frames, PADs and damage, in the order of their positions.

        LogLostError is raised as by :meth:`frames`. The range may end inside a frame. Without ``bodies`` those are not
        verified, except where the headers do not hold all sequence numbers.
        """
        return self._items(start, end, bodies=bodies, exact=False)

    def advance(
        self, start: Cursor, *, max_rows: int | None = None, max_bytes: int | None = None, tail: int
    ) -> Cursor:
        """The furthest cursor up to ``tail`` within the limits, but at least one sample after ``start``.

        ``max_bytes`` counts positions; inside a frame its bytes are spread evenly over its samples. Samples that are
        lost count as well.
        """
        if tail <= start.position:
            return start
        if max_rows is None and max_bytes is None:
            return Cursor(tail)
        first = self._first_header(start, tail)
        if first is None:
            return Cursor(tail)
        skip = start.row if first.position == start.position else 0
        rows_end = _UNLIMITED if max_rows is None else first.rows_before + skip + max_rows
        bytes_end = tail if max_bytes is None else _byte(first, skip) + max_bytes
        least = _cursor(first, skip + 1)
        position = self._skip_segments(first.position, tail, rows_end, bytes_end)
        headers = self._towards(
            position, tail, lambda mark: mark.rows_before > rows_end or mark.position > bytes_end
        )
        for header in headers:
            nbytes = header.stop - header.position
            room = min(rows_end - header.rows_before, (bytes_end - header.position) * header.count // nbytes)
            if room < header.count:
                return max(least, _cursor(header, max(room, 0)))
        return Cursor(tail)

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
            long, position, stop = (high - low) // pieces // 2, start.position, end.position + (end.row > 0)
            for target in (low + (high - low) * k // pieces for k in range(1, pieces)):
                header = self._header_around(target, position, stop)
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

    def _items(self, start: Cursor, end: Cursor, *, bodies: bool, exact: bool) -> Iterator[Item]:
        """``exact``: the range has to end where a frame does, or at a row that it has."""
        self._check_range(start, end)
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
        return self._walk_items(start, end, tail, bodies=bodies, exact=exact)

    def _walk_items(
        self, start: Cursor, end: Cursor, tail: Tail | None, *, bodies: bool, exact: bool
    ) -> Iterator[Item]:
        before = _Before(None, None)
        gap: Gap | None = None
        for item in self._segments.walk(start.position, end.position + (end.row > 0)):
            if isinstance(item, Gap):
                gap = item if gap is None else Gap(gap.position, item.stop, gap.is_hole or item.is_hole)
                continue
            if gap is not None:
                yield self._unknown(gap, start, before, self._after(item))
                before, gap = _Before(None, None), None
            if not item.is_run:
                before = _Before(item, before.run)
                yield Pad(item.position, item.stop, item.rows_before)
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
                yield Damage(self.directory, item.position, item.stop, last - first, run.writer, number)
                continue
            if last - first < item.count:
                run = run.take(first, last)
            yield Frame(item.position, item.stop - item.position, reception, item.rows_before + first, run)
        if gap is not None:
            yield self._unknown(gap, start, before, self._behind(gap.stop, tail))
        elif exact and before.header is not None and before.header.stop > end.position and not end.row:
            raise LogLostError(
                f"no frame ends at position {end.position} in the log in {self.directory}",
                path=self.directory,
                position=end.position,
            )

    def _read(self, header: Header) -> tuple[int, Run]:
        """Reception and run of a frame. Raises LogLostError if it was overwritten meanwhile, and makes no sense now."""
        try:
            return header.segment.read(header)
        except ValueError:
            self._segments.check_trimmed(header.position)
            raise

    def _unknown(self, gap: Gap, start: Cursor, before: _Before, after: _After) -> Damage | Pad:
        """What can be told of a gap from the frames before and behind it; a Pad: the log went on behind it."""
        if before.header is None:
            before = self._before(gap.position)
        rows_before = before.rows if gap.position else 0
        if rows_before is None or after.rows is None:
            return Damage(self.directory, gap.position, gap.stop)
        read = start.row if gap.position == start.position else 0
        rows = max(0, after.rows - rows_before - read)
        if gap.is_hole and not rows:  # the recovery could not tell either
            return Damage(self.directory, gap.position, gap.stop)
        if not (rows or read or gap.is_hole) and holder(self._segments.list_now(), gap.position) is None:
            return Pad(gap.position, gap.stop, rows_before)
        left, right = before.run, after.run
        if left is not None and right is not None and left.writer == right.writer:
            # One writer's numbers on both sides, with as many between them as there are samples: they are its.
            if right.first_sn - left.last_sn - 1 == rows + read:
                first_sn = left.last_sn + 1 + read
                return Damage(self.directory, gap.position, gap.stop, rows, left.writer, first_sn)
        return Damage(self.directory, gap.position, gap.stop, rows)

    def _before(self, position: int) -> _Before:
        """The frame that ends at ``position``."""
        segment = self._segments.map(position - 1) if position else None
        found = _Before(None, None)
        for item in () if segment is None else segment.walk(segment.base, position):
            if isinstance(item, Gap) or item.is_hole or item.stop > position:
                found = _Before(None, None)
            elif not item.is_run:
                found = _Before(item, found.run)
            else:
                found = _Before(item, self._read(item)[1] if item.segment.is_whole(item) else None)
        return found

    def _after(self, header: Header) -> _After:
        """What begins with ``header``; behind a PAD that is the next segment's first frame."""
        behind = header if header.is_run else None
        if behind is None:
            segment = self._segments.map(header.stop)
            behind = None if segment is None else segment.header(header.stop)
        is_next = behind is not None and behind.is_run and behind.rows_before == header.rows_before
        return _After(header.rows_before, self._read(behind)[1] if behind and is_next else None)

    def _behind(self, position: int, tail: Tail | None) -> _After:
        """What is known about the frame at ``position``."""
        if tail is not None and tail.position == position:
            return _After(tail.rows, None)
        segment = self._segments.map(position)
        header = None if segment is None else segment.header(position)
        return _After(None, None) if header is None else self._after(header)

    # --- inside: headers ---------------------------------------------------------------------------

    def _header_around(self, byte: int, position: int, stop: int) -> Header | None:
        """The first run frame from ``position`` on that ends behind ``byte`` and starts before ``stop``."""
        if (file := holder(self._segments.list_now(), byte)) is not None:
            position = max(position, file.base)
        for header in self._towards(position, stop, lambda mark: mark.position > byte):
            if byte < header.stop:
                return header
        return None

    def _towards(self, position: int, stop: int, is_beyond: Callable[[Mark], bool]) -> Iterator[Header]:
        """The run frames from ``position`` on that start before ``stop``, for who looks for the first one of a kind.

        Of those before the last mark that is not beyond it most are left out, if the log has an index.
        """
        if self._index is None:
            yield from self._segments.headers(position, stop)
            return
        for number, header in enumerate(self._segments.headers(position, stop)):
            if number == MARK_FRAMES:  # so few are walked sooner than marked, from the segment's beginning on
                yield from self._segments.headers(self._marked(header.position, stop, is_beyond), stop)
                return
            yield header

    def _marked(self, position: int, stop: int, is_beyond: Callable[[Mark], bool]) -> int:
        """The position of the last mark that is not beyond, in the segment of ``position``, or that if it is later."""
        segment = self._segments.map(position) if self._index is not None else None
        if self._index is None or segment is None:
            return position
        self._index.keep([file.base for file in self._segments.list_now()])
        mark = self._index.last_before(segment, stop, is_beyond, self._still)
        return position if mark is None else max(position, mark.position)

    def _first_header(self, start: Cursor, stop: int) -> Header | None:
        """The header of the frame that holds the first sample after ``start``."""
        for header in self._segments.headers(start.position, stop):
            if header.position > start.position or header.count > start.row:
                return header
        return None

    def _skip_segments(self, position: int, tail: int, rows_end: int, bytes_end: int) -> int:
        """The start of the last segment within the limits, or ``position``: the frames before need no walk."""
        files = self._segments.list_now()
        for file in files[bisect_right(files, position, key=base_of) :]:
            if file.base >= tail or file.base > bytes_end:
                break
            first = self._first_header(Cursor(file.base), tail)
            if first is None or first.rows_before > rows_end:
                break
            position = file.base
        return position

    def _byte(self, cursor: Cursor) -> int:
        """The cursor in bytes."""
        segment = self._segments.map(cursor.position) if cursor.row else None
        header = None if segment is None else segment.header(cursor.position)
        if header is None or not header.is_run:
            return cursor.position
        return _byte(header, min(cursor.row, header.count))

    def _check_range(self, start: Cursor, end: Cursor) -> None:
        if not (0, 0) <= start <= end or start.row < 0 or end.row < 0:
            raise UsageError(f"there is no range from {start} to {end}")


class _Before(NamedTuple):
    """The frame that ends where a gap begins, and the last run up to there; None: not known."""

    header: Header | None
    run: Run | None

    @property
    def rows(self) -> int | None:
        return None if self.header is None else self.header.rows_before + self.header.count


class _After(NamedTuple):
    """Samples in the log before the place where a gap ends, and the run that begins there; None: not known."""

    rows: int | None
    run: Run | None


def _byte(header: Header, row: int) -> int:
    """The position behind ``row`` samples, if all are equally long."""
    return header.position + (header.stop - header.position) * row // header.count


def _cursor(header: Header, row: int) -> Cursor:
    return Cursor(header.position, row) if row < header.count else Cursor(header.stop)
