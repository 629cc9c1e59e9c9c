"""Pre-emptive ACKNACKs: a reader announces itself until its writer sends a HEARTBEAT (RTPS 2.5 §8.4.12.2.4).

States:

* UNRECEIVED: no HEARTBEAT of the writer was accepted yet; the next ACKNACK is due at ``at``
  (INFINITE for a writer that is not reliable: it sends none);
* DUE: the same, and the next response is a pre-emptive ACKNACK;
* RECEIVED: the writer knows of the reader.

Transitions:

==========  ==================  =============================================  ==========
state       event               action                                         next
==========  ==================  =============================================  ==========
UNRECEIVED  match, or ``at``    ``at`` moves on, by twice the last interval    DUE
DUE         ``at``              ``at`` moves on, by twice the last interval    DUE
DUE         response sent                                                      UNRECEIVED
any         HEARTBEAT accepted  ``at`` = INFINITE                              RECEIVED
==========  ==================  =============================================  ==========

Invariant: a writer that is RECEIVED gets no pre-emptive ACKNACK any more.
"""

from __future__ import annotations

import enum
from typing import Final

from ....structure import INFINITE
from ....wire.numbers import SequenceNumberSet
from ....wire.submessages import AckNack
from ...endpoint_info import WriterInfo
from ...policies import ReaderPolicy

#: From this try on, every second ACKNACK has base 0.
_LATE_TRY: Final = 6
#: From this try on, half a minute after the match, the writer is hardly there: it is asked as seldom as this.
_LAST_TRIES: Final = 16
_SELDOM: Final = 30_000_000_000


class PreemptiveState(enum.Enum):
    UNRECEIVED = enum.auto()
    DUE = enum.auto()
    RECEIVED = enum.auto()


class PreemptiveAckNack:
    """The announcement of a reader to one writer."""

    __slots__ = ("at", "state", "tries")

    def __init__(self) -> None:
        self.state = PreemptiveState.UNRECEIVED
        #: When the next one is due.
        self.at = INFINITE
        self.tries = 0

    def on_due(self, policy: ReaderPolicy, now: int) -> None:
        """The writer was matched, or ``at`` has come: the next response is a pre-emptive ACKNACK."""
        self.state = PreemptiveState.DUE
        wait = policy.preemptive_period << min(self.tries, 16)
        most = policy.preemptive_period_max
        self.at = now + min(wait, max(most, _SELDOM) if self.tries >= _LAST_TRIES else most)
        self.tries += 1

    def on_heartbeat(self) -> bool:
        """A HEARTBEAT was accepted; True if it is the first."""
        is_first = self.state is not PreemptiveState.RECEIVED
        self.state, self.at = PreemptiveState.RECEIVED, INFINITE
        return is_first

    def on_response(self) -> None:
        """The response was sent."""
        if self.state is PreemptiveState.DUE:
            self.state = PreemptiveState.UNRECEIVED

    def acknack(self, reader_id: bytes, writer: WriterInfo, count: int) -> AckNack:
        """The ACKNACK that is due.

        Cyclone DDS answers base 1 with a count of at least 1, and throws base 0 away with a warning. Some answer
        base 0 only, but have sent a HEARTBEAT at the match: base 0 is tried late.
        """
        base = 0 if self.tries >= _LATE_TRY and self.tries % 2 == 0 else writer.preemptive_base
        return AckNack(reader_id, writer.guid.entity, SequenceNumberSet(base), count, final=False)
