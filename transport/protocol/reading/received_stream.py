"""The positions of one writer's stream, in bytes of its runs since the match.

The rules are in :mod:`.flow.status_reporter`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ...structure import INFINITE

#: Assumed bytes of a datagram until a longer one is seen: the payload of Aeron's default MTU.
DATAGRAM: Final = 1_408


class StreamPositions(NamedTuple):
    """The positions of a stream, in bytes: the highest one received (``rcv_hwm``), and those before which everything
    was received (``rcv_pos``) and everything is consumed (``sub_pos``); the window offered last, in bytes; the last
    round trip time (0: none was measured)."""

    rcv_hwm: int
    rcv_pos: int
    sub_pos: int
    window: int
    rtt_ns: int


NO_POSITIONS: Final = StreamPositions(0, 0, 0, 0, 0)


class ReceivedStream:
    """The positions of a stream, and the ones last reported."""

    __slots__ = (
        "datagram",
        "due",
        "offered_window",
        "overrun_at",
        "rcv_hwm",
        "rcv_pos",
        "recovery_sn",
        "repetitions",
        "reported_pos",
        "reported_sn",
        "rtt",
        "rtt_asked_at",
        "rtt_question",
        "sub_pos",
        "sub_sn",
        "timer_at",
        "wanted",
        "wanted_at",
        "wants_rtt",
        "window",
    )

    def __init__(self) -> None:
        #: Everything before ``rcv_pos`` has arrived; when it reaches ``due``, a status message may be due.
        self.rcv_pos = 0
        self.due = INFINITE
        #: The highest position of which anything arrived.
        self.rcv_hwm = 0
        #: Up to which position, and sequence number, the owner has called the samples consumed.
        self.sub_pos = 0
        self.sub_sn = 0
        #: The window that congestion control allows, and the round trip time; 0: none was measured.
        self.window = 0
        self.rtt = 0
        self.datagram = DATAGRAM
        #: Up to this sequence number, congestion control knows of the losses.
        self.recovery_sn = 0
        # what was reported, and when
        self.reported_sn = 0
        self.reported_pos = 0
        self.offered_window = 0
        self.overrun_at = INFINITE
        self.wanted_at = 0
        self.timer_at = INFINITE
        self.repetitions = 0
        self.rtt_asked_at = -INFINITE
        self.rtt_question = 0
        # what the next outgoing() reports
        self.wanted = False
        self.wants_rtt = False

    def ask_rtt(self, now: int) -> None:
        """The next response measures the round trip time."""
        self.rtt_asked_at = self.rtt_question = now
        self.wants_rtt = True

    def report_at_once(self) -> None:
        """Make a status message due for the owner, which has no clock."""
        self.wanted, self.timer_at = True, 0

    def set_due(self, position: int, term: int) -> None:
        """Set ``due``, the next position to act on, after consumption up to ``position``."""
        if self.timer_at == INFINITE:
            self.due = self.rcv_pos + 1
            return
        term_end = (position // term + 1) * term
        due = min(position + (self.offered_window >> 2) + 1, term_end, self.overrun_at + 1)
        self.due = max(due, self.rcv_pos + 1)
