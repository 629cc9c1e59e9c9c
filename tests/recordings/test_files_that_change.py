"""Streams of recordings that grow, are replaced or removed: each sample once, and what is missing is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_rtps.datasource.recording_stream_reader import RecordingStreamReader
from spark_rtps.transport.errors import RecordingError
from tests.recordings.recording_scene import Message, messages, plan_of, settings, write_bag, write_mcap
from tests.recordings.test_captures import expected, idl  # noqa: F401
from tests.support.pcap import CAPTURES

IMU = "sensor_msgs/msg/Imu"


def stream_of(folder: Path, topic: str, **options: str) -> RecordingStreamReader:
    given = settings(folder, topic, **options)
    return RecordingStreamReader(given, plan_of(given))


def end_of(reader: RecordingStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def rows(reader: RecordingStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    parts = reader.partitions(start, end)
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "name",
    ["c12_py_small_dispose", "l01_cyc_small_loss15", "l02_cyc_blob_nackfrag_loss10", "l09_cyc_batch_loss20"],
)
@pytest.mark.parametrize("cuts", [1, 3, 7])
def test_a_capture_that_grows_gives_each_sample_once(
    tmp_path: Path,
    idl: Path,  # noqa: F811
    name: str,
    cuts: int,
) -> None:
    """tcpdump writes into the folder that is watched: a cut may lie within a packet, or behind samples that wait."""
    samples = expected(name)
    type = next(iter(samples.values()))["type"]
    options = {"type": type, "type__file": str(idl), "metadata": "true"}
    reader = stream_of(tmp_path, type.replace("::", "_"), **options)
    data, path, found = (CAPTURES / f"{name}.pcap").read_bytes(), tmp_path / "a.pcap", list[tuple[str, int]]()
    at = reader.initialOffset()
    for i in range(1, cuts + 2):
        path.write_bytes(data[: len(data) * i // (cuts + 1)])
        end = end_of(reader, at)
        if i % 2:  # tasks run later, and again
            path.write_bytes(data[: len(data) * (i + 1) // (cuts + 1)])
        reported = rows(reader, at, end)
        assert rows(reader, at, end) == reported
        found += [
            (r["_rtps"]["writer"].replace(".", "").replace(":", ""), r["_rtps"]["sequence_number"])
            for r in reported
        ]
        at = end
    assert sorted(found) == sorted(samples)


def drive(path: Path, count: int, seed: int = 1) -> list[Message]:
    found = messages("/imu", IMU, count, seed=seed)
    if path.suffix == ".mcap":
        write_mcap(path, found)
    else:
        path.unlink(missing_ok=True)
        folder = write_bag(path.with_name(f"bag{seed}_{count}"), found)
        next(folder.glob("*.db3")).rename(path)
    return found


@pytest.mark.parametrize(("name", "count"), [("1.mcap", 20), ("1.mcap", 199), ("1.mcap", 400), ("1.db3", 20)])
def test_a_file_replaced_between_plan_and_read_is_an_error(
    tmp_path: Path, name: str, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / name
    drive(path, 200)
    reader = stream_of(tmp_path, "/imu", type=IMU)
    start = reader.initialOffset()
    end = end_of(reader, start)
    drive(path, count, seed=5)
    with pytest.raises(RecordingError, match="replaced or shortened before it was read"):
        stream_of(tmp_path, "/imu", type=IMU).partitions(start, end)
    lenient = stream_of(tmp_path, "/imu", type=IMU, failOnDataLoss="false")
    assert lenient.partitions(start, end) == []
    assert f"{name}: it was replaced or shortened before it was read; continuing without it" in caplog.text
    later = end_of(lenient, end)
    assert later == end  # a file is read once, by its name
    assert drive(tmp_path / f"2{path.suffix}", 30, seed=6)
    assert len(rows(lenient, later, end_of(lenient, later))) == 30


def test_a_bag_that_grows_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "1.db3"
    first = drive(path, 50)
    reader = stream_of(tmp_path, "/imu", type=IMU)
    start = reader.initialOffset()
    end = end_of(reader, start)
    assert drive(path, 70, seed=1)[:50] == first
    assert len(rows(reader, start, end)) == 50
    assert len(rows(reader, end, end_of(reader, end))) == 20


def test_a_file_that_is_removed_before_its_task_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "1.mcap"
    drive(path, 20)
    for fail in ("true", "false"):
        drive(path, 20)
        reader = stream_of(tmp_path, "/imu", type=IMU, failOnDataLoss=fail)
        start = reader.initialOffset()
        (part,) = reader.partitions(start, end_of(reader, start))
        path.unlink()
        if fail == "true":
            with pytest.raises(RecordingError, match="cannot be read: No such file"):
                list(reader.read(part))
        else:
            assert list(reader.read(part)) == []
            assert "1.mcap: it was removed before it was read; continuing without it" in caplog.text
