"""Draw the newest image and point cloud of a robot into dashboard.png, once a second.

python examples/ros2_dashboard.py

It needs `pip install 'spark-rtps[ros,plots]'`. Domain and interface are those of ROS_DOMAIN_ID and ROS_LOCALHOST_ONLY.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from matplotlib.figure import Figure
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark_rtps.functions import image_array, pointcloud_points
from spark_rtps.session import session_builder

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--images", default="/camera/image_raw")
parser.add_argument("--clouds", default="/points")
parser.add_argument("--output", default="dashboard.png")
parser.add_argument("--drawings", type=int, help="end after this number of drawings; default: never")
arguments = parser.parse_args()

spark = session_builder("ROS 2 dashboard").getOrCreate()
newest: dict[str, Any] = {}


def follow(topic: str, message: str, to_numpy: Callable[[pa.Table], Any]) -> StreamingQuery:
    """Keep the newest message of each micro-batch as a NumPy array."""

    def keep(batch: DataFrame, _: int) -> None:
        for array in to_numpy(batch.orderBy(F.desc("header.stamp")).limit(1).toArrow()):
            newest[topic] = array

    messages = spark.readStream.format("ros2").option("type", message).load(topic)
    return messages.writeStream.foreachBatch(keep).start()


queries = [
    follow(arguments.images, "sensor_msgs/msg/Image", image_array),
    follow(arguments.clouds, "sensor_msgs/msg/PointCloud2", pointcloud_points),
]
for drawing in itertools.count(1):
    while len(newest) < len(queries):
        spark.streams.awaitAnyTermination(1)
    figure = Figure(figsize=(9, 4), layout="tight")
    camera, lidar = figure.subplots(1, 2)
    camera.imshow(newest[arguments.images])
    points = newest[arguments.clouds]
    lidar.scatter(points["x"], points["y"], s=2)
    lidar.set_aspect("equal")
    figure.savefig(arguments.output)
    print(f"drawing {drawing}: {len(points)} points in {arguments.output}", flush=True)
    if drawing == arguments.drawings:
        break
    spark.streams.awaitAnyTermination(1)
for query in queries:
    query.stop()
spark.stop()
