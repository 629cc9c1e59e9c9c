"""The hot path for large samples: the large datagrams of a burst, read together.

A burst has few large datagrams, so that a step of Python for each costs less than NumPy's steps for all. All work
beyond reading a header is done once for each range of datagrams of one form:

* header, INFO_TS and DATA of equal length and consecutive numbers (`equal_datagrams`): they form a run;
* the same with small DATA: each datagram is a run; and batches (`batch_ranges`);
* header, INFO_TS and DATA_FRAGs (`large_fragments`).

All numbers are little-endian, and there is no inline QoS. All other datagrams are left to the message receiver.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from .batch import DATA_BATCH
from .batch_ranges import BatchRange, scan_batches
from .datagram_layout import BODY
from .equal_datagrams import find_equal
from .large_fragments import FRAGMENTS_AT, LargeFragments, Spans, scan_fragments
from .runs import DATA
from .samples import U8, Run
from .submessages import DataFrag

#: Datagrams up to this size, that of jumbo frames, are small.
SMALL_BYTES: Final = 9_216
#: Below this many large datagrams, reading them together gains nothing.
_LARGE_MIN: Final = 3
#: DATA of this size and more are large: a datagram has so many smaller ones that it is a run of its own.
_SAMPLE_MIN: Final = 2_048


class LargeRun(NamedTuple):
    """A run in the datagrams [first, stop) of the burst."""

    first: int
    stop: int
    run: Run


class LargeBatches(NamedTuple):
    """A range of batches in the datagrams [first, stop) of the burst."""

    first: int
    stop: int
    range_: BatchRange


class LargeMessages(NamedTuple):
    """The consecutive runs of the datagrams [first, stop) of the burst, one in each."""

    first: int
    stop: int
    runs: list[Run]


Large: TypeAlias = "LargeRun | LargeMessages | LargeFragments | LargeBatches"


def are_large(spans: Spans) -> bool:
    """Whether reading these datagrams together as large ones may gain anything."""
    return len(spans) >= _LARGE_MIN and spans[-1][1] - spans[0][0] > len(spans) * SMALL_BYTES


def scan_large(data: U8, spans: Spans, *, joins_heartbeats: bool = True) -> list[Large]:
    """Find consecutive samples in the datagrams at ``spans`` of ``data``, each with its sender's address.

    ``joins_heartbeats``: fragments may continue behind HEARTBEATs, which are then processed after them. Starts are
    multiples of 4. Datagrams that are in no result are left to the message receiver.
    """
    found: list[Large] = []
    at, count = 0, len(spans)
    view = memoryview(data)
    while at < count - 1:
        start, stop, _ = spans[at]
        kind = view[start + BODY] if stop - start > FRAGMENTS_AT else 0
        if kind == DATA:
            size = view[start + BODY + 2] | view[start + BODY + 3] << 8
            last = _data(data, spans, at, found, large=size >= _SAMPLE_MIN)
        elif kind == DataFrag.KIND:
            last = scan_fragments(data, view, spans, at, found, joins_heartbeats=joins_heartbeats)
        elif kind == DATA_BATCH:
            last = _batches(data, spans, at, found)
        else:
            last = at + 1
        at = max(last, at + 1)
    return found


def _data(data: U8, spans: Spans, at: int, found: list[Large], *, large: bool) -> int:
    """Find the samples from the DATA of datagram ``at`` on: a run of ``large`` ones, or the runs of small ones. Returns
    the end of the scanned datagrams."""
    start, stop, _ = spans[at]
    pitch, count = _at_one_pitch(spans, at, len(spans))
    if (stop - start) % 4 or pitch % 4:
        return at
    datagrams, looked_at = find_equal(data, start, stop - start, pitch, count)
    if datagrams is None:
        return at + looked_at
    end = at + len(datagrams.stamps)
    if not large:
        found.append(LargeMessages(at, end, datagrams.runs()))
    elif datagrams.is_plain:
        found.append(LargeRun(at, end, datagrams.indexed_run()))
    return at + looked_at


def _at_one_pitch(spans: Spans, at: int, stop: int) -> tuple[int, int]:
    """The pitch of the datagrams from ``at`` on, and the number of them before ``stop`` with this pitch, one length and
    one sender."""
    here, end, source = spans[at]
    size, pitch, count = end - here, spans[at + 1][0] - here, 1
    for begin, finish, sender in spans[at + 1 : stop]:
        here += pitch
        if begin != here or finish - begin != size or sender != source:
            break
        count += 1
    return pitch, count


def _batches(data: U8, spans: Spans, at: int, found: list[Large]) -> int:
    """Find the ranges of batches from datagram ``at`` on; returns the end of the scanned datagrams."""
    start, stop, _ = spans[at]
    pitch, count = _at_one_pitch(spans, at, len(spans))
    if (stop - start) % 4 or pitch % 4:
        return at
    for first, end, range_ in scan_batches(data, start, stop - start, pitch, count):
        found.append(LargeBatches(at + first, at + end, range_))
    return at + count
