"""Receiver services over real logs on this disk, without processes and without a network."""

from __future__ import annotations

import json
import pickle
import threading
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from spark_rtps.datasource.receiver_service_stream_reader import ReceiverServiceStreamReader
from spark_rtps.datasource.schema import plan_source
from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.options.settings import Settings
from spark_rtps.serving.wire_format.log_location import LogLocation
from spark_rtps.serving.wire_format.misplaced_offset import MisplacedOffset, find_misplacement
from spark_rtps.serving.wire_format.receiver_service import LogTail, SubscriptionInfo
from spark_rtps.transport.errors import LogLostError, RangeServerError
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.protocol.discovery.topic_selection import TopicSelection
from spark_rtps.transport.receiver.writer_types import AnnouncedTypes, WriterTopic
from spark_rtps.transport.structure import Guid
from tests.datasource.stream_reader_scene import ALL, COLUMNS
from tests.support.stream_logs import POINT, RECEPTION, WRITER, encoded, points, run_of

ADDRESSES = {"a": "h1:1", "b": "h2:1"}


class FakeReceiver:
    """What a client sees of a receiver with one subscription."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.is_gone = False
        #: It tells where the log ends, and goes away.
        self.goes = False
        self.base = 0
        self.max_bytes = 1 << 24
        #: Answers only when all that share this barrier are asked.
        self.together: threading.Barrier | None = None
        #: The log of a new subscription is not there at once.
        self.starts = 0
        #: Options of subscriptions that queries asked for.
        self.asked: list[dict[str, str]] = []
        self.committed: list[tuple[str, Cursor]] = []
        self.types: dict[Guid, Any] = {WRITER: POINT}
        #: The topics of its subscription, and of the writers of each; None: it has one.
        self.selection: TopicSelection | None = None
        self.topics: dict[Guid, list[WriterTopic]] = {}
        #: Of its subscription.
        self.options: dict[str, str] = {}
        self.domain = 0
        self.renew()

    def renew(self) -> None:
        """Begin another log."""
        self.log = str(uuid.uuid4())
        self.stream = StreamLog.create(
            self.root / self.log, max_bytes=self.max_bytes, segment_bytes=1 << 20, metadata={}
        )

    def receive(self, first: int, count: int) -> None:
        for number in range(first, first + count):
            run = run_of(encoded(points(number, 1)), number + 1)
            assert self.stream.append(run, reception=RECEPTION + number)

    # --- as a client -------------------------------------------------------------------------------

    def subscriptions(self) -> list[SubscriptionInfo]:
        self._check(self.log)
        folder = self.root / self.log
        place, end = LogLocation.of_directory(folder), self.stream.position
        about = (self.log, folder, place, self.base, end, 0, "running", None, False, self.options, "bytes")
        topic = "T" if self.selection is None else str(self.selection)
        return [SubscriptionInfo("t", topic, None, self.domain, *about, self.selection)]

    def subscribe(self, options: Mapping[str, str], *, patience: float | None = None) -> SubscriptionInfo:
        self.asked.append(dict(options))
        self.patience = patience
        (found,) = self.subscriptions()
        self.starts = 2
        return found

    def tail(self, log: str, *, after: int = -1, wait: float = 0.0) -> LogTail:
        self._check(log)
        if self.starts:
            self.starts -= 1
            raise LogLostError("its receiver starts")
        self.is_gone = self.goes
        if self.together is not None:
            self.together.wait(20)
        return LogTail(self.base, self.stream.position, 0, self.max_bytes, {})

    def advance(self, log: str, start: Cursor, tail: LogTail, *, max_rows: int, max_bytes: int) -> Cursor:
        return self._view(log).advance(start, max_rows=max_rows, max_bytes=max_bytes, tail=tail.position)

    def split(self, log: str, start: Cursor, end: Cursor, pieces: int) -> list[tuple[Cursor, Cursor]]:
        return self._view(log).split(start, end, pieces)

    def place(self, log: str, cursor: Cursor) -> Cursor | MisplacedOffset:
        tail = Cursor(self.stream.position)
        return find_misplacement(self._view(log), cursor, base=self.base, tail=tail) or cursor

    def at(self, log: str, time_ns: int) -> Cursor:
        return self._view(log).at(time_ns)

    def commit_offset(self, log: str, group: str, cursor: Cursor) -> None:
        self._check(log)
        self.committed.append((group, cursor))

    def groups(self, log: str) -> dict[str, Cursor]:
        self._check(log)
        return dict(self.committed)

    def writer_types(self, log: str) -> AnnouncedTypes:
        self._check(log)
        return AnnouncedTypes(self.types, topics=self.topics)

    def close(self) -> None:
        pass

    def _view(self, log: str) -> LogView:
        self._check(log)
        return LogView(self.root / log)

    def _check(self, log: str) -> None:
        if self.is_gone:
            raise RangeServerError("it is not reached", is_reached=False)
        if log != self.log:
            raise LogLostError(f"there is no log {log}")


def settings_of(**options: object) -> Settings:
    receivers = ",".join(f"{name}={address}" for name, address in ADDRESSES.items())
    given = {"topic": "T", "receivers": receivers, **{k: str(v) for k, v in options.items()}}
    if given.keys() & {"subscribe", "subscribePattern"}:
        del given["topic"]
    return parse_options(given, AppliesTo.READ)


class ReceiverServices:
    """A query over receivers a and b."""

    def __init__(self, root: Path) -> None:
        self.a, self.b = (FakeReceiver(root / name) for name in ADDRESSES)

    def connect(self, served: Any) -> Any:
        return self.a if served.addresses == (ADDRESSES["a"],) else self.b

    def reader(self, **options: object) -> ReceiverServiceStreamReader:
        settings = settings_of(**options)
        return ReceiverServiceStreamReader(settings, plan_source(settings, COLUMNS), make=self.connect)


def ids(reader: Any, parts: Iterable[InputPartition]) -> list[int]:
    task = pickle.loads(pickle.dumps(reader))
    return [i for part in parts for batch in task.read(part) for i in batch.column("id").to_pylist()]


def step(reader: Any, start: dict[str, Any], limit: ReadLimit = ALL) -> tuple[dict[str, Any], list[int]]:
    """Plan and read one micro-batch from ``start`` on: its end, and the ids of its rows in order."""
    end = reader.latestOffset(json.loads(json.dumps(start)), limit)
    return end, sorted(ids(reader, reader.partitions(start, end)))
