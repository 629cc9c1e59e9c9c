"""Nodes on loopback whose readers share a multicast group: one datagram for all, and the kernel keeps others out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.policies import BatchPolicy, FlowControlPolicy, PublicationPolicy
from spark_rtps.transport.structure import default_group
from tests.net.net_scene import RELIABLE
from tests.support import domains
from tests.support.numbered_samples import numbered
from tests.support.paced_reader import PacedReader
from tests.support.waiting import PATIENCE, wait_until

DOMAIN = domains.NET_MULTICAST
GROUP = default_group(DOMAIN)
COUNT = 5_000


class Scene:
    def __init__(self) -> None:
        self._cleanup = contextlib.ExitStack()

    def close(self) -> None:
        self._cleanup.close()

    def node(self, **config: Any) -> Node:
        node = Node.open(NodeConfig(domain=DOMAIN, interface="lo", **config)).start()
        self._cleanup.callback(node.close)
        return node

    def reader(self, topic: str = "t", group: str = "239.255.0.1") -> PacedReader:
        return PacedReader(
            self.node(multicast_receive=group),
            topic,
            "Type",
            room=64 << 20,
            number=lambda payload: int.from_bytes(payload[8:12], "little"),
        )

    def writer(self, topic: str = "t", **policy: Any) -> BlockingWriter:
        spec = WriterSpec(topic, "Type", RELIABLE, policy=PublicationPolicy(**policy))
        return self.node().create_writer(spec)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with contextlib.closing(Scene()) as scene:
        yield scene


def is_ready(writer: BlockingWriter, readers: int, *, by_group: int) -> bool:
    with writer.node.lock:
        proxies = list(writer.writer.readers.values())
        reached = sum(proxy.is_ready and bool(proxy.info.multicast) for proxy in proxies)
        return len(proxies) == readers and reached == by_group and all(p.is_ready for p in proxies)


@pytest.mark.parametrize(
    "policy",
    [{}, {"batch": BatchPolicy(enable=True)}, {"flow_control": FlowControlPolicy(term_length=4 << 20)}],
    ids=["unbatched", "batched", "log"],
)
def test_datagrams_do_not_grow_with_readers(scene: Scene, policy: dict[str, Any]) -> None:
    sent = []
    readers = [scene.reader() for _ in range(2)]
    writer = scene.writer(**policy)
    for count in (2, 6):
        readers += [scene.reader() for _ in range(count - len(readers))]
        wait_until(lambda count=count: is_ready(writer, count, by_group=count))  # type: ignore[misc]
        received = [len(reader.numbers) for reader in readers]
        before = writer.node.sockets.sent  # type: ignore[attr-defined]
        for first in range(0, COUNT, 500):
            writer.write_samples(numbered(first, 500), timeout=PATIENCE)
        assert writer.wait_for_acknowledgments(PATIENCE) == {}
        sent.append(writer.node.sockets.sent - before)  # type: ignore[attr-defined]
        for reader, had in zip(readers, received, strict=True):
            wait_until(lambda reader=reader, had=had: len(reader.numbers) >= had + COUNT)  # type: ignore[misc]
            assert reader.numbers[had:] == list(range(COUNT))
        assert writer.writer.channel == "multicast"
    assert sent[1] < 2 * sent[0]


def test_a_reader_elsewhere_is_sent_a_copy_of_its_own(scene: Scene) -> None:
    readers = [scene.reader(), scene.reader(), scene.reader(group="off")]
    writer = scene.writer()
    wait_until(lambda: is_ready(writer, 3, by_group=2))
    writer.write_samples(numbered(0, COUNT), timeout=PATIENCE)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    for reader in readers:
        wait_until(lambda reader=reader: len(reader.numbers) >= COUNT)  # type: ignore[misc]
        assert reader.numbers == list(range(COUNT))
        assert reader.reader.counters.duplicate_samples == 0


def test_the_kernel_drops_what_others_write(scene: Scene) -> None:
    """A reader of another topic hears nothing of it, however much is written."""
    for _ in range(2):
        scene.reader()
    other = scene.reader("other")
    writer = scene.writer()
    wait_until(lambda: is_ready(writer, 2, by_group=2))
    with other.node.lock:  # it receives nothing meanwhile
        writer.write_samples(numbered(0, 1_000), timeout=PATIENCE)
        assert writer.wait_for_acknowledgments(PATIENCE) == {}
        group = other.node.sockets.receivers[-1]
        assert group.getsockname() == (GROUP.address, GROUP.port)
        assert other.node.sockets.drain(group) == []
    mine = scene.writer("other")
    wait_until(lambda: is_ready(mine, 1, by_group=1))
    with other.node.lock:
        assert mine.guid.prefix in other.node.participant.endpoints.received_prefixes


def test_a_writer_alone_joins_no_group(scene: Scene) -> None:
    node = scene.node(multicast_receive="239.255.0.1")
    node.create_writer(WriterSpec("t", "Type", RELIABLE))
    assert len(node.sockets.receivers) == 3
