"""MCAP files of mcap's own writer, against rosbags' deserializer: chunked or not, compressed, indexed, cut short."""

from __future__ import annotations

import logging
import random
import struct
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pytest
from mcap.exceptions import McapError
from mcap.reader import make_reader
from mcap.records import Message as McapMessage
from mcap.stream_reader import StreamReader
from mcap.writer import CompressionType, IndexType, Writer
from rosbags.highlevel import AnyReader

from spark_rtps.recordings.mcap_file import WRITER_KEY, McapFile
from spark_rtps.recordings.mcap_writing import McapRecorder, schema_of
from spark_rtps.recordings.recorded import ALL_TIMES, Piece
from spark_rtps.recordings.recorded_types import hash_of_schema, struct_of_schema
from spark_rtps.transport.errors import MalformedSampleError, OptionError, RecordingError
from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.types.arrow import arrow_schema
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.types.ros import ros_type
from tests.recordings.recording_scene import (
    START,
    STEP,
    Message,
    compared,
    expected,
    messages,
    read,
    rosbags_values,
    write_mcap,
)
from tests.support.ros_oracle import random_value, rosbags_bytes, typestore

IMU, CLOUD, STRING = "sensor_msgs/msg/Imu", "sensor_msgs/msg/PointCloud2", "std_msgs/msg/String"
POINT = "geometry_msgs/msg/Point32"
XCDR = [DataRepresentation.XCDR1, DataRepresentation.XCDR2]


@pytest.fixture(scope="module")
def drive() -> list[Message]:
    """Three topics, interleaved."""
    imu, clouds, texts = (
        messages("/imu", IMU, 120, seed=1),
        messages("/points", CLOUD, 40, seed=2, step=3 * STEP),
        messages("/chatter", STRING, 60, seed=3, step=2 * STEP),
    )
    return sorted([*imu, *clouds, *texts], key=lambda m: m.time)


def of(drive: list[Message], topic: str) -> list[Message]:
    return [m for m in drive if m.topic == topic]


@pytest.mark.parametrize("topic", ["/imu", "/points", "/chatter"])
@pytest.mark.parametrize("compression", list(CompressionType))
def test_rows_are_what_rosbags_decodes(
    tmp_path: Path, drive: list[Message], topic: str, compression: CompressionType
) -> None:
    path = write_mcap(tmp_path / "a.mcap", drive, compression=compression)
    assert compared(read(path, topic)) == expected(of(drive, topic))


@pytest.mark.parametrize(
    "how",
    [
        {"index_types": IndexType.NONE},
        {"index_types": IndexType.CHUNK},
        {"index_types": IndexType.MESSAGE},
        {"use_chunking": False},
        {"summary": False},
        {"summary": False, "index_types": IndexType.NONE},
        {"chunk_size": 1},
        {"chunk_size": 10_000_000},
    ],
    ids=str,
)
def test_files_without_parts_of_the_index_are_read_too(
    tmp_path: Path, drive: list[Message], how: dict[str, object]
) -> None:
    path = write_mcap(tmp_path / "a.mcap", drive, **how)
    for topic in ("/imu", "/points"):
        assert compared(read(path, topic)) == expected(of(drive, topic))


def test_ranges_of_like_messages_are_found_without_an_index(tmp_path: Path) -> None:
    """The walk looks at many records at once; odd ones in between must not hide any."""
    alike = messages("/imu", IMU, 1)[0]
    many = [Message("/imu", IMU, START + i, alike.value, alike.data) for i in range(700)]
    odd = messages("/chatter", STRING, 5)
    mixed = [*many[:300], *odd[:2], *many[300:310], odd[2], *many[310:], *odd[3:]]
    path = write_mcap(tmp_path / "a.mcap", mixed, index_types=IndexType.NONE, chunk_size=1 << 20)
    assert read(path, "/imu", metadata="true")["_rtps"].combine_chunks().field(
        "sequence_number"
    ).to_pylist() == [i + 1 for i, m in enumerate(mixed) if m.topic == "/imu"]
    assert read(path, "/chatter").num_rows == 5


def test_metadata_has_times_numbers_and_writer(tmp_path: Path, drive: list[Message]) -> None:
    writer = "0110b3f2.0457efb7.d870f2c5:00000203"
    path = write_mcap(tmp_path / "a.mcap", of(drive, "/imu"), metadata={WRITER_KEY: writer})
    rows = read(path, "/imu", metadata="true", log_time="true", columns="header.frame_id")
    assert rows.schema.names == ["header", "_rtps", "log_time"]
    first = rows["_rtps"][0].as_py()
    assert first["writer"] == writer and first["sequence_number"] == 1 and first["instance_state"] == "ALIVE"
    assert rows["log_time"].cast(pa.int64()).to_pylist() == [
        START // 1000 + i * STEP // 1000 for i in range(120)
    ]
    assert (first["reception_timestamp"] - first["source_timestamp"]).microseconds == 1
    path = write_mcap(tmp_path / "b.mcap", of(drive, "/imu"))
    assert read(path, "/imu", metadata="true")["_rtps"][0].as_py()["writer"] is None


def test_times_select_samples_and_leave_out_chunks(tmp_path: Path, drive: list[Message]) -> None:
    path = write_mcap(tmp_path / "a.mcap", drive)
    since, until = START // 1_000_000 + 100, START // 1_000_000 + 150  # ms; a step is 5 ms
    rows = read(path, "/imu", startingTime=str(since), endingTime=str(until))
    assert compared(rows) == expected(of(drive, "/imu")[20:30])
    # what lies outside is not even looked at
    broken = path.read_bytes()
    path.write_bytes(broken[:40] + bytes(400) + broken[440:])
    assert read(path, "/imu", startingTime=str(since), endingTime=str(until)).equals(rows)


def test_payloads_and_malformed_samples_are_as_live(tmp_path: Path, drive: list[Message]) -> None:
    imu = of(drive, "/imu")[:10]
    broken = Message("/imu", IMU, START + 10 * STEP, None, imu[0].data[:50])
    path = write_mcap(tmp_path / "a.mcap", [*imu, broken])
    raw = read(path, "/imu", payload="binary")
    assert raw["value"].to_pylist() == [m.data for m in [*imu, broken]]
    assert set(raw["topic"].to_pylist()) == {"/imu"}
    assert read(path, "/imu").num_rows == 10
    permissive = read(path, "/imu", mode="permissive")
    assert permissive["_corrupt_record"].to_pylist() == [None] * 10 + [broken.data]
    with pytest.raises(MalformedSampleError, match="malformed"):
        read(path, "/imu", mode="failfast")


def test_columns_and_filters_apply(tmp_path: Path, drive: list[Message]) -> None:
    path = write_mcap(tmp_path / "a.mcap", drive)
    schema = pa.schema([("orientation", pa.struct([("x", pa.float64())]))])
    wanted = [{"orientation": {"x": v["orientation"]["x"]}} for v in rosbags_values(of(drive, "/imu"))]
    assert read(path, "/imu", schema).to_pylist() == wanted
    assert read(path, "/imu", columns="orientation.x").to_pylist() == wanted
    some = read(path, "/imu", filter="header.stamp.sec > 0")
    assert some.num_rows == sum(v["header"]["stamp"]["sec"] > 0 for v in rosbags_values(of(drive, "/imu")))


def test_schemas_in_idl(tmp_path: Path) -> None:
    texts = messages("/chatter", STRING, 5)
    ros = (
        "=" * 80 + '\nIDL: std_msgs/msg/String\n#include "x/y.idl"\n'
        "module std_msgs { module msg { struct String { string data; }; }; };\n"
    )
    path = write_mcap(tmp_path / "a.mcap", texts, encoding="ros2idl", schemas={STRING: ros})
    assert read(path, "/chatter").to_pylist() == [m.value for m in texts]
    two = (
        "IDL: std_msgs/msg/String\nmodule std_msgs { module msg { struct String { other::msg::Text data; }; }; };\n"
        + "=" * 80
        + "\nIDL: other/msg/Text\nmodule other { module msg { typedef string Text; }; };\n"
    )
    path = write_mcap(tmp_path / "b.mcap", texts, encoding="ros2idl", schemas={STRING: two})
    assert read(path, "/chatter").to_pylist() == [m.value for m in texts]
    omg = "module std_msgs { module msg { @final struct String { string data; }; }; };"
    path = write_mcap(tmp_path / "c.mcap", texts, encoding="omgidl", schemas={STRING: omg})
    assert read(path, "/chatter").to_pylist() == [m.value for m in texts]


def test_files_are_read_in_the_order_of_their_numbers(tmp_path: Path, drive: list[Message]) -> None:
    imu = of(drive, "/imu")
    for i, number in enumerate((1, 2, 10)):
        write_mcap(tmp_path / f"drive_{number}.mcap", imu[i * 40 : i * 40 + 40])
    for name in (tmp_path, tmp_path / "*.mcap", f"{tmp_path}/drive_1.mcap,file://{tmp_path}/drive_*.mcap"):
        assert compared(read(name, "/imu")) == expected(imu)


def test_a_cut_file_is_an_error_or_is_read_as_far_as_it_is_whole(
    tmp_path: Path, drive: list[Message]
) -> None:
    path = write_mcap(tmp_path / "a.mcap", drive)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RecordingError, match=r"a\.mcap: it has no end.*mcap recover.*failOnDataLoss=false"):
        read(path, "/imu")
    rows = compared(read(path, "/imu", failOnDataLoss="false"))
    assert 0 < len(rows) < 120 and rows == expected(of(drive, "/imu"))[: len(rows)]


def test_wrong_files_are_named_with_what_is_wrong(tmp_path: Path, drive: list[Message]) -> None:
    path = write_mcap(tmp_path / "a.mcap", drive)
    with pytest.raises(
        OptionError, match=r"no such topic; it has '/chatter', '/imu', '/points'; did you mean '/imu'"
    ):
        read(path, "rt/imu")
    with pytest.raises(OptionError, match="did you mean '/points'"):
        read(path, "/point")
    other = tmp_path / "b.mcap"
    other.write_bytes(b"not at all" * 20)
    with pytest.raises(RecordingError, match=r"b\.mcap: it is not an MCAP file"):
        read(other, "/imu")
    other.write_bytes(b"")
    with pytest.raises(RecordingError, match=r"b\.mcap: it is empty"):
        read(other, "/imu")
    with pytest.raises(OptionError, match=r"names no file.*\.mcap"):
        read(tmp_path / "c.mcap", "/imu")
    (tmp_path / "d.txt").write_text("hello")
    with pytest.raises(
        RecordingError, match=r"d\.txt: files of this kind are not read; read are \.mcap, \.db3"
    ):
        read(tmp_path / "d.txt", "/imu")
    damaged = bytearray(path.read_bytes())
    damaged[300] ^= 0xFF  # inside of the first chunk
    path.write_bytes(damaged)
    with pytest.raises(RecordingError, match=r"a\.mcap: .*damaged"):
        read(path, "/imu")
    rest = compared(read(path, "/imu", failOnDataLoss="false"))
    assert 0 < len(rest) < 120 and rest == expected(of(drive, "/imu"))[-len(rest) :]


def test_channels_without_cdr_or_a_type_are_refused(tmp_path: Path, drive: list[Message]) -> None:
    path = write_mcap(tmp_path / "a.mcap", of(drive, "/imu"), encoding="protobuf", schemas={IMU: "x"})
    with pytest.raises(RecordingError, match=r"defined in 'protobuf'.*payload=binary"):
        read(path, "/imu")
    assert read(path, "/imu", payload="binary").num_rows == 120
    assert compared(read(path, "/imu", type=IMU)) == expected(of(drive, "/imu"))


def test_unknown_compressions_and_missing_packages(
    tmp_path: Path, drive: list[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_mcap(tmp_path / "a.mcap", drive)
    path.write_bytes(path.read_bytes().replace(b"\x04\x00\x00\x00zstd", b"\x04\x00\x00\x00zst9"))
    with pytest.raises(RecordingError, match=r"compressed by 'zst9'; known are zstd and lz4.*mcap compress"):
        read(path, "/imu")
    monkeypatch.setitem(__import__("sys").modules, "mcap", None)
    with pytest.raises(
        RecordingError, match=r"needs the package mcap: pip install 'spark-rtps\[recordings\]'"
    ):
        read(path, "/imu")


def test_types_that_differ_among_files_are_no_one_type(tmp_path: Path) -> None:
    points = messages("/a", POINT, 3)
    write_mcap(tmp_path / "1.mcap", points)
    write_mcap(tmp_path / "2.mcap", points, schemas={POINT: "float64 x\n"})
    with pytest.raises(OptionError, match=r"2 types of the topic.*1\.mcap"):
        read(tmp_path, "/a")


LONG = b"@final struct P { long x; };"


def longs(writer: Writer, topics: str = "t") -> dict[str, int]:
    """Channels of a type with one number."""
    schema = writer.register_schema("P", "omgidl", LONG)
    return {topic: writer.register_channel(topic, "cdr", schema) for topic in topics}


def add(writer: Writer, channel: int, number: int) -> None:
    writer.add_message(channel, number * 1000, b"\0\1\0\0" + struct.pack("<i", number), number * 1000, number)


def outside(writer: Writer, channel: int, number: int) -> None:
    """Add a message that is in no chunk, which mcap's own writer does only where there are no chunks."""
    builder = "_Writer__chunk_builder"
    writer.flush()
    chunks = getattr(writer, builder)
    setattr(writer, builder, None)
    add(writer, channel, number)
    setattr(writer, builder, chunks)


def numbers(path: Path, topic: str = "t", *, is_lenient: bool = False) -> list[int]:
    """The numbers of a topic, in the order in which they are read."""
    file = McapFile(str(path), is_lenient=is_lenient)
    channels = file.channels(topic, typed=True)
    piece = Piece(str(path), "mcap", channels, tuple(file.sections(channels, ALL_TIMES)))
    return [int(time) // 1000 for samples in file.read_piece(piece, ALL_TIMES) for time in samples.log_times]


def test_a_cut_file_wherever_it_is_cut_has_the_rows_of_its_whole_chunks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As mcap's own reader of streams finds them: the messages of a chunk are there without its message indexes."""
    path = tmp_path / "a.mcap"
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=400)
        writer.start()
        channels = list(longs(writer, "abc").values())
        for i in range(60):
            add(writer, channels[i % 3], i)
        writer.finish()
    whole = path.read_bytes()
    end = whole.rindex(b"\x0f" + struct.pack("<Q", 4))
    for stop in range(whole.index(b"zstd") - 40, end + 13, 7):
        path.write_bytes(whole[:stop])
        known, records = list[int](), StreamReader(BytesIO(path.read_bytes())).records
        with suppress(McapError, struct.error):  # of the end that is not there
            known.extend(record.sequence for record in records if isinstance(record, McapMessage))
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            found = sorted(n for topic in "abc" for n in numbers(path, topic, is_lenient=True))
        assert found == known, stop
        assert "left out" in caplog.text or "it has no end" in caplog.text


def test_chunks_of_which_some_are_compressed_are_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=400)
        writer.start()
        channel = longs(writer)["t"]
        for i in range(60):
            kind = CompressionType.ZSTD if i // 12 % 2 else CompressionType.NONE
            setattr(writer, "_Writer__compression", kind)  # noqa: B010  (mcap's own has one for all)
            add(writer, channel, i)
        writer.finish()
    assert numbers(path) == list(range(60))


def test_messages_outside_and_inside_of_chunks_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=200)
        writer.start()
        channel = longs(writer)["t"]
        for i in range(30):
            # a writer may put any message where it likes
            if i % 3 == 0:
                outside(writer, channel, i)
            else:
                add(writer, channel, i)
        writer.finish()
    assert numbers(path) == list(range(30))
    assert numbers(path, is_lenient=True) == list(range(30))


def test_a_summary_that_does_not_repeat_the_schemas_has_those_of_the_chunks(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    with path.open("wb") as file:
        writer = Writer(file, repeat_schemas=False)
        writer.start()
        add(writer, longs(writer)["t"], 7)
        writer.finish()
    assert McapFile(str(path)).topics() == {"t": "P"}
    assert read(path, "t").to_pylist() == [{"x": 7}]


def test_a_damaged_recording_is_an_error_or_without_fail_on_data_loss_has_rows(
    tmp_path: Path, drive: list[Message]
) -> None:
    """Whatever byte it is that is wrong. With failOnDataLoss=false there are only rows that were recorded."""
    path = write_mcap(tmp_path / "a.mcap", of(drive, "/chatter")[:6], chunk_size=200)
    whole, rng = path.read_bytes(), random.Random(3)
    known = {m.time for m in of(drive, "/chatter")[:6]}
    found = 0
    for _ in range(400):
        at = rng.randrange(8, len(whole))
        changed = bytearray(whole)
        changed[at : at + 8] = rng.choice([b"\xff", b"\0", b"\x40", b"\xff" * 8, b"\0\0\0\x10"])
        path.write_bytes(changed)
        for is_lenient in (False, True):
            try:
                file = McapFile(str(path), is_lenient=is_lenient)
                channels = file.channels("/chatter", typed=True)
                piece = Piece(str(path), "mcap", channels, tuple(file.sections(channels, ALL_TIMES)))
                found += sum(
                    int(t) in known for each in file.read_piece(piece, ALL_TIMES) for t in each.log_times
                )
            except RecordingError:
                pass
    assert found > 400


def test_a_damaged_summary_of_a_file_that_may_lack_rows_is_not_needed(
    tmp_path: Path, drive: list[Message], caplog: pytest.LogCaptureFixture
) -> None:
    path = write_mcap(tmp_path / "a.mcap", drive)
    whole = bytearray(path.read_bytes())
    at = int.from_bytes(whole[-28:-20], "little")
    whole[at + 1 : at + 9] = b"\xff" * 8
    path.write_bytes(whole)
    with pytest.raises(RecordingError):
        read(path, "/imu")
    assert compared(read(path, "/imu", failOnDataLoss="false")) == expected(of(drive, "/imu"))
    assert "its summary is damaged" in caplog.text


def test_schemas_of_rosidl_have_typedefs_in_several_files_and_name_types_in_comments() -> None:
    """As rosbag2 concatenates the .idl files that rosidl makes: what a file includes is defined behind it."""

    def section(name: str, module: str, body: str) -> str:
        return f"{'=' * 80}\nIDL: {name}\nmodule {module} {{ module msg {{\n{body}\n}}; }};\n"

    text = section(
        "nav_msgs/msg/Odometry",
        "nav_msgs",
        '@verbatim (language="comment", text="Not a Pose; typedef char Pose[2];")\n'
        "struct Odometry { geometry_msgs::msg::PoseWithCovariance pose; "
        "geometry_msgs::msg::TwistWithCovariance twist; };",
    )
    for name, inner in (("Pose", "double x;"), ("Twist", "// unlike PoseWithCovariance\ndouble y;")):
        text += section(
            f"geometry_msgs/msg/{name}WithCovariance",
            "geometry_msgs",
            f"typedef double double__36[36];\nstruct {name}WithCovariance {{ {name} value; double__36 covariance; }};",
        )
        text += section(f"geometry_msgs/msg/{name}", "geometry_msgs", f"struct {name} {{ {inner} }};")
    struct_ = struct_of_schema("nav_msgs/msg/Odometry", "ros2idl", text, "")
    msg = "geometry_msgs/PoseWithCovariance pose\ngeometry_msgs/TwistWithCovariance twist\n" + "".join(
        f"{'=' * 80}\nMSG: geometry_msgs/{name}WithCovariance\n{name} value\nfloat64[36] covariance\n"
        f"{'=' * 80}\nMSG: geometry_msgs/{name}\nfloat64 {member}\n"
        for name, member in (("Pose", "x"), ("Twist", "y"))
    )
    assert [member.name for member in struct_.members] == ["pose", "twist"]
    # the first definition needs no heading
    assert struct_of_schema("nav_msgs/msg/Odometry", "ros2idl", text.split("\n", 2)[2], "") == struct_
    known = hash_of_schema("nav_msgs/msg/Odometry", "ros2msg", msg)
    assert known is not None and hash_of_schema("nav_msgs/msg/Odometry", "ros2idl", text) == known


def test_ros_recordings_have_the_ros_profile(tmp_path: Path) -> None:
    """Others take ``char`` for a signed number, and a file of another profile for none of ROS 2."""
    path = tmp_path / "image.mcap"
    image = ros_type("sensor_msgs/msg/Image")
    recorder = McapRecorder(str(path), is_of_ros=True)
    row = {"writer": "01020304.05060708.090a0b0c:00000103", "sequence_number": 1, "instance_state": "ALIVE"}
    value = rosbags_bytes(image, random_value(image, random.Random(1)), typestore())
    stamp = pa.array([START // 1000], pa.timestamp("us", "UTC"))
    columns = {name: pa.array([each]) for name, each in row.items()}
    columns |= {"value": pa.array([value]), "reception_timestamp": stamp, "source_timestamp": stamp}
    recorder.add_rows("rt/image", image, pa.table(columns))
    recorder.close()
    with path.open("rb") as file:
        reader = make_reader(file)
        ((schema, _, _),) = reader.iter_messages()
        assert reader.get_header().profile == "ros2"
    assert schema is not None
    assert b"uint8[] data" in schema.data and b"char" not in schema.data
    with AnyReader([path]) as bag:
        ((connection, _, raw),) = bag.messages()
        assert bytes(bag.deserialize(raw, connection.msgtype).data) == bytes(  # type: ignore[attr-defined]
            typestore().deserialize_cdr(value, "sensor_msgs/msg/Image").data  # type: ignore[attr-defined]
        )


@pytest.mark.parametrize(
    ("members", "row"),
    [
        ("@final struct T_ { long a; @optional long b; long c; };", {"a": 1, "b": None, "c": 9}),
        (
            "@final struct I_ { @optional string s; }; @final struct T_ { long a; sequence<I_> b; };",
            {"a": 1, "b": [{"s": None}, {"s": "x"}]},
        ),
        ("@mutable struct T_ { long a; double b; };", {"a": 1, "b": 2.5}),
        ("@final struct T_ { sequence<sequence<long> > a; long b; };", {"a": [[1], [2, 3]], "b": 7}),
        ("@final struct T_ { long a[2][3]; long b; };", {"a": [[1, 2, 3], [4, 5, 6]], "b": 7}),
    ],
)
@pytest.mark.parametrize("representation", XCDR)
def test_types_without_a_msg_definition_are_recorded_with_idl(
    tmp_path: Path, members: str, row: dict[str, object], representation: DataRepresentation
) -> None:
    """Rows of a topic that looks like one of ROS 2 are the rows that were recorded."""
    path, struct_ = recorded_row(tmp_path, members, row, representation)
    assert schema_of("rt/t", struct_)[1] == "omgidl"
    assert read(path, "/t").to_pylist() == [row]


@pytest.mark.parametrize("representation", XCDR)
@pytest.mark.parametrize("outer", ["final", "appendable"])
def test_types_that_may_be_extended_are_recorded_as_such(
    tmp_path: Path, outer: str, representation: DataRepresentation
) -> None:
    """XCDR2 has the size of an appendable struct before it; a .msg has no word for that."""
    idl = f"@appendable struct In_ {{ long x; string s; }}; @{outer} struct T_ {{ sequence<In_> a; double b; }};"
    row: dict[str, object] = {"a": [{"x": 1, "s": "one"}, {"x": 2, "s": ""}], "b": 3.5}
    path, struct_ = recorded_row(tmp_path, idl, row, representation)
    assert schema_of("rt/t", struct_)[1] == "ros2msg"
    assert read(path, "/t").to_pylist() == [row]


def recorded_row(
    folder: Path, idl: str, row: dict[str, object], representation: DataRepresentation
) -> tuple[Path, Struct]:
    """A file with one sample of the type T_ of ROS 2, recorded from the topic rt/t; and the type."""
    struct_ = parse_idl(f"module m {{ module msg {{ module dds_ {{ {idl} }}; }}; }};")["m::msg::dds_::T_"]
    assert isinstance(struct_, Struct)
    batch = pa.RecordBatch.from_pylist([row], schema=arrow_schema(struct_))
    value = bytes(Codec(struct_).encode_batch(batch, representation=representation).payload(0))
    stamp = pa.array([START // 1000], pa.timestamp("us", "UTC"))
    sample = {
        "writer": ["01020304.05060708.090a0b0c:00000103"],
        "sequence_number": [1],
        "instance_state": ["ALIVE"],
        "value": [value],
        "reception_timestamp": stamp,
        "source_timestamp": stamp,
    }
    path = folder / "t.mcap"
    recorder = McapRecorder(str(path))
    recorder.add_rows("rt/t", struct_, pa.table(sample))
    recorder.close()
    return path, struct_


def test_a_channel_that_is_defined_a_chunk_before_its_first_message_is_known(tmp_path: Path) -> None:
    """As recorders define topics when they see them; a file that is cut has no summary that names them."""
    path = tmp_path / "a.mcap"
    early, late = messages("/early", "std_msgs/msg/String", 3), messages("/late", "std_msgs/msg/String", 2)
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=1 << 20, use_statistics=False, repeat_channels=False)
        writer.start(profile="ros2", library="tests")
        schema = writer.register_schema("std_msgs/msg/String", "ros2msg", b"string data")
        first = writer.register_channel("/early", "cdr", schema)
        for i, given in enumerate(early):
            if i == 1:
                second = writer.register_channel("/late", "cdr", schema)
            writer.add_message(first, given.time, given.data, given.time)
            writer._Writer__finalize_chunk()  # type: ignore[attr-defined]
        for given in late:
            writer.add_message(second, given.time, given.data, given.time)
        writer.finish()
    assert compared(read(path, "/late")) == expected(late)
    path.write_bytes(path.read_bytes()[:-60])
    assert compared(read(path, "/late", failOnDataLoss="false")) == expected(late)


@pytest.mark.parametrize("name", ["b.mcap", "b.pcap", "b.db3"])
def test_an_empty_file_is_left_out_if_damage_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """As of a recorder that was killed before it wrote anything."""
    imu = messages("/imu", IMU, 3)
    write_mcap(tmp_path / "a.mcap", imu)
    (tmp_path / name).touch()
    with pytest.raises(RecordingError, match=r"it is empty|it is not a ROS 2 bag"):
        read(tmp_path, "/imu")
    assert compared(read(tmp_path, "/imu", failOnDataLoss="false")) == expected(imu)
    assert f"{name}: it is empty; left out because failOnDataLoss=false" in caplog.text
