"""Runs of one writer that arrived early, kept until the missing samples before them arrive.

Invariants:

* ``covered`` holds every sequence number that is no longer needed, because of data or a GAP; each run of ``runs`` lies
  wholly in it; the runs are sorted and do not overlap;
* ``nbytes`` is the memory that the runs own, at most ``bytes_max``; the buffers of one :class:`ReorderBudget` together
  stay within that budget; one run alone may exceed either;
* there are at most ``runs_max`` intervals and as many runs, and no more of them than the :class:`ReceiveWindow` holds;
* a full buffer gives up the highest sequence numbers, since the lower ones are needed first, and a batch whole;
* a buffer is cleared before it is discarded, so that the budget is released.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter

from ....limits import REORDER_BYTES_MAX, REORDER_RUNS_MAX, REORDER_WRITER_BYTES_MAX
from ....structure import INFINITE
from ....wire.samples import Run
from ...intervals import IntervalSet


class ReorderBudget:
    """The bytes that the reorder buffers of one reader may own together."""

    __slots__ = ("bytes_max", "nbytes")

    def __init__(self, bytes_max: int = REORDER_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.nbytes = 0

    def has_room(self, nbytes: int) -> bool:
        return not self.nbytes or self.nbytes + nbytes <= self.bytes_max


class ReceiveWindow:
    """How much of a writer's samples a reader holds (RTI's receive_window_size): samples, and each batch as one."""

    __slots__ = ("_batches", "units", "units_max")

    def __init__(self, units_max: int) -> None:
        self.units = 0
        self.units_max = units_max
        #: How many runs of each batch there are.
        self._batches: Counter[int] = Counter()

    @property
    def is_full(self) -> bool:
        return self.units >= self.units_max

    def fits(self, run: Run) -> bool:
        """Whether there is room for a run, too."""
        units = run.count if not run.batch_sn else run.batch_sn not in self._batches
        return self.units + units <= self.units_max

    def count(self, run: Run, sign: int) -> None:
        """A run was put in (1) or taken out (-1)."""
        if not run.batch_sn:
            self.units += sign * run.count
            return
        before = self._batches[run.batch_sn]
        self._batches[run.batch_sn] = before + sign
        if not before:
            self.units += 1
        elif before + sign == 0:
            self.units -= 1
            del self._batches[run.batch_sn]


class ReorderBuffer:
    """Runs and irrelevant ranges above the next expected sequence number."""

    __slots__ = ("_budget", "_firsts", "bytes_max", "covered", "nbytes", "runs", "runs_max", "window")

    def __init__(self, budget: ReorderBudget, *, units_max: int = INFINITE) -> None:
        self.bytes_max = REORDER_WRITER_BYTES_MAX
        self.runs_max = REORDER_RUNS_MAX
        self.window = ReceiveWindow(units_max)
        self.nbytes = 0
        #: What need not come any more.
        self.covered = IntervalSet()
        #: The runs, ascending.
        self.runs: list[Run] = []
        self._budget = budget
        self._firsts: list[int] = []

    def __bool__(self) -> bool:
        return len(self.covered) > 0

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def highest(self) -> int:
        """The highest sequence number held, 0 if none."""
        return self.covered.highest if self.covered else 0

    @property
    def first_hole(self) -> int:
        """The number behind the lowest range held; there must be one."""
        return self.covered.lowest[1] + 1

    @property
    def last_before_hole(self) -> Run | None:
        """The last run of the lowest range, if it has one."""
        i = bisect_right(self._firsts, self.covered.lowest[1]) if self.covered else 0
        return self.runs[i - 1] if i else None

    def __contains__(self, sn: int) -> bool:
        return sn in self.covered

    def add_run(self, run: Run, *, owned: bool = False) -> tuple[int, int, int]:
        """Keep the new samples of ``run``; returns (samples new, kept, given up for lack of space).

        The run is copied unless it owns its memory (``owned``).
        """
        holes = list(self.covered.holes(run.first_sn, run.last_sn))
        new = sum(last - first + 1 for first, last in holes)
        kept = lost = 0
        for first, last in holes:
            part = run.take_range(first - run.first_sn, last - run.first_sn + 1)
            lost += self._make_room(part)
            if not self._fits(part):
                room = self.window.units_max - self.window.units
                if part.batch_sn or not 0 < room < part.count or not self._fits(part.take_range(0, room)):
                    lost += new - kept
                    break  # what follows is higher still
                part = part.take_range(0, room)  # the rest is beyond the receive window
            # The receive buffer is reused: here ownership passes on.
            part = part if owned and part is run else part.copy()
            i = bisect_right(self._firsts, first)
            self.runs.insert(i, part)
            self._firsts.insert(i, first)
            self.covered.add_range(first, part.last_sn)
            self._account(part, 1)
            kept += part.count
            if part.last_sn < last:
                lost += new - kept
                break
        return new, kept, lost

    def add_irrelevant(self, first: int, last: int) -> bool:
        """Note that first..last will never come; False if there would be too many intervals."""
        if (
            len(self.covered) >= self.runs_max
            and next(self.covered.within(first - 1, last + 1), None) is None
        ):
            return False
        self.covered.add_range(first, last)
        return True

    def peek(self, expected: int) -> tuple[int, Run | None] | None:
        """What comes at ``expected``: (the next expected, the run to deliver, if any); None if it is missing.

        The run, if there is one, has to be taken out with :meth:`pop` before its numbers are passed.
        """
        if not self.covered:
            return None
        first, last = self.covered.lowest
        if first > expected or last < expected:
            return None
        if self.runs and self.runs[0].first_sn <= last:
            run = self.runs[0]
            return run.last_sn + 1, run.take_range(max(expected - run.first_sn, 0), run.count)
        return last + 1, None

    def group(self, expected: int, *, coherent: bool) -> list[Run]:
        """The runs to hand out together: the first from ``expected`` on, and those right behind it of the same batch
        or, if ``coherent``, of the same coherent set."""
        runs = self.runs
        first, last = runs[0], self.covered.lowest[1]
        stop = 1
        if coherent and first.coherent_set > 0:
            while stop < len(runs) and self._firsts[stop] <= last:
                if runs[stop].coherent_set != first.coherent_set:
                    break
                stop += 1
        elif first.batch_sn:
            while stop < len(runs) and self._firsts[stop] <= last and runs[stop].batch_sn == first.batch_sn:
                stop += 1
        return [first.take_range(max(expected - first.first_sn, 0), first.count), *runs[1:stop]]

    def pop(self, count: int = 1) -> None:
        """Drop the first runs: they were delivered."""
        for run in self.runs[:count]:
            self._account(run, -1)
        del self.runs[:count], self._firsts[:count]

    def give_up_batch(self, batch_sn: int) -> int:
        """Drop the runs of a batch that did not fit; returns how many samples that costs."""
        lost = 0
        for run in [run for run in self.runs if run.batch_sn == batch_sn]:
            self._remove(run)
            lost += run.count
        return lost

    def discard_sets(self, first: int, last: int) -> set[int]:
        """Discard the coherent sets with a run in first..last; their numbers are no longer needed. Returns these
        sets."""
        within = self.runs[max(0, bisect_right(self._firsts, first) - 1) : bisect_right(self._firsts, last)]
        numbers = {run.coherent_set for run in within if run.coherent_set > 0 and run.last_sn >= first}
        if numbers:
            for run in self.runs:
                if run.coherent_set in numbers:
                    self._account(run, -1)
            self.runs[:] = [run for run in self.runs if run.coherent_set not in numbers]
            self._firsts[:] = [run.first_sn for run in self.runs]
        return numbers

    def discard_below(self, sn: int) -> int:
        """Forget everything below ``sn``; returns how many samples were discarded."""
        thrown = 0
        while self.runs and self.runs[0].last_sn < sn:
            thrown += self.runs[0].count
            self.pop()
        if self.runs and (known := sn - self.runs[0].first_sn) > 0:
            run = self.runs[0]
            self._account(run, -1)
            self.runs[0], self._firsts[0] = run.take_range(known, run.count), sn
            self._account(self.runs[0], 1)
            thrown += known
        if self.covered and self.covered.lowest[0] < sn:
            self.covered.remove_range(0, sn - 1)
        return thrown

    def clear(self) -> None:
        """Forget everything."""
        self.pop(len(self.runs))
        self.covered = IntervalSet()

    def _account(self, run: Run, sign: int) -> None:
        """A run was put in (1) or taken out (-1)."""
        self.nbytes += sign * run.nbytes
        self._budget.nbytes += sign * run.nbytes
        self.window.count(run, sign)

    def _remove(self, run: Run) -> None:
        i = bisect_right(self._firsts, run.first_sn) - 1
        del self.runs[i], self._firsts[i]
        self._account(run, -1)
        self.covered.remove_range(run.first_sn, run.last_sn)

    def _fits(self, part: Run) -> bool:
        return (
            self.window.fits(part)
            and len(self.runs) < self.runs_max
            and len(self.covered) < self.runs_max
            and (not self.runs or self.nbytes + part.nbytes <= self.bytes_max)
            and self._budget.has_room(part.nbytes)
        )

    def _make_room(self, part: Run) -> int:
        """Give up runs above ``part`` until it fits; returns how many samples that cost."""
        lost = 0
        while not self._fits(part) and self.runs and self.runs[-1].first_sn > part.first_sn:
            run = self.runs[-1]
            if run.batch_sn and run.batch_sn != part.batch_sn:
                lost += self.give_up_batch(run.batch_sn)
                continue
            self._remove(run)
            lost += run.count
        return lost
