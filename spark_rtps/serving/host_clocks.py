"""What the clocks of a host show: the wall clock may be set at any time, the one since the kernel started never is."""

from __future__ import annotations

import time

from ..transport.slotted import frozen
from .log_place import boot_id


@frozen
class Clocks:
    """One moment. ``wall_ns`` is since 1970, ``uptime_ns`` since the kernel with the id ``boot`` started, also while
    the host slept; an empty ``boot`` is not known."""

    wall_ns: int
    uptime_ns: int
    boot: str

    @classmethod
    def read(cls) -> Clocks:
        try:
            boot = boot_id()
        except OSError:
            boot = ""
        return cls(time.time_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME), boot)

    def since(self, earlier: Clocks, *, at_most: int) -> int:
        """Nanoseconds after ``earlier``. Across a start of the host only the wall clock knows, and is believed for so
        many of them at most."""
        if self.boot and self.boot == earlier.boot:
            return max(0, self.uptime_ns - earlier.uptime_ns)
        return min(max(0, self.wall_ns - earlier.wall_ns), at_most)
