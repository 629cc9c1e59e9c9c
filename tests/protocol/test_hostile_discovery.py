"""What peers must not be able to do by discovery: reflection, amplification, floods and forged disposes.

A participant never raises on what it receives, never holds or sends more than its limits say, and goes on
serving honest peers meanwhile.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from spark_rtps.transport import limits
from spark_rtps.transport.errors import DropReason
from spark_rtps.transport.protocol.discovery import endpoint_table
from spark_rtps.transport.protocol.discovery.endpoint_data import (
    EndpointData,
    encode_endpoint,
    encode_endpoint_key,
)
from spark_rtps.transport.protocol.discovery.participant_data import (
    ParticipantData,
    encode_participant,
    encode_participant_key,
)
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.participant.participant import ParticipantConfig, RtpsParticipant
from spark_rtps.transport.protocol.trust import source_of_log
from spark_rtps.transport.structure import (
    ENTITYID_PARTICIPANT,
    ENTITYID_SEDP_PUBLICATIONS_WRITER,
    ENTITYID_SPDP_WRITER,
    ENTITYID_UNKNOWN,
    Guid,
    Locator,
)
from spark_rtps.transport.wire import parameters as p
from spark_rtps.transport.wire.numbers import SequenceNumberSet
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.submessages import AckNack, Data, InfoDestination
from tests.protocol.hostile_scene import (
    EVIL,
    EVIL_IP,
    EVIL_LOCATOR,
    EVIL_READER,
    EVIL_WRITER,
    RELIABLE,
    Scene,
    announcement,
    message,
)
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork


@pytest.fixture
def scene() -> Scene:
    return Scene()


# --- 8: reflection and amplification --------------------------------------------------------------


def test_a_forged_announcement_makes_us_say_little_to_its_victim() -> None:
    network = VirtualNetwork()
    one = network.add()
    for i in range(100):
        one.create_writer(WriterSpec(f"t{i}", "T", RELIABLE), now=network.now)
    network.run(SECOND)
    victim = Locator("10.0.0.200", 53)
    forged = announcement(metatraffic_unicast=(victim,), default_unicast=(victim,))
    network.deliver(one, forged)
    network.run(600 * SECOND)
    assert not one.database.participants  # infinite lease or not
    assert network.sent_bytes[("10.0.0.200", 53)] < 10_000
    # no endpoint was told to it: that data goes out only on request


@pytest.mark.parametrize("source", [EVIL_IP, ""])
def test_a_peer_cannot_prove_anothers_address(source: str) -> None:
    """To know our prefix (it is in everything we send) proves nothing, unless it comes from where it leads."""
    network = VirtualNetwork()
    one = network.add()
    for i in range(100):
        one.create_writer(WriterSpec(f"t{i}", "T", RELIABLE), now=network.now)
    victim = Locator("10.0.0.200", 53)
    network.deliver(one, announcement(metatraffic_unicast=(victim,), default_unicast=(victim,)), EVIL_IP)
    network.deliver(one, message(InfoDestination(one.prefix).encode()), source)
    assert not one._spdp.remotes[EVIL].proven
    network.run(600 * SECOND)
    assert not one.database.participants
    assert network.sent_bytes[("10.0.0.200", 53)] < 10_000
    network.deliver(one, announcement())
    network.deliver(one, message(InfoDestination(one.prefix).encode()), EVIL_IP)
    assert one._spdp.remotes[EVIL].proven


def test_announcements_that_are_no_datagrams_are_dropped() -> None:
    network = VirtualNetwork()
    one = network.add()
    network.deliver(one, announcement(), source_of_log(EVIL))
    assert one.drops == {DropReason.UNKNOWN_WRITER: 1}
    assert not one.database.participants
    network.run(SECOND)
    assert (EVIL_IP, 7410) not in network.sent_bytes


def test_a_forged_announcement_does_not_fan_out() -> None:
    network = VirtualNetwork()
    one = network.add()
    network.run(SECOND)
    victims = tuple(Locator(f"10.0.1.{i}", 53) for i in range(1, 200))
    network.deliver(one, announcement(metatraffic_unicast=victims))
    network.run(60 * SECOND)
    assert len([to for to in network.sent_bytes if to[0].startswith("10.0.1.")]) <= limits.LOCATORS_MAX


@pytest.mark.parametrize("address", ["0.0.0.0", "255.255.255.255", "239.1.2.3"])
def test_addresses_that_are_nobody(address: str) -> None:
    network = VirtualNetwork()
    one = network.add()
    network.deliver(one, announcement(metatraffic_unicast=(Locator(address, 7410),)))
    assert one.drops == {DropReason.BAD_LOCATOR: 1}
    assert not one.database.participants


def test_ports_out_of_range_are_left_out() -> None:
    network = VirtualNetwork()
    one = network.add()
    payload = encode_participant(ParticipantData(EVIL, metatraffic_unicast=(EVIL_LOCATOR,)))
    for port in (0, 65_536, 0xFFFFFFFF):
        changed = payload.replace(struct.pack("<II", 1, 7410), struct.pack("<II", 1, port))
        network.deliver(one, message(Data(ENTITYID_UNKNOWN, ENTITYID_SPDP_WRITER, 1, changed).encode()))
    assert one.drops == {DropReason.BAD_LOCATOR: 3}


def test_an_acknack_storm_is_not_amplified(scene: Scene) -> None:
    block = np.zeros(1_004, np.uint8)
    scene.one_writer.write_samples(
        Samples.uniform(np.tile(block, 200), 200, 1_004), timestamp=0, now=scene.network.now
    )
    scene.network.run(10 * MILLISECOND)
    before = scene.network.sent_bytes.get((EVIL_IP, 7410), 0)
    for count in range(1, 2_000):
        missing = SequenceNumberSet.from_numbers(1, range(1, 201))
        storm = AckNack(EVIL_READER, scene.one_writer.guid.entity, missing, count).encode()
        scene.attack(scene.to_us(storm))
    scene.network.run(MILLISECOND)
    # 2,000 requests of 200 kB each within one turn: answered once, or as the repair bound has it
    assert scene.network.sent_bytes[(EVIL_IP, 7410)] - before < 2 << 20
    scene.assert_honest_work_goes_on()


# --- 9: floods ------------------------------------------------------------------------------------


def test_a_flood_of_participants() -> None:
    network = VirtualNetwork()
    one = network.add()
    for i in range(3_000):
        network.deliver(one, announcement(struct.pack(">III", 0xEEEEEEEE, 0, i)))
        assert len(one._spdp.remotes) <= limits.PARTICIPANTS_PER_ADDRESS_MAX
    assert len(one._spdp.remotes) == limits.PARTICIPANTS_PER_ADDRESS_MAX
    assert one.drops[DropReason.OVER_LIMIT] == 3_000 - limits.PARTICIPANTS_PER_ADDRESS_MAX
    network.run(20 * SECOND)
    assert not one.database.participants  # none of them ever answered: the table is free again
    assert one.endpoints.routes == {}
    assert all(not writer.readers for writer in one._writers.values())
    two = network.add()
    assert network.run(5 * SECOND, until=lambda: two.prefix in one.database.participants)


def test_a_flood_of_endpoints(scene: Scene) -> None:
    for i in range(limits.ENDPOINTS_PER_PARTICIPANT_MAX + 500):
        scene.announce(Guid(EVIL, struct.pack(">I", (i + 16) << 8 | 3)), f"x{i}")
    table = scene.one._sedp.remote
    # the last quarter is for topics that are used here
    assert len(table.of_participant(EVIL)) == limits.ENDPOINTS_PER_PARTICIPANT_MAX * 3 // 4
    assert scene.dropped()[DropReason.OVER_LIMIT] >= 500
    assert table.nbytes <= limits.ENDPOINT_BYTES_PER_PARTICIPANT_MAX
    scene.assert_honest_work_goes_on()


def test_a_flood_of_large_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_table, "ENDPOINT_BYTES_PER_PARTICIPANT_MAX", 1 << 20)
    scene = Scene()
    qos = replace(RELIABLE, user_data=bytes(50_000))
    for i in range(60):
        guid = Guid(EVIL, struct.pack(">I", (i + 16) << 8 | 3))
        scene.announce(guid, "x", encode_endpoint(EndpointData(guid, "x", "T", qos)))
    assert scene.one._sedp.remote.nbytes <= 2 << 20
    assert scene.dropped()[DropReason.OVER_LIMIT] >= 30


def test_events_nobody_fetches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_rtps.transport.protocol.participant import participant as module

    monkeypatch.setattr(module, "EVENTS_MAX", 10)
    one = RtpsParticipant(ParticipantConfig(bytes(12)), now=0)
    for i in range(50):
        datagram = announcement(struct.pack(">III", 0xEEEEEEEE, 0, i))
        one.receive(np.frombuffer(bytearray(datagram), np.uint8), [(0, len(datagram), EVIL_IP)], now=0)
    assert len(list(iter(one.next_event, None))) == 10
    assert one.drops[DropReason.OVER_LIMIT] == 40


# --- 10: forged disposes --------------------------------------------------------------------------


def dispose(prefix: bytes, whom: bytes, *, hashed: bool = True, sn: int = 99) -> bytes:
    status: list[tuple[int, bytes]] = [(p.PID_STATUS_INFO, p.encode_status_info(3))]
    if hashed:
        status.append((p.PID_KEY_HASH, whom + ENTITYID_PARTICIPANT))
    qos = p.ParameterList(tuple(status))
    payload = encode_participant_key(whom)
    return message(
        Data(ENTITYID_UNKNOWN, ENTITYID_SPDP_WRITER, sn, payload, qos, key=True).encode(), prefix=prefix
    )


@pytest.mark.parametrize("hashed", [True, False])
def test_a_peer_cannot_dispose_another_participant(scene: Scene, hashed: bool) -> None:
    honest = scene.two.prefix
    scene.attack(dispose(EVIL, honest, hashed=hashed))  # in its own name
    scene.attack(dispose(honest, honest, hashed=hashed))  # in the other's, from elsewhere
    assert honest in scene.one.database.participants
    scene.assert_honest_work_goes_on()
    scene.attack(dispose(honest, honest, hashed=hashed), scene.network.address_of(scene.two))
    assert honest not in scene.one.database.participants


def test_a_peer_cannot_change_another_participant(scene: Scene) -> None:
    honest = scene.two.prefix
    before = scene.one.database.participants[honest]
    scene.attack(announcement(honest))
    assert scene.one.database.participants[honest] == before
    named_by_another = Data(ENTITYID_UNKNOWN, ENTITYID_SPDP_WRITER, 3, encode_participant(before)).encode()
    scene.attack(message(named_by_another, prefix=b"\xaa" * 12))
    assert b"\xaa" * 12 not in scene.one.database.participants


def test_a_peer_cannot_announce_or_dispose_anothers_endpoint(scene: Scene) -> None:
    guid = scene.writer.guid
    scene.announce(Guid(scene.two.prefix, b"\0\0\x77\3"), "t")
    assert scene.dropped() == {DropReason.BAD_PARAMETER: 1}
    qos = p.ParameterList(((p.PID_KEY_HASH, guid.to_bytes()), (p.PID_STATUS_INFO, p.encode_status_info(3))))
    scene.sedp(encode_endpoint_key(guid), ENTITYID_SEDP_PUBLICATIONS_WRITER, qos)
    assert guid in scene.reader.writers
    scene.assert_honest_work_goes_on()


def test_a_participant_disposes_its_own_endpoint_by_key_or_by_hash(scene: Scene) -> None:
    status = (p.PID_STATUS_INFO, p.encode_status_info(3))
    guid = Guid(EVIL, EVIL_WRITER)
    for qos in (p.ParameterList((status,)), p.ParameterList(((p.PID_KEY_HASH, guid.to_bytes()), status))):
        scene.announce(guid, "t")
        assert guid in scene.reader.writers
        scene.sedp(encode_endpoint_key(guid), ENTITYID_SEDP_PUBLICATIONS_WRITER, qos)
        assert guid not in scene.reader.writers
