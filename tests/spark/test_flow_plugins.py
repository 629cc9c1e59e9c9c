"""Strategies of flow control and congestion controls of the user's own, by option, in real Spark."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_rtps.transport.structure import Guid
from tests.spark import flow_plugins, noted_windows
from tests.spark.spark_streams import POINT_DDL, running, sink_options, source, wait_for_rows
from tests.spark.spark_views import sources
from tests.support.waiting import wait_until

ROWS = 500


@pytest.fixture(scope="module", autouse=True)
def shipped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """One as a module for tasks, the other one in a zip for the receiver on the driver."""
    spark.sparkContext.addPyFile(flow_plugins.__file__)
    archive = tmp_path_factory.mktemp("shipped") / "noted_windows_of_a_test.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.write(noted_windows.__file__, "noted_windows.py")
    spark.sparkContext.addPyFile(str(archive))


@pytest.fixture
def noted(topic: str) -> Iterator[None]:
    paths = flow_plugins.notes(topic), noted_windows.notes(topic)
    for path in paths:
        path.unlink(missing_ok=True)
    yield
    for path in paths:
        path.unlink(missing_ok=True)


def reported(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.usefixtures("noted")
def test_both_plugins_get_the_stream_and_pace_it(
    spark: SparkSession, topic: str, log_dir: Path, tmp_path: Path
) -> None:
    paced = {"congestion_control": "noted_windows:Quarter", "congestion_control__max_window": "1MiB"}
    df = source(spark, topic, log_dir, POINT_DDL, **paced)
    written = spark.range(0, ROWS, 1, 2).selectExpr("CAST(id AS INT) AS id", "id / 2 AS x")
    with running(df, tmp_path / "c") as query:
        wait_until(lambda: query.exception() is not None or sources(topic, log_dir), "the source")
        assert query.exception() is None
        options = sink_options(
            flow_control__strategy="flow_plugins:Noted",
            publication__term_length="1MiB",
            connect_timeout="60s",
        )
        written.write.format("rtps").options(**options).mode("append").save(topic)
        found = wait_for_rows(spark, query, ROWS)
        assert sorted(row.id for row in found.collect()) == list(range(ROWS))
    strategies, windows = reported(flow_plugins.notes(topic)), reported(noted_windows.notes(topic))
    made = [note for note in strategies if "topic" in note]
    assert made and {note["receivers"] for note in strategies if "receivers" in note} >= {1}
    streams = [note for note in windows if note["term_length"]]  # it is tried once, without a stream
    assert {note["window"] for note in streams} == {256 << 10}
    assert {note["writer"] for note in streams} <= {note["writer"] for note in made}
    for note in (*made, *streams):
        guid = Guid.parse(note["writer"])
        assert guid is not None and note["session"] == zlib.crc32(guid.to_bytes())
        assert (note["topic"], note["channel"], note["term_length"]) == (topic, "unicast", 1 << 20)


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("broken", "fails when it is called with .*nobody paces"),
        ("missing", "cannot be loaded where the task runs: .* no attribute 'missing'"),
        ("none", "makes no spark_rtps FlowControl"),
    ],
)
def test_a_strategy_that_is_none_fails_the_task(
    spark: SparkSession, topic: str, name: str, output: str
) -> None:
    options = sink_options(flow_control__strategy=f"flow_plugins:{name}", on_no_reader="drop")
    points = spark.range(3).selectExpr("CAST(id AS INT) AS id", "id / 2 AS x")
    with pytest.raises(PySparkException, match=f"'flow_plugins:{name}': {output}"):
        points.write.format("rtps").options(**options).mode("append").save(topic)


def test_a_congestion_control_that_is_none_fails_the_query(
    spark: SparkSession, topic: str, log_dir: Path, tmp_path: Path
) -> None:
    df = source(spark, topic, log_dir, POINT_DDL, congestion_control="noted_windows:missing")
    with (
        pytest.raises(PySparkException, match=r"noted_windows:missing.*addPyFile"),
        running(df, tmp_path) as q,
    ):
        q.processAllAvailable()
