"""Reads DATA_BATCH: sample infos of one shape are read as columns; see `batch` for the layout.

If sample infos differ too often for that, one scan finds the start and the inline QoS of each, and reads no word twice;
the rest is read as columns again. So no submessage costs more than a few milliseconds.

Other vendors may send what this writer does not: inline QoS of the whole batch, sequence number offsets, removed
samples.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import DecodeError, DropReason
from ..limits import RUNS_PER_BATCH_MAX
from ..structure import GUID_UNKNOWN, INFINITE, Guid
from .framing import ntp_words, spread
from .inline_qos import scan_inline_qos, walk_inline_qos
from .message import FLAG_E
from .numbers import SEQUENCE_NUMBER_MAX, pair
from .runs import FLAG_Q, Words, alike_between
from .samples import (
    HAS_KEY_HASH,
    I64,
    KEY_ONLY,
    REMOVED,
    SAMPLE_INDEX,
    U8,
    Run,
    equal_ranges,
    source_timestamps,
)

#: The flags of a sample info: timestamp, inline QoS, sequence number offset, data, invalid, serialized key.
SAMPLE_INFO_FLAGS: Final = (0x01, 0x02, 0x04, 0x08, 0x10, 0x20)
_T, _Q, _O, _D, _I, _K = SAMPLE_INFO_FLAGS
#: Shifts of the flags, and of the padding count, in the first word of a sample info, read in the submessage's byte
#: order.
_SHIFT: Final = (16, 8)
_PADDING_SHIFT: Final = (24, 0)

#: The layout from octetsToNextHeader on.
_BATCH: Final = pair("HHH4s4siIiIII")
_BATCH_SIZE: Final = 40
BATCH_OCTETS_TO_INLINE_QOS: Final = 32
#: Bytes that take about a microsecond: when words are compared, and when they are scanned one by one; and for a part.
BYTES_PER_WORK: Final = 2_048
BYTES_PER_WORK_SCANNED: Final = 12
_WORK_PART: Final = 20
_U32: Final = pair("I")
_U16: Final = pair("H")


class Batch(NamedTuple):
    """A DATA_BATCH, decoded; its runs have memory of their own."""

    batch_sn: int
    first_sn: int
    last_sn: int
    runs: list[Run]  # consecutive sequence numbers each; removed samples stay in, flagged
    end: int  # where the next submessage starts
    reader_id: bytes
    writer: Guid
    #: About how many microseconds the reading took.
    work: int = 0


class _Infos(NamedTuple):
    """The sample infos by column; words are in the byte order of the wire."""

    bits: U8
    padding: U8  # from the reserved flags, see `batch`
    lengths: I64
    flags: npt.NDArray[np.uint32]
    stamps: Words | None  # (n, 2), the last timestamp up to each sample
    stamped: int  # the first sample with a timestamp; the samples before it have the INFO_TS's
    hashes: Words | None  # (n, 4), zero where there is none
    numbers: I64  # offsets from the batch's first sequence number
    sets: I64 | None  # coherent set of each, where infos name one


def scan_batch(
    data: U8, pos: int, stop: int, prefix: bytes, timestamp: int, *, work_max: int = INFINITE
) -> Batch:
    """Read the DATA_BATCH at ``data[pos]`` of a message that ends at ``stop``.

    ``prefix`` is the source GUID prefix and ``timestamp`` the source timestamp in force (ns). Raises DecodeError if it
    is malformed, and if the scan of its sample infos would take more than ``work_max``.
    """
    if stop - pos < _BATCH_SIZE:
        raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, "DATA_BATCH header")
    flags = int(data[pos + 1])
    little = flags & FLAG_E
    length, _, to_qos, reader_id, writer_id, *numbers, to_last, _ = _BATCH[little].unpack_from(data, pos + 2)
    end = pos + 4 + length if length else stop
    at = pos + 8 + to_qos
    if end > stop or to_qos < BATCH_OCTETS_TO_INLINE_QOS or to_qos % 4 or at > end:
        raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, f"DATA_BATCH of {length} bytes, {stop - pos} left")
    batch_sn, first_sn = numbers[0] << 32 | numbers[1], numbers[2] << 32 | numbers[3]
    last_sn = first_sn + to_last
    if batch_sn < 1 or first_sn < 1 or last_sn > SEQUENCE_NUMBER_MAX:
        raise DecodeError(DropReason.BAD_SEQUENCE_NUMBER, f"batch {batch_sn}: {first_sn}..{last_sn}")
    coherent_set = 0
    if flags & FLAG_Q:
        at, _, _, coherent_set = scan_inline_qos(data, at, end, little)
    if end - at < 4:
        raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, "DATA_BATCH without sample infos")
    (list_bytes,) = _U32[little].unpack_from(data, at)
    at += 4
    # The bytes, not the sample count, determine the number of infos: removed samples may not be counted.
    if list_bytes > end - at or list_bytes % 4 or not list_bytes:
        raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, f"{list_bytes} bytes of sample infos")
    parts = _parts(data, at, at + list_bytes, little)
    if parts is None and list_bytes // BYTES_PER_WORK_SCANNED > work_max:
        raise DecodeError(DropReason.OVER_LIMIT, "a DATA_BATCH that is too much work")
    payloads = _Payloads(data, at + list_bytes, end, timestamp, little)
    run = None if parts is None else _plain(parts, payloads)
    infos = None
    if run is None:
        infos = _walk(data, at, at + list_bytes, little) if parts is None else _columns(parts, little)
        run = _mixed(infos, payloads)
    run.writer, run.reader_id = Guid(prefix, writer_id), reader_id
    run.batch_sn, run.first_sn, run.coherent_set = batch_sn, first_sn, coherent_set
    runs = [run] if infos is None else _consecutive(run, infos)
    if runs[-1].last_sn > last_sn:
        raise DecodeError(DropReason.BAD_SEQUENCE_NUMBER, f"samples up to {runs[-1].last_sn} of {last_sn}")
    work = 20 + (end - at) // BYTES_PER_WORK
    if parts is None:
        work += list_bytes // BYTES_PER_WORK_SCANNED
    else:
        work += sum(_WORK_PART + shape.size // 4 for shape, _ in parts)
    return Batch(batch_sn, first_sn, last_sn, runs, end, reader_id, run.writer, work)


class _Shape(NamedTuple):
    """One sample info, decoded; positions are in words."""

    size: int
    stamp: int
    number: int
    qos: int
    key_hash: int
    status: int
    coherent_set: int


def shape_of_info(data: U8, at: int, stop: int, little: int) -> _Shape:
    if stop - at < 8:
        raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, "sample info")
    bits = int(data[at + 1])
    (octets,) = _U16[little].unpack_from(data, at + 2)
    qos = at + 4 + octets
    stamp = 2 if bits & _T else -1
    number = (4 if bits & _T else 2) if bits & _O else -1
    if octets < 4 + (8 if bits & _T else 0) + (4 if bits & _O else 0) or octets % 4 or qos > stop:
        raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, f"sample info: octetsToInlineQos {octets}")
    if not bits & _Q:
        return _Shape((qos - at) // 4, stamp, number, -1, -1, 0, 0)
    end, status, hash_at, coherent_set = scan_inline_qos(data, qos, stop, little)
    key_hash = -1
    if hash_at >= 0:
        status, key_hash = status | HAS_KEY_HASH, (hash_at - at) // 4
    return _Shape((end - at) // 4, stamp, number, (qos - at) // 4, key_hash, status, coherent_set)


_Part = tuple[_Shape, Words]


#: If sample infos make this many parts, which are this short on average, scanning them one by one is faster.
_PARTS_MANY: Final = 8
_PART_SHORT: Final = 32


def _parts(data: U8, at: int, stop: int, little: int) -> list[_Part] | None:
    """The sample infos, divided where their shape changes: (count, size) words each; None: it changes too often."""
    words = data[at:stop].view("<u4" if little else ">u4")
    parts: list[_Part] = []
    w = count = 0
    ahead = len(words)
    while w < len(words):
        if len(parts) >= _PARTS_MANY and count < len(parts) * _PART_SHORT:
            return None
        shape = shape_of_info(data, at + 4 * w, stop, little)
        rows = _alike(words[w:], shape, ahead, little)
        parts.append((shape, rows))
        w += rows.size
        count += len(rows)
        # Usually all are alike, or all but the first. Otherwise the next comparison is short, so that a list of many
        # shapes is not compared over and over.
        if len(parts) > 1:
            ahead = 4 * len(rows)
    return parts


def _alike(words: Words, shape: _Shape, ahead: int, little: int) -> Words:
    """The infos at the start of ``words`` with the shape of the first: (count, size)."""
    size = shape.size
    count = min(len(words) // size, ahead)
    rows = words[: count * size].reshape(count, size)
    # whether there is data, and its padding, may differ by sample
    mask = np.uint32(0xFFFF_FFFF ^ (_D | _I | _K) << _SHIFT[little] ^ 3 << _PADDING_SHIFT[little])
    same = (rows[:, 0] ^ rows[0, 0]) & mask == 0
    if shape.qos >= 0:
        k = size if shape.key_hash < 0 else shape.key_hash
        same &= alike_between(rows, rows[0], shape.qos, k)
        same &= alike_between(rows, rows[0], k + 4, size)
    return rows if same.all() else rows[: int(same.argmin())]


def _columns(parts: list[_Part], little: int) -> _Infos:
    count = sum(len(rows) for _, rows in parts)
    dtype = parts[0][1].dtype
    bits, padding, lengths = np.empty(count, np.uint8), np.empty(count, np.uint8), np.empty(count, np.int64)
    flags = np.empty(count, np.uint32)
    stamps = np.zeros((count, 2), dtype) if any(shape.stamp >= 0 for shape, _ in parts) else None
    hashes = np.zeros((count, 4), dtype) if any(shape.key_hash >= 0 for shape, _ in parts) else None
    sets = np.zeros(count, np.int64) if any(shape.coherent_set for shape, _ in parts) else None
    numbers = np.arange(count)
    stamped, i = count, 0
    for shape, rows in parts:
        part = slice(i, i + len(rows))
        bits[part] = rows[:, 0] >> _SHIFT[little] & 0xFF
        padding[part] = rows[:, 0] >> _PADDING_SHIFT[little] & 3
        lengths[part] = rows[:, 1]
        flags[part] = shape.status
        if stamps is not None:
            if shape.stamp >= 0:
                stamps[part] = rows[:, 2:4]
                stamped = min(stamped, i)
            elif i:
                stamps[part] = stamps[i - 1]
        if hashes is not None and shape.key_hash >= 0:
            hashes[part] = rows[:, shape.key_hash : shape.key_hash + 4]
        if sets is not None:
            sets[part] = shape.coherent_set
        if shape.number >= 0:
            numbers[part] = rows[:, shape.number]
        elif i:  # its number follows the one before
            numbers[part] += numbers[i - 1] + 1 - i
        i += len(rows)
    return _checked(_Infos(bits, padding, lengths, flags, stamps, stamped, hashes, numbers, sets))


def _checked(infos: _Infos) -> _Infos:
    """A copy of ``infos`` with the sample flags decoded."""
    bits, numbers = infos.bits, infos.numbers
    if (bits & (_D | _K) == _D | _K).any():
        raise _both_data_and_key()
    if (numbers[1:] <= numbers[:-1]).any():
        raise DecodeError(DropReason.BAD_SEQUENCE_NUMBER, "samples of a batch out of order")
    infos.flags[:] |= _SAMPLE_FLAGS[bits]
    return infos


#: For a sample info in which each flag means another 4 or 8 bytes: the least number of bytes before its inline QoS.
_LEAST_OCTETS: Final = [4 + (8 if bits & _T else 0) + (4 if bits & _O else 0) for bits in range(256)]


def _walk(data: U8, at: int, stop: int, little: int) -> _Infos:
    """The result of :func:`_columns`, for sample infos of any shapes, in one pass over their words."""
    found = data[at:stop].view("<u4" if little else ">u4")
    words, end = found.tolist(), len(found)
    shift = _SHIFT[little]
    octets_shift, octets_mask = (16, 0xFFFF) if little else (0, 0xFFFF)
    starts: list[int] = []
    qos_rows: list[tuple[int, int, int, int]] = []  # sample, status, word of the key hash, coherent set
    w = 0
    while w < end:
        head = words[w]
        bits = head >> shift & 0xFF
        octets = head >> octets_shift & octets_mask
        behind = w + 1 + octets // 4
        if end - w < 2 or octets < _LEAST_OCTETS[bits] or octets % 4 or behind > end:
            raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, f"sample info: octetsToInlineQos {octets}")
        if bits & _Q:
            behind, status, key_hash, coherent_set = walk_inline_qos(words, behind, end, little)
            if status or coherent_set:
                qos_rows.append((len(starts), status, key_hash, coherent_set))
        starts.append(w)
        w = behind
    begin = np.array(starts, np.int64)
    count, heads = len(starts), found[begin]
    bits_of = (heads >> shift & 0xFF).astype(np.uint8)
    flags = np.zeros(count, np.uint32)
    hashes: Words | None = None
    sets: I64 | None = None
    if qos_rows:
        rows, status_of, hash_at, set_of = np.array(qos_rows, np.int64).T
        flags[rows] = status_of
        hashed = hash_at >= 0
        if hashed.any():
            hashes = np.zeros((count, 4), found.dtype)
            hashes[rows[hashed]] = found[hash_at[hashed, None] + np.arange(4)]
        if set_of.any():
            sets = np.zeros(count, np.int64)
            sets[rows] = set_of
    stamps, stamped = None, count
    own = bits_of & _T != 0
    if own.any():
        stamped = int(own.argmax())
        last = _last(own)
        stamps = np.zeros((count, 2), found.dtype)
        stamps[stamped:] = found[begin[last[stamped:], None] + np.array((2, 3))]
    numbers = np.arange(count)
    named = bits_of & _O != 0
    if named.any():
        first, last = int(named.argmax()), _last(named)
        at_number = begin + np.where(own, 4, 2)
        numbers[first:] += found[at_number[last[first:]]].astype(np.int64) - last[first:]
    padding = (heads >> _PADDING_SHIFT[little] & 3).astype(np.uint8)
    lengths = found[begin + 1].astype(np.int64)
    return _checked(_Infos(bits_of, padding, lengths, flags, stamps, stamped, hashes, numbers, sets))


def _last(marked: npt.NDArray[np.bool_]) -> I64:
    """For each index the last marked one up to it; 0 before the first."""
    return np.maximum.accumulate(np.where(marked, np.arange(len(marked)), 0))


def _both_data_and_key() -> DecodeError:
    return DecodeError(DropReason.BAD_ENCAPSULATION, "a sample of a batch with both data and key")


#: Sample flags by the flags of a sample info.
_SAMPLE_FLAGS: Final = np.array(
    [(KEY_ONLY if bits & _K else 0) | (REMOVED if bits & _I else 0) for bits in range(256)], np.uint32
)


class _Payloads(NamedTuple):
    """The encapsulation header at ``at``, the payloads behind it up to ``end``, and further inputs of a run."""

    data: U8
    at: int
    end: int
    timestamp: int
    little: int

    def words(self, count: int, lengths: int | I64, optional: bool) -> Words:
        """The payloads, each padded to 4; ``optional``: there may be none, nor an encapsulation header."""
        padded = lengths + 3 & -4
        if isinstance(lengths, int):
            total, least = count * (lengths + 3 & -4), count * lengths
        else:
            total, least = int(np.sum(padded)), int(lengths.sum())
        start = self.at + 4
        room = self.end - start
        if total > room and least <= room:
            return self._pad(np.broadcast_to(lengths, count), total, least)
        if total > room and not (optional and total == 0):
            raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, f"payloads of {total} bytes, {room} left")
        return self._view(self.data[start : start + total])

    def _pad(self, lengths: I64, total: int, least: int) -> Words:
        """Payloads of a sender that omits the padding of the last one, or of all."""
        start = self.at + 4
        padded = lengths + 3 & -4
        found = np.zeros(total, np.uint8)
        room = self.end - start
        if total - int(padded[-1] - lengths[-1]) <= room:  # part of the padding may be there
            found[:room] = self.data[start : self.end]
        else:
            found[spread(np.cumsum(padded) - padded, lengths)] = self.data[start : start + least]
        return self._view(found)

    def _view(self, found: U8) -> Words:
        return found.view("<u4" if self.little else ">u4")

    def header(self, padding: Any) -> Any:
        """The encapsulation header as a word, with the padding of a payload (or of each) in its options."""
        raw = self.data[self.at : self.at + 4].tobytes()
        if self.little:
            return int.from_bytes(raw, "little") & 0xFCFF_FFFF | padding << 24
        return int.from_bytes(raw, "big") & 0xFFFF_FFFC | padding


def _plain(parts: list[_Part], payloads: _Payloads) -> Run | None:
    """The uniform run of samples with infos of one shape; None if their shapes differ."""
    shape, rows = parts[0]
    if len(parts) > 1 or shape.number >= 0 or shape.coherent_set:
        return None
    if (rows[:, 0] != rows[0, 0]).any() or (rows[:, 1] != rows[0, 1]).any():
        return None
    stamps = rows[:, 2:4] if shape.stamp >= 0 else None
    hashes = rows[:, shape.key_hash : shape.key_hash + 4] if shape.key_hash >= 0 else None
    bits = int(rows[0, 0]) >> _SHIFT[payloads.little] & 0xFF
    padding = int(rows[0, 0]) >> _PADDING_SHIFT[payloads.little] & 3
    if bits & (_D | _K) == _D | _K:
        raise _both_data_and_key()
    return _uniform(payloads, len(rows), int(rows[0, 1]), padding, bits, shape.status, stamps, hashes)


def _mixed(infos: _Infos, payloads: _Payloads) -> Run:
    """All samples of a batch as if their numbers were consecutive."""
    bits, lengths = infos.bits, infos.lengths
    carries = bits & (_D | _K)
    stamps = infos.stamps
    if stamps is not None and infos.stamped:
        stamps[: infos.stamped] = ntp_words(np.array([payloads.timestamp]), checked=False)
    same = (lengths == lengths[0]) & (carries == carries[0]) & (infos.flags == infos.flags[0])
    if (same & (infos.padding == infos.padding[0])).all():
        first = int(lengths[0]), int(infos.padding[0]), int(bits[0]), int(infos.flags[0])
        return _uniform(payloads, len(bits), *first, stamps, infos.hashes)
    padded = lengths + 3 & -4
    with_header = carries != 0
    words = payloads.words(len(bits), lengths, not with_header.any())
    index = np.zeros(len(bits), SAMPLE_INDEX)
    starts = np.cumsum(padded) - padded
    index["offset"] = starts + 4 * (np.cumsum(with_header) - with_header)
    index["length"] = np.where(with_header, 4 + padded, 0)
    if stamps is None:
        index["timestamp"] = payloads.timestamp
    else:
        index["timestamp"] = source_timestamps(stamps[:, 0], stamps[:, 1])
    index["flags"] = infos.flags
    if infos.hashes is not None:
        index["key_hash"] = infos.hashes.view("V16").reshape(-1)
    if with_header.any():
        padding = np.where(padded > lengths, padded - lengths, np.minimum(infos.padding, lengths))
        headers = payloads.header(padding[with_header]).astype(np.uint32)
        words = np.insert(words, starts[with_header] // 4, headers)
    else:
        words = words.copy()
    return Run(GUID_UNKNOWN, 1, len(bits), words.view(np.uint8), timestamp=payloads.timestamp, index=index)


def _uniform(
    payloads: _Payloads,
    count: int,
    length: int,
    padding: int,
    bits: int,
    status: int,
    stamps: Words | None,
    hashes: Words | None,
) -> Run:
    """A run of rows that hold timestamp and key hash, if any, encapsulation header and payload."""
    carries = bits & (_D | _K)
    width = (length + 3) // 4
    words = payloads.words(count, length, not carries)
    hash_at = 0 if stamps is None else 2
    payload_at = hash_at if hashes is None else hash_at + 4
    rows = np.empty((count, payload_at + 1 + width), words.dtype)
    if stamps is not None:
        rows[:, :2] = stamps
    if hashes is not None:
        rows[:, hash_at : hash_at + 4] = hashes
    rows[:, payload_at] = payloads.header(-length & 3 or min(padding, length)) if carries else 0
    rows[:, payload_at + 1 :] = words.reshape(count, width)
    return Run(
        GUID_UNKNOWN,
        1,
        count,
        rows.reshape(-1).view(np.uint8),
        rows.shape[1] * 4,
        payload_at * 4,
        4 + width * 4 if carries else 0,
        payloads.timestamp,
        -1 if stamps is None else 0,
        not payloads.little,
        -1 if hashes is None else hash_at * 4,
        status | int(_SAMPLE_FLAGS[bits]),
    )


def _consecutive(run: Run, infos: _Infos) -> list[Run]:
    """The run, divided where numbers are missing or the coherent set changes."""
    numbers, sets = infos.numbers, infos.sets
    if sets is None and int(numbers[-1]) == len(numbers) - 1:
        return [run]
    cut = numbers[1:] != numbers[:-1] + 1
    if sets is not None:
        cut |= sets[1:] != sets[:-1]
    if np.count_nonzero(cut) >= RUNS_PER_BATCH_MAX:
        raise DecodeError(DropReason.OVER_LIMIT, "a batch in too many pieces")
    return [
        replace(
            run.take_range(first, last),
            first_sn=run.first_sn + int(numbers[first]),
            coherent_set=run.coherent_set if sets is None or not sets[first] else int(sets[first]),
        )
        for first, last in equal_ranges(cut)
    ]
