"""The datagrams that a node could not send, and which call of a writer reports those of its samples.

What failed to be sent is repaired where it is reliable; elsewhere it is lost, and the user's to know.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Container
from typing import Final, Protocol

from ..errors import TransportError
from ..protocol.writing.writer import StatefulWriter
from ..structure import Locator

#: Failures that are kept: of a node with destination and cause, of a writer for the handler of automatic flushes.
_FAILURES_KEPT: Final = 1_024


class SendFailures:
    """How many datagrams could not be sent, and of the last ones why."""

    def __init__(self) -> None:
        self.count = 0
        #: (``count`` with it, destination, what went wrong).
        self._last: deque[tuple[int, Locator, str]] = deque(maxlen=_FAILURES_KEPT)

    def count_failure(self, destination: Locator, cause: str) -> None:
        """One more datagram could not be sent."""
        self.count += 1
        self._last.append((self.count, destination, cause))

    def causes(self, destinations: Container[Locator], since: int) -> list[str]:
        """What went wrong with each datagram to these that could not be sent since ``count`` was that."""
        return [cause for number, to, cause in self._last if number > since and to in destinations]


class WritingNode(Protocol):
    """What sends for the writer (`net.node.Node`)."""

    lock: threading.RLock

    @property
    def send_failures(self) -> SendFailures: ...


class WriteFailures:
    """The failures of one writer."""

    def __init__(self, node: WritingNode, writer: StatefulWriter, topic: str) -> None:
        self._node = node
        self._writer = writer
        self._topic = topic
        self._seen = node.send_failures.count
        #: Whether what others than the caller failed to send, automatic flushes, is for :meth:`take_automatic` alone,
        #: and not for the next call.
        self.sets_automatic_apart = False
        self._automatic: deque[str] = deque(maxlen=_FAILURES_KEPT)
        self._own: list[str] = []

    def begin_sending(self) -> None:
        """The caller, with the node's lock, is about to send: what failed before is not its own."""
        if self.sets_automatic_apart:
            self._automatic += self._take_new()

    def end_sending(self) -> None:
        """The caller, still with the node's lock, has sent: what failed meanwhile is its own."""
        if self.sets_automatic_apart:
            self._own += self._take_new()

    def raise_own(self) -> None:
        """TransportError if something best-effort could not be sent, as far as that is the caller's to know."""
        if self._node.send_failures.count == self._seen and not self._own:
            return
        with self._node.lock:
            causes, self._own = self._own, []
            if not self.sets_automatic_apart:
                causes += self._take_new()
        if causes:
            raise self._not_sent(causes)

    def take_automatic(self) -> TransportError | None:
        """What automatic flushes failed to send since the last call; see ``sets_automatic_apart``."""
        if self._node.send_failures.count == self._seen and not self._automatic:
            return None
        with self._node.lock:
            self._automatic += self._take_new()
            causes = [*self._automatic]
            self._automatic.clear()
        return self._not_sent(causes) if causes else None

    def _take_new(self) -> list[str]:
        """The causes of what could not be sent since the last call; the caller holds the node's lock."""
        failures = self._node.send_failures
        since, self._seen = self._seen, failures.count
        if since == self._seen or self._writer.qos.is_reliable:
            return []
        destinations = {d for proxy in self._writer.readers.values() for d in proxy.info.destinations}
        return failures.causes(destinations, since)

    def _not_sent(self, causes: list[str]) -> TransportError:
        return TransportError(
            f"topic {self._topic!r}: {len(causes)} datagrams could not be sent; {causes[-1]}"
        )
