"""DATA_FRAGs in the large datagrams of a drain, looked at together.

A datagram of fragments is a header, INFO_TS, and DATA_FRAGs of one writer, with INFO_TS between them where it changes;
a HEARTBEAT may come last. All numbers are little-endian, and there is no inline QoS.

Most have one DATA_FRAG. Our writers send the ends of several samples in one datagram, behind those with all else of
these samples: then the fragments do not follow one another as they came, and are put into order first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..structure import Guid, is_builtin
from .fragment_stretches import AT, FIRST, FRAGMENT_SIZE, FRAGMENTS, LENGTH, SAMPLE_SIZE, SN, FragmentStretch
from .info import INFO_TS_SIZE
from .message import FLAG_E, HEADER_SIZE, MAGIC, SUBMESSAGE_HEADER_SIZE
from .runs import INFO_TS_WORDS
from .samples import I64, U8, source_timestamps
from .submessages import (
    DATA_FRAG_HEADER_SIZE,
    DATA_FRAG_OCTETS_TO_INLINE_QOS,
    HEARTBEAT_SIZE,
    DataFrag,
    Heartbeat,
)

U32 = npt.NDArray[np.uint32]
Spans = Sequence[tuple[int, int, str]]

_BODY: Final = HEADER_SIZE + INFO_TS_SIZE
#: Where a datagram's first payload lies.
FRAGMENTS_AT: Final = _BODY + DATA_FRAG_HEADER_SIZE
#: The words of a datagram's beginning: magic, version and vendor, prefix, INFO_TS, DATA_FRAG.
_WORDS: Final = np.arange(FRAGMENTS_AT // 4)
_STAMP: Final = slice(6, 8)
#: Those of a DATA_FRAG: its kind, flags and length; octetsToInlineQos; reader, writer; the number's halves; its first
#: fragment; how many, and their size; the sample's size.
_FRAG: Final = _BODY // 4
_FRAG_WORDS: Final = np.arange(DATA_FRAG_HEADER_SIZE // 4)
#: The bits that are alike in all DATA_FRAGs of a writer, and in all its datagrams of them.
_FRAG_MASK: Final = np.array([0xFFFF, *[0xFFFF_FFFF] * 4, 0, 0, 0, 0], np.uint32)
_MASK: Final = np.array([*[0xFFFF_FFFF] * 6, 0, 0, *_FRAG_MASK], np.uint32)
_KIND: Final = DataFrag.KIND | FLAG_E << 8
_OCTETS: Final = DATA_FRAG_OCTETS_TO_INLINE_QOS << 16
_SUBMESSAGE: Final = Struct("<HH")
_INFO_TS: Final = INFO_TS_WORDS[FLAG_E]
_MAGIC: Final = int.from_bytes(MAGIC, "little")


class LargeFragments(NamedTuple):
    """Fragments in the datagrams [first, stop) of the drain, in the order of their samples.

    ``heartbeat_at`` is where the HEARTBEAT behind the last one lies; -1: there is none.
    """

    first: int
    stop: int
    stretches: list[FragmentStretch]
    heartbeat_at: int


class _Further(NamedTuple):
    """A DATA_FRAG that is not its datagram's first one."""

    datagram: int
    at: int
    after: int
    stamp: tuple[int, int]


class FragmentScan:
    """Finds the fragments in datagrams, which lie at ``spans`` of ``data``; starts are multiples of 4."""

    def __init__(self, data: U8, spans: Spans) -> None:
        self._data = data
        self._view = memoryview(data)
        self._words: U32 = data[: len(data) & ~3].view("<u4")
        starts, stops, sources = zip(*spans, strict=True)
        self._starts: I64 = np.array(starts, np.int64)
        self._stops: I64 = np.array(stops, np.int64)
        has_frag = self._stops - self._starts > FRAGMENTS_AT
        # of what is too short for one, any other is looked at
        begins = np.where(has_frag, self._starts, self._starts[has_frag.argmax()])
        self._heads: U32 = self._words[(begins >> 2)[:, None] + _WORDS]
        unlike = ((self._heads[1:] ^ self._heads[:-1]) & _MASK).any(axis=1) | ~has_frag[1:]
        if len(set(sources)) > 1:
            unlike |= [one != other for one, other in pairwise(sources)]
        #: The datagrams that are not like the one before.
        self._others: I64 = np.flatnonzero(unlike) + 1

    def find(self, at: int, found: list[Any]) -> int:
        """Find the fragments from datagram ``at`` on, which begins with a DATA_FRAG; returns where what was looked at
        ends, or ``at``."""
        head = self._heads[at]
        reader_id, writer_id = head[_FRAG + 2].tobytes(), head[_FRAG + 3].tobytes()
        is_plain = (
            head[0] == _MAGIC
            and head[1] & 0xFF == 2
            and head[5] == _INFO_TS
            and head[_FRAG] & 0xFFFF == _KIND
            and head[_FRAG + 1] == _OCTETS
            and not head[_FRAG + 4] >> 31
        )
        if not is_plain or is_builtin(writer_id):
            return at
        others = self._others
        i = int(others.searchsorted(at, "right"))
        stop = int(others[i]) if i < len(others) else len(self._starts)
        frags: U32 = self._heads[at:stop, _FRAG:]
        stamps: U32 = self._heads[at:stop, _STAMP]
        places: I64 = self._starts[at:stop] + _BODY
        afters: I64 = places + SUBMESSAGE_HEADER_SIZE + (frags[:, 0] >> 16)
        heartbeat_at, further = -1, list[_Further]()
        for each in np.flatnonzero(afters != self._stops[at:stop]).tolist():
            more = self._further(at, each, int(afters[each]))
            if more is None:
                stop = at + each
                break
            further += more[0]
            if more[1] >= 0:
                stop, heartbeat_at = at + each + 1, more[1]
                break
        count = stop - at
        datagrams, places, afters = np.arange(count), places[:count], afters[:count]
        frags, stamps = frags[:count], stamps[:count]
        if further:
            more_of, more_at, more_after, more_stamps = zip(*further, strict=True)
            datagrams = np.concatenate((datagrams, more_of))
            order = np.argsort(datagrams, kind="stable")
            datagrams = datagrams[order]
            places = np.concatenate((places, more_at))[order]
            afters = np.concatenate((afters, more_after))[order]
            stamps = np.concatenate((stamps, np.array(more_stamps, np.uint32)))[order]
            frags = self._words[(places >> 2)[:, None] + _FRAG_WORDS]
        pieces = _pieces(frags, places, stamps)
        valid = _are_valid(pieces, afters)
        if further:
            valid &= ~((frags ^ frags[0]) & _FRAG_MASK).any(axis=1)
        if not valid.all():  # the first one that is not ends what is found, with all of its datagram
            stop, heartbeat_at = at + int(datagrams[valid.argmin()]), -1
            pieces = pieces[:, : int(datagrams.searchsorted(stop - at))]
        count = pieces.shape[1]
        if count < 2:
            return at
        writer = Guid(head[2:5].tobytes(), writer_id)
        share = count > stop - at
        if share and not _ascend(pieces):
            pieces = pieces[:, np.lexsort((pieces[FIRST], pieces[SN]))]
        stretches = [
            (low, FragmentStretch(self._data, writer, reader_id, pieces[:, low:high], is_whole=is_whole))
            for low, high, is_whole in _parts(pieces)
        ]
        if share:
            found.append(LargeFragments(at, stop, [each for _, each in stretches], heartbeat_at))
            return stop
        for low, stretch in stretches:
            first, end = at + low, at + low + stretch.submessages
            if end > first + 1:
                beat = heartbeat_at if end == stop else -1
                found.append(LargeFragments(first, end, [stretch], beat))
        return stop

    def _further(self, first: int, datagram: int, at: int) -> tuple[list[_Further], int] | None:
        """What comes behind the first DATA_FRAG of a datagram, from ``at`` on: DATA_FRAGs, and where the HEARTBEAT
        behind them lies, or -1; None: it is anything else."""
        stop, found = int(self._stops[first + datagram]), list[_Further]()
        seconds, fraction = self._heads[first + datagram, _STAMP].tolist()
        while at != stop:
            if at % 4 or stop - at < SUBMESSAGE_HEADER_SIZE:
                return None
            kind, length = _SUBMESSAGE.unpack_from(self._view, at)
            after = at + SUBMESSAGE_HEADER_SIZE + length
            if after > stop:
                return None
            if kind == _KIND and length >= DATA_FRAG_HEADER_SIZE:
                found.append(_Further(datagram, at, after, (seconds, fraction)))
            elif kind | length << 16 == _INFO_TS:
                seconds, fraction = self._words[(at >> 2) + 1 : (at >> 2) + 3].tolist()
            elif kind & 0xFF == Heartbeat.KIND and kind >> 8 & FLAG_E and length == HEARTBEAT_SIZE - 4:
                return (found, at) if after == stop else None
            else:
                return None
            at = after
        return found, -1


def _pieces(frags: U32, places: I64, stamps: U32) -> I64:
    """The pieces of a `FragmentStretch`, from the words of DATA_FRAGs, where these lie, and their INFO_TS."""
    pieces = np.empty((8, len(frags)), np.int64)
    pieces[SN] = frags[:, 4].astype(np.int64) << 32 | frags[:, 5]
    pieces[FIRST] = frags[:, 6]
    pieces[FRAGMENTS] = frags[:, 7] & 0xFFFF
    pieces[FRAGMENT_SIZE] = frags[:, 7] >> 16
    pieces[SAMPLE_SIZE] = frags[:, 8]
    pieces[AT] = places + DATA_FRAG_HEADER_SIZE
    _, first, fragments, size, total, *_ = pieces
    pieces[LENGTH] = np.minimum(fragments * size, total - (first - 1) * size)
    pieces[-1] = source_timestamps(stamps[:, 0], stamps[:, 1])
    return pieces


def _are_valid(pieces: I64, afters: I64) -> npt.NDArray[np.bool_]:
    """As in `DataFrag.decode`; each submessage ends at ``afters``."""
    sn, first, fragments, size, total, at, length, _ = pieces
    valid: npt.NDArray[np.bool_] = (
        (sn > 0)
        & (first > 0)
        & (fragments > 0)
        & (size > 0)
        & (size <= total)
        & ((first + fragments - 2) * size < total)
        & (at + length <= afters)
    )
    return valid


def _ascend(pieces: I64) -> bool:
    """Whether they are in the order of their samples."""
    sn, first = pieces[SN], pieces[FIRST]
    return bool(((sn[1:] > sn[:-1]) | ((sn[1:] == sn[:-1]) & (first[1:] > first[:-1]))).all())


def _parts(pieces: I64) -> Iterator[tuple[int, int, bool]]:
    """Divide pieces where one does not follow the one before, and what follows into [first, stop) of the sample that
    began earlier, of the whole samples, and of the sample that ends later, and whether it is the whole samples."""
    sn, first, fragments, size, total, _, length, _ = pieces
    ends = (first - 1) * size + length == total
    goes_on = (
        (sn[1:] == sn[:-1])
        & (first[1:] == first[:-1] + fragments[:-1])
        & (size[1:] == size[:-1])
        & (total[1:] == total[:-1])
    )
    begins = (sn[1:] == sn[:-1] + 1) & (first[1:] == 1)
    follows = np.where(ends[:-1], begins, goes_on)
    breaks = [0, *(np.flatnonzero(~follows) + 1).tolist(), len(sn)]
    for low, high in pairwise(breaks):
        closing = np.flatnonzero(ends[low:high])
        last = low + int(closing[-1]) + 1 if closing.size else low
        whole = low
        if first[low] != 1:
            whole = low + int(closing[0]) + 1 if closing.size else high
            yield low, whole, False
        if whole < last:
            yield whole, last, True
            whole = last
        if whole < high:
            yield whole, high, False
