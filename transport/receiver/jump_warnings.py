"""Warnings of sequence numbers that jumped, to the log of the receiver: of each kind one for each writer."""

from __future__ import annotations

import logging
from typing import Final

from ..limits import WRITERS_MAX
from ..protocol.reading.jumps import JumpKind
from ..protocol.reading.reader import StatefulReader
from ..structure import Guid

_log = logging.getLogger("spark_rtps.receiver")

_TEXTS: Final = {
    JumpKind.HELD: "the next number of writer %s is %d, and a message speaks of %d: a second one has to confirm that,"
    " before anything is delivered from there",
    JumpKind.CONFIRMED: "writer %s, whose next number was %d, goes on at %d",
    JumpKind.REFUTED: "writer %s is at %d, as its HEARTBEAT shows, and a message that spoke of %d was forged, or"
    " belongs to another life of the writer",
    JumpKind.UNDONE: "writer %s goes on at %d, as its HEARTBEATs show, and not at %d: either samples overtook a"
    " HEARTBEAT, which does no harm, or that number was forged, or belongs to another life of the writer. What came"
    " of it stays in the log",
}


class JumpWarnings:
    """What was warned of already."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._warned: set[tuple[Guid, JumpKind]] = set()

    def report(self, reader: StatefulReader) -> None:
        """Warn of what happened since the last call."""
        for each in reader.take_jumps():
            if (each.writer, each.kind) in self._warned or len(self._warned) >= WRITERS_MAX:
                continue
            self._warned.add((each.writer, each.kind))
            text = _TEXTS[each.kind]
            _log.warning(f"topic %r: {text}", self._topic, each.writer, each.expected, each.number)
