"""Count the squares of each color in windows of five seconds, by the time at which they were written.

spark-submit --properties-file conf/spark-defaults.conf examples/square_counts.py --seconds 30
"""

from __future__ import annotations

import argparse

from pyspark.sql import functions as F

from spark_rtps.session import session_builder

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--domain", type=int, default=0)
parser.add_argument("--interface", help="network interface, such as lo; all but loopback by default")
parser.add_argument("--seconds", type=float, default=None, help="time after which it ends; default: never")
arguments = parser.parse_args()
network = {"domain": str(arguments.domain)}
if arguments.interface:
    network["interface"] = arguments.interface

spark = session_builder("square counts").getOrCreate()
squares = (
    spark.readStream.format("rtps")
    .options(**network)
    .option("topic", "Square")
    .option("metadata", True)
    .load()
)
counts = (
    squares.withColumn("at", F.col("_rtps.source_timestamp"))
    .withWatermark("at", "1 second")
    .groupBy(F.window("at", "5 seconds"), "color")
    .count()
)
query = counts.writeStream.format("console").outputMode("update").option("truncate", False).start()
query.awaitTermination(arguments.seconds)
query.stop()
spark.stop()
