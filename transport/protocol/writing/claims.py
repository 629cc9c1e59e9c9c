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
from .history import Change
from .publication import Claim, Publication


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
    """The open claims of one writer; ``timeout`` ns after it was made a claim is overdue."""

    def __init__(self, publication: Publication, writer_id: bytes, timeout: int) -> None:
        self.open: deque[SampleClaim] = deque()
        self._publication = publication
        self._writer_id = writer_id
        self._timeout = timeout

    def make(self, size: int, sn: int, *, timestamp: int, batch_sn: int, now: int) -> SampleClaim:
        """Claim room for a sample of ``size`` bytes, a multiple of 4."""
        empty = Samples.uniform(np.zeros(size, np.uint8), 1, size)
        (block,) = frame(empty, self._writer_id, sn, budget=size + _ROOM)
        change = Change(sn, sn, timestamp, block, batch_sn, is_claimed=True)
        claim = self._publication.claim(change)
        made = SampleClaim(change, claim, block.data[block.nbytes - size :], now)
        self.open.append(made)
        return made

    def end(self, claim: SampleClaim) -> bool:
        """It is committed or given up; False: it was overdue, and is given up already."""
        if claim not in self.open:
            return False
        self.open.remove(claim)
        return True

    def overdue(self, now: int) -> list[SampleClaim]:
        """Claims that nobody committed in time; they are no longer open."""
        overdue = []
        while self.open and now - self.open[0].at >= self._timeout:
            overdue.append(self.open.popleft())
        return overdue

    def get_timer(self) -> int | None:
        return self.open[0].at + self._timeout if self.open else None


#: The DATA header.
_ROOM = 24
