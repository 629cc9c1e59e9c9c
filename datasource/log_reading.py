"""The part of the source that runs in tasks: the rows of one partition, from the stream log on this host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from ..columns.decoding import decode_range
from ..columns.topic_plan import TopicPlan
from ..options.explanations import explained
from ..transport.errors import LogAccessError, LogLostError
from ..transport.log.log_view import LogView
from .range_calculator import LogPartition
from .workers import settle


def read_log(partition: LogPartition, plan: TopicPlan) -> Iterator[pa.RecordBatch]:
    """The rows of one partition. Reading it again gives the same rows."""
    settle()
    directory = Path(partition.directory)
    with explained():
        _check_access(directory, partition.host)
    yield from decode_range(LogView(directory), partition.start, partition.end, plan)


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
