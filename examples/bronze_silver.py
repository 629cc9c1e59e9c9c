"""Store all topics of a robot as raw samples (bronze), and decode one topic later (silver).

python examples/bronze_silver.py --bronze lake/bronze --silver lake/silver --listen 30s

Each run listens for a while and adds the samples received to both tables. Domain and interface are those of
ROS_DOMAIN_ID and ROS_LOCALHOST_ONLY. It needs PySpark 4.1 or newer, and `pip install 'spark-rtps[ros]'`.
"""

from __future__ import annotations

import argparse

from pyspark.sql import functions as F

from spark_rtps.functions import from_cdr
from spark_rtps.session import session_builder

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--bronze", required=True, help="folder of the table of raw samples")
parser.add_argument("--silver", required=True, help="folder of the table of temperatures")
parser.add_argument("--listen", default="10s")
arguments = parser.parse_args()

spark = session_builder("bronze and silver").getOrCreate()

# Bronze: all samples as received. No type has to be known, and topics that appear later are stored too.
samples = (
    spark.readStream.format("ros2")
    .option("subscribePattern", "/.*")
    .option("payload", "binary")
    .option("read.timeout", arguments.listen)
    .load()
)
storing = (
    samples.writeStream.format("parquet")
    .partitionBy("topic")
    .option("path", arguments.bronze)
    .option("checkpointLocation", f"{arguments.bronze}.checkpoint")
    .trigger(availableNow=True)
    .start()
)
storing.awaitTermination()

# Silver: one topic's samples as columns. The stream reads only the bronze rows that it has not read before.
bronze = spark.readStream.schema(spark.read.parquet(arguments.bronze).schema).parquet(arguments.bronze)
temperatures = (
    bronze.where(F.col("topic") == "rt/temperature")
    .withColumn("message", from_cdr("value", "sensor_msgs/msg/Temperature"))
    .select("source_timestamp", "message.header.stamp", "message.temperature")
)
decoding = (
    temperatures.writeStream.format("parquet")
    .option("path", arguments.silver)
    .option("checkpointLocation", f"{arguments.silver}.checkpoint")
    .trigger(availableNow=True)
    .start()
)
decoding.awaitTermination()

spark.read.parquet(arguments.bronze).groupBy("topic", "type_name").count().orderBy("topic").show(
    truncate=False
)
spark.read.parquet(arguments.silver).agg(F.count("*"), F.min("temperature"), F.max("temperature")).show()
spark.stop()
