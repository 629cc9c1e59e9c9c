"""The positions of one publication: how far it is written, how far it is sent, and how far it may go.

All count bytes of its publication log since its birth. The names and rules are Aeron's::

    pub_pos   what is claimed: the log's tail, as the conductor last saw it; for display, it decides nothing
    pub_lmt   what may be claimed: the term window beyond snd_pos while somebody is connected
    snd_pos   what is sent
    snd_lmt   what may be sent: what flow control makes of the receivers' windows
    snd_bpe   how often the sender stopped at snd_lmt with more to send
    clean_pos what is zeroed, for the term after the next

Invariants:
* the conductor moves pub_pos, pub_lmt and clean_pos, the sender the others;
* none falls, but for pub_lmt, which falls to snd_pos when the last receiver has gone;
* clean_pos <= snd_pos - term_length: a whole term back can still be sent again;
* snd_pos <= pub_pos, and pub_lmt <= snd_pos + term_window.
"""

from __future__ import annotations

from bisect import bisect_right

from ....errors import UsageError
from ....limits import SEQUENCE_POSITIONS_MAX


class PublicationPositions:
    """See the module. ``term_window`` 0 is half a term, which is also the most it can be."""

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
        """Flow control lets the sender go up to ``limit``; what receivers once allowed stays allowed."""
        if limit > self.snd_lmt:
            self.snd_lmt = limit

    def connect(self) -> None:
        """There are readers to write for; the next :meth:`conduct` opens the publisher's window."""
        self.is_connected = True

    def disconnect(self) -> None:
        """There is no reader any more; the next :meth:`conduct` closes the publisher's window."""
        self.is_connected = False

    def conduct(self, tail: int | None = None) -> None:
        """The conductor's turn; ``tail`` is the position of the log now."""
        if tail is not None:
            self.pub_pos = tail
        if self.is_connected:
            self.pub_lmt = self.snd_pos + self.term_window
        elif self.pub_lmt > self.snd_pos:
            self.pub_lmt = self.snd_pos

    def sent(self, to: int) -> None:
        """Everything before ``to`` has left."""
        if to > self.snd_pos:
            self.snd_pos = to

    def back_pressured(self) -> None:
        """There is more to send than ``snd_lmt`` allows."""
        self.snd_bpe += 1

    @property
    def cleanable(self) -> int:
        """Up to here the log may be cleaned: a term behind the sender."""
        return max(self.snd_pos - self.term_length, 0)

    def cleaned(self, to: int) -> None:
        """The log is zeroed up to ``to``."""
        if to > self.clean_pos:
            self.clean_pos = to


class SequencePositions:
    """Where the changes of one writer end in its publication log, by their last numbers, ascending; also where the
    history no longer holds them.

    When there are too many, every other one of the older half is forgotten: an old number then stands for a somewhat
    lower position, which is on the safe side. The two lists change in one statement, so that an exception that comes
    from outside, as KeyboardInterrupt does, cannot part them.
    """

    __slots__ = ("_ends", "_numbers", "_start")

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._ends: list[int] = []
        #: Where the first change begins.
        self._start = 0

    def add_position(self, last_sn: int, end: int) -> None:
        """The next change."""
        count = len(self._numbers)
        self._numbers[count:], self._ends[count:] = (last_sn,), (end,)
        if count >= SEQUENCE_POSITIONS_MAX:
            half = SEQUENCE_POSITIONS_MAX // 2
            self._numbers[:half], self._ends[:half] = self._numbers[1:half:2], self._ends[1:half:2]

    def divide(self, last_sn: int, end: int) -> None:
        """The change that holds that number is now two, of which the first ends there."""
        i = bisect_right(self._numbers, last_sn)
        self._numbers[i:i], self._ends[i:i] = (last_sn,), (end,)

    def position_of(self, sn: int) -> int:
        """Where the last whole change ends whose numbers are not above ``sn``."""
        i = bisect_right(self._numbers, sn)
        return self._ends[i - 1] if i else self._start

    def number_at(self, position: int) -> int:
        """The last number of the newest change that ends at or before ``position``; 0: none is known."""
        i = bisect_right(self._ends, position)
        return self._numbers[i - 1] if i else 0

    def forget_up_to(self, sn: int) -> None:
        """No reader will ask for that number or a lower one."""
        i = bisect_right(self._numbers, sn)
        if i > 1 and 2 * i > len(self._numbers):  # seldom, so that it costs little for each
            self._start = self._ends[i - 1]
            del self._numbers[:i], self._ends[:i]
