"""Samples that do not decode, and filters, in queries that really run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from spark_rtps.cli import app
from spark_rtps.transport.wire.samples import Samples
from tests.spark.spark_streams import POINT_DDL, Publisher, running, source, wait_for_rows
from tests.spark.spark_views import statuses
from tests.support.numbered_samples import one_instance
from tests.support.stream_logs import points
from tests.support.waiting import PATIENCE, wait_until

BAD = b"\x77\x77\0\0" + bytes(8)


def bad_sample() -> Samples:
    return Samples.uniform(np.frombuffer(BAD, np.uint8), 1, len(BAD))


@pytest.mark.usefixtures("chatty")
def test_permissive_and_a_filter(
    spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
) -> None:
    ddl = f"{POINT_DDL}, _corrupt_record BINARY"
    df = source(spark, topic, log_dir, ddl, mode="permissive", filter="id <> 3")
    with running(df, tmp_path / "c") as query:
        publisher.write(points(0, 2))
        publisher.write_samples(bad_sample(), key_hashes=one_instance(1))
        publisher.write(points(2, 3))
        found = wait_for_rows(spark, query, 5).collect()
        assert [(r.id, r.x, r._corrupt_record) for r in found] == [
            (0, 0.0, None),
            (1, 0.5, None),
            (None, None, bytearray(BAD)),
            (2, 1.0, None),
            (4, 2.0, None),
        ]

        def status() -> dict[str, object]:
            return next(iter(statuses(query)), {})

        # The samples may be in several batches, each with a progress of its own.
        wait_until(lambda: status().get("malformed") == 1, "the malformed sample in the progress")
        wait_until(
            lambda: status().get("DATA_READER_CACHE_STATUS") == {"content_filter_dropped_sample_count": 1},
            "the sample that the filter dropped in the progress",
        )
    shown = CliRunner().invoke(app, ["errors", "--json", "--log-dir", str(log_dir)])
    (log,) = [log for log in json.loads(shown.stdout)["logs"] if log["path"].endswith("decoding_report")]
    assert [(e["count"], "unknown encapsulation 0x7777" in e["text"]) for e in log["errors"]] == [(1, True)]


def test_failfast(
    spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
) -> None:
    df = source(spark, topic, log_dir, mode="failfast")
    with running(df, tmp_path / "c") as query:
        publisher.write(points(0, 2))
        publisher.write_samples(bad_sample(), key_hashes=one_instance(1))
        with pytest.raises(
            StreamingQueryException, match=r"sample 3 of writer .* is malformed: unknown encapsulation"
        ):
            query.awaitTermination(int(PATIENCE))
