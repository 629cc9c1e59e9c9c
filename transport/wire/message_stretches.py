"""Messages full of small samples that follow one another, as trains of messages are written, read together.

Messages are read so that are as long as each other and lie at a constant pitch: header, INFO_TS and DATA of one length
and of consecutive numbers, all little-endian, up to the end. Each of them is a run; what is done once for all is to
compare them. All else is left to the message receiver, which reads each by itself.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..errors import DecodeError
from ..structure import Guid, is_builtin
from .info import INFO_TS_SIZE
from .message import FLAG_E, HEADER_SIZE, MAGIC
from .runs import FLAG_D, FLAG_K, INFO_TS_WORDS, ROWS_MAX, comparable, equal_rows, parse, until_wrap
from .samples import U8, Run, source_timestamps
from .submessages import DATA_HEADER_SIZE

_BODY: Final = HEADER_SIZE + INFO_TS_SIZE
#: Of a message, where lie, in words: the INFO_TS and its time, and the number of the first DATA.
_INFO_TS: Final = HEADER_SIZE // 4
_STAMP: Final = _INFO_TS + 1
_LOW: Final = _BODY // 4 + 5
_HEAD: Final = _BODY + DATA_HEADER_SIZE


def scan_messages(data: U8, start: int, size: int, pitch: int, count: int) -> tuple[list[Run], int]:
    """Read up to ``count`` messages of ``size`` bytes, the first at ``data[start]`` and each ``pitch`` bytes behind the
    one before, all multiples of 4. Returns the runs of the first ones, fewer than two: none; and how many messages were
    looked at."""
    if pitch < size or count < 2:
        return [], count
    try:
        first = parse(data, start + _BODY, start + size)
    except DecodeError:
        return [], 1
    each, rest = divmod(size - _BODY, first.size)
    plain = first.flags & FLAG_E and first.flags & (FLAG_D | FLAG_K) and not first.size % 4
    if rest or not plain or is_builtin(first.writer_id):
        return [], 1
    count = min(count, until_wrap(first.sn) // each, max(2, ROWS_MAX // each))
    if count < 2:
        return [], 1
    heads = np.ndarray((count,), f"V{_HEAD}", data, start, (pitch,)).copy().view("<u4").reshape(count, -1)
    head = heads[0].tobytes()
    if head[:4] != MAGIC or head[4] != 2 or heads[0, _INFO_TS] != INFO_TS_WORDS[FLAG_E]:
        return [], 1
    stamps = heads[:, _STAMP : _STAMP + 2].copy()
    heads[:, _STAMP : _STAMP + 2] = 0
    heads[:, _LOW] -= np.arange(0, count * each, each, dtype=np.uint32)
    count = looked_at = equal_rows(heads)
    if count > 1:
        rows = comparable(data, start + _BODY, (count, each), (pitch, first.size), first, 0)
        count = equal_rows(rows) // each
    if count < 2:
        return [], looked_at
    writer, stride, low = Guid(head[8:HEADER_SIZE], first.writer_id), first.size, start + _BODY
    times = source_timestamps(stamps[:count, 0], stamps[:count, 1]).tolist()
    runs = [
        Run(
            writer,
            first.sn + i * each,
            each,
            data[low + i * pitch : low + i * pitch + each * stride],
            stride,
            first.payload_offset,
            stride - first.payload_offset,
            times[i],
            -1,
            False,
            first.key_hash_offset,
            first.sample_flags,
            None,
            first.reader_id,
            coherent_set=first.coherent_set,
        )
        for i in range(count)
    ]
    return runs, looked_at
