"""Writers and readers of ours at the two ends of a bottleneck: flow control and congestion control at work.

Writers offer as much as they are let, or in bursts; readers take all at once, or from a bounded buffer that is emptied
at a rate of its own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from spark_rtps.transport.protocol.endpoint_info import ReaderInfo, WriterInfo
from spark_rtps.transport.protocol.policies import (
    READER_POLICY,
    WRITER_POLICY,
    CongestionControlPolicy,
    FlowControlPolicy,
    ReaderPolicy,
    WriterPolicy,
)
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.flow import flow_control_of
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.structure import INFINITE, Guid
from tests.simulation.bottleneck import SLOT, Bottleneck, BottleneckNetwork
from tests.simulation.network import FRAMING, GROUP, MS, SECOND, Host
from tests.simulation.scenarios import RELIABLE, Wrong, payload_numbers, payloads
from tests.simulation.traffic import Meter

STATIC: Final = CongestionControlPolicy(max_window=4 << 20)
CUBIC: Final = CongestionControlPolicy("cubic", measure_rtt=True)
SLOW_LINK: Final = Bottleneck()
#: One sample fills a datagram; behind it there is room for a HEARTBEAT.
SIZE: Final = 1_280
MESSAGE_SIZE: Final = 1_400
#: RTPS header, INFO_TS and the DATA submessage around it, and the frame on the wire.
WIRE_SIZE: Final = SIZE + 20 + 12 + 24 + FRAMING
TAG: Final = 7
_WRITER_ID: Final = b"\x00\x00\x01\x03"
_READER_ID: Final = b"\x00\x00\x02\x04"
_EPOCH: Final = 1_700_000_000 * SECOND
_SETTLING: Final = SECOND
#: What is offered at once.
_CHUNK: Final = payloads(0, 64, SIZE)
#: How often a slow reader empties its buffer.
_TICK: Final = 10 * MS
#: Samples it keeps ahead of a missing one.
SLOW_RECEIVE_WINDOW: Final = 64
#: After this long something is wrong.
PATIENCE: Final = 120 * SECOND


@dataclass(frozen=True, slots=True)
class FlowScenario:
    """Writers that offer samples for ``duration`` ns; figures are taken from ``warm_up`` on. All times from there."""

    link: Bottleneck = SLOW_LINK
    strategy: str = "min"
    control: CongestionControlPolicy = STATIC
    readers: int = 1
    #: The readers are theirs in turn. Each starts ``stagger`` later than the one before.
    writers: int = 1
    stagger: int = 2 * SECOND
    multicast: bool = False
    #: So many readers, the last ones, take so many bytes a second, out of a buffer of so many.
    slow: int = 0
    slow_rate: int = 250_000
    slow_buffer: int = 256 << 10
    #: With ``tagged`` they have the tag too.
    slow_is_tagged: bool = False
    #: When the last reader vanishes; 0: it stays.
    vanish_at: int = 0
    #: Bytes offered at once, every so often; 0: as many as are taken.
    burst: int = 0
    period: int = SECOND
    warm_up: int = 5 * SECOND
    duration: int = 15 * SECOND
    receiver_timeout: int = SECOND
    term_length: int = 1 << 20
    writer: WriterPolicy = WRITER_POLICY
    reader: ReaderPolicy = READER_POLICY

    @property
    def special(self) -> int:
        """Readers, the last ones, that are not as the others; with ``tagged`` they have no tag."""
        return max(self.slow, int(self.vanish_at > 0))

    @property
    def measured(self) -> int:
        return self.duration - self.warm_up


@dataclass(slots=True)
class FlowResult:
    """Shares are of what the bottleneck carries from ``warm_up`` to ``duration``; bytes, counts, ns."""

    #: Of each reader: the share of the link that its samples are.
    shares: list[float]
    #: Of each writer, those of its readers together; where one copy serves all, that of the best.
    writers: list[float]
    #: Of all bytes of samples sent, those sent again.
    retransmission: float
    #: Of the link, whatever passed it.
    utilization: float
    queue_peak: int
    queue_mean: float
    #: Datagrams that found the queue full, of those that came.
    overruns: int
    overrun_share: float
    #: Copies for readers that did not arrive.
    loss: float
    dropped_readers: int
    #: Samples that each reader was never given.
    missed: list[int]
    #: The longest time in which a reader that is as the others was given nothing.
    stall: int
    #: For each datagram sent to a reader: its answers, and what they hold.
    answers: float
    acknacks: float
    status_messages: float
    #: In each datagram sent.
    heartbeats: float
    #: The most that writers keep or have waiting, and readers hold out of order or in their buffers.
    writer_bytes: int
    reader_bytes: int
    #: By the :data:`SLOT`, from the first sample on: bytes in the queue; shares of each reader.
    queue: list[int] = field(default_factory=list)
    rates: list[list[float]] = field(default_factory=list)
    #: From the end of the offer until all is acknowledged.
    drain: int = 0
    #: See :attr:`_Consumer.behind`.
    rejoined_behind: int = 0

    @property
    def throughput(self) -> float:
        return sum(self.writers)

    @property
    def fairness(self) -> float:
        """Jain's index over the writers, or over the readers of one."""
        return jain(self.writers if len(self.writers) > 1 else self.shares)


def jain(rates: list[float]) -> float:
    """1: all get the same; 1 / n: one of n gets all."""
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else 1.0


class _Consumer:
    """What takes one reader's samples, and looks at them."""

    def __init__(self, simulation: FlowSimulation, number: int, source: _Source) -> None:
        scenario, network = simulation.scenario, simulation.network
        #: As the others, for the whole time.
        self.usual = number < scenario.readers - scenario.special
        self.slow = number >= scenario.readers - scenario.slow
        tag = TAG if scenario.strategy == "tagged" and (self.usual or scenario.slow_is_tagged) else None
        policy = replace(scenario.reader, congestion_control=scenario.control, group_tag=tag)
        if self.slow:
            policy = replace(policy, receive_window_size=SLOW_RECEIVE_WINDOW)
        self.reader = StatefulReader(Guid(network.next_prefix(), _READER_ID), RELIABLE, policy=policy)
        self.host = network.add(self.reader)
        self.host.after = self.take
        self._source = source
        self.buffered = self.peak = 0
        self.wanted = self.missed = self.delivered = 0
        #: Where samples were missing: how far the writer was ahead then, in samples.
        self.behind: list[int] = []
        self.taken_at = INFINITE
        self.stall = 0
        #: Samples by the :data:`SLOT`.
        self.counts: Counter[int] = Counter()
        self._ticking = False
        self._network, self._simulation = network, simulation
        if self.slow:
            self.reader.window = scenario.slow_buffer

    def take(self) -> None:
        now = self._network.now
        for run in self.reader.take_runs():
            first = int(payload_numbers(run.take_range(0, 1))[0])
            if run.first_sn < self.wanted or first != (run.first_sn - 1) % _CHUNK.count:
                raise Wrong(
                    f"{self.host.locator} wants {self.wanted} and gets {run.first_sn}, payload {first}"
                )
            if run.first_sn > max(self.wanted, 1):
                self.missed += run.first_sn - max(self.wanted, 1)
                self.behind.append(self._source.writer.state.sent_sn - run.first_sn)
            self.wanted = run.last_sn + 1
            self.counts[now // SLOT] += run.count
            if self._simulation.measuring:
                self.delivered += run.count
                self.stall = max(self.stall, now - self.taken_at)
                self.taken_at = now
            if self.slow:
                self.buffered += run.data.nbytes
        if self.buffered and not self._ticking:
            self._ticking = True
            self._network.at(now + _TICK, self._empty)
        held = sum(proxy.held.nbytes for proxy in self.reader.writers.values())
        self.peak = max(self.peak, self.buffered + held)

    def _empty(self) -> None:
        scenario = self._simulation.scenario
        self.buffered -= min(self.buffered, scenario.slow_rate * _TICK // SECOND)
        self.reader.window = scenario.slow_buffer - self.buffered
        self._ticking = self.buffered > 0
        if self._ticking:
            self._network.at(self._network.now + _TICK, self._empty)
        self._network.wake(self.host)


class _Source:
    """What one writer is offered."""

    def __init__(self, simulation: FlowSimulation) -> None:
        scenario, network = simulation.scenario, simulation.network
        policy = FlowControlPolicy(
            scenario.strategy,
            receiver_timeout=scenario.receiver_timeout,
            group_tag=TAG if scenario.strategy == "tagged" else None,
            term_length=scenario.term_length,
        )
        self.writer = StatefulWriter(
            Guid(network.next_prefix(), _WRITER_ID),
            RELIABLE,
            policy=scenario.writer,
            message_size=MESSAGE_SIZE,
            flow_control=flow_control_of(policy),
        )
        self.host = network.add(self.writer)
        self.host.after = self.write
        self.meter = Meter()
        self.open = False
        #: Readers that are to have everything in the end.
        self.awaited: set[Guid] = set()
        self.peak = 0
        self.offered = 0
        self._network, self._scenario = network, scenario

    def start(self) -> None:
        self.open = True
        if self._scenario.burst:
            self._burst()
        else:
            self._network.wake(self.host)

    def _burst(self) -> None:
        if not self.open:
            return
        self.offered += self._scenario.burst // SIZE
        self._network.at(self._network.now + self._scenario.period, self._burst)
        self._network.wake(self.host)

    def write(self) -> None:
        """As much as back-pressure lets through."""
        writer, now = self.writer, self._network.now
        while self.open or self.offered > writer.last_sn:
            at = writer.last_sn % _CHUNK.count
            stop = _CHUNK.count
            if self._scenario.burst:
                stop = min(stop, at + self.offered - writer.last_sn)
            if stop <= at:
                break
            taken = writer.write_samples(_CHUNK.take_range(at, stop), timestamp=_EPOCH + now, now=now)
            if taken < stop - at:
                break
        waiting = writer.positions.pub_pos - writer.positions.snd_pos
        self.peak = max(self.peak, waiting, writer.history.nbytes)

    @property
    def is_done(self) -> bool:
        writer = self.writer
        waiting = self.offered > writer.last_sn or writer.positions.snd_pos < writer.positions.pub_pos
        return not waiting and not writer.unacknowledged().keys() & self.awaited


class FlowSimulation:
    """One scenario under one seed."""

    def __init__(self, scenario: FlowScenario, seed: int = 1) -> None:
        self.scenario = scenario
        self.seed = seed
        self.network = BottleneckNetwork(scenario.link, seed)
        self.network.on_send = self._on_send
        self.measuring = False
        self.sources = [_Source(self) for _ in range(scenario.writers)]
        self.answers = Meter()
        self.consumers: list[_Consumer] = []
        self._meters = {id(source.host): source.meter for source in self.sources}
        for number in range(scenario.readers):
            source = self.sources[number % scenario.writers]
            self.consumers.append(_Consumer(self, number, source))
            self._match(source, self.consumers[-1])

    def _match(self, source: _Source, consumer: _Consumer) -> None:
        network, host = self.network, consumer.host
        network.put_behind(host)
        group = self.scenario.multicast
        if group:
            network.join(host)
        if self.scenario.strategy in ("min", "unicast") or consumer.usual:
            source.awaited.add(consumer.reader.guid)
        host.routes[source.writer.guid] = [consumer.reader]
        info = WriterInfo(
            source.writer.guid, (source.host.locator,), (), True, False, status_messages=True
        )  # reliable, volatile
        consumer.reader.match_writer(info, now=network.now)
        network.wake(host)
        reader = ReaderInfo(
            consumer.reader.guid,
            (host.locator,),
            (GROUP,) if group else (),
            reliable=True,
            transient_local=False,
            batches=True,
            status_messages=True,
        )

        def matched() -> None:
            source.writer.match_reader(reader, now=network.now)
            network.wake(source.host)

        network.at(network.now + self.scenario.link.delay, matched)

    def _on_send(self, host: Host, message: bytes, copies: int) -> None:
        self._meters.get(id(host), self.answers).sent(message, copies, self.network.now)

    # --- from the beginning to the end -----------------------------------------------------------

    def run(self) -> FlowResult:
        scenario, network = self.scenario, self.network
        network.run(network.now + _SETTLING)
        start = network.now
        for number, source in enumerate(self.sources):
            network.at(start + number * scenario.stagger, source.start)
        if scenario.vanish_at:
            network.at(start + scenario.vanish_at, lambda: network.vanish(self.consumers[-1].host))
        network.run(start + scenario.warm_up)
        self._measure(on=True)
        network.run(start + scenario.duration)
        self._measure(on=False)
        for source in self.sources:
            source.open = False
        if not network.run(network.now + PATIENCE, lambda: all(source.is_done for source in self.sources)):
            behind = [source.writer.unacknowledged() for source in self.sources]
            raise Wrong(f"seed {self.seed}: not done after {PATIENCE // SECOND} s; {behind}")
        drain = network.now - start - scenario.duration
        network.run(network.now + SECOND)
        return self._result(start, drain)

    def _measure(self, *, on: bool) -> None:
        self.measuring = self.network.queue.on = self.answers.on = on
        for source in self.sources:
            source.meter.on = on
        for consumer in self.consumers:
            if not on:
                consumer.stall = max(
                    consumer.stall, self.network.now - min(consumer.taken_at, self.network.now)
                )
            consumer.taken_at = self.network.now

    def _result(self, start: int, drain: int) -> FlowResult:
        scenario, queue, answers = self.scenario, self.network.queue, self.answers
        measured = scenario.measured
        link = scenario.link
        shares = [
            link.seconds(consumer.delivered * WIRE_SIZE) * SECOND / measured for consumer in self.consumers
        ]
        meters = [source.meter for source in self.sources]
        data = sum(meter.data_bytes for meter in meters)
        repairs = sum(meter.repair_bytes for meter in meters)
        datagrams = max(sum(meter.datagrams for meter in meters), 1)
        copies = max(self.network.copies, 1)
        first, last = start // SLOT, (start + scenario.duration) // SLOT
        slot_share = link.seconds(WIRE_SIZE) * SECOND / SLOT
        count = scenario.writers
        together = max if scenario.multicast else sum
        return FlowResult(
            shares=shares,
            writers=[together(shares[number::count]) for number in range(count)],
            retransmission=repairs / max(data + repairs, 1),
            utilization=link.seconds(queue.passed) * SECOND / measured,
            queue_peak=queue.peak,
            queue_mean=queue.waited / measured,
            overruns=queue.dropped,
            overrun_share=queue.dropped / max(queue.arrived, 1),
            loss=self.network.copies_lost / max(self.network.copies, 1),
            dropped_readers=sum(source.writer.counters.dropped_readers for source in self.sources),
            missed=[
                each.missed + self.sources[number % count].writer.last_sn + 1 - max(each.wanted, 1)
                for number, each in enumerate(self.consumers)
            ],
            stall=max(each.stall for each in self.consumers if each.usual),
            answers=answers.datagrams / copies,
            acknacks=(answers.acknacks + answers.nacks) / copies,
            status_messages=answers.status_messages / copies,
            heartbeats=sum(meter.heartbeats for meter in meters) / datagrams,
            writer_bytes=max(source.peak for source in self.sources),
            reader_bytes=max(each.peak for each in self.consumers),
            queue=[queue.lengths.get(slot, 0) for slot in range(first, last)],
            rates=[
                (np.array([each.counts[slot] for slot in range(first, last)]) * slot_share).tolist()
                for each in self.consumers
            ],
            drain=drain,
            rejoined_behind=max((max(each.behind, default=0) for each in self.consumers), default=0),
        )


def flow(scenario: FlowScenario, seed: int = 1) -> FlowResult:
    return FlowSimulation(scenario, seed).run()
