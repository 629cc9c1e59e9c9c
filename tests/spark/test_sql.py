"""What docs/sql.md says is what Spark does, with live Cyclone peers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.interop.cyclone_peer import CyclonePeer
from tests.interop.cyclone_types import PlainShape, ShapeType
from tests.spark.spark_streams import DOMAIN
from tests.support.surroundings import INTERFACE

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
ROWS = [  # type: ignore[var-annotated]
    {"color": color, "x": x, "y": 2 * x, "shapesize": 30, "additional_payload_size": []}
    for color in ("RED", "BLUE")
    for x in range(5)
]


def statements() -> list[str]:
    blocks = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    found = [each.strip() for block in blocks for each in block.split(";")]
    return [each for each in found if each]


def here(statement: str) -> str:
    """The statement on the domain of the tests, where peers keep their samples for whoever comes late."""
    more = f"domain '{DOMAIN}', interface '{INTERFACE}', "
    more += "" if "on_no_reader" in statement else "startingOffsets 'earliest', "
    statement = statement.replace("domain '0', ", "").replace(
        "`read.max_rows` '1000'", "`read.max_rows` '10'"
    )
    statement = statement.replace("'drop'", "'wait'")  # on a busy machine the reader is found late
    return statement.replace("OPTIONS (", f"OPTIONS ({more}").replace("'Squ.*'", "'Square'")


def test_the_statements_of_the_page(spark: SparkSession) -> None:
    answers = []
    try:
        with CyclonePeer(DOMAIN) as peer:
            peer.writer("Square", ShapeType, transient_local=True)
            peer.write("Square", ROWS)
            peer.reader("Circle", PlainShape)
            for statement in statements():
                rows = spark.sql(here(statement)).collect()
                if statement.startswith("SELECT"):
                    answers.append({row.asDict()[row.__fields__[0]]: row.asDict() for row in rows})
            found = {taken.row["color"] for taken in peer.take("Circle", 2)}
    finally:
        spark.catalog.clearCache()
        for view in ("squares", "some_squares", "positions", "shapes", "circles"):
            spark.catalog.dropTempView(view)
    counted, most, topics = answers
    assert counted == {each: {"color": each, "samples": 5, "x": 2.0} for each in ("RED", "BLUE")}
    assert most == {each: {"color": each, "x": 4} for each in ("RED", "BLUE")}
    assert topics["Square"]["samples"] == 10
    assert found == {"RED", "BLUE"}


def test_tables_of_the_catalog_are_refused(spark: SparkSession) -> None:
    """Spark drops their options: the error says what keeps them."""
    with pytest.raises(
        Exception, match=r"a table in Spark's catalog .* CREATE TEMPORARY VIEW name USING rtps"
    ):
        spark.sql("CREATE TABLE squares USING rtps OPTIONS (topic 'Square')")
    spark.sql("CREATE TABLE squares (color STRING, x INT) USING rtps OPTIONS (topic 'Square')")
    try:
        for statement in ("SELECT * FROM squares", "INSERT INTO squares VALUES ('RED', 1)"):
            with pytest.raises(
                Exception, match=r"if this is a table of CREATE TABLE.* CREATE TEMPORARY VIEW name"
            ):
                spark.sql(statement).collect()
    finally:
        spark.sql("DROP TABLE squares")
