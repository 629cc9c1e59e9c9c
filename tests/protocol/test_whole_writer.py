"""A whole writer, to which anything is done in any order, while readers come, go and stall: what do they get?

Participants on a network that loses, repeats and reorders, in virtual time. The oracle: no reader gets what nobody
wrote, twice, out of order or changed; one that stays gets all that is written from when it is ready on, but for what
was aborted or has outlived its LIFESPAN; and in the end nobody waits.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from spark_rtps.transport.errors import CoherentSetError
from spark_rtps.transport.log.publication_log import PublicationLog
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.participant import RtpsParticipant
from spark_rtps.transport.protocol.policies import (
    BatchPolicy,
    BatchWire,
    FlowControlPolicy,
    PublicationPolicy,
    WriterPolicy,
)
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.intake import SampleClaim
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import INFINITE
from spark_rtps.transport.wire.samples import DISPOSED, KEY_ONLY, Samples
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork

WALL = 1_700_000_000 * SECOND
#: A room of this size takes any datagram.
SMALL = 80_000


@dataclass
class Written:
    """One sample."""

    size: int
    flags: int
    stamp: int
    aborted: bool = False


@dataclass
class Got:
    """A reader, its host, and what it got: by its sequence number, the number of each sample."""

    host: RtpsParticipant
    reader: StatefulReader
    room: int
    numbers: list[int] = field(default_factory=list)
    #: The first sample that it has to get, once the writer knows that it is ready.
    first: int | None = None
    stalls_until: int = 0


def payload(number: int, size: int) -> bytes:
    return b"\0\1\0\0" + number.to_bytes(8, "little") + bytes([number % 251]) * (size - 12)


class Run:
    """One writer and what is done to it, by a seed."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        pick = rng.choice
        self.network = VirtualNetwork(
            seed=seed,
            loss=pick((0.0, 0.05, 0.1)),
            duplicates=pick((0.0, 0.1)),
            jitter=pick((0, 2 * MILLISECOND, 20 * MILLISECOND)),
            bursts=rng.random() < 0.5,
        )
        self.keyed, self.lifespan = rng.random() < 0.5, pick((INFINITE, INFINITE, SECOND))
        self.with_sets, self.with_claims = rng.random() < 0.5, rng.random() < 0.5
        durability = pick((DurabilityKind.VOLATILE, DurabilityKind.TRANSIENT_LOCAL))
        self.qos = Qos(
            reliability=ReliabilityKind.RELIABLE,
            history=HistoryKind.KEEP_ALL,
            durability=durability,
            lifespan=self.lifespan,
        )
        batch = BatchPolicy()
        if rng.random() < 0.5:
            wire = pick((BatchWire.AUTO, BatchWire.DATA))
            batch = BatchPolicy(
                enable=True, max_samples=pick((3, 10)), max_flush_delay=MILLISECOND, wire=wire
            )
        term = pick((1 << 16, 1 << 20))
        policy = PublicationPolicy(
            writer=replace(WriterPolicy(), send_window_bytes=pick((0, 8_000))),
            batch=batch,
            flow_control=FlowControlPolicy(term_length=term),
        )
        self.writer = self.network.add().create_writer(
            WriterSpec("t", "T", self.qos, keyed=self.keyed, policy=policy),
            now=self.network.now,
            log=PublicationLog.create(term, zeroes=False) if self.with_claims else None,
        )
        self.readers: list[Got] = []
        self.written: list[Written] = []
        self.claims: list[tuple[SampleClaim, int]] = []
        self.in_set: list[int] = []

    def join(self) -> None:
        host = self.network.add()
        qos = replace(self.qos, lifespan=INFINITE)
        reader = host.create_reader(ReaderSpec("t", "T", qos, keyed=self.keyed), now=self.network.now)
        self.readers.append(Got(host, reader, self.rng.choice((INFINITE, SMALL))))
        reader.window = self.readers[-1].room

    def leave(self) -> None:
        gone = self.readers.pop(self.rng.randrange(len(self.readers)))
        gone.host.delete_endpoint(gone.reader.guid, self.network.now)

    def note_ready(self) -> None:
        for got in self.readers:
            proxy = self.writer.readers.get(got.reader.guid)
            if got.first is None and proxy is not None and proxy.is_ready:
                got.first = 0 if self.qos.is_transient_local else len(self.written)

    def run(self, duration: int) -> None:
        self.network.run(duration)
        for got in self.readers:
            while got.stalls_until <= self.network.now and (runs := got.reader.take_runs()):
                for run in runs:
                    stamps, flags = run.timestamps().tolist(), run.sample_flags().tolist()
                    for i in range(run.count):
                        self.check(got, bytes(run.samples().payload(i)), stamps[i], flags[i])
                got.reader.window = got.room
        self.note_ready()

    def check(self, got: Got, data: bytes, stamp: int, flags: int) -> None:
        number = int.from_bytes(data[4:12], "little")
        written = self.written[number]
        assert data == payload(number, written.size)
        assert flags & DISPOSED == written.flags & DISPOSED
        assert self.writer.batch.enable or stamp == written.stamp  # a batch has one timestamp
        assert not got.numbers or number > got.numbers[-1]
        got.numbers.append(number)

    def write(self) -> None:
        rng, now = self.rng, self.network.now
        count, size = rng.choice((1, 1, 3, 20)), rng.choice((12, 16, 64, 400))
        flags = rng.choice((0, 0, 0, DISPOSED | KEY_ONLY)) if self.keyed else 0
        first = len(self.written)
        data = b"".join(payload(first + i, size) for i in range(count))
        samples = Samples.uniform(np.frombuffer(data, np.uint8), count, size)
        hashes = np.full((count, 16), rng.randrange(5), np.uint8) if self.keyed else None
        try:
            taken = self.writer.write_samples(
                samples, timestamp=WALL + now, now=now, flags=flags, key_hashes=hashes
            )
        except CoherentSetError:
            taken = 0
        if self.writer.state.set_begun:
            self.in_set += range(first, first + taken)
        self.written += [Written(size, flags, WALL + now) for _ in range(taken)]

    def claim(self) -> None:
        now, number = self.network.now, len(self.written)
        claim = self.writer.claims.make(16, timestamp=WALL + now, now=now)
        if claim is not None:
            claim.data[:] = np.frombuffer(payload(number, 16), np.uint8)
            if claim.key_hash is not None:
                claim.key_hash[:] = 1
            self.written.append(Written(16, 0, WALL + now))
            self.claims.append((claim, number))

    def end_claim(self, chance: float) -> None:
        claim, number = self.claims.pop(self.rng.randrange(len(self.claims)))
        if self.rng.random() < chance:
            self.writer.claims.abort(claim, now=self.network.now)
            self.written[number].aborted = True
        else:
            self.written[number].aborted = not self.writer.claims.commit_claim(claim, now=self.network.now)

    def end_set(self, chance: float) -> None:
        if self.rng.random() < chance:
            self.writer.coherent_sets.abort(now=self.network.now)
            for number in self.in_set:
                self.written[number].aborted = True
        else:
            self.writer.coherent_sets.end(now=self.network.now)
        self.in_set = []

    def step(self) -> None:
        what, is_open = self.rng.random(), self.writer.state.set_begun > 0
        if what < 0.45:
            self.write()
        elif what < 0.55 and self.with_claims and not is_open and self.writer.readers:
            self.claim()
        elif what < 0.65 and self.claims:
            self.end_claim(0.3)
        elif what < 0.7 and self.with_sets and not is_open:
            self.writer.coherent_sets.begin(now=self.network.now)
        elif what < 0.75 and is_open:
            self.end_set(0.3)
        elif what < 0.78 and len(self.readers) < 4:
            self.join()
        elif what < 0.8 and len(self.readers) > 1:
            self.leave()
        elif what < 0.83:
            self.rng.choice(self.readers).stalls_until = self.network.now + 2 * SECOND
        elif what < 0.85:
            self.writer.flush_batch(now=self.network.now)
        else:
            self.run(self.rng.choice((1, 5, 20, 100)) * MILLISECOND)

    def expected(self, got: Got) -> Iterator[int]:
        assert got.first is not None
        for number in range(got.first, len(self.written)):
            sample = self.written[number]
            is_over = (
                sample.stamp + self.lifespan <= WALL + self.network.now if self.lifespan < INFINITE else False
            )
            if not sample.aborted and not is_over:
                yield number


@pytest.mark.parametrize("seed", [4, 6, 7, 8])
def test_whatever_is_done_to_a_writer_its_readers_get_all_of_it_once(seed: int) -> None:
    it = Run(seed)
    it.join()
    it.run(3 * SECOND)
    for _ in range(60):
        it.step()
    while it.claims:
        it.end_claim(0.0)
    if it.writer.state.set_begun:
        it.end_set(0.0)
    it.writer.flush_batch(now=it.network.now)
    for _ in range(1_200):
        it.run(50 * MILLISECOND)
        if all(got.first is not None for got in it.readers) and not it.writer.unacknowledged():
            break
    assert it.writer.unacknowledged() == {}
    for got in it.readers:
        assert set(it.expected(got)) <= set(got.numbers)
