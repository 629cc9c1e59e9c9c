"""Frames in the terms of a publication log, and how they are committed.

A frame starts at a multiple of 32. Its header, in the machine's byte order (all that map it are on this host)::

     0  length       i32  header and body; the next frame starts at the next multiple of 32
     4  version      u8
     5  flags        u8
     6  type         u16  PAD, or DATA: the body is a whole RTPS message
     8  term_offset  i32
    12  term_id      i32  of the term that is written here
    16  first_sn     i64  sequence number of its first sample
    24  count        u32  samples in it
    28  segment      u32  0: the body is one message; else messages of so many bytes each, the last perhaps shorter
    32  body

The length is zero at first, as all of a cleaned term. It is stored negative before anything else of the frame and
made positive after all of it, each time by one aligned 4-byte store (Aeron's commit). So a reader of the same
memory, and a process that opens the file after ``kill -9``, sees nothing, a claim or a whole frame. x86-64 keeps the
order of the stores; see frame.py for weaker machines.
"""

from __future__ import annotations

import struct
from typing import Final

from ..protocol.writing.publication import FRAME_ALIGNMENT
from ..wire.samples import U8

VERSION: Final = 1
PAD: Final = 0
DATA: Final = 1
#: Terms in a log: one that is written, one that can still be sent again, one that is cleaned.
TERMS: Final = 3

# Native sizes and alignment: each field is one store, in this order.
_HEADER: Final = struct.Struct("@iBBHiiqII")
_TYPE: Final = struct.Struct("@H")
_TYPE_AT: Final = 6
_WORD: Final = 4
_STRIDE: Final = FRAME_ALIGNMENT // _WORD


def frame_header(terms: Terms, position: int) -> tuple[int, int, int, int, int, int, int]:
    """Length, type, term offset, term id, first number, samples and segment of the header at a position."""
    length, _, _, kind, offset, term_id, first_sn, samples, segment = _HEADER.unpack_from(
        terms.data, position % terms.span
    )
    return length, kind, offset, term_id, first_sn, samples, segment


def term_id_at(initial_term_id: int, term_count: int) -> int:
    """The id of the term after ``term_count`` others; ids wrap as i32."""
    return (initial_term_id + term_count + (1 << 31)) % (1 << 32) - (1 << 31)


class Terms:
    """The three terms as one array: position p lies at p % (3 * term_length)."""

    __slots__ = ("data", "initial_term_id", "lengths", "span", "term_length")

    def __init__(self, data: U8, term_length: int, initial_term_id: int) -> None:
        self.data = data
        self.term_length = term_length
        self.initial_term_id = initial_term_id
        self.span = TERMS * term_length
        #: The same bytes as i32: the index of a frame's length is its offset / 4.
        self.lengths = memoryview(data).cast("i")

    def term_id(self, position: int) -> int:
        return term_id_at(self.initial_term_id, position // self.term_length)

    def length_at(self, position: int) -> int:
        """The length at a position: of a whole frame, negative for a claim, 0 if there is nothing yet."""
        length: int = self.lengths[position % self.span // _WORD]
        return length

    def claim(
        self, at: int, length: int, term_offset: int, term_id: int, first_sn: int, count: int, segment: int
    ) -> None:
        """Store the header of a DATA frame that is not committed yet."""
        _HEADER.pack_into(
            self.data, at, -length, VERSION, 0, DATA, term_offset, term_id, first_sn, count, segment
        )

    def commit_frame(self, at: int, length: int) -> None:
        self.lengths[at // _WORD] = length

    def make_pad(self, at: int, length: int) -> None:
        """Commit the claim at ``at`` as a PAD."""
        _TYPE.pack_into(self.data, at + _TYPE_AT, PAD)
        self.commit_frame(at, length)

    def is_pad(self, at: int) -> bool:
        """Whether the frame at ``at`` is a PAD."""
        return bool(_TYPE.unpack_from(self.data, at + _TYPE_AT)[0] == PAD)

    def pad(self, position: int, length: int) -> None:
        """Store and commit a PAD of ``length`` bytes over nothing, or over a claim, even one with a partial header."""
        at = position % self.span
        offset, term_id = position % self.term_length, self.term_id(position)
        _HEADER.pack_into(self.data, at, -length, VERSION, 0, PAD, offset, term_id, 0, 0, 0)
        self.commit_frame(at, length)

    def gap(self, position: int, limit: int) -> int:
        """The position up to which nothing is stored, in this term and below ``limit``."""
        start = position % self.span // _WORD
        room = min(limit - position, self.term_length - position % self.term_length)
        # A body is stored after its header, so only headers need to be checked.
        words = self.data.view("i4")[start : start + room // _WORD : _STRIDE]
        found = words.nonzero()[0]
        return position + (int(found[0]) * FRAME_ALIGNMENT if found.size else room)
