"""A query on hosts which do not see the stream log."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq

from tests.cluster.driver import Driver, DriverQuery
from tests.cluster.driver_program import batches_in
from tests.cluster.standalone import DRIVER_ADDRESS, WORKERS, Cluster
from tests.support import domains
from tests.support.waiting import wait_until

HERE = Path(__file__).parent
COUNT = 4_000


class Copying:
    """A topic, its writers on the driver's host, and a query that copies it."""

    def __init__(self, cluster: Cluster, driver: Driver, topic: str, folder: Path, **options: str) -> None:
        self.cluster = cluster
        self.driver = driver
        self.topic = topic
        self.folder = folder
        self.flags = [folder / "go-1", folder / "go-2"]
        self.output = folder / "output"
        self.checkpoint = folder / "checkpoint"
        self.options = {
            "domain": str(domains.CLUSTER),
            "interface": "br0",
            "type": "Numbered",
            "log.dir": str(cluster.log_dir),
            "minPartitions": "2",
            "maxRowsPerTrigger": str(COUNT),
            **options,
        }

    def write(self) -> None:
        script, domain = str(HERE / "numbered_writers.py"), str(domains.CLUSTER)
        self.cluster.start(sys.executable, script, self.topic, domain, str(COUNT), *map(str, self.flags))

    def start(self, name: str, **more: object) -> DriverQuery:
        """Begin a query on the topic."""
        given = {
            "topic": self.topic,
            "options": self.options,
            "checkpoint": str(self.checkpoint),
            "flag": str(self.flags[0]),
            **more,
        }
        return self.driver.run(name, **given)

    def copy(self, times: int, **more: object) -> DriverQuery:
        """Begin the query, which ends when it has the samples of so many parts."""
        given = {"output": str(self.output), "rows": 3 * COUNT * times, **more}
        return self.start("copy_rows", **given)

    def run(self, times: int) -> tuple[int, str]:
        """Run the query until it has the samples of so many parts: its exit status and what was printed."""
        return self.copy(times, flag=str(self.flags[times - 1])).wait()

    def rows(self) -> tuple[list[tuple[int, int]], set[str]]:
        found = pq.read_table(self.output)
        pairs = zip(found["writer"].to_pylist(), found["number"].to_pylist(), strict=True)
        return sorted(pairs), set(found["host"].to_pylist())


def test_a_task_without_a_log_server_names_the_host_of_the_log(
    standalone: Cluster, driver: Driver, tmp_path: Path
) -> None:
    copying = Copying(standalone, driver, "unserved", tmp_path, **{"serve.address": "none"})
    copying.write()
    status, printed = copying.run(1)
    assert status != 0
    assert "LogLostError" in printed and "this task ran on w" in printed


def test_every_row_once_over_a_restart(standalone: Cluster, driver: Driver, tmp_path: Path) -> None:
    """First with nothing set, then over TLS at one address."""
    copying = Copying(standalone, driver, "served", tmp_path)
    copying.write()
    printed = copied(copying, 1)
    assert printed.count("in the clear") == 1
    certificate, key = f"{tmp_path}/serve.pem", f"{tmp_path}/serve.key"
    make = f"openssl req -x509 -newkey ed25519 -nodes -days 2 -subj /CN=rtps -keyout {key} -out {certificate}"
    subprocess.run(make.split(), check=True, capture_output=True)
    tls = {"serve.address": DRIVER_ADDRESS, "serve.certificate": certificate, "serve.key": key}
    copying.options.update(tls)
    printed = copied(copying, 2)
    assert "in the clear" not in printed


def copied(copying: Copying, times: int) -> str:
    """Run the query, check what it has copied, and return what it printed."""
    status, printed = copying.run(times)
    assert status == 0, printed[-4000:]
    rows, hosts = copying.rows()
    assert rows == [(writer, number) for writer in range(3) for number in range(COUNT * times)]
    assert hosts == set(WORKERS)
    batches = json.loads(printed.rpartition("batches: ")[2].splitlines()[0])
    assert max(batches) <= COUNT and sum(rows > 0 for rows in batches) >= 3 * times, batches
    return printed


def test_a_log_server_that_is_killed_costs_seconds_and_no_task(
    standalone: Cluster, driver: Driver, tmp_path: Path
) -> None:
    copying = Copying(standalone, driver, "killed", tmp_path, maxRowsPerTrigger=str(6 * COUNT))
    copying.write()

    def server() -> int | None:
        return next(iter(standalone.running("spark_rtps.serving")), None)

    wait_until(lambda: server() is None, "the end of the servers of earlier queries", 120, every=0.1)
    query = copying.copy(2)

    def is_over() -> bool:
        """Every batch that is planned is done; a query that has ended fails the test."""
        query.check()
        planned, done = (
            len(list((copying.checkpoint / name).glob("[0-9]*"))) for name in ("offsets", "commits")
        )
        return planned == done

    wait_until(server, "a server, which the first task has started", 120, every=0.1)
    first = server()
    assert first is not None
    wait_until(
        lambda: is_over() and sum(batches_in(copying.checkpoint, copying.output)) == 3 * COUNT,
        "the first part",
        120,
        every=0.1,
    )
    os.kill(first, signal.SIGSTOP)
    copying.flags[1].touch()
    wait_until(lambda: not is_over(), "a batch", every=0.01)
    time.sleep(2)
    assert not is_over()  # its tasks wait for a server that says nothing
    os.kill(first, signal.SIGKILL)
    killed = time.monotonic()
    wait_until(is_over, "the end of the batch", every=0.01)
    took = time.monotonic() - killed
    status, printed = query.wait()
    assert status == 0, printed[-4000:]
    rows, hosts = copying.rows()
    assert rows == [(writer, number) for writer in range(3) for number in range(2 * COUNT)]
    assert hosts == set(WORKERS)
    assert f"log server process {first} ended with exit status -9" in printed
    assert took < 5


def test_executors_on_other_hosts_write_to_a_reader(
    standalone: Cluster, driver: Driver, tmp_path: Path
) -> None:
    relaying = Copying(standalone, driver, "relayed", tmp_path)
    domain, onward, end = str(domains.CLUSTER), "relayed_onward", tmp_path / "end"
    reader = standalone.start(sys.executable, str(HERE / "relayed_reader.py"), onward, domain)
    relaying.write()
    sink = {"domain": domain, "type": "Relayed", "nullable": "required"}
    query = relaying.start("relay", onward=onward, sink=sink, end=str(end))

    def arrived() -> int:
        query.check()
        return standalone.output_of(reader).count("\n")

    wait_until(lambda: arrived() >= 3 * COUNT, lambda: f"all rows, {arrived()} are there", 120, every=0.2)
    end.touch()
    status, printed = query.wait()
    assert status == 0, printed[-4000:]
    found = [json.loads(line) for line in standalone.output_of(reader).splitlines()]
    assert sorted(row[:2] for row in found) == [[writer, n] for writer in range(3) for n in range(COUNT)]
    assert {row[2] for row in found} == set(WORKERS)
