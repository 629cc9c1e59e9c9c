"""MCAP files (https://mcap.dev): topics and channels of a file, and the messages of its sections as columns."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..columns.chunks import BIG_BYTES
from ..transport.errors import RecordingError, TypeDefinitionError
from ..transport.structure import GUID_UNKNOWN, Guid
from ..transport.types.cdr.cursors import anywhere
from ..transport.types.ros_names import dds_type_name
from ..transport.wire.samples import I64, U8
from . import mcap_records as m
from .mcap_chunks import ChunkReader
from .mcap_contents import ContentsScan, McapContents
from .recorded import Channel, FileSection, Piece, RecordedSamples, Times, needed
from .recorded_types import DISTRIBUTION, hash_of_schema, struct_of_schema

if TYPE_CHECKING:
    from mcap.records import Channel as McapChannel

_log = logging.getLogger("spark_rtps.recordings")

#: Key of a channel's metadata with the GUID of its writer, where spark-rtps has recorded it.
WRITER_KEY: Final = "rtps.writer"
#: Keys with the hash of its type: of ROS 2, as rosbag2 writes it, and of any other one.
ROS_HASH_KEY: Final = "topic_type_hash"
HASH_KEY: Final = "rtps.type_hash"
#: Key with the type as IDL, for schemas whose tools do not know keys.
IDL_KEY: Final = "rtps.idl"
_LEAVE_OUT: Final = "failOnDataLoss=false leaves it out"


class McapFile:
    """One MCAP file. ``is_lenient``: the intact part of a file that is cut short is read."""

    form = "mcap"

    def __init__(self, path: str, *, is_lenient: bool = False, distribution: str = DISTRIBUTION) -> None:
        """``distribution`` of ROS 2 has the types that the file does not define itself."""
        needed("mcap", path)
        self.path = path
        self._distribution = distribution
        self._is_lenient = is_lenient
        self._chunks = ChunkReader(path)
        if bytes(self._chunks.data[: len(m.MAGIC)]) != m.MAGIC:
            raise RecordingError("it is not an MCAP file, although its name says so", path=path)

    def topics(self) -> dict[str, str]:
        found = {}
        for channel in self._contents.channels.values():
            if channel.message_encoding == "cdr":
                schema = self._contents.schemas.get(channel.schema_id)
                found[channel.topic] = schema.name if schema is not None else ""
        return found

    def channels(self, topic: str, *, typed: bool, hashed: bool = False) -> tuple[Channel, ...]:
        contents, found = self._contents, list[Channel]()
        for each in contents.channels.values():
            if each.topic != topic:
                continue
            if each.message_encoding != "cdr":
                why = f"topic {topic!r} is encoded as {each.message_encoding!r}; only cdr is read"
                raise RecordingError(why, path=self.path)
            schema = contents.schemas.get(each.schema_id)
            name, struct, type_hash = "" if schema is None else schema.name, None, None
            if (typed or hashed) and schema is not None:
                definition = name, schema.encoding, schema.data.decode("utf-8", "replace")
                announced = _announced_hash(each)
                if typed:
                    exact = _announced_idl(each, name) or definition
                    struct = struct_of_schema(
                        *exact, self.path, distributions=(self._distribution,), type_hash=announced
                    )
                type_hash = (announced or hash_of_schema(*definition)) if hashed else None
            why = "" if schema is not None else "its channel has no schema"
            writer = Guid.parse(each.metadata.get(WRITER_KEY, "")) or GUID_UNKNOWN
            found.append(Channel(each.id, topic, name, struct, why, writer, type_hash))
        return tuple(found)

    def sections(self, channels: Iterable[Channel], times: Times) -> list[FileSection]:
        wanted = {channel.id for channel in channels}
        found = []
        for section, held in zip(self._contents.sections, self._contents.of_channels, strict=True):
            if not times.overlaps(section.first_time, section.last_time):
                continue
            if held:
                index = tuple((id, at) for id, at in sorted(held.items()) if id in wanted)
                if not index:
                    continue
                section = FileSection(
                    section.start, section.stop, section.nbytes, section.first_time, section.last_time, index
                )
            found.append(section)
        return found

    def read_piece(self, piece: Piece, times: Times) -> Iterator[RecordedSamples]:
        """Many uncompressed sections are processed at once, in place."""
        channels = {channel.id: channel for channel in piece.channels}
        plain = self._chunks.data
        held: list[I64] = []
        nbytes = 0
        for section in piece.sections:
            try:
                data, starts = self._chunks.locate_messages(section)
            except RecordingError as error:
                if not (self._is_lenient and error.is_damage):
                    error.hint = _LEAVE_OUT if error.is_damage else ""
                    raise
                _log.warning("%s; left out because failOnDataLoss=false", error)
                continue
            if data is not plain:
                # earlier samples of the file come first
                yield from self._messages(plain, held, channels, times)
                held, nbytes = [], 0
                yield from self._messages(data, [starts], channels, times)
                continue
            held.append(starts)
            nbytes += section.nbytes
            if nbytes >= BIG_BYTES:
                yield from self._messages(data, held, channels, times)
                held, nbytes = [], 0
        yield from self._messages(plain, held, channels, times)

    def _messages(
        self, data: U8, given: list[I64], channels: dict[int, Channel], times: Times
    ) -> Iterator[RecordedSamples]:
        """The messages that start at these offsets, of these channels: those of one channel together, in order."""
        starts = np.concatenate(given) if given else np.empty(0, np.int64)
        if not len(starts):
            return
        heads = anywhere(data, m.MESSAGE_HEADER)[starts]
        ids = heads["channel"]
        for id in np.unique(ids).tolist():
            channel = channels.get(id)
            if channel is None:
                continue
            rows: Any = slice(None) if (ids == id).all() else np.flatnonzero(ids == id)
            some = heads[rows]
            yield RecordedSamples(
                channel,
                data,
                starts[rows] + m.MESSAGE_HEADER.itemsize,
                some["length"].astype(np.int64) - m.MESSAGE_FIELDS,
                some["log_time"].astype(np.int64),
                some["publish_time"].astype(np.int64),
                some["sequence"].astype(np.int64),
            ).within(times)

    @cached_property
    def _contents(self) -> McapContents:
        return ContentsScan(self._chunks, is_lenient=self._is_lenient).find_contents()


def _announced_hash(channel: McapChannel) -> str | None:
    return channel.metadata.get(ROS_HASH_KEY) or channel.metadata.get(HASH_KEY) or None


def _announced_idl(channel: McapChannel, name: str) -> tuple[str, str, str] | None:
    """The definition of a channel's type in its own metadata, if the schema is ROS 2's."""
    text = channel.metadata.get(IDL_KEY)
    try:
        return (dds_type_name(name), "omgidl", text) if text else None
    except TypeDefinitionError:
        return None
