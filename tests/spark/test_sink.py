"""The sink through real Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark_rtps.transport.types.model import Member, Primitive, PrimitiveKind, Struct
from tests.spark.spark_streams import (
    POINT_DDL,
    Publisher,
    Subscriber,
    running,
    sink_options,
    source,
    wait_for_rows,
)
from tests.support.stream_logs import NOTE, POINT, points
from tests.support.waiting import wait_until


@pytest.fixture
def subscribe(tmp_path: Path, topic: str) -> Iterator[Callable[..., Subscriber]]:
    made: list[Subscriber] = []

    def start(struct: Struct = POINT, **qos: object) -> Subscriber:
        made.append(Subscriber(tmp_path / f"subscriber{len(made)}", topic, struct, **qos))
        return made[-1]

    yield start
    for subscriber in made:
        subscriber.stop()


def frame(spark: SparkSession, count: int, partitions: int = 1) -> DataFrame:
    df = spark.range(0, count, 1, partitions).selectExpr("CAST(id AS INT) AS id", "id / 2 AS x")
    assert df.schema.simpleString() == "struct<id:int,x:double>"
    return df


def write(df: DataFrame, topic: str, **options: object) -> None:
    df.write.format("rtps").options(**sink_options(**options)).mode("append").save(topic)


class TestBatch:
    def test_columns(self, spark: SparkSession, topic: str, subscribe: Callable[..., Subscriber]) -> None:
        subscriber = subscribe()
        write(frame(spark, 25_000, 2), topic)
        found = subscriber.table().sort_by("id")
        assert found.equals(pa.Table.from_batches([points(0, 25_000)]))

    def test_idl_type(
        self, spark: SparkSession, topic: str, subscribe: Callable[..., Subscriber], tmp_path: Path
    ) -> None:
        idl = tmp_path / "note.idl"
        idl.write_text("struct Note { @key long id; string text; };")
        subscriber = subscribe(NOTE)
        df = spark.range(3).selectExpr("concat('n', id) AS text", "id")
        write(df, topic, type="Note", key=None, type__file=idl)
        assert subscriber.table().sort_by("id").to_pylist() == [{"id": i, "text": f"n{i}"} for i in range(3)]

    def test_xcdr2_and_nested_columns(
        self, spark: SparkSession, topic: str, subscribe: Callable[..., Subscriber]
    ) -> None:
        inner = Struct("Deep_p", (Member("a", Primitive(PrimitiveKind.INT64), 0),))
        subscriber = subscribe(
            Struct("Deep", (Member("id", Primitive(PrimitiveKind.INT64), 0), Member("p", inner, 1))),
            data_representation=(2,),
        )
        write(
            spark.range(2).selectExpr("id", "struct(id AS a) AS p"),
            topic,
            type="Deep",
            key=None,
            data_representation="xcdr2",
        )
        assert subscriber.table().sort_by("id").to_pylist() == [{"id": i, "p": {"a": i}} for i in range(2)]

    def test_null_names_column_and_row(
        self, spark: SparkSession, topic: str, subscribe: Callable[..., Subscriber]
    ) -> None:
        subscribe()
        df = spark.createDataFrame([(1, 1.0), (2, None)], POINT_DDL).coalesce(1)
        with pytest.raises(PySparkException, match=r"column 'x', row \d+: null"):
            write(df, topic)

    def test_a_batch_without_readers(self, spark: SparkSession, topic: str) -> None:
        with pytest.raises(PySparkException, match=r"no reader of topic .* within 1 s .*on_no_reader=drop"):
            write(frame(spark, 1), topic, connect_timeout="1s")
        write(frame(spark, 10), topic, on_no_reader="drop")

    def test_overwrite_is_refused(self, spark: SparkSession, topic: str) -> None:
        with pytest.raises(PySparkException, match="cannot be overwritten: use mode"):
            frame(spark, 1).write.format("rtps").options(**sink_options()).mode("overwrite").save(topic)

    def test_option_of_the_reader(self, spark: SparkSession, topic: str) -> None:
        with pytest.raises(PySparkException, match="option 'metadata' = 'true': applies only to reading"):
            write(frame(spark, 1), topic, metadata="true")


class TestStream:
    def test_from_topic_to_topic(
        self,
        spark: SparkSession,
        topic: str,
        publisher: Publisher,
        subscribe: Callable[..., Subscriber],
        log_dir: Path,
        tmp_path: Path,
    ) -> None:
        onward = Subscriber(tmp_path / "onward", f"{topic}_out", POINT)
        try:
            df = source(spark, topic, log_dir).selectExpr("id", "x * 2 AS x")
            settings = {**sink_options(), "checkpointLocation": str(tmp_path / "c")}
            query = df.writeStream.format("rtps").options(**settings).start(f"{topic}_out")
            try:
                publisher.write(points(0, 500))
                publisher.write(points(500, 500))
                found = onward.wait_for(1000)
                assert query.exception() is None
            finally:
                query.stop()
        finally:
            onward.stop()
        assert found.column("id").to_pylist() == list(range(1000))
        assert found.column("x").to_pylist() == [float(i) for i in range(1000)]

    def test_complete_mode_writes_whole_results(
        self,
        spark: SparkSession,
        topic: str,
        publisher: Publisher,
        subscribe: Callable[..., Subscriber],
        log_dir: Path,
        tmp_path: Path,
    ) -> None:
        counts = Struct("Counts", (Member("count", Primitive(PrimitiveKind.INT64), 0),))
        onward = Subscriber(tmp_path / "onward", f"{topic}_out", counts)
        try:
            df = source(spark, topic, log_dir).groupBy().count()
            settings = {**sink_options(type="Counts", key=None), "checkpointLocation": str(tmp_path / "c")}
            query = (
                df.writeStream.format("rtps").options(**settings).outputMode("complete").start(f"{topic}_out")
            )
            try:
                publisher.write(points(0, 10))
                wait_until(lambda: 10 in onward.table().column("count").to_pylist(), "the count")
            finally:
                query.stop()
        finally:
            onward.stop()

    def test_arrow_there_and_back(
        self, spark: SparkSession, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        arrow = {"key": None, "type": None, "payload": "arrow"}
        with running(source(spark, topic, log_dir, **arrow), tmp_path / "c") as query:
            write(frame(spark, 30_000), topic, **arrow)
            found = wait_for_rows(spark, query, 30_000)
            assert_df_equality(found, frame(spark, 30_000), ignore_row_order=True, ignore_nullable=True)

    def test_binary_there_and_back(
        self, spark: SparkSession, topic: str, publisher: Publisher, log_dir: Path, tmp_path: Path
    ) -> None:
        relayed = f"{topic}_out"
        binary = source(spark, topic, log_dir, None, key=None, payload="binary", keyed="true")
        settings = {**sink_options(key=None, payload="binary"), "checkpointLocation": str(tmp_path / "1")}
        with running(source(spark, relayed, tmp_path / "l2", key=None), tmp_path / "2") as query:
            relay = binary.writeStream.format("rtps").options(**settings).start(relayed)
            try:
                publisher.write(points(0, 20))
                found = wait_for_rows(spark, query, 20)
                assert sorted(r.id for r in found.collect()) == list(range(20))
            finally:
                relay.stop()

    def test_missing_column(self, spark: SparkSession, topic: str, log_dir: Path, tmp_path: Path) -> None:
        idl = tmp_path / "note.idl"
        idl.write_text("struct Note { @key long id; string text; };")
        settings = {
            **sink_options(type="Note", key=None, type__file=idl),
            "checkpointLocation": str(tmp_path / "c"),
        }
        df = source(spark, topic, log_dir).select("id")
        with pytest.raises((PySparkException, StreamingQueryException), match="Note needs also 'text'"):
            df.writeStream.format("rtps").options(**settings).start(f"{topic}_out").awaitTermination(30)
