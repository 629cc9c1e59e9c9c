"""Participants on a virtual network: they find each other, match, talk, part."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pytest

from spark_rtps.transport.errors import DropReason, UsageError
from spark_rtps.transport.protocol.participant import events
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.participant import ParticipantConfig, RtpsParticipant
from spark_rtps.transport.protocol.policies import PUBLICATION_POLICY, PublicationPolicy
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.sending import broadcast as broadcast_module
from spark_rtps.transport.protocol.writing.sending import heartbeats as heartbeats_module
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, LivelinessKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import (
    KIND_READER_NO_KEY,
    KIND_READER_WITH_KEY,
    KIND_WRITER_NO_KEY,
    KIND_WRITER_WITH_KEY,
    Guid,
    Locator,
)
from spark_rtps.transport.wire.message import Header
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.submessages import Data, InfoTimestamp
from tests.protocol import type_scene
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork

E = TypeVar("E")
RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
TOPIC = ("topic", "Type")


def reported(network: VirtualNetwork, participant: RtpsParticipant, kind: type[E]) -> list[E]:
    return [event for event in network.events[participant.prefix] if isinstance(event, kind)]


def reader(network: VirtualNetwork, participant: RtpsParticipant, qos: Qos = RELIABLE) -> StatefulReader:
    return participant.create_reader(ReaderSpec(*TOPIC, qos), now=network.now)


def writer(network: VirtualNetwork, participant: RtpsParticipant, qos: Qos = RELIABLE) -> StatefulWriter:
    return participant.create_writer(WriterSpec(*TOPIC, qos), now=network.now)


def samples(*numbers: int) -> Samples:
    data = b"".join(b"\0\1\0\0" + number.to_bytes(4, "little") for number in numbers)
    return Samples.uniform(np.frombuffer(data, np.uint8), len(numbers), 8)


def numbers(reader: StatefulReader) -> list[int]:
    payloads = (run.samples().payload(i) for run in reader.take_runs() for i in range(run.count))
    return [int.from_bytes(payload[4:8], "little") for payload in payloads]


# --- finding and matching -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_two_participants_match_and_talk_under_loss_reorder_and_repetition(seed: int) -> None:
    loss, duplicates, jitter = (0.0, 0.0, 0) if seed == 0 else (0.3, 0.2, 20 * MILLISECOND)
    network = VirtualNetwork(seed=seed, loss=loss, duplicates=duplicates, jitter=jitter)
    one, two = network.add(), network.add()
    r, w = reader(network, one), writer(network, two)
    assert network.run(20 * SECOND, until=lambda: bool(r.writers and w.readers))
    w.write_samples(samples(*range(100)), timestamp=0, now=network.now)
    received: list[int] = []

    def all_there() -> bool:
        received.extend(numbers(r))
        return len(received) >= 100

    assert network.run(20 * SECOND, until=all_there)
    assert received == list(range(100))
    assert not sum(one.drops.values()) - one.drops[DropReason.UNKNOWN_WRITER]
    assert [(each.local, each.remote, each.topic) for each in reported(network, one, events.Matched)] == [
        (r.guid, w.guid, "topic")
    ]
    assert reported(network, one, events.Matched)[0].unicast == (Locator("10.0.0.2", 7410),)


def test_discovery_without_loss_takes_milliseconds() -> None:
    network = VirtualNetwork()
    one = network.add()
    r = reader(network, one)
    network.run(10 * SECOND)
    two = network.add()
    w = writer(network, two)
    start = network.now
    assert network.run(SECOND, until=lambda: bool(r.writers and w.readers))
    assert network.now - start < 150 * MILLISECOND


@pytest.mark.parametrize("seed", range(3))
def test_three_participants_with_several_endpoints(seed: int) -> None:
    network = VirtualNetwork(seed=seed, loss=0.2, jitter=5 * MILLISECOND)
    hosts = [network.add() for _ in range(3)]
    readers = [reader(network, host) for host in hosts for _ in range(2)]
    writers = [writer(network, host) for host in hosts[:2]]
    assert network.run(
        20 * SECOND,
        until=lambda: (
            all(len(r.writers) == 2 for r in readers)
            and all(len(w.readers) == 6 for w in writers)
            and len(hosts[2].database.endpoints) == 6
        ),
    )
    assert sorted(hosts[2].database.participants) == [hosts[0].prefix, hosts[1].prefix]
    listed = hosts[2].database.endpoints
    assert sorted((each.participant_name, each.kind) for each in listed) == sorted(
        [("p1", "reader")] * 2 + [("p1", "writer")] + [("p2", "reader")] * 2 + [("p2", "writer")]
    )
    assert {(each.topic, each.type_name) for each in listed} == {TOPIC}


def test_endpoints_that_come_later_are_found() -> None:
    network = VirtualNetwork()
    one, two = network.add(), network.add()
    network.run(SECOND)
    r = reader(network, one)
    network.run(SECOND)
    w = writer(network, two)
    assert network.run(SECOND, until=lambda: bool(r.writers and w.readers))


@pytest.mark.parametrize("who", [(0,), (1,), (0, 1)])
def test_without_multicast_peers_find_each_other_even_if_only_one_names_the_other(
    who: tuple[int, ...],
) -> None:
    network = VirtualNetwork(multicast=False)
    one = network.add(peers=(Locator("10.0.0.2", 7410),) if 0 in who else ())
    two = network.add(peers=(Locator("10.0.0.1", 7410),) if 1 in who else ())
    r, w = reader(network, one), writer(network, two)
    assert network.run(2 * SECOND, until=lambda: bool(r.writers and w.readers))
    network.run(60 * SECOND)  # and they stay: leases are renewed by unicast
    assert not reported(network, one, events.ParticipantLost)
    assert not reported(network, two, events.ParticipantLost)


def test_set_peers() -> None:
    network = VirtualNetwork(multicast=False)
    one, two = network.add(), network.add()
    network.run(30 * SECOND)
    assert not one.database.participants
    one.discovery.spdp.set_peers((Locator("10.0.0.2", 7410),))
    assert network.run(SECOND, until=lambda: bool(one.database.participants and two.database.participants))


def test_other_domains_are_not_ours() -> None:
    network = VirtualNetwork(multicast=False)
    one = network.add(domain=1, peers=(Locator("10.0.0.2", 7410),))
    two = network.add(domain=2)
    network.run(SECOND)
    assert not one.database.participants
    assert not two.database.participants


def test_endpoints_of_one_participant_match_each_other() -> None:
    network = VirtualNetwork()
    one = network.add()
    r, w = reader(network, one), writer(network, one)
    network.run(SECOND)
    assert (list(r.writers), list(w.readers)) == ([w.guid], [r.guid])
    w.write_samples(samples(1, 2, 3), timestamp=0, now=network.now)
    network.run(SECOND)
    assert list(w.unacknowledged()) == [r.guid], "received, but nobody took it"
    assert numbers(r) == [1, 2, 3]
    network.run(SECOND)
    assert w.unacknowledged() == {}
    one.delete_endpoint(w.guid, network.now)
    assert not r.writers
    network.run(60 * SECOND)
    assert not one.database.participants
    assert not sum(one.drops.values())


def test_history_for_a_late_joiner() -> None:
    network = VirtualNetwork()
    one = network.add()
    w = writer(network, one, replace(RELIABLE, durability=DurabilityKind.TRANSIENT_LOCAL))
    w.write_samples(samples(*range(10)), timestamp=0, now=network.now)
    network.run(SECOND)
    two = network.add()
    r = reader(network, two, replace(RELIABLE, durability=DurabilityKind.TRANSIENT_LOCAL))
    network.run(SECOND)
    assert numbers(r) == list(range(10))


def test_many_endpoints_reach_a_late_joiner() -> None:
    network = VirtualNetwork(seed=4, loss=0.1)
    one = network.add()
    for i in range(300):
        one.create_reader(ReaderSpec(f"topic{i}", "Type", RELIABLE), now=network.now)
    gone = [one.create_writer(WriterSpec(f"gone{i}", "Type", RELIABLE), now=network.now) for i in range(50)]
    network.run(SECOND)
    for w in gone:
        one.delete_endpoint(w.guid, network.now)
    network.run(SECOND)
    two = network.add()
    assert network.run(20 * SECOND, until=lambda: len(two.database.endpoints) == 300)
    network.run(SECOND)
    assert {each.topic for each in two.database.endpoints} == {f"topic{i}" for i in range(300)}


# --- parting --------------------------------------------------------------------------------------


def test_close_is_announced_and_accepted_at_once() -> None:
    network = VirtualNetwork()
    one, two = network.add(), network.add()
    r, w = reader(network, one), writer(network, two)
    network.run(SECOND)
    two.close(network.now)
    network.run(10 * MILLISECOND)
    assert not r.writers
    assert not one.database.participants
    assert [each.expired for each in reported(network, one, events.ParticipantLost)] == [False]
    assert [each.remote for each in reported(network, one, events.Unmatched)] == [w.guid]
    assert [each.endpoint.guid for each in reported(network, one, events.EndpointLost)] == [w.guid]
    two.close(network.now)
    assert two.get_timer() is None
    assert two.datagrams_to_send(network.now) == []
    with pytest.raises(UsageError):
        reader(network, two)


def test_a_deleted_endpoint_is_unmatched_and_its_place_can_be_taken() -> None:
    network = VirtualNetwork()
    one, two = network.add(), network.add()
    r, w = reader(network, one), writer(network, two)
    network.run(SECOND)
    two.delete_endpoint(w.guid, network.now)
    network.run(SECOND)
    assert not r.writers
    assert one.database.endpoints == []
    again = writer(network, two)
    assert again.guid != w.guid
    network.run(SECOND)
    assert list(r.writers) == [again.guid]
    one.delete_endpoint(r.guid, network.now)
    network.run(SECOND)
    assert not again.readers
    with pytest.raises(UsageError):
        one.delete_endpoint(r.guid, network.now)


def test_a_silent_participant_ends_with_its_lease() -> None:
    network = VirtualNetwork()
    one, two = network.add(), network.add(lease_duration=4 * SECOND)
    r = reader(network, one)
    writer(network, two)
    network.run(30 * SECOND)
    assert r.writers
    network.unplug(two)
    start = network.now
    assert network.run(20 * SECOND, until=lambda: not r.writers)
    assert 2 * SECOND < network.now - start <= 4 * SECOND
    assert [each.expired for each in reported(network, one, events.ParticipantLost)] == [True]
    assert one.database.endpoints == []
    assert one.endpoints.routes == {}
    assert one._sedp.remote.nbytes == 0


def test_a_participant_may_return_after_its_lease() -> None:
    network = VirtualNetwork()
    one, two = network.add(), network.add()
    r, w = reader(network, one), writer(network, two)
    network.run(SECOND)
    address = network.address_of(two)
    network.unplug(two)
    network.run(30 * SECOND)
    assert not r.writers
    network._hosts[address] = two
    assert network.run(20 * SECOND, until=lambda: w.guid in r.writers)


def test_leases_outlast_heavy_loss() -> None:
    network = VirtualNetwork(seed=3, loss=0.4)
    one, two = network.add(), network.add()
    reader(network, one)
    writer(network, two)
    network.run(200 * SECOND)
    for each in (one, two):
        # three announcements per lease, and whatever else is said: 0.4 ** 3 is not rare, its end is
        assert len(reported(network, each, events.ParticipantLost)) <= 6
        assert each.database.participants


def test_a_stream_of_small_datagrams_keeps_the_lease() -> None:
    network = VirtualNetwork()
    one, two = network.add(), network.add()
    r, w = reader(network, one), writer(network, two)
    network.run(SECOND)
    network.unplug(two)
    for i in range(30):  # twenty datagrams of one sample each in one burst, every second; no announcements
        buffer, spans = b"", []
        for sn in range(20 * i + 1, 20 * i + 21):
            data = Data(bytes(4), w.guid.entity, sn, b"\0\1\0\0" + sn.to_bytes(4, "little"))
            datagram = Header(prefix=two.prefix).encode() + InfoTimestamp(1).encode() + data.encode()
            spans.append((len(buffer), len(buffer) + len(datagram), "10.0.0.2"))
            buffer += datagram
        one.receive(np.frombuffer(bytearray(buffer), np.uint8), spans, now=network.now)
        assert numbers(r) == list(range(20 * i + 1, 20 * i + 21))
        network.run(SECOND)
    assert one.database.participants


# --- identity -------------------------------------------------------------------------------------


def test_entity_ids() -> None:
    one = RtpsParticipant(ParticipantConfig(bytes(range(12))), now=0)
    guids = [
        one.create_reader(ReaderSpec(*TOPIC, RELIABLE, keyed=True), now=0).guid,
        one.create_reader(ReaderSpec(*TOPIC, RELIABLE, entity_key=0xABCDEF), now=0).guid,
        one.create_writer(WriterSpec(*TOPIC, RELIABLE, keyed=True), now=0).guid,
        one.create_writer(WriterSpec(*TOPIC, RELIABLE, entity_key=7), now=0).guid,
    ]
    assert guids == [
        Guid(one.prefix, b"\0\0\1" + bytes((KIND_READER_WITH_KEY,))),
        Guid(one.prefix, b"\xab\xcd\xef" + bytes((KIND_READER_NO_KEY,))),
        Guid(one.prefix, b"\0\0\2" + bytes((KIND_WRITER_WITH_KEY,))),
        Guid(one.prefix, b"\0\0\7" + bytes((KIND_WRITER_NO_KEY,))),
    ]
    for key in (7, 0, -1, 1 << 24):
        with pytest.raises(UsageError):
            one.create_reader(ReaderSpec(*TOPIC, RELIABLE, keyed=True, entity_key=key), now=0)


def test_entity_keys_of_deleted_endpoints_are_used_again_when_all_others_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spark_rtps.transport.protocol.participant.entity_keys._KEY_MAX", 3)
    one = RtpsParticipant(ParticipantConfig(bytes(range(12))), now=0)
    spec = ReaderSpec(*TOPIC, RELIABLE, keyed=True)
    lasting = one.create_reader(spec, now=0).guid
    given = []
    for _ in range(6):
        guid = one.create_reader(spec, now=0).guid
        given.append(guid.entity[2])
        one.delete_endpoint(guid, 0)
    assert (lasting.entity[2], given) == (1, [2, 3, 2, 3, 2, 3])
    one.create_reader(replace(spec, entity_key=3), now=0)
    one.create_reader(spec, now=0)
    with pytest.raises(UsageError):
        one.create_reader(spec, now=0)


_UNANNOUNCED = replace(RELIABLE, liveliness=LivelinessKind.MANUAL_BY_TOPIC, liveliness_lease_duration=SECOND)


@pytest.mark.parametrize(
    ("qos", "policy"),
    [
        (replace(_UNANNOUNCED, user_data=bytes(65_532)), PUBLICATION_POLICY),
        (replace(_UNANNOUNCED, partition=("p" * 4_000,) * 17), PUBLICATION_POLICY),
        (replace(_UNANNOUNCED, deadline=-1), PUBLICATION_POLICY),
        (_UNANNOUNCED, replace(PUBLICATION_POLICY, readers_allowed=("10.1.2.3/16",))),
    ],
    ids=["user data", "partitions", "duration", "networks"],
)
def test_nothing_is_left_of_an_endpoint_that_cannot_be_announced(qos: Qos, policy: PublicationPolicy) -> None:
    """Its timers would run, its type would be offered, and nobody could delete it."""
    network = VirtualNetwork(seed=0)
    one, two = network.add(), network.add()
    kept = type_scene.struct("Rich")
    before = len(one.readers)
    makers: list[Callable[[], object]] = [
        lambda: one.create_writer(WriterSpec(*TOPIC, qos, policy=policy, type=kept), now=network.now)
    ]
    if policy is PUBLICATION_POLICY:
        makers.append(lambda: one.create_reader(ReaderSpec(*TOPIC, qos, type=kept), now=network.now))
    changes = one.changes
    for make in makers:
        with pytest.raises(UsageError):
            make()
    assert one.changes == changes
    assert len(one.readers) == before
    assert not one.database.own_endpoints_on(TOPIC[0])
    network.run(5 * SECOND)
    assert not reported(network, one, events.LivelinessLost)
    assert len(one._library) == 0
    assert not two.database.endpoints
    w = one.create_writer(WriterSpec(*TOPIC, RELIABLE, type=kept), now=network.now)
    assert network.run(5 * SECOND, until=lambda: bool(two.database.endpoints))
    one.delete_endpoint(w.guid, network.now)
    assert len(one._library) == 0


def test_a_wrong_configuration_is_refused() -> None:
    with pytest.raises(UsageError):
        RtpsParticipant(ParticipantConfig(b"short"), now=0)
    with pytest.raises(UsageError):
        RtpsParticipant(ParticipantConfig(bytes(12), lease_duration=0), now=0)


def test_a_restarted_reader_goes_on_where_it_was() -> None:
    network = VirtualNetwork()
    one, two = network.add(), network.add()
    w = writer(network, one)
    r = two.create_reader(ReaderSpec(*TOPIC, RELIABLE, entity_key=5), now=network.now)
    network.run(SECOND)
    w.write_samples(samples(1, 2, 3), timestamp=0, now=network.now)
    network.run(SECOND)
    assert numbers(r) == [1, 2, 3]
    address = network.address_of(two)
    network.unplug(two)
    w.write_samples(samples(4, 5), timestamp=0, now=network.now)
    network.run(SECOND)
    restarted = RtpsParticipant(two.config, now=network.now)
    network._hosts[address] = restarted
    resumed = restarted.create_reader(
        ReaderSpec(*TOPIC, RELIABLE, entity_key=5, resume={w.guid: 3}), now=network.now
    )
    assert resumed.guid == r.guid
    network.run(9 * SECOND)
    w.write_samples(samples(6), timestamp=0, now=network.now)
    network.run(SECOND)
    assert numbers(resumed) == [4, 5, 6]
    assert not reported(network, one, events.ParticipantLost)


# --- economy --------------------------------------------------------------------------------------


def test_idle_traffic_is_a_few_announcements() -> None:
    network = VirtualNetwork()
    one, two = network.add(), network.add()
    reader(network, one)
    writer(network, two)
    network.run(30 * SECOND)
    sent = network.sent
    network.run(100 * SECOND)
    # each: multicast and one known participant, three times per lease of 10 s
    assert network.sent - sent <= 2 * 2 * 31


def test_many_idle_participants_cost_next_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    network = VirtualNetwork()
    one = network.add()
    w = writer(network, one)
    for _ in range(40):
        reader(network, network.add())
    network.run(SECOND)
    assert len(w.readers) == 40

    def too_dear(*_: object) -> None:
        raise AssertionError("where all of them are is not to be asked while nothing is sent")

    for module, name in ((heartbeats_module, "union_of"), (heartbeats_module, "destinations_of")):
        monkeypatch.setattr(module, name, too_dear)
    for name in ("destinations_of", "regroup"):
        monkeypatch.setattr(broadcast_module, name, too_dear)
    started = time.process_time()
    for _ in range(1_000):
        one.get_timer()
        assert one.datagrams_to_send(network.now) == []
    assert time.process_time() - started < 0.5  # takes 0.01
    monkeypatch.undo()
    w.write_samples(samples(1), timestamp=0, now=network.now)
    (datagram,) = one.datagrams_to_send(network.now)
    assert len(datagram.destinations) == 40


def test_small_messages_share_a_datagram() -> None:
    network = VirtualNetwork()
    network.log = []
    one, two = network.add(), network.add()
    for i in range(20):
        one.create_reader(ReaderSpec(f"t{i}", "T", RELIABLE), now=network.now)
        two.create_writer(WriterSpec(f"t{i}", "T", RELIABLE), now=network.now)
    network.run(5 * SECOND)
    assert len(network.log) < 120
    assert max(len(datagram) for _, _, datagram in network.log) <= 65_507


def test_our_own_multicast_is_ignored() -> None:
    network = VirtualNetwork()
    one = network.add()
    network.run(SECOND)
    assert network.sent >= 5
    assert not one.database.participants
    assert not sum(one.drops.values())
    assert network.events[one.prefix] == []
