"""OFFERED_DEADLINE_MISSED: periods in which an instance was not written (DDS 1.4 §2.2.3.7).

Invariant: each instance of ``_due`` is once in ``_queue``, with when it is due or an earlier time: a write only
moves the time in ``_due``.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import Final

import numpy as np
import numpy.typing as npt

from ....structure import INFINITE
from ....wire.samples import DISPOSED, U8, UNREGISTERED

U32 = npt.NDArray[np.uint32]

#: The one instance of a topic without key.
_KEYLESS: Final = b""


class OfferedDeadline:
    """The periods of one writer's instances, each begun by the instance's first write."""

    def __init__(self, period: int) -> None:
        self.period = period
        self.is_finite = period < INFINITE
        self._due: dict[bytes, int] = {}
        self._queue: list[tuple[int, bytes]] = []

    def written(self, key_hashes: U8 | None, flags: int | U32, now: int) -> None:
        """Samples of these instances, (n, 16), were written; disposed and unregistered ones owe nothing."""
        if not isinstance(flags, int):
            ended = flags & (DISPOSED | UNREGISTERED) != 0
            assert key_hashes is None or len(key_hashes) == len(flags)
            for part, mark in ((~ended, 0), (ended, DISPOSED)):
                if part.any():
                    self.written(None if key_hashes is None else key_hashes[part], mark, now)
            return
        due = INFINITE if flags & (DISPOSED | UNREGISTERED) else now + self.period
        for instance in _instances(key_hashes):
            if instance not in self._due:
                heappush(self._queue, (due, instance))
            self._due[instance] = due

    def missed(self, now: int) -> int:
        """How often a period has ended without a write since the last call."""
        count = 0
        while self._queue and self._queue[0][0] <= now:
            instance = self._queue[0][1]
            due = self._due[instance]
            if due == INFINITE:
                heappop(self._queue)
                del self._due[instance]
                continue
            if due <= now:
                period = max(self.period, 1)
                periods = (now - due) // period + 1
                count += periods
                self._due[instance] = due = due + periods * period
            heapreplace(self._queue, (due, instance))
        return count

    def get_timer(self) -> int | None:
        return self._queue[0][0] if self._queue else None


def _instances(key_hashes: U8 | None) -> list[bytes]:
    if key_hashes is None:
        return [_KEYLESS]
    keys = np.ascontiguousarray(key_hashes).view("V16").reshape(len(key_hashes))
    return [key.tobytes() for key in np.unique(keys)]
