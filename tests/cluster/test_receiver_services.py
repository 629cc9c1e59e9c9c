"""Queries of receiver services: their hosts alone reach the DDS network, and everything that is there is killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.cluster.copied import CopyingQuery, Counted
from tests.cluster.driver import Driver
from tests.cluster.edges import DDS_ADDRESS, EDGES, Edge, Plant
from tests.cluster.kills import WRITERS, run
from tests.cluster.standalone import WORKERS, Cluster
from tests.support.waiting import wait_until

RECEIVER, SERVER = "spark_rtps.transport.receiver", "spark_rtps.serving"
SAMPLES = 30_000


def test_a_cluster_without_dds_survives_killed_receiver_and_server(
    driver: Driver, plant: Plant, tmp_path: Path
) -> None:
    """Printed: seconds from the kill to the next row in the log and in the output, and to the end of the batch."""
    if isinstance(plant.cluster, Cluster):
        routes = {host: plant.cluster.reaches(host, DDS_ADDRESS) for host in ("driver", *WORKERS, *EDGES)}
        assert routes == {host: host in EDGES for host in routes}
    query = CopyingQuery(plant, driver, tmp_path)
    query.wait_until_it_runs()
    flags = [tmp_path / f"go-{number}" for number in range(3)]
    writers = plant.write(
        WRITERS, 3_000, dict(zip(flags, (100, SAMPLES // 2, SAMPLES // 2 - 100), strict=True))
    )
    flags[0].touch()
    wait_until(lambda: query.check() and query.rows(), query.output, 120, every=0.05)
    left, right = plant.edges
    flags[1].touch()
    receiver_killed(left, query)
    flags[2].touch()
    server_killed(right, query)
    wait_until(
        lambda: query.check() and query.rows() >= WRITERS * SAMPLES,
        lambda: f"{query.rows()} rows: {query.output()[-3000:]}",
        120,
        every=0.2,
    )
    query.stop()
    assert query.counted(WRITERS, SAMPLES) == Counted(WRITERS * SAMPLES, 0, 0, 0)
    assert all("written" in plant.cluster.output_of(each) for each in writers)
    if plant.cluster.is_cluster:
        assert set(query.read()["host"].to_pylist()) == set(WORKERS)


def receiver_killed(edge: Edge, query: CopyingQuery) -> None:
    pid, end = edge.pid(RECEIVER), edge.position
    assert pid is not None
    wait_until(lambda: edge.position > end, edge.output)
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), edge.output)
    end = edge.position
    wait_until(lambda: edge.position > end, edge.output)
    in_log = time.monotonic() - killed
    wait_until(lambda: query.check() and query.place(edge.name) > end, query.output, every=0.01)
    print(f"receiver killed: a row in its log after {in_log:.2f} s, in the output after {since(killed)} s")


def server_killed(edge: Edge, query: CopyingQuery) -> None:
    """While tasks of a batch wait for it."""
    pid = edge.pid(SERVER)
    assert pid is not None
    planned = next(number for _ in range(20) if (number := stopped_at(query, pid)) is not None)
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    wait_until(lambda: edge.pid(SERVER) not in (None, pid), edge.output)
    back = since(killed)
    wait_until(lambda: query.check() and query.done > planned, query.output, every=0.01)
    print(f"server killed: another one after {back} s, the batch is complete after {since(killed)} s")


def stopped_at(query: CopyingQuery, server: int) -> int | None:
    """The batch whose tasks wait for a server, which is stopped; None: it goes on, they had what they need."""
    number = query.planned
    wait_until(lambda: query.check() and query.planned > number, query.output, every=0.002)
    os.kill(server, signal.SIGSTOP)
    time.sleep(1)
    if query.done <= number:
        return number
    os.kill(server, signal.SIGCONT)
    return None


def since(moment: float) -> str:
    return f"{time.monotonic() - moment:.2f}"


def test_everything_is_killed(free_cores: None, plant: Plant, tmp_path: Path) -> None:
    """The long form is ``python -m tests.cluster.kills``."""
    found, kills = run(
        plant, tmp_path, samples=SAMPLES, rate=3_000, seed=13, gap=(1.0, 2.5), patience=240, say=print
    )
    assert found == Counted(WRITERS * SAMPLES, 0, 0, 0)
    assert set(kills.done) >= {"driver", "receiver", "server", "supervisor"}
    assert ("executor" in kills.done) == plant.cluster.is_cluster
