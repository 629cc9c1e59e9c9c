"""What a reader says to its writers, and when (RTPS 2.5 §8.4.12.2).

Says that it is there until the writer is heard, acknowledges at once, requests what is missing a little later,
and again with growing patience while nothing comes. With heartbeat response delays, both come that much later;
with positive acknowledgements disabled, requests are all it says, but to a writer that would wait for ever.

Invariants:
* ``_timers`` says when each writer with something due wants :meth:`Responder.handle_timer`;
* ``_responding`` holds the writers that the next :meth:`Responder.outgoing` speaks to;
* a closed writer (its reader has no room) is acknowledged but asked for nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Mapping
from random import Random
from typing import Final

from ...limits import FRAGMENTED_SAMPLES_MAX, MESSAGE_SIZE_LEAST, UDP_PAYLOAD_MAX
from ...structure import INFINITE, Guid
from ...wire.numbers import SequenceNumberSet
from ...wire.samples import Run
from ...wire.submessages import AckNack, AckNackBatch, NackFrag
from ..counts import next_count
from ..outgoing import Outgoing, Packer
from ..policies import ReaderCounters, ReaderPolicy
from .status_messages import StatusMessages
from .writer_proxy import WriterProxy

#: A request is not repeated sooner, whatever the policy says.
_REPETITION_MIN: Final = 1_000_000
#: A writer that sends HEARTBEATs for this long without anything new waits for a word from us.
_IDLE: Final = 1_000_000_000


class _Reordering:
    """How late one writer's datagrams come, learnt from holes that close before they are requested.

    One hole is watched at a time. Longer than ``longest`` it is not reordering, but a repair that came unasked.
    """

    __slots__ = ("_hole", "_longest", "_seen_at", "lateness")

    def __init__(self, longest: int) -> None:
        self._longest = longest
        #: The most seen, decaying with each hole watched.
        self.lateness = 0
        #: The hole that is watched, and since when; 0: none.
        self._hole = 0
        self._seen_at = 0

    def arrived(self, proxy: WriterProxy, sn: int, now: int) -> None:
        """Something arrived at ``sn``, out of order or behind a hole."""
        if self._hole:
            requested = self._hole <= proxy.nacked
            if not requested and self._hole >= proxy.expected and self._hole not in proxy.held:
                return
            self.lateness -= self.lateness >> 4
            if not requested and now - self._seen_at <= self._longest:
                self.lateness = max(self.lateness, now - self._seen_at)
        is_hole = proxy.expected < sn and sn - 1 not in proxy.held
        self._hole, self._seen_at = (sn - 1, now) if is_hole else (0, 0)


class Responder:
    """The answers of one reader; ``writers`` and ``closed`` are the reader's own, which changes them."""

    def __init__(
        self,
        reader_id: bytes,
        policy: ReaderPolicy,
        counters: ReaderCounters,
        writers: Mapping[Guid, WriterProxy],
        closed: Container[Guid],
        random: Random,
        status: StatusMessages,
    ) -> None:
        self.policy = policy
        self.counters = counters
        self._reader_id = reader_id
        self._writers = writers
        self._closed = closed
        self._random = random
        self._status = status
        self._timers: dict[Guid, int] = {}
        self._reordering: defaultdict[Guid, _Reordering] = defaultdict(
            lambda: _Reordering(policy.reorder_delay)
        )
        #: Since when writers that want, or get, no positive acknowledgements have told nothing new.
        self._idle_since: dict[Guid, int] = {}
        self._responding: dict[Guid, WriterProxy] = {}

    # --- what happened ---------------------------------------------------------------------------

    def introduce(self, proxy: WriterProxy, now: int) -> None:
        """A writer was matched."""
        proxy.nack_interval = self._first_interval(proxy)
        if self._status.introduce(proxy, now):
            self._respond(proxy, now)
        if proxy.reliable:
            self._preempt(proxy, now)
        self._set_timer(proxy)

    def forget(self, writer: Guid) -> None:
        """A writer is gone."""
        self._timers.pop(writer, None)
        self._reordering.pop(writer, None)
        self._idle_since.pop(writer, None)
        self._responding.pop(writer, None)
        self._status.forget(writer)

    def on_heartbeat(self, proxy: WriterProxy, *, final: bool, now: int) -> None:
        """RTPS 2.5 §8.4.12.2.5: acknowledge at once, request what is missing a little later.

        Or as much later as the policy says, and not what came too soon after one that was answered.
        """
        is_first, proxy.heard = not proxy.heard, True
        if is_first:
            proxy.preemptive_at = INFINITE
            self._set_timer(proxy)
        policy = self.policy
        hole = next(proxy.missing_changes(proxy.expected, proxy.announced), None)
        nothing_to_ask = proxy.guid in self._closed or hole is None
        if nothing_to_ask and self._keeps_silent(proxy):
            if not final and self._is_idle(proxy, now):
                self._respond(proxy, now).wants_ack = True
            elif not final and proxy.info.status_messages:
                self._respond(proxy, now).stream.wanted = True
            return
        if nothing_to_ask and final:
            return
        if now < proxy.answered_at + policy.heartbeat_suppression_duration:
            self.counters.suppressed_heartbeats += 1
            return
        proxy.answered_at = now
        at = self._answer_at(proxy, now)
        if hole is None or nothing_to_ask:
            self._acknowledge(proxy, at, now)
            return
        if proxy.nacked_head >= hole[0] and now >= proxy.nacked_at + self._first_interval(proxy):
            # The writer is there, and so is the hole: no more patience than for the first repetition.
            proxy.nack_interval = self._first_interval(proxy)
            proxy.nacked_base = 0
        if hole[0] <= proxy.held.highest or hole[0] in proxy.fragments:
            limit = max(proxy.held.highest, hole[0])
            self.suspect(proxy, limit, max(at, now + self._proven_delay(proxy)) + self._backoff(proxy))
        elif is_first:  # written before we were known: none of it is on its way
            self.suspect(proxy, proxy.announced, max(at, now + policy.nack_delay) + self._backoff(proxy))
        else:
            self.suspect(proxy, proxy.announced, max(at, now + policy.reorder_delay) + self._backoff(proxy))
        if not final and proxy.expected != proxy.acked_base:
            self._acknowledge(proxy, at, now)

    def _answer_at(self, proxy: WriterProxy, now: int) -> int:
        """When to answer a HEARTBEAT: several that come before the answer get one."""
        if proxy.answer_at <= now:
            proxy.answer_at = now + self._draw()
        return proxy.answer_at

    def _draw(self) -> int:
        low, high = self.policy.min_heartbeat_response_delay, self.policy.max_heartbeat_response_delay
        return self._random.randint(min(low, high), high) if high else 0

    def _backoff(self, proxy: WriterProxy) -> int:
        """How much longer a request waits where a group of readers sees a loss at once: the repair that the first
        of them asks for may come before the others ask (Aeron's OptimalMulticastDelayGenerator).

        Drawn once a request: many draws would come to the shortest of them.
        """
        longest, group = self.policy.nack_backoff_max, self.policy.nack_group_size
        if group <= 1 or proxy.nack_at != INFINITE:
            return longest if group > 1 else 0
        steepness = math.log(group) + 1.0
        return int(longest / steepness * math.log1p(self._random.random() * math.expm1(steepness)))

    def _keeps_silent(self, proxy: WriterProxy) -> bool:
        """Whether nothing is acknowledged to this writer, only requested."""
        info = proxy.info
        return info.no_positive_acks or (self.policy.disable_positive_acks and info.needs_no_acks)

    def _is_idle(self, proxy: WriterProxy, now: int) -> bool:
        """Whether a writer has told nothing new for long: it may not know of us, as a pre-emptive ACKNACK was lost."""
        if proxy.acked_base != proxy.expected:
            proxy.acked_base = proxy.expected
            self._idle_since[proxy.guid] = now
        return now - self._idle_since.setdefault(proxy.guid, now) >= _IDLE

    def _acknowledge(self, proxy: WriterProxy, at: int, now: int) -> None:
        if self._keeps_silent(proxy):
            return
        if at <= now:
            self._respond(proxy, now).wants_ack = True
        elif at < proxy.ack_at:
            proxy.ack_at = at
            self._set_timer(proxy)

    def on_hole(self, proxy: WriterProxy, limit: int, now: int, *, announced: bool = False) -> None:
        """What arrived shows that something before it, up to ``limit``, has not; ``announced``: the writer says
        that it was sent."""
        self._reordering[proxy.guid].arrived(proxy, limit, now)
        wait = self._proven_delay(proxy) if announced else self.policy.reorder_delay
        if proxy.nack_at == INFINITE:
            wait += self._draw()  # all readers of a multicast see the hole at once
        else:
            wait += self.policy.max_heartbeat_response_delay
        self.suspect(proxy, limit, now + wait + self._backoff(proxy))

    def on_fragment(self, proxy: WriterProxy, sn: int, now: int) -> None:
        """Fragments of ``sn`` came: if they answer a request, what is missing when they fall silent is soon to
        be requested anew."""
        if proxy.nacked >= sn:
            proxy.nack_interval = self._first_interval(proxy)
        self.on_hole(proxy, sn, now)

    def suspect(self, proxy: WriterProxy, limit: int, at: int) -> None:
        """Have what is missing up to ``limit`` requested at ``at``, or sooner if that is due already.

        A later suspicion never moves the limit of one that waits: else a steady stream, whose end is always
        on its way, would be requested without need.
        """
        if proxy.nack_at == INFINITE or at < proxy.nack_at:
            proxy.nack_limit, proxy.nack_at = limit, at
        else:
            return
        self._set_timer(proxy)

    def after_repair(self, proxy: WriterProxy, now: int) -> None:
        """All that was requested has come: go on with the rest without waiting for the repetition."""
        self._reordering[proxy.guid].arrived(proxy, proxy.expected, now)
        if proxy.nacked and proxy.held and proxy.first_missing > proxy.nacked:
            proxy.nacked = 0
            at = now + self._proven_delay(proxy) + self._backoff(proxy)
            self.suspect(proxy, proxy.held.highest, at)

    def ask_at_once(self, proxy: WriterProxy) -> None:
        """The writer's closed way is open again: acknowledge, and request all that is missing."""
        proxy.nacked, proxy.wants_ack = 0, not self._keeps_silent(proxy)
        proxy.stream.wanted = proxy.info.status_messages
        proxy.stream.recovery_sn = proxy.announced  # it was us who lost it, not the network
        proxy.nack_limit, proxy.nack_at = proxy.announced, 0  # a timer in the past: there is no clock here
        self._set_timer(proxy)

    # --- status messages: what the stream's progress makes due ------------------------------------

    def on_progress(self, proxy: WriterProxy, run: Run, now: int) -> None:
        """The stream has come to where something may be due."""
        # A run that is not of samples of one size may span datagrams.
        size = run.data.nbytes if run.stride or run.count == 1 else 0
        if self._status.on_progress(proxy, size if size <= UDP_PAYLOAD_MAX else 0, now):
            self._respond(proxy, now)
        self._set_timer(proxy)

    def on_disorder(self, proxy: WriterProxy, run: Run, before: int, now: int) -> None:
        """A run came that was not simply the next one; ``before`` is what was expected then."""
        status = self._status
        if status.on_disorder(proxy, run.last_sn, now):
            self._respond(proxy, now)
        if proxy.stream.rcv_pos >= proxy.stream.due:
            self.on_progress(proxy, run, now)
        lost = not proxy.reliable and before < run.first_sn
        if lost and status.on_loss(proxy, before, now):
            self._respond(proxy, now)
        if proxy.guid in self._closed and status.on_closed(proxy, now):
            self._respond(proxy, now)

    def on_passed(self, proxy: WriterProxy, now: int) -> None:
        """Samples will never come."""
        self._status.on_passed(proxy, now)
        self._set_timer(proxy)

    def tell_at_once(self, proxy: WriterProxy) -> None:
        """Something is to be said, by an owner who knows no clock."""
        proxy.stream.wanted = True
        proxy.stream.timer_at = 0
        self._set_timer(proxy)

    # --- time ------------------------------------------------------------------------------------

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
            proxy = self._writers[guid]
            if proxy.preemptive_at <= now:
                self._preempt(proxy, now)
            if proxy.ack_at <= now:
                proxy.ack_at = INFINITE
                self._respond(proxy, now).wants_ack = True
            if proxy.stream.timer_at <= now and self._status.on_timer(proxy, now):
                self._respond(proxy, now)
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
        if proxy.wants_ack or proxy.stream.wanted:
            self._respond(proxy, now)
        limit, proxy.nack_at = proxy.nack_limit, INFINITE
        if proxy.guid in self._closed or not proxy.is_missing:
            return
        policy = self.policy
        lowest = first = proxy.first_missing
        last = min(limit, proxy.announced)
        if proxy.held.is_full:
            # What lies beyond would be dropped, but for what the end of a coherent set lacks.
            last = min(last, max(proxy.held.highest, lowest))
        if proxy.fragments and self._begun >= FRAGMENTED_SAMPLES_MAX:
            # The same where no more samples can be begun.
            last = min(last, max(proxy.fragments))
        last = proxy.requestable(first, last)
        repeats = False
        if proxy.nacked >= first > proxy.nacked_head:  # the older request is answered: on with the later one
            proxy.nacked_head, proxy.nacked_at = proxy.nacked, proxy.nacked_tail_at
        if proxy.nacked < first:
            proxy.nack_interval = self._first_interval(proxy)
        elif now < proxy.nacked_at + proxy.nack_interval:
            first = proxy.nacked + 1  # the rest is requested, and may be on its way
        else:
            repeats = True
            longer = min(proxy.nack_interval * 2, policy.nack_period) if proxy.nacked_base == lowest else 0
            proxy.nack_interval = max(longer, self._first_interval(proxy))
            last = min(last, proxy.nacked_head)
        if next(proxy.missing_changes(first, last), None) is not None and self._request(
            proxy, first, last, now
        ):
            # Together with what is still to be said.
            begin = min(first, proxy.requested[0]) if proxy.requested[1] else first
            self._respond(proxy, now).requested = (begin, max(last, proxy.requested[1]))
            if not repeats and proxy.stream.rcv_pos:
                self._status.on_loss(proxy, first, now)
            if first == lowest:
                proxy.nacked_at, proxy.nacked_base = now, lowest
                if not repeats:
                    proxy.nacked_head = proxy.nacked = last
            else:  # what is requested in addition does not put off the repetition of the rest
                proxy.nacked, proxy.nacked_tail_at = last, now
        if proxy.nacked < lowest:
            again = now + max(policy.reorder_delay + self._draw(), _REPETITION_MIN)
        elif repeats and limit > proxy.nacked:
            self.suspect(proxy, limit, now + _REPETITION_MIN)
            return
        else:
            again = max(proxy.nacked_at + proxy.nack_interval, now + max(policy.nack_delay, _REPETITION_MIN))
        self.suspect(proxy, proxy.announced, again)

    @property
    def _begun(self) -> int:
        """Samples of which some fragments have arrived."""
        return sum(len(proxy.fragments) for proxy in self._writers.values())

    def _proven_delay(self, proxy: WriterProxy) -> int:
        """From what proves a loss to the request: longer where datagrams were seen to overtake each other."""
        lateness = self._reordering[proxy.guid].lateness
        return max(self.policy.nack_delay, min(lateness + lateness // 4, self.policy.reorder_delay))

    def _first_interval(self, proxy: WriterProxy) -> int:
        """From a request to its first repetition; one and a half round trips where one was measured."""
        rtt = proxy.stream.rtt
        return max(self.policy.round_trip_time, rtt + (rtt >> 1), _REPETITION_MIN)

    def _request(self, proxy: WriterProxy, first: int, last: int, now: int) -> bool:
        """Note the fragments to request; False when all that is missing are fragments still on their way."""
        policy = self.policy
        useful = False
        for a, b in proxy.missing_changes(first, last):
            if b - a >= len(proxy.fragments) or any(sn not in proxy.fragments for sn in range(a, b + 1)):
                useful = True
        for sn, sample in sorted(proxy.fragments.items()):
            if first <= sn <= last:
                sent = sn <= proxy.last_sn
                quiet = self._proven_delay(proxy) if sent else policy.reorder_delay
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

    @property
    def is_responding(self) -> bool:
        """Whether something is to be said."""
        return bool(self._responding)

    def outgoing(self, *, hold: bool, room: int) -> list[Outgoing]:
        """What to say now; while on ``hold`` only what acknowledges nothing, the rest is said later. ``room``:
        bytes the owner can take."""
        if not self._responding:
            return []
        out: list[Outgoing] = []
        responding, self._responding = self._responding, {}
        for guid, proxy in responding.items():
            if hold and (proxy.heard or not proxy.wants_preemptive):
                self._responding[guid] = proxy
                self._status.question_is_old(proxy)
            else:
                out += self._response(proxy, room)
        return out

    def _response(self, proxy: WriterProxy, room: int) -> list[Outgoing]:
        me, it, counters = self._reader_id, proxy.guid.entity, self.counters
        packer = Packer(MESSAGE_SIZE_LEAST, proxy.info.destinations, proxy.guid.prefix)
        count = proxy.acknack_count
        if proxy.wants_preemptive and not proxy.heard:
            # Cyclone DDS answers base 1 and count >= 1, and throws base 0 away with a warning; some answer base 0
            # only, but have sent a HEARTBEAT at the match: try that late.
            tries = proxy.preemptive_tries
            base = 0 if tries > 5 and tries % 2 == 0 else proxy.info.preemptive_base
            packer.add(AckNack(me, it, SequenceNumberSet(base), count, final=False).encode())
            counters.acknacks_sent += 1
        elif proxy.synced:
            batches = proxy.reader_batch_state()
            state = proxy.reader_sn_state() if batches is None else batches
            if proxy.wants_ack or not state.is_empty:
                kind = AckNack if batches is None else AckNackBatch
                packer.add(kind(me, it, state, count, final=state.is_empty).encode())
                if proxy.ack_at != INFINITE:
                    proxy.ack_at = INFINITE  # that was it
                    self._set_timer(proxy)
                proxy.acked_base = proxy.expected
                proxy.stream.wanted = proxy.info.status_messages
                counters.acknacks_sent += 1
                counters.nacks_sent += not state.is_empty
            for sn, up_to in proxy.requested_fragments.items():
                sample = proxy.fragments.get(sn)
                missing = None if sample is None else sample.missing(up_to)
                if missing is not None:
                    proxy.nack_frag_count = max(proxy.nack_frag_count + 1, count)
                    packer.add(NackFrag(me, it, sn, missing, proxy.nack_frag_count).encode())
                    counters.nack_frags_sent += 1
        for message in self._status.messages(proxy, count, room):
            packer.add(message)
        proxy.wants_ack = proxy.wants_preemptive = False
        proxy.requested = (1, 0)
        proxy.requested_fragments = {}
        return packer.packed
