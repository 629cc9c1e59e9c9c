"""What one reader has asked for again, and when it is answered (RTPS 2.5 §8.4.9.2.6 ff.).

States::

    IDLE     nothing is asked for
    DELAYED  what is asked for meanwhile is answered with the rest, after min_nack_response_delay
    HELD     data of the writer waits for tokens of a token bucket: the answer would only wait behind it

Events, and the state that follows; an event without an entry changes nothing::

              ASKS                                     CONGESTED_ASKS  WANTS_HEARTBEAT  DUE               GONE
    IDLE      IDLE, answered at once | DELAYED         HELD            DELAYED
    DELAYED                                            HELD                             IDLE, answered    IDLE
    HELD      IDLE, answered at once | as it was       HELD                             IDLE, answered    IDLE

    ASKS            an ACKNACK or NACK_FRAG requests something: answered at once where the policy has no delay, and the
                    reader is alone; of a group, all that ask at one time are answered together
    CONGESTED_ASKS  the same while the writer is congested
    DUE             its time has come and the writer is not congested (`Requests`)
    GONE            the reader left, or fell behind and begins anew: what it asked for is forgotten

    WANTS_HEARTBEAT an ACKNACK asks for a HEARTBEAT sooner than the last one allows: it comes with the next answer

Invariants: a sample is sent again to a reader at most once, and at most ``max_repair_bytes`` in all, per
repair_suppression of the policy, however many ACKNACKs ask; what that comes to in the long run is bounded by
:mod:`.repeated_repairs`. HEARTBEATs that a reader asks for are ``HEARTBEAT_ANSWER_MIN`` apart.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Final, Protocol

from ....limits import NUMBER_SET_BITS, REORDER_RUNS_MAX
from ....structure import INFINITE
from ....wire.numbers import FragmentNumberSet
from ...intervals import IntervalSet
from .repeated_repairs import RepeatedRepairs

#: Nanoseconds between two HEARTBEATs that answer ACKNACKs which only ask for one.
HEARTBEAT_ANSWER_MIN: Final = 5_000_000


class RequestState(enum.Enum):
    IDLE = enum.auto()
    DELAYED = enum.auto()
    HELD = enum.auto()


IDLE: Final = RequestState.IDLE
DELAYED: Final = RequestState.DELAYED
HELD: Final = RequestState.HELD


class ReaderRepairs:
    """The machine of one reader, what it has asked for, and what it was sent again."""

    __slots__ = (
        "due_at",
        "fragment_cursor",
        "heartbeat_at",
        "history_sent",
        "recent",
        "repeated",
        "requested",
        "state",
        "wants_heartbeat",
    )

    def __init__(self) -> None:
        self.state = IDLE
        self.due_at = INFINITE
        #: What was asked for and is not answered yet.
        self.requested = Requested()
        self.recent = RecentRepairs()
        self.repeated = RepeatedRepairs()
        #: When the next HEARTBEAT may answer an ACKNACK, and whether one is to.
        self.heartbeat_at = -INFINITE
        self.wants_heartbeat = False
        #: The highest number sent again.
        self.history_sent = 0
        #: (large sample, next fragment) where sending it again has to go on.
        self.fragment_cursor = (0, 1)

    def asks(self, now: int, *, delay: int, congested: bool, alone: bool = True) -> bool:
        """Whether the reader is to be answered at once; ``delay`` in ns. Not ``alone``: it is one of a group."""
        if congested:
            self.state, self.due_at = HELD, now
            return False
        waits = delay > 0 or not alone
        if waits and self.state is IDLE:
            self.state, self.due_at = DELAYED, now + delay
        elif not alone:
            self.due_at = min(self.due_at, now + delay)
        return not waits

    def asks_heartbeat(self, now: int) -> bool:
        """Whether a HEARTBEAT is to be sent at once; else it comes later."""
        if now >= self.heartbeat_at:
            self.heartbeat_at = now + HEARTBEAT_ANSWER_MIN
            return True
        self.wants_heartbeat = True
        if self.state is IDLE:
            self.state, self.due_at = DELAYED, self.heartbeat_at
        return False

    def take_heartbeat(self, now: int) -> bool:
        """Whether an answer that is sent now owes a HEARTBEAT."""
        if not self.wants_heartbeat or now < self.heartbeat_at:
            return False
        self.wants_heartbeat, self.heartbeat_at = False, now + HEARTBEAT_ANSWER_MIN
        return True

    def take_requests(self) -> Requested:
        """What the reader has asked for, which is answered now."""
        self.state, self.due_at = IDLE, INFINITE
        taken, self.requested = self.requested, Requested()
        return taken

    def sent_to_group(self, first: int, last: int, now: int, *, suppression: int, of: int = 0) -> None:
        """Its group was sent first..last again: it is not to be sent the same alone, for so many nanoseconds."""
        self.recent.forget_before(now - suppression)
        if not self.recent.is_full:
            self.recent.add_repair(first, last, 0, now=now, of=of)
        self.requested.remove_range(first, last, of=of)

    def gone(self) -> None:
        self.take_requests()
        self.wants_heartbeat = False


class Missing(Protocol):
    """What an ACKNACK reports, in samples or in batches: all samples below ``base`` are acknowledged, those of
    ``ranges()`` are requested."""

    @property
    def base(self) -> int: ...
    @property
    def is_empty(self) -> bool: ...
    def ranges(self) -> list[tuple[int, int]]: ...


class Requested:
    """Samples and fragments that a reader has asked for."""

    __slots__ = ("fragments", "full_at", "samples")

    def __init__(self) -> None:
        self.samples = IntervalSet()
        #: The highest number that the bitmap can hold: a reader that asks for it may lack more.
        self.full_at = 0
        self.fragments: dict[int, IntervalSet] = {}

    def __bool__(self) -> bool:
        return bool(len(self.samples) or self.fragments)

    def add_missing(self, missing: Missing) -> None:
        """Add what an ACKNACK requests; what lies below its base has arrived meanwhile."""
        self.samples.remove_range(0, missing.base - 1)
        for sn in [sn for sn in self.fragments if sn < missing.base]:
            del self.fragments[sn]
        self.full_at = missing.base + NUMBER_SET_BITS - 1
        for first, last in missing.ranges():
            if len(self.samples) < REORDER_RUNS_MAX:
                self.samples.add_range(first, last)

    def remove_range(self, first: int, last: int, *, of: int = 0) -> None:
        """These are asked for no more; ``of`` as in :class:`RecentRepairs`."""
        if not of:
            self.samples.remove_range(first, last)
        elif (fragments := self.fragments.get(of)) is not None:
            fragments.remove_range(first, last)
            if not len(fragments):
                del self.fragments[of]

    def add_fragments(self, sn: int, missing: FragmentNumberSet) -> None:
        if sn not in self.fragments and len(self.fragments) >= REORDER_RUNS_MAX:
            return
        fragments = self.fragments.setdefault(sn, IntervalSet())
        for first, last in missing.ranges():
            if len(fragments) < REORDER_RUNS_MAX:
                fragments.add_range(first, last)


class RecentRepairs:
    """What was sent again lately: samples (``of`` is 0), and fragments of large samples (``of`` is their number)."""

    __slots__ = ("_numbers", "_sent", "nbytes")

    def __init__(self) -> None:
        self.nbytes = 0
        self._sent: deque[tuple[int, int, int, int, int]] = deque()  # (when, of, first, last, bytes)
        self._numbers: dict[int, IntervalSet] = {}

    @property
    def is_full(self) -> bool:
        return len(self._sent) >= REORDER_RUNS_MAX

    def forget_before(self, before: int) -> None:
        """What was sent at ``before`` or earlier may be sent once more."""
        while self._sent and self._sent[0][0] <= before:
            _, of, first, last, nbytes = self._sent.popleft()
            self.nbytes -= nbytes
            if (numbers := self._numbers.get(of)) is not None:
                numbers.remove_range(first, last)
                if not len(numbers):
                    del self._numbers[of]

    def add_repair(self, first: int, last: int, nbytes: int, *, now: int, of: int = 0) -> None:
        self._sent.append((now, of, first, last, nbytes))
        self._numbers.setdefault(of, IntervalSet()).add_range(first, last)
        self.nbytes += nbytes

    def unsent(self, first: int, last: int, *, of: int = 0) -> list[tuple[int, int]]:
        """The ranges of first..last that were not sent again lately."""
        numbers = self._numbers.get(of)
        return [(first, last)] if numbers is None else list(numbers.holes(first, last))
