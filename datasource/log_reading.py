"""The part of the source that runs in tasks: the rows of one partition, from the log on this host or a fetched one."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa

from ..columns.decoding import decode_range
from ..columns.sidecar_files import DirectorySidecar, Sidecar
from ..columns.topic_plan import TopicPlan
from ..monitoring.decoding_report import DAMAGED, NOT_HELD, LostPart
from ..monitoring.range_tally import RangeTally
from ..options.explanations import explained
from ..serving.client.remote_log import RemoteLog
from ..serving.wire_format.log_location import LogLocation
from ..serving.wire_format.loopback import this_network
from ..serving.wire_format.served import Served
from ..transport.errors import LogAccessError, LogLostError, RangeServerError
from ..transport.log.damage import Damage
from ..transport.log.frame import Cursor
from ..transport.log.held_frames import Trimmed
from ..transport.log.log_view import LogView
from ..transport.structure import Guid
from .range_calculator import LogPartition
from .workers import settle

_log = logging.getLogger("spark_rtps.datasource")

#: Damaged parts of one range that are logged one by one.
_REPORTED_MAX: Final = 8


def read_log(
    partition: LogPartition, plan: TopicPlan, *, fail_on_data_loss: bool = True, own: bool = False
) -> Iterator[pa.RecordBatch]:
    """The rows of one partition. Reading it again gives the same rows. ``own``: as for :func:`read_range`."""
    settle()
    with explained(), _opened(partition, in_place=own and fail_on_data_loss) as (view, sidecar):
        yield from _rows(view, sidecar, partition.start, partition.end, plan, fail_on_data_loss)


def read_range(
    directory: Path,
    start: Cursor,
    end: Cursor,
    plan: TopicPlan,
    *,
    fail_on_data_loss: bool,
    own: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The rows of [start, end) of a log on this host.

    Damage raises LogDamagedError, or is skipped, logged and counted. So are samples that the log no longer holds, and
    those whose metadata was lost since the range was planned. A query's ``own`` log is trimmed only once it has
    committed the rows, so that they may view the log; of another log they never do. If they are read again after that,
    as by a thread that ``foreachBatch`` has left behind, LogLostError is raised instead of returning overwritten rows.
    """
    view = _view(directory, in_place=own and fail_on_data_loss)
    yield from _rows(view, DirectorySidecar(directory), start, end, plan, fail_on_data_loss)


def _view(directory: Path, *, in_place: bool) -> LogView:
    return LogView(directory) if in_place else LogView.copying(directory)


def _rows(
    view: LogView, sidecar: Sidecar, start: Cursor, end: Cursor, plan: TopicPlan, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    if fail_on_data_loss:
        for batch in decode_range(view, start, end, plan, None, sidecar):
            view.check_held(start)  # the frames may have been overwritten since they were verified
            yield batch
        view.check_held(start)  # the bytes behind the last batch may be, too, while Spark took it
        return
    damage = _LeftOut(view.directory, plan.topic)
    try:
        yield from decode_range(view, start, end, plan, damage.add_damage, sidecar, damage.trimmed)
    except LogLostError as error:
        damage.rest(error, start, end)
    finally:
        found = damage.close()
        if found is not None:
            sidecar.report(found)


@contextmanager
def _opened(partition: LogPartition, *, in_place: bool) -> Iterator[tuple[LogView, Sidecar]]:
    """The log of a partition: in its folder if that is on this host, else from its server."""
    directory, served = Path(partition.directory), partition.served
    if served is None or _is_here(partition):
        _check_access(directory, partition.host)
        yield _view(directory, in_place=in_place), DirectorySidecar(directory)
        return
    _check_network(served, partition.host)
    with closing(RemoteLog(served, directory.name, directory)) as fetched:
        yield LogView.over(fetched), fetched


def _check_network(served: Served, host: str) -> None:
    """Raise RangeServerError at once, instead of trying for a minute, where this task cannot reach the server."""
    if served.network is None or served.network == (here := this_network()) or here is None:
        return
    raise RangeServerError(
        f"the log is served at {', '.join(served.addresses)} of the driver's host only ({host}), and this task ran on "
        f"another one, {os.uname().nodename}",
        addresses=served.addresses,
        is_reached=False,
    )


def _is_here(partition: LogPartition) -> bool:
    """Whether the folder is the one that the range was planned with, and this task may read it."""
    directory = Path(partition.directory)
    if partition.place is None or LogLocation.of_directory(directory) != partition.place:
        return False
    return os.access(directory, os.R_OK | os.X_OK)


class _LeftOut:
    """The damage that was skipped in one range of a log."""

    def __init__(self, directory: Path, topic: str) -> None:
        self._directory = directory
        self._topic = topic
        self._found: list[Damage] = []
        self._not_held: list[LostPart] = []

    def trimmed(self, part: Trimmed) -> None:
        """The log no longer holds a part of the range."""
        _log.warning(
            "topic %r: positions %d to %d are no longer in the log in %s; left out because failOnDataLoss=false",
            self._topic,
            part.position,
            part.stop,
            self._directory,
        )
        nbytes = part.stop - part.position
        self._not_held.append(LostPart(NOT_HELD, part.position, time.time_ns(), nbytes, part.rows))

    def rest(self, error: LogLostError, start: Cursor, end: Cursor) -> None:
        """The range cannot be read to its end."""
        _log.warning("topic %r: %s; left out because failOnDataLoss=false", self._topic, error)
        position = start.position if error.position is None else max(start.position, error.position)
        self._not_held.append(LostPart(NOT_HELD, position, time.time_ns(), max(0, end.position - position)))

    def add_damage(self, damage: Damage) -> None:
        if len(self._found) < _REPORTED_MAX:
            _log.warning("topic %r: %s; left out because failOnDataLoss=false", self._topic, damage)
        self._found.append(damage)

    def close(self) -> RangeTally | None:
        """The counts for the log's report, if there are any."""
        if len(self._found) > _REPORTED_MAX:
            more = len(self._found) - _REPORTED_MAX
            _log.warning("topic %r: %d more damaged parts of the log %s", self._topic, more, self._directory)
        now = time.time_ns()
        lost = [
            LostPart(DAMAGED, each.position, now, each.nbytes, each.rows, _hex(each.writer))
            for each in self._found
        ]
        lost += self._not_held
        return RangeTally(lost=tuple(lost)) if lost else None


def _hex(writer: Guid | None) -> str:
    return "" if writer is None else writer.to_bytes().hex()


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
            f"this task runs as user {os.geteuid()} and may not read the stream log {directory} of {whose}",
            path=directory,
            owner=owner,
        )
