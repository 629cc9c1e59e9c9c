"""Where an offset of a checkpoint lies in a stream log: inside what the log holds, and at the beginning of a frame.

An offset which was given out in this run is right. Others come from a checkpoint, and both it and the log may have been
damaged, cut or restored since.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..monitoring.decoding_report import MISPLACED, NOT_HELD
from ..transport.errors import LogLostError
from ..transport.log.frame import Cursor
from ..transport.log.log_view import LogView

#: Offsets of a log that are known to be right, or where to go on instead: Spark asks for few again and again.
_KNOWN_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Misfit:
    """An offset at which the log cannot be read, why, and the next place after it where it can."""

    what: str
    cause: str
    place: Cursor


class OffsetChecks:
    """The offsets of one log."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: OrderedDict[Cursor, Cursor] = OrderedDict()

    def trust(self, cursor: Cursor) -> Cursor:
        """This offset is right: it was made of the log itself."""
        return self._learn(cursor, cursor)

    def place(self, cursor: Cursor, *, base: int, tail: Cursor) -> Cursor | Misfit:
        """Where the samples behind an offset begin, in a log that holds [``base``, ``tail``).

        A misfit is told once; after that its place is the answer. Raises LogLostError for an offset beyond the end.
        """
        if cursor > tail:
            raise LogLostError(
                f"{self._held(base, tail)}, but the offset of the checkpoint is {told(cursor)}, beyond its end",
                path=self._directory,
                position=cursor.position,
            )
        known = self._known.get(cursor)
        if known is not None and known.position >= base:
            return known
        found = self._misfit(cursor, base, tail)
        self._learn(cursor, cursor if found is None else found.place)
        return cursor if found is None else found

    def _misfit(self, cursor: Cursor, base: int, tail: Cursor) -> Misfit | None:
        if cursor.position < base:
            what = f"{self._held(base, tail)}, but the offset of the checkpoint is {told(cursor)}, before its beginning"
            return Misfit(what, NOT_HELD, Cursor(base))
        if cursor == tail:
            return None
        view = LogView(self._directory)
        here = Cursor(cursor.position)
        if not view.is_frame(cursor.position):
            what = f"the offset of the checkpoint is {told(cursor)}, where no frame of the stream log begins"
        elif cursor.row and view.advance(here, max_rows=cursor.row, tail=tail.position) != cursor:
            what = (
                f"the offset of the checkpoint is {told(cursor)}, but that frame of the stream log is shorter"
            )
        else:
            return None
        following = view.next_frame(cursor.position + 1)
        return Misfit(f"{what}; {self._held(base, tail)}", MISPLACED, Cursor(min(following, tail.position)))

    def _held(self, base: int, tail: Cursor) -> str:
        return f"the stream log {self._directory} holds positions {base} to {tail.position}"

    def _learn(self, cursor: Cursor, place: Cursor) -> Cursor:
        self._known[cursor] = place
        self._known.move_to_end(cursor)
        while len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
        return place


def told(cursor: Cursor) -> str:
    """A cursor in words."""
    return f"position {cursor.position}" + (f", row {cursor.row}" if cursor.row else "")
