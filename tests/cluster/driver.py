"""A driver on the cluster, and the queries that run there one after the other (``driver_program.py``)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cluster.edges import Hosts

PROGRAM = Path(__file__).with_name("driver_program.py")


class Driver:
    """It has a session for all its queries, since a driver and its executors cost more than most queries."""

    def __init__(self, cluster: Hosts, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self._cluster = cluster
        self._folder = folder
        self._settings = dict(settings or {})
        self._starts = 0
        self._queries: list[DriverQuery] = []
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the driver is not started"
        return self._process

    def start(self) -> None:
        scenes = self._folder / f"scenes-{self._starts}"
        scenes.mkdir()
        self._starts += 1
        self._queries = []
        given = {
            "master": self._cluster.master,
            "address": self._cluster.driver_address,
            "settings": self._settings,
            "scenes": str(scenes),
        }
        self._process = self._cluster.start(sys.executable, str(PROGRAM), json.dumps(given))

    def make_ready(self) -> None:
        """Start it, also again if a query has not ended."""
        if self._process is None or not self._is_idle():
            self.kill()
            self.start()

    def run(self, name: str, **given: object) -> DriverQuery:
        """Begin a query when the ones before have ended."""
        self._ask({"name": name, **given})
        query = DriverQuery(self, self._scene(len(self._queries)).with_suffix(".done"))
        self._queries.append(query)
        return query

    def output(self) -> str:
        return self._cluster.output_of(self.process)

    def kill(self) -> None:
        """With its JVM."""
        if self._process is not None:
            self._cluster.end(self._process)
            self._process = None

    def stop(self) -> None:
        """Let it end by itself."""
        self._ask(None)
        assert self.process.wait(120) == 0, self.output()[-6000:]
        self.kill()

    def _is_idle(self) -> bool:
        return self.process.poll() is None and all(query.status is not None for query in self._queries)

    def _scene(self, number: int) -> Path:
        return self._folder / f"scenes-{self._starts - 1}" / f"{number}.json"

    def _ask(self, query: Mapping[str, object] | None) -> None:
        asked = self._scene(len(self._queries))
        unready = asked.with_suffix(".new")
        unready.write_text(json.dumps(query))
        unready.replace(asked)


class DriverQuery:
    """A query of a driver."""

    def __init__(self, driver: Driver, done: Path) -> None:
        self._driver = driver
        self._done = done
        self._begin = len(driver.output())

    def output(self) -> str:
        """What the driver has printed since the query was asked for."""
        return self._driver.output()[self._begin :]

    @property
    def status(self) -> int | None:
        """The exit status of a driver with this query alone; None while it runs."""
        if self._done.exists():
            return int(self._done.read_text())
        return self._driver.process.poll()

    def check(self) -> bool:
        """Fails if it has ended."""
        assert self.status is None, self.output()[-6000:]
        return True

    def wait(self, seconds: float = 240) -> tuple[int, str]:
        """Its status at the end, and what was printed."""
        until = time.monotonic() + seconds
        while (status := self.status) is None:
            if time.monotonic() > until:
                pytest.fail(f"no end after {seconds} s: {self.output()[-4000:]}")
            time.sleep(0.1)
        return status, self.output()
