"""Coherent sets of one writer: all samples of a set become visible, or none (RTPS 2.5 §8.7.5, §9.6.4.2).

A sample names its set by the set's first sequence number. A set ends before an end marker, a sample of no set, or a
sample of another set. Until then its samples wait in the reorder buffer, unacknowledged. A set that is larger than the
bounds of that buffer is given up, because it would wait for ever.

Invariant: a set with a lost number is never handed out, and is counted once. At most REORDER_RUNS_MAX intervals of lost
numbers are kept; beyond that, the numbers between two intervals count as lost, too.
"""

from __future__ import annotations

import enum

from ....limits import REORDER_RUNS_MAX
from ....wire.samples import Run
from ...intervals import IntervalSet
from .reorder_buffer import ReorderBuffer


class Verdict(enum.Enum):
    """The decision about the set whose run is the next one in order."""

    OPEN = enum.auto()
    WHOLE = enum.auto()
    LOST = enum.auto()


class CoherentAccess:
    """Which of one writer's sets are lost, and whether the next one is whole."""

    __slots__ = ("_counted", "_ended", "_lost")

    def __init__(self) -> None:
        self._lost = IntervalSet()
        #: The number of a sample or marker that does not belong to the set before it.
        self._ended = 0
        self._counted = 0

    def lose(self, first: int, last: int) -> None:
        """first..last will not be handed out, nor will the sets to which they belong."""
        if len(self._lost) >= REORDER_RUNS_MAX:
            first = min(first, self._lost.highest)
        self._lost.add_range(first, last)

    def end(self, held: ReorderBuffer, run: Run) -> bool:
        """Whether ``run``, which follows the held runs without a hole, is not part of their set."""
        last = held.last_before_hole
        if last is None or last.coherent_set == run.coherent_set:
            return False
        self._ended = run.first_sn
        return True

    def judge(self, held: ReorderBuffer, expected: int, *, first_sn: int, bytes_max: int) -> Verdict:
        """Whether the set at ``expected``, the first one in ``held``, can be handed out.

        ``first_sn``: samples missing below it will never come. A set of more than ``bytes_max`` is given up.
        """
        run = held.runs[0]
        number = run.coherent_set
        self._lost.remove_range(0, number - 1)
        if self._is_broken(number, max(run.last_sn, number)):
            return Verdict.LOST
        hole, last = held.first_hole, held.last_before_hole or run
        if last.coherent_set == number and hole != self._ended:
            # If nothing that was sent behind its last sample can come any more, its end cannot come either.
            if hole > first_sn or (hole == first_sn and hole == last.last_sn + 1):
                return Verdict.OPEN
            broken = True
        else:
            group = held.group(expected, coherent=True)
            broken = self._is_broken(number, group[-1].last_sn)
            broken |= sum(each.nbytes for each in group) > bytes_max
        if not broken:
            return Verdict.WHOLE
        self.lose(number, number)
        return Verdict.LOST

    def count(self, number: int) -> int:
        """How many lost sets to count when a sample of this set is lost: 1 the first time, then 0."""
        first_time = number != self._counted
        self._counted = number
        return int(first_time)

    def _is_broken(self, first: int, last: int) -> bool:
        return next(self._lost.within(first, last), None) is not None


def sets_of(held: ReorderBuffer) -> int:
    """The number of sets to which the runs in ``held`` belong."""
    return len({run.coherent_set for run in held.runs if run.coherent_set > 0})
