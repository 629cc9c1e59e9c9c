"""Time on the wire: 32-bit seconds and 32-bit fractions of 2^-32 s (RTPS 2.5 §9.3.2.1, §9.3.2.3).

Internally, time is integer nanoseconds. Fractions are rounded up, as Cyclone DDS and Fast DDS do, so that readers that
round and readers that truncate get the same nanoseconds back.
"""

from __future__ import annotations

from typing import Final

from ..errors import UsageError
from ..structure import INFINITE, NANOSECONDS

#: TIME_INVALID: no time.
TIME_INVALID: Final = (0xFFFFFFFF, 0xFFFFFFFF)
#: DURATION_INFINITE.
DURATION_INFINITE: Final = (0x7FFFFFFF, 0xFFFFFFFF)


def to_ntp(ns: int) -> tuple[int, int]:
    """Time_t (seconds, fraction) of nanoseconds since the epoch; from 1970 until 2106."""
    seconds, rest = divmod(ns, NANOSECONDS)
    if not 0 <= seconds <= 0xFFFFFFFF:
        raise UsageError(f"time {ns} ns since the epoch is outside the range of RTPS (1970 to 2106)")
    return seconds, -(-(rest << 32) // NANOSECONDS)


def from_ntp(seconds: int, fraction: int) -> int:
    """Nanoseconds since the epoch of a Time_t."""
    return seconds * NANOSECONDS + ((fraction * NANOSECONDS + (1 << 31)) >> 32)


def duration_to_ntp(ns: int) -> tuple[int, int]:
    """Duration_t (seconds, fraction) of nanoseconds; a duration that is too long to express becomes infinite."""
    if ns < 0:
        raise UsageError(f"duration {ns} ns is negative")
    if ns >= DURATION_INFINITE[0] * NANOSECONDS:
        return DURATION_INFINITE
    return to_ntp(ns)


def duration_from_ntp(seconds: int, fraction: int) -> int:
    """Nanoseconds of a Duration_t whose seconds were read unsigned.

    Infinite durations are, whatever the fraction, 0x7fffffff s (RTPS 2.5; DDS's own constant has another fraction) and
    0xffffffff s (RTPS 2.1). Other negative durations raise ValueError.
    """
    if seconds in (0x7FFFFFFF, 0xFFFFFFFF):
        return INFINITE
    if seconds > 0x7FFFFFFF:
        raise ValueError(f"negative duration: {seconds - (1 << 32)} s")
    return from_ntp(seconds, fraction)
