"""The datagrams that a node could not send, and the writer's call that reports each failure.

Reliable samples are repaired; best-effort ones are lost, and the user has to know.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Container
from typing import Final, Protocol

from ..errors import TransportError
from ..protocol.writing.writer import StatefulWriter
from ..structure import Locator

#: Failures that are kept: by a node with destination and cause, by a writer for the handler of automatic flushes.
_FAILURES_KEPT: Final = 1_024


class SendFailures:
    """The number of datagrams that could not be sent, and the causes of the last failures."""

    def __init__(self) -> None:
        self.count = 0
        #: (``count`` after the failure, destination, cause).
        self._last: deque[tuple[int, Locator, str]] = deque(maxlen=_FAILURES_KEPT)

    def count_failure(self, destination: Locator, cause: str) -> None:
        """Count a datagram that could not be sent."""
        self.count += 1
        self._last.append((self.count, destination, cause))

    def causes(self, destinations: Container[Locator], since: int) -> list[str]:
        """The causes of the failures to these destinations since ``count`` had the value ``since``."""
        return [cause for number, to, cause in self._last if number > since and to in destinations]


class WritingNode(Protocol):
    """Sends for the writer (`net.node.Node`)."""

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
        #: Whether failures of automatic flushes, not of the caller's own sends, are kept for :meth:`take_automatic`,
        #: and not for the next call.
        self.sets_automatic_apart = False
        self._automatic: deque[str] = deque(maxlen=_FAILURES_KEPT)
        self._own: list[str] = []

    def begin_sending(self) -> None:
        """The caller, which holds the node's lock, is about to send: earlier failures are not its own."""
        if self.sets_automatic_apart:
            self._automatic += self._take_new()

    def end_sending(self) -> None:
        """The caller, which still holds the node's lock, has sent: failures since :meth:`begin_sending` are its own."""
        if self.sets_automatic_apart:
            self._own += self._take_new()

    def raise_own(self) -> None:
        """Raise TransportError if best-effort datagrams could not be sent whose failure is the caller's."""
        if self._node.send_failures.count == self._seen and not self._own:
            return
        with self._node.lock:
            causes, self._own = self._own, []
            if not self.sets_automatic_apart:
                causes += self._take_new()
        if causes:
            raise self._not_sent(causes)

    def take_automatic(self) -> TransportError | None:
        """The error of automatic flushes since the last call; see ``sets_automatic_apart``."""
        if self._node.send_failures.count == self._seen and not self._automatic:
            return None
        with self._node.lock:
            self._automatic += self._take_new()
            causes = [*self._automatic]
            self._automatic.clear()
        return self._not_sent(causes) if causes else None

    def _take_new(self) -> list[str]:
        """The causes of failures since the last call; the caller holds the node's lock."""
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
