"""The datagrams that a node could not send."""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import Final

from ..structure import Locator

#: Failures of which the destination and the cause are kept.
_FAILURES_KEPT: Final = 1_024


class SendFailures:
    """How many datagrams could not be sent, and of the last ones why."""

    def __init__(self) -> None:
        self.count = 0
        #: (``count`` with it, destination, what went wrong).
        self._last: deque[tuple[int, Locator, str]] = deque(maxlen=_FAILURES_KEPT)

    def note(self, destination: Locator, cause: str) -> None:
        """One more datagram could not be sent."""
        self.count += 1
        self._last.append((self.count, destination, cause))

    def causes(self, destinations: Container[Locator], since: int) -> list[str]:
        """What went wrong with each datagram to these that could not be sent since ``count`` was that."""
        return [cause for number, to, cause in self._last if number > since and to in destinations]
