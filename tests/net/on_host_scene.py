"""Readers and writers on one host, and what they are waited for."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.policies import FlowControlPolicy
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, PresentationScope, Qos, ReliabilityKind
from tests.net.net_scene import RELIABLE, Received, Scene
from tests.support.numbered_samples import numbered
from tests.support.waiting import PATIENCE

TERM = 1 << 20
IPC = FlowControlPolicy(ipc=True, term_length=TERM)
LASTING = Qos(
    reliability=ReliabilityKind.RELIABLE,
    durability=DurabilityKind.TRANSIENT_LOCAL,
    history=HistoryKind.KEEP_ALL,
)
COHERENT = Qos(
    reliability=ReliabilityKind.RELIABLE,
    history=HistoryKind.KEEP_ALL,
    presentation_scope=PresentationScope.TOPIC,
    coherent_access=True,
)


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.publication"))


def ipc_writer(scene: Scene, node: Node, qos: Qos = RELIABLE, **policy: Any) -> BlockingWriter:
    """A writer whose matched readers on this host read its log."""
    given = {"flow_control": IPC, **policy}
    writer = scene.writer(node, qos, **given)
    scene.wait(lambda: readers_on_host(writer) == len(writer.writer.readers))
    return writer


def pass_the_first_window(scene: Scene, writer: BlockingWriter, got: Received) -> None:
    """Write as much as the reader allowed to be sent by UDP before it found the log."""
    written = 0
    while written * 1_000 < 5 << 20:
        writer.write_samples(numbered(written, 100, size=1_000), timeout=PATIENCE)
        written += 100
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: got.numbers == list(range(written)))


def write_until_it_has(more: int, got: Received, writer: BlockingWriter) -> None:
    """Write on until a reader has so many more, and the newest: one that does not get to run falls out again."""
    enough, deadline = len(got.numbers) + more, time.monotonic() + PATIENCE
    while True:
        assert time.monotonic() < deadline, "it does not come back"
        newest = writer.writer.last_sn + 9
        writer.write_samples(numbered(newest - 9, 10, size=1_000), timeout=PATIENCE)
        if len(got.numbers) + 10 < enough:
            time.sleep(0.002)
            continue
        soon = time.monotonic() + 1.0
        while time.monotonic() < soon:
            if got.numbers[-1] == newest and len(got.numbers) >= enough:
                return
            time.sleep(0.005)


def readers_on_host(writer: BlockingWriter) -> int:
    node = writer.node
    node.wake()
    with node.lock:
        return sum(proxy.is_on_host for proxy in writer.writer.readers.values())


def hold(received: Received, node: Node, room: int) -> None:
    """Give the reader so much room in all."""
    with node.lock:
        received.left = room
        node.offer_room(received.reader)
    node.wake()
