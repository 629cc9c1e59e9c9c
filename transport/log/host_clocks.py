"""The clocks of a host: the wall clock may be set at any time, the clock since the kernel's start is never set."""

from __future__ import annotations

import time
from functools import lru_cache
from pathlib import Path
from typing import Final

from ..structure import NANOSECONDS
from ..value_classes import value

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
#: The wall clock counts as set, and not only adjusted, if it differs by more than this, and more than a part of the
#: time.
_STEP_NS: Final = NANOSECONDS
_ADJUSTED_PART: Final = 1000
#: Longest downtime of a host that the wall clock alone can show.
OFF_MAX_NS: Final = 24 * 3600 * NANOSECONDS


@lru_cache(maxsize=1)
def boot_id() -> str:
    """The id of the kernel's start. Raises OSError."""
    return _BOOT_ID.read_text().strip()


@value
class Clocks:
    """One moment. ``wall_ns`` is since 1970, ``uptime_ns`` since the start of the kernel with the id ``boot``, time in
    which the host slept included; an empty ``boot`` is unknown."""

    wall_ns: int
    uptime_ns: int
    boot: str

    @classmethod
    def read_now(cls) -> Clocks:
        try:
            boot = boot_id()
        except OSError:
            boot = ""
        return cls(time.time_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME), boot)

    @classmethod
    def from_parts(cls, wall_ns: object, uptime_ns: object, boot: object) -> Clocks:
        """A moment from its :attr:`parts`. Raises ValueError if they are invalid."""
        if not isinstance(wall_ns, int) or not isinstance(uptime_ns, int) or not isinstance(boot, str):
            raise ValueError(f"{(wall_ns, uptime_ns, boot)!r:.80} is not a moment")
        return cls(wall_ns, uptime_ns, boot)

    @property
    def parts(self) -> tuple[int, int, str]:
        """The values to store."""
        return self.wall_ns, self.uptime_ns, self.boot

    def since(self, earlier: Clocks, *, at_most: int) -> int:
        """Nanoseconds after ``earlier``. Across a start of the host only the wall clock can tell; its difference is
        limited to ``at_most``."""
        if self.boot and self.boot == earlier.boot:
            return max(0, self.uptime_ns - earlier.uptime_ns)
        return min(max(0, self.wall_ns - earlier.wall_ns), at_most)

    def step_since(self, earlier: Clocks) -> int:
        """How many nanoseconds the wall clock was set forward since ``earlier``; negative: back."""
        passed = self.since(earlier, at_most=OFF_MAX_NS)
        step = self.wall_ns - earlier.wall_ns - passed
        return step if abs(step) > _STEP_NS + passed // _ADJUSTED_PART else 0
