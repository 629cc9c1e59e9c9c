"""The part of a streaming source that runs in tasks."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from ..columns.topic_plan import TopicPlan
from ..monitoring.query_names import note_query, query_of
from ..options import Settings
from ..transport.value_classes import value
from .range_calculator import LogPartition
from .workers import unpickled


@value
class TaskReader:
    """Decodes ranges of logs; ``notes_query``: the query is noted in the log's folder, since the log is the query's
    own."""

    plan: TopicPlan
    fail_on_data_loss: bool
    notes_query: bool

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Decode one range; this runs in a task, perhaps several times."""
        # imported here: the process on the driver decodes nothing, and starts sooner without it
        from .log_reading import read_log

        assert isinstance(partition, LogPartition)
        context = TaskContext.get() if self.notes_query else None
        query = None if context is None else query_of(context.getLocalProperty("spark.job.description"))
        if query is not None:
            note_query(Path(partition.directory), query)
        return read_log(partition, self.plan, fail_on_data_loss=self.fail_on_data_loss, own=self.notes_query)


def reduce(settings: Settings, plan: TopicPlan, *, notes_query: bool) -> tuple[Any, ...]:
    """How to pickle a streaming reader: as its :class:`TaskReader`.

    Spark calls everything but ``read`` in the one process on the driver which made the reader.
    """
    return unpickled, (pickle.dumps(TaskReader(plan, settings.fail_on_data_loss, notes_query)),)
