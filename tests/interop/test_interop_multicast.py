"""Samples by multicast between hosts, which are network namespaces on a bridge that loses some: ours, and Cyclone DDS.

Nothing is lost, doubled or out of order for any reader; Wireshark counts what a writer's host has sent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.policies import BatchPolicy, PublicationPolicy, ReaderPolicy
from tests.interop.cyclone_peer import CyclonePeer, number_row
from tests.interop.cyclone_types import Number
from tests.interop.subscription import batch_of, codec, qos
from tests.net.bridged_hosts import INTERFACE, BridgedHosts
from tests.net.shaped_link import NoNamespaces
from tests.support.numbered_samples import numbered
from tests.support.paced_reader import PacedReader
from tests.support.waiting import PATIENCE, wait_until
from tests.support.wireshark import tshark

GROUP = "239.255.0.1"
LOSS = 0.03


class Scene:
    """Hosts, and what runs on them."""

    def __init__(self, domain: int, count: int, loss: float) -> None:
        self.domain = domain
        self.hosts = BridgedHosts(count, loss)
        self._cleanup = contextlib.ExitStack()
        self._cleanup.callback(self.hosts.close)

    def close(self) -> None:
        self._cleanup.close()

    def node(self, host: int, **config: object) -> Node:
        options = {"multicast_receive": "auto", "lease_duration": 60_000_000_000, **config}
        with self.hosts.inside(host):
            node = Node.open(NodeConfig(domain=self.domain, interface=INTERFACE, **options)).start()
        self._cleanup.callback(node.close)
        return node

    def reader(self, host: int, type_name: str = "Type", **config: object) -> PacedReader:
        node = self.node(host, **config)
        at = 4 if type_name == "interop::Number" else 8
        with self.hosts.inside(host):  # the group is joined with the first reader
            return PacedReader(
                node,
                "t",
                type_name,
                room=64 << 20,
                policy=ReaderPolicy(nack_group_size=4),
                number=lambda payload: int.from_bytes(payload[at : at + 4], "little"),
            )

    def writer(self, host: int, type_name: str = "Type", **policy: object) -> BlockingWriter:
        spec = WriterSpec(
            "t",
            type_name,
            qos(),
            policy=PublicationPolicy(**policy),
        )
        return self.node(host).create_writer(spec)

    def cyclone(self, host: int) -> CyclonePeer:
        with self.hosts.inside(host):
            return self._cleanup.enter_context(
                CyclonePeer(self.domain, interface=INTERFACE, multicast="true")
            )


@pytest.fixture
def scene(request: pytest.FixtureRequest, domain: int) -> Iterator[Scene]:
    try:
        scene = Scene(domain, *request.param)
    except NoNamespaces as error:
        pytest.skip(f"this kernel makes no hosts for us: {error}")
    with contextlib.closing(scene):
        yield scene


def to_group(writer: BlockingWriter, readers: int) -> bool:
    """Whether so many ready readers are there, and all are reached by the group."""
    with writer.node.lock:
        proxies = list(writer.writer.readers.values())
        reached = all(proxy.is_ready and proxy.info.multicast for proxy in proxies)
    return len(proxies) == readers and reached


def data_to(capture: Path, destination: str) -> int:
    """Datagrams with samples of users' writers that were sent there."""
    kinds = "(rtps.sm.id == 0x15 || rtps.sm.id == 0x16 || rtps.sm.id == 0x18)"
    builtin = "rtps.sm.wrEntityId.entityKind >= 0xc0"
    wanted = f"{kinds} && !({builtin}) && ip.dst == {destination}"
    return len(tshark(capture, "-Y", wanted).splitlines())


@pytest.mark.parametrize("scene", [(5, LOSS)], indirect=True)
@pytest.mark.parametrize("batched", [False, True])
def test_four_hosts_are_sent_one_copy(scene: Scene, batched: bool, tmp_path: Path) -> None:
    readers = [scene.reader(host) for host in range(1, 5)]
    writer = scene.writer(0, batch=BatchPolicy(enable=batched))
    wait_until(lambda: to_group(writer, 4))
    count, step = 2_000, 10
    with scene.hosts.captured(0, tmp_path / "sent.pcap"):
        for first in range(0, count, step):
            writer.write_samples(numbered(first, step, size=200), timeout=PATIENCE)
        assert writer.wait_for_acknowledgments(PATIENCE) == {}
        wait_until(lambda: all(len(reader.numbers) >= count for reader in readers))
    for reader in readers:
        assert reader.numbers == list(range(count))
        assert reader.reader.counters.lost_samples == 0
    assert writer.writer.channel == "multicast"
    assert not any(proxy.is_deaf for proxy in writer.writer.readers.values())
    capture = tmp_path / "sent.pcap"
    by_group = data_to(capture, GROUP)
    alone = [data_to(capture, scene.hosts.address(host)) for host in range(1, 5)]
    assert by_group > 0
    assert sum(alone) < by_group  # repairs of what one of them has lost


@pytest.mark.parametrize("scene", [(4, LOSS)], indirect=True)
def test_a_cyclone_writer_sends_to_our_readers_by_the_group(scene: Scene, tmp_path: Path) -> None:
    """One copy for two readers of ours and one of its own kind."""
    readers = [scene.reader(host, "interop::Number") for host in (1, 2)]
    peer, other = scene.cyclone(0), scene.cyclone(3)
    other.reader("t", Number)
    peer.writer("t", Number)
    peer.wait_for_match("t", 3)
    wait_until(lambda: all(reader.reader.writers for reader in readers))
    count = 2_000
    with scene.hosts.captured(0, tmp_path / "sent.pcap"):
        peer.call("write_numbers", "t", 0, count)
        peer.wait_for_acks("t")
        wait_until(lambda: all(reader.count >= count for reader in readers))
    for reader in readers:
        assert reader.numbers == list(range(count))
        assert reader.reader.counters.lost_samples == 0
    assert [sample.row for sample in other.take("t", count)] == [number_row(n) for n in range(count)]
    capture = tmp_path / "sent.pcap"
    by_group = data_to(capture, GROUP)
    assert by_group >= count // 2
    for host in (1, 2, 3):
        assert data_to(capture, scene.hosts.address(host)) < by_group // 2


@pytest.mark.parametrize("scene", [(5, LOSS)], indirect=True)
def test_our_writer_sends_to_cyclone_readers_by_the_group(scene: Scene, tmp_path: Path) -> None:
    """Three readers of Cyclone DDS and one of ours, which is sent what they read."""
    peers = [scene.cyclone(host) for host in (1, 2, 3)]
    for peer in peers:
        peer.reader("t", Number)
    ours = scene.reader(4, "interop::Number")
    writer = scene.writer(0, "interop::Number", batch=BatchPolicy(enable=True))
    wait_until(lambda: to_group(writer, 4))
    count, rows = 2_000, [number_row(n) for n in range(2_000)]
    samples = codec("Number").encode_batch(batch_of(codec("Number"), rows))
    with scene.hosts.captured(0, tmp_path / "sent.pcap"):
        for first in range(
            0, count, 100
        ):  # behind a hole Cyclone DDS keeps 128 samples, and requests the others again
            writer.write_samples(samples.take_range(first, first + 100), timeout=PATIENCE)
            writer.flush()
            assert writer.wait_for_acknowledgments(PATIENCE) == {}
        wait_until(lambda: ours.count >= count)
    for peer in peers:
        assert [sample.row for sample in peer.take("t", count)] == rows
        assert peer.call("take", "t") == []
    assert ours.numbers == list(range(count))
    capture = tmp_path / "sent.pcap"
    by_group = data_to(capture, GROUP)
    assert by_group > 0
    assert not any(proxy.is_deaf for proxy in writer.writer.readers.values())
    assert sum(data_to(capture, scene.hosts.address(host)) for host in range(1, 5)) < by_group
