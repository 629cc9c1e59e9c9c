"""The batch source: one task that listens for a while and returns what it received."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ..columns.decoding import decode_range
from ..columns.topic_plan import TopicPlan
from ..monitoring.reports import record_errors
from ..options import Settings
from ..options.explanations import explained
from ..transport.log.frame import Cursor
from ..transport.log.log_view import LogView
from .range_calculator import Limits, plan_end
from .receiver_session import ReceiverSession
from .workers import settle

_STEP_SECONDS: Final = 0.01


@dataclass(frozen=True)
class TopicPartition(InputPartition):
    """All of a topic: the receiver runs beside the task, and its log is removed with the task."""

    topic: str


class RtpsBatchReader(DataSourceReader):
    """``spark.read``: each action listens anew; cache the DataFrame to use its rows more than once."""

    def __init__(self, settings: Settings, plan: TopicPlan) -> None:
        self._settings = settings
        self._plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        return [TopicPartition(self._plan.topic)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows as they arrive, until ``read.max_rows`` or ``read.timeout`` is reached."""
        settle()
        record_errors()  # the error log of the receiver is removed with its log
        settings = self._settings
        with explained():
            session = ReceiverSession.on_new_log(settings, self._plan, ephemeral=True)
        try:
            until = time.monotonic_ns() + settings.read_timeout
            at, left = Cursor(0), settings.read_max_rows
            timed_out = False
            while not timed_out and (left is None or left > 0):
                time.sleep(_STEP_SECONDS)
                timed_out = time.monotonic_ns() >= until
                end = plan_end(
                    session.directory,
                    at,
                    session.tail(),
                    Limits(max_rows=left),
                    log_max_bytes=settings.log_max_bytes,
                )
                if end > at:
                    view = LogView(session.directory)
                    if left is not None:
                        left -= sum(frame.run.count for frame in view.frames(at, end))
                    yield from decode_range(view, at, end, self._plan)
                    session.commit(end)
                    at = end
        finally:
            session.stop()
            shutil.rmtree(session.directory, ignore_errors=True)
