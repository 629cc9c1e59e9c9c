"""QoS that is about instances and what is kept of them, with Cyclone DDS at the other end: OWNERSHIP,
DESTINATION_ORDER, HISTORY, DURABILITY, RESOURCE_LIMITS."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.qos import DestinationOrderKind, DurabilityKind, LivelinessKind, OwnershipKind
from spark_rtps.transport.wire.samples import DISPOSED, KEY_ONLY, UNREGISTERED
from tests.interop.cyclone_peer import CyclonePeer, number_row
from tests.interop.cyclone_types import Number, Vehicle
from tests.interop.subscription import Subscription, batch_of, codec, qos
from tests.support.waiting import PATIENCE, wait_until

Row = dict[str, Any]
MS = 1_000_000
SECOND = 1_000_000_000
EXCLUSIVE = {"ownership": OwnershipKind.EXCLUSIVE}
BY_SOURCE = {"destination_order": DestinationOrderKind.BY_SOURCE_TIMESTAMP}


@pytest.fixture(scope="module")
def domain(shared_domain: int) -> int:
    return shared_domain


def vehicle(number: int, note: str, speed: float = 0.0) -> Row:
    return {"id": number, "note": note, "speed": speed}


def write(writer: BlockingWriter, kind: str, rows: list[Row], **how: Any) -> None:
    c = codec(kind)
    batch = batch_of(c, rows)
    writer.write_samples(
        c.encode_batch(batch), key_hashes=c.key_hashes(batch) if c.struct.is_keyed else None, **how
    )


def notes(receiver: Subscription, count: int) -> list[str]:
    """What the vehicles in the log say; of a dispose or unregister its instance."""
    rows = [sample.row or {} for sample in receiver.wait_for(count)]
    return [row["note"] or f"end of {row['id']}" for row in rows]


# --- OWNERSHIP ------------------------------------------------------------------------------------


class Rivals:
    """Two Cyclone writers of one topic, and what our exclusive reader has of them."""

    def __init__(self, weak: CyclonePeer, strong: CyclonePeer, receiver: Subscription, topic: str) -> None:
        self.weak, self.strong, self.receiver, self.topic = weak, strong, receiver, topic
        self.taken: list[str] = []
        self.dropped = 0

    def write(self, peer: CyclonePeer, number: int, note: str, *, dropped: bool = False) -> None:
        peer.write(self.topic, [vehicle(number, note)])
        if dropped:
            self.dropped += 1
            self.receiver.wait_for_counter("cache.ownership_dropped_sample_count", self.dropped)
        else:
            self.taken.append(note)
        assert notes(self.receiver, len(self.taken)) == self.taken

    def end(self, peer: CyclonePeer, number: int, how: str) -> None:
        peer.write(self.topic, [vehicle(number, "")], how)
        self.taken.append(f"end of {number}")
        assert notes(self.receiver, len(self.taken)) == self.taken


@pytest.fixture
def rivals(
    shared_peer: CyclonePeer,
    cyclone: Callable[..., CyclonePeer],
    subscribe: Callable[..., Subscription],
    topic: str,
) -> Callable[..., Rivals]:
    def start(*, lease_seconds: int = 10, **more: Any) -> Rivals:
        strong = cyclone(lease_seconds=lease_seconds)
        shared_peer.writer(topic, Vehicle, **EXCLUSIVE, ownership_strength=1, **more)
        strong.writer(topic, Vehicle, **EXCLUSIVE, ownership_strength=5, **more)
        receiver = subscribe(topic, "Vehicle", subscribe=qos(**EXCLUSIVE, **more))
        shared_peer.wait_for_match(topic)
        strong.wait_for_match(topic)
        return Rivals(shared_peer, strong, receiver, topic)

    return start


def test_ownership_by_instance(rivals: Callable[..., Rivals]) -> None:
    """The strongest writer of each instance is heard, until it gives the instance up."""
    r = rivals()
    r.write(r.weak, 1, "weak on 1")
    r.write(r.weak, 2, "weak on 2")
    r.write(r.strong, 1, "strong on 1")
    r.write(r.weak, 1, "weak on 1, unheard", dropped=True)
    r.write(r.weak, 2, "weak on 2, still")
    r.end(r.strong, 1, "dispose")  # the owner stays the owner
    r.write(r.weak, 1, "weak on 1, unheard again", dropped=True)
    r.end(r.strong, 1, "unregister_instance")
    r.write(r.weak, 1, "weak on 1, at last")
    counters = r.receiver.counters(9)
    assert counters["cache.alive_instance_count"] == 2
    assert counters["reader.lost_samples"] == 0


def test_ownership_after_the_owner_was_deleted(rivals: Callable[..., Rivals]) -> None:
    r = rivals()
    r.write(r.strong, 1, "strong")
    r.write(r.weak, 1, "weak, unheard", dropped=True)
    r.strong.call("delete", r.topic)
    r.receiver.wait_for_match(1)
    known = len(r.receiver.received())  # Cyclone unregisters what a writer leaves behind
    r.weak.write(r.topic, [vehicle(1, "weak")])
    assert [s.row["note"] for s in r.receiver.wait_for(known + 1) if s.row][-1] == "weak"


def test_ownership_after_the_owner_was_killed(rivals: Callable[..., Rivals]) -> None:
    r = rivals(lease_seconds=2)
    r.write(r.strong, 1, "strong")
    r.write(r.weak, 1, "weak, unheard", dropped=True)
    r.strong.kill()
    r.receiver.wait_for_match(1)
    r.write(r.weak, 1, "weak")


def test_ownership_lapses_with_the_deadline(rivals: Callable[..., Rivals]) -> None:
    r = rivals(deadline=400 * MS)
    r.write(r.strong, 1, "strong")
    r.receiver.wait_for_counter("cache.requested_deadline_missed", 1)
    r.write(r.weak, 1, "weak")
    r.write(r.strong, 1, "strong is back")


def test_ownership_lapses_with_liveliness(rivals: Callable[..., Rivals]) -> None:
    r = rivals(liveliness=LivelinessKind.MANUAL_BY_TOPIC, liveliness_lease_duration=600 * MS)
    r.write(r.strong, 1, "strong")
    r.receiver.wait_for_counter("status.liveliness_changed.not_alive_count", 2)
    r.write(r.weak, 1, "weak")
    r.write(r.strong, 1, "strong is back")


@pytest.mark.parametrize("ours", [1, 9])
def test_ownership_at_cyclones_reader(
    ours: int,
    shared_peer: CyclonePeer,
    cyclone: Callable[..., CyclonePeer],
    participate: Callable[..., Node],
    topic: str,
) -> None:
    """Cyclone weighs our writer's strength against its own."""
    theirs, other = 5, cyclone()
    shared_peer.reader(topic, Vehicle, **EXCLUSIVE)
    other.writer(topic, Vehicle, **EXCLUSIVE, ownership_strength=theirs)
    writer = participate().create_writer(
        WriterSpec(topic, "interop::Vehicle", qos(**EXCLUSIVE, ownership_strength=ours), keyed=True)
    )
    other.wait_for_match(topic)
    assert writer.wait_for_readers(PATIENCE)
    shared_peer.wait_for_match(topic, 2)

    def by_us(note: str) -> None:
        write(writer, "Vehicle", [vehicle(1, note)])
        assert writer.wait_for_acknowledgments(PATIENCE) == {}

    def by_them(note: str) -> None:
        other.write(topic, [vehicle(1, note)])
        other.wait_for_acks(topic)

    weak, strong = (by_us, by_them) if ours < theirs else (by_them, by_us)
    for step, note in ((weak, "weak"), (strong, "strong"), (weak, "weak again"), (strong, "strong again")):
        step(note)
    assert [taken.row["note"] for taken in shared_peer.take(topic, 3)] == ["weak", "strong", "strong again"]
    if strong is by_us:
        write(writer, "Vehicle", [vehicle(1, "")], flags=UNREGISTERED | KEY_ONLY)
        assert writer.wait_for_acknowledgments(PATIENCE) == {}
        weak("weak at last")
        assert shared_peer.take(topic, 1)[-1].row["note"] == "weak at last"


# --- DESTINATION_ORDER ----------------------------------------------------------------------------


def test_destination_order_of_our_reader(
    shared_peer: CyclonePeer, subscribe: Callable[..., Subscription], topic: str
) -> None:
    """What is older than the newest of its instance is dropped; the dispose that is too late, too."""
    shared_peer.writer(topic, Vehicle, **BY_SOURCE)
    receiver = subscribe(topic, "Vehicle", subscribe=qos(**BY_SOURCE))
    shared_peer.wait_for_match(topic)
    start = time.time_ns()
    times = [(1, 10), (2, 5), (1, 9), (2, 6), (1, 10), (2, 4), (1, 11)]
    rows = [vehicle(number, f"{number} at {at}") for number, at in times]
    shared_peer.write(topic, rows, timestamps=[start + at * SECOND for _, at in times])
    shared_peer.write(topic, rows[:1], "dispose", timestamps=[start + SECOND])
    shared_peer.wait_for_acks(topic)
    receiver.wait_for_counter("cache.old_source_timestamp_dropped_sample_count", 3)
    assert notes(receiver, 5) == ["1 at 10", "2 at 5", "2 at 6", "1 at 10", "1 at 11"]
    assert receiver.counters(8)["reader.lost_samples"] == 0


def test_destination_order_of_cyclones_reader(
    shared_peer: CyclonePeer, participate: Callable[..., Node], topic: str
) -> None:
    """Of two writers of ours the later time wins, not the later arrival."""
    shared_peer.reader(topic, Vehicle, keep=1, **BY_SOURCE)
    node, now = participate(), time.time_ns()
    level = qos(**BY_SOURCE)
    first, second = (
        node.create_writer(WriterSpec(topic, "interop::Vehicle", level, keyed=True)) for _ in range(2)
    )
    shared_peer.wait_for_match(topic, 2)
    for writer, note, at in ((first, "new", now), (second, "old", now - SECOND)):
        assert writer.wait_for_readers(PATIENCE)
        write(writer, "Vehicle", [vehicle(1, note)], timestamp=at)
        assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert [taken.row["note"] for taken in shared_peer.take(topic, 1)] == ["new"]


# --- HISTORY, DURABILITY --------------------------------------------------------------------------


def rounds(count: int) -> list[Row]:
    """Three instances in turn."""
    return [vehicle(n % 3, f"n{n}", float(n)) for n in range(count)]


def test_history_of_cyclones_reader(
    shared_peer: CyclonePeer, participate: Callable[..., Node], topic: str
) -> None:
    """It replaces what it has not read; we send everything, and disposes reach it."""
    shared_peer.reader(topic, Vehicle, keep=2)
    writer = participate().create_writer(WriterSpec(topic, "interop::Vehicle", qos(), keyed=True))
    assert writer.wait_for_readers(PATIENCE)
    write(writer, "Vehicle", rounds(15))
    write(writer, "Vehicle", [vehicle(0, "")], flags=DISPOSED | KEY_ONLY)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    taken = shared_peer.take(topic, 6)
    assert sorted(each.row["speed"] for each in taken if each.valid) == [9, 10, 11, 12, 13, 14]
    assert {each.instance_state for each in taken if each.row["id"] == 0} == {"DISPOSED"}


def test_history_of_our_reader_keeps_what_comes_singly(
    shared_peer: CyclonePeer, subscribe: Callable[..., Subscription], topic: str
) -> None:
    """The log is no cache: KEEP_LAST bounds what one batch brings, and Cyclone has none."""
    shared_peer.writer(topic, Vehicle, batching=True)
    receiver = subscribe(topic, "Vehicle", subscribe=qos(keep=1))
    shared_peer.wait_for_match(topic)
    shared_peer.write(topic, rounds(60))
    assert [sample.row for sample in receiver.wait_for(60)] == rounds(60)
    assert receiver.counters(60)["cache.lost_by_history"] == 0


@pytest.mark.parametrize("kind", list(DurabilityKind)[1:], ids=lambda kind: kind.name)
def test_durability_kinds_of_our_writer(
    kind: DurabilityKind, shared_peer: CyclonePeer, participate: Callable[..., Node], topic: str
) -> None:
    """A stronger kind than TRANSIENT_LOCAL is offered as such, and the writer keeps the history for it."""
    level = replace(qos(keep=2), durability=kind)
    writer = participate().create_writer(WriterSpec(topic, "interop::Vehicle", level, keyed=True))
    write(writer, "Vehicle", rounds(15))
    shared_peer.reader(topic, Vehicle, transient_local=True)
    taken = shared_peer.take(topic, 6)
    assert sorted(each.row["speed"] for each in taken) == [9, 10, 11, 12, 13, 14]
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert shared_peer.call("take", topic) == []


# --- RESOURCE_LIMITS ------------------------------------------------------------------------------


def test_max_instances_of_our_reader(
    shared_peer: CyclonePeer, subscribe: Callable[..., Subscription], topic: str
) -> None:
    """What finds no room is rejected, counted, and acknowledged; an instance that ends makes room."""
    shared_peer.writer(topic, Vehicle)
    receiver = subscribe(topic, "Vehicle", subscribe=qos(max_instances=2))
    shared_peer.wait_for_match(topic)
    shared_peer.write(topic, rounds(6))
    shared_peer.wait_for_acks(topic)
    assert notes(receiver, 4) == ["n0", "n1", "n3", "n4"]
    receiver.wait_for_counter("cache.rejected_by_instances_limit", 2)
    shared_peer.write(topic, [vehicle(0, "")], "unregister_instance")
    shared_peer.write(topic, [vehicle(2, "room for 2")])
    assert notes(receiver, 6)[4:] == ["end of 0", "room for 2"]
    receiver.wait_for_counter("status.sample_rejected.by_instances_limit", 2)


def test_resource_limits_of_cyclones_reader(
    shared_peer: CyclonePeer, participate: Callable[..., Node], topic: str
) -> None:
    """What it cannot hold it does not acknowledge: all arrive as it is read, in order."""
    shared_peer.reader(topic, Number, max_samples=10)
    writer = participate().create_writer(WriterSpec(topic, "interop::Number", qos()))
    assert writer.wait_for_readers(PATIENCE)
    rows = [number_row(n) for n in range(100)]
    write(writer, "Number", rows)
    wait_until(lambda: shared_peer.call("unread", topic) == 10, "Cyclone's reader to be full")
    assert [taken.row for taken in shared_peer.take(topic, 100)] == rows
    assert writer.wait_for_acknowledgments(PATIENCE) == {}


def test_resource_limits_of_cyclones_writer(
    shared_peer: CyclonePeer, subscribe: Callable[..., Subscription], topic: str
) -> None:
    """It holds ten samples and waits for our acknowledgements."""
    shared_peer.writer(topic, Number, max_samples=10)
    receiver = subscribe(topic, "Number")
    shared_peer.wait_for_match(topic)
    shared_peer.call("write_numbers", topic, 0, 500)
    assert [sample.row for sample in receiver.wait_for(500)] == [number_row(n) for n in range(500)]


def test_max_samples_of_our_writer(
    shared_peer: CyclonePeer, participate: Callable[..., Node], topic: str
) -> None:
    """It holds ten samples and waits for Cyclone's acknowledgements."""
    shared_peer.reader(topic, Number)
    writer = participate().create_writer(WriterSpec(topic, "interop::Number", qos(max_samples=10)))
    assert writer.wait_for_readers(PATIENCE)
    rows = [number_row(n) for n in range(500)]
    write(writer, "Number", rows)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert [taken.row for taken in shared_peer.take(topic, 500)] == rows
    assert writer.writer.counters.unacknowledged_samples_peak <= 10
