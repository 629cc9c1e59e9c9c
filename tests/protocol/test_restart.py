"""A participant killed and started again under its old GUID, as our receiver is: both sides go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_rtps.transport.protocol.discovery.remote_participant import Announcement
from spark_rtps.transport.protocol.discovery.spdp import UNPROVEN_LEASE
from spark_rtps.transport.protocol.participant import events
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.participant import RtpsParticipant
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import ENTITYID_SEDP_PUBLICATIONS_WRITER, Guid
from tests.protocol.hostile_scene import EVIL, EVIL_IP, EVIL_WRITER, Scene
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)


def restart(network: VirtualNetwork, participant: RtpsParticipant) -> RtpsParticipant:
    address = network.address_of(participant)
    config = replace(participant.config, incarnation=participant.config.incarnation + 1)
    again = network._hosts[address] = RtpsParticipant(config, now=network.now)
    return again


@pytest.mark.parametrize("is_recalled", [True, False], ids=["recalled", "met again"])
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "no key"])
def test_no_writer_waits_for_a_reader_that_is_not_made_again(keyed: bool, is_recalled: bool) -> None:
    network = VirtualNetwork()
    peer, host = network.add(), network.add()
    writer = peer.create_writer(WriterSpec("t", "T", RELIABLE, keyed=keyed), now=network.now)
    for key in (500, 501):
        host.create_reader(ReaderSpec("t", "T", RELIABLE, entity_key=key, keyed=keyed), now=network.now)
    network.run(2 * SECOND)
    assert len(writer.readers) == 2

    known = host.discovery.announcements()
    host = restart(network, host)
    if is_recalled:
        host.discovery.recall(known, now=network.now)
    kept = host.create_reader(ReaderSpec("t", "T", RELIABLE, entity_key=500, keyed=keyed), now=network.now)
    host.withdraw_reader(501, keyed=keyed, now=network.now)
    network.run(2 * SECOND)
    assert list(writer.readers) == [kept.guid]


@pytest.mark.parametrize("multicast", [True, False])
@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_both_sides_learn_what_is_new_after_a_restart(multicast: bool, loss: float) -> None:
    network = VirtualNetwork(seed=3, loss=loss, multicast=multicast)
    peer = network.add()
    host = network.add(peers=() if multicast else peer.config.metatraffic_unicast)
    for i in range(20):  # its SEDP writers have used many numbers
        host.create_reader(ReaderSpec(f"old{i}", "T", RELIABLE), now=network.now)
    host.create_reader(ReaderSpec("a", "T", RELIABLE, entity_key=500), now=network.now)
    a = peer.create_writer(WriterSpec("a", "T", RELIABLE), now=network.now)
    b = peer.create_writer(WriterSpec("b", "T", RELIABLE), now=network.now)
    network.run(5 * SECOND)
    assert len(a.readers) == 1

    host = restart(network, host)
    now = network.now
    reader_a = host.create_reader(ReaderSpec("a", "T", RELIABLE, entity_key=500), now=now)
    reader_b = host.create_reader(ReaderSpec("b", "T", RELIABLE, entity_key=501), now=now)
    assert network.run(
        200 * MILLISECOND if not loss else 5 * SECOND,
        until=lambda: a.guid in reader_a.writers and b.guid in reader_b.writers and len(b.readers) == 1,
    )
    # what comes later on either side is found as well
    c = peer.create_writer(WriterSpec("c", "T", RELIABLE), now=network.now)
    reader_c = host.create_reader(ReaderSpec("c", "T", RELIABLE, entity_key=502), now=network.now)
    d = host.create_writer(WriterSpec("d", "T", RELIABLE, entity_key=503), now=network.now)
    reader_d = peer.create_reader(ReaderSpec("d", "T", RELIABLE), now=network.now)
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


@pytest.mark.parametrize("pause", [1_000, 100, 30])
def test_restarts_in_quick_succession(pause: int) -> None:
    """Each is killed so many ms after it has matched."""
    network = VirtualNetwork()
    peer, host = network.add(), network.add()
    for i in range(10):
        writer = peer.create_writer(WriterSpec(f"t{i}", "T", RELIABLE), now=network.now)
        reader = host.create_reader(ReaderSpec(f"t{i}", "T", RELIABLE, entity_key=i + 1), now=network.now)
        assert network.run(
            SECOND,
            until=lambda r=reader, w=writer: w.guid in r.writers and r.guid in w.readers,  # type: ignore[misc]
        )
        network.run(pause * MILLISECOND)
        host = restart(network, host)


def test_peers_that_do_not_answer_are_known_again() -> None:
    """Cyclone DDS announces itself to whom it does not know, and every 8 seconds: a restart is no news to it."""
    network = VirtualNetwork(seed=5)
    peer, host = network.add(), network.add()
    host.create_reader(ReaderSpec("a", "T", RELIABLE, entity_key=500), now=network.now)
    a = peer.create_writer(WriterSpec("a", "T", RELIABLE), now=network.now)
    network.run(5 * SECOND)

    announced = host.discovery.announcements()
    assert [each.prefix for each in announced] == [peer.prefix]
    host = restart(network, host)
    peer._spdp._answer = lambda *_: None  # type: ignore[method-assign]
    host.discovery.recall(announced, now=network.now)
    reader = host.create_reader(ReaderSpec("a", "T", RELIABLE, entity_key=500), now=network.now)
    assert network.run(100 * MILLISECOND, until=lambda: a.guid in reader.writers)
    network.run(30 * SECOND)
    assert a.guid in reader.writers
    assert not [event for event in network.events[host.prefix] if isinstance(event, events.ParticipantLost)]


def test_peers_that_are_gone_are_not_known_for_long() -> None:
    network = VirtualNetwork(seed=5)
    peer, host = network.add(), network.add()
    network.run(SECOND)
    announced = host.discovery.announcements()
    network.unplug(peer)
    host = restart(network, host)
    host.discovery.recall(announced, now=network.now)
    assert list(host.database.participants) == [peer.prefix]
    network.run(UNPROVEN_LEASE + SECOND)
    assert not host.database.participants


@pytest.mark.parametrize("payload", [b"\x00", bytes(4), bytes.fromhex("00030000ffff")])
def test_wrong_records_are_dropped(payload: bytes) -> None:
    network = VirtualNetwork(seed=5)
    host = network.add()
    host.discovery.recall([Announcement(bytes(range(12)), 1, payload, "10.0.0.9")], now=network.now)
    assert not host.database.participants
    assert sum(host.drops.values()) == 1


def test_numbers_of_discovery_begin_at_one() -> None:
    """Whatever the clock says: Fast DDS 2 counts up to a writer's first number one by one."""
    network = VirtualNetwork()
    network.now = 1_000 * 3600 * SECOND
    host = network.add()
    assert {writer.last_sn for writer in host.discovery.builtin.writers()} == {0}
    assert {writer.last_sn for writer in restart(network, host).discovery.builtin.writers()} == {1 << 14}


def test_assertions_of_liveliness_after_a_restart() -> None:
    """A late joiner is not behind because numbers start high."""
    network = VirtualNetwork()
    peer, host = network.add(), network.add()
    qos = Qos(liveliness_lease_duration=SECOND)
    writer = host.create_writer(WriterSpec("t", "T", qos, entity_key=1), now=network.now)
    reader = peer.create_reader(ReaderSpec("t", "T", qos), now=network.now)
    network.run(3 * SECOND)
    host = restart(network, host)
    host.create_writer(WriterSpec("t", "T", qos, entity_key=1), now=network.now)
    network.run(20 * SECOND)
    assert writer.guid in reader.writers
    assert len(host.liveliness.writer.readers) == 1
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
        two.create_writer(WriterSpec(f"t{i}", "T", RELIABLE), now=network.now)
        network.run(MILLISECOND)
    network.run(SECOND)
    assert len(one.database.endpoints) == 200
    assert rematched == []
