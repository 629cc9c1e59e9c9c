"""QoS that is about time, with Cyclone DDS at the other end: DEADLINE, LIFESPAN, LIVELINESS, TIME_BASED_FILTER."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.participant.events import LivelinessGained, LivelinessLost
from spark_rtps.transport.qos import LivelinessKind
from tests.interop.cyclone_peer import CyclonePeer, number_row
from tests.interop.cyclone_types import Number, Vehicle
from tests.interop.subscription import LocalReader, Subscription, batch_of, codec, qos
from tests.support.waiting import PATIENCE, wait_until

MS = 1_000_000
SECOND = 1_000_000_000
HOUR = 3600 * SECOND
#: Short, for tests wait for its end.
LEASE = 400 * MS
#: Of what must not end meanwhile: it is asserted far more often.
LONG_LEASE = SECOND


@pytest.fixture(scope="module")
def domain(shared_domain: int) -> int:
    return shared_domain


def numbers(first: int, count: int) -> list[dict[str, Any]]:
    return [number_row(n) for n in range(first, first + count)]


def write(writer: BlockingWriter, first: int, count: int, **how: Any) -> None:
    c = codec("Number")
    writer.write_samples(c.encode_batch(batch_of(c, numbers(first, count))), **how)


# --- DEADLINE -------------------------------------------------------------------------------------


def test_deadline_missed_by_cyclone(
    shared_peer: CyclonePeer, subscribe: Callable[..., Subscription], topic: str
) -> None:
    """An instance that was written once and then no more: each period counts, on both sides."""
    shared_peer.writer(topic, Vehicle, deadline=100 * MS)
    receiver = subscribe(topic, "Vehicle", subscribe=qos(deadline=150 * MS))
    shared_peer.wait_for_match(topic)
    assert receiver.process.counters()["status.requested_deadline_missed.total_count"] == 0
    shared_peer.write(topic, [{"id": 1, "note": "", "speed": 0.0}])
    receiver.wait_for(1)
    receiver.wait_for_counter("cache.requested_deadline_missed", 2)
    receiver.wait_for_counter("status.requested_deadline_missed.total_count", 2)
    offered = "offered_deadline_missed"
    wait_until(
        lambda: shared_peer.status(topic, offered)["total_count"] >= 2, "deadlines missed at Cyclone's"
    )


def test_deadline_missed_by_us(
    shared_peer: CyclonePeer, participate: Callable[..., Node], topic: str
) -> None:
    shared_peer.reader(topic, Number, deadline=150 * MS)
    writer = participate().create_writer(WriterSpec(topic, "interop::Number", qos(deadline=100 * MS)))
    assert writer.wait_for_readers(PATIENCE)
    write(writer, 0, 1)
    shared_peer.take(topic, 1)

    def missed() -> int:
        return shared_peer.status(topic, "requested_deadline_missed")["total_count"]

    wait_until(lambda: missed() >= 2, "deadlines missed at Cyclone's reader")
    wait_until(lambda: writer.writer.counters.offered_deadline_missed >= 2, "deadlines missed at ours")


# --- LIFESPAN -------------------------------------------------------------------------------------


def test_a_sample_past_its_lifespan_is_dropped(
    shared_peer: CyclonePeer, subscribe: Callable[..., Subscription], topic: str
) -> None:
    """Cyclone sends what its own clock lets it; we go by the source timestamp, as DDS has it."""
    shared_peer.writer(topic, Number, lifespan=600 * SECOND)
    receiver = subscribe(topic, "Number")
    shared_peer.wait_for_match(topic)
    now = time.time_ns()
    ages = [HOUR, 0, 601 * SECOND, 300 * SECOND, HOUR]
    shared_peer.write(topic, numbers(0, 5), timestamps=[now - age for age in ages])
    shared_peer.wait_for_acks(topic)
    assert [sample.row for sample in receiver.wait_for(2)] == [number_row(1), number_row(3)]
    receiver.wait_for_counter("cache.expired_dropped_sample_count", 3)
    counters = receiver.counters(5)
    assert counters["reader.received_samples"] == 5
    assert counters["reader.lost_samples"] == 0


def test_lifespan_of_cyclones_history(
    shared_peer: CyclonePeer, subscribe: Callable[..., Subscription], topic: str
) -> None:
    """What expired in a transient-local writer is not there for a late joiner, and is no loss."""
    shared_peer.writer(topic, Number, transient_local=True, lifespan=200 * MS)
    shared_peer.reader(
        topic, Number, transient_local=True
    )  # sees them expire: it drops them at the same time
    shared_peer.call("write_numbers", topic, 0, 5)
    wait_until(lambda: shared_peer.call("unread", topic) == 0, "the end of the samples' life")
    receiver = subscribe(topic, "Number", subscribe=qos(transient_local=True))
    receiver.wait_for_match()
    shared_peer.wait_for_match(topic, 2)
    later = time.time_ns() + HOUR  # their life does not end on the way
    shared_peer.write(topic, numbers(5, 3), timestamps=[later] * 3)
    shared_peer.wait_for_acks(topic)
    assert [sample.row for sample in receiver.wait_for(3)] == numbers(5, 3)
    assert receiver.counters(3)["reader.lost_samples"] == 0


def test_lifespan_of_our_history(
    shared_peer: CyclonePeer, participate: Callable[..., Node], topic: str
) -> None:
    writer = participate().create_writer(
        WriterSpec(topic, "interop::Number", qos(transient_local=True, lifespan=600 * SECOND))
    )
    now = time.time_ns()
    write(writer, 0, 5, timestamp=now - HOUR)
    write(writer, 5, 3, timestamp=now)
    shared_peer.reader(topic, Number, transient_local=True)
    assert writer.wait_for_readers(PATIENCE)
    write(writer, 8, 2)
    assert [sample.row for sample in shared_peer.take(topic, 5)] == numbers(5, 5)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert writer.writer.counters.expired_samples == 5


def test_lifespan_of_what_cyclone_has_not_read(
    shared_peer: CyclonePeer, participate: Callable[..., Node], topic: str
) -> None:
    """Cyclone's reader knows the lifespan from us: what is not taken in time is gone."""
    shared_peer.reader(topic, Number)
    writer = participate().create_writer(WriterSpec(topic, "interop::Number", qos(lifespan=200 * MS)))
    assert writer.wait_for_readers(PATIENCE)
    write(writer, 0, 5)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    wait_until(lambda: shared_peer.call("unread", topic) == 0, "the end of the samples' life")
    assert shared_peer.call("take", topic) == []


# --- LIVELINESS -----------------------------------------------------------------------------------


class Lives:
    """Liveliness events of one topic, one after the other."""

    def __init__(self, node: Node, topic: str) -> None:
        self.node = node
        self.topic = topic
        self._events: deque[type] = deque()

    def wait_for(self, kind: type) -> None:
        """The next event, which is of this kind."""
        wait_until(self.look, kind.__name__)
        assert self._events.popleft() is kind

    def wait_until_last(self, kind: type) -> None:
        """Until the last event is of this kind, whatever was before."""
        wait_until(lambda: self.look()[-1:] == [kind], lambda: f"{kind.__name__}, not {self._events}")

    def look(self) -> list[type]:
        """Those that nobody waited for."""
        for event in self.node.events():
            if isinstance(event, LivelinessLost | LivelinessGained) and event.topic == self.topic:
                self._events.append(type(event))
        return list(self._events)


def test_liveliness_automatic_of_cyclone(
    cyclone: Callable[..., CyclonePeer], participate: Callable[..., Node], topic: str
) -> None:
    """As long as its participant runs the writer lives, whether it writes or not."""
    peer, node = cyclone(), participate()
    peer.writer(topic, Number, liveliness_lease_duration=LEASE)
    LocalReader(node, topic, "Number", qos(liveliness_lease_duration=LEASE))
    peer.wait_for_match(topic)
    lives = Lives(node, topic)
    with peer.suspended():
        lives.wait_until_last(LivelinessLost)
    lives.wait_until_last(LivelinessGained)


@pytest.mark.parametrize(
    "kind", [LivelinessKind.MANUAL_BY_PARTICIPANT, LivelinessKind.MANUAL_BY_TOPIC], ids=lambda kind: kind.name
)
def test_liveliness_manual_of_cyclone(
    kind: LivelinessKind, shared_peer: CyclonePeer, participate: Callable[..., Node], topic: str
) -> None:
    """It is asserted by hand, and by writing; in one of the two kinds by the participant and its other writers."""
    level = {"liveliness": kind, "liveliness_lease_duration": LEASE}
    node = participate()
    mine, other = topic, f"{topic}_other"
    for each in (mine, other):
        shared_peer.writer(each, Number, **level)
    reader = LocalReader(node, mine, "Number", qos(**level))
    LocalReader(node, other, "Number", qos(**level))
    for each in (mine, other):
        shared_peer.wait_for_match(each)
    lives = Lives(node, mine)
    lives.wait_for(LivelinessLost)
    if kind is LivelinessKind.MANUAL_BY_PARTICIPANT:
        shared_peer.call("assert_liveliness")
        lives.wait_for(LivelinessGained)
        lives.wait_for(LivelinessLost)
    shared_peer.call("assert_liveliness", mine)
    lives.wait_for(LivelinessGained)
    lives.wait_for(LivelinessLost)
    shared_peer.call("write_numbers", mine, 0, 1)
    reader.wait_for(1)
    lives.wait_for(LivelinessGained)
    lives.wait_for(LivelinessLost)
    shared_peer.call("write_numbers", other, 0, 1)
    shared_peer.wait_for_acks(other)
    if kind is LivelinessKind.MANUAL_BY_PARTICIPANT:
        lives.wait_for(LivelinessGained)
    else:
        assert lives.look() == []


def test_liveliness_in_the_receivers_status(
    shared_peer: CyclonePeer, subscribe: Callable[..., Subscription], topic: str
) -> None:
    level = {"liveliness": LivelinessKind.MANUAL_BY_TOPIC, "liveliness_lease_duration": LEASE}
    shared_peer.writer(topic, Number, **level)
    receiver = subscribe(topic, "Number", subscribe=qos(**level))
    shared_peer.wait_for_match(topic)
    receiver.wait_for_counter("status.liveliness_changed.not_alive_count", 1)
    assert receiver.process.counters()["status.liveliness_changed.alive_count"] == 0
    shared_peer.call("start_stream", topic, 0.02)
    receiver.wait_for_counter("status.liveliness_changed.alive_count", 1)
    count = shared_peer.call("stop_stream")
    receiver.wait_for_counter("status.liveliness_changed.not_alive_count", 1)
    assert [sample.row for sample in receiver.wait_for(count)] == numbers(0, count)


@pytest.mark.parametrize("kind", list(LivelinessKind), ids=lambda kind: kind.name)
def test_our_liveliness_at_cyclone(
    kind: LivelinessKind, shared_peer: CyclonePeer, participate: Callable[..., Node], topic: str
) -> None:
    """It is kept by assertions; once lost, Cyclone takes only data for a sign of life (DDS: assertions, too)."""
    level = {"liveliness": kind, "liveliness_lease_duration": LONG_LEASE}
    shared_peer.reader(topic, Number, **level)
    node = participate()
    writer = node.create_writer(WriterSpec(topic, "interop::Number", qos(**level)))
    assert writer.wait_for_readers(PATIENCE)

    def alive() -> bool:
        status = shared_peer.status(topic, "liveliness_changed")
        counts = status["alive_count"], status["not_alive_count"]
        assert counts in [(0, 0), (0, 1), (1, 0)]
        return counts == (1, 0)

    def assert_liveliness() -> None:
        if kind is not LivelinessKind.AUTOMATIC:
            with node.lock:
                asserted = writer.guid if kind is LivelinessKind.MANUAL_BY_TOPIC else None
                node.participant.assert_liveliness(time.monotonic_ns(), asserted)
                node.flush()

    with node.duty_cycle.steering():  # nobody runs the node meanwhile
        wait_until(lambda: not alive(), "the loss of liveliness")
    write(writer, 0, 1)
    wait_until(alive, "liveliness regained")
    begin = last = time.monotonic_ns()
    while last < begin + 5 * LONG_LEASE // 4:
        assert_liveliness()
        lives, now = alive(), time.monotonic_ns()
        if now - last < LONG_LEASE // 2:
            assert lives
        else:  # this machine had no time for us, or for the peer
            write(writer, 0, 1)
            wait_until(alive, "liveliness regained")
            begin = now = time.monotonic_ns()
        last = now
        time.sleep(0.02)
    if kind is not LivelinessKind.AUTOMATIC:
        wait_until(lambda: not alive(), "the loss of liveliness")
    assert shared_peer.take(topic, 1)[0].row == number_row(0)


# --- TIME_BASED_FILTER ----------------------------------------------------------------------------


def test_time_based_filter_of_our_reader(
    shared_peer: CyclonePeer, subscribe: Callable[..., Subscription], topic: str
) -> None:
    """By source timestamps, of each instance by itself; what is filtered was received and acknowledged."""
    shared_peer.writer(topic, Vehicle)
    receiver = subscribe(topic, "Vehicle", subscribe=qos(time_based_filter=SECOND))
    shared_peer.wait_for_match(topic)
    start = time.time_ns()
    times = [(1, 0), (2, 0), (1, 400), (1, 999), (1, 1000), (2, 1500), (1, 1600), (2, 2400), (1, 2000)]
    rows = [{"id": vehicle, "note": "", "speed": float(at)} for vehicle, at in times]
    shared_peer.write(topic, rows, timestamps=[start + at * MS for _, at in times])
    shared_peer.write(topic, rows[:1], "dispose", timestamps=[start + 2001 * MS])
    shared_peer.wait_for_acks(topic)
    received = receiver.wait_for(6)
    kept = [(1, 0), (2, 0), (1, 1000), (2, 1500), (1, 2000)]
    assert [(s.row["id"], s.row["speed"]) for s in received[:5] if s.row] == kept
    assert received[5].row is not None and received[5].row["id"] == 1  # the dispose is no value: it passes
    receiver.wait_for_counter("cache.time_based_filter_dropped_sample_count", 4)
    assert len(receiver.received()) == 6


def test_time_based_filter_of_cyclones_reader(
    shared_peer: CyclonePeer, participate: Callable[..., Node], topic: str
) -> None:
    """Filtering is the reader's: our writer sends all, and Cyclone acknowledges what it filters."""
    shared_peer.reader(topic, Number, time_based_filter=HOUR)
    writer = participate().create_writer(WriterSpec(topic, "interop::Number", qos()))
    assert writer.wait_for_readers(PATIENCE)
    write(writer, 0, 5)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert [sample.row for sample in shared_peer.take(topic, 1)] == numbers(0, 1)
