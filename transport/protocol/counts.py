"""The count of HEARTBEAT, ACKNACK and kin: what is a repetition, what is news (RTPS 2.5 §8.3.8.6)."""

from __future__ import annotations

from typing import Final

_WRAP: Final = 1 << 32
_NEWER: Final = 1 << 31
#: After this long without anything accepted, any count starts anew: an endpoint that came back under its own
#: GUID (a restarted receiver does) may count from the beginning again. Cyclone DDS does the same.
_FORGET_NS: Final = 500_000_000
#: Our counts keep up with this fraction of the clock (about 60 a second), so that they go on rising when an
#: endpoint is restarted; 31 bits of it last for more than a year.
_CLOCK_SHIFT: Final = 24
_COUNT_MAX: Final = (1 << 31) - 1


def next_count(count: int, now: int) -> int:
    """The count of the submessage sent after the one with ``count``; at least 1, as Cyclone DDS wants it."""
    return max(count + 1, (now >> _CLOCK_SHIFT) & _COUNT_MAX, 1) & _COUNT_MAX or 1


class CountFilter:
    """Lets through only counts newer than the last accepted one, in serial arithmetic."""

    __slots__ = ("_accepted_at", "_last")

    def __init__(self) -> None:
        self._last: int | None = None
        self._accepted_at = 0

    def accept(self, count: int, now: int) -> bool:
        """Whether a submessage with this count is to be looked at."""
        if self._last is not None and now - self._accepted_at < _FORGET_NS:
            if not 0 < (count - self._last) % _WRAP < _NEWER:
                return False
        self._last = count
        self._accepted_at = now
        return True
