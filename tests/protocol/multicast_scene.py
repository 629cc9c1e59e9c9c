"""A writer whose samples go to groups, and its readers on a simulated network, in virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.participant import RtpsParticipant
from spark_rtps.transport.protocol.policies import PublicationPolicy
from spark_rtps.transport.protocol.reading.reader import StatefulReader
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
        self.hosts: dict[Guid, RtpsParticipant] = {}
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
            taken = self.writer.write_samples(left, timestamp=0, now=self.network.now)
            left = left.take_range(taken, left.count)
            if left.count:
                self.network.run(MILLISECOND, until=self._take)
        self.written += count

    def _take(self) -> bool:
        for guid, reader in self.readers.items():
            for run in reader.take_runs():
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
