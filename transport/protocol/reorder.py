"""What one writer sent ahead of its turn: runs kept until the missing samples before them arrive.

Invariants: ``_covered`` holds every sequence number that need not come any more, by data or by GAP; each run
of ``_runs`` lies wholly in it, sorted, none overlapping another; ``nbytes`` is the memory the runs own, at
most ``bytes_max`` (one run alone may exceed it), and that of all buffers of a :class:`ReorderBudget` together
stays within that budget (one run alone may exceed it, too); intervals and runs number at most ``runs_max``
each. When full, the highest sequence numbers are given up: the lower ones are needed first. A buffer that is
thrown away is to be cleared before, for the budget's sake.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from ..limits import REORDER_BYTES_MAX, REORDER_RUNS_MAX, REORDER_WRITER_BYTES_MAX
from ..wire.samples import Run
from .intervals import IntervalSet


class ReorderBudget:
    """What the reorder buffers of one reader may take together."""

    __slots__ = ("bytes_max", "nbytes")

    def __init__(self, bytes_max: int = REORDER_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.nbytes = 0

    def has_room(self, nbytes: int) -> bool:
        return not self.nbytes or self.nbytes + nbytes <= self.bytes_max


class ReorderBuffer:
    """Runs and irrelevant ranges above the next expected sequence number."""

    __slots__ = ("_budget", "_covered", "_firsts", "_runs", "bytes_max", "nbytes", "runs_max")

    def __init__(self, budget: ReorderBudget) -> None:
        self.bytes_max = REORDER_WRITER_BYTES_MAX
        self.runs_max = REORDER_RUNS_MAX
        self.nbytes = 0
        self._budget = budget
        self._covered = IntervalSet()
        self._runs: list[Run] = []
        self._firsts: list[int] = []

    def __bool__(self) -> bool:
        return len(self._covered) > 0

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def highest(self) -> int:
        """The highest sequence number held, 0 if none."""
        return self._covered.highest if self._covered else 0

    @property
    def lowest(self) -> int:
        """The lowest sequence number held; there must be one."""
        return self._covered.lowest[0]

    @property
    def samples(self) -> int:
        """How many samples the runs have."""
        return sum(run.count for run in self._runs)

    def __contains__(self, sn: int) -> bool:
        return sn in self._covered

    def holes(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """What of first..last is still missing, as inclusive ranges."""
        return self._covered.holes(first, last)

    def add(self, run: Run, *, owned: bool = False) -> tuple[int, int, int]:
        """Keep what is new of ``run``: (samples new, kept, given up for lack of room).

        The run is copied unless its memory is its own (``owned``).
        """
        holes = list(self._covered.holes(run.first_sn, run.last_sn))
        new = sum(last - first + 1 for first, last in holes)
        kept = lost = 0
        for first, last in holes:
            part = run.take(first - run.first_sn, last - run.first_sn + 1)
            lost += self._make_room(part)
            if not self._fits(part):
                lost += part.count
                break  # what follows is higher still
            # The receive buffer is reused: here ownership passes on.
            part = part if owned and part is run else part.copy()
            i = bisect_right(self._firsts, first)
            self._runs.insert(i, part)
            self._firsts.insert(i, first)
            self._covered.add(first, last)
            self._account(part.nbytes)
            kept += part.count
        return new, kept, lost

    def add_irrelevant(self, first: int, last: int) -> bool:
        """Note that first..last will never come; False if that would scatter too much."""
        if (
            len(self._covered) >= self.runs_max
            and next(self._covered.within(first - 1, last + 1), None) is None
        ):
            return False
        self._covered.add(first, last)
        return True

    def peek(self, expected: int) -> tuple[int, Run | None] | None:
        """What can be done at ``expected``: (next expected, run to deliver, if any); None: it is missing.

        The run, if there is one, has to be taken out with :meth:`pop` before its numbers are passed.
        """
        if not self._covered:
            return None
        first, last = self._covered.lowest
        if first > expected or last < expected:
            return None
        if self._runs and self._runs[0].first_sn <= last:
            run = self._runs[0]
            return run.last_sn + 1, run.take(max(expected - run.first_sn, 0), run.count)
        return last + 1, None

    def pop(self) -> None:
        """Drop the first run: it was delivered."""
        self._account(-self._runs[0].nbytes)
        del self._runs[0], self._firsts[0]

    def discard_below(self, sn: int) -> int:
        """Forget everything below ``sn``; returns how many samples of runs that were thrown away."""
        thrown = 0
        while self._runs and self._runs[0].last_sn < sn:
            thrown += self._runs[0].count
            self.pop()
        if self._covered and self._covered.lowest[0] < sn:
            self._covered.remove(0, sn - 1)
        return thrown

    def clear(self) -> None:
        """Forget everything."""
        self._account(-self.nbytes)
        self._covered = IntervalSet()
        self._runs.clear()
        self._firsts.clear()

    def _account(self, nbytes: int) -> None:
        self.nbytes += nbytes
        self._budget.nbytes += nbytes

    def _fits(self, part: Run) -> bool:
        return (
            len(self._runs) < self.runs_max
            and len(self._covered) < self.runs_max
            and (not self._runs or self.nbytes + part.nbytes <= self.bytes_max)
            and self._budget.has_room(part.nbytes)
        )

    def _make_room(self, part: Run) -> int:
        """Give up runs above ``part`` until it fits; returns how many samples that cost."""
        lost = 0
        while not self._fits(part) and self._runs and self._runs[-1].first_sn > part.first_sn:
            run = self._runs.pop()
            self._firsts.pop()
            self._account(-run.nbytes)
            self._covered.remove(run.first_sn, run.last_sn)
            lost += run.count
        return lost
