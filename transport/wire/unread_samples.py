"""Skips samples without a reader: finds their end and number, without a step for each where many are alike."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ..errors import DecodeError
from .info import INFO_TS_SIZE
from .message import FLAG_E, submessage_at
from .runs import DATA, INFO_TS, INFO_TS_WORDS
from .samples import U8
from .submessages import DATA_HEADER_SIZE

#: Samples are compared all at once until that fails this often in a message.
_TRIES: Final = 4
#: Fewer samples are counted as fast one by one.
_FEW: Final = 8


def pass_over(data: U8, view: memoryview, pos: int, stop: int) -> tuple[int, int, int]:
    """Skip the samples of one writer at ``data[pos]``: returns their end, the number of submessages, and the offset of
    the last INFO_TS between them (-1: none). ``view`` is a memoryview of all of ``data``."""
    writer_id, count, stamp_at, tries = view[pos + 12 : pos + 16], 0, -1, _TRIES
    try:
        while pos < stop:
            kind, _, end = submessage_at(view, pos, stop)
            if kind == DATA:
                if view[pos + 12 : pos + 16] != writer_id:
                    break
                if tries:
                    alike, behind, stamped = _alike_from(data, pos, end, stop)
                    if alike:
                        count, end = count + alike - 1, behind
                        stamp_at = end - INFO_TS_SIZE if stamped else stamp_at
                    tries -= alike < _FEW
                count += 1
            elif kind == INFO_TS and end - pos == INFO_TS_SIZE:
                stamp_at = pos
            elif count:
                break
            else:
                count = 1
            pos = end
    except DecodeError:
        pass  # the next reader of these bytes reports it
    return pos, count, stamp_at


def _alike_from(data: U8, pos: int, end: int, stop: int) -> tuple[int, int, bool]:
    """The number of DATA from the one at ``data[pos:end]`` on with its writer, flags and length, without or with an
    INFO_TS behind each; their end, and whether they have INFO_TS. Few count as none."""
    size = end - pos
    info_ts = INFO_TS_WORDS[int(data[end + 1]) & FLAG_E] if end + 4 <= stop and data[end] == INFO_TS else 0
    step = size + INFO_TS_SIZE if info_ts else size
    count = (stop - pos) // step
    if count < _FEW or size % 4 or size < DATA_HEADER_SIZE:
        return 0, end, False
    rows = data[pos : pos + count * step].view("<u4").reshape(count, step // 4)
    same = (rows[:, 0] == rows[0, 0]) & (rows[:, 3] == rows[0, 3])
    if info_ts:
        same &= rows[:, size // 4] == info_ts
    alike = count if same.all() else int(same.argmin())
    return alike, pos + alike * step if alike else end, bool(info_ts)


def alike_in_datagrams(
    data: U8, pos: int, size: int, each: int, pitch: int, count: int
) -> npt.NDArray[np.bool_]:
    """Which of ``count`` datagrams have only DATA of ``each`` bytes, with the same flags and writer as the one at
    ``pos``: there follow ``size`` bytes of them, and each datagram lies ``pitch`` bytes behind the one before."""
    words = data[pos : pos + (count - 1) * pitch + size].view("<u4")
    shape, strides = (count, size // each, each // 4), (pitch, each, 4)
    rows = np.lib.stride_tricks.as_strided(words, shape, strides, writeable=False)
    same = (rows[..., 0] == rows[0, 0, 0]) & (rows[..., 3] == rows[0, 0, 3])
    found: npt.NDArray[np.bool_] = same.all(axis=1)
    return found
