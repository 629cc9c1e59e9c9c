"""A query whose log is full, as its options want it: it fails and says why, or goes on without what found no room."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_rtps.transport.log.segment import list_segments
from spark_rtps.transport.net.node import Node
from tests.spark.spark_streams import Publisher, running, source
from tests.support.stream_logs import NOTE
from tests.support.waiting import wait_until

DDL = "id INT, text STRING"
ROWS, CHARACTERS = 400, 100_000


def notes(first: int) -> pa.RecordBatch:
    ids = pa.array(range(first, first + ROWS), pa.int32())
    return pa.record_batch({"id": ids, "text": ["n" * CHARACTERS] * ROWS})


@pytest.mark.parametrize("on_log_full", ["fail", "drop"])
def test_no_writer_waits(
    spark: SparkSession, node: Node, topic: str, log_dir: Path, tmp_path: Path, on_log_full: str
) -> None:
    publisher = Publisher(node, topic, NOTE)
    given = {"type": "Note", "on_log_full": on_log_full, "log.max_bytes": "16MiB", "maxRowsPerTrigger": 1}
    loss = {} if on_log_full == "fail" else {"failOnDataLoss": "false"}
    df = source(spark, topic, log_dir, DDL, **given, **loss).selectExpr("id")
    with running(df, tmp_path / "checkpoint") as query:
        publisher.wait_for_readers()
        publisher.write_unread(notes(0))  # more than twice what the log takes; this returns
        if on_log_full == "fail":
            with pytest.raises(PySparkException, match=r"(?s)LogFullError.*is full.*set log\.max_bytes to"):
                query.awaitTermination(60)
            wait_until(lambda: publisher.ready() == 0, "the reader to leave")
            return

        def dropped() -> int:
            progress = query.lastProgress
            latest = progress["sources"][0]["latestOffset"] if progress else None
            found = json.loads(latest) if isinstance(latest, str) else latest
            return found["status"]["lost"] if found else 0

        wait_until(dropped, "the progress to count what is dropped")
        (log,) = (path for path in log_dir.iterdir() if (path / "metadata.json").exists())
        assert max(each.size for each in list_segments(log)) <= 4 << 20
        assert query.exception() is None
