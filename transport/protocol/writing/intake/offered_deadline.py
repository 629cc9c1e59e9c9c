"""OFFERED_DEADLINE_MISSED: periods in which an instance was not written (:mod:`...deadlines`).

Invariant: the row of an instance that was disposed or unregistered is kept until another instance needs it. The table
has at most twice as many rows as there are watched instances and instances in one write.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ....structure import INFINITE
from ....wire.samples import DISPOSED, I64, U8, UNREGISTERED
from ...deadlines import Deadlines
from ...instances import Groups, InstanceTable

U32 = npt.NDArray[np.uint32]

_NEW_ROW: Final = np.array([(INFINITE,)], [("deadline", "<i8")])
#: The one instance of a topic without key.
_KEYLESS: Final = np.zeros((1, 16), np.uint8)


class OfferedDeadline:
    """Watches the deadlines of one writer's instances, each from the instance's first write on."""

    def __init__(self, period: int) -> None:
        self.is_finite = period < INFINITE
        self._instances = InstanceTable(INFINITE, _NEW_ROW)
        self._deadlines = Deadlines(period, self._instances)

    def written(self, key_hashes: U8 | None, flags: int | U32, now: int) -> None:
        """Samples of these instances, (n, 16), were written. Disposed and unregistered instances have no deadline."""
        if not isinstance(flags, int):
            ended = flags & (DISPOSED | UNREGISTERED) != 0
            assert key_hashes is None or len(key_hashes) == len(flags)
            for part, mark in ((~ended, 0), (ended, DISPOSED)):
                if part.any():
                    self.written(None if key_hashes is None else key_hashes[part], mark, now)
            return
        rows = self._rows_of(_KEYLESS if key_hashes is None else key_hashes)
        if flags & (DISPOSED | UNREGISTERED):
            self._deadlines.stop(rows)
            self._instances.release(rows.tolist())
        else:
            self._deadlines.renew(rows, now=now)

    def missed(self, now: int) -> int:
        """The number of periods that ended without a write since the last call."""
        before = self._deadlines.missed
        self._deadlines.handle_timer(now)
        return self._deadlines.missed - before

    def get_timer(self) -> int | None:
        return self._deadlines.get_timer()

    def _rows_of(self, key_hashes: U8) -> I64:
        table, keys = self._instances, Groups.group_by_key(np.arange(len(key_hashes)), key_hashes).keys
        table.limit = 2 * (table.alive + len(keys))
        return table.find(keys)
