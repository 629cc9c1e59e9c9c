"""Listen to the topic Square for a few seconds and get a DataFrame of the samples received.

spark-submit --properties-file conf/spark-defaults.conf examples/snapshot.py --timeout 5s

The type is given, so the query does not discover it: it also works without any peer, and then shows no rows.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from spark_rtps.session import session_builder

IDL = Path(__file__).parents[1] / "conf" / "ShapeType.idl"

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--domain", type=int, default=0)
parser.add_argument("--interface", help="network interface, such as lo; all but loopback by default")
parser.add_argument("--timeout", default="5s")
parser.add_argument("--rows", type=int, default=1000, help="end after this number of samples")
arguments = parser.parse_args()
network = {"domain": str(arguments.domain)}
if arguments.interface:
    network["interface"] = arguments.interface

spark = session_builder("snapshot").getOrCreate()
squares = (
    spark.read.format("rtps")
    .options(**network)
    .option("topic", "Square")
    .option("type.file", str(IDL))
    .option("type", "ShapeType")
    .option("read.max_rows", arguments.rows)
    .option("read.timeout", arguments.timeout)
    .load()
)
squares.groupBy("color").count().orderBy("color").show()
spark.stop()
