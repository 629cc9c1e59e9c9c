"""Recordings into Parquet and into columns: against rosbags and pandas, and against reading the file, in CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq

from tests.bench.figures import scratch

IMU, CLOUD = "sensor_msgs/msg/Imu", "sensor_msgs/msg/PointCloud2"
START: Final = 1_700_000_000_000_000_000
IMUS: Final = 240_000
CLOUDS: Final = 400
POINTS: Final = 32_768
POINT_BYTES: Final = 32
TURNS: Final = 3


def recordings() -> dict[str, Any]:
    """Rows a second of CPU time, and GB/s of it; ``ratio``: against rosbags with pandas, or against
    reading the file into memory of its own."""
    with scratch() as directory:
        bag, mcap = _write(directory, "/imu", IMU, [_imu(i) for i in range(16)], IMUS)
        rosbags = IMUS / _cpu(lambda: _by_rosbags(bag, directory / "theirs.parquet"), turns=1)
        found: dict[str, Any] = {"imu_rosbags_pandas": rosbags}
        for name, path in (("db3", bag), ("mcap", mcap)):
            rate = IMUS / _cpu(lambda path=path: _to_parquet(path, "/imu", directory / "ours.parquet"))  # type: ignore[misc]
            found[f"imu_{name}"] = {"rate": rate, "ratio": rate / rosbags}
    with scratch() as directory:
        bag, mcap = _write(directory, "/points", CLOUD, [_cloud(i) for i in range(2)], CLOUDS)
        for name, path in (("db3", bag), ("mcap", mcap)):
            size = sum(file.stat().st_size for file in _files(path))
            buffered = size / _cpu(lambda path=path: _read(path)) / 1e9  # type: ignore[misc]
            plain = size / _cpu(lambda path=path: [file.read_bytes() for file in _files(path)]) / 1e9  # type: ignore[misc]
            ours = size / _cpu(lambda path=path: _decoded(path, "/points")) / 1e9  # type: ignore[misc]
            found[f"cloud_{name}"] = {
                "gb_s": ours,
                "read_gb_s": plain,
                "ratio": ours / plain,
                "read_through_a_buffer_gb_s": buffered,
            }
    return found


def _cpu(work: Callable[[], object], turns: int = TURNS) -> float:
    """Seconds of CPU of this process, the least of some turns."""
    taken = []
    for _ in range(turns):
        begin = time.process_time()
        work()
        taken.append(time.process_time() - begin)
    return min(taken)


# --- ours -----------------------------------------------------------------------------------------


def _batches(path: Path, topic: str) -> Any:
    from spark_rtps.columns.topic_plan import plan_reading, schema_to_read
    from spark_rtps.options import AppliesTo, parse_options
    from spark_rtps.recordings.files import recording_files
    from spark_rtps.recordings.recorded import ALL_TIMES
    from spark_rtps.recordings.recorded_topic import pieces, recorded_type, topic_files
    from spark_rtps.recordings.rows import decode_piece

    settings = parse_options({"recording": str(path), "topic": topic}, AppliesTo.READ)
    files = topic_files(recording_files(settings.recording), settings, typed=True)
    found = recorded_type(files, settings)
    plan = plan_reading(settings, schema_to_read(settings, found), found)
    for piece in pieces(files, ALL_TIMES, nbytes=1 << 40):
        yield from decode_piece(piece, plan)


def _to_parquet(path: Path, topic: str, into: Path) -> None:
    writer, rows = None, 0
    for batch in _batches(path, topic):
        writer = writer or pq.ParquetWriter(into, batch.schema, use_dictionary=False)
        writer.write_batch(batch)
        rows += batch.num_rows
    assert writer is not None and rows == IMUS
    writer.close()


def _decoded(path: Path, topic: str) -> None:
    assert sum(batch.num_rows for batch in _batches(path, topic)) == CLOUDS


def _read(path: Path) -> None:
    """The file out of the disk cache, into one buffer, which stays in the processor's cache."""
    buffer = bytearray(1 << 20)
    for file in _files(path):
        with file.open("rb", buffering=0) as opened:
            while opened.readinto(buffer):
                pass


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else list(path.glob("*.db3"))


# --- theirs ---------------------------------------------------------------------------------------


def _by_rosbags(bag: Path, into: Path) -> None:
    import pandas
    from rosbags.rosbag2 import Reader

    from tests.support.ros_oracle import typestore

    rows, store = [], typestore()
    with Reader(bag) as reader:
        for connection, _, data in reader.messages():
            m = store.deserialize_cdr(data, connection.msgtype)
            o, a, v = m.orientation, m.linear_acceleration, m.angular_velocity  # type: ignore[attr-defined]
            rows.append(
                {
                    "sec": m.header.stamp.sec,  # type: ignore[attr-defined]
                    "nanosec": m.header.stamp.nanosec,  # type: ignore[attr-defined]
                    "frame_id": m.header.frame_id,  # type: ignore[attr-defined]
                    **{f"orientation_{k}": getattr(o, k) for k in "xyzw"},
                    "orientation_covariance": m.orientation_covariance,  # type: ignore[attr-defined]
                    **{f"angular_velocity_{k}": getattr(v, k) for k in "xyz"},
                    "angular_velocity_covariance": m.angular_velocity_covariance,  # type: ignore[attr-defined]
                    **{f"linear_acceleration_{k}": getattr(a, k) for k in "xyz"},
                    "linear_acceleration_covariance": m.linear_acceleration_covariance,  # type: ignore[attr-defined]
                }
            )
    pandas.DataFrame(rows).to_parquet(into, use_dictionary=False)


# --- what is recorded -----------------------------------------------------------------------------


def _write(directory: Path, topic: str, type: str, payloads: list[bytes], count: int) -> tuple[Path, Path]:
    """The same samples as a bag in SQLite and as MCAP without compression."""
    from mcap.writer import CompressionType, Writer
    from rosbags.rosbag2 import StoragePlugin
    from rosbags.rosbag2 import Writer as BagWriter

    from tests.recordings.recording_scene import definition
    from tests.support.ros_oracle import typestore

    bag, mcap = directory / "bag", directory / "drive.mcap"
    with BagWriter(bag, version=9, storage_plugin=StoragePlugin.SQLITE3) as writer:
        connection = writer.add_connection(topic, type, typestore=typestore())
        for i in range(count):
            writer.write(connection, START + i * 1_000_000, payloads[i % len(payloads)])
    with mcap.open("wb") as file:
        out = Writer(file, compression=CompressionType.NONE)
        out.start(profile="ros2")
        schema = out.register_schema(type, "ros2msg", definition(type).encode())
        channel = out.register_channel(topic, "cdr", schema)
        for i in range(count):
            at = START + i * 1_000_000
            out.add_message(channel, at, payloads[i % len(payloads)], at)
        out.finish()
    return bag, mcap


def _imu(i: int) -> bytes:
    from spark_rtps.transport.types.ros import ros_type
    from tests.support.ros_oracle import rosbags_bytes, typestore

    xyz = {"x": i * 0.5, "y": -1.0, "z": 9.81}
    value = {
        "header": {"stamp": {"sec": i, "nanosec": 5}, "frame_id": "imu_link"},
        "orientation": {**xyz, "w": 1.0},
        "orientation_covariance": [0.1] * 9,
        "angular_velocity": xyz,
        "angular_velocity_covariance": [0.2] * 9,
        "linear_acceleration": xyz,
        "linear_acceleration_covariance": [0.3] * 9,
    }
    return rosbags_bytes(ros_type(IMU), value, typestore())


def _cloud(i: int) -> bytes:
    from spark_rtps.transport.types.ros import ros_type
    from tests.support.ros_oracle import rosbags_bytes, typestore

    data = np.random.default_rng(i).integers(0, 256, POINTS * POINT_BYTES, np.uint8)
    field = {"name": "x", "offset": 0, "datatype": 7, "count": 1}
    value = {
        "header": {"stamp": {"sec": i, "nanosec": 5}, "frame_id": "lidar"},
        "height": 1,
        "width": POINTS,
        "fields": [{**field, "name": name, "offset": 4 * k} for k, name in enumerate("xyz")],
        "is_bigendian": False,
        "point_step": POINT_BYTES,
        "row_step": POINTS * POINT_BYTES,
        "data": data.tobytes(),
        "is_dense": True,
    }
    return rosbags_bytes(ros_type(CLOUD), value, typestore())


if __name__ == "__main__":
    import json

    print(json.dumps(recordings(), indent=2))
