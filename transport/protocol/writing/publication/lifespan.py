"""LIFESPAN of a writer: which changes have expired, by their source timestamps (DDS 1.4 §2.2.3.16).

Users set source timestamps, which are wall clock times. The newest write gives the offset between wall clock and
``now``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....structure import INFINITE
from ....wire.samples import NO_TIMESTAMP
from ..changes import Change


class Lifespan:
    """The LIFESPAN of one writer; ``changes`` are those that its history holds, oldest first."""

    def __init__(self, duration: int, changes: Sequence[Change]) -> None:
        self.is_finite = duration < INFINITE
        #: Samples with this source timestamp or an older one have expired.
        self.expired_before = NO_TIMESTAMP
        self._duration = duration
        self._changes = changes
        #: The wall clock minus ``now``, as of the newest write.
        self._wall_offset: int | None = None

    def note_time(self, wall_clock: int, now: int) -> None:
        """Note the wall clock, ns since the epoch, at ``now``."""
        if wall_clock != NO_TIMESTAMP:
            self._wall_offset = wall_clock - now

    def advance(self, now: int) -> bool:
        """Set the time to ``now``; returns False if no sample can have expired."""
        if not self.is_finite or self._wall_offset is None:
            return False
        self.expired_before = now + self._wall_offset - self._duration
        return True

    def is_over(self, change: Change) -> bool:
        """Whether the LIFESPAN of all samples of a change is over."""
        return self.is_finite and NO_TIMESTAMP != change.newest <= self.expired_before

    def get_timer(self) -> int | None:
        """When the LIFESPAN of the oldest change will be over."""
        if not self.is_finite or self._wall_offset is None or not self._changes:
            return None
        timestamp = self._changes[0].newest
        return None if timestamp == NO_TIMESTAMP else timestamp + self._duration - self._wall_offset
