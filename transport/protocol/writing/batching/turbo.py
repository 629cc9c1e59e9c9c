"""Turbo mode: chooses the size of a batch by the rate at which the user writes, and by whether readers keep up.

A batch waits only if several more writes are expected within a short delay. So at a low rate each sample is sent at
once. At a high rate a batch holds the samples of the delay, or as many as a datagram holds.
"""

from __future__ import annotations

import math
from typing import Final

#: The longest delay of a sample in turbo mode, ns: while readers keep up, and under back-pressure.
DELAY_MAX: Final = 1_000_000
PRESSURE_MAX: Final = 8
BLOCKED_DELAY_MAX: Final = PRESSURE_MAX * DELAY_MAX
#: Time constant of the measured rates, ns.
_MEMORY: Final = 4_000_000
#: The least number of writes expected within the delay for a batch to wait.
_WORTH_WAITING: Final = 4


class Turbo:
    """Measures the rate of one writer by sums that decay with time, so that old rates lose their weight."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._writes = 0.0
        self._bytes = 0.0
        #: Factor for the size and delay of batches; 1 while readers keep up.
        self._pressure = 1.0

    def resume(self, now: int) -> None:
        """Sending the last write took until ``now``, which does not count as a pause of the user's."""
        if self._last is not None:
            self._last = max(self._last, now)

    def limit(self, now: int, count: int, nbytes: int, blocked: bool) -> tuple[int, int]:
        """The most to queue after a write of ``count`` samples with ``nbytes`` bytes: (bytes, delay in ns).

        (0, 0): send at once. ``blocked``: the writer waits for acknowledgements or for the socket.
        """
        gap = _MEMORY if self._last is None else max(0, now - self._last)
        self._last = now
        decay = math.exp(-gap / _MEMORY)
        self._pressure = (
            min(2 * self._pressure, PRESSURE_MAX) if blocked else 1 + (self._pressure - 1) * decay
        )
        delay = int(DELAY_MAX * self._pressure)
        # The rate before this write predicts the rate after it.
        writes, expected = self._writes * decay, self._bytes * decay * delay / _MEMORY
        self._writes = writes + 1 if count else writes
        self._bytes = self._bytes * decay + nbytes
        if gap > delay or writes * delay < _WORTH_WAITING * _MEMORY:
            return 0, 0
        return int(expected), delay
