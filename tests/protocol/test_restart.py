"""A participant killed and started again under its old GUID, as our receiver is: both sides go on."""

from __future__ import annotations

import pytest
from hostile_scene import EVIL, EVIL_IP, EVIL_WRITER, Scene
from virtual_network import MILLISECOND, SECOND, VirtualNetwork

from spark_rtps.transport.protocol import events
from spark_rtps.transport.protocol.participant import Participant
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import ENTITYID_SEDP_PUBLICATIONS_WRITER, Guid

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)


def restart(network: VirtualNetwork, participant: Participant) -> Participant:
    address = network.address_of(participant)
    again = network._hosts[address] = Participant(participant.config, now=network.now)
    return again


@pytest.mark.parametrize("multicast", [True, False])
@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_both_sides_learn_what_is_new_after_a_restart(multicast: bool, loss: float) -> None:
    network = VirtualNetwork(seed=3, loss=loss, multicast=multicast)
    peer = network.add()
    host = network.add(peers=() if multicast else peer.config.metatraffic_unicast)
    for i in range(20):  # its SEDP writers have used many numbers
        host.create_reader(f"old{i}", "T", RELIABLE, keyed=False, now=network.now)
    host.create_reader("a", "T", RELIABLE, keyed=False, entity_key=500, now=network.now)
    a = peer.create_writer("a", "T", RELIABLE, keyed=False, now=network.now)
    b = peer.create_writer("b", "T", RELIABLE, keyed=False, now=network.now)
    network.run(5 * SECOND)
    assert len(a.readers) == 1

    host = restart(network, host)
    now = network.now
    reader_a = host.create_reader("a", "T", RELIABLE, keyed=False, entity_key=500, now=now)
    reader_b = host.create_reader("b", "T", RELIABLE, keyed=False, entity_key=501, now=now)
    assert network.run(
        200 * MILLISECOND if not loss else 5 * SECOND,
        until=lambda: a.guid in reader_a.writers and b.guid in reader_b.writers and len(b.readers) == 1,
    )
    # what comes later on either side is found as well
    c = peer.create_writer("c", "T", RELIABLE, keyed=False, now=network.now)
    reader_c = host.create_reader("c", "T", RELIABLE, keyed=False, entity_key=502, now=network.now)
    d = host.create_writer("d", "T", RELIABLE, keyed=False, entity_key=503, now=network.now)
    reader_d = peer.create_reader("d", "T", RELIABLE, keyed=False, now=network.now)
    assert network.run(
        10 * MILLISECOND if not loss else 5 * SECOND,
        until=lambda: (
            c.guid in reader_c.writers
            and reader_c.guid in c.readers
            and d.guid in reader_d.writers
            and reader_d.guid in d.readers
        ),
    )
    network.run(30 * SECOND)
    lost = [event for event in network.events[peer.prefix] if isinstance(event, events.ParticipantLost)]
    assert not lost, "nobody noticed"


def test_restarts_in_quick_succession() -> None:
    network = VirtualNetwork()
    peer, host = network.add(), network.add()
    for i in range(10):
        writer = peer.create_writer(f"t{i}", "T", RELIABLE, keyed=False, now=network.now)
        reader = host.create_reader(f"t{i}", "T", RELIABLE, keyed=False, entity_key=i + 1, now=network.now)
        assert network.run(
            SECOND, until=lambda r=reader, w=writer: w.guid in r.writers and r.guid in w.readers
        )
        network.run(SECOND)
        host = restart(network, host)


def test_assertions_of_liveliness_after_a_restart() -> None:
    """A late joiner is not behind because numbers start high."""
    network = VirtualNetwork()
    peer, host = network.add(), network.add()
    qos = Qos(liveliness_lease_duration=SECOND)
    writer = host.create_writer("t", "T", qos, keyed=False, entity_key=1, now=network.now)
    reader = peer.create_reader("t", "T", qos, keyed=False, now=network.now)
    network.run(3 * SECOND)
    host = restart(network, host)
    host.create_writer("t", "T", qos, keyed=False, entity_key=1, now=network.now)
    network.run(20 * SECOND)
    assert writer.guid in reader.writers
    assert len(host._liveliness.writer.readers) == 1
    assert not [each for each in network.events[peer.prefix] if isinstance(each, events.LivelinessLost)]


def test_another_stack_that_counts_from_the_beginning_again() -> None:
    scene = Scene()
    for i in range(5):
        scene.announce(Guid(EVIL, bytes((0, 0, 8 + i, 3))), "t")
    scene.network.run(SECOND)
    scene._sn[ENTITYID_SEDP_PUBLICATIONS_WRITER] = 0
    fresh = Guid(EVIL, b"\0\0\x77\3")
    scene.announce(fresh, "t")
    asked = scene.network.sent_bytes[(EVIL_IP, 7410)]
    scene.network.run(10 * MILLISECOND)
    assert scene.network.sent_bytes[(EVIL_IP, 7410)] > asked
    scene._sn[ENTITYID_SEDP_PUBLICATIONS_WRITER] = 0
    scene.announce(fresh, "t")  # as it was asked to
    assert fresh in scene.reader.writers, "number 1 is no duplicate of the old number 1"
    assert Guid(EVIL, EVIL_WRITER) in scene.reader.writers
    another = Guid(EVIL, b"\0\0\x78\3")
    scene.announce(another, "t")
    assert another in scene.reader.writers


def test_a_late_heartbeat_is_no_restart() -> None:
    network = VirtualNetwork(seed=5, jitter=20 * MILLISECOND)
    one, two = network.add(), network.add()
    network.run(SECOND)
    rematched = []
    reader = one._sedp.publications_reader
    reader.unmatch_writer = lambda guid: rematched.append(guid)  # type: ignore[method-assign]
    for i in range(200):
        two.create_writer(f"t{i}", "T", RELIABLE, keyed=False, now=network.now)
        network.run(MILLISECOND)
    network.run(SECOND)
    assert len(one.remote_endpoints) == 200
    assert rematched == []
