"""Which flushes are synchronous, and which asynchronous (RTI's BATCH manual, "Synchronous and Asynchronous
Flushing"): the thread that hands a batch to the socket."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.protocol.policies import BatchPolicy
from spark_rtps.transport.qos import PresentationScope, Qos
from spark_rtps.transport.structure import INFINITE
from tests.net.net_scene import BEST_EFFORT, RELIABLE, Scene, clock_for, scene_of
from tests.support import domains
from tests.support.numbered_samples import numbered

MILLISECOND = 1_000_000
OPEN = BatchPolicy(enable=True, max_data_bytes=60_000)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with scene_of(domains.NET_FLUSH_THREADS) as scene:
        yield scene


def write(writer: BlockingWriter, number: int, key: int | None = None) -> None:
    hashes = None if key is None else np.full((1, 16), key, np.uint8)
    writer.write_samples(numbered(number, 1), key_hashes=hashes)


def assert_sent_here(scene: Scene, writer: BlockingWriter, datagrams: int) -> None:
    """So many datagrams were handed to the socket, all by the calling thread."""
    sent = scene.samples_sent(writer)
    assert [each.thread for each in sent] == [threading.current_thread()] * datagrams


def test_max_data_bytes_flushes_in_the_writing_thread(scene: Scene) -> None:
    got = scene.reader(scene.node())
    writer = scene.writer(scene.node(), batch=replace(OPEN, max_data_bytes=36))
    write(writer, 0)
    write(writer, 1)
    assert_sent_here(scene, writer, 0)
    write(writer, 2)
    assert_sent_here(scene, writer, 1)
    scene.wait(lambda: got.numbers == [0, 1, 2])


def test_max_samples_flushes_in_the_writing_thread(scene: Scene) -> None:
    got = scene.reader(scene.node())
    writer = scene.writer(scene.node(), batch=replace(OPEN, max_samples=4))
    for i in range(11):
        write(writer, i)
        assert_sent_here(scene, writer, (i + 1) // 4)
    scene.wait(lambda: got.numbers == list(range(8)))


def test_flush_is_in_the_calling_thread(scene: Scene) -> None:
    got = scene.reader(scene.node())
    writer = scene.writer(scene.node(), batch=OPEN)
    write(writer, 0)
    writer.flush()
    assert_sent_here(scene, writer, 1)
    scene.wait(lambda: got.numbers == [0])
    threads = []

    def elsewhere() -> None:
        threads.append(threading.current_thread())
        write(writer, 1)
        writer.flush()

    other = threading.Thread(target=elsewhere)
    other.start()
    other.join()
    assert [each.thread for each in scene.samples_sent(writer)] == [threading.current_thread(), *threads]


def test_begin_and_end_of_a_coherent_set_flush_in_the_calling_thread(scene: Scene) -> None:
    qos = replace(RELIABLE, coherent_access=True, presentation_scope=PresentationScope.TOPIC)
    got = scene.reader(scene.node(), qos)
    writer = scene.writer(scene.node(), qos, batch=OPEN)
    write(writer, 0)
    writer.begin_coherent_set()
    assert_sent_here(scene, writer, 1)
    scene.wait(lambda: got.numbers == [0])  # what was in progress is not of the set
    write(writer, 1)
    write(writer, 2)
    assert_sent_here(scene, writer, 1)
    writer.end_coherent_set()
    assert all(each.thread is threading.current_thread() for each in scene.samples_sent(writer))
    assert len(scene.samples_sent(writer)) > 1
    scene.wait(lambda: got.numbers == [0, 1, 2])


def test_resource_limits_max_samples_flushes_in_the_writing_thread(scene: Scene) -> None:
    got = scene.reader(scene.node())
    writer = scene.writer(scene.node(), replace(RELIABLE, max_samples=3), batch=OPEN)
    write(writer, 0)
    write(writer, 1)
    assert_sent_here(scene, writer, 0)
    write(writer, 2)
    assert_sent_here(scene, writer, 1)
    scene.wait(lambda: got.numbers == [0, 1, 2])


def test_resource_limits_max_samples_per_instance_flushes_in_the_writing_thread(scene: Scene) -> None:
    got = scene.reader(scene.node(), keyed=True)
    qos = replace(RELIABLE, max_samples_per_instance=2)
    writer = scene.writer(scene.node(), qos, keyed=True, batch=OPEN)
    for number, key in enumerate((1, 2, 3)):
        write(writer, number, key)
    assert_sent_here(scene, writer, 0)
    write(writer, 3, 2)
    assert_sent_here(scene, writer, 1)
    scene.wait(lambda: got.numbers == [0, 1, 2, 3])


@pytest.mark.parametrize("qos", [RELIABLE, BEST_EFFORT], ids=["reliable", "best_effort"])
def test_max_flush_delay_flushes_in_the_nodes_thread(
    scene: Scene, qos: Qos, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = clock_for(monkeypatch)
    got = scene.reader(scene.node(), qos)
    node = scene.node()
    writer = scene.writer(node, qos, batch=replace(OPEN, max_flush_delay=3_600_000 * MILLISECOND))
    write(writer, 0)
    clock.advance(3_599_000 * MILLISECOND)
    write(writer, 1)  # the delay is measured from the first sample
    assert scene.samples_sent(writer) == []
    clock.advance(1_000 * MILLISECOND)
    node.wake()
    scene.wait(lambda: got.numbers == [0, 1])
    (sent,) = scene.samples_sent(writer)
    assert sent.thread is node.duty_cycle.thread


def test_max_flush_delay_comes_by_itself(scene: Scene) -> None:
    got = scene.reader(scene.node())
    node = scene.node()
    writer = scene.writer(node, batch=replace(OPEN, max_flush_delay=5 * MILLISECOND))
    write(writer, 0)
    scene.wait(lambda: got.numbers == [0])
    assert [each.thread for each in scene.samples_sent(writer)] == [node.duty_cycle.thread]


# --- turbo mode -----------------------------------------------------------------------------------------


def test_turbo_mode_sends_at_once_in_the_writing_thread_at_a_low_rate(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = clock_for(monkeypatch)
    got = scene.reader(scene.node())
    writer = scene.writer(scene.node(), batch=BatchPolicy(turbo_mode=True))
    for i in range(5):
        clock.advance(1_000 * MILLISECOND)
        write(writer, i)
        assert_sent_here(scene, writer, i + 1)
    scene.wait(lambda: got.numbers == list(range(5)))


def test_turbo_mode_batches_a_burst_and_the_nodes_thread_sends_the_rest(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = clock_for(monkeypatch)
    got = scene.reader(scene.node())
    node = scene.node()
    writer = scene.writer(node, batch=BatchPolicy(turbo_mode=True))
    count = 2_000
    clock.hold()
    for i in range(count):
        clock.advance(MILLISECOND // 100)
        write(writer, i)
    while not writer.writer.intake.count:  # the last one may have filled a batch
        write(writer, count)
        count += 1
    sent_before = len(scene.samples_sent(writer))
    clock.advance(8 * MILLISECOND)  # the longest that it ever holds a sample back
    node.wake()
    scene.wait(lambda: got.numbers == list(range(count)))
    sent = scene.samples_sent(writer)
    assert len(sent) < count // 4
    assert sent[sent_before].thread is node.duty_cycle.thread


# --- what writing costs -------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [None, 3_600_000 * MILLISECOND], ids=["no delay", "a delay"])
def test_single_writes_wake_the_node_at_most_once_per_batch(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, delay: int | None
) -> None:
    scene.reader(scene.node(), BEST_EFFORT)
    node = scene.node()
    policy = OPEN if delay is None else replace(OPEN, max_flush_delay=delay)
    writer = scene.writer(node, BEST_EFFORT, batch=replace(policy, max_samples=10))
    woken, steered = [], []
    wake, steering = node.wake, node.duty_cycle.steering
    monkeypatch.setattr(node, "wake", lambda: (woken.append(1), wake()))
    monkeypatch.setattr(node.duty_cycle, "steering", lambda **how: (steered.append(1), steering(**how))[1])
    for i in range(100):
        write(writer, i)
    assert len(scene.samples_sent(writer)) == 10
    assert len(woken) <= (0 if delay is None else 10)
    assert steered == []


def test_unlimited_bytes_with_a_number_of_samples(scene: Scene) -> None:
    got = scene.reader(scene.node())
    policy = replace(OPEN, max_data_bytes=INFINITE, max_samples=100)
    writer = scene.writer(scene.node(), batch=policy)
    writer.write_samples(numbered(0, 1_000))
    assert_sent_here(scene, writer, 10)
    scene.wait(lambda: got.numbers == list(range(1_000)))
