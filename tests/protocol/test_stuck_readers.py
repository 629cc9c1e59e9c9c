"""What a reader that makes no progress costs a writer and the readers beside it, and what bounds it: a minute each.

The writer is handed a thousand samples of a kilobyte a second. One reader acknowledges at once what it is sent; the
other one is stuck, each time in another way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.policies import FlowControlPolicy, PublicationPolicy, WriterPolicy
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.flow import flow_control_of
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.submessages import Heartbeat
from tests.protocol.hostile_scene import RELIABLE
from tests.protocol.writer_script import MS, Script, sns
from tests.protocol.writer_script import RELIABLE as VOLATILE
from tests.support.virtual_network import SECOND, VirtualNetwork

HONEST, STUCK = 1, 2
TICK = 10 * MS
MINUTE = 60 * SECOND
#: How a reader answers HEARTBEATs: never; not any more; acknowledging nothing; requesting the same, or one thing and
#: another; acknowledging one sample more each time; acknowledging all, but taking no more.
WAYS = ("unheard", "silent", "repeating", "requesting", "alternating", "slow", "closed")


class Outcome(NamedTuple):
    #: Part of what was to be written that the honest reader has.
    delivered: float
    #: The longest time, in seconds, in which nothing could be written.
    stop: float


class Pair:
    """A writer, a reader that keeps up, and one that is stuck."""

    def __init__(self, way: str, strategy: str, policy: WriterPolicy, **flow: Any) -> None:
        flow_control = flow_control_of(FlowControlPolicy(strategy=strategy, **flow))
        self.script = Script(VOLATILE, 0, flow_control=flow_control, policy=policy)
        self.way, self.reports = way, way == "closed"
        for i in (HONEST, STUCK):
            self.script.match(i, status_messages=self.reports)
        self.script.writer.outgoing()
        self.script.acknack(1, i=HONEST)
        if way != "unheard":
            self.script.acknack(1, i=STUCK)
        self.has = self.acknowledged = self._answers = 0

    def run(self, duration: int) -> Outcome:
        script, stop, longest = self.script, 0, 0
        for _ in range(duration // TICK):
            took = script.write(10, 1000)
            stop = 0 if took else stop + TICK
            longest = max(longest, stop)
            self._hear([*script.output(), *(each for _, each in script.sleep(TICK))])
        return Outcome(self.has / (duration // MS), longest / SECOND)

    def _hear(self, output: list[object]) -> None:
        new = [sn for sn in sns(output) if sn > self.has]
        assert new == list(range(self.has + 1, self.has + 1 + len(new))), "in order, and without a hole"
        self.has += len(new)
        if new:
            self.script.acknack(self.has + 1, i=HONEST)
            if self.reports:
                self.script.status(self.has, 4 << 20, i=HONEST)
        if any(isinstance(each, Heartbeat) for each in output):
            self._answer()

    def _answer(self) -> None:
        script = self.script
        self._answers += 1
        match self.way:
            case "repeating":
                script.acknack(1, i=STUCK)
            case "requesting":
                script.acknack(1, 1, i=STUCK)
            case "alternating":
                script.acknack(1, 5 + self._answers % 200, i=STUCK)
            case "slow":
                self.acknowledged = min(self.acknowledged + 1, self.has)
                script.acknack(self.acknowledged + 1, i=STUCK)
            case "closed":
                script.acknack(self.has + 1, i=STUCK).status(0, 0, i=STUCK)


def outcome(way: str, strategy: str = "min", policy: WriterPolicy | None = None, **flow: Any) -> Outcome:
    return Pair(way, strategy, policy or WriterPolicy(), **flow).run(MINUTE)


@pytest.mark.parametrize("way", WAYS)
def test_a_writer_waits_by_default(way: str) -> None:
    """As DDS means it: nobody loses anything. A write that waits ends with its time-out."""
    found = outcome(way)
    if way == "slow":
        assert found.delivered < 0.25
    elif way == "closed":  # it says that it takes nothing: half a term may be written ahead, 16 s of it
        assert found.delivered < 0.3 and found.stop > 40
    else:
        assert found.delivered < 0.1 and found.stop > 50


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("strategy", ["max", "tagged"])
def test_other_strategies_do_not_wait_for_a_stuck_reader(strategy: str, way: str) -> None:
    assert outcome(way, strategy, group_tag=7) == (1.0, 0.0)


@pytest.mark.parametrize("way", ["unheard", "silent"])
def test_a_time_out_bounds_what_is_silent(way: str) -> None:
    found = outcome(way, receiver_timeout=5 * SECOND)
    assert found.delivered > 0.95 and found.stop < 5


@pytest.mark.parametrize("way", ["repeating", "requesting", "alternating"])
def test_a_time_out_alone_does_not_bound_what_answers(way: str) -> None:
    assert outcome(way, receiver_timeout=5 * SECOND).delivered < 0.1


@pytest.mark.parametrize("way", ["silent", "repeating", "requesting", "alternating"])
def test_a_time_out_bounds_readers_that_answer_without_progress(way: str) -> None:
    policy = WriterPolicy(inactivate_nonprogressing_readers=True)
    found = outcome(way, policy=policy, receiver_timeout=5 * SECOND)
    assert found.delivered > 0.95 and found.stop < 5


@pytest.mark.parametrize("way", ["silent", "repeating", "requesting", "alternating"])
def test_max_heartbeat_retries_bounds_readers_that_answer_without_progress(way: str) -> None:
    policy = WriterPolicy(inactivate_nonprogressing_readers=True, max_heartbeat_retries=50)
    found = outcome(way, policy=policy)
    assert found.delivered > 0.85 and found.stop < 10


def test_heartbeat_retries_to_a_reader_that_never_answered_take_long() -> None:
    assert outcome("unheard", policy=WriterPolicy(max_heartbeat_retries=50)).delivered < 0.1
    assert outcome("unheard", policy=WriterPolicy(max_heartbeat_retries=10)).delivered > 0.6


@pytest.mark.parametrize("way", ["slow", "closed"])
def test_a_slow_or_full_reader_is_waited_for(way: str) -> None:
    policy = WriterPolicy(inactivate_nonprogressing_readers=True)
    assert outcome(way, policy=policy, receiver_timeout=5 * SECOND).delivered < 0.25


@pytest.mark.parametrize("way", WAYS)
def test_the_cost_of_a_stuck_reader_is_bounded(way: str) -> None:
    """The send window, and a few HEARTBEATs and repairs a second."""
    pair = Pair(way, "min", WriterPolicy())
    pair.run(MINUTE // 2)
    writer = pair.script.writer
    window = writer.positions.term_window if pair.reports else writer.state.policy.window_bytes
    assert writer.unacknowledged_bytes <= window
    sent = sum(len(pair.script.output()) for _ in range(3))
    assert sent < 100


def test_a_reader_whose_address_is_not_served_holds_nobody_up() -> None:
    for allowed, expected in (((), False), (("10.0.0.2",), True)):
        network = VirtualNetwork()
        one, two, stuck = network.add(), network.add(), network.add(lease_duration=3600 * SECOND)
        policy = PublicationPolicy(readers_allowed=allowed)
        writer = one.create_writer(WriterSpec("t", "T", RELIABLE, policy=policy), now=network.now)
        reader: StatefulReader = two.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
        stuck.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
        network.run(3 * SECOND)
        network.unplug(stuck)
        samples = Samples.uniform(np.zeros(10 * 1000, np.uint8), 10, 1000)
        received = 0
        for _ in range(1000):
            writer.write_samples(samples, timestamp=0, now=network.now)
            network.run(10 * MS)
            received += sum(run.count for run in reader.take_runs())
        assert (received == 10_000) is expected
