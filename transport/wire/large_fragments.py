"""Reads DATA_FRAGs in the large datagrams of a burst together.

A datagram of fragments is a header, INFO_TS, and DATA_FRAGs of one writer, with INFO_TS between them where the
timestamp changes; a HEARTBEAT may come last. All numbers are little-endian, and there is no inline QoS.

Most have one DATA_FRAG. This product's writers send the last fragments of several samples in one datagram, behind all
other fragments of these samples: then the fragments are not consecutive as received, and are sorted first.

A HEARTBEAT may come in between. If all fragments are accepted, it may be processed after them, since it can only
announce less; otherwise the fragments end there (``joins_heartbeats``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from ..structure import Guid, is_builtin
from .datagram_layout import BODY, INFO_TS_LE
from .fragment_ranges import FragmentRange, Piece
from .info import InfoTimestamp
from .message import FLAG_E, HEADER_SIZE, MAGIC, SUBMESSAGE_HEADER_SIZE
from .samples import NO_TIMESTAMP, U8
from .submessages import (
    DATA_FRAG_HEADER_SIZE,
    DATA_FRAG_OCTETS_TO_INLINE_QOS,
    HEARTBEAT_SIZE,
    DataFrag,
    Heartbeat,
)

Spans = Sequence[tuple[int, int, str]]

#: Offset of a datagram's first payload.
FRAGMENTS_AT: Final = BODY + DATA_FRAG_HEADER_SIZE
#: The header and that of INFO_TS, its timestamp; kind and flags of the DATA_FRAG, length, octetsToInlineQos behind
#: flags, the ids of reader and writer, the number, the first fragment, fragments and their size, and the sample's.
_DATAGRAM: Final = Struct("<24s8sHHI8siIIHHI")
_FRAG: Final = Struct("<HHI8siIIHHI")
_SUBMESSAGE: Final = Struct("<HH")
_KIND: Final = DataFrag.KIND | FLAG_E << 8
_OCTETS: Final = DATA_FRAG_OCTETS_TO_INLINE_QOS << 16
_HEARTBEATS: Final = {Heartbeat.KIND | (FLAG_E | flags) << 8 for flags in (0, 2, 4, 6)}
_HEARTBEAT_ALONE: Final = HEADER_SIZE + HEARTBEAT_SIZE


class LargeFragments(NamedTuple):
    """Fragments in the datagrams [first, stop) of the burst, in the order of their samples.

    ``heartbeats``: the offsets of HEARTBEATs in these datagrams; ``is_divided``: some came before the last fragment.
    """

    first: int
    stop: int
    equal_ranges: list[FragmentRange]
    heartbeats: list[int]
    is_divided: bool


def scan_fragments(
    data: U8, view: memoryview, spans: Spans, at: int, found: list[Any], *, joins_heartbeats: bool
) -> int:
    """Find the fragments from datagram ``at`` on, which begins with a DATA_FRAG; returns the end of the scanned
    datagrams, or ``at``."""
    start, _, source = spans[at]
    head, _, _, _, _, ids, *_ = _DATAGRAM.unpack_from(view, start)
    writer_id = ids[4:]
    if head[:4] != MAGIC or head[4] != 2 or head[HEADER_SIZE:] != INFO_TS_LE.to_bytes(4, "little"):
        return at
    if is_builtin(writer_id):
        return at
    pieces: list[Piece] = []
    #: The datagram of each piece, and of each heartbeat.
    places: list[int] = []
    heartbeats: list[tuple[int, int]] = []
    shares = False
    timestamp, stamp_before = NO_TIMESTAMP, b""
    unpack = _DATAGRAM.unpack_from
    stop_at = at
    for start, stop, address in spans[at:]:
        if stop - start <= FRAGMENTS_AT:
            if not pieces or address != source or not _is_heartbeat(view, start, stop, head, ids):
                break
            heartbeats.append((stop_at, start + HEADER_SIZE))
            stop_at += 1
            if joins_heartbeats:
                continue
            break
        this, stamp, kind, length, octets, these, high, low, first, fragments, size, total = unpack(
            view, start
        )
        if this != head or these != ids or kind != _KIND or octets != _OCTETS or address != source:
            break
        after = start + (BODY + SUBMESSAGE_HEADER_SIZE) + length
        sn = high << 32 | low
        nbytes = _payload_bytes(sn, first, fragments, size, total)
        if not nbytes or start + FRAGMENTS_AT + nbytes > after:
            break
        if stamp != stamp_before:
            timestamp, stamp_before = _time(stamp), stamp
        piece = (sn, first, fragments, size, total, start + FRAGMENTS_AT, nbytes, timestamp)
        if after != stop:
            more = _further(view, after, stop, ids, timestamp)
            if more is None:
                break
            further, heartbeat_at = more
            pieces += [piece, *further]
            places += [stop_at] * (1 + len(further))
            if further:
                shares = True
            if heartbeat_at >= 0:
                heartbeats.append((stop_at, heartbeat_at))
                if not joins_heartbeats:
                    stop_at += 1
                    break
        else:
            pieces.append(piece)
            places.append(stop_at)
        stop_at += 1
    if len(pieces) < 2:
        return at
    if shares:
        pieces.sort()
    writer, reader_id = Guid(head[8:HEADER_SIZE], writer_id), ids[:4]
    equal_ranges = [
        (low, high, FragmentRange(data, writer, reader_id, pieces[low:high], is_whole=is_whole))
        for low, high, is_whole in _parts(pieces)
    ]
    if shares:
        beats = [beat for _, beat in heartbeats]
        is_divided = any(datagram < places[-1] for datagram, _ in heartbeats)
        found.append(LargeFragments(at, stop_at, [each for _, _, each in equal_ranges], beats, is_divided))
        return stop_at
    for low, high, range_ in equal_ranges:
        if high - low > 1:
            begin, end = places[low], places[high] if high < len(places) else stop_at
            within = [each for each in heartbeats if begin <= each[0] < end]
            is_divided = any(datagram < places[high - 1] for datagram, _ in within)
            found.append(LargeFragments(begin, end, [range_], [beat for _, beat in within], is_divided))
    return stop_at


def _payload_bytes(sn: int, first: int, fragments: int, size: int, total: int) -> int:
    """Bytes of ``fragments`` fragments from number ``first`` on, of a sample of ``total``; 0: such a DATA_FRAG is
    invalid, as in `DataFrag.decode`."""
    nbytes = min(fragments * size, total - (first - 1) * size)
    is_possible = sn > 0 and first and 0 < size <= total and nbytes > (fragments - 1) * size >= 0
    return nbytes if is_possible else 0


def _time(stamp: bytes) -> int:
    given = InfoTimestamp.decode(FLAG_E, memoryview(stamp)).timestamp
    return NO_TIMESTAMP if given is None else given


def _further(
    view: memoryview, at: int, stop: int, ids: bytes, timestamp: int
) -> tuple[list[Piece], int] | None:
    """The submessages behind the first DATA_FRAG of a datagram: DATA_FRAGs with the same ids, and the offset of the
    HEARTBEAT behind them, or -1; None: there is anything else."""
    found: list[Piece] = []
    while at != stop:
        if at % 4 or stop - at < SUBMESSAGE_HEADER_SIZE:
            return None
        kind, length = _SUBMESSAGE.unpack_from(view, at)
        after = at + SUBMESSAGE_HEADER_SIZE + length
        if after > stop:
            return None
        if kind == _KIND and stop - at >= DATA_FRAG_HEADER_SIZE:
            _, _, octets, these, high, low, first, fragments, size, total = _FRAG.unpack_from(view, at)
            sn = high << 32 | low
            nbytes = _payload_bytes(sn, first, fragments, size, total)
            if not nbytes or at + DATA_FRAG_HEADER_SIZE + nbytes > after:
                return None
            if octets != _OCTETS or these != ids:
                return None
            found.append((sn, first, fragments, size, total, at + DATA_FRAG_HEADER_SIZE, nbytes, timestamp))
        elif kind | length << 16 == INFO_TS_LE:
            timestamp = _time(bytes(view[at + SUBMESSAGE_HEADER_SIZE : after]))
        elif kind in _HEARTBEATS and length == HEARTBEAT_SIZE - SUBMESSAGE_HEADER_SIZE and after == stop:
            return found, at
        else:
            return None
        at = after
    return found, -1


def _is_heartbeat(view: memoryview, start: int, stop: int, head: bytes, ids: bytes) -> bool:
    """Whether a datagram is only a HEARTBEAT of the writer whose fragments have this head."""
    if stop - start != _HEARTBEAT_ALONE or view[start : start + HEADER_SIZE] != head[:HEADER_SIZE]:
        return False
    kind, length = _SUBMESSAGE.unpack_from(view, start + HEADER_SIZE)
    of = start + HEADER_SIZE + SUBMESSAGE_HEADER_SIZE + 4
    return (
        kind in _HEARTBEATS
        and length == HEARTBEAT_SIZE - SUBMESSAGE_HEADER_SIZE
        and view[of : of + 4] == ids[4:]
    )


def _parts(pieces: list[Piece]) -> Iterator[tuple[int, int, bool]]:
    """Divide pieces where they are not consecutive. Divide consecutive pieces into [first, stop) of the sample that
    began earlier, of the complete samples, and of the sample that ends later; the last item is true for complete
    samples."""
    low = closed = 0  # of the consecutive pieces so far: their begin, and the end of the complete samples
    is_rest = ended = False
    next_sn = next_first = size_before = total_before = 0
    for i, (sn, first, fragments, size, total, _, nbytes, _) in enumerate(pieces):
        if (
            sn != next_sn
            or first != next_first
            or (not ended and (size != size_before or total != total_before))
        ):
            if low < closed:
                yield low, closed, True
            if closed < i:
                yield closed, i, False
            low = closed = i
            is_rest = first != 1
        ended = (first - 1) * size + nbytes == total
        if ended:
            closed, next_sn, next_first = i + 1, sn + 1, 1
            if is_rest:
                yield low, closed, False
                low, is_rest = closed, False
        else:
            next_sn, next_first, size_before, total_before = sn, first + fragments, size, total
    if low < closed:
        yield low, closed, True
    if closed < len(pieces):
        yield closed, len(pieces), False
