"""Flow controllers in virtual time: rates, bursts, leaks, scheduling, and that nothing is ever stuck."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from spark_rtps.transport.protocol.outgoing import Outgoing
from spark_rtps.transport.protocol.policies import FlowControllerPolicy, Scheduling
from spark_rtps.transport.protocol.writing.flow.token_bucket import (
    DEFAULT,
    FIXED_RATE,
    ON_DEMAND,
    PREDEFINED,
    TokenBucket,
)
from spark_rtps.transport.structure import INFINITE, NANOSECONDS, Guid, Locator

MS = 1_000_000
START = 5 * NANOSECONDS + 7


def guid(name: str) -> Guid:
    return Guid(name.encode().ljust(12, b"\0"), b"\0\0\1\2")


def datagram(size: int = 1_000, tag: int = 0, destinations: int = 1) -> Outgoing:
    """Two submessages, as DATA_BATCH and HEARTBEAT_BATCH are; the timestamp tells which one it is."""
    where = tuple(Locator(f"10.0.0.{i}", 7411) for i in range(1, destinations + 1))
    return Outgoing(where, None, tag, [np.zeros(size - 32, np.uint8), bytes(32)])


def nbytes(out: Outgoing) -> int:
    return sum(len(each) for each in out.submessages)


class Script:
    """A controller and its clock; notes when each datagram was released."""

    def __init__(self, policy: FlowControllerPolicy) -> None:
        self.controller = TokenBucket(policy)
        self.now = START
        self.released: list[tuple[int, Outgoing]] = []

    def enqueue(self, writer: str, *datagrams: Outgoing, deadline: int = INFINITE, priority: int = 0) -> None:
        self.controller.enqueue(
            guid(writer), list(datagrams), deadline=deadline, priority=priority, now=self.now
        )

    def release(self) -> list[int]:
        """Tags of what may go now."""
        out = self.controller.release(self.now)
        self.released += [(self.now, each) for each in out]
        return [each.timestamp or 0 for each in out]

    def run(self, duration: int) -> list[int]:
        """Obey the timer for so long."""
        tags, until = self.release(), self.now + duration
        while (due := self.controller.get_timer()) is not None and due <= until:
            assert due > self.now, "what can go has gone"
            self.now = due
            tags += self.release()
        self.now = until
        return tags

    def bytes_between(self, first: int, last: int) -> int:
        return sum(nbytes(out) for at, out in self.released if first <= at < last)


def policy(**options: object) -> FlowControllerPolicy:
    standard: dict[str, object] = {
        "max_tokens": 10,
        "tokens_added_per_period": 5,
        "period": 100 * MS,
        "bytes_per_token": 1_000,
    }
    return FlowControllerPolicy("mine", **(standard | options))


# --- predefined ---------------------------------------------------------------------------------------


def test_predefined_have_names() -> None:
    assert list(PREDEFINED) == ["default", "fixed_rate", "on_demand"]


def test_default_sends_at_once() -> None:
    s = Script(DEFAULT)
    s.enqueue("a", *(datagram(60_000, i) for i in range(1_000)))
    assert s.controller.get_timer() == s.now
    assert s.release() == list(range(1_000))
    assert s.controller.get_timer() is None
    s.now += 1
    s.enqueue("a", datagram(tag=7))
    assert s.release() == [7]


def test_fixed_rate_sends_once_per_period() -> None:
    s = Script(FIXED_RATE)
    for i in range(35):
        s.enqueue("ab"[i % 2], datagram(tag=i))
        s.run(NANOSECONDS // 10)
    times = sorted({at for at, _ in s.released})
    assert times == [START + i * NANOSECONDS for i in range(4)]
    assert [out.timestamp for _, out in s.released] == list(range(30))
    assert s.controller.get_timer() == START + 4 * NANOSECONDS


def test_fixed_rate_after_a_pause_waits_for_the_next_period() -> None:
    s = Script(FIXED_RATE)
    s.enqueue("a", datagram())
    s.release()
    s.now += 10 * NANOSECONDS + MS
    s.enqueue("a", datagram(tag=1))
    assert s.release() == []
    assert s.controller.get_timer() == START + 11 * NANOSECONDS
    assert s.run(NANOSECONDS) == [1]


def test_on_demand_sends_when_triggered() -> None:
    s = Script(ON_DEMAND)
    s.enqueue("a", datagram(tag=1), datagram(tag=2))
    assert s.controller.get_timer() is None
    s.now += 1_000 * NANOSECONDS
    assert s.release() == []
    s.controller.trigger()
    assert s.controller.get_timer() == s.now
    assert s.release() == [1, 2]
    s.enqueue("a", datagram(tag=3))
    assert s.release() == [], "each trigger sends what was queued by then"
    s.controller.trigger()
    assert s.release() == [3]


def test_on_demand_triggered_in_vain_sends_nothing_later() -> None:
    s = Script(ON_DEMAND)
    s.controller.trigger()
    assert s.release() == []
    s.enqueue("a", datagram(tag=1))
    assert s.release() == []


def test_trigger_adds_one_periods_tokens() -> None:
    s = Script(policy(period=INFINITE, tokens_added_per_period=2))
    s.enqueue("a", *(datagram(tag=i) for i in range(5)))
    assert s.release() == []
    s.controller.trigger()
    assert s.release() == [0, 1]
    s.controller.trigger()
    assert s.release() == [2, 3]


# --- token bucket -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, 999, 1_000, 1_001, 4_000, 60_000])
def test_the_rate_over_a_long_time_is_tokens_by_bytes_per_token_by_period(size: int) -> None:
    s = Script(policy())
    s.enqueue("a", *(datagram(size, i) for i in range(6_000_000 // max(size, 1_000))))
    s.run(100 * NANOSECONDS)
    tokens = sum(-(-nbytes(out) // 1_000) for _, out in s.released)
    assert tokens == pytest.approx(5 * 10 * 100, rel=0.02)


def test_tokens_added_per_period_come_at_the_period_s_start() -> None:
    s = Script(policy())
    s.enqueue("a", *(datagram(tag=i) for i in range(12)))
    assert s.release() == [0, 1, 2, 3, 4]
    assert s.controller.get_timer() == START + 100 * MS
    s.now += 100 * MS - 1
    assert s.release() == []
    s.now += 1
    assert s.release() == [5, 6, 7, 8, 9]


def test_max_tokens_bounds_a_burst() -> None:
    s = Script(policy())
    s.enqueue("a", datagram())
    s.release()
    s.now += 1_000 * NANOSECONDS
    s.enqueue("a", *(datagram(tag=i) for i in range(100)))
    assert len(s.release()) == 10
    s.run(10 * NANOSECONDS)
    for at, _ in s.released:
        assert s.bytes_between(at, at + 300 * MS) <= (10 + 3 * 5) * 1_000


def test_tokens_leaked_per_period_takes_what_is_not_used() -> None:
    s = Script(policy(tokens_leaked_per_period=3))
    s.enqueue("a", datagram())
    s.release()  # of 5 tokens 1 is used and 3 leak
    s.enqueue("a", datagram(tag=1), datagram(tag=2))
    assert s.release() == [1]
    assert s.run(100 * MS) == [2]


@pytest.mark.parametrize("leaked", [0, 1, 4, 5, 6, 9, INFINITE])
@pytest.mark.parametrize("periods", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("size", [1_000, 30_000])
def test_tokens_leaked_per_period_is_the_same_looked_at_often_or_once(
    leaked: int, periods: int, size: int
) -> None:
    often, once = (Script(policy(tokens_leaked_per_period=leaked)) for _ in range(2))
    for s in (often, once):
        s.enqueue("a", datagram(size))
        s.run(500 * MS)
        s.now = START + 500 * MS
    for _ in range(periods * 2):
        often.now += 50 * MS
        often.release()
    once.now = often.now
    once.release()
    assert once.controller._tokens == often.controller._tokens


def test_tokens_leaked_per_period_does_not_keep_a_large_datagram_waiting_for_ever() -> None:
    s = Script(policy(tokens_leaked_per_period=INFINITE))
    s.enqueue("a", datagram(9_000, 1))
    assert s.run(NANOSECONDS) == [1]
    assert s.released[0][0] == START + 100 * MS


def test_bytes_per_token_is_rounded_up_for_each_datagram() -> None:
    s = Script(policy())
    s.enqueue("a", *(datagram(1_001, i) for i in range(3)))
    assert s.release() == [0, 1]


def test_bytes_per_token_unlimited_is_one_token_a_datagram() -> None:
    s = Script(policy(bytes_per_token=INFINITE))
    s.enqueue("a", *(datagram(60_000, i) for i in range(10)))
    assert s.release() == [0, 1, 2, 3, 4]


def test_each_destination_takes_tokens_of_its_own() -> None:
    s = Script(policy())
    s.enqueue("a", datagram(tag=1, destinations=3), datagram(tag=2, destinations=3))
    assert s.release() == [1]
    assert s.run(NANOSECONDS) == [2]


def test_a_batch_counts_as_one_large_sample() -> None:
    s = Script(policy())
    s.enqueue("a", datagram(8_000, 1), datagram(1_000, 2))
    assert s.release() == [], "it is not sent in parts, and nothing overtakes it"
    s.now += 100 * MS
    assert s.release() == [1, 2]


def test_an_oversized_datagram_goes_when_the_bucket_is_full() -> None:
    s = Script(policy())
    s.enqueue("a", datagram(60_000, 1), datagram(1_000, 2))
    assert s.release() == []
    assert s.controller.get_timer() == START + 100 * MS
    s.now += 100 * MS
    assert s.release() == [1]
    # 50 tokens are owed, and one more is needed
    assert s.controller.get_timer() == s.now + 11 * 100 * MS
    assert s.run(1_100 * MS) == [2]


@pytest.mark.parametrize("max_tokens", [0, 1, 3, INFINITE])
@pytest.mark.parametrize("leaked", [0, 2, INFINITE])
def test_nothing_is_ever_stuck(max_tokens: int, leaked: int) -> None:
    s = Script(policy(max_tokens=max_tokens, tokens_leaked_per_period=leaked))
    sizes = np.random.default_rng(1).integers(32, 65_000, 50).tolist()
    s.enqueue("a", *(datagram(size, i) for i, size in enumerate(sizes)))
    assert s.run(1_000 * NANOSECONDS) == list(range(50))


def test_a_clock_that_is_looked_at_late_makes_no_larger_burst() -> None:
    s = Script(policy())
    s.enqueue("a", *(datagram(tag=i) for i in range(100)))
    s.now += 100 * NANOSECONDS
    assert len(s.release()) == 10


def test_no_tokens_added_is_a_controller_that_waits_for_ever() -> None:
    s = Script(policy(tokens_added_per_period=0))
    s.enqueue("a", datagram())
    assert s.run(NANOSECONDS) == []
    assert s.controller.get_timer() is None


# --- scheduling ---------------------------------------------------------------------------------------

SLOW = {"max_tokens": 1, "tokens_added_per_period": 1}


def test_round_robin_takes_one_of_each_writer_in_turn() -> None:
    s = Script(policy(scheduling=Scheduling.ROUND_ROBIN, **SLOW))
    s.enqueue("a", *(datagram(tag=i) for i in (10, 11, 12, 13)))
    s.enqueue("b", *(datagram(tag=i) for i in (20, 21)))
    s.enqueue("c", datagram(tag=30))
    assert s.run(500 * MS) == [10, 20, 30, 11, 21, 12]
    s.enqueue("b", datagram(tag=22))
    s.enqueue("d", datagram(tag=40), datagram(tag=41))
    assert s.run(1_000 * MS) == [22, 40, 13, 41]


def test_round_robin_gives_a_writer_that_comes_back_no_second_turn() -> None:
    s = Script(policy(scheduling=Scheduling.ROUND_ROBIN, **SLOW))
    s.enqueue("a", datagram(tag=10))
    s.enqueue("b", *(datagram(tag=i) for i in (20, 21, 22)))
    assert s.release() == [10]
    s.enqueue("a", datagram(tag=11), datagram(tag=12))
    assert s.run(1_000 * MS) == [20, 21, 11, 22, 12]


def test_earliest_deadline_first() -> None:
    s = Script(policy(scheduling=Scheduling.EARLIEST_DEADLINE_FIRST, **SLOW))
    s.enqueue("a", datagram(tag=10), datagram(tag=11), deadline=300)
    s.enqueue("b", datagram(tag=20), deadline=200)
    s.enqueue("b", datagram(tag=21), deadline=400)
    s.enqueue("c", datagram(tag=30), deadline=100)
    assert s.run(1_000 * MS) == [30, 20, 10, 11, 21]


def test_earliest_deadline_first_takes_the_higher_priority_among_equal_deadlines() -> None:
    s = Script(policy(**SLOW))
    s.enqueue("a", datagram(tag=10), priority=1)
    s.enqueue("b", datagram(tag=20), priority=5)
    s.enqueue("c", datagram(tag=30), priority=1)
    assert s.run(1_000 * MS) == [20, 10, 30]


def test_highest_priority_first() -> None:
    s = Script(policy(scheduling=Scheduling.HIGHEST_PRIORITY_FIRST, **SLOW))
    s.enqueue("a", datagram(tag=10), datagram(tag=11), priority=1, deadline=1)
    s.enqueue("b", datagram(tag=20), datagram(tag=21), priority=3, deadline=9)
    s.enqueue("c", datagram(tag=30), priority=3, deadline=5)
    assert s.run(200 * MS) == [30, 20, 21]
    s.enqueue("d", datagram(tag=40), priority=2)
    assert s.run(1_000 * MS) == [40, 10, 11]


@pytest.mark.parametrize("scheduling", Scheduling)
def test_a_writer_s_datagrams_leave_in_order(scheduling: Scheduling) -> None:
    s = Script(policy(scheduling=scheduling))
    random = np.random.default_rng(2)
    order: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    for i in range(300):
        writer = "abc"[random.integers(3)]
        order[writer].append(i)
        size = int(random.integers(32, 20_000))
        s.enqueue(
            writer, datagram(size, i), deadline=int(random.integers(9)), priority=int(random.integers(9))
        )
        if i % 10 == 0:
            s.run(int(random.integers(300)) * MS)
    s.run(10_000 * NANOSECONDS)
    tags = [out.timestamp for _, out in s.released]
    assert sorted(tags) == list(range(300))  # type: ignore[type-var]
    for numbers in order.values():
        assert all(tags.index(x) < tags.index(y) for x, y in pairwise(numbers))


# --- accounting ---------------------------------------------------------------------------------------


def test_queued_bytes_is_what_waits() -> None:
    s = Script(policy())
    s.enqueue("a", *(datagram(2_000, i) for i in range(3)))
    s.enqueue("b", datagram(500))
    assert s.controller.queued_bytes == 6_500
    assert s.controller.queued_bytes_of(guid("a")) == 6_000
    s.release()
    assert s.controller.queued_bytes == 2_500
    assert s.controller.queued_bytes_of(guid("a")) == 2_000
    s.run(NANOSECONDS)
    assert s.controller.queued_bytes == 0
    assert s.controller.queued_bytes_of(guid("b")) == s.controller.queued_bytes_of(guid("z")) == 0


def test_forget_drops_a_writer_s_datagrams() -> None:
    s = Script(policy())
    s.enqueue("a", *(datagram(5_000, i) for i in range(3)))
    s.enqueue("b", datagram(5_000, 7))
    s.release()
    s.controller.forget_writer(guid("a"))
    assert s.controller.queued_bytes == 5_000
    assert s.run(NANOSECONDS) == [7]
    s.controller.forget_writer(guid("b"))
    s.controller.forget_writer(guid("nobody"))
    assert (s.controller.queued_bytes, s.controller.get_timer()) == (0, None)
    s.enqueue("a", datagram(tag=9))
    assert s.run(NANOSECONDS) == [9]


def test_nothing_enqueued_is_nothing_to_wait_for() -> None:
    s = Script(DEFAULT)
    s.enqueue("a")
    assert s.controller.get_timer() is None
    assert s.release() == []
