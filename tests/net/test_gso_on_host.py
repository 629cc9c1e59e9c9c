"""Frames of several messages in a publication log: readers on this host and spies get what readers by UDP get."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.transport.errors import AcknowledgmentError, LogError
from spark_rtps.transport.log.named_logs import NamedLogs
from spark_rtps.transport.log.publication_log import PublicationLog
from spark_rtps.transport.log.publication_scan import frames_of
from spark_rtps.transport.log.subscriber_slots import SUBSCRIBERS_MAX
from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.spy_node import SpyNode
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec
from spark_rtps.transport.protocol.policies import BatchPolicy, Compression, FlowControlPolicy
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.structure import INFINITE, Guid
from tests.net.net_scene import BEST_EFFORT, RELIABLE, Received, Scene, scene_of
from tests.net.on_host_scene import hold, readers_on_host
from tests.support import domains
from tests.support.numbered_samples import numbered
from tests.support.waiting import PATIENCE

SPIED = FlowControlPolicy(ipc=True, spies_simulate_connection=True, term_length=1 << 20)


@pytest.fixture
def scene(directory: Path) -> Iterator[Scene]:
    with scene_of(domains.NET_ON_HOST) as scene:
        yield scene


class Spy:
    """A spy, whose node this thread runs."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.node = SpyNode(domains.NET_ON_HOST, bytes(range(12)))
        self.received = Received(scene.happened)
        with self.node.lock:
            self.received.reader = self.node.create_reader(ReaderSpec("T", "Type", RELIABLE), self.received)

    def look(self) -> None:
        self.node._look_at = 0
        self.node.cycle(0)

    def wait(self, until: Callable[[], bool]) -> None:
        def is_reached() -> bool:
            self.look()
            return until()

        self.scene.wait(is_reached)

    def sees(self, writer: BlockingWriter) -> bool:
        """Whether the writer knows of the spy, too."""
        node = writer.node
        node.wake()
        with node.lock:
            return bool(writer.writer._unsent.spies)


@pytest.fixture
def spy(scene: Scene) -> Iterator[Spy]:
    spy = Spy(scene)
    yield spy
    spy.node.close()


@pytest.mark.parametrize("qos", [RELIABLE, BEST_EFFORT], ids=["reliable", "best_effort"])
@pytest.mark.parametrize(
    ("mtu", "policy"),
    [
        (1_500, {}),
        (1_500, {"coalescing": False}),
        (9_000, {}),
        (1_500, {"batch": BatchPolicy(enable=True)}),
        (None, {"batch": BatchPolicy(enable=True, max_data_bytes=1_000)}),
        (None, {"batch": BatchPolicy(enable=True, max_data_bytes=4_000, compression=Compression.LZ4)}),
    ],
    ids=["1500", "1500-single", "9000", "1500-batches", "small-batches", "compressed-batches"],
)
def test_readers_by_log_and_by_udp_and_spies_get_the_same(
    scene: Scene, spy: Spy, mtu: int | None, policy: dict[str, Any], qos: Qos
) -> None:
    by_udp, by_log = scene.reader(scene.node()), scene.reader(scene.node(ipc=True), qos)
    writer = scene.writer(scene.node(mtu=mtu), readers=2, flow_control=SPIED, **policy)
    spy.wait(lambda: spy.sees(writer) and readers_on_host(writer) == 1)
    for i in range(6):
        writer.write_samples(numbered(500 * i, 500, size=80), timeout=PATIENCE)
        spy.look()
    writer.flush()
    spy.wait(lambda: all(len(got.numbers) >= 3_000 for got in (by_udp, by_log, spy.received)))
    assert by_udp.numbers == by_log.numbers == spy.received.numbers == list(range(3_000))
    assert not spy.node.counters.drops and by_log.reader.counters.nacks_sent == 0


def test_a_reader_that_joins_within_a_divided_gso_buffer_begins_at_a_frame(scene: Scene, spy: Spy) -> None:
    reading, late = scene.node(), scene.node(ipc=True)
    by_udp = scene.reader(reading)
    writer = scene.writer(scene.node(mtu=1_500), flow_control=SPIED)
    hold(by_udp, reading, 150_000)
    with pytest.raises(AcknowledgmentError):
        writer.write_samples(numbered(0, 20_000, size=100), timeout=0.3)
    log, sent = writer.writer._unsent.log, writer.writer.positions.snd_pos
    assert isinstance(log, PublicationLog)
    assert any(frame.position < sent < frame.position + frame.length for frame in frames_of(log))
    next_number = writer.writer.state.sent_sn
    by_log = scene.reader(late)
    spy.wait(lambda: spy.sees(writer) and readers_on_host(writer) == 1)
    hold(by_udp, reading, INFINITE)
    writer.write_samples(numbered(writer.writer.last_sn, 1_000, size=100), timeout=PATIENCE)
    last = writer.writer.last_sn
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    for got in (spy.received, by_log):
        spy.wait(lambda got=got: bool(got.numbers) and got.numbers[-1] == last - 1)  # type: ignore[misc]
        first = got.numbers[0]
        assert first <= next_number and got.numbers == list(range(first, last))
    assert by_udp.numbers == list(range(last)) and not spy.node.counters.drops


def test_a_spy_that_finds_no_slot_joins_when_there_is_one(
    scene: Scene, spy: Spy, caplog: pytest.LogCaptureFixture
) -> None:
    writer = scene.writer(scene.node(), readers=0, flow_control=SPIED)
    log = writer.writer._unsent.log
    assert isinstance(log, PublicationLog)
    others = [Guid(bytes([9] * 11 + [number]), bytes((0, 0, 1, 4))) for number in range(SUBSCRIBERS_MAX)]
    slots = [log.subscribe(guid, position=0, now=time.monotonic_ns(), spy=True) for guid in others]
    spy.node.events()
    for _ in range(3):
        spy.look()
    assert not spy.node.events(), "it was never matched"
    assert caplog.text.count("all reader slots of") == 1
    for slot in slots:
        assert slot is not None
        slot.leave()
    spy.wait(lambda: spy.sees(writer))
    writer.write_samples(numbered(0, 100), timeout=PATIENCE)
    spy.wait(lambda: spy.received.numbers == list(range(100)))


def test_a_spy_that_cannot_open_a_log_once_tries_again(
    scene: Scene, spy: Spy, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = scene.writer(scene.node(), readers=0, flow_control=SPIED)
    opened = NamedLogs.map_log
    failures = iter([LogError("cannot open it: Too many open files")])

    def fails_once(self: NamedLogs, name: str) -> PublicationLog:
        for failure in failures:
            raise failure
        return opened(self, name)

    spy.node._named_logs.listing()
    monkeypatch.setattr(NamedLogs, "map_log", fails_once)
    spy.wait(lambda: spy.sees(writer))
    assert list(failures) == []
    writer.write_samples(numbered(0, 100), timeout=PATIENCE)
    spy.wait(lambda: spy.received.numbers == list(range(100)))
