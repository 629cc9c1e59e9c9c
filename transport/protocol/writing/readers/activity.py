"""Whether the writer waits for one reliable reader (RTI: RELIABLE_READER_ACTIVITY_CHANGED, ``max_heartbeat_retries``).

States::

    ACTIVE    the writer waits for the reader's acknowledgements
    INACTIVE  the reader left HEARTBEATs unanswered; nothing waits for it
    RESTING   the reader announced that it takes nothing (an untethered reader that stays behind); nothing waits for it

Events, and the state that follows; an event without an entry changes nothing::

              FALLS_SILENT  ANSWERS  RESTS    RESUMES
    ACTIVE    INACTIVE               RESTING
    INACTIVE                ACTIVE   RESTING
    RESTING                                   ACTIVE

    FALLS_SILENT  more than max_heartbeat_retries HEARTBEATs are unanswered, or have been for receiver_timeout
    ANSWERS       an ACKNACK came; with inactivate_nonprogressing_readers it must acknowledge more than earlier ones,
                  or all that was sent
    RESTS         a status message announces the end of the stream
    RESUMES       a status message no longer announces the end of the stream

A HEARTBEAT, by itself or piggybacked, counts as unanswered if the reader lacks something, sends positive
acknowledgements, and the last counted HEARTBEAT is at least a heartbeat_period old. So HEARTBEATs of a burst, or at the
fast period, count as one per heartbeat_period.
"""

from __future__ import annotations

import enum
from typing import Final

from .reader_repairs import Missing


class ActivityState(enum.Enum):
    ACTIVE = enum.auto()
    INACTIVE = enum.auto()
    RESTING = enum.auto()


class ActivityEvent(enum.Enum):
    FALLS_SILENT = enum.auto()
    ANSWERS = enum.auto()
    RESTS = enum.auto()
    RESUMES = enum.auto()


ACTIVE: Final = ActivityState.ACTIVE
INACTIVE: Final = ActivityState.INACTIVE
RESTING: Final = ActivityState.RESTING
FALLS_SILENT: Final = ActivityEvent.FALLS_SILENT
ANSWERS: Final = ActivityEvent.ANSWERS
RESTS: Final = ActivityEvent.RESTS
RESUMES: Final = ActivityEvent.RESUMES

_TRANSITIONS: Final = {
    (ACTIVE, FALLS_SILENT): INACTIVE,
    (ACTIVE, RESTS): RESTING,
    (INACTIVE, ANSWERS): ACTIVE,
    (INACTIVE, RESTS): RESTING,
    (RESTING, RESUMES): ACTIVE,
}


class Activity:
    """The state machine of one reader, and the HEARTBEATs that the reader has left unanswered."""

    __slots__ = ("_base", "_counted_at", "silent_since", "state", "unanswered")

    def __init__(self) -> None:
        self.state = ACTIVE
        #: HEARTBEATs left unanswered, and when the first of them was sent.
        self.unanswered = 0
        self.silent_since = 0
        #: When the last of them was sent.
        self._counted_at = 0
        #: The highest base of an ACKNACK: all below is acknowledged.
        self._base = 0

    def on(self, event: ActivityEvent) -> bool:
        """Whether the event changed the state."""
        state = _TRANSITIONS.get((self.state, event))
        if state is None:
            return False
        self.state = state
        return True

    def asked(self, period: int, now: int) -> None:
        """A HEARTBEAT was sent that the reader should answer; one in each ``period`` counts."""
        if now - self._counted_at >= period:
            if not self.unanswered:
                self.silent_since = now
            self.unanswered += 1
            self._counted_at = now

    def repeats(self, missing: Missing, last_sn: int) -> bool:
        """Whether an ACKNACK acknowledges no more than an earlier one, and not all that was sent.

        Requests do not matter: a reader that requests one sample after another and acknowledges none makes no progress.
        """
        repeats = missing.base <= min(self._base, last_sn)
        self._base = max(self._base, missing.base)
        return repeats

    def answered(self) -> bool:
        """The reader has answered; returns whether that changed the state."""
        self.unanswered = 0
        return self.on(ANSWERS)
