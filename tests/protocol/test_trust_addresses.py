"""Participants with several addresses, with new ones, and behind translators and relays of them."""

from __future__ import annotations

import numpy as np
import pytest

from spark_rtps.transport.errors import DropReason
from spark_rtps.transport.protocol.discovery.endpoint_data import EndpointData, encode_endpoint
from spark_rtps.transport.protocol.discovery.spdp import UNPROVEN_LEASE
from spark_rtps.transport.protocol.participant import events
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.trust import Trust
from spark_rtps.transport.structure import (
    ENTITYID_SEDP_PUBLICATIONS_WRITER,
    ENTITYID_UNKNOWN,
    Guid,
    Locator,
)
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.submessages import Data, Heartbeat
from tests.protocol.hostile_scene import (
    EVIL,
    EVIL_IP,
    EVIL_LOCATOR,
    RELIABLE,
    addressed,
    announcement,
    message,
    reader_of_evil,
    written,
)
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork

OTHER = Locator("10.0.7.66", 7410)


def test_a_participant_with_two_addresses_may_speak_from_either() -> None:
    network = VirtualNetwork()
    one = network.add()
    both = (Locator("10.0.0.2", 7410), Locator("10.0.5.2", 7410))
    two = network.add(metatraffic_unicast=both, default_unicast=both)
    network.also_at(two, "10.0.5.2")
    reader = one.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
    writer = two.create_writer(WriterSpec("t", "T", RELIABLE), now=network.now)
    received = 0
    for round in range(40):
        network.sources[two.prefix] = ("10.0.0.2", "10.0.5.2")[round % 3 % 2]
        network.run(SECOND)
        writer.write_samples(Samples.uniform(np.zeros(8, np.uint8), 1, 8), timestamp=0, now=network.now)
        network.run(SECOND)
        received += sum(run.count for run in reader.take_runs())
    assert received == 40
    assert not one.drops[DropReason.FOREIGN_ADDRESS]


def test_a_new_announced_address_is_used_once_it_is_proven() -> None:
    network = VirtualNetwork()
    one = network.add()
    write = written(network, one)
    network.deliver(one, announcement(), EVIL_IP)
    network.deliver(one, addressed(one, reader_of_evil()), EVIL_IP)
    write()
    moved = announcement(metatraffic_unicast=(OTHER,), default_unicast=(OTHER,))
    network.deliver(one, moved, EVIL_IP)
    before = network.sent_bytes.copy()
    write()
    assert (network.sent_bytes - before)[(EVIL_IP, 7410)] > 1_000  # not interrupted
    assert (network.sent_bytes - before)[(OTHER.address, 7410)] < 1_000  # but for the answer
    network.deliver(one, moved, OTHER.address)
    network.deliver(one, addressed(one), OTHER.address)
    network.run(MILLISECOND)
    before = network.sent_bytes.copy()
    write()
    assert (network.sent_bytes - before)[(OTHER.address, 7410)] > 1_000
    assert (network.sent_bytes - before)[(EVIL_IP, 7410)] == 0
    lost = [each for each in network.events[one.prefix] if isinstance(each, events.Unmatched)]
    assert not lost
    network.deliver(one, addressed(one, reader_of_evil(sn=9, topic="x")), EVIL_IP)  # which it has left
    assert one.drops[DropReason.FOREIGN_ADDRESS]
    both = (EVIL_LOCATOR, OTHER)
    network.deliver(one, announcement(metatraffic_unicast=both, default_unicast=both), OTHER.address)
    network.deliver(one, addressed(one, reader_of_evil(*both, sn=3)), OTHER.address)
    before = network.sent_bytes.copy()
    write()
    assert (network.sent_bytes - before)[(OTHER.address, 7410)] > 1_000
    assert one._spdp.remotes[EVIL].proven_from == {OTHER.address}, "the other has to be proven again"
    assert (network.sent_bytes - before)[(EVIL_IP, 7410)] == 0


def test_a_participant_that_moves_without_a_word_is_found_when_its_lease_has_ended() -> None:
    network = VirtualNetwork()
    one = network.add()
    two = network.add(lease_duration=3 * SECOND)
    reader = one.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
    writer = two.create_writer(WriterSpec("t", "T", RELIABLE), now=network.now)
    assert network.run(5 * SECOND, until=lambda: bool(reader.writers and writer.readers))
    network.sources[two.prefix] = "10.0.0.2"
    network.run(SECOND)
    network.unplug(two)
    elsewhere = Locator("10.0.9.2", 7410)
    config = {"guid_prefix": two.prefix, "incarnation": 1, "lease_duration": 3 * SECOND}
    again = network.add(**config, metatraffic_unicast=(elsewhere,), default_unicast=(elsewhere,))
    network.also_at(again, elsewhere.address)
    network.sources[two.prefix] = elsewhere.address
    writer = again.create_writer(WriterSpec("t", "T", RELIABLE, entity_key=77), now=network.now)
    assert network.run(12 * SECOND, until=lambda: writer.guid in reader.writers)


@pytest.mark.parametrize("trust", Trust)
@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_a_participant_behind_a_translator_of_addresses_is_found(trust: Trust, loss: float) -> None:
    for seed in range(5):
        network = VirtualNetwork(seed=seed, loss=loss)
        one, two = network.add(trust=trust), network.add()
        network.sources[two.prefix] = "10.0.3.3"
        reader = one.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
        writer = two.create_writer(WriterSpec("t", "T", RELIABLE), now=network.now)
        limit = SECOND if not loss else 60 * SECOND
        assert network.run(limit, until=lambda r=reader, w=writer: bool(r.writers and w.readers))  # type: ignore[misc]
        writer.write_samples(Samples.uniform(np.zeros(8, np.uint8), 1, 8), timestamp=0, now=network.now)
        assert network.run(10 * SECOND, until=lambda r=reader: r.has_runs)  # type: ignore[misc]
        reader.take_runs()
        if trust is Trust.ADDRESS and not loss:
            assert one._spdp.remotes[two.prefix].addresses == {"10.0.0.2", "10.0.3.3"}
            network.run(20 * SECOND)
            assert set(two.database.participants) == {one.prefix}  # what was made up is gone
            forged = Heartbeat(ENTITYID_UNKNOWN, writer.guid.entity, 10**9, 10**9, 1 << 20).encode()
            network.deliver(one, addressed(one, forged, prefix=two.prefix), EVIL_IP)
            assert one.drops[DropReason.FOREIGN_ADDRESS]


@pytest.mark.parametrize("trust", Trust)
@pytest.mark.parametrize("other_trust", Trust)
def test_two_behind_translators_do_not_answer_each_other_for_ever(trust: Trust, other_trust: Trust) -> None:
    network = VirtualNetwork()
    one, two = network.add(trust=trust), network.add(trust=other_trust, lease_duration=60 * SECOND)
    network.sources |= {one.prefix: "10.0.3.1", two.prefix: "10.0.3.2"}
    reader = one.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
    writer = two.create_writer(WriterSpec("t", "T", RELIABLE), now=network.now)
    assert network.run(SECOND, until=lambda: bool(reader.writers and writer.readers))
    assert not network.run(60 * SECOND, until=lambda: network.sent > 500)
    assert reader.writers and writer.readers
    lost = [
        e for each in (one, two) for e in network.events[each.prefix] if isinstance(e, events.ParticipantLost)
    ]
    assert not {e.participant.guid_prefix for e in lost} & {one.prefix, two.prefix}, (
        "those that are made up are lost"
    )


def test_an_overheard_matched_participant_keeps_its_announced_lease() -> None:
    """As in a capture: whatever it sends, nothing is addressed to us."""
    network = VirtualNetwork()
    one, two = network.add(trust=Trust.ANY), network.add(lease_duration=60 * SECOND)
    network.blocked.add(("10.0.0.1", "10.0.0.2"))  # so it never learns of us
    reader = one.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
    network.run(SECOND)
    at = (Locator("10.0.0.2", 7410),)
    reported = EndpointData(Guid(two.prefix, b"\0\0\1\3"), "t", "T", RELIABLE, at)
    data = Data(ENTITYID_UNKNOWN, ENTITYID_SEDP_PUBLICATIONS_WRITER, 1, encode_endpoint(reported))
    beat = Heartbeat(ENTITYID_UNKNOWN, ENTITYID_SEDP_PUBLICATIONS_WRITER, 1, 1, 1)
    network.deliver(one, message(data.encode(), beat.encode(), prefix=two.prefix), "10.0.0.2")
    assert reported.guid in reader.writers and not one._spdp.remotes[two.prefix].proven
    network.unplug(two)
    network.run(3 * UNPROVEN_LEASE)
    assert reported.guid in reader.writers
    network.run(60 * SECOND)
    assert not one.database.participants
