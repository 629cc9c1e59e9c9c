"""Turbo mode: how large a batch is to be, from how fast the user writes and whether readers keep up.

A batch waits only when waiting pays: when several more writes are expected within a short delay. So each sample goes
at once at a low rate, and at a high rate a batch is as large as what is written within the delay, or as what a
datagram holds.
"""

from __future__ import annotations

import math
from typing import Final

#: The longest that turbo mode ever holds a sample back, ns: while readers keep up, and under back-pressure.
DELAY_MAX: Final = 1_000_000
PRESSURE_MAX: Final = 8
BLOCKED_DELAY_MAX: Final = PRESSURE_MAX * DELAY_MAX
#: Time constant of the measured rates, ns.
_MEMORY: Final = 4_000_000
#: How many writes have to be expected within the delay.
_WORTH_WAITING: Final = 4


class Turbo:
    """The rate of one writer, in sums that decay with time, so that a pause is forgotten by itself."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._writes = 0.0
        self._bytes = 0.0
        #: 1: readers keep up. Batches and delays are so many times as large.
        self._pressure = 1.0

    def resume(self, now: int) -> None:
        """Sending what was written last took until ``now``: that is no pause of the user's."""
        if self._last is not None:
            self._last = max(self._last, now)

    def limit(self, now: int, count: int, nbytes: int, blocked: bool) -> tuple[int, int]:
        """What to queue at most, after a write of ``count`` samples with ``nbytes`` bytes: (bytes, delay in ns).

        (0, 0): send at once. ``blocked``: the readers' acknowledgements or the socket hold the writer up.
        """
        gap = _MEMORY if self._last is None else max(0, now - self._last)
        self._last = now
        decay = math.exp(-gap / _MEMORY)
        self._pressure = (
            min(2 * self._pressure, PRESSURE_MAX) if blocked else 1 + (self._pressure - 1) * decay
        )
        delay = int(DELAY_MAX * self._pressure)
        # What came before this write predicts what comes after it.
        writes, expected = self._writes * decay, self._bytes * decay * delay / _MEMORY
        self._writes = writes + 1 if count else writes
        self._bytes = self._bytes * decay + nbytes
        if gap > delay or writes * delay < _WORTH_WAITING * _MEMORY:
            return 0, 0
        return int(expected), delay
