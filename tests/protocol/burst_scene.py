"""Two readers of three writers, which receive bursts of datagrams."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import numpy as np

from spark_rtps.transport.errors import DropReason
from spark_rtps.transport.protocol.endpoint_info import WriterInfo
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.receiving.burst_receiver import BurstReceiver
from spark_rtps.transport.protocol.receiving.message_receiver import MessageReceiver
from spark_rtps.transport.protocol.trust import Trust
from spark_rtps.transport.qos import DurabilityKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.samples import Run

LASTING = Qos(reliability=ReliabilityKind.RELIABLE, durability=DurabilityKind.TRANSIENT_LOCAL)
ENTITY = b"\0\0\1\3"
WRITERS = [Guid(bytes((number,)) * 12, ENTITY) for number in (1, 2, 3)]
#: The last of them is best-effort.
RELIABLE = {WRITERS[0]: True, WRITERS[1]: True, WRITERS[2]: False}
SECOND = 1_000_000_000


class End:
    """Two readers, and what they have delivered."""

    def __init__(self, *, sample_size_max: int = 1 << 30, qos: Qos = LASTING) -> None:
        self.readers = [StatefulReader(Guid(b"r" * 12, bytes((0, 0, n, 4))), qos) for n in (2, 3)]
        routes: dict[Guid, list[StatefulReader]] = {}
        for writer in WRITERS:
            routes[writer] = self.readers[: 1 if writer == WRITERS[1] else 2]
            for reader in routes[writer]:
                info = WriterInfo(writer, (), (), RELIABLE[writer], True)
                reader.match_writer(info, now=SECOND)
        for reader in self.readers:
            reader.delivery.sample_size_max = sample_size_max
        self.drops = Counter[DropReason]()
        endpoints: Any = SimpleNamespace(
            routes=routes, other_slices={}, hears_itself=False, hears=lambda prefix: True
        )
        self.receiver = MessageReceiver(b"r" * 12, endpoints, {}, {}, self.drops, trust=Trust.ANY)
        self.bursts = BurstReceiver(self.receiver.router, {}, self.drops)
        #: Called with what each reader took, by its number.
        self.on_drained: Callable[[int, list[Run]], None] = lambda number, runs: None
        #: By reader and writer: between writers the order is nobody's.
        self.delivered: dict[tuple[int, Guid], list[tuple[int, int, bytes]]] = defaultdict(list)

    def take_in(self, datagrams: list[tuple[bytes, str]], *, now: int) -> None:
        """A burst of datagrams."""
        buffer, spans = bytearray(), []
        for datagram, source in datagrams:
            spans.append((len(buffer), len(buffer) + len(datagram), source))
            buffer += datagram + bytes(-len(datagram) % 8)
        self.take_in_at(np.frombuffer(buffer, np.uint8), spans, now=now)

    def take_in_at(self, data: Any, spans: list[tuple[int, int, str]], *, now: int) -> None:
        for span in self.bursts.receive_runs(data, spans, now=now):
            if span is not None:
                self.receiver.receive(data, memoryview(data), *span, now=now)
        for number, reader in enumerate(self.readers):
            runs = reader.take_runs()
            for run in runs:
                stamps, numbers, samples = run.timestamps(), run.sequence_numbers(), run.samples()
                self.delivered[number, run.writer] += [
                    (int(numbers[i]), int(stamps[i]), bytes(samples.payload(i))) for i in range(run.count)
                ]
            self.on_drained(number, runs)

    def state(self) -> Any:
        """All that is to be the same, however it came."""
        proxies = [
            (
                proxy.expected,
                proxy.announced,
                proxy.stream.datagram,
                {sn: (list(each.received), each.nbytes) for sn, each in proxy.fragments.items()},
                list(proxy.held.covered.within(1, 1 << 20)),
            )
            for reader in self.readers
            for proxy in reader.writers.values()
        ]
        return proxies, [asdict(reader.counters) for reader in self.readers], self.drops, self.delivered
