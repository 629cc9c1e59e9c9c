"""Consecutive batches, one DATA_BATCH in each datagram, read together into one run.

Reads datagrams of equal length at a constant pitch, as in GSO buffers: header, INFO_TS and one little-endian DATA_BATCH
without inline QoS of its own, whose samples are all present, are of one size and have no inline QoS except a key hash.
All other datagrams are left to the message receiver, which reads each by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import DecodeError
from ..structure import Guid, is_builtin
from .batch import DATA_BATCH, Batch
from .batch_scan import BATCH_OCTETS_TO_INLINE_QOS, SAMPLE_INFO_FLAGS, shape_of_info
from .datagram_layout import (
    BODY,
    BODY_WORD,
    EQUAL_WORDS,
    INFO_TS_LE,
    INFO_TS_WORD,
    MAGIC_LE,
    MAJOR_VERSION,
    OCTETS_WORD,
    PREFIX_WORD,
    READER_WORD,
    STAMP_WORD,
    VERSION_WORD,
    WRITER_WORD,
)
from .message import FLAG_E
from .runs import Words, alike_between
from .samples import U8, Run, equal_ranges, source_timestamps

#: Offsets in a DATA_BATCH: its numbers; the offset to its last sample; the length of its sample infos; these.
_BATCH_SN: Final = BODY_WORD + 4
_FIRST_SN: Final = BODY_WORD + 6
_TO_LAST: Final = BODY_WORD + 8
_LIST_BYTES: Final = BODY_WORD + 10
_INFOS: Final = BODY_WORD + 11
#: Words that are equal in the datagrams of a range; in the header, the minor version and the vendor may differ.
_EQUAL_WORDS: Final = (0, INFO_TS_WORD, *EQUAL_WORDS, _TO_LAST, _LIST_BYTES)
#: The low half of a DATA_BATCH's first word, and octetsToInlineQos behind the extra flags.
PLAIN_BATCH: Final = DATA_BATCH | FLAG_E << 8
_T, _Q, _O, _D, _I, _K = SAMPLE_INFO_FLAGS
_NUMBER_MAX: Final = (1 << 62) - 1
#: Bytes of the timestamp in front of each sample, in a run with several timestamps.
_STAMP_BYTES: Final = 8


class BatchRange:
    """``batches`` batches of ``per_batch`` samples each, from ``batch_sn`` on: as one run, and apart."""

    __slots__ = ("_layout", "_rows", "_run", "batch_sn", "batches", "per_batch", "reader_id", "writer")

    def __init__(self, layout: _Layout, rows: Words) -> None:
        head = layout.head
        self.writer = Guid(
            head[PREFIX_WORD:INFO_TS_WORD].tobytes(), head[WRITER_WORD : WRITER_WORD + 1].tobytes()
        )
        self.reader_id = head[READER_WORD : READER_WORD + 1].tobytes()
        self.batch_sn = int(_numbers(rows, _BATCH_SN)[0])
        self.batches = len(rows)
        self.per_batch = layout.per
        self._layout = layout
        self._rows = rows
        self._run: Run | None = None

    @property
    def last_batch_sn(self) -> int:
        return self.batch_sn + self.batches - 1

    @property
    def nbytes(self) -> int:
        """Bytes of the datagrams."""
        return self._rows.nbytes

    def run(self) -> Run:
        """All samples; the run has memory of its own, and no batch number."""
        if self._run is None:
            self._run = self._layout.gather(self._rows, self.writer, self.reader_id)
        return self._run

    def apart(self) -> Iterator[Batch]:
        """Each batch, with memory of its own."""
        per, run = self.per_batch, self.run()
        lead = _STAMP_BYTES if run.timestamp_offset >= 0 else 0
        rows = run.data.reshape(run.count, run.stride)[:, lead:]
        for i in range(self.batches):
            part = slice(i * per, (i + 1) * per)
            one = replace(
                run.take_range(part.start, part.stop),
                data=rows[part].copy().reshape(-1),
                stride=run.stride - lead,
                payload_offset=run.payload_offset - lead,
                key_hash_offset=max(run.key_hash_offset - lead, -1),
                timestamp=int(run.take_range(part.start, part.start + 1).timestamps()[0]),
                timestamp_offset=-1,
                batch_sn=self.batch_sn + i,
            )
            yield Batch(one.batch_sn, one.first_sn, one.last_sn, [one], 0, one.reader_id, one.writer)


class SpanningBatches(NamedTuple):
    """A range in the datagrams [first, stop) of those that were scanned."""

    first: int
    stop: int
    range_: BatchRange


def scan_batches(data: U8, start: int, size: int, pitch: int, count: int) -> list[SpanningBatches]:
    """Read ``count`` datagrams of ``size`` bytes, the first at ``data[start]`` and each ``pitch`` bytes behind the one
    before, all multiples of 4. A datagram of another form is in no range."""
    if pitch < size or size < 4 * (_INFOS + 2) or count < 2:
        return []
    words = data[start : start + (count - 1) * pitch + size].view("<u4")
    rows = np.lib.stride_tricks.as_strided(words, (count, size // 4), (pitch, 4), writeable=False)
    found = _Layout.at_datagram(data, start, size, rows[0])
    if found is None:
        return []
    return [
        SpanningBatches(first, stop, BatchRange(found, rows[first:stop]))
        for first, stop in found.alike(rows)
        if stop - first > 1
    ]


class _Layout(NamedTuple):
    """The layout that all datagrams of a range share; ``head`` is the first of them. Positions are in words."""

    head: Words
    per: int
    info: int  # words of a sample info
    key_hash: int  # where in it; -1: it has none
    status: int
    payloads: int  # where they begin, behind their encapsulation header
    width: int  # of each
    padding: int

    @classmethod
    def at_datagram(cls, data: U8, start: int, size: int, head: Words) -> _Layout | None:
        """The layout of the datagram at ``data[start]``; None: it has another form than those that are read here."""
        plain = (
            head[0] == MAGIC_LE
            and head[VERSION_WORD] & 0xFF == MAJOR_VERSION
            and head[INFO_TS_WORD] == INFO_TS_LE
            and head[BODY_WORD] & 0xFFFF == PLAIN_BATCH
            and head[BODY_WORD] >> 16 in (size - BODY - 4, 0)
            and head[OCTETS_WORD] >> 16 == BATCH_OCTETS_TO_INLINE_QOS
            and not is_builtin(head[WRITER_WORD].tobytes())
        )
        list_bytes = int(head[_LIST_BYTES])
        infos = start + 4 * _INFOS
        if not plain or not 8 <= list_bytes <= size - 4 * (_INFOS + 1):
            return None
        try:
            shape = shape_of_info(data, infos, infos + list_bytes, FLAG_E)
        except DecodeError:
            return None
        first = head[_INFOS : _INFOS + 2].tolist()
        bits, length, padding = first[0] >> 8 & 0xFF, first[1], first[0] & 3
        per, rest = divmod(list_bytes, 4 * shape.size)
        width = (length + 3) // 4
        payloads = _INFOS + list_bytes // 4 + 1
        fits = payloads + per * width <= size // 4
        if rest or not fits or bits & ~_Q != _D or shape.coherent_set or int(head[_TO_LAST]) != per - 1:
            return None
        padding = -length & 3 or min(padding, length)
        return cls(head, per, shape.size, shape.key_hash, shape.status, payloads, width, padding)

    def alike(self, rows: Words) -> Iterator[tuple[int, int]]:
        """[first, stop) of the rows of each range."""
        head, count = self.head, len(rows)
        good = (rows[:, VERSION_WORD] & 0xFF) == MAJOR_VERSION
        for column in _EQUAL_WORDS:
            good &= rows[:, column] == head[column]
        good &= rows[:, self.payloads - 1] == head[self.payloads - 1]
        infos = self._infos(rows)
        one = head[_INFOS : _INFOS + self.info]
        hashed = self.key_hash if self.key_hash >= 0 else self.info
        same = alike_between(infos, one, 0, hashed) & alike_between(infos, one, hashed + 4, self.info)
        good &= same.all(axis=1)
        batch_sn, first_sn = _numbers(rows, _BATCH_SN), _numbers(rows, _FIRST_SN)
        for numbers in (batch_sn, first_sn):
            good &= (numbers >= 1) & (numbers <= _NUMBER_MAX)
        linked = (batch_sn[1:] == batch_sn[:-1] + 1) & (first_sn[1:] == first_sn[:-1] + self.per)
        cut = ~(good[1:] & good[:-1] & linked) if count > 1 else np.zeros(0, np.bool_)
        return ((first, stop) for first, stop in equal_ranges(cut) if good[first])

    def _infos(self, rows: Words) -> Words:
        infos = rows[:, _INFOS : self.payloads - 1]
        shape = (len(rows), self.per, self.info)
        strides = (rows.strides[0], 4 * self.info, 4)
        return np.lib.stride_tricks.as_strided(infos, shape, strides, writeable=False)

    def gather(self, rows: Words, writer: Guid, reader_id: bytes) -> Run:
        """The samples of ``rows``: for each its timestamp, if they differ, its key hash, and its payload."""
        count, per, width, head = len(rows), self.per, self.width, self.head
        stamps = rows[:, STAMP_WORD:BODY_WORD]
        hash_at = 2 if (stamps != stamps[0]).any() else 0
        payload_at = hash_at + 4 if self.key_hash >= 0 else hash_at
        out = np.empty((count, per, payload_at + 1 + width), np.uint32)
        if hash_at:
            out[..., :2] = stamps[:, None]
        if self.key_hash >= 0:
            out[..., hash_at:payload_at] = self._infos(rows)[..., self.key_hash : self.key_hash + 4]
        encapsulation = int(head[self.payloads - 1]) & 0xFCFF_FFFF
        out[..., payload_at] = encapsulation | self.padding << 24
        payloads = rows[:, self.payloads : self.payloads + per * width]
        out[..., payload_at + 1 :] = np.lib.stride_tricks.as_strided(
            payloads, (count, per, width), (rows.strides[0], 4 * width, 4), writeable=False
        )
        return Run(
            writer,
            int(_numbers(rows, _FIRST_SN)[0]),
            count * per,
            out.reshape(-1).view(np.uint8),
            out.shape[2] * 4,
            payload_at * 4,
            4 + width * 4,
            int(source_timestamps(stamps[:1, 0], stamps[:1, 1])[0]),
            0 if hash_at else -1,
            False,
            hash_at * 4 if self.key_hash >= 0 else -1,
            self.status,
            None,
            reader_id,
            datagram_bytes=4 * per * (out.shape[2] - hash_at),
        )


def _numbers(rows: Words, at: int) -> npt.NDArray[Any]:
    """The sequence numbers at an offset of each row."""
    return rows[:, at].astype(np.int32).astype(np.int64) << 32 | rows[:, at + 1]
