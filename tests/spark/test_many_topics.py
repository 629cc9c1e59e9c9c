"""Several topics in one query: subscribe and subscribePattern, with live Cyclone writers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_rtps.functions import from_cdr, schema_of_cdr
from tests.interop.cyclone_peer import CyclonePeer
from tests.interop.cyclone_types import Blob, Vehicle
from tests.spark.spark_streams import DOMAIN, network, running, wait_for_rows
from tests.support.waiting import wait_until


def vehicles(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": i, "note": "n" * (i % 7), "speed": i / 2} for i in range(first, first + count)]


def stream(spark: SparkSession, log_dir: Path, **options: object) -> DataFrame:
    given = network(log_dir, type=None, key=None, **options)
    return spark.readStream.format("rtps").options(**given).load()


@contextmanager
def storing(df: DataFrame, directory: Path) -> Iterator[Callable[[], DataFrame]]:
    """The query into files, and what they hold."""
    query = df.writeStream.format("parquet").option("checkpointLocation", str(directory / "c"))
    running = query.trigger(processingTime="0 seconds").start(str(directory / "raw"))

    def stored() -> DataFrame:
        if (error := running.exception()) is not None:
            raise error
        return df.sparkSession.read.schema(df.schema).parquet(str(directory / "raw"))

    try:
        yield stored
    finally:
        running.stop()


def test_topics_of_different_types_join_and_are_decoded_later(
    spark: SparkSession, topic: str, log_dir: Path, tmp_path: Path
) -> None:
    """A query that is stopped and started again on its log has each sample once."""
    here = {key: text for key, text in network().items() if key in ("domain", "interface")}
    names = {name: f"{topic}/{name}" for name in ("v", "b", "late")}
    options = {"subscribePattern": f"{topic}/.*", "payload": "binary"}
    with CyclonePeer(DOMAIN) as peer:
        peer.writer(names["v"], Vehicle)
        peer.writer(names["b"], Blob)
        with storing(stream(spark, log_dir, **options), tmp_path) as stored:
            for name in ("v", "b"):
                peer.wait_for_match(names[name])
            peer.write(names["v"], vehicles(0, 50))
            peer.write(names["b"], [{"id": i, "data": [i] * i} for i in range(20)])
            wait_until(lambda: stored().count() >= 70, every=0.3)
            peer.writer(names["late"], Vehicle)  # the query runs already
            peer.wait_for_match(names["late"])
            peer.write(names["late"], vehicles(100, 30))
            wait_until(lambda: stored().count() >= 100, every=0.3)
        with storing(stream(spark, log_dir, **options), tmp_path) as stored:
            peer.wait_for_match(names["late"])
            peer.wait_for_match(names["v"])
            peer.write(names["v"], vehicles(50, 10))
            peer.write(names["late"], vehicles(130, 10))
            wait_until(lambda: stored().count() >= 120, every=0.3)
        reported = schema_of_cdr(names["v"], here), schema_of_cdr(names["b"], here)
    raw = stored().cache()
    found = raw.collect()
    assert len(found) == len({(row.writer, row.sequence_number) for row in found}) == 120
    per_type = {(row.type_name, row.type_hash, row.topic) for row in found}
    assert {each[::2] for each in per_type} == {
        ("interop::Vehicle", names["v"]),
        ("interop::Vehicle", names["late"]),
        ("interop::Blob", names["b"]),
    }
    assert len({type_hash for _, type_hash, _ in per_type}) == 2
    decoded = raw.where("type_name = 'interop::Vehicle'").select(
        "topic", from_cdr("value", reported[0]).alias("v")
    )
    rows = decoded.groupBy("topic").agg(F.count("*"), F.count_distinct("v.id"), F.sum("v.speed")).collect()
    assert {tuple(row) for row in rows} == {
        (names["v"], 60, 60, sum(row["speed"] for row in vehicles(0, 60))),
        (names["late"], 40, 40, sum(row["speed"] for row in vehicles(100, 40))),
    }
    blobs = raw.where("type_name = 'interop::Blob'").select(from_cdr("value", reported[1]).alias("b"))
    assert sorted(row.b.id for row in blobs.collect()) == list(range(20))


def test_topics_of_one_type(spark: SparkSession, topic: str, log_dir: Path, tmp_path: Path) -> None:
    """Typed columns, told by the peers: in a stream, and in a batch, where a filter and columns are chosen."""
    one, two = f"{topic}_1", f"{topic}_2"
    with CyclonePeer(DOMAIN) as peer:
        for name, first in ((one, 0), (two, 100)):
            peer.writer(name, Vehicle, transient_local=True)
            peer.write(name, vehicles(first, 10))
        df = stream(spark, log_dir, subscribe=f"{one},{two}", startingOffsets="earliest", metadata="true")
        assert df.schema.names == ["topic", "id", "note", "speed", "_rtps"]
        with running(df, tmp_path / "c") as query:
            rows = wait_for_rows(spark, query, 20).collect()
            wait_until(
                lambda: query.lastProgress is not None, "the first progress, which comes after its rows"
            )
            assert '"embedded"' in str(query.lastProgress["sources"][0]["latestOffset"])
        given = {"startingOffsets": "earliest", "read.max_rows": 20, "read.timeout": "60s", "columns": "id"}
        options = {**network(type=None, key=None), "subscribe": f"{one},{two}", "filter": "id >= 5", **given}
        batch = spark.read.format("rtps").options(**options).load()
        assert batch.schema.simpleString() == "struct<topic:string,id:int>"
        some = {(row.topic, row.id) for row in batch.collect()}
    assert {(row.topic, row.id, row.speed) for row in rows} == {
        *((one, row["id"], row["speed"]) for row in vehicles(0, 10)),
        *((two, row["id"], row["speed"]) for row in vehicles(100, 10)),
    }
    assert {row._rtps.topic == row.topic for row in rows} == {True}
    assert some >= {(two, i) for i in range(100, 110)} and min(i for _, i in some) == 5


def test_exactly_one_way_to_name_topics(spark: SparkSession, topic: str, log_dir: Path) -> None:
    only_one = "only one of the options topic, subscribe and subscribePattern can be set"
    with pytest.raises(AnalysisException, match=only_one):
        spark.readStream.format("rtps").options(**network(log_dir), subscribe="a").load(topic)
    with pytest.raises(AnalysisException, match=r"name the topic.*or several: subscribe, subscribePattern"):
        spark.readStream.format("rtps").options(**network(log_dir)).load()


def test_rows_go_to_the_topics_that_they_name(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    """A batch and a stream to two readers; the option overrides the column; what names no topic is an error."""
    one, two = f"{topic}_1", f"{topic}_2"
    df = spark.range(20).selectExpr(
        f"if(id % 2 = 0, '{one}', '{two}') AS topic",
        "CAST(id AS INT) AS id",
        "repeat('n', 3) AS note",
        "id / 2 AS speed",
    )
    options = network(type="interop::Vehicle", key="id", nullable="required")
    with CyclonePeer(DOMAIN) as peer:
        for name in (one, two):
            peer.reader(name, Vehicle)
        df.write.format("rtps").options(**options).mode("append").save()
        for name, rest in ((one, 0), (two, 1)):
            assert {taken.row["id"] for taken in peer.take(name, 10)} == set(range(rest, 20, 2))
        df.write.format("rtps").options(**options).mode("append").save(two)
        assert {taken.row["id"] for taken in peer.take(two, 20)} == set(range(20))
        df.write.parquet(str(tmp_path / "rows"))
        stream = spark.readStream.schema(df.schema).parquet(str(tmp_path / "rows"))
        stream.writeStream.format("rtps").options(**options, checkpointLocation=str(tmp_path / "c")).trigger(
            availableNow=True
        ).start().awaitTermination(90)
        assert {taken.row["id"] for taken in peer.take(one, 10)} == set(range(0, 20, 2))
        with pytest.raises(Exception, match="column 'topic', row 0: null; fill it, or set the option topic"):
            df.selectExpr("CAST(NULL AS STRING) AS topic", "id", "note", "speed").write.format(
                "rtps"
            ).options(**options).mode("append").save()
        with pytest.raises(
            Exception, match=r"rows name none: name the topic.* or give the rows a column topic"
        ):
            df.drop("topic").write.format("rtps").options(**options).mode("append").save()
