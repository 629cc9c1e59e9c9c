"""Readers and writers on one host which leave, or are killed: who notices, and what becomes of the log."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.image import CopyBuffer, Image
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.named_logs import NamedLogs
from spark_rtps.transport.log.publication_log import FrameClaim, PublicationLog
from spark_rtps.transport.log.publication_log_metadata import PublicationLogMetadata
from spark_rtps.transport.net import ipc_writing
from spark_rtps.transport.net.ipc_reading import _is_over, _LogReader, _ReadLog
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.policies import FlowControlPolicy, PublicationPolicy
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.receiver.config import ReceiverConfig
from spark_rtps.transport.receiver.process import ReceiverProcess
from spark_rtps.transport.structure import NANOSECONDS, Guid
from tests.net.net_scene import BEST_EFFORT, RELIABLE, Scene, scene_of
from tests.net.on_host_scene import IPC, TERM, files, hold, ipc_writer, readers_on_host, write_until_it_has
from tests.support import domains
from tests.support.numbered_samples import numbered, numbers_of
from tests.support.waiting import PATIENCE


@pytest.fixture
def scene(directory: Path) -> Iterator[Scene]:
    with scene_of(domains.NET_ON_HOST) as scene:
        yield scene


# --- who goes ------------------------------------------------------------------------------------------


def test_the_file_goes_with_the_writer(scene: Scene, directory: Path) -> None:
    node = scene.node()
    writers = [scene.writer(node, readers=0, flow_control=IPC) for _ in range(3)]
    assert len(files(directory)) == 3
    assert [each.about["guid"] for each in NamedLogs(directory).listing()].sort() == [
        str(writer.guid) for writer in writers
    ].sort()
    node.delete_endpoint(writers[0].guid)
    assert len(files(directory)) == 2
    node.close()
    assert files(directory) == []


def test_samples_left_in_the_log_of_a_gone_writer_are_read(scene: Scene) -> None:
    got = scene.reader(scene.node(ipc=True), BEST_EFFORT)
    node = scene.node()
    writer = ipc_writer(scene, node, BEST_EFFORT)
    writer.write_samples(numbered(0, 1_000))
    node.delete_endpoint(writer.guid)
    scene.wait(lambda: got.numbers == list(range(1_000)))


def test_samples_added_during_the_check_for_a_gone_writer_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = PublicationLog.create(64 << 10)
    writer, reader = Guid(bytes(12), bytes(4)), StatefulReader(Guid(bytes(12), bytes(4)), Qos())
    slot = log.subscribe(reader.guid, position=0, now=0)
    assert slot is not None
    reading = _ReadLog(writer, Image.joined(log, CopyBuffer()), {reader.guid: _LogReader(reader, slot)})

    def end(_: PublicationLogMetadata) -> bool:
        claim = log.claim(100, limit=1_000)
        assert isinstance(claim, FrameClaim) and claim.commit()
        return True

    monkeypatch.setattr(PublicationLogMetadata, "end_of_stream", property(end))
    assert not _is_over(reading)


def test_a_reader_that_leaves_gives_its_slot_back(scene: Scene) -> None:
    node = scene.node(ipc=True)
    got = scene.reader(node)
    writer = ipc_writer(scene, scene.node())
    node.delete_endpoint(got.reader.guid)
    assert writer.writer._unsent.log.subscribers() == []


def test_a_reader_that_was_taken_for_dead_returns(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    node = scene.node(ipc=True)
    got = scene.reader(node)
    writer = ipc_writer(scene, scene.node())
    log = writer.writer._unsent.log
    with node.lock:  # it sleeps
        (slot,) = log.subscribers()
        slot.heartbeat -= 6 * NANOSECONDS
        scene.wait(lambda: readers_on_host(writer) == 0)
        writer.write_samples(numbered(0, 1_000))
    scene.wait(lambda: readers_on_host(writer) == 1)
    writer.write_samples(numbered(1_000, 1_000))
    scene.wait(lambda: got.numbers == list(range(2_000)))


def test_a_reader_that_the_log_overtakes_resumes_at_the_newest(scene: Scene) -> None:
    slow_node, fast_node = scene.node(ipc=True), scene.node(ipc=True)
    slow, fast = scene.reader(slow_node), scene.reader(fast_node)
    pace = FlowControlPolicy(ipc=True, term_length=TERM, strategy="max")
    writer = scene.writer(scene.node(), readers=2, flow_control=pace)
    scene.wait(lambda: readers_on_host(writer) == 2)
    hold(slow, slow_node, 0)
    for i in range(400):
        writer.write_samples(numbered(10 * i, 10, size=1_000), timeout=PATIENCE)
    scene.wait(lambda: fast.numbers == list(range(4_000)))
    hold(slow, slow_node, 1 << 40)
    write_until_it_has(1_000, slow, writer)
    assert slow.numbers == sorted(set(slow.numbers)) and len(slow.numbers) < writer.writer.last_sn


SCRIPT = """
import sys, time
import numpy as np
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.net.recipients import Discard
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.policies import FlowControlPolicy, PublicationPolicy
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.errors import AcknowledgmentError, UsageError
from spark_rtps.transport.log import named_logs
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from pathlib import Path
named_logs._SHARED_MEMORY = Path(sys.argv[2])
RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
node = Node.open(NodeConfig(domain=int(sys.argv[1]), interface="lo", ipc=True, lease_duration=80_000_000_000_000))
"""
WRITES = """
node.start()
policy = PublicationPolicy(flow_control=FlowControlPolicy(ipc=True, term_length=1 << 20))
writer = node.create_writer(WriterSpec("T", "Type", RELIABLE, policy=policy))
assert writer.wait_for_readers(30)
while not any(proxy.is_on_host for proxy in writer.writer.readers.values()):
    node.wake(); time.sleep(0.01)
print("ready", flush=True)
rows = np.zeros((100, 100), np.uint8); rows[:, 1] = 1; rows[:, 4] = 77
while True:
    writer.write_samples(Samples.uniform(rows.reshape(-1), 100, 100), timeout=60)
"""
READS = """
reader = node.create_reader(ReaderSpec("T", "Type", RELIABLE), Discard())
node.start()
while not node._read_logs.writers:
    time.sleep(0.01)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def other(scene: Scene, tmp_path: Path) -> Iterator[Any]:
    """Starts a process that reads or writes, and waits until it does so by the log."""
    children: list[subprocess.Popen[str]] = []

    def start(script: str) -> subprocess.Popen[str]:
        arguments = [sys.executable, "-c", SCRIPT + script, str(scene.domain), str(tmp_path)]
        children.append(subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True))
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def is_ready(child: subprocess.Popen[str]) -> bool:
    assert child.stdout is not None
    return child.stdout.readline() == "ready\n"


def test_a_reader_that_is_killed_holds_the_writer_up_no_longer_than_it_may(
    scene: Scene, other: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ipc_writing, "_DEAD_NS", 2 * NANOSECONDS)
    pace = FlowControlPolicy(ipc=True, term_length=TERM, receiver_timeout=NANOSECONDS)
    got = scene.reader(scene.node(ipc=True))
    child = other(READS)
    writer = scene.writer(scene.node(), readers=1, flow_control=pace)
    assert is_ready(child)
    scene.wait(lambda: readers_on_host(writer) == 2)
    writer.write_samples(numbered(0, 1_000))
    os.kill(child.pid, signal.SIGKILL)
    with caplog.at_level(logging.INFO):
        for i in range(1, 200):
            writer.write_samples(numbered(1_000 * i, 1_000, size=100), timeout=PATIENCE)
        scene.wait(lambda: got.numbers == list(range(200_000)))
        scene.wait(lambda: readers_on_host(writer) == 1)
    assert "is dead" in caplog.text


def test_the_file_of_a_writer_that_is_killed_is_removed_and_others_are_read_on(
    scene: Scene, other: Any, directory: Path
) -> None:
    got = scene.reader(scene.node(ipc=True))
    writer = ipc_writer(scene, scene.node())
    child = other(WRITES)
    assert is_ready(child)
    scene.wait(lambda: len(got.numbers) > 5_000)
    assert len(files(directory)) == 2
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    writer.write_samples(numbered(0, 1_000, source=5))
    scene.wait(lambda: got.of(5) == list(range(1_000)))
    scene.wait(lambda: len(files(directory)) == 1)
    writer.write_samples(numbered(1_000, 1_000, source=5))
    scene.wait(lambda: got.of(5) == list(range(2_000)))


def test_a_receiver_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    """In the directory that all processes of this user share."""
    config = ReceiverConfig(
        log_directory=str(tmp_path / "log"),
        topic="T",
        type_name="Type",
        keyed=False,
        qos=RELIABLE,
        node=NodeConfig(
            domain=domains.NET_ON_HOST_RECEIVER, interface="lo", ipc=True, lease_duration=60 * NANOSECONDS
        ),
    )
    node = Node.open(NodeConfig(domain=domains.NET_ON_HOST_RECEIVER, interface="lo")).start()
    receiver = ReceiverProcess.start(config)
    try:
        writer = node.create_writer(
            WriterSpec("T", "Type", RELIABLE, policy=PublicationPolicy(flow_control=IPC))
        )
        assert writer.wait_for_readers(PATIENCE)
        written = 0
        for _ in range(4):
            begun, deadline = receiver.cursor(), time.monotonic() + PATIENCE
            while not (readers_on_host(writer) == 1 and receiver.cursor() > begun):
                assert time.monotonic() < deadline, "it reads no log"
                writer.write_samples(numbered(written, 100, size=500), timeout=PATIENCE)
                written += 100
            os.kill(receiver.pid, signal.SIGKILL)
            samples = numbered(written, 100, size=500)
            # where the window is full it waits for the successor, and not for the end of the lease
            waits = threading.Thread(
                target=writer.write_samples, args=(samples,), kwargs={"timeout": PATIENCE}
            )
            waits.start()
            written += 100
            receiver.stop()
            receiver = ReceiverProcess.start(config)
            waits.join()
        assert writer.wait_for_acknowledgments(PATIENCE) == {}
        # what is acknowledged is in the log; that it is, readers of the counters are told at the end of the burst
        deadline, rows = time.monotonic() + PATIENCE, []  # type: ignore[var-annotated]
        while len(rows) < written and time.monotonic() < deadline:
            rows = []
            for frame in LogView(tmp_path / "log").frames(Cursor(0), receiver.cursor()):
                rows += [number for _, number in numbers_of(frame.run.samples())]
        assert rows == list(range(written))
    finally:
        receiver.stop()
        node.close()
