"""where(...) of a batch read becomes the content filter, and explain shows what was pushed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_rtps.transport.net.node import Node
from spark_rtps.transport.qos import DurabilityKind
from spark_rtps.transport.types.model import Member, Primitive, PrimitiveKind, String, Struct
from tests.spark.spark_streams import Publisher, network

REPORT = Struct(
    "Report",
    (
        Member("id", Primitive(PrimitiveKind.INT32), 0),
        Member("x", Primitive(PrimitiveKind.FLOAT64), 1),
        Member("name", String(), 2),
    ),
)
IDL = "@final struct Report { long id; double x; string name; };"
SETTING = "spark.sql.python.filterPushdown.enabled"
ROWS = [(i, math.nan if i == 3 else i / 2, f"n{i % 3}") for i in range(20)]


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(SETTING)
    spark.conf.set(SETTING, "true")
    yield
    spark.conf.set(SETTING, str(before))


def reports(spark: SparkSession, topic: str, idl: Path, **options: object) -> DataFrame:
    idl.write_text(IDL)
    given = network(
        key=None, type="Report", type__file=idl, startingOffsets="earliest", read__timeout="60s",
        read__max_rows=len(ROWS), **options,
    )  # fmt: skip
    return spark.read.format("rtps").options(**given).load(topic)


def plan_of(df: DataFrame) -> str:
    return str(
        df._jdf.queryExecution().explainString(
            df.sparkSession._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")
        )
    )


def test_where(spark: SparkSession, pushing: None, node: Node, topic: str, tmp_path: Path) -> None:
    writer = Publisher(node, topic, REPORT, durability=DurabilityKind.TRANSIENT_LOCAL)
    ids, xs, names = zip(*ROWS, strict=True)
    writer.write_unread(
        pa.record_batch({"id": pa.array(ids, pa.int32()), "x": pa.array(xs), "name": pa.array(names)})
    )
    df = reports(spark, topic, tmp_path / "r.idl")
    for condition, kept, is_pushed in (
        ("id >= 5 AND name = 'n1'", lambda i, x, n: i >= 5 and n == "n1", True),
        ("id IN (1, 3, 99) AND x < 4.0", lambda i, x, n: i in (1, 3) and x < 4, True),
        ("x > 8.0", lambda i, x, n: math.isnan(x) or x > 8, False),  # NaN is greater to Spark alone
        ("upper(name) = 'N2'", lambda i, x, n: n == "n2", False),
    ):
        chosen = df.where(condition)
        told = plan_of(chosen)
        assert {row.id for row in chosen.collect()} == {i for i, x, n in ROWS if kept(i, x, n)}, condition
        shown = told.partition("PushedFilters: [")[2].partition("]")[0]
        assert ("EqualTo" in shown or "In(" in shown) is is_pushed, told
        assert ("Filter [codegen" in told) is not is_pushed, "Spark checks what is not pushed"
        assert "ReadSchema" in told and "rtps" in told
    spark.conf.set(SETTING, "false")
    assert {row.id for row in df.where("id >= 18").collect()} == {18, 19}, "the setting is not needed"
