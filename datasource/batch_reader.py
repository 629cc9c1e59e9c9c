"""The batch source: one task that listens for a while and returns what it received."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ..columns.topic_plan import TopicPlan
from ..monitoring.reports import record_errors
from ..options import Settings
from ..options.explanations import explained
from ..transport.errors import LogLostError, NoWriterError
from ..transport.log.damage import Damage
from ..transport.log.frame import Cursor
from ..transport.log.log_view import LogView
from ..transport.value_classes import slotted
from .log_reading import read_range
from .range_calculator import Limits, plan_end
from .receiver_session import START, ReceiverSession
from .workers import settle

_log = logging.getLogger("spark_rtps.datasource")

_STEP_SECONDS: Final = 0.01


@dataclass(frozen=True)
class TopicPartition(InputPartition):
    """The whole topic: the receiver runs next to the task, and its log is removed with the task."""

    topic: str


class RtpsBatchReader(DataSourceReader):
    """``spark.read``: each action listens anew; cache the DataFrame to use its rows more than once.

    It takes no filters of Spark (``pushFilters``): PySpark 4.3 keeps what was pushed last for all uses of a DataFrame,
    so ``df.where(a).union(df.where(b))`` would silently have the rows of ``b`` alone.
    """

    def __init__(self, settings: Settings, plan: TopicPlan) -> None:
        self._settings = settings
        self._plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        return [TopicPartition(self._plan.topic)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows as they arrive, until ``read.max_rows`` or ``read.timeout`` is reached.

        Raises NoWriterError if none came because the topic's writers do not match, or its name is spelled differently.
        """
        settle()
        record_errors()  # the error log of the receiver is removed with its log
        listening = _Listening(self._settings.read_timeout, left=self._settings.read_max_rows)
        with explained():
            while not listening.is_over:
                session = ReceiverSession.on_new_log(self._settings, self._plan, ephemeral=True)
                listening.begin()
                try:
                    yield from self._rows(session, listening)
                except LogLostError as error:
                    if self._settings.fail_on_data_loss:
                        raise
                    _log.warning("%s; continuing with a new log because failOnDataLoss=false", error)
                finally:
                    session.stop()
                    shutil.rmtree(session.directory, ignore_errors=True)

    def _rows(self, session: ReceiverSession, listening: _Listening) -> Iterator[pa.RecordBatch]:
        at, directory = START, session.directory
        fail_on_data_loss = self._settings.fail_on_data_loss
        last: Cursor | None = (
            None  # the end of the log when the time is over: the rest is read up to there, in several turns
        )
        while not listening.has_all and (last is None or at < last):
            if last is None:
                time.sleep(_STEP_SECONDS)
                listening.check_time()
            tail = session.tail() if last is None else last
            if listening.timed_out:
                last = tail
            limits = Limits(max_rows=listening.left)
            end = plan_end(directory, at, tail, limits, log_max_bytes=self._settings.log_max_bytes)
            if end <= at:
                continue
            if listening.left is not None:
                frames = LogView(directory).frames(at, end, None if fail_on_data_loss else _ignored)
                listening.left -= sum(frame.run.count for frame in frames)
            yield from read_range(
                directory, at, end, self._plan, fail_on_data_loss=fail_on_data_loss, own=True
            )
            session.commit_offset(end)
            at = end
        if at == START and (why := session.why_unmatched()) is not None:
            raise NoWriterError(why)


@slotted
class _Listening:
    """How long a batch read listens (ns), from the start of its receiver, and for how many samples; None: any
    number."""

    timeout: int
    left: int | None
    timed_out: bool = False
    until: int | None = None

    def begin(self) -> None:
        """A receiver runs; the time counts from the first one on."""
        if self.until is None:
            self.until = time.monotonic_ns() + self.timeout

    def check_time(self) -> None:
        """Update whether the time is over."""
        self.timed_out = self.until is not None and time.monotonic_ns() >= self.until

    @property
    def has_all(self) -> bool:
        """Whether as many samples have arrived as were requested."""
        return self.left is not None and self.left <= 0

    @property
    def is_over(self) -> bool:
        return self.timed_out or self.has_all


def _ignored(_damage: Damage) -> None:
    """The readers of the range report the damage."""
