"""The hot path for small datagrams: a burst of them becomes runs, without a step per datagram.

:func:`scan_datagrams` tests all datagrams of a burst at once for one of three forms, and leaves the others to the
message receiver:

* one sample a datagram: header, INFO_TS, DATA, sometimes a HEARTBEAT behind it. Most foreign writers send this form
(Cyclone DDS does; Fast DDS puts a vendor submessage behind the DATA). Datagrams are grouped by writer;
* ranges of datagrams of equal length at a constant pitch, as in GSO buffers: header, INFO_TS and DATA of equal length
and consecutive numbers. Writers that divide one write into small datagrams send this form;
* such ranges of batches (`batch_ranges`).

A run takes the place of the first of its datagrams. A later datagram of one sample is treated as if the network had
delivered it a moment sooner; everything else keeps its place, including the HEARTBEAT of a run: it may announce that
the writer no longer has what it repeated just before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..structure import Guid
from ..value_classes import value
from .batch_ranges import PLAIN_BATCH, BatchRange, scan_batches
from .compressed import COMPRESSED
from .datagram_layout import (
    BODY,
    BODY_WORD,
    EQUAL_WORDS,
    INFO_TS_LE,
    INFO_TS_WORD,
    MAGIC_LE,
    MAJOR_VERSION,
    OCTETS_WORD,
    PAYLOAD_WORD,
    PREFIX_WORD,
    PREFIX_WORDS,
    READER_WORD,
    SN_HIGH_WORD,
    SN_LOW_WORD,
    STAMP_WORD,
    VERSION_WORD,
    WRITER_WORD,
)
from .equal_datagrams import scan_equal
from .message import FLAG_E, SUBMESSAGE_HEADER_SIZE
from .runs import DATA, FLAG_D, Words
from .samples import I64, SAMPLE_INDEX, U8, Run, equal_ranges, source_timestamps
from .status_messages import RttMeasurement, StatusMessage
from .submessages import DATA_OCTETS_TO_INLINE_QOS, HEARTBEAT_SIZE, Heartbeat
from .unread_samples import alike_in_datagrams

#: The low half of the first word of a little-endian DATA: kind and flags, with E only; and with D only.
_DATA_LE: Final = DATA | FLAG_E << 8
_PLAIN_DATA_LE: Final = _DATA_LE | FLAG_D << 8
_KIND_AND_E: Final = 0xFF | FLAG_E << 8
_TO_INLINE_QOS: Final = DATA_OCTETS_TO_INLINE_QOS << 16
#: The first word of a HEARTBEAT in either byte order, and its F flag, which it may have; L asserts liveliness.
_HEARTBEATS: Final = (
    Heartbeat.KIND | FLAG_E << 8 | (HEARTBEAT_SIZE - SUBMESSAGE_HEADER_SIZE) << 16,
    Heartbeat.KIND | (HEARTBEAT_SIZE - SUBMESSAGE_HEADER_SIZE) << 24,
)
_HEARTBEAT_F: Final = np.uint32(Heartbeat.FLAG_F << 8)
_VENDOR_SPECIFIC: Final = 0x80
#: This product's vendor submessages that are read.
_OURS: Final = (COMPRESSED, StatusMessage.KIND, RttMeasurement.KIND)
#: Below this many datagrams the message receiver is as fast.
DATAGRAMS_MIN: Final = 8
#: Below this many datagrams of one sample, too.
_SINGLES_MIN: Final = DATAGRAMS_MIN
#: And below this many datagrams in a range.
_RANGE_MIN: Final = 3


@value
class UnreadSamples:
    """The number of samples of a writer without a reader."""

    writer: Guid
    count: int


class DatagramRun(NamedTuple):
    """A run that spans datagrams; ``first`` is the position of the first of them in the burst.

    ``heartbeats`` are the relevant HEARTBEATs behind them: for each, the position of the datagram that it ends, and its
    offset.
    """

    first: int
    run: Run | UnreadSamples | BatchRange
    heartbeats: tuple[tuple[int, int], ...] = ()


class DatagramScan(NamedTuple):
    """The runs found, by position, and the positions of the datagrams left to the message receiver."""

    runs: list[DatagramRun]
    rest: list[int]


#: Whether a writer has no reader, so that its samples need not be gathered.
PassesOver = Callable[[Guid], bool]


def _reads_all(writer: Guid) -> bool:
    return False


class _Burst(NamedTuple):
    """The datagrams of a burst, each at ``data[starts[i] : stops[i]]``."""

    data: U8
    starts: I64
    stops: I64
    head: Words  # (n, PAYLOAD_WORD): header, INFO_TS, DATA header
    data_ends: I64  # where the first DATA ends
    sources: I64 | None  # equal where the sender's address is; None: there is one sender
    passes_over: PassesOver


def scan_datagrams(
    data: U8,
    starts: I64,
    stops: I64,
    sources: I64 | None = None,
    passes_over: PassesOver = _reads_all,
) -> DatagramScan:
    """Find the runs in datagrams lying at ``data[starts[i]:stops[i]]``; starts are multiples of 4.

    ``sources`` are numbers for the senders' addresses, of which a run has one; None: there is only one. Samples of a
    writer for which ``passes_over`` is true are only counted.
    """
    words = data[: data.nbytes // 4 * 4].view("<u4")
    at = starts // 4
    roomy = stops - starts >= (PAYLOAD_WORD + 1) * 4
    if not roomy.any():
        return DatagramScan([], list(range(len(starts))))
    if not roomy.all():
        at = np.where(roomy, at, at[int(roomy.argmax())])  # read, never used
    head: Words = words[at[:, None] + np.arange(PAYLOAD_WORD)]
    fit = roomy & (head[:, 0] == MAGIC_LE) & ((head[:, VERSION_WORD] & 0xFF) == MAJOR_VERSION)
    fit &= head[:, INFO_TS_WORD] == INFO_TS_LE
    fit &= (head[:, WRITER_WORD] >> 30) != 3  # messages of built-in writers are read one by one
    of_batches = fit & ((head[:, BODY_WORD] & 0xFFFF) == PLAIN_BATCH)
    fit &= (head[:, BODY_WORD] & _KIND_AND_E) == _DATA_LE
    lengths = (head[:, BODY_WORD] >> 16).astype(np.int64)
    data_ends = starts + (BODY + 4) + lengths
    # a length of 0 ("to the end") and lengths that are not a multiple of 4 are left to the message receiver
    fit &= (lengths >= 24) & (lengths % 4 == 0) & (data_ends <= stops)
    burst = _Burst(data, starts, stops, head, data_ends, sources, passes_over)
    single = (
        fit & ((head[:, BODY_WORD] & 0xFFFF) == _PLAIN_DATA_LE) & (head[:, OCTETS_WORD] == _TO_INLINE_QOS)
    )
    single &= head[:, SN_HIGH_WORD].view(np.int32) >= 0
    heartbeat = _tails(burst, single)
    runs: list[DatagramRun] = []
    left = np.ones(len(starts), np.bool_)
    if np.count_nonzero(single) >= _SINGLES_MIN:
        runs += _singles(burst, np.flatnonzero(single), heartbeat, left)
    several = fit & ~single & (stops > data_ends) & ((stops - starts - BODY) % (lengths + 4) == 0)
    if np.count_nonzero(several) >= _RANGE_MIN:
        runs += _sample_ranges(burst, several, left)
    if np.count_nonzero(of_batches) >= _RANGE_MIN:
        runs += _batches(burst, of_batches, left)
    runs.sort(key=_position)
    return DatagramScan(runs, np.flatnonzero(left).tolist())


_position: Final = itemgetter(0)


def _sample_ranges(
    burst: _Burst, several: npt.NDArray[np.bool_], left: npt.NDArray[np.bool_]
) -> Iterator[DatagramRun]:
    """The runs of datagrams of many samples; clears ``left`` for those in them."""
    data, starts, stops, head, data_ends, _, passes_over = burst
    size, pitch = stops - starts, np.diff(starts)
    for first, last in _linked(burst, several):
        body, length = int(starts[first]) + BODY, int(size[first]) - BODY
        prefix = head[first, PREFIX_WORD:INFO_TS_WORD].tobytes()
        writer = Guid(prefix, head[first, WRITER_WORD].tobytes())
        if passes_over(writer):
            each = int(data_ends[first]) - body
            if (step := int(pitch[first])) >= length:  # otherwise they lie backwards: no range of memory
                alike = alike_in_datagrams(data, body, length, each, step, last - first)
                left[first:last] = ~alike
                yield DatagramRun(first, UnreadSamples(writer, int(alike.sum()) * (length // each)))
            continue
        for start, stop, run in scan_equal(
            data, body, length, int(pitch[first]), head[first:last, STAMP_WORD:BODY_WORD], prefix
        ):
            left[first + start : first + stop] = False
            yield DatagramRun(first + start, run)


def _batches(
    burst: _Burst, of_batches: npt.NDArray[np.bool_], left: npt.NDArray[np.bool_]
) -> Iterator[DatagramRun]:
    """The ranges of batches that have a reader; clears ``left`` for the datagrams in them."""
    data, starts, stops, head, _, _, passes_over = burst
    for first, last in _linked(burst, of_batches):
        at, size = int(starts[first]), int(stops[first] - starts[first])
        if size % 4 or passes_over(
            Guid(head[first, PREFIX_WORD:INFO_TS_WORD].tobytes(), head[first, WRITER_WORD].tobytes())
        ):
            continue
        pitch = int(starts[first + 1]) - at
        for start, stop, range_ in scan_batches(data, at, size, pitch, last - first):
            left[first + start : first + stop] = False
            yield DatagramRun(first + start, range_)


def _linked(burst: _Burst, taken: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """[first, last) of each range of datagrams among ``taken`` that have equal length, a constant pitch and the same
    words that identify the writer."""
    _, starts, stops, head, _, sources, _ = burst
    size, pitch = stops - starts, np.diff(starts)
    linked = taken[1:] & taken[:-1] & (size[1:] == size[:-1])
    for column in EQUAL_WORDS:
        linked &= head[1:, column] == head[:-1, column]
    if sources is not None:
        linked &= sources[1:] == sources[:-1]
    # Between GSO buffers the pitch may differ once; if the difference lasts, a new range begins.
    steady = np.zeros(len(starts), np.bool_)
    steady[1:-1] = pitch[1:] == pitch[:-1]
    linked &= steady[1:] | steady[:-1]
    linked[1:] &= steady[1:-1] | ~linked[:-1]
    return ((first, last) for first, last in equal_ranges(~linked) if last - first >= _RANGE_MIN)


def _singles(
    burst: _Burst,
    taken: npt.NDArray[Any],
    heartbeat: npt.NDArray[np.bool_],
    left: npt.NDArray[np.bool_],
) -> Iterator[DatagramRun]:
    """The runs of the datagrams ``taken``, which have one sample each; clears ``left`` for those in them."""
    data, starts, _, head, data_ends, sources, passes_over = burst
    numbers = (head[:, SN_HIGH_WORD].astype(np.int64) << 32) | head[:, SN_LOW_WORD]
    stamps = source_timestamps(head[:, STAMP_WORD], head[:, STAMP_WORD + 1])
    # the writer's GUID and the reader id, as one 20-byte key, followed by the sender's address
    keys = np.ascontiguousarray(head[:, [*PREFIX_WORDS, WRITER_WORD, READER_WORD]])
    if sources is not None:
        keys = np.ascontiguousarray(np.column_stack((keys, sources.astype("<u4"))))
    groups = _groups(keys, taken)
    # long datagrams may lie behind others that came later (`net.many_datagrams`)
    compact = len(groups) > 1 or bool((starts[1:] < starts[:-1]).any())
    for group in groups:
        key = keys[group[0]].tobytes()
        writer = Guid(key[:12], key[12:16])
        if passes_over(writer):
            left[group] = False
            beats = _heartbeats_of(data, group, heartbeat, data_ends)
            yield DatagramRun(int(group[0]), UnreadSamples(writer, len(group)), beats)
            continue
        breaks = np.flatnonzero(np.diff(numbers[group]) != 1) + 1
        for rows in np.split(group, breaks) if len(breaks) else [group]:
            if numbers[rows[0]] < 1:
                continue
            left[rows] = False
            index = np.zeros(len(rows), SAMPLE_INDEX)
            offsets = starts[rows] + PAYLOAD_WORD * 4
            index["length"] = data_ends[rows] - offsets
            index["timestamp"] = stamps[rows]
            body = _body(data, offsets, index, compact=compact)
            run = Run(
                writer,
                int(numbers[rows[0]]),
                len(rows),
                body,
                index=index,
                reader_id=key[16:20],
            )
            yield DatagramRun(int(rows[0]), run, _heartbeats_of(data, rows, heartbeat, data_ends))


def _tails(burst: _Burst, single: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Clear ``single`` where something relevant follows the DATA; returns the mask of datagrams with a HEARTBEAT there.

    The HEARTBEAT is from the same writer to the same readers, and does not assert liveliness: of several, only one
    counts. A HEARTBEAT with a wrong length, or impossible numbers, is left to the message receiver.
    """
    data, _, stops, head, data_ends, _, _ = burst
    heartbeat = np.zeros(len(stops), np.bool_)
    tailed = np.flatnonzero(single & (stops > data_ends))
    if len(tailed):
        at = data_ends[tailed]
        left = stops[tailed] - at
        kinds = data[at]
        beats = (kinds == Heartbeat.KIND) & (left == HEARTBEAT_SIZE)
        if beats.any():
            words = data[: data.nbytes // 4 * 4].view("<u4")[at[beats, None] // 4 + np.arange(7)]
            beats[beats] = (
                np.isin(words[:, 0] & ~_HEARTBEAT_F, _HEARTBEATS)
                & (words[:, 1:3] == head[tailed[beats], READER_WORD:SN_HIGH_WORD]).all(axis=1)
                & _are_possible(words)
            )
        heartbeat[tailed] = beats
        vendors = (kinds >= _VENDOR_SPECIFIC) & (left >= SUBMESSAGE_HEADER_SIZE)
        for ours in _OURS:
            vendors &= kinds != ours
        if vendors.any():  # nothing may follow a vendor submessage
            headers = at[vendors]
            low, high = data[headers + 2].astype(np.int64), data[headers + 3].astype(np.int64)
            little = data[headers + 1] & FLAG_E != 0
            lengths = np.where(little, high << 8 | low, low << 8 | high)
            vendors[vendors] = (lengths == 0) | (lengths == left[vendors] - SUBMESSAGE_HEADER_SIZE)
        single[tailed] = beats | vendors
    return heartbeat


def _are_possible(heartbeats: Words) -> npt.NDArray[np.bool_]:
    """Which HEARTBEATs, each a row, have a range of numbers that `Heartbeat.decode` accepts."""
    halves = heartbeats[:, 3:7]
    little = heartbeats[:, :1] >> 8 & FLAG_E != 0
    numbers = np.where(little, halves, halves.byteswap())
    first, last = (numbers[:, i].astype(np.int32).astype(np.int64) << 32 | numbers[:, i + 1] for i in (0, 2))
    possible: npt.NDArray[np.bool_] = (first >= 1) & (last >= first - 1)
    return possible


def _groups(keys: Words, taken: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """The rows of ``taken`` by writer, in order of arrival within each."""
    if (keys[taken] == keys[taken[0]]).all():
        return [taken]
    names = keys.view(f"V{keys.shape[1] * keys.itemsize}").reshape(-1)[taken]
    _, inverse = np.unique(names, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    return np.split(taken[order], np.flatnonzero(np.diff(inverse[order])) + 1)


def _body(data: U8, offsets: I64, index: npt.NDArray[Any], *, compact: bool) -> U8:
    """The bytes the run's index points into: a view across the datagrams, or payloads gathered together.

    A view needs ascending offsets. It includes the headers between the payloads, which is cheaper than gathering as
    long as the bytes in between belong to the same writer.
    """
    lengths = index["length"].astype(np.int64)
    if not compact:
        low = int(offsets[0])
        index["offset"] = offsets - low
        return data[low : int(offsets[-1] + lengths[-1])]
    words = lengths // 4
    before = np.cumsum(words) - words
    index["offset"] = before * 4
    source = data[: data.nbytes // 4 * 4].view("<u4")
    moved = int(words.sum())
    body: U8 = source[np.arange(moved) + np.repeat(offsets // 4 - before, words)].view(np.uint8)
    return body


def _heartbeats_of(
    data: U8, rows: npt.NDArray[Any], heartbeat: npt.NDArray[np.bool_], data_ends: I64
) -> tuple[tuple[int, int], ...]:
    """The first HEARTBEAT, at which a reader may have to begin; and the last that requests an answer, or else the
    last."""
    with_beat = rows[heartbeat[rows]]
    if not len(with_beat):
        return ()
    asking = with_beat[(data[data_ends[with_beat] + 1] & Heartbeat.FLAG_F) == 0]
    first, last = int(with_beat[0]), int((asking if len(asking) else with_beat)[-1])
    return tuple((row, int(data_ends[row])) for row in ((first, last) if first < last else (last,)))
