"""Untethered readers and their writer, over a network: who is let go, when, and who loses nothing."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from spark_rtps.transport.protocol.endpoint_info import ReaderInfo, WriterInfo
from spark_rtps.transport.protocol.policies import CongestionControlPolicy, ReaderPolicy
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.qos import Qos, ReliabilityKind
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.status_messages import RttMeasurement
from tests.protocol.lossy_link import MS, SECOND, LossyLink, Node
from tests.protocol.writer_script import Script, reader_guid

WINDOW, SIZE = 64_000, 1_000
#: Samples, with their headers, that leave less than an eighth of the window.
FULL = 60
LIMIT, REST = 1 * SECOND, 3 * SECOND
UNTETHERED = ReaderPolicy(
    congestion_control=CongestionControlPolicy(max_window=WINDOW),
    tether=False,
    untethered_window_limit_timeout=LIMIT,
    untethered_resting_timeout=REST,
)
TETHERED = replace(UNTETHERED, tether=True)
QOS = Qos(reliability=ReliabilityKind.RELIABLE)


class Scene:
    """One writer that always has more, and readers of which some take nothing more after a while."""

    def __init__(self, *, loss: float = 0.0) -> None:
        self.link = LossyLink(seed=7, loss=loss)
        self.node = self.link.node()
        self.writer = StatefulWriter(Guid(self.node.prefix, b"\0\0\1\3"), QOS)
        self.node.writers.append(self.writer)
        self.fast: list[StatefulReader] = []
        self._keys = itertools.count(1)
        self._nodes: dict[Guid, Node] = {}

    def reader(self, policy: ReaderPolicy, *, fast: bool = False, reliable: bool = True) -> StatefulReader:
        node = self.link.node()
        qos = QOS if reliable else Qos(reliability=ReliabilityKind.BEST_EFFORT)
        reader = StatefulReader(
            Guid(node.prefix, next(self._keys).to_bytes(3, "big") + b"\4"), qos, policy=policy
        )
        reader.window = WINDOW
        node.readers.append(reader)
        self._nodes[reader.guid] = node
        if fast:
            self.fast.append(reader)
        writer = WriterInfo(
            self.writer.guid, (self.node.locator,), (), True, False, status_messages=True, term_window=0
        )
        reader.match_writer(writer, now=self.link.now)
        info = ReaderInfo(reader.guid, (node.locator,), (), reliable, False, status_messages=reliable)
        self.writer.match_reader(info, now=self.link.now)
        return reader

    def run(self, duration: int, *, writing: bool = True) -> None:
        """Let time pass; the writer writes as much as it may, a little at a time."""

        def each() -> None:
            for reader in self.fast:
                reader.window = WINDOW
            if writing:
                samples = Samples.uniform(np.zeros(4 * SIZE, np.uint8), 4, SIZE)
                self.writer.write_samples(samples, timestamp=0, now=self.link.now)

        for _ in range(duration // (10 * MS)):
            each()
            self.link.run(10 * MS)

    def taken(self, reader: StatefulReader) -> list[int]:
        runs = self._nodes[reader.guid].taken.get(reader.guid, [])
        return [sn for run in runs for sn in range(run.first_sn, run.first_sn + run.count)]

    def rests(self, reader: StatefulReader) -> bool:
        return reader.writers[self.writer.guid].resting


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_a_reader_that_holds_another_up_lingers_rests_and_rejoins(loss: float) -> None:
    scene = Scene(loss=loss)
    slow, fast = scene.reader(UNTETHERED), scene.reader(TETHERED, fast=True)
    scene.run(LIMIT // 2)
    assert slow.counters.unavailable == 0
    scene.run(LIMIT)
    assert slow.counters.unavailable == 1 and not scene.rests(slow)
    stopped_at = len(scene.taken(fast))
    assert stopped_at < 3 * WINDOW // SIZE, "it is held up"
    scene.run(LIMIT)
    assert scene.rests(slow)
    scene.run(SECOND)
    assert len(scene.taken(fast)) > 2 * stopped_at, "nobody waits for the slow one"
    assert len(scene.taken(slow)) <= WINDOW // SIZE
    slow.window = WINDOW
    scene.fast.append(slow)
    scene.run(REST)
    assert not scene.rests(slow)
    scene.run(SECOND)
    slow_taken, fast_taken = scene.taken(slow), scene.taken(fast)
    assert slow_taken[-1] > stopped_at and fast_taken == list(range(1, len(fast_taken) + 1))
    assert slow.counters.unavailable == 1 and slow.counters.lost_samples > 0
    hole = next(at for at, (a, b) in enumerate(itertools.pairwise(slow_taken)) if b != a + 1)
    assert slow_taken[: hole + 1] == list(range(1, hole + 2))
    assert slow_taken[hole + 1 :] == list(range(slow_taken[hole + 1], slow_taken[-1] + 1)), "one hole"


def test_a_single_untethered_reader_loses_nothing() -> None:
    scene = Scene()
    slow = scene.reader(UNTETHERED)
    scene.run(5 * LIMIT)
    assert slow.counters.unavailable == 0 and not scene.rests(slow)
    scene.fast.append(slow)
    scene.run(SECOND)
    taken = scene.taken(slow)
    assert taken == list(range(1, len(taken) + 1)) and len(taken) > 2 * WINDOW // SIZE
    assert slow.counters.lost_samples == 0


def test_two_that_are_equally_slow_wait_for_each_other() -> None:
    scene = Scene()
    one, other = scene.reader(UNTETHERED), scene.reader(UNTETHERED)
    scene.run(5 * LIMIT)
    assert one.counters.unavailable == other.counters.unavailable == 0


def test_a_writer_that_has_no_more_lets_nobody_go() -> None:
    scene = Scene()
    slow, fast = scene.reader(UNTETHERED), scene.reader(TETHERED, fast=True)
    samples = Samples.uniform(np.zeros(SIZE * FULL, np.uint8), FULL, SIZE)
    assert scene.writer.write_samples(samples, timestamp=0, now=scene.link.now) == FULL
    scene.run(5 * LIMIT, writing=False)
    assert len(scene.taken(fast)) == len(scene.taken(slow)) == FULL
    assert slow.counters.unavailable == 0


def test_best_effort_readers_are_held_up_too() -> None:
    scene = Scene()
    slow, _ = scene.reader(UNTETHERED), scene.reader(TETHERED, fast=True, reliable=False)
    scene.run(3 * LIMIT)
    assert scene.rests(slow)


# --- what the writer answers ----------------------------------------------------------------------


def answer(s: Script, i: int) -> bool:
    s.now += 10 * MS
    s.output()
    question = RttMeasurement(reader_guid(i).entity, s.writer.guid.entity, s.now)
    s.writer.feedback.on_rtt_measurement(reader_guid(i), question, now=s.now)
    [reply] = [each for each in s.output() if isinstance(each, RttMeasurement)]
    assert reply.reply and reply.echo_timestamp == s.now
    return reply.others_wait


def two(window: int = 10_000) -> Script:
    """Two readers, of which the first has no more room; something waits to be sent."""
    s = Script(readers=0)
    for i in (1, 2):
        s.match(i, status_messages=True).acknack(1, i=i).status(0, window, i=i)
    s.writer.outgoing()
    while s.writer.positions.snd_pos == s.writer.positions.pub_pos:
        s.write(1, 400)
    return s


def test_the_writer_says_that_others_wait() -> None:
    s = two()
    sent = s.writer.state.sent_sn
    assert not answer(s, 1), "the other has not consumed what it was sent"
    s.acknack(sent + 1, i=2).status(sent, 10_000, i=2)
    assert answer(s, 1) and not answer(s, 2)


def test_other_full_readers_do_not_wait() -> None:
    s = two()
    sent = s.writer.state.sent_sn
    for i in (1, 2):
        s.acknack(sent + 1, i=i).status(sent, 0, i=i)
    assert not answer(s, 1) and not answer(s, 2)


def test_a_spy_waits() -> None:
    s = two()
    assert not answer(s, 1)
    s.writer.feedback.on_log_positions({}, [s.writer.positions.snd_pos], now=s.now)
    assert answer(s, 1)


def test_the_one_that_left_does_not_wait() -> None:
    s = two()
    sent = s.writer.state.sent_sn
    s.acknack(sent + 1, i=2).status(sent, 10_000, i=2)
    s.writer.unmatch_reader(reader_guid(2))
    assert not answer(s, 1)
