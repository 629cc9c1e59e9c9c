"""The receiver process: its life, its log, and what it does when there is no room."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from spark_rtps.options.explanations import RECEIVER_HINTS
from spark_rtps.transport.errors import (
    AcknowledgmentError,
    LogError,
    RtpsError,
    TransportError,
    UsageError,
)
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.participant.slices import Slice, slice_of
from spark_rtps.transport.protocol.policies import (
    CongestionControlPolicy,
    PublicationPolicy,
    ReaderPolicy,
    WriterPolicy,
)
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.receiver.config import ReceiverConfig
from spark_rtps.transport.receiver.host import Host
from spark_rtps.transport.receiver.known_participants import read_known_participants
from spark_rtps.transport.receiver.process import ReceiverProcess
from spark_rtps.transport.structure import NANOSECONDS, Guid
from tests.support import domains, numbered_samples
from tests.support.numbered_samples import numbers_of
from tests.support.waiting import PATIENCE, wait_until

DOMAIN = domains.RECEIVER_PROCESS
RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
#: Its lease is longer than a restart takes.
NODE = NodeConfig(domain=DOMAIN, interface="lo", receive_buffer=4 << 20, lease_duration=60 * NANOSECONDS)
numbered = partial(numbered_samples.numbered, size=68)


def config(directory: Path, **changes: object) -> ReceiverConfig:
    given: dict[str, object] = {
        "log_directory": str(directory),
        "topic": "t",
        "type_name": "T",
        "keyed": False,
        "qos": RELIABLE,
        "node": NODE,
        "log_max_bytes": 64 << 20,
        "log_segment_bytes": 4 << 20,
    }
    return ReceiverConfig(**{**given, **changes}, hints=RECEIVER_HINTS)


def numbers(directory: Path, start: Cursor, end: Cursor) -> list[int]:
    """The numbers in a range of the log, in order."""
    found: list[int] = []
    for frame in LogView(directory).frames(start, end):
        found += [number for _, number in numbers_of(frame.run.samples())]
    return found


def write_until_held_back(writer: BlockingWriter, receiver: ReceiverProcess) -> int:
    """Write numbered samples until none goes any more, for the receiver has no room; returns how many there are."""
    position = -1
    while (written := writer.writer.last_sn) < 2_000_000:
        try:
            writer.write_samples(numbered(written, 10_000), timeout=1.0)
        except AcknowledgmentError:  # which a receiver that does not get to run causes as well
            before, counters = position, receiver.counters()
            position = counters["log.position"]
            if counters["reader.window_closed"] or position == before > 0:
                return writer.writer.last_sn
    raise AssertionError("nothing held the writer back")


@pytest.fixture
def writer() -> Iterator[BlockingWriter]:
    node = Node.open(NodeConfig(domain=DOMAIN, interface="lo")).start()
    yield node.create_writer(WriterSpec("t", "T", RELIABLE))
    node.close()


def test_an_unavailable_congestion_control_is_an_error(tmp_path: Path) -> None:
    policy = ReaderPolicy(congestion_control=CongestionControlPolicy("no_such_module:Own"))
    with pytest.raises(UsageError, match=r"no_such_module:Own.*ModuleNotFoundError"):
        ReceiverProcess.start(config(tmp_path / "log", policy=policy))


def test_output_of_a_plugin_is_not_taken_for_an_answer(
    tmp_path: Path,
    writer: BlockingWriter,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """When it is imported, and with each writer; nor does it read what is for the receiver."""
    text = """
        import os, subprocess, sys
        from spark_rtps.plugins import StaticWindow

        print("imported", flush=True)
        assert sys.stdin.read() == ""
        subprocess.run(["echo", "and so does a child"], check=True)

        class Noisy(StaticWindow):
            def __init__(self, policy, stream):
                super().__init__(policy)
                print("made" * 10_000, flush=True)
                os.write(1, b"to the descriptor")
    """
    (tmp_path / "noisy_plugin.py").write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    policy = ReaderPolicy(congestion_control=CongestionControlPolicy("noisy_plugin:Noisy"))
    receiver = ReceiverProcess.start(config(tmp_path / "log", policy=policy))
    try:
        assert writer.wait_for_readers(PATIENCE)
        writer.write_samples(numbered(0, 100))
        assert writer.wait_for_acknowledgments(PATIENCE) == {}
        receiver.check()
        assert numbers(tmp_path / "log", Cursor(0), receiver.cursor()) == list(range(100))
    finally:
        receiver.stop()
    printed = capfd.readouterr().err
    assert all(words in printed for words in ("imported", "a child", "mademade", "to the descriptor"))


def test_output_of_python_at_its_start_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["", "[]", "7", "{", "{}", "hello" * 20_000]
    (tmp_path / "sitecustomize.py").write_text(f"print(*{lines}, sep='\\n', flush=True)\n")
    monkeypatch.syspath_prepend(tmp_path)
    receiver = ReceiverProcess.start(config(tmp_path / "log"))
    receiver.check()
    receiver.stop()


@pytest.mark.parametrize("consumption", ["logged", "committed"])
def test_the_counters_show_the_position_of_each_stream(
    tmp_path: Path, writer: BlockingWriter, consumption: str
) -> None:
    receiver = ReceiverProcess.start(config(tmp_path / "log", consumption=consumption))

    def stream(name: str) -> int:
        return receiver.counters().get(f"stream.0.{name}", 0)

    try:
        assert writer.wait_for_readers(PATIENCE)
        writer.write_samples(numbered(0, 10_000))
        assert writer.wait_for_acknowledgments(PATIENCE) == {}
        wait_until(lambda: stream("rcv_pos") >= 10_000 * 68)
        guid = b"".join(stream(f"guid_{half}").to_bytes(8, "big", signed=True) for half in ("high", "low"))
        assert guid == writer.guid.to_bytes()
        assert stream("rcv_hwm") == stream("rcv_pos")
        if consumption == "committed":
            assert stream("sub_pos") == 0
            receiver.commit_position(receiver.cursor().position)
        wait_until(lambda: stream("sub_pos") == stream("rcv_pos"))
        writer.node.close()  # type: ignore[attr-defined]
        wait_until(lambda: stream("guid_high") == 0)
    finally:
        receiver.stop()


def test_configuration_survives_its_json() -> None:
    qos = Qos(user_data=b"\x00\xff", partition=("a", "b"), durability=DurabilityKind.TRANSIENT_LOCAL)
    node = NodeConfig(peers=("h:1",), peers_allowed=("10.0.0.0/8",), guid_prefix=bytes(12))
    policy = ReaderPolicy(group_tag=7, congestion_control=CongestionControlPolicy("cubic", measure_rtt=True))
    original = config(Path("/x"), qos=qos, node=node, policy=policy, consumption="committed")
    assert ReceiverConfig.from_json(original.to_json()) == original


def test_samples_reach_the_log_once_in_order_and_commits_trim_it(
    tmp_path: Path, writer: BlockingWriter
) -> None:
    receiver = ReceiverProcess.start(config(tmp_path / "log"))
    try:
        assert writer.wait_for_readers(PATIENCE)
        for i in range(0, 200_000, 20_000):
            writer.write_samples(numbered(i, 20_000))
        assert writer.wait_for_acknowledgments(PATIENCE) == {}
        # acknowledged means in the log
        end = receiver.cursor()
        assert numbers(tmp_path / "log", Cursor(0), end) == list(range(200_000))
        assert receiver.counters()["log.rows"] == 200_000
        receiver.commit_position(end.position)
        wait_until(lambda: receiver.counters()["log.base"] > end.position - (9 << 20))
    finally:
        receiver.stop()


def test_a_full_log_holds_the_writer_back_and_loses_nothing(tmp_path: Path, writer: BlockingWriter) -> None:
    receiver = ReceiverProcess.start(
        config(tmp_path / "log", log_max_bytes=16 << 20, log_segment_bytes=2 << 20)
    )
    try:
        assert writer.wait_for_readers(PATIENCE)
        taken: list[int] = []
        start = Cursor(0)
        written = write_until_held_back(writer, receiver)
        assert receiver.counters()["log.position"] <= 16 << 20

        def drained() -> bool:
            nonlocal start
            end = receiver.cursor()
            taken.extend(numbers(tmp_path / "log", start, end))
            receiver.commit_position(end.position)
            start = end
            return not writer.wait_for_acknowledgments(0.05)

        wait_until(drained)
        assert drained()
        assert taken == list(range(written))
    finally:
        receiver.stop()


def test_killed_and_restarted_it_goes_on_where_it_was(tmp_path: Path, writer: BlockingWriter) -> None:
    first = ReceiverProcess.start(config(tmp_path / "log"))
    assert writer.wait_for_readers(PATIENCE)
    writer.write_samples(numbered(0, 20_000))
    os.kill(first.pid, signal.SIGKILL)
    writer.write_samples(numbered(20_000, 10_000))  # within the send window: not held back by the dead
    with pytest.raises(RtpsError, match="ended: exit status -9"):
        wait_until(lambda: first.check() is not None)
    first.stop()
    second = ReceiverProcess.start(config(tmp_path / "log"))
    try:
        writer.write_samples(numbered(30_000, 50_000))
        assert writer.wait_for_acknowledgments(PATIENCE) == {}
        assert numbers(tmp_path / "log", Cursor(0), second.cursor()) == list(range(80_000))
        assert len({str(guid) for guid in writer.writer.readers}) == 1
    finally:
        second.stop()


def test_a_receiver_does_not_outlive_its_parent(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import os, sys, time
        from pathlib import Path
        from spark_rtps.transport.net.node_config import NodeConfig
        from spark_rtps.transport.receiver.config import ReceiverConfig
        from spark_rtps.transport.receiver.process import ReceiverProcess
        node = NodeConfig(domain=int(sys.argv[2]), interface="lo", receive_buffer=1 << 20)
        receiver = ReceiverProcess.start(ReceiverConfig(sys.argv[1], "t", "T", False, node=node))
        print(receiver.pid, flush=True)
        time.sleep(60)
        """
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "log"), str(DOMAIN)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    wait_until(lambda: not _runs(pid))


def _runs(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_second_receiver_on_the_same_log_is_refused(tmp_path: Path) -> None:
    receiver = ReceiverProcess.start(config(tmp_path / "log"))
    try:
        with pytest.raises(LogError, match=f"process {receiver.pid} appends"):
            ReceiverProcess.start(config(tmp_path / "log"))
    finally:
        receiver.stop()
    assert not _runs(receiver.pid)


def test_the_reason_of_a_failed_start_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match="interface 'eth77' is not up"):
        ReceiverProcess.start(config(tmp_path / "log", node=NodeConfig(interface="eth77")))
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError):
        ReceiverProcess.start(config(tmp_path / "file" / "log"))


def test_an_incompatible_writer_is_counted_and_explained(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    node = Node.open(NodeConfig(domain=DOMAIN, interface="lo")).start()
    receiver = ReceiverProcess.start(config(tmp_path / "log"))
    try:
        node.create_writer(WriterSpec("t", "T", Qos()))
        node.create_writer(WriterSpec("t", "Other", RELIABLE))
        wait_until(lambda: receiver.counters()["reader.incompatible_qos"] == 2)
        assert receiver.counters()["reader.matched_writers"] == 0
    finally:
        receiver.stop()
        node.close()
    output = capfd.readouterr().err
    assert "RELIABILITY: the writer offers BEST_EFFORT, the reader requests RELIABLE" in output
    assert "Other" in output


def test_a_full_disk_holds_the_writer_back(tmp_path: Path, writer: BlockingWriter) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(disk)], check=True)
    receiver = None
    try:
        receiver = ReceiverProcess.start(config(disk / "log", log_segment_bytes=2 << 20))
        assert writer.wait_for_readers(PATIENCE)
        write_until_held_back(writer, receiver)
        receiver.check()  # alive
        kept = numbers(disk / "log", Cursor(0), receiver.cursor())
        assert kept == list(range(len(kept)))
        receiver.commit_position(receiver.cursor().position)
        wait_until(lambda: not writer.wait_for_acknowledgments(0.05) or not _commit(receiver))
        assert writer.wait_for_acknowledgments(PATIENCE) == {}
    finally:
        if receiver is not None:
            receiver.stop()
        subprocess.run(["umount", "-l", str(disk)], check=True)


def _commit(receiver: ReceiverProcess) -> bool:
    receiver.commit_position(receiver.cursor().position)
    return True


def test_the_counters_file_is_readable_by_others(tmp_path: Path) -> None:
    receiver = ReceiverProcess.start(config(tmp_path / "log"))
    try:
        counters = receiver.counters()
        assert counters["receiver.pid"] == receiver.pid
        assert json.dumps(counters)
    finally:
        receiver.stop()


def test_a_log_of_another_topic_is_not_appended_to(tmp_path: Path) -> None:
    ReceiverProcess.start(config(tmp_path / "log")).stop()
    with pytest.raises(LogError, match=r"is of topic 't'.*not of topic 'u'.*new checkpoint location"):
        ReceiverProcess.start(config(tmp_path / "log", topic="u"))


def test_an_ephemeral_log_ends_with_its_receiver(tmp_path: Path) -> None:
    receiver = ReceiverProcess.start(config(tmp_path / "log", ephemeral=True))
    assert (tmp_path / "log").exists()
    receiver.stop()
    assert not (tmp_path / "log").exists()


def test_samples_waiting_for_capacity_are_not_acknowledged(tmp_path: Path, writer: BlockingWriter) -> None:
    """Killed while its log is full, a receiver takes nothing with it: a roomier successor has it all."""
    first = ReceiverProcess.start(config(tmp_path / "log", log_max_bytes=16 << 20))
    assert writer.wait_for_readers(PATIENCE)
    written = write_until_held_back(writer, first)
    os.kill(first.pid, signal.SIGKILL)
    first.stop()
    second = ReceiverProcess.start(config(tmp_path / "log", log_max_bytes=256 << 20))
    try:
        assert writer.wait_for_acknowledgments(PATIENCE) == {}
        found = numbers(tmp_path / "log", Cursor(0), second.cursor())
        assert found == list(range(written))
    finally:
        second.stop()


def test_a_keyless_reader_of_a_keyed_topic_logs_the_mismatch(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    node = Node.open(NodeConfig(domain=DOMAIN, interface="lo")).start()
    receiver = ReceiverProcess.start(config(tmp_path / "log"))
    try:
        node.create_writer(WriterSpec("t", "T", RELIABLE, keyed=True))
        wait_until(lambda: receiver.counters()["reader.incompatible_qos"] == 1)
    finally:
        receiver.stop()
        node.close()
    assert (
        "KEY: the writer's type has a key, the reader's has none (name the key columns"
        in capfd.readouterr().err
    )


def test_a_topic_without_writers_logs_the_known_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("spark_rtps.transport.receiver.empty_topic_warning._NOBODY_NS", 3600 * NANOSECONDS)
    node = Node.open(NodeConfig(domain=DOMAIN, interface="lo")).start()
    host = Host.open(config(tmp_path / "log"))
    thread = threading.Thread(target=host.run, daemon=True)
    thread.start()
    try:
        node.create_writer(WriterSpec("another", "T", RELIABLE))
        wait_until(lambda: any(topic == "another" for topic in host.node.directory.written_topics()))
        host.adviser._warns_at = 1  # it has waited long enough
        wait_until(lambda: "no writer" in caplog.text)
        assert f"topic 't': no writer on domain {DOMAIN} so far; topics written here: another" in caplog.text
    finally:
        host.stop(dispose=True)
        thread.join(PATIENCE)
        host.close()
        node.close()


def test_a_slice_without_writers_is_no_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("spark_rtps.transport.receiver.empty_topic_warning._NOBODY_NS", 3600 * NANOSECONDS)
    node = Node.open(NodeConfig(domain=DOMAIN, interface="lo")).start()
    writer = node.create_writer(WriterSpec("t", "T", RELIABLE))
    elsewhere = Slice(1 - slice_of(writer.writer.guid, 2), 2)
    host = Host.open(config(tmp_path / "log", slice=elsewhere))
    thread = threading.Thread(target=host.run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: bool(writer.writer.readers) and "t" in host.node.directory.written_topics())
        host.adviser._warns_at = 1  # it has waited long enough
        wait_until(lambda: f"none of its writers so far belongs to slice {elsewhere}" in caplog.text)
        assert "no match" not in caplog.text and "matched" not in caplog.text
        assert host.shown.matched_writers == 0
    finally:
        host.stop(dispose=True)
        thread.join(PATIENCE)
        host.close()
        node.close()


def test_writers_are_recorded_and_too_frequent_heartbeats_are_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = ReaderPolicy(heartbeat_suppression_duration=200_000_000)
    node, host = Node.open(NODE).start(), Host.open(config(tmp_path / "log", policy=policy))

    def writer(period: int) -> Guid:
        policy = PublicationPolicy(writer=WriterPolicy(heartbeat_period=period))
        return node.create_writer(WriterSpec("t", "T", RELIABLE, policy=policy)).guid

    thread = threading.Thread(target=host.run, daemon=True)
    thread.start()
    try:
        slow, *hasty = (writer(period) for period in (300_000_000, 50_000_000, 60_000_000))
        wait_until(lambda: host.shown.matched_writers == 3)
        wait_until(lambda: [each.prefix for each in read_known_participants(host.directory)] == [slow.prefix])
    finally:
        host.stop(dispose=True)
        thread.join(PATIENCE)
        host.close()
        node.close()
    (output,) = (each for each in caplog.messages if "HEARTBEAT" in each)
    assert output.startswith("topic 't': the reader answers no HEARTBEAT for 0.2 s after one that it answers")
    assert "reliable_reader.heartbeat_suppression_duration" in output and str(slow) not in output
    assert sum(str(guid) in output for guid in hasty) == 1
