"""Full batches, until they are known to be sent.

Invariant: a batch is ``ready`` or fetched; what is fetched and not sent, because an exception has stopped that, becomes
ready again.
"""

from __future__ import annotations

from .batch_queue import PendingBatch


class LeavingBatches:
    """The full batches of one writer, in order."""

    __slots__ = ("_fetched", "ready")

    def __init__(self) -> None:
        #: Those that were not fetched yet.
        self.ready: list[PendingBatch] = []
        #: Those that were, and are not known to be :meth:`sent`.
        self._fetched: list[PendingBatch] = []

    @property
    def are_due(self) -> bool:
        """Whether some are to be sent at once."""
        return bool(self.ready or self._fetched)

    def fetch(self) -> list[PendingBatch]:
        """Those that are to be sent now; :meth:`sent` or :meth:`put_back` follows."""
        self._fetched, self.ready = self.ready, []
        return self._fetched

    def sent(self) -> None:
        """What was fetched last is sent."""
        self._fetched = []

    def put_back(self, batches: list[PendingBatch]) -> None:
        """These are left of what was fetched last: an exception has stopped that it is sent."""
        self.ready[:0], self._fetched = batches, []

    def take_back(self) -> None:
        """Keep what calls have left that an exception stopped before they could send it, or put it back: samples of
        writes that have returned are among it. What views memory is of those calls, whose memory may be another's."""
        if self._fetched or self.ready:
            left = [batch for batch in (*self._fetched, *self.ready) if batch.is_own]
            self.ready, self._fetched = left, []

    def own(self) -> None:
        """Give all that is ready memory of its own."""
        self.ready = [batch.copy() for batch in self.ready]
