"""What sinks leave for `spark-rtps stat`: real files, a real writer, no network."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from spark_rtps.api.writer_session import WriterSession
from spark_rtps.datasource import writer_pool
from spark_rtps.datasource.schema import plan_sink
from spark_rtps.datasource.writer_pool import WriterPool
from spark_rtps.monitoring import processes, publisher_counters, stream_counters
from spark_rtps.monitoring.processes import process_start
from spark_rtps.monitoring.publisher_counters import PublisherCounters, remove_stale
from spark_rtps.monitoring.stream_counters import State, Stream, StreamKind, read_streams
from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.transport.errors import NoReaderError
from spark_rtps.transport.limits import READERS_SHOWN_MAX
from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.net.recipients import Discard
from spark_rtps.transport.net.send_failures import SendFailures
from spark_rtps.transport.protocol.endpoint_info import ReaderInfo
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec
from spark_rtps.transport.protocol.participant.events import Event, Matched
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.qos import Qos, ReliabilityKind
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.numbers import SequenceNumberSet
from spark_rtps.transport.wire.submessages import AckNack
from tests.support import domains
from tests.support.numbered_samples import numbered
from tests.support.stream_logs import encoded, points
from tests.support.waiting import wait_until

PREFIX = bytes(range(12))
DEAD = 1 << 30  # above the largest process id there can be


class IdleNode:
    """A node without network: nothing comes in, nothing goes out."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.sleeps_until = 0
        self.send_failures = SendFailures()
        self.duty_cycle = self.directory = self.counters = self
        self.happened: list[Event] = []
        self.counted = {"writer.short_sends": 0}

    @property
    def is_closed(self) -> bool:
        return False

    def by_label(self) -> dict[str, int]:
        return self.counted

    @contextlib.contextmanager
    def steering(self, *, lingering: bool = False) -> Iterator[None]:
        yield

    def run_once(self, timeout: float) -> int:
        return 0

    def do_work(self) -> int:
        return 0

    def flush(self) -> int:
        return 0

    def incompatible(self, guid: Guid) -> dict[Guid, tuple[str, ...]]:
        return {}

    def wake(self) -> None:
        pass

    def events(self) -> list[Event]:
        happened, self.happened = self.happened, []
        return happened

    def assert_liveliness(self, writer: Guid | None = None) -> None:
        pass


class Clock:
    now = 0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "logs"
    monkeypatch.setattr(publisher_counters, "default_log_dir", lambda: root)
    return root


@pytest.fixture
def writer() -> BlockingWriter:
    return writer_of("Square")


def writer_of(topic: str, node: IdleNode | None = None) -> BlockingWriter:
    qos = Qos(reliability=ReliabilityKind.RELIABLE)
    return BlockingWriter(node or IdleNode(), StatefulWriter(Guid(PREFIX, b"\0\0\1\3"), qos), topic)


def guid(number: int) -> Guid:
    return Guid(bytes([255 - number]) * 12, b"\0\0\1\4")


def join(writer: BlockingWriter, number: int, *, reliable: bool = True) -> None:
    writer.writer.match_reader(ReaderInfo(guid(number), (), (), reliable, False), now=0)
    writer.node.happened.append(Matched(writer.guid, guid(number), writer.topic, (), ()))  # type: ignore[attr-defined]


def acknowledge(writer: BlockingWriter, number: int, last: int, count: int = 1) -> None:
    acknack = AckNack(bytes(4), bytes(4), SequenceNumberSet(last + 1, 0, ()), count, True)
    writer.writer.feedback.on_acknack(guid(number), acknack, now=0)


def streams(root: Path) -> list[Stream]:
    return read_streams([root], now=time.monotonic_ns())


def only(root: Path) -> Stream:
    (stream,) = streams(root)
    return stream


class TestFiles:
    def test_a_writer_has_counters_and_its_identity(self, root: Path, writer: BlockingWriter) -> None:
        PublisherCounters().add_writer(writer, type_name="ShapeType", domain=7)
        stream = only(root)
        name = f"{os.getpid()}-{process_start(os.getpid())}-0"
        assert sorted(p.name for p in (root / "publishers").iterdir()) == [f"{name}.counters", f"{name}.json"]
        assert (stream.kind, stream.topic, stream.type, stream.domain) == (
            StreamKind.SINK,
            "Square",
            "ShapeType",
            7,
        )
        assert (stream.pid, stream.state, stream.guid_prefix) == (os.getpid(), State.ALIVE, PREFIX.hex())
        assert (stream.samples, stream.peers, stream.behind_samples) == (0, 0, 0)

    def test_all_counters_of_the_writer_are_written(self, root: Path, writer: BlockingWriter) -> None:
        counters = PublisherCounters()
        counters.add_writer(writer, type_name="T", domain=0)
        join(writer, 1)
        writer.write_samples(encoded(points(0, 10)))
        counters.update(writer.node)
        stream = only(root)
        assert (stream.samples, stream.peers, stream.behind_samples) == (10, 1, 10)
        assert stream.behind_bytes == writer.writer.unacknowledged_bytes > 0
        for name, value in writer.writer.counters.snapshot().items():
            assert stream.counters[f"writer.{name}"] == value

    def test_counters_have_the_positions_of_the_stream(self, root: Path, writer: BlockingWriter) -> None:
        counters = PublisherCounters()
        counters.add_writer(writer, type_name="T", domain=0)
        join(writer, 1)
        writer.write_samples(encoded(points(0, 10)))
        counters.update(writer.node)
        found, positions = only(root).counters, writer.writer.positions
        assert found["writer.pub_pos"] == found["writer.snd_pos"] == positions.pub_pos > 0
        assert found["writer.pub_lmt"] == positions.snd_pos + positions.term_window
        assert found["writer.snd_lmt"] == positions.snd_lmt > positions.snd_pos
        assert (found["writer.snd_bpe"], found["writer.is_connected"], found["writer.fc_receivers"]) == (
            0,
            1,
            1,
        )

    def test_counts_of_the_participant_are_reported_once(self, root: Path) -> None:
        counters, node = PublisherCounters(), IdleNode()
        for topic in ("a", "b"):
            counters.add_writer(writer_of(topic, node), type_name="T", domain=0)
        node.counted = {"writer.short_sends": 2, "drop.not_rtps": 5}
        counters.update(node)
        assert sum(stream.counters.get("drop.not_rtps", 0) for stream in streams(root)) == 5
        assert sum(stream.counters.get("writer.short_sends", 0) for stream in streams(root)) == 2

    def test_statuses(self, root: Path, writer: BlockingWriter) -> None:
        counters = PublisherCounters()
        counters.add_writer(writer, type_name="T", domain=0)
        join(writer, 1)
        writer.writer.counters.inactive_readers = 3
        writer.writer.counters.offered_deadline_missed = 4
        counters.update(writer.node)
        found = only(root).statuses
        assert found["PUBLICATION_MATCHED"] == {
            "current_count": 1,
            "current_count_peak": 1,
            "total_count": 1,
        }
        assert found["OFFERED_DEADLINE_MISSED"] == {"total_count": 4}
        assert found["RELIABLE_READER_ACTIVITY_CHANGED"]["inactive_count"] == 3
        assert set(found["RELIABLE_WRITER_CACHE_CHANGED"]) >= {"full", "unacknowledged_peak"}

    def test_samples_in_the_history(self, root: Path, writer: BlockingWriter) -> None:
        counters = PublisherCounters()
        counters.add_writer(writer, type_name="T", domain=0)
        join(writer, 1)
        writer.write_samples(numbered(0, 10))
        acknowledge(writer, 1, 7)
        counters.update(writer.node)
        found = only(root).counters
        assert (found["cache.sample_count"], found["cache.sample_count_peak"]) == (3, 10)

    def test_writers_have_files_of_their_own(self, root: Path) -> None:
        counters = PublisherCounters()
        for topic in ("A", "B"):
            counters.add_writer(writer_of(topic), type_name="T", domain=0)
        assert [stream.topic for stream in streams(root)] == ["A", "B"]

    def test_acknowledged_positions_are_those_of_each_reader(
        self, root: Path, writer: BlockingWriter
    ) -> None:
        counters = PublisherCounters()
        counters.add_writer(writer, type_name="T", domain=0)
        join(writer, 1)
        join(writer, 2)
        join(writer, 3, reliable=False)
        writer.write_samples(encoded(points(0, 10)))
        acknowledge(writer, 1, 10)
        acknowledge(writer, 2, 4)
        counters.update(writer.node)
        stream = only(root)
        assert [(r.guid, r.acked_sn) for r in stream.readers] == [
            (guid(1), 10),
            (guid(2), 4),
            (guid(3), None),
        ]
        assert stream.behind_samples == 6
        writer.writer.unmatch_reader(guid(2))
        counters.update(writer.node)
        stream = only(root)
        assert [r.guid for r in stream.readers] == [guid(1), guid(3)]
        assert (stream.peers, stream.behind_samples) == (2, 0)

    def test_the_readers_shown_are_bounded(self, root: Path, writer: BlockingWriter) -> None:
        counters = PublisherCounters()
        counters.add_writer(writer, type_name="T", domain=0)
        for number in range(READERS_SHOWN_MAX + 5):
            join(writer, number)
        counters.update(writer.node)
        assert len(only(root).readers) == READERS_SHOWN_MAX
        assert only(root).peers == READERS_SHOWN_MAX + 5


class TestWhen:
    def test_counters_are_not_updated_at_every_call(self, root: Path, writer: BlockingWriter) -> None:
        clock = Clock()
        counters = PublisherCounters(clock=clock)
        counters.add_writer(writer, type_name="T", domain=0)
        writer.write_samples(encoded(points(0, 10)))
        clock.now = 99_000_000
        counters.update_if_due(writer.node)
        assert only(root).samples == 0
        clock.now = 100_000_000
        counters.update_if_due(writer.node)
        assert only(root).samples == 10
        writer.write_samples(encoded(points(0, 10)))
        counters.update(writer.node)
        assert only(root).samples == 20

    def test_only_the_writers_of_the_node(self, root: Path) -> None:
        counters = PublisherCounters()
        one, two = writer_of("1"), writer_of("2")
        for writer in (one, two):
            counters.add_writer(writer, type_name="T", domain=0)
            writer.write_samples(encoded(points(0, 10)))
        counters.update(two.node)
        assert [stream.samples for stream in streams(root)] == [0, 10]

    def test_a_task_says_what_it_wrote(self, root: Path, writer: BlockingWriter) -> None:
        settings = parse_options({"topic": "T"}, AppliesTo.WRITE)
        clock = Clock()
        counters = PublisherCounters(clock=clock)
        counters.add_writer(writer, type_name="T", domain=0)
        join(writer, 1)
        acknowledge(writer, 1, 0)
        task = WriterSession(writer, settings, look_around_until=0, counters=counters)
        task.wait_for_reader()
        clock.now = 100_000_000
        task.write_samples(encoded(points(0, 10)))
        assert only(root).samples == 10
        task.write_samples(encoded(points(10, 10)))
        acknowledge(writer, 1, 20, count=2)
        task.wait_for_acknowledgments()
        assert (only(root).samples, only(root).behind_samples) == (20, 0)


class TestWriterPool:
    """The writers of a process, on a real participant."""

    @pytest.fixture
    def publishers(self, root: Path) -> Iterator[WriterPool]:
        publishers = WriterPool()
        yield publishers
        for node, _ in publishers._nodes.values():
            node.close()

    @staticmethod
    def publish(publishers: WriterPool, topic: str, **more: str) -> WriterSession:
        options = {
            "topic": topic,
            "interface": "lo",
            "domain": str(domains.MONITORING),
            "on_no_reader": "drop",
            **more,
        }
        settings = parse_options(options, AppliesTo.WRITE)
        return publishers.session(settings, plan_sink(settings, StructType().add("id", "integer")).plan)

    def test_a_writer_and_its_files_are_made_once(self, root: Path, publishers: WriterPool) -> None:
        for _ in range(2):
            self.publish(publishers, "T")
        stream = only(root)
        assert (stream.topic, stream.domain, stream.type) == ("T", domains.MONITORING, "T")

    def test_events_before_a_writer_has_its_files_are_counted(
        self, root: Path, publishers: WriterPool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        add = PublisherCounters.add_writer

        def slowly(counters: PublisherCounters, writer: BlockingWriter, **about: Any) -> None:
            # what the participant's own thread does between its datagrams
            thread = threading.Thread(target=counters.update, args=[writer.node])
            thread.start()
            thread.join(0.2)  # it waits for the lock, for as long as the writer has no files
            add(counters, writer, **about)

        monkeypatch.setattr(PublisherCounters, "add_writer", slowly)
        with contextlib.closing(Node.open(NodeConfig(domain=domains.MONITORING, interface="lo"))) as node:
            node.start().create_reader(
                ReaderSpec("T", "T", Qos(reliability=ReliabilityKind.RELIABLE)), Discard()
            )
            self.publish(publishers, "first").wait_for_reader()  # so it has seen the reader of T
            self.publish(publishers, "T")
        (stream,) = [stream for stream in streams(root) if stream.topic == "T"]
        assert stream.counters["status.publication_matched.total_count"] == 1

    def test_the_reason_of_a_reader_mismatch_is_logged(self, root: Path, publishers: WriterPool) -> None:
        with contextlib.closing(Node.open(NodeConfig(domain=domains.MONITORING, interface="lo"))) as node:
            node.start().create_reader(ReaderSpec("T", "Other", Qos()), Discard())
            publication = self.publish(publishers, "T", on_no_reader="wait", connect_timeout="10ms")
            of_sink = publication._writer.node
            wait_until(lambda: bool(of_sink.directory.incompatible(publication._writer.guid)), "the reader")
            with pytest.raises(NoReaderError, match="TYPE: the writer's is 'T', the reader's is 'Other'"):
                publication.wait_for_reader()

    def test_the_writer_used_longest_ago_is_let_go(
        self, root: Path, publishers: WriterPool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writer_pool, "WRITERS_MAX", 2)
        a, b, _, _ = (self.publish(publishers, topic)._writer for topic in ("A", "B", "A", "C"))
        assert {stream.topic for stream in streams(root)} == {"A", "C"}
        assert a.node.participant.database.qos_of(a.guid) is not None  # type: ignore[attr-defined]
        assert b.node.participant.database.qos_of(b.guid) is None  # type: ignore[attr-defined]


class TestStale:
    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        return tmp_path

    def test_counters_of_ended_processes(self, directory: Path) -> None:
        mine = f"{os.getpid()}-{process_start(os.getpid())}-0"
        kept = [f"{mine}.counters", f"{mine}.json", "readme", "1-x.json"]
        reborn = f"{os.getpid()}-1-0.counters"  # somebody had our process id before
        for name in (*kept, reborn, f"{DEAD}-5-0.counters", f"{DEAD}-5-0.json", f"{DEAD}-5-1.counters.new"):
            (directory / name).touch()
        remove_stale(directory)
        assert sorted(p.name for p in directory.iterdir()) == sorted(kept)

    def test_nothing_there(self, directory: Path) -> None:
        remove_stale(directory / "none")

    def test_the_next_start_removes_them(self, root: Path, writer: BlockingWriter) -> None:
        (root / "publishers").mkdir(parents=True)
        left = root / "publishers" / f"{DEAD}-5-0.counters"
        left.touch()
        PublisherCounters().add_writer(writer, type_name="T", domain=0)
        assert not left.exists()

    def test_a_process_of_another_pid_namespace_keeps_its_files_while_it_runs(
        self, root: Path, writer: BlockingWriter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Containers that share the folder, and not their processes."""
        counters = PublisherCounters()
        counters.add_writer(writer, type_name="T", domain=0)
        folder = root / "publishers"
        names = {path.name for path in folder.iterdir()}
        monkeypatch.setattr(processes, "process_start", lambda pid: None)
        remove_stale(folder)
        assert {path.name for path in folder.iterdir()} == names and len(names) == 2
        monkeypatch.setattr(stream_counters, "process_start", lambda pid: None)
        assert only(root).state is State.ALIVE
        del counters  # as at the end of the process
        remove_stale(folder)
        assert not any(folder.iterdir())

    def test_a_process_that_nobody_has_waited_for_has_ended(self) -> None:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
            began = process_start(child.pid)
            assert began is not None and began >= process_start(os.getpid())  # type: ignore[operator]
            assert child.stdin is not None
            child.stdin.close()
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            assert process_start(child.pid) is None
        assert process_start(DEAD) is None


class TestNeverFails:
    def test_a_directory_that_cannot_be_written(
        self, root: Path, writer: BlockingWriter, caplog: pytest.LogCaptureFixture
    ) -> None:
        root.write_text("a file in the way")
        counters = PublisherCounters()
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                counters.add_writer(writer, type_name="T", domain=0)
                counters.update(writer.node)
        (record,) = caplog.records
        assert "will not show what this process writes" in record.message
        join(writer, 1)
        counters.update_if_due(writer.node)
        assert not writer.node.happened  # type: ignore[attr-defined]  # else events would be kept for nobody

    def test_a_publishers_directory_that_cannot_be_made(
        self, root: Path, writer: BlockingWriter, caplog: pytest.LogCaptureFixture
    ) -> None:
        root.mkdir(mode=0o700)
        (root / "publishers").write_text("a file in the way")
        with caplog.at_level(logging.WARNING):
            PublisherCounters().add_writer(writer, type_name="T", domain=0)
        assert len(caplog.records) == 1

    def test_more_counters_than_there_is_room_for(
        self,
        root: Path,
        writer: BlockingWriter,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        create = Counters.create
        monkeypatch.setattr(Counters, "create", lambda path: create(path, capacity=3))
        counters = PublisherCounters()
        with caplog.at_level(logging.WARNING):
            counters.add_writer(writer, type_name="T", domain=0)
            output = len(caplog.records)
            counters.update(writer.node)
        assert output == len(caplog.records) > 0
        assert len(only(root).counters) == 3

    def test_numbers_beyond_64_bits(self, root: Path, writer: BlockingWriter) -> None:
        counters = PublisherCounters()
        counters.add_writer(writer, type_name="T", domain=0)
        writer.writer.counters.written_samples = 1 << 70
        counters.update(writer.node)
        assert only(root).samples == (1 << 63) - 1


class TestReading:
    def test_files_that_are_no_counters_of_a_sink_are_skipped(
        self, root: Path, writer: BlockingWriter
    ) -> None:
        PublisherCounters().add_writer(writer, type_name="T", domain=0)
        folder = root / "publishers"
        (whole,) = folder.glob("*.counters")
        about = whole.with_suffix(".json").read_text()
        for i, (counters, metadata) in enumerate(
            [
                (b"", about),
                (b"x" * 100, about),
                (whole.read_bytes(), ""),
                (whole.read_bytes(), "[]"),
                (whole.read_bytes(), "{}"),
                (whole.read_bytes(), json.dumps({**json.loads(about), "domain": None})),
                (whole.read_bytes(), None),
            ]
        ):
            name = f"{whole.stem}{i + 1}"
            (folder / f"{name}.counters").write_bytes(counters)
            if metadata is not None:
                (folder / f"{name}.json").write_text(metadata)
        (folder / "x.counters").write_bytes(whole.read_bytes())
        (folder / "x.json").write_text(about)
        assert only(root).path == whole

    def test_a_dead_sink_has_ended(self, root: Path, writer: BlockingWriter) -> None:
        PublisherCounters().add_writer(writer, type_name="T", domain=0)
        for path in (root / "publishers").iterdir():
            path.rename(path.with_name(f"{DEAD}-5-0{path.suffix}"))
        assert only(root).state is State.ENDED
