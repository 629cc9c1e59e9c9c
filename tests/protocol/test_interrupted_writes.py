"""An exception comes between any two lines of a writer, as KeyboardInterrupt does: what do its readers get?

The oracle: what was written by calls that returned is delivered once and in order, what a call that raised was to write
at most once, and all that is written behind it; nothing counts as lost; the readers can acknowledge all; and the
publication log holds what the network gets, number by number.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType

import numpy as np
import pytest

from spark_rtps.transport.log.image import CopyBuffer, Image
from spark_rtps.transport.log.publication_log import PublicationLog
from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.protocol.outgoing import Outgoing
from spark_rtps.transport.protocol.policies import BatchPolicy, BatchWire, FlowControlPolicy
from spark_rtps.transport.protocol.writing.flow import FlowControl, Receiver
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.submessages import Data, Gap, Heartbeat
from tests.log.publishing_scene import Driver, number_of, payload, read_all, samples_of
from tests.protocol.writer_script import MS, Script, sns, submessages
from tests.support.interruption import Interrupted, Interruption

S = 1_000 * MS
WRITER = (
    "/transport/protocol/writing/",
    "/transport/log/",
    "/protocol/outgoing.py",
    "/protocol/intervals.py",
)


class Reader:
    """Acknowledges what it is told of; the first datagram with an odd number does not reach it."""

    def __init__(self) -> None:
        self.expected = 1
        self.got: dict[int, bytes] = {}
        self.irrelevant: set[int] = set()
        self.lost: list[int] = []
        self.announced: int | None = None
        self._dropped: set[int] = set()

    def receive(self, datagram: Outgoing) -> None:
        output = submessages(datagram)
        odd = {each.sn for each in output if isinstance(each, Data) and each.sn % 2}
        if not odd <= self._dropped:
            self._dropped |= odd
            return
        for each in output:
            if isinstance(each, Data):
                data = bytes(each.payload or b"")
                assert each.sn in self.irrelevant or self.got.setdefault(each.sn, data) == data
            elif isinstance(each, Gap):
                self.irrelevant.update(range(each.start_sn, each.irrelevant.base))
            elif isinstance(each, Heartbeat):
                gone = range(self.expected, each.first_sn)
                self.lost += [sn for sn in gone if sn not in self.got and sn not in self.irrelevant]
                self.expected, self.announced = max(self.expected, each.first_sn), each.last_sn
        while self.expected in self.got or self.expected in self.irrelevant:
            self.expected += 1

    @property
    def delivered(self) -> list[int]:
        return [number_of(self.got[sn])[1] for sn in sorted(self.got) if sn < self.expected]


class Scene:
    """A writer, with a publication log or without, and its reader."""

    def __init__(self, *, logged: bool) -> None:
        self.log = PublicationLog.create(1 << 16, initial_term_id=-1) if logged else None
        self.script = Script(log=self.log, flow_control=FlowControl(FlowControlPolicy()))
        self.writer = self.script.writer
        self.reader = Reader()
        self.script.acknack(1)
        self.number = 0
        self.returned: list[int] = []
        self.aborted: list[int] = []
        self.image = None if self.log is None else Image(self.log, 0, CopyBuffer())
        self.in_log: list[tuple[int, bytes]] = []

    def write(self, count: int = 1) -> None:
        numbers = range(self.number + 1, self.number + count + 1)
        self.number += count
        now = self.script.now
        data = samples_of([payload(0, number, 40) for number in numbers])
        assert self.writer.write_samples(data, timestamp=now, now=now) == count
        self.returned += numbers

    def claim(self, finish: str) -> None:
        self.number += 1
        number, now = self.number, self.script.now
        if finish == "abort":
            self.aborted.append(number)
        claim = self.writer.claims.make(40, timestamp=now, now=now)
        assert claim is not None
        claim.data[:] = np.frombuffer(payload(0, number, 40), np.uint8)
        getattr(self.writer.claims, finish)(claim, now=now)
        if finish == "commit_claim":
            self.returned.append(number)

    def exchange(self) -> None:
        """What the writer says arrives, and so do the answers."""
        for _ in range(3):
            for datagram in self.writer.outgoing():
                self.reader.receive(datagram)
            if (last := self.reader.announced) is None:
                break
            reader, self.reader.announced = self.reader, None
            lacking = [sn for sn in range(reader.expected, last + 1) if sn not in reader.got]
            self.script.acknack(reader.expected, *(sn for sn in lacking if sn not in reader.irrelevant))
        if self.image is not None:
            self.in_log += read_all(self.image)

    def sleep(self, duration: int) -> None:
        end = self.script.now + duration
        while True:
            self.exchange()
            at = self.writer.get_timer()
            if at is None or at > end:
                self.script.now = end
                return
            self.script.now = max(self.script.now, at)
            self.writer.handle_timer(self.script.now)

    def check(self) -> None:
        self.sleep(20 * S)
        self.writer.request_acknowledgment(self.script.now)
        self.sleep(20 * S)
        self._check()
        for _ in range(2):
            self.write()
            self.exchange()
        self.sleep(S)
        self._check()
        if self.log is not None and self.image is not None:
            assert self.in_log == [(sn, self.reader.got[sn]) for sn in sorted(self.reader.got)]
            assert self.image.position == self.log.position == self.writer.positions.snd_pos

    def _check(self) -> None:
        delivered, window, history = self.reader.delivered, self.writer.window, self.writer.history
        assert delivered == sorted(set(delivered)), "once and in order"
        assert set(self.returned) <= set(delivered) and not set(self.aborted) & set(delivered)
        assert not self.reader.lost
        assert not self.writer.unacknowledged() and not self.writer._unsent.queue
        assert (window.samples, window.nbytes) == (history.samples, history.nbytes) == (0, 0)


Step = Callable[[Scene], object]
WRITES: list[Step] = [
    Scene.write,
    Scene.exchange,
    lambda scene: scene.write(3),
    lambda scene: scene.write(2),
    Scene.exchange,
]
CLAIMS: list[Step] = [
    Scene.write,
    lambda scene: scene.claim("commit_claim"),
    Scene.exchange,
    lambda scene: scene.claim("abort"),
    Scene.write,
    Scene.exchange,
]


def abort_a_set(scene: Scene) -> None:
    sets, now = scene.writer.coherent_sets, scene.script.now
    sets.begin(now=now)
    try:
        scene.write(2)
        del scene.returned[-2:]
    finally:
        sets.abort(now=now)


SETS: list[Step] = [Scene.write, Scene.exchange, abort_a_set, Scene.write, Scene.exchange]


@pytest.mark.parametrize("start", range(4))
@pytest.mark.parametrize(
    ("steps", "logged"),
    [(WRITES, False), (WRITES, True), (CLAIMS, True), (SETS, False)],
    ids=["memory", "log", "claims", "sets"],
)
def test_an_exception_between_any_two_lines(steps: list[Step], logged: bool, start: int) -> None:
    """Of the lines every eighth, so that it takes seconds; the steps are alike enough that no line is left out."""
    for line in range(start + 1, 1 << 20, 8):
        scene, interruption = Scene(logged=logged), Interruption(line, WRITER)
        for step in steps:
            interruption.run(partial(step, scene))
        if interruption.is_due:
            assert line > 500, "it went through"
            return
        scene.check()


def test_a_claim_whose_maker_never_gets_it_holds_nothing_up() -> None:
    """What it has to send, the batch in progress for instance, may raise when it is handed to the network."""
    scene = Scene(logged=True)

    def fail(_: list[Outgoing]) -> None:
        raise Interrupted

    driver = Driver(fail)
    driver.writer = scene.writer
    with pytest.raises(Interrupted):
        BlockingWriter(driver, scene.writer, "t").try_claim(40)
    assert not scene.writer.claims.open
    scene.write()
    scene.exchange()
    assert scene.reader.delivered == [1]


def test_a_strategy_that_raises_once_when_a_reader_is_matched_makes_no_difference() -> None:
    class Faulty(FlowControl):
        fails = False

        def limit(self, receivers: Mapping[Guid, Receiver]) -> int:
            if self.fails:
                raise Interrupted
            return super().limit(receivers)

        def is_connected(self, receivers: Mapping[Guid, Receiver]) -> bool:
            self.limit(receivers)
            return super().is_connected(receivers)

    strategy = Faulty(FlowControlPolicy())
    script = Script(readers=0, flow_control=strategy)
    strategy.fails = True
    with pytest.raises(Interrupted):
        script.match(1, status_messages=True)
    strategy.fails = False
    script.sleep(S)
    script.acknack(1).status(0, 100_000)
    assert script.write(3) == 3
    assert sns(script.output()) == [1, 2, 3]
    script.acknack(1, 2)
    assert sns(script.output()) == [2], "what it lacks is repaired"


@pytest.mark.parametrize("wire", [BatchWire.DATA, BatchWire.AUTO])
def test_batched_samples_outlive_an_exception_during_the_send(wire: BatchWire) -> None:
    """Its samples are of writes that have returned."""
    for line in range(1, 1 << 20, 3):
        batch = BatchPolicy(enable=True, max_samples=1_000, max_flush_delay=10 * MS, wire=wire)
        script = Script(batch=batch, readers=0).match(1, batches=True)
        script.acknack(1)
        for number in range(1, 5):
            data = samples_of([payload(0, number, 40)])
            assert script.writer.write_samples(data, timestamp=number, now=script.now) == 1
        left, begun = line, False

        def trace(frame: FrameType, event: str, _argument: object) -> object:
            nonlocal left, begun
            if "/transport/protocol/writing/" not in frame.f_code.co_filename:
                return None
            begun |= frame.f_code.co_qualname == "Framer.together"
            if begun and event == "line":
                left -= 1
                if not left:
                    raise Interrupted
            return trace

        sys.settrace(trace)
        try:
            script.writer.flush_batch(now=script.now)
        except Interrupted:
            pass
        finally:
            sys.settrace(None)
        if left > 0:
            assert line > 30, "it went through"
            return
        script.sleep(10 * MS)
        script.writer.flush_batch(now=script.now)
        assert script.writer.last_sn == script.writer.history.samples == 4, line
        assert script.writer.state.last_batch_sn == script.writer.history.batches == (wire is BatchWire.AUTO)


def test_a_set_whose_beginning_was_stopped_can_be_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(logged=False)
    sets, state, now = scene.writer.coherent_sets, scene.writer.state, scene.script.now
    with monkeypatch.context() as patch:
        patch.setattr(state, "sets", None)  # what is done next to it raises
        with pytest.raises(AttributeError):
            sets.begin(now=now)
    assert state.set_begun == 1 and not state.sets
    sets.abort(now=now)
    scene.write()
    scene.exchange()
    assert state.set_begun == 0 and scene.writer.positions.snd_pos == scene.writer.positions.pub_pos > 0


def test_a_set_whose_abort_was_stopped_is_in_no_later_ones_way(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(logged=False)
    sets, history, now = scene.writer.coherent_sets, scene.writer.history, scene.script.now
    sets.begin(now=now)
    scene.write()
    with monkeypatch.context() as patch:
        patch.setattr(history, "abort_set", None)
        with pytest.raises(TypeError):
            sets.abort(now=now)
    sets.begin(now=now)
    scene.write()
    sets.end(now=now)
    scene.sleep(S)
    assert scene.writer.state.set_begun == 0 and scene.reader.expected == scene.writer.last_sn + 1
