"""The range of the log that a micro-batch reads, and its division into partitions: arithmetic on cursors."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pyspark.sql.datasource import InputPartition

from ..serving.wire_format.log_location import LogLocation
from ..serving.wire_format.served import Served
from ..transport.log.frame import Cursor
from ..transport.log.log_view import LogView
from ..transport.value_classes import value

#: Longer ranges are divided, so that catching up uses all cores.
PARTITION_BYTES: Final = 32 << 20


@dataclass(frozen=True)
class LogPartition(InputPartition):
    """The samples of one log in [start, end).

    The log is read in ``directory`` if that is at ``place``; otherwise it is fetched from where it is ``served``.
    """

    directory: str
    host: str
    start_position: int
    start_row: int
    end_position: int
    end_row: int
    served: Served | None = None
    place: LogLocation | None = field(default=None, compare=False)

    @property
    def start(self) -> Cursor:
        return Cursor(self.start_position, self.start_row)

    @property
    def end(self) -> Cursor:
        return Cursor(self.end_position, self.end_row)


@value
class Limits:
    """The most that one micro-batch reads; None: no limit."""

    max_rows: int | None = None
    max_bytes: int | None = None

    @property
    def is_unlimited(self) -> bool:
        return self.max_rows is None and self.max_bytes is None


def plan_end(directory: Path, start: Cursor, tail: Cursor, limits: Limits, *, log_max_bytes: int) -> Cursor:
    """Where the micro-batch that begins at ``start`` ends: at ``tail`` unless a limit is reached before."""
    if start >= tail:
        return start
    limits = half_of_log(limits, start, tail, log_max_bytes)
    if limits.is_unlimited:
        return tail
    view = LogView(directory)
    return view.advance(start, max_rows=limits.max_rows, max_bytes=limits.max_bytes, tail=tail.position)


def half_of_log(limits: Limits, start: Cursor, tail: Cursor, log_max_bytes: int) -> Limits:
    """The limits of a micro-batch, which never takes more than half of a log.

    Spark commits a batch when it plans the next one: if a batch took all of a full log, nothing would be left to plan,
    and there would never be space for new samples.
    """
    half = log_max_bytes // 2
    if tail.position - start.position <= half:
        return limits
    return replace(limits, max_bytes=min(half, limits.max_bytes or half))


def pieces_of(start: Cursor, end: Cursor, least: int) -> int:
    """How many pieces a range is divided into: ``least`` or, if it is long, a multiple of that.

    It is near a multiple of the tasks that run at a time: with three equal pieces for two cores, one core would be idle
    while the other one reads the third.
    """
    return least * max(1, -(-(end.position - start.position) // (PARTITION_BYTES * least)))


def plan_partitions(
    directory: Path,
    start: Cursor,
    end: Cursor,
    *,
    min_partitions: int,
    host: str,
    served: Served | None = None,
) -> list[LogPartition]:
    """[start, end) in :func:`pieces_of` it, if it has as many frames.

    Tasks on other hosts fetch them from where the log is ``served``; None: nowhere.
    """
    if start >= end:
        return []
    pieces = pieces_of(start, end, min_partitions)
    ranges = LogView(directory).split(start, end, pieces) if pieces > 1 else [(start, end)]
    place = LogLocation.of_directory(directory)
    return [LogPartition(str(directory), host, *a, *b, served, place) for a, b in ranges]


class LimitShares:
    """Divides the limits of a batch among the receivers that are behind."""

    def __init__(self) -> None:
        self._turn = 0

    def divide(self, names: list[str], limits: Limits) -> dict[str, Limits]:
        """The limits of each receiver that is behind: equal parts; if there are too few, receivers take turns."""
        rows, nbytes = limits.max_rows, limits.max_bytes
        if not names:
            return {}
        self._turn += 1
        turned = names[self._turn % len(names) :] + names[: self._turn % len(names)]
        turned = turned[: min(rows or len(names), nbytes or len(names))]
        count = len(turned)
        return {n: Limits(rows and rows // count, nbytes and nbytes // count) for n in turned}
