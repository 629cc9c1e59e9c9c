"""What Spark's progress and the counters files tell of streams that really run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from typer.testing import CliRunner

from spark_rtps.cli import app
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.qos import ReliabilityKind
from tests.spark.spark_streams import (
    DOMAIN,
    Publisher,
    Subscriber,
    running,
    sink_options,
    source,
    wait_for_rows,
)
from tests.spark.spark_views import source_counter
from tests.support.stream_logs import POINT, points
from tests.support.waiting import wait_until


def reported(query: StreamingQuery) -> dict[str, object]:
    """sources[0].latestOffset of the last progress."""
    progress = query.lastProgress
    latest = progress["sources"][0]["latestOffset"] if progress else {}
    found: dict[str, object] = json.loads(latest) if isinstance(latest, str) else latest
    return found


def stat(*arguments: str) -> list[dict[str, object]]:
    result = CliRunner().invoke(app, ["stat", "--json", *arguments])
    assert result.exit_code == 0, result.output
    found: list[dict[str, object]] = json.loads(result.stdout)["streams"]
    return found


@pytest.mark.usefixtures("chatty")
def test_losses_are_in_the_progress_and_offsets_stay_what_they_are(
    spark: SparkSession, node: Node, topic: str, log_dir: Path, tmp_path: Path
) -> None:
    publisher = Publisher(node, topic, reliability=ReliabilityKind.BEST_EFFORT)
    df = source(spark, topic, log_dir, reliability="best_effort", maxRowsPerTrigger=300)

    def matched() -> bool:
        """Whether the reader knows the writer, too: it is asked for no acknowledgement."""
        return source_counter(topic, log_dir, "reader.matched_writers") == 1

    with running(df, tmp_path / "c") as query:
        wait_until(matched, "the reader's match")
        publisher.write(points(0, 100))
        wait_for_rows(spark, query, 100)
        with node.lock:
            publisher.writer.writer.state.last_sn += 7  # seven samples that nobody will get
        publisher.write(points(100, 500))
        wait_for_rows(spark, query, 600)
        wait_until(lambda: reported(query).get("status", {}).get("lost") == 7, "the loss in the progress")  # type: ignore[attr-defined]
        wait_until(lambda: reported(query).get("status", {}).get("behind_bytes") == 0, "Spark to keep up")  # type: ignore[attr-defined]
        latest = reported(query)
        assert latest["status"]["rejected"] == 0
        end = query.lastProgress["sources"][0]["endOffset"]
        assert (json.loads(end) if isinstance(end, str) else end) == {
            k: latest[k] for k in ("v", "receivers")
        }

        def shown() -> tuple[object, ...]:
            (stream,) = [s for s in stat("--log-dir", str(log_dir)) if s["topic"] == topic]
            return stream["kind"], stream["state"], stream["samples"], stream["lost"]

        # The receiver writes its counters some times a second, and the rows may be here before.
        wait_until(lambda: shown() == ("source", "alive", 600, 7), lambda: f"the counts; they are {shown()}")
    # the checkpoint holds nothing but positions
    again = df.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        publisher.write(points(600, 50))
        wait_until(lambda: sum(p["numInputRows"] for p in again.recentProgress) >= 50, "50 rows")
        assert again.exception() is None
        assert reported(again)["v"] == 1
    finally:
        again.stop()


def test_a_sink_has_counters(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    subscriber = Subscriber(tmp_path / "subscriber", topic, POINT)
    try:
        df = spark.range(0, 20_000, 1, 1).selectExpr("CAST(id AS INT) AS id", "id / 2 AS x")
        df.write.format("rtps").options(**sink_options()).mode("append").save(topic)
        (stream,) = [s for s in stat() if s["topic"] == topic]
    finally:
        subscriber.stop()
    assert (stream["kind"], stream["state"], stream["domain"]) == ("sink", "alive", DOMAIN)
    assert (stream["samples"], stream["behind_samples"], stream["peers"]) == (20_000, 0, 1)
    assert [(r["acked_sn"], r["active"]) for r in stream["readers"]] == [(20_000, True)]  # type: ignore[attr-defined]
