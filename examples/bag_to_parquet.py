"""Turn one topic of recordings into Parquet, with a column for the time at which each message was recorded.

spark-rtps record rt/temperature -o drive.mcap     # or a bag of ros2 bag record
python examples/bag_to_parquet.py --recording 'drive*.mcap' --topic /temperature --output temperature.parquet

It needs `pip install 'spark-rtps[recordings]'`. The type comes from the files.
"""

from __future__ import annotations

import argparse

from pyspark.sql import functions as F

from spark_rtps.session import session_builder

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--recording", required=True, help=".mcap or .db3 files, patterns or folders")
parser.add_argument("--topic", required=True, help="its name in the files, such as /imu")
parser.add_argument("--output", required=True, help="folder to write, which must not exist")
arguments = parser.parse_args()

spark = session_builder("bag to Parquet").getOrCreate()
messages = (
    spark.read.format("rtps")
    .option("recording", arguments.recording)
    .option("log_time", True)
    .load(arguments.topic)
)
messages.printSchema()
messages.write.parquet(arguments.output)

rows = spark.read.parquet(arguments.output)
rows.agg(F.count("*").alias("messages"), F.min("log_time"), F.max("log_time")).show(truncate=False)
spark.stop()
