"""The stateful writer: sends once to all, again what is missed, holds back when it must (RTPS 2.5 §8.4.9).

Sans I/O: samples in by :meth:`StatefulWriter.write`, ACKNACKs in by ``on_acknack``, datagrams out by
:meth:`StatefulWriter.outgoing`. Costs are per block of samples (about a datagram), never per sample.

Invariants:
* ``write`` adds only what the send window (:mod:`.send_window`) has room for;
* what an ACKNACK makes us send goes to the reader's announced locators, and is bounded (:mod:`.repairs`).

What is written is let in and gathered into batches (:mod:`.intake`), framed (:mod:`.framer`), published
(:mod:`.publication`) and sent (:mod:`.sender`) to who is matched (:mod:`.matched_readers`). What they say comes in by
:mod:`.feedback`; what they have, and what follows from it, is in :mod:`.acknowledgments`.

Sequence numbers start at ``first_sn``: a writer that may be restarted under the same GUID begins above what it
used before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from ...errors import UsageError
from ...limits import MESSAGE_SIZE_MAX
from ...qos import Qos
from ...structure import Guid
from ...wire.samples import NO_TIMESTAMP, U8, Samples
from ...wire.status_messages import RttMeasurement, StatusMessage
from ...wire.submessages import AckNack, AckNackBatch, NackFrag
from ..agenda import untouched
from ..endpoint_info import ReaderInfo
from ..outgoing import Outgoing
from ..policies import (
    BATCH_POLICY,
    WRITER_POLICY,
    BatchPolicy,
    FlowControlPolicy,
    WriterCounters,
    WriterPolicy,
)
from .acknowledgments import Acknowledgments
from .admission import PUBLICATION_LIMIT
from .batching import FlushReason, Interceptor, PendingBatch
from .broadcast import Broadcast
from .changes import overhead
from .claims import Claims, SampleClaim
from .coherent_sets import CoherentSets
from .feedback import Feedback
from .flow_control import FlowControl
from .framer import Framer
from .heartbeats import Heartbeats
from .history import Change, WriterHistory
from .intake import Intake
from .matched_readers import MatchedReaders
from .offered_deadline import OfferedDeadline
from .publication import Publication, PublicationLog
from .reader_activity import ReaderActivityChanged
from .reader_proxy import ReaderProxy
from .repairs import Repairs
from .requests import Requests
from .sender import Sender

__all__ = ["ReaderInfo", "ReaderProxy", "StatefulWriter", "WriterCounters", "WriterPolicy"]

_FRAGMENT_SIZE_MIN = 64


class StatefulWriter:
    """One local writer, its history and its matched readers."""

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
        log: PublicationLog | None = None,
    ) -> None:
        """``flow_control`` paces the writer, by default the slowest reader does; ``log`` holds what is published."""
        if log is not None and log.path is not None:
            # Readers on this host hold the publisher back by their positions (Aeron's IPC window).
            window = max(policy.send_window_bytes, log.term_length // 2)
            policy = replace(policy, send_window_bytes=window)
        self.guid = guid
        self.qos = qos
        self.policy = policy
        self._batch = batch
        #: A whole message has to fit a frame of the log.
        self.message_size = message_size if log is None else min(message_size, log.max_message_length)
        self.counters = WriterCounters()
        #: What the last :meth:`write` could not take all for: "send window", "resource_limits.max_samples" or "".
        self.blocked_by = ""
        self._history = WriterHistory(qos, first_sn)
        flow_control = flow_control or FlowControl(FlowControlPolicy())
        #: Called when something is done to it (:mod:`..agenda`).
        self.touch: Callable[[], None] = untouched
        self._publication = Publication(guid, self._history, flow_control.policy, log)
        #: How far is published and sent, and how far it may be.
        self.positions = self._publication.positions
        self._acks = Acknowledgments(policy, self.counters, self._history, self._publication, flow_control)
        self.window = self._acks.window
        self._deadline = OfferedDeadline(qos.deadline)
        broadcast = Broadcast(guid.entity, self.message_size, coalescing=coalescing)
        heartbeats = Heartbeats(guid.entity, self._history, self.counters)
        #: What leaves; where a flow controller paces it, that tells it how much waits (:mod:`.asynchronous`).
        self.sender = Sender(
            policy,
            self.counters,
            self._history,
            self._publication,
            self._acks,
            broadcast,
            heartbeats,
            self.message_size,
        )
        self._matched = MatchedReaders(guid, qos, batch, self.sender, self.message_size)
        #: All that are matched.
        self.readers = self._matched.proxies
        if self._matched.framing.fragment_size < _FRAGMENT_SIZE_MIN:
            raise UsageError(f"message_size {message_size} is too small; 576 fits every network")
        self._sets = CoherentSets(guid.entity, self.sender)
        self._intake = Intake(qos, batch, self._matched, self.sender, self._sets, interceptor)
        self._framer = Framer(qos, self._matched, self.sender, self._sets)
        self._claims = Claims(guid.entity, self.sender)
        repairs = Repairs(
            guid.entity,
            self._history,
            policy,
            self.counters,
            message_size=self.message_size,
            budget=self._matched.framing.budget,
        )
        self._requests = Requests(policy, repairs, heartbeats, self.sender.queue)
        self._feedback = Feedback(self.readers, self._requests, self.sender)
        #: Source timestamp of the newest write, and when that was.
        self._time_written = (NO_TIMESTAMP, 0)

    @property
    def batch(self) -> BatchPolicy:
        """BATCH cannot be changed once the writer is enabled, which it is from the beginning."""
        return self._batch

    @property
    def backlog(self) -> int:
        """Bytes that wait for tokens of a flow controller."""
        return self.sender.backlog

    @property
    def batch_bytes_max(self) -> int:
        """What a batch may come to, its metadata included, that all matched readers take."""
        return self._intake.batch_bytes_max

    @property
    def last_written(self) -> int:
        """When something was last written, be it only to the batch in progress."""
        return self._time_written[1]

    @property
    def last_sn(self) -> int:
        """Of the newest sample; below ``first_sn`` if there is none."""
        return self._history.last_sn

    # --- matching --------------------------------------------------------------------------------

    def match_reader(self, info: ReaderInfo, *, now: int) -> None:
        """Begin, or go on with new locators, with a reader."""
        self.touch()
        if self._matched.update(info):
            return
        self.unmatch_reader(info.guid)
        proxy = self._matched.add(info)
        self._feedback.connect()
        if proxy.reliable:
            self._acks.add(proxy, now)
            self._feedback.expire(now)
            self.sender.heartbeat((proxy,), now)

    def unmatch_reader(self, guid: Guid) -> None:
        """The reader is gone: nothing waits for it any more."""
        self.touch()
        if (proxy := self._matched.remove(guid)) is None:
            return
        self._requests.forget(guid)
        self._acks.remove(proxy)
        self._feedback.progress(self.last_written)  # what waited for it alone

    # --- writing ---------------------------------------------------------------------------------

    def write(
        self,
        samples: Samples,
        *,
        timestamp: int,
        now: int,
        flags: int = 0,
        key_hashes: U8 | None = None,
    ) -> int:
        """Write samples from the front; returns how many were taken.

        ``timestamp`` (ns since the epoch) is the source timestamp of all, ``flags`` the sample flags of all,
        ``key_hashes`` (n, 16) their instances. Fewer than all: back-pressure, the rest is to be offered again
        after acknowledgements. With batching, what is taken may wait in the batch in progress. Raises
        UsageError for a payload whose length is not a multiple of 4, and for a coherent set that is too large.
        """
        count, batches = self.queue(samples, timestamp=timestamp, now=now, flags=flags, key_hashes=key_hashes)
        self.send(batches, now=now)
        return count

    def write_to(self, reader: Guid, samples: Samples, *, timestamp: int, now: int) -> int:
        """:meth:`write` for one matched reader alone: to all others that lack nothing it is irrelevant.

        Those that do lack something may be sent it with that.
        """
        proxy = self.readers[reader]
        if proxy.reliable:
            self.sender.heartbeat((proxy,), now)  # it tells where the reader goes on
        others = [each for each in self.readers.values() if each is not proxy]
        up_to_date = [each for each in others if each.acked >= self.last_sn]
        self._matched.address_one(proxy)
        count = self.write(samples, timestamp=timestamp, now=now)
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
    ) -> tuple[int, list[PendingBatch]]:
        """The first half of :meth:`write`: how many were taken, and what is to be handed to :meth:`send`.

        ``whole``: all of them or none.
        """
        self.touch()
        if samples.size % 4 or (samples.lengths is not None and (samples.lengths % 4).any()):
            raise UsageError("payloads have to be padded to a multiple of 4 bytes")
        self._time_written = (timestamp, now)
        return self._intake.take(
            samples, timestamp=timestamp, now=now, flags=flags, key_hashes=key_hashes, whole=whole
        )

    def send(self, batches: Iterable[PendingBatch], *, now: int) -> None:
        """Send what :meth:`queue` returned."""
        self.touch()
        if self._history.is_mortal:
            self._history.note_time(*self._time_written)
            self._feedback.expire(now)
        wrote = False
        for pending in batches:
            self._send_pending(pending, now)
            wrote = True
        self._note_blocked(now, wrote=wrote)

    def check_fits(self, samples: Samples) -> None:
        """UsageError for samples that can never be taken all at once."""
        self._intake.admission.check_fits(samples)

    def claim(self, size: int, *, timestamp: int, now: int) -> SampleClaim | None:
        """Room for one sample of ``size`` bytes, padded to a multiple of 4, in the publication log; None: not now.

        It is to be handed to :meth:`commit` or :meth:`abort`; until then what is written behind it waits.
        """
        self.touch()
        self.flush(now=now)
        padded = size + 3 & ~3
        if padded + overhead(0, with_key_hash=False) > self._matched.framing.budget:
            raise UsageError(f"a sample of {size} bytes is too large to be claimed; write it")
        if self._sets.begun:
            raise UsageError("no sample can be claimed in a coherent set; write it")
        one = Samples.uniform(np.zeros(padded, np.uint8), 1, padded)
        count = self._intake.admission.admit(one, 0, keyed=False, now=now)
        self._note_blocked(now, wrote=False)
        if not count:
            return None
        self._time_written = timestamp, now
        return self._claims.make(padded, timestamp=timestamp, now=now)

    def commit(self, claim: SampleClaim, *, now: int) -> bool:
        """The sample is complete. False: it took too long, and was given up."""
        self.touch()
        return self._claims.commit(claim, now)

    def abort(self, claim: SampleClaim, *, now: int) -> None:
        """There will be no such sample."""
        self.touch()
        self._claims.abort(claim, now)

    def resume(self, *, now: int) -> None:
        """What :meth:`send` made is on its way now: the time that took is not the user's."""
        self._intake.resume(now)

    def flush(self, *, now: int, reason: FlushReason = FlushReason.FLUSH) -> None:
        """Send the batch in progress."""
        self.touch()
        if batches := self._intake.flush(reason):
            self.send(batches, now=now)

    @property
    def is_queue_unshared(self) -> bool:
        """Whether :meth:`queue` and :meth:`flush` alone touch what is queued: one thread needs no lock for them."""
        return self._intake.is_unshared

    @property
    def queued(self) -> int:
        """Samples in the batch in progress."""
        return self._intake.count

    def begin_coherent_set(self, *, now: int) -> None:
        """What is written until :meth:`end_coherent_set` becomes visible together (RTPS 2.5 §8.7.5)."""
        self.touch()
        self._sets.check_open(is_open=False)
        self.flush(now=now, reason=FlushReason.COHERENT_SET)
        self._sets.begin(self._matched.framing.budget)

    def end_coherent_set(self, *, now: int) -> None:
        self.touch()
        self._sets.check_open(is_open=True)
        self.flush(now=now, reason=FlushReason.COHERENT_SET)
        if (marker := self._sets.end_marker(self._time_written[0])) is not None:
            self._write([marker], 1, now)
            self.counters.written_samples -= 1  # it is no sample of the user's
        self._sets.ended(marker, now)

    def abort_coherent_set(self, *, now: int) -> None:
        """The set does not become visible (:meth:`.CoherentSets.abort`)."""
        self.touch()
        self._sets.check_open(is_open=True)
        self._intake.discard()
        self._sets.abort(now)

    def _send_pending(self, pending: PendingBatch, now: int) -> None:
        """Number, frame, keep and send samples that go together."""
        first_sn = self.last_sn + 1
        self._write(self._framer.changes(pending), pending.count, now)
        if pending.key_hashes is not None and self._acks.keeps:
            self._history.note_instances(first_sn, pending.key_hashes, pending.flags)
        if self._deadline.is_finite:
            self._deadline.written(pending.key_hashes, pending.flags, now)
        self._acks.written(now)

    def _note_blocked(self, now: int, *, wrote: bool) -> None:
        blocked_by = self._intake.admission.stopped_by
        if blocked_by:
            self.counters.back_pressured += 1
            # At the publication's limit status messages are waited for, not acknowledgements.
            useful = blocked_by != PUBLICATION_LIMIT
            if useful and wrote and self.window.has_unannounced and self.policy.heartbeats_per_max_samples:
                self.sender.piggyback(now)
        if blocked_by or self.blocked_by:
            self._acks.blocked(bool(blocked_by), now)
        self.blocked_by = blocked_by

    def _write(self, changes: Iterable[Change], count: int, now: int) -> None:
        """Send and keep the next ``count`` samples, as far as somebody wants them."""
        self.counters.written_samples += count
        last_sn = self.last_sn + count
        if self.readers or self._acks.keeps or self._publication.spies:
            for change in changes:
                self._publication.publish(change)
                self.sender.published(change)
        self._history.last_sn = last_sn
        self.sender.transmit(now)

    # --- time ------------------------------------------------------------------------------------

    @property
    def has_more_to_say(self) -> bool:
        """After :meth:`outgoing`: no."""
        return False

    def get_timer(self) -> int | None:
        """When :meth:`handle_timer` wants to be called; None: not before something happens."""
        timers = [self._acks.get_timer(), self._deadline.get_timer(), self._history.get_timer()]
        timers += [self._intake.get_timer(), self._claims.get_timer()]
        if not self.is_congested:
            timers.append(self._acks.schedule.get_timer())
            timers.append(self._requests.get_timer())
        return min((timer for timer in timers if timer is not None), default=None)

    def handle_timer(self, now: int) -> None:
        self.touch()
        self._feedback.expire(now)
        self.counters.offered_deadline_missed += self._deadline.missed(now)
        self._acks.handle_timer(now)
        if batches := self._intake.handle_timer(now):
            self.send(batches, now=now)
        self._claims.handle_timer(now)
        self._feedback.progress(now)
        if self.is_congested:
            return
        self._requests.handle_timer(now)
        self.sender.heartbeat(self._acks.due(now), now)

    # --- what readers say (:mod:`.feedback`) -----------------------------------------------------

    def on_acknack(self, reader: Guid, acknack: AckNack, *, now: int) -> None:
        """A reader says what it has and what it lacks."""
        self.touch()
        self._feedback.on_acknack(reader, acknack, now)

    def on_acknack_batch(self, reader: Guid, acknack: AckNackBatch, *, now: int) -> None:
        """The same in numbers of batches."""
        self.touch()
        self._feedback.on_acknack_batch(reader, acknack, now)

    def on_nack_frag(self, reader: Guid, nack: NackFrag, *, now: int) -> None:
        """A reader lacks fragments of one sample (RTPS 2.5 §8.3.8.10)."""
        self.touch()
        self._feedback.on_nack_frag(reader, nack, now)

    def on_status_message(self, reader: Guid, message: StatusMessage, *, now: int) -> None:
        """A reader of ours says what it has consumed, and what more it takes."""
        self.touch()
        self._feedback.on_status_message(reader, message, now)

    def on_rtt_measurement(self, reader: Guid, message: RttMeasurement) -> None:
        """A reader measures how long an answer takes: this is it."""
        self.touch()
        self._feedback.on_rtt_measurement(reader, message)

    def on_log_positions(self, readers: Mapping[Guid, int], spies: Iterable[int], *, now: int) -> None:
        """How far matched readers on this host, and spies, have read the publication log.

        Such readers are sent nothing that lies there. Spies hold the publisher back, and simulate a connection if the
        policy says so.
        """
        self.touch()
        if self._matched.note_on_host(readers):
            self._acks.pacing.begin_anew()
        self._feedback.on_log_positions(readers, spies, now)

    @property
    def max_position(self) -> int:
        """Where the publication log ends for ever: its term ids are used up."""
        return self.positions.term_length << 31

    @property
    def is_connected(self) -> bool:
        """Whether there is a reader, and as many as flow control wants."""
        return self.positions.is_connected

    @property
    def send_limit(self) -> tuple[int, Guid | None]:
        """How far flow control lets the writer send, INFINITE where nothing does, and which reader it waits for."""
        slowest = self._acks.pacing.slowest()
        return self._acks.pacing.limit, None if slowest is None else slowest.guid

    def unacknowledged(self, sn: int | None = None) -> dict[Guid, int]:
        """Reliable, active readers that lack something up to ``sn`` (default: all written), each with the
        highest sequence number it has acknowledged."""
        return self._acks.unacknowledged(self.last_sn if sn is None else sn)

    @property
    def unacknowledged_bytes(self) -> int:
        return self.window.nbytes

    def take_events(self) -> list[ReaderActivityChanged]:
        """Which readers became inactive, or active again, since the last call."""
        return self._acks.activity.take_events()

    @property
    def is_congested(self) -> bool:
        """What is sent now would wait, and be asked for again meanwhile: no HEARTBEATs then, and no repairs."""
        return self.sender.is_congested

    # --- out -------------------------------------------------------------------------------------

    def outgoing(self) -> list[Outgoing]:
        """What to send now."""
        return self.sender.outgoing()

    def request_acknowledgment(self, now: int) -> None:
        """Ask every reader that is behind to acknowledge, now."""
        self.touch()
        self.sender.request_acknowledgment(now)

    def assert_liveliness(self, now: int) -> None:
        """Tell all readers that this MANUAL_BY_TOPIC writer lives."""
        self.touch()
        self.sender.assert_liveliness(now)
