"""The answers of a reader to its writers (RTPS 2.5 §8.4.12.2).

A reader announces itself until its writer sends a HEARTBEAT (:mod:`.preemptive_acknack`), acknowledges at once
(:mod:`.heartbeat_response`), and requests missing samples a little later, then repeatedly at growing intervals while
nothing arrives (:mod:`.nack_schedule`). Heartbeat response delays postpone both. With positive acknowledgements
disabled, the reader only requests, unless the writer would wait for an acknowledgement for ever.

Invariants:
* ``timers`` holds when each writer with something due needs :meth:`Responder.handle_timer`;
* ``responding`` holds the writers that the next :meth:`Responder.outgoing` answers;
* a closed writer (its reader has no space) is acknowledged, but nothing is requested of it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from random import Random

from ....limits import MESSAGE_SIZE_LEAST, UDP_PAYLOAD_MAX
from ....structure import INFINITE, Guid
from ....wire.samples import Run
from ....wire.submessages import AckNack, AckNackBatch, NackFrag
from ...counts import next_count
from ...outgoing import Outgoing, Packer
from ...policies import ReaderCounters, ReaderPolicy
from ..flow.status_reporter import StatusReporter
from ..ordering.writer_proxy import WriterProxy
from .heartbeat_response import HeartbeatResponse, ResponseState
from .nack_schedule import NackSchedule
from .other_slices import OtherSlices
from .preemptive_acknack import PreemptiveAckNack, PreemptiveState
from .response_delays import ResponseDelays


class WriterResponse:
    """The answers that are due to one writer."""

    __slots__ = (
        "acknack_count",
        "acks",
        "nack_frag_count",
        "nacks",
        "preemptive",
        "proxy",
    )

    def __init__(self, proxy: WriterProxy, delays: ResponseDelays) -> None:
        self.proxy = proxy
        self.preemptive = PreemptiveAckNack()
        self.acks = HeartbeatResponse()
        self.nacks = NackSchedule(proxy, delays)
        self.acknack_count = 0
        self.nack_frag_count = 0

    @property
    def timer(self) -> int:
        return min(self.nacks.at, self.preemptive.at, self.acks.at, self.proxy.stream.timer_at)

    def nack_frags(self, reader_id: bytes) -> Iterator[NackFrag]:
        """The requests for the missing fragments of incomplete samples."""
        proxy = self.proxy
        for sn, up_to in self.nacks.fragments.items():
            sample = proxy.fragments.get(sn)
            missing = None if sample is None else sample.missing(up_to)
            if missing is not None:
                self.nack_frag_count = max(self.nack_frag_count + 1, self.acknack_count)
                yield NackFrag(reader_id, proxy.guid.entity, sn, missing, self.nack_frag_count)


class DueResponses:
    """Which writers are answered now, and when there is something to do for the others."""

    __slots__ = ("responding", "timers")

    def __init__(self) -> None:
        self.timers: dict[Guid, int] = {}
        self.responding: dict[Guid, WriterResponse] = {}

    def set_timer(self, it: WriterResponse) -> None:
        at = it.timer
        if at == INFINITE:
            self.timers.pop(it.proxy.guid, None)
        else:
            self.timers[it.proxy.guid] = at

    def respond(self, it: WriterResponse, now: int) -> None:
        """Answer a writer as soon as possible."""
        guid = it.proxy.guid
        if guid not in self.responding:
            self.responding[guid] = it
            it.acknack_count = next_count(it.acknack_count, now)

    def acknowledge(self, it: WriterResponse, at: int, now: int) -> None:
        """Acknowledge at the time ``at`` all samples that have arrived by then."""
        if at <= now:
            if it.acks.owe():
                self.set_timer(it)
            self.respond(it, now)
        elif it.acks.owe_at(at):
            self.set_timer(it)

    def forget(self, writer: Guid) -> None:
        self.timers.pop(writer, None)
        self.responding.pop(writer, None)


class Responder:
    """The answers of one reader; ``writers`` and ``closed`` belong to the reader, which changes them."""

    def __init__(
        self,
        reader_id: bytes,
        policy: ReaderPolicy,
        counters: ReaderCounters,
        writers: Mapping[Guid, WriterProxy],
        closed: Container[Guid],
        random: Random,
        status: StatusReporter,
    ) -> None:
        self.policy = policy
        self.counters = counters
        self.delays = ResponseDelays(policy, random)
        #: The writers of other slices, to which only acknowledgements are sent.
        self.other_slices = OtherSlices(reader_id, policy, counters, self.delays)
        self._reader_id = reader_id
        self._writers = writers
        self._closed = closed
        self._status = status
        #: The reliable writers, and those of status messages.
        self._responses: dict[Guid, WriterResponse] = {}
        self._due = DueResponses()

    # --- what happened ---------------------------------------------------------------------------

    def introduce(self, proxy: WriterProxy, now: int) -> None:
        """A writer was matched that is reliable, or knows status messages."""
        it = self._responses[proxy.guid] = WriterResponse(proxy, self.delays)
        try:
            if self._status.introduce(proxy, now):
                self._due.respond(it, now)
        finally:
            if proxy.reliable:  # announce the reader, so that the writer answers with a HEARTBEAT
                it.preemptive.on_due(self.policy, now)
                self._due.respond(it, now)
            self._due.set_timer(it)

    def forget_writer(self, writer: Guid) -> None:
        """A writer is gone."""
        self._responses.pop(writer, None)
        self._due.forget(writer)
        self._status.forget_writer(writer)

    def on_heartbeat(self, proxy: WriterProxy, *, final: bool, now: int) -> None:
        """RTPS 2.5 §8.4.12.2.5: acknowledge at once, request missing samples a little later.

        The policy's delays postpone both; a HEARTBEAT too soon after an answered one is not answered.
        """
        it = self._responses[proxy.guid]
        acks = it.acks
        if is_first := it.preemptive.on_heartbeat():
            self._due.set_timer(it)
        hole = next(proxy.missing_changes(proxy.expected, proxy.announced), None)
        nothing_to_ask = proxy.guid in self._closed or hole is None
        keeps_silent = proxy.info.keeps_silent(self.policy)  # then only missing samples are requested
        if nothing_to_ask and keeps_silent:
            if not final and acks.is_idle(proxy.expected, now):
                self._due.acknowledge(it, now, now)
            elif not final and proxy.info.status_messages:
                self._due.respond(it, now)
                proxy.stream.wanted = proxy.info.status_messages
            return
        if nothing_to_ask and final:
            return
        if acks.suppresses(self.policy.heartbeat_suppression_duration, now):
            self.counters.suppressed_heartbeats += 1
            return
        at = acks.answer_at(self.delays, now)
        if hole is None or nothing_to_ask:
            if not keeps_silent:
                self._due.acknowledge(it, at, now)
            return
        if it.nacks.on_heartbeat(hole[0], at, now, is_first=is_first):
            self._due.set_timer(it)
        if not final and proxy.expected != acks.acked_base and not keeps_silent:
            self._due.acknowledge(it, at, now)

    def on_arrival(self, proxy: WriterProxy, sn: int, before: int, now: int) -> None:
        """What arrived at ``sn`` from a reliable writer may end a repair, or show a hole.

        ``before`` is what was expected then.
        """
        it = self._responses[proxy.guid]
        moved = False
        if proxy.expected > before or (proxy.sets is not None and sn <= it.nacks.requested_to):
            moved = it.nacks.on_repair(now)
        if proxy.expected < sn and proxy.is_missing:
            moved |= it.nacks.on_hole(sn, now)
        if moved:
            self._due.set_timer(it)

    def on_hole(self, proxy: WriterProxy, limit: int, now: int, *, announced: bool = False) -> None:
        """Samples up to ``limit`` are missing; ``announced``: the writer announced that it has sent them."""
        it = self._responses[proxy.guid]
        if it.nacks.on_hole(limit, now, announced=announced):
            self._due.set_timer(it)

    def on_fragment(self, proxy: WriterProxy, sn: int, now: int) -> None:
        """Fragments of ``sn`` came, not the last it lacked."""
        it = self._responses[proxy.guid]
        if it.nacks.on_fragment(sn, now):
            self._due.set_timer(it)

    def on_gap(self, proxy: WriterProxy, now: int) -> None:
        """Samples will never come."""
        it = self._responses.get(proxy.guid)
        if it is None:
            return
        it.nacks.on_repair(now)
        if proxy.info.status_messages:
            self._status.on_passed(proxy, now)
        self._due.set_timer(it)

    def on_open(self, proxy: WriterProxy) -> None:
        """The closed writer is open again: acknowledge, and request all that is missing."""
        it = self._responses[proxy.guid]
        it.nacks.on_open()
        if not proxy.info.keeps_silent(self.policy):
            it.acks.owe()
        self._status.on_open(proxy)
        self._due.set_timer(it)

    # --- status messages: what the stream's progress makes due ------------------------------------

    def on_progress(self, proxy: WriterProxy, run: Run, now: int) -> None:
        """The stream has reached a position at which a status message may be due."""
        # A run that is not of samples of one size may span datagrams.
        size = run.datagram_bytes or (run.data.nbytes if run.stride or run.count == 1 else 0)
        it = self._responses[proxy.guid]
        if self._status.on_progress(proxy, size if size <= UDP_PAYLOAD_MAX else 0, now):
            self._due.respond(it, now)
        self._due.set_timer(it)

    def on_disorder(self, proxy: WriterProxy, run: Run, before: int, now: int) -> None:
        """A run arrived that was not the next one in order; ``before`` is what was expected then."""
        status, it = self._status, self._responses[proxy.guid]
        if status.on_disorder(proxy, run.last_sn, now):
            self._due.respond(it, now)
        if proxy.stream.rcv_pos >= proxy.stream.due:
            self.on_progress(proxy, run, now)
        lost = not proxy.reliable and before < run.first_sn
        if lost and status.on_loss(proxy, before, now):
            self._due.respond(it, now)
        if proxy.guid in self._closed and status.on_closed(proxy, now):
            self._due.respond(it, now)

    def report_at_once(self, proxy: WriterProxy) -> None:
        """Make a status message due; the owner, which requests it, has no clock."""
        proxy.stream.report_at_once()
        self._due.set_timer(self._responses[proxy.guid])

    def ask(self, proxy: WriterProxy, now: int) -> None:
        """Ask the writer whether others wait for this reader."""
        if self._status.ask(proxy, now):
            self._due.respond(self._responses[proxy.guid], now)

    # --- time ------------------------------------------------------------------------------------

    def get_timer(self) -> int | None:
        """When :meth:`handle_timer` wants to be called; None: not before something arrives."""
        timers = *self._due.timers.values(), *self.other_slices.timers()
        return min(timers, default=None)

    def handle_timer(self, now: int) -> None:
        self.other_slices.handle_timer(now)
        for guid in [guid for guid, at in self._due.timers.items() if at <= now]:
            it = self._responses[guid]
            proxy = it.proxy
            if it.preemptive.at <= now:
                it.preemptive.on_due(self.policy, now)
                self._due.respond(it, now)
            if it.acks.at <= now:
                it.acks.owe()
                self._due.respond(it, now)
            if proxy.stream.timer_at <= now and self._status.on_timer(proxy, now):
                self._due.respond(it, now)
            if it.nacks.at <= now:
                self._request(it, now)
            self._due.set_timer(it)

    def _request(self, it: WriterResponse, now: int) -> None:
        proxy = it.proxy
        if it.acks.state is ResponseState.DUE or proxy.stream.wanted:
            self._due.respond(it, now)
        begun = sum(len(each.fragments) for each in self._writers.values())  # samples that came in part
        request = it.nacks.on_timer(now, closed=proxy.guid in self._closed, begun=begun)
        if request is not None:
            self._due.respond(it, now)
            if not request.is_repetition and proxy.stream.rcv_pos:
                self._status.on_loss(proxy, request.first, now)

    # --- out -------------------------------------------------------------------------------------

    @property
    def is_responding(self) -> bool:
        """Whether there is something to send."""
        return bool(self._due.responding) or self.other_slices.is_responding

    def outgoing(self, *, hold: bool, room: int) -> list[Outgoing]:
        """The datagrams to send now; on ``hold``, only those that acknowledge nothing of this slice.

        ``room``: bytes that the owner can take.
        """
        out = self.other_slices.outgoing()
        due = self._due
        if not due.responding:
            return out
        responding, due.responding = due.responding, {}
        for guid, it in responding.items():
            if hold and it.preemptive.state is not PreemptiveState.DUE:
                due.responding[guid] = it
                it.proxy.stream.wants_rtt = False  # the round trip would seem longer than it is
            else:
                out += self._response(it, room)
        return out

    def _response(self, it: WriterResponse, room: int) -> list[Outgoing]:
        proxy = it.proxy
        packer = Packer(MESSAGE_SIZE_LEAST, proxy.info.destinations, proxy.guid.prefix)
        if it.preemptive.state is PreemptiveState.DUE:
            packer.add_submessage(
                it.preemptive.acknack(self._reader_id, proxy.info, it.acknack_count).encode()
            )
            self.counters.acknacks_sent += 1
        elif proxy.synced:
            self._add_acknack(packer, it)
            for nack_frag in it.nack_frags(self._reader_id):
                packer.add_submessage(nack_frag.encode())
                self.counters.nack_frags_sent += 1
        for message in self._status.messages(proxy, it.acknack_count, room):
            packer.add_submessage(message)
        it.preemptive.on_response()
        it.acks.on_response()
        it.nacks.on_response()
        return packer.packed

    def _add_acknack(self, packer: Packer, it: WriterResponse) -> None:
        proxy, counters = it.proxy, self.counters
        batches = proxy.reader_batch_state(*it.nacks.pending)
        state = proxy.reader_sn_state(*it.nacks.pending) if batches is None else batches
        if it.acks.state is not ResponseState.DUE and state.is_empty:
            return
        kind = AckNack if batches is None else AckNackBatch
        acknack = kind(self._reader_id, proxy.guid.entity, state, it.acknack_count, final=state.is_empty)
        packer.add_submessage(acknack.encode())
        if it.acks.on_acknack(proxy.expected):
            self._due.set_timer(it)
        proxy.stream.wanted = proxy.info.status_messages
        counters.acknacks_sent += 1
        counters.nacks_sent += not state.is_empty
