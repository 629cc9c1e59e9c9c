"""Who is kept when there are more participants than there is room for; and leases: step by step, then on a network."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spark_rtps.transport.errors import DecodeError
from spark_rtps.transport.limits import (
    LEASE_MAX_NS,
    PARTICIPANTS_PER_ADDRESS_MAX,
    UNMATCHED_LEASE_MAX,
    UNMATCHED_LEASE_MIN,
)
from spark_rtps.transport.protocol.discovery import participant_capacity
from spark_rtps.transport.protocol.discovery.participant_capacity import PROVEN_STAY, ParticipantCapacity
from spark_rtps.transport.protocol.participant import events
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.participant import RtpsParticipant
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.structure import INFINITE, Locator
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.submessages import InfoDestination
from tests.protocol.hostile_scene import EVIL_IP, RELIABLE, announcement, message
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork


def prefix(number: int) -> bytes:
    return struct.pack(">III", 0xEEEEEEEE, 0, number)


# --- step by step ----------------------------------------------------------------------------------


@dataclass
class Resident:
    prefix: bytes
    source_ip: str
    last_received: int
    proven: bool = True


@dataclass
class Room:
    """A room for six, three of each address."""

    remotes: dict[bytes, Resident] = field(default_factory=dict)
    matched: set[bytes] = field(default_factory=set)
    now: int = 0

    def __post_init__(self) -> None:
        self.room = ParticipantCapacity(self.remotes, self.matched.__contains__)

    def come(self, number: int, ip: str = "a", *, proven: bool = True) -> bytes | None:
        """A participant comes; returns who loses its place to it."""
        gone = self.room.choose_replaced(ip, now=self.now)
        if gone is not None:
            self.room.remove_participant(self.remotes.pop(gone))
        self.remotes[prefix(number)] = it = Resident(prefix(number), ip, self.now, proven)
        self.room.add_participant(it, now=self.now)
        return gone


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    monkeypatch.setattr(participant_capacity, "PARTICIPANTS_MAX", 6)
    monkeypatch.setattr(participant_capacity, "PARTICIPANTS_PER_ADDRESS_MAX", 3)
    return Room()


def test_no_participant_is_evicted_below_the_limit(room: Room) -> None:
    assert [room.come(n, ip) for n, ip in enumerate("aaabbb")] == [None] * 6


def test_the_first_unproven_participant_of_an_address_is_evicted(room: Room) -> None:
    room.come(0)
    room.come(1, proven=False)
    room.come(2, proven=False)
    assert room.come(3) == prefix(1)
    room.remotes[prefix(2)].proven = True  # it has proven itself meanwhile
    room.remotes[prefix(3)].proven = False
    with pytest.raises(DecodeError):
        room.come(4)


def test_the_longest_silent_participant_is_evicted_next(room: Room) -> None:
    for n in range(3):
        room.come(n)
    with pytest.raises(DecodeError):
        room.come(3)
    room.now = PROVEN_STAY
    for n, received in enumerate((9, 4, 7)):
        room.remotes[prefix(n)].last_received = received
    assert room.come(3) == prefix(1)
    assert room.come(4) == prefix(2)


def test_a_matched_participant_is_kept(room: Room) -> None:
    for n in range(3):
        room.come(n, proven=n != 1)
    room.matched |= {prefix(0), prefix(2)}
    room.now = PROVEN_STAY
    assert room.come(3) == prefix(1)
    room.matched.add(prefix(3))
    with pytest.raises(DecodeError):
        room.come(4)
    assert room.come(5, "b") is None


def test_a_full_table_evicts_from_the_largest_address(room: Room) -> None:
    for n, ip in enumerate("aaabbc"):
        room.come(n, ip)
    assert room.come(6, "d") == prefix(0), "although it has just come"
    with pytest.raises(DecodeError):
        room.come(7, "b")
    room.now = PROVEN_STAY
    assert room.come(7, "b") is not None


def test_an_address_whose_participants_are_matched_gives_none(room: Room) -> None:
    for n, ip in enumerate("aaabbc"):
        room.come(n, ip)
    room.matched |= {prefix(0), prefix(1), prefix(2)}
    assert room.come(6, "d") == prefix(3)


def test_a_participant_that_moves_counts_at_its_new_address(room: Room) -> None:
    for n in range(3):
        room.come(n)
    it = room.remotes[prefix(0)]
    room.room.move(it, "b")
    it.source_ip = "b"
    assert room.come(3) is None
    room.room.remove_participant(room.remotes.pop(prefix(0)))
    assert "b" not in room.room._addresses


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.integers(0, 30), st.sampled_from("abc"), st.booleans()),
        st.tuples(st.just("go"), st.integers(0, 30)),
        st.tuples(st.just("prove"), st.integers(0, 30)),
        st.tuples(st.just("match"), st.integers(0, 30), st.booleans()),
        st.tuples(st.just("move"), st.integers(0, 30), st.sampled_from("abc")),
        st.tuples(st.just("wait"), st.sampled_from([1, PROVEN_STAY])),
    ),
    max_size=60,
)


#: One that is overheard is matched, although it never addresses us.
UNPROVEN_AND_MATCHED = [
    ("come", 1, "a", False),
    ("come", 3, "a", True),
    ("come", 0, "a", True),
    ("match", 1, True),
    ("come", 2, "a", True),
]


@settings(max_examples=200, deadline=None)
@example(UNPROVEN_AND_MATCHED)
@given(STEPS)
def test_eviction_takes_only_unmatched_participants(steps: list[tuple[Any, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(participant_capacity, "PARTICIPANTS_MAX", 6)
        patch.setattr(participant_capacity, "PARTICIPANTS_PER_ADDRESS_MAX", 3)
        room = Room()
        for step in steps:
            it = room.remotes.get(prefix(step[1])) if step[0] != "wait" else None
            match step:
                case "come", number, ip, proven if it is None:
                    before = len(room.remotes)
                    there = sum(each.source_ip == ip for each in room.remotes.values())
                    try:
                        gone = room.come(number, ip, proven=proven)
                    except DecodeError:
                        assert before >= 6 or there >= 3
                    else:
                        assert (gone is None) is (before < 6 and there < 3)
                        assert gone is None or gone not in room.matched
                case "go", _ if it is not None:
                    room.room.remove_participant(room.remotes.pop(it.prefix))
                    room.matched.discard(it.prefix)
                case "prove", _ if it is not None:
                    it.proven = True
                case "match", _, bool(yes) if it is not None:
                    (room.matched.add if yes else room.matched.discard)(it.prefix)
                case "move", _, ip if it is not None:
                    room.room.move(it, ip)
                    it.source_ip = ip
                case "wait", duration:
                    room.now += duration
            held = {(p, ip) for ip, address in room.room._addresses.items() for p in address.came_at}
            assert held == {(each.prefix, each.source_ip) for each in room.remotes.values()}
            assert all(
                address.unproven.keys() <= address.came_at.keys() for address in room.room._addresses.values()
            )
            assert len(room.remotes) <= 6


# --- on a network ----------------------------------------------------------------------------------


class Attacked:
    """A participant with a reader, whose writer is matched; it is attacked by many."""

    def __init__(self) -> None:
        self.network = VirtualNetwork()
        self.one, self.two = self.network.add(), self.network.add()
        self.reader: StatefulReader = self.one.create_reader(
            ReaderSpec("t", "T", RELIABLE), now=self.network.now
        )
        self.writer = self.write_from(self.two)
        self.network.run(SECOND)
        assert self.writer.guid in self.reader.writers

    def write_from(self, participant: RtpsParticipant) -> StatefulWriter:
        return participant.create_writer(WriterSpec("t", "T", RELIABLE), now=self.network.now)

    def announce(self, number: int, ip: str = EVIL_IP, *, proven: bool, lease: int = INFINITE) -> None:
        where = (Locator(ip, 7410),)
        datagram = announcement(
            prefix(number), metatraffic_unicast=where, default_unicast=where, lease_duration=lease
        )
        self.network.deliver(self.one, datagram, ip)
        if proven:
            to_us = message(InfoDestination(self.one.prefix).encode(), prefix=prefix(number))
            self.network.deliver(self.one, to_us, ip)

    def find_another(self, seconds: float) -> bool:
        """Whether a new honest writer is found, and what it writes arrives."""
        writer = self.write_from(self.network.add())
        payload = np.frombuffer(b"\0\1\0\0good", np.uint8)
        writer.write_samples(Samples.uniform(payload, 1, 8), timestamp=0, now=self.network.now)

        def arrived() -> bool:
            return any(run.writer == writer.guid for run in self.reader.take_runs())

        return self.network.run(round(seconds * SECOND), until=arrived)


@pytest.mark.parametrize("proven", [False, True])
@pytest.mark.parametrize("addresses", [1, 2, 8])
def test_eleven_hundred_participants_keep_no_honest_writer_out(addresses: int, proven: bool) -> None:
    it = Attacked()
    for number in range(1_100):
        it.announce(number, f"10.0.9.{number % addresses}", proven=proven)
    assert it.find_another(1)
    assert it.writer.guid in it.reader.writers
    assert it.find_another(1)


def test_a_flood_of_new_participants_keeps_no_honest_writer_out() -> None:
    it = Attacked()
    for number in range(PARTICIPANTS_PER_ADDRESS_MAX):
        it.announce(number, proven=True)
    writer = it.write_from(it.network.add())
    for number in range(1_000, 3_000):
        it.announce(number, proven=number % 2 == 0)
        if number % 20 == 0:
            it.network.run(10 * MILLISECOND)
    assert writer.guid in it.reader.writers and it.writer.guid in it.reader.writers


def test_unmatched_participants_do_not_replace_a_matched_one_at_its_address() -> None:
    it = Attacked()
    at = it.network.address_of(it.two)
    for number in range(700):
        it.announce(number, at, proven=number % 2 == 0)
    it.network.run(60 * SECOND)
    for number in range(700, 1_400):
        it.announce(number, at, proven=True)
    assert it.writer.guid in it.reader.writers


def test_a_robot_with_two_hundred_participants_is_known_as_a_whole() -> None:
    it = Attacked()
    for _ in range(3):
        for number in range(200):
            it.announce(number, "10.0.0.50", proven=True, lease=10 * SECOND)
        it.network.run(3 * SECOND)
    found = [e for e in it.network.events[it.one.prefix] if isinstance(e, events.ParticipantDiscovered)]
    assert len(found) == 201 and len(it.one.database.participants) == 201


def test_an_evicted_unmatched_participant_is_found_again_by_a_message_to_us() -> None:
    it = Attacked()
    network = it.network
    other = network.add(lease_duration=10 * SECOND)
    network.run(SECOND)
    assert other.prefix in it.one.database.participants
    (gone,) = (r for r in it.one._spdp.remotes.values() if r.prefix == other.prefix)
    it.one._spdp._sent_away.append(it.one._spdp._forget(gone.prefix))
    it.one.discovery._lose_sent_away(network.now)
    writer = it.write_from(other)
    assert network.run(10 * SECOND, until=lambda: writer.guid in it.reader.writers)


# --- leases ----------------------------------------------------------------------------------------


def changes(it: Attacked, kind: type[Any]) -> int:
    return sum(isinstance(event, kind) for event in it.network.events[it.one.prefix])


@pytest.mark.parametrize("lease", [0, 1, 1_000])
@pytest.mark.parametrize("proven", [False, True])
def test_a_tiny_lease_does_not_cause_repeated_discovery(lease: int, proven: bool) -> None:
    it = Attacked()
    before = changes(it, events.ParticipantDiscovered)
    for _ in range(60):
        it.announce(1, proven=proven, lease=lease)
        it.network.run(SECOND)
    assert changes(it, events.ParticipantDiscovered) == before + 1
    it.network.run(UNMATCHED_LEASE_MIN)
    assert prefix(1) not in it.one.database.participants


@pytest.mark.parametrize("lease", [LEASE_MAX_NS, INFINITE])
def test_a_day_long_lease_pins_no_place(lease: int) -> None:
    it = Attacked()
    for number in range(20):
        it.announce(number, proven=number < 10, lease=lease)
    it.network.run(11 * SECOND)
    assert len(it.one.database.participants) == 11, "those that are proven"
    it.network.run(UNMATCHED_LEASE_MAX // 2)
    it.announce(3, proven=True, lease=lease)  # it is heard
    it.network.run(UNMATCHED_LEASE_MAX // 2)
    assert set(it.one.database.participants) == {it.two.prefix, prefix(3)}


def test_a_matched_participant_has_the_lease_that_it_announces() -> None:
    for lease, silence, is_known in (
        (SECOND, 2 * SECOND, False),
        (LEASE_MAX_NS, 2 * UNMATCHED_LEASE_MAX, True),
    ):
        network = VirtualNetwork()
        one, two = network.add(), network.add(lease_duration=lease)
        reader = one.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
        writer = two.create_writer(WriterSpec("t", "T", RELIABLE), now=network.now)
        network.run(SECOND // 2)
        assert writer.guid in reader.writers
        network.unplug(two)
        network.run(silence)
        assert (writer.guid in reader.writers) is is_known
