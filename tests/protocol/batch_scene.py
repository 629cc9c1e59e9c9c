"""A writer that batches in the virtual network, and readers around it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.participant import RtpsParticipant
from spark_rtps.transport.protocol.policies import (
    READER_POLICY,
    BatchPolicy,
    PublicationPolicy,
    ReaderPolicy,
    WriterPolicy,
)
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.wire.message import iter_submessages
from spark_rtps.transport.wire.samples import Run, Samples
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
LASTING = replace(RELIABLE, durability=DurabilityKind.TRANSIENT_LOCAL)
BATCH = BatchPolicy(enable=True, max_data_bytes=1 << 16)
DATA, DATA_FRAG, DATA_BATCH, COMPRESSED = 0x15, 0x16, 0x18, 0xB0
ACKNACK, ACKNACK_BATCH, HEARTBEAT, HEARTBEAT_BATCH, GAP = 0x06, 0x17, 0x07, 0x19, 0x08


def samples(first: int, count: int, size: int = 12) -> Samples:
    rows = np.zeros((count, size + 4), np.uint8)
    rows[:, 1] = 1
    rows[:, 4:8] = np.arange(first, first + count, dtype="<u4").view(np.uint8).reshape(count, 4)
    return Samples.uniform(rows.reshape(-1), count, size + 4)


def numbers(runs: Iterable[Run]) -> list[int]:
    found: list[int] = []
    for run in runs:
        payloads = run.samples()
        found += [int.from_bytes(payloads.payload(i)[4:8], "little") for i in range(run.count)]
    return found


class Scene:
    """A writer's participant, and readers each with one of its own."""

    def __init__(
        self, batch: BatchPolicy = BATCH, qos: Qos = RELIABLE, *, keyed: bool = False, **network: object
    ) -> None:
        more = network.pop("config", {})
        policy = network.pop("writer_policy", WriterPolicy())
        self.network = VirtualNetwork(**network)
        self.keyed = keyed
        self.one = self.network.add(**more)
        self.writer: StatefulWriter = self.one.create_writer(
            WriterSpec("t", "T", qos, keyed=keyed, policy=PublicationPolicy(batch=batch, writer=policy)),
            now=self.network.now,
        )
        self.readers: list[tuple[RtpsParticipant, StatefulReader]] = []
        self.taken: dict[int, list[Run]] = {}

    def join(
        self,
        qos: Qos = RELIABLE,
        *,
        ours: bool = True,
        policy: ReaderPolicy = READER_POLICY,
        **config: object,
    ) -> int:
        """A reader; not ``ours`` is one that says nothing of batches. Returns its number."""
        participant = self.network.add(**config)
        reader = participant.create_reader(
            ReaderSpec("t", "T", qos, keyed=self.keyed, policy=policy), now=self.network.now
        )
        number = len(self.readers)
        self.readers.append((participant, reader))
        self.taken[number] = []
        if not ours:
            self.foreign(participant)
        self.run(
            until=lambda: reader.guid in self.writer.readers and self.writer.readers[reader.guid].is_ready
        )
        return number

    def foreign(self, participant: RtpsParticipant) -> None:
        local = participant.endpoints._locals[self.readers[-1][1].guid]
        local.data = replace(local.data, abilities=type(local.data.abilities)())
        participant._sedp.announce(local.data, now=self.network.now)
        self.run(SECOND // 2)
        for info in list(self.writer.readers.values()):
            if info.guid == self.readers[-1][1].guid:
                self.writer.match_reader(
                    replace(info.info, batches=False, codecs=frozenset()), now=self.network.now
                )

    def run(self, duration: int = 10 * SECOND, until: Callable[[], bool] | None = None) -> None:
        end = self.network.now + duration
        while self.network.now < end:
            self.network.run(MILLISECOND)
            for number, (_, reader) in enumerate(self.readers):
                self.taken[number] += [run.copy() for run in reader.take_runs()]
            if until is not None and until():
                return
        assert until is None, "waited in vain"

    def write(self, what: Samples, **how: object) -> None:
        taken = 0
        while taken < what.count:
            rest = what.take_range(taken, what.count)
            hashes = how.get("key_hashes")
            more = dict(how, key_hashes=hashes[taken:]) if hashes is not None else how
            n = self.writer.write_samples(rest, timestamp=self.network.now, now=self.network.now, **more)
            taken += n
            if not n:
                self.run(MILLISECOND)

    def settle(self) -> None:
        self.writer.flush_batch(now=self.network.now)
        self.run(60 * SECOND, until=lambda: not self.writer.unacknowledged())

    def kinds(self, sender: RtpsParticipant | None = None) -> Counter[int]:
        """Submessages of user traffic sent since ``network.log`` was set."""
        found: Counter[int] = Counter()
        host = self.network.address_of(sender or self.one)
        for source, _, datagram in self.network.log or ():
            if source == host:
                view = memoryview(datagram)
                for kind, _, start, _ in iter_submessages(view):
                    entities = bytes(view[start : start + 12])
                    if kind >= 0x80 or self.writer.guid.entity in (entities[4:8], entities[8:12]):
                        found[kind] += 1
        return found
