"""The stateful reader: in order and complete from each writer, or best-effort as it comes (RTPS 2.5 §8.4.12).

Sans I/O: submessages in by ``on_…``, runs out by :meth:`StatefulReader.take`, datagrams out by
:meth:`StatefulReader.outgoing`. A run of the expected sequence number goes straight through, uncopied.

Invariants:
* per writer, the runs handed out have strictly rising sequence numbers, without a hole unless it is counted
  in ``lost_samples`` or ``irrelevant_samples``;
* nothing is acknowledged that the owner did not :meth:`~StatefulReader.take` (or is lost, or irrelevant), nor
  anything while it holds acknowledgements back;
* a run that does not fit ``window`` is not taken; its writer counts as *closed* until a window is set into
  which that run fits, and a closed writer is asked for nothing;
* a sample larger than ``sample_size_max`` is passed over, as if it were irrelevant.

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

from collections.abc import Mapping

import numpy as np

from ..errors import DecodeError
from ..limits import ENDPOINTS_PER_PARTICIPANT_MAX, FRAGMENTED_SAMPLE_MAX
from ..qos import Qos
from ..structure import INFINITE, Guid, is_builtin
from ..wire.samples import Run
from ..wire.submessages import DataFrag, Gap, Heartbeat, HeartbeatFrag
from .endpoint_info import WriterInfo
from .fragments import FragmentBudget, FragmentedSample
from .outgoing import Outgoing
from .policies import READER_POLICY, ReaderCounters, ReaderPolicy
from .reorder import ReorderBudget
from .responder import Responder
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
    ) -> None:
        self.guid = guid
        self.qos = qos
        self.policy = policy
        self.writers: dict[Guid, WriterProxy] = {}
        self.counters = ReaderCounters()
        #: Set by an owner whose samples are not safe yet: nothing is acknowledged or requested meanwhile.
        self.hold_acknowledgments = False
        #: Bytes of the largest sample the owner can take, encapsulation header included; it may lower it.
        self.sample_size_max = FRAGMENTED_SAMPLE_MAX
        self._delivered_before: dict[Guid, int] = dict(resume or {})
        self._window = INFINITE
        self._ready: list[Run] = []
        self._budget = FragmentBudget()
        self._reorder_budget = ReorderBudget()
        #: Writers one of whose runs did not fit, with the bytes it needs.
        self._closed: dict[Guid, int] = {}
        self._responder = Responder(guid.entity, policy, self.counters, self.writers, self._closed)

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
        proxy = WriterProxy(info, self._reorder_budget, reliable=reliable, expected=expected)
        self.writers[info.guid] = proxy
        if reliable:
            self._responder.introduce(proxy, now)

    def unmatch_writer(self, guid: Guid) -> None:
        """The writer is gone, and what it had announced or begun is lost with it. Should it come back, it goes
        on where it was, and may then still bring what was counted as lost.

        Not so those of discovery: a participant restarted under its old GUID begins it anew.
        """
        proxy = self.writers.pop(guid, None)
        if proxy is None:
            return
        self.counters.lost_samples += proxy.undelivered
        for sample in proxy.fragments.values():
            self._budget.release(sample)
        proxy.held.clear()
        self._closed.pop(guid, None)
        self._responder.forget(guid)
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
                self._responder.ask_at_once(proxy)

    def take(self) -> list[Run]:
        """Runs ready since the last call, in order per writer.

        They may view the receive buffer: valid until the next receive. Nothing is acknowledged while there
        are any.
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
            and run.data.nbytes <= self.sample_size_max
            and not proxy.held
            and not proxy.fragments
        ):
            proxy.expected += run.count
            self._window -= run.data.nbytes
            self.counters.received_samples += run.count
            self._ready.append(run)
            return
        if run.data.nbytes > self.sample_size_max:
            self._accept_small(proxy, run, now)
        else:
            self._accept(proxy, run, now)

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
        if sn < proxy.expected or sn in proxy.held:
            self.counters.duplicate_samples += 1
            return
        self.counters.oversized_samples += 1
        if not proxy.reliable:
            self.counters.lost_samples += sn - proxy.expected
            proxy.expected = sn
        self._pass(proxy, sn, sn)
        if proxy.synced:
            self._drain(proxy)
            self._responder.after_repair(proxy, now)
            if proxy.expected < sn:
                self._responder.suspect(proxy, sn, now + self.policy.reorder_delay)

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
                self._responder.after_repair(proxy, now)
                return
            self._close(proxy, run)
            proxy.last_sn = max(proxy.last_sn, run.last_sn)
            if owned:  # a reassembled sample is too dear to be sent again
                self._hold(proxy, run, owned=True)
        else:
            self._hold(proxy, run, owned=owned)
            if proxy.synced:
                self._responder.suspect(proxy, run.first_sn, now + self.policy.reorder_delay)

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
        if frag.sample_size > min(self.sample_size_max, FRAGMENTED_SAMPLE_MAX):
            self._pass_oversized(proxy, frag.sn, now)
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
            self._responder.suspect(proxy, frag.sn, now + self.policy.reorder_delay)

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
            self._responder.suspect(proxy, heartbeat.sn, now + self.policy.reorder_delay)
            proxy.last_sn = max(proxy.last_sn, heartbeat.sn)
        else:
            sample.announced = max(sample.announced, min(heartbeat.last_fragment, sample.fragments))
            self._responder.suspect(proxy, heartbeat.sn, now + self.policy.heartbeat_response_delay)

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
        if heartbeat.last_sn < min(proxy.last_sn, proxy.expected - 1) and is_builtin(self.guid.entity):
            # A participant restarted under its old GUID counts from the beginning again: so do we with it.
            self.unmatch_writer(writer)
            self.match_writer(proxy.info, now=now)
            proxy = self.writers[writer]
            proxy.heartbeats.accept(heartbeat.count, now)
        # Not the maximum: what a forged HEARTBEAT announced is taken back by the next true one.
        proxy.last_sn = heartbeat.last_sn
        if not proxy.synced:
            volatile = not proxy.info.transient_local
            self._sync(proxy, heartbeat.first_sn if volatile else heartbeat.last_sn + 1)
        if heartbeat.first_sn > proxy.first_sn:
            proxy.first_sn = heartbeat.first_sn
        if proxy.expected < proxy.first_sn or proxy.held:
            self._drain(proxy)
        proxy.counts_losses = True
        self._responder.on_heartbeat(proxy, final=heartbeat.final, now=now)

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
            self._pass(proxy, first, last)
        if proxy.synced:
            self._drain(proxy)
            self._responder.after_repair(proxy, now)

    def _pass(self, proxy: WriterProxy, first: int, last: int) -> None:
        """first..last will never come."""
        first = max(first, proxy.expected)
        if first > last:
            return
        if proxy.synced and first == proxy.expected and not proxy.held:
            self.counters.irrelevant_samples += last + 1 - first
            proxy.expected = last + 1
        elif proxy.reliable and not proxy.held.add_irrelevant(first, last):
            self.counters.gap_overflow += 1
            if proxy.synced and first == proxy.expected:
                proxy.expected = last + 1

    def _sync_at_data(self, proxy: WriterProxy, sn: int) -> None:
        if not proxy.reliable or (proxy.info.transient_local and not self.qos.is_transient_local):
            self._sync(proxy, sn)

    def _sync(self, proxy: WriterProxy, expected: int) -> None:
        proxy.synced = True
        proxy.expected = expected
        proxy.held.discard_below(expected)
        self._discard_fragments(proxy)

    # --- time and answers ------------------------------------------------------------------------

    def get_timer(self) -> int | None:
        """When :meth:`handle_timer` wants to be called; None: not before something arrives."""
        return self._responder.get_timer()

    def handle_timer(self, now: int) -> None:
        self._responder.handle_timer(now)

    def outgoing(self) -> list[Outgoing]:
        """ACKNACKs and NACK_FRAGs to send now; what would acknowledge runs not taken, or held back, waits."""
        return self._responder.outgoing(hold=self.hold_acknowledgments or bool(self._ready))
