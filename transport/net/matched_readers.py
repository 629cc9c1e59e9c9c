"""The readers that a writer waits for: which are ready, and which left without samples."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Protocol

from ..protocol.writing.readers import ReaderProxy
from ..protocol.writing.writer import StatefulWriter
from ..structure import Guid


class LockOwner(Protocol):
    """Whose lock guards the writer (`net.node.Node`)."""

    lock: threading.RLock


class WriterMatches:
    """The matched readers of one writer, for any thread."""

    def __init__(self, node: LockOwner, writer: StatefulWriter) -> None:
        self._node = node
        self._writer = writer

    def has_ready(self) -> bool:
        """Whether some reader is matched; a reliable one counts once it has sent its first ACKNACK. Spies count where
        they simulate a connection."""
        with self._node.lock:
            readers = self._writer.readers.values()
            return any(proxy.is_ready for proxy in readers) or (
                self._writer.positions.is_connected and not readers
            )

    def count_ready(self) -> int:
        """How many readers are ready, as :meth:`has_ready` counts them; spies are none."""
        with self._node.lock:
            return sum(proxy.is_ready for proxy in self._writer.readers.values())

    def ready_reliable(self) -> list[ReaderProxy]:
        """The reliable readers that are matched and ready now, to be handed to :meth:`unserved`."""
        with self._node.lock:
            return [p for p in self._writer.readers.values() if p.reliable and p.is_ready]

    def unserved(self, seen: Iterable[ReaderProxy]) -> dict[Guid, int]:
        """Which of the readers in ``seen`` left behind samples that nobody has, with what they acknowledged.

        A reader that left, or became inactive, is no longer waited for. What it lacks is well if a ready reader
        is here that was matched before it was written, for that one has to acknowledge it.
        """
        with self._node.lock:
            here = self._writer.readers
            ready = [p.first_relevant for p in here.values() if p.is_ready and p.active]
            served_from = min(ready, default=self._writer.last_sn + 1)
            gone = [p for p in seen if here.get(p.guid) is not p or not p.active]
            return {p.guid: p.acked for p in gone if p.acked + 1 < served_from}
