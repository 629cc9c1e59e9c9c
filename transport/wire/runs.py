"""The hot path of the wire: runs of DATA submessages, read and written with a few NumPy calls each.

Reading (:func:`scan`) takes the first DATA of a stretch apart with `struct`, then asks of *all* that follow,
in one comparison, whether they look like it: same flags, same reader and writer, sequence numbers running
on. Two shapes are recognised, each with or without an INFO_TS before every DATA (Cyclone DDS batches so):

* uniform: all submessages have the same length, so the stretch is a matrix;
* ragged: lengths differ; candidates are the words that look like the first header, and the chain of
  lengths from candidate to candidate proves them (a look-alike inside a payload breaks the chain and
  merely ends the run early).

Whatever is neither is a run of one. Layouts: RTPS 2.5 §9.4.5.3 (DATA), §9.4.5.9 (INFO_TS).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import DecodeError, DropReason, UsageError
from ..structure import Guid
from .samples import DISPOSED, FILTERED, HAS_KEY_HASH, KEY_ONLY, SAMPLE_INDEX, U8, UNREGISTERED, Run, Samples

DATA: Final = 0x15
INFO_TS: Final = 0x09
_FLAG_E, _FLAG_Q, _FLAG_D, _FLAG_K = 0x01, 0x02, 0x04, 0x08
_STATUS_MASK: Final = DISPOSED | UNREGISTERED | FILTERED
#: flags and length as read little-endian from the first four bytes of an INFO_TS with a time in it
_INFO_TS_WORDS: Final = {0x01: 0x0008_0109, 0x00: 0x0800_0009}
_INFO_TS_SIZE: Final = 12

_HEADER = {1: struct.Struct("<HHH4s4siI"), 0: struct.Struct(">HHH4s4siI")}  # from octetsToNextHeader on
_PARAMETER = {1: struct.Struct("<HH"), 0: struct.Struct(">HH")}
_PID_KEY_HASH, _PID_STATUS_INFO, _PID_SENTINEL, _PID_PAD = 0x0070, 0x0071, 0x0001, 0x0000

Words = npt.NDArray[np.uint32]


class Scan(NamedTuple):
    """What :func:`scan` found: runs, where the next submessage starts, the timestamp in force there."""

    runs: list[Run]
    pos: int
    timestamp: int


@dataclass(slots=True)
class _First:
    """The first DATA of a stretch, taken apart; offsets are counted from its submessage header."""

    flags: int  # of the submessage
    size: int  # whole submessage
    reader_id: bytes
    writer_id: bytes
    sn: int
    payload_offset: int
    key_hash_offset: int
    sample_flags: int


def scan(
    data: U8, pos: int, stop: int, prefix: bytes, timestamp: int, *, after_info_ts: bool = False
) -> Scan:
    """Read the stretch of DATA submessages that starts at ``data[pos]``, up to ``stop``.

    ``prefix`` is the source GUID prefix and ``timestamp`` the source timestamp in force (ns);
    ``after_info_ts`` says that an INFO_TS of 12 bytes lies right before ``pos``. Always gets past at least
    one submessage. Raises DecodeError when that first DATA is malformed.
    """
    first = _parse(data, pos, stop)
    end = pos + first.size
    if stop - end >= 24:  # room for another header
        gap = _gap_to_next(data, pos, end, stop, first)
        if gap >= 0:
            run = None
            if not gap:
                run = _uniform(data, pos, stop, prefix, timestamp, first, 0)
            elif after_info_ts and data[pos - _INFO_TS_SIZE + 1] == first.flags & _FLAG_E:
                # each row of the matrix starts with its INFO_TS
                run = _uniform(data, pos, stop, prefix, timestamp, first, _INFO_TS_SIZE)
            if run is None:
                run = _ragged(data, pos, stop, prefix, timestamp, first)
            if run is not None:
                return Scan([run[0]], run[1], run[2])
    return Scan([_run(data[pos:end], prefix, 1, first, 0, first.size, timestamp)], end, timestamp)


def _parse(data: U8, pos: int, stop: int) -> _First:
    if stop - pos < 24:
        raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, "DATA header")
    flags = int(data[pos + 1])
    length, _, to_qos, reader_id, writer_id, high, low = _HEADER[flags & _FLAG_E].unpack_from(data, pos + 2)
    end = pos + 4 + length if length else stop
    if end > stop:
        raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, "DATA is longer than its message")
    sn = (high << 32) | low
    if sn < 1:
        raise DecodeError(DropReason.BAD_SEQUENCE_NUMBER, f"DATA {sn}")
    at = pos + 8 + to_qos
    if to_qos < 16 or at > end:
        raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, f"octetsToInlineQos {to_qos}")
    status, key_hash_offset = 0, -1
    if flags & _FLAG_Q:
        at, status, key_hash_at = _inline_qos(data, at, end, flags & _FLAG_E)
        if key_hash_at >= 0:
            key_hash_offset = key_hash_at - pos
            status |= HAS_KEY_HASH
    carries = flags & (_FLAG_D | _FLAG_K)
    if carries == _FLAG_D | _FLAG_K:
        raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, "DATA with both data and key")
    if carries:
        if end - at < 4:
            raise DecodeError(DropReason.BAD_ENCAPSULATION, "payload without an encapsulation header")
        if carries == _FLAG_K:
            status |= KEY_ONLY
    else:
        at = end
    return _First(flags, end - pos, reader_id, writer_id, sn, at - pos, key_hash_offset, status)


def _inline_qos(data: U8, at: int, end: int, little: int) -> tuple[int, int, int]:
    """Walk the parameter list at ``at``: (where the payload starts, status flags, where the key hash is)."""
    status, key_hash_at = 0, -1
    parameter = _PARAMETER[little]
    while True:
        if end - at < 4:
            raise DecodeError(DropReason.BAD_PARAMETER_LIST, "inline QoS without a sentinel")
        pid, length = parameter.unpack_from(data, at)
        at += 4
        if pid == _PID_SENTINEL:
            return at, status, key_hash_at
        if length > end - at or length % 4:
            raise DecodeError(DropReason.BAD_PARAMETER_LIST, f"parameter {pid:#06x} of {length} bytes")
        if pid == _PID_KEY_HASH and length >= 16:
            key_hash_at = at
        elif pid == _PID_STATUS_INFO and length >= 4:
            status = int(data[at + 3]) & _STATUS_MASK  # always big-endian: RTPS 2.5 §9.6.4.9
        at += length


def _gap_to_next(data: U8, pos: int, end: int, stop: int, first: _First) -> int:
    """Bytes between this DATA and the next of its kind: 0, 12 (an INFO_TS), or -1 when none follows."""
    if first.size % 4 or not first.flags & (_FLAG_D | _FLAG_K):
        return -1
    for gap in (0, _INFO_TS_SIZE):
        at = end + gap
        if (
            at + first.payload_offset <= stop
            and data[at] == DATA
            and data[at + 1] == first.flags
            and (gap == 0 or (data[end] == INFO_TS and data[end + 1] == first.flags & _FLAG_E))
            and bytes(data[at + 8 : at + 16]) == first.reader_id + first.writer_id
        ):
            return gap
    return -1


def _run(
    data: U8,
    prefix: bytes,
    count: int,
    first: _First,
    lead: int,
    stride: int,
    timestamp: int,
    timestamp_offset: int = -1,
) -> Run:
    """A uniform run whose rows start ``lead`` bytes before their DATA submessage."""
    return Run(
        Guid(prefix, first.writer_id),
        first.sn,
        count,
        data,
        stride,
        lead + first.payload_offset,
        first.size - first.payload_offset,
        timestamp,
        timestamp_offset,
        not first.flags & _FLAG_E,
        lead + first.key_hash_offset if first.key_hash_offset >= 0 else -1,
        first.sample_flags,
        None,
        first.reader_id,
    )


def _uniform(
    data: U8, pos: int, stop: int, prefix: bytes, timestamp: int, first: _First, lead: int
) -> tuple[Run, int, int] | None:
    """The uniform run at ``pos``, if at least two rows look alike; rows start ``lead`` bytes before DATA."""
    stride = first.size + lead
    base = pos - lead
    count = (stop - base) // stride
    if count < 2:
        return None
    words = data[base : base + count * stride].view("<u4").reshape(count, stride // 4)
    w = lead // 4
    # column by column: four times quicker than all four at once with all(axis=1)
    same = words[:, w] == words[0, w]
    for column in (w + 1, w + 2, w + 3) if not lead else (0, w + 1, w + 2, w + 3):
        same &= words[:, column] == words[0, column]
    endian = "<u4" if first.flags & _FLAG_E else ">u4"
    sn = data[base : base + count * stride].view(endian).reshape(count, stride // 4)
    low = first.sn & 0xFFFF_FFFF
    same &= sn[:, w + 5] == _counting(count, low)
    same &= sn[:, w + 4] == first.sn >> 32
    payload = w + first.payload_offset // 4
    if first.flags & _FLAG_Q:
        same &= _same_inline_qos(words, w, first)
    if first.payload_offset < first.size:
        # the encapsulation id only: the options may hold a padding count of each sample's own
        same &= (words[:, payload] & 0xFFFF) == (words[0, payload] & 0xFFFF)
    if not same.all():
        count = int(same.argmin())
        if count < 2:
            return None
    end = base + count * stride
    run = _run(
        data[base:end], prefix, count, first, lead, stride, timestamp, timestamp_offset=4 if lead else -1
    )
    if lead:
        timestamp = int(run.take(count - 1, count).timestamps()[0])
    return run, end, timestamp


_COUNT = np.arange(4096, dtype=np.uint32)


def _counting(count: int, start: int) -> npt.NDArray[np.uint32]:
    """start, start+1, … modulo 2**32; a wrap ends the run because the high word then differs."""
    steps = _COUNT[:count] if count <= len(_COUNT) else np.arange(count, dtype=np.uint32)
    return steps + np.uint32(start)


def _same_inline_qos(words: Words, w: int, first: _First) -> Any:
    """Rows whose inline QoS equals the first row's, key hash values aside."""
    start, stop = w + 6, w + first.payload_offset // 4
    if first.key_hash_offset < 0:
        return (words[:, start:stop] == words[0, start:stop]).all(axis=1)
    k = w + first.key_hash_offset // 4
    same = (words[:, start:k] == words[0, start:k]).all(axis=1)
    return same & (words[:, k + 4 : stop] == words[0, k + 4 : stop]).all(axis=1)


def _ragged(
    data: U8, pos: int, stop: int, prefix: bytes, timestamp: int, first: _First
) -> tuple[Run, int, int] | None:
    """The longest chain of DATA (and INFO_TS) of one writer from ``pos``, lengths differing."""
    little = first.flags & _FLAG_E
    words = data[pos : pos + (stop - pos) // 4 * 4].view("<u4")
    values = words if little else words.view(">u4")
    header_words = first.payload_offset // 4
    at = np.flatnonzero((words[: len(words) - header_words] & 0xFFFF) == (words[0] & 0xFFFF))
    for w in (1, 2, 3):
        at = at[words[at + w] == words[w]]
    if len(at) < 2:
        return None
    lengths = (words[at] >> 16) if little else _swap16(words[at] >> 16)
    ends = at + 1 + lengths // 4
    info_ts = words[np.minimum(ends, len(words) - 1)] == _INFO_TS_WORDS[little]
    follows = np.where(info_ts[:-1], ends[:-1] + 3, ends[:-1])
    linked = (at[1:] == follows) & (lengths[:-1] % 4 == 0)
    # length 0 means "to the end of the message", and the header must fit
    good = (lengths >= first.payload_offset - 4 + 4) & (ends <= len(words)) & (lengths % 4 == 0)
    good &= (values[at + 5] == _counting(len(at), first.sn & 0xFFFF_FFFF)) & (
        values[at + 4] == first.sn >> 32
    )
    for w in range(6, header_words):
        if not 0 <= w * 4 - first.key_hash_offset < 16 or first.key_hash_offset < 0:
            good &= words[at + w] == words[w]
    good[1:] &= linked
    count = len(at) if good.all() else int(good.argmin())
    if count < 2:
        return None
    at, ends, info_ts = at[:count], ends[:count], info_ts[:count]
    index = np.zeros(count, SAMPLE_INDEX)
    index["offset"] = (at + header_words) * 4
    index["length"] = (ends - at - header_words) * 4
    index["flags"] = first.sample_flags
    if first.key_hash_offset >= 0:
        k = at + first.key_hash_offset // 4
        hashes = words[k[:, None] + np.arange(4)]
        index["key_hash"] = np.ascontiguousarray(hashes).view("V16").reshape(count)
    stamps = _ragged_timestamps(values, ends, info_ts, timestamp)
    index["timestamp"] = stamps
    end = pos + int(ends[-1]) * 4
    run = Run(
        Guid(prefix, first.writer_id),
        first.sn,
        count,
        data[pos:end],
        index=index,
        flags=first.sample_flags,
        reader_id=first.reader_id,
    )
    return run, end, int(stamps[-1])


def _ragged_timestamps(
    values: Words, ends: npt.NDArray[Any], info_ts: npt.NDArray[np.bool_], timestamp: int
) -> npt.NDArray[np.int64]:
    """Source timestamp of each sample: that of the last INFO_TS before it (the one behind sample i is i+1's)."""
    count = len(ends)
    stamps = np.full(count, timestamp, np.int64)
    before = np.flatnonzero(info_ts[:-1])
    if len(before):
        seconds = values[ends[before] + 1].astype(np.int64)
        fraction = values[ends[before] + 2].astype(np.int64)
        own = seconds * 1_000_000_000 + ((fraction * 1_000_000_000 + (1 << 31)) >> 32)
        last = np.zeros(count, np.int64)
        last[before + 1] = np.arange(1, len(before) + 1)
        last = np.maximum.accumulate(last)
        stamps = np.where(last > 0, own[np.maximum(last - 1, 0)], timestamp)
    return stamps


def _swap16(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return ((x & 0xFF) << 8) | (x >> 8)


# --- writing ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Block:
    """DATA submessages of consecutive sequence numbers, ready to send; never mutated.

    ``ends`` is the uniform length of a submessage, or a list with where each one ends in ``data``.
    """

    first_sn: int
    count: int
    data: U8
    ends: int | list[int]

    @property
    def last_sn(self) -> int:
        return self.first_sn + self.count - 1

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    def end_of(self, sn: int) -> int:
        """Where the submessage of ``sn`` ends in ``data``; 0 for the number before the first."""
        i = sn - self.first_sn + 1
        if isinstance(self.ends, int):
            return i * self.ends
        return self.ends[i - 1] if i > 0 else 0

    def slice(self, first_sn: int, last_sn: int) -> memoryview:
        """The submessages of [first_sn, last_sn], both within the block."""
        return memoryview(self.data)[self.end_of(first_sn - 1) : self.end_of(last_sn)]

    def fitting(self, first_sn: int, budget: int) -> int:
        """The last SN of this block such that [first_sn, it] fits ``budget`` bytes; first_sn - 1 if none."""
        start = self.end_of(first_sn - 1)
        if isinstance(self.ends, int):
            return min(self.last_sn, first_sn - 1 + budget // self.ends)
        return self.first_sn + bisect_right(self.ends, start + budget) - 1


def frame(
    samples: Samples,
    writer_id: bytes,
    first_sn: int,
    *,
    budget: int,
    flags: int = 0,
    key_hashes: U8 | None = None,
) -> list[Block]:
    """Wrap serialized samples into DATA submessages, cut into blocks of at most ``budget`` bytes.

    Payload lengths must be multiples of 4 (the codec pads). ``flags``: sample flags that hold for all;
    DISPOSED and UNREGISTERED go on the wire as inline QoS, with the (n, 16) ``key_hashes`` if given;
    KEY_ONLY says that the payloads are serialized keys. Raises UsageError if a sample does not fit.
    """
    if samples.count == 0:
        return []
    tail = _inline_qos_words(flags, key_hashes is not None)
    fixed = 24 + 4 * len(tail)
    n = samples.count
    numbers = np.arange(first_sn, first_sn + n, dtype=np.int64)
    kind = _FLAG_E | (_FLAG_Q if tail else 0)
    if samples.is_uniform:
        size = samples.size
        if size:
            kind |= _FLAG_K if flags & KEY_ONLY else _FLAG_D
        stride = fixed + size
        if stride > budget or size % 4:
            raise UsageError(f"a sample of {size} bytes does not fit a datagram of {budget}")
        out = np.empty((n, stride // 4), np.uint32)
        _headers(out, kind, writer_id, numbers, tail, key_hashes)
        out[:, 0] = DATA | kind << 8 | (stride - 4) << 16
        if size:
            out[:, fixed // 4 :] = _word_rows(samples)
        flat = out.view(np.uint8).reshape(-1)
        per_block = budget // stride
        return [
            Block(first_sn + i, min(per_block, n - i), flat[i * stride : (i + per_block) * stride], stride)
            for i in range(0, n, per_block)
        ]
    return _frame_ragged(samples, writer_id, first_sn, budget, flags, key_hashes, tail, kind, numbers)


def _word_rows(samples: Samples) -> Words:
    start, count = samples.start, samples.count
    if samples.stride == samples.size and start % 4 == 0:
        return samples.data[start : start + count * samples.size].view(np.uint32).reshape(count, -1)
    return np.ascontiguousarray(samples.rows()).view(np.uint32)


def _headers(
    out: Words,
    kind: int,
    writer_id: bytes,
    numbers: npt.NDArray[np.int64],
    tail: list[int],
    key_hashes: U8 | None,
) -> None:
    """Fill columns 1.. of the (n, words) matrix with all but the submessage header."""
    out[:, 1] = 16 << 16  # extraFlags 0, octetsToInlineQos 16
    out[:, 2] = 0  # ENTITYID_UNKNOWN: every matched reader
    out[:, 3] = int.from_bytes(writer_id, "little")
    out[:, 4] = numbers >> 32
    out[:, 5] = numbers & 0xFFFF_FFFF
    for i, word in enumerate(tail):
        out[:, 6 + i] = word
    if key_hashes is not None:
        out[:, 7:11] = np.ascontiguousarray(key_hashes).view(np.uint32)


def _inline_qos_words(flags: int, with_key_hash: bool) -> list[int]:
    """The inline QoS as little-endian words, key hash left zero; empty when there is none."""
    words: list[int] = []
    if with_key_hash:
        words += [_PID_KEY_HASH | 16 << 16, 0, 0, 0, 0]
    status = flags & _STATUS_MASK
    if status:
        words += [_PID_STATUS_INFO | 4 << 16, status << 24]  # StatusInfo_t is big-endian
    return [*words, _PID_SENTINEL] if words else []


def _frame_ragged(
    samples: Samples,
    writer_id: bytes,
    first_sn: int,
    budget: int,
    flags: int,
    key_hashes: U8 | None,
    tail: list[int],
    kind: int,
    numbers: npt.NDArray[np.int64],
) -> list[Block]:
    n = samples.count
    lengths = samples.all_lengths() // 4
    header_words = 6 + len(tail)
    total = lengths + header_words
    largest = int(total.max()) * 4
    if largest > budget:
        raise UsageError(f"a sample of {largest} bytes does not fit a datagram of {budget}")
    ends = np.cumsum(total)
    starts = ends - total
    out = np.empty(int(ends[-1]), np.uint32)
    head = np.empty((n, header_words), np.uint32)
    _headers(head, kind, writer_id, numbers, tail, key_hashes)
    carries = np.where(lengths > 0, _FLAG_K if flags & KEY_ONLY else _FLAG_D, 0)
    head[:, 0] = DATA | (kind | carries) << 8 | (total * 4 - 4) << 16
    out[starts[:, None] + np.arange(header_words)] = head
    # payload words: where each goes, and from where it comes, as one gather and one scatter
    moved = int(lengths.sum())
    if moved:
        source = samples.data[: samples.data.nbytes // 4 * 4].view(np.uint32)
        before = np.cumsum(lengths) - lengths
        counting = np.arange(moved)
        to = counting + np.repeat(starts + header_words - before, lengths)
        out[to] = source[counting + np.repeat(samples.all_offsets() // 4 - before, lengths)]
    flat = out.view(np.uint8)
    byte_ends = ends * 4
    blocks = []
    i = start = 0
    while i < n:
        j = int(np.searchsorted(byte_ends, start + budget, side="right"))
        stop = int(byte_ends[j - 1])
        blocks.append(Block(first_sn + i, j - i, flat[start:stop], (byte_ends[i:j] - start).tolist()))
        i, start = j, stop
    return blocks
