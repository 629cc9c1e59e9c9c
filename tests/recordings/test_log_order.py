"""Samples of recordings in the order of their log times, whatever order the files have them in."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from mcap.writer import CompressionType, Writer

from spark_rtps.recordings.files import open_recording
from spark_rtps.recordings.log_order import in_log_order
from spark_rtps.recordings.recorded_topic import TopicFile
from tests.recordings.recording_scene import START, STEP, messages, write_bag

SECOND = 1_000_000_000


def opened(*paths: Path, topics: str = "ab") -> list[TopicFile]:
    found = []
    for path in paths:
        file = open_recording(str(path))
        channels = tuple(c for topic in topics for c in file.channels(topic, typed=False))
        found.append(TopicFile(file, str(path), channels, 0))
    return found


def written(path: Path, rows: list[tuple[int, int, int]], **how: object) -> Path:
    """An MCAP file of (channel, time, number): channels 0 and 1 are of two writers of topic a, channel 2 of topic b."""
    with path.open("wb") as file:
        writer = Writer(file, **how)
        writer.start()
        schema = writer.register_schema("P", "omgidl", b"@final struct P { long x; };")
        channels = [
            writer.register_channel(
                topic, "cdr", schema, {"rtps.writer": f"01020304.05060708.090a0b0c:0000{i}103"}
            )
            for i, topic in enumerate("aab")
        ]
        for channel, time, number in rows:
            data = b"\0\1\0\0" + struct.pack("<i", number)
            writer.add_message(channels[channel], time, data, time, number)
        writer.finish()
    return path


def numbers(files: list[TopicFile]) -> list[tuple[str, int]]:
    return [
        (each.topic, struct.unpack("<4xi", data)[0]) for each in in_log_order(files) for data in each.payloads
    ]


@pytest.mark.parametrize("chunk_size", [100, 1000, 1 << 20])
@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.ZSTD])
def test_samples_of_several_writers_come_in_the_order_of_their_times(
    tmp_path: Path, compression: CompressionType, chunk_size: int
) -> None:
    rows = [(i % 3, SECOND + i * 5_000_000, i) for i in range(120)]
    path = written(tmp_path / "a.mcap", rows, chunk_size=chunk_size, compression=compression)
    assert numbers(opened(path)) == [("b" if i % 3 == 2 else "a", i) for i in range(120)]


def test_chunks_that_overlap_in_time_and_files_that_do_are_merged(tmp_path: Path) -> None:
    rng = random.Random(5)
    rows = [(i % 3, SECOND + i * 5_000_000, i) for i in range(200)]
    mixed = sorted(rows, key=lambda row: row[2] + rng.uniform(0, 15))
    first = written(tmp_path / "1.mcap", mixed[:90], chunk_size=200)
    second = written(tmp_path / "2.mcap", mixed[90:], chunk_size=300)
    assert [number for _, number in numbers(opened(first, second))] == list(range(200))


@pytest.mark.parametrize("topics", ["a", "b", "ab"])
def test_a_topic_that_begins_late_in_a_chunk_comes_in_order(tmp_path: Path, topics: str) -> None:
    """The last chunk is the last one that begins, and what is wanted of it comes before most of the others."""
    first = [(2, 0)]  # with the schema and the channels; then three samples in each chunk
    others = [(2, 1), (0, 90), (0, 95), (2, 10), (0, 20), (0, 30), (2, 12), (0, 80), (0, 81)]
    last = [(2, 15), (0, 25), (0, 26)]
    at = [(*each, number) for number, each in enumerate([*first, *others, *last])]
    rows = [(channel, SECOND * (1 + time), number) for channel, time, number in at]
    path = written(tmp_path / "a.mcap", rows, chunk_size=100)
    channels = {"a": (0, 1), "b": (2,), "ab": (0, 1, 2)}[topics]
    wanted = [number for channel, _, number in sorted(rows, key=lambda row: row[1]) if channel in channels]
    assert [number for _, number in numbers(opened(path, topics=topics))] == wanted


def test_samples_of_one_topic_within_a_millisecond_come_together(tmp_path: Path) -> None:
    rows = [(i % 2, SECOND + i * 100_000, i) for i in range(40)]
    found = list(in_log_order(opened(written(tmp_path / "a.mcap", rows))))
    assert [len(each.payloads) for each in found] == [11, 11, 11, 7]
    assert [each.time for each in found] == [SECOND + i * 1_100_000 for i in range(4)]


def test_messages_without_chunks_and_those_of_bags_come_in_order_too(tmp_path: Path) -> None:
    rows = [(i % 3, SECOND + i * 5_000_000, i) for i in range(120)]
    path = written(tmp_path / "a.mcap", rows, use_chunking=False)
    assert [number for _, number in numbers(opened(path))] == list(range(120))
    texts = [
        *messages("/a", "std_msgs/msg/String", 20, seed=1, step=2 * STEP),
        *messages("/b", "std_msgs/msg/String", 20, seed=2, step=2 * STEP, start=START + STEP),
    ]
    bag = write_bag(tmp_path / "bag", sorted(texts, key=lambda m: m.time))
    (db3,) = bag.glob("*.db3")
    file = open_recording(str(db3))
    channels = tuple(c for topic in ("/a", "/b") for c in file.channels(topic, typed=False))
    found = list(in_log_order([TopicFile(file, str(db3), channels, 0)]))
    assert [each.time for each in found] == sorted(m.time for m in texts)
    assert [data for each in found for data in each.payloads] == [
        m.data for m in sorted(texts, key=lambda m: m.time)
    ]
