"""The requests of one reader for repairs, and when they are answered (RTPS 2.5 §8.4.9.2.6 ff.).

States::

    IDLE     no request waits
    DELAYED  requests wait for min_nack_response_delay, and are then answered together
    HELD     data of the writer waits for tokens of a token bucket: the answer would only wait behind it

Events, and the state that follows; an event without an entry changes nothing::

              ASKS                                     CONGESTED_ASKS  WANTS_HEARTBEAT  DUE               GONE
    IDLE      IDLE, answered at once | DELAYED         HELD            DELAYED
    DELAYED                                            HELD                             IDLE, answered    IDLE
    HELD      IDLE, answered at once | as it was       HELD                             IDLE, answered    IDLE

    ASKS            an ACKNACK or NACK_FRAG requests something: it is answered at once if the policy has no delay and
                    the reader is in no multicast group; readers of a group that ask at one time are answered together
    CONGESTED_ASKS  the same while the writer is congested
    DUE             the time for the answer has come, and the writer is not congested (`Requests`)
    GONE            the reader left, or fell behind and rejoins: its requests are forgotten

    WANTS_HEARTBEAT an ACKNACK asks for a HEARTBEAT too soon after the last one: it comes with the next answer

Invariants: within the policy's repair_suppression, a sample is repaired to a reader at most once, and all repairs to it
have at most ``max_repair_bytes``, however many ACKNACKs ask. :mod:`.repeated_repairs` bounds the total over time.
HEARTBEATs that a reader asks for are at least ``HEARTBEAT_ANSWER_MIN`` apart.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Final, Protocol

from ....limits import NUMBER_SET_BITS, REORDER_RUNS_MAX
from ....structure import INFINITE
from ....wire.numbers import FragmentNumberSet, SequenceNumberSet
from ...intervals import IntervalSet
from .repeated_repairs import RepeatedRepairs

#: Least nanoseconds between two HEARTBEATs that answer ACKNACKs which only ask for one.
HEARTBEAT_ANSWER_MIN: Final = 5_000_000


class RequestState(enum.Enum):
    IDLE = enum.auto()
    DELAYED = enum.auto()
    HELD = enum.auto()


IDLE: Final = RequestState.IDLE
DELAYED: Final = RequestState.DELAYED
HELD: Final = RequestState.HELD


class ReaderRepairs:
    """The state machine of one reader, its requests, and the repairs that were sent to it."""

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
        #: Requests that are not answered yet.
        self.requested = Requested()
        self.recent = RecentRepairs()
        self.repeated = RepeatedRepairs()
        #: When the next HEARTBEAT may answer an ACKNACK, and whether one is owed.
        self.heartbeat_at = -INFINITE
        self.wants_heartbeat = False
        #: The highest number that was repaired.
        self.history_sent = 0
        #: (large sample, next fragment) at which its repair continues.
        self.fragment_cursor = (0, 1)

    def asks(self, now: int, *, delay: int, congested: bool, alone: bool = True) -> bool:
        """Note a request; returns whether to answer it at once. ``delay`` is in ns; ``alone``: it is in no group."""
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
        """Note that a HEARTBEAT is asked for; returns whether to send it at once, else it is sent later."""
        if now >= self.heartbeat_at:
            self.heartbeat_at = now + HEARTBEAT_ANSWER_MIN
            return True
        self.wants_heartbeat = True
        if self.state is IDLE:
            self.state, self.due_at = DELAYED, self.heartbeat_at
        return False

    def take_heartbeat(self, now: int) -> bool:
        """Whether an answer that is sent now must include a HEARTBEAT."""
        if not self.wants_heartbeat or now < self.heartbeat_at:
            return False
        self.wants_heartbeat, self.heartbeat_at = False, now + HEARTBEAT_ANSWER_MIN
        return True

    def take_requests(self) -> Requested:
        """Take the requests of the reader in order to answer them now."""
        self.state, self.due_at = IDLE, INFINITE
        taken, self.requested = self.requested, Requested()
        return taken

    def sent_to_group(self, first: int, last: int, now: int, *, suppression: int, of: int = 0) -> None:
        """Its group was sent first..last again: for ``suppression`` ns the reader does not get the same alone."""
        self.recent.forget_before(now - suppression)
        if not self.recent.is_full:
            self.recent.add_repair(first, last, 0, now=now, of=of)
        self.requested.remove_range(first, last, of=of)

    def gone(self) -> None:
        self.take_requests()
        self.wants_heartbeat = False


class Missing(Protocol):
    """The content of an ACKNACK or ACKNACK_BATCH, in sample numbers: samples below ``base`` are acknowledged, those of
    ``ranges()`` are requested."""

    @property
    def base(self) -> int: ...
    @property
    def is_empty(self) -> bool: ...
    def ranges(self) -> list[tuple[int, int]]: ...


class Requested:
    """Samples and fragments that a reader requests."""

    __slots__ = ("fragments", "full_at", "samples")

    def __init__(self) -> None:
        self.samples = IntervalSet()
        #: The highest number that the bitmap of an ACKNACK can hold: a reader that requests it may lack more.
        #: 0 after an ACKNACK_BATCH, whose bitmap holds numbers of batches.
        self.full_at = 0
        self.fragments: dict[int, IntervalSet] = {}

    def __bool__(self) -> bool:
        return bool(len(self.samples) or self.fragments)

    def add_missing(self, missing: Missing) -> None:
        """Add the requests of an ACKNACK; numbers below its base have arrived meanwhile, and are removed."""
        self.samples.remove_range(0, missing.base - 1)
        for sn in [sn for sn in self.fragments if sn < missing.base]:
            del self.fragments[sn]
        of_samples = isinstance(missing, SequenceNumberSet)
        self.full_at = missing.base + NUMBER_SET_BITS - 1 if of_samples else 0
        for first, last in missing.ranges():
            if len(self.samples) < REORDER_RUNS_MAX:
                self.samples.add_range(first, last)

    def remove_range(self, first: int, last: int, *, of: int = 0) -> None:
        """Remove requests for first..last; ``of`` as in :class:`RecentRepairs`."""
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
    """Recent repairs: of samples (``of`` is 0), and of fragments (``of`` is the number of their large sample)."""

    __slots__ = ("_numbers", "_sent", "nbytes")

    def __init__(self) -> None:
        self.nbytes = 0
        self._sent: deque[tuple[int, int, int, int, int]] = deque()  # (when, of, first, last, bytes)
        self._numbers: dict[int, IntervalSet] = {}

    @property
    def is_full(self) -> bool:
        return len(self._sent) >= REORDER_RUNS_MAX

    def forget_before(self, before: int) -> None:
        """Forget repairs sent at ``before`` or earlier, so that they may be sent once more."""
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
        """The ranges of first..last without a recent repair."""
        numbers = self._numbers.get(of)
        return [(first, last)] if numbers is None else list(numbers.holes(first, last))
