"""The delays of a reader before answers and requests: fixed by its policy, drawn at random, or learnt.

All durations are in ns.
"""

from __future__ import annotations

import math
from random import Random
from typing import Final

from ...policies import ReaderPolicy
from ..ordering.writer_proxy import WriterProxy

#: A request is not repeated sooner, whatever the policy is.
REPETITION_MIN: Final = 1_000_000


class ResponseDelays:
    """The delays of one reader."""

    __slots__ = ("_random", "policy")

    def __init__(self, policy: ReaderPolicy, random: Random) -> None:
        self.policy = policy
        self._random = random

    def draw(self) -> int:
        """A heartbeat response delay."""
        low, high = self.policy.min_heartbeat_response_delay, self.policy.max_heartbeat_response_delay
        return self._random.randint(min(low, high), high) if high else 0

    def backoff(self, *, is_waiting: bool) -> int:
        """The additional delay of a request if a group of readers sees a loss at once.

        The repair that one of them requests may arrive before the others request it (Aeron's
        OptimalMulticastDelayGenerator). The delay is drawn once per request, not again while one ``is_waiting``: of
        many draws, the shortest would win."""
        longest, group = self.policy.nack_backoff_max, self.policy.nack_group_size
        if group <= 1 or is_waiting:
            return longest if group > 1 else 0
        steepness = math.log(group) + 1.0
        return int(longest / steepness * math.log1p(self._random.random() * math.expm1(steepness)))

    def first_repetition(self, rtt: int) -> int:
        """From a request to its first repetition; one and a half round trips where one was measured (not 0)."""
        return max(self.policy.round_trip_time, rtt + (rtt >> 1), REPETITION_MIN)


class Reordering:
    """How late one writer's datagrams arrive, learnt from holes that close before they are requested.

    One hole is watched at a time. A datagram that closes it later than the policy's ``reorder_delay`` was not
    overtaken, but is a repair that was not requested."""

    __slots__ = ("_hole", "_lateness", "_policy", "_seen_at")

    def __init__(self, policy: ReaderPolicy) -> None:
        self._policy = policy
        #: The longest seen, decaying with each hole watched.
        self._lateness = 0
        #: The hole that is watched, and since when; 0: none.
        self._hole = 0
        self._seen_at = 0

    def arrived(self, proxy: WriterProxy, sn: int, requested_to: int, now: int) -> None:
        """Samples arrived at ``sn``, out of order or behind a hole; all up to ``requested_to`` were requested."""
        if self._hole:
            requested = self._hole <= requested_to
            if not requested and self._hole >= proxy.expected and self._hole not in proxy.held:
                return
            self._lateness -= self._lateness >> 4
            if not requested and now - self._seen_at <= self._policy.reorder_delay:
                self._lateness = max(self._lateness, now - self._seen_at)
        is_hole = proxy.expected < sn and sn - 1 not in proxy.held
        self._hole, self._seen_at = (sn - 1, now) if is_hole else (0, 0)

    @property
    def proven_delay(self) -> int:
        """Delay from the proof of a loss to the request: longer if datagrams were seen to overtake each other."""
        lateness = self._lateness
        return max(self._policy.nack_delay, min(lateness + lateness // 4, self._policy.reorder_delay))
