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
from spark_rtps.recordings.recorded import ALL_TIMES, Piece
from spark_rtps.transport.errors import OptionError, RecordingError
from spark_rtps.transport.types.ros import ros_type
from spark_rtps.transport.types.ros_hash import type_hash
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
from tests.support.ros_oracle import typestore

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


@pytest.mark.parametrize("end", ["9999-12-31", "999999999999999"])
def test_times_beyond_64_bits_are_as_late_as_times_can_be(
    tmp_path: Path, drive: list[Message], end: str
) -> None:
    bag = write_bag(tmp_path / "bag", of(drive, "/chatter"))
    assert read(bag, "/chatter", endingTime=end).num_rows == 7
    assert read(bag, "/chatter", startingTime=end).num_rows == 0


def test_messages_that_are_compressed_one_by_one(tmp_path: Path, drive: list[Message]) -> None:
    packed = [
        Message(m.topic, m.type, m.time, m.value, zstandard.ZstdCompressor().compress(m.data))
        for m in of(drive, "/imu")
    ]
    bag = write_bag(tmp_path / "bag", packed)
    assert compared(read(bag, "/imu")) == expected(of(drive, "/imu"))


def test_a_compressed_message_that_is_damaged_is_left_out_where_that_may_be(
    tmp_path: Path, drive: list[Message], caplog: pytest.LogCaptureFixture
) -> None:
    given = [
        Message(m.topic, m.type, m.time, m.value, zstandard.ZstdCompressor().compress(m.data)) for m in drive
    ]
    texts = [i for i, m in enumerate(given) if m.topic == "/chatter"]
    for i in (texts[2], texts[6]):
        m = given[i]
        given[i] = Message(m.topic, m.type, m.time, m.value, m.data[:-3])
    bag = write_bag(tmp_path / "bag", given)
    with pytest.raises(RecordingError, match=r"2 messages cannot be decompressed.*failOnDataLoss=false"):
        read(bag, "/chatter")
    whole = [drive[i] for i in texts if i not in (texts[2], texts[6])]
    assert compared(read(bag, "/chatter", failOnDataLoss="false")) == expected(whole)
    assert "2 messages cannot be decompressed" in caplog.text


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
    with pytest.raises(RecordingError, match=r"x\.db3: it is not a ROS 2 bag"):
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


def humble_bag(path: Path) -> Path:
    """A bag as Humble writes it, without definitions, of a type that Jazzy extended."""
    store = typestore("humble")
    kinds = ("sensor_msgs/msg/Range", "std_msgs/msg/Header", "builtin_interfaces/msg/Time")
    kind, header, time = (store.types[name] for name in kinds)
    found = []
    for i in range(10):
        stamp = header(stamp=time(sec=i, nanosec=0), frame_id="base")
        value = kind(
            header=stamp, radiation_type=0, field_of_view=0.5, min_range=0.5, max_range=4.0, range=float(i)
        )
        data = bytes(store.serialize_cdr(value, kinds[0]))
        found.append(Message("/sonar", kinds[0], START + i * STEP, value, data))
    bag = write_bag(path, found, version=8)
    (file,) = bag.glob("*.db3")
    with sqlite3.connect(file) as connection:
        connection.execute("DROP TABLE IF EXISTS message_definitions")
        connection.execute("UPDATE topics SET type_description_hash = ''")
    return bag


@pytest.mark.parametrize("options", [{}, {"type__ros_distribution": "humble"}])
def test_a_bag_of_humble_has_the_types_of_humble(tmp_path: Path, options: dict[str, str]) -> None:
    bag = humble_bag(tmp_path / "bag")
    assert read(bag, "/sonar", **options)["range"].to_pylist() == [float(i) for i in range(10)]


def test_a_recorded_hash_decides_which_distribution_has_the_type(tmp_path: Path) -> None:
    bag = humble_bag(tmp_path / "bag")
    (file,) = bag.glob("*.db3")
    announced = type_hash(ros_type("sensor_msgs/msg/Range", "humble"))
    with sqlite3.connect(file) as connection:
        connection.execute(
            "CREATE TABLE message_definitions (id, topic_type, encoding, encoded_message_definition)"
        )
        connection.execute("UPDATE topics SET type_description_hash = ?", (announced,))
    assert read(bag, "/sonar").num_rows == 10
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE topics SET type_description_hash = ?", ("RIHS01_" + "0" * 64,))
    with pytest.raises(RecordingError, match="no ROS 2 distribution defines it with the hash"):
        read(bag, "/sonar")


@pytest.mark.parametrize("data", [None, 7, "text"])
def test_a_row_that_is_no_message_is_damage(tmp_path: Path, drive: list[Message], data: object) -> None:
    imu = of(drive, "/imu")
    bag = write_bag(tmp_path / "bag", imu)
    (file,) = bag.glob("*.db3")
    with sqlite3.connect(file) as connection:
        connection.execute(
            "CREATE TABLE m (id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data)"
        )
        connection.execute("INSERT INTO m SELECT id, topic_id, timestamp, data FROM messages")
        connection.execute("DROP TABLE messages")
        connection.execute("ALTER TABLE m RENAME TO messages")
        connection.execute("UPDATE messages SET data = ? WHERE id = (SELECT min(id) FROM messages)", (data,))
    with pytest.raises(RecordingError, match="1 messages have no data or no time; failOnDataLoss=false"):
        read(bag, "/imu")
    assert compared(read(bag, "/imu", failOnDataLoss="false")) == expected(imu[1:])


def test_rows_are_fetched_by_their_sizes(tmp_path: Path) -> None:
    """Large ones among small ones, too: a fetch ends with the row that fills it."""
    sizes = [8] * 40 + [3_000_000] * 6 + [8] * 3 + [5_000_000]
    given = [Message("/chatter", STRING, START + i, None, bytes(size)) for i, size in enumerate(sizes)]
    (file,) = write_bag(tmp_path / "bag", given).glob("*.db3")
    bag = bag_file.BagFile(str(file))
    channels = bag.channels("/chatter", typed=False)
    piece = Piece(str(file), "db3", channels, tuple(bag.sections(channels, ALL_TIMES)))
    found = list(bag.read_piece(piece, ALL_TIMES))
    assert [int(n) for each in found for n in each.lengths] == sizes
    assert max(each.data.nbytes for each in found) < (4 << 20) + 5_000_000


def test_names_whose_digits_are_no_numbers_are_sorted(tmp_path: Path, drive: list[Message]) -> None:
    write_bag(tmp_path / "bag\u00b2", of(drive, "/chatter"))
    assert len(recording_files([str(tmp_path / "*")])) == 1


@pytest.mark.parametrize("order", [1, -1])
def test_a_file_that_a_symbolic_link_names_too_is_read_once(
    tmp_path: Path, drive: list[Message], order: int
) -> None:
    """As that of the latest drive; whatever is named first."""
    drives = [
        write_bag(tmp_path / f"2026-{month}", of(drive, topic))
        for month, topic in ((1, "/imu"), (2, "/chatter"))
    ]
    latest = tmp_path / "0-latest"
    latest.symlink_to(drives[1])
    names = [tmp_path / "*" / "*.db3", latest, *drives][::order]
    table = read(",".join(map(str, names)), "/chatter")
    assert compared(table) == expected(of(drive, "/chatter"))
    assert all("latest" not in path for path in recording_files(map(str, names)))
    # alone it has the name that it was given
    assert [Path(path).parent.name for path in recording_files([str(latest)])] == ["0-latest"]


def test_damage_in_one_part_of_a_bag_leaves_the_other_parts(
    tmp_path: Path, drive: list[Message], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bag_file, "_SECTION_BYTES", 16_384)
    (file,) = write_bag(tmp_path / "bag", drive).glob("*.db3")
    data = bytearray(file.read_bytes())
    at = data.index(of(drive, "/imu")[40].data) & -4096
    data[at : at + 4096] = b"\xff" * 4096
    file.write_bytes(data)
    with pytest.raises(
        RecordingError, match="it is cut short, damaged or not a ROS 2 bag: database disk image is"
    ):
        read(file, "/imu")
    rows, whole = compared(read(file, "/imu", failOnDataLoss="false")), expected(of(drive, "/imu"))
    assert rows == [row for row in whole if row in rows]
    assert rows[-20:] == whole[-20:] and 40 < len(rows) < 100
    output = [each for each in caplog.messages if "of the messages of '/imu' with ids " in each]
    assert output and all("are read, because failOnDataLoss=false" in each for each in output)


def test_an_error_of_sqlite_that_is_no_text_is_one_of_the_recording(
    tmp_path: Path, drive: list[Message]
) -> None:
    (file,) = write_bag(tmp_path / "bag", of(drive, "/chatter")).glob("*.db3")
    data = file.read_bytes()
    assert data.count(b"CREATE TABLE topics") == 1
    file.write_bytes(data.replace(b"CREATE TABLE topics", b"CREATE TA\x8eLE topics"))
    with pytest.raises(RecordingError, match="it is cut short, damaged or not a ROS 2 bag"):
        read(file, "/chatter")
