"""Forged messages of a matched writer and a matched reader among honest traffic, over a link that loses and reorders.

They come from the peer's own address, so that nothing keeps them out. Whatever they say, no row comes twice or out of
order, and nothing is acknowledged that was not delivered. Where none of them says that numbers before its own will
never come, every honest row is delivered, a few seconds after the last one at the latest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rtps.transport.protocol.policies import WriterPolicy
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.batch import Batch
from spark_rtps.transport.wire.numbers import FragmentNumberSet, SequenceNumberSet
from spark_rtps.transport.wire.samples import Run
from spark_rtps.transport.wire.status_messages import RttMeasurement, StatusMessage
from spark_rtps.transport.wire.submessages import (
    AckNack,
    AckNackBatch,
    DataFrag,
    Gap,
    Heartbeat,
    HeartbeatBatch,
    HeartbeatFrag,
    NackFrag,
)
from tests.protocol.lossy_link import MS, SECOND, LossyLink, Node
from tests.protocol.test_reliability import BEST_EFFORT, READER, RELIABLE, WRITER, Feed, numbered

ANY = bytes(4)
#: The honest writer writes no more.
SAMPLES = 400
#: The first byte of a payload that was forged.
FORGED = 0xFF

NUMBERS = st.one_of(
    st.integers(SAMPLES + 100, SAMPLES + 65_536),
    st.integers(10**12, 10**12 + 50),
    st.integers((1 << 63) - 50, (1 << 63) - 1),
)
#: They say what will never come.
PASSING = {"heartbeat first", "heartbeat batch", "gap"}
COUNT = st.one_of(st.integers(-3, 5), st.sampled_from((1 << 31, 1 << 30, 60_000)))


@dataclass(frozen=True)
class Forgery:
    kind: str
    number: int
    count: int
    wait: int


FORGERIES = st.builds(
    Forgery,
    st.sampled_from(
        (
            "heartbeat first",
            "heartbeat last",
            "heartbeat lower",
            "heartbeat batch",
            "heartbeat frag",
            "gap",
            "data",
            "batch",
            "frag",
            "frag of all",
            "acknack",
            "acknack batch",
            "status",
            "nack frag",
            "nack storm",
            "heartbeat storm",
            "rtt",
        )
    ),
    NUMBERS,
    COUNT,
    st.sampled_from((0, 0, MS, 5 * MS, 20 * MS, 100 * MS, 600 * MS)),
)


class Scene:
    """An honest pair, and somebody who speaks for both."""

    def __init__(self, seed: int, loss: float, *, reliable: bool = True) -> None:
        self.link = LossyLink(seed, loss=loss, duplicate=0.1, delay=(10_000, 3_000_000))
        self.a, self.b = self.link.node(), self.link.node()
        qos = RELIABLE if reliable else BEST_EFFORT
        policy = WriterPolicy(send_window_bytes=4096)
        self.writer = StatefulWriter(Guid(self.a.prefix, WRITER), qos, policy=policy, message_size=600)
        self.reader = StatefulReader(Guid(self.b.prefix, READER), qos)
        self.a.writers.append(self.writer)
        self.b.readers.append(self.reader)
        self.link.match(self.writer, self.reader)
        self.feed = Feed(self.link, self.writer, [])
        self.count = 0

    def write(self, count: int) -> None:
        first = self.writer.last_sn + sum(each.count for each in self.feed.batches)
        self.feed.batches.append(numbered(first, count))

    def run(self, duration: int) -> None:
        self.link.run(duration, each=self._each)

    def _each(self) -> None:
        self.feed()
        assert self.writer.counters.written_samples <= SAMPLES
        if self.writer.qos.is_reliable:
            (proxy,) = self.writer.readers.values()
            delivered = self.honest()
            assert proxy.acked <= len(delivered), "acknowledged, and not delivered"

    def honest(self) -> list[int]:
        return honest(self.b, self.reader)

    def forge(self, forgery: Forgery) -> None:
        self.count += 1
        heartbeats = self.writer._sender.heartbeats._count
        sn, count = forgery.number, (heartbeats + forgery.count) % (1 << 31)
        me, reader, now = self.writer.guid, self.reader, self.link.now
        match forgery.kind:
            case "heartbeat first":
                reader.on_heartbeat(me, Heartbeat(ANY, me.entity, sn, sn, count), now=now)
            case "heartbeat last":
                reader.on_heartbeat(me, Heartbeat(ANY, me.entity, 1, sn, count), now=now)
            case "heartbeat lower":
                reader.on_heartbeat(me, Heartbeat(ANY, me.entity, 1, sn % 50, count), now=now)
            case "heartbeat batch":
                heartbeat = HeartbeatBatch(ANY, me.entity, sn, sn, sn, sn, count)
                reader.on_heartbeat_batch(me, heartbeat, now=now)
            case "heartbeat frag":
                reader.on_heartbeat_frag(me, HeartbeatFrag(ANY, me.entity, sn, 9, count), now=now)
            case "gap":
                first = SAMPLES + 50 if sn % 2 else 1
                reader.on_gap(me, Gap(ANY, me.entity, first, SequenceNumberSet(sn)), now=now)
            case "data":
                reader.on_run(self._run(sn), now=now)
            case "batch":
                reader.on_batch(Batch(sn, sn, sn, [self._run(sn, batch=sn)], 0, ANY, me), now=now)
            case "frag" | "frag of all":
                fragments = 1 if forgery.kind == "frag" else 3
                payload = bytes([0, 1, 0, 0]) + bytes([FORGED]) * (10 * fragments - 4)
                frag = DataFrag(ANY, me.entity, sn, 1, fragments, 10, 30, payload)
                reader.on_data_frag(me, frag, 0, now=now)
            case _:
                self._forge_report(forgery, now)
        self.b.taken.setdefault(reader.guid, []).extend(run.copy() for run in reader.take_runs())

    def _run(self, sn: int, *, batch: int = 0) -> Run:
        payload = np.full(40, FORGED, np.uint8)
        payload[24:28] = (0, 1, 0, 0)
        run = Run(self.writer.guid, sn, 1, payload, 40, 24, 16)
        run.batch_sn = batch
        return run

    def _forge_report(self, forgery: Forgery, now: int) -> None:
        feedback, me = self.writer.feedback, self.reader.guid
        to, sn = self.writer.guid.entity, forgery.number
        (proxy,) = self.writer.readers.values()
        match forgery.kind:
            case "acknack":
                report = AckNack(me.entity, to, SequenceNumberSet(sn), self.count)
                feedback.on_acknack(me, report, now=now)
            case "acknack batch":
                report_of_batches = AckNackBatch(me.entity, to, SequenceNumberSet(sn), self.count)
                feedback.on_acknack_batch(me, report_of_batches, now=now)
            case "status":
                feedback.on_status_message(me, StatusMessage(me.entity, to, sn, 0, self.count), now=now)
            case "nack frag":
                nack = NackFrag(me.entity, to, sn, FragmentNumberSet.from_numbers(1, [1]), self.count)
                feedback.on_nack_frag(me, nack, now=now)
            case "rtt":
                feedback.on_rtt_measurement(me, RttMeasurement(me.entity, to, now), now=now)
            case "nack storm":
                base = proxy.acked + 1
                for i in range(20):
                    missing = SequenceNumberSet.from_numbers(base, range(base, base + 256))
                    feedback.on_acknack(me, AckNack(me.entity, to, missing, self.count + i), now=now)
            case "heartbeat storm":
                for i in range(20):
                    report = AckNack(me.entity, to, SequenceNumberSet(1), self.count + i, final=False)
                    feedback.on_acknack(me, report, now=now)


def honest(node: Node, reader: StatefulReader) -> list[int]:
    """The numbers of honest rows, as their payloads have them, in the order in which they came."""
    numbers = []
    for run in node.taken.get(reader.guid, []):
        samples = run.samples()
        for i in range(samples.count):
            payload = bytes(samples.payload(i))
            if payload[8] != FORGED or payload[4:8] != bytes([FORGED]) * 4:
                numbers.append(int.from_bytes(payload[4:8], "little"))
    return numbers


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 1 << 16),
    st.sampled_from((0.0, 0.2)),
    st.lists(st.tuples(FORGERIES, st.integers(0, 12)), max_size=25),
)
def test_rows_come_once_and_in_order(seed: int, loss: float, steps: list[tuple[Forgery, int]]) -> None:
    scene = Scene(seed, loss)
    written = 0
    for forgery, count in steps:
        if count:
            scene.write(count)
            written += count
        scene.forge(forgery)
        scene.run(forgery.wait)
    scene.write(3)
    scene.run(6 * SECOND)
    rows, counters = scene.honest(), scene.reader.counters
    assert rows == sorted(set(rows))
    if all(forgery.kind not in PASSING for forgery, _ in steps):
        assert rows == list(range(written + 3))
        assert not scene.writer.unacknowledged()
        assert counters.lost_samples == 0
    else:
        (proxy,) = scene.reader.writers.values()
        passed = counters.lost_samples + counters.irrelevant_samples
        assert counters.received_samples + passed <= proxy.expected - 1, "no number counts twice"


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 1 << 16),
    st.lists(
        FORGERIES.filter(lambda each: each.kind in ("data", "batch", "frag", "frag of all")), max_size=20
    ),
)
def test_rows_of_a_best_effort_writer_come_once_and_in_order(seed: int, steps: list[Forgery]) -> None:
    scene = Scene(seed, 0.0, reliable=False)
    written = 0
    for forgery in steps:
        scene.write(5)
        written += 5
        scene.run(10 * MS)
        scene.forge(forgery)
    rows, counters = scene.honest(), scene.reader.counters
    assert rows == sorted(set(rows)) and set(rows) <= set(range(written))
    if scene.reader.writers and (proxy := scene.reader.writers[scene.writer.guid]).synced:
        begun = proxy.expected - 1 - counters.received_samples - counters.lost_samples
        assert begun >= 0, "no number counts twice"


@pytest.mark.parametrize("kind", ["heartbeat last", "data", "frag of all"])
def test_forged_messages_that_go_on_do_not_hold_a_stream_up(kind: str) -> None:
    """Ten forged messages a second; every honest row is there within a second of its writing."""
    scene = Scene(1, 0.05)
    for i in range(40):
        scene.write(10)
        for part in range(5):
            scene.forge(Forgery(kind, (10**12 if i % 2 else 5_000) + i * 7 + part, 5 + part, 0))
            scene.run(50 * MS)
        if i >= 4:
            assert len(scene.honest()) >= 10 * (i - 3)
    scene.run(2 * SECOND)
    assert scene.honest() == list(range(400))
