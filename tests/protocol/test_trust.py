"""Which addresses are taken to be a participant's own: what it has to do for it, and what goes there before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from spark_rtps.transport.errors import DropReason
from spark_rtps.transport.limits import EARLY_MESSAGES_MAX, HELD_DATAGRAM_BYTES_MAX, HELD_DATAGRAMS_MAX
from spark_rtps.transport.protocol.discovery.endpoint_data import EndpointData, encode_endpoint
from spark_rtps.transport.protocol.discovery.participant_data import ParticipantData, encode_participant
from spark_rtps.transport.protocol.discovery.remote_participant import RemoteParticipant
from spark_rtps.transport.protocol.discovery.spdp import UNPROVEN_LEASE
from spark_rtps.transport.protocol.participant import events
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.trust import Trust
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.structure import (
    ENTITYID_SPDP_WRITER,
    ENTITYID_UNKNOWN,
    Guid,
    Locator,
)
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.submessages import Data, Heartbeat, InfoDestination, InfoSource, Pad
from tests.protocol.hostile_scene import (
    EVIL,
    EVIL_IP,
    EVIL_LOCATOR,
    EVIL_READER,
    RELIABLE,
    Scene,
    addressed,
    announcement,
    message,
    reader_of_evil,
    written,
)
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork

VICTIM = Locator("10.0.0.200", 53)
OTHER = Locator("10.0.7.66", 7410)
PADDING = Pad(600).encode()


# --- answers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("trust", Trust)
@pytest.mark.parametrize("padding", [0, 20, 40, 60, 100, 300])
@pytest.mark.parametrize(
    "named", [(EVIL_LOCATOR,), (VICTIM,), tuple(Locator(f"10.0.1.{i}", 53) for i in range(9))]
)
def test_an_announcement_is_answered_by_one_datagram_that_is_no_longer(
    named: tuple[Locator, ...], padding: int, trust: Trust
) -> None:
    network = VirtualNetwork()
    network.log = log = []  # type: ignore[var-annotated]
    one = network.add(trust=trust, name="a name of some length " * 4)
    network.run(SECOND)
    datagram = announcement(metatraffic_unicast=named) + Pad(padding).encode()
    for _ in range(20):
        log.clear()
        network.deliver(one, datagram, EVIL_IP)
        network.run(MILLISECOND)
        answers = [(to, sent) for _, to, sent in log if not to.is_multicast]
        if trust is Trust.ADDRESS:
            assert len(answers) <= 1
        answers = [(to, sent) for to, sent in answers if b"\x15" in sent[36:37]]
        assert len(answers) <= 1
        assert all(len(sent) <= len(datagram) and to in named for to, sent in answers)


def test_nothing_but_answers_goes_where_nobody_has_spoken() -> None:
    network = VirtualNetwork()
    one = network.add()
    write = written(network, one)
    datagram = announcement(metatraffic_unicast=(VICTIM,), default_unicast=(VICTIM,)) + PADDING
    received = 0
    for _ in range(50):
        network.deliver(one, datagram, EVIL_IP)
        network.deliver(one, addressed(one, reader_of_evil(VICTIM)), EVIL_IP)
        received += len(datagram)
        write()
        network.run(SECOND)
    one.close(network.now)
    network.run(SECOND)
    assert 0 < network.sent_bytes[(VICTIM.address, 53)] <= received
    assert not one.database.endpoints


def in_one_datagram(count: int, locator: Locator) -> bytes:
    """The announcements of several participants, as Cyclone DDS sends those of one process."""
    many = []
    for i in range(count):
        prefix = bytes((0x77, i)) * 6
        data = ParticipantData(
            prefix, metatraffic_unicast=(locator,), default_unicast=(locator,), user_data=bytes(200)
        )
        payload = encode_participant(data)
        many += [
            InfoSource(prefix=prefix).encode(),
            Data(ENTITYID_UNKNOWN, ENTITYID_SPDP_WRITER, 1, payload).encode(),
        ]
    return message(*many)


def test_a_datagram_in_many_names_is_answered_with_no_more_than_it_had() -> None:
    network = VirtualNetwork()
    one = network.add()
    network.run(SECOND)
    datagram = in_one_datagram(8, VICTIM)
    for _ in range(20):
        before = network.sent_bytes[(VICTIM.address, VICTIM.port)]
        network.deliver(one, datagram, EVIL_IP)
        network.run(MILLISECOND)
        assert network.sent_bytes[(VICTIM.address, VICTIM.port)] - before <= len(datagram)
    assert network.sent_bytes[(VICTIM.address, VICTIM.port)] > 0


def test_participants_that_are_announced_together_are_all_known_and_answered() -> None:
    network = VirtualNetwork()
    one = network.add()
    network.run(SECOND)
    sent = network.sent
    network.deliver(one, in_one_datagram(8, Locator(EVIL_IP, 7411)), EVIL_IP)
    network.run(MILLISECOND)
    assert len(one._spdp.remotes) == 8
    assert network.sent - sent == 8
    assert DropReason.OVER_LIMIT not in one.drops


# --- proof -----------------------------------------------------------------------------------------


def test_an_addressed_message_proves_its_participant_and_counts() -> None:
    network = VirtualNetwork()
    one = network.add()
    network.run(SECOND)
    network.deliver(one, announcement(), EVIL_IP)
    network.deliver(one, message(reader_of_evil()), EVIL_IP)
    assert not one.database.endpoints
    network.deliver(one, addressed(one, reader_of_evil()), "10.0.0.67")
    assert not one.database.endpoints and one.drops[DropReason.FOREIGN_ADDRESS] == 2
    network.deliver(one, addressed(one, reader_of_evil()), EVIL_IP)
    assert [each.guid for each in one.database.endpoints] == [Guid(EVIL, EVIL_READER)]


def test_early_messages_are_processed_again() -> None:
    """Cyclone DDS begins with an endpoint that it tells everybody, and addresses us after that."""
    network = VirtualNetwork()
    one = network.add()
    network.deliver(one, announcement(), EVIL_IP)
    for _ in range(100):
        network.deliver(one, message(reader_of_evil()), EVIL_IP)
    assert not one.database.endpoints
    assert len(one._spdp.remotes[EVIL].held) == 4
    network.deliver(one, addressed(one), EVIL_IP)
    assert len(one.database.endpoints) == 1
    assert not one._spdp.remotes[EVIL].held


def test_little_is_kept_of_one_that_is_not_proven() -> None:
    network = VirtualNetwork()
    one = network.add()
    network.deliver(one, announcement(), EVIL_IP)
    for _ in range(HELD_DATAGRAMS_MAX + 2):
        network.deliver(one, message(reader_of_evil(), Pad(HELD_DATAGRAM_BYTES_MAX).encode()), EVIL_IP)
    held = one._spdp.remotes[EVIL].held
    assert held == []
    for _ in range(HELD_DATAGRAMS_MAX + 2):
        network.deliver(one, message(reader_of_evil()), EVIL_IP)
    assert len(held) == HELD_DATAGRAMS_MAX


def test_a_message_to_us_before_the_announcement_proves_its_participant() -> None:
    network = VirtualNetwork()
    one = network.add()
    network.deliver(one, addressed(one), EVIL_IP)
    network.deliver(one, announcement(), EVIL_IP)
    assert one._spdp.remotes[EVIL].proven
    for i in range(3 * EARLY_MESSAGES_MAX):
        network.deliver(one, addressed(one, prefix=i.to_bytes(12, "big")), EVIL_IP)
    assert len(one._spdp._early_messages) <= EARLY_MESSAGES_MAX


def test_a_participant_that_still_knows_us_is_matched_again() -> None:
    """What it sends is lost for a while: we forget it, while it hears us all the time and has nothing to say."""
    network = VirtualNetwork()
    one, two = network.add(), network.add()
    reader = one.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
    writer = two.create_writer(WriterSpec("t", "T", RELIABLE), now=network.now)
    assert network.run(5 * SECOND, until=lambda: bool(reader.writers and writer.readers))
    network.run(5 * SECOND)
    network.blocked.add(("10.0.0.2", "10.0.0.1"))
    assert network.run(30 * SECOND, until=lambda: not reader.writers)
    assert writer.readers
    network.blocked.clear()
    assert network.run(5 * SECOND, until=lambda: bool(reader.writers))


@pytest.mark.parametrize("loss", [0.0, 0.3])
@pytest.mark.parametrize("multicast", [True, False])
def test_participants_that_answer_each_other_match_soon(multicast: bool, loss: float) -> None:
    for seed in range(10):
        network = VirtualNetwork(seed=seed, multicast=multicast, loss=loss)
        one = network.add()
        network.run(SECOND)
        two = network.add(peers=() if multicast else one.config.metatraffic_unicast)
        reader = one.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
        writer = two.create_writer(WriterSpec("t", "T", RELIABLE), now=network.now)
        limit = 10 * SECOND if loss else 2 * MILLISECOND
        assert network.run(limit, until=lambda r=reader, w=writer: bool(r.writers and w.readers))  # type: ignore[misc]


def test_loopback_is_an_address_of_our_own_host() -> None:
    """Fast DDS speaks from 127.0.0.1 to participants on its host, whatever address it has named."""
    network = VirtualNetwork()
    one = network.add()
    here = Locator("10.0.0.1", 7412)
    network.deliver(one, announcement(metatraffic_unicast=(here,), default_unicast=(here,)), "10.0.0.1")
    network.deliver(one, addressed(one, reader_of_evil()), "127.0.0.1")
    assert one._spdp.remotes[EVIL].unicast == (here,)
    assert len(one.database.endpoints) == 1
    elsewhere = b"\x55" * 12
    network.deliver(one, announcement(elsewhere, metatraffic_unicast=(OTHER,)), OTHER.address)
    network.deliver(one, addressed(one, prefix=elsewhere), "127.0.0.1")
    assert not one._spdp.remotes[elsewhere].proven


def test_recalled_participants_are_as_proven_as_before() -> None:
    network = VirtualNetwork()
    one, two = network.add(), network.add()
    network.run(SECOND)
    network.deliver(one, announcement(b"\x55" * 12), EVIL_IP)
    network.deliver(one, addressed(one, prefix=b"\x55" * 12), EVIL_IP)
    known = one.discovery.announcements()
    assert {each.prefix: each.proven_from for each in known} == {
        two.prefix: ("10.0.0.2",),
        b"\x55" * 12: (EVIL_IP,),
    }
    again = network.add()
    again.discovery.recall([known[0], known[1]._replace(proven_from=())], now=network.now)
    assert [again._spdp.remotes[each.prefix].proven for each in known] == [True, False]
    network.run(UNPROVEN_LEASE + 5 * SECOND)


# --- endpoints -------------------------------------------------------------------------------------


def test_an_endpoint_that_names_somebody_elses_address_matches_nothing() -> None:
    scene = Scene()
    write = written(scene.network, scene.one)
    scene.attack(scene.to_us(reader_of_evil(VICTIM, sn=2)))
    for _ in range(50):
        write()
    assert scene.network.sent_bytes[(VICTIM.address, 53)] == 0
    (found,) = [
        each
        for each in iter(scene.one.next_event, None)
        if isinstance(each, events.IncompatibleQos) and each.remote == Guid(EVIL, EVIL_READER)
    ] or [each for each in scene.network.events[scene.one.prefix] if isinstance(each, events.IncompatibleQos)]
    assert found.reasons == (
        "LOCATOR: its participant has not spoken from an address that it names, 10.0.0.200",
    )
    assert scene.one.endpoints.incompatible(found.local)


def test_an_endpoint_that_names_several_addresses_gets_data_at_those_that_are_proven() -> None:
    network = VirtualNetwork()
    one = network.add()
    write = written(network, one)
    both = (EVIL_LOCATOR, OTHER)
    network.deliver(one, announcement(metatraffic_unicast=both, default_unicast=both), EVIL_IP)
    network.deliver(one, addressed(one, reader_of_evil(VICTIM, OTHER)), EVIL_IP)
    write()
    assert network.sent_bytes[(OTHER.address, 7410)] == 0
    network.deliver(one, addressed(one), OTHER.address)
    write()
    assert network.sent_bytes[(OTHER.address, 7410)] > 1_000
    assert network.sent_bytes[(VICTIM.address, 53)] == 0


@pytest.mark.parametrize("group", [Locator("239.255.0.1", 7401), Locator("224.0.0.251", 5353)])
def test_no_data_goes_to_a_group_that_an_endpoint_names(group: Locator) -> None:
    scene = Scene()
    write = written(scene.network, scene.one)
    for unicast in ((), (EVIL_LOCATOR,)):
        data = EndpointData(Guid(EVIL, b"\0\0\7\4"), "t", "T", Qos(), unicast, (group,))
        scene.announce(data.guid, "t", encode_endpoint(data))
        write()
    assert scene.network.sent_bytes[(group.address, group.port)] == 0
    assert scene.network.sent_bytes[(EVIL_IP, 7410)] > 1_000


# --- those that speak for others ------------------------------------------------------------------


def test_a_participant_that_names_anothers_address_is_not_proven() -> None:
    """The other one is asked, in the name of the one that lies: it does not feel addressed."""
    network = VirtualNetwork()
    one, two = network.add(), network.add()
    network.run(SECOND)
    there = two.config.metatraffic_unicast
    network.log = log = []  # type: ignore[var-annotated]
    lie = announcement(metatraffic_unicast=there, default_unicast=there) + PADDING
    for _ in range(20):
        network.deliver(one, lie, EVIL_IP)
        network.deliver(one, addressed(one, reader_of_evil()), EVIL_IP)
        network.run(100 * MILLISECOND)
    assert any(sent[8:20] not in (one.prefix, two.prefix) for _, to, sent in log if to.address == "10.0.0.2")
    assert all(len(sent) <= len(lie) for _, to, sent in log if to.address == "10.0.0.2")
    assert not one._spdp.remotes[EVIL].proven and not one.database.endpoints
    for i in range(1_000):  # it guesses
        guess = InfoDestination(one.prefix[:2] + i.to_bytes(10, "big")).encode()
        network.deliver(one, message(guess), EVIL_IP)
    assert not one._spdp.remotes[EVIL].proven


@pytest.mark.parametrize("named", [(Locator("10.0.0.2", 7410),), (Locator("10.0.0.2", 7410), EVIL_LOCATOR)])
def test_an_announcement_forged_before_its_participant_joins_is_replaced_by_it(
    named: tuple[Locator, ...],
) -> None:
    network = VirtualNetwork()
    one = network.add()
    network.run(SECOND)
    prefix = b"\2" * 12
    claim = announcement(prefix, metatraffic_unicast=named, default_unicast=named)
    network.deliver(one, claim, EVIL_IP)
    network.deliver(one, addressed(one, prefix=prefix), EVIL_IP)
    two = network.add()
    assert two.prefix == prefix
    reader = one.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
    writer = two.create_writer(WriterSpec("t", "T", RELIABLE), now=network.now)
    assert network.run(SECOND, until=lambda: bool(reader.writers and writer.readers))
    network.deliver(one, claim, EVIL_IP)
    forged = Heartbeat(ENTITYID_UNKNOWN, writer.guid.entity, 10**9, 10**9, 1 << 20).encode()
    network.deliver(one, addressed(one, forged, prefix=prefix), EVIL_IP)
    assert one.drops[DropReason.FOREIGN_ADDRESS]
    writer.write_samples(Samples.uniform(np.zeros(8, np.uint8), 1, 8), timestamp=0, now=network.now)
    assert network.run(SECOND, until=lambda: reader.has_runs)


def test_a_datagram_held_has_memory_of_its_own() -> None:
    """The buffer it lies in is drained into again before its participant is proven."""
    held: list[tuple[bytes, str]] = []
    buffer = bytearray(b"RTPS and more")
    RemoteParticipant.hold(
        cast(RemoteParticipant, SimpleNamespace(held=held)), memoryview(buffer), "10.0.0.1"
    )
    buffer[:] = bytes(len(buffer))
    assert held == [(b"RTPS and more", "10.0.0.1")]
