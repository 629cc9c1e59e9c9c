"""What a writer knows of one matched reader (RTPS 2.5 §8.4.7.5): its identity, and how far it is.

What becomes of it in time is in three machines of its own, each with its table: whether it is waited for
(:mod:`.activity`), when it is sent HEARTBEATs (:mod:`.heartbeat_timer`), when it is sent again what it lacks
(:mod:`.reader_repairs`).

Invariant: ``acked`` never falls.
"""

from __future__ import annotations

from typing import Final

from ....structure import INFINITE, Guid, Locator
from ...counts import CountFilter
from ...endpoint_info import ReaderInfo
from ..changes import DATA
from ..flow import Receiver
from .activity import ACTIVE, Activity
from .heartbeat_timer import HeartbeatTimer
from .reader_repairs import ReaderRepairs

#: A reader that so often in a row acknowledges nothing but what it was sent alone does not hear its group: at first,
#: and once it was seen to. Cyclone DDS keeps 128 samples behind a hole, and requests all others again.
_MISSES_FIRST: Final = 3
_MISSES_LATER: Final = 64


class SubmessageCounts:
    """Which submessages of one reader are news, each kind by its own count."""

    __slots__ = ("acknack", "acknack_batch", "nack_frag", "status_message")

    def __init__(self) -> None:
        self.acknack = CountFilter()
        self.acknack_batch = CountFilter()
        self.nack_frag = CountFilter()
        self.status_message = CountFilter()


class ReaderProxy:
    """State of one reader; `MatchedReaders` makes it, `Acknowledgments` moves it."""

    __slots__ = (
        "acked",
        "acknacks_received",
        "activity",
        "best_form",
        "consumed",
        "counts",
        "first_relevant",
        "form",
        "group",
        "hears_group",
        "heartbeats",
        "info",
        "is_deaf",
        "is_on_host",
        "joined_sn",
        "measured_at",
        "misses",
        "positive_acks",
        "receiver",
        "rejoins_at",
        "reliable",
        "repairs",
        "settled",
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
        self.reliable = reliable
        self.positive_acks = positive_acks
        #: The form in which it is sent batches (:mod:`..changes.batch_content`), and the one that it reads best.
        self.form = self.best_form = form
        #: Where it is sent what others of that group are sent too; None: at its own address (:mod:`.groups`).
        self.group: Locator | None = None
        #: No group reaches it; how often in a row it acknowledged only what it was sent again, and alone.
        self.is_deaf = False
        self.misses = 0
        #: It has acknowledged what it can only have from its group.
        self.hears_group = False
        #: It reads the publication log, and is sent nothing that lies there.
        self.is_on_host = False
        #: Samples below are irrelevant to it: they were written before a volatile reader was matched.
        self.first_relevant = first_relevant
        #: The writer's last number when the reader was matched: up to here is history to it.
        self.joined_sn = joined_sn
        #: It has acknowledged everything up to here, or it was given up for a reader without positive_acks.
        self.acked = first_relevant - 1
        #: It was dropped, and paces nobody before it reports that it goes on from this number; 0: it was not.
        self.rejoins_at = 0
        self.acknacks_received = 0
        #: When a measurement of the round trip time was last answered.
        self.measured_at = -INFINITE
        #: It has answered a HEARTBEAT.
        self.settled = False
        self.counts = SubmessageCounts()
        #: What it reports to have consumed, where it does; and what that means for flow control (:mod:`.pacing`).
        self.consumed = self.acked
        self.receiver = Receiver(0, 0)
        self.activity = Activity()
        self.heartbeats = HeartbeatTimer()
        self.repairs = ReaderRepairs()

    @property
    def guid(self) -> Guid:
        return self.info.guid

    @property
    def active(self) -> bool:
        """Whether the writer waits for it."""
        return self.activity.state is ACTIVE

    @property
    def is_ready(self) -> bool:
        """Whether all that is written from now on will reach it.

        A reliable reader has to show that it matched us too, and has settled where it starts: a volatile one of
        Cyclone DDS starts behind the first HEARTBEAT that reaches it. A pre-emptive ACKNACK (empty, base 1, not
        final) does not show that; a reader that has sent three ACKNACKs is believed, whatever flags it sets. A
        reader without positive acknowledgements, which is one of ours, has nothing more to say.
        """
        if not self.reliable or self.settled:
            return True
        return self.acknacks_received >= (3 if self.positive_acks else 1)

    @property
    def received(self) -> bool:
        """It has sent an ACKNACK, so it has matched us too."""
        return self.acknacks_received > 0

    def advance(self, acked: int) -> None:
        """It has everything up to ``acked``, which is more than before."""
        if self.group is not None:
            alone = self.repairs.repeated.has_all(self.acked + 1, acked)
            self.misses = self.misses + 1 if alone else 0
            self.hears_group = self.hears_group or not alone
            self.is_deaf = self.is_deaf or self.misses >= (
                _MISSES_LATER if self.hears_group else _MISSES_FIRST
            )
        self.acked = acked

    def sent_again(self, first: int, last: int, nbytes: int, now: int, *, of: int = 0) -> None:
        """first..last was sent again, of samples or of the fragments of one."""
        self.repairs.recent.add_repair(first, last, nbytes, now=now, of=of)
        self.repairs.repeated.add_repair(first, last, nbytes, of=of)

    def sent_gap(self, first: int, last: int, nbytes: int) -> None:
        """It was announced that first..last will never come."""
        self.repairs.repeated.add_repair(first, last, nbytes)

    @property
    def is_late_joiner(self) -> bool:
        """It has not caught up with the history it found."""
        return self.acked < self.joined_sn
