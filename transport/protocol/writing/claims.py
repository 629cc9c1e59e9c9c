"""Samples that are written in place: room in the publication log, claimed first and committed later (tryClaim).

A claimed sample has its sequence number already, so nothing behind it is sent before it is committed. When it is
given up, or is not committed in time, its place becomes padding, and its number a GAP.

Invariants: ``open`` holds the claims in the order of their numbers; each is among the unsent changes.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from ...wire.framing import frame
from ...wire.samples import U8, Samples
from .changes import overhead
from .history import Change
from .publication import Claim
from .sender import Sender


class SampleClaim:
    """Room for one serialized sample; ``data`` is to be filled, its encapsulation header included."""

    __slots__ = ("at", "change", "claim", "data")

    def __init__(self, change: Change, claim: Claim, data: U8, at: int) -> None:
        self.change = change
        self.claim = claim
        self.data = data
        #: When it was made.
        self.at = at

    @property
    def sn(self) -> int:
        return self.change.first_sn

    @property
    def position(self) -> int:
        """Where what comes behind it begins."""
        return self.change.position


class Claims:
    """The open claims of one writer."""

    def __init__(
        self,
        writer_id: bytes,
        sender: Sender,
    ) -> None:
        self.open: deque[SampleClaim] = deque()
        self._writer_id = writer_id
        self._sender = sender
        self._counters = sender.counters
        self._history = sender.history
        self._publication = sender.publication
        self._acks = sender.acks
        self._timeout = self._acks.pacing.policy.unblock_timeout

    def make(self, size: int, *, timestamp: int, now: int) -> SampleClaim:
        """Claim room for the next sample, of ``size`` bytes, a multiple of 4."""
        history, sn = self._history, self._history.last_sn + 1
        empty = Samples.uniform(np.zeros(size, np.uint8), 1, size)
        (block,) = frame(empty, self._writer_id, sn, budget=size + overhead(0, with_key_hash=False))
        change = Change(sn, sn, timestamp, block, history.last_batch_sn, is_claimed=True)
        claim = self._publication.claim(change)
        self._sender.published(change)
        self._counters.written_samples += 1
        made = SampleClaim(change, claim, block.data[block.nbytes - size :], now)
        self.open.append(made)
        return made

    def commit(self, claim: SampleClaim, now: int) -> bool:
        """It is complete. False: it was overdue, and is given up."""
        if claim not in self.open or not claim.claim.commit():
            return False
        self.open.remove(claim)
        claim.change.is_claimed = False
        self._go_on(now)
        return True

    def abort(self, claim: SampleClaim, now: int) -> None:
        """There will be no such sample: its number is a GAP."""
        if claim not in self.open:
            return
        self.open.remove(claim)
        claim.claim.abort()
        self._history.withdraw(claim.change)
        self._publication.withdraw(claim.change)
        self._sender.broadcast.gap(claim.sn, claim.sn)
        self._counters.written_samples -= 1
        self._go_on(now)

    def _go_on(self, now: int) -> None:
        self._sender.transmit(now)
        self._acks.written(now)

    def get_timer(self) -> int | None:
        """When the oldest is overdue."""
        return self.open[0].at + self._timeout if self.open else None

    def handle_timer(self, now: int) -> None:
        """Give up what nobody committed in time."""
        while self.open and now - self.open[0].at >= self._timeout:
            self._counters.unblocked_publications += 1
            self.abort(self.open[0], now)
