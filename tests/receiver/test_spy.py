"""A receiver that spies: it reads what this host publishes, without a network and without being known."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.transport.errors import RtpsError
from spark_rtps.transport.log import named_logs
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.subscriber_slots import SubscriberState
from spark_rtps.transport.net import ipc_writing
from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.net.recipients import Discard
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.slices import Slice, slice_of
from spark_rtps.transport.protocol.policies import (
    BatchPolicy,
    Compression,
    FlowControlPolicy,
    PublicationPolicy,
    ReaderPolicy,
)
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.receiver.config import ReceiverConfig
from spark_rtps.transport.receiver.host import Host
from spark_rtps.transport.receiver.process import ReceiverProcess
from spark_rtps.transport.structure import NANOSECONDS
from tests.support import domains, numbered_samples
from tests.support.waiting import PATIENCE, wait_until

DOMAIN = domains.RECEIVER_SPY
RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
PUBLISHED = FlowControlPolicy(spies_simulate_connection=True, term_length=1 << 20)
NODE = NodeConfig(domain=DOMAIN, interface="lo")
numbered = partial(numbered_samples.numbered, size=68)


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(named_logs, "_SHARED_MEMORY", tmp_path)
    return named_logs.directory_of_user()


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node.open(NODE).start()
    yield node
    node.close()


def writer_of(node: Node, topic: str = "t", **policy: Any) -> BlockingWriter:
    given = PublicationPolicy(**{"flow_control": PUBLISHED, **policy})
    return node.create_writer(WriterSpec(topic, "T", RELIABLE, policy=given))


def config_in(directory: Path, **changes: Any) -> ReceiverConfig:
    given: dict[str, Any] = {
        "log_directory": str(directory / "log"),
        "topic": "t",
        "type_name": "T",
        "keyed": False,
        "qos": RELIABLE,
        "node": NODE,
        "log_max_bytes": 64 << 20,
        "log_segment_bytes": 4 << 20,
        "spy": True,
    }
    return ReceiverConfig(**(given | changes))


def are_seen(node: Node, *writers: BlockingWriter, spies: int = 1) -> bool:
    """Whether the writers know how many spies look at them."""
    node.wake()
    with node.lock:
        return all(len(writer.writer._unsent.spies) == spies for writer in writers)


class Spy:
    """A receiver in a thread of this process."""

    def __init__(self, config: ReceiverConfig) -> None:
        self.host = Host.open(config)
        self._thread = threading.Thread(target=self.host.run, daemon=True)
        self._thread.start()

    def samples(self, source: int | None = None) -> list[int]:
        """The numbers in the log, in order."""
        found: list[tuple[int, int]] = []
        log = self.host.log
        for frame in LogView(self.host.directory).frames(Cursor(log.base), Cursor(log.position)):
            found += numbered_samples.numbers_of(frame.run.samples())
        return [number for each, number in found if source in (None, each)]

    @property
    def rows(self) -> int:
        return self.host.log.rows

    @property
    def writers(self) -> int:
        return len(self.reader.writers)

    def counters(self) -> dict[str, int]:
        return self.reader.counters.snapshot()

    @property
    def reader(self) -> StatefulReader:
        (subscription,) = self.host.subscriptions.values()
        return subscription.reader

    def commit(self) -> None:
        self.host.shown._consumer.set(self.host.log.position)

    def stop(self, *, keep_log: bool = False) -> None:
        self.host.stop(dispose=True)
        self._thread.join(PATIENCE)
        self.host.close(keep_log=keep_log)


@pytest.fixture
def spying(tmp_path: Path) -> Iterator[Callable[..., Spy]]:
    spies: list[Spy] = []

    def start(**changes: Any) -> Spy:
        spies.append(Spy(config_in(tmp_path, **changes)))
        return spies[-1]

    yield start
    for spy in spies:
        spy.stop()


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"coalescing": False},
        {"batch": BatchPolicy(enable=True, max_data_bytes=4_000)},
        {"batch": BatchPolicy(enable=True, max_data_bytes=20_000, compression=Compression.LZ4)},
    ],
    ids=["coalesced", "single", "batches", "compressed"],
)
def test_a_spy_gets_all_written_samples(
    node: Node, spying: Callable[..., Spy], policy: dict[str, Any]
) -> None:
    writer = writer_of(node, **policy)
    spy = spying()
    wait_until(lambda: are_seen(node, writer))
    for i in range(100):
        writer.write_samples(numbered(100 * i, 100))
    writer.flush()
    wait_until(lambda: spy.rows == 10_000)
    assert spy.samples() == list(range(10_000))
    assert spy.counters()["lost_samples"] == 0 and not spy.host.node.counters.drops
    assert writer.writer.readers == {} and node.participant.database.participants == {}, "nobody knows of it"


def test_a_spy_alone_makes_the_writer_connected(node: Node, spying: Callable[..., Spy]) -> None:
    writer = writer_of(node)
    spying()
    wait_until(lambda: not node.wake() and writer.writer.positions.is_connected)


def test_a_spy_gets_samples_that_readers_get_too(node: Node, spying: Callable[..., Spy]) -> None:
    elsewhere = Node.open(NODE).start()
    elsewhere.create_reader(ReaderSpec("t", "T", RELIABLE), Discard())
    try:
        writer = writer_of(node)
        spy = spying()
        assert writer.wait_for_readers(PATIENCE)
        wait_until(lambda: are_seen(node, writer))
        writer.write_samples(numbered(0, 10_000))
        assert writer.wait_for_acknowledgments(PATIENCE) == {}
        wait_until(lambda: spy.rows == 10_000)
    finally:
        elsewhere.close()


def test_a_slice_of_the_writers(node: Node, spying: Callable[..., Spy], tmp_path: Path) -> None:
    writers = [writer_of(node) for _ in range(6)]
    spies = [spying(slice=Slice(index, 2), log_directory=str(tmp_path / f"{index}")) for index in range(2)]
    mine = [[each for each in writers if slice_of(each.writer.guid, 2) == index] for index in range(2)]
    wait_until(lambda: are_seen(node, *writers))
    for writer in writers:
        writer.write_samples(numbered(0, 100))
    wait_until(lambda: [spy.rows for spy in spies] == [100 * len(some) for some in mine])
    assert [set(spy.reader.writers) for spy in spies] == [{w.writer.guid for w in some} for some in mine]


def test_writers_that_come_and_go(node: Node, spying: Callable[..., Spy]) -> None:
    spy = spying()
    first = writer_of(node)
    wait_until(lambda: are_seen(node, first))
    first.write_samples(numbered(0, 1_000, source=1))
    second = writer_of(node)
    wait_until(lambda: are_seen(node, first, second))
    second.write_samples(numbered(0, 1_000, source=2))
    first.write_samples(numbered(1_000, 1_000, source=1))
    node.delete_endpoint(first.guid)
    wait_until(lambda: spy.writers == 1)
    second.write_samples(numbered(1_000, 1_000, source=2))
    wait_until(lambda: spy.rows == 4_000)
    assert spy.samples(1) == spy.samples(2) == list(range(2_000))


def test_other_topics_types_domains_and_partitions_are_not_looked_at(
    node: Node, spying: Callable[..., Spy]
) -> None:
    other_domain = Node.open(replace(NODE, domain=domains.RECEIVER_SPY_ELSEWHERE)).start()
    policy = PublicationPolicy(flow_control=PUBLISHED)
    others = [
        node.create_writer(WriterSpec("other", "T", RELIABLE, policy=policy)),
        node.create_writer(WriterSpec("t", "Other", RELIABLE, policy=policy)),
        node.create_writer(WriterSpec("t", "T", replace(RELIABLE, partition=("a",)), policy=policy)),
        other_domain.create_writer(WriterSpec("t", "T", RELIABLE, policy=policy)),
    ]
    right = node.create_writer(WriterSpec("t", "T", replace(RELIABLE, partition=("b",)), policy=policy))
    spy = spying(qos=replace(RELIABLE, partition=("b",)))
    wait_until(lambda: are_seen(node, right))
    for writer in (*others, right):
        writer.write_samples(numbered(0, 100, source=5 if writer is right else 1), timeout=5.0)
    wait_until(lambda: spy.rows == 100)
    assert spy.samples(5) == list(range(100))
    other_domain.close()


def test_a_sample_that_is_too_large_for_the_log_is_lost(node: Node, spying: Callable[..., Spy]) -> None:
    writer = writer_of(node)
    spy = spying()
    wait_until(lambda: are_seen(node, writer))
    writer.write_samples(numbered(0, 1))
    writer.write_samples(numbered(1, 1, size=1 << 20))
    writer.write_samples(numbered(2, 1))
    wait_until(lambda: spy.rows == 2)
    assert spy.samples() == [0, 2] and spy.counters()["lost_samples"] == 1


def test_a_tethered_spy_that_is_slow_holds_the_writer_back(node: Node, spying: Callable[..., Spy]) -> None:
    spy = spying(log_max_bytes=4 << 20, log_segment_bytes=1 << 20)
    writer = writer_of(node)
    wait_until(lambda: are_seen(node, writer))
    with pytest.raises(RtpsError, match="no progress"):
        writer.write_samples(numbered(0, 100_000, size=1_000), timeout=1.0)
    written = writer.writer.last_sn
    assert 0 < written < 10_000
    spy.commit()
    wait_until(lambda: spy.rows == written)
    assert spy.counters()["lost_samples"] == 0


def test_an_untethered_spy_is_let_go_and_rejoins(
    node: Node, spying: Callable[..., Spy], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    soon = 300_000_000
    flow = replace(PUBLISHED, untethered_window_limit_timeout=soon, untethered_resting_timeout=soon)
    spy = spying(log_max_bytes=4 << 20, log_segment_bytes=1 << 20, policy=ReaderPolicy(tether=False))
    other = spying(log_directory=str(tmp_path / "fast"))
    writer = writer_of(node, flow_control=flow)
    wait_until(lambda: are_seen(node, writer, spies=2))
    written = 0
    states = set()
    while not spy.counters()["unavailable"] or SubscriberState.RESTING not in states:
        writer.write_samples(numbered(written, 100, size=1_000), timeout=PATIENCE)
        written += 100
        other.commit()
        states |= {slot.state for slot in writer.writer._unsent.log.subscribers()}
    assert "is unavailable to the untethered reader" in caplog.text
    spy.commit()
    before = spy.rows
    deadline = time.monotonic() + PATIENCE
    while spy.rows < before + 1_000 and time.monotonic() < deadline:
        writer.write_samples(numbered(written, 10, size=1_000), timeout=PATIENCE)
        written += 10
        other.commit()
        spy.commit()
    wait_until(lambda: other.rows == written)
    assert spy.counters()["lost_samples"] > 0 and before < spy.rows < written


def test_a_log_that_goes_on_gets_what_is_still_there(
    node: Node, spying: Callable[..., Spy], tmp_path: Path
) -> None:
    writer = writer_of(node)
    bystander = spying(log_directory=str(tmp_path / "bystander"))
    spy = Spy(config_in(tmp_path))
    wait_until(lambda: are_seen(node, writer, spies=2))
    writer.write_samples(numbered(0, 1_000))
    wait_until(lambda: spy.rows == 1_000)
    spy.stop(keep_log=True)
    writer.write_samples(numbered(1_000, 1_000))
    spy = spying()
    wait_until(lambda: are_seen(node, writer, spies=2))
    writer.write_samples(numbered(2_000, 1_000))
    wait_until(lambda: spy.rows >= 3_000 == bystander.rows)
    assert spy.samples() == list(range(3_000)) and spy.counters()["lost_samples"] == 0


def test_a_missing_writer_to_spy_on_is_logged(
    spying: Callable[..., Spy], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("spark_rtps.transport.receiver.empty_topic_warning._NOBODY_NS", 100_000_000)
    with caplog.at_level(logging.WARNING):
        spying()
        wait_until(lambda: "no publication log of type 'T'" in caplog.text)


def test_a_type_that_nobody_named_is_the_first_writers_to_name(
    node: Node,
    spying: Callable[..., Spy],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("spark_rtps.transport.receiver.empty_topic_warning._NOBODY_NS", 100_000_000)
    writer_of(node, "u")
    partition = replace(RELIABLE, partition=("elsewhere",))
    node.create_writer(WriterSpec("t", "Other", partition, policy=PublicationPolicy(flow_control=PUBLISHED)))
    spy = spying(type_name=None, keyed=None)
    wait_until(lambda: f"no publication log on domain {DOMAIN}" in caplog.text)
    writer = writer_of(node)
    wait_until(lambda: are_seen(node, writer))
    writer.write_samples(numbered(0, 100))
    wait_until(lambda: spy.rows == 100)
    assert spy.samples() == list(range(100))
    assert spy.host.log.metadata["type"] == "T"
    spy.stop(keep_log=True)
    spy = spying(type_name=None, keyed=None)
    wait_until(lambda: are_seen(node, writer))


def test_a_directory_with_open_permissions_is_logged(
    spying: Callable[..., Spy], directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory.mkdir()
    (directory / "something").touch()
    directory.chmod(0o755)
    spying()
    wait_until(lambda: "cannot list publication logs" in caplog.text)


WRITES = """
import sys
import numpy as np
from pathlib import Path
from spark_rtps.transport.log import named_logs
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.policies import FlowControlPolicy, PublicationPolicy
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.wire.samples import Samples
named_logs._SHARED_MEMORY = Path(sys.argv[1])
node = Node.open(NodeConfig(domain=int(sys.argv[2]), interface="lo")).start()
policy = PublicationPolicy(flow_control=FlowControlPolicy(spies_simulate_connection=True, term_length=1 << 20))
qos = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
writer = node.create_writer(WriterSpec("t", "T", qos, policy=policy))
rows = np.zeros((100, 68), np.uint8); rows[:, 1] = 1; rows[:, 4] = 77
while True:
    writer.write_samples(Samples.uniform(rows.reshape(-1), 100, 68), timeout=60)
"""


def test_a_writer_that_is_killed_is_forgotten_and_its_file_removed(
    node: Node, spying: Callable[..., Spy], directory: Path, tmp_path: Path
) -> None:
    child = subprocess.Popen([sys.executable, "-c", WRITES, str(tmp_path), str(DOMAIN)])
    try:
        spy = spying(log_max_bytes=1 << 30)
        writer = writer_of(node)
        wait_until(lambda: are_seen(node, writer) and spy.writers == 2 and spy.rows > 10_000)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    writer.write_samples(numbered(0, 1_000, source=5))
    wait_until(lambda: spy.writers == 1)
    wait_until(lambda: len(list(directory.glob("*.publication"))) == 1)
    writer.write_samples(numbered(1_000, 1_000, source=5))
    wait_until(lambda: spy.samples(5)[-1:] == [1_999])


def test_a_spy_that_is_killed_holds_nobody_up_for_long(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the process looks where everybody does
    monkeypatch.setattr(ipc_writing, "_DEAD_NS", 2 * NANOSECONDS)
    mine = Node.open(NODE).start()
    try:
        topic = f"of {os.getpid()}"
        process = ReceiverProcess.start(config_in(tmp_path, topic=topic))
        writer = writer_of(mine, topic)
        wait_until(lambda: not mine.wake() and writer.writer.positions.is_connected)
        writer.write_samples(numbered(0, 1_000))
        wait_until(lambda: process.counters().get("log.rows") == 1_000)
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: not mine.wake() and not writer.writer.positions.is_connected)
        process.stop()
    finally:
        mine.close()
