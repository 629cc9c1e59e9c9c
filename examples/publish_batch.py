"""Write a batch DataFrame to the topic Square, as samples of conf/ShapeType.idl.

spark-submit --properties-file conf/spark-defaults.conf examples/publish_batch.py --rows 100

It waits for a subscriber, and ends when the subscriber has acknowledged every row.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import functions as F

from spark_rtps.session import session_builder

IDL = Path(__file__).parents[1] / "conf" / "ShapeType.idl"

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--domain", type=int, default=0)
parser.add_argument("--interface", help="network interface, such as lo; all but loopback by default")
parser.add_argument("--rows", type=int, default=100)
arguments = parser.parse_args()
network = {"domain": str(arguments.domain)}
if arguments.interface:
    network["interface"] = arguments.interface

spark = session_builder("publish batch").getOrCreate()
squares = spark.range(arguments.rows).select(
    F.element_at(
        F.array(F.lit("RED"), F.lit("GREEN"), F.lit("BLUE")), (F.col("id") % 3 + 1).cast("int")
    ).alias("color"),
    (F.col("id") % 240).cast("int").alias("x"),
    (F.col("id") % 270).cast("int").alias("y"),
    F.lit(30).alias("shapesize"),
)
(
    squares.write.format("rtps")
    .options(**network)
    .option("topic", "Square")
    .option("type.file", str(IDL))
    .option("type", "ShapeType")
    .mode("append")
    .save()
)
print(f"{arguments.rows} squares written and acknowledged")
spark.stop()
