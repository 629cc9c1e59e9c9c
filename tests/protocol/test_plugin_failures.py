"""A plug-in that raises, at whichever of its calls: no other endpoint of its participant loses a sample or a timer.

A reader whose congestion control raises goes on, too. A writer whose flow control raises may stand still.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.policies import FlowControlPolicy
from spark_rtps.transport.protocol.reading.flow.congestion_control import StaticWindow
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.flow import FlowControl
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.wire.samples import Samples
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
BEST_EFFORT = Qos()
SAMPLES = 40


class Fault:
    """Raises at one call of many, or at all from one on."""

    def __init__(self, at: int, *, always: bool = False) -> None:
        self.calls, self.at, self.always, self.raised = 0, at, always, 0

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == self.at or (self.always and self.calls > self.at):
            self.raised += 1
            raise RuntimeError("a plug-in's own mistake")


def faulty(base: type, methods: tuple[str, ...], fault: Fault) -> type:
    """A plug-in whose methods raise when it is time."""

    def method(name: str) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            fault()
            return getattr(base, name)(self, *args, **kwargs)

        return call

    return type("Faulty", (base,), {name: method(name) for name in methods})


def delivered(fault: Fault, kind: str, loss: float) -> dict[str, list[int]]:
    """Two participants: of the topic ``faulty`` one endpoint has the plug-in, of the others none."""
    network = VirtualNetwork(seed=3, loss=0.0)
    here, there = network.add(), network.add()
    for each in (here, there):
        handle = each.handle_timer

        def go_on(now: int, handle: Any = handle) -> None:  # as a node does, which logs it
            try:
                handle(now)
            except RuntimeError as error:
                assert "own mistake" in str(error)  # noqa: PT017

        each.handle_timer = go_on  # type: ignore[method-assign]
    flow = faulty(FlowControl, ("limit", "pacing", "acknowledged", "is_connected"), fault)
    sized = faulty(StaticWindow, ("__init__", "on_track_rebuild", "on_rtt_measurement"), fault)
    got: dict[str, list[int]] = {}
    readers: dict[str, StatefulReader] = {}
    writers = {}
    for topic, qos in (("faulty", RELIABLE), ("other", RELIABLE), ("quick", BEST_EFFORT)):
        mine = topic == "faulty"
        control = (lambda policy, _: sized(policy)) if mine and kind == "congestion control" else None
        made = here.create_reader(ReaderSpec(topic, "T", qos), now=network.now, congestion_control=control)
        readers[topic], got[topic] = made, []
        if mine and kind == "congestion control":  # another reader of the same writer
            readers["same"] = here.create_reader(ReaderSpec(topic, "T", qos), now=network.now)
            got["same"] = []
        paced = (lambda _: flow(FlowControlPolicy())) if mine and kind == "flow control" else None
        writers[topic] = there.create_writer(WriterSpec(topic, "T", qos), now=network.now, flow_control=paced)

    def take() -> bool:
        for topic, reader in readers.items():
            got[topic] += [sn for run in reader.take_runs() for sn in run.sequence_numbers().tolist()]
        return False

    network.run(2 * SECOND, until=take)
    assert all(writer.readers for writer in writers.values())
    network.loss = loss
    sample = Samples.uniform(np.zeros(8, np.uint8), 1, 8)
    for _ in range(SAMPLES):
        for topic, writer in writers.items():
            try:
                writer.write_samples(sample, timestamp=network.now, now=network.now)
            except RuntimeError:  # to whom writes with the plug-in
                assert topic == "faulty"
        network.run(5 * MILLISECOND, until=take)
    network.loss = 0.0
    network.run(20 * SECOND, until=take)
    assert not writers["other"].unacknowledged()
    return got


@pytest.mark.parametrize("loss", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["flow control", "congestion control"])
def test_a_plugin_that_raises_once_costs_no_sample(kind: str, loss: float) -> None:
    counted = Fault(0)
    delivered(counted, kind, loss)
    assert counted.calls > 5
    for at in sorted({*range(1, 12), *range(12, counted.calls, max(counted.calls // 12, 1))}):
        fault = Fault(at)
        got = delivered(fault, kind, loss)
        assert fault.raised or fault.calls < at
        for topic, sns in got.items():
            if topic != "quick" and (topic, kind) != ("faulty", "flow control"):
                assert sns == list(range(1, SAMPLES + 1)), (at, topic)
        if not loss:
            assert got["quick"] == list(range(1, SAMPLES + 1)), at


@pytest.mark.parametrize("at", [1, 4, 20])
@pytest.mark.parametrize("kind", ["flow control", "congestion control"])
def test_a_plugin_that_always_raises_costs_others_no_sample(kind: str, at: int) -> None:
    got = delivered(Fault(at, always=True), kind, 0.0)
    for topic, sns in got.items():
        if topic != "faulty":
            assert sns == list(range(1, SAMPLES + 1)), topic
