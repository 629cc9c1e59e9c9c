"""Sets of numbers as disjoint intervals: a range that came from the wire is never expanded.

Invariant: ``_firsts`` and ``_lasts`` have the same length, ``_firsts[i] <= _lasts[i]`` and
``_lasts[i] + 1 < _firsts[i + 1]`` (neighbours are merged). The two change in one statement, so that an exception that
comes from outside, such as KeyboardInterrupt, cannot separate them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

#: If at least one interval is added per this many existing ones, rebuilding both lists is faster than inserting.
_MANY: Final = 16


class IntervalSet:
    """Integers, kept as inclusive intervals; each change costs a search and at most one list move."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def __len__(self) -> int:
        """The number of intervals."""
        return len(self._firsts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._lasts, strict=True)

    def __contains__(self, number: int) -> bool:
        i = bisect_right(self._firsts, number) - 1
        return i >= 0 and number <= self._lasts[i]

    def around(self, number: int) -> tuple[int, int] | None:
        """The interval that holds ``number``; None if none does."""
        i = bisect_right(self._firsts, number) - 1
        return (self._firsts[i], self._lasts[i]) if i >= 0 and number <= self._lasts[i] else None

    @property
    def lowest(self) -> tuple[int, int]:
        """The first interval; the set must not be empty."""
        return self._firsts[0], self._lasts[0]

    @property
    def highest(self) -> int:
        """The largest number; the set must not be empty."""
        return self._lasts[-1]

    def add_range(self, first: int, last: int) -> None:
        """Add first..last; adjacent intervals are merged."""
        if first > last:
            return
        low = bisect_left(self._lasts, first - 1)
        high = bisect_right(self._firsts, last + 1)
        if low < high:
            first = min(first, self._firsts[low])
            last = max(last, self._lasts[high - 1])
        self._firsts[low:high], self._lasts[low:high] = [first], [last]

    def update(self, firsts: list[int], lasts: list[int]) -> None:
        """Add intervals that are ascending and not adjacent; many are added in one pass over the set."""
        if _MANY * len(firsts) < len(self):
            for first, last in zip(firsts, lasts, strict=True):
                self.add_range(first, last)
            return
        if not self:
            self._firsts, self._lasts = firsts, lasts
            return
        all_firsts: list[int] = []
        all_lasts: list[int] = []
        for first, last in sorted([*self, *zip(firsts, lasts, strict=True)]):
            if all_lasts and first <= all_lasts[-1] + 1:
                all_lasts[-1] = max(all_lasts[-1], last)
            else:
                all_firsts.append(first)
                all_lasts.append(last)
        self._firsts, self._lasts = all_firsts, all_lasts

    def remove_range(self, first: int, last: int) -> None:
        """Remove first..last."""
        low = bisect_left(self._lasts, first)
        high = bisect_right(self._firsts, last)
        if first > last or low >= high:
            return
        firsts, lasts = [], []
        if self._firsts[low] < first:
            firsts.append(self._firsts[low])
            lasts.append(first - 1)
        if self._lasts[high - 1] > last:
            firsts.append(last + 1)
            lasts.append(self._lasts[high - 1])
        self._firsts[low:high], self._lasts[low:high] = firsts, lasts

    def take_up_to(self, last: int) -> tuple[list[int], list[int]]:
        """Remove all numbers up to ``last``; returns the first and the last numbers of the intervals removed."""
        high = bisect_right(self._firsts, last)
        firsts, lasts = self._firsts[:high], self._lasts[:high]
        begun, ends = [], []
        if lasts and lasts[-1] > last:
            begun, ends = [last + 1], [lasts[-1]]
            lasts[-1] = last
        self._firsts[:high], self._lasts[:high] = begun, ends
        return firsts, lasts

    def holes(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The parts of first..last that are not in the set, ascending."""
        i = bisect_left(self._lasts, first)
        while first <= last:
            if i == len(self._firsts) or self._firsts[i] > last:
                yield first, last
                return
            if first < self._firsts[i]:
                yield first, self._firsts[i] - 1
            first = self._lasts[i] + 1
            i += 1

    def within(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The parts of first..last that are in the set, ascending."""
        i = bisect_left(self._lasts, first)
        while i < len(self._firsts) and self._firsts[i] <= last:
            yield max(first, self._firsts[i]), min(last, self._lasts[i])
            i += 1
