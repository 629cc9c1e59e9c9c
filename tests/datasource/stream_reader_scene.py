"""A streaming source as Spark has it, with a receiver that has no network."""

from __future__ import annotations

import contextlib
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from spark_rtps.datasource.offsets import Offset
from spark_rtps.datasource.read_limits import UNLIMITED
from spark_rtps.datasource.schema import plan_source
from spark_rtps.datasource.stream_reader import RtpsStreamReader
from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.transport.errors import LogError, LogLostError, RtpsError
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.receiver.config import ReceiverConfig
from spark_rtps.transport.receiver.subscription_log import open_log
from spark_rtps.transport.receiver.writer_types import WriterTypes
from tests.support.stream_logs import RECEPTION, WRITER, encoded, points, run_of

COLUMNS = StructType().add("id", "integer").add("x", "double")
ALL = UNLIMITED


class FakeReceiver:
    """A receiver that appends what the test hands it."""

    pid = 0

    def __init__(self, config: ReceiverConfig) -> None:
        self.log = open_log(config)
        try:
            wanted = config.records_writer_types
            self.types = WriterTypes(self.log.directory, lambda _: None) if wanted else None
        except LogLostError:
            self.log.close()
            raise
        self.mode = config.log_mode
        self.dead: str | None = None
        self.stopped = False
        self.committed: list[int] = []
        self.counted: dict[str, int] = {}

    def receive(self, first: int, count: int) -> None:
        if self.types is not None:
            self.types.record_writer(WRITER)
        assert self.log.append(run_of(encoded(points(first, count)), first + 1), reception=RECEPTION)

    def die(self, why: str) -> None:
        self.dead = why
        self.log.close()

    def base(self) -> int:
        return self.log.base

    def cursor(self) -> Cursor:
        return Cursor(self.log.position)

    def commit_position(self, position: int) -> None:
        self.committed.append(position)

    def counters(self) -> dict[str, int]:
        return dict(self.counted)

    def check(self) -> None:
        if self.dead:
            raise RtpsError(self.dead)

    def stop(self, *, dispose: bool = True) -> None:
        self.stopped, self.disposed = True, dispose
        with contextlib.suppress(LogError):  # its folder may be gone, which a process takes to its end
            self.log.close()


class Source:
    """A reader and the receivers it started."""

    def __init__(self, log_dir: Path, **options: object) -> None:
        given = {
            "topic": "T",
            "interface": "lo",
            "log.dir": str(log_dir),
            **{k: str(v) for k, v in options.items()},
        }
        settings = parse_options(given, AppliesTo.READ)
        self.receivers: list[FakeReceiver] = []
        self.reader = RtpsStreamReader(settings, plan_source(settings, COLUMNS), start=self._start)

    def begin(self) -> dict[str, Any]:
        """What Spark does when a query begins: its first micro-batch is empty. Returns where it ends."""
        zero = self.reader.initialOffset()
        assert self.reader.latestOffset(zero, ALL) == self.reader.initialOffset() == zero
        assert self.reader.partitions(zero, zero) == []
        return zero

    def go_on(self, end: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        """Where the query goes on behind ``end`` with a receiver, and the rows up to there.

        That is ``end``, or the beginning of a new log if its log is lost: a micro-batch of its own names that.
        """
        following = self.reader.latestOffset(end, ALL)
        if log_of(following) == log_of(end):
            return end, []
        assert Offset.from_json(following).cursor == Cursor(0)
        return following, self.ids(end, following)

    def _start(self, config: ReceiverConfig) -> FakeReceiver:
        self.receivers.append(FakeReceiver(config))
        return self.receivers[-1]

    @property
    def receiver(self) -> FakeReceiver:
        return self.receivers[-1]

    def ids(self, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
        reader = pickle.loads(pickle.dumps(self.reader))  # as a task has it
        return [
            i
            for part in self.reader.partitions(start, end)
            for batch in reader.read(pickle.loads(pickle.dumps(part)))
            for i in batch.column("id").to_pylist()
        ]


def beyond(offset: dict[str, Any], nbytes: int) -> dict[str, Any]:
    """An offset that lies so many bytes behind this one, or before it."""
    moved = json.loads(json.dumps(offset))
    moved["receivers"]["embedded"]["position"] += nbytes
    return moved  # type: ignore[no-any-return]


def log_of(offset: dict[str, Any]) -> str:
    return Offset.from_json(offset).log


def planned(make: Callable[..., Source]) -> tuple[Any, ...]:
    """Where a batch of ten samples starts and ends that a run planned before it was stopped."""
    first = make()
    zero = first.begin()
    first.receiver.receive(0, 10)
    end = first.reader.latestOffset(zero, ALL)
    first.reader.stop()
    return zero, end
