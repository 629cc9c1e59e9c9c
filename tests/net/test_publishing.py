"""The blocking surface of a writer: several threads, what fails to be sent, liveliness."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from spark_rtps.transport.errors import TransportError
from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.policies import BatchPolicy, FlowControllerPolicy, WriterPolicy
from spark_rtps.transport.protocol.writing.batching.batch_queue import FlushReason, PendingBatch, Queue
from spark_rtps.transport.qos import LivelinessKind
from tests.net.net_scene import BEST_EFFORT, RELIABLE, Scene, clock_for, cut_off, scene_of
from tests.support import domains
from tests.support.numbered_samples import numbered
from tests.support.waiting import PATIENCE

SECOND = 1_000_000_000
OPEN = BatchPolicy(enable=True, max_data_bytes=60_000)
SINGLE_THREADED = replace(OPEN, thread_safe_write=False)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with scene_of(domains.NET_PUBLISHING) as scene:
        yield scene


def started(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def joined(threads: list[threading.Thread]) -> bool:
    for thread in threads:
        thread.join(PATIENCE)
    return not any(thread.is_alive() for thread in threads)


# --- several threads ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "batch",
    [BatchPolicy(), replace(OPEN, max_samples=7), BatchPolicy(turbo_mode=True)],
    ids=["unbatched", "batch", "turbo"],
)
def test_thread_safe_write_takes_every_sample_once_and_each_threads_in_order(
    scene: Scene, batch: BatchPolicy
) -> None:
    got = scene.reader(scene.node())
    writer = scene.writer(scene.node(), batch=batch)
    sources, count = 4, 300

    def write(source: int) -> None:
        for number in range(count):
            writer.write_samples(numbered(number, 1, source=source))
            if number % 50 == 0:
                writer.flush()

    assert joined([started(lambda source=source: write(source)) for source in range(sources)])  # type: ignore[misc]
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: len(got.samples) >= sources * count)
    for source in range(sources):
        assert got.of(source) == list(range(count))


class Gate:
    """A lock that, each time a thread gives it back, lets something else happen first."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.on_given_back: dict[threading.Thread, Callable[[], None]] = {}
        self._depth = 0

    def __enter__(self) -> None:
        self.lock.acquire()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        is_free = not self._depth
        self.lock.release()
        if is_free and threading.current_thread() in self.on_given_back:
            self.on_given_back.pop(threading.current_thread())()


def test_no_write_comes_between_a_full_batch_and_its_sending(scene: Scene) -> None:
    got = scene.reader(scene.node())
    node = scene.node()
    gate = node.lock = Gate(node.lock)  # type: ignore[assignment]
    writer = scene.writer(node, batch=replace(OPEN, max_samples=2))

    def write_in_between() -> None:
        assert joined([started(lambda: writer.write_samples(numbered(2, 2)))])

    gate.on_given_back[threading.current_thread()] = write_in_between
    writer.write_samples(numbered(0, 2))
    assert not gate.on_given_back
    scene.wait(lambda: len(got.samples) == 4)
    assert got.numbers == [0, 1, 2, 3]


def written_while_the_lock_is_taken(node: Node, writer: BlockingWriter, patience: float) -> bool:
    """Whether a write that only queues comes through."""
    taken, give_back = threading.Event(), threading.Event()

    def hold() -> None:
        with node.lock:
            taken.set()
            give_back.wait(PATIENCE)

    holder = started(hold)
    assert taken.wait(PATIENCE)
    write = started(lambda: writer.write_samples(numbered(0, 1)))
    write.join(patience)
    came_through = not write.is_alive()
    give_back.set()
    assert joined([holder, write])
    return came_through


@pytest.mark.parametrize("batch", [OPEN, SINGLE_THREADED], ids=["thread safe", "not"])
def test_every_write_takes_the_lock(scene: Scene, batch: BatchPolicy) -> None:
    got = scene.reader(scene.node())
    node = scene.node()
    writer = scene.writer(node, batch=batch)
    assert not written_while_the_lock_is_taken(node, writer, 0.1)
    writer.flush()
    scene.wait(lambda: got.numbers == [0])


def test_thread_safe_write_false_is_as_safe(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    got = scene.reader(scene.node())
    writer = scene.writer(scene.node(), batch=SINGLE_THREADED)
    began, flushes = threading.Event(), list[threading.Thread]()
    batch = Queue.batch

    def flushed_meanwhile(queue: Queue, reason: FlushReason) -> tuple[PendingBatch, Queue]:
        """Another thread flushes between the taking of what is queued and its clearing."""
        taken = batch(queue, reason)
        if not began.is_set():
            began.set()
            flushes.append(started(writer.flush))
            flushes[0].join(0.1)
        return taken

    writer.write_samples(numbered(0, 3))
    monkeypatch.setattr(Queue, "batch", flushed_meanwhile)
    writer.write_samples(numbered(3, 6_000))  # it fills the batch
    writer.flush()
    assert joined(flushes)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: len(got.samples) >= 6_003)
    assert got.numbers == list(range(6_003))


def test_deleting_an_endpoint_sends_its_own_batch_and_no_others(scene: Scene) -> None:
    got, node = scene.reader(scene.node()), scene.node()
    other = scene.reader(node, topic="Other")
    writer = scene.writer(node, batch=SINGLE_THREADED)
    leaving = scene.writer(node, batch=OPEN)
    writer.write_samples(numbered(0, 3))
    leaving.write_samples(numbered(7, 1))
    node.delete_endpoint(other.reader.guid)
    assert scene.samples_sent(leaving) == []
    node.delete_endpoint(leaving.guid)
    scene.wait(lambda: got.numbers == [7])
    assert scene.samples_sent(writer) == []
    writer.flush()
    scene.wait(lambda: got.numbers == [7, 0, 1, 2])


def test_thread_safe_write_false_in_one_thread(scene: Scene) -> None:
    got = scene.reader(scene.node())
    writer = scene.writer(scene.node(), batch=replace(SINGLE_THREADED, max_samples=50))
    for i in range(3_000):
        writer.write_samples(numbered(i, 1))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: got.numbers == list(range(3_000)))


def test_a_smaller_peer_comes_while_a_batch_is_in_progress(scene: Scene) -> None:
    got = scene.reader(scene.node())
    writer = scene.writer(scene.node(), batch=SINGLE_THREADED)
    writer.write_samples(numbered(0, 4, size=1_000))
    small = scene.reader(scene.node(message_size_max=2_000))
    scene.wait(lambda: len(writer.writer.readers) == 2 and writer.readers.has_ready())
    assert writer.writer.intake.count == 4
    writer.flush()
    assert all(len(sent.data) <= 2_000 for sent in scene.samples_sent(writer))
    scene.wait(lambda: got.numbers == [0, 1, 2, 3] and small.numbers == [0, 1, 2, 3])


# --- what cannot be sent --------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [errno.ENETUNREACH, errno.EMSGSIZE, errno.EPERM])
def test_a_best_effort_flush_that_fails_raises_with_topic_and_cause(scene: Scene, error: int) -> None:
    there, here = scene.node(), scene.node()
    scene.reader(there, BEST_EFFORT)
    writer = scene.writer(here, BEST_EFFORT, batch=replace(OPEN, max_samples=2))
    cut_off(here, there, error=error)
    writer.write_samples(numbered(0, 1))
    with pytest.raises(TransportError, match=rf"'T': 1 datagrams could not be sent; .*{os.strerror(error)}"):
        writer.write_samples(numbered(1, 1))
    writer.write_samples(numbered(2, 1))
    with pytest.raises(TransportError, match=str(there.sockets.default_unicast[0])):
        writer.flush()
    writer.flush()  # told once


def test_a_failed_automatic_flush_reaches_the_next_write(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = clock_for(monkeypatch)
    there, here = scene.node(), scene.node()
    got = scene.reader(there, BEST_EFFORT)
    writer = scene.writer(here, BEST_EFFORT, batch=replace(OPEN, max_flush_delay=3_600 * SECOND))
    faulty = cut_off(here, there)
    writer.write_samples(numbered(0, 1))
    clock.advance(3_600 * SECOND)
    here.wake()
    scene.wait(lambda: faulty.refused == 1)
    with pytest.raises(TransportError, match="unreachable"):
        writer.write_samples(numbered(1, 1))
    faulty.ports.clear()
    writer.flush()
    scene.wait(lambda: got.numbers == [1])  # what was written then is not lost


def test_failures_of_automatic_flushes_can_be_set_apart(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = clock_for(monkeypatch)
    there, here = scene.node(), scene.node()
    scene.reader(there, BEST_EFFORT)
    writer = scene.writer(
        here, BEST_EFFORT, batch=replace(OPEN, max_samples=9, max_flush_delay=3_600 * SECOND)
    )
    writer.failures.sets_automatic_apart = True
    faulty = cut_off(here, there)
    writer.write_samples(numbered(0, 1))
    clock.advance(3_600 * SECOND)
    here.wake()
    scene.wait(lambda: faulty.refused == 1)
    writer.write_samples(numbered(1, 1))  # it is not told of it
    with pytest.raises(TransportError, match="'T': 1 datagrams"):
        writer.flush()  # which is its own
    reported = writer.failures.take_automatic()
    assert reported is not None and "'T': 1 datagrams could not be sent; sending to " in str(reported)
    assert writer.failures.take_automatic() is None
    with pytest.raises(TransportError, match="'T': 1 datagrams"):
        writer.write_samples(numbered(2, 9))  # a full batch
    assert writer.failures.take_automatic() is None


@pytest.mark.parametrize("call", ["flush", "begin_coherent_set", "wait_for_acknowledgments"])
def test_a_failed_automatic_flush_reaches_the_next_call(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    clock = clock_for(monkeypatch)
    there, here = scene.node(), scene.node()
    scene.reader(there, BEST_EFFORT)
    writer = scene.writer(here, BEST_EFFORT, batch=replace(OPEN, max_flush_delay=3_600 * SECOND))
    faulty = cut_off(here, there)
    writer.write_samples(numbered(0, 1))
    clock.advance(3_600 * SECOND)
    here.wake()
    scene.wait(lambda: faulty.refused == 1)
    arguments = (0.0,) if call == "wait_for_acknowledgments" else ()
    with pytest.raises(TransportError, match="1 datagrams"):
        getattr(writer, call)(*arguments)


def test_a_send_failure_is_raised_to_writers_of_that_reader_alone(scene: Scene) -> None:
    near, far, here = scene.node(), scene.node(), scene.node()
    got = scene.reader(near, BEST_EFFORT, topic="near")
    scene.reader(far, BEST_EFFORT, topic="far")
    to_near = scene.writer(here, BEST_EFFORT, topic="near")
    to_far = scene.writer(here, BEST_EFFORT, topic="far")
    cut_off(here, far)
    with pytest.raises(TransportError, match="'far'"):
        to_far.write_samples(numbered(0, 1))
    to_near.write_samples(numbered(0, 1))
    scene.wait(lambda: got.numbers == [0])
    later = scene.writer(here, BEST_EFFORT, topic="far")
    later.flush()  # what failed before it was there is not its own


@pytest.mark.parametrize(
    "flow_controller", [None, FlowControllerPolicy()], ids=["synchronous", "asynchronous"]
)
def test_a_call_that_waits_on_a_node_that_is_closed_raises(
    scene: Scene, flow_controller: FlowControllerPolicy | None
) -> None:
    node = scene.node()
    writer = scene.writer(node, flow_controller=flow_controller, readers=0)
    errors: list[Exception] = []

    def wait() -> None:
        try:
            writer.wait_for_readers(PATIENCE)
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    thread = started(wait)
    node.close()
    assert joined([thread])
    assert [type(error) for error in errors] == [TransportError]


def test_reliable_failures_are_counted_and_repaired(scene: Scene) -> None:
    there, here = scene.node(), scene.node()
    got = scene.reader(there)
    writer = scene.writer(here, batch=replace(OPEN, max_samples=2))
    faulty = cut_off(here, there)
    writer.write_samples(numbered(0, 10))
    assert here.send_failures.count >= 1
    faulty.ports.clear()
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: got.numbers == list(range(10)))


# --- liveliness ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [LivelinessKind.MANUAL_BY_TOPIC, LivelinessKind.MANUAL_BY_PARTICIPANT])
def test_assert_liveliness_and_writing_keep_a_manual_writer_alive(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, kind: LivelinessKind
) -> None:
    clock = clock_for(monkeypatch)
    qos = replace(RELIABLE, liveliness=kind, liveliness_lease_duration=10_000 * SECOND)
    there, here = scene.node(), scene.node()
    got = scene.reader(there, RELIABLE)
    writer = scene.writer(here, qos)
    received = there.participant.liveliness._signs[writer.guid]

    def later() -> int:
        clock.advance(5_000 * SECOND)
        return clock.monotonic_ns()

    begun = later()
    assert received.last_received < begun
    writer.assert_liveliness()
    scene.wait(lambda: received.last_received >= begun)
    begun = later()
    assert received.last_received < begun
    writer.write_samples(numbered(0, 1))
    scene.wait(lambda: got.numbers == [0] and received.last_received >= begun)


def test_assert_liveliness_of_an_automatic_writer_sends_nothing(scene: Scene) -> None:
    scene.reader(scene.node())
    node = scene.node()
    writer = scene.writer(node)
    called = []
    node.assert_liveliness = lambda writer=None: called.append(writer)  # type: ignore[method-assign]
    writer.assert_liveliness()
    assert called == []


# --- what the node's own thread takes in while another one takes over ----------------------------------


@pytest.fixture
def late(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> tuple[BlockingWriter, list[float]]:
    """A writer which takes its node over only after everything sent was acknowledged; and each wait for the network."""
    scene.reader(scene.node())
    node = scene.node()
    writer = scene.writer(node, writer=WriterPolicy(send_window_bytes=4_096))
    waits: list[float] = []
    steering, run_once = node.duty_cycle.steering, node.run_once

    @contextlib.contextmanager
    def after_all(*, lingering: bool = False) -> Iterator[None]:
        scene.wait(lambda: not writer.writer.unacknowledged_bytes)
        with steering(lingering=lingering):
            yield

    def counted(timeout: float) -> int:
        if threading.current_thread() is not node.duty_cycle.thread:
            waits.append(timeout)
        return run_once(timeout)

    monkeypatch.setattr(node.duty_cycle, "steering", after_all)
    monkeypatch.setattr(node, "run_once", counted)
    return writer, waits


def test_a_write_does_not_wait_for_room_that_was_made_before_it_took_over(
    late: tuple[BlockingWriter, list[float]],
) -> None:
    writer, waits = late
    writer.write_samples(numbered(0, 150))  # somewhat more than the window
    assert waits == []


def test_acknowledgments_before_the_writer_steers_are_not_waited_for(
    late: tuple[BlockingWriter, list[float]],
) -> None:
    writer, waits = late
    writer.write_samples(numbered(0, 50))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert waits == []


def test_the_nodes_thread_wakes_the_one_that_steers(scene: Scene) -> None:
    node = scene.node()
    poll = select.poll()
    poll.register(node._wake_pipe, select.POLLIN)
    with node.duty_cycle.steering():
        node.cycle(0)
        assert poll.poll(0)


@pytest.mark.parametrize("times", [1, 5])
def test_a_thread_that_lingers_is_followed_by_the_nodes_own(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    node = scene.node()
    cycles, cycle = [], node.cycle

    def counted(timeout: float) -> None:
        cycles.append(threading.current_thread())
        cycle(timeout)

    monkeypatch.setattr(node, "cycle", counted)
    for _ in range(times):
        with node.duty_cycle.steering(lingering=True):
            node.wake()
            scene.wait(lambda: not node.duty_cycle._is_needed())
    cycles.clear()
    scene.wait(lambda: node.duty_cycle.thread in cycles)


def test_a_lingering_duty_cycle_wakes_no_thread(scene: Scene) -> None:
    node = scene.node()
    with node.duty_cycle.steering(lingering=True):
        node.duty_cycle._lingers_until = time.monotonic() + 3_600
        node.duty_cycle._is_needed()  # as the node's own thread does
        node.duty_cycle._lingers_until = 0.0
    assert not node.duty_cycle._unsteered.is_set()
    scene.wait(node.duty_cycle._is_needed)


def test_a_reader_that_is_there_is_not_waited_for(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.reader(scene.node())
    writer = scene.writer(scene.node())
    monkeypatch.setattr(
        writer.node.duty_cycle, "steering", lambda **_: pytest.fail("the node was taken over")
    )
    assert writer.wait_for_readers(0)
