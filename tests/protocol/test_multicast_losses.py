"""Samples by multicast that are lost: repairs to the group when several ask for the same, and to one alone.

Participants on a simulated network, in virtual time; every reader gets every sample once, in order, whatever is lost.
"""

from __future__ import annotations

import pytest

from spark_rtps.transport.protocol.policies import PublicationPolicy, ReaderPolicy, WriterPolicy
from spark_rtps.transport.structure import Locator
from tests.protocol.multicast_scene import DATA, GROUP, HEARTBEAT, Scene
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork


@pytest.fixture
def network() -> VirtualNetwork:
    return VirtualNetwork()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("backoff", [1, 16])
def test_each_reader_gets_everything_once_and_in_order_under_loss(seed: int, backoff: int) -> None:
    readers, samples = 16, 300
    network = VirtualNetwork(seed=seed, loss=0.05, jitter=MILLISECOND // 20)
    scene = Scene(network)
    for _ in range(readers):
        scene.reader(policy=ReaderPolicy(nack_group_size=backoff))
    scene.settle()
    for _ in range(samples):
        scene.write(1)
        network.run(MILLISECOND)
    scene.finish()
    scene.assert_each_got()
    sent = scene.sent(DATA)
    # Where 16 readers lose a twentieth each, nearly half of all samples are lost by two or more of them. By unicast
    # it would be 16 copies of each sample, and 16 * 5 % of all again.
    assert sent.total() < 2.5 * samples
    assert sent[GROUP] >= samples


def test_samples_that_all_readers_lose_are_repaired_to_the_group_once(network: VirtualNetwork) -> None:
    scene = Scene(network)
    for _ in range(16):
        scene.reader()
    scene.settle()
    network.loss = 1.0
    scene.write(1)
    network.run(MILLISECOND)
    network.loss = 0.0
    scene.write(1)
    scene.finish()
    scene.assert_each_got()
    assert scene.sent(DATA) == {GROUP: 3}


@pytest.mark.parametrize("threshold", [1, 2, 5])
def test_nacks_that_back_off_are_served_by_the_first_ones(threshold: int) -> None:
    """What all readers lose costs as many requests as make a repair for the group, and some that were on their way."""
    scene = Scene(
        VirtualNetwork(seed=2),
        policy=PublicationPolicy(writer=WriterPolicy(multicast_resend_threshold=threshold)),
    )
    for _ in range(16):
        scene.reader(policy=ReaderPolicy(nack_group_size=16, nack_backoff_max=10 * MILLISECOND))
    scene.settle()
    before = scene.writer.counters.nacks_received
    scene.network.loss = 1.0
    scene.write(1)
    scene.network.run(MILLISECOND)
    scene.network.loss = 0.0
    scene.write(1)
    scene.finish()
    scene.assert_each_got()
    assert threshold <= scene.writer.counters.nacks_received - before <= threshold + 3
    sent = scene.sent(DATA)
    assert sent[GROUP] == 3 and sent.total() == 3 + threshold - 1


def test_remembered_group_repairs_expire(network: VirtualNetwork) -> None:
    scene = Scene(network)
    readers = [scene.reader() for _ in range(4)]
    scene.settle()
    for _ in range(50):
        for reader in readers[:2]:  # the others have it all, and never ask
            pair = network.address_of(scene.host), network.address_of(scene.hosts[reader.guid])
            network.blocked.add(pair)
        scene.write(1)
        network.run(MILLISECOND)
        network.blocked.clear()
        scene.write(1)
        scene.finish()
    scene.assert_each_got()
    assert scene.sent(DATA) == {GROUP: 150}
    for proxy in scene.writer.readers.values():
        assert len(proxy.repairs.recent._sent) <= 2


def test_samples_that_one_reader_loses_are_repaired_to_it_alone(network: VirtualNetwork) -> None:
    scene = Scene(network)
    one, *_ = [scene.reader() for _ in range(4)]
    scene.settle()
    pair = network.address_of(scene.host), network.address_of(scene.hosts[one.guid])
    network.blocked.add(pair)
    scene.write(1)
    network.run(MILLISECOND)
    network.blocked.discard(pair)
    scene.write(1)
    scene.finish()
    scene.assert_each_got()
    assert scene.sent(DATA) == {GROUP: 2, Locator(pair[1], 7410): 1}


def test_heartbeats_to_several_go_to_the_group(network: VirtualNetwork) -> None:
    scene = Scene(network, policy=PublicationPolicy(writer=WriterPolicy(heartbeats_per_max_samples=0)))
    for _ in range(8):
        scene.reader()
    scene.settle()
    scene.write(1)
    network.run(SECOND, until=scene._take)
    scene.finish()
    assert set(scene.sent(HEARTBEAT)) == {GROUP}


def test_a_late_reader_is_sent_nothing_from_before_its_time(network: VirtualNetwork) -> None:
    scene = Scene(network)
    early = [scene.reader() for _ in range(3)]
    scene.settle()
    blocked = {(network.address_of(scene.host), network.address_of(scene.hosts[each.guid])) for each in early}
    network.blocked |= blocked
    scene.write(5)  # nobody gets them, and all will ask
    late = scene.reader()
    assert network.run(30 * SECOND, until=lambda: late.guid in scene.writer.readers)
    network.blocked -= blocked
    scene.settle()
    scene.write(5)
    scene.finish()
    assert all(scene.numbers[each.guid] == list(range(10)) for each in early)
    assert scene.numbers[late.guid] == list(range(5, 10))


def test_a_reader_that_no_group_reaches_is_sent_copies_of_its_own(network: VirtualNetwork) -> None:
    """It has announced the group, but a switch keeps it back."""
    scene = Scene(network)
    for _ in range(3):
        scene.reader()
    deaf = scene.reader(joins=False)
    scene.settle()
    for _ in range(60):
        scene.write(20)
        network.run(20 * MILLISECOND)
    scene.finish()
    scene.assert_each_got()
    assert scene.writer.readers[deaf.guid].is_deaf
    before, scene.writer.counters.repaired_samples = scene.writer.counters.repaired_samples, 0
    assert before > 0
    scene.write(20)
    scene.finish()
    scene.assert_each_got()
    assert scene.writer.counters.repaired_samples == 0


def test_a_reader_that_repeatedly_loses_the_newest_still_gets_the_group(network: VirtualNetwork) -> None:
    """It requests all that was sent since its last request, but it has the rest from the group."""
    scene = Scene(network)
    unlucky, *_ = [scene.reader() for _ in range(3)]
    scene.settle()
    pair = network.address_of(scene.host), network.address_of(scene.hosts[unlucky.guid])
    for _ in range(10):
        scene.write(10)
        scene.finish()
        network.blocked.add(pair)
        scene.write(10)
        network.run(MILLISECOND)
        network.blocked.discard(pair)
        scene.finish()
    scene.assert_each_got()
    assert not scene.writer.readers[unlucky.guid].is_deaf
