"""MCAP files (https://mcap.dev): the summary says where chunks lie, chunks are decompressed whole, and their messages
are taken as columns. A file without a summary, which a recorder that was killed leaves, is walked through once."""

from __future__ import annotations

import logging
import mmap
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import field
from functools import cached_property
from io import BytesIO
from struct import error as StructError
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..columns.chunks import BIG_BYTES
from ..transport.errors import RecordingError, TypeDefinitionError
from ..transport.structure import GUID_UNKNOWN, Guid
from ..transport.types.cdr.lanes import anywhere
from ..transport.types.ros_names import dds_type_name
from ..transport.value_classes import slotted
from ..transport.wire.samples import I64, U8
from . import mcap_records as m
from .containers import needed
from .recorded import Channel, Piece, RecordedSamples, Section, Times
from .recorded_types import DISTRIBUTION, hash_of_schema, struct_of_schema

if TYPE_CHECKING:
    from mcap.records import Channel as McapChannel
    from mcap.records import Schema

_log = logging.getLogger("spark_rtps.recordings")

#: Key of a channel's metadata with the GUID of its writer, where spark-rtps has recorded it.
WRITER_KEY: Final = "rtps.writer"
#: Keys with the hash of its type: of ROS 2, as rosbag2 writes it, and of any other one.
ROS_HASH_KEY: Final = "topic_type_hash"
HASH_KEY: Final = "rtps.type_hash"
#: Key with the type as IDL, where the schema is for tools that know none of its keys.
IDL_KEY: Final = "rtps.idl"
_FOOTER_BYTES: Final = m.RECORD.size + 20
#: What is not in chunks is read in parts of so many bytes.
_PLAIN_BYTES: Final = 8 << 20
#: Offsets of samples have 32 bits.
_UNCOMPRESSED_MAX: Final = (1 << 32) - 1
#: What mcap raises of records that are damaged, besides its own errors.
_MALFORMED: Final = (StructError, ValueError, LookupError, OverflowError)
_LEAVE_OUT: Final = "failOnDataLoss=false leaves it out"
_CUT: Final = (
    "it has no end: its recorder was stopped, or the copy is not whole. `mcap recover` (mcap.dev) repairs it; "
    "failOnDataLoss=false reads what is whole"
)


@slotted
class _Contents:
    """What a file holds, as its summary says or as a walk through it finds."""

    schemas: dict[int, Schema] = field(default_factory=dict)
    channels: dict[int, McapChannel] = field(default_factory=dict)
    sections: list[Section] = field(default_factory=list)
    #: Per section the channels that may be in it; None: any.
    of_channels: list[dict[int, int] | None] = field(default_factory=list)

    def add(self, opcode: int, content: bytes) -> None:
        """Take a schema or a channel."""
        from mcap.data_stream import ReadDataStream
        from mcap.records import Channel, Schema

        stream = ReadDataStream(BytesIO(content))
        if opcode == m.SCHEMA:
            schema = Schema.read(stream)
            self.schemas[schema.id] = schema
        elif opcode == m.CHANNEL:
            channel = Channel.read(stream)
            self.channels[channel.id] = channel

    def place(self, section: Section, of_channels: dict[int, int] | None) -> None:
        self.sections.append(section)
        self.of_channels.append(of_channels)

    @property
    def has_schemas(self) -> bool:
        """Whether the schema of each channel is known, but for those that have none."""
        return all(each.schema_id in self.schemas for each in self.channels.values() if each.schema_id)


class _Plain:
    """Messages outside of chunks, which become sections of about ``_PLAIN_BYTES``."""

    def __init__(self, contents: _Contents) -> None:
        self._contents = contents
        self._start = self._stop = -1

    def extend(self, start: int, stop: int) -> None:
        """Take a message; one that does not follow the last one begins a new section."""
        if start != self._stop or start - self._start > _PLAIN_BYTES:
            self.finish()
            self._start = start
        self._stop = stop

    def finish(self) -> None:
        if self._stop >= 0:
            self._contents.place(Section(self._start, self._stop, self._stop - self._start), None)
        self._start = self._stop = -1


class McapFile:
    """One MCAP file. ``is_lenient``: what is whole of a file that is cut short is read, and the rest is left."""

    form = "mcap"

    def __init__(self, path: str, *, is_lenient: bool = False, distribution: str = DISTRIBUTION) -> None:
        """``distribution`` of ROS 2 has the types that the file does not define itself."""
        needed("mcap", path)
        self.path = path
        self._distribution = distribution
        self._is_lenient = is_lenient
        self._data = mapped(path)
        if bytes(self._data[: len(m.MAGIC)]) != m.MAGIC:
            raise RecordingError("it is no MCAP file, although its name says so", path=path)

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
                told = _told_hash(each)
                if typed:
                    exact = _told_idl(each, name) or definition
                    struct = struct_of_schema(
                        *exact, self.path, distributions=(self._distribution,), type_hash=told
                    )
                type_hash = (told or hash_of_schema(*definition)) if hashed else None
            why = "" if schema is not None else "its channel has no schema"
            writer = Guid.parse(each.metadata.get(WRITER_KEY, "")) or GUID_UNKNOWN
            found.append(Channel(each.id, topic, name, struct, why, writer, type_hash))
        return tuple(found)

    def sections(self, channels: Iterable[Channel], times: Times) -> list[Section]:
        wanted = {channel.id for channel in channels}
        found = []
        for section, held in zip(self._contents.sections, self._contents.of_channels, strict=True):
            if not times.overlaps(section.first_time, section.last_time):
                continue
            if held:
                index = tuple((id, at) for id, at in sorted(held.items()) if id in wanted)
                if not index:
                    continue
                section = Section(
                    section.start, section.stop, section.nbytes, section.first_time, section.last_time, index
                )
            found.append(section)
        return found

    def read(self, piece: Piece, times: Times) -> Iterator[RecordedSamples]:
        """What lies uncompressed in the file is taken many sections at once: it is read where it lies."""
        channels = {channel.id: channel for channel in piece.channels}
        held: list[I64] = []
        nbytes = 0
        for section in piece.sections:
            try:
                data, starts = self._located(section)
            except RecordingError as error:
                if not (self._is_lenient and error.is_damage):
                    error.remedy = _LEAVE_OUT if error.is_damage else ""
                    raise
                _log.warning("%s; left out because failOnDataLoss=false", error)
                continue
            if data is not self._data:
                # what lies before it in the file comes before it
                yield from self._messages(self._data, held, channels, times)
                held, nbytes = [], 0
                yield from self._messages(data, [starts], channels, times)
                continue
            held.append(starts)
            nbytes += section.nbytes
            if nbytes >= BIG_BYTES:
                yield from self._messages(data, held, channels, times)
                held, nbytes = [], 0
        yield from self._messages(self._data, held, channels, times)

    # --- chunks ---------------------------------------------------------------------------------------

    def _located(self, section: Section) -> tuple[U8, I64]:
        """The bytes that hold a section's messages, and where in them each that may be wanted starts, checked."""
        data, base, stop = self._records(section)
        if section.index:
            starts = base + np.sort(np.concatenate([self._indexed(*each) for each in section.index]))
        else:
            starts = base + m.record_starts(data[base:stop], self.path)
        if len(starts):
            where = f"bytes {section.start} to {section.stop}"
            if starts[0] < base or starts[-1] > stop - m.MESSAGE_HEADER.itemsize:
                raise self._damaged(where)
            heads = anywhere(data, m.MESSAGE_HEADER)[starts]
            lengths = heads["length"]
            ends = starts + m.RECORD.size + lengths.astype(np.int64)
            is_short = (lengths < m.MESSAGE_FIELDS) | (lengths > stop - base) | (ends > stop)
            if (heads["opcode"] != m.MESSAGE).any() or is_short.any():
                raise self._damaged(where)
        return data, starts

    def _records(self, section: Section) -> tuple[U8, int, int]:
        """Where the records of a section are: of a chunk, uncompressed, or as they lie."""
        data, path = self._data, self.path
        opcode, start, stop = m.record_at(data, section.start, section.stop, path)
        if opcode != m.CHUNK:
            return data, section.start, section.stop
        chunk = m.read_chunk_record(data, start, stop, path)
        if not chunk.compression:
            # Checksums are not looked at here, as by MCAP's own readers: it would take longer than everything else.
            return data, stop - chunk.records.nbytes, stop
        records = self._uncompressed(chunk, section.start)
        if chunk.crc and zlib.crc32(records) != chunk.crc:
            raise self._damaged(f"the chunk at byte {section.start}", ": its checksum is wrong")
        return records, 0, records.nbytes

    def _uncompressed(self, chunk: m.ChunkRecord, at: int) -> U8:
        size = chunk.uncompressed_size
        if chunk.compression not in ("zstd", "lz4"):
            why = f"its chunks are compressed by {chunk.compression!r}; known are zstd and lz4"
            raise RecordingError(f"{why}: `mcap compress` (mcap.dev) converts it", path=self.path)
        if size > _UNCOMPRESSED_MAX:
            raise self._damaged(f"the chunk at byte {at}", f": it would have {size} bytes")
        try:
            records = _decompress(chunk.compression, chunk.records, size, self.path)
        except (RuntimeError, ValueError, MemoryError) as error:
            raise self._damaged(f"the chunk at byte {at}", f": {error}") from None
        if len(records) != size:
            why = f": it has {len(records)} bytes instead of {size}"
            raise self._damaged(f"the chunk at byte {at}", why)
        return np.frombuffer(records, np.uint8)

    def _indexed(self, channel: int, at: int) -> I64:
        """Where the messages of a channel start in a chunk, as the message index at ``at`` says."""
        opcode, start, stop = m.record_at(self._data, at, self._data.nbytes, self.path)
        if opcode == m.MESSAGE_INDEX and stop - start >= 6:
            head = self._data[start : start + 6].tobytes()
            length = int.from_bytes(head[2:], "little")
            if int.from_bytes(head[:2], "little") == channel and length == stop - start - 6:
                entries = self._data[start + 6 : start + 6 + length // 16 * 16].view(m.INDEX_ENTRY)
                found: I64 = entries["offset"].astype(np.int64)
                return found
        raise self._damaged(f"the message index at byte {at}")

    def _messages(
        self, data: U8, given: list[I64], channels: dict[int, Channel], times: Times
    ) -> Iterator[RecordedSamples]:
        """The messages that start there, of these channels: those of one channel together, in order."""
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

    def _damaged(self, what: str, why: str = "") -> RecordingError:
        return RecordingError(f"damaged: {what}{why}", path=self.path, is_damage=True)

    # --- what it holds --------------------------------------------------------------------------------

    @cached_property
    def _contents(self) -> _Contents:
        from mcap.exceptions import McapError

        try:
            try:
                found = self._summary()
            except (RecordingError, McapError, *_MALFORMED) as error:
                if not (self._is_lenient and _is_damage(error)):
                    raise
                _log.warning(
                    "%s: its summary is damaged: %s; it is read from its beginning", self.path, error
                )
                found = None
            return found or self._walk()
        except (McapError, *_MALFORMED) as error:
            raise RecordingError(f"it is damaged: {error}", path=self.path) from None

    def _summary(self) -> _Contents | None:
        """What the summary says, and what lies outside of the chunks; None if there is none that says all."""
        from mcap.data_stream import ReadDataStream
        from mcap.records import ChunkIndex, Statistics

        data = self._data
        end = data.nbytes - len(m.MAGIC)
        footer = end - _FOOTER_BYTES
        if footer < len(m.MAGIC) or bytes(data[end:]) != m.MAGIC or data[footer] != m.FOOTER:
            if not self._is_lenient:
                raise RecordingError(_CUT, path=self.path)
            return None
        at = int.from_bytes(bytes(data[footer + m.RECORD.size :][:8]), "little")
        if not at:
            return None
        contents, chunks, told = _Contents(), list[ChunkIndex](), None
        for opcode, start, stop in m.records(data, at, footer, self.path):
            content = data[start:stop].tobytes()
            if opcode == m.CHUNK_INDEX:
                chunks.append(ChunkIndex.read(ReadDataStream(BytesIO(content))))
            elif opcode == m.STATISTICS:
                told = Statistics.read(ReadDataStream(BytesIO(content)))
            else:
                self._add(contents, opcode, content)
        if told is None or not contents.channels or len(chunks) != told.chunk_count:
            return None
        if not chunks and told.message_count:
            return None
        behind = len(m.MAGIC)
        for each in sorted(chunks, key=lambda chunk: chunk.chunk_start_offset):
            start = each.chunk_start_offset
            stop = start + each.chunk_length
            section = Section(
                start, stop, each.uncompressed_size, each.message_start_time, each.message_end_time
            )
            self._outside(behind, start, contents)
            contents.place(section, dict(each.message_index_offsets) or None)
            behind = stop + each.message_index_length
        self._outside(behind, at, contents)
        # a summary need not repeat the schemas
        for section in contents.sections:
            if contents.has_schemas:
                break
            self._define(section, contents)
        return contents

    def _add(self, contents: _Contents, opcode: int, content: bytes) -> None:
        """Take a schema or a channel, unless it is damaged and may be left out."""
        from mcap.exceptions import McapError

        try:
            contents.add(opcode, content)
        except (McapError, *_MALFORMED) as error:
            damage = self._damaged("a schema or a channel", f": {error}")
            if not self._is_lenient:
                raise damage from None
            _log.warning("%s; left out because failOnDataLoss=false", damage)

    def _outside(self, start: int, stop: int, contents: _Contents) -> None:
        """Take what lies outside of chunks, between two of them: the summary has no word for messages there."""
        at = start
        plain = _Plain(contents)
        try:
            for opcode, begin, end in m.records(self._data, start, stop, self.path):
                if opcode == m.MESSAGE:
                    plain.extend(at, end)
                elif opcode == m.DATA_END:
                    break
                elif opcode in (m.SCHEMA, m.CHANNEL):
                    self._add(contents, opcode, self._data[begin:end].tobytes())
                at = end
        except RecordingError as error:
            if not self._is_lenient:
                raise
            _log.warning("%s; left out because failOnDataLoss=false", error)
        plain.finish()

    def _walk(self) -> _Contents:
        """What a walk through the file finds: chunks, and messages outside of chunks."""
        contents, data = _Contents(), self._data
        plain = _Plain(contents)
        at = len(m.MAGIC)
        chunk: tuple[Section, dict[int, int]] | None = None
        #: Chunks whose channels were known before them.
        unseen: list[Section] = []
        is_whole = False

        def finish(*, is_indexed: bool) -> None:
            """Place the last chunk, once its message indexes are known; its channels may be defined nowhere else.

            ``is_indexed``: no index of the chunk is missing behind the end of a file that is cut short.
            """
            nonlocal chunk
            if chunk is None:
                return
            section, index = chunk
            chunk = None
            if not is_indexed:
                index = {}
            if not index or not index.keys() <= contents.channels.keys():
                self._define(section, contents)
            else:
                unseen.append(section)
            contents.place(section, index or None)

        try:
            for opcode, start, stop in m.records(data, at, data.nbytes, self.path):
                if opcode != m.MESSAGE_INDEX:
                    finish(is_indexed=True)
                if opcode == m.MESSAGE:
                    plain.extend(at, stop)
                else:
                    plain.finish()
                if opcode == m.CHUNK:
                    record = m.read_chunk_record(data, start, stop, self.path)
                    times = record.first_time, record.last_time
                    chunk = Section(at, stop, record.uncompressed_size, *times), {}
                elif opcode == m.MESSAGE_INDEX:
                    if chunk is not None and stop - start > 6:
                        chunk[1][int.from_bytes(data[start : start + 2].tobytes(), "little")] = at
                elif opcode in (m.DATA_END, m.FOOTER):
                    is_whole = True
                    break
                elif opcode != m.MESSAGE:
                    self._add(contents, opcode, data[start:stop].tobytes())
                at = stop
        except RecordingError as error:
            if not self._is_lenient:
                raise RecordingError(_CUT, path=self.path) from None
            _log.warning("%s; what lies behind byte %d is left out because failOnDataLoss=false", error, at)
        else:
            if not is_whole:
                _log.warning(
                    "%s: it has no end: its recorder was stopped, or the copy is not whole", self.path
                )
        finish(is_indexed=is_whole)
        plain.finish()
        # a channel may be defined in a chunk before that of its first message
        of_messages = {id for index in contents.of_channels for id in index or ()}
        for section in unseen:
            if contents.has_schemas and of_messages <= contents.channels.keys():
                break
            self._define(section, contents)
        return contents

    def _define(self, section: Section, contents: _Contents) -> None:
        """Take the schemas and channels that are defined in a chunk, unless it is damaged and may be left out."""
        try:
            data, base, stop = self._records(section)
            self._take_definitions(data[base:stop], contents)
        except RecordingError as error:
            if not (self._is_lenient and error.is_damage):
                raise
            # reading the chunk warns of it

    def _take_definitions(self, records: U8, contents: _Contents) -> None:
        for opcode in (m.SCHEMA, m.CHANNEL):
            for at in m.record_starts(records, self.path, opcode).tolist():
                _, start, stop = m.record_at(records, at, records.nbytes, self.path)
                self._add(contents, opcode, records[start:stop].tobytes())


def _is_damage(error: Exception) -> bool:
    return not isinstance(error, RecordingError) or error.is_damage


def _told_hash(channel: McapChannel) -> str | None:
    return channel.metadata.get(ROS_HASH_KEY) or channel.metadata.get(HASH_KEY) or None


def _told_idl(channel: McapChannel, name: str) -> tuple[str, str, str] | None:
    """The definition that a channel itself has of its type, which its schema names as ROS 2 does."""
    text = channel.metadata.get(IDL_KEY)
    try:
        return (dds_type_name(name), "omgidl", text) if text else None
    except TypeDefinitionError:
        return None


def mapped(path: str) -> U8:
    """The bytes of a file, which stay mapped as long as anything views them."""
    try:
        with open(path, "rb") as file:
            file.seek(0, 2)
            if not file.tell():
                raise RecordingError("it is empty", path=path)
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except OSError as error:
        raise RecordingError(f"it cannot be read: {error.strerror or error}", path=path) from None


def _decompress(compression: str, records: U8, size: int, path: str) -> bytes:
    if compression == "zstd":
        zstandard: Any = needed("zstandard", path)
        try:
            found: bytes = zstandard.ZstdDecompressor().decompress(records, max_output_size=size)
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from None
        return found
    lz4: Any = needed("lz4.frame", path)
    unpacked: bytes = lz4.LZ4FrameDecompressor().decompress(records.tobytes(), max_length=size)
    return unpacked
