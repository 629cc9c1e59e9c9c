"""A driver killed with -9 and started again on its checkpoint: every sample exactly once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark_rtps.transport.log.counters import Counters
from tests.spark.spark_streams import DOMAIN, Publisher, source
from tests.support.child_environment import child_environment
from tests.support.killer import customization
from tests.support.stream_logs import points
from tests.support.waiting import PATIENCE, wait_until

DRIVER = Path(__file__).with_name("driver.py")


#: Of a query's life; at each Spark's process of the source kills itself: before there is a first batch, before that is
#: committed, and after some batches were.
STEPS = (
    "RtpsStreamReader.latestOffset 1 1000000",
    "RtpsStreamReader.partitions 1 1000000",
    "RtpsStreamReader.latestOffset 1 1000000",
    "RtpsStreamReader.commit 3 1",
    "RtpsStreamReader.commit 1 1000000",
    "RtpsStreamReader.latestOffset 2 5",
    "RtpsStreamReader.partitions 2 1",
    "RtpsStreamReader.partitions 1 1000000",
)


def start(
    topic: str, log_dir: Path, tmp_path: Path, rows: int, places: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """``rows``: maxRowsPerTrigger."""
    args = [
        topic,
        str(log_dir),
        str(tmp_path / "checkpoint"),
        str(tmp_path / "output"),
        str(DOMAIN),
        str(rows),
        *places,
    ]
    environment = child_environment()
    if places:
        environment["PYTHONPATH"] += f"{os.pathsep}{customization(tmp_path / 'customization')}"
        environment["KILL_AT"] = str(tmp_path / "kill_at")
    return subprocess.Popen([sys.executable, str(DRIVER), *args], start_new_session=True, env=environment)


def kill(driver: subprocess.Popen[bytes]) -> None:
    """The driver's JVM and its Python. Spark's Python processes see that their sockets are closed, and end."""
    jvm = next(pid for pid in group_of(driver) if "java" in Path(f"/proc/{pid}/cmdline").read_text())
    os.kill(jvm, signal.SIGKILL)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    wait_until(lambda: not group_of(driver), "the rest of it to end")


def group_of(driver: subprocess.Popen[bytes]) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if _group(pid) == driver.pid]


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return -1


def files_in(output: Path) -> list[str]:
    """The files that Spark has committed to the output."""
    commits = (output / "_spark_metadata").glob("[0-9]*")
    files = {json.loads(line)["path"] for c in commits for line in c.read_text().splitlines()[1:]}
    return [file.removeprefix("file://") for file in files]


def rows_in(output: Path) -> int:
    """Rows that Spark has committed to the output; cheap enough to ask often."""
    return sum(pq.read_metadata(file).num_rows for file in files_in(output))


def test_killed_driver_restarts_from_its_checkpoint(
    spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
) -> None:
    def written() -> int:
        return rows_in(tmp_path / "output")

    def is_planned() -> bool:
        """The offsets of a batch are in the checkpoint, and nothing says that it is done."""
        offsets, commits = (
            {each.name for each in (tmp_path / "checkpoint" / name).glob("[0-9]*")}
            for name in ("offsets", "commits")
        )
        return bool(offsets - commits)

    driver = start(topic, log_dir, tmp_path, rows=200)
    try:
        publisher.wait_for_readers()
        for i in range(20):
            publisher.write(points(i * 500, 500))
        wait_until(lambda: written() >= 400, "some batches", every=0.02)
        wait_until(is_planned, "a batch that is planned", every=0.0005)
    finally:
        kill(driver)
    assert written() < 10_000, "killed too late to show anything"
    (log,) = log_dir.iterdir()
    receiver = Path(f"/proc/{Counters.open(log / 'counters').snapshot()['receiver.pid']}")
    wait_until(lambda: not receiver.exists(), "the receiver to notice")

    publisher.write_unread(points(10_000, 500))  # nobody is there to acknowledge it now
    driver = start(topic, log_dir, tmp_path, rows=2_000)
    try:
        wait_until(lambda: written() >= 10_500, "the rest", 180, every=0.02)
    finally:
        kill(driver)
    found = spark.read.parquet(str(tmp_path / "output"))  # what was committed, by Spark's own account
    assert sorted(r.id for r in found.collect()) == list(range(10_500))
    assert list(log_dir.iterdir()) == [log]  # it went on with the log it had


def test_a_query_that_fails_in_its_first_batch_goes_on_with_its_log(
    spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
) -> None:
    """Its writer never waits for a reader that is gone, and the next run gets what came before and meanwhile."""
    found: list[int] = []
    fails = True

    def copy(batch: DataFrame, _number: int) -> None:
        rows = [row.id for row in batch.collect()]
        if fails:
            publisher.write(points(0, 100))
            raise RuntimeError("the first batch fails")
        found.extend(rows)

    df = source(spark, topic, log_dir, leave_on_stop=False, participant__lease_duration="60s")
    writer = df.writeStream.foreachBatch(copy).option("checkpointLocation", str(tmp_path / "checkpoint"))
    first = writer.start()
    with pytest.raises(StreamingQueryException, match="the first batch fails"):
        first.awaitTermination(PATIENCE)
    publisher.write_unread(points(100, 50))
    fails = False
    second = writer.start()
    try:
        publisher.write(points(150, 1))
        assert publisher.ready() == 1
        wait_until(lambda: 150 in found, "the last row")
        assert sorted(found) == list(range(151))
    finally:
        second.stop()
    assert len(list(log_dir.iterdir())) == 1


def test_killed_at_each_step_of_a_batch(
    publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
) -> None:
    output, count = tmp_path / "output", 0
    driver = start(topic, log_dir, tmp_path, rows=5_000, places=STEPS)
    try:
        wait_until(publisher.ready, "the first query", 180)
        while not Path(f"{output}.unharmed").exists():
            assert driver.poll() is None
            publisher.write_unread(points(count, 20))
            count += 20
            time.sleep(0.1)

        wait_until(lambda: rows_in(output) >= count, "the rest", 300, every=0.2)
        ids = [each for file in files_in(output) for each in pq.read_table(file)["id"].to_pylist()]
        assert sorted(ids) == list(range(count))
    finally:
        kill(driver)
