"""A process that may open no more files: whatever is begun fails with an error that says so, and leaves nothing open.

Each operation is tried with no descriptor left, with one, with two, until there are enough of them.
"""

from __future__ import annotations

import gc
import importlib
import resource
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spark_rtps.columns.type_files import struct_of_file
from spark_rtps.monitoring.metrics import start_exporter
from spark_rtps.transport.errors import RtpsError
from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.log.error_log import ErrorLog, read_error_log
from spark_rtps.transport.log.loss_report import LossReport
from spark_rtps.transport.log.named_logs import NamedLogs
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.discovery.remote_participant import Announcement
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.receiver.host import Host
from spark_rtps.transport.receiver.identity import next_incarnation
from spark_rtps.transport.receiver.known_participants import read_known_participants, write_known_participants
from spark_rtps.transport.receiver.process import ReceiverProcess
from spark_rtps.transport.structure import NANOSECONDS
from spark_rtps.transport.types.model import Extensibility
from tests.log.make_runs import guid
from tests.receiver.kill_scene import RELIABLE, Load, LogReader, config
from tests.support import domains
from tests.support.refusals import descriptors_left, open_descriptors
from tests.support.waiting import PATIENCE, wait_until

DOMAIN = domains.RECEIVER_NO_DESCRIPTORS
TOO_MANY = "Too many open files"
Operation = Callable[[Path], None]


def node(_: Path) -> None:
    Node.open(NodeConfig(domain=DOMAIN, interface="lo")).close()


def receiver(directory: Path) -> None:
    Host.open(config(directory / "log", DOMAIN)).close()


def receiver_on_old_log(directory: Path) -> None:
    Host.open(replace(config(directory / "log", DOMAIN), ephemeral=False)).close(keep_log=True)


def counters(directory: Path) -> None:
    Counters.create(directory / "counters").counter("a").add(1)
    assert Counters.open(directory / "counters").snapshot() == {"a": 1}


def publication_log(directory: Path) -> None:
    logs = NamedLogs(directory / "logs")
    log = logs.create(1 << 16, {"topic": "t"})
    try:
        assert log.path is not None
        logs.map_log(log.path.name).close()
    finally:
        log.close()


def idl(directory: Path) -> None:
    struct_of_file(str(directory / "Outer.idl"), "Outer", Extensibility.FINAL)


def error_log(directory: Path) -> None:
    ErrorLog(directory / "error_log").record("WARNING", "spark_rtps", "something", now=1)


OPERATIONS = (node, receiver, receiver_on_old_log, counters, publication_log, idl, error_log)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "Inner.idl").write_text("struct Inner { long x; };")
    (tmp_path / "Outer.idl").write_text('#include "Inner.idl"\nstruct Outer { Inner inner; };')
    return tmp_path


def refused(operation: Operation, directory: Path) -> Iterator[str]:
    """What it says with ever more descriptors, until it does not fail."""
    for count in range(64):
        output = ""
        try:
            with descriptors_left(count):
                operation(directory)
        except RtpsError as error:
            output = str(error)  # its traceback would keep what was open
        if not output:
            return
        yield output
    raise AssertionError("64 descriptors are not enough")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_without_descriptors_fails_by_name_and_leaves_nothing(
    operation: Operation, directory: Path
) -> None:
    operation(directory)  # what is opened once, such as random numbers, is open now
    gc.collect()
    before, threads = open_descriptors(), threading.active_count()
    output = []
    for text in refused(operation, directory):
        assert TOO_MANY in text, text
        assert "ulimit -n of this process is " in text or operation is idl, text
        output.append(text)
        gc.collect()
        assert open_descriptors() == before, text
    assert output
    operation(directory)
    gc.collect()
    assert open_descriptors() == before
    assert threading.active_count() <= threads
    assert not list(directory.rglob("*.new"))


def test_the_exporter_of_metrics_names_the_port(tmp_path: Path) -> None:
    importlib.import_module("prometheus_client.openmetrics.exposition")
    before = open_descriptors()
    with descriptors_left(0), pytest.raises(RtpsError, match=rf"metrics.port.*{TOO_MANY}"):
        start_exporter(18_777, [tmp_path])
    assert open_descriptors() == before


def test_an_error_log_that_cannot_be_opened_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "error_log"
    ErrorLog(path).record("WARNING", "spark_rtps", "first", now=1)
    for count in range(3):
        with descriptors_left(count):
            try:
                ErrorLog(path).record("WARNING", "spark_rtps", "second", now=2)
            except RtpsError as error:
                assert TOO_MANY in str(error)  # noqa: PT017
    errors, _ = read_error_log(path)
    assert [each.text for each in errors][:1] == ["first"]


def test_small_files_are_missed_and_not_needed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = Announcement(b"p" * 12, 1, b"payload", "10.0.0.1")
    write_known_participants(tmp_path, [found])
    assert [next_incarnation(tmp_path) for _ in range(3)] == [0, 1, 2]
    with descriptors_left(0):
        write_known_participants(tmp_path, [])
        assert read_known_participants(tmp_path) == []
        LossReport(tmp_path / "losses").observe(guid(1), "t", 5, now=1)
    output = [record.getMessage() for record in caplog.records]
    assert len(output) == 3 and all(TOO_MANY in text for text in output)
    assert read_known_participants(tmp_path) == [found]
    with descriptors_left(0), pytest.raises(RtpsError, match=TOO_MANY):
        next_incarnation(tmp_path)
    assert next_incarnation(tmp_path) == 3


def test_a_receiver_out_of_descriptors_logs_it_and_its_successor_has_every_row(
    tmp_path: Path,
) -> None:
    sender = Node.open(NodeConfig(domain=DOMAIN, interface="lo", lease_duration=60 * NANOSECONDS)).start()
    writer = sender.create_writer(WriterSpec("t", "T", RELIABLE))
    given = config(tmp_path / "log", DOMAIN, log_max_bytes=4 << 20, log_segment_bytes=512 << 10)
    log = LogReader(tmp_path / "log")

    def work(receiver: ReceiverProcess) -> None:
        log.read(receiver.cursor().position)
        receiver.commit_position(log.end.position)

    try:
        receiver = ReceiverProcess.start(given)
        assert writer.wait_for_readers(PATIENCE)
        load = Load(writer, 1)
        wait_until(lambda: work(receiver) or log.end.position > 1 << 20)
        _, hard = resource.prlimit(receiver.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(receiver.pid, resource.RLIMIT_NOFILE, (8, hard))  # all of them are in use
        output: list[str] = []

        def has_ended() -> bool:
            work(receiver)
            try:
                receiver.check()
            except RtpsError as error:
                output.append(str(error))
            return bool(output)

        wait_until(has_ended)
        assert TOO_MANY in output[0] and str(tmp_path) in output[0]
        receiver.stop()
        receiver = ReceiverProcess.start(given)
        wait_until(lambda: work(receiver) or log.end.position > 4 << 20)
        load.stop()
        wait_until(lambda: work(receiver) or load.has_ended)
        wait_until(lambda: work(receiver) or not writer.wait_for_acknowledgments(0.01))
        work(receiver)
        assert log.counts == {writer.guid: load.written}
        assert receiver.counters()["reader.lost_samples"] == 0
        receiver.stop()
    finally:
        sender.close()
