"""The count of HEARTBEAT, ACKNACK and kin: what is a repetition, what is news (RTPS 2.5 §8.3.8.6).

A filter follows lines of counts: a line is a sequence of counts that goes on in steps of at most ``STEP``.

=========================================  ====================================================  ============
a count                                    action                                                it is
=========================================  ====================================================  ============
with which a line goes on                  the line goes on                                      news
any other, all lines silent for            a new line, in the place of the one that was silent   news
``FORGET_NS``                              for longest
behind a line, by ``STEP`` at most         none                                                  a repetition
with which the rumour goes on              the rumour becomes a line, in the place of the one    news
                                           that was silent for longest
any other                                  it is the rumour                                      a repetition
=========================================  ====================================================  ============

So a forged count far ahead does not make the true ones look old: they go on with their own line, and if that was
forgotten, they are heard from the second one on. An endpoint that was restarted and counts from just behind its old
line is heard once that line was silent for ``FORGET_NS``.

Invariant: at most ``LINES_MAX`` lines are followed, and one rumour.
"""

from __future__ import annotations

from typing import Final

_WRAP: Final = 1 << 32
#: Counts rise by one with each submessage: so many may be lost while others of the line arrive.
STEP: Final = 1 << 16
#: After this long without anything accepted, any count starts anew: an endpoint that came back under its own
#: GUID (a restarted receiver does) may count from the beginning again. Cyclone DDS does the same.
FORGET_NS: Final = 500_000_000
LINES_MAX: Final = 3
#: Our counts keep up with this fraction of the clock (about 60 a second), so that they go on rising when an
#: endpoint is restarted; 31 bits of it last for more than a year.
_CLOCK_SHIFT: Final = 24
_COUNT_MAX: Final = (1 << 31) - 1


def next_count(count: int, now: int) -> int:
    """The count of the submessage sent after the one with ``count``; at least 1, as Cyclone DDS wants it."""
    return max(count + 1, (now >> _CLOCK_SHIFT) & _COUNT_MAX, 1) & _COUNT_MAX or 1


class CountFilter:
    """Lets through only counts that are news."""

    __slots__ = ("_accepted_at", "_lines", "_rumour")

    def __init__(self) -> None:
        #: The last count of each line, the one heard last at the end.
        self._lines: list[int] = []
        self._rumour: int | None = None
        self._accepted_at = 0

    def accept(self, count: int, now: int) -> bool:
        """Whether a submessage with this count is to be looked at."""
        lines = self._lines
        for i in range(len(lines) - 1, -1, -1):
            if 0 < (count - lines[i]) % _WRAP <= STEP:
                del lines[i]
                return self._follow(count, now)
        if not lines or now - self._accepted_at >= FORGET_NS:
            return self._follow(count, now)
        if any((last - count) % _WRAP <= STEP for last in lines):
            return False
        rumour, self._rumour = self._rumour, count
        if rumour is not None and 0 < (count - rumour) % _WRAP <= STEP:
            self._rumour = None
            return self._follow(count, now)
        return False

    def _follow(self, count: int, now: int) -> bool:
        self._lines.append(count)
        del self._lines[:-LINES_MAX]
        self._accepted_at = now
        return True
