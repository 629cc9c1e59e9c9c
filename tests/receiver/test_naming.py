"""A receiver that is not told the name of the topic's type: the first writer says it, and whether there is a key."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.options.explanations import RECEIVER_HINTS
from spark_rtps.transport.errors import LogError, LogFullError
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.receiver.config import ReceiverConfig
from spark_rtps.transport.receiver.host import Host
from spark_rtps.transport.receiver.process import ReceiverProcess
from spark_rtps.transport.structure import is_keyed
from tests.support import domains
from tests.support.numbered_samples import numbered, numbers_of, one_instance
from tests.support.waiting import PATIENCE, wait_until

DOMAIN = domains.RECEIVER_NAMING
RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
KEPT = replace(RELIABLE, durability=DurabilityKind.TRANSIENT_LOCAL)


def config(directory: Path, **changes: Any) -> ReceiverConfig:
    given: dict[str, Any] = {
        "log_directory": str(directory),
        "topic": "t",
        "type_name": None,
        "keyed": None,
        "qos": RELIABLE,
        "node": NodeConfig(domain=DOMAIN, interface="lo", receive_buffer=4 << 20),
        "log_max_bytes": 64 << 20,
        "log_segment_bytes": 4 << 20,
    }
    return ReceiverConfig(**{**given, **changes}, hints=RECEIVER_HINTS)


def numbers(directory: Path, end: Cursor) -> list[int]:
    """The numbers in the log, in order."""
    found: list[int] = []
    for frame in LogView(directory).frames(Cursor(0), end):
        found += [number for _, number in numbers_of(frame.run.samples())]
    return found


def reported(directory: Path) -> tuple[object, object]:
    """What the log says of the type."""
    metadata = LogView(directory).metadata
    return metadata["type"], metadata["keyed"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def node() -> Iterator[Node]:
    with closing(Node.open(NodeConfig(domain=DOMAIN, interface="lo")).start()) as node:
        yield node


@pytest.fixture
def receive(directory: Path) -> Iterator[Callable[..., ReceiverProcess]]:
    """Starts receivers on one log."""
    with ExitStack() as stack:

        def start(**changes: Any) -> ReceiverProcess:
            receiver = ReceiverProcess.start(config(directory, **changes))
            stack.callback(receiver.stop)
            return receiver

        yield start


def written(writer: BlockingWriter, first: int, count: int) -> None:
    """Write numbers, which all readers acknowledge."""
    key_hashes = one_instance(count) if is_keyed(writer.guid.entity) else None
    writer.write_samples(numbered(first, count), key_hashes=key_hashes)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}


@pytest.mark.parametrize("keyed", [False, True])
def test_a_writer_that_comes_later_is_matched(
    directory: Path, node: Node, receive: Callable[..., ReceiverProcess], keyed: bool
) -> None:
    receiver = receive()
    node.create_writer(WriterSpec("u", "Other", RELIABLE))
    assert reported(directory) == (None, None)
    assert receiver.counters()["reader.matched_writers"] == 0
    writer = node.create_writer(WriterSpec("t", "ns::Shape", RELIABLE, keyed=keyed))
    assert writer.wait_for_readers(PATIENCE)
    written(writer, 0, 100)
    assert numbers(directory, receiver.cursor()) == list(range(100))
    assert reported(directory) == ("ns::Shape", keyed)


def test_the_history_of_a_writer_comes_too(
    directory: Path, node: Node, receive: Callable[..., ReceiverProcess]
) -> None:
    receiver = receive(qos=KEPT)
    writer = node.create_writer(WriterSpec("t", "ns::Shape", KEPT, keyed=True))
    writer.write_samples(numbered(0, 100), key_hashes=one_instance(100))
    wait_until(lambda: receiver.counters()["log.rows"] == 100)
    assert numbers(directory, receiver.cursor()) == list(range(100))


def test_another_type_name_is_a_mismatch(
    node: Node, receive: Callable[..., ReceiverProcess], capfd: pytest.CaptureFixture[str]
) -> None:
    receiver = receive()
    first = node.create_writer(WriterSpec("t", "First", RELIABLE))
    assert first.wait_for_readers(PATIENCE)
    node.create_writer(WriterSpec("t", "Second", RELIABLE))
    node.create_writer(WriterSpec("t", "First", RELIABLE, keyed=True))
    wait_until(lambda: receiver.counters().get("status.inconsistent_topic.total_count") == 2)
    assert receiver.counters()["reader.matched_writers"] == 1
    receiver.stop()
    output = capfd.readouterr().err
    assert "TYPE: the writer's is 'Second', the reader's is 'First' (set the option type" in output
    assert "KEY: the writer's type has a key, the reader's has none (name the key columns" in output


def test_a_configured_key_is_used(
    directory: Path, node: Node, receive: Callable[..., ReceiverProcess]
) -> None:
    receiver = receive(keyed=True)
    node.create_writer(WriterSpec("t", "First", RELIABLE))
    wait_until(lambda: receiver.counters()["reader.incompatible_qos"] == 1)
    second = node.create_writer(WriterSpec("t", "First", RELIABLE, keyed=True))
    assert second.wait_for_readers(PATIENCE)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_started_again_it_goes_on_with_the_name(
    directory: Path, node: Node, receive: Callable[..., ReceiverProcess], how: signal.Signals
) -> None:
    receiver = receive(qos=KEPT)
    first = node.create_writer(WriterSpec("t", "First", KEPT, keyed=True))
    assert first.wait_for_readers(PATIENCE)
    written(first, 0, 100)
    os.kill(receiver.pid, how)
    receiver.stop()
    node.delete_endpoint(first.guid)
    node.create_writer(WriterSpec("t", "Second", KEPT))
    first = node.create_writer(WriterSpec("t", "First", KEPT, keyed=True))
    first.write_samples(numbered(100, 100), key_hashes=one_instance(100))
    receiver = receive(qos=KEPT)
    wait_until(lambda: receiver.counters()["reader.incompatible_qos"] == 1)
    wait_until(lambda: receiver.counters()["log.rows"] == 200)
    assert numbers(directory, receiver.cursor()) == list(range(200))
    assert reported(directory) == ("First", True)


def test_a_type_name_that_is_given_later(
    directory: Path, node: Node, receive: Callable[..., ReceiverProcess]
) -> None:
    """Nothing was received under the other name; then a log is of its type for good."""
    receiver = receive()
    node.create_writer(WriterSpec("t", "First", RELIABLE, keyed=True))
    wait_until(lambda: reported(directory) == ("First", True))
    receiver.stop()
    receiver = receive(type_name="Second", keyed=False)
    assert reported(directory) == ("Second", False)
    second = node.create_writer(WriterSpec("t", "Second", RELIABLE))
    assert second.wait_for_readers(PATIENCE)
    written(second, 0, 1)
    receiver.stop()
    with pytest.raises(LogError, match="is of topic 't', type 'Second', not of topic 't', type 'First'"):
        receive(type_name="First", keyed=False)


def test_a_type_name_that_is_no_longer_given(
    directory: Path, node: Node, receive: Callable[..., ReceiverProcess]
) -> None:
    """Nor was anything received under that one."""
    receive(type_name="Wrong", keyed=False).stop()
    receive()
    assert reported(directory) == (None, None)
    assert node.create_writer(WriterSpec("t", "Right", RELIABLE, keyed=True)).wait_for_readers(PATIENCE)
    assert reported(directory) == ("Right", True)


def test_a_writer_in_another_partition_is_not_followed(
    directory: Path, node: Node, receive: Callable[..., ReceiverProcess]
) -> None:
    node.create_writer(WriterSpec("t", "Other", replace(RELIABLE, partition=("a",))))
    receive(qos=replace(RELIABLE, partition=("b",)))
    right = node.create_writer(WriterSpec("t", "Right", replace(RELIABLE, partition=("b",))))
    assert right.wait_for_readers(PATIENCE)
    assert reported(directory) == ("Right", False)


def test_a_receiver_ends_while_it_waits_for_a_type(directory: Path) -> None:
    receiver = ReceiverProcess.start(config(directory, ephemeral=True))
    receiver.stop()
    assert not directory.exists()


def test_a_disk_that_takes_no_more(
    directory: Path, node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise LogFullError("cannot write the metadata")

    monkeypatch.setattr(StreamLog, "amend", refuse)
    host = Host.open(config(directory))
    thread = threading.Thread(target=host.run)
    thread.start()
    try:
        writer = node.create_writer(WriterSpec("t", "T", RELIABLE))
        assert writer.wait_for_readers(PATIENCE)
        written(writer, 0, 1)
    finally:
        host.stop(dispose=True)
        thread.join(PATIENCE)
        host.close()
    assert "a restarted receiver adopts the settings of the first writer" in caplog.text
    assert reported(directory) == (None, None)
