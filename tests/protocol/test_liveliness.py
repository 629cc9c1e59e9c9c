"""LIVELINESS, its three kinds: ours is asserted, that of matched remote writers is watched."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from spark_rtps.transport.errors import DropReason
from spark_rtps.transport.protocol.discovery.endpoint_data import EndpointData
from spark_rtps.transport.protocol.discovery.liveliness import (
    KIND_AUTOMATIC,
    KIND_MANUAL,
    Liveliness,
    encode_assertion,
)
from spark_rtps.transport.protocol.endpoint_info import WriterInfo
from spark_rtps.transport.protocol.participant import events
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.participant import RtpsParticipant
from spark_rtps.transport.protocol.participant.statuses import ReaderStatuses
from spark_rtps.transport.qos import LivelinessKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import ENTITYID_P2P_MESSAGE_WRITER, INFINITE, KIND_WRITER_NO_KEY, Guid
from spark_rtps.transport.wire.samples import DISPOSED, Run
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE)
LEASE = SECOND


def lively(network: VirtualNetwork, **policies: object) -> tuple[RtpsParticipant, RtpsParticipant]:
    """A reader and a writer with a liveliness lease of a second."""
    qos = replace(RELIABLE, liveliness_lease_duration=LEASE, **policies)
    one, two = network.add(), network.add()
    one.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
    two.create_writer(WriterSpec("t", "T", qos), now=network.now)
    network.run(SECOND // 2)
    return one, two


def output(network: VirtualNetwork, participant: RtpsParticipant) -> list[type]:
    kinds = (events.LivelinessLost, events.LivelinessGained)
    return [type(each) for each in network.events[participant.prefix] if isinstance(each, kinds)]


def test_the_bytes_of_an_assertion() -> None:
    # RTPS 2.5 §9.6.3.1, and what Cyclone DDS sends
    expected = "00010000" + "0102030405060708090a0b0c" + "00000001" + "01000000" + "00000000"
    assert encode_assertion(bytes(range(1, 13))).hex() == expected
    assert len(encode_assertion(bytes(12))) == 28


def test_an_idle_writer_stays_alive() -> None:
    network = VirtualNetwork()
    one, _ = lively(network)
    network.run(60 * SECOND)
    assert output(network, one) == []


def test_assertions_come_three_times_per_lease_and_only_when_needed() -> None:
    for lease, expected in ((True, 30), (False, 0)):
        network = VirtualNetwork()
        network.log = []
        one, two = network.add(), network.add()
        qos = replace(RELIABLE, liveliness_lease_duration=LEASE) if lease else RELIABLE
        one.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
        two.create_writer(WriterSpec("t", "T", qos), now=network.now)
        network.run(SECOND)
        network.log.clear()
        network.run(10 * SECOND)
        payload = encode_assertion(two.prefix)
        sent = [each for each in network.log if payload in each[2]]
        assert abs(len(sent) - expected) <= 1


def test_lost_and_gained() -> None:
    network = VirtualNetwork()
    one, two = lively(network)
    address = network.address_of(two)
    network.unplug(two)
    start = network.now
    assert network.run(5 * SECOND, until=lambda: bool(output(network, one)))
    assert network.now - start <= LEASE
    network.run(SECOND)
    network._hosts[address] = two
    assert network.run(5 * SECOND, until=lambda: len(output(network, one)) == 2)
    assert output(network, one) == [events.LivelinessLost, events.LivelinessGained]
    lost = next(each for each in network.events[one.prefix] if isinstance(each, events.LivelinessLost))
    assert lost.topic == "t"
    assert lost.writer.prefix == two.prefix
    network.run(10 * SECOND)
    assert output(network, one) == [events.LivelinessLost, events.LivelinessGained]


def test_any_message_is_a_sign_of_life() -> None:
    network = VirtualNetwork()
    one, two = lively(network)
    network.unplug(two)
    message = b"RTPS\x02\x05\x01\x7e" + two.prefix
    for _ in range(20):
        network.run(SECOND // 2)
        network.deliver(one, message, source="10.0.0.2")
    assert output(network, one) == []
    network.deliver(one, message, source="10.0.0.77")  # not from where it is
    network.run(LEASE + 1)
    assert output(network, one) == [events.LivelinessLost]


def test_a_lost_participant_takes_its_writers_along() -> None:
    network = VirtualNetwork()
    one, two = lively(network)
    network.unplug(two)
    network.run(30 * SECOND)
    assert output(network, one) == [events.LivelinessLost]
    assert one.liveliness.get_timer() is None


def test_no_assertions_after_the_last_such_writer() -> None:
    network = VirtualNetwork()
    one, two = lively(network)
    guid = next(iter(one.endpoints.routes.keys() - {g for g in one.endpoints.routes if g.entity[3] & 0xC0}))
    two.delete_endpoint(guid, network.now)
    network.run(SECOND)
    assert two.liveliness.get_timer() is None
    assert one.liveliness.get_timer() is None


def test_a_reader_that_never_acknowledges_does_not_grow_the_history() -> None:
    network = VirtualNetwork()
    one, two = lively(network)
    writer = two._writers[ENTITYID_P2P_MESSAGE_WRITER]
    network.unplug(one)
    message = b"RTPS\x02\x05\x01\x7e" + one.prefix
    for _ in range(200):
        network.run(200 * MILLISECOND)
        network.deliver(two, message, source="10.0.0.1")
    assert two.database.participants
    assert writer.last_sn > 100
    assert writer.history.samples <= 66


# --- the MANUAL kinds, without a participant around ------------------------------------------------

PARTICIPANT, TOPIC = LivelinessKind.MANUAL_BY_PARTICIPANT, LivelinessKind.MANUAL_BY_TOPIC
US, THEM, OTHERS = b"\1" * 12, b"\2" * 12, b"\3" * 12


def endpoint(prefix: bytes, number: int, kind: LivelinessKind, lease: int = LEASE) -> EndpointData:
    qos = replace(RELIABLE, liveliness=kind, liveliness_lease_duration=lease)
    return EndpointData(Guid(prefix, bytes((0, 0, number, KIND_WRITER_NO_KEY))), "t", "T", qos)


def liveliness(*tracked: EndpointData) -> Liveliness:
    watching = Liveliness(US, {})
    for each in tracked:
        watching.track(each, now=0)
    return watching


def test_manual_by_topic_lives_by_its_own_data_only() -> None:
    one, two = endpoint(THEM, 1, TOPIC), endpoint(THEM, 2, TOPIC)
    watching = liveliness(one, two)
    watching.on_data(one.guid, LEASE // 2)
    watching.on_message(THEM, KIND_MANUAL, LEASE // 2)
    watching.on_message(THEM, KIND_AUTOMATIC, LEASE // 2)
    assert watching.lost(now=LEASE - 1) == []
    assert watching.get_timer() == LEASE
    assert watching.lost(now=LEASE) == [two.guid]
    assert watching.lost(now=LEASE + LEASE // 2) == [one.guid]
    assert watching.gained(now=2 * LEASE) == []
    watching.on_data(two.guid, 2 * LEASE)
    assert watching.gained(now=2 * LEASE) == [two.guid]
    assert watching.lost(now=3 * LEASE) == [two.guid]


def test_manual_by_participant_lives_by_any_such_writer() -> None:
    one, two = endpoint(THEM, 1, PARTICIPANT), endpoint(THEM, 2, PARTICIPANT)
    by_topic, other = endpoint(THEM, 3, TOPIC), endpoint(OTHERS, 1, PARTICIPANT)
    watching = liveliness(one, two, by_topic, other)
    watching.on_data(one.guid, LEASE // 2)
    assert set(watching.lost(now=LEASE)) == {by_topic.guid, other.guid}
    watching.on_data(by_topic.guid, LEASE)
    assert set(watching.lost(now=LEASE + LEASE // 2)) == {one.guid, two.guid}


def test_manual_by_participant_lives_by_its_message() -> None:
    one, two = endpoint(THEM, 1, PARTICIPANT), endpoint(OTHERS, 2, PARTICIPANT)
    watching = liveliness(one, two)
    watching.on_message(THEM, KIND_MANUAL, LEASE // 2)
    watching.on_message(OTHERS, KIND_AUTOMATIC, LEASE // 2)
    watching.on_message(b"\7" * 12, KIND_MANUAL, LEASE // 2)  # nobody we know
    assert watching.lost(now=LEASE) == [two.guid]
    watching.on_message(OTHERS, KIND_MANUAL, LEASE)
    assert watching.gained(now=LEASE) == [two.guid]


@pytest.mark.parametrize("kind", [PARTICIPANT, TOPIC])
def test_manual_liveliness_ignores_messages_of_the_participant(kind: LivelinessKind) -> None:
    network = VirtualNetwork()
    one, _ = lively(network, liveliness=kind)
    assert network.run(5 * SECOND, until=lambda: bool(output(network, one)))
    network.run(5 * SECOND)
    assert output(network, one) == [events.LivelinessLost]
    assert one.database.participants


def test_manual_with_an_infinite_lease_is_not_watched() -> None:
    watching = liveliness(endpoint(THEM, 1, PARTICIPANT, INFINITE), endpoint(THEM, 2, TOPIC, INFINITE))
    assert watching.get_timer() is None
    watching.add_local(endpoint(US, 1, PARTICIPANT, INFINITE), now=0)
    watching.assert_participant(5)
    assert watching.get_timer() is None
    assert watching.writer.last_sn == liveliness().writer.last_sn


def test_manual_writers_may_change_kind_and_lease() -> None:
    one = endpoint(THEM, 1, TOPIC)
    watching = liveliness(one)
    watching.track(endpoint(THEM, 1, TOPIC, 3 * LEASE), now=LEASE // 2)
    assert watching.lost(now=2 * LEASE) == []
    watching.track(endpoint(THEM, 1, PARTICIPANT), now=2 * LEASE)
    watching.on_message(THEM, KIND_MANUAL, 5 * LEASE // 2)
    assert watching.lost(now=3 * LEASE) == []
    assert watching.lost(now=7 * LEASE // 2) == [one.guid]
    watching.track(endpoint(THEM, 1, TOPIC, INFINITE), now=4 * LEASE)
    assert watching.gained(now=4 * LEASE) == []
    assert watching.get_timer() is None


def test_manual_writers_leave_nothing_behind() -> None:
    writers = [endpoint(THEM, n, kind) for n in range(1, 20) for kind in (PARTICIPANT, TOPIC)]
    watching = liveliness(*writers)
    for each in writers:
        watching.forget_writer(each.guid)
    assert not (watching._signs or watching._participants or watching._alive or watching._lost)
    assert watching.lost(now=LEASE) == []
    assert watching.get_timer() is None


# --- ours ------------------------------------------------------------------------------------------


def test_liveliness_lost_of_our_manual_writers() -> None:
    ours = liveliness()
    one, two = endpoint(US, 1, PARTICIPANT), endpoint(US, 2, TOPIC)
    ours.add_local(one, now=0)
    ours.add_local(two, now=0)
    assert ours.lost(now=0) == []
    ours.on_data(two.guid, LEASE // 2)
    assert ours.get_timer() == LEASE
    assert ours.lost(now=LEASE) == [one.guid]
    ours.assert_participant(LEASE)
    assert ours.gained(now=LEASE) == [one.guid]
    ours.forget_writer(one.guid)  # a reader of ours that was matched with it is gone
    assert ours.lost(now=LEASE + LEASE // 2) == [two.guid]
    assert ours.lost(now=2 * LEASE) == [one.guid]
    ours.remove_local(one.guid)
    ours.remove_local(two.guid)
    assert not (
        ours._signs or ours._participants or ours._alive or ours._lost or ours._assertions._manual_leases
    )


def test_assert_participant_sends_a_manual_message() -> None:
    network = VirtualNetwork()
    network.log = []
    _, two = lively(network, liveliness=PARTICIPANT)
    network.log.clear()
    payload = encode_assertion(two.prefix, KIND_MANUAL)
    two.liveliness.assert_participant(network.now)
    network.run(MILLISECOND)
    assert sum(payload in each[2] for each in network.log) == 1
    network.run(10 * SECOND)  # nobody asserts: nothing is said
    assert sum(payload in each[2] for each in network.log) == 1


def test_manual_messages_come_three_times_per_lease_at_most() -> None:
    ours = liveliness()
    one = endpoint(US, 1, PARTICIPANT)
    ours.add_local(one, now=0)
    first = ours.writer.last_sn
    for now in range(0, 10 * LEASE, LEASE // 100):
        if now % 2:
            ours.assert_participant(now)
        else:
            ours.on_data(one.guid, now)
        ours.handle_timer(now)
        assert ours.lost(now=now) == []
    assert 28 <= ours.writer.last_sn - first <= 31


def test_a_write_asserts_liveliness_to_readers_of_other_writers() -> None:
    ours = liveliness()
    one = endpoint(US, 1, PARTICIPANT)
    ours.add_local(one, now=0)
    first = ours.writer.last_sn
    ours.on_data(one.guid, 10)
    assert ours.get_timer() is not None and ours.get_timer() <= 10  # type: ignore[operator]
    ours.handle_timer(10)
    assert ours.writer.last_sn == first + 1
    ours.on_data(one.guid, 20)
    ours.handle_timer(20)
    assert ours.writer.last_sn == first + 1  # not so soon
    ours.handle_timer(10 + LEASE // 3)
    assert ours.writer.last_sn == first + 2


def test_a_shorter_lease_brings_a_postponed_assertion_forward() -> None:
    ours, theirs = liveliness(), Liveliness(THEM, {})
    slow, quick = endpoint(US, 1, PARTICIPANT, 300 * LEASE), endpoint(US, 2, PARTICIPANT)
    ours.add_local(slow, now=0)
    ours.assert_participant(0)
    ours.assert_participant(LEASE // 2)  # to be sent in a hundred leases
    ours.add_local(quick, now=LEASE)
    received = ours.writer.last_sn
    theirs.track(quick, now=LEASE)
    for now in range(LEASE, 10 * LEASE, LEASE // 10):
        ours.assert_participant(now)
        ours.handle_timer(now)
        if ours.writer.last_sn > received:
            received = ours.writer.last_sn
            theirs.on_message(US, KIND_MANUAL, now)
        assert theirs.lost(now=now) == []


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_new_writer_has_its_lease_although_others_were_not_asserted_for_longer(is_ours: bool) -> None:
    prefix = US if is_ours else THEM
    old, new = endpoint(prefix, 1, PARTICIPANT, 300 * LEASE), endpoint(prefix, 2, PARTICIPANT)
    watching = Liveliness(US, {})
    add = watching.add_local if is_ours else watching.track
    add(old, now=0)
    add(new, now=100 * LEASE)
    assert watching.lost(now=101 * LEASE - 1) == []
    assert watching.lost(now=101 * LEASE) == [new.guid]


def test_a_reader_that_matches_a_writer_which_is_lost_learns_of_it() -> None:
    network = VirtualNetwork()
    one, _ = lively(network, liveliness=TOPIC)
    assert network.run(5 * SECOND, until=lambda: bool(output(network, one)))
    seen = len(network.events[one.prefix])
    late = one.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
    network.run(SECOND)
    statuses = ReaderStatuses(late.guid)
    for event in network.events[one.prefix][seen:]:
        statuses.on_event(event)
    found = statuses.snapshot({})
    assert found["status.liveliness_changed.alive_count"] == 0
    assert found["status.liveliness_changed.not_alive_count"] == 1


# --- messages --------------------------------------------------------------------------------------


def received(sender: bytes, payload: bytes, *, flags: int = 0) -> tuple[Liveliness, Counter[DropReason]]:
    """What we make of a message from a participant; one of its writers is watched."""
    watching = liveliness(endpoint(THEM, 1, PARTICIPANT))
    guid = Guid(sender, ENTITYID_P2P_MESSAGE_WRITER)
    watching.reader.match_writer(WriterInfo(guid, (), (), reliable=False, transient_local=False), now=0)
    run = Run.single(guid, 1, np.frombuffer(payload, np.uint8), flags=flags)
    watching.reader.on_run(run, now=LEASE // 2)
    drops: Counter[DropReason] = Counter()
    watching.take_messages(drops, now=LEASE // 2)
    return watching, drops


def test_a_manual_message_is_taken() -> None:
    watching, drops = received(THEM, encode_assertion(THEM, KIND_MANUAL))
    assert not drops
    assert watching.lost(now=LEASE) == []


@pytest.mark.parametrize(
    ("sender", "payload", "dropped"),
    [
        (THEM, encode_assertion(THEM, KIND_AUTOMATIC), 0),
        (THEM, encode_assertion(THEM, b"\x80\0\0\1"), 0),
        (OTHERS, encode_assertion(THEM, KIND_MANUAL), 1),
        (THEM, encode_assertion(THEM, KIND_MANUAL)[:16], 1),
        (THEM, b"\0\1\0\0", 1),
    ],
    ids=["automatic", "vendor's kind", "in another's name", "cut", "empty"],
)
def test_other_messages_assert_nothing(sender: bytes, payload: bytes, dropped: int) -> None:
    watching, drops = received(sender, payload)
    assert drops.total() == dropped
    assert len(watching.lost(now=LEASE)) == 1


def test_a_disposed_message_asserts_nothing() -> None:
    watching, drops = received(THEM, encode_assertion(THEM, KIND_MANUAL), flags=DISPOSED)
    assert not drops
    assert len(watching.lost(now=LEASE)) == 1


@pytest.mark.parametrize("kind", [LivelinessKind.AUTOMATIC, LivelinessKind.MANUAL_BY_PARTICIPANT])
def test_assertions_go_on_after_an_outage_shorter_than_the_lease_of_the_participant(
    kind: LivelinessKind,
) -> None:
    network = VirtualNetwork()
    one, two = network.add(lease_duration=30 * SECOND), network.add(lease_duration=30 * SECOND)
    qos = replace(RELIABLE, liveliness=kind, liveliness_lease_duration=SECOND // 2)
    one.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
    two.create_writer(WriterSpec("t", "T", qos), now=network.now)

    def run(seconds: int) -> None:
        for _ in range(10 * seconds):
            if kind is not LivelinessKind.AUTOMATIC:
                two.assert_liveliness(network.now)
            network.run(SECOND // 10)

    run(1)
    network.loss = 1.0
    run(15)
    assert output(network, one) == [events.LivelinessLost]
    assert two.liveliness.writer.history.samples < 100, "no history is kept for who is silent"
    network.loss = 0.0
    run(5)
    assert output(network, one) == [events.LivelinessLost, events.LivelinessGained]
    run(60)
    assert output(network, one) == [events.LivelinessLost, events.LivelinessGained]
