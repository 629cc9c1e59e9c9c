"""The batch source: one task that listens for a while and returns what came."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ..transport.log.frame import Cursor
from ..transport.log.log_view import LogView
from .decoding import decode_range
from .options import Settings
from .planning import Limits, plan_end
from .receiving import Receiving
from .reports import record_errors
from .schema import TopicPlan
from .workers import settle

_STEP_SECONDS: Final = 0.01


@dataclass(frozen=True)
class TopicPartition(InputPartition):
    """All of a topic: its receiver runs beside the task, whose log goes with it."""

    topic: str


class RtpsBatchReader(DataSourceReader):
    """``spark.read``: each action listens anew; cache the DataFrame to use what came more than once."""

    def __init__(self, settings: Settings, plan: TopicPlan) -> None:
        self._settings = settings
        self._plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        return [TopicPartition(self._plan.topic)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows as they come, until ``read.max_rows`` or ``read.timeout``."""
        settle()
        record_errors()  # what the log's directory tells goes with it
        settings = self._settings
        receiving = Receiving.on_new_log(settings, self._plan, ephemeral=True)
        try:
            until = time.monotonic_ns() + settings.read_timeout
            at, left = Cursor(0), settings.read_max_rows
            timed_out = False
            while not timed_out and (left is None or left > 0):
                time.sleep(_STEP_SECONDS)
                timed_out = time.monotonic_ns() >= until
                end = plan_end(
                    receiving.directory,
                    at,
                    receiving.tail(),
                    Limits(max_rows=left),
                    log_max_bytes=settings.log_max_bytes,
                )
                if end > at:
                    view = LogView(receiving.directory)
                    if left is not None:
                        left -= sum(frame.run.count for frame in view.frames(at, end))
                    yield from decode_range(view, at, end, self._plan)
                    receiving.commit(end)
                    at = end
        finally:
            receiving.stop()
            shutil.rmtree(receiving.directory, ignore_errors=True)
