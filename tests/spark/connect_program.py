"""Queries through Spark Connect: ``python connect_program.py JSON``, with the ``domain``, the ``topic`` that a writer
numbers, ``receivers`` and ``token``, ``onward``, a topic to write, and a ``folder``. It prints a line of JSON.

The session knows no JVM. Streams, a batch and a sink run where the server has the package; nothing is registered at
first, and then the data source explicitly.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark_rtps import RtpsDataSource

COLUMNS = "source INT, number INT"


def copied(spark: Any, folder: Path, name: str, topic: str, **options: str) -> list[int]:
    """The numbers that a query copies into Parquet until there are some, and then as they are when it has stopped."""
    stream = spark.readStream.format("rtps").schema(COLUMNS).options(**options).load(topic)
    output, checkpoint = str(folder / name), str(folder / f"{name}-checkpoint")
    query = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint).start(output)
    found: list[int] = []
    until = time.monotonic() + 90
    while len(found) < 20:
        if query.exception() is not None:
            raise query.exception()
        assert time.monotonic() < until, query.lastProgress
        time.sleep(0.5)
        if (folder / name / "_spark_metadata").is_dir():
            found = [row.number for row in spark.read.schema(COLUMNS).parquet(output).collect()]
    query.stop()
    return sorted(found)


def main(text: str) -> None:
    given = json.loads(text)
    folder = Path(given["folder"])
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    embedded = {
        "domain": given["domain"],
        "interface": "lo",
        "type": "Number",
        "log.dir": str(folder / "logs"),
    }
    service = {
        "domain": given["domain"],
        "receivers": given["receivers"],
        "receiver.token": given["token"],
        "startingOffsets": "earliest",
        "type": "Number",
    }
    reported: dict[str, Any] = {
        "session": type(spark).__module__,
        "embedded": copied(spark, folder, "embedded", given["topic"], **embedded),
        "service": copied(spark, folder, "service", given["topic"], **service),
    }
    spark.dataSource.register(RtpsDataSource)
    recorded = spark.read.format("rtps").schema(COLUMNS).options(**service).load(given["topic"])
    reported["recorded"] = recorded.count()
    reported["listened"] = (
        spark.read.format("rtps")
        .schema(COLUMNS)
        .options(**embedded)
        .option("read.max_rows", "5")
        .option("read.timeout", "20s")
        .load(given["topic"])
        .count()
    )
    alerts = spark.range(7).selectExpr("0 AS source", "cast(id AS int) AS number").repartition(1)
    sink = {"domain": given["domain"], "interface": "lo", "type": "Number", "nullable": "required"}
    alerts.write.format("rtps").options(**sink).mode("append").save(given["onward"])
    print(json.dumps(reported))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
