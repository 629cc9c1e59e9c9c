"""The position in the publication log that a sequence number stands for, also where the history no longer holds it."""

from __future__ import annotations

from bisect import bisect_right

from ....limits import SEQUENCE_POSITIONS_MAX


class SequencePositions:
    """Where the changes of one writer end, by their last numbers, ascending.

    When there are too many, every other one of the older half is forgotten: an old number then stands for a somewhat
    lower position, which is on the safe side. The two lists change in one statement, so that an exception that comes
    from outside, as KeyboardInterrupt does, cannot part them.
    """

    __slots__ = ("_ends", "_numbers", "_start")

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._ends: list[int] = []
        #: Where the first change begins.
        self._start = 0

    def add(self, last_sn: int, end: int) -> None:
        """The next change."""
        count = len(self._numbers)
        self._numbers[count:], self._ends[count:] = (last_sn,), (end,)
        if count >= SEQUENCE_POSITIONS_MAX:
            half = SEQUENCE_POSITIONS_MAX // 2
            self._numbers[:half], self._ends[:half] = self._numbers[1:half:2], self._ends[1:half:2]

    def divide(self, last_sn: int, end: int) -> None:
        """The change that holds that number is now two, of which the first ends there."""
        i = bisect_right(self._numbers, last_sn)
        self._numbers[i:i], self._ends[i:i] = (last_sn,), (end,)

    def position_of(self, sn: int) -> int:
        """Where the last whole change ends whose numbers are not above ``sn``."""
        i = bisect_right(self._numbers, sn)
        return self._ends[i - 1] if i else self._start

    def number_at(self, position: int) -> int:
        """The last number of the newest change that ends at or before ``position``; 0: none is known."""
        i = bisect_right(self._ends, position)
        return self._numbers[i - 1] if i else 0

    def forget(self, sn: int) -> None:
        """No reader will ask for that number or a lower one."""
        i = bisect_right(self._numbers, sn)
        if i > 1 and 2 * i > len(self._numbers):  # seldom, so that it costs little for each
            self._start = self._ends[i - 1]
            del self._numbers[:i], self._ends[:i]
