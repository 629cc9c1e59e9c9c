"""Full batches, until they are known to be sent.

Invariant: a batch is either ``ready`` or fetched. A fetched batch that was not sent because of an exception becomes
ready again.
"""

from __future__ import annotations

from .batch_queue import PendingBatch


class LeavingBatches:
    """The full batches of one writer, in order."""

    __slots__ = ("_fetched", "ready")

    def __init__(self) -> None:
        #: Batches that were not fetched yet.
        self.ready: list[PendingBatch] = []
        #: Batches that were fetched, and are not known to be :meth:`sent`.
        self._fetched: list[PendingBatch] = []

    @property
    def are_due(self) -> bool:
        """Whether some batches are to be sent at once."""
        return bool(self.ready or self._fetched)

    def fetch(self) -> list[PendingBatch]:
        """Take the batches to send now; the caller then calls :meth:`sent` or :meth:`put_back`."""
        self._fetched, self.ready = self.ready, []
        return self._fetched

    def sent(self) -> None:
        """All fetched batches are sent."""
        self._fetched = []

    def put_back(self, batches: list[PendingBatch]) -> None:
        """Make these batches ready again: they were fetched, and not sent because of an exception."""
        self.ready[:0], self._fetched = batches, []

    def take_back(self) -> None:
        """Make batches ready again that an interrupted call has neither sent nor put back.

        They may hold samples of writes that have returned. Batches that view a caller's memory are dropped: they belong
        to the interrupted call, and the memory may have another use now.
        """
        if self._fetched or self.ready:
            left = [batch for batch in (*self._fetched, *self.ready) if batch.is_own]
            self.ready, self._fetched = left, []

    def own(self) -> None:
        """Give all ready batches memory of their own."""
        self.ready = [batch.copy() for batch in self.ready]
