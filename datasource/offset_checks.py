"""Where an offset of a checkpoint lies in a stream log: inside what the log holds, and at the beginning of a frame.

Offsets that this run produced are right. Others come from a checkpoint; the checkpoint or the log may have been
damaged,
cut or restored since.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Final

from ..serving.wire_format.misplaced_offset import MisplacedOffset, describe_cursor, find_misplacement
from ..transport.log.frame import Cursor
from ..transport.log.log_view import LogView

__all__ = ["MisplacedOffset", "OffsetChecks", "describe_cursor"]

#: Checked offsets of a log, and where to continue instead: Spark asks for few of them, repeatedly.
_KNOWN_MAX: Final = 16


class OffsetChecks:
    """The offsets of one log."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: OrderedDict[Cursor, Cursor] = OrderedDict()

    def trust(self, cursor: Cursor) -> Cursor:
        """Record that this offset is right: it was derived from the log itself."""
        return self._learn(cursor, cursor)

    def place(self, cursor: Cursor, *, base: int, tail: Cursor) -> Cursor | MisplacedOffset:
        """Where the samples behind an offset begin, in a log that holds [``base``, ``tail``).

        A misplaced offset is logged once, and replaced by the next readable one. Raises LogLostError beyond the end.
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
