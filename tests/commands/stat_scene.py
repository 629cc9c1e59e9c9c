"""Counters files of a source and a sink, and a clock, for the tests of `spark-rtps stat`."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from typer.testing import CliRunner, Result

from spark_rtps.cli import app
from spark_rtps.monitoring.processes import process_start
from spark_rtps.monitoring.stream_counters import Stream, read_streams
from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.log.stream_log import StreamLog

SECOND = 1_000_000_000
DEAD = 1 << 30
#: Every key of a stream, whatever it is.
KEYS = {
    "kind",
    "topic",
    "type",
    "domain",
    "guid_prefix",
    "pid",
    "state",
    "path",
    "samples",
    "samples_per_second",
    "bytes",
    "bytes_per_second",
    "behind_samples",
    "behind_bytes",
    "disk_bytes",
    "peers",
    "lost",
    "rejected",
    "malformed",
    "repairs",
    "back_pressure",
    "statuses",
    "drops",
    "positions",
    "readers",
    "writers",
    "counters",
}


class FakeTime:
    """The clock of the command; whoever sleeps on it wakes up in a scene of the test's, and at last by Ctrl-C."""

    def __init__(self, *scenes: Callable[[], None]) -> None:
        self.now = time.monotonic_ns()
        self.scenes = list(scenes)

    def monotonic_ns(self) -> int:
        return self.now

    def time_ns(self) -> int:
        return 1_700_000_000 * SECOND

    def sleep(self, seconds: float) -> None:
        if not self.scenes:
            raise KeyboardInterrupt
        self.now += int(seconds * SECOND)
        self.scenes.pop(0)()


def source(root: Path, topic: str = "Square", **counted: int) -> Counters:
    """A log and the counters of its receiver, which is this process; a__b is the label a.b."""
    directory = root / str(uuid.uuid4())
    directory.mkdir(parents=True)
    metadata = {"topic": topic, "type": "ShapeType", "guid_prefix": "01" * 12}
    StreamLog.create(directory, max_bytes=1 << 20, metadata=metadata).close()
    counters = Counters.create(directory / "counters")
    given = {"receiver__pid": os.getpid(), "receiver__heartbeat_ns": time.monotonic_ns(), **counted}
    return fill(counters, **given)


def sink(root: Path, topic: str = "Circle", number: int = 0, **counted: int) -> Counters:
    folder = root / "publishers"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{os.getpid()}-{process_start(os.getpid())}-{number}"
    about = {"topic": topic, "type": "ShapeType", "domain": 7, "guid_prefix": "02" * 12}
    (folder / f"{name}.json").write_text(json.dumps(about))
    return fill(Counters.create(folder / f"{name}.counters"), **counted)


def fill(counters: Counters, **counted: int) -> Counters:
    for label, value in counted.items():
        counters.counter(label.replace("__", ".")).set(value)
    return counters


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["stat", *arguments])
    assert result.exit_code == 0, result.output
    return result


def as_json(*arguments: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(run("--json", *arguments).stdout)
    return found


def only(root: Path, now: int | None = None) -> Stream:
    (stream,) = read_streams([root], now=time.monotonic_ns() if now is None else now)
    return stream
