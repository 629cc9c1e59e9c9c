"""Readers and writers on one host: what goes by the log, what by UDP, and who notices when somebody is gone."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from net_scene import BEST_EFFORT, RELIABLE, Received, Scene, scene_of
from numbered_samples import numbered, numbers_of
from waiting import PATIENCE

from spark_rtps.transport.errors import AcknowledgmentError, UsageError
from spark_rtps.transport.log import publications
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.publications import Publications
from spark_rtps.transport.net import written_logs
from spark_rtps.transport.net.node import Node, NodeConfig
from spark_rtps.transport.net.publishing import PublishingWriter
from spark_rtps.transport.protocol.policies import (
    BatchPolicy,
    Compression,
    FlowControlPolicy,
    PublicationPolicy,
    ReaderPolicy,
)
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, PresentationScope, Qos, ReliabilityKind
from spark_rtps.transport.receiver.config import ReceiverConfig
from spark_rtps.transport.receiver.process import ReceiverProcess
from spark_rtps.transport.structure import NANOSECONDS

TERM = 1 << 20
IPC = FlowControlPolicy(ipc=True, term_length=TERM)
LASTING = Qos(
    reliability=ReliabilityKind.RELIABLE,
    durability=DurabilityKind.TRANSIENT_LOCAL,
    history=HistoryKind.KEEP_ALL,
)
COHERENT = Qos(
    reliability=ReliabilityKind.RELIABLE,
    history=HistoryKind.KEEP_ALL,
    presentation_scope=PresentationScope.TOPIC,
    coherent_access=True,
)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the logs of these tests are."""
    monkeypatch.setattr(publications, "_SHARED_MEMORY", tmp_path)
    return publications.directory_of_user()


@pytest.fixture
def scene(directory: Path) -> Iterator[Scene]:
    with scene_of(79) as scene:
        yield scene


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.publication"))


def ipc_writer(scene: Scene, node: Node, qos: Qos = RELIABLE, **policy: Any) -> PublishingWriter:
    """A writer whose matched readers on this host read its log."""
    given = {"flow_control": IPC, **policy}
    writer = scene.writer(node, qos, **given)
    scene.wait(lambda: readers_on_host(writer) == len(writer.writer.readers))
    return writer


def pass_the_first_window(scene: Scene, writer: PublishingWriter, got: Received) -> None:
    """Write as much as the reader allowed to be sent by UDP before it found the log."""
    written = 0
    while written * 1_000 < 5 << 20:
        writer.write(numbered(written, 100, size=1_000), timeout=PATIENCE)
        written += 100
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: got.numbers == list(range(written)))


def write_until_it_has(more: int, got: Received, writer: PublishingWriter) -> None:
    """Write on until a reader has so many more, and the newest: one that does not get to run falls out again."""
    enough, deadline = len(got.numbers) + more, time.monotonic() + PATIENCE
    while True:
        assert time.monotonic() < deadline, "it does not come back"
        newest = writer.writer.last_sn + 9
        writer.write(numbered(newest - 9, 10, size=1_000), timeout=PATIENCE)
        if len(got.numbers) + 10 < enough:
            time.sleep(0.002)
            continue
        soon = time.monotonic() + 1.0
        while time.monotonic() < soon:
            if got.numbers[-1] == newest and len(got.numbers) >= enough:
                return
            time.sleep(0.005)


def readers_on_host(writer: PublishingWriter) -> int:
    node = writer.node
    node.wake()
    with node.lock:
        return sum(proxy.is_on_host for proxy in writer.writer.readers.values())


# --- what goes by the log ------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [RELIABLE, BEST_EFFORT], ids=["reliable", "best_effort"])
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
def test_samples_go_by_the_log_alone(scene: Scene, qos: Qos, policy: dict[str, Any]) -> None:
    got = scene.reader(scene.node(ipc=True), qos)
    writer = ipc_writer(scene, scene.node(), qos, **policy)
    for i in range(50):
        writer.write(numbered(100 * i, 100, size=80))
    writer.flush()
    scene.wait(lambda: len(got.numbers) == 5_000)
    assert got.numbers == list(range(5_000))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert scene.samples_sent(writer) == [] and got.reader.counters.lost_samples == 0


def test_many_terms(scene: Scene) -> None:
    got = scene.reader(scene.node(ipc=True))
    writer = ipc_writer(scene, scene.node(), flow_control=FlowControlPolicy(ipc=True, term_length=64 << 10))
    pass_the_first_window(scene, writer, got)
    by_udp, written = len(scene.samples_sent(writer)), len(got.numbers)
    for i in range(100):
        writer.write(numbered(written + 100 * i, 100, size=200))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: got.numbers == list(range(written + 10_000)))
    assert len(scene.samples_sent(writer)) == by_udp


def test_a_large_sample_is_one_frame_and_a_larger_one_goes_by_udp(scene: Scene) -> None:
    got = scene.reader(scene.node(ipc=True))
    writer = ipc_writer(scene, scene.node())
    writer.write(numbered(0, 1, size=100_000))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert scene.samples_sent(writer) == []
    writer.write(numbered(1, 1, size=TERM))
    writer.write(numbered(2, 1))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: got.numbers == [0, 1, 2])
    assert len(scene.samples_sent(writer)) == TERM // 63_488 + 1


def test_a_coherent_set(scene: Scene) -> None:
    got = scene.reader(scene.node(ipc=True), COHERENT)
    writer = ipc_writer(scene, scene.node(), COHERENT)
    writer.begin_coherent_set()
    writer.write(numbered(0, 3_000))
    writer.end_coherent_set()
    writer.begin_coherent_set()
    writer.write(numbered(3_000, 3_000))
    writer.abort_coherent_set()
    writer.write(numbered(6_000, 10))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: got.numbers == [*range(3_000), *range(6_000, 6_010)])


def test_a_late_joiner_gets_history_by_udp_and_then_the_log(scene: Scene) -> None:
    node = scene.node()
    writer = ipc_writer(scene, node, LASTING, readers=0)
    writer.write(numbered(0, 1_000))
    got = scene.reader(scene.node(ipc=True), LASTING)
    scene.wait(lambda: got.numbers == list(range(1_000)) and readers_on_host(writer) == 1)
    before = len(scene.samples_sent(writer))
    writer.write(numbered(1_000, 1_000))
    scene.wait(lambda: got.numbers == list(range(2_000)))
    assert len(scene.samples_sent(writer)) == before


def test_a_writer_and_a_reader_of_one_participant(scene: Scene) -> None:
    node = scene.node(ipc=True)
    got = scene.reader(node)
    writer = ipc_writer(scene, node)
    writer.write(numbered(0, 1_000))
    scene.wait(lambda: got.numbers == list(range(1_000)))
    assert scene.samples_sent(writer) == []


def test_readers_of_one_participant_share_an_image(scene: Scene) -> None:
    node = scene.node(ipc=True)
    first = scene.reader(node)
    writer = ipc_writer(scene, scene.node())
    writer.write(numbered(0, 1_000))
    second = scene.reader(node)
    scene.wait(lambda: readers_on_host(writer) == 2)
    writer.write(numbered(1_000, 1_000))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: first.numbers == list(range(2_000)) and second.numbers[-1:] == [1_999])
    assert second.numbers == list(range(second.numbers[0], 2_000)) and second.numbers[0] >= 1_000
    node.delete_endpoint(first.reader.guid)
    scene.wait(lambda: len(writer.writer.readers) == 1)
    writer.write(numbered(2_000, 1_000))
    scene.wait(lambda: second.numbers[-1] == 2_999)
    assert len(first.numbers) == 2_000 and scene.samples_sent(writer) == []


def test_readers_elsewhere_are_sent_datagrams(scene: Scene) -> None:
    here, elsewhere = scene.reader(scene.node(ipc=True)), scene.reader(scene.node())
    writer = scene.writer(scene.node(), readers=2, flow_control=IPC)
    scene.wait(lambda: readers_on_host(writer) == 1)
    writer.write(numbered(0, 1_000))
    scene.wait(lambda: here.numbers == elsewhere.numbers == list(range(1_000)))
    assert scene.samples_sent(writer) != []


def test_several_writers(scene: Scene) -> None:
    got = scene.reader(scene.node(ipc=True))
    writers = [ipc_writer(scene, scene.node()) for _ in range(3)]
    for i in range(20):
        for source, writer in enumerate(writers):
            writer.write(numbered(100 * i, 100, source=source))
    scene.wait(lambda: all(got.of(source) == list(range(2_000)) for source in range(3)))


# --- what does not ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reads", "publishes"),
    [(False, IPC), (True, FlowControlPolicy(term_length=TERM))],
    ids=["reader", "writer"],
)
def test_both_sides_have_to_want_it(scene: Scene, reads: bool, publishes: FlowControlPolicy) -> None:
    got = scene.reader(scene.node(ipc=reads))
    writer = scene.writer(scene.node(), flow_control=publishes)
    writer.write(numbered(0, 100))
    scene.wait(lambda: got.numbers == list(range(100)))
    assert scene.samples_sent(writer) != [] and readers_on_host(writer) == 0


def test_a_log_for_spies_alone_is_not_read(scene: Scene, directory: Path) -> None:
    got = scene.reader(scene.node(ipc=True))
    only_spies = FlowControlPolicy(spies_simulate_connection=True, term_length=TERM)
    writer = scene.writer(scene.node(), flow_control=only_spies)
    assert len(files(directory)) == 1
    writer.write(numbered(0, 100))
    scene.wait(lambda: got.numbers == list(range(100)))
    assert scene.samples_sent(writer) != []


def test_a_log_that_cannot_be_found_is_another_hosts(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    writer_node = scene.node()
    (tmp_path / "other").mkdir()
    monkeypatch.setattr(publications, "_SHARED_MEMORY", tmp_path / "other")
    got = scene.reader(scene.node(ipc=True))
    writer = scene.writer(writer_node, flow_control=IPC)
    writer.write(numbered(0, 100))
    scene.wait(lambda: got.numbers == list(range(100)))
    assert scene.samples_sent(writer) != []


@pytest.mark.parametrize("lie", ["token", "guid", "name"])
def test_a_log_that_is_another_writers_is_not_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, directory: Path, lie: str
) -> None:
    node = scene.node()
    create = Publications.create

    def other(self: Publications, length: int, about: Any) -> Any:
        if lie == "guid":
            return create(self, length, {**about, "guid": "somebody else's"})
        log: Any = create(self, length, about)
        if lie == "token":
            log.token += 1
        else:
            log.path = Path("/etc/passwd")
        return log

    monkeypatch.setattr(Publications, "create", other)
    monkeypatch.setattr(written_logs, "remove", lambda log: None)
    got = scene.reader(scene.node(ipc=True))
    writer = scene.writer(node, flow_control=IPC)
    writer.write(numbered(0, 100))
    scene.wait(lambda: got.numbers == list(range(100)))
    assert scene.samples_sent(writer) != []


def test_no_room_for_a_log_is_a_warning(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(fd: int, start: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    got = scene.reader(scene.node(ipc=True))
    writer = scene.writer(scene.node(), flow_control=IPC)
    assert "No space left on device" in caplog.text and "readers are sent datagrams" in caplog.text
    writer.write(numbered(0, 100))
    scene.wait(lambda: got.numbers == list(range(100)))


def test_a_directory_that_is_not_ours_is_a_warning(
    scene: Scene, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory.mkdir()
    directory.chmod(0o755)
    scene.writer(scene.node(), readers=0, flow_control=IPC)
    assert "only this user can enter" in caplog.text


# --- room ------------------------------------------------------------------------------------------------


def hold(received: Received, node: Node, room: int) -> None:
    """Give the reader so much room in all."""
    with node.lock:
        received.reader.window = room
    node.wake()


def test_a_reader_without_room_holds_the_writer_back_and_asks_for_nothing(scene: Scene) -> None:
    node = scene.node(ipc=True)
    got = scene.reader(node)
    writer = ipc_writer(scene, scene.node())
    pass_the_first_window(scene, writer, got)
    nacks, by_udp, written = (
        got.reader.counters.nacks_sent,
        len(scene.samples_sent(writer)),
        writer.writer.last_sn,
    )
    hold(got, node, 100_000)
    begun = writer.writer.positions.pub_pos
    with pytest.raises(AcknowledgmentError, match="made no progress"):
        writer.write(numbered(written, 100_000, size=1_000), timeout=1.0)
    scene.wait(lambda: got.reader.window < 80_000)
    assert got.reader.counters.nacks_sent == nacks and len(scene.samples_sent(writer)) == by_udp
    with writer.node.lock:
        assert 0 < writer.writer.positions.pub_pos - begun <= TERM + 200_000
    hold(got, node, 1 << 40)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: len(got.numbers) == writer.writer.last_sn)
    assert got.numbers == list(range(writer.writer.last_sn))
    assert len(scene.samples_sent(writer)) == by_udp and got.reader.counters.lost_samples == 0


def test_room_that_comes_in_small_pieces(scene: Scene) -> None:
    node = scene.node(ipc=True)
    got = scene.reader(node)
    writer = ipc_writer(scene, scene.node())
    hold(got, node, 0)
    writer.write(numbered(0, 2_000, size=100))
    deadline = time.monotonic() + PATIENCE
    while len(got.numbers) < 2_000 and time.monotonic() < deadline:
        hold(got, node, 70_000)
        time.sleep(0.01)
    assert got.numbers == list(range(2_000)) and got.reader.counters.lost_samples == 0


def test_what_is_called_consumed_later_is_told_later(scene: Scene) -> None:
    node = scene.node(ipc=True)
    got = scene.reader(node)
    got.reader.consumption_held = True
    writer = ipc_writer(scene, scene.node())
    log = writer.writer._publication.log
    assert log is not None
    begun = log.position
    writer.write(numbered(0, 100, size=1_000))
    scene.wait(lambda: len(got.numbers) == 100)
    (slot,) = log.subscribers()  # type: ignore[attr-defined]
    assert slot.position == begun < log.position
    with node.lock:
        (proxy,) = got.reader.writers.values()
        got.reader.consumed(writer.guid, 100, proxy.stream.rcv_pos)
    node.wake()
    scene.wait(lambda: slot.position == log.position)


# --- waiting ---------------------------------------------------------------------------------------------


def test_a_reader_that_waits_is_woken_by_a_datagram_without_samples(scene: Scene) -> None:
    node = scene.node(ipc=True)
    got = scene.reader(node, BEST_EFFORT)
    writer = ipc_writer(scene, scene.node(), BEST_EFFORT)
    (slot,) = writer.writer._publication.log.subscribers()  # type: ignore[union-attr]
    for i in range(20):
        scene.wait(lambda: slot.waiting)
        writer.write(numbered(i, 1))
        scene.wait(lambda i=i: got.numbers == list(range(i + 1)))
    assert isinstance(writer.node, Node)
    sent = [each.data for each in scene.sent[writer.node] if len(each.data) == 20]
    assert sent and scene.samples_sent(writer) == []
    assert not any(node.participant.drops.values())


def test_it_has_a_slot_that_shows_it_is_alive(scene: Scene) -> None:
    node = scene.node(ipc=True)
    scene.reader(node)
    writer = ipc_writer(scene, scene.node())
    (slot,) = writer.writer._publication.log.subscribers()  # type: ignore[union-attr]
    before = slot.heartbeat
    scene.wait(lambda: slot.heartbeat > before)


# --- who goes ------------------------------------------------------------------------------------------


def test_the_file_goes_with_the_writer(scene: Scene, directory: Path) -> None:
    node = scene.node()
    writers = [scene.writer(node, readers=0, flow_control=IPC) for _ in range(3)]
    assert len(files(directory)) == 3
    assert [each.about["guid"] for each in Publications(directory).listing()].sort() == [
        str(writer.guid) for writer in writers
    ].sort()
    node.delete_endpoint(writers[0].guid)
    assert len(files(directory)) == 2
    node.close()
    assert files(directory) == []


def test_what_a_writer_left_in_its_log_is_read(scene: Scene) -> None:
    got = scene.reader(scene.node(ipc=True), BEST_EFFORT)
    node = scene.node()
    writer = ipc_writer(scene, node, BEST_EFFORT)
    writer.write(numbered(0, 1_000))
    node.delete_endpoint(writer.guid)
    scene.wait(lambda: got.numbers == list(range(1_000)))


def test_a_reader_that_leaves_gives_its_slot_back(scene: Scene) -> None:
    node = scene.node(ipc=True)
    got = scene.reader(node)
    writer = ipc_writer(scene, scene.node())
    node.delete_endpoint(got.reader.guid)
    assert writer.writer._publication.log.subscribers() == []  # type: ignore[union-attr]


def test_who_was_taken_for_dead_comes_back(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    node = scene.node(ipc=True)
    got = scene.reader(node)
    writer = ipc_writer(scene, scene.node())
    log = writer.writer._publication.log
    with node.lock:  # it sleeps
        (slot,) = log.subscribers()  # type: ignore[union-attr]
        slot.heartbeat -= 6 * NANOSECONDS
        scene.wait(lambda: readers_on_host(writer) == 0)
        writer.write(numbered(0, 1_000))
    scene.wait(lambda: readers_on_host(writer) == 1)
    writer.write(numbered(1_000, 1_000))
    scene.wait(lambda: got.numbers == list(range(2_000)))


def test_who_falls_out_of_the_log_goes_on_at_the_newest(scene: Scene) -> None:
    slow_node, fast_node = scene.node(ipc=True), scene.node(ipc=True)
    slow, fast = scene.reader(slow_node), scene.reader(fast_node)
    pace = FlowControlPolicy(ipc=True, term_length=TERM, strategy="max")
    writer = scene.writer(scene.node(), readers=2, flow_control=pace)
    scene.wait(lambda: readers_on_host(writer) == 2)
    hold(slow, slow_node, 0)
    for i in range(400):
        writer.write(numbered(10 * i, 10, size=1_000), timeout=PATIENCE)
    scene.wait(lambda: fast.numbers == list(range(4_000)))
    hold(slow, slow_node, 1 << 40)
    write_until_it_has(1_000, slow, writer)
    assert slow.numbers == sorted(set(slow.numbers)) and len(slow.numbers) < writer.writer.last_sn


SCRIPT = """
import sys, time
import numpy as np
from spark_rtps.transport.net.node import Node, NodeConfig
from spark_rtps.transport.protocol.policies import FlowControlPolicy, PublicationPolicy
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.errors import AcknowledgmentError, UsageError
from spark_rtps.transport.log import publications
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from pathlib import Path
publications._SHARED_MEMORY = Path(sys.argv[2])
RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
node = Node(NodeConfig(domain=int(sys.argv[1]), interface="lo", ipc=True, lease_duration=80_000_000_000_000)).open()
"""
WRITES = """
node.start()
policy = PublicationPolicy(flow_control=FlowControlPolicy(ipc=True, term_length=1 << 20))
writer = node.create_writer("T", "Type", RELIABLE, policy=policy)
assert writer.wait_for_readers(30)
while not any(proxy.is_on_host for proxy in writer.writer.readers.values()):
    node.wake(); time.sleep(0.01)
print("ready", flush=True)
rows = np.zeros((100, 100), np.uint8); rows[:, 1] = 1; rows[:, 4] = 77
while True:
    writer.write(Samples.uniform(rows.reshape(-1), 100, 100), timeout=60)
"""
READS = """
reader = node.create_reader("T", "Type", RELIABLE, keyed=False)
node.on_received = lambda: reader.take()
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
    monkeypatch.setattr(written_logs, "_DEAD_NS", 2 * NANOSECONDS)
    pace = FlowControlPolicy(ipc=True, term_length=TERM, receiver_timeout=NANOSECONDS)
    got = scene.reader(scene.node(ipc=True))
    child = other(READS)
    writer = scene.writer(scene.node(), readers=1, flow_control=pace)
    assert is_ready(child)
    scene.wait(lambda: readers_on_host(writer) == 2)
    writer.write(numbered(0, 1_000))
    os.kill(child.pid, signal.SIGKILL)
    with caplog.at_level(logging.INFO):
        for i in range(1, 200):
            writer.write(numbered(1_000 * i, 1_000, size=100), timeout=PATIENCE)
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
    writer.write(numbered(0, 1_000, source=5))
    scene.wait(lambda: got.of(5) == list(range(1_000)))
    scene.wait(lambda: len(files(directory)) == 1)
    writer.write(numbered(1_000, 1_000, source=5))
    scene.wait(lambda: got.of(5) == list(range(2_000)))


def test_policies_reach_the_slot(scene: Scene) -> None:
    node = scene.node(ipc=True)
    with node.lock:
        reader = node.create_reader("T", "Type", RELIABLE, keyed=False, policy=ReaderPolicy(tether=False))
    writer = scene.writer(scene.node(), readers=0, flow_control=IPC)
    scene.wait(lambda: readers_on_host(writer) == 1)
    (slot,) = writer.writer._publication.log.subscribers()  # type: ignore[union-attr]
    assert slot.guid == reader.guid and not slot.is_tethered and not slot.is_spy


def test_the_default_is_as_before(scene: Scene, directory: Path) -> None:
    node = scene.node()
    node.create_writer("T", "Type", RELIABLE, policy=PublicationPolicy())
    assert files(directory) == []


def test_an_untethered_reader_that_is_slow_is_let_go_and_rejoins(scene: Scene) -> None:
    soon = NANOSECONDS // 4
    flow = FlowControlPolicy(
        ipc=True,
        term_length=TERM,
        untethered_window_limit_timeout=soon,
        untethered_resting_timeout=soon,
    )
    slow_node = scene.node(ipc=True)
    fast = scene.reader(scene.node(ipc=True))
    with slow_node.lock:
        policy = ReaderPolicy(
            tether=False, untethered_window_limit_timeout=soon, untethered_resting_timeout=soon
        )
        slow = Received(slow_node.create_reader("T", "Type", RELIABLE, keyed=False, policy=policy))
        scene._received[slow_node].append(slow)
    writer = scene.writer(scene.node(), readers=2, flow_control=flow)
    scene.wait(lambda: readers_on_host(writer) == 2)
    hold(slow, slow_node, 100_000)
    written = 0
    while not slow.reader.counters.unavailable:
        writer.write(numbered(written, 100, size=1_000), timeout=PATIENCE)
        written += 100
    begun = time.monotonic()
    while time.monotonic() < begun + 0.5:  # it rests, and holds nobody up
        writer.write(numbered(written, 10, size=1_000), timeout=PATIENCE)
        written += 10
    hold(slow, slow_node, 1 << 40)
    (proxy,) = slow.reader.writers.values()
    scene.wait(lambda: not proxy.resting)
    write_until_it_has(1_000, slow, writer)
    written = writer.writer.last_sn
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: fast.numbers == list(range(written)))
    assert len(slow.numbers) < written and slow.numbers == sorted(set(slow.numbers))
    assert slow.reader.counters.lost_samples > 0


def test_a_writer_that_cannot_be_leaves_no_file(
    scene: Scene, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = scene.node()

    def refuse(*arguments: Any, **options: Any) -> None:
        raise UsageError("no")

    monkeypatch.setattr(node.participant, "create_writer", refuse)
    with pytest.raises(UsageError):
        node.create_writer("T", "Type", RELIABLE, policy=PublicationPolicy(flow_control=IPC))
    assert files(directory) == []


def test_a_sample_that_its_owner_never_has_room_for_holds_nobody_up(scene: Scene) -> None:
    node = scene.node(ipc=True)
    got = scene.reader(node)
    writer = ipc_writer(scene, scene.node())
    with node.lock:
        got.reader.sample_size_max = 20_000
    hold(got, node, 50_000)
    writer.write(numbered(0, 1))
    writer.write(numbered(1, 1, size=100_000))
    writer.write(numbered(2, 1))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: got.numbers == [0, 2])
    assert got.reader.counters.oversized_samples == 1


def test_a_receiver_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    """In the directory that all processes of this user share."""
    config = ReceiverConfig(
        log_directory=str(tmp_path / "log"),
        topic="T",
        type_name="Type",
        keyed=False,
        qos=RELIABLE,
        node=NodeConfig(domain=80, interface="lo", ipc=True, lease_duration=60 * NANOSECONDS),
    )
    node = Node(NodeConfig(domain=80, interface="lo")).start()
    receiver = ReceiverProcess.start(config)
    try:
        writer = node.create_writer("T", "Type", RELIABLE, policy=PublicationPolicy(flow_control=IPC))
        assert writer.wait_for_readers(PATIENCE)
        written = 0
        for _ in range(4):
            begun, deadline = receiver.cursor(), time.monotonic() + PATIENCE
            while not (readers_on_host(writer) == 1 and receiver.cursor() > begun):
                assert time.monotonic() < deadline, "it reads no log"
                writer.write(numbered(written, 100, size=500), timeout=PATIENCE)
                written += 100
            os.kill(receiver.pid, signal.SIGKILL)
            writer.write(numbered(written, 100, size=500), timeout=PATIENCE)
            written += 100
            receiver.stop()
            receiver = ReceiverProcess.start(config)
        assert writer.wait_for_acknowledgments(PATIENCE) == {}
        # what is acknowledged is in the log; that it is, readers of the counters are told at the end of the drain
        deadline, rows = time.monotonic() + PATIENCE, []
        while len(rows) < written and time.monotonic() < deadline:
            rows = []
            for frame in LogView(tmp_path / "log").frames(Cursor(0), receiver.cursor()):
                rows += [number for _, number in numbers_of(frame.run.samples())]
        assert rows == list(range(written))
    finally:
        receiver.stop()
        node.close()
