"""Runs of DATA that differ in more than length: disposals between samples, key hashes in some of them.

One scan over the words from submessage to submessage, for the ranges that :func:`.runs.scan` cannot compare; it costs
about a microsecond a sample. It accepts what `runs` would read one by one: DATA of one writer to one reader with
consecutive numbers, in one byte order and of one coherent set, with or without an INFO_TS before each.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..errors import DecodeError
from ..structure import Guid
from .info import INFO_TS_SIZE
from .inline_qos import walk_inline_qos
from .message import FLAG_E
from .samples import HAS_KEY_HASH, KEY_ONLY, SAMPLE_INDEX, U8, Run, source_timestamps
from .submessages import DATA_OCTETS_TO_INLINE_QOS, Data

_DATA: Final = Data.KIND
_CARRIES: Final = Data.FLAG_D | Data.FLAG_K
_INFO_TS_WORDS: Final = INFO_TS_SIZE // 4


def scan_mixed(
    data: U8, pos: int, stop: int, writer: Guid, timestamp: int, info_ts: int, run: Run
) -> tuple[Run, int, int] | None:
    """The longest mixed run from the DATA at ``data[pos]`` on, its end and the timestamp in force there.

    ``info_ts``: the first word of an INFO_TS in this byte order. ``run`` is the run of the first DATA, with its number,
    reader and coherent set. None: not even the second DATA belongs to it.
    """
    little = int(data[pos + 1]) & FLAG_E
    found = data[pos : pos + (stop - pos) // 4 * 4]
    words: list[int] = found.view("<u4").tolist()
    numbers: list[int] = words if little else found.view(">u4").tolist()
    reader_id, writer_id = (int.from_bytes(each, "little") for each in (run.reader_id, writer.entity))
    end, sn = len(words), run.first_sn
    samples: list[
        tuple[int, int, int, int, int]
    ] = []  # payload and its end, flags, key hash, INFO_TS (words)
    w, stamp = 0, -1
    while end - w >= 6:
        head = words[w]
        if head == info_ts:
            stamp = w
            w += _INFO_TS_WORDS
            continue
        length = head >> 16 if little else (head >> 24) | (head >> 8 & 0xFF00)
        flags, behind = head >> 8, w + 1 + length // 4
        if head & 0xFF != _DATA or flags & FLAG_E != little or length < 20 or length % 4 or behind > end:
            break
        if words[w + 2] != reader_id or words[w + 3] != writer_id:
            break
        if numbers[w + 4] << 32 | numbers[w + 5] != sn:
            break
        octets = numbers[w + 1] >> 16 if little else numbers[w + 1] & 0xFFFF
        at, status, key_hash, coherent_set = w + 2 + octets // 4, 0, -1, 0
        if octets < DATA_OCTETS_TO_INLINE_QOS or octets % 4 or at > behind:
            break
        if flags & Data.FLAG_Q:
            try:
                at, status, key_hash, coherent_set = walk_inline_qos(numbers, at, behind, little)
            except DecodeError:
                break
        carries = flags & _CARRIES
        if carries == _CARRIES or flags & Data.FLAG_N or (carries and at >= behind):
            break
        if coherent_set != run.coherent_set:
            break
        if carries == Data.FLAG_K:
            status |= KEY_ONLY
        samples.append((at if carries else behind, behind, status, key_hash, stamp))
        w, sn = behind, sn + 1
    if len(samples) < 2:
        return None
    return (
        _run(found, samples, little, writer, timestamp, run),
        pos + 4 * samples[-1][1],
        _last_stamp(found, samples[-1][4], little, timestamp),
    )


def _run(
    found: U8,
    samples: list[tuple[int, int, int, int, int]],
    little: int,
    writer: Guid,
    timestamp: int,
    run: Run,
) -> Run:
    at, behind, status, hash_at, stamp_at = np.array(samples, np.int64).T
    index = np.zeros(len(samples), SAMPLE_INDEX)
    index["offset"] = 4 * at
    index["length"] = 4 * (behind - at)
    index["flags"] = status
    index["timestamp"] = timestamp
    stamped = stamp_at >= 0
    if stamped.any():
        times: Any = found.view("<u4" if little else ">u4")
        index["timestamp"][stamped] = source_timestamps(
            times[stamp_at[stamped] + 1], times[stamp_at[stamped] + 2]
        )
    hashed = status & HAS_KEY_HASH != 0
    if hashed.any():
        hashes = found.view("<u4")[hash_at[hashed, None] + np.arange(4)]
        index["key_hash"][hashed] = np.ascontiguousarray(hashes).view("V16").reshape(-1)
    return Run(
        writer,
        run.first_sn,
        len(samples),
        found[: 4 * int(behind[-1])],
        index=index,
        reader_id=run.reader_id,
        coherent_set=run.coherent_set,
    )


def _last_stamp(found: U8, stamp_at: int, little: int, timestamp: int) -> int:
    if stamp_at < 0:
        return timestamp
    times: Any = found.view("<u4" if little else ">u4")[stamp_at + 1 : stamp_at + 3]
    return int(source_timestamps(times[:1], times[1:])[0])
