"""What can be seen of streams from outside: their progress, and what Spark and its processes say on stderr."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_rtps.monitoring.stream_counters import Stream, StreamKind, read_streams
from tests.support.surroundings import executors_stderr
from tests.support.waiting import wait_until


def statuses(query: StreamingQuery) -> list[dict[str, Any]]:
    """sources[i].latestOffset.status of the last progress."""
    progress = query.lastProgress
    latest = [each["latestOffset"] for each in progress["sources"]] if progress else []
    found = [json.loads(each) if isinstance(each, str) else each for each in latest]
    return [each["status"] for each in found if each]


def sources(topic: str, log_dir: Path) -> list[Stream]:
    """The sources of a topic, as `spark-rtps stat` finds them."""
    found = read_streams([log_dir], now=time.monotonic_ns())
    return [stream for stream in found if stream.topic == topic and stream.kind is StreamKind.SOURCE]


def source_counter(topic: str, log_dir: Path, label: str) -> int:
    """A counter of the one source of a topic; 0 as long as there is none."""
    found = sources(topic, log_dir)
    assert len(found) <= 1
    return found[0].counters.get(label, 0) if found else 0


class Stderr:
    """What the driver, its Python workers and its receivers say, from now on."""

    def __init__(self, spark: SparkSession) -> None:
        self._path = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/fd/2")
        if not stat.S_ISREG(os.stat(self._path).st_mode):
            pytest.skip("stderr is no file: pytest -s")
        self._from = {path: path.stat().st_size for path in self._paths()}

    def text(self) -> str:
        return "".join(self._new(path) for path in self._paths())

    def _paths(self) -> list[Path]:
        return [self._path, *executors_stderr()]

    def _new(self, path: Path) -> str:
        with path.open("rb") as file:
            file.seek(self._from.get(path, 0))
            return file.read().decode(errors="replace")

    def wait_for(self, pattern: str) -> None:
        wait_until(lambda: re.search(pattern, self.text()) is not None, f"{pattern!r} on stderr")
