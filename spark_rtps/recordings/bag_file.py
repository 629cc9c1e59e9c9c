"""ROS 2 bags in SQLite (``.db3``): samples are rows of one table, whose ids divide a file among tasks."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..transport.errors import RecordingError
from ..transport.types.cdr.cursors import offsets_of
from ..transport.wire.samples import NO_TIMESTAMP
from .recorded import Channel, FileSection, Piece, RecordedSamples, Times, needed
from .recorded_types import DISTRIBUTION, LAST_WITHOUT_DEFINITIONS, hash_of_schema, struct_of_schema

_log = logging.getLogger("spark_rtps.recordings")

_SQLITE: Final = b"SQLite format 3\x00"
#: The approximate size of a section's rows in bytes.
_SECTION_BYTES: Final = 8 << 20
#: Distributions of ROS 2 whose bags do not define their types.
_WITHOUT_DEFINITIONS: Final = ("dashing", "eloquent", "foxy", "galactic", LAST_WITHOUT_DEFINITIONS)
#: Rows are fetched until they reach one of these: bytes, or rows.
_FETCHED_BYTES: Final = 4 << 20
_ROWS_MAX: Final = 32_768
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_TABLES: Final = "SELECT name FROM sqlite_master WHERE type = 'table'"
_HASH_COLUMN: Final = "type_description_hash"
#: SQLite's errors for damage; their texts may then be invalid UTF-8.
_ERRORS: Final = (sqlite3.Error, UnicodeError)
_ROWS: Final = "SELECT timestamp, data FROM messages WHERE id >= ? AND id < ? AND topic_id = ?"


class BagFile:
    """One ``.db3`` file of a ROS 2 bag."""

    form = "db3"

    def __init__(self, path: str, *, is_lenient: bool = False, distribution: str = DISTRIBUTION) -> None:
        """``distribution`` of ROS 2 has the types that the bag does not define itself."""
        self.path = path
        self._distribution = distribution
        try:
            with open(path, "rb") as file:
                if file.read(len(_SQLITE)) != _SQLITE:
                    raise RecordingError("it is not a ROS 2 bag, although its name says so", path=path)
        except OSError as error:
            raise RecordingError(f"it cannot be read: {error.strerror or error}", path=path) from None
        self._is_lenient = is_lenient

    def topics(self) -> dict[str, str]:
        return {name: type for _, name, type, serialization in self._topics() if serialization == "cdr"}

    def channels(self, topic: str, *, typed: bool, hashed: bool = False) -> tuple[Channel, ...]:
        found = []
        for id, name, type, serialization in self._topics():
            if name != topic:
                continue
            if serialization != "cdr":
                why = f"topic {topic!r} is encoded as {serialization!r}; only cdr is read"
                raise RecordingError(why, path=self.path)
            definition = (type, *self._definition(type)) if typed or hashed else (type, "", "")
            announced = self._announced_hash(id) if typed or hashed else None
            struct = None
            if typed:
                struct = struct_of_schema(
                    *definition, self.path, distributions=self._distributions(), type_hash=announced
                )
            type_hash = (announced or hash_of_schema(*definition)) if hashed else None
            found.append(Channel(id, name, type, struct, type_hash=type_hash))
        return tuple(found)

    def sections(self, channels: Iterable[Channel], times: Times) -> list[FileSection]:
        """Ranges of ids; SQLite filters by time where the rows are read."""
        (low, high), *_ = self._rows("SELECT min(id), max(id) FROM messages")
        if low is None:
            return []
        size = os.path.getsize(self.path)
        count = max(1, min(size // _SECTION_BYTES, high + 1 - low))
        edges = [low + (high + 1 - low) * i // count for i in range(count + 1)]
        return [FileSection(*edge, size // count) for edge in pairwise(edges)]

    def read_piece(self, piece: Piece, times: Times) -> Iterator[RecordedSamples]:
        connection = self._connect()
        try:
            for section in piece.sections:
                for channel in piece.channels:
                    count = 0
                    try:
                        for samples in self._samples(connection, section, channel, times):
                            count += samples.count
                            yield samples
                    except _ERRORS as error:
                        if not self._is_lenient:
                            raise self._damaged(error) from None
                        _log.warning(
                            "%s; of the messages of %r with ids %d to %d only the first %d are read, "
                            "because failOnDataLoss=false",
                            self._damaged(error),
                            channel.topic,
                            section.start,
                            section.stop - 1,
                            count,
                        )
        finally:
            connection.close()

    # --- inside ------------------------------------------------------------------------------------

    def _samples(
        self, connection: sqlite3.Connection, section: FileSection, channel: Channel, times: Times
    ) -> Iterator[RecordedSamples]:
        query, values = _ROWS, [section.start, section.stop, channel.id]
        if not times.is_all:
            query, values = f"{query} AND timestamp >= ? AND timestamp < ?", [*values, *times]
        rows = connection.execute(f"{query} ORDER BY id", values)
        while True:
            stamps, blobs = _fetched(rows)
            if not stamps:
                return
            if {*map(type, stamps)} != {int} or {*map(type, blobs)} != {bytes}:
                stamps, blobs = self._sound(stamps, blobs)
                if not stamps:
                    continue
            if blobs[0][:4] == _ZSTD:
                stamps, blobs = self._decompressed(stamps, blobs)
                if not stamps:
                    continue
            lengths = np.fromiter(map(len, blobs), np.int64, len(blobs))
            log_times = np.array(stamps, np.int64)
            yield RecordedSamples(
                channel,
                np.frombuffer(blobs[0] if len(blobs) == 1 else b"".join(blobs), np.uint8),
                offsets_of(lengths)[:-1],
                lengths,
                log_times,
                np.full(len(blobs), NO_TIMESTAMP, np.int64),
                np.zeros(len(blobs), np.int64),
            )

    def _sound(self, stamps: list[Any], blobs: list[Any]) -> tuple[list[int], list[bytes]]:
        """The rows with a time and a message. Raises RecordingError unless others may be skipped."""
        rows = zip(stamps, blobs, strict=True)
        sound = [row for row in rows if isinstance(row[0], int) and isinstance(row[1], bytes)]
        self._leave_out(f"{len(stamps) - len(sound)} messages have no data or no time")
        return [stamp for stamp, _ in sound], [blob for _, blob in sound]

    def _decompressed(self, stamps: list[int], blobs: list[bytes]) -> tuple[list[int], list[bytes]]:
        """The messages of a bag that compresses each of them. Raises RecordingError unless damaged ones may be
        skipped."""
        zstandard: Any = needed("zstandard", self.path)
        one = zstandard.ZstdDecompressor()
        times, found, damage = list[int](), list[bytes](), ""
        for stamp, blob in zip(stamps, blobs, strict=True):
            try:
                found.append(one.decompress(blob))
                times.append(stamp)
            except zstandard.ZstdError as error:
                damage = str(error)
        if damage:
            self._leave_out(f"{len(blobs) - len(found)} messages cannot be decompressed: {damage}")
        return times, found

    def _leave_out(self, why: str) -> None:
        """Log damaged messages, or raise RecordingError unless they may be skipped."""
        if not self._is_lenient:
            fix = "failOnDataLoss=false leaves them out"
            raise RecordingError(f"it is damaged: {why}; {fix}", path=self.path, is_damage=True)
        _log.warning("%s: %s; left out because failOnDataLoss=false", self.path, why)

    def _topics(self) -> list[tuple[int, str, str, str]]:
        return self._rows("SELECT id, name, type, serialization_format FROM topics")

    def _definition(self, type: str) -> tuple[str, str]:
        """Encoding and text of a type's definition; empty where the bag, older than ROS 2 Iron, has none."""
        if ("message_definitions",) not in self._rows(_TABLES):
            return "", ""
        query = "SELECT encoding, encoded_message_definition FROM message_definitions WHERE topic_type = ?"
        for encoding, text in self._rows(query, type):
            if text:
                return encoding, text
        return "", ""

    def _distributions(self) -> tuple[str, ...]:
        """Where to look for types that the bag does not define; a bag without definitions is of Humble, or older."""
        if ("message_definitions",) in self._rows(_TABLES) or self._distribution in _WITHOUT_DEFINITIONS:
            return (self._distribution,)
        return LAST_WITHOUT_DEFINITIONS, self._distribution

    def _announced_hash(self, topic: int) -> str | None:
        """The hash that the topic's publishers announced, as bags from ROS 2 Iron on have it; None: it is not known."""
        if not any(column[1] == _HASH_COLUMN for column in self._rows("PRAGMA table_info(topics)")):
            return None
        ((announced,),) = self._rows(f"SELECT {_HASH_COLUMN} FROM topics WHERE id = ?", topic)
        return announced or None

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(f"{Path(self.path).absolute().as_uri()}?mode=ro", uri=True)

    def _rows(self, query: str, *values: object) -> list[Any]:
        connection = self._connect()
        try:
            return connection.execute(query, values).fetchall()
        except _ERRORS as error:
            raise self._damaged(error) from None
        finally:
            connection.close()

    def _damaged(self, error: Exception) -> RecordingError:
        fix = "`ros2 bag reindex` and sqlite3's `.recover` repair bags"
        return RecordingError(f"it is cut short, damaged or not a ROS 2 bag: {error}; {fix}", path=self.path)


def _fetched(rows: Iterator[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    """Times and messages of the next rows, of about ``_FETCHED_BYTES``: their sizes are known one by one; none at the
    end. No row tuple is kept, so that Python reuses its memory for the next one."""
    stamps, blobs, nbytes = list[Any](), list[Any](), 0
    for stamp, blob in rows:
        stamps.append(stamp)
        blobs.append(blob)
        try:
            nbytes += len(blob)
        except TypeError:
            pass  # it is not a message
        if nbytes >= _FETCHED_BYTES or len(blobs) >= _ROWS_MAX:
            break
    return stamps, blobs
