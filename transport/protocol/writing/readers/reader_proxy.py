"""The state of one matched reader at its writer (RTPS 2.5 §8.4.7.5): its identity, and what it has acknowledged.

Each reader has three state machines, with their tables: whether the writer waits for it (:mod:`.activity`), when it
gets HEARTBEATs (:mod:`.heartbeat_timer`), and when it gets repairs (:mod:`.reader_repairs`).

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

#: A reader whose acknowledgements cover only samples sent to it alone, this many times in a row, does not receive its
#: group: before, and after, it once acknowledged samples of the group. Cyclone DDS keeps 128 samples behind a hole, and
#: requests all others again.
_MISSES_FIRST: Final = 3
_MISSES_LATER: Final = 64


class SubmessageCounts:
    """Filters repeated submessages of one reader; each kind has its own count."""

    __slots__ = ("acknack", "acknack_batch", "nack_frag", "status_message")

    def __init__(self) -> None:
        self.acknack = CountFilter()
        self.acknack_batch = CountFilter()
        self.nack_frag = CountFilter()
        self.status_message = CountFilter()


class ReaderProxy:
    """State of one reader; `MatchedReaders` creates it, `Acknowledgments` updates it."""

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
        "heartbeats",
        "info",
        "is_deaf",
        "is_on_host",
        "joined_sn",
        "measured_at",
        "misses",
        "positive_acks",
        "receiver",
        "receives_group",
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
        #: The form in which it gets batches (:mod:`..changes.batch_content`), and the best form that it can read.
        self.form = self.best_form = form
        #: The multicast group by which it gets samples; None: they go to its own address (:mod:`.groups`).
        self.group: Locator | None = None
        #: No group reaches it; how often in a row it acknowledged only repairs that were sent to it alone.
        self.is_deaf = False
        self.misses = 0
        #: It has acknowledged samples that it can only have from its group.
        self.receives_group = False
        #: It reads the publication log, and gets no datagrams of samples that lie there.
        self.is_on_host = False
        #: Samples below this number are irrelevant to it: they were written before a volatile reader matched.
        self.first_relevant = first_relevant
        #: The writer's last number when the reader matched: samples up to it are history to the reader.
        self.joined_sn = joined_sn
        #: It has acknowledged everything up to this number; without positive_acks, the keep duration is over for it.
        self.acked = first_relevant - 1
        #: It was dropped, and does not pace the writer until it reports that it continues from this number; 0: it was
        #: not dropped.
        self.rejoins_at = 0
        self.acknacks_received = 0
        #: When a measurement of the round trip time was last answered.
        self.measured_at = -INFINITE
        #: It has answered a HEARTBEAT.
        self.settled = False
        self.counts = SubmessageCounts()
        #: The number up to which it reports to have consumed; and its state for flow control (:mod:`.pacing`).
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
        """Whether the writer waits for the reader."""
        return self.activity.state is ACTIVE

    @property
    def is_ready(self) -> bool:
        """Whether all samples that are written from now on will reach the reader.

        A reliable reader must show that it has matched the writer too, and has settled where it starts: a volatile
        reader of Cyclone DDS starts behind the first HEARTBEAT that reaches it. A pre-emptive ACKNACK (empty, base 1,
        not final) does not show that. After three ACKNACKs a reader counts as ready, whatever flags it sets. For a
        reader without positive acknowledgements, which is one of ours, the first ACKNACK is enough.
        """
        if not self.reliable or self.settled:
            return True
        return self.acknacks_received >= (3 if self.positive_acks else 1)

    @property
    def received(self) -> bool:
        """Whether an ACKNACK was received, so that the reader has matched the writer too."""
        return self.acknacks_received > 0

    def advance(self, acked: int) -> None:
        """Note that the reader has everything up to ``acked``, which is more than before."""
        if self.group is not None:
            alone = self.repairs.repeated.has_all(self.acked + 1, acked)
            self.misses = self.misses + 1 if alone else 0
            self.receives_group = self.receives_group or not alone
            self.is_deaf = self.is_deaf or self.misses >= (
                _MISSES_LATER if self.receives_group else _MISSES_FIRST
            )
        self.acked = acked

    def sent_again(self, first: int, last: int, nbytes: int, now: int, *, of: int = 0) -> None:
        """Samples first..last were sent again, or those fragments of sample ``of``."""
        self.repairs.recent.add_repair(first, last, nbytes, now=now, of=of)
        self.repairs.repeated.add_repair(first, last, nbytes, of=of)

    def sent_gap(self, first: int, last: int, nbytes: int) -> None:
        """The reader was sent a GAP for first..last."""
        self.repairs.repeated.add_repair(first, last, nbytes)

    @property
    def is_late_joiner(self) -> bool:
        """Whether the reader has not caught up with the history that was there when it matched."""
        return self.acked < self.joined_sn
