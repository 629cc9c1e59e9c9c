"""A source and a sink in one process, whose function calls are recorded in order."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import TypeAlias

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from spark_rtps.datasource import source, writer
from spark_rtps.datasource.read_limits import UNLIMITED
from spark_rtps.datasource.writer_pool import WriterPool
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.receiver import process
from spark_rtps.transport.receiver.config import ReceiverConfig
from spark_rtps.transport.receiver.host import Host
from tests.support import domains
from tests.support.rows import ROOT, place_of
from tests.support.waiting import PATIENCE, wait_until

COLUMNS = StructType().add("id", "integer", nullable=False)
RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
OPTIONS = {"topic": "Walked", "domain": str(domains.DOCS_WALKS), "interface": "lo"}
#: The names of the traced threads.
RECEIVER, SPARK = "receiver", "MainThread"


#: Thread, file and qualified name.
Call: TypeAlias = tuple[str, str, str]


class Trace:
    """The calls of the project's functions, as thread, file and qualified name, in the order in which they began."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record the calls of this thread and of all threads that start meanwhile."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (called := _called(frame.f_code)) is not None:
            self.calls.append((threading.current_thread().name, *called))


@cache
def _called(code: CodeType) -> tuple[str, str] | None:
    path = Path(code.co_filename).resolve()
    if not code.co_flags & inspect.CO_OPTIMIZED:
        return None  # a module or the body of a class, which are run when they are imported
    is_product = any(path.is_relative_to(ROOT / room) for room in ("transport", "datasource", "spark_rtps"))
    return (place_of(path), code.co_qualname) if is_product else None


class ReceiverThread:
    """Stands for the process of a receiver: a thread that takes its configuration from the same text."""

    pid = 0

    def __init__(self) -> None:
        self.stdin = self
        reading, self._answers = os.pipe()
        self.stdout = os.fdopen(reading, "rb")

    def write(self, text: bytes) -> None:
        if text == b"stop\n":
            return
        self.host = Host.open(ReceiverConfig.from_json(text.decode()))
        self._thread = threading.Thread(target=self.host.run, name=RECEIVER)
        self._thread.start()
        os.write(self._answers, b'{"ready": true}\n')
        os.close(self._answers)

    def flush(self) -> None: ...

    def close(self) -> None:
        if self._thread.is_alive():
            self.host.stop(dispose=False)
            self._thread.join(PATIENCE)
            self.host.close()

    def poll(self) -> int | None:
        return None if self._thread.is_alive() else 0

    def wait(self, timeout: float = PATIENCE) -> None:
        self._thread.join(timeout)

    def kill(self) -> None: ...


#: More than one datagram holds, and more than one segment of the log.
ROWS = 1000


def trace_walkthroughs(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Call]]:
    """Write rows and read them as Spark does, then start the query again; returns the calls of each part."""
    receivers: list[ReceiverThread] = []

    def take() -> ReceiverThread:
        receivers.append(ReceiverThread())
        return receivers[-1]

    pool = WriterPool()
    monkeypatch.setattr(process, "take", take)
    monkeypatch.setattr(source, "prepare", lambda: None)
    monkeypatch.setattr(writer, "WRITERS", pool)
    monkeypatch.setattr(writer, "settle", lambda: None)
    trace = Trace()
    parts: dict[str, list[Call]] = {}

    def cut(name: str) -> None:
        parts[name], trace.calls = trace.calls, []

    reading = {"log.dir": str(log_dir), "log.segment_bytes": "4KiB", "flow_control.consumption": "committed"}
    writing = {"reliable_writer.heartbeat_period": "50ms", "mtu": "1500"}
    try:
        with trace.recording():
            made = source.RtpsDataSource(OPTIONS | reading).streamReader(COLUMNS)
            cut("source")
            zero = made.initialOffset()
            assert made.latestOffset(zero, UNLIMITED) == zero
            made.partitions(zero, zero)
            cut("start")
            sink = source.RtpsDataSource(OPTIONS | writing).writer(COLUMNS, overwrite=False)
            sink.write(iter([_rows(1)]))
            cut("sink")
            sink.write(_burst(receivers[0].host))
            cut("write")
            end = made.latestOffset(zero, UNLIMITED)
            made.commit(zero)
            tasks = made.partitions(zero, end)
            cut("plan")
            assert sum(rows.num_rows for task in tasks for rows in made.read(task)) == 1 + ROWS
            cut("read")
            made.latestOffset(end, UNLIMITED)
            made.commit(end)
            log = receivers[0].host.log
            wait_until(lambda: log.base > 0, "the log is trimmed")
            made.stop()
            cut("commit")
            again = source.RtpsDataSource(OPTIONS | reading).streamReader(COLUMNS)
            again.partitions(end, end)
            cut("restart")
            again.stop()
    finally:
        for node, _ in pool._nodes.values():
            node.close()
    return parts


def _rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(range(count), pa.int32())})


def _burst(receiver: Host) -> Iterator[pa.RecordBatch]:
    """Rows of a task; the receiver receives nothing until they are all sent, and then all at once."""
    with receiver.node.lock:
        yield _rows(ROWS)
