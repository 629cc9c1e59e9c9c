"""Show the samples of the topic Square as they arrive. Their type is the one that the writers announce.

spark-submit --properties-file conf/spark-defaults.conf examples/shapes_to_console.py --seconds 30
"""

from __future__ import annotations

import argparse

from spark_rtps.session import session_builder

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--domain", type=int, default=0)
parser.add_argument("--interface", help="network interface, such as lo; all but loopback by default")
parser.add_argument("--seconds", type=float, default=None, help="time after which it ends; default: never")
arguments = parser.parse_args()
network = {"domain": str(arguments.domain)}
if arguments.interface:
    network["interface"] = arguments.interface

spark = session_builder("shapes to console").getOrCreate()
squares = (
    spark.readStream.format("rtps")
    .options(**network)
    .option("topic", "Square")
    .option("metadata", True)
    .load()
)
query = (
    squares.select("color", "x", "y", "_rtps.sequence_number", "_rtps.source_timestamp")
    .writeStream.format("console")
    .option("truncate", False)
    .trigger(processingTime="1 second")
    .start()
)
query.awaitTermination(arguments.seconds)
query.stop()
spark.stop()
