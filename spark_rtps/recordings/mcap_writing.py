"""MCAP files of topics: one channel for each writer of a topic, with the topic's type as its schema.

A topic of ROS 2 is recorded as ROS 2's own tools do it (``/imu``, ``ros2msg``), any other one under its DDS name with
its type in IDL (``omgidl``), so that Foxglove, PlotJuggler and ``ros2 bag`` open the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from ..transport.errors import RecordingError
from ..transport.types.idl.printer import print_idl
from ..transport.types.model import (
    Array,
    Extensibility,
    Primitive,
    Sequence,
    String,
    Struct,
    Type,
    WString,
    traverse,
)
from ..transport.types.ros import PRIMITIVES
from ..transport.types.ros_names import ros_type_name
from .mcap_file import HASH_KEY, IDL_KEY, ROS_HASH_KEY, WRITER_KEY
from .recorded import needed

#: ROS 2's prefix of topic names in DDS.
_ROS_PREFIX: Final = "rt/"
#: The prefix of ROS 2's type hashes.
_ROS_HASH: Final = "RIHS"
#: ROS 2's `char` is an uint8 whose name others take for a signed number.
_NAMES: Final = {kind: name for name, kind in reversed(PRIMITIVES.items()) if name != "char"}
#: Encoding of the schemas of ROS 2's topics.
ROS_MSG: Final = "ros2msg"
_LINE: Final = "=" * 80


def recorded_name(topic: str, struct: Struct) -> str:
    """The name of a topic in a recording: /imu for rt/imu of ROS 2."""
    return f"/{topic.removeprefix(_ROS_PREFIX)}" if is_of_ros(topic, struct) else topic


def is_of_ros(topic: str, struct: Struct) -> bool:
    """Whether a topic is one of ROS 2, by its name and its type's."""
    return topic.startswith(_ROS_PREFIX) and "::dds_::" in struct.name


def schema_of(topic: str, struct: Struct) -> tuple[str, str, str]:
    """Name, encoding and text of the schema for a topic's type."""
    if is_of_ros(topic, struct):
        try:
            return ros_type_name(struct.name), ROS_MSG, _msg_text(struct)
        except KeyError:
            pass  # a .msg cannot express it
    return struct.name, "omgidl", print_idl(struct)


def _msg_text(struct: Struct) -> str:
    """The type as a .msg, followed by the types that it uses. Raises KeyError if a .msg cannot express it."""
    texts: dict[str, str] = {}

    def add(t: Struct) -> None:
        if t.extensibility is Extensibility.MUTABLE or any(member.optional for member in t.members):
            raise KeyError(t)  # its samples have headers of members
        name = ros_type_name(t.name)
        if name not in texts:
            texts[name] = ""
            lines = [f"{_ros_name(member.type, add)} {member.name}\n" for member in t.members]
            texts[name] = "".join(lines)

    add(struct)
    own, *others = texts
    parts = (f"{_LINE}\nMSG: {name.replace('/msg/', '/')}\n{texts[name]}" for name in others)
    return "".join((texts[own], *parts))


def _is_final(struct: Struct) -> bool:
    return all(
        inner.extensibility is Extensibility.FINAL for inner in traverse(struct) if isinstance(inner, Struct)
    )


def _ros_name(t: Type, add: Any) -> str:
    if isinstance(t, Primitive):
        return _NAMES[t.kind]
    if isinstance(t, String | WString):
        name = "string" if isinstance(t, String) else "wstring"
        return f"{name}<={t.bound}" if t.bound else name
    if isinstance(t, Sequence | Array) and isinstance(t.element, Sequence | Array):
        raise KeyError(t)
    if isinstance(t, Sequence):
        return f"{_ros_name(t.element, add)}[{f'<={t.bound}' if t.bound else ''}]"
    if isinstance(t, Array) and len(t.dimensions) == 1:
        return f"{_ros_name(t.element, add)}[{t.length}]"
    if isinstance(t, Struct):
        add(t)
        return ros_type_name(t.name).replace("/msg/", "/")
    raise KeyError(t)


class McapRecorder:
    """An MCAP file that is being written; it must be closed, or it has no end."""

    def __init__(
        self, path: str, hash_of: Callable[[str], str | None] = lambda _: None, *, is_of_ros: bool = False
    ) -> None:
        """``hash_of`` gives the type hash that a writer announces; ``is_of_ros``: all topics are ROS 2's.

        Raises RecordingError if the file cannot be written, or mcap is not installed.
        """
        needed("mcap", path)
        needed("zstandard", path)
        from mcap.writer import Writer

        try:
            self._file = Path(path).open("xb")  # noqa: SIM115  (close() closes it)
        except OSError as error:
            raise RecordingError(f"it cannot be written: {error.strerror or error}", path=path) from None
        self._path = path
        self._hash_of = hash_of
        self._writer = Writer(self._file)
        # readers of ROS 2's files, such as rosbags, refuse those without its profile
        self._writer.start(profile="ros2" if is_of_ros else "", library="spark-rtps")
        self._schemas: dict[Struct, tuple[int, str]] = {}
        self._channels: dict[tuple[str, str], int] = {}
        self.samples = self.nbytes = 0

    def add_rows(self, topic: str, struct: Struct, rows: pa.Table) -> None:
        """Record samples: rows of ``payload=binary``. Ends of instances, which MCAP cannot represent, are left out.

        Raises RecordingError if the file cannot be written, as on a full disk; so do :meth:`flush` and :meth:`close`.
        """
        with self._announced():
            self._add(topic, struct, rows)

    def flush_chunks(self) -> None:
        """Write the added samples: they can be read (failOnDataLoss=false) even if the file is never closed."""
        with self._announced():
            self._writer.flush()

    def close(self) -> None:
        with self._announced(), self._file:
            self._writer.finish()

    @contextmanager
    def _announced(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = f"it cannot be written to its end: {error.strerror or error}"
            fix = "failOnDataLoss=false reads what it has"
            raise RecordingError(f"{why}; {fix}", path=self._path) from None

    def _add(self, topic: str, struct: Struct, rows: pa.Table) -> None:
        times = [_nanoseconds(rows[name]) for name in ("reception_timestamp", "source_timestamp")]
        columns = [
            rows[name].to_pylist() for name in ("writer", "sequence_number", "instance_state", "value")
        ]
        for log_time, source_time, writer, sn, state, value in zip(*times, *columns, strict=True):
            if state != "ALIVE" or not value:
                continue
            channel = self._channel(topic, struct, writer)
            publish_time = log_time if source_time is None else source_time
            self._writer.add_message(channel, log_time, value, publish_time, sn & 0xFFFF_FFFF)
            self.samples += 1
            self.nbytes += len(value)

    def _channel(self, topic: str, struct: Struct, writer: str) -> int:
        found = self._channels.get((topic, writer))
        if found is None:
            if struct not in self._schemas:
                name, encoding, text = schema_of(topic, struct)
                id = self._writer.register_schema(name, encoding, text.encode())
                self._schemas[struct] = id, encoding
            schema, encoding = self._schemas[struct]
            metadata, type_hash = {WRITER_KEY: writer}, self._hash_of(writer)
            if type_hash is not None:
                metadata[ROS_HASH_KEY if type_hash.startswith(_ROS_HASH) else HASH_KEY] = type_hash
            if encoding == ROS_MSG and (struct.is_keyed or not _is_final(struct)):
                # no .msg defines a key, nor the headers that XCDR2 has before what may be extended
                metadata[IDL_KEY] = print_idl(struct)
            found = self._channels[topic, writer] = self._writer.register_channel(
                recorded_name(topic, struct), "cdr", schema, metadata
            )
        return found


def _nanoseconds(column: pa.ChunkedArray) -> list[int | None]:
    micros = column.cast(pa.int64()).to_pylist()
    return [None if each is None else each * 1000 for each in micros]
