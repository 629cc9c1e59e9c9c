"""A small robot without ROS: it publishes images, point clouds and temperatures, and prints the messages on /alerts.

ROS_DOMAIN_ID=0 ROS_LOCALHOST_ONLY=1 python examples/ros2_robot.py

The other examples of ROS 2 need such a peer. All values are computed from the number of the frame, so every run
publishes the same values. The last hundred frames are kept for readers that match later, as ROS 2 does with
transient_local.
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

import numpy as np

import spark_rtps as rtps

HZ = 10
POINT_FIELDS = ("x", "y", "z", "intensity")
FLOAT32 = 7  # of sensor_msgs/msg/PointField


def header(frame: int, frame_id: str) -> dict[str, Any]:
    stamp = {"sec": 1_700_000_000 + frame // HZ, "nanosec": frame % HZ * (10**9 // HZ)}
    return {"stamp": stamp, "frame_id": frame_id}


def image(frame: int) -> dict[str, Any]:
    """A ball that moves in a circle in front of a coloured wall."""
    y, x = np.mgrid[0:120, 0:160]
    pixels = np.stack([x, 90 + 0 * x, 2 * y], axis=-1).astype(np.uint8)
    at = 80 + 50 * np.cos(frame / 8), 60 + 35 * np.sin(frame / 8)
    pixels[np.hypot(x - at[0], y - at[1]) < 14] = 255, 220, 40
    form = {"height": 120, "width": 160, "encoding": "rgb8", "is_bigendian": 0, "step": 480}
    return {"header": header(frame, "camera"), **form, "data": pixels.tobytes()}


def cloud(frame: int) -> dict[str, Any]:
    """The points that a turning lidar measures in a room of 8 by 6 metres, with some noise."""
    angle = np.linspace(0, 2 * np.pi, 720, endpoint=False)
    distance = np.minimum(4 / np.maximum(abs(np.cos(angle)), 1e-9), 3 / np.maximum(abs(np.sin(angle)), 1e-9))
    distance += np.random.default_rng(frame).normal(0, 0.03, len(angle))
    points = np.stack([distance * np.cos(angle), distance * np.sin(angle), 0 * angle, 1 / distance], axis=-1)
    fields = [
        {"name": name, "offset": 4 * i, "datatype": FLOAT32, "count": 1}
        for i, name in enumerate(POINT_FIELDS)
    ]
    form = {"height": 1, "width": 720, "fields": fields, "is_bigendian": False, "is_dense": True}
    data = points.astype("<f4").tobytes()
    return {"header": header(frame, "lidar"), **form, "point_step": 16, "row_step": len(data), "data": data}


def temperature(frame: int) -> dict[str, Any]:
    """The temperature of a motor, between 20 and 40 degrees Celsius."""
    return {
        "header": header(frame, "motor"),
        "temperature": 30 - 10 * float(np.cos(frame / 20)),
        "variance": 0.1,
    }


def run(frames: int | None = None) -> None:
    """Publish this number of frames, then only listen; without ``frames`` publish without end."""
    with rtps.Participant(options={"ros": "true", "ros.node": "robot"}) as robot:

        def publish(topic: str, message: str) -> rtps.Publication:
            kept = {"history.depth": 100, "on_no_reader": "drop"}
            return robot.publish(topic, type=f"sensor_msgs/msg/{message}", options=kept)

        topics = [
            (publish("/camera/image_raw", "Image"), image),
            (publish("/points", "PointCloud2"), cloud),
            (publish("/temperature", "Temperature"), temperature),
        ]
        alerts = robot.subscribe("/alerts", type="std_msgs/msg/String")
        for frame in itertools.count():
            if frames is None or frame < frames:
                for publication, make in topics:
                    publication.write([make(frame)])
            for alert in alerts.take(timeout=1 / HZ).to_pylist():
                print("alert:", alert["data"], flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, help="publish this number, then only listen; default: no end")
    run(parser.parse_args().frames)
