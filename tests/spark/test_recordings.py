"""Recordings through Spark: as a batch with filters that are pushed down, and as a stream of files that come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_rtps.functions import from_cdr
from tests.recordings.recording_scene import START, STEP, Message, messages, write_bag, write_mcap

IMU = "sensor_msgs/msg/Imu"
BEGIN = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=START // 1000)
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def seconds(given: list[Message]) -> list[int]:
    return [m.value["header"]["stamp"]["sec"] for m in given]


def test_batch(spark: SparkSession, tmp_path: Path) -> None:
    imu = messages("/imu", IMU, 200)
    write_mcap(tmp_path / "1.mcap", imu[:100])
    write_mcap(tmp_path / "2.mcap", imu[100:])
    bag = write_bag(tmp_path / "bag", imu)
    reader = spark.read.format("rtps").option("log_time", "true").option("minPartitions", 4)
    drives = reader.option("recording", str(tmp_path / "*.mcap")).load("/imu")
    assert drives.schema["header"].dataType.simpleString().startswith("struct<stamp:struct<sec:int")
    assert drives.rdd.getNumPartitions() >= 4
    stamps = drives.select("header.stamp.sec", "log_time")
    assert [row.sec for row in stamps.orderBy("log_time").collect()] == seconds(imu)
    assert reader.option("recording", str(bag)).load("/imu").count() == 200
    by_ros = spark.read.format("ros2").option("recording", str(bag)).option("ros.remap", "tilt:=imu")
    assert sorted(row.sec for row in by_ros.load("tilt").select("header.stamp.sec").collect()) == sorted(
        seconds(imu)
    )

    since, until = BEGIN + timedelta(microseconds=20 * STEP // 1000), BEGIN + timedelta(seconds=0.5)

    def some() -> list[int]:
        frame = stamps.where((F.col("log_time") >= F.lit(since)) & (F.col("log_time") < F.lit(until)))
        return sorted(row.sec for row in frame.collect())

    expected = seconds([m for m in imu if START + 20 * STEP <= m.time < START + 500_000_000])
    assert some() == sorted(expected)
    # with pushdown, too, each use of a DataFrame has its own filter
    spark.conf.set(PUSHDOWN, "true")
    try:
        assert some() == sorted(expected)
        early, late = (
            stamps.where(F.col("log_time") < F.lit(since)),
            stamps.where(F.col("log_time") >= F.lit(until)),
        )
        assert (early.union(late).count(), stamps.count()) == (20 + 100, 200)
    finally:
        spark.conf.unset(PUSHDOWN)
    other = bytearray((tmp_path / "2.mcap").read_bytes())
    other[200:600] = bytes(400)
    (tmp_path / "2.mcap").write_bytes(other)
    with pytest.raises(PySparkException, match=r"2\.mcap.*damaged.*failOnDataLoss"):
        drives.count()
    with pytest.raises(PySparkException, match="did you mean '/imu'"):
        reader.option("recording", str(tmp_path / "1.mcap")).load("imu")


def test_topics_together(spark: SparkSession, tmp_path: Path) -> None:
    """Typed columns where the files have one type, else payloads that are decoded by what they carry; topics join."""
    front, rear = (messages(f"/imu/{name}", IMU, 50, seed=i) for i, name in enumerate(("front", "rear")))
    words = messages("/words", "std_msgs/msg/String", 20)
    folder = tmp_path / "drives"
    folder.mkdir()
    write_mcap(folder / "1.mcap", sorted([*front, *words], key=lambda m: m.time))
    reader = spark.read.format("rtps").option("recording", str(folder))
    typed = reader.option("subscribePattern", "/imu/.*").load()
    assert typed.columns[:2] == ["topic", "header"]
    assert sorted(row.sec for row in typed.select("header.stamp.sec").collect()) == sorted(seconds(front))

    stream = spark.readStream.format("rtps").option("recording", str(folder)).option("payload", "binary")
    frame = stream.option("subscribePattern", "/.*").load()

    def run() -> dict[str, int]:
        writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "c")).format("parquet")
        writer.trigger(availableNow=True).start(str(tmp_path / "raw")).awaitTermination()
        return {row.topic: row["count"] for row in raw().groupBy("topic").count().collect()}

    def raw() -> DataFrame:
        return spark.read.parquet(str(tmp_path / "raw"))

    assert run() == {"/imu/front": 50, "/words": 20}
    write_mcap(folder / "2.mcap", rear)
    assert run() == {"/imu/front": 50, "/words": 20, "/imu/rear": 50}
    decoded = raw().where(F.col("type_name") == IMU).select(from_cdr("value", IMU).alias("imu"))
    assert sorted(row.sec for row in decoded.select("imu.header.stamp.sec").collect()) == sorted(
        seconds([*front, *rear])
    )
    other = spark.read.format("rtps").option("recording", str(folder))
    with pytest.raises(PySparkException, match=r"no '/imu/reer'; it has .* did you mean '/imu/rear'"):
        other.option("subscribe", "/imu/front,/imu/reer").load()


def test_stream_of_files_that_come(spark: SparkSession, tmp_path: Path) -> None:
    imu, folder = messages("/imu", IMU, 200), tmp_path / "drives"
    folder.mkdir()
    write_mcap(folder / "1.mcap", imu[:80])
    source = spark.readStream.format("rtps").option("recording", str(folder)).option("type", IMU)
    checkpoint, table = str(tmp_path / "checkpoint"), str(tmp_path / "table")

    def run(**options: str) -> list[int]:
        frame = source.options(**options).load("/imu").select("header.stamp.sec")
        writer = frame.writeStream.option("checkpointLocation", checkpoint).option("path", table)
        query = writer.format("parquet").trigger(availableNow=True).start()
        query.awaitTermination()
        counts.append(sum(progress["numInputRows"] > 0 for progress in query.recentProgress))
        return sorted(row.sec for row in spark.read.parquet(table).collect())

    counts: list[int] = []
    assert run() == sorted(seconds(imu[:80]))
    whole = write_mcap(tmp_path / "x.mcap", imu[80:]).read_bytes()
    (folder / "0.mcap").write_bytes(whole[:-500])  # its recorder is not done
    assert run() == sorted(seconds(imu[:80]))
    (folder / "0.mcap").write_bytes(whole)
    assert run(maxBytesPerTrigger="8KiB") == sorted(seconds(imu))
    assert run() == sorted(seconds(imu))
    assert counts[:2] == [1, 0] and counts[2] > 2 and counts[3] == 0
