"""The log of a query ends with it if nobody can go on from its checkpoint."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from spark_rtps.datasource.temporary_checkpoint import find_temporary_checkpoint
from spark_rtps.monitoring.query_names import NO_QUERY, QueryName, read_query
from spark_rtps.transport.log.log_retention import TEMPORARY_CHECKPOINT
from spark_rtps.transport.log.segment import list_segments
from tests.spark.spark_streams import Publisher, running, source, wait_for_rows
from tests.support.stream_logs import points
from tests.support.surroundings import IS_CLUSTER
from tests.support.waiting import wait_until


def logs(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if (path / "metadata.json").exists()]


def test_logs_of_temporary_checkpoints_go_with_their_queries(
    spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
) -> None:
    df = source(spark, topic, log_dir)
    query = df.writeStream.format("memory").queryName("temporary").start()
    publisher.write(points(0, 10))
    wait_for_rows(spark, query, 10)
    (log,) = logs(log_dir)
    # tasks on other hosts, which alone know it, do not see the log
    assert read_query(log) == (NO_QUERY if IS_CLUSTER else QueryName(query.id, "temporary"))
    checkpoint = Path((log / TEMPORARY_CHECKPOINT).read_text().strip())
    assert checkpoint.name.startswith("temporary-") and checkpoint.is_dir()
    assert find_temporary_checkpoint(log.name) == checkpoint
    assert find_temporary_checkpoint("another log") is None
    query.stop()
    assert not checkpoint.exists()
    # Spark does not wait for the source's process. What that warned of, if it did, is still to be had.
    wait_until(lambda: not log.exists() or not list_segments(log), "the samples to go")
    for each in logs(log_dir):
        assert each == log
    with running(df, tmp_path / "checkpoint") as query:  # the same with a checkpoint of the user's
        publisher.write(points(10, 10))
        wait_for_rows(spark, query, 10)
        (kept,) = (path for path in logs(log_dir) if path != log)
        assert not (kept / TEMPORARY_CHECKPOINT).exists()
    assert list_segments(kept)
