"""The stateful reader: in order and complete from each writer, or best-effort as it comes (RTPS 2.5 §8.4.12).

Sans I/O: submessages in by ``on_…``, runs out by :meth:`StatefulReader.take`, datagrams out by
:meth:`StatefulReader.outgoing`. A run of the expected sequence number goes straight through, uncopied.

Invariants:
* per writer, the runs handed out have strictly rising sequence numbers, without a hole unless it is counted
  in ``lost_samples`` or ``irrelevant_samples``;
* nothing is acknowledged that was not put into :meth:`~StatefulReader.take` before (or is lost, or
  irrelevant): an owner that takes before it calls ``outgoing`` acknowledges only what it has;
* a run that does not fit ``window`` is not taken; its writer counts as *closed* until a window is set into
  which that run fits, and a closed writer is asked for nothing.

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

from collections.abc import Mapping

from ..errors import DecodeError
from ..limits import ENDPOINTS_PER_PARTICIPANT_MAX, MESSAGE_SIZE_MAX, NUMBER_SET_BITS
from ..qos import Qos
from ..structure import INFINITE, Guid, is_builtin
from ..wire.numbers import SequenceNumberSet
from ..wire.samples import Run
from ..wire.submessages import AckNack, DataFrag, Gap, Heartbeat, HeartbeatFrag, NackFrag
from .counts import next_count
from .fragments import FragmentBudget, FragmentedSample
from .outgoing import Outgoing, Packer
from .policies import READER_POLICY, ReaderCounters, ReaderPolicy
from .writer_proxy import WriterInfo, WriterProxy

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
    ) -> None:
        self.guid = guid
        self.qos = qos
        self.policy = policy
        self.writers: dict[Guid, WriterProxy] = {}
        self.counters = ReaderCounters()
        self._delivered_before: dict[Guid, int] = dict(resume or {})
        self._window = INFINITE
        self._ready: list[Run] = []
        self._budget = FragmentBudget()
        #: Writers one of whose runs did not fit, with the bytes it needs.
        self._closed: dict[Guid, int] = {}
        self._timers: dict[Guid, int] = {}
        self._responding: dict[Guid, WriterProxy] = {}

    # --- matching --------------------------------------------------------------------------------

    def match_writer(self, info: WriterInfo, *, now: int) -> None:
        """Begin, or go on with new locators, with a writer."""
        known = self.writers.get(info.guid)
        reliable = self.qos.is_reliable and info.reliable
        if known is not None and known.reliable == reliable:
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
        proxy = WriterProxy(info, reliable=reliable, expected=expected)
        proxy.nack_interval = self.policy.nack_period
        self.writers[info.guid] = proxy
        if reliable:
            proxy.preemptive_at = now
            self._preempt(proxy, now)

    def unmatch_writer(self, guid: Guid) -> None:
        """The writer is gone. Should it come back, it goes on where it was.

        Not so those of discovery: a participant restarted under its old GUID begins it anew.
        """
        proxy = self.writers.pop(guid, None)
        if proxy is None:
            return
        for sample in proxy.fragments.values():
            self._budget.release(sample)
        for table in (self._closed, self._timers, self._responding):
            table.pop(guid, None)
        if proxy.synced and not is_builtin(self.guid.entity):
            self._delivered_before[guid] = proxy.expected - 1
            if len(self._delivered_before) > ENDPOINTS_PER_PARTICIPANT_MAX:
                del self._delivered_before[next(iter(self._delivered_before))]

    # --- the owner's side ------------------------------------------------------------------------

    @property
    def window(self) -> int:
        """Bytes of runs the owner can take from now on; shrinks with each run put into :meth:`take`."""
        return self._window

    @window.setter
    def window(self, nbytes: int) -> None:
        self._window = nbytes
        for guid in [guid for guid, needed in self._closed.items() if needed <= nbytes]:
            proxy = self.writers[guid]
            if self._closed.get(guid, INFINITE) > self._window:
                continue  # what another writer had waiting took the room
            del self._closed[guid]
            self._drain(proxy)
            if guid not in self._closed:
                # At once: a timer in the past. There is no clock here.
                proxy.nacked, proxy.wants_ack = 0, True
                proxy.nack_limit, proxy.nack_at = proxy.announced, 0
                self._set_timer(proxy)

    def take(self) -> list[Run]:
        """Runs ready since the last call, in order per writer.

        They may view the receive buffer: valid until the next receive.
        """
        ready, self._ready = self._ready, []
        return ready

    # --- data ------------------------------------------------------------------------------------

    def on_run(self, run: Run, *, now: int) -> None:
        """A run of DATA arrived."""
        proxy = self.writers.get(run.writer)
        if proxy is None:
            self.counters.unknown_writer += run.count
            return
        if (
            run.first_sn == proxy.expected
            and proxy.synced
            and run.data.nbytes <= self._window
            and not proxy.held
            and not proxy.fragments
        ):
            proxy.expected += run.count
            self._window -= run.data.nbytes
            self.counters.received_samples += run.count
            self._ready.append(run)
            return
        self._accept(proxy, run, now)

    def _accept(self, proxy: WriterProxy, run: Run, now: int, *, owned: bool = False) -> None:
        """A run that is not simply the next one."""
        if not proxy.synced:
            self._sync_at_data(proxy, run.first_sn)
        if run.last_sn < proxy.expected:
            self.counters.duplicate_samples += run.count
            return
        if run.first_sn < proxy.expected:
            known = proxy.expected - run.first_sn
            self.counters.duplicate_samples += known
            run = run.take(known, run.count)
        if not proxy.reliable:
            self._deliver_best_effort(proxy, run)
        elif proxy.synced and run.first_sn == proxy.expected:
            if run.nbytes <= self._window:
                self._deliver(run)
                proxy.expected = run.last_sn + 1
                self._drain(proxy)
                self._after_repair(proxy, now)
                return
            self._close(proxy, run)
            proxy.last_sn = max(proxy.last_sn, run.last_sn)
            if owned:  # a reassembled sample is too dear to be sent again
                self._hold(proxy, run, owned=True)
        else:
            self._hold(proxy, run, owned=owned)
            if proxy.synced:
                self._suspect(proxy, run.first_sn, now + self.policy.reorder_delay)

    def _deliver(self, run: Run) -> None:
        self._window -= run.nbytes
        self.counters.received_samples += run.count
        self._ready.append(run)

    def _deliver_best_effort(self, proxy: WriterProxy, run: Run) -> None:
        if run.nbytes > self._window:
            self.counters.window_closed += run.count
            return
        self.counters.lost_samples += run.first_sn - proxy.expected
        self._deliver(run)
        proxy.expected = run.last_sn + 1
        self._discard_fragments(proxy)

    def _hold(self, proxy: WriterProxy, run: Run, *, owned: bool) -> None:
        new, kept, lost = proxy.held.add(run, owned=owned)
        self.counters.duplicate_samples += run.count - new
        self.counters.held_samples += kept
        self.counters.reorder_overflow += lost
        if lost:
            # Given up, not forgotten: it was announced, so it will be requested.
            proxy.last_sn = max(proxy.last_sn, run.last_sn)

    def _close(self, proxy: WriterProxy, run: Run) -> None:
        self.counters.window_closed += run.count
        self._closed[proxy.guid] = run.nbytes

    def _drain(self, proxy: WriterProxy) -> None:
        """Hand out what is held as far as it goes on from ``expected``; pass what will never come."""
        held, counters = proxy.held, self.counters
        while True:
            # First, so that what is held lies above ``expected``: each turn of the loop moves it up.
            counters.duplicate_samples += held.discard_below(proxy.expected)
            step = held.peek(proxy.expected)
            if step is None:
                if proxy.expected >= proxy.first_sn:
                    break
                # The writer no longer has what is missing before first_sn (RTPS 2.5 §8.4.12.2.6).
                skipped_to = min(proxy.first_sn, held.lowest) if held else proxy.first_sn
                if proxy.counts_losses:
                    counters.lost_samples += skipped_to - proxy.expected
                proxy.expected = skipped_to
                continue
            after, run = step
            if run is None:
                counters.irrelevant_samples += after - proxy.expected
            elif run.nbytes > self._window:
                self._close(proxy, run)
                break
            else:
                counters.irrelevant_samples += after - proxy.expected - run.count
                self._deliver(run)
                held.pop()
            proxy.expected = after
        self._discard_fragments(proxy)

    # --- fragments -------------------------------------------------------------------------------

    def on_data_frag(self, writer: Guid, frag: DataFrag, timestamp: int, *, now: int) -> None:
        """Fragments of one sample arrived; ``timestamp`` is the source timestamp in force."""
        proxy = self.writers.get(writer)
        if proxy is None:
            self.counters.unknown_writer += 1
            return
        self.counters.fragments += frag.fragments
        if not proxy.synced:
            self._sync_at_data(proxy, frag.sn)
        if frag.sn < proxy.expected or frag.sn in proxy.held:
            self.counters.duplicate_fragments += frag.fragments
            return
        sample = proxy.fragments.get(frag.sn) or self._start_fragmented(proxy, frag, timestamp, now)
        if sample is None:
            self.counters.fragment_overflow += 1
            return
        try:
            fits = sample.add(frag, now)
        except DecodeError:
            fits = False
        if not fits:
            self.counters.bad_fragments += 1
            if not sample.received:
                self._give_up_fragmented(proxy, frag.sn)
        elif sample.is_complete:
            self._give_up_fragmented(proxy, frag.sn)
            self._accept(proxy, sample.to_run(), now, owned=True)
        elif proxy.reliable and proxy.synced:
            # A request is being answered: what is missing when that falls silent is to be requested anew.
            proxy.nacked = min(proxy.nacked, frag.sn - 1)
            self._suspect(proxy, frag.sn, now + self.policy.reorder_delay)

    def _start_fragmented(
        self, proxy: WriterProxy, frag: DataFrag, timestamp: int, now: int
    ) -> FragmentedSample | None:
        while self._budget.admits(frag):
            sample, evicted = self._budget.start(proxy.guid, frag, timestamp, now)
            for old in evicted:
                self.writers[old.writer].fragments.pop(old.sn, None)
                self.counters.fragment_overflow += 1
            if sample is not None:
                proxy.fragments[frag.sn] = sample
                return sample
            # No room. A best-effort writer's oldest is the least likely to be finished; from a reliable one
            # the lowest is needed first.
            victim = None
            if proxy.fragments:
                victim = max(proxy.fragments) if proxy.reliable else min(proxy.fragments)
            if victim is None or (victim > frag.sn) != proxy.reliable:
                return None
            self._give_up_fragmented(proxy, victim)
            self.counters.fragment_overflow += 1
        return None

    def _give_up_fragmented(self, proxy: WriterProxy, sn: int) -> None:
        self._budget.release(proxy.fragments.pop(sn))

    def _discard_fragments(self, proxy: WriterProxy) -> None:
        if proxy.fragments:
            for sn in [sn for sn in proxy.fragments if sn < proxy.expected]:
                self._give_up_fragmented(proxy, sn)

    def on_heartbeat_frag(self, writer: Guid, heartbeat: HeartbeatFrag, *, now: int) -> None:
        """The writer says how much of a fragmented sample it has sent (RTPS 2.5 §8.3.8.7)."""
        proxy = self.writers.get(writer)
        if proxy is None or not proxy.reliable:
            return
        if not proxy.heartbeat_frags.accept(heartbeat.count, now):
            self.counters.stale_counts += 1
            return
        if not proxy.synced or heartbeat.sn < proxy.expected or heartbeat.sn in proxy.held:
            return
        sample = proxy.fragments.get(heartbeat.sn)
        if sample is None:
            self._suspect(proxy, heartbeat.sn, now + self.policy.reorder_delay)
            proxy.last_sn = max(proxy.last_sn, heartbeat.sn)
        else:
            sample.announced = max(sample.announced, min(heartbeat.last_fragment, sample.fragments))
            self._suspect(proxy, heartbeat.sn, now + self.policy.heartbeat_response_delay)

    # --- what the writer says about its history --------------------------------------------------

    def on_heartbeat(self, writer: Guid, heartbeat: Heartbeat, *, now: int) -> None:
        """The writer says what it has (RTPS 2.5 §8.3.8.6)."""
        proxy = self.writers.get(writer)
        if proxy is None or not proxy.reliable:
            return
        if heartbeat.first_sn < 1 or heartbeat.last_sn < heartbeat.first_sn - 1:
            self.counters.bad_heartbeats += 1
            return
        if not proxy.heartbeats.accept(heartbeat.count, now):
            self.counters.stale_counts += 1
            return
        self.counters.heartbeats += 1
        # Not the maximum: what a forged HEARTBEAT announced is taken back by the next true one.
        proxy.last_sn = heartbeat.last_sn
        if not proxy.synced:
            volatile = not proxy.info.transient_local
            self._sync(proxy, heartbeat.first_sn if volatile else heartbeat.last_sn + 1)
        if heartbeat.first_sn > proxy.first_sn:
            proxy.first_sn = heartbeat.first_sn
        if proxy.expected < proxy.first_sn or proxy.held:
            self._drain(proxy)
        proxy.heard = proxy.counts_losses = True
        if proxy.preemptive_at != INFINITE:
            proxy.preemptive_at = INFINITE
            self._set_timer(proxy)
        self._respond_to_heartbeat(proxy, heartbeat, now)

    def _respond_to_heartbeat(self, proxy: WriterProxy, heartbeat: Heartbeat, now: int) -> None:
        """RTPS 2.5 §8.4.12.2.5: acknowledge at once, request what is missing a little later."""
        hole = next(proxy.missing_changes(proxy.expected, proxy.announced), None)
        if proxy.guid in self._closed or hole is None:
            if not heartbeat.final:
                self._respond(proxy, now).wants_ack = True
            return
        if hole[0] <= proxy.held.highest or hole[0] in proxy.fragments:
            limit = max(proxy.held.highest, hole[0])
            self._suspect(proxy, limit, now + self.policy.heartbeat_response_delay)
        else:
            self._suspect(proxy, proxy.announced, now + self.policy.reorder_delay)
        if not heartbeat.final and proxy.expected != proxy.acked_base:
            self._respond(proxy, now).wants_ack = True

    def on_gap(self, writer: Guid, gap: Gap, *, now: int) -> None:
        """Some sequence numbers will never come (RTPS 2.5 §8.3.8.4)."""
        proxy = self.writers.get(writer)
        if proxy is None or gap.start_sn < 1 or gap.irrelevant.base < gap.start_sn:
            return
        self.counters.gaps += 1
        ranges = gap.irrelevant.ranges()
        if gap.start_sn < gap.irrelevant.base:
            ranges.insert(0, (gap.start_sn, gap.irrelevant.base - 1))
        for first, last in ranges:
            first = max(first, proxy.expected)
            if first > last:
                continue
            if proxy.synced and (first == proxy.expected and not proxy.held):
                self.counters.irrelevant_samples += last + 1 - first
                proxy.expected = last + 1
            elif proxy.reliable and not proxy.held.add_irrelevant(first, last):
                self.counters.gap_overflow += 1
                if proxy.synced and first == proxy.expected:
                    proxy.expected = last + 1
        if proxy.synced:
            self._drain(proxy)
            self._after_repair(proxy, now)

    def _sync_at_data(self, proxy: WriterProxy, sn: int) -> None:
        if not proxy.reliable or (proxy.info.transient_local and not self.qos.is_transient_local):
            self._sync(proxy, sn)

    def _sync(self, proxy: WriterProxy, expected: int) -> None:
        proxy.synced = True
        proxy.expected = expected
        proxy.held.discard_below(expected)
        self._discard_fragments(proxy)

    # --- when to speak ---------------------------------------------------------------------------

    def _suspect(self, proxy: WriterProxy, limit: int, at: int) -> None:
        """Have what is missing up to ``limit`` requested at ``at``, or sooner if that is due already.

        A later suspicion never moves the limit of one that waits: else a steady stream, whose end is always
        on its way, would be requested without need.
        """
        if proxy.nack_at == INFINITE:
            proxy.nack_limit, proxy.nack_at = limit, at
        elif at < proxy.nack_at:
            proxy.nack_limit, proxy.nack_at = max(limit, proxy.nack_limit), at
        else:
            return
        self._set_timer(proxy)

    def _after_repair(self, proxy: WriterProxy, now: int) -> None:
        """All that was requested has come: go on with the rest without waiting for the repetition."""
        if proxy.nacked and proxy.expected > proxy.nacked and proxy.held:
            proxy.nacked = 0
            self._suspect(proxy, proxy.held.highest, now + self.policy.heartbeat_response_delay)

    def _set_timer(self, proxy: WriterProxy) -> None:
        at = proxy.timer
        if at == INFINITE:
            self._timers.pop(proxy.guid, None)
        else:
            self._timers[proxy.guid] = at

    def get_timer(self) -> int | None:
        """When :meth:`handle_timer` wants to be called; None: not before something arrives."""
        return min(self._timers.values(), default=None)

    def handle_timer(self, now: int) -> None:
        for guid in [guid for guid, at in self._timers.items() if at <= now]:
            proxy = self.writers[guid]
            if proxy.preemptive_at <= now:
                self._preempt(proxy, now)
            if proxy.nack_at <= now:
                self._nack(proxy, now)
            self._set_timer(proxy)

    def _preempt(self, proxy: WriterProxy, now: int) -> None:
        """Say that we are there, so that the writer answers with a HEARTBEAT (RTPS 2.5 §8.4.12.2.4)."""
        self._respond(proxy, now).wants_preemptive = True
        wait = self.policy.preemptive_period << min(proxy.preemptive_tries, 16)
        proxy.preemptive_at = now + min(wait, self.policy.preemptive_period_max)
        proxy.preemptive_tries += 1
        self._set_timer(proxy)

    def _nack(self, proxy: WriterProxy, now: int) -> None:
        """Request what is missing, as far as it is not requested already."""
        if proxy.wants_ack:
            self._respond(proxy, now)
        limit, proxy.nack_at = proxy.nack_limit, INFINITE
        if proxy.guid in self._closed or not proxy.is_missing:
            return
        policy = self.policy
        first = proxy.expected
        last = min(limit, proxy.announced, first + NUMBER_SET_BITS - 1)
        if proxy.nacked < first:
            proxy.nack_interval = policy.nack_period
        elif now < proxy.nacked_at + proxy.nack_interval:
            first = proxy.nacked + 1  # the rest is requested, and may be on its way
        elif proxy.nacked_base == proxy.expected:
            proxy.nack_interval = min(proxy.nack_interval * 2, policy.nack_period_max)
        if next(proxy.missing_changes(first, last), None) is not None and self._request(
            proxy, first, last, now
        ):
            self._respond(proxy, now).requested = (first, last)
            proxy.nacked, proxy.nacked_at, proxy.nacked_base = last, now, proxy.expected
        if proxy.nacked < proxy.expected:
            again = now + policy.reorder_delay
        else:
            again = max(proxy.nacked_at + proxy.nack_interval, now + policy.heartbeat_response_delay)
        self._suspect(proxy, proxy.announced, again)

    def _request(self, proxy: WriterProxy, first: int, last: int, now: int) -> bool:
        """Note the fragments to request; False when all that is missing are fragments still on their way."""
        policy = self.policy
        useful = False
        for a, b in proxy.missing_changes(first, last):
            if b - a >= len(proxy.fragments) or any(sn not in proxy.fragments for sn in range(a, b + 1)):
                useful = True
        for sn, sample in proxy.fragments.items():
            if first <= sn <= last:
                sent = sn <= proxy.last_sn
                quiet = policy.heartbeat_response_delay if sent else policy.reorder_delay
                up_to = sample.fragments if now - sample.touched >= quiet else sample.announced
                if sample.missing(up_to) is not None:
                    proxy.requested_fragments[sn] = up_to
                    useful = True
        return useful

    def _respond(self, proxy: WriterProxy, now: int) -> WriterProxy:
        if proxy.guid not in self._responding:
            self._responding[proxy.guid] = proxy
            proxy.acknack_count = next_count(proxy.acknack_count, now)
        return proxy

    # --- out -------------------------------------------------------------------------------------

    def outgoing(self) -> list[Outgoing]:
        """ACKNACKs and NACK_FRAGs to send now. Take the ready runs first: this acknowledges them."""
        if not self._responding:
            return []
        out: list[Outgoing] = []
        responding, self._responding = self._responding, {}
        for proxy in responding.values():
            out += self._response(proxy)
        return out

    def _response(self, proxy: WriterProxy) -> list[Outgoing]:
        me, it, counters = self.guid.entity, proxy.guid.entity, self.counters
        packer = Packer(MESSAGE_SIZE_MAX, proxy.info.destinations, proxy.guid.prefix)
        count = proxy.acknack_count
        if proxy.wants_preemptive and not proxy.heard:
            # Cyclone DDS answers base 1 and count >= 1, and throws base 0 away with a warning; Fast DDS answers
            # base 0 only, but has sent a HEARTBEAT at the match: try that late.
            tries = proxy.preemptive_tries
            base = 0 if tries > 5 and tries % 2 == 0 else 1
            packer.add(AckNack(me, it, SequenceNumberSet(base), count, final=False).encode())
            counters.acknacks_sent += 1
        elif proxy.synced:
            state = proxy.reader_sn_state()
            if proxy.wants_ack or not state.is_empty:
                packer.add(AckNack(me, it, state, count, final=state.is_empty).encode())
                proxy.acked_base = proxy.expected
                counters.acknacks_sent += 1
                counters.nacks_sent += not state.is_empty
            for sn, up_to in proxy.requested_fragments.items():
                sample = proxy.fragments.get(sn)
                missing = None if sample is None else sample.missing(up_to)
                if missing is not None:
                    proxy.nack_frag_count = max(proxy.nack_frag_count + 1, count)
                    packer.add(NackFrag(me, it, sn, missing, proxy.nack_frag_count).encode())
                    counters.nack_frags_sent += 1
        proxy.wants_ack = proxy.wants_preemptive = False
        proxy.requested = (1, 0)
        proxy.requested_fragments = {}
        return packer.packed
