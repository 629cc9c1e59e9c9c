"""ROS 2's messages by name, through Spark."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]

from spark_rtps.columns.decoding import codec_for
from spark_rtps.columns.encoding import samples_of
from spark_rtps.columns.topic_plan import TopicPlan, topic_type
from spark_rtps.datasource.schema import plan_sink, plan_source, source_schema, to_spark
from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.qos import DurabilityKind, ReliabilityKind
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.ros import ros_type
from spark_rtps.transport.types.ros_names import dds_type_name
from tests.spark.spark_streams import (
    DOMAIN,
    Publisher,
    Subscriber,
    network,
    running,
    source,
    wait_for_rows,
)
from tests.support.ros_oracle import random_value, rosbags_bytes, typestore
from tests.support.surroundings import INTERFACE

NAMES = sorted(typestore().fielddefs)
ROWS = 3
KEPT = DurabilityKind.TRANSIENT_LOCAL

Column = Callable[[pa.Array], pa.Array]


def test_every_message_of_jazzy(spark: SparkSession) -> None:
    """Typed columns to payloads and back, in one job: each message is a column, and the payloads another."""
    reading, writing, expected, payloads = [], [], [], []
    for name in NAMES:
        options = {"topic": "any", "type": name}
        settings = parse_options(options, AppliesTo.READ)
        found = topic_type(settings)
        schema = source_schema(settings, found)
        reading.append(plan_source(settings, schema, found))
        writing.append(plan_sink(parse_options(options, AppliesTo.WRITE), schema).plan)
        assert reading[-1].type_name == writing[-1].type_name == dds_type_name(name)
        struct, rng = ros_type(name), random.Random(name)
        expected.append([random_value(struct, rng) for _ in range(ROWS)])
        payloads.append([rosbags_bytes(struct, value, typestore()) for value in expected[-1]])
    values = [pa.array(v, pa.struct(list(plan.data))) for plan, v in zip(reading, expected, strict=True)]
    columns = [f"c{i}" for i in range(len(NAMES))]
    typed = pa.schema([(name, array.type) for name, array in zip(columns, values, strict=True)])
    binary = pa.schema([(name, pa.binary()) for name in columns])

    encode = arrow_udf(each_column([encoder(plan) for plan in writing]), to_spark(binary))
    decode = arrow_udf(each_column([decoder(plan) for plan in reading]), to_spark(typed))
    frame = spark.createDataFrame(pa.Table.from_arrays(values, schema=typed)).coalesce(1)
    frame = frame.select(encode(F.struct("*")).alias("written"))
    table = frame.select("written", decode("written").alias("read")).toArrow()
    written, read = (table.column(name).combine_chunks().flatten() for name in ("written", "read"))
    for i, name in enumerate(NAMES):
        assert [without_padding(payload) for payload in written[i].to_pylist()] == payloads[i], name
        assert read[i].to_pylist() == expected[i], name


def each_column(works: list[Column]) -> Column:
    """A function of a struct whose fields are the topics."""

    def run(topics: pa.Array) -> pa.Array:
        found = [work(column) for work, column in zip(works, topics.flatten(), strict=True)]
        return pa.StructArray.from_arrays(found, names=[field.name for field in topics.type])

    return run


def encoder(plan: TopicPlan) -> Column:
    """What a task of the sink does with its rows."""

    def encode(column: pa.Array) -> pa.Array:
        batch = pa.RecordBatch.from_struct_array(column)
        samples = codec_for(plan.struct, None).encode_batch(batch, representation=plan.representation)
        return pa.array([bytes(samples.payload(i)) for i in range(samples.count)], pa.binary())

    return encode


def decoder(plan: TopicPlan) -> Column:
    """What a task of the source does with payloads."""

    def decode(column: pa.Array) -> pa.Array:
        found = codec_for(plan.struct, plan.data).decode_samples(samples_of(column))
        assert found.malformed is None
        return pa.StructArray.from_arrays(found.batch.columns, fields=list(plan.data))

    return decode


def without_padding(payload: bytes) -> bytes:
    return payload[:3] + bytes(1) + payload[4 : len(payload) - (payload[3] & 3)]


def test_point_clouds_there_and_back(spark: SparkSession, node: Node, log_dir: Path, tmp_path: Path) -> None:
    """A topic is read and written by the message's name alone, and announced as ROS 2 announces it."""
    name = "sensor_msgs/msg/PointCloud2"
    struct = ros_type(name)
    publisher = Publisher(node, "rt/points", struct)
    clouds = [random_value(struct, random.Random(i)) | {"width": i, "data": bytes(100_000)} for i in range(5)]
    by_name = {"type": name, "key": None}
    with running(source(spark, "rt/points", log_dir, None, **by_name), tmp_path / "points") as query:
        publisher.write(pa.RecordBatch.from_pylist(clouds, schema=Codec(struct).arrow_schema))
        found = wait_for_rows(spark, query, len(clouds))
        assert found.toArrow().sort_by("width").to_pylist() == clouds
        subscriber = Subscriber(tmp_path / "subscriber", "rt/again", struct)
        try:
            found.write.format("rtps").options(**network(**by_name)).mode("append").save("rt/again")
            assert subscriber.table().sort_by("width").to_pylist() == clouds
        finally:
            subscriber.stop()


def test_format_ros2(spark: SparkSession, node: Node, log_dir: Path, tmp_path: Path) -> None:
    """ROS 2's names and types, and what it offers, with no option that says so."""
    name = "sensor_msgs/msg/Temperature"
    struct = ros_type(name)
    publisher = Publisher(node, "rt/robot1/temperature", struct, reliability=ReliabilityKind.BEST_EFFORT)
    options = {
        "domain": str(DOMAIN),
        "interface": INTERFACE,
        "ros.namespace": "/robot1",
        "log.dir": str(log_dir),
    }
    stream = spark.readStream.format("ros2").options(**options).load("temperature")
    assert stream.columns == ["header", "temperature", "variance"]
    values = [random_value(struct, random.Random(i)) | {"temperature": float(i)} for i in range(4)]
    batch = pa.RecordBatch.from_pylist(values, schema=Codec(struct).arrow_schema)
    timed = spark.readStream.format("ros2").options(**options, event_time="header.stamp").load("temperature")
    timed = timed.withWatermark("event_time", "5 seconds")
    with running(timed, tmp_path / "temperature") as query:
        publisher.wait_for_readers()
        publisher.write_unread(batch)
        found = wait_for_rows(spark, query, 4)
        wrong = "unix_micros(event_time) != header.stamp.sec * 1000000L + header.stamp.nanosec DIV 1000"
        assert found.where(wrong).count() == 0 and found.where("event_time IS NULL").count() == 0
        assert found.drop("event_time").toArrow().sort_by("temperature").to_pylist() == values
    del options["log.dir"]
    subscriber = Subscriber(tmp_path / "subscriber", "rt/robot1/again", struct, durability=KEPT)
    try:
        found = spark.createDataFrame(batch.to_pylist(), stream.schema)
        found.write.format("ros2").options(**options, type=name).mode("append").save("again")
        assert subscriber.table().sort_by("temperature").to_pylist() == values
    finally:
        subscriber.stop()
