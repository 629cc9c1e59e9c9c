"""One writer, many readers, a bad network: what happens is measured, and every sample is looked at."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from spark_rtps.transport.protocol.endpoint_info import ReaderInfo, WriterInfo
from spark_rtps.transport.protocol.policies import (
    BATCH_POLICY,
    READER_POLICY,
    WRITER_POLICY,
    BatchPolicy,
    ReaderPolicy,
    WriterPolicy,
)
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.samples import Run, Samples
from tests.simulation.network import GROUP, LINK, MS, SECOND, Host, Link, Network
from tests.simulation.traffic import Meter

RELIABLE: Final = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
LASTING: Final = replace(RELIABLE, durability=DurabilityKind.TRANSIENT_LOCAL)
_WRITER_ID: Final = b"\x00\x00\x01\x03"
_READER_ID: Final = b"\x00\x00\x02\x04"
#: What the endpoints get to hear of each other before the first sample is written.
_SETTLING: Final = 250 * MS
#: After this long something is wrong.
PATIENCE: Final = 120 * SECOND
_EPOCH: Final = 1_700_000_000 * SECOND
_CODECS: Final = frozenset(("lz4", "zstd"))


class Wrong(AssertionError):
    """A sample was lost, repeated, out of order or never came, or somebody never falls silent."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Samples of ``size`` bytes, ``burst`` of them every ``period`` ns, to ``readers`` readers."""

    link: Link = LINK
    readers: int = 1
    #: So many more readers of transient-local history come at the end of the stream.
    late_readers: int = 0
    #: So many of the readers, the first ones, do not read DATA_BATCH.
    plain_readers: int = 0
    multicast: bool = False
    samples: int = 2_000
    burst: int = 10
    period: int = MS
    size: int = 64
    #: Samples of one coherent set, which readers get whole; 0: no sets.
    coherent: int = 0
    #: Instances that the samples are of, in turn; 0: no keys.
    instances: int = 0
    #: A datagram that Ethernet does not fragment.
    message_size: int = 1_400
    writer: WriterPolicy = WRITER_POLICY
    reader: ReaderPolicy = READER_POLICY
    batch: BatchPolicy = BATCH_POLICY

    @property
    def no_positive_acks(self) -> bool:
        return self.writer.disable_positive_acks or self.reader.disable_positive_acks


@dataclass(slots=True)
class Result:
    """Sums over the seeds added up; latencies in ns from when a sample was offered to when it was delivered."""

    runs: int = 0
    samples: int = 0
    deliveries: int = 0
    data_bytes: int = 0
    repair_bytes: int = 0
    datagrams: int = 0
    heartbeats: int = 0
    gaps: int = 0
    acknacks: int = 0
    nacks: int = 0
    ack_bytes: int = 0
    batches: int = 0
    heartbeat_batches: int = 0
    acknack_batches: int = 0
    duplicates: int = 0
    #: Where positive acknowledgements are disabled: then reliability is not strict.
    lost: int = 0
    #: The worst millisecond of all seeds.
    peak_acknacks: int = 0
    peak_repair_bytes: int = 0
    latencies: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    late_latencies: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def add(self, other: Result) -> None:
        for each in fields(self):
            mine, its = getattr(self, each.name), getattr(other, each.name)
            if each.name.startswith("peak"):
                setattr(self, each.name, max(mine, its))
            elif each.name.endswith("latencies"):
                setattr(self, each.name, np.concatenate((mine, its)))
            else:
                setattr(self, each.name, mine + its)

    def per_thousand(self, count: int) -> float:
        """Per 1,000 samples written."""
        return 1_000 * count / self.samples

    @property
    def repair_ratio(self) -> float:
        return self.repair_bytes / self.data_bytes if self.data_bytes else 0.0

    def latency(self, percent: float) -> float:
        """Milliseconds."""
        return float(np.percentile(self.latencies, percent)) / MS


class _Sink:
    """What one reader delivered, checked: in order, no number twice, and if it is ``strict`` none left out."""

    def __init__(
        self, name: str, reader: StatefulReader, offered_at: npt.NDArray[np.int64], *, strict: bool
    ) -> None:
        self.name = name
        self.reader = reader
        self.strict = strict
        #: The number wanted next, and how many were never had.
        self.wanted = 0
        self.lost = 0
        self.latencies: list[npt.NDArray[np.int64]] = []
        self._offered_at = offered_at
        self._numbers = np.arange(len(offered_at))

    def take(self, now: int) -> None:
        for run in self.reader.take_runs():
            numbers = payload_numbers(run)
            if not np.array_equal(numbers, self._numbers[self.wanted : self.wanted + len(numbers)]):
                steps = np.diff(numbers, prepend=self.wanted - 1)
                if self.strict or (steps < 1).any():
                    raise Wrong(
                        f"{self.name} wants sample {self.wanted} next and gets {numbers[:5].tolist()}"
                    )
                self.lost += int((steps - 1).sum())
            self.wanted = int(numbers[-1]) + 1
            self.latencies.append(now - self._offered_at[numbers])

    def end(self, samples: int) -> None:
        """The writer has told of all, and the reader waits for none."""
        self.lost += samples - self.wanted
        if self.strict and self.lost:
            raise Wrong(f"{self.name} was never given {self.lost} samples")


def payloads(first: int, count: int, size: int) -> Samples:
    """Payloads that begin with an encapsulation header and their number."""
    rows = np.zeros((count, size), np.uint8)
    rows[:, 1] = 1
    rows[:, 4:8] = np.arange(first, first + count, dtype="<u4").view(np.uint8).reshape(count, 4)
    return Samples.uniform(rows.reshape(-1), count, size)


def payload_numbers(run: Run) -> npt.NDArray[np.int64]:
    samples = run.samples()
    if samples.is_uniform:
        return np.ascontiguousarray(samples.rows()[:, 4:8]).view("<u4").reshape(-1).astype(np.int64)
    return np.array(
        [int.from_bytes(samples.payload(i)[4:8], "little") for i in range(samples.count)], np.int64
    )


class Simulation:
    """One scenario under one seed."""

    def __init__(self, scenario: Scenario, seed: int, patience: int = PATIENCE) -> None:
        self.scenario = scenario
        self.seed = seed
        self.patience = patience
        self.meter = Meter()
        self.network = Network(scenario.link, seed)
        self.network.on_send = lambda host, message, copies: self.meter.sent(
            message, copies, self.network.now
        )
        self.qos = replace(
            LASTING if scenario.late_readers else RELIABLE, coherent_access=scenario.coherent > 0
        )
        self.writer = StatefulWriter(
            Guid(self.network.next_prefix(), _WRITER_ID),
            self.qos,
            policy=scenario.writer,
            batch=scenario.batch,
            message_size=scenario.message_size,
        )
        self.host = self.network.add(self.writer)
        self.host.after = self._write
        self.host.on_arrival = lambda message: self.meter.arrived(message, self.network.now)
        self.sinks: list[_Sink] = []
        self._queue: list[Samples] = []
        self._offered = 0
        self._written = 0
        self._in_set = False
        self._offered_at = np.zeros(scenario.samples, np.int64)

    # --- who talks to whom -----------------------------------------------------------------------

    def _add_reader(self, offered_at: npt.NDArray[np.int64]) -> None:
        scenario, network = self.scenario, self.network
        reader = StatefulReader(Guid(network.next_prefix(), _READER_ID), self.qos, policy=scenario.reader)
        host = network.add(reader)
        name = f"reader {len(self.sinks) + 1} of seed {self.seed}"
        sink = _Sink(name, reader, offered_at, strict=not scenario.no_positive_acks)
        self.sinks.append(sink)
        host.after = lambda: sink.take(network.now)
        host.routes[self.writer.guid] = [reader]
        if scenario.multicast:
            network.join(host)
        network.at(network.now + scenario.link.delay, lambda: self._match(host, reader))
        info = WriterInfo(
            self.writer.guid,
            (self.host.locator,),
            (),
            reliable=True,
            transient_local=self.qos.is_transient_local,
            no_positive_acks=scenario.writer.disable_positive_acks,
        )
        reader.match_writer(info, now=network.now)
        network.wake(host)

    def _match(self, host: Host, reader: StatefulReader) -> None:
        """The writer hears of a reader, as late as its announcement takes."""
        info = ReaderInfo(
            reader.guid,
            (host.locator,),
            (GROUP,) if self.scenario.multicast else (),
            reliable=True,
            transient_local=self.qos.is_transient_local,
            batches=self.network.hosts.index(host) > self.scenario.plain_readers,
            codecs=_CODECS,
            no_positive_acks=self.scenario.reader.disable_positive_acks,
        )
        self.writer.match_reader(info, now=self.network.now)
        self.network.wake(self.host)

    # --- the stream ------------------------------------------------------------------------------

    def _offer(self) -> None:
        """The next burst is due."""
        scenario, now = self.scenario, self.network.now
        count = min(scenario.burst, scenario.samples - self._offered)
        self._queue.append(payloads(self._offered, count, scenario.size))
        self._offered_at[self._offered : self._offered + count] = now
        self._offered += count
        if self._offered < scenario.samples:
            self.network.at(now + scenario.period, self._offer)
        self.network.wake(self.host)

    def _write(self) -> None:
        """As much as back-pressure lets through."""
        scenario, writer, now = self.scenario, self.writer, self.network.now
        while self._queue:
            samples = self._queue[0]
            count = samples.count
            if scenario.coherent:
                place = self._written % scenario.coherent
                if not place and not self._in_set:
                    writer.coherent_sets.begin(now=now)
                    self._in_set = True
                count = min(count, scenario.coherent - place)
            taken = writer.write_samples(
                samples.take_range(0, count),
                timestamp=_EPOCH + now,
                now=now,
                key_hashes=self._key_hashes(self._written, count),
            )
            self._written += taken
            if self._in_set and taken and not self._written % scenario.coherent:
                self._end_set(now)
            if taken == samples.count:
                del self._queue[0]
            else:
                self._queue[0] = samples.take_range(taken, samples.count)
            if taken < count:
                return
        if self._offered == scenario.samples:
            self._end_set(now)
            writer.flush_batch(now=now)

    def _end_set(self, now: int) -> None:
        if self._in_set:
            self._in_set = False
            self.writer.coherent_sets.end(now=now)

    def _key_hashes(self, first: int, count: int) -> npt.NDArray[np.uint8] | None:
        if not self.scenario.instances:
            return None
        hashes = np.zeros((count, 16), np.uint8)
        hashes[:, 0] = np.arange(first, first + count) % self.scenario.instances
        return hashes

    # --- from the beginning to silence -----------------------------------------------------------

    def _is_done(self) -> bool:
        if self._queue or self._offered < self.scenario.samples or self.writer.intake.count:
            return False
        if self.scenario.no_positive_acks:
            return not self._behind()
        return not self.writer.unacknowledged()

    def _behind(self) -> dict[str, int]:
        """Readers that wait for samples, and for which one."""
        proxies = {sink.name: sink.reader.writers[self.writer.guid] for sink in self.sinks}
        return {
            name: proxy.expected for name, proxy in proxies.items() if proxy.expected <= self.scenario.samples
        }

    def run(self) -> Result:
        scenario, network = self.scenario, self.network
        for _ in range(scenario.readers):
            self._add_reader(self._offered_at)
        network.run(network.now + _SETTLING)
        if not all(proxy.is_ready for proxy in self.writer.readers.values()):
            network.run(
                network.now + 10 * SECOND, lambda: all(p.is_ready for p in self.writer.readers.values())
            )
        self.meter.on = True
        self._offer()
        if scenario.late_readers:
            network.run(network.now + self.patience, lambda: self._offered == scenario.samples)
            joined_at = np.full(scenario.samples, network.now)
            for _ in range(scenario.late_readers):
                self._add_reader(joined_at)
        if not network.run(network.now + self.patience, self._is_done):
            raise Wrong(f"seed {self.seed}: not done; {self._behind() or self.writer.unacknowledged()}")
        for sink in self.sinks:
            sink.end(scenario.samples)
        network.run(network.now + self.patience, lambda: network.silent)
        if not network.silent:
            raise Wrong(f"seed {self.seed}: somebody goes on talking")
        return self._result()

    def _result(self) -> Result:
        readers, meter = self.scenario.readers, self.meter
        latencies = [np.concatenate((np.empty(0, np.int64), *sink.latencies)) for sink in self.sinks]
        return Result(
            runs=1,
            samples=self.scenario.samples,
            deliveries=sum(len(each) for each in latencies),
            lost=sum(sink.lost for sink in self.sinks),
            data_bytes=meter.data_bytes,
            repair_bytes=meter.repair_bytes,
            datagrams=meter.datagrams,
            heartbeats=meter.heartbeats,
            gaps=meter.gaps,
            acknacks=meter.acknacks,
            nacks=meter.nacks,
            ack_bytes=meter.ack_bytes,
            batches=meter.batches,
            heartbeat_batches=meter.heartbeat_batches,
            acknack_batches=meter.acknack_batches,
            duplicates=sum(sink.reader.counters.duplicate_samples for sink in self.sinks),
            peak_acknacks=max(meter.arrivals.values(), default=0),
            peak_repair_bytes=max(meter.repairs.values(), default=0),
            latencies=np.concatenate(latencies[:readers]),
            late_latencies=np.concatenate(latencies[readers:])
            if latencies[readers:]
            else np.empty(0, np.int64),
        )


def simulate(scenario: Scenario, seeds: range) -> Result:
    """All seeds of a scenario, added up. Raises Wrong, which names the seed."""
    total = Result()
    for seed in seeds:
        total.add(Simulation(scenario, seed).run())
    return total
