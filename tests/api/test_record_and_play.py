"""``spark-rtps record`` and ``play`` on loopback: what was written is recorded, and comes again in its own time."""

from __future__ import annotations

import struct
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from mcap.reader import make_reader
from mcap.writer import Writer
from rosbags.highlevel import AnyReader
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from typer.testing import CliRunner

import spark_rtps as rtps
from spark_rtps.cli import app
from spark_rtps.recordings.mcap_writing import McapRecorder, schema_of
from spark_rtps.transport.net.directory import type_hash
from spark_rtps.transport.types.arrow import arrow_schema
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.ros import parse_msg, ros_type
from tests.recordings.recording_scene import compared, expected, messages, read, write_mcap
from tests.support import domains
from tests.support.ros_oracle import typestore
from tests.support.waiting import wait_until

NETWORK = domains.PYTHON_API[-1]
IMU = "sensor_msgs/msg/Imu"
EMPTY = [("structure_needs_at_least_one_member", (Nodetype.BASE, ("uint8", 0)))]
HERE = ["--domain", str(NETWORK), "--interface", "lo"]
KEYED = pa.schema([pa.field("id", pa.int32(), nullable=False), pa.field("text", pa.string(), nullable=False)])


@pytest.fixture
def ours() -> rtps.Participant:  # type: ignore[misc]
    with rtps.Participant(domain=NETWORK, interface="lo") as participant:
        yield participant


def test_recorded_samples_are_played_again(ours: rtps.Participant, tmp_path: Path) -> None:
    imu = messages("/imu", IMU, 40)
    drive = write_mcap(tmp_path / "drive.mcap", imu)
    rows = read(drive, "/imu")
    path = tmp_path / "again.mcap"
    writers = {
        "rt/imu": ours.publish("rt/imu", type=IMU),
        "Alerts": ours.publish("Alerts", schema=KEYED, key="id", options={"nullable": "required"}),
    }
    alerts = [{"id": i % 3, "text": f"alert {i}"} for i in range(20)]
    ended = threading.Event()

    def write() -> None:
        for writer in writers.values():
            assert writer.wait_for_readers(30)
        writers["rt/imu"].write(rows)
        writers["Alerts"].write(alerts)
        ended.set()

    thread = threading.Thread(target=write)
    thread.start()
    result = CliRunner().invoke(app, ["record", "rt/imu", "Alerts", "-o", str(path), "-n", "60", *HERE])
    thread.join()
    assert result.exit_code == 0, result.output
    assert ended.is_set()
    assert compared(read(path, "/imu")) == expected(imu)
    assert read(path, "Alerts").to_pylist() == alerts
    first = read(path, "Alerts", metadata="true")["_rtps"][0].as_py()
    assert (first["writer"], first["sequence_number"]) == (writers["Alerts"].guid, 1)
    reported = {
        row["topic"]: (row["type_name"], row["type_hash"])
        for row in read(path, "", subscribePattern=".*", payload="binary").to_pylist()
    }
    with rtps.Participant(domain=NETWORK, interface="lo") as other:
        wait_until(lambda: len(other.endpoints()) == 2, "both writers")
        announced = {each.topic: type_hash(each) for each in other.endpoints()}
    assert reported == {"/imu": (IMU, announced["rt/imu"]), "Alerts": ("Alerts", announced["Alerts"])}
    assert announced["Alerts"]
    with path.open("rb") as file:  # as others read it
        kinds = {(s.name, s.encoding) for s, _, _ in make_reader(file).iter_messages() if s}
    assert kinds == {(IMU, "ros2msg"), ("Alerts", "omgidl")}

    received = [ours.subscribe("rt/imu", type=IMU), ours.subscribe("Alerts", schema=KEYED, key="id")]
    for writer in writers.values():
        writer.close()
    result = CliRunner().invoke(app, ["play", str(path), "--wait", "30s", *HERE])
    assert result.exit_code == 0, result.output
    assert compared(received[0].take(max_rows=40, timeout=30)) == expected(imu)
    assert received[1].take(max_rows=20, timeout=30).to_pylist() == alerts
    assert "60 samples of 2 topics" in result.output


def test_a_type_of_another_distribution_is_recorded_as_it_is_there(
    ours: rtps.Participant, tmp_path: Path
) -> None:
    """Jazzy's Range has one member more than Humble's."""
    path, kind = tmp_path / "sonar.mcap", "sensor_msgs/msg/Range"
    options = {"type.ros_distribution": "humble", "type.announce": "false"}
    writer = ours.publish("rt/sonar", type=kind, options=options)
    row = dict.fromkeys(("radiation_type", "field_of_view", "min_range", "max_range", "range"), 0)
    row |= {"header": {"stamp": {"sec": 1, "nanosec": 2}, "frame_id": "base"}, "range": 3.0}  # type: ignore[dict-item]

    def write() -> None:
        assert writer.wait_for_readers(30)
        writer.write([row], wait=False)  # the command leaves when it has the row

    thread = threading.Thread(target=write)
    thread.start()
    command = ["record", "rt/sonar", "-o", str(path), "-n", "1", "-w", "1s", *HERE]
    result = CliRunner(env={"ROS_DISTRO": "humble"}).invoke(app, command)
    thread.join()
    assert result.exit_code == 0, result.output
    assert read(path, "/sonar")["range"].to_pylist() == [3.0]
    with path.open("rb") as file:
        ((schema, _, _),) = make_reader(file).iter_messages()
    assert schema is not None and b"variance" not in schema.data


def test_play_keeps_the_time(ours: rtps.Participant, tmp_path: Path) -> None:
    drive = write_mcap(
        tmp_path / "drive.mcap", messages("/chatter", "std_msgs/msg/String", 11, step=100_000_000)
    )
    received = ours.subscribe("rt/chatter", type="std_msgs/msg/String", metadata=True)
    begin = time.monotonic()
    result = CliRunner().invoke(app, ["play", str(drive), "--rate", "4", "--wait", "30s", *HERE])
    assert result.exit_code == 0, result.output
    stamps = received.take(max_rows=11, timeout=30)["_rtps"].combine_chunks().field("source_timestamp")
    seconds = (stamps[-1].as_py() - stamps[0].as_py()).total_seconds()
    assert 0.24 < seconds < time.monotonic() - begin


def test_a_file_without_an_end_is_played_if_asked_for(ours: rtps.Participant, tmp_path: Path) -> None:
    drive = write_mcap(tmp_path / "drive.mcap", messages("/chatter", "std_msgs/msg/String", 11))
    drive.write_bytes(drive.read_bytes()[:-1])
    result = CliRunner().invoke(app, ["play", str(drive), *HERE])
    assert "it has no end" in str(result.exception)
    received = ours.subscribe("rt/chatter", type="std_msgs/msg/String")
    command = ["play", str(drive), "--wait", "30s", "--no-fail-on-data-loss", *HERE]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert received.take(max_rows=11, timeout=30).num_rows == 11


def test_recorded_bytes_are_played_to_readers_of_either_durability(
    ours: rtps.Participant, tmp_path: Path
) -> None:
    """Also those that do not decode: a string in Latin-1 is a sample of whoever wrote it."""
    path, values = tmp_path / "texts.mcap", []
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        schema = writer.register_schema("Text", "omgidl", b"@final struct Text { string s; };")
        channel = writer.register_channel("Texts", "cdr", schema)
        for i, text in enumerate((b"ok.", b"caf\xe9...", b"yes")):
            values.append(b"\0\1\0\0" + struct.pack("<I", len(text) + 1) + text + b"\0")
            writer.add_message(channel, 1_000_000 * i, values[-1], 0, i)
        writer.finish()
    received = [
        ours.subscribe("Texts", type="Text", payload="binary", durability=durability)
        for durability in ("transient_local", "volatile")
    ]
    result = CliRunner().invoke(app, ["play", str(path), "--wait", "30s", *HERE])
    assert result.exit_code == 0, result.output
    for each in received:
        assert each.take(max_rows=3, timeout=30)["value"].to_pylist() == values
    assert "3 samples of 1 topics" in result.output


def test_a_keyed_topic_with_the_names_of_ros_is_played_to_keyed_readers(
    ours: rtps.Participant, tmp_path: Path
) -> None:
    """Its schema is a .msg, which defines no key, for the tools of ROS 2; these read it as before."""
    idl, path = tmp_path / "k.idl", tmp_path / "k.mcap"
    idl.write_text("module m{module msg{module dds_{@final struct K_{@key long id; string s;};};};};")
    struct_ = parse_idl(idl.read_text())["m::msg::dds_::K_"]
    rows = [{"id": i % 2, "s": f"row {i}"} for i in range(5)]
    encoded = Codec(struct_).encode_batch(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(struct_)))
    stamps = pa.array(range(1, 6), pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    samples = {
        "writer": ["01020304.05060708.090a0b0c:00000102"] * 5,
        "sequence_number": range(1, 6),
        "instance_state": ["ALIVE"] * 5,
        "value": [bytes(encoded.payload(i)) for i in range(5)],
        "reception_timestamp": stamps,
        "source_timestamp": stamps,
    }
    recorder = McapRecorder(str(path), is_of_ros=True)
    recorder.add_rows("rt/k", struct_, pa.table({name: pa.array(each) for name, each in samples.items()}))
    recorder.close()
    received = ours.subscribe("rt/k", type="m::msg::dds_::K_", type_file=idl)
    result = CliRunner().invoke(app, ["play", str(path), "--wait", "10s", *HERE])
    assert result.exit_code == 0, result.output
    assert received.take(max_rows=5, timeout=10).to_pylist() == rows
    with AnyReader([path]) as bag:
        found = [bag.deserialize(raw, connection.msgtype) for connection, _, raw in bag.messages()]
    assert [{"id": each.id, "s": each.s} for each in found] == rows  # type: ignore[attr-defined]


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path, ours: rtps.Participant) -> None:
    path = tmp_path / "there.mcap"
    path.write_text("mine")
    with ours.publish("Numbers", schema=KEYED) as _:
        result = CliRunner().invoke(app, ["record", "Numbers", "-o", str(path), "-n", "1", *HERE])
    assert "there.mcap: it cannot be written: File exists" in str(result.exception)
    assert path.read_text() == "mine"


def test_schemas_of_ros_are_what_rosbags_reads() -> None:
    for type in sorted(typestore().fielddefs):
        if type.split("/")[1] != "msg":
            continue
        name, encoding, text = schema_of("rt/x", ros_type(type))
        assert (name, encoding) == (type, "ros2msg")
        assert parse_msg(text, type) == ros_type(type)
        store = get_typestore(Stores.EMPTY)
        store.register(get_types_from_msg(text, type))
        # char is an uint8 to ROS 2
        known = (
            str(typestore().fielddefs[type][1] or EMPTY)
            .replace("'char'", "'uint8'")
            .replace("'byte'", "'uint8'")
        )
        assert (
            str(store.fielddefs[type][1]).replace("'char'", "'uint8'").replace("'byte'", "'uint8'") == known
        )
