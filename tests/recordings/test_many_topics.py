"""Several topics of a recording in one query: typed columns and ``topic``, or payloads with what their types are."""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_rtps.datasource.recording_reader import RecordingReader
from spark_rtps.datasource.recording_stream_reader import RecordingStreamReader
from spark_rtps.datasource.schema import plan_source
from spark_rtps.datasource.source import RtpsDataSource
from spark_rtps.options import AppliesTo
from spark_rtps.transport.errors import OptionError, RecordingError
from tests.recordings.recording_scene import (
    Message,
    compared,
    expected,
    messages,
    read,
    write_bag,
    write_mcap,
)
from tests.recordings.test_captures import IDL
from tests.support.pcap import CAPTURES
from tests.support.ros_oracle import typestore

IMU, STRING = "sensor_msgs/msg/Imu", "std_msgs/msg/String"
FRONT, REAR, WORDS = "/imu/front", "/imu/rear", "/words"


@pytest.fixture(scope="module")
def drive() -> list[Message]:
    """Three topics of two types, interleaved."""
    given = [
        *messages(FRONT, IMU, 40, seed=1),
        *messages(REAR, IMU, 30, seed=2),
        *messages(WORDS, STRING, 20),
    ]
    return sorted(given, key=lambda m: m.time)


@pytest.fixture(params=["mcap", "plain mcap", "db3", "older db3"])
def recording(request: pytest.FixtureRequest, tmp_path: Path, drive: list[Message]) -> Path:
    match request.param:
        case "mcap":
            return write_mcap(tmp_path / "a.mcap", drive)
        case "plain mcap":
            return write_mcap(tmp_path / "a.mcap", drive, use_chunking=False, summary=False)
        case "db3":
            return write_bag(tmp_path / "bag", drive, version=9)
    return without_definitions(write_bag(tmp_path / "bag", drive, version=9))


def without_definitions(bag: Path) -> Path:
    """The bag as ROS 2 before Iron would have written it."""
    (file,) = bag.glob("*.db3")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DROP TABLE message_definitions")
        connection.execute("ALTER TABLE topics DROP COLUMN type_description_hash")
    return bag


def of(drive: list[Message], *topics: str) -> list[Message]:
    return [m for m in drive if m.topic in topics]


def by_topic(table: pa.Table) -> dict[str, list[object]]:
    """The rows of each topic without the column that names it, in their order."""
    topics = table["topic"].to_pylist()
    rows = compared(table.drop_columns("topic"))
    return {
        each: [row for row, topic in zip(rows, topics, strict=True) if topic == each] for each in set(topics)
    }


def source(recording: Path | str, **options: str) -> RtpsDataSource:
    return RtpsDataSource({"recording": str(recording), **options})


def query(recording: Path | str, **options: str) -> list[dict[str, Any]]:
    """The rows of a batch whose columns are found out, as Spark does it."""
    found = source(recording, **options)
    schema = found.schema()
    reader = RecordingReader(
        found._settings(AppliesTo.READ),
        plan_source(found._settings(AppliesTo.READ), schema, found._topic_type),
    )
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "options", [{"subscribePattern": "/imu/.*"}, {"subscribe": f"{REAR}, {FRONT}"}], ids=str
)
def test_topics_of_one_type(recording: Path, drive: list[Message], options: dict[str, str]) -> None:
    rows = read(recording, "", **options)
    assert rows.schema.names[0] == "topic" and "orientation" in rows.schema.names
    assert by_topic(rows) == {topic: expected(of(drive, topic)) for topic in (FRONT, REAR)}
    some = read(
        recording, "", **options, columns="header", log_time="true", minPartitions="3", metadata="true"
    )
    assert some.schema.names == ["topic", "header", "_rtps", "log_time"]
    assert [(row["topic"], row["_rtps"]["topic"], row["_rtps"]["type_name"]) for row in some.to_pylist()] == [
        (topic, topic, IMU) for topic in some["topic"].to_pylist()
    ]


def test_topics_of_several_types(
    recording: Path,
    drive: list[Message],
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What a topic's type is called, and its hash: as ROS 2 has it, which no definition of older bags tells."""
    rows = query(recording, subscribePattern=".*")
    assert "they have different types, so the rows have payloads" in caplog.text
    assert list(rows[0])[:3] == ["topic", "type_name", "type_hash"] and list(rows[0])[-1] == "value"
    assert sorted((row["topic"], row["value"]) for row in rows) == sorted((m.topic, m.data) for m in drive)
    is_known = "older" not in request.node.callspec.id
    hashes = {type: typestore().hash_rihs01(type) if is_known else None for type in (IMU, STRING)}
    reported = {row["topic"]: (row["type_name"], row["type_hash"]) for row in rows}
    assert reported == {FRONT: (IMU, hashes[IMU]), REAR: (IMU, hashes[IMU]), WORDS: (STRING, hashes[STRING])}
    with pytest.raises(OptionError, match="the topics have different types, which no columns fit"):
        query(recording, subscribePattern=".*", payload="cdr")


@pytest.mark.parametrize("name", [IMU, "sensor_msgs::msg::dds_::Imu_", "sensor_msgs/Imu"])
def test_a_type_selects_topics(recording: Path, drive: list[Message], name: str) -> None:
    rows = read(recording, "", subscribePattern=".*", type=name)
    assert by_topic(rows) == {topic: expected(of(drive, topic)) for topic in (FRONT, REAR)}
    raw = read(recording, "", subscribePattern=".*", type=name, payload="binary")
    assert set(raw["topic"].to_pylist()) == {FRONT, REAR}


def test_columns_of_ones_own_read_each_topic_by_its_type(recording: Path, drive: list[Message]) -> None:
    """Samples without them are malformed."""
    schema = pa.schema([("topic", pa.string()), ("data", pa.string())])
    rows = read(recording, "", schema, subscribePattern=".*")
    assert rows.to_pylist() == [{"topic": WORDS, "data": m.value["data"]} for m in of(drive, WORDS)]


def test_hashes_that_recorders_wrote_down(tmp_path: Path, drive: list[Message]) -> None:
    reported = f"RIHS01_{'5' * 64}"
    path = write_mcap(tmp_path / "a.mcap", drive, metadata={"topic_type_hash": reported})
    assert {row["type_hash"] for row in query(path, subscribePattern=".*")} == {reported}
    path = write_mcap(tmp_path / "b.mcap", drive, metadata={"topic_type_hash": "", "rtps.type_hash": "ab"})
    assert {row["type_hash"] for row in query(path, subscribePattern=".*")} == {"ab"}


def test_definitions_that_cannot_be_read_are_in_the_way_of_columns_alone(
    tmp_path: Path, drive: list[Message]
) -> None:
    texts = {IMU: "no definition", STRING: "string data\n"}
    path = write_mcap(tmp_path / "a.mcap", drive, schemas=texts)
    rows = query(path, subscribePattern=".*")
    assert {row["type_hash"] for row in rows if row["topic"] != WORDS} == {None}
    assert {row["type_hash"] for row in rows if row["topic"] == WORDS} == {typestore().hash_rihs01(STRING)}
    assert len(query(path, subscribePattern="/w.*")) == 20
    with pytest.raises(RecordingError, match="payload=binary"):
        query(path, subscribePattern="/imu.*")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            {"subscribe": "/imu/front,/imu/reer"},
            "'subscribe' = '/imu/front,/imu/reer': the recording has no '/imu/reer'; it has '/imu/front', "
            "'/imu/rear', '/words'; did you mean '/imu/rear'",
        ),
        (
            {"subscribePattern": "imu.*"},
            "'subscribePattern' = 'imu.*': the recording has no such topic; it has",
        ),
        (
            {"subscribePattern": "/imu.*", "type": "std_msgs/msg/String"},
            "has no such topic of the type 'std_msgs::msg::dds_::String_'",
        ),
        ({"topic": "/words", "subscribePattern": ".*"}, "only one of the options"),
    ],
)
def test_topics_that_are_not_there(recording: Path, options: dict[str, str], error: str) -> None:
    with pytest.raises(OptionError) as failed:
        query(recording, **options, payload="binary")
    assert error in str(failed.value)


def test_files_come_with_other_topics(
    tmp_path: Path, drive: list[Message], caplog: pytest.LogCaptureFixture
) -> None:
    """As live: those that are selected join, and of those with another type that is said."""
    write_mcap(tmp_path / "1.mcap", of(drive, FRONT))

    def begin(**options: str) -> RecordingStreamReader:
        found = source(tmp_path, subscribePattern="/.*", **options)
        plan = plan_source(found._settings(AppliesTo.READ), found.schema(), found._topic_type)
        return RecordingStreamReader(found._settings(AppliesTo.READ), plan)

    def topics(reader: RecordingStreamReader, start: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        parts = reader.partitions(start, end)
        found = [
            t for part in parts for batch in reader.read(part) for t in batch.column("topic").to_pylist()
        ]
        return end, found

    typed, raw = begin(), begin(payload="binary")
    ends = {}
    for reader in (typed, raw):
        ends[reader], found = topics(reader, reader.initialOffset())
        assert found == [FRONT] * 40
    write_bag(tmp_path / "bag", of(drive, REAR, WORDS))
    (file,) = (tmp_path / "bag").glob("*.db3")
    file.rename(tmp_path / "2.db3")
    assert sorted(topics(raw, ends[raw])[1]) == [REAR] * 30 + [WORDS] * 20
    assert topics(typed, ends[typed])[1] == [REAR] * 30
    assert (
        "topic '/words' is selected by '/.*', but not read: its type is 'std_msgs/msg/String'" in caplog.text
    )


# --- captures --------------------------------------------------------------------------------------------


def merged(path: Path, *names: str) -> Path:
    """One capture of what several have, in the order of their times."""
    records = []
    for name in names:
        data, at = (CAPTURES / f"{name}.pcap").read_bytes(), 24
        while at < len(data):
            seconds, micros, size, _ = struct.unpack_from("<IIII", data, at)
            records.append((seconds, micros, data[at : at + 16 + size]))
            at += 16 + size
    path.write_bytes(data[:24] + b"".join(record for *_, record in sorted(records)))
    return path


def test_topics_of_a_capture(tmp_path: Path) -> None:
    """Each sample of each topic, with what its writer told of its type; Fast DDS told the name alone."""
    names = {"lab_Rich": "c01_py_rich_final_xcdr1", "lab_Small": "c09_py_small_besteffort"}
    both = merged(tmp_path / "a.pcap", *names.values())
    rows = query(both, subscribePattern="lab_.*")
    for topic, name in names.items():
        alone = read(CAPTURES / f"{name}.pcap", topic, payload="binary").to_pylist()
        assert alone
        found = [row for row in rows if row["topic"] == topic]
        assert [{k: v for k, v in row.items() if not k.startswith("type_")} for row in found] == alone
    reported = {row["topic"]: (row["type_name"], len(row["type_hash"])) for row in rows}
    assert reported == {"lab_Rich": ("lab::Rich", 28), "lab_Small": ("lab::Small", 28)}
    silent = query(CAPTURES / "f02_rich_notypeinfo.pcap", subscribe="lab_Rich", payload="binary")
    assert {(row["type_name"], row["type_hash"]) for row in silent} == {("lab::Rich", None)}
    idl = tmp_path / "lab.idl"
    idl.write_text(IDL)
    given = {"type": "lab::Rich", "type.file": str(idl)}
    rich = query(both, subscribePattern="lab_.*", **given)
    assert list(rich[0])[:3] == ["topic", "id", "name"] and {row.pop("topic") for row in rich} == {"lab_Rich"}
    assert rich == query(CAPTURES / "c01_py_rich_final_xcdr1.pcap", topic="lab_Rich", **given)
    with pytest.raises(
        OptionError, match=r"not hold the type of 'lab_Rich' .*; give it, or read payload=binary"
    ):
        query(both, subscribe="lab_Rich")


def test_writers_of_another_type_are_not_read_from_a_capture(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two writers of one topic call its type by different names, of which one is asked for: as from other files."""
    mine, other = "c01_py_rich_final_xcdr1", "c02_c_rich_final_xcdr1"
    both, renamed = merged(tmp_path / "a.pcap", mine), (CAPTURES / f"{other}.pcap").read_bytes()
    both.write_bytes(both.read_bytes() + renamed[24:].replace(b"lab::Rich\0", b"lab::Poor\0"))
    idl = tmp_path / "lab.idl"
    idl.write_text(IDL)
    given = {"type": "lab::Rich", "type.file": str(idl)}
    wanted = query(CAPTURES / f"{mine}.pcap", subscribe="lab_Rich", **given)
    caplog.clear()
    assert wanted and query(both, subscribe="lab_Rich", **given) == wanted
    assert query(both, subscribePattern="lab_.*", **given) == wanted
    assert "its type is 'lab::Poor', and that of the columns is 'lab::Rich'" in caplog.text
    assert "missing in the capture" not in caplog.text
    raw = query(both, subscribe="lab_Rich", payload="binary")
    assert {row["type_name"] for row in raw} == {"lab::Rich", "lab::Poor"}
    assert sum(row["type_name"] == "lab::Rich" for row in raw) == len(wanted)
