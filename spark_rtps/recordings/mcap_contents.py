"""The contents of an MCAP file, from its summary; a file without one, left by a killed recorder, is scanned."""

from __future__ import annotations

import logging
from dataclasses import field
from io import BytesIO
from struct import error as StructError
from typing import TYPE_CHECKING, Final

from ..transport.errors import RecordingError
from ..transport.value_classes import slotted
from ..transport.wire.samples import U8
from . import mcap_records as m
from .mcap_chunks import ChunkReader
from .recorded import FileSection

if TYPE_CHECKING:
    from mcap.records import Channel as McapChannel
    from mcap.records import Schema

_log = logging.getLogger("spark_rtps.recordings")

_FOOTER_BYTES: Final = m.RECORD.size + 20
#: Messages outside of chunks are read in parts of about this size.
_PLAIN_BYTES: Final = 8 << 20
#: Errors of mcap for damaged records, besides its own classes.
_MALFORMED: Final = (StructError, ValueError, LookupError, OverflowError)
_CUT: Final = (
    "it has no end: its recorder was stopped, or the copy is not whole. `mcap recover` (mcap.dev) repairs it; "
    "failOnDataLoss=false reads what is whole"
)


@slotted
class McapContents:
    """The contents of a file, from its summary or from a scan."""

    schemas: dict[int, Schema] = field(default_factory=dict)
    channels: dict[int, McapChannel] = field(default_factory=dict)
    sections: list[FileSection] = field(default_factory=list)
    #: Per section the channels that may be in it; None: any.
    of_channels: list[dict[int, int] | None] = field(default_factory=list)

    def add(self, opcode: int, content: bytes) -> None:
        """Add a schema or a channel."""
        from mcap.data_stream import ReadDataStream
        from mcap.records import Channel, Schema

        stream = ReadDataStream(BytesIO(content))
        if opcode == m.SCHEMA:
            schema = Schema.read(stream)
            self.schemas[schema.id] = schema
        elif opcode == m.CHANNEL:
            channel = Channel.read(stream)
            self.channels[channel.id] = channel

    def place_section(self, section: FileSection, of_channels: dict[int, int] | None) -> None:
        self.sections.append(section)
        self.of_channels.append(of_channels)

    @property
    def has_schemas(self) -> bool:
        """Whether the schema of each channel is known, but for those that have none."""
        return all(each.schema_id in self.schemas for each in self.channels.values() if each.schema_id)


class _PlainMessages:
    """Messages outside of chunks, which become sections of about ``_PLAIN_BYTES``."""

    def __init__(self, contents: McapContents) -> None:
        self._contents = contents
        self._start = self._stop = -1

    def extend(self, start: int, stop: int) -> None:
        """Add a message; one that does not follow the last one begins a new section."""
        if start != self._stop or start - self._start > _PLAIN_BYTES:
            self.finish()
            self._start = start
        self._stop = stop

    def finish(self) -> None:
        if self._stop >= 0:
            self._contents.place_section(FileSection(self._start, self._stop, self._stop - self._start), None)
        self._start = self._stop = -1


class ContentsScan:
    """Finds the contents of a file. ``is_lenient``: damaged or missing parts are skipped."""

    def __init__(self, chunks: ChunkReader, *, is_lenient: bool) -> None:
        self._chunks = chunks
        self._is_lenient = is_lenient
        self._path = chunks.path
        self._data = chunks.data

    def find_contents(self) -> McapContents:
        """The contents, from the summary or else from a scan. Raises RecordingError."""
        from mcap.exceptions import McapError

        try:
            try:
                found = self._summary()
            except (RecordingError, McapError, *_MALFORMED) as error:
                if not (self._is_lenient and _is_damage(error)):
                    raise
                _log.warning("%s: its summary is damaged: %s; scanning the file instead", self._path, error)
                found = None
            return found or self._scan()
        except (McapError, *_MALFORMED) as error:
            raise RecordingError(f"it is damaged: {error}", path=self._path) from None

    def _summary(self) -> McapContents | None:
        """The contents from the summary, with messages outside of chunks; None without a complete summary."""
        from mcap.data_stream import ReadDataStream
        from mcap.records import ChunkIndex, Statistics

        data = self._data
        end = data.nbytes - len(m.MAGIC)
        footer = end - _FOOTER_BYTES
        if footer < len(m.MAGIC) or bytes(data[end:]) != m.MAGIC or data[footer] != m.FOOTER:
            if not self._is_lenient:
                raise RecordingError(_CUT, path=self._path)
            return None
        at = int.from_bytes(bytes(data[footer + m.RECORD.size :][:8]), "little")
        if not at:
            return None
        contents, chunks, announced = McapContents(), list[ChunkIndex](), None
        for opcode, start, stop in m.records(data, at, footer, self._path):
            content = data[start:stop].tobytes()
            if opcode == m.CHUNK_INDEX:
                chunks.append(ChunkIndex.read(ReadDataStream(BytesIO(content))))
            elif opcode == m.STATISTICS:
                announced = Statistics.read(ReadDataStream(BytesIO(content)))
            else:
                self._add(contents, opcode, content)
        if announced is None or not contents.channels or len(chunks) != announced.chunk_count:
            return None
        if not chunks and announced.message_count:
            return None
        behind = len(m.MAGIC)
        for each in sorted(chunks, key=lambda chunk: chunk.chunk_start_offset):
            start = each.chunk_start_offset
            stop = start + each.chunk_length
            section = FileSection(
                start, stop, each.uncompressed_size, each.message_start_time, each.message_end_time
            )
            self._outside(behind, start, contents)
            contents.place_section(section, dict(each.message_index_offsets) or None)
            behind = stop + each.message_index_length
        self._outside(behind, at, contents)
        # a summary need not repeat the schemas
        for section in contents.sections:
            if contents.has_schemas:
                break
            self._define(section, contents)
        return contents

    def _add(self, contents: McapContents, opcode: int, content: bytes) -> None:
        """Add a schema or a channel, unless it is damaged and may be skipped."""
        from mcap.exceptions import McapError

        try:
            contents.add(opcode, content)
        except (McapError, *_MALFORMED) as error:
            damage = self._chunks.damaged("a schema or a channel", f": {error}")
            if not self._is_lenient:
                raise damage from None
            _log.warning("%s; left out because failOnDataLoss=false", damage)

    def _outside(self, start: int, stop: int, contents: McapContents) -> None:
        """Add messages between two chunks, which the summary does not list."""
        at = start
        plain = _PlainMessages(contents)
        try:
            for opcode, begin, end in m.records(self._data, start, stop, self._path):
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

    def _scan(self) -> McapContents:
        """The contents from a scan: chunks, and messages outside of chunks."""
        contents, data = McapContents(), self._data
        plain = _PlainMessages(contents)
        at = len(m.MAGIC)
        chunk: tuple[FileSection, dict[int, int]] | None = None
        #: Chunks whose channels were known before them.
        unseen: list[FileSection] = []
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
            contents.place_section(section, index or None)

        try:
            for opcode, start, stop in m.records(data, at, data.nbytes, self._path):
                if opcode != m.MESSAGE_INDEX:
                    finish(is_indexed=True)
                if opcode == m.MESSAGE:
                    plain.extend(at, stop)
                else:
                    plain.finish()
                if opcode == m.CHUNK:
                    record = m.read_chunk_record(data, start, stop, self._path)
                    times = record.first_time, record.last_time
                    chunk = FileSection(at, stop, record.uncompressed_size, *times), {}
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
                raise RecordingError(_CUT, path=self._path) from None
            _log.warning("%s; what lies behind byte %d is left out because failOnDataLoss=false", error, at)
        else:
            if not is_whole:
                _log.warning(
                    "%s: it has no end: its recorder was stopped, or the copy is not whole", self._path
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

    def _define(self, section: FileSection, contents: McapContents) -> None:
        """Add the schemas and channels defined in a chunk, unless it is damaged and may be skipped."""
        try:
            data, base, stop = self._chunks.records_of(section)
            self._take_definitions(data[base:stop], contents)
        except RecordingError as error:
            if not (self._is_lenient and error.is_damage):
                raise
            # reading the chunk warns of it

    def _take_definitions(self, records: U8, contents: McapContents) -> None:
        for opcode in (m.SCHEMA, m.CHANNEL):
            for at in m.record_starts(records, self._path, opcode).tolist():
                _, start, stop = m.record_at(records, at, records.nbytes, self._path)
                self._add(contents, opcode, records[start:stop].tobytes())


def _is_damage(error: Exception) -> bool:
    return not isinstance(error, RecordingError) or error.is_damage
