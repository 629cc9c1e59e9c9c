"""Write an aggregation of the topic Square to the topic Alerts, for any DDS subscriber to read.

spark-submit --properties-file conf/spark-defaults.conf examples/alerts_out.py --checkpoint /tmp/alerts

The type of Alerts is derived from the columns. To print it as IDL, for a subscriber elsewhere:
spark-rtps idl --type Alert "color string, squares bigint, avg_x double, avg_y double"
"""

from __future__ import annotations

import argparse

from pyspark.sql import functions as F

from spark_rtps.session import session_builder

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--domain", type=int, default=0)
parser.add_argument("--interface", help="network interface, such as lo; all but loopback by default")
parser.add_argument(
    "--checkpoint", required=True, help="directory of the checkpoint, from which a restart continues"
)
parser.add_argument("--seconds", type=float, default=None, help="time after which it ends; default: never")
parser.add_argument("--drop", action="store_true", help="do not wait for a subscriber")
arguments = parser.parse_args()
network = {"domain": str(arguments.domain)}
if arguments.interface:
    network["interface"] = arguments.interface

spark = session_builder("alerts out").getOrCreate()
squares = (
    spark.readStream.format("rtps")
    .options(**network)
    .option("topic", "Square")
    .option("metadata", True)
    .load()
)
alerts = (
    squares.withColumn("at", F.col("_rtps.source_timestamp"))
    .withWatermark("at", "0 seconds")
    .groupBy(F.window("at", "2 seconds"), "color")
    .agg(F.count("*").alias("squares"), F.avg("x").alias("avg_x"), F.avg("y").alias("avg_y"))
    .drop("window")
)
query = (
    alerts.writeStream.format("rtps")
    .options(**network)
    .option("topic", "Alerts")
    .option("type", "Alert")
    .option("on_no_reader", "drop" if arguments.drop else "wait")
    .option("checkpointLocation", arguments.checkpoint)
    .start()
)
query.awaitTermination(arguments.seconds)
query.stop()
spark.stop()
