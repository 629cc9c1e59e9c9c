"""The records of an MCAP file: in chunks, which are decompressed whole, or uncompressed; and where messages start."""

from __future__ import annotations

import mmap
import zlib
from typing import Any, Final

import numpy as np

from ..transport.errors import RecordingError
from ..transport.types.cdr.cursors import anywhere
from ..transport.wire.samples import I64, U8
from . import mcap_records as m
from .recorded import FileSection, needed

#: Offsets of samples have 32 bits.
_UNCOMPRESSED_MAX: Final = (1 << 32) - 1


class ChunkReader:
    """The bytes of one file, and the records of its sections."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.data = mapped(path)

    def locate_messages(self, section: FileSection) -> tuple[U8, I64]:
        """The bytes that hold a section's messages, and the checked start of each candidate."""
        data, base, stop = self.records_of(section)
        if section.index:
            starts = base + np.sort(np.concatenate([self._indexed(*each) for each in section.index]))
        else:
            starts = base + m.record_starts(data[base:stop], self.path)
        if len(starts):
            where = f"bytes {section.start} to {section.stop}"
            if starts[0] < base or starts[-1] > stop - m.MESSAGE_HEADER.itemsize:
                raise self.damaged(where)
            heads = anywhere(data, m.MESSAGE_HEADER)[starts]
            lengths = heads["length"]
            ends = starts + m.RECORD.size + lengths.astype(np.int64)
            is_short = (lengths < m.MESSAGE_FIELDS) | (lengths > stop - base) | (ends > stop)
            if (heads["opcode"] != m.MESSAGE).any() or is_short.any():
                raise self.damaged(where)
        return data, starts

    def records_of(self, section: FileSection) -> tuple[U8, int, int]:
        """The records of a section: of a decompressed chunk, or uncompressed in the file."""
        data, path = self.data, self.path
        opcode, start, stop = m.record_at(data, section.start, section.stop, path)
        if opcode != m.CHUNK:
            return data, section.start, section.stop
        chunk = m.read_chunk_record(data, start, stop, path)
        if not chunk.compression:
            # Checksums are not verified here, as in MCAP's own readers: it would take longer than everything else.
            return data, stop - chunk.records.nbytes, stop
        records = self._uncompressed(chunk, section.start)
        if chunk.crc and zlib.crc32(records) != chunk.crc:
            raise self.damaged(f"the chunk at byte {section.start}", ": its checksum is wrong")
        return records, 0, records.nbytes

    def _uncompressed(self, chunk: m.ChunkRecord, at: int) -> U8:
        size = chunk.uncompressed_size
        if chunk.compression not in ("zstd", "lz4"):
            why = f"its chunks are compressed by {chunk.compression!r}; known are zstd and lz4"
            raise RecordingError(f"{why}: `mcap compress` (mcap.dev) converts it", path=self.path)
        if size > _UNCOMPRESSED_MAX:
            raise self.damaged(f"the chunk at byte {at}", f": it would have {size} bytes")
        try:
            records = _decompress(chunk.compression, chunk.records, size, self.path)
        except (RuntimeError, ValueError, MemoryError) as error:
            raise self.damaged(f"the chunk at byte {at}", f": {error}") from None
        if len(records) != size:
            why = f": it has {len(records)} bytes instead of {size}"
            raise self.damaged(f"the chunk at byte {at}", why)
        return np.frombuffer(records, np.uint8)

    def _indexed(self, channel: int, at: int) -> I64:
        """Where the messages of a channel start in a chunk, from the message index at ``at``."""
        opcode, start, stop = m.record_at(self.data, at, self.data.nbytes, self.path)
        if opcode == m.MESSAGE_INDEX and stop - start >= 6:
            head = self.data[start : start + 6].tobytes()
            length = int.from_bytes(head[2:], "little")
            if int.from_bytes(head[:2], "little") == channel and length == stop - start - 6:
                entries = self.data[start + 6 : start + 6 + length // 16 * 16].view(m.INDEX_ENTRY)
                found: I64 = entries["offset"].astype(np.int64)
                return found
        raise self.damaged(f"the message index at byte {at}")

    def damaged(self, what: str, why: str = "") -> RecordingError:
        """The error for a damaged part of the file."""
        return RecordingError(f"damaged: {what}{why}", path=self.path, is_damage=True)


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
