"""Looks at the frames of a publication log byte by byte, as their layout is documented: no code of the log's own."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from spark_rtps.transport.log.publication_log import PublicationLog
from spark_rtps.transport.wire.samples import U8

PAD, DATA = 0, 1
HEADER_BYTES = 32
_HEADER = struct.Struct("<iBBHiiqII")


class FrameAt(NamedTuple):
    """A committed frame; ``data`` views the log."""

    start: int
    end: int
    type: int
    first_sn: int
    count: int  # type: ignore[assignment]
    segment: int
    data: U8


def length_at(log: PublicationLog, position: int) -> int:
    """Positive: of a frame; negative: of a claim; 0: nothing is there."""
    return int(log.data[position % log.data.size :][:4].view("<i4")[0])


def frame_at(log: PublicationLog, position: int) -> FrameAt | None:
    """The frame that begins at ``position``, if it is committed and of that term."""
    at, term = position % log.data.size, log.term_length
    header = _HEADER.unpack(log.data[at : at + HEADER_BYTES].tobytes())
    length, version, flags, kind, offset, term_id, first_sn, count, segment = header
    expected = (log.initial_term_id + position // term + (1 << 31)) % (1 << 32) - (1 << 31)
    if length <= 0 or (offset, term_id) != (position % term, expected):
        return None
    assert (version, flags) == (1, 0) and kind in (PAD, DATA)
    assert length >= HEADER_BYTES and offset + length <= term
    end = position + (length + 31 & -32)
    return FrameAt(position, end, kind, first_sn, count, segment, log.data[at + HEADER_BYTES : at + length])


def scan_frames(log: PublicationLog, start: int, stop: int) -> Iterator[FrameAt | int]:
    """What lies between two positions without a hole: frames, and of what was claimed and not committed the position.

    Where not even the length of a claim was stored, it ends at the next frame or claim.
    """
    while start < stop:
        frame = frame_at(log, start)
        if frame is not None:
            yield frame
            start = frame.end
            continue
        length = -length_at(log, start)
        assert length >= 0, "what is there is no frame of this term"
        yield start
        if length:
            start += length + 31 & -32
            continue
        start += 32
        while start < stop and start % log.term_length and not length_at(log, start):
            start += 32
    assert start == stop, "no hole, and nothing beyond the end"


def data_frames(log: PublicationLog, start: int, stop: int) -> list[FrameAt]:
    """The DATA frames between two positions."""
    return [each for each in scan_frames(log, start, stop) if isinstance(each, FrameAt) and each.type == DATA]
