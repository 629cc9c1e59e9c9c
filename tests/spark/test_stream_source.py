"""The streaming source through real Spark."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark_rtps.columns.encoding import arrow_sample
from spark_rtps.columns.topic_plan import ARROW_BATCH, METADATA_DDL
from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.qos import DurabilityKind
from tests.spark.spark_streams import POINT_DDL, Publisher, network, rows, running, source, wait_for_rows
from tests.support.stream_logs import points
from tests.support.waiting import wait_until

#: Seconds, for what ends by itself.
AT_MOST = 90


def expected(spark: SparkSession, count: int) -> DataFrame:
    return spark.createDataFrame(points(0, count).to_pylist(), POINT_DDL)


def counters(log_dir: Path) -> dict[str, int]:
    (log,) = log_dir.iterdir()
    return Counters.open(log / "counters").snapshot()


def batches(query: StreamingQuery) -> list[int]:
    """Rows of each batch that had any. Their progress comes after the rows."""
    return [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]


class TestColumns:
    def test_typed_columns(
        self, spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        with running(source(spark, topic, log_dir), tmp_path / "c") as query:
            publisher.write(points(0, 1000))
            assert_df_equality(
                wait_for_rows(spark, query, 1000), expected(spark, 1000), ignore_row_order=True
            )

    def test_type_from_idl(
        self, spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        idl = tmp_path / "point.idl"
        idl.write_text("struct Point { @key long id; double x; };")
        df = source(spark, topic, log_dir, None, key=None, type__file=idl)
        assert df.schema.simpleString() == "struct<id:int,x:double>"
        with running(df, tmp_path / "c") as query:
            publisher.write(points(0, 10))
            assert_df_equality(wait_for_rows(spark, query, 10), expected(spark, 10), ignore_row_order=True)

    def test_metadata_and_disposed_instances(
        self, spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        df = source(spark, topic, log_dir, f"{POINT_DDL}, {METADATA_DDL}")
        with running(df, tmp_path / "c") as query:
            publisher.write(points(0, 3))
            publisher.dispose(points(1, 1))
            publisher.dispose(points(2, 1), unregister=True)
            found = wait_for_rows(spark, query, 5).orderBy("_rtps.sequence_number").collect()
        assert [(r.id, r.x) for r in found] == [(0, 0.0), (1, 0.5), (2, 1.0), (1, None), (2, None)]
        assert [r._rtps.sequence_number for r in found] == [1, 2, 3, 4, 5]
        assert [r._rtps.instance_state for r in found] == [
            *["ALIVE"] * 3,
            "NOT_ALIVE_DISPOSED",
            "NOT_ALIVE_NO_WRITERS",
        ]
        assert {r._rtps.writer for r in found} == {str(publisher.writer.guid)}
        now = time.time()
        for row in found:
            assert abs(row._rtps.source_timestamp.timestamp() - now) < 60 + 86_400
            assert row._rtps.source_timestamp <= row._rtps.reception_timestamp

    def test_binary_payload(
        self, spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        df = source(spark, topic, log_dir, None, key=None, payload="binary", keyed="true")
        with running(df, tmp_path / "c") as query:
            publisher.write(points(0, 5))
            found = wait_for_rows(spark, query, 5).orderBy("sequence_number").collect()
        assert {(r.topic, r.encapsulation, r.instance_state) for r in found} == {(topic, "CDR_LE", "ALIVE")}
        assert [len(r.value) for r in found] == [20] * 5
        assert [int.from_bytes(r.value[4:8], "little") for r in found] == [0, 1, 2, 3, 4]

    def test_arrow_payload(
        self, spark: SparkSession, node: Node, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        publisher = Publisher(node, topic, ARROW_BATCH)
        df = source(spark, topic, log_dir, key=None, type=None, payload="arrow")
        with running(df, tmp_path / "c") as query:
            publisher.wait_for_readers()
            publisher.write_samples(arrow_sample(points(0, 700)))
            publisher.write_samples(arrow_sample(points(700, 50_000)))  # 600 kB: in fragments
            found = wait_for_rows(spark, query, 50_700)
            assert_df_equality(found, expected(spark, 50_700), ignore_row_order=True)


class TestProgress:
    def test_rows_per_trigger_are_exact(
        self, spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        df = source(spark, topic, log_dir, maxRowsPerTrigger=300)
        with running(df, tmp_path / "c") as query:
            publisher.write(points(0, 1000))
            wait_for_rows(spark, query, 1000)
            wait_until(lambda: sum(batches(query)) >= 1000, "the last batch's progress")
            sizes = batches(query)
        assert sum(sizes) == 1000
        assert max(sizes) == 300
        assert rows(spark, query).distinct().count() == 1000

    def test_bytes_per_trigger(
        self, spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        df = source(spark, topic, log_dir, maxBytesPerTrigger="10kB", maxRowsPerTrigger=10_000)
        with running(df, tmp_path / "c") as query:
            publisher.write(points(0, 1000))
            wait_for_rows(spark, query, 1000)
            wait_until(lambda: sum(batches(query)) >= 1000, "the last batch's progress")
            sizes = batches(query)
        assert sum(sizes) == 1000
        assert len(sizes) > 2

    def test_partitions_and_latest_offset(
        self, spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        df = source(spark, topic, log_dir, minPartitions=3).withColumn("p", F.spark_partition_id())
        with running(df, tmp_path / "c", processingTime="3 seconds") as query:
            for i in range(6):
                publisher.write(points(i * 100, 100))
            found = wait_for_rows(spark, query, 600)
            assert found.select("id").distinct().count() == 600
            assert found.select("p").distinct().count() > 1
            wait_until(lambda: query.lastProgress is not None, "the first progress")
            latest = query.lastProgress["sources"][0]["latestOffset"]
            assert '"embedded"' in str(latest)

    def test_available_now_takes_history_and_ends(
        self, spark: SparkSession, node: Node, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        publisher = Publisher(node, topic, durability=DurabilityKind.TRANSIENT_LOCAL)
        publisher.write_unread(points(0, 500))
        for listen in ("2s", "10s", "30s"):  # as long as a loaded machine has discovered nobody by then
            options = {"startingOffsets": "earliest", "read__timeout": listen, "maxRowsPerTrigger": 200}
            df = source(spark, topic, log_dir / listen, **options)
            with running(df, tmp_path / listen, availableNow=True) as query:
                assert query.awaitTermination(AT_MOST)
                assert query.exception() is None
                sizes = batches(query)
            if sizes:
                break
        assert sizes == [200, 200, 100]
        assert_df_equality(rows(spark, query), expected(spark, 500), ignore_row_order=True)

    def test_commit_trims_the_log(
        self, spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        df = source(spark, topic, log_dir, log__segment_bytes="1MiB", log__max_bytes="16MiB")
        with running(df, tmp_path / "c") as query:
            for i in range(10):
                publisher.write(points(i * 50_000, 50_000))  # 22 MB in all
            query.processAllAvailable()
            assert rows(spark, query).agg(F.count("id"), F.count_distinct("id")).first() == (500_000, 500_000)
            wait_until(lambda: counters(log_dir)["log.base"] > 6_000_000, "trimming")


class TestSeveral:
    def test_two_queries_at_once(
        self, spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        one, two = source(spark, topic, log_dir), source(spark, topic, log_dir).where("id % 2 = 0")
        with running(one, tmp_path / "1") as first, running(two, tmp_path / "2") as second:
            publisher.write(points(0, 400), readers=2)
            assert_df_equality(wait_for_rows(spark, first, 400), expected(spark, 400), ignore_row_order=True)
            assert wait_for_rows(spark, second, 200).count() == 200

    def test_union_with_itself(
        self, spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        df = source(spark, topic, log_dir)
        with running(df.union(df), tmp_path / "c") as query:
            wait_until(lambda: query.lastProgress is not None, "the first batch")
            publisher.write(points(0, 100), readers=len(list(log_dir.iterdir())))
            found = wait_for_rows(spark, query, 200)
            assert found.groupBy("id").count().where("count = 2").count() == 100

    def test_join_with_itself(
        self, spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        df = source(spark, topic, log_dir)
        joined = df.alias("a").join(df.alias("b"), "id").select("id", F.col("a.x").alias("x"))
        with running(joined, tmp_path / "c") as query:
            publisher.write(points(0, 100), readers=2)  # Spark makes two sources of it
            found = wait_for_rows(spark, query, 100)
            assert_df_equality(found, expected(spark, 100), ignore_row_order=True)


class TestFaults:
    def test_unknown_option(self, spark: SparkSession, topic: str, log_dir: Path) -> None:
        with pytest.raises(AnalysisException, match="did you mean 'reliability'"):
            source(spark, topic, log_dir, None, reliabilty="reliable")

    def test_wrong_value(self, spark: SparkSession, topic: str, log_dir: Path) -> None:
        allowed = "option 'reliability' = 'fast': must be one of reliable, best_effort"
        with pytest.raises(AnalysisException, match=allowed):
            source(spark, topic, log_dir, None, reliability="fast")

    def test_wrong_value_where_spark_asks_for_no_schema(
        self, spark: SparkSession, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        with (
            pytest.raises(Exception, match="must be one of reliable"),
            running(source(spark, topic, log_dir, reliability="fast"), tmp_path / "c") as query,
        ):
            query.awaitTermination(AT_MOST)

    def test_no_interface(self, spark: SparkSession, topic: str, log_dir: Path, tmp_path: Path) -> None:
        df = source(spark, topic, log_dir, interface="nosuch0")
        with running(df, tmp_path / "c") as query, pytest.raises(StreamingQueryException, match="nosuch0"):
            query.awaitTermination(AT_MOST)

    def test_one_micro_batch_alone_is_refused(
        self, spark: SparkSession, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        df = source(spark, topic, log_dir)
        with (
            running(df, tmp_path / "c", once=True) as query,
            pytest.raises(StreamingQueryException, match=r"use Trigger\.AvailableNow"),
        ):
            query.awaitTermination(AT_MOST)

    def test_asynchronous_progress(
        self, spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        """Spark commits late then, of which the source warns; that is no error."""
        writer = source(spark, topic, log_dir).writeStream.format("memory").queryName("asynchronous")
        options = {"asyncProgressTrackingEnabled": True, "checkpointLocation": str(tmp_path / "c")}
        query = writer.options(**options).start()
        try:
            for number in range(5):
                publisher.write(points(number, 1))
                wait_for_rows(spark, query, number + 1)
        finally:
            query.stop()
        assert_df_equality(rows(spark, query), expected(spark, 5), ignore_row_order=True)

    def test_receiver_killed(
        self, spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        with running(source(spark, topic, log_dir), tmp_path / "c") as query:
            publisher.write(points(0, 100))
            wait_for_rows(spark, query, 100)
            pid = counters(log_dir)["receiver.pid"]
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: counters(log_dir)["receiver.pid"] != pid, "another receiver")
            publisher.write(points(100, 100))
            found = wait_for_rows(spark, query, 200)
            assert_df_equality(found, expected(spark, 200), ignore_row_order=True)

    def test_a_first_batch_that_failed_is_read_again(
        self, spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        def fail(batch: DataFrame, number: int) -> None:
            if count := batch.count():
                raise RuntimeError(f"batch {number} has {count} rows")

        def start(function: Callable[[DataFrame, int], None]) -> StreamingQuery:
            rows = source(spark, topic, log_dir, **{"participant.lease_duration": "60s"})
            return (
                rows.writeStream.foreachBatch(function).option("checkpointLocation", tmp_path / "c").start()
            )

        query = start(fail)
        publisher.wait_for_readers()
        publisher.write(points(0, 100))
        with pytest.raises(StreamingQueryException, match=r"batch \d+ has"):
            query.awaitTermination(AT_MOST)
        (log,) = log_dir.iterdir()
        found: list[int] = []
        query = start(lambda batch, number: found.extend(row.id for row in batch.collect()))
        try:
            wait_until(lambda: len(found) >= 100, "the rows of the batch that failed, and those behind it")
        finally:
            query.stop()
        assert sorted(found) == list(range(100))
        assert list(log_dir.iterdir()) == [log]

    def test_receiver_ends_with_the_query(
        self, spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        with running(source(spark, topic, log_dir), tmp_path / "c"):
            publisher.wait_for_readers()
            pid = counters(log_dir)["receiver.pid"]
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the receiver's end")

    def test_task_retry_reads_the_same(
        self, spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        @F.udf("int", useArrow=False)
        def fail_once(i: int) -> int:
            from pyspark import TaskContext

            if i == 50 and TaskContext.get().attemptNumber() == 0:
                raise RuntimeError("the first attempt fails half way")
            return i

        df = source(spark, topic, log_dir).select(fail_once("id").alias("id"), "x")
        with running(df, tmp_path / "c") as query:
            publisher.write(points(0, 100))
            assert_df_equality(wait_for_rows(spark, query, 100), expected(spark, 100), ignore_row_order=True)

    def test_two_actions_on_one_batch(
        self, spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        seen = []

        def collect_twice(batch: DataFrame, batch_id: int) -> None:
            one, two = (sorted(batch.collect()) for _ in range(2))
            assert one == two
            seen.extend(one)

        df = source(spark, topic, log_dir).writeStream.foreachBatch(collect_twice)
        query = df.option("checkpointLocation", str(tmp_path / "c")).start()
        try:
            publisher.write(points(0, 100))
            wait_until(lambda: query.exception() is not None or len(seen) >= 100, "the rows")
        finally:
            query.stop()
        assert [r.id for r in seen] == list(range(100))

    def test_lost_log(
        self, spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        with running(source(spark, topic, log_dir), tmp_path / "c") as query:
            publisher.write(points(0, 100))
            wait_for_rows(spark, query, 100)
        elsewhere = tmp_path / "other"
        restart = source(spark, topic, elsewhere).writeStream.format("noop")
        query = restart.option("checkpointLocation", str(tmp_path / "c")).start()
        with pytest.raises(
            StreamingQueryException, match=r"set log\.dir to the directory of the earlier run"
        ):
            query.awaitTermination(AT_MOST)
        tolerant = source(spark, topic, elsewhere, failOnDataLoss="false").writeStream.format("noop")
        query = tolerant.option("checkpointLocation", str(tmp_path / "c")).start()
        try:
            publisher.wait_for_readers()
            publisher.write(points(100, 50))
            wait_until(lambda: sum(batches(query)) == 50, "50 rows")
        finally:
            query.stop()


class TestBatch:
    def test_max_rows(self, spark: SparkSession, node: Node, topic: str, log_dir: Path) -> None:
        publisher = Publisher(node, topic, durability=DurabilityKind.TRANSIENT_LOCAL)
        publisher.write_unread(points(0, 500))
        options = network(log_dir, startingOffsets="earliest", read__max_rows=120, read__timeout="90s")
        df = spark.read.format("rtps").schema(POINT_DDL).options(**options).load(topic)
        assert_df_equality(df, expected(spark, 120), ignore_row_order=True)
        wait_until(lambda: list(log_dir.glob("*")) == [], "the end of the log")  # on the host of its task

    def test_timeout(self, spark: SparkSession, topic: str, log_dir: Path) -> None:
        options = network(log_dir, read__timeout="1s")
        df = spark.read.format("rtps").schema(POINT_DDL).options(**options).load(topic)
        assert df.count() == 0
