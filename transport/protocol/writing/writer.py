"""The stateful writer: sends samples to all readers, repairs losses, and applies back-pressure (RTPS 2.5 §8.4.9).

Sans I/O: samples come in by :meth:`StatefulWriter.write_samples`, ACKNACKs by :attr:`StatefulWriter.feedback`,
datagrams leave by :meth:`StatefulWriter.outgoing`. Costs are per block of samples (about a datagram), never per sample.

Invariants:
* ``write_samples`` takes no more samples than the send window (:mod:`.readers.send_window`) has capacity for;
* repairs go to the reader's announced locators, and are bounded (:mod:`.repair.repairs`).

The stages, each a package, in the order in which a sample passes them::

    intake        admits samples, gathers them into batches (batching) and frames them as changes (changes)
    publication   queues changes until they may be sent, and keeps them for repairs and late joiners, in a log if any
    sending       sends each change once to all matched readers, and HEARTBEATs
    readers       tracks what each reader has acknowledged; with flow it decides how far the writer may send
    repair        sends samples again that a reader requests

The stages share :mod:`.state`; reports of readers come in by :mod:`.feedback`.

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

    Its parts are public, and callers use them directly: ``readers`` (all matched ones, by GUID), ``history``,
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
        """``flow_control`` paces the writer; by default the slowest reader does. ``multicast_flow_control`` replaces it
        while the writer sends to a multicast group. ``log`` holds the published samples."""
        if log is not None and log.path is not None:
            # Readers on this host hold the publisher back by their positions (Aeron's IPC window).
            window = max(policy.window_bytes, log.term_length // 2)
            policy = replace(policy, send_window_bytes=window)
        self.guid = guid
        self.qos = qos
        self.policy = policy
        flow_control = flow_control or FlowControl(FlowControlPolicy())
        #: The state that the parts share.
        self.state = state = WriterState(
            guid,
            qos,
            policy,
            batch,
            # A whole message must fit a frame of the log.
            message_size=message_size if log is None else min(message_size, log.max_message_length),
            first_sn=first_sn,
        )
        self.counters = state.counters
        #: Samples that can still be sent again.
        self.history = history = WriterHistory(state)
        self._unsent = unsent = UnsentChanges(state, history, flow_control.policy, log)
        #: Positions up to which samples are, and may be, published and sent.
        self.positions = unsent.positions
        #: What the reliable readers have acknowledged.
        self._acks = acks = Acknowledgments(state, history, unsent, flow_control)
        #: Samples in flight, the limit that readers set, and which readers are waited for.
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
        #: All matched readers.
        self.readers = matched.proxies
        self._sender = sender = Sender(state, history, unsent, self.readers, acks, broadcast)
        self._heartbeats = heartbeats = sender.heartbeats
        repairs = Repairs(state, history, budget=matched.framing.budget)
        self._requests = Requests(state, self.readers, repairs, heartbeats, sender.queue)
        #: Takes the reports of readers.
        self.feedback = Feedback(state, history, unsent, matched, acks, self._requests, sender)
        #: Whether datagrams waited for tokens at the last look.
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
        """Called when the writer's timers may have changed (:mod:`..agenda`)."""
        return self.state.touch

    @touch.setter
    def touch(self, touch: Callable[[], None]) -> None:
        self.state.touch = touch

    @property
    def batch(self) -> BatchPolicy:
        """The BATCH policy, which is fixed: it cannot change once a writer is enabled, and writers start enabled."""
        return self.state.batch

    def heartbeat(self, now: int) -> bytes:
        """A HEARTBEAT for a reader that is not matched yet; the reader must answer if it has matched the writer."""
        return self._heartbeats.to_all(DATA, self._heartbeats.next(now))

    @property
    def channel(self) -> str:
        """How samples are sent now: ``multicast`` if at least some readers get them by a group, else ``unicast``."""
        return "multicast" if self.pacing.is_multicast else "unicast"

    @property
    def last_sn(self) -> int:
        """The sequence number of the newest sample; below ``first_sn`` if there is none."""
        return self.state.last_sn

    @property
    def next_frame(self) -> int:
        """Position in the publication log where the next frame to be sent begins."""
        return self._unsent.next_frame

    # --- matching --------------------------------------------------------------------------------

    def match_reader(self, info: ReaderInfo, *, now: int) -> None:
        """Match a reader, or update the locators of one that is matched."""
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
        """Forget a reader: nothing waits for it any more."""
        self.state.touch()
        if (proxy := self._matched.remove_reader(guid)) is None:
            return
        self._requests.forget_reader(guid)
        self._acks.remove_reader(proxy)
        self.feedback.progress(
            self.state.written_at
        )  # the reader may have been the only one that was waited for

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

        ``timestamp`` (ns since the epoch) is the source timestamp of all samples, ``flags`` are the sample flags of
        all, ``key_hashes`` (n, 16) name their instances. ``wall_clock`` is the time of day at ``now``, with which
        LIFESPAN compares source timestamps; the default is ``timestamp``. If fewer than all samples are taken
        (back-pressure), offer the rest again after acknowledgements. With batching, samples that are taken may wait in
        the batch in progress. Raises UsageError for a payload whose length is not a multiple of 4, for a timestamp that
        RTPS cannot carry, and for a coherent set that is too large.
        """
        count, batches = self.queue(
            samples, timestamp=timestamp, now=now, flags=flags, key_hashes=key_hashes, wall_clock=wall_clock
        )
        self.send(batches, now=now)
        return count

    def write_to(self, reader: Guid, samples: Samples, *, timestamp: int, now: int) -> int:
        """:meth:`write_samples` for one matched reader: the samples are irrelevant to all others that are up to date.

        Readers that still lack earlier samples may receive these too.
        """
        proxy = self.readers[reader]
        if proxy.reliable:
            self._heartbeats.send_to((proxy,), now)  # it announces where the reader continues
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
        """The first half of :meth:`write_samples`; returns how many samples were taken, and the batches to
        :meth:`send`.

        ``whole``: take all samples or none.
        """
        self.state.touch()
        if samples.size % 4 or (samples.lengths is not None and (samples.lengths % 4).any()):
            raise UsageError("a payload is not padded to a multiple of 4 bytes: append the missing bytes")
        check_timestamp(timestamp)
        self.state.written_stamp, self.state.written_at = timestamp, now
        self.history.lifespan.note_time(timestamp if wall_clock is None else wall_clock, now)
        self.feedback.expire(now)  # it may free capacity
        return self.intake.take_samples(
            samples, timestamp=timestamp, now=now, flags=flags, key_hashes=key_hashes, whole=whole
        )

    def send(
        self, batches: Sequence[PendingBatch], *, now: int, hand_over: Callable[[], object] | None = None
    ) -> None:
        """Send the batches that :meth:`queue` returned; ``hand_over`` may be called while more is framed, so that the
        caller can send :meth:`outgoing` early."""
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
            # The batches may hold samples of writes that have already returned.
            self.intake.put_back(batches, self.state.last_sn - before)
            raise
        self.admission.conclude(now, wrote=bool(batches))
        if self._unsent.queue:
            self.feedback.progress(now)  # a reader that held the queue up may now count as silent

    def resume(self, *, now: int) -> None:
        """The datagrams of :meth:`send` have left: turbo mode does not count that time as a pause of the user's."""
        self.intake.resume(now)

    def flush_batch(
        self, *, now: int, reason: FlushReason = FlushReason.FLUSH, compress: bool | None = None
    ) -> None:
        """Send the batch in progress. ``compress``: whether to use the policy's codec; None decides by size."""
        self.state.touch()
        if batches := self.intake.flush_batch(reason):
            if compress is not None:
                batches = [replace(batch, compress=compress) for batch in batches]
            self.send(batches, now=now)

    def finish(self, *, now: int) -> None:
        """Prepare to close: abort the open claims, and send the batch in progress."""
        self.claims.abort_all(now)
        self.flush_batch(now=now)

    def _flush_for_set(self, now: int) -> None:
        self.flush_batch(now=now, reason=FlushReason.COHERENT_SET)

    def _flush_for_claim(self, now: int) -> None:
        self.flush_batch(now=now)

    def _send_pending(self, pending: PendingBatch, now: int, hand_over: Callable[[], object] | None) -> None:
        """Number, frame, keep and send the samples of one pending batch."""
        first_sn = self.state.last_sn + 1
        if pending.key_hashes is not None and (keep_last := self.history.keep_last) is not None:
            keep_last.expect(first_sn, pending.key_hashes, pending.flags)
        try:
            self._sender.write_changes(self._framer.changes(pending), pending.count, now, hand_over)
        finally:  # after an exception, for those samples that have numbers
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
        """Whether :meth:`outgoing` left something unsent: never."""
        return False

    def get_timer(self) -> int | None:
        """When to call :meth:`handle_timer`; None: no timer runs."""
        timers = [self._acks.get_timer(), self._deadline.get_timer(), self.history.lifespan.get_timer()]
        timers += [self.intake.get_timer(), self.claims.get_timer()]
        if not self.state.is_congested:
            timers.append(self._acks.schedule.get_timer())
            timers.append(self._requests.get_timer())
        return min((timer for timer in timers if timer is not None), default=None)

    def handle_timer(self, now: int) -> None:
        """Do everything that is due at ``now``."""
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
        """Reliable, active readers that have not acknowledged everything up to ``sn`` (default: all written), each
        with the highest sequence number that it has acknowledged."""
        return self._acks.unacknowledged(self.last_sn if sn is None else sn)

    @property
    def unacknowledged_bytes(self) -> int:
        """Bytes, as framed, that were written and not acknowledged."""
        return self.window.nbytes

    def request_acknowledgment(self, now: int) -> None:
        """Ask every reader that is behind to acknowledge, now."""
        self.state.touch()
        self._acks.await_all(now)
        self._heartbeats.request_acknowledgment(now)

    # --- out -------------------------------------------------------------------------------------

    def waits(self, backlog: int, now: int) -> None:
        """Note that ``backlog`` bytes wait for tokens now (:mod:`.asynchronous`)."""
        waited, self._waits = self._waits, backlog > 0
        self.state.backlog = backlog
        self.state.touch()
        if waited and not backlog:
            self._acks.left(now)

    def outgoing(self) -> list[Outgoing]:
        """Take the datagrams to send now."""
        return self._sender.outgoing()

    def assert_liveliness(self, now: int) -> None:
        """Announce to all readers that this MANUAL_BY_TOPIC writer lives."""
        self.state.touch()
        self._heartbeats.assert_liveliness(now)
