"""The stateful writer: sends once to all, again what is missed, holds back when it must (RTPS 2.5 §8.4.9).

Sans I/O: samples come in by :meth:`StatefulWriter.write`, ACKNACKs by :attr:`StatefulWriter.feedback`, datagrams leave
by :meth:`StatefulWriter.outgoing`. Costs are per block of samples (about a datagram), never per sample.

Invariants:
* ``write`` adds only what the send window (:mod:`.readers.send_window`) has room for;
* what an ACKNACK makes us send goes to the reader's announced locators, and is bounded (:mod:`.repair.repairs`).

The stages, each a package, in the order in which a sample passes them::

    intake        admits samples, gathers them into batches (batching) and frames them as changes (changes)
    publication   keeps changes for repairs and late joiners, in a log if there is one, until they may be sent
    sending       sends each change once to all matched readers, and HEARTBEATs
    readers       knows what each reader has, and with flow how far the readers let the writer go
    repair        sends again what a reader requests

What they have to agree on is in :mod:`.state`; what readers report comes in by :mod:`.feedback`.

Sequence numbers start at ``first_sn``: a writer that may be restarted under the same GUID begins above what it
used before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...errors import UsageError
from ...limits import MESSAGE_SIZE_MAX
from ...qos import Qos
from ...structure import Guid
from ...wire.samples import U8, Samples, check_timestamp
from ..endpoint_info import ReaderInfo
from ..outgoing import Outgoing
from ..policies import BATCH_POLICY, WRITER_POLICY, BatchPolicy, FlowControlPolicy, WriterPolicy
from .batching import FlushReason, Interceptor, PendingBatch
from .changes import DATA
from .feedback import Feedback
from .flow import FlowControl
from .intake import (
    Admission,
    CoherentSets,
    Framer,
    Intake,
    OfferedDeadline,
    SampleClaims,
    batcher_of,
)
from .publication import MessageLog, UnsentChanges, WriterHistory
from .readers import Acknowledgments, MatchedReaders
from .repair import Repairs, Requests
from .sending import Broadcast, Compressor, Sender
from .state import WriterState

_FRAGMENT_SIZE_MIN = 64


class StatefulWriter:
    """One local writer, its history and its matched readers.

    What belongs to a part of it is asked of that part: ``readers`` (all matched ones, by GUID), ``history``,
    ``positions``, ``window``, ``pacing``, ``activity``, ``intake``, ``admission``, ``claims``, ``coherent_sets`` and
    ``feedback``.
    """

    def __init__(
        self,
        guid: Guid,
        qos: Qos,
        *,
        policy: WriterPolicy = WRITER_POLICY,
        batch: BatchPolicy = BATCH_POLICY,
        coalescing: bool = True,
        interceptor: Interceptor | None = None,
        message_size: int = MESSAGE_SIZE_MAX,
        first_sn: int = 1,
        flow_control: FlowControl | None = None,
        multicast_flow_control: FlowControl | None = None,
        log: MessageLog | None = None,
    ) -> None:
        """``flow_control`` paces the writer, by default the slowest reader does, and ``multicast_flow_control`` does
        while it sends to a group, if there is one; ``log`` holds what is published."""
        if log is not None and log.path is not None:
            # Readers on this host hold the publisher back by their positions (Aeron's IPC window).
            window = max(policy.window_bytes, log.term_length // 2)
            policy = replace(policy, send_window_bytes=window)
        self.guid = guid
        self.qos = qos
        self.policy = policy
        flow_control = flow_control or FlowControl(FlowControlPolicy())
        #: What the parts have to agree on.
        self.state = state = WriterState(
            guid,
            qos,
            policy,
            batch,
            # A whole message has to fit a frame of the log.
            message_size=message_size if log is None else min(message_size, log.max_message_length),
            first_sn=first_sn,
        )
        self.counters = state.counters
        #: What can still be sent again.
        self.history = history = WriterHistory(state)
        self._unsent = unsent = UnsentChanges(state, history, flow_control.policy, log)
        #: How far is published and sent, and how far it may be.
        self.positions = unsent.positions
        #: What the reliable readers have, and what follows from it.
        self._acks = acks = Acknowledgments(state, history, unsent, flow_control)
        #: What is in flight, how far readers let the writer go, and which of them are waited for.
        self.window = acks.window
        self.pacing = acks.pacing
        self.pacing.of_groups = multicast_flow_control
        self.activity = acks.activity
        broadcast = Broadcast(
            guid.entity, state.message_size, coalescing=coalescing, compressor=Compressor.for_policy(batch)
        )
        self._matched = matched = MatchedReaders(state, broadcast.redirect)
        if matched.framing.fragment_size < _FRAGMENT_SIZE_MIN:
            raise UsageError(f"message_size {message_size} is too small: set 576, which fits every network")
        #: All that are matched.
        self.readers = matched.proxies
        self._sender = sender = Sender(state, history, unsent, self.readers, acks, broadcast)
        self._heartbeats = heartbeats = sender.heartbeats
        repairs = Repairs(state, history, budget=matched.framing.budget)
        self._requests = Requests(state, self.readers, repairs, heartbeats, sender.queue)
        #: Where reports of readers go.
        self.feedback = Feedback(state, history, unsent, matched, acks, self._requests, sender)
        #: Whether something was seen to wait for tokens.
        self._waits = False
        batcher = batcher_of(state, matched, interceptor)
        self.admission = Admission(state, batcher, history, unsent, matched, acks, sender)
        self.intake = Intake(batcher, matched, self.admission)
        self._framer = Framer(state, history, unsent, matched, acks.window, acks.pacing, broadcast)
        self._deadline = OfferedDeadline(qos.deadline)
        self.coherent_sets = CoherentSets(
            state, history, unsent, matched, acks, sender, self.intake, self._flush_for_set
        )
        self.claims = SampleClaims(
            state,
            history,
            unsent,
            matched,
            acks,
            sender,
            self.admission,
            self._deadline,
            self.feedback.expire,
            timeout=flow_control.policy.unblock_timeout,
            flush=self._flush_for_claim,
        )

    @property
    def touch(self) -> Callable[[], None]:
        """Called when something is done to the writer (:mod:`..agenda`)."""
        return self.state.touch

    @touch.setter
    def touch(self, touch: Callable[[], None]) -> None:
        self.state.touch = touch

    @property
    def batch(self) -> BatchPolicy:
        """BATCH cannot be changed once the writer is enabled, which it is from the beginning."""
        return self.state.batch

    def heartbeat(self, now: int) -> bytes:
        """A HEARTBEAT for a reader that is not matched yet, and must answer if it knows the writer."""
        return self._heartbeats.to_all(DATA, self._heartbeats.next(now))

    @property
    def channel(self) -> str:
        """How samples are sent now: by ``multicast`` to some readers at least, or by ``unicast``."""
        return "multicast" if self.pacing.is_multicast else "unicast"

    @property
    def last_sn(self) -> int:
        """The sequence number of the newest sample; below ``first_sn`` if there is none."""
        return self.state.last_sn

    @property
    def next_frame(self) -> int:
        """Where in its publication log the frame begins that is to be sent next."""
        return self._unsent.next_frame

    # --- matching --------------------------------------------------------------------------------

    def match_reader(self, info: ReaderInfo, *, now: int) -> None:
        """Begin, or go on with new locators, with a reader."""
        self.state.touch()
        if self._matched.update(info):
            return
        self.unmatch_reader(info.guid)
        proxy = self._matched.add_reader(info)
        try:
            if proxy.reliable:
                self._acks.add_reader(proxy, now)
                self.feedback.expire(now)
                self._heartbeats.send_to((proxy,), now)
        finally:
            self.feedback.connect()

    def unmatch_reader(self, guid: Guid) -> None:
        """The reader is gone: nothing waits for it any more."""
        self.state.touch()
        if (proxy := self._matched.remove_reader(guid)) is None:
            return
        self._requests.forget_reader(guid)
        self._acks.remove_reader(proxy)
        self.feedback.progress(self.state.written_at)  # what waited for it alone

    # --- writing ---------------------------------------------------------------------------------

    def write_samples(
        self,
        samples: Samples,
        *,
        timestamp: int,
        now: int,
        flags: int = 0,
        key_hashes: U8 | None = None,
        wall_clock: int | None = None,
    ) -> int:
        """Write samples from the front; returns how many were taken.

        ``timestamp`` (ns since the epoch) is the source timestamp of all, ``flags`` the sample flags of all,
        ``key_hashes`` (n, 16) their instances; ``wall_clock`` is the time of day at ``now``, which LIFESPAN compares
        source timestamps with, and by default the timestamp. Fewer than all: back-pressure, the rest is to be offered
        again after acknowledgements. With batching, what is taken may wait in the batch in progress. Raises UsageError
        for a payload whose length is not a multiple of 4, for a timestamp that RTPS cannot carry, and for a coherent
        set that is too large.
        """
        count, batches = self.queue(
            samples, timestamp=timestamp, now=now, flags=flags, key_hashes=key_hashes, wall_clock=wall_clock
        )
        self.send(batches, now=now)
        return count

    def write_to(self, reader: Guid, samples: Samples, *, timestamp: int, now: int) -> int:
        """:meth:`write` for one matched reader alone: to all others that lack nothing it is irrelevant.

        Those that do lack something may be sent it with that.
        """
        proxy = self.readers[reader]
        if proxy.reliable:
            self._heartbeats.send_to((proxy,), now)  # it announces where the reader goes on
        others = [each for each in self.readers.values() if each is not proxy]
        up_to_date = [each for each in others if each.acked >= self.last_sn]
        self._matched.address_one(proxy)
        try:
            count = self.write_samples(samples, timestamp=timestamp, now=now)
        finally:
            self._matched.address_all()
        self._acks.irrelevant(up_to_date, now)
        return count

    def queue(
        self,
        samples: Samples,
        *,
        timestamp: int,
        now: int,
        flags: int = 0,
        key_hashes: U8 | None = None,
        whole: bool = False,
        wall_clock: int | None = None,
    ) -> tuple[int, list[PendingBatch]]:
        """The first half of :meth:`write`: how many were taken, and what is to be handed to :meth:`send`.

        ``whole``: all of them or none.
        """
        self.state.touch()
        if samples.size % 4 or (samples.lengths is not None and (samples.lengths % 4).any()):
            raise UsageError("a payload is not padded to a multiple of 4 bytes: append the missing bytes")
        check_timestamp(timestamp)
        self.state.written_stamp, self.state.written_at = timestamp, now
        self.history.lifespan.note_time(timestamp if wall_clock is None else wall_clock, now)
        self.feedback.expire(now)  # it may make room
        return self.intake.take_samples(
            samples, timestamp=timestamp, now=now, flags=flags, key_hashes=key_hashes, whole=whole
        )

    def send(
        self, batches: Sequence[PendingBatch], *, now: int, hand_over: Callable[[], object] | None = None
    ) -> None:
        """Send what :meth:`queue` returned; ``hand_over`` may be called when :meth:`outgoing` has much."""
        self.state.touch()
        before = self.state.last_sn
        try:
            if self.history.lifespan.is_finite:
                self.feedback.expire(now)
            for batch in batches:
                for each in self._framer.together(batch):
                    self._send_pending(each, now, hand_over)
            self.intake.sent()
        except BaseException:
            # Samples of writes that have returned are among them.
            self.intake.put_back(batches, self.state.last_sn - before)
            raise
        self.admission.conclude(now, wrote=bool(batches))
        if self._unsent.queue:
            self.feedback.progress(now)  # what a reader held up that is now known to be silent

    def resume(self, *, now: int) -> None:
        """What :meth:`send` made is on its way now: the time that took is not the user's."""
        self.intake.resume(now)

    def flush_batch(
        self, *, now: int, reason: FlushReason = FlushReason.FLUSH, compress: bool | None = None
    ) -> None:
        """Send the batch in progress; ``compress``: whether with the policy's codec, None: by its size."""
        self.state.touch()
        if batches := self.intake.flush_batch(reason):
            if compress is not None:
                batches = [replace(batch, compress=compress) for batch in batches]
            self.send(batches, now=now)

    def finish(self, *, now: int) -> None:
        """The writer is about to leave: give up what is claimed, and send the batch in progress."""
        self.claims.abort_all(now)
        self.flush_batch(now=now)

    def _flush_for_set(self, now: int) -> None:
        self.flush_batch(now=now, reason=FlushReason.COHERENT_SET)

    def _flush_for_claim(self, now: int) -> None:
        self.flush_batch(now=now)

    def _send_pending(self, pending: PendingBatch, now: int, hand_over: Callable[[], object] | None) -> None:
        """Number, frame, keep and send samples that go together."""
        first_sn = self.state.last_sn + 1
        if pending.key_hashes is not None and (keep_last := self.history.keep_last) is not None:
            keep_last.expect(first_sn, pending.key_hashes, pending.flags)
        try:
            self._sender.write_changes(self._framer.changes(pending), pending.count, now, hand_over)
        finally:  # of what has got numbers, if there was an exception
            self._note_written(pending, first_sn, now)

    def _note_written(self, pending: PendingBatch, first_sn: int, now: int) -> None:
        if (keep_last := self.history.keep_last) is not None:
            keep_last.note_numbered()
        if count := self.state.last_sn + 1 - first_sn:
            key_hashes = None if pending.key_hashes is None else pending.key_hashes[:count]
            flags = pending.flags if isinstance(pending.flags, int) else pending.flags[:count]
            if self._deadline.is_finite:
                self._deadline.written(key_hashes, flags, now)
            self._acks.written(now)

    # --- time ------------------------------------------------------------------------------------

    @property
    def has_more_to_say(self) -> bool:
        """After :meth:`outgoing`: no."""
        return False

    def get_timer(self) -> int | None:
        """When :meth:`handle_timer` wants to be called; None: not before something happens."""
        timers = [self._acks.get_timer(), self._deadline.get_timer(), self.history.lifespan.get_timer()]
        timers += [self.intake.get_timer(), self.claims.get_timer()]
        if not self.state.is_congested:
            timers.append(self._acks.schedule.get_timer())
            timers.append(self._requests.get_timer())
        return min((timer for timer in timers if timer is not None), default=None)

    def handle_timer(self, now: int) -> None:
        """Do what has become due."""
        self.state.touch()
        self.feedback.expire(now)
        self.counters.offered_deadline_missed += self._deadline.missed(now)
        self._acks.handle_timer(now)
        if batches := self.intake.handle_timer(now):
            self.send(batches, now=now)
        self.claims.handle_timer(now)
        if not self.state.is_congested:
            self._requests.handle_timer(now)
            self._heartbeats.send_to(self._acks.due(now), now)
        self.feedback.progress(now)

    # --- acknowledgments -------------------------------------------------------------------------

    def unacknowledged(self, sn: int | None = None) -> dict[Guid, int]:
        """Reliable, active readers that lack something up to ``sn`` (default: all written), each with the
        highest sequence number it has acknowledged."""
        return self._acks.unacknowledged(self.last_sn if sn is None else sn)

    @property
    def unacknowledged_bytes(self) -> int:
        """What was written and is waited for, in bytes as framed."""
        return self.window.nbytes

    def request_acknowledgment(self, now: int) -> None:
        """Ask every reader that is behind to acknowledge, now."""
        self.state.touch()
        self._acks.await_all(now)
        self._heartbeats.request_acknowledgment(now)

    # --- out -------------------------------------------------------------------------------------

    def waits(self, backlog: int, now: int) -> None:
        """What waits for tokens has changed: it is ``backlog`` bytes now (:mod:`.asynchronous`)."""
        waited, self._waits = self._waits, backlog > 0
        self.state.backlog = backlog
        self.state.touch()
        if waited and not backlog:
            self._acks.left(now)

    def outgoing(self) -> list[Outgoing]:
        """What to send now."""
        return self._sender.outgoing()

    def assert_liveliness(self, now: int) -> None:
        """Announce to all readers that this MANUAL_BY_TOPIC writer lives."""
        self.state.touch()
        self._heartbeats.assert_liveliness(now)
