"""Samples of a range that become no rows: malformed ones, which are logged, and filtered ones. Both are counted."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from ..monitoring.range_tally import MalformedNumbers, RangeTally, distinct
from ..transport.errors import MalformedSampleError
from ..transport.limits import MALFORMED_REASON_MAX, MALFORMED_REASONS_MAX
from ..transport.structure import Guid
from ..transport.value_classes import slotted, value
from ..transport.wire.samples import I64
from .chunks import Chunk
from .topic_plan import TopicPlan

_log = logging.getLogger("spark_rtps.datasource")

#: The possible fates of a malformed sample.
DROPPED: Final = "dropped"
NULLS: Final = "read as nulls"
FAILED: Final = "ended the task"
#: Maximum number of reasons in one warning.
_REASONS_REPORTED: Final = 3
#: By stream log, writer, fate and reasons: the samples that this process has logged, and those counted since.
_REPORTED: Final[dict[tuple[Path | None, Guid, str, str], tuple[int, int]]] = {}
_REPORTED_MAX: Final = 1024


@value
class Malformed:
    """Malformed samples of a chunk: their rows, ascending, and why, ``words[code]`` each."""

    rows: I64
    codes: I64 | npt.NDArray[np.int32]
    words: Sequence[str]

    @classmethod
    def alike(cls, rows: I64, reason: str) -> Malformed:
        return cls(rows, np.zeros(len(rows), np.int64), [reason])

    def reasons(self) -> list[str]:
        return [self.words[code] for code in self.codes.tolist()]


@slotted
class _Alike:
    """Malformed samples of one writer, for one reason: their numbers in the log, and their times of reception."""

    numbers: list[I64] = field(default_factory=list)
    first_ns: int = 1 << 63
    last_ns: int = 0

    @property
    def count(self) -> int:
        return sum(map(len, self.numbers))


class Tally:
    """Counts the malformed and filtered samples of one range, logs warnings, and reports to the log's sidecar file."""

    def __init__(self, plan: TopicPlan) -> None:
        self._plan = plan
        self._first: int | None = None
        self._last = -1
        #: The number of the sample that ended the task. Nothing else of its chunk counts: it was not read to the end.
        self._failed = -1
        self._malformed: dict[tuple[Guid, str, str], _Alike] = {}
        self._overflow = _Alike()
        self._filtered: list[I64] = []

    def see(self, chunk: Chunk, count: int) -> None:
        """Note that the first ``count`` samples of the chunk, and all samples before the chunk, have been read."""
        if self._first is None:
            self._first = _number(chunk)
        self._last = _number(chunk) + count - 1

    def filtered(self, chunk: Chunk, rows: I64) -> None:
        if len(rows):
            self._filtered.append(_number(chunk) + rows)

    def malformed(self, chunk: Chunk, some: Malformed, fate: str) -> None:
        """Count malformed samples. Raises MalformedSampleError if their fate is ``FAILED``."""
        if not len(some.rows):
            return
        if fate == FAILED:
            some = Malformed(some.rows[:1], some.codes[:1], some.words)
            self._failed = _number(chunk) + int(some.rows[0])
            self._last = _number(chunk) - 1
        frames = chunk.frame_index()[some.rows]
        writers: dict[Guid, int] = {}
        of_frames = np.array([writers.setdefault(f.run.writer, len(writers)) for f in chunk.frames], np.int64)
        receptions = chunk.receptions()[some.rows]
        alike = of_frames[frames] * len(some.words) + some.codes
        order = np.argsort(alike, kind="stable")
        guids = list(writers)
        for which in np.split(order, np.flatnonzero(np.diff(alike[order])) + 1):
            writer, code = divmod(int(alike[which[0]]), len(some.words))
            found = self._alike(guids[writer], some.words[code], fate)
            found.numbers.append(_number(chunk) + some.rows[which])
            found.first_ns = min(found.first_ns, int(receptions[which].min()))
            found.last_ns = max(found.last_ns, int(receptions[which].max()))
        if fate == FAILED:
            raise self._failure(chunk, some)

    @property
    def malformed_count(self) -> int:
        """The number of malformed samples so far."""
        return self._overflow.count + sum(alike.count for alike in self._malformed.values())

    @property
    def filtered_count(self) -> int:
        """The number of samples so far that the content filter left out."""
        return sum(map(len, self._filtered))

    def close(self, directory: Path | None) -> RangeTally | None:
        """Log warnings about malformed samples. Returns the counts for the log's report; None: there are none."""
        self._tell(directory)
        if self._first is None or not (self._malformed or self._filtered):
            return None
        return RangeTally(
            tuple(
                MalformedNumbers(str(writer), reason, distinct(found.numbers), found.first_ns, found.last_ns)
                for (writer, reason, _), found in self._malformed.items()
            ),
            distinct(self._overflow.numbers),
            distinct(self._filtered),
            (self._first, self._last),
            self._failed,
        )

    # --- inside ------------------------------------------------------------------------------------

    def _alike(self, writer: Guid, reason: str, fate: str) -> _Alike:
        key = writer, reason[:MALFORMED_REASON_MAX], fate
        if key not in self._malformed and len(self._malformed) >= MALFORMED_REASONS_MAX:
            return self._overflow
        return self._malformed.setdefault(key, _Alike())

    def _failure(self, chunk: Chunk, some: Malformed) -> MalformedSampleError:
        row = int(some.rows[0])
        number = int(chunk.sequence_numbers()[row])
        writer = chunk.frames[int(chunk.frame_index()[row])].run.writer
        reason = some.words[int(some.codes[0])][:MALFORMED_REASON_MAX]
        error = MalformedSampleError(
            f"topic {self._plan.topic!r}: sample {number} of writer {writer} is malformed: {reason}. "
            "mode=dropmalformed leaves such samples out, mode=permissive makes rows of nulls of them"
        )
        error.sample = writer, number
        return error

    def _tell(self, directory: Path | None) -> None:
        counts: dict[tuple[Guid, str], tuple[int, list[str]]] = {}
        for (writer, reason, fate), alike in self._malformed.items():
            if fate == FAILED:
                continue  # the error reports it
            count, reasons = counts.get((writer, fate), (0, []))
            counts[writer, fate] = count + alike.count, [*reasons, reason]
        for (writer, fate), (count, reasons) in counts.items():
            why = "; ".join(reasons[:_REASONS_REPORTED])
            count = _worth_telling((directory, writer, fate, why), count)
            if not count:
                continue
            _log.warning(
                "topic %r: %s of writer %s %s: %s",
                self._plan.topic,
                "1 malformed sample" if count == 1 else f"{count} malformed samples",
                writer,
                fate,
                why,
            )
        if self._overflow.count:
            _log.warning("topic %r: %d more malformed samples", self._plan.topic, self._overflow.count)


def _worth_telling(key: tuple[Path | None, Guid, str, str], count: int) -> int:
    """The number of samples to log now: the first ones, then whenever their number has doubled; else 0."""
    counts, unreported = _REPORTED.pop(key, (0, 0))
    if len(_REPORTED) >= _REPORTED_MAX:
        _REPORTED.pop(next(iter(_REPORTED)))
    unreported += count
    _REPORTED[key] = (counts, unreported) if unreported < counts else (counts + unreported, 0)
    return 0 if unreported < counts else unreported


def _number(chunk: Chunk) -> int:
    """The number of the chunk's first sample: the count of samples before it in the log."""
    return chunk.frames[0].rows_before
