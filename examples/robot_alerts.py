"""Send a robot alerts when its motor is too hot: read its topic /temperature, and write its topic /alerts.

python examples/robot_alerts.py --checkpoint /tmp/robot_alerts

A robot listens to `/alerts`; `ros2 topic echo /alerts` shows them too. Domain and interface are those of ROS_DOMAIN_ID
and ROS_LOCALHOST_ONLY. It needs `pip install 'spark-rtps[ros]'`.
"""

from __future__ import annotations

import argparse

from pyspark.sql import functions as F

from spark_rtps.session import session_builder

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument(
    "--checkpoint", required=True, help="directory of the checkpoint, from which a restart continues"
)
parser.add_argument("--limit", type=float, default=35, help="degrees Celsius")
parser.add_argument("--seconds", type=float, default=None, help="time after which it ends; default: never")
arguments = parser.parse_args()

spark = session_builder("robot alerts").getOrCreate()
temperatures = (
    spark.readStream.format("ros2")
    .option("type", "sensor_msgs/msg/Temperature")
    .option("event_time", "header.stamp")
    .load("/temperature")
)
# One alert for each second of the robot's clock in which the motor is too hot.
hot = (
    temperatures.withWatermark("event_time", "0 seconds")
    .groupBy(F.window("event_time", "1 second"), "header.frame_id")
    .agg(F.max("temperature").alias("hottest"))
    .where(F.col("hottest") > arguments.limit)
)
since = F.date_format("window.start", "HH:mm:ss")
alerts = hot.select(F.format_string("%s: %.1f degrees at %s", "frame_id", "hottest", since).alias("data"))
query = (
    alerts.writeStream.format("ros2")
    .option("type", "std_msgs/msg/String")
    .option("checkpointLocation", arguments.checkpoint)
    .start("/alerts")
)
query.awaitTermination(arguments.seconds)
query.stop()
spark.stop()
