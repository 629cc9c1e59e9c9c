"""When a reader requests missing samples from one writer, and when it repeats the request (RTPS 2.5 §8.4.12.2).

The proxy knows which samples are missing; the schedule knows which of them were requested, and when. ``at`` is its
timer; at that time, the samples missing up to ``limit`` are requested.

States:

* QUIET: nothing is known to be missing (``at`` is INFINITE);
* SUSPECTING: something is missing and none of it was requested (``requested_to`` lies below all that is missing);
* REQUESTED: samples missing up to ``requested_to`` were requested, in one request up to ``_head``, sent at
  ``_requested_at``, and a later one for the rest, sent at ``_tail_at``.

Transitions:

==========  =============================  ==========================================================  ==========
state       event                          action                                                      next
==========  =============================  ==========================================================  ==========
QUIET       a hole, or a HEARTBEAT, shows  ``at``: the delay that its proof deserves (see             SUSPECTING
            that something is missing      :mod:`.response_delays`); ``limit``: what it proves
SUSPECTING  such a suspicion, due sooner   ``limit`` and ``at`` are the new one's                      SUSPECTING
REQUESTED   such a suspicion, due sooner   ``limit`` and ``at`` are the new one's                      REQUESTED
SUSPECTING  ``at``                         request up to ``limit``; the first repetition comes after   REQUESTED
                                           about a round trip
REQUESTED   ``at``, but the interval is    request what lies behind ``requested_to``, up to ``limit``  REQUESTED
            not over
REQUESTED   ``at``, the interval is over   request up to ``_head`` again; the interval doubles if      REQUESTED
                                           nothing came since
REQUESTED   all that was requested came,   ``at``: soon, for the rest                                  SUSPECTING
            something else is missing
REQUESTED   fragments of it came           the interval is a first one's again                         REQUESTED
REQUESTED   the writer shows that it is    the interval is a first one's again                         REQUESTED
            there, the hole still open
any         the closed writer is open      ``at``: at once, for all that the writer announced          SUSPECTING
            again
any         ``at``, nothing is missing,    ``at`` = INFINITE                                           QUIET
            or the writer is closed
==========  =============================  ==========================================================  ==========

Invariants: a later suspicion never moves the limit of a pending one, because the end of a steady stream, which is
always on its way, would be requested without need; an additional request does not postpone the repetition of earlier
ones; no request is repeated within ``REPETITION_MIN``."""

from __future__ import annotations

from typing import NamedTuple

from ....limits import FRAGMENTED_SAMPLES_MAX
from ....structure import INFINITE
from ..ordering.writer_proxy import WriterProxy
from .response_delays import REPETITION_MIN, Reordering, ResponseDelays


class NackRequest(NamedTuple):
    """A request to send now: numbers from ``first`` on, and whether they were requested before."""

    first: int
    is_repetition: bool


class NackSchedule:
    """The requests to one writer."""

    __slots__ = (
        "_base",
        "_delays",
        "_head",
        "_interval",
        "_proxy",
        "_reordering",
        "_requested_at",
        "_tail_at",
        "at",
        "fragments",
        "limit",
        "pending",
        "requested_to",
    )

    def __init__(self, proxy: WriterProxy, delays: ResponseDelays) -> None:
        self._proxy = proxy
        self._delays = delays
        self._reordering = Reordering(delays.policy)
        self.at = INFINITE
        self.limit = 0
        #: Time from a request to its repetition.
        self._interval = delays.first_repetition(proxy.stream.rtt)
        #: The highest number that was requested; 0: none.
        self.requested_to = 0
        self._requested_at = 0
        #: The lowest number that was missing at the last request for it; 0: the interval does not double.
        self._base = 0
        self._head = 0
        self._tail_at = 0
        # what the next response requests
        self.pending = (1, 0)
        #: For each sample, the last fragment to request.
        self.fragments: dict[int, int] = {}

    # --- what shows that something is missing: each returns whether the timer has moved -------------

    def on_heartbeat(self, hole: int, answer_at: int, now: int, *, is_first: bool) -> bool:
        """A HEARTBEAT, answered at ``answer_at``, shows that ``hole`` is the lowest number missing."""
        proxy, policy = self._proxy, self._delays.policy
        first_interval = self._first_interval
        if self._head >= hole and now >= self._requested_at + first_interval:
            # The writer is alive and the hole is still open: wait no longer than for the first repetition.
            self._interval, self._base = first_interval, 0
        if hole <= proxy.held.highest or hole in proxy.fragments:
            limit, delay = max(proxy.held.highest, hole), self._reordering.proven_delay
        elif is_first:  # written before the reader was known, and so not on its way
            limit, delay = proxy.announced, policy.nack_delay
        else:
            limit, delay = proxy.announced, policy.reorder_delay
        return self._suspect(limit, max(answer_at, now + delay) + self._backoff())

    def on_hole(self, limit: int, now: int, *, announced: bool = False) -> bool:
        """An arrival shows that samples before it, up to ``limit``, are missing.

        ``announced``: the writer announced that it was sent.
        """
        delays = self._delays
        self._reordering.arrived(self._proxy, limit, self.requested_to, now)
        wait = self._reordering.proven_delay if announced else delays.policy.reorder_delay
        if self.at == INFINITE:
            wait += delays.draw()  # all readers of a multicast see the hole at once
        else:
            wait += delays.policy.max_heartbeat_response_delay
        return self._suspect(limit, now + wait + self._backoff())

    def on_fragment(self, sn: int, now: int) -> bool:
        """Fragments of ``sn`` arrived: if they answer a request, the rest is requested soon after the last of them."""
        if self.requested_to >= sn:
            self._interval = self._first_interval
        return self.on_hole(sn, now)

    def on_repair(self, now: int) -> bool:
        """A missing sample came; if all requested ones have come, the rest is requested without waiting."""
        proxy = self._proxy
        self._reordering.arrived(proxy, proxy.expected, self.requested_to, now)
        if not (self.requested_to and proxy.held and proxy.first_missing > self.requested_to):
            return False
        self.requested_to = 0
        return self._suspect(proxy.held.highest, now + self._reordering.proven_delay + self._backoff())

    def on_open(self) -> None:
        """The reader has space again for samples that it refused: request them at once."""
        self.requested_to = 0
        self.limit, self.at = self._proxy.announced, 0  # a time in the past, since this class has no clock

    def _suspect(self, limit: int, at: int) -> bool:
        if at >= self.at:
            return False
        self.limit, self.at = limit, at
        return True

    # --- the timer ---------------------------------------------------------------------------------

    def on_timer(self, now: int, *, closed: bool, begun: int) -> NackRequest | None:
        """``at`` has come: note the numbers to request that are not requested yet, and when to check again.

        ``closed``: the reader has no space for the next samples. ``begun``: the number of samples of all its writers of
        which some fragments have arrived.
        """
        proxy, policy = self._proxy, self._delays.policy
        limit, self.at = self.limit, INFINITE
        if closed or not proxy.is_missing:
            return None
        lowest = first = proxy.first_missing
        last = self._last_of_use(lowest, limit, begun)
        is_repetition = False
        if self.requested_to >= first > self._head:  # the older request is answered: on with the later one
            self._head, self._requested_at = self.requested_to, self._tail_at
        if self.requested_to < first:
            self._interval = self._first_interval
        elif now < self._requested_at + self._interval:
            first = self.requested_to + 1  # the rest is requested, and may be on its way
        else:
            is_repetition = True
            longer = min(self._interval * 2, policy.nack_period) if self._base == lowest else 0
            self._interval = max(longer, self._first_interval)
            last = min(last, self._head)
        request: NackRequest | None = None
        if next(proxy.missing_changes(first, last), None) is not None and self._is_due(first, last, now):
            # Together with what is still to be sent.
            begin = min(first, self.pending[0]) if self.pending[1] else first
            self.pending = (begin, max(last, self.pending[1]))
            request = NackRequest(first, is_repetition)
            if first > lowest:
                self.requested_to, self._tail_at = last, now
            else:
                self._requested_at, self._base = now, lowest
                if not is_repetition:
                    self._head = self.requested_to = last
        if self.requested_to < lowest:
            self.limit = proxy.announced
            self.at = now + max(policy.reorder_delay + self._delays.draw(), REPETITION_MIN)
        elif is_repetition and limit > self.requested_to:
            self.limit, self.at = limit, now + REPETITION_MIN
        else:
            self.limit = proxy.announced
            again = now + max(policy.nack_delay, REPETITION_MIN)
            self.at = max(self._requested_at + self._interval, again)
        return request

    def _last_of_use(self, lowest: int, limit: int, begun: int) -> int:
        """The last number that is useful to request."""
        proxy = self._proxy
        last = min(limit, proxy.announced)
        if proxy.held.window.is_full:
            # Samples beyond it would be dropped, except those that a coherent set needs for its end.
            last = min(last, max(proxy.held.highest, lowest))
        if proxy.fragments and begun >= FRAGMENTED_SAMPLES_MAX:
            # The same if no more fragmented samples can be begun.
            last = min(last, max(proxy.fragments))
        return proxy.requestable(lowest, last)

    def _is_due(self, first: int, last: int, now: int) -> bool:
        """Note the fragments to request; False if only fragments that are still on their way are missing."""
        proxy, policy = self._proxy, self._delays.policy
        is_due = False
        for a, b in proxy.missing_changes(first, last):
            if b - a >= len(proxy.fragments) or any(sn not in proxy.fragments for sn in range(a, b + 1)):
                is_due = True
        for sn, sample in sorted(proxy.fragments.items()):
            if first <= sn <= last:
                is_sent = sn <= proxy.last_sn
                quiet = self._reordering.proven_delay if is_sent else policy.reorder_delay
                up_to = sample.fragments if now - sample.touched >= quiet else sample.announced
                if sample.missing(up_to) is not None:
                    self.fragments[sn] = up_to
                    is_due = True
        return is_due

    def on_response(self) -> None:
        """The response was sent, with all pending requests."""
        self.pending = (1, 0)
        self.fragments = {}

    @property
    def _first_interval(self) -> int:
        return self._delays.first_repetition(self._proxy.stream.rtt)

    def _backoff(self) -> int:
        return self._delays.backoff(is_waiting=self.at != INFINITE)
