"""Queries for the Python of an earlier PySpark: ``python query.py ACTION JSON``; they answer on the last line, as JSON.

``JSON`` has the options of the source, and what else the action needs.
"""

import json
import sys
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_rtps.session import session_builder

DDL = "id INT, x DOUBLE"


def copy(spark: SparkSession, given: dict[str, Any]) -> None:
    """The topic into a folder of Parquet files, until it is killed."""
    stream = spark.readStream.format("rtps").schema(DDL).options(**given["options"]).load()
    stream.writeStream.format("parquet").option("checkpointLocation", given["checkpoint"]).start(
        given["output"]
    ).awaitTermination()


def available(spark: SparkSession, given: dict[str, Any]) -> int:
    """The rows of one run with Trigger.AvailableNow."""
    stream = spark.readStream.format("rtps").schema(DDL).options(**given["options"]).load()
    writer = stream.writeStream.format("parquet").option("checkpointLocation", given["checkpoint"])
    writer.trigger(availableNow=True).start(given["output"]).awaitTermination()
    return spark.read.parquet(given["output"]).count()


def read(spark: SparkSession, given: dict[str, Any]) -> list[Any]:
    """The ids of a batch."""
    rows = spark.read.format("rtps").schema(DDL).options(**given["options"]).load().collect()
    return sorted(row.id for row in rows)


def write(spark: SparkSession, given: dict[str, Any]) -> None:
    rows = spark.range(given["first"], given["first"] + 10).selectExpr("int(id) id", "double(id) x")
    rows.write.format("rtps").mode("append").options(**given["options"]).save()


def write_stream(spark: SparkSession, given: dict[str, Any]) -> str:
    """A stream's batches into a topic by writeStream; the error if that is not possible."""
    numbers = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    writer = numbers.selectExpr("int(value) + 1000 id", "double(value) x").writeStream.format("rtps")
    query = writer.options(**given["options"]).start()
    try:
        while not query.awaitTermination(1):
            if (query.lastProgress or {"batchId": 0})["batchId"] > 0:
                return "written"
    except PySparkException as error:
        return str(error)
    finally:
        query.stop()
    return "ended"


def own_receiver(spark: SparkSession, given: dict[str, Any]) -> str:
    """What a stream with its own receiver says."""
    stream = spark.readStream.format("rtps").schema(DDL).options(**given["options"]).load()
    try:
        stream.writeStream.format("noop").start().awaitTermination(30)
    except PySparkException as error:
        return str(error)
    return "it runs"


ACTIONS = {each.__name__: each for each in (copy, available, read, write, write_stream, own_receiver)}


def main(*actions: str) -> None:
    builder = session_builder("test").master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    answers = [
        ACTIONS[name](spark, json.loads(given)) for name, given in zip(*[iter(actions)] * 2, strict=True)
    ]
    print(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
