"""The acknowledgement that answers HEARTBEATs: whether one is owed to a writer, and when (RTPS 2.5 §8.4.12.2).

States:

* IDLE: no acknowledgement is owed;
* DELAYED: one is owed at ``at``; until then more HEARTBEATs may come, and get the same answer;
* DUE: the next response to the writer acknowledges, even if it requests nothing.

Transitions:

=======  ===============================  ==========================================  =======
state    event                            action                                      next
=======  ===============================  ==========================================  =======
any      owed now                                                                     DUE
IDLE     owed at a later time             ``at`` is that time                         DELAYED
DELAYED  owed at an earlier time          ``at`` is that time                         DELAYED
DELAYED  ``at`` has come                                                              DUE
any      ACKNACK sent, for any reason     ``at`` = INFINITE, ``acked_base`` is noted   IDLE
DUE      response sent without ACKNACK                                                IDLE
=======  ===============================  ==========================================  =======

Invariants: ``at`` is INFINITE unless the state is DELAYED; HEARTBEATs that come before ``answer_at`` share one
answer; a HEARTBEAT within the suppression duration of one that was answered is not answered.
"""

from __future__ import annotations

import enum
from typing import Final

from ....structure import INFINITE
from .response_delays import ResponseDelays

#: A writer that sends HEARTBEATs for this long without anything new may not know of the reader.
_IDLE_NS: Final = 1_000_000_000


class ResponseState(enum.Enum):
    IDLE = enum.auto()
    DELAYED = enum.auto()
    DUE = enum.auto()


class HeartbeatResponse:
    """The acknowledgement owed to one writer."""

    __slots__ = ("_answer_at", "_answered_at", "_idle_since", "acked_base", "at", "state")

    def __init__(self) -> None:
        self.state = ResponseState.IDLE
        #: When a delayed acknowledgement is due.
        self.at = INFINITE
        #: The base of the last ACKNACK, or what was expected when :meth:`is_idle` last found something new.
        self.acked_base = 0
        #: When the last HEARTBEAT that was answered came, and when its answer was, or is, due.
        self._answered_at = -INFINITE
        self._answer_at = -INFINITE
        #: Since when the writer, which wants or gets no positive acknowledgements, has announced nothing new.
        self._idle_since: int | None = None

    def suppresses(self, duration: int, now: int) -> bool:
        """Whether a HEARTBEAT came too soon after one that was answered."""
        return now < self._answered_at + duration

    def answer_at(self, delays: ResponseDelays, now: int) -> int:
        """Return the time at which to answer a HEARTBEAT."""
        self._answered_at = now
        if self._answer_at <= now:
            self._answer_at = now + delays.draw()
        return self._answer_at

    def owe(self) -> bool:
        """An acknowledgement is owed now; True if the timer is no longer needed."""
        was_delayed = self.state is ResponseState.DELAYED
        self.state, self.at = ResponseState.DUE, INFINITE
        return was_delayed

    def owe_at(self, at: int) -> bool:
        """An acknowledgement is owed at a later time; False if one is owed sooner anyway."""
        if self.state is ResponseState.DUE or at >= self.at:
            return False
        self.state, self.at = ResponseState.DELAYED, at
        return True

    def on_acknack(self, base: int) -> bool:
        """An ACKNACK was sent; True if the timer is no longer needed."""
        was_delayed = self.state is ResponseState.DELAYED
        self.state, self.at, self.acked_base = ResponseState.IDLE, INFINITE, base
        return was_delayed

    def on_response(self) -> None:
        """The response was sent."""
        if self.state is ResponseState.DUE:
            self.state = ResponseState.IDLE

    def is_idle(self, expected: int, now: int) -> bool:
        """Whether the writer has announced nothing new for a long time.

        Such a writer may not know of the reader: a pre-emptive ACKNACK can be lost.
        """
        if self.acked_base != expected:
            self.acked_base = expected
            self._idle_since = now
        if self._idle_since is None:
            self._idle_since = now
        return now - self._idle_since >= _IDLE_NS
