"""The stateful writer: sends once to all, again what is missed, holds back when it must (RTPS 2.5 §8.4.9).

Sans I/O: samples in by :meth:`StatefulWriter.write`, ACKNACKs in by ``on_acknack``, datagrams out by
:meth:`StatefulWriter.outgoing`. Costs are per block of samples (about a datagram), never per sample.

Invariants:
* ``write`` adds only what the send window (:mod:`.send_window`) has room for;
* what an ACKNACK makes us send goes to the reader's announced locators, and is bounded (:mod:`.repairs`).

What readers have, and what follows from it, is in :mod:`.acknowledgments`.

Sequence numbers start at ``first_sn``: a writer that may be restarted under the same GUID begins above what it
used before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from ...errors import UsageError
from ...limits import (
    MESSAGE_SIZE_MAX,
)
from ...qos import Qos
from ...structure import INFINITE, Guid
from ...wire.samples import NO_TIMESTAMP, U8, Samples
from ...wire.status_messages import RttMeasurement, StatusMessage
from ...wire.submessages import AckNack, AckNackBatch, NackFrag
from ..agenda import untouched
from ..endpoint_info import ReaderInfo
from ..outgoing import DATAGRAM_ROOM, Outgoing
from ..policies import (
    BATCH_POLICY,
    WRITER_POLICY,
    BatchPolicy,
    BatchWire,
    FlowControlPolicy,
    WriterCounters,
    WriterPolicy,
)
from .acknowledgments import Acknowledgments
from .admission import FLOW_CONTROLLER, GROUP, PUBLICATION_LIMIT, Admission
from .batch_content import BATCH, DATA
from .batching import Batcher, FlushReason, Interceptor, PendingBatch
from .broadcast import Broadcast
from .changes import Framing, batch_change, data_changes, overhead, removed_samples
from .claims import Claims, SampleClaim
from .coherent_sets import CoherentSets
from .feedback import Feedback
from .flow_control import FlowControl
from .heartbeats import Heartbeats
from .history import Change, WriterHistory
from .large_sample import fragment_size_for
from .offered_deadline import OfferedDeadline
from .publication import Publication, PublicationLog
from .reader_activity import ReaderActivityChanged
from .reader_proxy import ReaderProxy
from .repairs import Repairs
from .requests import Requests
from .sender import Sender

__all__ = ["ReaderInfo", "ReaderProxy", "StatefulWriter", "WriterCounters", "WriterPolicy"]

_FRAGMENT_SIZE_MIN = 64
#: The fixed part of a DATA_BATCH, with the inline QoS of a coherent set.
_BATCH_ROOM = 48 + 16


#: Trains are small parts of the send window.
_TRAINS_WINDOW = 1 << 20


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
        self.readers: dict[Guid, ReaderProxy] = {}
        self.counters = WriterCounters()
        #: What the last :meth:`write` could not take all for: "send window", "resource_limits.max_samples" or "".
        self.blocked_by = self._stopped_by = ""
        self._first_sn = first_sn
        self._history = WriterHistory(qos, first_sn)
        flow_control = flow_control or FlowControl(FlowControlPolicy())
        #: Called when something is done to it (:mod:`..agenda`).
        self.touch: Callable[[], None] = untouched
        self._publication = Publication(guid, self._history, flow_control.policy, log)
        #: How far is published and sent, and how far it may be.
        self.positions = self._publication.positions
        self._acks = Acknowledgments(policy, self.counters, self._history, self._publication, flow_control)
        self.window = self._acks.window
        #: Readers that have to acknowledge what is written.
        self._awaited = self._acks.activity.active
        self._deadline = OfferedDeadline(qos.deadline)
        self._broadcast = Broadcast(guid.entity, self.message_size, coalescing=coalescing)
        heartbeats = Heartbeats(guid.entity, self._history, self.counters)
        self._sender = Sender(
            policy,
            self.counters,
            self._history,
            self._publication,
            self._acks,
            self._broadcast,
            heartbeats,
            self.message_size,
        )
        self._claims = Claims(
            guid.entity, self.counters, self._history, self._publication, self._acks, self._sender
        )
        self._sets = CoherentSets(guid.entity, self._history, self._publication, self._acks, self._sender)
        #: Whether :meth:`queue` and :meth:`flush` alone touch what is queued: one thread needs no lock for them.
        self.is_queue_unshared = (
            batch.enable and not batch.thread_safe_write and batch.max_flush_delay >= INFINITE
        )
        self._batcher: Batcher | None = None
        if batch.batches:
            self._batcher = Batcher(
                batch,
                limit=self.message_size,
                interceptor=interceptor,
                max_samples=qos.max_samples,
                max_samples_per_instance=qos.max_samples_per_instance,
            )
        self._admission = Admission(batch, self._history, self.window, self._batcher, self._publication)
        self._redirect()
        budget = self._framing.budget
        if self._framing.fragment_size < _FRAGMENT_SIZE_MIN:
            raise UsageError(f"message_size {message_size} is too small; 576 fits every network")
        repairs = Repairs(
            guid.entity,
            self._history,
            policy,
            self.counters,
            message_size=self.message_size,
            budget=budget,
        )
        self._requests = Requests(policy, repairs, heartbeats, self._sender.queue)
        self._feedback = Feedback(
            self.readers,
            self.counters,
            self._history,
            self._publication,
            self._acks,
            self._requests,
            self._sender,
        )
        #: Source timestamp of the newest write, and when that was.
        self._time_written = (NO_TIMESTAMP, 0)

    @property
    def batch(self) -> BatchPolicy:
        """BATCH cannot be changed once the writer is enabled, which it is from the beginning."""
        return self._batch

    @property
    def is_asynchronous(self) -> bool:
        """Whether what is sent waits for tokens of a flow controller."""
        return self._sender.is_asynchronous

    @is_asynchronous.setter
    def is_asynchronous(self, value: bool) -> None:
        self._sender.is_asynchronous = value

    @property
    def backlog(self) -> int:
        """Bytes that do."""
        return self._sender.backlog

    @backlog.setter
    def backlog(self, nbytes: int) -> None:
        self._sender.backlog = nbytes

    @property
    def batch_bytes_max(self) -> int:
        """What a batch may come to, its metadata included, that all matched readers take."""
        return self._framing.budget - _BATCH_ROOM

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
        known = self.readers.get(info.guid)
        reliable = self.qos.is_reliable and info.reliable
        positive_acks = not (self.policy.disable_positive_acks or info.no_positive_acks)
        if known is not None and known.reliable == reliable and known.positive_acks == positive_acks:
            known.info, known.form = info, self._form_for(info)
            self._redirect()
            return
        if known is not None:
            self.unmatch_reader(info.guid)
        wants_history = reliable and info.transient_local and self.qos.is_transient_local
        proxy = ReaderProxy(
            info,
            reliable=reliable,
            first_relevant=self._first_sn if wants_history else self._history.sent_sn + 1,
            joined_sn=self._history.sent_sn,
            positive_acks=positive_acks,
            form=self._form_for(info),
        )
        self.readers[info.guid] = proxy
        self._redirect()
        self._feedback.connect()
        if reliable:
            self._acks.add(proxy, now)
            self._feedback.expire(now)
            self._sender.heartbeat((proxy,), now)

    def unmatch_reader(self, guid: Guid) -> None:
        """The reader is gone: nothing waits for it any more."""
        self.touch()
        if (proxy := self.readers.pop(guid, None)) is None:
            return
        self._redirect()
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
            self._sender.heartbeat((proxy,), now)  # it tells where the reader goes on
        others = [each for each in self.readers.values() if each is not proxy]
        up_to_date = [each for each in others if each.acked >= self.last_sn]
        self._broadcast.redirect((proxy,), min(self.message_size, proxy.info.message_size_max))
        count = self.write(samples, timestamp=timestamp, now=now)
        self._redirect()
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
        self._fit_batches()
        if not self.is_connected and self._acks.pacing.wants_group:
            self._stopped_by = GROUP
            return 0, []
        in_set = self._sets.begun != 0
        framing = overhead(flags, with_key_hash=key_hashes is not None, in_coherent_set=in_set)
        count, self._stopped_by = self._acceptable(samples, framing, now)
        stuck = self._stopped_by not in ("", FLOW_CONTROLLER)
        if stuck and in_set and not count and self.window.is_full_of_one_set:
            raise UsageError(
                f"the coherent set begun at sample {self._sets.begun} is too large: {self._stopped_by} is reached "
                f"at {self.unacknowledged_bytes >> 10} KiB, and readers acknowledge nothing of a set before its end; "
                "end it sooner (in Spark: more partitions, or presentation.coherent_access=false)"
            )
        if whole and count < samples.count:
            count = 0
        taken = samples.take(0, count)
        hashes = None if key_hashes is None else key_hashes[:count]
        if self._batcher is None:
            one = PendingBatch(taken, timestamp, None, flags, hashes, True, FlushReason.FLUSH)
            return count, [one] if count else []
        self._batcher.blocked = bool(self._stopped_by)
        batches = self._batcher.add(taken, timestamp=timestamp, now=now, flags=flags, key_hashes=hashes)
        if self._stopped_by and not batches:
            batches = self._batcher.flush(FlushReason.RESOURCE_LIMITS)  # it cannot grow
        return count, batches

    def _acceptable(self, samples: Samples, framing: int, now: int) -> tuple[int, str]:
        return self._admission.acceptable(
            samples,
            framing,
            self._framing.budget,
            kept=self._keeps,
            awaited=bool(self._awaited),
            backlog=self.backlog if self.is_asynchronous else None,
            now=now,
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
        self._note_blocked(self._stopped_by, now, wrote=wrote)

    def check_fits(self, samples: Samples) -> None:
        """UsageError for samples that can never be taken all at once."""
        window = min(self.policy.send_window_bytes, self.positions.term_window * 7 // 8)
        nbytes = int(samples.all_lengths().sum()) + samples.count * overhead(0, with_key_hash=False)
        if samples.count > 1 and nbytes > window:
            raise UsageError(
                f"{samples.count} samples of {nbytes} bytes never fit at once: {window} bytes may be on their way; "
                "write them, or offer fewer"
            )

    def claim(self, size: int, *, timestamp: int, now: int) -> SampleClaim | None:
        """Room for one sample of ``size`` bytes, padded to a multiple of 4, in the publication log; None: not now.

        It is to be handed to :meth:`commit` or :meth:`abort`; until then what is written behind it waits.
        """
        self.touch()
        self.flush(now=now)
        padded = size + 3 & ~3
        if padded + overhead(0, with_key_hash=False) > self._framing.budget:
            raise UsageError(f"a sample of {size} bytes is too large to be claimed; write it")
        if self._sets.begun:
            raise UsageError("no sample can be claimed in a coherent set; write it")
        one = Samples.uniform(np.zeros(padded, np.uint8), 1, padded)
        count, self._stopped_by = self._acceptable(one, overhead(0, with_key_hash=False), now)
        self._note_blocked(self._stopped_by, now, wrote=False)
        if not count:
            return None
        self._time_written = timestamp, now
        return self._claims.make(padded, timestamp=timestamp, keep=self._keeps, now=now)

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
        if self._batcher is not None:
            self._batcher.resume(now)

    def flush(self, *, now: int, reason: FlushReason = FlushReason.FLUSH) -> None:
        """Send the batch in progress."""
        self.touch()
        self._fit_batches()
        if self._batcher is not None and (batches := self._batcher.flush(reason)):
            self.send(batches, now=now)

    def _fit_batches(self) -> None:
        """Only who writes touches the batch in progress, where nothing flushes it by time."""
        if self._batcher is not None and self._batcher.limit != self.batch_bytes_max:
            self._batcher.limit = self.batch_bytes_max

    @property
    def queued(self) -> int:
        """Samples in the batch in progress."""
        return 0 if self._batcher is None else self._batcher.count

    def get_flush_timer(self) -> int | None:
        """When the batch in progress has waited for as long as it may."""
        return None if self._batcher is None or self.is_queue_unshared else self._batcher.get_timer()

    def begin_coherent_set(self, *, now: int) -> None:
        """What is written until :meth:`end_coherent_set` becomes visible together (RTPS 2.5 §8.7.5)."""
        self.touch()
        self._sets.check_open(is_open=False)
        self.flush(now=now, reason=FlushReason.COHERENT_SET)
        self._sets.begin(self._framing.budget)

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
        if self._batcher is not None:
            self._batcher.discard()
        self._sets.abort(now)

    def _send_pending(self, pending: PendingBatch, now: int) -> None:
        """Number, frame, keep and send samples that go together."""
        history, first_sn = self._history, self.last_sn + 1
        framing, coherent_set = self._framing, self._sets.begun
        framed: Iterable[Change] = ()
        if self._goes_in_trains(pending):
            framed = self._publication.trains(
                pending,
                first_sn,
                framing.budget,
                batch_sn=history.last_batch_sn,
                coherent_set=coherent_set,
            )
        elif pending.alone or not self._broadcast.wants_batches:
            framed = data_changes(pending, first_sn, framing, history.last_batch_sn, coherent_set)
        else:
            removed = removed_samples(pending, self.qos, history.expired_before)
            if removed is not None and removed.all():
                self._broadcast.gap(first_sn, first_sn + pending.count - 1)
                history.note_skipped(first_sn, first_sn + pending.count - 1)
            else:
                history.last_batch_sn += 1
                batch_sn = history.last_batch_sn
                framed = (batch_change(pending, first_sn, framing, batch_sn, coherent_set, removed=removed),)
        self._write(framed, pending.count, now)
        if pending.key_hashes is not None and self._keeps:
            history.note_instances(first_sn, pending.key_hashes, pending.flags)
        if self._deadline.is_finite:
            self._deadline.written(pending.key_hashes, pending.flags, now)
        self._acks.written(now)

    def _goes_in_trains(self, pending: PendingBatch) -> bool:
        """Whether they are many and alike, and nothing looks at datagrams, or counts samples, one by one."""
        samples, flags = pending.samples, pending.flags
        if not samples.is_uniform or pending.timestamps is not None or not isinstance(flags, int):
            return False
        in_set = self._sets.begun != 0
        size = samples.size + overhead(
            flags, with_key_hash=pending.key_hashes is not None, in_coherent_set=in_set
        )
        return (
            size <= self._framing.budget
            and samples.count * size >= 2 * self._framing.budget
            and self.window.size is None
            and self.policy.send_window_bytes >= _TRAINS_WINDOW
            and self._broadcast.coalesces
            and not self._broadcast.wants_batches
            and not self.is_asynchronous
        )

    def _note_blocked(self, blocked_by: str, now: int, *, wrote: bool) -> None:
        if blocked_by:
            self.counters.back_pressured += 1
            # At the publication's limit status messages are waited for, not acknowledgements.
            useful = blocked_by != PUBLICATION_LIMIT
            if useful and wrote and self.window.has_unannounced and self.policy.heartbeats_per_max_samples:
                self._sender.piggyback(now)
        if blocked_by or self.blocked_by:
            self._acks.blocked(bool(blocked_by), now)
        self.blocked_by = blocked_by

    def _write(self, changes: Iterable[Change], count: int, now: int) -> None:
        """Send and keep the next ``count`` samples, as far as somebody wants them."""
        self.counters.written_samples += count
        history, keep = self._history, self._keeps
        last_sn = history.last_sn + count
        if keep or self.readers or self._publication.spies:
            for change in changes:
                self._publication.publish(change)
                self._sender.published(change, keep=keep)
        history.last_sn = last_sn
        self._sender.transmit(now)

    @property
    def _keeps(self) -> bool:
        """Whether somebody may ask again for what is written."""
        return bool(self._awaited) or self.qos.is_transient_local

    # --- time ------------------------------------------------------------------------------------

    @property
    def has_more_to_say(self) -> bool:
        """After :meth:`outgoing`: no."""
        return False

    def get_timer(self) -> int | None:
        """When :meth:`handle_timer` wants to be called; None: not before something happens."""
        timers = [self._acks.get_timer(), self._deadline.get_timer(), self._history.get_timer()]
        timers += [self.get_flush_timer(), self._claims.get_timer()]
        if not self.is_congested:
            timers.append(self._acks.schedule.get_timer())
            timers.append(self._requests.get_timer())
        return min((timer for timer in timers if timer is not None), default=None)

    def handle_timer(self, now: int) -> None:
        self.touch()
        self._feedback.expire(now)
        self.counters.offered_deadline_missed += self._deadline.missed(now)
        self._acks.handle_timer(now)
        flush_at = self.get_flush_timer()
        if self._batcher is not None and flush_at is not None and flush_at <= now:
            self._fit_batches()
            self.send(self._batcher.handle_timer(now), now=now)
        self._claims.handle_timer(now)
        self._feedback.progress(now)
        if self.is_congested:
            return
        self._requests.handle_timer(now)
        self._sender.heartbeat(self._acks.due(now), now)

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
        changed = [each for each in self.readers.values() if each.is_on_host != (each.guid in readers)]
        for each in changed:
            each.is_on_host = not each.is_on_host
        if changed:
            self._acks.pacing.begin_anew()
            self._redirect()
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
        return self._sender.is_congested

    # --- out -------------------------------------------------------------------------------------

    def outgoing(self) -> list[Outgoing]:
        """What to send now."""
        return self._sender.outgoing()

    def request_acknowledgment(self, now: int) -> None:
        """Ask every reader that is behind to acknowledge, now."""
        self.touch()
        self._sender.request_acknowledgment(now)

    def assert_liveliness(self, now: int) -> None:
        """Tell all readers that this MANUAL_BY_TOPIC writer lives."""
        self.touch()
        self._sender.assert_liveliness(now)

    def _redirect(self) -> None:
        """Who is matched changed: what is packed goes to those before, and all fits the smallest of those now."""
        sizes = [proxy.info.message_size_max for proxy in self.readers.values()]
        message_size = min([self.message_size, *sizes])
        self._broadcast.redirect(self.readers.values(), message_size)
        budget = message_size - DATAGRAM_ROOM
        self._framing = Framing(self.guid.entity, budget, fragment_size_for(budget), self.batch)

    def _form_for(self, info: ReaderInfo) -> str:
        """How a reader is sent batches."""
        if not (self.batch.batches and info.batches) or self.batch.wire is BatchWire.DATA:
            return DATA
        codec = self.batch.compression.value
        return codec if codec in info.codecs else BATCH
