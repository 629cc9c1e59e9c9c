"""The samples of a recording in the order in which they were logged, whatever order its files have them in.

A file has the samples of a section channel by channel, so the writers of a topic are apart, and sections may overlap in
time. Samples are held until a later section shows that no earlier ones follow.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np

from ..transport.wire.samples import I64
from .capture_file import CaptureFile
from .recorded import ALL_TIMES, TIME_MAX, TIME_MIN, FileSection, Piece, RecordedSamples
from .recorded_topic import TopicFile

#: Samples logged within this time (ns) are grouped.
_TOGETHER: Final = 1_000_000


class Logged(NamedTuple):
    """Samples of one topic that were logged at about the same time, ns since the epoch, in order."""

    time: int
    topic: str
    payloads: list[bytes]


def in_log_order(files: Iterable[TopicFile]) -> Iterator[Logged]:
    """The samples that hold data, of all channels of the files. Few sections of each file are in memory at once."""
    streams = (_of_file(each) for each in files)
    return (found for found in heapq.merge(*streams, key=lambda each: each.time) if found.payloads)


def _of_file(given: TopicFile) -> Iterator[Logged]:
    sections = given.file.sections(given.channels, ALL_TIMES)
    is_timed = all(section.last_time < TIME_MAX for section in sections)
    if sections and is_timed:
        sections.sort(key=lambda section: section.first_time)
        # the file is not read before it is due
        yield Logged(sections[0].first_time, "", [])
    held: list[RecordedSamples] = []
    for group, begin in _groups(given, sections):
        first = min(int(each.log_times[0]) for each in group)
        if is_timed:
            # of these channels a later section may have a sample that was logged before all of this one
            first = min(first, begin)
        cuts = [int(np.searchsorted(each.log_times, first)) for each in held]
        yield from _together([each.select(slice(cut)) for each, cut in zip(held, cuts, strict=True) if cut])
        later = [each.select(slice(cut, None)) for each, cut in zip(held, cuts, strict=True)]
        held = [each for each in later if each.count] + group
    yield from _together(held)


def _groups(given: TopicFile, sections: Iterable[FileSection]) -> Iterator[tuple[list[RecordedSamples], int]]:
    """The samples of a file, with sorted times, and the beginning of their section.

    Where sections have no times, no sample of a group was logged before one of the last but one.
    """
    for section in sections:
        piece = Piece(given.path, given.file.form, given.channels, (section,), given.domain)
        group, last = list[RecordedSamples](), TIME_MIN
        for samples in given.file.read_piece(piece, ALL_TIMES):
            if not samples.count:
                continue
            ordered = _sorted(samples)
            # a capture is one section, which is read as a stream
            if group and piece.form == CaptureFile.form and ordered.log_times[0] >= last:
                yield group, section.first_time
                group, last = [], TIME_MIN
            group.append(ordered)
            last = max(last, int(ordered.log_times[-1]))
        if group:
            yield group, section.first_time


def _sorted(samples: RecordedSamples) -> RecordedSamples:
    if (np.diff(samples.log_times) >= 0).all():
        return samples
    return samples.select(np.argsort(samples.log_times, kind="stable"))


def _together(given: list[RecordedSamples]) -> Iterator[Logged]:
    """The samples in order, those of one topic that were logged within a millisecond together."""
    if not given:
        return
    times: I64 = np.concatenate([each.log_times for each in given])
    owners = np.repeat(np.arange(len(given)), [each.count for each in given])
    rows = np.concatenate([np.arange(each.count) for each in given])
    order = np.argsort(times, kind="stable")
    times, owners, rows = times[order], owners[order], rows[order]
    first = 0
    while first < len(times):
        last = int(np.searchsorted(times, times[first] + _TOGETHER, side="right"))
        payloads: dict[str, list[bytes]] = {}
        for owner, row in zip(owners[first:last].tolist(), rows[first:last].tolist(), strict=True):
            samples = given[owner]
            if samples.flags is None or not samples.flags[row]:
                payloads.setdefault(samples.channel.topic, []).append(samples.payload(row))
        for topic, some in payloads.items():
            yield Logged(int(times[first]), topic, some)
        first = last
