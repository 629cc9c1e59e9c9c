"""The count field of HEARTBEAT, ACKNACK and similar submessages: which are new, which repeated (RTPS 2.5 §8.3.8.6).

A filter follows lines of counts: a line is a sequence of counts that rises in steps of at most ``STEP``. The filter
keeps the last count of each line, and one unconfirmed count that continues no line.

=========================================  ====================================================  ============
a count                                    action                                                it is
=========================================  ====================================================  ============
any, all lines silent for ``FORGET_NS``    the count begins a new line; all counts seen are      news
                                           forgotten
already seen                               none                                                  a repetition
the last one of a line, plus 1             the line goes on                                      news
ahead of a line, by ``STEP`` at most       the line forks: the old one may go on too             news
behind a line, by ``STEP`` at most         none                                                  a repetition
the unconfirmed count, plus 1              the count begins a new line                           news
any other                                  the count becomes the unconfirmed one                 a repetition
=========================================  ====================================================  ============

So a forged higher count does not make the true counts look old: they continue their own line. When LINES_MAX lines are
followed, a new line replaces the line with the fewest steps, the newest of equals. Attacks that remain: one forged
message blocks an endpoint that is not known yet, or was silent for ``FORGET_NS``, for another ``FORGET_NS``. A forger
that sends each next count before the endpoint does blocks it for as long as the forger continues.

Invariant: at most ``LINES_MAX`` lines, one unconfirmed count and the last ``SEEN_MAX`` counts are kept.
"""

from __future__ import annotations

from collections import deque
from typing import Final

_WRAP: Final = 1 << 32
#: Counts rise by one with each submessage; up to this many submessages in a row may be lost.
STEP: Final = 1 << 16
#: After this long without anything accepted, any count starts anew: an endpoint that came back under its own
#: GUID (a restarted receiver does) may count from the beginning again. Cyclone DDS does the same.
FORGET_NS: Final = 500_000_000
LINES_MAX: Final = 8
SEEN_MAX: Final = 64
#: Our counts never fall below this fraction of the clock (about 60 a second), so that they still rise after an
#: endpoint is restarted; 31 bits last for more than a year.
_CLOCK_SHIFT: Final = 24
_COUNT_MAX: Final = (1 << 31) - 1


def next_count(count: int, now: int) -> int:
    """The count of the submessage sent after the one with ``count``; at least 1, as Cyclone DDS wants it."""
    return max(count + 1, (now >> _CLOCK_SHIFT) & _COUNT_MAX, 1) & _COUNT_MAX or 1


class CountFilter:
    """Accepts only counts that are new."""

    __slots__ = ("_accepted_at", "_latest", "_lines", "_seen", "_unconfirmed")

    def __init__(self) -> None:
        #: The last count of each line, the newest line at the end, and the number of steps of the line.
        self._lines: dict[int, int] = {}
        self._seen: deque[int] = deque(maxlen=SEEN_MAX)
        self._unconfirmed: int | None = None
        self._accepted_at = 0
        #: The highest count accepted since the lines were last cleared.
        self._latest = 0

    def accept(self, count: int, now: int) -> bool:
        """Whether a submessage with this count is new and should be processed."""
        lines = self._lines
        if not lines or now - self._accepted_at >= FORGET_NS:
            self._seen.clear()
            self._latest = count
            return self._follow(count, 0, now)
        if count in self._seen:
            return False
        score = lines.pop((count - 1) % _WRAP, None)
        if score is not None:
            return self._follow(count, score + 1, now)
        before = [last for last in lines if (count - last) % _WRAP <= STEP]
        if before:
            return self._follow(count, max(lines[last] for last in before), now)
        if any((last - count) % _WRAP <= STEP for last in lines):
            return False
        unconfirmed, self._unconfirmed = self._unconfirmed, count
        return unconfirmed is not None and count == (unconfirmed + 1) % _WRAP and self._follow(count, 0, now)

    def is_latest(self, count: int) -> bool:
        """Whether no higher count was accepted; a message with a lower count may have been overtaken on the network."""
        return count == self._latest

    def _follow(self, count: int, score: int, now: int) -> bool:
        lines = self._lines
        lines.pop(count, None)
        if len(lines) >= LINES_MAX:
            del lines[min(reversed(lines), key=lines.__getitem__)]
        lines[count] = score
        self._seen.append(count)
        if (count - self._latest) % _WRAP < _WRAP // 2:
            self._latest = count
        self._accepted_at = now
        return True
