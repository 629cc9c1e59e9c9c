"""A query that copies receiver services into Parquet, and what it has copied: also while it runs, or is killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.cluster.driver import Driver
from tests.cluster.edges import TOPIC, Plant
from tests.support.waiting import wait_until


class Counted(NamedTuple):
    """What is in the output, of what was to be there."""

    rows: int
    lost: int
    doubled: int
    foreign: int


class CopyingQuery:
    """The query, its checkpoint and its output in ``folder``."""

    def __init__(self, plant: Plant, driver: Driver, folder: Path, **options: str) -> None:
        self._driver = driver
        self._output, self._checkpoint = folder / "output", folder / "checkpoint"
        self._flag, self._end = folder / "runs", folder / "end"
        self._given: dict[str, Any] = {
            "topic": TOPIC,
            "options": {**plant.options(), "minPartitions": "2", **options},
            "checkpoint": str(self._checkpoint),
            "output": str(self._output),
            "flag": str(self._flag),
            "end": str(self._end),
        }
        #: Rows of each file of the output.
        self._rows: dict[str, int] = {}
        self._query = driver.run("copy", **self._given)

    def wait_until_it_runs(self) -> None:
        wait_until(lambda: self.check() and self._flag.exists(), self.output, 120, every=0.1)

    def check(self) -> bool:
        """Fails if the query has ended."""
        return self._query.check()

    def output(self) -> str:
        return self._query.output()

    def kill(self) -> bool:
        """Kill the driver with its JVM, and start it again on its checkpoint."""
        self._driver.kill()
        self._flag.unlink(missing_ok=True)
        self._driver.start()
        self._query = self._driver.run("copy", **self._given)
        return True

    def stop(self) -> str:
        """Let the query end; returns what the driver has printed."""
        self._end.touch()
        status, output = self._query.wait(120)
        assert status == 0, output[-6000:]
        return output

    # --- batches -----------------------------------------------------------------------------------

    @property
    def planned(self) -> int:
        """How many batches have been planned."""
        return _last(self._checkpoint / "offsets") + 1

    @property
    def done(self) -> int:
        return _last(self._checkpoint / "commits") + 1

    def place(self, receiver: str) -> int:
        """Before which position of a receiver's log everything is in the output."""
        if not self.done:
            return 0
        lines = (self._checkpoint / "offsets" / str(self.done - 1)).read_text().splitlines()
        found = json.loads(lines[2])["receivers"].get(receiver)
        return 0 if found is None else int(found["position"])

    # --- rows --------------------------------------------------------------------------------------

    def rows(self) -> int:
        """Rows of all batches that are in the output."""
        for path in self._files():
            if path not in self._rows:
                self._rows[path] = pq.read_metadata(path).num_rows
        return sum(self._rows.values())

    def read(self) -> pa.Table:
        return pa.concat_tables(pq.read_table(path, partitioning=None) for path in self._files())

    def counted(self, writers: int, count: int) -> Counted:
        """The output against ``count`` numbers of each writer."""
        table = self.read()
        writer, number = (table[name].to_numpy() for name in ("writer", "number"))
        good = (writer >= 0) & (writer < writers) & (number >= 0) & (number < count)
        times = np.bincount(writer[good] * count + number[good], minlength=writers * count)
        return Counted(
            len(table), int((times == 0).sum()), int((times - 1).clip(0).sum()), int((~good).sum())
        )

    def _files(self) -> Iterator[str]:
        """The files that the sink's log names; what a task left that was killed is none of them."""
        log = self._output / "_spark_metadata"
        if not log.is_dir():
            return
        entries = {entry.name for entry in log.iterdir() if entry.name[0] != "."}
        compact = max((int(name.split(".")[0]) for name in entries if name.endswith(".compact")), default=-1)
        names = [f"{compact}.compact"] if compact >= 0 else []
        names += [name for name in entries if name.isdigit() and int(name) > compact]
        for name in names:
            for line in (log / name).read_text().splitlines()[1:]:
                yield json.loads(line)["path"].removeprefix("file://")


def _last(directory: Path) -> int:
    """The highest number that names a file; -1 if there is none."""
    if not directory.is_dir():
        return -1
    return max((int(entry.name) for entry in directory.iterdir() if entry.name.isdigit()), default=-1)
