"""ROS 2 bags in SQLite of rosbags' own writer, against its deserializer."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard

from spark_rtps.datasource.recording_reader import partitions_of, times_of
from spark_rtps.recordings import bag_file
from spark_rtps.recordings.files import recording_files
from spark_rtps.transport.errors import OptionError, RecordingError
from tests.recordings.recording_scene import (
    START,
    STEP,
    Message,
    compared,
    expected,
    messages,
    plan_of,
    read,
    settings,
    write_bag,
)

IMU, CLOUD, STRING = "sensor_msgs/msg/Imu", "sensor_msgs/msg/PointCloud2", "std_msgs/msg/String"


@pytest.fixture(scope="module")
def drive() -> list[Message]:
    return sorted(
        [*messages("/imu", IMU, 120), *messages("/points", CLOUD, 30), *messages("/chatter", STRING, 7)],
        key=lambda m: m.time,
    )


def of(drive: list[Message], topic: str) -> list[Message]:
    return [m for m in drive if m.topic == topic]


@pytest.mark.parametrize("version", [8, 9])
def test_rows_are_what_rosbags_decodes(tmp_path: Path, drive: list[Message], version: int) -> None:
    bag = write_bag(tmp_path / "bag", drive, version=version)
    for topic in ("/imu", "/points", "/chatter"):
        assert compared(read(bag, topic)) == expected(of(drive, topic))
    (file,) = bag.glob("*.db3")
    assert compared(read(file, "/imu")) == expected(of(drive, "/imu"))


def test_a_bag_without_definitions_has_types_by_name(tmp_path: Path, drive: list[Message]) -> None:
    bag = write_bag(tmp_path / "bag", drive, version=8)
    (file,) = bag.glob("*.db3")
    with sqlite3.connect(file) as connection:
        connection.execute("DROP TABLE IF EXISTS message_definitions")
    assert compared(read(bag, "/imu")) == expected(of(drive, "/imu"))


def test_ids_divide_a_bag_among_tasks(
    tmp_path: Path, drive: list[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bag_file, "_SECTION_BYTES", 4096)
    bag = write_bag(tmp_path / "bag", drive)
    given = settings(bag, "/imu", minPartitions="5")
    parts = partitions_of(recording_files(given.recording), given, plan_of(given), times_of(given))
    assert len(parts) >= 5
    assert compared(read(bag, "/imu", minPartitions="5")) == expected(of(drive, "/imu"))


def test_metadata_and_times(tmp_path: Path, drive: list[Message]) -> None:
    bag = write_bag(tmp_path / "bag", drive)
    row = read(bag, "/imu", metadata="true")["_rtps"][0].as_py()
    assert row["reception_timestamp"].timestamp() == START / 1e9
    assert row["sequence_number"] is row["source_timestamp"] is row["writer"] is None
    since, until = START // 1_000_000 + 100, START // 1_000_000 + 150
    rows = read(bag, "/imu", startingTime=str(since), endingTime=str(until))
    assert compared(rows) == expected(of(drive, "/imu")[20:30])
    assert read(bag, "/imu", startingTime=str(START // 1_000_000 + 130 * STEP)).num_rows == 0


def test_messages_that_are_compressed_one_by_one(tmp_path: Path, drive: list[Message]) -> None:
    packed = [
        Message(m.topic, m.type, m.time, m.value, zstandard.ZstdCompressor().compress(m.data))
        for m in of(drive, "/imu")
    ]
    bag = write_bag(tmp_path / "bag", packed)
    assert compared(read(bag, "/imu")) == expected(of(drive, "/imu"))


def test_large_messages_take_little_memory_at_once(tmp_path: Path, drive: list[Message]) -> None:
    """Rows are fetched by their size, and not by thousands."""
    bag = write_bag(tmp_path / "bag", of(drive, "/imu") * 40)
    assert (
        read(bag, "/imu", payload="binary")["value"].to_pylist() == [m.data for m in of(drive, "/imu")] * 40
    )


def test_wrong_bags_are_named_with_what_is_wrong(tmp_path: Path, drive: list[Message]) -> None:
    bag = write_bag(tmp_path / "bag", drive)
    (file,) = bag.glob("*.db3")
    with pytest.raises(OptionError, match=r"it has '/chatter', '/imu', '/points'; did you mean '/chatter'"):
        read(bag, "/chater")
    other = tmp_path / "x.db3"
    other.write_bytes(b"no bag")
    with pytest.raises(RecordingError, match=r"x\.db3: it is no ROS 2 bag"):
        read(other, "/imu")
    sqlite3.connect(tmp_path / "y.db3").execute("CREATE TABLE a (b)")
    with pytest.raises(RecordingError, match=r"y\.db3: .*no such table: topics"):
        read(tmp_path / "y.db3", "/imu")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RecordingError, match=r"\.db3: it is cut short, damaged.*ros2 bag reindex"):
        read(bag, "/imu")
    file.rename(file.with_suffix(".db3.zstd"))
    with pytest.raises(RecordingError, match="zstd -d"):
        read(bag, "/imu")


def test_a_schema_of_ones_own(tmp_path: Path, drive: list[Message]) -> None:
    bag = write_bag(tmp_path / "bag", drive)
    schema = pa.schema([("angular_velocity", pa.struct([("z", pa.float64())]))])
    assert read(bag, "/imu", schema)["angular_velocity"].to_pylist() == [
        {"z": m.value["angular_velocity"]["z"]} for m in of(drive, "/imu")
    ]
