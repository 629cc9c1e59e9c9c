"""Datagrams of equal length at a constant pitch, full of DATA of equal length and consecutive numbers.

GSO buffers of messages are written this way. Header and INFO_TS lie before the DATA of each; all is little-endian. The
DATA of all of them are compared at once (:meth:`EqualDatagrams.compare`), and become one of three forms:

* one run with memory of its own, for small datagrams (:func:`scan_equal`);
* a run for each datagram, if they are full of small samples (:meth:`EqualDatagrams.runs`);
* one run that is indexed in place, for large samples (:meth:`EqualDatagrams.indexed_run`).

A datagram that differs is in none of them: the message receiver reads it by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from ..errors import DecodeError
from ..limits import UDP_PAYLOAD_MAX
from ..structure import Guid, is_builtin
from .datagram_layout import (
    BODY,
    BODY_WORD,
    INFO_TS_LE,
    INFO_TS_WORD,
    MAJOR_VERSION,
    SN_LOW_WORD,
    STAMP_WORD,
)
from .message import FLAG_E, HEADER_SIZE, MAGIC
from .runs import FLAG_D, FLAG_K, LOW_MAX, ROWS_MAX, First, Words, comparable, parse, until_wrap
from .samples import SAMPLE_INDEX, U8, Run, equal_ranges, source_timestamps
from .submessages import DATA_HEADER_SIZE

#: Header, INFO_TS, and the header of the first DATA.
_HEAD: Final = BODY + DATA_HEADER_SIZE
#: Offset of the sequence number in a DATA, in words.
_SN_HIGH: Final = 4
_SN_LOW: Final = 5
_HIGH_MAX: Final = (1 << 31) - 1


class SpanningRun(NamedTuple):
    """Datagrams [first, stop) of several, and their run."""

    first: int
    stop: int
    run: Run


class EqualDatagrams(NamedTuple):
    """Datagrams, each with ``each`` DATA from ``data[pos]`` on, or a multiple of ``pitch`` bytes behind that.

    ``first`` is the first DATA; ``stamps`` (n, 2) are the timestamps of all datagrams, and ``prefix`` is their
    writer's.
    """

    data: U8
    pos: int
    pitch: int
    each: int
    first: First
    prefix: bytes
    stamps: Words

    def compare(self) -> Iterator[tuple[int, int, int]]:
        """[first, stop) of the consecutive datagrams whose DATA equal the first one, except for number, key hash and
        payload; and the number of the first of these DATA. The high word of all numbers is the same."""
        count, each = len(self.stamps), self.each
        rows = comparable(self.data, self.pos, (count, each), (self.pitch, self.first.size), self.first, 0)
        width = rows.shape[1]
        flat = rows.reshape(-1)
        differ = flat[width:] != flat[:-width]
        found = [(0, count)]
        if differ.any():
            breaks = np.unique(np.flatnonzero(differ) // width) + 1  # rows unlike the one before
            at, inside = np.divmod(breaks, each)
            broken = np.zeros(count, np.bool_)
            broken[at[inside > 0]] = True
            cut = broken[1:] | broken[:-1]
            cut[at[inside == 0] - 1] = True
            found = [(start, stop) for start, stop in equal_ranges(cut) if not broken[start]]
            unlike = rows[[start * each for start, _ in found]] != rows[0]
            unlike[:, _SN_HIGH : _SN_LOW + 1] = False
            found = [found[i] for i in np.flatnonzero(~unlike.any(axis=1)).tolist()]
        for start, stop in found:
            high, low = rows[start * each, _SN_HIGH : _SN_LOW + 1].tolist()
            low = (low + start * each) & LOW_MAX
            stop = min(stop, start + until_wrap(low) // each)
            if stop > start and high <= _HIGH_MAX and high | low:
                yield start, stop, high << 32 | low

    def gathered_run(self, start: int, stop: int, sn: int) -> Run:
        """The run of the datagrams [start, stop), which has memory of its own: for each sample its timestamp, if they
        differ, its key hash and its payload."""
        first, each, count, stamps = self.first, self.each, stop - start, self.stamps[start:stop]
        payload, k = first.payload_offset // 4, first.key_hash_offset // 4
        rows: Words = np.ndarray(
            (count, each, first.size // 4),
            "<u4",
            self.data,
            self.pos + start * self.pitch,
            (self.pitch, first.size, 4),
        )
        hash_at = 2 if (stamps != stamps[0]).any() else 0
        payload_at = hash_at + 4 if k >= 0 else hash_at
        out = np.empty((count, each, payload_at + first.size // 4 - payload), np.uint32)
        if hash_at:
            out[..., :2] = stamps[:, None]
        if k >= 0:
            out[..., hash_at:payload_at] = rows[..., k : k + 4]
        out[..., payload_at:] = rows[..., payload:]
        return Run(
            Guid(self.prefix, first.writer_id),
            sn,
            count * each,
            out.reshape(-1).view(np.uint8),
            out.shape[2] * 4,
            payload_at * 4,
            first.size - first.payload_offset,
            int(source_timestamps(stamps[:1, 0], stamps[:1, 1])[0]),
            0 if hash_at else -1,
            False,
            hash_at * 4 if k >= 0 else -1,
            first.sample_flags,
            None,
            first.reader_id,
            coherent_set=first.coherent_set,
        )

    def runs(self) -> list[Run]:
        """The run of each datagram, in place."""
        first, each, pitch, pos, data = self.first, self.each, self.pitch, self.pos, self.data
        writer, stride = Guid(self.prefix, first.writer_id), first.size
        times = source_timestamps(self.stamps[:, 0], self.stamps[:, 1]).tolist()
        return [
            Run(
                writer,
                first.sn + i * each,
                each,
                data[pos + i * pitch : pos + i * pitch + each * stride],
                stride,
                first.payload_offset,
                stride - first.payload_offset,
                time,
                -1,
                False,
                first.key_hash_offset,
                first.sample_flags,
                None,
                first.reader_id,
                coherent_set=first.coherent_set,
            )
            for i, time in enumerate(times)
        ]

    @property
    def is_plain(self) -> bool:
        """Whether the DATA have no inline QoS, and data rather than a key."""
        return self.first.flags == FLAG_E | FLAG_D

    def indexed_run(self) -> Run:
        """The run of plain DATA, indexed in place."""
        first, each, pitch, count = self.first, self.each, self.pitch, len(self.stamps)
        index = np.zeros((count, each), SAMPLE_INDEX)
        index["offset"] = (
            (np.arange(count) * pitch)[:, None] + np.arange(each) * first.size + first.payload_offset
        )
        index["length"] = first.size - first.payload_offset
        index["timestamp"] = source_timestamps(self.stamps[:, :1], self.stamps[:, 1:])
        return Run(
            Guid(self.prefix, first.writer_id),
            first.sn,
            count * each,
            self.data[self.pos : self.pos + (count - 1) * pitch + each * first.size],
            index=index.reshape(-1),
            reader_id=first.reader_id,
            datagram_bytes=each * first.size,
        )


def scan_equal(data: U8, pos: int, size: int, pitch: int, stamps: Words, prefix: bytes) -> list[SpanningRun]:
    """The runs, with memory of their own, of datagrams whose header and INFO_TS are compared already.

    ``data[pos : pos + size]`` are the bytes behind these in the first datagram; each other one lies ``pitch`` bytes
    behind the one before; ``stamps`` (n, 2) are the timestamps of all.
    """
    first = _first_of(data, pos, size, pitch)
    if first is None:
        return []
    datagrams = EqualDatagrams(data, pos, pitch, size // first.size, first, prefix, stamps)
    # A run is no longer than a datagram could be, since a smaller window takes all of it or nothing.
    step = max(1, UDP_PAYLOAD_MAX // size)
    return [
        SpanningRun(at, end, datagrams.gathered_run(at, end, sn + (at - start) * datagrams.each))
        for start, stop, sn in datagrams.compare()
        for at in range(start, stop, step)
        for end in (min(at + step, stop),)
    ]


def find_equal(data: U8, start: int, size: int, pitch: int, count: int) -> tuple[EqualDatagrams | None, int]:
    """Compare up to ``count`` datagrams of ``size`` bytes, the first at ``data[start]`` and each ``pitch`` bytes behind
    the one before, all multiples of 4.

    Returns the equal ones, from the first on, or None if they are fewer than two; and the number of datagrams scanned.
    """
    if pitch < size or count < 2:
        return None, count
    pos = start + BODY
    first = _first_of(data, pos, size - BODY, pitch)
    if first is None or is_builtin(first.writer_id):
        return None, 1
    each = (size - BODY) // first.size
    count = min(count, max(2, ROWS_MAX // each))
    heads = np.ndarray((count,), f"V{_HEAD}", data, start, (pitch,)).copy().view("<u4").reshape(count, -1)
    head = heads[0].tobytes()
    if head[:4] != MAGIC or head[4] != MAJOR_VERSION or heads[0, INFO_TS_WORD] != INFO_TS_LE:
        return None, 1
    stamps = heads[:, STAMP_WORD:BODY_WORD].copy()
    heads[:, STAMP_WORD:BODY_WORD] = 0
    heads[:, SN_LOW_WORD] -= np.arange(0, count * each, each, dtype=np.uint32)
    flat, width = heads.reshape(-1), heads.shape[1]
    differ = flat[width:] != flat[:-width]
    looked_at = 1 + int(differ.argmax()) // width if differ.any() else count
    found = EqualDatagrams(data, pos, pitch, each, first, head[8:HEADER_SIZE], stamps[:looked_at])
    begin, stop, _ = next(found.compare(), (0, 0, 0)) if looked_at > 1 else (0, 0, 0)
    if begin or stop < 2:
        return None, looked_at
    return found if stop == looked_at else found._replace(stamps=stamps[:stop]), looked_at


def _first_of(data: U8, pos: int, size: int, pitch: int) -> First | None:
    """The first DATA of datagrams with ``size`` bytes of equal ones; None: they have another form, or overlap."""
    if pitch < size:
        return None
    try:
        first = parse(data, pos, pos + size)
    except DecodeError:
        return None
    is_little = first.flags & FLAG_E and first.flags & (FLAG_D | FLAG_K)
    return first if is_little and not (first.size % 4 or size % first.size) else None
