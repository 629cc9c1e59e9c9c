"""The part of the source that runs in tasks: the rows of one partition, from the stream log on this host."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from ..columns.decoding import decode_range
from ..columns.topic_plan import TopicPlan
from ..monitoring.decoding_report import DAMAGED, NOT_HELD, DecodingReport, LostPart, update_decoding_report
from ..options.explanations import explained
from ..transport.errors import LogAccessError, LogLostError
from ..transport.log.damage import Damage
from ..transport.log.frame import Cursor
from ..transport.log.log_view import LogView
from .range_calculator import LogPartition
from .workers import settle

_log = logging.getLogger("spark_rtps.datasource")

#: Damaged parts of one range that are warned of one by one.
_TOLD_MAX: Final = 8


def read_log(
    partition: LogPartition, plan: TopicPlan, *, fail_on_data_loss: bool = True
) -> Iterator[pa.RecordBatch]:
    """The rows of one partition. Reading it again gives the same rows."""
    settle()
    directory = Path(partition.directory)
    with explained():
        _check_access(directory, partition.host)
        yield from read_range(
            directory, partition.start, partition.end, plan, fail_on_data_loss=fail_on_data_loss
        )


def read_range(
    directory: Path, start: Cursor, end: Cursor, plan: TopicPlan, *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of [start, end) of a log. Damage raises LogDamagedError, or is left out, warned of and counted.

    So is what the log no longer holds, or of which its metadata is gone since the range was planned.
    """
    view = LogView(directory)
    if fail_on_data_loss:
        yield from decode_range(view, start, end, plan)
        return
    damage = _LeftOut(directory, plan.topic)
    try:
        yield from decode_range(view, start, end, plan, damage.add)
    except LogLostError as error:
        damage.rest(error, start, end)
    finally:
        damage.close()


class _LeftOut:
    """The damage that was gone past in one range of a log."""

    def __init__(self, directory: Path, topic: str) -> None:
        self._directory = directory
        self._topic = topic
        self._found: list[Damage] = []
        self._rest: LostPart | None = None

    def rest(self, error: LogLostError, start: Cursor, end: Cursor) -> None:
        """The range cannot be read to its end."""
        _log.warning("topic %r: %s; left out because failOnDataLoss=false", self._topic, error)
        nbytes = end.position - start.position
        self._rest = LostPart(NOT_HELD, start.position, time.time_ns(), nbytes)

    def add(self, damage: Damage) -> None:
        if len(self._found) < _TOLD_MAX:
            _log.warning("topic %r: %s; left out because failOnDataLoss=false", self._topic, damage)
        self._found.append(damage)

    def close(self) -> None:
        """Count what was found in the log's report."""
        if len(self._found) > _TOLD_MAX:
            more = len(self._found) - _TOLD_MAX
            _log.warning("topic %r: %d more damaged parts of the log %s", self._topic, more, self._directory)
        if self._found or self._rest is not None:
            update_decoding_report(self._directory, self._lose)

    def _lose(self, report: DecodingReport) -> None:
        now = time.time_ns()
        for each in self._found:
            writer = "" if each.writer is None else each.writer.to_bytes().hex()
            report.lose(LostPart(DAMAGED, each.position, now, each.nbytes, each.rows, writer))
        if self._rest is not None:
            report.lose(self._rest)


def _check_access(directory: Path, host: str) -> None:
    """Raise LogLostError or LogAccessError unless this task finds the log, which is on ``host``, and may read it."""
    owner = None
    try:
        owner = directory.stat().st_uid
    except FileNotFoundError:
        here = os.uname().nodename
        where = "it was removed" if here == host else f"it lies on host {host}, this task ran on {here}"
        raise LogLostError(f"there is no stream log {directory}: {where}", path=directory) from None
    except PermissionError:
        pass  # a folder above is closed
    if owner is None or not os.access(directory, os.R_OK | os.X_OK):
        whose = "another user" if owner is None else f"user {owner}"
        raise LogAccessError(
            f"this task runs as user {os.geteuid()}, who may not read the stream log {directory} of {whose}",
            path=directory,
            owner=owner,
        )
