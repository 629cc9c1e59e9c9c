"""The hot path of the wire: runs of DATA submessages, read with a few NumPy calls each.

:func:`scan` decodes the first DATA of a range with `struct`, then compares *all* that follow with it at once: the same
flags, reader and writer, and consecutive sequence numbers. Two shapes are recognised, each with or without an INFO_TS
before every DATA (Cyclone DDS batches this way):

* uniform: all submessages have the same length, so the range is a matrix;
* ragged: lengths differ; candidates are the words that look like the first header, and the chain of lengths from
  candidate to candidate proves them (a look-alike inside a payload breaks the chain, which merely ends the run early).

If neither shape goes far, samples of every shape are scanned (`mixed_runs`). The last resort is a run of one. Layouts:
RTPS 2.5 §9.4.5.3 (DATA), §9.4.5.9 (INFO_TS).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import DecodeError, DropReason
from ..limits import UDP_PAYLOAD_MAX
from ..structure import Guid
from ..value_classes import slotted
from .info import INFO_TS_SIZE, InfoTimestamp
from .inline_qos import scan_inline_qos
from .message import FLAG_E, SUBMESSAGE_HEADER_SIZE
from .mixed_runs import scan_mixed
from .numbers import pair
from .samples import (
    HAS_KEY_HASH,
    KEY_ONLY,
    SAMPLE_INDEX,
    U8,
    Run,
    source_timestamps,
)
from .submessages import DATA_HEADER_SIZE, DATA_OCTETS_TO_INLINE_QOS, Data

DATA: Final = Data.KIND
INFO_TS: Final = InfoTimestamp.KIND
FLAG_Q, FLAG_D, FLAG_K, FLAG_N = Data.FLAG_Q, Data.FLAG_D, Data.FLAG_K, Data.FLAG_N
#: The first four bytes of an INFO_TS with a time in it, read little-endian, by its E flag.
INFO_TS_WORDS: Final = {
    FLAG_E: INFO_TS | FLAG_E << 8 | (INFO_TS_SIZE - SUBMESSAGE_HEADER_SIZE) << 16,
    0: INFO_TS | (INFO_TS_SIZE - SUBMESSAGE_HEADER_SIZE) << 24,
}

#: The layout from octetsToNextHeader on.
_HEADER: Final = pair("HHH4s4siI")
_SEQUENCE_NUMBER: Final = pair("iI")

Words = npt.NDArray[np.uint32]


class Scan(NamedTuple):
    """The result of :func:`scan`: runs, the offset of the next submessage, the timestamp in force there."""

    runs: list[Run]
    pos: int
    timestamp: int


@slotted
class First:
    """The first DATA of a range, decoded; offsets are in bytes from its submessage header."""

    flags: int  # of the submessage
    size: int  # whole submessage
    reader_id: bytes
    writer_id: bytes
    sn: int
    payload_offset: int
    key_hash_offset: int
    sample_flags: int
    coherent_set: int


def scan(
    data: U8,
    pos: int,
    stop: int,
    prefix: bytes,
    timestamp: int,
    *,
    after_info_ts: bool = False,
    lookahead: int = UDP_PAYLOAD_MAX,
) -> Scan:
    """Read the range of DATA submessages that starts at ``data[pos]``, up to ``stop``.

    ``prefix`` is the source GUID prefix and ``timestamp`` the source timestamp in force (ns); ``after_info_ts``: an
    INFO_TS of 12 bytes lies right before ``pos``; ``lookahead``: how many bytes may be examined for a run. At least one
    submessage is read. Raises DecodeError if that first DATA is malformed.
    """
    first = parse(data, pos, stop)
    end = pos + first.size
    found: Scan | None = None
    message_stop = stop
    if stop - end >= DATA_HEADER_SIZE:  # another one may follow
        gap = _gap_to_next(data, pos, end, stop, first)
        if gap >= 0:
            run = None
            stop = min(stop, max(pos + lookahead, end + gap + first.payload_offset))
            if not gap:
                run = _uniform(data, pos, stop, prefix, timestamp, first, 0)
            elif after_info_ts and data[pos - INFO_TS_SIZE + 1] == first.flags & FLAG_E:
                # each row of the matrix starts with its INFO_TS
                run = _uniform(data, pos, stop, prefix, timestamp, first, INFO_TS_SIZE)
            if run is None:
                run = _ragged(data, pos, stop, prefix, timestamp, first)
            if run is not None:
                found = Scan([run[0]], run[1], run[2])
    if found is None:
        found = Scan([_run(data[pos:end], prefix, 1, first, 0, first.size, timestamp)], end, timestamp)
    (short,) = found.runs
    # The DATA that ends a coherent set stays a run of its own.
    if (
        short.count < _SHORT
        and message_stop - found.pos >= DATA_HEADER_SIZE
        and short.coherent_set >= 0
        and _goes_on(data, found.pos, message_stop, short, first)
    ):
        mixed_stop = min(message_stop, max(pos + lookahead, found.pos + _MIXED_MIN))
        info_ts = INFO_TS_WORDS[first.flags & FLAG_E]
        mixed = scan_mixed(data, pos, mixed_stop, short.writer, timestamp, info_ts, short)
        if mixed is not None and mixed[0].count > short.count:
            return Scan([mixed[0]], mixed[1], mixed[2])
    return found


#: A run shorter than this may be the beginning of a longer one of samples in several shapes.
_SHORT: Final = 8
#: At least this many bytes behind a short run are needed for a mixed one.
_MIXED_MIN: Final = 1_024


def _goes_on(data: U8, end: int, stop: int, run: Run, first: First) -> bool:
    """Whether the next DATA, perhaps behind an INFO_TS, continues a run that ends at ``end``."""
    little = first.flags & FLAG_E
    if stop - end >= INFO_TS_SIZE and data[end] == INFO_TS:
        if data[end : end + 4].view("<u4")[0] != INFO_TS_WORDS[little]:
            return False
        end += INFO_TS_SIZE
    if stop - end < DATA_HEADER_SIZE or data[end] != DATA or data[end + 1] & FLAG_E != little:
        return False
    _, _, _, reader_id, writer_id, high, low = _HEADER[little].unpack_from(data, end + 2)
    return (high << 32 | low) == run.last_sn + 1 and (reader_id, writer_id) == (
        first.reader_id,
        first.writer_id,
    )


def parse(data: U8, pos: int, stop: int) -> First:
    if stop - pos < DATA_HEADER_SIZE:
        raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, "DATA header")
    flags = int(data[pos + 1])
    length, _, to_qos, reader_id, writer_id, high, low = _HEADER[flags & FLAG_E].unpack_from(data, pos + 2)
    end = pos + 4 + length if length else stop
    if end > stop:
        raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, "DATA is longer than its message")
    sn = (high << 32) | low
    if sn < 1:
        raise DecodeError(DropReason.BAD_SEQUENCE_NUMBER, f"DATA {sn}")
    at = pos + 8 + to_qos
    if to_qos < DATA_OCTETS_TO_INLINE_QOS or to_qos % 4 or at > end:
        raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, f"octetsToInlineQos {to_qos}")
    status, key_hash_offset, coherent_set = 0, -1, 0
    if flags & FLAG_Q:
        at, status, key_hash_at, coherent_set = scan_inline_qos(data, at, end, flags & FLAG_E)
        if key_hash_at >= 0:
            key_hash_offset = key_hash_at - pos
            status |= HAS_KEY_HASH
    carries = flags & (FLAG_D | FLAG_K)
    if carries == FLAG_D | FLAG_K or flags & FLAG_N:  # as in Data.decode
        raise DecodeError(DropReason.BAD_ENCAPSULATION, f"DATA with flags {flags:#04x}")
    if carries:
        if end - at < 4:
            raise DecodeError(DropReason.BAD_ENCAPSULATION, "payload without an encapsulation header")
        if carries == FLAG_K:
            status |= KEY_ONLY
    else:
        at = end
    size = end - pos
    return First(flags, size, reader_id, writer_id, sn, at - pos, key_hash_offset, status, coherent_set)


def _gap_to_next(data: U8, pos: int, end: int, stop: int, first: First) -> int:
    """Bytes between this DATA and the next of its kind: 0, 12 (an INFO_TS), or -1 when none follows."""
    if first.size % 4 or not first.flags & (FLAG_D | FLAG_K):
        return -1
    next_sn = ((first.sn + 1) >> 32, (first.sn + 1) & 0xFFFF_FFFF)
    for gap in (0, INFO_TS_SIZE):
        at = end + gap
        if (
            at + first.payload_offset <= stop
            and data[at] == DATA
            and data[at + 1] == first.flags
            and (gap == 0 or (data[end] == INFO_TS and data[end + 1] == first.flags & FLAG_E))
            and bytes(data[at + 8 : at + 16]) == first.reader_id + first.writer_id
            and _SEQUENCE_NUMBER[first.flags & FLAG_E].unpack_from(data, at + 16) == next_sn
        ):
            return gap
    return -1


def _run(
    data: U8,
    prefix: bytes,
    count: int,
    first: First,
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
        not first.flags & FLAG_E,
        lead + first.key_hash_offset if first.key_hash_offset >= 0 else -1,
        first.sample_flags,
        None,
        first.reader_id,
        coherent_set=first.coherent_set,
    )


def _uniform(
    data: U8, pos: int, stop: int, prefix: bytes, timestamp: int, first: First, lead: int
) -> tuple[Run, int, int] | None:
    """The uniform run at ``pos``, if at least two rows look alike; rows start ``lead`` bytes before DATA."""
    stride = first.size + lead
    base = pos - lead
    count = min((stop - base) // stride, until_wrap(first.sn))
    if count < 2:
        return None
    heads = comparable(data, base, (count,), (stride,), first, lead)
    alike = heads.tobytes()
    if alike != alike[: heads[0].nbytes] * count:
        count = int((heads != heads[0]).any(axis=1).argmax())
        if count < 2:
            return None
    end = base + count * stride
    run = _run(
        data[base:end], prefix, count, first, lead, stride, timestamp, timestamp_offset=4 if lead else -1
    )
    if lead:
        timestamp = int(run.take_range(count - 1, count).timestamps()[0])
    return run, end, timestamp


#: The number of rows that are best compared at once: their heads stay in the processor's cache.
ROWS_MAX: Final = 1 << 14
_COUNT = np.arange(ROWS_MAX, dtype=np.uint32)
LOW_MAX: Final = 0xFFFF_FFFF


def _counting(count: int) -> npt.NDArray[np.uint32]:
    """0, 1, …; do not change it."""
    return _COUNT[:count] if count <= len(_COUNT) else np.arange(count, dtype=np.uint32)


def until_wrap(sn: int) -> int:
    """The number of sequence numbers from ``sn`` on with the same high word."""
    return LOW_MAX + 1 - (sn & LOW_MAX)


def comparable(
    data: U8, base: int, shape: tuple[int, ...], strides: tuple[int, ...], first: First, lead: int
) -> Words:
    """The heads (count, words) of rows that lie at ``strides`` from ``base`` on, equal if the rows form a run.

    A head is the bytes before a row's payload, which must exist, and the payload's encapsulation id. Fields that may
    differ are cleared: time, key hash, and options (they may have a padding count). The number is relative to that of
    the row.
    """
    payload = (lead + first.payload_offset) // 4
    size = payload + 1
    # items of one size are copied several times as fast as single words
    heads = np.ndarray(shape, f"V{4 * size}", data, base, strides).copy().view("<u4").reshape(-1, size)
    if lead:
        heads[:, 1:3] = 0
    if first.key_hash_offset >= 0:
        k = (lead + first.key_hash_offset) // 4
        heads[:, k : k + 4] = 0
    options = heads[:, payload]
    options &= 0xFFFF
    numbers = heads[:, lead // 4 + 5]
    numbers = numbers if first.flags & FLAG_E else numbers.view(">u4")
    numbers -= _counting(len(heads))
    return heads


def alike_between(rows: Words, row: Words, first: int, last: int) -> Any:
    """Mask of the rows (..., words) that equal ``row`` in the words [first, last)."""
    if last - first > _FEW_COLUMNS:
        return (rows[..., first:last] == row[first:last]).all(axis=-1)
    same = np.ones(rows.shape[:-1], np.bool_)
    for column in range(first, last):
        same &= rows[..., column] == row[column]
    return same


#: Up to this many columns are faster to compare one by one than all at once.
_FEW_COLUMNS: Final = 16


def _ragged(
    data: U8, pos: int, stop: int, prefix: bytes, timestamp: int, first: First
) -> tuple[Run, int, int] | None:
    """The longest chain of DATA (and INFO_TS) of one writer from ``pos``, lengths differing."""
    little = first.flags & FLAG_E
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
    info_ts = words[np.minimum(ends, len(words) - 1)] == INFO_TS_WORDS[little]
    follows = np.where(info_ts[:-1], ends[:-1] + 3, ends[:-1])
    linked = (at[1:] == follows) & (lengths[:-1] % 4 == 0)
    # length 0 means "to the end of the message", and the header must fit
    good = (lengths >= first.payload_offset - 4 + 4) & (ends <= len(words)) & (lengths % 4 == 0)
    good &= (values[at + 5] == _counting(len(at)) + np.uint32(first.sn & LOW_MAX)) & (
        values[at + 4] == first.sn >> 32
    )
    good[1:] &= linked
    count = min(len(at) if good.all() else int(good.argmin()), until_wrap(first.sn))
    if count < 2:
        return None
    if header_words > 6:  # those in the chain do not overlap: no more is compared than there is
        good = _alike_qos(words, at[:count], header_words, first)
        count = count if good.all() else int(good.argmin())
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
        coherent_set=first.coherent_set,
    )
    return run, end, int(stamps[-1])


def _alike_qos(words: Words, at: npt.NDArray[Any], header_words: int, first: First) -> Any:
    """Mask of the DATA at ``at`` whose inline QoS differs from the first's in the key hash only."""
    k = header_words if first.key_hash_offset < 0 else first.key_hash_offset // 4
    compared = np.array((*range(6, k), *range(k + 4, header_words)), np.int64)
    return (words[at[:, None] + compared] == words[compared]).all(axis=1)


def _ragged_timestamps(
    values: Words, ends: npt.NDArray[Any], info_ts: npt.NDArray[np.bool_], timestamp: int
) -> npt.NDArray[np.int64]:
    """Source timestamp of each sample: that of the last INFO_TS before it; ``info_ts[i]``: one follows sample i."""
    count = len(ends)
    stamps = np.full(count, timestamp, np.int64)
    before = np.flatnonzero(info_ts[:-1])
    if len(before):
        own = source_timestamps(values[ends[before] + 1], values[ends[before] + 2])
        last = np.zeros(count, np.int64)
        last[before + 1] = np.arange(1, len(before) + 1)
        last = np.maximum.accumulate(last)
        stamps = np.where(last > 0, own[np.maximum(last - 1, 0)], timestamp)
    return stamps


def _swap16(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return ((x & 0xFF) << 8) | (x >> 8)
