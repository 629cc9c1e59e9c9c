"""The part of the source that runs in tasks: the rows of one partition, from the stream log on this host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from ..columns.decoding import decode_range
from ..columns.topic_plan import TopicPlan
from ..transport.errors import LogLostError
from ..transport.log.log_view import LogView
from .range_calculator import LogPartition
from .workers import settle


def read_log(partition: LogPartition, plan: TopicPlan) -> Iterator[pa.RecordBatch]:
    """The rows of one partition. Reading it again gives the same rows."""
    settle()
    directory = Path(partition.directory)
    if not directory.exists():
        here = os.uname().nodename
        where = (
            "it was removed"
            if here == partition.host
            else f"it lies on host {partition.host}, this task ran on {here}"
        )
        raise LogLostError(f"there is no stream log {directory}: {where}")
    yield from decode_range(LogView(directory), partition.start, partition.end, plan)
