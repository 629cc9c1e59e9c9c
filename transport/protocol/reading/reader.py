"""The stateful reader: in order and complete from each writer, or best-effort as it comes (RTPS 2.5 §8.4.12).

Sans I/O: submessages in by ``on_…``, runs out by :meth:`StatefulReader.take`, datagrams out by
:meth:`StatefulReader.outgoing`. A run of the expected sequence number goes straight through, uncopied.

Invariants:
* per writer, the runs handed out have strictly rising sequence numbers, without a hole unless it is counted
  in ``lost_samples`` or ``irrelevant_samples``;
* nothing is acknowledged that the owner did not :meth:`~StatefulReader.take` (or is lost, or irrelevant), nor
  anything while it holds acknowledgements back; but for an open coherent set that is longer than what one
  ACKNACK reaches: of that, what lies before a hole is acknowledged when the hole is requested;
* a run that does not fit ``window`` is not taken; its writer counts as *closed* until a window is set into
  which that run fits, and a closed writer is asked for nothing;
* a sample larger than ``sample_size_max`` is passed over, as if it were irrelevant;
* a batch is handed out whole, or cut where a part of it came before as DATA;
* with coherent access, a coherent set is handed out whole or not at all (:mod:`.coherent`).

When and what the reader answers is the :mod:`.responder`'s.

Where a volatile reader starts (the writers' ways differ, and DDS leaves it open):
* volatile writer: at the first HEARTBEAT's first_sn. What arrives before that HEARTBEAT is held; such a
  writer keeps only what its matched readers lack, so all of it is ours;
* transient-local writer: at the first DATA or at the first HEARTBEAT's last_sn + 1, whichever comes first.
  DATA seen may be a repair of history for another reader of this participant: that is then read too (our
  own writers address such repairs to the reader that asked);
* best-effort: at the first DATA.
A transient-local reader starts at 1; any reader starts after what ``resume`` says it had in an earlier life.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import numpy as np

from ...limits import ENDPOINTS_PER_PARTICIPANT_MAX, FRAGMENTED_SAMPLE_MAX, UDP_PAYLOAD_MAX
from ...qos import Qos
from ...structure import INFINITE, Guid, is_builtin
from ...wire.batch import Batch
from ...wire.samples import Run
from ...wire.status_messages import RttMeasurement
from ...wire.submessages import DataFrag, Gap, Heartbeat, HeartbeatBatch, HeartbeatFrag
from ..agenda import untouched
from ..endpoint_info import WriterInfo
from ..outgoing import Outgoing
from ..policies import READER_POLICY, ReaderCounters, ReaderPolicy
from .announcements import Announcements
from .batch_numbers import BatchNumbers
from .coherent import sets_of
from .congestion_control import CongestionControlFactory
from .delivery import Delivery
from .fragments import FragmentBudget
from .reassembly import Reassembly
from .received_stream import StreamPositions
from .reorder import ReorderBudget
from .responder import Responder
from .status_messages import StatusMessages
from .untethered import Untethered
from .writer_proxy import WriterProxy

__all__ = ["ReaderCounters", "ReaderPolicy", "StatefulReader", "WriterInfo", "WriterProxy"]


class StatefulReader:
    """One local reader and its matched writers."""

    def __init__(
        self,
        guid: Guid,
        qos: Qos,
        *,
        policy: ReaderPolicy = READER_POLICY,
        resume: Mapping[Guid, int] | None = None,
        random: Random | None = None,
    ) -> None:
        """``random`` draws the heartbeat response delays and back-offs; by default a generator seeded by the GUID."""
        self.guid = guid
        self.qos = qos
        self.policy = policy
        self.writers: dict[Guid, WriterProxy] = {}
        self.counters = ReaderCounters()
        #: Set by an owner whose samples are not safe yet: nothing is acknowledged or requested meanwhile.
        self.hold_acknowledgments = False
        #: Called when something is done to it (:mod:`..agenda`).
        self.touch: Callable[[], None] = untouched
        self._delivered_before: dict[Guid, int] = dict(resume or {})
        self._budget = FragmentBudget()
        self._reassembly = Reassembly(self._budget, self.writers, self.counters)
        self._reorder_budget = ReorderBudget()
        self._delivery = Delivery(self.counters, self._reassembly)
        self._status = StatusMessages(guid.entity, policy, self.counters, self._delivery.closed)
        self._responder = Responder(
            guid.entity,
            policy,
            self.counters,
            self.writers,
            self._delivery.closed,
            random or Random(guid.to_bytes()),
            self._status,
        )
        self._announcements = Announcements(self.counters, self._delivery, self._responder)
        #: What becomes of writers that it is too slow for.
        self.untethered = Untethered(policy, self.writers, self._delivery, self._status, self._responder)

    # --- matching --------------------------------------------------------------------------------

    def match_writer(self, info: WriterInfo, *, now: int) -> None:
        """Begin, or go on with new locators, with a writer."""
        self.touch()
        known = self.writers.get(info.guid)
        reliable = self.qos.is_reliable and info.reliable
        if known is not None and known.reliable == reliable:
            if known.info.status_messages == info.status_messages:
                known.info = info
                return
        if known is not None:
            self.unmatch_writer(info.guid)
        resumed = self._delivered_before.pop(info.guid, None)
        expected: int | None = None
        if resumed is not None:
            expected = resumed + 1
        elif reliable and self.qos.is_transient_local and info.transient_local:
            expected = 1
        proxy = WriterProxy(
            info,
            self._reorder_budget,
            reliable=reliable,
            expected=expected,
            receive_window=self.policy.receive_window_size,
            coherent=self.qos.coherent_access,
        )
        self.writers[info.guid] = proxy
        if reliable or info.status_messages:
            self._responder.introduce(proxy, now)

    def unmatch_writer(self, guid: Guid) -> None:
        """The writer is gone, and what it had announced or begun is lost with it. Should it come back, it goes
        on where it was, and may then still bring what was counted as lost.

        Not so those of discovery: a participant restarted under its old GUID begins it anew.
        """
        self.touch()
        proxy = self.writers.pop(guid, None)
        if proxy is None:
            return
        self._delivery.lose(proxy, proxy.undelivered)
        if proxy.sets is not None:
            self.counters.coherent_sets_lost += sets_of(proxy.held)
        self._reassembly.discard_below(proxy, INFINITE + 1)
        proxy.held.clear()
        self._delivery.closed.pop(guid, None)
        self._responder.forget(guid)
        self.untethered.forget(guid)
        if proxy.synced and not is_builtin(self.guid.entity):
            self._delivered_before[guid] = proxy.expected - 1
            if len(self._delivered_before) > ENDPOINTS_PER_PARTICIPANT_MAX:
                del self._delivered_before[next(iter(self._delivered_before))]

    # --- the owner's side ------------------------------------------------------------------------

    @property
    def window(self) -> int:
        """Bytes of runs the owner can take from now on; shrinks with each run put into :meth:`take`."""
        return self._delivery.window

    @window.setter
    def window(self, nbytes: int) -> None:
        self.touch()
        delivery = self._delivery
        delivery.window = nbytes
        if self._status.starved:
            for guid in self._status.on_room(nbytes):
                self._responder.tell_at_once(self.writers[guid])
        for guid in [guid for guid, needed in delivery.closed.items() if needed <= nbytes]:
            proxy = self.writers[guid]
            if delivery.closed.get(guid, INFINITE) > delivery.window:
                continue  # what another writer had waiting took the room
            del delivery.closed[guid]
            delivery.drain(proxy)
            if guid not in delivery.closed:
                self._responder.ask_at_once(proxy)

    @property
    def congestion_control(self) -> CongestionControlFactory:
        """What makes the congestion control of each writer matched from now on; by default the policy names it."""
        return self._status.factory

    @congestion_control.setter
    def congestion_control(self, factory: CongestionControlFactory) -> None:
        self._status.factory = factory

    @property
    def consumption_held(self) -> bool:
        """Whether writers are told to be consumed only what the owner called :meth:`consumed`, and not all that it
        took. It says so before there are writers."""
        return self._status.held

    @consumption_held.setter
    def consumption_held(self, held: bool) -> None:
        self._status.held = held

    def consumed(self, writer: Guid, sn: int, nbytes: int) -> None:
        """The owner is done with the runs of ``writer`` up to ``sn``, ``nbytes`` more than before."""
        self.touch()
        proxy = self.writers.get(writer)
        if proxy is not None and self._status.on_consumed(proxy, sn, nbytes):
            self._responder.tell_at_once(proxy)

    def positions(self, writer: Guid) -> StreamPositions:
        """Where the stream of a matched writer stands."""
        return self._status.positions(self.writers[writer])

    @property
    def sample_size_max(self) -> int:
        """Bytes of the largest sample the owner can take, encapsulation header included, and of the largest
        coherent set; the owner may lower it."""
        return self._delivery.sample_size_max

    @sample_size_max.setter
    def sample_size_max(self, nbytes: int) -> None:
        self._delivery.sample_size_max = nbytes

    def take(self) -> list[Run]:
        """Runs ready since the last call, in order per writer.

        They may view the receive buffer: valid until the next receive. Nothing is acknowledged while there
        are any.
        """
        self.touch()
        delivery = self._delivery
        ready, delivery.ready = delivery.ready, []
        return ready

    def take_losses(self) -> dict[Guid, int]:
        """How many samples of which writer were lost since the last call: what ``lost_samples`` counts."""
        delivery = self._delivery
        losses = dict(delivery.losses)
        delivery.losses.clear()
        return losses

    # --- data ------------------------------------------------------------------------------------

    def on_run(self, run: Run, *, now: int) -> None:
        """A run of DATA arrived."""
        self.touch()
        proxy = self.writers.get(run.writer)
        if proxy is None:
            self.counters.unknown_writer += run.count
            return
        delivery, nbytes = self._delivery, run.data.nbytes
        if (
            run.first_sn == proxy.expected
            and proxy.synced
            and nbytes <= delivery.window
            and nbytes <= delivery.sample_size_max
            and not run.coherent_set
            and not proxy.held
            and not proxy.fragments
            and not proxy.resting
        ):
            proxy.expected += run.count
            delivery.window -= nbytes
            self.counters.received_samples += run.count
            delivery.ready.append(run)
            stream = proxy.stream
            stream.rcv_pos += nbytes
            if stream.rcv_pos >= stream.due:
                self._responder.on_progress(proxy, run, now)
            return
        if proxy.resting:
            delivery.pass_by(proxy, run.last_sn)
        elif nbytes > delivery.sample_size_max:
            self._accept_small(proxy, run, now)
        else:
            self._accept(proxy, run, now)

    def on_batch(self, batch: Batch, *, now: int) -> None:
        """A DATA_BATCH arrived; its runs have memory of their own."""
        self.touch()
        proxy = self.writers.get(batch.writer)
        runs = batch.runs
        if proxy is None:
            self.counters.unknown_writer += sum(run.count for run in runs)
            return
        self.counters.received_batches += 1
        if proxy.resting:
            self._delivery.pass_by(proxy, batch.last_sn)
            return
        if proxy.reliable:
            if proxy.batches is None:
                proxy.batches = BatchNumbers()
            waits = batch.first_sn > proxy.expected or proxy.sets is not None
            proxy.batches.on_batch(batch.batch_sn, batch.first_sn, batch.last_sn, waits=waits)
        if len(runs) == 1 and runs[0].count == batch.last_sn + 1 - batch.first_sn:
            self.on_run(runs[0], now=now)
        else:
            self._accept_pieces(proxy, batch, now)

    def _accept_pieces(self, proxy: WriterProxy, batch: Batch, now: int) -> None:
        """A batch in which numbers are left out: they will never come."""
        delivery, counters = self._delivery, self.counters
        count, nbytes = sum(run.count for run in batch.runs), sum(run.nbytes for run in batch.runs)
        if not proxy.synced:
            self._sync_at_data(proxy, batch.first_sn)
        if batch.last_sn < proxy.expected:
            counters.duplicate_samples += count
            return
        if nbytes > delivery.window and (not proxy.reliable or batch.first_sn <= proxy.expected):
            delivery.refuse(proxy, count, nbytes, batch.last_sn)
            return
        overflow, at = counters.reorder_overflow, batch.first_sn
        for run in batch.runs:
            delivery.skip(proxy, at, run.first_sn - 1)
            self.on_run(run, now=now)
            at = run.last_sn + 1
        delivery.skip(proxy, at, batch.last_sn)
        if counters.reorder_overflow > overflow:
            counters.reorder_overflow += proxy.held.give_up_batch(batch.batch_sn)
        if proxy.synced:
            delivery.drain(proxy)

    def _accept_small(self, proxy: WriterProxy, run: Run, now: int) -> None:
        """Accept the samples of a run that are not too large, and pass over the others."""
        start = 0
        for i in np.flatnonzero(run.samples().all_lengths() > self.sample_size_max).tolist():
            if start < i:
                self._accept(proxy, run.take(start, i), now)
            self._pass_oversized(proxy, run.first_sn + i, now)
            start = i + 1
        if start < run.count:
            self._accept(proxy, run.take(start, run.count), now)

    def _pass_oversized(self, proxy: WriterProxy, sn: int, now: int) -> None:
        """A sample is larger than we take: it would hold up its writer for ever."""
        if not proxy.synced:
            self._sync_at_data(proxy, sn)
        before = proxy.expected
        if self._delivery.pass_over(proxy, sn, sn):
            self.counters.oversized_samples += 1
            self._after(proxy, sn, before, now)

    def _accept(self, proxy: WriterProxy, run: Run, now: int, *, owned: bool = False) -> None:
        """A run that is not simply the next one."""
        if not proxy.synced:
            self._sync_at_data(proxy, run.first_sn)
        before = proxy.expected
        self._delivery.accept(proxy, run, owned=owned)
        if proxy.info.status_messages:
            self._responder.on_disorder(proxy, run, before, now)
        self._after(proxy, run.first_sn, before, now)

    def _after(self, proxy: WriterProxy, sn: int, before: int, now: int) -> None:
        """What arrived at ``sn`` may end a repair, or show a hole; ``before`` is what was expected then."""
        if proxy.reliable and proxy.synced:
            if proxy.expected > before or (proxy.sets is not None and sn <= proxy.nacked):
                self._responder.after_repair(proxy, now)
            if proxy.expected < sn and proxy.is_missing:
                self._responder.on_hole(proxy, sn, now)

    # --- fragments -------------------------------------------------------------------------------

    def on_data_frag(self, writer: Guid, frag: DataFrag, timestamp: int, *, now: int) -> None:
        """Fragments of one sample arrived; ``timestamp`` is the source timestamp in force."""
        self.touch()
        proxy = self.writers.get(writer)
        if proxy is None:
            self.counters.unknown_writer += 1
            return
        self.counters.fragments += frag.fragments
        if proxy.resting:
            self._delivery.pass_by(proxy, frag.sn)
            return
        if not proxy.synced:
            self._sync_at_data(proxy, frag.sn)
        if frag.sn < proxy.expected or frag.sn in proxy.held:
            self.counters.duplicate_fragments += frag.fragments
            return
        if frag.sample_size > min(self.sample_size_max, FRAGMENTED_SAMPLE_MAX):
            self._pass_oversized(proxy, frag.sn, now)
            return
        run = self._reassembly.add(proxy, frag, timestamp, now)
        proxy.stream.datagram = max(proxy.stream.datagram, min(len(frag.payload), UDP_PAYLOAD_MAX))
        if run is not None:
            self._accept(proxy, run, now, owned=True)
        elif proxy.reliable and proxy.synced and frag.sn in proxy.fragments:
            self._responder.on_fragment(proxy, frag.sn, now)

    # --- what the writer says about its history --------------------------------------------------

    def on_heartbeat(self, writer: Guid, heartbeat: Heartbeat, *, now: int) -> None:
        """The writer says what it has (RTPS 2.5 §8.3.8.6)."""
        proxy = self._reliable(writer)
        if proxy is None:
            return
        if heartbeat.first_sn < 1 or heartbeat.last_sn < heartbeat.first_sn - 1:
            self.counters.bad_heartbeats += 1
            return
        if not proxy.heartbeats.accept(heartbeat.count, now):
            self.counters.stale_counts += 1
            return
        if heartbeat.last_sn < min(proxy.last_sn, proxy.expected - 1) and is_builtin(self.guid.entity):
            # A participant restarted under its old GUID counts from the beginning again: so do we with it.
            self.unmatch_writer(writer)
            self.match_writer(proxy.info, now=now)
            proxy = self.writers[writer]
            proxy.heartbeats.accept(heartbeat.count, now)
        self._announcements.on_heartbeat(proxy, heartbeat, now)

    def on_heartbeat_batch(self, writer: Guid, heartbeat: HeartbeatBatch, *, now: int) -> None:
        """The same of a writer of batches."""
        if (proxy := self._reliable(writer)) is not None:
            self._announcements.on_heartbeat_batch(proxy, heartbeat, now)

    def on_heartbeat_frag(self, writer: Guid, heartbeat: HeartbeatFrag, *, now: int) -> None:
        """The writer says how much of a fragmented sample it has sent (RTPS 2.5 §8.3.8.7)."""
        if (proxy := self._reliable(writer)) is not None:
            self._announcements.on_heartbeat_frag(proxy, heartbeat, now)

    def on_gap(self, writer: Guid, gap: Gap, *, now: int) -> None:
        """Some sequence numbers will never come (RTPS 2.5 §8.3.8.4)."""
        self.touch()
        if (proxy := self.writers.get(writer)) is not None:
            self._announcements.on_gap(proxy, gap, now)

    def _reliable(self, writer: Guid) -> WriterProxy | None:
        self.touch()
        proxy = self.writers.get(writer)
        return proxy if proxy is not None and proxy.reliable else None

    def on_rtt_measurement(self, writer: Guid, message: RttMeasurement, *, now: int) -> None:
        """The writer answers how long a round trip takes."""
        self.touch()
        proxy = self.writers.get(writer)
        if proxy is not None:
            self._status.on_rtt_measurement(proxy, message, now)

    def _sync_at_data(self, proxy: WriterProxy, sn: int) -> None:
        if not proxy.reliable or (proxy.info.transient_local and not self.qos.is_transient_local):
            self._delivery.sync(proxy, sn)

    # --- time and answers ------------------------------------------------------------------------

    @property
    def has_more_to_say(self) -> bool:
        """Whether something waits until acknowledgements are no longer held back."""
        return self._responder.is_responding

    def get_timer(self) -> int | None:
        """When :meth:`handle_timer` wants to be called; None: not before something arrives."""
        timers = (self._responder.get_timer(), self.untethered.get_timer())
        return min((timer for timer in timers if timer is not None), default=None)

    def handle_timer(self, now: int) -> None:
        self.touch()
        self.untethered.handle_timer(now)
        self._responder.handle_timer(now)

    def outgoing(self) -> list[Outgoing]:
        """ACKNACKs, NACK_FRAGs and status messages to send now; what would acknowledge runs not taken, or held back,
        waits."""
        hold = self.hold_acknowledgments or bool(self._delivery.ready)
        return self._responder.outgoing(hold=hold, room=self._delivery.window)
