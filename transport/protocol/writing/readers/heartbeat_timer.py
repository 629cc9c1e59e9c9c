"""When one reader is due a HEARTBEAT of its own (RTPS 2.5 §8.4.7.1.1 heartbeatPeriod).

States::

    IDLE        the reader has everything, or is not reliable: no HEARTBEAT is due
    UNRECEIVED  the reader lacks something, and no ACKNACK of it was received: its address may be another host's, so
                the interval between HEARTBEATs grows
    PACED       the reader lacks something, and an ACKNACK was received: the interval is that of `HeartbeatSchedule`

Events, the state that follows, and when the next HEARTBEAT is due; an event without an entry changes nothing::

                LACKS               RECEIVED  SENT            OVERDUE               HURRIES               COMPLETE
    IDLE        UNRECEIVED | PACED
                in one interval
    UNRECEIVED                      PACED     UNRECEIVED      UNRECEIVED            UNRECEIVED            IDLE
                                              in an interval  the interval doubles  in one, or as it was  never
    PACED                                     PACED                                 PACED                 IDLE
                                              in an interval                        in one, or as it was  never

    LACKS     the reader lacks something from now on, or was just matched; UNRECEIVED if it never sent an ACKNACK
    RECEIVED  the reader's first ACKNACK came
    SENT      the reader was sent a HEARTBEAT, by itself or piggybacked
    OVERDUE   a HEARTBEAT is due, and none was piggybacked meanwhile; SENT follows
    HURRIES   the interval may have become shorter; a HEARTBEAT that is due sooner stays due then
    COMPLETE  the reader has acknowledged everything and is ready, or is not matched any more
"""

from __future__ import annotations

import enum
from typing import Final

from ....structure import INFINITE


class HeartbeatState(enum.Enum):
    IDLE = enum.auto()
    UNRECEIVED = enum.auto()
    PACED = enum.auto()


IDLE: Final = HeartbeatState.IDLE
UNRECEIVED: Final = HeartbeatState.UNRECEIVED
PACED: Final = HeartbeatState.PACED

#: The longest interval between HEARTBEATs to a reader from which no ACKNACK was received.
UNACKNOWLEDGED_INTERVAL_MAX: Final = 3_000_000_000


class HeartbeatTimer:
    """The state machine of one reader; ``interval`` and ``now`` are in ns."""

    __slots__ = ("due_at", "state", "unacknowledged_interval")

    def __init__(self) -> None:
        self.state = IDLE
        self.due_at = INFINITE
        #: The interval while UNRECEIVED; 0 until a HEARTBEAT was overdue.
        self.unacknowledged_interval = 0

    def lacks(self, *, received: bool) -> None:
        """Change the state; the caller then schedules the first HEARTBEAT by :meth:`sent`."""
        self.state = PACED if received else UNRECEIVED

    def received(self) -> None:
        if self.state is UNRECEIVED:
            self.state = PACED

    def sent(self, interval: int, now: int) -> None:
        self.due_at = now + interval

    def overdue(self, period: int) -> None:
        """``period`` is the policy's heartbeat_period."""
        if self.state is UNRECEIVED:
            slower = max(2 * self.unacknowledged_interval, 2 * period)
            self.unacknowledged_interval = min(slower, UNACKNOWLEDGED_INTERVAL_MAX)

    def hurries(self, interval: int, now: int) -> None:
        self.due_at = min(self.due_at, now + interval)

    def complete(self) -> None:
        self.state, self.due_at = IDLE, INFINITE
