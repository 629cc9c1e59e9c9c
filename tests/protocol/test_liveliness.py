"""AUTOMATIC liveliness: ours is asserted, that of matched remote writers is watched."""

from __future__ import annotations

from dataclasses import replace

import pytest
from virtual_network import MILLISECOND, SECOND, VirtualNetwork

from spark_rtps.transport.protocol import events
from spark_rtps.transport.protocol.discovery.liveliness import encode_assertion
from spark_rtps.transport.protocol.participant import Participant
from spark_rtps.transport.qos import LivelinessKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import ENTITYID_P2P_MESSAGE_WRITER

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE)
LEASE = SECOND


def lively(network: VirtualNetwork, **policies: object) -> tuple[Participant, Participant]:
    """A reader and a writer with a liveliness lease of a second."""
    qos = replace(RELIABLE, liveliness_lease_duration=LEASE, **policies)  # type: ignore[arg-type]
    one, two = network.add(), network.add()
    one.create_reader("t", "T", RELIABLE, keyed=False, now=network.now)
    two.create_writer("t", "T", qos, keyed=False, now=network.now)
    network.run(SECOND // 2)
    return one, two


def said(network: VirtualNetwork, participant: Participant) -> list[type]:
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
    assert said(network, one) == []


def test_assertions_come_three_times_per_lease_and_only_when_needed() -> None:
    for lease, expected in ((True, 30), (False, 0)):
        network = VirtualNetwork()
        network.log = []
        one, two = network.add(), network.add()
        qos = replace(RELIABLE, liveliness_lease_duration=LEASE) if lease else RELIABLE
        one.create_reader("t", "T", RELIABLE, keyed=False, now=network.now)
        two.create_writer("t", "T", qos, keyed=False, now=network.now)
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
    assert network.run(5 * SECOND, until=lambda: bool(said(network, one)))
    assert network.now - start <= LEASE
    network.run(SECOND)
    network._hosts[address] = two
    assert network.run(5 * SECOND, until=lambda: len(said(network, one)) == 2)
    assert said(network, one) == [events.LivelinessLost, events.LivelinessGained]
    lost = next(each for each in network.events[one.prefix] if isinstance(each, events.LivelinessLost))
    assert lost.topic == "t"
    assert lost.writer.prefix == two.prefix
    network.run(10 * SECOND)
    assert said(network, one) == [events.LivelinessLost, events.LivelinessGained]


def test_any_message_is_a_sign_of_life() -> None:
    network = VirtualNetwork()
    one, two = lively(network)
    network.unplug(two)
    message = b"RTPS\x02\x05\x01\x7e" + two.prefix
    for _ in range(20):
        network.run(SECOND // 2)
        network.deliver(one, message, source="10.0.0.2")
    assert said(network, one) == []
    network.deliver(one, message, source="10.0.0.77")  # not from where it is
    network.run(LEASE + 1)
    assert said(network, one) == [events.LivelinessLost]


@pytest.mark.parametrize("kind", [LivelinessKind.MANUAL_BY_PARTICIPANT, LivelinessKind.MANUAL_BY_TOPIC])
def test_manual_writers_are_not_watched(kind: LivelinessKind) -> None:
    network = VirtualNetwork()
    one, two = lively(network, liveliness=kind)
    network.unplug(two)
    network.run(5 * SECOND)
    assert said(network, one) == []


def test_a_lost_participant_takes_its_writers_along() -> None:
    network = VirtualNetwork()
    one, two = lively(network)
    network.unplug(two)
    network.run(30 * SECOND)
    assert said(network, one) == [events.LivelinessLost]
    assert one._liveliness.get_timer() is None


def test_no_assertions_after_the_last_such_writer() -> None:
    network = VirtualNetwork()
    one, two = lively(network)
    guid = next(iter(one._endpoints.routes.keys() - {g for g in one._endpoints.routes if g.entity[3] & 0xC0}))
    two.delete_endpoint(guid, network.now)
    network.run(SECOND)
    assert two._liveliness.get_timer() is None
    assert one._liveliness.get_timer() is None


def test_who_never_acknowledges_does_not_make_the_history_grow() -> None:
    network = VirtualNetwork()
    one, two = lively(network)
    writer = two._writers[ENTITYID_P2P_MESSAGE_WRITER]
    network.unplug(one)
    message = b"RTPS\x02\x05\x01\x7e" + one.prefix
    for _ in range(200):
        network.run(200 * MILLISECOND)
        network.deliver(two, message, source="10.0.0.1")
    assert two.remote_participants
    assert writer.last_sn > 100
    assert writer._history.samples <= 66
