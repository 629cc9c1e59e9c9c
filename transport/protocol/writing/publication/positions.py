"""The positions of one publication: how far it is written and sent, and how far it may be.

All count bytes of its publication log since its creation. The names and rules are Aeron's::

    pub_pos   claimed: the log's tail, as the conductor last saw it; for display, it decides nothing
    pub_lmt   limit of claims: the term window beyond snd_pos while a reader is connected
    snd_pos   sent
    snd_lmt   limit of sending: what flow control computes from the receivers' windows
    snd_bpe   how often the sender stopped at snd_lmt with more to send
    clean_pos zeroed, for the term after the next

Invariants:
* the conductor moves pub_pos, pub_lmt and clean_pos, the sender the others;
* none falls, except pub_lmt, which falls to snd_pos when the last receiver has left;
* clean_pos <= snd_pos - term_length: a whole term behind snd_pos can still be sent again;
* snd_pos <= pub_pos, and pub_lmt <= snd_pos + term_window.
"""

from __future__ import annotations

from bisect import bisect_right

from ....errors import UsageError
from ....limits import SEQUENCE_POSITIONS_MAX


class PublicationPositions:
    """The positions of one publication. ``term_window`` 0 stands for half a term, which is also its maximum."""

    __slots__ = (
        "clean_pos",
        "is_connected",
        "pub_lmt",
        "pub_pos",
        "snd_bpe",
        "snd_lmt",
        "snd_pos",
        "term_length",
        "term_window",
    )

    def __init__(self, term_length: int, term_window: int = 0) -> None:
        if term_window < 0:
            raise UsageError(f"term_window {term_window} is negative: set it to 0 for half a term")
        self.term_length = term_length
        self.term_window = min(term_window or term_length // 2, term_length // 2)
        self.pub_pos = 0
        self.pub_lmt = 0
        self.snd_pos = 0
        self.snd_lmt = 0
        self.snd_bpe = 0
        self.clean_pos = 0
        self.is_connected = False

    def on_limit(self, limit: int) -> None:
        """Flow control lets the sender send up to ``limit``; a lower limit changes nothing."""
        if limit > self.snd_lmt:
            self.snd_lmt = limit

    def connect(self) -> None:
        """There are readers; the next :meth:`conduct` opens the publisher's window."""
        self.is_connected = True

    def disconnect(self) -> None:
        """The last reader has left; the next :meth:`conduct` closes the publisher's window."""
        self.is_connected = False

    def conduct(self, tail: int | None = None) -> None:
        """Update the publisher's limit, as Aeron's conductor does; ``tail`` is the position of the log now."""
        if tail is not None:
            self.pub_pos = tail
        if self.is_connected:
            self.pub_lmt = self.snd_pos + self.term_window
        elif self.pub_lmt > self.snd_pos:
            self.pub_lmt = self.snd_pos

    def sent(self, to: int) -> None:
        """Everything before ``to`` is sent."""
        if to > self.snd_pos:
            self.snd_pos = to

    def back_pressured(self) -> None:
        """There is more to send than ``snd_lmt`` allows."""
        self.snd_bpe += 1

    @property
    def cleanable(self) -> int:
        """The position up to which the log may be cleaned: a term behind the sender."""
        return max(self.snd_pos - self.term_length, 0)

    def cleaned(self, to: int) -> None:
        """The log is zeroed up to ``to``."""
        if to > self.clean_pos:
            self.clean_pos = to


class SequencePositions:
    """Positions at which the changes of one writer end in its publication log, by their last numbers, ascending; also
    of changes that the history no longer holds.

    When there are too many, every other one of the older half is forgotten: an old number then has a somewhat lower
    position, which is safe. Both lists change in one statement, so that an asynchronous exception such as
    KeyboardInterrupt cannot leave them different.
    """

    __slots__ = ("_ends", "_numbers", "_start")

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._ends: list[int] = []
        #: The position at which the first change begins.
        self._start = 0

    def add_position(self, last_sn: int, end: int) -> None:
        """Add the next change, which ends at position ``end``."""
        count = len(self._numbers)
        self._numbers[count:], self._ends[count:] = (last_sn,), (end,)
        if count >= SEQUENCE_POSITIONS_MAX:
            half = SEQUENCE_POSITIONS_MAX // 2
            self._numbers[:half], self._ends[:half] = self._numbers[1:half:2], self._ends[1:half:2]

    def divide(self, last_sn: int, end: int) -> None:
        """The change that holds ``last_sn`` is now two, of which the first ends with it, at position ``end``."""
        i = bisect_right(self._numbers, last_sn)
        self._numbers[i:i], self._ends[i:i] = (last_sn,), (end,)

    def position_of(self, sn: int) -> int:
        """The position at which the last whole change up to ``sn`` ends."""
        i = bisect_right(self._numbers, sn)
        return self._ends[i - 1] if i else self._start

    def number_at(self, position: int) -> int:
        """The last number of the newest change that ends at or before ``position``; 0 if none is known."""
        i = bisect_right(self._ends, position)
        return self._numbers[i - 1] if i else 0

    def forget_up_to(self, sn: int) -> None:
        """Forget numbers up to ``sn``, which no reader will request."""
        i = bisect_right(self._numbers, sn)
        if i > 1 and 2 * i > len(
            self._numbers
        ):  # only when half of them go, so that the cost per number is small
            self._start = self._ends[i - 1]
            del self._numbers[:i], self._ends[:i]
