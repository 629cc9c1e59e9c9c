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
#: What ran for so long works: whatever ended it, another try costs nothing.
_WORKS_NS: Final = 2 * NANOSECONDS


class Restarts:
    """The deaths of one process within the last minute. The first costs no time, nor does that of one that worked."""

    def __init__(self) -> None:
        self._deaths: deque[int] = deque()
        self._runs_since: int | None = None
        #: It died too often, and rests.
        self.has_failed = False

    def died(self, now: int) -> int:
        """Count a death; returns when to start again."""
        while self._deaths and now - self._deaths[0] > PERIOD_NS:
            self._deaths.popleft()
        self._deaths.append(now)
        count = len(self._deaths)
        worked = self._runs_since is not None and now - self._runs_since >= _WORKS_NS
        self._runs_since = None
        self.has_failed = count > DEATHS_MAX
        if self.has_failed:
            self._deaths.clear()
            return now + PERIOD_NS
        return now if count == 1 or worked else now + min(_FIRST_DELAY_NS << (count - 2), _LAST_DELAY_NS)

    def runs(self, now: int) -> None:
        """It has started."""
        self._runs_since = now
        self.has_failed = False
