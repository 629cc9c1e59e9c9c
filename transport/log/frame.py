"""One committed entry of a stream log: a run of samples behind a 104-byte header.

A frame starts at a multiple of 32. Its header, little-endian::

     0  length          i32  header and body; the next frame starts at the next multiple of 32
     4  kind            u16  RUN, PAD or HOLE
     6  frame flags     u16  TIMESTAMP_BIG_ENDIAN, SPARSE
     8  position        i64  of this frame: a header that lies elsewhere is none
    16  rows_before     i64  samples in the log before this frame, since its birth
    24  count           u32  samples in this frame
    28  stride          u32  0 = indexed: the body starts with ``count`` SAMPLE_INDEX entries
    32  reception       i64  ns since the epoch
    40  first_sn        i64
    48  writer          16s  GUID
    64  timestamp       i64
    72  payload_offset, payload_length      u32
    80  timestamp_offset, key_hash_offset   i32
    88  sample flags    u32
    92  reader_id       4s
    96  body checksum   u32
   100  header checksum u32  of the 100 bytes before it, the length as it is in the end (see checksum.py)
   104  body

PAD and HOLE have a header of 32 bytes, whose checksum lies at 28, and then nothing that is read. A PAD fills a segment
up to its end. A HOLE stands where a recovery found that samples are gone.

The length is stored negative before anything else of the frame and made positive after all of it, each time by one
aligned 4-byte store (Aeron's commit). So neither a reader of the same mmap nor a recovery after ``kill -9`` takes a
partial frame for a whole one. x86-64 keeps the order of the stores. On weaker machines a reader learns of a position
through another process, which takes far longer than the stores take to arrive.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..structure import Guid
from ..value_classes import slotted
from ..wire.samples import I64, SAMPLE_INDEX, U8, Run
from .checksum import body_checksum, header_checksum

I32 = npt.NDArray[np.int32]

ALIGNMENT: Final = 32
HEADER_BYTES: Final = 104
RUN: Final = 1
PAD: Final = 2
HOLE: Final = 3
TIMESTAMP_BIG_ENDIAN: Final = 0x1
#: Sequence numbers are missing in between; the index has those that are present.
SPARSE: Final = 0x2

#: The first 32 bytes suffice to scan the frames: length, kind, flags, position, rows_before, count, stride.
WALK: Final = struct.Struct("<iHHqqII")
#: The reception time of a run, at its offset in the header.
RECEPTION: Final = struct.Struct("<32xq")
#: A header up to its own checksum, which follows it: of a run, and of a PAD or a HOLE.
_RUN: Final = struct.Struct("<iHHqqIIqq16sqIIiiI4sI")
_REST: Final = struct.Struct("<iHHqqI")
_CHECKSUM: Final = struct.Struct("<I")
_STORED_RUN: Final = struct.Struct(f"<{HEADER_BYTES - 4}s")
_STORED_REST: Final = struct.Struct(f"<{ALIGNMENT - 4}s")
#: An aligned length must be an i32 too.
LENGTH_MAX: Final = (1 << 31) - ALIGNMENT


class Cursor(NamedTuple):
    """A position between two samples: ``row`` samples of the frame at ``position`` lie before it."""

    position: int
    row: int = 0


@slotted
class Frame:
    """A frame read back; ``run.data`` views the log, sliced where a cursor cut the frame."""

    position: int
    length: int  # bytes to the next frame
    reception: int  # ns since the epoch
    rows_before: int  # samples in the log before run's first
    run: Run
    #: The reception time of each sample, if it is known; None: that of the frame.
    receptions: I64 | None = None

    @property
    def stop(self) -> int:
        return self.position + self.length


class PadFrame(NamedTuple):
    """Bytes [position, stop) at the end of a segment, for which the next frame was too long."""

    position: int
    stop: int
    rows_before: int


def align(length: int) -> int:
    """``length`` up to the next multiple of 32."""
    return (length + ALIGNMENT - 1) & -ALIGNMENT


def frame_length(run: Run) -> int:
    """Header and body bytes of the frame that holds ``run``, not yet aligned."""
    index_bytes = 0 if run.stride else run.count * SAMPLE_INDEX.itemsize
    return HEADER_BYTES + index_bytes + run.data.nbytes


def goes_on(run: Run, following: Run) -> bool:
    """Whether a run fits into one frame with the one before it: it continues its sequence numbers and has the same
    form."""
    size = run.count * run.stride
    return bool(
        size
        and following.stride == run.stride
        and following.first_sn == run.first_sn + run.count
        and following.writer == run.writer
        and following.flags == run.flags
        and following.payload_offset == run.payload_offset
        and following.payload_length == run.payload_length
        and following.timestamp_offset == run.timestamp_offset
        and following.timestamp == run.timestamp
        and following.timestamp_big_endian == run.timestamp_big_endian
        and following.key_hash_offset == run.key_hash_offset
        and following.reader_id == run.reader_id
        and run.data.nbytes == size
        and following.data.nbytes == following.count * run.stride
    )


#: A log holds few writers, but any number of their frames.
_guid: Final = lru_cache(maxsize=1024)(Guid.from_bytes)


def read_run(data: U8, at: int) -> tuple[int, Run]:
    """Reception and run of the run frame whose header lies at ``data[at:]``; no copy."""
    (
        length,
        _kind,
        frame_flags,
        _position,
        _rows_before,
        count,
        stride,
        reception,
        first_sn,
        writer,
        timestamp,
        payload_offset,
        payload_length,
        timestamp_offset,
        key_hash_offset,
        flags,
        reader_id,
        _body_checksum,
    ) = _RUN.unpack_from(data, at)
    body = at + HEADER_BYTES
    index: npt.NDArray[Any] | None = None
    if not stride:
        index_stop = body + count * SAMPLE_INDEX.itemsize
        index = data[body:index_stop].view(SAMPLE_INDEX)
        body = index_stop
    run = Run(
        _guid(writer),
        first_sn,
        count,
        data[body : at + length],
        stride,
        payload_offset,
        payload_length,
        timestamp,
        timestamp_offset,
        bool(frame_flags & TIMESTAMP_BIG_ENDIAN),
        key_hash_offset,
        flags,
        index,
        reader_id,
        sparse=bool(frame_flags & SPARSE),
    )
    return reception, run


def is_header(data: memoryview, at: int, length: int, kind: int, seed: int) -> bool:
    """Whether the checksum of the header at ``data[at:]`` is right; ``length`` and ``kind`` are its fields."""
    if kind == RUN:
        stop = at + _RUN.size
        if length < HEADER_BYTES or stop + _CHECKSUM.size > len(data):
            return False
    elif kind in (PAD, HOLE):
        stop = at + _REST.size
    else:
        return False
    return bool(header_checksum(data[at:stop], seed) == _CHECKSUM.unpack_from(data, stop)[0])


def is_body(data: U8, at: int, length: int, seed: int) -> bool:
    """Whether the body of the run frame at ``data[at:]``, whose header is right, matches the checksum in that
    header."""
    found = body_checksum(data[at + HEADER_BYTES : at + length], seed)
    return bool(found == _CHECKSUM.unpack_from(data, at + _RUN.size - _CHECKSUM.size)[0])


def write_run(
    data: U8,
    lengths: I32,
    at: int,
    run: Run,
    length: int,
    *,
    position: int,
    reception: int,
    rows_before: int,
    seed: int,
    more: Sequence[Run] = (),
    in_place: bool = False,
) -> None:
    """Store and commit ``run`` at ``data[at:]``; ``lengths`` views the same bytes, for the length's store.

    ``more``: runs of which each continues the one before (:func:`goes_on`). The frame's ``length`` includes them.
    ``in_place``: the bytes of the run are in the frame already.
    """
    word = at >> 2
    lengths[word] = -length
    body = at + HEADER_BYTES
    if not run.stride and run.index is not None:
        index = data[body : body + run.count * SAMPLE_INDEX.itemsize]
        np.copyto(index.view(SAMPLE_INDEX), run.index)
        body += index.nbytes
    stop = body + run.data.nbytes
    if not in_place:
        np.copyto(data[body:stop], run.data)
    count = run.count
    for each in more:
        body, stop = stop, stop + each.data.nbytes
        np.copyto(data[body:stop], each.data)
        count += each.count
    header = _RUN.pack(
        length,
        RUN,
        (TIMESTAMP_BIG_ENDIAN if run.timestamp_big_endian else 0) | (SPARSE if run.sparse else 0),
        position,
        rows_before,
        count,
        run.stride,
        reception,
        run.first_sn,
        run.writer.prefix + run.writer.entity,
        run.timestamp,
        run.payload_offset,
        run.payload_length,
        run.timestamp_offset,
        run.key_hash_offset,
        run.flags,
        run.reader_id,
        # computed from the stored bytes, which are in the cache now
        body_checksum(data[at + HEADER_BYTES : at + length], seed),
    )
    _STORED_RUN.pack_into(data, at + 4, header[4:] + _CHECKSUM.pack(header_checksum(header, seed)))
    lengths[word] = length


def write_rest(
    data: U8,
    lengths: I32,
    at: int,
    kind: int,
    length: int,
    *,
    position: int,
    rows_before: int,
    seed: int,
) -> None:
    """Store and commit a PAD or a HOLE of ``length`` bytes (a multiple of 32)."""
    word = at >> 2
    lengths[word] = -length
    header = _REST.pack(length, kind, 0, position, rows_before, 0)
    _STORED_REST.pack_into(data, at + 4, header[4:] + _CHECKSUM.pack(header_checksum(header, seed)))
    lengths[word] = length
