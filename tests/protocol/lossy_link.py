"""A network in virtual time that loses, repeats, reorders and delays, by a seed.

Datagrams are the real bytes. Every node receives into one buffer that is overwritten after each datagram, as a
socket's would be: whoever keeps a view of it too long is found out.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np

from spark_rtps.transport.errors import DropReason
from spark_rtps.transport.protocol.endpoint_info import ReaderInfo, WriterInfo
from spark_rtps.transport.protocol.outgoing import Outgoing
from spark_rtps.transport.protocol.participant.packing import pack
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.receiving.message_receiver import MessageReceiver
from spark_rtps.transport.protocol.trust import Trust
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.structure import Guid, Locator
from spark_rtps.transport.wire.samples import Run
from tests.protocol.batch_writer import BatchWriter

MS = 1_000_000
SECOND = 1_000_000_000


@dataclass(slots=True)
class Node:
    """Endpoints behind one address, and what its readers took."""

    prefix: bytes
    locator: Locator
    writers: list[StatefulWriter | BatchWriter] = field(default_factory=list)
    readers: list[StatefulReader] = field(default_factory=list)
    taken: dict[Guid, list[Run]] = field(default_factory=dict)
    drops: Counter[DropReason] = field(default_factory=Counter)

    def outgoing(self) -> Iterable[Outgoing]:
        for endpoint in (*self.writers, *self.readers):
            yield from endpoint.outgoing()

    def timers(self) -> list[int]:
        endpoints = (*self.writers, *self.readers)
        return [at for endpoint in endpoints if (at := endpoint.get_timer()) is not None]

    def handle_timer(self, now: int) -> None:
        for endpoint in (*self.writers, *self.readers):
            at = endpoint.get_timer()
            if at is not None and at <= now:
                endpoint.handle_timer(now)

    def receive(self, data: np.ndarray, size: int, now: int) -> None:
        endpoints: object = SimpleNamespace(
            routes=self._routes(), other_slices={}, hears_itself=True, hears=lambda prefix: True
        )
        writers = {writer.guid.entity: writer for writer in self.writers}
        receiver = MessageReceiver(self.prefix, endpoints, writers, {}, self.drops, trust=Trust.ANY)
        receiver.receive(data, memoryview(data), 0, size, "", now=now)
        for reader in self.readers:
            self.taken.setdefault(reader.guid, []).extend(run.copy() for run in reader.take_runs())

    def _routes(self) -> dict[Guid, list[StatefulReader]]:
        routes: dict[Guid, list[StatefulReader]] = {}
        for reader in self.readers:
            for writer in reader.writers:
                routes.setdefault(writer, []).append(reader)
        return routes


class LossyLink:
    """Nodes and the datagrams between them. ``loss`` and ``duplicate`` are probabilities, ``delay`` in ns."""

    def __init__(
        self,
        seed: int = 0,
        *,
        loss: float = 0.0,
        duplicate: float = 0.0,
        delay: tuple[int, int] = (50_000, 50_000),
    ) -> None:
        self.random = random.Random(seed)
        self.loss = loss
        self.duplicate = duplicate
        self.delay = delay
        self.now = SECOND
        self.nodes: list[Node] = []
        self.datagrams = 0
        #: Says of each datagram whether it may pass: tests lose chosen ones.
        self.filter: Callable[[Node, bytes], bool] = lambda sender, message: True
        self._queue: list[tuple[int, int, Node, bytes]] = []
        self._order = itertools.count()
        self._buffer = np.zeros(1 << 17, np.uint8)

    def node(self) -> Node:
        number = len(self.nodes) + 1
        node = Node(bytes([1, 0x7E]) + number.to_bytes(10, "big"), Locator(f"10.0.0.{number}", 7411))
        self.nodes.append(node)
        return node

    def match(self, writer: StatefulWriter | BatchWriter, reader: StatefulReader, *, only: str = "") -> None:
        """Let writer and reader discover each other, or only one of them the other (the other is later)."""
        at = {node.prefix: node.locator for node in self.nodes}
        if only != "writer":
            qos = writer.qos
            reader.match_writer(
                WriterInfo(
                    writer.guid, (at[writer.guid.prefix],), (), qos.is_reliable, qos.is_transient_local
                ),
                now=self.now,
            )
        if only != "reader":
            qos = reader.qos
            writer.match_reader(
                ReaderInfo(
                    reader.guid, (at[reader.guid.prefix],), (), qos.is_reliable, qos.is_transient_local
                ),
                now=self.now,
            )

    def flush(self) -> None:
        """Put on the wire what the endpoints want to send now."""
        for node in self.nodes:
            for datagram in pack(node.prefix, node.outgoing()):
                for message in datagram.messages():
                    assert len(message) <= 65_507
                    self.datagrams += 1
                    for target in self.nodes:
                        if target.locator in datagram.destinations:
                            self._transmit(node, target, message)

    def _transmit(self, sender: Node, target: Node, message: bytes) -> None:
        if not self.filter(sender, message):
            return
        copies = 2 if self.random.random() < self.duplicate else 1
        for _ in range(copies):
            if self.random.random() >= self.loss:
                at = self.now + self.random.randint(*self.delay)
                heapq.heappush(self._queue, (at, next(self._order), target, message))

    def step(self, until: int) -> bool:
        """The next thing that happens before ``until``; False when nothing does."""
        self.flush()
        timers = [at for node in self.nodes for at in node.timers()]
        at = min([self._queue[0][0]] if self._queue else [], default=until)
        at = min([at, *timers])
        if at >= until and (not self._queue or self._queue[0][0] >= until):
            self.now = max(self.now, until)
            return False
        self.now = max(self.now, at)
        while self._queue and self._queue[0][0] <= self.now:
            _, _, target, message = heapq.heappop(self._queue)
            self._buffer[: len(message)] = np.frombuffer(message, np.uint8)
            target.receive(self._buffer, len(message), self.now)
            self._buffer[: len(message)] = 0xEE
        for node in self.nodes:
            node.handle_timer(self.now)
        return True

    def run(
        self,
        duration: int,
        *,
        each: Callable[[], None] | None = None,
        until: Callable[[], bool] | None = None,
    ) -> None:
        """Let ``duration`` ns pass, or less if ``until`` comes true; ``each`` is called between events."""
        stop = self.now + duration
        while True:
            if each is not None:
                each()
            if until is not None and until():
                return
            if not self.step(stop):
                return
