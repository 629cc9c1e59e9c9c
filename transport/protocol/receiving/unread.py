"""Messages of writers that no reader of ours reads: they are counted, and writers of other slices get answers.

Only the writer of such a message is parsed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from ...errors import DropReason
from ...structure import ENTITYID_UNKNOWN, Guid
from ...wire.submessages import Heartbeat, HeartbeatBatch
from ..reading.reader import StatefulReader

_Readers = Mapping[Guid, list[StatefulReader]]
_HEARTBEATS: Final = (Heartbeat.KIND, HeartbeatBatch.KIND)


class UnreadMessages:
    """Counts unread messages. ``routes`` are the readers by the writer that they read, ``other_slices`` by the writer
    that they only acknowledge; ``prefix`` is that of our own participant."""

    def __init__(
        self, prefix: bytes, routes: _Readers, other_slices: _Readers, drops: Counter[DropReason]
    ) -> None:
        self._prefix = prefix
        self._routes = routes
        self._other_slices = other_slices
        self._drops = drops

    def passes_over(self, writer: Guid) -> bool:
        """Whether a writer belongs only to slices that our readers do not read: its samples are expected, and
        dropped."""
        return writer in self._other_slices and writer not in self._routes

    def drop(self, writer: Guid, count: int) -> None:
        """Count ``count`` dropped samples of a writer."""
        if (readers := self._other_slices.get(writer)) is not None:
            for reader in readers:
                reader.counters.of_other_slices += count
        elif writer.prefix != self._prefix:
            self._drops[DropReason.UNKNOWN_WRITER] += count

    def drop_compressed(self, source: bytes) -> None:
        """Count a dropped COMPRESSED of a participant without read writers; its writer is not known."""
        unknown = Guid(source, ENTITYID_UNKNOWN)
        self.drop(next((each for each in self._other_slices if each.prefix == source), unknown), 1)

    def hear(self, kind: int, submessage: Any, writer: Guid, now: int) -> None:
        """Hand a HEARTBEAT, GAP or similar submessage to the readers that only acknowledge its writer."""
        for reader in self._other_slices.get(writer, ()):
            if submessage.reader_id not in (ENTITYID_UNKNOWN, reader.guid.entity):
                continue
            if kind in _HEARTBEATS:
                reader.on_heartbeat_of_other_slice(writer, submessage, now=now)
            else:
                reader.counters.of_other_slices += 1
