"""The hot path for large samples: the large datagrams of a drain, read together.

A drain holds few large datagrams, so that a step of Python for each costs less than NumPy's steps for all. What is done
for more than a look at a header is done once for each stretch of datagrams that are alike:

* header, INFO_TS and DATA of equal length and consecutive numbers: they make up a run;
* messages of DATA that is small (`message_stretches`), and batches (`batch_stretches`);
* header, INFO_TS and one DATA_FRAG: those whose fragments follow one another make up a `FragmentStretch`. A HEARTBEAT
  may come behind one, which ends its stretch: what is said in between keeps its place.

All numbers are little-endian, and there is no inline QoS. All else is left to the message receiver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..structure import Guid, is_builtin
from .batch import DATA_BATCH
from .batch_stretches import BatchStretch, scan_batches
from .fragment_stretches import FragmentStretch, Piece
from .info import INFO_TS_SIZE, InfoTimestamp
from .message import FLAG_E, HEADER_SIZE, MAGIC
from .message_stretches import scan_messages
from .runs import DATA, FLAG_D, INFO_TS_WORDS, LOW_MAX
from .samples import NO_TIMESTAMP, SAMPLE_INDEX, U8, Run, source_timestamps
from .submessages import (
    DATA_FRAG_HEADER_SIZE,
    DATA_FRAG_OCTETS_TO_INLINE_QOS,
    DATA_HEADER_SIZE,
    DATA_OCTETS_TO_INLINE_QOS,
    HEARTBEAT_SIZE,
    DataFrag,
    Heartbeat,
)

#: Datagrams up to this size on average, that of jumbo frames, are small.
_SMALL_BYTES: Final = 9_216
#: Below this many it gains nothing to look at them together.
_LARGE_MIN: Final = 3
#: DATA of this size and more are large: of smaller ones a datagram holds so many that it is a run of its own.
_SAMPLE_MIN: Final = 2_048
_BODY: Final = HEADER_SIZE + INFO_TS_SIZE
_FRAG_PAYLOAD: Final = _BODY + DATA_FRAG_HEADER_SIZE
#: The header (magic, version, vendor, prefix), INFO_TS (its header and its time); of what follows kind and flags,
#: length, octetsToInlineQos, ids and number.
_HEAD: Final = Struct("<4sB3s12sI8sHHHH4s4siI")
#: Behind that, of a DATA_FRAG: its first fragment, fragments and their size, and the sample's.
_FRAG: Final = Struct("<IHHI")
_PLAIN_FRAG: Final = (
    MAGIC,
    2,
    INFO_TS_WORDS[FLAG_E],
    DataFrag.KIND | FLAG_E << 8,
    DATA_FRAG_OCTETS_TO_INLINE_QOS,
)
_PLAIN_DATA: Final = (
    MAGIC,
    2,
    INFO_TS_WORDS[FLAG_E],
    DATA | (FLAG_E | FLAG_D) << 8,
    DATA_OCTETS_TO_INLINE_QOS,
)
_HEARTBEAT: Final = Struct("<BBH")


class LargeRun(NamedTuple):
    """A run in the datagrams [first, stop) of the drain."""

    first: int
    stop: int
    run: Run


class LargeFragments(NamedTuple):
    """A stretch of fragments in the datagrams [first, stop) of the drain.

    ``heartbeat_at`` is where the HEARTBEAT behind the last one lies; -1: there is none.
    """

    first: int
    stop: int
    stretch: FragmentStretch
    heartbeat_at: int


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
Spans = Sequence[tuple[int, int, str]]


def are_large(spans: Spans) -> bool:
    """Whether it may gain anything to look at these datagrams together as large ones."""
    return len(spans) >= _LARGE_MIN and spans[-1][1] - spans[0][0] > len(spans) * _SMALL_BYTES


def scan_large(data: U8, spans: Spans) -> list[Large]:
    """Find what follows one another in datagrams, which lie at ``spans`` of ``data``, each with its sender's address.

    Starts are multiples of 4. The datagrams that are in nothing found are left.
    """
    found: list[Large] = []
    at, count = 0, len(spans)
    view = memoryview(data)
    while at < count - 1:
        start, stop, _ = spans[at]
        kind = view[start + _BODY] if stop - start > _FRAG_PAYLOAD else 0
        if kind == DATA and view[start + _BODY + 2] | view[start + _BODY + 3] << 8 >= _SAMPLE_MIN:
            last = _data(data, view, spans, at, found)
        elif kind == DATA:
            last = _messages(data, spans, at, found)
        elif kind == DataFrag.KIND:
            last = _fragments(data, view, spans, at, found)
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
    count = min(_alike(heads), _alike(rows.reshape(count, -1)))
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


def _alike(rows: npt.NDArray[np.uint32]) -> int:
    """How many of the first rows are equal."""
    raw, one = rows.tobytes(), rows[0].tobytes()
    if raw == one * len(rows):
        return len(rows)
    return int((rows != rows[0]).any(axis=1).argmax())


def _fragments(data: U8, view: memoryview, spans: Spans, at: int, found: list[Large]) -> int:
    """Find the stretches of fragments that begin with the DATA_FRAG of datagram ``at``; returns where they end."""
    pieces: list[Piece] = []
    opens: list[bool] = []
    ends: list[bool] = []
    alike: tuple[Any, ...] = ()
    stamp_before = b""
    timestamp, behind, heartbeat_at = NO_TIMESTAMP, 0, -1
    for start, stop, source in spans[at:]:
        if stop - start <= _FRAG_PAYLOAD:
            break
        head = _HEAD.unpack_from(view, start)
        magic, major, _, prefix, info, stamp, kind, length, _, octets, reader_id, writer_id, high, low = head
        first, fragments, size, total = _FRAG.unpack_from(view, start + _HEAD.size)
        sn, after = high << 32 | low, start + _BODY + 4 + length
        offset = (first - 1) * size
        nbytes = min(fragments * size, total - offset)
        this = (magic, major, prefix, info, kind, octets, reader_id, writer_id, source)
        if pieces:
            last = pieces[-1]
            if this != alike or not 0 <= start - behind < 8:  # nothing else lies in between
                break
            if ends[-1]:
                if sn != last.sn + 1 or first != 1:
                    break
            elif (sn, first, size, total) != (
                last.sn,
                last.first + last.fragments,
                last.fragment_size,
                last.sample_size,
            ):
                break
        elif (magic, major, info, kind, octets) == _PLAIN_FRAG and sn > 0 and not is_builtin(writer_id):
            alike = this
        else:
            break
        # as in DataFrag.decode
        if not (first and fragments and 0 < size <= total and offset + (fragments - 1) * size < total):
            break
        if start + _FRAG_PAYLOAD + nbytes > after:
            break
        if after != stop and not _is_heartbeat(view, after, stop):
            break
        if stamp != stamp_before:
            given = InfoTimestamp.decode(FLAG_E, memoryview(stamp)).timestamp
            timestamp, stamp_before = NO_TIMESTAMP if given is None else given, stamp
        pieces.append(Piece(sn, first, fragments, size, total, start + _FRAG_PAYLOAD, nbytes, timestamp))
        opens.append(first == 1)
        ends.append(offset + nbytes == total)
        behind = stop
        if after != stop:
            heartbeat_at = after
            break
    if len(pieces) < 2:
        return at
    writer, reader_id = Guid(alike[2], alike[7]), alike[6]
    for low, high, is_whole in _parts(opens, ends):
        if high - low < 2:
            continue
        stretch = FragmentStretch(data, writer, reader_id, pieces[low:high], is_whole=is_whole)
        beat = heartbeat_at if high == len(pieces) else -1
        found.append(LargeFragments(at + low, at + high, stretch, beat))
    return at + len(pieces)


def _is_heartbeat(view: memoryview, at: int, stop: int) -> bool:
    """Whether the rest of a message is a little-endian HEARTBEAT."""
    if stop - at != HEARTBEAT_SIZE or at % 4:
        return False
    kind, flags, length = _HEARTBEAT.unpack_from(view, at)
    return kind == Heartbeat.KIND and bool(flags & FLAG_E) and length == HEARTBEAT_SIZE - 4


def _parts(opens: list[bool], ends: list[bool]) -> Iterator[tuple[int, int, bool]]:
    """Divide pieces that follow one another: [first, stop) of the sample that began earlier, of the whole samples, and
    of the sample that ends later, and whether it is the whole samples."""
    count = len(ends)
    last = count - 1 - ends[::-1].index(True) if True in ends else -1
    whole = 0
    if not opens[0]:
        whole = ends.index(True) + 1 if last >= 0 else count
        yield 0, whole, False
    if whole <= last:
        yield whole, last + 1, True
        whole = last + 1
    if whole < count:
        yield whole, count, False
