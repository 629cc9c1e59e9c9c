"""Whether the samples of a fetched frame lie within its bytes.

A receiver writes no other frames. A frame whose samples reach beyond it, or overlap, was forged: a task would read
memory outside the log, or run out of it.
"""

from __future__ import annotations

import struct
from typing import Final

from ...transport.log.frame import HEADER_BYTES, RUN, WALK
from ...transport.structure import KEY_HASH_BYTES
from ...transport.wire.samples import SAMPLE_INDEX, Run
from ...transport.wire.submessages import DATA_HEADER_SIZE

_STRIDE: Final = struct.Struct("<28xI")
#: Offsets in a header of: first_sn; payload_offset, payload_length, timestamp_offset, key_hash_offset.
_FIRST_SN: Final = struct.Struct("<40xq")
_PLACES: Final = struct.Struct("<72xIIii")
_TIMESTAMP_BYTES: Final = 8
_COUNT_MAX: Final = 1 << 62


def is_possible(data: memoryview, at: int) -> bool:
    """Whether the header at ``data[at:]`` describes samples that fit the frame."""
    length, kind, _, _, rows_before, count, stride = WALK.unpack_from(data, at)
    if not 0 <= rows_before < _COUNT_MAX:
        return False
    if kind != RUN:
        return not count
    (first_sn,) = _FIRST_SN.unpack_from(data, at)
    body = length - HEADER_BYTES
    if not count or not 0 <= first_sn < _COUNT_MAX:
        return False
    if not stride:
        return bool(count * SAMPLE_INDEX.itemsize <= body)
    payload, size, timestamp, key_hash = _PLACES.unpack_from(data, at)
    reach = payload + size
    if timestamp >= 0:
        reach = max(reach, timestamp + _TIMESTAMP_BYTES)
    if key_hash >= 0:
        reach = max(reach, key_hash + KEY_HASH_BYTES)
    # samples without a payload are whole submessages: fewer bytes would make rows of nothing
    least = payload + size if size else DATA_HEADER_SIZE
    return bool((count == 1 or least <= stride) and (count - 1) * stride + reach <= body)


def is_indexed(data: memoryview, at: int) -> bool:
    """Whether the run at ``data[at:]`` has an index of its samples."""
    return not _STRIDE.unpack_from(data, at)[0]


def lies_within(run: Run) -> bool:
    """Whether the samples of an indexed run with a possible header lie in its data, one behind the other."""
    assert run.index is not None
    lengths = run.index["length"].astype("i8")
    stops = (run.index["offset"] + lengths)[lengths > 0]
    return bool(lengths.sum() <= run.data.size and (not len(stops) or stops.max() <= run.data.size))
