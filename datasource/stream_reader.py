"""The streaming source: plans ranges of the stream log on the driver, decodes them in tasks."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Final, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ..transport.errors import LogLostError
from ..transport.log.frame import Cursor
from ..transport.receiver.process import ReceiverProcess
from .decoding import read_log
from .decoding_report import read_decoding_report
from .offsets import Json, Offset
from .options import Settings, default_log_dir
from .planning import Limits, LogPartition, plan_end, plan_partitions
from .receiving import Receiving, StartReceiver
from .reports import record_errors
from .schema import TopicPlan
from .stream_counters import lost, malformed, raised, rejected

_log = logging.getLogger("spark_rtps.datasource")

_START: Final = Cursor(0)
_LISTEN_STEP_SECONDS: Final = 0.02
#: A driver that is killed closes its sockets some milliseconds before its children see that it is gone.
_DYING_SECONDS: Final = 0.5


class RtpsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark calls everything but ``read`` in one process on the driver that lives as long as the query.

    A copy of this object is pickled for the tasks; what is open stays behind.
    """

    def __init__(
        self, settings: Settings, plan: TopicPlan, *, start: StartReceiver = ReceiverProcess.start
    ) -> None:
        self._settings = settings
        self._plan = plan
        self._start = start
        self._receiving: Receiving | None = None
        #: Trigger.AvailableNow: listen for a while, then go no further than the target.
        self._available_now = False
        self._attached_at = 0
        self._parent = 0
        self._target: Cursor | None = None
        self._planned = _START
        self._stopping = False  # no Event: a second SIGTERM inside Event.set() would deadlock

    def __getstate__(self) -> tuple[Settings, TopicPlan]:
        return self._settings, self._plan

    def __setstate__(self, state: tuple[Settings, TopicPlan]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    # --- offsets -----------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Json]:  # noqa: N802
        """The beginning of a new log, whose receiver listens from now on. Spark asks twice."""
        if self._receiving is None:
            self._show()
            self._attach(self._on_new_log())
        return self._offset(_START)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # Spark has no composite limit: with both options, latestOffset adds the one in bytes
        if self._settings.max_rows_per_trigger is not None:
            return ReadMaxRows(self._settings.max_rows_per_trigger)
        if self._settings.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._settings.max_bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Json], limit: ReadLimit) -> dict[str, Json]:  # noqa: N802
        """The end of the next micro-batch: reads a counter, and walks frame headers if there is a limit."""
        receiving, begin = self._attach_to(Offset.from_json(start))
        if self._settings.consumption == "committed":
            # Spark asks for more when all before is committed, but says so only when there is more: for that a closed
            # window would wait for ever.
            receiving.commit(begin)
        if self._available_now and self._target is None:
            self._target = self._listen(receiving)
        tail = receiving.tail() if self._target is None else self._target
        log_max_bytes = self._settings.log_max_bytes
        end = plan_end(receiving.directory, begin, tail, self._limits(limit), log_max_bytes=log_max_bytes)
        self._planned = max(begin, end)
        return self._offset(end) if end > begin else start

    def reportLatestOffset(self) -> dict[str, Json] | None:  # noqa: N802
        """The end of the log, and how the subscription does.

        Spark asks after each :meth:`latestOffset` and does nothing with the answer but show it, as
        ``sources[i].latestOffset`` of the query's progress: it is the one place there for numbers of ours.
        """
        receiving = self._receiving
        if receiving is None:
            return None
        tail, counters = receiving.tail(), receiving.counters()
        counters |= read_decoding_report(receiving.directory).counters()
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
        # on a restart the log is not known yet: listening happens in the first latestOffset
        self._available_now = True

    # --- ranges ------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Json], end: dict[str, Json]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch. After a restart this comes first: it finds the log again."""
        first, last = Offset.from_json(start), Offset.from_json(end)
        if self._receiving is not None and first.log == self._receiving.log != last.log:
            # A restart before the first batch was committed: Spark has asked for an initial offset all the same.
            fresh, self._receiving = self._receiving, None
            fresh.discard()
        receiving, _ = self._attach_to(last)
        if receiving.log != last.log:
            return []  # lost, and failOnDataLoss=false
        begin = first.cursor if first.log == last.log else _START
        base, tail = receiving.counters().get("log.base", 0), receiving.tail()
        if begin.position < base or last.cursor > tail:
            self._lost(
                f"stream log {receiving.directory} holds positions {base} to {tail.position}, but the "
                f"checkpoint wants {begin.position} to {last.cursor.position}"
            )
            if last.cursor > tail:
                self._replace(receiving)
                return []
            begin = Cursor(base)
        return plan_partitions(
            receiving.directory,
            begin,
            last.cursor,
            min_partitions=self._settings.min_partitions,
            host=os.uname().nodename,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Decode one range; runs in a task, perhaps several times."""
        assert isinstance(partition, LogPartition)
        return read_log(partition, self._plan)

    def commit(self, end: dict[str, Json]) -> None:
        offset = Offset.from_json(end)
        if self._receiving is not None and offset.log == self._receiving.log:
            self._receiving.commit(offset.cursor)

    def stop(self) -> None:
        """Leave the domain; writers wait for the next run of the query only if the driver was killed."""
        receiving, self._receiving = self._receiving, None
        if receiving is not None:
            receiving.stop(goodbye=not self._is_orphaned())
        self._stopping = True

    # --- inside ------------------------------------------------------------------------------------

    def _attach_to(self, offset: Offset) -> tuple[Receiving, Cursor]:
        """The receiver, and where in its log ``offset`` lies: at the start if that log was lost."""
        receiving = self._receiving
        if receiving is None:
            self._show()
            try:
                receiving = Receiving.on_old_log(
                    self._settings, self._plan, offset.log, start=self._start, stopping=self._is_stopping
                )
            except LogLostError as error:
                self._lost(str(error))
                receiving = self._on_new_log()
            self._attach(receiving)
        return receiving, offset.cursor if receiving.log == offset.log else _START

    def _show(self) -> None:
        """Let tools see what this query does; OptionError if they cannot."""
        record_errors()
        if self._settings.metrics_port:
            from .metrics import start_exporter

            start_exporter(self._settings.metrics_port, [default_log_dir(), self._settings.log_dir])

    def _attach(self, receiving: Receiving) -> None:
        if not self._attached_at:
            atexit.register(self.stop)
        self._receiving, self._attached_at, self._parent = receiving, time.monotonic_ns(), os.getppid()
        if threading.current_thread() is threading.main_thread():
            # Spark sends SIGTERM and closes the socket: without a handler we die before stop() is called
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def _is_orphaned(self) -> bool:
        """Whether the driver was killed: its sockets close as when the query is stopped, but no signal comes."""
        until = time.monotonic() + _DYING_SECONDS
        while not self._stopping and os.getppid() == self._parent and time.monotonic() < until:
            time.sleep(_LISTEN_STEP_SECONDS)
        return os.getppid() != self._parent

    def _on_new_log(self) -> Receiving:
        return Receiving.on_new_log(self._settings, self._plan, start=self._start, stopping=self._is_stopping)

    def _is_stopping(self) -> bool:
        return self._stopping

    def _on_sigterm(self, _signal: int, _frame: FrameType | None) -> None:
        self._stopping = True

    def _replace(self, receiving: Receiving) -> None:
        receiving.stop()
        self._target = None  # a position of the old log
        self._attach(self._on_new_log())

    def _lost(self, what: str) -> None:
        if self._settings.fail_on_data_loss:
            raise LogLostError(
                f"{what}. Samples that were received but not processed are lost. Set log.dir to the "
                "directory of the earlier run, or go on without them with failOnDataLoss=false, or start "
                "with a new checkpoint"
            )
        _log.warning("%s; samples are lost, going on because failOnDataLoss=false", what)

    def _listen(self, receiving: Receiving) -> Cursor:
        """Trigger.AvailableNow: what is available is what arrives within ``read.timeout``."""
        until = self._attached_at + self._settings.read_timeout
        while time.monotonic_ns() < until and not self._stopping:
            time.sleep(_LISTEN_STEP_SECONDS)
            receiving.tail()  # keeps it alive
        return receiving.tail()

    def _limits(self, limit: ReadLimit) -> Limits:
        if isinstance(limit, ReadMaxRows):
            return Limits(limit.max_rows, self._settings.max_bytes_per_trigger)
        if isinstance(limit, ReadMaxBytes):
            return Limits(None, limit.max_bytes)
        return Limits()

    def _offset(self, cursor: Cursor) -> dict[str, Json]:
        assert self._receiving is not None
        return Offset(self._receiving.log, cursor).to_json()
