"""Samples by multicast: one datagram for all readers of a group, repairs to the group when several ask for the same.

Participants on a simulated network, in virtual time; every reader gets every sample once, in order, whatever is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from spark_rtps.transport.protocol.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant import Participant
from spark_rtps.transport.protocol.policies import (
    BatchPolicy,
    FlowControlPolicy,
    PublicationPolicy,
    ReaderPolicy,
    WriterPolicy,
)
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.trust import Trust
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import Guid, Locator, default_group
from spark_rtps.transport.wire.samples import Samples
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
BEST_EFFORT = Qos(reliability=ReliabilityKind.BEST_EFFORT)
GROUP = default_group(0)
OWN_GROUP = Locator("239.255.7.7", 7500)
DATA, DATA_FRAG, ACKNACK, HEARTBEAT, DATA_BATCH = 0x15, 0x16, 0x06, 0x07, 0x18


class Scene:
    """A writer and its readers, each on a host of its own."""

    def __init__(
        self, network: VirtualNetwork, *, policy: PublicationPolicy | None = None, **config: Any
    ) -> None:
        self.network = network
        network.log = []
        self.host = network.add(**config)
        self.writer = self.host.create_writer(
            WriterSpec("t", "T", RELIABLE, policy=policy or PublicationPolicy()), now=network.now
        )
        self.readers: dict[Guid, StatefulReader] = {}
        self.numbers: dict[Guid, list[int]] = {}
        self.hosts: dict[Guid, Participant] = {}
        self.written = 0

    def reader(
        self, group: Locator | None = GROUP, *, qos: Qos = RELIABLE, joins: bool = True, **spec: Any
    ) -> StatefulReader:
        network = self.network
        host = network.add()
        if group is not None and joins:
            network.join(host, group)
        multicast = () if group is None else (group,)
        reader = host.create_reader(ReaderSpec("t", "T", qos, multicast=multicast, **spec), now=network.now)
        self.readers[reader.guid], self.hosts[reader.guid] = reader, host
        self.numbers[reader.guid] = []
        return reader

    def settle(self) -> None:
        """Everybody is matched and ready."""
        proxies = self.writer.readers

        def ready() -> bool:
            known = all(self.writer.guid in reader.writers for reader in self.readers.values())
            return known and len(proxies) == len(self.readers) and all(p.is_ready for p in proxies.values())

        assert self.network.run(30 * SECOND, until=ready)
        self.network.run(SECOND)  # the first announcements are over
        assert self.network.log is not None
        self.network.log.clear()

    def write(self, count: int, *, size: int = 64) -> None:
        rows = np.zeros((count, size), np.uint8)
        rows[:, 1] = 1
        numbers = np.arange(self.written, self.written + count, dtype="<u4")
        rows[:, 4:8] = numbers.view(np.uint8).reshape(count, 4)
        left = Samples.uniform(rows.reshape(-1), count, size)
        while left.count:
            taken = self.writer.write(left, timestamp=0, now=self.network.now)
            left = left.take(taken, left.count)
            if left.count:
                self.network.run(MILLISECOND, until=self._take)
        self.written += count

    def _take(self) -> bool:
        for guid, reader in self.readers.items():
            for run in reader.take():
                samples = run.samples()
                self.numbers[guid] += [
                    int.from_bytes(samples.payload(i)[4:8], "little") for i in range(samples.count)
                ]
        return False

    def finish(self, duration: int = 60 * SECOND) -> None:
        """Everybody has everything; once, in order."""

        def done() -> bool:
            self._take()
            return not self.writer.unacknowledged()

        assert self.network.run(duration, until=done), self.writer.unacknowledged()
        self._take()

    def assert_each_got(self, first: int = 0) -> None:
        for numbers in self.numbers.values():
            assert numbers == list(range(first, self.written))

    def sent(self, kind: int) -> Counter[Locator]:
        """By destination: the writer's datagrams with such a submessage."""
        assert self.network.log is not None
        here, found = self.network.address_of(self.host), Counter[Locator]()
        for source, to, datagram in self.network.log:
            if (
                source == here
                and kind in kinds(datagram)
                and entity_of(datagram, kind) == self.writer.guid.entity
            ):
                found[to] += 1
        return found


def _submessages(datagram: bytes) -> Iterator[tuple[int, bytes]]:
    at = 20
    while at + 4 <= len(datagram):
        kind, flags = datagram[at], datagram[at + 1]
        size = int.from_bytes(datagram[at + 2 : at + 4], "little" if flags & 1 else "big")
        stop = at + 4 + size if size else len(datagram)
        yield kind, datagram[at + 4 : stop]
        at = stop


def kinds(datagram: bytes) -> set[int]:
    return {kind for kind, _ in _submessages(datagram)}


def entity_of(datagram: bytes, kind: int) -> bytes:
    """The writer's entity id of the first submessage of such a kind."""
    body = next(body for each, body in _submessages(datagram) if each == kind)
    at = 8 if kind in (DATA, DATA_FRAG, DATA_BATCH) else 4
    return body[at : at + 4]


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


def test_one_reader_alone_is_sent_nothing_by_the_group(network: VirtualNetwork) -> None:
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


def test_one_that_takes_unicast_only_gets_copies_of_its_own(network: VirtualNetwork) -> None:
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


def test_a_reader_of_the_same_participant_hears_the_group_too(network: VirtualNetwork) -> None:
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
            scene.writer.flush(now=scene.network.now)
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


# --- what is lost ----------------------------------------------------------------------------------------


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


def test_what_all_lose_is_sent_to_the_group_once(network: VirtualNetwork) -> None:
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


def test_what_readers_remember_of_repairs_to_their_group_has_an_end(network: VirtualNetwork) -> None:
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


def test_what_one_loses_is_sent_to_it_alone(network: VirtualNetwork) -> None:
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


def test_one_that_loses_the_newest_again_and_again_is_not_deaf(network: VirtualNetwork) -> None:
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


# --- who may name a group --------------------------------------------------------------------------------


def test_a_network_that_carries_no_multicast_is_sent_none() -> None:
    network = VirtualNetwork(multicast=True)
    scene = Scene(network)
    for _ in range(3):
        scene.reader()
    scene.host.heard_by_multicast = lambda *_, **__: None  # type: ignore[method-assign]
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
