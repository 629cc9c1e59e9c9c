"""Nodes on loopback: what they hand to their sockets, in which thread, and what their readers get."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from spark_rtps.transport.net import blocking_writer as blocking_writer_module
from spark_rtps.transport.net import duty_cycle, event_queue, publish_mode, receive_turns
from spark_rtps.transport.net import node as node_module
from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.policies import READER_POLICY, PublicationPolicy, ReaderPolicy
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import INFINITE
from spark_rtps.transport.wire.samples import Run
from tests.support.numbered_samples import numbers_of
from tests.support.waiting import PATIENCE

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
BEST_EFFORT = Qos()
DATA, DATA_FRAG, DATA_BATCH, COMPRESSED = 0x15, 0x16, 0x18, 0xB0


class Clock:
    """Stands for the module ``time``; may be held, and moved on."""

    def __init__(self) -> None:
        self._ahead = 0
        self._held_at: int | None = None

    def monotonic_ns(self) -> int:
        return (time.monotonic_ns() if self._held_at is None else self._held_at) + self._ahead

    def monotonic(self) -> float:
        return self.monotonic_ns() / 1e9

    def hold(self) -> None:
        self._held_at = time.monotonic_ns()

    def advance(self, nanoseconds: int) -> None:
        self._ahead += nanoseconds

    time_ns = staticmethod(time.time_ns)
    sleep = staticmethod(time.sleep)


@dataclass(frozen=True)
class Sent:
    """A datagram as it was handed to the socket."""

    thread: threading.Thread
    data: bytes

    def submessages(self) -> list[tuple[int, bytes]]:
        """Kind and bytes of each."""
        found, at = [], 20
        while at < len(self.data):
            kind, size = self.data[at], int.from_bytes(self.data[at + 2 : at + 4], "little")
            end = at + 4 + size if size or kind in (0x01, 0x09) else len(self.data)
            found.append((kind, self.data[at:end]))
            at = end
        return found

    def has_samples_of(self, writer: BlockingWriter) -> bool:
        entity = writer.guid.entity
        return any(
            kind in (DATA, DATA_FRAG, DATA_BATCH) and body[12:16] == entity
            for kind, body in self.submessages()
        )


@dataclass
class Received:
    """What a reader got: (source, number) of each sample, in order."""

    happened: threading.Condition
    samples: list[tuple[int, int]] = field(default_factory=list)
    #: Bytes of runs that it still takes.
    left: int = INFINITE
    reader: StatefulReader = field(init=False)

    def room(self) -> int:
        return self.left

    def deliver(self, reader: StatefulReader, runs: list[Run]) -> None:
        with self.happened:
            for run in runs:
                self.samples += numbers_of(run.samples())
                if self.left < INFINITE:
                    self.left -= run.nbytes
            self.happened.notify_all()

    def of(self, source: int) -> list[int]:
        return [number for each, number in self.samples if each == source]

    @property
    def numbers(self) -> list[int]:
        return [number for _, number in self.samples]


class Scene:
    """Nodes of one domain; everything is awaited by one condition variable."""

    def __init__(self, domain: int) -> None:
        self.domain = domain
        self.happened = threading.Condition()
        self.sent: dict[Node, list[Sent]] = {}
        self._received: dict[Node, list[Received]] = {}
        self._cleanup = contextlib.ExitStack()

    def node(self, **config: Any) -> Node:
        given = {"domain": self.domain, "interface": "lo", "lease_duration": 80_000_000_000_000}
        node = Node.open(NodeConfig(**(given | config)))
        self._cleanup.callback(node.close)
        sent = self.sent[node] = []
        self._received[node] = []
        send = node.sockets.send

        def record(datagrams: Any) -> int:
            datagrams = list(datagrams)
            thread = threading.current_thread()
            with self.happened:
                sent.extend(Sent(thread, message) for d in datagrams for message in d.messages())
                self.happened.notify_all()
            return send(datagrams)

        node.sockets.send = record  # type: ignore[method-assign]
        return node.start()

    def reader(
        self,
        node: Node,
        qos: Qos = RELIABLE,
        *,
        topic: str = "T",
        keyed: bool = False,
        policy: ReaderPolicy = READER_POLICY,
    ) -> Received:
        with node.lock:
            received = Received(self.happened)
            spec = ReaderSpec(topic, "Type", qos, keyed=keyed, policy=policy)
            received.reader = node.create_reader(spec, received)
            self._received[node].append(received)
        return received

    def writer(
        self,
        node: Node,
        qos: Qos = RELIABLE,
        *,
        topic: str = "T",
        keyed: bool = False,
        readers: int = 1,
        **policy: Any,
    ) -> BlockingWriter:
        """A writer that is matched with so many readers, all of them ready."""
        writer = node.create_writer(
            WriterSpec(topic, "Type", qos, keyed=keyed, policy=PublicationPolicy(**policy))
        )
        self.wait(lambda: self._are_ready(node, writer, readers))
        return writer

    def samples_sent(self, writer: BlockingWriter) -> list[Sent]:
        """Datagrams with samples of this writer."""
        node = writer.node
        assert isinstance(node, Node)
        with self.happened:
            return [each for each in self.sent[node] if each.has_samples_of(writer)]

    def wait(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not until():  # without the condition's lock: it may want a node's
            assert time.monotonic() < deadline, "it did not happen"
            with self.happened:
                self.happened.wait(0.02)

    def close(self) -> None:
        self._cleanup.close()

    def _are_ready(self, node: Node, writer: BlockingWriter, count: int) -> bool:
        with node.lock:
            proxies = list(writer.writer.readers.values())
        readers = [each.reader for received in self._received.values() for each in received]
        matched = sum(writer.guid in reader.writers for reader in readers)
        return len(proxies) >= count <= matched and all(proxy.is_ready for proxy in proxies)


@contextlib.contextmanager
def scene_of(domain: int) -> Iterator[Scene]:
    scene = Scene(domain)
    try:
        yield scene
    finally:
        scene.close()


def clock_for(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock for the nodes made from now on."""
    clock = Clock()
    modules = (node_module, duty_cycle, event_queue, receive_turns, blocking_writer_module, publish_mode)
    for module in modules:
        monkeypatch.setattr(module, "time", clock)
    return clock


class Faulty:
    """A socket that cannot send some datagrams."""

    def __init__(self, sender: Any, *, ports: set[int], error: int = errno.ENETUNREACH) -> None:
        self.sender, self.ports, self.error = sender, ports, error
        self.refused = 0

    def sendmsg(self, buffers: Any, control: Any, flags: int, address: tuple[str, int]) -> int:
        if address[1] in self.ports:
            self.refused += 1
            raise OSError(self.error, os.strerror(self.error))
        return self.sender.sendmsg(buffers, control, flags, address)  # type: ignore[no-any-return]


def cut_off(node: Node, *others: Node, error: int = errno.ENETUNREACH) -> Faulty:
    """From now on nothing for their readers and writers can be sent."""
    ports = {other.sockets.default_unicast[0].port for other in others}
    faulty = Faulty(node.sockets._senders[0], ports=ports, error=error)
    with node.lock:
        node.sockets._senders = [faulty]  # type: ignore[list-item]
    return faulty
