"""Types that peers tell, as columns: discovery, evolution, columns picked by name, filters, and what sinks tell."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_rtps.transport.net.node import Node
from tests.interop import cyclone_types
from tests.interop.cyclone_peer import CyclonePeer
from tests.spark.spark_streams import DOMAIN, running, wait_for_rows
from tests.support.surroundings import INTERFACE
from tests.support.waiting import wait_until

NETWORK = {"domain": DOMAIN, "interface": INTERFACE}


@pytest.fixture(scope="module")
def cyclone() -> Iterator[CyclonePeer]:
    with CyclonePeer(DOMAIN) as peer:
        yield peer


def reported(spark: SparkSession, topic: str, log_dir: Path, **options: object) -> DataFrame:
    """A source that is told neither type nor columns."""
    given = {**NETWORK, "log.dir": log_dir, **{k.replace("__", "."): v for k, v in options.items()}}
    reader = spark.readStream.format("rtps")
    if (ddl := given.pop("schema", None)) is not None:
        reader = reader.schema(str(ddl))
    return reader.options(**{k: str(v) for k, v in given.items()}).load(topic)


def write(peer: CyclonePeer, topic: str, rows: list[dict[str, object]]) -> None:
    peer.wait_for_match(topic)
    peer.write(topic, rows)
    peer.wait_for_acks(topic)


def as_dicts(df: DataFrame) -> list[dict[str, object]]:
    return [row.asDict(recursive=True) for row in df.collect()]


class TestDiscovery:
    def test_columns_of_a_topic(
        self, spark: SparkSession, cyclone: CyclonePeer, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        cyclone.writer(topic, cyclone_types.Nested)
        df = reported(spark, topic, log_dir)
        point = "struct<x:double,y:double,tag:smallint>"
        assert df.schema.simpleString() == (
            f"struct<before:smallint,p:{point},path:array<{point}>,box:array<{point}>>"
        )
        with running(df, tmp_path / "c") as query:
            one = {"x": 0.5, "y": -2.0, "tag": 7}
            rows = [{"before": i, "p": one, "path": [one] * i, "box": [one, one]} for i in range(3)]
            write(cyclone, topic, rows)
            assert as_dicts(wait_for_rows(spark, query, 3)) == rows

    def test_some_columns_of_filtered_rows(
        self, spark: SparkSession, cyclone: CyclonePeer, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        cyclone.writer(topic, cyclone_types.Vehicle)
        df = reported(
            spark,
            topic,
            log_dir,
            columns="note,id",
            filter="speed BETWEEN %0 AND %1",
            filter__parameters="2,5",
        )
        assert df.schema.simpleString() == "struct<id:int,note:string>"
        with running(df, tmp_path / "c") as query:
            write(cyclone, topic, [{"id": i, "note": f"n{i}", "speed": float(i)} for i in range(8)])
            found = as_dicts(wait_for_rows(spark, query, 4))
        assert found == [{"id": i, "note": f"n{i}"} for i in range(2, 6)]

    def test_columns_given_are_found_by_name(
        self, spark: SparkSession, cyclone: CyclonePeer, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        """Before there is a writer, which says what the type is called and that it has a key."""
        df = reported(spark, topic, log_dir, schema="speed DOUBLE, id BIGINT")
        with running(df, tmp_path / "c") as query:
            cyclone.writer(topic, cyclone_types.Vehicle)
            write(cyclone, topic, [{"id": i, "note": "x" * i, "speed": i / 2} for i in range(5)])
            found = as_dicts(wait_for_rows(spark, query, 5))
        assert found == [{"speed": i / 2, "id": i} for i in range(5)]

    def test_binary_needs_no_name(
        self, spark: SparkSession, cyclone: CyclonePeer, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        with running(reported(spark, topic, log_dir, payload="binary"), tmp_path / "c") as query:
            cyclone.writer(topic, cyclone_types.Part)
            write(cyclone, topic, [{"plant": "p", "number": 1, "weight": 0.5}])
            assert wait_for_rows(spark, query, 1).first().encapsulation == "CDR_LE"

    def test_a_batch_read(self, spark: SparkSession, cyclone: CyclonePeer, topic: str, log_dir: Path) -> None:
        cyclone.writer(topic, cyclone_types.Part, transient_local=True)
        rows = [{"plant": "p", "number": i, "weight": i / 2} for i in range(3)]
        cyclone.write(topic, rows)
        options = {**NETWORK, "log.dir": log_dir, "startingOffsets": "earliest", "read.max_rows": 3}
        reader = spark.read.format("rtps").options(**{k: str(v) for k, v in options.items()})
        assert sorted(as_dicts(reader.load(topic)), key=lambda row: row["number"]) == rows  # type: ignore[return-value]

    def test_a_topic_without_peers_is_an_error_that_names_other_topics(
        self, spark: SparkSession, cyclone: CyclonePeer, topic: str, log_dir: Path
    ) -> None:
        cyclone.writer(f"{topic}_other", cyclone_types.Part)
        for timeout in ("1.5", "10", "30"):  # as long as a loaded machine has discovered nobody by then
            with pytest.raises(PySparkException) as caught:
                reported(spark, topic, log_dir, type__discovery_timeout=f"{timeout}s")
            assert f"no one is on topic '{topic}' of domain {DOMAIN} after {timeout} s" in str(caught.value)
            if f"'{topic}_other'" in str(caught.value):
                break
        assert f"'{topic}_other' (interop::Part)" in str(caught.value)
        assert "give the type with type.file" in str(caught.value)


class TestEvolution:
    def test_a_type_that_grows_while_a_query_runs(
        self, spark: SparkSession, cyclone: CyclonePeer, topic: str, log_dir: Path, tmp_path: Path
    ) -> None:
        cyclone.writer(topic, cyclone_types.Growing)
        df = reported(spark, topic, log_dir)
        assert df.schema.simpleString() == "struct<id:int,name:string>"
        with running(df, tmp_path / "c") as query, CyclonePeer(DOMAIN) as later:
            write(cyclone, topic, [{"id": 1, "name": "old"}])
            wait_for_rows(spark, query, 1)
            later.writer(topic, cyclone_types.Grown)
            write(later, topic, [{"id": 2, "name": "new", "weight": 2.5, "notes": ["a", "b"]}])
            write(cyclone, topic, [{"id": 3, "name": "old"}])
            found = wait_for_rows(spark, query, 3)
            assert sorted(map(tuple, found.collect())) == [(1, "old"), (2, "new"), (3, "old")]
            # who asks now is told both, and takes the one that both can be read as; or it finds one of them first
            both = ["id", "name", "weight", "notes"]
            wait_until(lambda: reported(spark, topic, log_dir).columns == both, "both to be found in time")


class TestSink:
    def test_samples_of_a_sink_need_no_schema(
        self, spark: SparkSession, topic: str, log_dir: Path, tmp_path: Path, node: Node
    ) -> None:
        rows = spark.sql(
            "SELECT id, IF(id % 2 = 0, NULL, concat('n', id)) AS `na-me`, map('k', CAST(id AS INT)) AS counts, "
            "named_struct('at', timestamp_micros(id), 'deep', array(named_struct('x', id / 2D))) AS inner FROM range(4)"
        )
        options = {k: str(v) for k, v in NETWORK.items()} | {
            "durability": "transient_local",
            "on_no_reader": "drop",
        }
        rows.write.format("rtps").options(**options).mode("append").save(topic)
        df = reported(spark, topic, log_dir, startingOffsets="earliest")
        assert df.schema.simpleString() == (
            "struct<id:bigint,na_me:string,counts:map<string,int>,"
            "inner:struct<at:bigint,deep:array<struct<x:double>>>>"
        )
        with running(df, tmp_path / "c") as query:
            found = sorted(as_dicts(wait_for_rows(spark, query, 4)), key=lambda row: row["id"])  # type: ignore[return-value]
        assert found == [
            {
                "id": i,
                "na_me": None if i % 2 == 0 else f"n{i}",
                "counts": {"k": i},
                "inner": {"at": i, "deep": [{"x": i / 2}]},
            }
            for i in range(4)
        ]

    def test_times_of_ros(self, spark: SparkSession, topic: str, log_dir: Path, tmp_path: Path) -> None:
        at = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_901)
        header = f"named_struct('stamp', TIMESTAMP '{at}', 'frame_id', 'map')"
        rows = spark.sql(
            f"SELECT {header} AS header, CAST(id AS DOUBLE) AS temperature, 0D AS variance FROM range(2)"
        )
        ros = {"type": "sensor_msgs/msg/Temperature"}
        options = {k: str(v) for k, v in NETWORK.items()} | {
            "durability": "transient_local",
            "on_no_reader": "drop",
        }
        rows.write.format("rtps").options(**options, **ros).mode("append").save(topic)
        df = reported(spark, topic, log_dir, startingOffsets="earliest", time="timestamp", **ros)
        with running(df, tmp_path / "c") as query:
            found = wait_for_rows(spark, query, 2).selectExpr(
                "header.stamp", "header.frame_id", "temperature"
            )
            assert sorted(map(tuple, found.collect())) == [(at, "map", 0.0), (at, "map", 1.0)]
