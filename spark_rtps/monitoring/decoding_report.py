"""A sidecar file about the samples of a stream log that gave no rows: malformed ones by writer and reason, the number
of filtered ones, and the losses of the log.

Several tasks write it at the same time. Some ranges are read twice, because Spark repeats a failed or slow task, and
a restarted query repeats its last micro-batch. To count each sample once, the file also has the numbers of the counted
samples (the number of a sample is how many lie before it in the log). These are few intervals, since ranges follow
each other. When there are too many, the lowest two are merged, and samples between them that are read later are not
counted. Losses of the log are identified by their position instead.

The file is JSON and is replaced as a whole, under a lock. It never fails a task: if it cannot be written, the samples
are not counted.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import field, replace
from pathlib import Path
from typing import Final

import numpy as np

from ..transport.limits import LOST_PARTS_MAX, MALFORMED_REASONS_MAX
from ..transport.log.appending import let_go
from ..transport.log.permissions import LOCK_SUFFIX, create_file
from ..transport.log.small_file import replace_text
from ..transport.protocol.intervals import IntervalSet
from ..transport.value_classes import slotted, value
from ..transport.wire.samples import I64
from .untrusted_json import NUMBER_MAX

_log = logging.getLogger("spark_rtps.datasource")

DECODING_REPORT: Final = "decoding_report"
_LOCK: Final = "decoding_report" + LOCK_SUFFIX
_VERSION: Final = 1
_INTERVALS_MAX: Final = 256
#: Counters that the receiver of a source does not have.
MALFORMED: Final = "decoding.malformed_samples"
FILTERED: Final = "cache.content_filter_dropped_sample_count"
LOST: Final = "log.lost_samples"
#: Why a log has lost something.
DAMAGED: Final = "damaged in the log"
NOT_HELD: Final = "no longer in the log"
MISPLACED: Final = "offset inside a frame of the log"
LOG_LOST: Final = "log lost"


@value
class MalformedSamples:
    """Samples of one writer that are malformed for one reason; first and last reception in ns since 1970."""

    writer: str
    reason: str
    count: int
    first_ns: int
    last_ns: int


@value
class LostPart:
    """A part of a log that is lost or damaged; ``at_ns`` is when that was found, in ns since 1970.

    ``position`` identifies it among parts with the same ``cause``. If they are not known, ``nbytes`` is 0, ``writer``
    (a
    GUID in hexadecimal) is empty and ``samples`` is None.
    """

    cause: str
    position: int
    at_ns: int
    nbytes: int = 0
    samples: int | None = None
    writer: str = ""


@slotted
class DecodingReport:
    """The report of one log."""

    malformed: dict[tuple[str, str], MalformedSamples] = field(default_factory=dict)
    #: Malformed samples beyond the limit of separately counted writers and reasons.
    overflow: int = 0
    filtered: int = 0
    lost: dict[tuple[str, int], LostPart] = field(default_factory=dict)
    #: Lost parts beyond the limit of kept ones.
    lost_overflow: int = 0
    #: The highest position of those. Ranges follow each other, so a range that is read again counts once.
    lost_overflow_to: int = -1
    #: Numbers of the counted samples.
    counted: IntervalSet = field(default_factory=IntervalSet)

    def counters(self) -> dict[str, int]:
        """The counters that are not zero, for display among those of the log's receiver."""
        malformed = self.overflow + sum(m.count for m in self.malformed.values())
        counted = ((MALFORMED, malformed), (FILTERED, self.filtered), (LOST, self.lost_samples))
        return {label: count for label, count in counted if count}

    @property
    def lost_samples(self) -> int:
        """Samples that the log lost, at least: a part with an unknown number counts as one."""
        known = sum(1 if p.samples is None else p.samples for p in self.lost.values())
        return min(self.lost_overflow + known, NUMBER_MAX)

    def lose(self, part: LostPart) -> None:
        """Add a lost part; a part found before counts once, with its largest extent."""
        key = part.cause, part.position
        known = self.lost.get(key)
        if known is not None:
            if part.nbytes > known.nbytes:  # a task was repeated, and more was trimmed by then
                self.lost[key] = replace(part, at_ns=known.at_ns)
        elif len(self.lost) < LOST_PARTS_MAX:
            self.lost[key] = part
        elif part.position > self.lost_overflow_to:
            self.lost_overflow += 1
            self.lost_overflow_to = part.position

    def add_malformed(self, some: MalformedSamples) -> None:
        key = some.writer, some.reason
        found = self.malformed.get(key)
        if found is not None:
            first, last = min(found.first_ns, some.first_ns), max(found.last_ns, some.last_ns)
            some = replace(some, count=found.count + some.count, first_ns=first, last_ns=last)
        elif len(self.malformed) >= MALFORMED_REASONS_MAX:
            self.overflow += some.count
            return
        self.malformed[key] = some

    def see(self, first: int, last: int) -> None:
        """Mark the samples first..last as counted."""
        self.counted.add_range(first, last)
        if len(self.counted) > _INTERVALS_MAX:
            (low, _), (_, high) = list(self.counted)[:2]
            self.counted.add_range(low, high)

    def uncounted(self, numbers: I64) -> int:
        """How many of these ascending, distinct numbers were not counted before."""
        if not len(numbers):
            return 0
        seen = np.array(list(self.counted.within(int(numbers[0]), int(numbers[-1]))), np.int64).reshape(-1, 2)
        before, after = np.searchsorted(numbers, seen[:, 0]), np.searchsorted(numbers, seen[:, 1], "right")
        return len(numbers) - int((after - before).sum())


def read_decoding_report(directory: Path) -> DecodingReport:
    """The report of the log in ``directory``; an empty one if there is none, or it cannot be read."""
    try:
        return _read(directory)
    except OSError:
        return DecodingReport()


def _read(directory: Path) -> DecodingReport:
    """The report; an empty one if there is none, or it is damaged. Raises OSError."""
    try:
        raw = (directory / DECODING_REPORT).read_bytes()
    except FileNotFoundError:
        return DecodingReport()
    report = DecodingReport()
    try:
        found = json.loads(raw)
        if found["v"] == _VERSION:
            for writer, reason, *numbers in found["malformed"]:
                count, first, last = map(int, numbers)
                report.add_malformed(MalformedSamples(str(writer), str(reason), count, first, last))
            for first, last in found["counted"]:
                report.counted.add_range(int(first), int(last))
            report.overflow += int(found["overflow"])
            report.filtered = int(found["filtered"])
            for cause, position, at, nbytes, samples, writer in found.get("lost", ()):
                samples = None if samples is None else int(samples)
                report.lose(LostPart(str(cause), int(position), int(at), int(nbytes), samples, str(writer)))
            report.lost_overflow = int(found.get("lost_overflow", 0))
            report.lost_overflow_to = int(found.get("lost_overflow_to", -1))
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
        return DecodingReport()
    return report


def update_decoding_report(directory: Path, change: Callable[[DecodingReport], None]) -> None:
    """Change the report of the log in ``directory`` under its lock."""
    try:
        lock = create_file(directory / _LOCK, os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            report = _read(
                directory
            )  # an OSError, such as a lack of descriptors, does not count as an empty report
            change(report)
            replace_text(directory / DECODING_REPORT, _as_json(report))
        finally:
            let_go(lock)
    except OSError as error:
        _log.warning("%s; `spark-rtps errors` and `loss` will not show the samples that gave no rows", error)


def _as_json(report: DecodingReport) -> str:
    malformed: Iterable[MalformedSamples] = report.malformed.values()
    return json.dumps(
        {
            "v": _VERSION,
            "malformed": [[m.writer, m.reason, m.count, m.first_ns, m.last_ns] for m in malformed],
            "overflow": report.overflow,
            "filtered": report.filtered,
            "counted": list(report.counted),
            "lost": [
                [p.cause, p.position, p.at_ns, p.nbytes, p.samples, p.writer] for p in report.lost.values()
            ],
            "lost_overflow": report.lost_overflow,
            "lost_overflow_to": report.lost_overflow_to,
        }
    )
