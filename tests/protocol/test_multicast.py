"""Samples by multicast: one datagram for all readers of a group, and who may name one.

Participants on a simulated network, in virtual time; every reader gets every sample once, in order, whatever is lost.
"""

from __future__ import annotations

import pytest

from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec
from spark_rtps.transport.protocol.policies import BatchPolicy, FlowControlPolicy, PublicationPolicy
from spark_rtps.transport.protocol.trust import Trust
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.structure import Locator
from tests.protocol.multicast_scene import (
    BEST_EFFORT,
    DATA,
    DATA_BATCH,
    DATA_FRAG,
    GROUP,
    OWN_GROUP,
    RELIABLE,
    Scene,
)
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork


@pytest.fixture
def network() -> VirtualNetwork:
    return VirtualNetwork()


# --- what is sent first ----------------------------------------------------------------------------------


def test_datagrams_per_sample_do_not_grow_with_readers() -> None:
    sent = {}
    for count in (2, 4, 16):
        scene = Scene(VirtualNetwork())
        for _ in range(count):
            scene.reader()
        scene.settle()
        for _ in range(50):
            scene.write(1)
            scene.network.run(MILLISECOND)
        scene.finish()
        scene.assert_each_got()
        data = scene.sent(DATA)
        assert set(data) == {GROUP}
        sent[count] = data.total()
    assert sent == {2: 50, 4: 50, 16: 50}


def test_a_single_reader_is_sent_nothing_by_the_group(network: VirtualNetwork) -> None:
    scene = Scene(network)
    reader = scene.reader()
    scene.settle()
    scene.write(10)
    scene.finish()
    scene.assert_each_got()
    assert set(scene.sent(DATA)) == {Locator(network.address_of(scene.hosts[reader.guid]), 7410)}


def test_without_groups_each_reader_is_sent_a_copy(network: VirtualNetwork) -> None:
    scene = Scene(network, policy=PublicationPolicy(multicast=False))
    for _ in range(3):
        scene.reader()
    scene.settle()
    scene.write(10)
    scene.finish()
    scene.assert_each_got()
    assert len(scene.sent(DATA)) == 3 and GROUP not in scene.sent(DATA)


def test_a_unicast_only_reader_gets_copies_of_its_own(network: VirtualNetwork) -> None:
    network.loss = 0.1
    scene = Scene(network)
    for _ in range(4):
        scene.reader()
    alone = scene.reader(None)
    scene.settle()
    for _ in range(100):
        scene.write(2)
        network.run(MILLISECOND)
    scene.finish()
    scene.assert_each_got()
    data = scene.sent(DATA)
    assert data[GROUP] >= 100 and data[Locator(network.address_of(scene.hosts[alone.guid]), 7410)] >= 100


def test_readers_come_and_go(network: VirtualNetwork) -> None:
    """The group is used from the second reader on, and no more when one is left; nobody misses anything."""
    scene = Scene(network)
    first = scene.reader()
    scene.settle()
    scene.write(5)
    scene.finish()
    assert GROUP not in scene.sent(DATA)
    second = scene.reader()
    scene.settle()
    scene.write(5)
    scene.finish()
    assert set(scene.sent(DATA)) == {GROUP}
    assert scene.numbers[second.guid] == list(range(5, 10))
    scene.hosts[second.guid].close(network.now)
    del scene.readers[second.guid], scene.numbers[second.guid]
    scene.settle()
    scene.write(5)
    scene.finish()
    assert GROUP not in scene.sent(DATA)
    assert scene.numbers[first.guid] == list(range(15))


def test_two_groups_of_two(network: VirtualNetwork) -> None:
    scene = Scene(network)
    for group in (GROUP, OWN_GROUP) * 2:
        scene.reader(group)
    scene.settle()
    scene.write(10)
    scene.finish()
    scene.assert_each_got()
    assert set(scene.sent(DATA)) == {GROUP, OWN_GROUP}


def test_a_reader_of_the_same_participant_receives_the_group_too(network: VirtualNetwork) -> None:
    scene = Scene(network)
    network.join(scene.host, GROUP)
    own = scene.host.create_reader(ReaderSpec("t", "T", RELIABLE, multicast=(GROUP,)), now=network.now)
    scene.readers[own.guid], scene.numbers[own.guid] = own, []
    scene.reader()
    scene.settle()
    scene.write(10)
    scene.finish()
    scene.assert_each_got()
    assert set(scene.sent(DATA)) == {GROUP}
    assert own.counters.duplicate_samples == 0


def test_batches_and_large_samples_go_to_the_group_as_well() -> None:
    for batch, size, kind in (
        (BatchPolicy(enable=True), 64, DATA_BATCH),
        (BatchPolicy(), 200_000, DATA_FRAG),
    ):
        scene = Scene(VirtualNetwork(loss=0.02, seed=4), policy=PublicationPolicy(batch=batch))
        for _ in range(4):
            scene.reader()
        scene.settle()
        for _ in range(5):
            scene.write(3, size=size)
            scene.writer.flush_batch(now=scene.network.now)
            scene.network.run(MILLISECOND)
        scene.finish()
        scene.assert_each_got()
        assert scene.sent(kind)[GROUP] >= 5


def test_datagrams_to_a_group_are_no_larger_than_its_readers_take(network: VirtualNetwork) -> None:
    scene = Scene(network, message_size=8_972)
    scene.reader()
    small = network.add(message_size_max=1_400)
    network.join(small, GROUP)
    reader = small.create_reader(ReaderSpec("t", "T", RELIABLE, multicast=(GROUP,)), now=network.now)
    scene.readers[reader.guid], scene.numbers[reader.guid] = reader, []
    scene.settle()
    scene.write(400)
    scene.finish()
    scene.assert_each_got()
    assert network.log is not None
    assert max(len(datagram) for _, to, datagram in network.log if to == GROUP) <= 1_400


# --- who may name a group --------------------------------------------------------------------------------


def test_a_network_that_carries_no_multicast_is_sent_none() -> None:
    network = VirtualNetwork(multicast=True)
    scene = Scene(network)
    for _ in range(3):
        scene.reader()
    scene.host.discovery.received_by_multicast = lambda *_, **__: None  # type: ignore[method-assign]
    scene.settle()
    scene.write(5)
    scene.finish()
    scene.assert_each_got()
    assert GROUP not in scene.sent(DATA) and len(scene.sent(DATA)) == 3


@pytest.mark.parametrize(
    ("networks", "ttl", "to"),
    [
        ((("10.0.0.1", "10.0.0.0/24"), ("10.9.0.1", "10.9.0.0/24")), 1, {"10.0.0.1"}),
        ((("10.9.0.1", "10.9.0.0/24"),), 1, set()),
        ((("10.9.0.1", "10.9.0.0/24"),), 2, {""}),
    ],
)
def test_groups_are_for_readers_on_networks_of_ours(
    networks: tuple[tuple[str, str], ...], ttl: int, to: set[str]
) -> None:
    """Samples leave through the interface behind which the readers are, and no other."""
    scene = Scene(VirtualNetwork(), multicast_networks=networks, multicast_ttl=ttl)
    for _ in range(3):
        scene.reader()
    scene.settle()
    scene.write(5)
    scene.finish()
    scene.assert_each_got()
    assert {each.via for each in scene.sent(DATA) if each.is_multicast} == to


@pytest.mark.parametrize(
    ("group", "qos", "used"),
    [
        (GROUP, BEST_EFFORT, True),
        (OWN_GROUP, RELIABLE, True),
        (OWN_GROUP, BEST_EFFORT, False),
        (Locator("239.255.0.1", 7400), RELIABLE, False),
        (Locator("239.255.0.1", 7650), RELIABLE, False),
        (Locator("224.0.0.5", 7401), RELIABLE, False),
        (Locator("10.0.0.200", 7401), RELIABLE, False),
    ],
)
def test_which_groups_are_used(network: VirtualNetwork, group: Locator, qos: Qos, used: bool) -> None:
    scene = Scene(network)
    for _ in range(2):
        scene.reader(group, qos=qos)
    network.run(3 * SECOND)
    assert network.log is not None
    network.log.clear()
    scene.write(5)
    network.run(SECOND)
    scene.finish()
    assert (group in scene.sent(DATA)) is used


def test_nothing_goes_to_a_group_of_participants_that_have_not_proven_an_address(
    network: VirtualNetwork,
) -> None:
    scene = Scene(network, trust=Trust.ADDRESS)
    readers = [scene.reader() for _ in range(2)]
    for reader in readers:  # it announces itself, and answers nothing that is sent to it
        pair = network.address_of(scene.host), network.address_of(scene.hosts[reader.guid])
        network.blocked.add(pair)
        network.blocked.add(pair[::-1])
    network.run(3 * SECOND)
    scene.write(5)
    network.run(SECOND)
    assert not scene.writer.readers and GROUP not in scene.sent(DATA)


def test_a_group_replaces_two_copies_at_least(network: VirtualNetwork) -> None:
    """Two readers of one participant are sent one datagram, which goes to its address."""
    scene = Scene(network)
    reader = scene.reader()
    host = scene.hosts[reader.guid]
    other = host.create_reader(ReaderSpec("t", "T", RELIABLE, multicast=(GROUP,)), now=network.now)
    scene.readers[other.guid], scene.numbers[other.guid] = other, []
    scene.settle()
    scene.write(5)
    scene.finish()
    scene.assert_each_got()
    assert set(scene.sent(DATA)) == {Locator(network.address_of(host), 7410)}


# --- flow control ----------------------------------------------------------------------------------------


def test_another_strategy_paces_while_a_group_is_sent_to(network: VirtualNetwork) -> None:
    flow = FlowControlPolicy(strategy="min", multicast_strategy="max")
    scene = Scene(network, policy=PublicationPolicy(flow_control=flow))
    scene.reader()
    scene.settle()
    scene.write(1)
    assert (type(scene.writer.pacing.strategy).__name__, scene.writer.channel) == ("FlowControl", "unicast")
    scene.reader()
    scene.settle()
    scene.write(1)
    assert (type(scene.writer.pacing.strategy).__name__, scene.writer.channel) == ("Max", "multicast")
