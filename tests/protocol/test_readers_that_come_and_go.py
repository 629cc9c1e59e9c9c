"""Readers that leave and are back, two in a participant, outages longer than a lease, and a writer that is restarted.

Whole participants in virtual time, drawn by a seed. What is delivered is what was written, once and in order; what a
reliable reader did not get is counted.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.participant import RtpsParticipant
from spark_rtps.transport.protocol.policies import BATCH_POLICY, BatchPolicy, PublicationPolicy
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.wire.samples import Samples
from tests.protocol.random_network import payload
from tests.support.virtual_network import MILLISECOND as MS
from tests.support.virtual_network import SECOND, VirtualNetwork

_LEASE = 6 * SECOND
#: Samples of these sizes come as runs, and in fragments: few, and many that are looked at together.
_SIZES = (12, 64, 2_000, 100_000, 300_000)


@dataclass
class Listener:
    """A reader through all its lives, and what it got: the numbers of the samples."""

    host: RtpsParticipant
    key: int
    qos: Qos
    reader: StatefulReader
    got: list[int] = field(default_factory=list)
    #: Where it goes on in its next life; 0: it has nothing yet.
    last_sn: int = 0
    lost: int = 0
    #: It went without having got anything, or while it was in doubt where the writer is: what it missed is no loss.
    missed_unknown: bool = False


class Coming:
    """One run; ``complaints`` are what an oracle of delivery finds wrong."""

    def __init__(self, seed: int, *, restarts: bool) -> None:
        self.random = d = Random(seed)
        pick = d.choice
        self.restarts = restarts
        self.network = VirtualNetwork(
            seed=seed,
            duplicates=pick((0, 0.1)),
            jitter=pick((0, 2 * MS, 30 * MS)),
            bursts=d.random() < 0.6,
            tick=pick((1, MS)),
        )
        self.loss = pick((0, 0.05, 0.2))
        reliable = d.random() < 0.7
        self.qos = Qos(
            reliability=ReliabilityKind.RELIABLE if reliable else ReliabilityKind.BEST_EFFORT,
            history=HistoryKind.KEEP_ALL,
            durability=DurabilityKind.TRANSIENT_LOCAL
            if reliable and d.random() < 0.3
            else DurabilityKind.VOLATILE,
        )
        self.size = pick(_SIZES)
        is_batch = d.random() < 0.4
        self.batch = (
            BatchPolicy(enable=True, max_data_bytes=1_000, max_flush_delay=MS) if is_batch else BATCH_POLICY
        )
        self.written = self.outages = 0
        #: In this life of the writer, and how many it may write: fewer than in the life before.
        self.in_life, self.most = 0, 1 << 30
        self.listeners: list[Listener] = []
        self._start_writer()
        for host in [self.network.add(lease_duration=_LEASE) for _ in range(pick((1, 2)))]:
            for key in range(pick((1, 2))):
                is_reliable = reliable and d.random() < 0.8
                qos = self.qos if is_reliable else Qos()
                self.listeners.append(Listener(host, 20 + key, qos, self._reader(host, 20 + key, qos, 0)))
        self.network.run(3 * SECOND)
        self.network.loss = self.loss

    def _start_writer(self) -> None:
        self.host = self.network.add(guid_prefix=b"W" * 12, lease_duration=_LEASE)
        policy = PublicationPolicy(batch=self.batch)
        spec = WriterSpec("t", "T", self.qos, keyed=False, entity_key=7, policy=policy)
        self.writer = self.host.create_writer(spec, now=self.network.now)

    def _reader(self, host: RtpsParticipant, key: int, qos: Qos, last_sn: int) -> StatefulReader:
        resume = {self.writer.guid: last_sn} if last_sn else {}
        spec = ReaderSpec("t", "T", qos, keyed=False, entity_key=key, resume=resume)
        return host.create_reader(spec, now=self.network.now)

    def run(self) -> list[str]:
        d = self.random
        for _ in range(d.choice((10, 40))):
            what = d.random()
            if what < 0.75:
                for _ in range(d.choice((1, 3, 8))):
                    self._write()
                    self._pass(d.choice((1, 5, 20, 200)) * MS)
            elif what < 0.82:
                self.outages += 1
                self.network.loss = 1.0
                self._pass(d.choice((1, 5, 9, 20)) * SECOND)
                self.network.loss = self.loss
                self._pass(d.choice((0, 1, 8)) * SECOND)
            elif self.restarts and self.in_life > 40:
                self._restart()
            elif what < 0.92 and not self.restarts:
                self._replace(d.choice(self.listeners))
        self.writer.flush_batch(now=self.network.now)
        self._pass(60 * SECOND)
        return [f"reader {i}: {each}" for i, it in enumerate(self.listeners) for each in self._complaints(it)]

    def _write(self) -> None:
        count = 1 if self.size >= 100_000 else self.random.choice((1, 1, 5))
        if self.in_life + count > self.most:
            return
        now = self.network.now
        data = b"".join(payload(self.written + i, self.size) for i in range(count))
        samples = Samples.uniform(np.frombuffer(data, np.uint8), count, self.size)
        took = self.writer.write_samples(samples, timestamp=now, now=now)
        self.written += took
        self.in_life += took

    def _restart(self) -> None:
        """The writer's participant ends, and is back under its GUID when its lease is over."""
        self.writer.flush_batch(now=self.network.now)
        self._pass(5 * SECOND)
        self.network.unplug(self.host)
        self._pass(self.random.choice((8, 20)) * SECOND)
        self.most, self.in_life = self.in_life - 1, 0
        self._start_writer()
        self._pass(4 * SECOND)
        for _ in range(15):  # a reader knows after a second that this is another life
            self._write()
            self._pass(100 * MS)

    def _replace(self, it: Listener) -> None:
        """A reader leaves, and goes on where it was."""
        self._take()
        it.missed_unknown |= not it.last_sn
        it.host.delete_endpoint(it.reader.guid, now=self.network.now)
        it.lost += it.reader.counters.lost_samples
        self._pass(self.random.choice((0, 20, 3_000)) * MS, but=it)
        it.reader = self._reader(it.host, it.key, it.qos, it.last_sn)

    def _pass(self, ns: int, *, but: Listener | None = None) -> None:
        end = self.network.now + ns
        while self.network.now < end:
            self.network.run(min(20 * MS, end - self.network.now))
            self._take(but)

    def _take(self, but: Listener | None = None) -> None:
        for it in self.listeners:
            if it is but:
                continue
            while runs := it.reader.take_runs():
                for run in runs:
                    it.last_sn = run.last_sn
                    for each in map(bytes, map(run.samples().payload, range(run.count))):
                        number = struct.unpack_from("<Q", each, 4)[0]
                        it.got.append(number if each == payload(number, self.size) else -1)

    def _complaints(self, it: Listener) -> list[str]:
        found = []
        if twice := [number for number, count in Counter(it.got).items() if count > 1]:
            found.append(f"{len(twice)} samples twice: {twice[:5]}")
        if any(b < a for a, b in pairwise(it.got)):
            found.append("samples are not in their order")
        if nobody := [number for number in it.got if not 0 <= number < self.written]:
            found.append(f"samples that nobody wrote: {nobody[:5]}")
        missing = self.written - len(set(it.got))
        lost = it.lost + it.reader.counters.lost_samples
        # What the network loses of a best-effort writer shows by what follows, and what it sent last never.
        if it.qos.is_reliable and not it.missed_unknown and missing > lost:
            found.append(f"{missing} missing, {lost} counted as lost")
        if not (self.qos.is_reliable or self.loss or self.outages or self.network.jitter) and missing > lost:
            found.append(f"{missing} missing, {lost} counted as lost, though the network lost nothing")
        return found


@pytest.mark.parametrize(
    ("seed", "restarts"),
    [(13, False), (20_000, False), (20_001, False), (668, True), (9_000, True), (9_001, True)],
)
def test_readers_that_come_and_go_get_every_sample_once_or_count_it(seed: int, restarts: bool) -> None:
    assert Coming(seed, restarts=restarts).run() == []


def test_a_reader_that_joins_others_which_lack_something_counts_none_of_it_as_lost() -> None:
    """What a HEARTBEAT for the others announces is gone when they have it."""
    network = VirtualNetwork()
    writing, reading = network.add(), network.add()
    qos = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
    writer = writing.create_writer(WriterSpec("t", "T", qos, keyed=False), now=network.now)

    def join(key: int) -> StatefulReader:
        spec = ReaderSpec("t", "T", qos, keyed=False, entity_key=key)
        return reading.create_reader(spec, now=network.now)

    def write(count: int) -> None:
        samples = Samples.uniform(np.zeros(count * 16, np.uint8), count, 16)
        assert writer.write_samples(samples, timestamp=network.now, now=network.now) == count

    there, back = network.address_of(reading), network.address_of(writing)
    others = [join(20), join(21)]
    network.run(3 * SECOND)
    network.blocked.add((back, there))
    write(5)
    network.run(10 * MS)
    network.blocked = {(there, back)}  # their HEARTBEATs come, and nothing that is answered
    late = join(22)
    network.run(2 * SECOND)
    write(1)
    assert late.counters.heartbeats > 0 and writer.last_sn == 6 and len(writer.readers) == 2
    network.blocked = set()
    network.run(20 * SECOND)
    assert len(writer.readers) == 3
    write(3)
    network.run(5 * SECOND)
    assert [sum(run.count for run in each.take_runs()) for each in (*others, late)] == [9, 9, 4]
    assert [each.counters.lost_samples for each in (*others, late)] == [0, 0, 0]


def _went_on(seed: int, durability: DurabilityKind) -> tuple[int, int]:
    """What a reader got, and what it counts as lost, of 43 samples that were written while it was away, or later; two
    others lack some of them, and the network loses much."""
    network = VirtualNetwork(seed=seed)
    writing, reading = (network.add(lease_duration=100 * SECOND) for _ in range(2))
    qos = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
    spec = WriterSpec("t", "T", replace(qos, durability=durability), keyed=False)
    writer = writing.create_writer(spec, now=network.now)
    specs = [ReaderSpec("t", "T", qos, keyed=False, entity_key=20 + i) for i in range(3)]
    readers = [reading.create_reader(each, now=network.now) for each in specs]
    got = 0

    def go_on(ns: int, count: int) -> None:
        nonlocal got
        samples = Samples.uniform(np.zeros(count * 16, np.uint8), count, 16)
        assert writer.write_samples(samples, timestamp=network.now, now=network.now) == count
        network.run(ns)
        for each in readers:
            count = sum(run.count for run in each.take_runs())
            got += count if each is readers[0] else 0

    network.run(3 * SECOND)
    go_on(2 * SECOND, 5)
    assert got == 5
    reading.delete_endpoint(readers[0].guid, network.now)
    network.run(SECOND)
    network.loss = 0.4
    go_on(20 * MS, 3)
    readers[0] = reading.create_reader(replace(specs[0], resume={writer.guid: 5}), now=network.now)
    for i in range(120):
        network.loss = 0.4 if i < 40 else 0
        go_on(50 * MS, int(i < 40))
    return got - 5, readers[0].counters.lost_samples


@pytest.mark.parametrize(
    "durability",
    [DurabilityKind.VOLATILE, DurabilityKind.TRANSIENT_LOCAL],
    ids=["volatile", "transient_local"],
)
def test_a_reader_that_goes_on_counts_what_was_before_its_match_as_lost(durability: DurabilityKind) -> None:
    """A HEARTBEAT for others reaches it before the writer knows it, and what it asks for then is not for it."""
    for seed in range(12):
        got, lost = _went_on(seed, durability)
        assert got + lost == 43, f"seed {seed}"
