"""Bounds the cost of repeated repairs to one reader. A reader that requests the same again and again, or in whose name
somebody else does, costs at most a bounded multiple of what is written.

The first repair of a sample, a fragment or a GAP to a reader is free. Each further one is paid for from a balance of
bytes. The balance grows

* by half of the bytes that are written, and by half of those that are repaired for the first time: with a loss rate of
  ``p``, honest repetitions are p² / (1 - p) of what is written, which is half of it at a loss of one half;
* by ``REPETITIONS_PER_SECOND``, up to ``REPETITIONS_AT_ONCE``: for times in which nothing is written, and for links
  with a higher loss.

So within a time t a reader costs at most: everything written once more, half of that, and
``REPETITIONS_AT_ONCE + t * REPETITIONS_PER_SECOND`` bytes, whatever it requests, and however often.

Invariants: the balance never exceeds ``balance_max``. It falls below zero by no more than one answer, since one sample
may be larger than the balance. Numbers that the reader acknowledged count as sent before, and only higher numbers are
remembered. If these would be scattered over more than ``REORDER_RUNS_MAX`` intervals, everything counts as sent before.
"""

from __future__ import annotations

from typing import Final

from ....limits import REORDER_RUNS_MAX
from ...intervals import IntervalSet

#: The balance at the start, and the bound for its growth with time; and that growth. Both in bytes.
REPETITIONS_AT_ONCE: Final = 256 << 10
REPETITIONS_PER_SECOND: Final = 256 << 10
_SECOND: Final = 1_000_000_000


class RepeatedRepairs:
    """The balance of one reader, and what was sent to it again before."""

    __slots__ = ("_acked", "_at", "_balance", "_balance_max", "_before", "_scattered", "_written")

    def __init__(self) -> None:
        #: What was sent again before: fragments by the number of their sample, and samples under 0.
        self._before: dict[int, IntervalSet] = {}
        self._acked = 0
        self._scattered = 0
        self._balance = REPETITIONS_AT_ONCE
        self._balance_max = REPETITIONS_AT_ONCE
        self._at = 0
        self._written = 0

    def update(self, *, acked: int, written: int, balance_max: int, now: int) -> None:
        """Update the balance before an answer to the reader; ``written``: bytes written so far."""
        self._balance_max = max(balance_max, REPETITIONS_AT_ONCE)
        self._earn((written - self._written) // 2)
        self._written = written
        if self._balance < REPETITIONS_AT_ONCE:
            earned = self._balance + (now - self._at) * REPETITIONS_PER_SECOND // _SECOND
            self._balance = min(earned, REPETITIONS_AT_ONCE)
        self._at, self._acked = now, acked
        if (samples := self._before.get(0)) is not None:
            samples.remove_range(0, acked)
        for sn in [sn for sn in self._before if 0 < sn <= acked]:
            del self._before[sn]
        self._scattered = sum(len(numbers) for numbers in self._before.values())

    def allowed(self, first: int, last: int, *, of: int = 0) -> list[tuple[int, int]]:
        """The ranges of first..last that may be sent again now."""
        if self._balance > 0:
            return [(first, last)]
        if self._scattered >= REORDER_RUNS_MAX:
            return []
        if of:
            first = first if of > self._acked else last + 1
        else:
            first = max(first, self._acked + 1)
        before = self._before.get(of, IntervalSet())
        return list(before.holes(first, last))

    def has_all(self, first: int, last: int) -> bool:
        """Whether all samples of first..last, which are not acknowledged yet, were sent again."""
        samples = self._before.get(0)
        return samples is not None and next(samples.holes(first, last), None) is None

    def add_repair(self, first: int, last: int, nbytes: int, *, of: int = 0) -> None:
        """first..last was sent again, in ``nbytes``."""
        before = self._before.get(of)
        if self._scattered >= REORDER_RUNS_MAX or (of or first) <= self._acked:
            self._balance -= nbytes
            return
        if before is None:
            before = self._before[of] = IntervalSet()
        if next(before.within(first, last), None) is not None:
            self._balance -= nbytes
        else:
            self._earn(nbytes // 2)
        self._scattered -= len(before)
        before.add_range(first, last)
        self._scattered += len(before)

    def _earn(self, nbytes: int) -> None:
        self._balance = min(self._balance + nbytes, self._balance_max)
