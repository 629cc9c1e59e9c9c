"""The hot path for large samples: the large datagrams of a drain, read together.

A drain holds few large datagrams, so that a step of Python for each costs less than NumPy's steps for all. What is done
for more than a look at a header is done once for each stretch of datagrams that are alike:

* header, INFO_TS and DATA of equal length and consecutive numbers: they make up a run;
* messages of DATA that is small (`message_stretches`), and batches (`batch_stretches`);
* header, INFO_TS and DATA_FRAGs (`large_fragments`).

All numbers are little-endian, and there is no inline QoS. All else is left to the message receiver.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from ..structure import Guid, is_builtin
from .batch import DATA_BATCH
from .batch_stretches import BatchStretch, scan_batches
from .info import INFO_TS_SIZE
from .large_fragments import FRAGMENTS_AT, LargeFragments, Spans, scan_fragments
from .message import FLAG_E, HEADER_SIZE, MAGIC
from .message_stretches import scan_messages
from .runs import DATA, FLAG_D, INFO_TS_WORDS, LOW_MAX, equal_rows
from .samples import SAMPLE_INDEX, U8, Run, source_timestamps
from .submessages import DATA_HEADER_SIZE, DATA_OCTETS_TO_INLINE_QOS, DataFrag

#: Datagrams up to this size, that of jumbo frames, are small.
SMALL_BYTES: Final = 9_216
#: Below this many it gains nothing to look at them together.
_LARGE_MIN: Final = 3
#: DATA of this size and more are large: of smaller ones a datagram holds so many that it is a run of its own.
_SAMPLE_MIN: Final = 2_048
_BODY: Final = HEADER_SIZE + INFO_TS_SIZE
#: The header (magic, version, vendor, prefix), INFO_TS (its header and its time); of what follows kind and flags,
#: length, octetsToInlineQos, ids and number.
_HEAD: Final = Struct("<4sB3s12sI8sHHHH4s4siI")
_PLAIN_DATA: Final = (
    MAGIC,
    2,
    INFO_TS_WORDS[FLAG_E],
    DATA | (FLAG_E | FLAG_D) << 8,
    DATA_OCTETS_TO_INLINE_QOS,
)


class LargeRun(NamedTuple):
    """A run in the datagrams [first, stop) of the drain."""

    first: int
    stop: int
    run: Run


class LargeBatches(NamedTuple):
    """A stretch of batches in the datagrams [first, stop) of the drain."""

    first: int
    stop: int
    stretch: BatchStretch


class LargeMessages(NamedTuple):
    """The runs of the datagrams [first, stop) of the drain, one in each, which follow one another."""

    first: int
    stop: int
    runs: list[Run]


Large: TypeAlias = "LargeRun | LargeMessages | LargeFragments | LargeBatches"


def are_large(spans: Spans) -> bool:
    """Whether it may gain anything to look at these datagrams together as large ones."""
    return len(spans) >= _LARGE_MIN and spans[-1][1] - spans[0][0] > len(spans) * SMALL_BYTES


def scan_large(data: U8, spans: Spans, *, joins_heartbeats: bool = True) -> list[Large]:
    """Find what follows one another in datagrams, which lie at ``spans`` of ``data``, each with its sender's address.

    ``joins_heartbeats``: fragments may go on behind HEARTBEATs, which are heard later than they came. Starts are
    multiples of 4. The datagrams that are in nothing found are left.
    """
    found: list[Large] = []
    at, count = 0, len(spans)
    view = memoryview(data)
    while at < count - 1:
        start, stop, _ = spans[at]
        kind = view[start + _BODY] if stop - start > FRAGMENTS_AT else 0
        if kind == DATA and view[start + _BODY + 2] | view[start + _BODY + 3] << 8 >= _SAMPLE_MIN:
            last = _data(data, view, spans, at, found)
        elif kind == DATA:
            last = _messages(data, spans, at, found)
        elif kind == DataFrag.KIND:
            last = scan_fragments(data, view, spans, at, found, joins_heartbeats=joins_heartbeats)
        elif kind == DATA_BATCH:
            last = _batches(data, spans, at, found)
        else:
            last = at + 1
        at = max(last, at + 1)
    return found


def _data(data: U8, view: memoryview, spans: Spans, at: int, found: list[Large]) -> int:
    """Find the run that begins with the DATA of datagram ``at``; returns where it ends, or less than what follows."""
    start, stop, _ = spans[at]
    head = _HEAD.unpack_from(view, start)
    magic, major, _, prefix, info, _, kind, length, _, octets, reader_id, writer_id, high, low = head
    size = length + 4
    each, rest = divmod(stop - start - _BODY, size)
    if (magic, major, info, kind, octets) != _PLAIN_DATA:
        return at
    sn = high << 32 | low
    if rest or size % 4 or sn < 1 or is_builtin(writer_id):
        return at
    # from there on the high word of the numbers is another
    pitch, count = _at_one_pitch(spans, at, at + (LOW_MAX + 1 - low) // each)
    if count < 2 or pitch < stop - start:
        return at
    heads = np.ndarray((count,), f"V{_BODY}", data, start, (pitch,)).copy().view("<u4").reshape(count, -1)
    stamps = heads[:, -2:].copy()
    heads[:, -2:] = 0
    shape, strides = (count, each), (pitch, size)
    rows = np.ndarray(shape, f"V{DATA_HEADER_SIZE}", data, start + _BODY, strides).copy().view("<u4")
    rows = rows.reshape(count, each, -1)
    rows[..., 5] -= np.arange(count * each, dtype=np.uint32).reshape(count, each)
    count = min(equal_rows(heads), equal_rows(rows.reshape(count, -1)))
    first_row = rows[0].tobytes()
    if count < 2 or first_row != first_row[:DATA_HEADER_SIZE] * each:
        return at
    index = np.zeros((count, each), SAMPLE_INDEX)
    offsets = (np.arange(count) * pitch)[:, None] + np.arange(each) * size
    index["offset"] = offsets + DATA_HEADER_SIZE
    index["length"] = size - DATA_HEADER_SIZE
    index["timestamp"] = source_timestamps(stamps[:count, :1], stamps[:count, 1:])
    low_at = start + _BODY
    run = Run(
        Guid(prefix, writer_id),
        sn,
        count * each,
        data[low_at : low_at + (count - 1) * pitch + each * size],
        index=index.reshape(-1),
        reader_id=reader_id,
        datagram_bytes=stop - start - _BODY,
    )
    found.append(LargeRun(at, at + count, run))
    return at + count


def _at_one_pitch(spans: Spans, at: int, stop: int) -> tuple[int, int]:
    """How far apart the datagrams from ``at`` on lie, and how many before ``stop`` do, are of one length and of one
    sender."""
    here, end, source = spans[at]
    size, pitch, count = end - here, spans[at + 1][0] - here, 1
    for begin, finish, sender in spans[at + 1 : stop]:
        here += pitch
        if begin != here or finish - begin != size or sender != source:
            break
        count += 1
    return pitch, count


def _messages(data: U8, spans: Spans, at: int, found: list[Large]) -> int:
    """Find the runs of small samples that begin with datagram ``at``; returns where what was looked at ends."""
    start, stop, _ = spans[at]
    pitch, count = _at_one_pitch(spans, at, len(spans))
    if (stop - start) % 4 or pitch % 4:
        return at
    runs, looked_at = scan_messages(data, start, stop - start, pitch, count)
    if runs:
        found.append(LargeMessages(at, at + len(runs), runs))
    return at + looked_at


def _batches(data: U8, spans: Spans, at: int, found: list[Large]) -> int:
    """Find the stretches of batches from datagram ``at`` on; returns where what was looked at ends."""
    start, stop, _ = spans[at]
    pitch, count = _at_one_pitch(spans, at, len(spans))
    if (stop - start) % 4 or pitch % 4:
        return at
    for first, end, stretch in scan_batches(data, start, stop - start, pitch, count):
        found.append(LargeBatches(at + first, at + end, stretch))
    return at + count
