"""The stateful reader: samples in order and complete from each writer, or best-effort (RTPS 2.5 §8.4.12).

Sans I/O: submessages go in by ``on_…``, runs come out of :meth:`StatefulReader.take_runs`, datagrams out of
:meth:`StatefulReader.outgoing`. A run with the expected sequence number is handed out without a copy.

Invariants:
* per writer, the runs handed out have strictly rising sequence numbers, without a hole unless it is counted
  in ``lost_samples`` or ``irrelevant_samples``;
* a sample is acknowledged only when the owner took it (:meth:`~StatefulReader.take_runs`), or it is lost or irrelevant,
  and nothing is acknowledged while the owner holds acknowledgements back. One exception: an open coherent set may be
  longer than the range of one ACKNACK; its samples before a hole are acknowledged when the hole is requested;
* a run that does not fit ``window`` is refused; its writer counts as *closed* until a window is set into which that run
  fits, and nothing is requested of a closed writer;
* no sample that was delivered or passed is delivered again, whatever a later HEARTBEAT or GAP announces. A writer that,
  for ``ANEW_NS`` since it was matched again, is only seen below where the earlier match with it ended was restarted
  with its participant under the same GUID, and the reader begins anew with it. The same holds for a best-effort writer
  that for as long sends only rising lower numbers. Copies that a second network path brings more than ``ANEW_NS`` late,
  while the writer pauses, look the same, and some are read twice. With a reliable writer such samples may be repairs
  for others, and its HEARTBEATs may be forged: the samples are counted in ``doubted_samples``;
* a sample larger than ``sample_size_max`` is skipped as if it were irrelevant;
* a batch is handed out whole, or cut where a part of it arrived earlier as DATA;
* with coherent access, a coherent set is handed out whole or not at all (:mod:`.ordering.coherent_access`).

The :mod:`.response.responder` decides on the answers, and when they are sent.

Where a volatile reader starts with a writer (DDS does not specify it, and writers differ):
* a volatile writer: at the first_sn of its first HEARTBEAT. Samples that arrive before that HEARTBEAT are held; such a
  writer keeps only samples that its matched readers lack, so all of them are for this reader;
* a transient-local writer: at its first DATA or behind the last_sn of its first HEARTBEAT, whichever comes first.
  The DATA may be a repair of history for another reader of this participant, and is then read too (our own writers
  address such repairs to the reader that asked);
* a best-effort writer: at its first DATA, or the first DATA_FRAG that begins a sample.
A transient-local reader starts at 1. Any reader starts behind the number that ``resume`` gives for the writer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random

from ...qos import HistoryKind, Qos
from ...structure import INFINITE, Guid, is_builtin
from ...wire.batch import Batch
from ...wire.batch_ranges import BatchRange
from ...wire.fragment_ranges import FragmentRange
from ...wire.samples import Run
from ...wire.status_messages import RttMeasurement
from ...wire.submessages import DataFrag, Gap, Heartbeat, HeartbeatBatch, HeartbeatFrag
from ..agenda import untouched
from ..endpoint_info import WriterInfo
from ..outgoing import Outgoing
from ..policies import READER_POLICY, ReaderCounters, ReaderPolicy
from .arrivals import Arrivals
from .earlier_matches import EarlierMatches
from .flow.status_reporter import ReceiveCapacity, StatusReporter
from .fragment_arrivals import FragmentArrivals
from .history_messages import HistoryMessages
from .ordering.delivery import Delivery
from .ordering.writer_proxy import WriterProxy
from .response.responder import Responder
from .untethered import Untethered


class StatefulReader:
    """One local reader and its matched writers."""

    def __init__(
        self,
        guid: Guid,
        qos: Qos,
        *,
        policy: ReaderPolicy = READER_POLICY,
        resume: Mapping[Guid, int] | None = None,
        moved_from: Collection[Guid] = (),
        random: Random | None = None,
        receive_capacity: ReceiveCapacity | None = None,
    ) -> None:
        """``resume``: the last sequence number of each writer that this reader took before a restart. ``moved_from``:
        the writers that knew the reader under another GUID; samples that they sent since then, and do not send again,
        count as missed. ``random`` draws the heartbeat response delays and back-offs; by default it is a generator
        seeded by the GUID. ``receive_capacity``: the kernel's receive buffer, shared with other readers."""
        self.guid = guid
        self.qos = qos
        self.policy = policy
        self.writers: dict[Guid, WriterProxy] = {}
        self.counters = ReaderCounters()
        #: Set by an owner that has not stored its samples safely yet: while set, nothing is acknowledged or requested.
        self.hold_acknowledgments = False
        #: Called when the state of the reader changes (:mod:`..agenda`).
        self.touch: Callable[[], None] = untouched
        #: Of a batch with more samples, HISTORY and RESOURCE_LIMITS may let less through (:mod:`.cache.reader_cache`).
        self._batch_samples_max = min(
            qos.history_depth if qos.history is HistoryKind.KEEP_LAST else INFINITE,
            qos.max_samples,
            qos.max_samples_per_instance,
        )
        self._earlier = EarlierMatches(resume, moved_from)
        #: The owner's window, the runs ready for it, and the losses; the owner lowers ``sample_size_max``.
        self.delivery = Delivery(self.counters, self.writers)
        #: What status messages report; the owner sets ``consumption_held`` and ``congestion_control`` before there are
        #: writers.
        self.status = StatusReporter(
            guid.entity, policy, self.counters, self.delivery.closed, receive_capacity
        )
        self._responder = Responder(
            guid.entity,
            policy,
            self.counters,
            self.writers,
            self.delivery.closed,
            random or Random(guid.to_bytes()),
            self.status,
        )
        self._arrivals = Arrivals(
            self.counters, self.delivery, self._responder, takes_history=qos.is_transient_local
        )
        #: Fragmented samples, which may be reassembled in the owner's memory.
        self.fragments = FragmentArrivals(self.counters, self.delivery, self._arrivals, self._responder)
        self._history = HistoryMessages(self.counters, self.delivery, self._responder)
        #: The writers for which this reader is too slow.
        self.untethered = Untethered(policy, self.writers, self.delivery, self.status, self._responder)

    # --- matching --------------------------------------------------------------------------------

    def match_writer(self, info: WriterInfo, *, now: int) -> None:
        """Match a writer, or update its locators."""
        self.touch()
        known = self.writers.get(info.guid)
        reliable = self.qos.is_reliable and info.reliable
        if known is not None and known.reliable == reliable:
            if known.info.status_messages == info.status_messages:
                known.info = info
                return
        if known is not None:
            self.unmatch_writer(info.guid)
        self.counters.suppressed_writers += reliable and info.is_suppressed(self.policy)
        earlier = self._earlier.take_match(info.guid)
        expected = None if earlier is None else earlier.last_sn + 1
        if earlier is None and reliable and self.qos.is_transient_local and info.transient_local:
            expected = 1
        proxy = WriterProxy(
            info,
            self.delivery.reorder_budget,
            reliable=reliable,
            expected=expected,
            receive_window=self.policy.receive_window_size,
            coherent=self.qos.coherent_access,
            away=None if earlier is None else earlier.away,
            announced_until=0 if earlier is None else earlier.announced_until,
        )
        self.writers[info.guid] = proxy
        if reliable or info.status_messages:
            self._responder.introduce(proxy, now)

    def unmatch_writer(self, guid: Guid) -> None:
        """Unmatch a writer; its announced but missing samples and its incomplete samples are lost.

        If it comes back, the reader resumes where it was, and may still get samples that were counted as lost. A
        built-in writer begins anew: its participant may have been restarted under the same GUID.
        """
        self.touch()
        proxy = self.writers.pop(guid, None)
        if proxy is None:
            return
        if not is_builtin(self.guid.entity):
            self._earlier.keep(proxy)
        self.delivery.forget_writer(proxy)
        self._responder.forget_writer(guid)
        self.untethered.forget_writer(guid)

    # --- writers of other slices -----------------------------------------------------------------

    def match_other_slice(self, info: WriterInfo, *, now: int) -> None:
        """Match a writer of another slice, or update its locators: it only gets acknowledgements."""
        self.touch()
        if self.qos.is_reliable and info.reliable:
            self._responder.other_slices.match(info, now)

    def unmatch_other_slice(self, guid: Guid) -> None:
        """A writer of another slice is gone."""
        self.touch()
        self._responder.other_slices.unmatch(guid)

    def on_heartbeat_of_other_slice(
        self, writer: Guid, heartbeat: Heartbeat | HeartbeatBatch, *, now: int
    ) -> None:
        """A writer of another slice announces what it has."""
        self.touch()
        self._responder.other_slices.on_heartbeat(writer, heartbeat, now)

    # --- the owner's side ------------------------------------------------------------------------

    @property
    def window(self) -> int:
        """Bytes of runs that the owner can still take; each run that becomes ready reduces it."""
        return self.delivery.window

    @window.setter
    def window(self, nbytes: int) -> None:
        self.touch()
        delivery = self.delivery
        delivery.window = nbytes
        if self.status.starved:
            for guid in self.status.on_room(nbytes):
                self._responder.report_at_once(self.writers[guid])
        for guid in [guid for guid, needed in delivery.closed.items() if needed <= nbytes]:
            proxy = self.writers[guid]
            if delivery.closed.get(guid, INFINITE) > delivery.window:
                continue  # held samples of another writer have used up the window
            del delivery.closed[guid]
            delivery.drain(proxy)
            if guid not in delivery.closed:
                self._responder.on_open(proxy)

    def consumed(self, writer: Guid, sn: int, nbytes: int) -> None:
        """The owner has consumed the runs of ``writer`` up to ``sn``, ``nbytes`` more than before."""
        self.touch()
        proxy = self.writers.get(writer)
        if proxy is not None and self.status.on_consumed(proxy, sn, nbytes):
            self._responder.report_at_once(proxy)

    def vacate(self) -> None:
        """Move samples that were not taken yet out of the owner's memory, which the owner needs for other data."""
        self.delivery.reassembly.vacate()
        self.delivery.ready = [run.copy() for run in self.delivery.ready]

    @property
    def has_runs(self) -> bool:
        """Whether :meth:`take_runs` would return any run."""
        return bool(self.delivery.ready)

    def take_runs(self) -> list[Run]:
        """Runs ready since the last call, in order per writer.

        They may view the receive buffer, so they are valid until the next receive. Nothing is acknowledged while
        some are ready.
        """
        self.touch()
        delivery = self.delivery
        ready, delivery.ready = delivery.ready, []
        self.fragments.placed = None
        return ready

    # --- data ------------------------------------------------------------------------------------

    def on_run(self, run: Run, *, now: int) -> None:
        """A run of DATA arrived."""
        self.touch()
        proxy = self.writers.get(run.writer)
        if proxy is None:
            self.counters.unknown_writer += run.count
            return
        if self._arrivals.take_next(proxy, (run,), now):
            return
        delivery, nbytes = self.delivery, run.data.nbytes
        if proxy.resumed or run.last_sn < proxy.expected:
            proxy = self._now(proxy, run.first_sn, run.last_sn, now)
        if proxy.resting:
            delivery.pass_by(proxy, run.last_sn)
        elif nbytes > delivery.sample_size_max:
            self._arrivals.accept_small(proxy, run, now)
        else:
            self._arrivals.accept(proxy, run, now)

    def on_runs(self, runs: Sequence[Run], *, now: int) -> None:
        """Consecutive runs of equal length arrived; the result equals processing each run alone."""
        self.touch()
        proxy = self.writers.get(runs[0].writer)
        if proxy is None or not self._arrivals.take_next(proxy, runs, now):
            for run in runs:
                self.on_run(run, now=now)

    def on_batch(self, batch: Batch, *, now: int) -> None:
        """A DATA_BATCH arrived; its runs own their memory."""
        self.touch()
        proxy = self.writers.get(batch.writer)
        runs = batch.runs
        if proxy is None:
            self.counters.unknown_writer += sum(run.count for run in runs)
            return
        self.counters.received_batches += 1
        if proxy.resumed or batch.last_sn < proxy.expected:
            proxy = self._now(proxy, batch.first_sn, batch.last_sn, now)
        if proxy.resting:
            self.delivery.pass_by(proxy, batch.last_sn)
            return
        if proxy.reliable:
            batches = proxy.batches or proxy.count_batches()
            waits = batch.first_sn > proxy.expected or proxy.sets is not None
            batches.on_batch(batch.batch_sn, batch.first_sn, batch.last_sn, waits=waits)
        if len(runs) == 1 and runs[0].count == batch.last_sn + 1 - batch.first_sn:
            self.on_run(runs[0], now=now)
        else:
            self._arrivals.accept_pieces(proxy, batch, self.on_run, now)

    def on_batch_range(self, range_: BatchRange, *, now: int) -> bool:
        """Consecutive batches arrived; the result equals processing each alone. Returns False if each was."""
        self.touch()
        proxy = self.writers.get(range_.writer)
        if proxy is not None and proxy.sets is None and range_.per_batch <= self._batch_samples_max:
            run = range_.run()
            if self._arrivals.take_next(proxy, (run,), now):
                self.counters.received_batches += range_.batches
                if proxy.reliable:
                    batches = proxy.batches or proxy.count_batches()
                    last = range_.last_batch_sn
                    batches.on_batch(last, proxy.expected - range_.per_batch, run.last_sn, waits=False)
                return True
        for batch in range_.apart():
            self.on_batch(batch, now=now)
        return False

    # --- fragments -------------------------------------------------------------------------------

    def on_data_frag(self, writer: Guid, frag: DataFrag, timestamp: int, *, now: int) -> None:
        """Fragments of one sample arrived; ``timestamp`` is the source timestamp in force."""
        self.touch()
        proxy = self.writers.get(writer)
        if proxy is None:
            self.counters.unknown_writer += 1
            return
        if proxy.resumed or frag.sn < proxy.expected:
            proxy = self._now(proxy, frag.sn, frag.sn, now)
        self.fragments.accept(proxy, frag, timestamp, now)

    def takes(self, range_: FragmentRange) -> bool:
        """Whether fragments make up whole samples that are the next ones in order, and no other rule applies."""
        proxy = self.writers.get(range_.writer)
        return proxy is not None and self.fragments.takes_whole(proxy, range_)

    def on_fragment_range(self, range_: FragmentRange, *, now: int) -> None:
        """Consecutive fragments arrived; the result equals processing each DATA_FRAG alone."""
        self.touch()
        proxy = self.writers.get(range_.writer)
        if proxy is None:
            self.counters.unknown_writer += range_.submessages
            return
        if proxy.resumed or range_.last_sn < proxy.expected:
            proxy = self._now(proxy, range_.first_sn, range_.last_sn, now)
        self.fragments.accept_range(proxy, range_, now)

    # --- what the writer announces ---------------------------------------------------------------

    def on_heartbeat(self, writer: Guid, heartbeat: Heartbeat, *, now: int) -> None:
        """The writer announces which samples it has (RTPS 2.5 §8.3.8.6)."""
        if (proxy := self._heartbeat(writer, heartbeat, now)) is not None:
            self._history.on_heartbeat(proxy, heartbeat, now)

    def on_heartbeat_batch(self, writer: Guid, heartbeat: HeartbeatBatch, *, now: int) -> None:
        """A writer of batches announces which batches and samples it has."""
        if (proxy := self._heartbeat(writer, heartbeat, now)) is not None:
            self._history.on_heartbeat_batch(proxy, heartbeat, now)

    def _heartbeat(self, writer: Guid, heartbeat: Heartbeat | HeartbeatBatch, now: int) -> WriterProxy | None:
        """The reliable writer of a new HEARTBEAT; None: it is not new, or not for this reader."""
        self.touch()
        proxy = self.writers.get(writer)
        if proxy is None:
            return None
        counts = proxy.heartbeat_batches if isinstance(heartbeat, HeartbeatBatch) else proxy.heartbeats
        if not counts.accept(heartbeat.count, now):
            self.counters.stale_counts += proxy.reliable
            return None
        if is_builtin(self.guid.entity):
            if heartbeat.last_sn < min(proxy.last_sn, proxy.expected - 1):
                if not counts.is_latest(heartbeat.count):
                    self.counters.stale_counts += 1  # later ones overtook it
                    return None
                # A participant restarted under its old GUID counts from 1 again, so this reader begins anew, too.
                proxy = self._begin_anew(proxy, now)
                proxy.heartbeats.accept(heartbeat.count, now)
        elif proxy.is_below_resumed(heartbeat.last_sn):
            if not proxy.has_begun_anew(now):
                return None
            proxy = self._begin_anew(proxy, now)
        return proxy if proxy.reliable else None

    def _now(self, proxy: WriterProxy, first_sn: int, last_sn: int, now: int) -> WriterProxy:
        """The proxy of a writer that sent first_sn..last_sn below the numbers known of it; a new one if it was
        restarted.

        A best-effort writer sends nothing twice: if it continues at lower numbers, it was restarted. A reliable one may
        repeat samples for other readers: these are counted as doubted, unless its last HEARTBEAT shows that it was not
        restarted, or its next HEARTBEATs will decide this.
        """
        if proxy.resting:
            return proxy
        has_gone_back = last_sn < proxy.expected and proxy.has_gone_back(first_sn, last_sn, now)
        if proxy.reliable:
            is_anew = False
            has_gone_back = has_gone_back and not proxy.resumed and proxy.last_sn < proxy.expected - 1
        elif proxy.is_below_resumed(last_sn):
            proxy.seen_below = proxy.seen_below or first_sn
            is_anew = proxy.has_begun_anew(now)
        else:
            proxy.seen_below, is_anew = proxy.back_first, has_gone_back
        if is_anew and not proxy.info.reliable:
            return self._begin_anew(proxy, now)
        if has_gone_back:
            self.counters.doubted_samples += proxy.back_count - proxy.announced_from
            proxy.announced_from = proxy.back_count
        return proxy

    def _begin_anew(self, proxy: WriterProxy, now: int) -> WriterProxy:
        """Forget the state of a writer from before its restart.

        Samples of a best-effort writer that were dropped until the restart was certain are lost.
        """
        self.unmatch_writer(proxy.guid)
        self._earlier.take_match(proxy.guid)
        self.match_writer(proxy.info, now=now)
        anew = self.writers[proxy.guid]
        if proxy.seen_below and not anew.reliable:
            self.delivery.sync(anew, proxy.seen_below)
        return anew

    def on_heartbeat_frag(self, writer: Guid, heartbeat: HeartbeatFrag, *, now: int) -> None:
        """The writer announces how much of a fragmented sample it has sent (RTPS 2.5 §8.3.8.7)."""
        self.touch()
        proxy = self.writers.get(writer)
        if proxy is not None and proxy.reliable:
            self._history.on_heartbeat_frag(proxy, heartbeat, now)

    def on_gap(self, writer: Guid, gap: Gap, *, now: int) -> None:
        """Some sequence numbers will never come (RTPS 2.5 §8.3.8.4)."""
        self.touch()
        if (proxy := self.writers.get(writer)) is not None:
            self._history.on_gap(proxy, gap, now)

    def on_rtt_measurement(self, writer: Guid, message: RttMeasurement, *, now: int) -> None:
        """The writer answered a measurement of the round trip time, or whether others wait for this reader."""
        self.touch()
        proxy = self.writers.get(writer)
        if proxy is not None and self.status.on_rtt_measurement(proxy, message, now):
            self.untethered.on_answer(proxy, others_wait=message.others_wait, now=now)

    # --- time and answers ------------------------------------------------------------------------

    @property
    def has_more_to_say(self) -> bool:
        """Whether something is to be sent as soon as acknowledgements are no longer held back."""
        return self._responder.is_responding

    def get_timer(self) -> int | None:
        """When :meth:`handle_timer` has to be called; None: not before something arrives."""
        timers = (self._responder.get_timer(), self.untethered.get_timer())
        return min((timer for timer in timers if timer is not None), default=None)

    def handle_timer(self, now: int) -> None:
        self.touch()
        self.untethered.handle_timer(now)
        self._responder.handle_timer(now)

    def outgoing(self) -> list[Outgoing]:
        """ACKNACKs, NACK_FRAGs and status messages to send now.

        They wait while the owner holds acknowledgements back, or has not taken all ready runs, except those to writers
        of other slices, of which the owner takes nothing.
        """
        hold = self.hold_acknowledgments or bool(self.delivery.ready)
        return self._responder.outgoing(hold=hold, room=self.delivery.window)
