"""The readers that a writer waits for: those that are ready, and those that left without their samples."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Protocol

from ..protocol.writing.readers import ReaderProxy
from ..protocol.writing.writer import StatefulWriter
from ..structure import Guid


class LockOwner(Protocol):
    """Owns the lock that guards the writer (`net.node.Node`)."""

    lock: threading.RLock


class WriterMatches:
    """The matched readers of one writer, for any thread."""

    def __init__(self, node: LockOwner, writer: StatefulWriter) -> None:
        self._node = node
        self._writer = writer

    def has_ready(self) -> bool:
        """Whether a reader is matched and ready; a reliable one is ready once it has sent its first ACKNACK. Spies
        count if they simulate a connection."""
        with self._node.lock:
            readers = self._writer.readers.values()
            return any(proxy.is_ready for proxy in readers) or (
                self._writer.positions.is_connected and not readers
            )

    def count_ready(self) -> int:
        """The number of ready readers, as :meth:`has_ready` counts them, without spies."""
        with self._node.lock:
            return sum(proxy.is_ready for proxy in self._writer.readers.values())

    def ready_reliable(self) -> list[ReaderProxy]:
        """The reliable readers that are matched and ready now, for a later call of :meth:`unserved`."""
        with self._node.lock:
            return [p for p in self._writer.readers.values() if p.reliable and p.is_ready]

    def unserved(self, seen: Iterable[ReaderProxy]) -> dict[Guid, int]:
        """The readers in ``seen`` that left before samples were acknowledged that no reader has, with their last
        acknowledgement.

        A reader that left, or became inactive, is no longer waited for. Its missing samples count as served if a ready
        reader was matched before they were written, since that one has to acknowledge them.
        """
        with self._node.lock:
            here = self._writer.readers
            ready = [p.first_relevant for p in here.values() if p.is_ready and p.active]
            served_from = min(ready, default=self._writer.last_sn + 1)
            gone = [p for p in seen if here.get(p.guid) is not p or not p.active]
            return {p.guid: p.acked for p in gone if p.acked + 1 < served_from}
