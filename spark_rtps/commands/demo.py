"""``spark-rtps demo``: a foreign DDS publisher, a Spark query, a foreign DDS subscriber; half a minute."""

from __future__ import annotations

import importlib.util
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..demo import CYCLONE_ON_LOOPBACK, DOMAIN
from ..transport.errors import RtpsError, UsageError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from rich.console import Console

#: How long the first square may take to reach Spark, and the last ones after the publisher has stopped.
_FIRST_SECONDS = 120.0
_DRAIN_SECONDS = 10.0


def demo(
    seconds: Annotated[float, typer.Option(min=3, help="How long squares flow through Spark.")] = 15.0,
    rate: Annotated[float, typer.Option(min=4, help="Squares a second.")] = 400.0,
    domain: Annotated[int, typer.Option(min=0, max=232, help="The DDS domain, on loopback.")] = DOMAIN,
) -> None:
    """Cyclone DDS publishes squares, Spark averages them, Cyclone DDS receives the averages."""
    from rich.console import Console

    if importlib.util.find_spec("cyclonedds") is None:
        raise UsageError("the demo needs a foreign DDS to talk to: pip install 'spark-rtps[demo]'")
    console = Console(highlight=False, soft_wrap=True)
    with ExitStack() as cleanup:
        work = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="spark-rtps-demo-")))
        outcome = _run(console, cleanup, work, seconds=seconds, rate=rate, domain=domain)
    _summary(console, outcome)
    if not outcome.complete:
        raise typer.Exit(1)


@dataclass
class Outcome:
    """The counts at each end."""

    published: int = 0
    received: int = 0
    rows_read: int = 0
    batch_ms: list[int] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return 0 < self.published == self.rows_read and self.received > 0


def _run(
    console: Console, cleanup: ExitStack, work: Path, *, seconds: float, rate: float, domain: int
) -> Outcome:
    console.print("starting Spark ...", style="dim")
    from ..demo.query import start_query
    from ..session import quiet_session

    spark = quiet_session("spark-rtps demo")
    cleanup.callback(spark.stop)
    arguments = ["--domain", str(domain)]
    subscriber = Foreign("subscriber", arguments, console, "magenta")
    cleanup.callback(subscriber.stop)
    publisher = Foreign("publisher", [*arguments, "--rate", str(rate)], console, "cyan")
    cleanup.callback(publisher.stop)
    query = start_query(spark, domain, work)
    cleanup.callback(query.stop)

    def check() -> None:
        _check_query(query)
        publisher.check()
        subscriber.check()

    outcome = Outcome()
    progress = Progress(query)
    if not _wait(lambda: progress.rows > 0, _FIRST_SECONDS, check):
        raise RtpsError(f"no square reached Spark within {_FIRST_SECONDS:g} s")
    console.print(
        f"{'Spark':>20} │ found the topic Square to be color STRING, x INT, y INT, shapesize INT",
        style="yellow",
    )
    _wait(lambda: False, seconds, check)
    outcome.published = publisher.stop()
    _wait(lambda: progress.rows >= outcome.published, _DRAIN_SECONDS, lambda: _check_query(query))
    query.processAllAvailable()  # a query stopped in the middle of a batch logs an error
    outcome.rows_read, outcome.batch_ms = progress.rows, progress.batch_ms
    query.stop()
    outcome.received = subscriber.stop()
    return outcome


class Foreign:
    """A process of another DDS, whose output is shown line by line."""

    def __init__(self, module: str, arguments: list[str], console: Console, style: str) -> None:
        self._console = console
        self._label = f"Cyclone {module}"
        self._style = style
        self._last = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"spark_rtps.demo.{module}", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "CYCLONEDDS_URI": CYCLONE_ON_LOOPBACK},
        )
        self._reader = threading.Thread(target=self._show, daemon=True)
        self._reader.start()

    def stop(self) -> int:
        """End the process and return the count in its last line."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)
        match = re.match(r"\s*([\d,]+) .* in all", self._last)
        return int(match[1].replace(",", "")) if match else 0

    def check(self) -> None:
        """Raise RtpsError if the process has ended."""
        if self._process.poll() is not None:
            raise RtpsError(f"the {self._label} ended with exit code {self._process.returncode}")

    def _show(self) -> None:
        if self._process.stdout is None:
            return
        for line in self._process.stdout:
            self._last = line
            self._console.print(f"{self._label:>20} │ {line.rstrip()}", style=self._style)


class Progress:
    """Sums the query's reports on its micro-batches, each once."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._batches: dict[int, tuple[int, int]] = {}

    @property
    def rows(self) -> int:
        self._look()
        return sum(rows for rows, _ in self._batches.values())

    @property
    def batch_ms(self) -> list[int]:
        """Durations of the batches that had rows."""
        return [ms for rows, ms in self._batches.values() if rows]

    def _look(self) -> None:
        for report in self._query.recentProgress:
            if report.numInputRows:
                self._batches[report.batchId] = (report.numInputRows, report.batchDuration)


def _wait(done: Callable[[], bool], timeout: float, check: Callable[[], None]) -> bool:
    """Wait until ``done``, at most ``timeout`` seconds; ``check`` raises if waiting has become pointless."""
    deadline = time.monotonic() + timeout
    while not done():
        check()
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _check_query(query: StreamingQuery) -> None:
    failure = query.exception()
    if failure is not None:
        # Spark wraps Python's error into pages of text; the last line of the form "some.Error: why" is the reason
        reasons = re.findall(r"^[\w.]*(?:Error|Exception): .*$", str(failure), re.MULTILINE)
        raise RtpsError(f"the query failed: {reasons[-1] if reasons else failure}")


def _summary(console: Console, outcome: Outcome) -> None:
    from rich.table import Table

    table = Table(show_header=False, title="through Spark and back", title_justify="left")
    table.add_column(justify="left")
    table.add_column(justify="right")
    table.add_row("squares published by Cyclone DDS", f"{outcome.published:,}")
    table.add_row("rows read by Spark", f"{outcome.rows_read:,}")
    table.add_row("alerts received by Cyclone DDS", f"{outcome.received:,}")
    if outcome.batch_ms:
        table.add_row("micro-batches", f"{len(outcome.batch_ms):,}")
        table.add_row("median micro-batch", f"{statistics.median(outcome.batch_ms):.0f} ms")
    console.print(table)
    if outcome.complete:
        console.print("every square arrived once", style="green")
    else:
        console.print("not every square arrived", style="bold red")
