"""DEADLINE: which instances were not written within the period, as a reader requests or a writer offers it
(DDS 1.4 §2.2.3.7).

An instance is watched from its first sample on. Each period that passes without one is a miss. Disposed and
unregistered instances are not watched.

All instances are scanned when a deadline may have passed. The interval between scans grows with the number of
instances, so that scanning takes a hundredth of the time. A miss is noticed up to one interval late (a tenth of a
second with a million instances), and is still counted.

Invariant: ``_next_check`` is at most one scan interval later than the earliest deadline; deadlines only move later.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..structure import INFINITE
from ..wire.samples import I64
from .instances import InstanceTable

#: Least time between two scans, for each instance, ns: a hundred times what scanning one instance takes.
_BETWEEN: Final = 100
#: Up to this many instances, scans need no minimum interval.
_FEW: Final = 1_000


class Deadlines:
    """When the deadline of each row of an instance table ends; the rows have a field ``deadline``. Times are in ns."""

    def __init__(self, period: int, instances: InstanceTable) -> None:
        self.period = max(period, 1)
        #: Deadlines missed so far.
        self.missed = 0
        self._instances = instances
        self._next_check: int | None = None

    def renew(self, rows: I64, *, now: int) -> None:
        """Restart the deadlines of these instances: they got a sample."""
        self._instances.rows["deadline"][rows] = now + self.period
        if len(rows) and self._next_check is None:
            self._next_check = now + self.period

    def stop(self, rows: I64) -> None:
        """Stop watching these instances: they are no longer written."""
        self._instances.rows["deadline"][rows] = INFINITE

    def get_timer(self) -> int | None:
        return self._next_check

    def handle_timer(self, now: int) -> I64:
        """Return the rows whose deadline was missed since the last call."""
        if self._next_check is None or now < self._next_check:
            return np.zeros(0, np.int64)
        deadlines = self._instances.used["deadline"]
        late = np.flatnonzero(deadlines <= now)
        if len(late):
            periods = 1 + (now - deadlines[late]) // self.period
            deadlines[late] += periods * self.period
            self.missed += int(periods.sum())
        following = int(deadlines.min(initial=INFINITE))
        soonest = now + _BETWEEN * max(0, len(deadlines) - _FEW)
        self._next_check = None if following == INFINITE else max(following, soonest)
        return late
