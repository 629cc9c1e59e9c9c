"""A query on hosts which do not see the stream log."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cluster.standalone import DRIVER_ADDRESS, WORKERS, Cluster, NoNamespaces, cluster
from tests.support import domains

HERE = Path(__file__).parent
COUNT = 4_000


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        with cluster(tmp_path_factory.mktemp("cluster")) as made:
            yield made
    except NoNamespaces as error:
        pytest.skip(f"network namespaces are not permitted here: {error}")


class Copying:
    """A topic, its writers on the driver's host, and a query that copies it."""

    def __init__(self, cluster: Cluster, topic: str, folder: Path, **options: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.folder = folder
        self.flags = [folder / "go-1", folder / "go-2"]
        self.output = folder / "output"
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

    def run(self, times: int) -> tuple[int, str]:
        """Run the query until it has the samples of so many parts: its exit status and what it printed."""
        given = {
            "master": self.cluster.master,
            "address": DRIVER_ADDRESS,
            "topic": self.topic,
            "options": self.options,
            "checkpoint": str(self.folder / "checkpoint"),
            "output": str(self.output),
            "flag": str(self.flags[times - 1]),
            "rows": 3 * COUNT * times,
        }
        driver = self.cluster.start(sys.executable, str(HERE / "copying_driver.py"), json.dumps(given))
        try:
            status = driver.wait(240)
        except subprocess.TimeoutExpired:
            pytest.fail(f"no end after 240 s: {self.cluster.output_of(driver)[-4000:]}")
        return status, self.cluster.output_of(driver)

    def rows(self) -> tuple[list[tuple[int, int]], set[str]]:
        found = pq.read_table(self.output)
        pairs = zip(found["writer"].to_pylist(), found["number"].to_pylist(), strict=True)
        return sorted(pairs), set(found["host"].to_pylist())


def test_where_it_is_not_served_the_task_says_where_the_log_is(standalone: Cluster, tmp_path: Path) -> None:
    copying = Copying(standalone, "unserved", tmp_path, **{"serve.address": "none"})
    copying.write()
    status, printed = copying.run(1)
    assert status != 0
    assert "LogLostError" in printed and "this task ran on w" in printed


def test_every_row_once_over_a_restart(standalone: Cluster, tmp_path: Path) -> None:
    """First with nothing set, then over TLS at one address."""
    copying = Copying(standalone, "served", tmp_path)
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
