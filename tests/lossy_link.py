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

import numpy as np
from batch_writer import BatchWriter

from spark_rtps.transport.errors import DecodeError
from spark_rtps.transport.protocol.outgoing import Outgoing
from spark_rtps.transport.protocol.packing import pack
from spark_rtps.transport.protocol.reading.reader import StatefulReader, WriterInfo
from spark_rtps.transport.protocol.writing.writer import ReaderInfo, StatefulWriter
from spark_rtps.transport.structure import ENTITYID_UNKNOWN, Guid, Locator
from spark_rtps.transport.wire.batch import DATA_BATCH, scan_batch
from spark_rtps.transport.wire.message import Header, iter_submessages
from spark_rtps.transport.wire.runs import scan
from spark_rtps.transport.wire.samples import NO_TIMESTAMP, Run
from spark_rtps.transport.wire.submessages import (
    AckNack,
    AckNackBatch,
    Data,
    DataFrag,
    Gap,
    Heartbeat,
    HeartbeatBatch,
    HeartbeatFrag,
    InfoDestination,
    InfoTimestamp,
    NackFrag,
    decode_submessage,
)

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
    sent: Counter[str] = field(default_factory=Counter)
    errors: list[DecodeError] = field(default_factory=list)

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
        """Take a message apart as a participant does."""
        view = memoryview(data)[:size]
        source = Header.decode(view).prefix
        timestamp, for_us, skip_to = NO_TIMESTAMP, True, 0
        for kind, flags, start, stop in iter_submessages(view):
            if start < skip_to:
                continue
            try:
                if kind == Data.KIND:
                    if for_us:
                        runs, skip_to, timestamp = scan(data, start - 4, size, source, timestamp)
                        for run in runs:
                            for reader in self._addressed(run.writer, run.reader_id):
                                reader.on_run(run, now=now)
                    continue
                if kind == DATA_BATCH:
                    if for_us:
                        batch = scan_batch(data, start - 4, stop, source, timestamp)
                        for reader in self._addressed(batch.writer, batch.reader_id):
                            reader.on_batch(batch, now=now)
                    continue
                submessage = decode_submessage(kind, flags, view[start:stop])
                if isinstance(submessage, InfoTimestamp):
                    timestamp = NO_TIMESTAMP if submessage.timestamp is None else submessage.timestamp
                elif isinstance(submessage, InfoDestination):
                    for_us = submessage.prefix == self.prefix
                elif for_us:
                    self._route(source, submessage, timestamp, now)
            except DecodeError as error:
                self.errors.append(error)
        for reader in self.readers:
            self.taken.setdefault(reader.guid, []).extend(run.copy() for run in reader.take())

    def _addressed(self, writer: Guid, reader_id: bytes) -> list[StatefulReader]:
        return [
            reader
            for reader in self.readers
            if writer in reader.writers and reader_id in (ENTITYID_UNKNOWN, reader.guid.entity)
        ]

    def _route(self, source: bytes, submessage: object, timestamp: int, now: int) -> None:
        if isinstance(submessage, AckNack | AckNackBatch | NackFrag):
            reader = Guid(source, submessage.reader_id)
            for writer in self.writers:
                if writer.guid.entity == submessage.writer_id:
                    if isinstance(submessage, AckNack):
                        writer.on_acknack(reader, submessage, now=now)
                    elif isinstance(submessage, AckNackBatch):
                        writer.on_acknack_batch(reader, submessage, now=now)
                    else:
                        writer.on_nack_frag(reader, submessage, now=now)
            return
        if not isinstance(submessage, DataFrag | Heartbeat | HeartbeatBatch | HeartbeatFrag | Gap):
            return
        guid = Guid(source, submessage.writer_id)
        for reader in self._addressed(guid, submessage.reader_id):
            if isinstance(submessage, DataFrag):
                reader.on_data_frag(guid, submessage, timestamp, now=now)
            elif isinstance(submessage, Heartbeat):
                reader.on_heartbeat(guid, submessage, now=now)
            elif isinstance(submessage, HeartbeatBatch):
                reader.on_heartbeat_batch(guid, submessage, now=now)
            elif isinstance(submessage, HeartbeatFrag):
                reader.on_heartbeat_frag(guid, submessage, now=now)
            else:
                reader.on_gap(guid, submessage, now=now)


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
