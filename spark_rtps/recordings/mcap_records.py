"""MCAP's records as bytes: finds the messages in a chunk in few steps of Python, if their lengths repeat.

The layouts follow https://mcap.dev/spec. A record is an opcode, the length of its content (u64) and the
content; all numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from ..transport.errors import RecordingError
from ..transport.types.cdr.cursors import anywhere
from ..transport.wire.samples import I64, U8

MAGIC: Final = b"\x89MCAP0\r\n"
FOOTER: Final = 0x02
SCHEMA: Final = 0x03
CHANNEL: Final = 0x04
MESSAGE: Final = 0x05
CHUNK: Final = 0x06
MESSAGE_INDEX: Final = 0x07
CHUNK_INDEX: Final = 0x08
STATISTICS: Final = 0x0B
DATA_END: Final = 0x0F

RECORD: Final = struct.Struct("<BQ")
#: Opcode and length, and the beginning of a message's content; its payload follows.
MESSAGE_HEADER: Final = np.dtype(
    [
        ("opcode", "u1"),
        ("length", "<u8"),
        ("channel", "<u2"),
        ("sequence", "<u4"),
        ("log_time", "<u8"),
        ("publish_time", "<u8"),
    ]
)
#: Bytes of a message's content before its payload.
MESSAGE_FIELDS: Final = MESSAGE_HEADER.itemsize - RECORD.size
#: Of a message index: log time, and offset into the uncompressed chunk.
INDEX_ENTRY: Final = np.dtype([("time", "<u8"), ("offset", "<u8")])
_HEAD: Final = np.dtype([("opcode", "u1"), ("length", "<u8")])
#: Records examined together, and the number that is scanned one by one if they differ.
_LOOK: Final = 64
_CHUNK: Final = struct.Struct("<QQQII")
_U64: Final = struct.Struct("<Q")


class ChunkRecord(NamedTuple):
    """The content of a chunk record; ``records`` is compressed as ``compression`` says."""

    first_time: int
    last_time: int
    uncompressed_size: int
    crc: int
    compression: str
    records: U8


def record_at(data: U8, at: int, stop: int, path: str) -> tuple[int, int, int]:
    """Opcode of the record at ``at``, and where its content starts and ends. Raises RecordingError beyond ``stop``."""
    stop = min(stop, data.nbytes)
    if 0 <= at <= stop - RECORD.size:
        opcode, length = RECORD.unpack_from(data, at)
        if length <= stop - at - RECORD.size:
            return opcode, at + RECORD.size, at + RECORD.size + length
    raise RecordingError(
        f"it is cut short, or damaged: the record at byte {at} has no end", path=path, is_damage=True
    )


def read_chunk_record(data: U8, start: int, stop: int, path: str) -> ChunkRecord:
    """The chunk whose content is bytes [start, stop). Raises RecordingError if it cannot be one."""
    fields = start + _CHUNK.size
    if fields <= stop:
        first_time, last_time, size, crc, name = _CHUNK.unpack_from(data, start)
        length_at = fields + name
        if length_at + _U64.size <= stop:
            (length,) = _U64.unpack_from(data, length_at)
            records = length_at + _U64.size
            if length <= stop - records:
                compression = bytes(data[fields:length_at]).decode("utf-8", "replace")
                return ChunkRecord(
                    first_time, last_time, size, crc, compression, data[records : records + length]
                )
    raise RecordingError(f"the chunk at byte {start} is damaged", path=path, is_damage=True)


def records(data: U8, start: int, stop: int, path: str) -> Iterator[tuple[int, int, int]]:
    """Opcode, start and end of the content of each record in [start, stop), one by one (cold path)."""
    while start < stop:
        opcode, begin, end = record_at(data, start, stop, path)
        yield opcode, begin, end
        start = end


def record_starts(data: U8, path: str, opcode: int = MESSAGE) -> I64:
    """Where the records with this opcode start in a chunk, (n,) int64; equally long records are found at once.

    Raises RecordingError where a record goes beyond the chunk.
    """
    found: list[I64] = []
    at, stop, heads = 0, data.nbytes, anywhere(data, _HEAD)
    while at < stop:
        kind, _, end = record_at(data, at, stop, path)
        stride, count = end - at, _alike(heads, at, end - at, stop)
        if count > 1:
            if kind == opcode:
                found.append(at + stride * np.arange(count, dtype=np.int64))
            at += stride * count
            continue
        singles = []
        for _ in range(_LOOK):
            if kind == opcode:
                singles.append(at)
            at = end
            if at >= stop:
                break
            kind, _, end = record_at(data, at, stop, path)
        found.append(np.array(singles, np.int64))
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _alike(heads: np.ndarray[tuple[int], np.dtype[np.void]], at: int, stride: int, stop: int) -> int:
    """How many records from ``at`` on have the first one's opcode and length, if checking is worthwhile."""
    most, count, look = (stop - at) // stride, 1, _LOOK
    while count < most:
        many = min(look, most - count)
        begin = at + count * stride
        these = heads[begin : begin + (many - 1) * stride + 1 : stride]
        same = (these["opcode"] == heads[at]["opcode"]) & (these["length"] == heads[at]["length"])
        if not same.all():
            alike = count + int(np.argmin(same))
            return alike if alike >= _LOOK // 4 else 1
        count, look = count + many, look * 4
    return count
