"""What the demonstration runs in Spark: a DDS topic in, an aggregation, a DDS topic out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start_query(spark: SparkSession, domain: int, work: Path) -> StreamingQuery:
    """Read the topic Square, average each color over two seconds, write that to the topic Alerts."""
    from pyspark.sql import functions as F

    spark.conf.set("spark.sql.shuffle.partitions", 1)  # a handful of groups
    squares = (
        spark.readStream.format("rtps")
        .option("domain", domain)
        .option("interface", "lo")
        .option("topic", "Square")
        .option("metadata", True)
        .option("log.dir", str(work / "log"))
        .load()
    )
    alerts = (
        squares.withColumn("at", F.col("_rtps.source_timestamp"))
        .withWatermark("at", "0 seconds")
        .groupBy(F.window("at", "2 seconds"), "color")
        .agg(F.count("*").alias("squares"), F.avg("x").alias("avg_x"), F.avg("y").alias("avg_y"))
        .drop("window")
    )
    return (
        alerts.writeStream.format("rtps")
        .option("domain", domain)
        .option("interface", "lo")
        .option("topic", "Alerts")
        .option("type", "Alert")
        .option("nullable", "required")  # the subscriber's type has nothing that is @optional
        .option("checkpointLocation", str(work / "checkpoint"))
        .start()
    )
