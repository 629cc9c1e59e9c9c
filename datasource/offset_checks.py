"""Where an offset of a checkpoint lies in a stream log: inside what the log holds, and at the beginning of a frame.

An offset which was given out in this run is right. Others come from a checkpoint, and both it and the log may have been
damaged, cut or restored since.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Final

from ..serving.wire_format.misplaced_offset import MisplacedOffset, describe_cursor, find_misplacement
from ..transport.log.frame import Cursor
from ..transport.log.log_view import LogView

__all__ = ["MisplacedOffset", "OffsetChecks", "describe_cursor"]

#: Offsets of a log that are known to be right, or where to go on instead: Spark asks for few again and again.
_KNOWN_MAX: Final = 16


class OffsetChecks:
    """The offsets of one log."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: OrderedDict[Cursor, Cursor] = OrderedDict()

    def trust(self, cursor: Cursor) -> Cursor:
        """This offset is right: it was made of the log itself."""
        return self._learn(cursor, cursor)

    def place(self, cursor: Cursor, *, base: int, tail: Cursor) -> Cursor | MisplacedOffset:
        """Where the samples behind an offset begin, in a log that holds [``base``, ``tail``).

        A misplaced offset is logged once; after that its place is the answer. Raises LogLostError beyond the end.
        """
        known = self._known.get(cursor)
        if known is not None and known.position >= base and cursor <= tail:
            return known
        found = find_misplacement(LogView(self._directory), cursor, base=base, tail=tail)
        self._learn(cursor, cursor if found is None else found.place)
        return cursor if found is None else found

    def _learn(self, cursor: Cursor, place: Cursor) -> Cursor:
        self._known[cursor] = place
        self._known.move_to_end(cursor)
        while len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
        return place
