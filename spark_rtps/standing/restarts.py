"""When a process that died is started again."""

from __future__ import annotations

from collections import deque
from typing import Final

from ..transport.structure import NANOSECONDS

#: More deaths than this within the period, and the process is left alone for as long.
DEATHS_MAX: Final = 5
PERIOD_NS: Final = 60 * NANOSECONDS
_FIRST_DELAY_NS: Final = NANOSECONDS // 2
_LAST_DELAY_NS: Final = 8 * NANOSECONDS


class Restarts:
    """The deaths of one process within the last minute. The first one costs no time."""

    def __init__(self) -> None:
        self._deaths: deque[int] = deque()
        #: It died too often, and rests.
        self.has_failed = False

    def died(self, now: int) -> int:
        """Count a death; returns when to start again."""
        while self._deaths and now - self._deaths[0] > PERIOD_NS:
            self._deaths.popleft()
        self._deaths.append(now)
        count = len(self._deaths)
        self.has_failed = count > DEATHS_MAX
        if self.has_failed:
            self._deaths.clear()
            return now + PERIOD_NS
        return now if count == 1 else now + min(_FIRST_DELAY_NS << (count - 2), _LAST_DELAY_NS)

    def runs(self) -> None:
        """It has started."""
        self.has_failed = False
