"""How large datagrams are: mtu, what interfaces take unfragmented, and message_size_max of receivers."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from spark_rtps.transport.errors import DropReason
from spark_rtps.transport.net import interfaces
from spark_rtps.transport.net.interfaces import Interface
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.outgoing import OutgoingDatagrams
from spark_rtps.transport.protocol.participant.events import MessageTooLarge
from spark_rtps.transport.protocol.policies import BatchPolicy, Compression
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.structure import INFINITE, Locator
from tests.net.net_scene import BEST_EFFORT, RELIABLE, Scene, scene_of
from tests.support import domains
from tests.support.child_environment import child_environment
from tests.support.numbered_samples import numbered
from tests.support.waiting import PATIENCE

#: An IP packet of 1,400 bytes has so many for us.
PAYLOAD = 1_372
BATCH = BatchPolicy(enable=True, max_data_bytes=60_000)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with scene_of(domains.NET_MTU) as scene:
        yield scene


def sizes(scene: Scene, *nodes: Node) -> list[int]:
    with scene.happened:
        return [len(each.data) for node in nodes for each in scene.sent[node]]


# --- what we send ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "batch",
    [BatchPolicy(), BATCH, replace(BATCH, compression=Compression.LZ4)],
    ids=["coalesced", "batches", "compressed"],
)
@pytest.mark.parametrize("qos", [RELIABLE, BEST_EFFORT], ids=["reliable", "best_effort"])
def test_no_datagram_exceeds_the_mtu(scene: Scene, qos: Qos, batch: BatchPolicy) -> None:
    there = scene.node(mtu=1_400)
    got = scene.reader(there, qos)
    here = scene.node(mtu=1_400)
    writer = scene.writer(here, qos, batch=batch)
    writer.write_samples(numbered(0, 1_000))
    writer.write_samples(numbered(1_000, 20, size=1_340))  # with all its headers too large for a datagram
    writer.write_samples(numbered(1_020, 2, size=20_000))
    writer.flush()
    if qos is RELIABLE:
        assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: got.numbers == list(range(1_022)))
    assert PAYLOAD - 200 < max(sizes(scene, here)) <= PAYLOAD
    assert max(sizes(scene, there)) <= PAYLOAD


def test_repairs_do_not_exceed_the_mtu(scene: Scene) -> None:
    got = scene.reader(scene.node())
    here = scene.node(mtu=1_400)
    writer = scene.writer(here, batch=BATCH)
    sockets, send = here.sockets, here.sockets.send
    with here.lock:
        sockets.send = lambda datagrams: len(list(datagrams))  # type: ignore[method-assign]
    writer.write_samples(numbered(0, 500))
    writer.write_samples(numbered(500, 1, size=20_000))
    writer.flush()
    with here.lock:
        sockets.send = send  # type: ignore[method-assign]
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: got.numbers == list(range(501)))
    assert max(sizes(scene, here)) <= PAYLOAD


def test_discovery_does_not_exceed_the_mtu(scene: Scene) -> None:
    large = replace(RELIABLE, user_data=bytes(5_000), partition=tuple(f"partition {i}" for i in range(100)))
    there, here = scene.node(mtu=1_400), scene.node(mtu=1_400)
    readers = [scene.reader(there, large, topic=f"T{i}") for i in range(20)]
    writers = [scene.writer(here, large, topic=f"T{i}") for i in range(20)]
    for i, writer in enumerate(writers):
        writer.write_samples(numbered(i, 1))
    scene.wait(lambda: [reader.numbers for reader in readers] == [[i] for i in range(20)])
    assert PAYLOAD - 400 < max(sizes(scene, there, here)) <= PAYLOAD


def test_loopback_takes_63_kib(scene: Scene) -> None:
    got = scene.reader(scene.node())
    here = scene.node()
    assert here.message_size == 63 << 10
    writer = scene.writer(here)
    writer.write_samples(numbered(0, 10_000))
    scene.wait(lambda: len(got.numbers) == 10_000)
    assert 60 << 10 < max(sizes(scene, here)) <= 63 << 10


def test_a_larger_mtu_than_loopback_has_is_no_larger_datagram(scene: Scene) -> None:
    assert scene.node(mtu=65_536).message_size == 63 << 10


@pytest.fixture
def ethernet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback, but with the MTU of Ethernet."""
    monkeypatch.setattr(interfaces, "interfaces", lambda: [Interface("eth7", "127.0.0.1", 1_500)])


def test_the_default_is_the_mtu_of_the_interface(
    scene: Scene, ethernet: None, caplog: pytest.LogCaptureFixture
) -> None:
    got = scene.reader(scene.node(interface=None))
    with caplog.at_level(logging.WARNING):
        here = scene.node(interface=None)
    assert here.message_size == 1_472
    assert "mtu" not in caplog.text
    writer = scene.writer(here)
    writer.write_samples(numbered(0, 1_000))
    scene.wait(lambda: len(got.numbers) == 1_000)
    assert 1_372 < max(sizes(scene, here)) <= 1_472


def test_the_narrowest_of_several_interfaces_decides() -> None:
    chosen = [Interface("eth0", "10.0.0.1", 9_000), Interface("eth1", "10.0.1.1", 1_500)]
    assert interfaces.unfragmented(chosen) == 1_472


def test_a_larger_mtu_warns_and_names_the_interface(
    scene: Scene, ethernet: None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert scene.node(interface="eth7", mtu=9_000).message_size == 8_972
    assert "mtu 9000: interface eth7 has an MTU of 1500" in caplog.text


_IN_A_NAMESPACE = """
import logging, subprocess
from tests.net.net_scene import scene_of
from tests.support import domains
from tests.support.numbered_samples import numbered
from tests.support.waiting import PATIENCE
logging.basicConfig(format="%(message)s")
for command in (
    "link set lo mtu 1500", "link set lo up", "link add v0 type veth peer name v1",
    "addr add 10.99.0.1/24 dev v0", "link set v0 up", "link set v1 up",
):
    subprocess.run(["ip", *command.split()], check=True)

def fragments():
    names, values = [line.split() for line in open("/proc/net/snmp") if line.startswith("Ip:")]
    return int(values[names.index("FragCreates")])

for mtu in (None, 9000):
    with scene_of(domains.NET_MTU) as scene:
        got, here = scene.reader(scene.node(interface=None)), scene.node(interface=None, mtu=mtu)
        writer = scene.writer(here)
        writer.write_samples(numbered(0, 2_000))
        assert writer.wait_for_acknowledgments(PATIENCE) == {}
        print(here.sockets.interfaces[0].name, here.message_size, fragments() > 0)
"""


def test_a_real_interface_of_1500_bytes_fragments_nothing() -> None:
    in_namespace = ["unshare", "--net", sys.executable, "-c", _IN_A_NAMESPACE]
    done = subprocess.run(in_namespace, capture_output=True, text=True, env=child_environment())
    if "not permitted" in done.stderr or "Unknown device type" in done.stderr:
        pytest.skip("no network namespaces here")
    assert done.stdout == "v0 1472 False\nv0 8972 True\n", done.stderr
    assert "mtu 9000: interface v0 has an MTU of 1500" in done.stderr


def test_batches_larger_than_a_datagram_warn_once_and_name_both(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    got = scene.reader(scene.node())
    here = scene.node(mtu=1_400)
    with caplog.at_level(logging.WARNING):
        writer = scene.writer(here, batch=replace(BATCH, max_data_bytes=20_000))
        writer.write_samples(numbered(0, 1_000))
        writer.flush()
        scene.wait(lambda: len(got.numbers) == 1_000)
    (record,) = caplog.records
    assert "max_data_bytes 20000 of a batch exceeds mtu" in record.getMessage()
    assert "mtu 1400" in record.getMessage()


@pytest.mark.parametrize(
    "batch",
    [
        BatchPolicy(enable=True, max_data_bytes=1_000),
        BatchPolicy(enable=True, max_data_bytes=INFINITE, max_samples=10),
        BatchPolicy(enable=True, max_data_bytes=20_000, auto_flush_size=1_000),
        BatchPolicy(turbo_mode=True, max_data_bytes=20_000),
        BatchPolicy(max_data_bytes=20_000),
    ],
    ids=["they fit", "unlimited", "flushed before", "turbo mode", "none"],
)
def test_other_batches_do_not_warn(
    scene: Scene, caplog: pytest.LogCaptureFixture, batch: BatchPolicy
) -> None:
    with caplog.at_level(logging.WARNING):
        scene.writer(scene.node(mtu=1_400), readers=0, batch=batch)
    assert caplog.text == ""


# --- what we receive -------------------------------------------------------------------------------------


def test_message_size_max_drops_counts_and_names_the_sender_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    there, here = scene.node(message_size_max=2_000), scene.node()
    got = scene.reader(there)
    writer = scene.writer(here)
    header = b"RTPS\x02\x05\x01\x7e" + here.guid_prefix
    too_large = OutgoingDatagrams([header, bytes(3_000)], there.sockets.default_unicast)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            here.sockets.send([too_large])
        scene.wait(lambda: there.participant.drops[DropReason.MESSAGE_TOO_LARGE] == 3)
        writer.write_samples(numbered(0, 1))
        scene.wait(lambda: got.numbers == [0])
        events = [each for each in there.events() if isinstance(each, MessageTooLarge)]
    assert [each.size for each in events] == [3_020] * 3
    named = [r.getMessage() for r in caplog.records if "message_size_max, 2000" in r.getMessage()]
    assert len(named) == 1
    assert "127.0.0.1" in named[0]
    assert here.guid_prefix.hex() in named[0]


def test_message_size_max_of_an_unmatched_participant_names_its_address(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    there = scene.node(message_size_max=2_000)
    port = there.sockets.metatraffic.getsockname()[1]
    unmatched_peer = scene.node()
    header = b"RTPS\x02\x05\x01\x0f" + bytes(range(12))
    with caplog.at_level(logging.WARNING):
        unmatched_peer.sockets.send(
            [OutgoingDatagrams([header, bytes(3_000)], (Locator("127.0.0.1", port),))]
        )
        scene.wait(lambda: "000102030405060708090a0b" in caplog.text)
    assert "3020-byte message from 127.0.0.1" in caplog.text


@pytest.mark.parametrize("batch", [BatchPolicy(), BATCH], ids=["coalesced", "batches"])
def test_our_writers_send_nothing_that_a_reader_drops(scene: Scene, batch: BatchPolicy) -> None:
    there, here = scene.node(message_size_max=2_000), scene.node()
    got = scene.reader(there)
    writer = scene.writer(here, batch=batch)
    writer.write_samples(numbered(0, 2_000))
    writer.write_samples(numbered(2_000, 1, size=30_000))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: got.numbers == list(range(2_001)))
    assert there.participant.drops[DropReason.MESSAGE_TOO_LARGE] == 0


def test_a_node_is_what_its_config_says() -> None:
    config = NodeConfig(domain=domains.NET_MTU, interface="lo", mtu=1_400)
    node = Node.open(config)
    try:
        assert node.message_size == node.participant.config.message_size == PAYLOAD
    finally:
        node.close()
