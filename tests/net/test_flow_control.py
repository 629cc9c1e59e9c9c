"""Asynchronous publishing on real sockets: who sends, how much per period, and how much may wait.

The clock is moved on a period at a time, so that no datagram comes of how long a test takes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from spark_rtps.transport.errors import TransportError
from spark_rtps.transport.limits import FLOW_CONTROLLER_BYTES_MAX
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.policies import (
    BatchPolicy,
    FlowControllerPolicy,
    PublicationPolicy,
    Scheduling,
    WriterPolicy,
)
from spark_rtps.transport.qos import Qos
from tests.net.net_scene import BEST_EFFORT, RELIABLE, Clock, Scene, clock_for, scene_of
from tests.support import domains
from tests.support.numbered_samples import numbered
from tests.support.virtual_network import VirtualNetwork
from tests.support.waiting import PATIENCE

SECOND = 1_000_000_000
PERIOD = 1_000 * SECOND
#: Three datagrams a period.
SLOW = FlowControllerPolicy("slow", max_tokens=3, tokens_added_per_period=3, period=PERIOD)
CLOSED = FlowControllerPolicy("closed", max_tokens=0, tokens_added_per_period=0)
OPEN_BATCH = BatchPolicy(enable=True, max_data_bytes=60_000)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with scene_of(domains.NET_FLOW_CONTROL) as scene:
        yield scene


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return clock_for(monkeypatch)


def settle(node: Node) -> None:
    """All that the node has to do now is done."""
    done = threading.Event()
    with node.lock:
        before = node.participant.datagrams_to_send

        def look(now: int, *, asynchronous: bool) -> Any:
            if asynchronous:
                done.set()
            return before(now, asynchronous=asynchronous)

        node.participant.datagrams_to_send = look  # type: ignore[assignment, method-assign]
    node.wake()
    assert done.wait(PATIENCE)
    with node.lock:
        node.participant.datagrams_to_send = before  # type: ignore[method-assign]


def test_nothing_is_sent_in_the_writing_thread(scene: Scene) -> None:
    got = scene.reader(scene.node())
    node = scene.node()
    writer = scene.writer(node, flow_controller=FlowControllerPolicy())
    for i in range(100):
        writer.write_samples(numbered(i, 1))
        writer.flush()
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: got.numbers == list(range(100)))
    assert {each.thread for each in scene.samples_sent(writer)} == {node.duty_cycle.thread}


def test_no_other_writing_thread_sends_it_either(scene: Scene) -> None:
    got = scene.reader(scene.node(), topic="asynchronous")
    other = scene.reader(next(iter(scene.sent)), topic="synchronous")
    node = scene.node()
    writer = scene.writer(node, topic="asynchronous", flow_controller=FlowControllerPolicy())
    synchronous = scene.writer(node, topic="synchronous")
    for i in range(100):
        writer.write_samples(numbered(i, 1))
        synchronous.write_samples(numbered(i, 1))
    scene.wait(lambda: got.numbers == other.numbers == list(range(100)))
    assert {each.thread for each in scene.samples_sent(writer)} == {node.duty_cycle.thread}


def test_a_batch_of_an_asynchronous_writer_goes_to_its_flow_controller(scene: Scene) -> None:
    got = scene.reader(scene.node(), BEST_EFFORT)
    node = scene.node()
    writer = scene.writer(
        node, BEST_EFFORT, batch=replace(OPEN_BATCH, max_samples=4), flow_controller=FlowControllerPolicy()
    )
    writer.write_samples(numbered(0, 10, size=1_000))
    writer.flush()
    scene.wait(lambda: got.numbers == list(range(10)))
    assert [each.thread for each in scene.samples_sent(writer)] == [node.duty_cycle.thread] * 3


def test_datagrams_per_period_are_bounded(scene: Scene, clock: Clock) -> None:
    got = scene.reader(scene.node(), BEST_EFFORT)
    node = scene.node()
    writer = scene.writer(node, BEST_EFFORT, flow_controller=SLOW, coalescing=False)
    settle(node)  # the first period has begun
    writer.write_samples(numbered(0, 10))
    for periods in range(4):
        settle(node)
        assert len(scene.samples_sent(writer)) == min(10, 3 * (periods + 1))
        clock.advance(PERIOD)
    scene.wait(lambda: got.numbers == list(range(10)))


def test_the_rate_follows_the_token_bucket(scene: Scene) -> None:
    got = scene.reader(scene.node(), BEST_EFFORT)
    policy = FlowControllerPolicy("rate", max_tokens=5, tokens_added_per_period=5, period=SECOND // 20)
    writer = scene.writer(scene.node(), BEST_EFFORT, flow_controller=policy, coalescing=False)
    begun = time.monotonic()
    writer.write_samples(numbered(0, 40))
    assert writer.wait_for_asynchronous_publishing(PATIENCE)
    # 5 at once, or those of two periods if one ends just then, and the others in as many periods as they need
    assert time.monotonic() - begun > 5 * 0.05
    scene.wait(lambda: got.numbers == list(range(40)))


def test_bytes_per_token(scene: Scene, clock: Clock) -> None:
    scene.reader(scene.node(), BEST_EFFORT)
    node = scene.node()
    policy = replace(SLOW, bytes_per_token=1_000)
    writer = scene.writer(node, BEST_EFFORT, flow_controller=policy, coalescing=False)
    settle(node)
    writer.write_samples(numbered(0, 5, size=1_200))  # two tokens each
    settle(node)
    assert len(scene.samples_sent(writer)) == 1
    clock.advance(PERIOD)
    settle(node)
    assert len(scene.samples_sent(writer)) == 2  # the bucket holds three


def test_a_batch_counts_as_one_large_sample(scene: Scene, clock: Clock) -> None:
    got = scene.reader(scene.node(), BEST_EFFORT)
    node = scene.node()
    policy = replace(SLOW, max_tokens=1, tokens_added_per_period=1)
    batch = replace(OPEN_BATCH, max_samples=50)
    writer = scene.writer(node, BEST_EFFORT, batch=batch, flow_controller=policy)
    settle(node)
    writer.write_samples(numbered(0, 150))
    for periods in range(1, 4):
        scene.wait(lambda periods=periods: len(got.numbers) == 50 * periods)  # type: ignore[misc]
        settle(node)
        assert len(scene.samples_sent(writer)) == periods
        clock.advance(PERIOD)
    assert got.numbers == list(range(150))


def test_two_writers_share_a_controller(scene: Scene, clock: Clock) -> None:
    there, node = scene.node(), scene.node()
    scene.reader(there, BEST_EFFORT, topic="A")
    scene.reader(there, BEST_EFFORT, topic="B")
    policy = replace(SLOW, max_tokens=4, tokens_added_per_period=4, scheduling=Scheduling.ROUND_ROBIN)
    a = scene.writer(node, BEST_EFFORT, topic="A", flow_controller=policy, coalescing=False)
    b = scene.writer(node, BEST_EFFORT, topic="B", flow_controller=policy, coalescing=False)
    settle(node)
    with node.lock:
        a.write_samples(numbered(0, 8))
        b.write_samples(numbered(0, 8))
    for periods in (1, 2, 3, 4):
        settle(node)
        assert [len(scene.samples_sent(each)) for each in (a, b)] == [2 * periods, 2 * periods]
        clock.advance(PERIOD)


def test_writers_of_other_names_do_not(scene: Scene, clock: Clock) -> None:
    there, node = scene.node(), scene.node()
    scene.reader(there, BEST_EFFORT, topic="A")
    scene.reader(there, BEST_EFFORT, topic="B")
    a = scene.writer(node, BEST_EFFORT, topic="A", flow_controller=SLOW, coalescing=False)
    other = replace(SLOW, name="other")
    b = scene.writer(node, BEST_EFFORT, topic="B", flow_controller=other, coalescing=False)
    settle(node)
    a.write_samples(numbered(0, 8))
    b.write_samples(numbered(0, 8))
    settle(node)
    assert [len(scene.samples_sent(each)) for each in (a, b)] == [3, 3]


# --- what waits ------------------------------------------------------------------------------------------


def test_wait_for_asynchronous_publishing(scene: Scene, clock: Clock) -> None:
    scene.reader(scene.node(), BEST_EFFORT)
    node = scene.node()
    writer = scene.writer(node, BEST_EFFORT, flow_controller=SLOW, coalescing=False)
    settle(node)
    writer.write_samples(numbered(0, 5))
    assert not writer.wait_for_asynchronous_publishing(0.0)
    with pytest.raises(TransportError, match=r"'T'.* wait for tokens of their flow controller"):
        writer.wait_for_acknowledgments(0.0)
    settle(node)
    clock.advance(PERIOD)
    node.wake()
    assert writer.wait_for_asynchronous_publishing(PATIENCE)
    assert writer.wait_for_acknowledgments(0.0) == {}
    assert len(scene.samples_sent(writer)) == 5


@pytest.mark.parametrize("qos", [BEST_EFFORT, RELIABLE], ids=["best_effort", "reliable"])
def test_close_with_queued_data_does_not_hang_and_says_what_is_lost(
    scene: Scene, qos: Qos, caplog: pytest.LogCaptureFixture
) -> None:
    scene.reader(scene.node(), qos)
    node = scene.node()
    writer = scene.writer(node, qos, flow_controller=CLOSED, coalescing=False)
    writer.write_samples(numbered(0, 1_000))
    settle(node)
    with caplog.at_level(logging.WARNING):
        node.close()
    assert "bytes of asynchronous writers are not sent" in caplog.text
    assert node.duty_cycle.thread is not None and not node.duty_cycle.thread.is_alive()


def test_closing_an_asynchronous_writer_sends_what_has_tokens_and_reports_the_rest(
    scene: Scene, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    got, node = scene.reader(scene.node()), scene.node()
    writer = scene.writer(node, flow_controller=SLOW, coalescing=False)
    settle(node)
    clock.advance(PERIOD)
    with node.lock, caplog.at_level(logging.WARNING):
        writer.write_samples(numbered(0, 5))
        node.delete_endpoint(writer.guid)
    scene.wait(lambda: bool(got.numbers))
    assert got.numbers == list(range(len(got.numbers)))
    assert "are not sent" in caplog.text


@pytest.mark.parametrize("batch", [BatchPolicy(), OPEN_BATCH], ids=["unbatched", "batch"])
def test_the_queue_of_a_best_effort_writer_is_bounded_and_write_waits(
    scene: Scene, batch: BatchPolicy
) -> None:
    scene.reader(scene.node(), BEST_EFFORT)
    node = scene.node()
    writer = scene.writer(node, BEST_EFFORT, batch=batch, flow_controller=CLOSED)
    block = numbered(0, 1_000, size=1_000)

    def write_on() -> None:
        for _ in range(100):
            writer.write_samples(block, timeout=0.05)

    with pytest.raises(TransportError, match=r"no progress for 0\.05 s: its flow controller has no tokens"):
        write_on()
    settle(node)
    assert FLOW_CONTROLLER_BYTES_MAX // 2 < node.participant.queued_bytes <= FLOW_CONTROLLER_BYTES_MAX


def test_write_goes_on_when_tokens_come(scene: Scene) -> None:
    got = scene.reader(scene.node())
    node = scene.node()
    # 16 datagrams of at most 63 KiB a period: 8 MiB take some ten of them
    policy = FlowControllerPolicy("goes_on", max_tokens=16, tokens_added_per_period=16, period=SECOND // 100)
    # not the send window holds it back, but what may wait for tokens
    wide = WriterPolicy(send_window_bytes=64 << 20)
    writer = scene.writer(node, flow_controller=policy, writer=wide)
    for i in range(8):
        writer.write_samples(numbered(1_000 * i, 1_000, size=1_000), timeout=PATIENCE)
    assert writer.wait_for_asynchronous_publishing(PATIENCE)
    scene.wait(lambda: got.numbers == list(range(8_000)))


def test_repairs_of_a_reliable_writer_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = 100_000
    monkeypatch.setattr("spark_rtps.transport.protocol.writing.asynchronous.FLOW_CONTROLLER_BYTES_MAX", bound)
    network = VirtualNetwork()
    one, two = network.add(), network.add()
    one.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
    policy = PublicationPolicy(flow_controller=CLOSED)
    writer = two.create_writer(WriterSpec("t", "T", RELIABLE, policy=policy), now=network.now)
    network.run(SECOND)
    assert writer.readers
    writer.write_samples(numbered(0, 1_000), timestamp=0, now=network.now)
    network.run(100 * SECOND)
    assert writer.counters.heartbeats_sent < 10  # they would only wait
    for _ in range(1_000):
        two.assert_liveliness(network.now, writer.guid)
        network.run(SECOND // 10)
    assert writer.counters.flow_controller_overflow > 0
    assert two.queued_bytes < writer.state.backlog < 3 * bound
