"""The streaming source: it plans ranges of the stream log on the driver and decodes them in tasks."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from ..columns.topic_plan import TopicPlan
from ..monitoring.decoding_report import (
    LOG_LOST,
    NOT_HELD,
    LostPart,
    read_decoding_report,
    update_decoding_report,
)
from ..monitoring.reports import record_errors
from ..monitoring.stream_counters import lost, malformed, raised, rejected
from ..options import Settings, default_log_dir
from ..options.explanations import explained
from ..transport.errors import LogLostError
from ..transport.log.frame import Cursor
from ..transport.log.log_view import LogView
from ..transport.log.stream_log import StreamLog
from ..transport.receiver.process import ReceiverProcess
from ..transport.receiver.supervision import StartReceiver
from .commit_order import CommitOrder
from .new_log import NewLog
from .offset_checks import OffsetChecks, describe_cursor
from .offsets import Json, Offset
from .partition_planner import PartitionPlanner
from .range_calculator import LogPartition, plan_end
from .read_limits import UNLIMITED, default_read_limit, limits_of, refuse_once
from .receiver_session import START, ReceiverSession
from .source_process import SourceProcess
from .task_reader import TaskReader, reduce

_log = logging.getLogger("spark_rtps.datasource")

_LISTEN_STEP_SECONDS: Final = 0.02


class RtpsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark calls all methods but ``read`` in one process on the driver, which lives as long as the query.

    Tasks get its :class:`TaskReader`.

    Nothing is received into a log that the checkpoint does not name: a restarted query could find neither the log nor
    the
    GUID for which writers wait. The end of a query's first micro-batch is therefore the beginning of its log, and the
    receiver starts when Spark has recorded that and asks for the partitions. The same holds for a log that replaces a
    lost one.
    """

    def __init__(
        self, settings: Settings, plan: TopicPlan, *, start: StartReceiver = ReceiverProcess.start
    ) -> None:
        self._settings = settings
        self._plan = plan
        self._start = start
        self._session: ReceiverSession | None = None
        self._new = NewLog(settings, plan)
        self._checks = OffsetChecks(settings.log_dir)
        self._order = CommitOrder()
        self._planner = PartitionPlanner(settings)
        self._process = SourceProcess()
        #: Trigger.AvailableNow: the query listens for a while, and then reads no further than the target.
        self._available_now = False
        self._target: Cursor | None = None
        self._planned = START

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce(self._settings, self._plan, notes_query=True)

    # --- offsets -----------------------------------------------------------------------------------

    @explained()
    def initialOffset(self) -> dict[str, Json]:  # noqa: N802
        """The beginning of a new log.

        Spark calls this twice, and also before it repeats the first micro-batch of an earlier run, whose end names that
        run's log: the new one is never made then.
        """
        return Offset(self._new.choose_name(), START).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = default_read_limit(self._settings)
        return UNLIMITED if isinstance(limit, ReadAllAvailable) else limit

    @explained()
    def latestOffset(self, start: dict[str, Json], limit: ReadLimit) -> dict[str, Json]:  # noqa: N802
        """The end of the next micro-batch: this reads a counter, and scans frame headers if there is a limit."""
        refuse_once(limit)
        self._order.asked(start)
        try:
            return self._latest(start, limit)
        except LogLostError as error:
            self._go_on_anew(error, Offset.from_json(start).log)
            return Offset(self._new.name, START).to_json()

    def _latest(self, start: dict[str, Json], limit: ReadLimit) -> dict[str, Json]:
        first = Offset.from_json(start)
        if self._session is None and self._new.make_if_next(first.log):
            return Offset(self._new.name, START).to_json()
        session, begin = self._attach_to(first)
        # Spark calls this when everything before is committed, but commit() only when there is more. A full log would
        # otherwise wait for ever, and so would a writer's window that only commits open.
        if begin > START and not self._order.is_late:
            session.commit_offset(begin)
        if self._available_now and self._target is None:
            self._target = self._listen(session)
        tail = session.tail() if self._target is None else self._target
        limits = limits_of(limit, self._settings)
        end = plan_end(session.directory, begin, tail, limits, log_max_bytes=self._settings.log_max_bytes)
        self._planned = max(begin, end)
        return self._offset(self._checks.trust(end)) if end > begin else start

    @explained()
    def reportLatestOffset(self) -> dict[str, Json] | None:  # noqa: N802
        """The end of the log, and the state of the subscription.

        Spark calls this after each :meth:`latestOffset` and only shows the answer, as ``sources[i].latestOffset`` of
        the query's progress: the only place there for numbers of a Python source.
        """
        session = self._session
        if session is None:
            return None
        try:
            tail, counters = session.tail(), session.counters()
        except LogLostError:
            return None  # the next plan finds the cause and reports it
        counters |= read_decoding_report(session.directory).counters()
        offset = self._offset(tail)
        offset["status"] = {
            "behind_bytes": max(0, tail.position - self._planned.position),
            "lost": lost(counters),
            "rejected": rejected(counters),
            "malformed": malformed(counters),
            **cast("dict[str, Json]", raised(counters)),
        }
        return offset

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        # after a restart the log is not known yet: the first latestOffset listens
        self._available_now = True

    # --- ranges ------------------------------------------------------------------------------------

    @explained()
    def partitions(self, start: dict[str, Json], end: dict[str, Json]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch. After a restart Spark calls this first, so it finds the log again."""
        first, last = Offset.from_json(start), Offset.from_json(end)
        self._order.plans(start, end)
        left_over: list[LogPartition] = []
        begin = START
        if first.log == last.log:
            begin = first.cursor
        elif first.log != self._new.name:  # the log is lost, and failOnDataLoss was false
            left_over = self._planner.plan_lost(first.log, first.cursor)
        try:
            session, last_cursor = self._attach_to(last)
            _check_log(session.directory)
            if session.log == last.log:
                session.note_checkpoint()
                begin = self._place(session, begin)
                return left_over + self._planner.plan_range(session.directory, begin, last_cursor)
        except LogLostError as error:
            self._go_on_anew(error, last.log)
        return left_over + self._planner.plan_lost(last.log, begin, last.cursor)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """As :meth:`TaskReader.read`, which Spark calls in tasks."""
        return TaskReader(self._plan, self._settings.fail_on_data_loss, notes_query=True).read(partition)

    @explained()
    def commit(self, end: dict[str, Json]) -> None:
        self._order.commits(end)
        offset, session = Offset.from_json(end), self._session
        if session is None or offset.log != session.log:
            return
        try:
            session.commit_offset(self._place(session, offset.cursor))
        except LogLostError as error:
            if self._settings.fail_on_data_loss:
                raise _unprocessed(error) from error
            _log.warning("%s; nothing is committed", error)  # the next plan continues with a new log

    def stop(self) -> None:
        """Leave the domain. Writers wait for the next run of the query only if the driver was killed, or if the user
        wants to start it again soon."""
        session, self._session = self._session, None
        try:
            if session is not None and not self._process.is_forked():
                leaves = self._settings.leave_on_stop or session.is_temporary
                session.stop(dispose=leaves and not self._process.is_orphaned())
        finally:
            self._planner.serving.stop()
            self._process.is_stopping = True

    # --- inside ------------------------------------------------------------------------------------

    def _attach_to(self, offset: Offset) -> tuple[ReceiverSession, Cursor]:
        """The receiver, and the cursor of ``offset`` in its log: the start, if that is another log.

        Raises LogLostError if the offset's log is lost, or does not have that position.
        """
        session = self._session
        if session is None:
            _start_monitoring(self._settings)
            session = ReceiverSession.on_old_log(
                self._settings,
                self._plan,
                offset.log,
                start=self._start,
                stopping=lambda: self._process.is_stopping,
                reached=offset.cursor,
            )
            self._session, self._checks = session, OffsetChecks(session.directory)
            self._process.attach(self.stop)
        return session, self._place(session, offset.cursor) if session.log == offset.log else START

    def _place(self, session: ReceiverSession, cursor: Cursor) -> Cursor:
        """Where the samples behind an offset of the session's log begin.

        Raises LogLostError if the log ends before it, or if the log does not have that offset and failOnDataLoss is
        true.
        """
        found = self._checks.place(cursor, base=session.base(), tail=session.tail())
        if isinstance(found, Cursor):
            return found
        if self._settings.fail_on_data_loss:
            raise LogLostError(found.what, path=session.directory, position=cursor.position)
        _log.warning(
            "%s; continuing at %s because failOnDataLoss=false", found.what, describe_cursor(found.place)
        )
        nbytes = found.place.position - cursor.position if found.cause == NOT_HELD else 0
        _record_loss(session.directory, LostPart(found.cause, cursor.position, time.time_ns(), nbytes))
        return found.place

    def _go_on_anew(self, error: LogLostError, log: str) -> None:
        """Replace a lost log by a new one, if that is allowed: the next offset names it.

        The lost one is that of the session, or ``log``. Spark asks for its ranges again, but the log is lost once.
        """
        if self._settings.fail_on_data_loss:
            raise _unprocessed(error) from error
        lost, self._session = self._session, None
        if lost is not None:
            lost.stop()
            log = lost.log
        if log == self._new.replaces:
            return
        self._target = None  # a position of the old log
        directory = self._new.replace(log)
        _log.warning(
            "%s; samples are lost; continuing with a new log because failOnDataLoss=false: %s",
            error,
            directory,
        )
        _record_loss(directory, LostPart(LOG_LOST, error.position or 0, time.time_ns()))

    def _listen(self, session: ReceiverSession) -> Cursor:
        """Trigger.AvailableNow: the end of what arrives within ``read.timeout``."""
        until = self._process.attached_at + self._settings.read_timeout
        while time.monotonic_ns() < until and not self._process.is_stopping:
            time.sleep(_LISTEN_STEP_SECONDS)
            session.tail()  # keeps it alive
        return session.tail()

    def _offset(self, cursor: Cursor) -> dict[str, Json]:
        assert self._session is not None
        return Offset(self._session.log, cursor).to_json()


def _start_monitoring(settings: Settings) -> None:
    """Record errors and start the exporter of metrics. Raises OptionError if that is not possible."""
    record_errors()
    if settings.metrics_port:
        from ..monitoring.metrics import start_exporter

        log_dirs = [default_log_dir(), settings.log_dir]
        start_exporter(settings.metrics_port, log_dirs, address=settings.metrics_address)


def _record_loss(directory: Path, part: LostPart) -> None:
    update_decoding_report(directory, lambda report: report.lose(part))


def _check_log(directory: Path) -> None:
    """Raise LogLostError if the log was removed under its receiver: no task could read it."""
    if not StreamLog.exists(directory):
        raise LogLostError(f"the stream log {directory} was removed", path=directory)
    _ = LogView(directory).metadata


def _unprocessed(error: LogLostError) -> LogLostError:
    """The error for a loss that failOnDataLoss=true does not skip."""
    return LogLostError(
        f"{error}. Samples that were received but not processed are lost",
        path=error.path,
        position=error.position,
    )
