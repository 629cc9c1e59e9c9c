"""Where one writer's stream stands, in bytes of its runs since the match; the rules are in :mod:`.status_messages`."""

from __future__ import annotations

from typing import Final, NamedTuple

from ...structure import INFINITE
from .congestion_control import DATAGRAM


class StreamPositions(NamedTuple):
    """What there is to see of a stream: the most that was seen, all before it arrived, all before it is consumed, the
    window that was offered last, the last round trip time (0: none)."""

    rcv_hwm: int
    rcv_pos: int
    sub_pos: int
    window: int
    rtt_ns: int


NO_POSITIONS: Final = StreamPositions(0, 0, 0, 0, 0)


class ReceivedStream:
    """Its positions, what was said of them, and when."""

    __slots__ = (
        "datagram",
        "due",
        "overrun_at",
        "rcv_hwm",
        "rcv_pos",
        "recovery_sn",
        "repetitions",
        "rtt",
        "rtt_asked_at",
        "rtt_question",
        "sub_pos",
        "sub_sn",
        "timer_at",
        "told_pos",
        "told_sn",
        "told_window",
        "wanted",
        "wanted_at",
        "wants_rtt",
        "window",
    )

    def __init__(self) -> None:
        #: All before it has arrived; where there is something to be done.
        self.rcv_pos = 0
        self.due = INFINITE
        #: The most that was seen.
        self.rcv_hwm = 0
        #: What the owner has called consumed.
        self.sub_pos = 0
        self.sub_sn = 0
        #: What congestion control allows, and the round trip time; 0: none was measured.
        self.window = 0
        self.rtt = 0
        self.datagram = DATAGRAM
        #: Losses up to here are those congestion control knows of.
        self.recovery_sn = 0
        # what was said, and when
        self.told_sn = 0
        self.told_pos = 0
        self.told_window = 0
        self.overrun_at = INFINITE
        self.wanted_at = 0
        self.timer_at = INFINITE
        self.repetitions = 0
        self.rtt_asked_at = -INFINITE
        self.rtt_question = 0
        # what the next outgoing() is to say
        self.wanted = False
        self.wants_rtt = False
