"""HEARTBEATs and GAPs: what writers announce of their histories, and samples that will never come.

They advance the writer's proxy, release samples that waited for them, and lead to answers. The invariants are those of
:mod:`.reader`.
"""

from __future__ import annotations

from ...structure import ENTITYID_UNKNOWN
from ...wire.submessages import Gap, Heartbeat, HeartbeatBatch, HeartbeatFrag
from ..policies import ReaderCounters
from .ordering.delivery import Delivery
from .ordering.writer_proxy import WriterProxy
from .response.responder import Responder


class HistoryMessages:
    """The HEARTBEATs and GAPs of all writers of one reader."""

    __slots__ = ("_counters", "_delivery", "_responder")

    def __init__(self, counters: ReaderCounters, delivery: Delivery, responder: Responder) -> None:
        self._counters = counters
        self._delivery = delivery
        self._responder = responder

    def on_heartbeat(self, proxy: WriterProxy, heartbeat: Heartbeat | HeartbeatBatch, now: int) -> None:
        """A reliable writer announces which samples it has, in a new HEARTBEAT."""
        first_sn, last_sn = heartbeat.first_sn, heartbeat.last_sn
        self._counters.heartbeats += 1
        # Not the maximum: so the samples of a forged HEARTBEAT are requested only until the next true one.
        proxy.last_sn = last_sn
        proxy.away_until = min(proxy.away_until, last_sn)
        if not proxy.synced:
            self._delivery.sync(proxy, last_sn + 1 if proxy.info.transient_local else first_sn)
        is_to_it_alone = heartbeat.reader_id != ENTITYID_UNKNOWN
        if is_to_it_alone and proxy.expected <= proxy.counts_losses_from:
            proxy.counts_losses_from = first_sn  # where this reader was matched
        if first_sn > proxy.first_sn:
            proxy.first_sn = first_sn
        if proxy.resting:
            self._delivery.pass_by(proxy, last_sn)
        if proxy.expected < proxy.first_sn or proxy.held:
            self._delivery.drain(proxy)
        proxy.counts_losses_from = min(proxy.counts_losses_from, 0 if is_to_it_alone else last_sn + 1)
        self._responder.on_heartbeat(proxy, final=heartbeat.final, now=now)

    def on_heartbeat_batch(self, proxy: WriterProxy, heartbeat: HeartbeatBatch, now: int) -> None:
        """A writer of batches announces which samples it has, and which batches they are in."""
        proxy.count_batches().on_heartbeat(
            heartbeat.first_batch_sn, heartbeat.last_batch_sn, heartbeat.first_sn, heartbeat.last_sn
        )
        self.on_heartbeat(proxy, heartbeat, now)

    def on_heartbeat_frag(self, proxy: WriterProxy, heartbeat: HeartbeatFrag, now: int) -> None:
        """A reliable writer announces how much of a fragmented sample it has sent."""
        if not proxy.heartbeat_frags.accept(heartbeat.count, now):
            self._counters.stale_counts += 1
            return
        if not proxy.synced or heartbeat.sn < proxy.expected or heartbeat.sn in proxy.held:
            return
        sample = proxy.fragments.get(heartbeat.sn)
        if sample is None:
            self._responder.on_hole(proxy, heartbeat.sn, now)
            proxy.last_sn = max(proxy.last_sn, heartbeat.sn)
        else:
            sample.announced = max(sample.announced, min(heartbeat.last_fragment, sample.fragments))
            self._responder.on_hole(proxy, heartbeat.sn, now, announced=True)

    def on_gap(self, proxy: WriterProxy, gap: Gap, now: int) -> None:
        """Some sequence numbers will never come."""
        if gap.start_sn < 1 or gap.irrelevant.base < gap.start_sn:
            return
        self._counters.gaps += 1
        ranges = gap.irrelevant.ranges()
        if gap.start_sn < gap.irrelevant.base:
            ranges.insert(0, (gap.start_sn, gap.irrelevant.base - 1))
        for first, last in ranges:
            self._delivery.give_up_sets(proxy, first, last)
            self._delivery.skip_range(proxy, first, last)
        if proxy.synced:
            self._delivery.drain(proxy)
            self._responder.on_gap(proxy, now)
