"""Recordings for tests: messages serialized by rosbags, in MCAP files by mcap's own writer and in bags by rosbags'."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from mcap.writer import CompressionType, IndexType, Writer
from rosbags.rosbag2 import StoragePlugin
from rosbags.rosbag2 import Writer as BagWriter

from spark_rtps.columns.topic_plan import TopicPlan, plan_reading, schema_to_read
from spark_rtps.datasource.recording_reader import partitions_of, times_of, type_of_recording
from spark_rtps.options import AppliesTo, Settings, parse_options
from spark_rtps.recordings.files import recording_files
from spark_rtps.recordings.rows import decode_piece
from spark_rtps.transport.types.ros import ros_type
from tests.support.ros_oracle import from_rosbags, random_value, rosbags_bytes, typestore

START = 1_700_000_000_000_000_000
STEP = 5_000_000


@dataclass(frozen=True, slots=True)
class Message:
    topic: str
    type: str
    time: int
    value: Any
    data: bytes


def messages(
    topic: str, type: str, count: int, *, seed: int = 1, start: int = START, step: int = STEP
) -> list[Message]:
    """Random messages of a ROS 2 type, a step of time apart."""
    rng, struct, store = random.Random(seed), ros_type(type), typestore()
    found = []
    for i in range(count):
        value = random_value(struct, rng)
        data = rosbags_bytes(struct, value, store)
        found.append(Message(topic, type, start + i * step, value, data))
    return found


def rosbags_values(given: Iterable[Message]) -> list[Any]:
    """The values that rosbags' own deserializer finds in the bytes."""
    store = typestore()
    return [from_rosbags(ros_type(m.type), store.deserialize_cdr(m.data, m.type)) for m in given]


def definition(type: str) -> str:
    """A type as rosbag2 writes it into MCAP files: with all that it uses."""
    text, _ = typestore().generate_msgdef(type, ros_version=2)
    return str(text)


def write_mcap(
    path: Path,
    given: Iterable[Message],
    *,
    compression: CompressionType = CompressionType.ZSTD,
    chunk_size: int = 4096,
    index_types: IndexType = IndexType.ALL,
    use_chunking: bool = True,
    encoding: str = "ros2msg",
    schemas: dict[str, str] | None = None,
    metadata: dict[str, str] | None = None,
    summary: bool = True,
) -> Path:
    with path.open("wb") as file:
        writer = Writer(
            file,
            chunk_size=chunk_size,
            compression=compression,
            index_types=index_types,
            use_chunking=use_chunking,
            use_statistics=summary,
            repeat_channels=summary,
            repeat_schemas=summary,
            use_summary_offsets=summary,
        )
        writer.start(profile="ros2", library="tests")
        channels: dict[str, int] = {}
        for i, m in enumerate(given):
            if m.topic not in channels:
                text = schemas[m.type] if schemas else definition(m.type)
                schema = writer.register_schema(m.type, encoding, text.encode())
                channels[m.topic] = writer.register_channel(m.topic, "cdr", schema, metadata or {})
            writer.add_message(channels[m.topic], m.time, m.data, m.time - 1_000, i + 1)
        writer.finish()
    return path


def write_bag(path: Path, given: Sequence[Message], *, version: int = 9) -> Path:
    """A bag in SQLite, as a folder."""
    with BagWriter(path, version=version, storage_plugin=StoragePlugin.SQLITE3) as writer:
        connections = {
            topic: writer.add_connection(topic, type, typestore=typestore())
            for topic, type in dict.fromkeys((m.topic, m.type) for m in given)
        }
        for m in given:
            writer.write(connections[m.topic], m.time, m.data)
    return path


def settings(recording: Path | str, topic: str, **options: str) -> Settings:
    """Options of a query; ``topic`` may be empty where others name topics."""
    given = {name.replace("__", "."): value for name, value in options.items()}
    named = {"path": topic} if topic else {}
    return parse_options({"recording": str(recording), **named, **given}, AppliesTo.READ)


def plan_of(given: Settings, schema: pa.Schema | None = None) -> TopicPlan:
    found = type_of_recording(given) if schema is None else None
    return plan_reading(given, schema_to_read(given, found) if schema is None else schema, found)


def read(recording: Path | str, topic: str, schema: pa.Schema | None = None, **options: str) -> pa.Table:
    """What a query reads, all partitions one after the other."""
    given = settings(recording, topic, **options)
    plan = plan_of(given, schema)
    parts = partitions_of(recording_files(given.recording), given, plan, times_of(given))
    lenient = not given.fail_on_data_loss
    batches = [b for part in parts for b in decode_piece(part.piece, plan, part.times, is_lenient=lenient)]
    return pa.Table.from_batches(batches, schema=plan.columns)


def compared(table: pa.Table) -> list[object]:
    """Rows as values that can be compared: of floats that are not numbers, too."""
    return [_plain(row) for row in table.to_pylist()]


def expected(given: Iterable[Message]) -> list[object]:
    """What rosbags decodes, as :func:`compared` has it."""
    return [_plain(value) for value in rosbags_values(given)]


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return repr(value)
