"""What a writer knows of one matched reader (RTPS 2.5 §8.4.7.5).

Invariants: ``acked`` never falls; a sample is sent again to a reader at most once, and at most
``max_repair_bytes`` in all, per repair_suppression of the policy, however many ACKNACKs ask.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from ...limits import NUMBER_SET_BITS, REORDER_RUNS_MAX
from ...structure import INFINITE, Guid
from ...wire.numbers import FragmentNumberSet
from ..counts import CountFilter
from ..endpoint_info import ReaderInfo
from ..intervals import IntervalSet
from .batch_content import DATA
from .flow_control import Receiver


class Missing(Protocol):
    """What an ACKNACK says: all samples below ``base`` are acknowledged, those of ``ranges()`` are requested."""

    @property
    def base(self) -> int: ...
    @property
    def is_empty(self) -> bool: ...
    def ranges(self) -> list[tuple[int, int]]: ...


class ReaderProxy:
    """State of one reader; the rules that move it are in :mod:`.writer` and its neighbours."""

    __slots__ = (
        "acked",
        "acknacks",
        "acknacks_heard",
        "active",
        "answer_at",
        "batch_acknacks",
        "consumed",
        "first_relevant",
        "form",
        "fragment_cursor",
        "heartbeat_at",
        "heartbeat_counted_at",
        "history_sent",
        "info",
        "is_on_host",
        "joined_sn",
        "lacks",
        "nack_frags",
        "positive_acks",
        "receiver",
        "recent",
        "rejoins_at",
        "reliable",
        "requested",
        "rests",
        "settled",
        "silent_since",
        "statuses",
        "unanswered",
        "unheard_interval",
    )

    def __init__(
        self,
        info: ReaderInfo,
        *,
        reliable: bool,
        first_relevant: int,
        joined_sn: int,
        positive_acks: bool = True,
        form: str = DATA,
    ) -> None:
        self.info = info
        #: In which form it is sent batches, see :mod:`.batch_content`.
        self.form = form
        #: It reads the publication log, and is sent nothing that lies there.
        self.is_on_host = False
        self.reliable = reliable
        #: Samples below are irrelevant to it: they were written before a volatile reader was matched.
        self.first_relevant = first_relevant
        #: The writer's last number when the reader was matched: up to here is history to it.
        self.joined_sn = joined_sn
        #: It has acknowledged everything up to here, or it was given up for one without positive_acks.
        self.acked = first_relevant - 1
        self.positive_acks = positive_acks
        #: It was dropped, and paces nobody before it says that it goes on from this number; 0: it was not.
        self.rejoins_at = 0
        self.acknacks_heard = 0
        #: It has answered a HEARTBEAT.
        self.settled = False
        self.acknacks = CountFilter()
        self.batch_acknacks = CountFilter()
        self.nack_frags = CountFilter()
        self.statuses = CountFilter()
        #: What it told to have consumed, where it does; and what that means for flow control (:mod:`.pacing`).
        self.consumed = self.acked
        self.receiver = Receiver(0, 0)
        self.heartbeat_at = INFINITE
        #: The highest number sent to it again.
        self.history_sent = 0
        #: Between HEARTBEATs as long as it was never heard, once one was sent.
        self.unheard_interval = 0
        #: Whether it is waited for (:mod:`.reader_activity`); HEARTBEATs it left unanswered, when the first
        #: and the last of them was sent; the oldest number its last ACKNACK told that it lacks.
        self.active = True
        #: It told so itself: it takes nothing, and is not waited for.
        self.rests = False
        self.unanswered = 0
        self.silent_since = 0
        self.heartbeat_counted_at = 0
        self.lacks = 0
        #: What it has asked for and was not answered yet, and when it will be.
        self.requested = Requested()
        self.answer_at = INFINITE
        self.recent = RecentRepairs()
        #: (large sample, next fragment) where sending it again has to go on.
        self.fragment_cursor = (0, 1)

    @property
    def guid(self) -> Guid:
        return self.info.guid

    @property
    def is_ready(self) -> bool:
        """Whether all that is written from now on will reach it.

        A reliable reader has to show that it matched us too, and has settled where it starts: a volatile one of
        Cyclone DDS starts behind the first HEARTBEAT that reaches it. A pre-emptive ACKNACK (empty, base 1, not
        final) does not tell; one that has spoken three times is believed, whatever flags it sets. One without
        positive acknowledgements, which are ours, has nothing more to say.
        """
        if not self.reliable or self.settled:
            return True
        return self.acknacks_heard >= (3 if self.positive_acks else 1)

    @property
    def heard(self) -> bool:
        """It has sent an ACKNACK, so it has matched us too."""
        return self.acknacks_heard > 0

    @property
    def is_late_joiner(self) -> bool:
        """It has not caught up with the history it found."""
        return self.acked < self.joined_sn

    def note_heartbeat(self, last_sn: int, period: int, now: int) -> None:
        """It is sent a HEARTBEAT, which it is expected to answer."""
        if self.positive_acks and self.acked < last_sn and now - self.heartbeat_counted_at >= period:
            if not self.unanswered:
                self.silent_since = now
            self.unanswered += 1
            self.heartbeat_counted_at = now


class Requested:
    """Samples and fragments that a reader has asked for."""

    __slots__ = ("fragments", "full_at", "samples")

    def __init__(self) -> None:
        self.samples = IntervalSet()
        #: The number that a bitmap can hold at most: a reader that asks for it may lack more.
        self.full_at = 0
        self.fragments: dict[int, IntervalSet] = {}

    def __bool__(self) -> bool:
        return bool(len(self.samples) or self.fragments)

    def add(self, missing: Missing) -> None:
        """An ACKNACK; what lies below its base has come meanwhile."""
        self.samples.remove(0, missing.base - 1)
        for sn in [sn for sn in self.fragments if sn < missing.base]:
            del self.fragments[sn]
        self.full_at = missing.base + NUMBER_SET_BITS - 1
        for first, last in missing.ranges():
            if len(self.samples) < REORDER_RUNS_MAX:
                self.samples.add(first, last)

    def add_fragments(self, sn: int, missing: FragmentNumberSet) -> None:
        if sn not in self.fragments and len(self.fragments) >= REORDER_RUNS_MAX:
            return
        fragments = self.fragments.setdefault(sn, IntervalSet())
        for first, last in missing.ranges():
            if len(fragments) < REORDER_RUNS_MAX:
                fragments.add(first, last)


class RecentRepairs:
    """What was sent again lately: samples (``of`` 0), and fragments of large ones (``of`` their number)."""

    __slots__ = ("_numbers", "_sent", "nbytes")

    def __init__(self) -> None:
        self.nbytes = 0
        self._sent: deque[tuple[int, int, int, int, int]] = deque()  # (when, of, first, last, bytes)
        self._numbers: dict[int, IntervalSet] = {}

    @property
    def is_full(self) -> bool:
        return len(self._sent) >= REORDER_RUNS_MAX

    def forget(self, before: int) -> None:
        """What was sent at ``before`` or earlier may be sent again."""
        while self._sent and self._sent[0][0] <= before:
            _, of, first, last, nbytes = self._sent.popleft()
            self.nbytes -= nbytes
            if (numbers := self._numbers.get(of)) is not None:
                numbers.remove(first, last)
                if not len(numbers):
                    del self._numbers[of]

    def note(self, first: int, last: int, nbytes: int, *, now: int, of: int = 0) -> None:
        self._sent.append((now, of, first, last, nbytes))
        self._numbers.setdefault(of, IntervalSet()).add(first, last)
        self.nbytes += nbytes

    def unsent(self, first: int, last: int, *, of: int = 0) -> list[tuple[int, int]]:
        """Ranges of first..last that were not sent again lately."""
        numbers = self._numbers.get(of)
        return [(first, last)] if numbers is None else list(numbers.holes(first, last))
