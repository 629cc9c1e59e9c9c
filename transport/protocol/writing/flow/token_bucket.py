"""The token bucket that asynchronous writers share; RTI and our options call it a flow controller.

Sans I/O: datagrams come in by :meth:`TokenBucket.enqueue` and leave by :meth:`TokenBucket.release` while there are
tokens. A batch counts as one large sample: it is one datagram, and a datagram is never divided.

Invariants:
* the datagrams of one writer leave in order; the scheduling decides which writer is next, and no smaller datagram
  overtakes the next one;
* a datagram leaves when the bucket has its tokens. One that costs more than the bucket holds leaves when the bucket
  is full, and the bucket then owes the rest: the queue is never stuck, and the rate does not change;
* excess tokens leak at the end of a period, after everything that had tokens was sent: nothing leaks while a datagram
  waits;
* ``queued_bytes`` is the sum of the bytes that wait; `asynchronous` bounds it.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import field
from typing import Final

from ....structure import INFINITE, Guid
from ....value_classes import slotted
from ...outgoing import Outgoing
from ...policies import FlowControllerPolicy, Scheduling

#: Sends at once.
DEFAULT: Final = FlowControllerPolicy()
#: Sends, once per period, everything that was written in it.
FIXED_RATE: Final = FlowControllerPolicy("fixed_rate", tokens_leaked_per_period=INFINITE)
#: Sends when it is triggered: :meth:`TokenBucket.trigger`.
ON_DEMAND: Final = FlowControllerPolicy("on_demand", tokens_leaked_per_period=INFINITE, period=INFINITE)
PREDEFINED: Final = {policy.name: policy for policy in (DEFAULT, FIXED_RATE, ON_DEMAND)}


@slotted
class _Waiting:
    outgoing: Outgoing
    nbytes: int
    deadline: int
    priority: int
    arrival: int


@slotted
class _QueuedWriter:
    queue: deque[_Waiting] = field(default_factory=deque)
    nbytes: int = 0
    #: The last round in which the writer had its turn.
    round: int = -1


class TokenBucket:
    """One bucket, and the datagrams that wait for its tokens."""

    def __init__(self, policy: FlowControllerPolicy) -> None:
        self.policy = policy
        self.queued_bytes = 0
        self._max_tokens = max(policy.max_tokens, 0)
        self._added = max(policy.tokens_added_per_period, 0)
        self._leaked = max(policy.tokens_leaked_per_period, 0)
        self._tokens = 0
        #: When tokens were last added by the clock; None if they never were.
        self._period_start: int | None = None
        #: Tokens were added, and the excess has not leaked yet.
        self._may_leak = False
        self._now = 0
        self._writers: dict[Guid, _QueuedWriter] = {}
        #: (sort key of the scheduling, arrival, writer) of each writer's first datagram; a heap.
        self._heads: list[tuple[tuple[int, ...], int, Guid]] = []
        self._arrivals = 0
        self._round = 0

    # --- in --------------------------------------------------------------------------------------

    def enqueue(
        self, writer: Guid, outgoing: list[Outgoing], *, deadline: int, priority: int, now: int
    ) -> None:
        """Take datagrams of a writer. ``deadline``: the write plus LATENCY_BUDGET; a higher ``priority`` is first."""
        self._advance(now)
        state = self._writers.setdefault(writer, _QueuedWriter())
        was_idle = not state.queue
        try:
            for each in outgoing:
                nbytes = sum(len(buffer) for buffer in each.submessages)
                state.queue.append(_Waiting(each, nbytes, deadline, priority, self._arrivals))
                self._arrivals += 1
                state.nbytes += nbytes
                self.queued_bytes += nbytes
            if was_idle and state.queue:
                self._line_up(writer, state)
        except BaseException:
            self._settle()
            raise

    def _settle(self) -> None:
        """Recount the queues, and order the writers again, after an exception interrupted a change of the queues."""
        self._heads = []
        for writer, state in self._writers.items():
            state.nbytes = sum(waiting.nbytes for waiting in state.queue)
            if state.queue:
                self._line_up(writer, state)
        self.queued_bytes = sum(state.nbytes for state in self._writers.values())

    def forget_writer(self, writer: Guid) -> None:
        """Drop the queued datagrams of a writer."""
        state = self._writers.pop(writer, None)
        if state is not None:
            self.queued_bytes -= state.nbytes
            self._heads = [head for head in self._heads if head[2] != writer]
            heapq.heapify(self._heads)

    def queued_bytes_of(self, writer: Guid) -> int:
        state = self._writers.get(writer)
        return 0 if state is None else state.nbytes

    def queued_datagrams_of(self, writer: Guid) -> int:
        state = self._writers.get(writer)
        return 0 if state is None else len(state.queue)

    def trigger(self) -> None:
        """Add the tokens of one period at any time; :meth:`release` then sends what they allow."""
        self._tokens = min(self._tokens + self._added, self._max_tokens)
        self._may_leak = True

    # --- out -------------------------------------------------------------------------------------

    def release(self, now: int) -> list[Outgoing]:
        """The datagrams that may be sent now, in order."""
        self._advance(now)
        out: list[Outgoing] = []
        try:
            while (head := self._head()) is not None:
                writer, waiting = head
                cost = self._cost(waiting)
                if self._tokens < min(cost, self._max_tokens):
                    break
                self._tokens -= cost
                out.append(waiting.outgoing)
                self._take(writer)
        except BaseException:
            self._settle()
            raise
        self._leak()
        return out

    def get_timer(self) -> int | None:
        """When to call :meth:`release`; None: not before a datagram is queued or tokens are triggered."""
        head = self._head()
        if head is None:
            return None
        lacking = min(self._cost(head[1]), self._max_tokens) - self._tokens
        if lacking <= 0:
            return self._now
        if self._period_start is None or not self._added:
            return None
        return self._period_start + -(-lacking // self._added) * self.policy.period

    def _cost(self, waiting: _Waiting) -> int:
        """Tokens that a datagram costs; each destination is a packet of its own."""
        tokens = max(1, -(-waiting.nbytes // self.policy.bytes_per_token))
        return tokens * max(1, len(waiting.outgoing.destinations))

    # --- scheduling ------------------------------------------------------------------------------

    def _line_up(self, writer: Guid, state: _QueuedWriter) -> None:
        """Order a writer by its first datagram, which has changed."""
        first = state.queue[0]
        order: tuple[int, ...]
        if self.policy.scheduling is Scheduling.ROUND_ROBIN:
            order = (max(self._round, state.round + 1),)
        elif self.policy.scheduling is Scheduling.EARLIEST_DEADLINE_FIRST:
            order = (first.deadline, -first.priority)
        else:
            order = (-first.priority, first.deadline)
        heapq.heappush(self._heads, (order, first.arrival, writer))

    def _head(self) -> tuple[Guid, _Waiting] | None:
        """The next writer, and its first datagram."""
        if not self._heads:
            return None
        writer = self._heads[0][2]
        return writer, self._writers[writer].queue[0]

    def _take(self, writer: Guid) -> None:
        order, _, _ = heapq.heappop(self._heads)
        state = self._writers[writer]
        nbytes = state.queue.popleft().nbytes
        state.nbytes -= nbytes
        self.queued_bytes -= nbytes
        if self.policy.scheduling is Scheduling.ROUND_ROBIN:
            self._round = state.round = order[0]
        if state.queue:
            self._line_up(writer, state)

    # --- tokens ----------------------------------------------------------------------------------

    def _advance(self, now: int) -> None:
        """Add the tokens of the periods that have begun; the first one begins with the first call."""
        self._now = max(self._now, now)
        period = self.policy.period
        if period >= INFINITE:
            return
        if self._period_start is None:
            self._period_start = now
            self.trigger()
            return
        periods = (now - self._period_start) // period
        if periods <= 0:
            return
        self._period_start += periods * period
        self._leak()
        if periods > 1:
            self._pass_idly(periods - 1)
        self.trigger()
        if now > self._period_start:
            self._leak()  # nothing waited when the period began

    def _leak(self) -> None:
        if self._may_leak and self._head() is None:
            self._tokens -= min(self._leaked, max(self._tokens, 0))
            self._may_leak = False

    def _pass_idly(self, periods: int) -> None:
        """Update the tokens for periods in which nothing was sent."""
        if self._head() is not None or not self._leaked:
            self._tokens = min(self._tokens + periods * self._added, self._max_tokens)
            return
        if self._tokens < 0 < self._added:  # new tokens first pay the bucket's debt
            debt = -self._tokens
            paying = min(periods, -(-debt // self._added))
            self._tokens = min(paying * self._added - debt, self._max_tokens)
            self._tokens -= min(self._leaked, max(self._tokens, 0))
            periods -= paying
        if periods and self._tokens >= 0:
            # Each period adds up to max_tokens, then leaks down to 0 at the least: both bounds hold for the sum.
            net = self._added - self._leaked
            most = self._max_tokens - self._leaked + min(0, (periods - 1) * net)
            self._tokens = max(0, min(self._tokens + periods * net, most))
