"""``statuses=true``: the communication statuses of sources and sinks as rows, one for each change.

An offset is a snapshot of all statuses (:mod:`..monitoring.status_changes`), and a micro-batch is the difference of two
snapshots: a query that restarts from its checkpoint has each change once, without a log of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ..monitoring.status_changes import (
    Json,
    changes_between,
    is_alike,
    nothing_yet,
    take_snapshot,
)
from ..monitoring.stream_counters import read_streams
from ..options import Settings, default_log_dir
from ..options.explanations import explained
from ..transport.errors import OptionError, UsageError
from ..transport.types.arrow import TIME
from .schema import to_arrow, to_spark

_COUNTS: Final = pa.map_(pa.string(), pa.int64())
#: The columns, which are the fields of `ObservedChange`.
STATUS_SCHEMA: Final = pa.schema(
    [
        ("time", TIME),
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("domain", pa.int32()),
        ("participant", pa.string()),
        ("pid", pa.int32()),
        ("status", pa.string()),
        ("fields", _COUNTS),
        ("changes", _COUNTS),
        ("remote", pa.string()),
    ]
)
#: Spark asks a hundred times a second whether there is more; the counters are copied some ten times a second.
_LOOK_NS: Final = 250_000_000
_VERSION: Final = 1


@dataclass(frozen=True)
class StatusPartition(InputPartition):
    """The changes between two snapshots, as JSON."""

    start: str
    end: str


def status_schema() -> StructType:
    """The columns of all sources of statuses."""
    return to_spark(STATUS_SCHEMA)


def check_schema(schema: StructType) -> None:
    """Raise OptionError if a query declares other columns."""
    own = status_schema()
    if [(field.name, field.dataType) for field in schema] != [(field.name, field.dataType) for field in own]:
        columns = ", ".join(own.names)
        raise OptionError("statuses", "true", f"has columns of its own, {columns}; remove .schema(...)")


class _StatusReader:
    """The common part of both readers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def _snapshot(self) -> dict[str, Json]:
        roots = [default_log_dir(), self._settings.log_dir]
        streams = read_streams([root.resolve() for root in roots], now=time.monotonic_ns())
        return take_snapshot(streams, topic=self._settings.topic, wall=time.time_ns())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes as one record batch; this runs in a task."""
        assert isinstance(partition, StatusPartition)
        rows: list[dict[str, Any]] = []
        for change in changes_between(json.loads(partition.start), json.loads(partition.end)):
            row = asdict(change)
            row["time"] //= 1_000
            rows.append({**row, "fields": [*row["fields"].items()], "changes": [*row["changes"].items()]})
        schema = to_arrow(status_schema())
        yield pa.RecordBatch.from_pylist(rows, schema)


class StatusBatchReader(_StatusReader, DataSourceReader):
    """``spark.read``: the statuses when Spark plans the DataFrame, which it does once."""

    def partitions(self) -> Sequence[InputPartition]:
        return [StatusPartition(json.dumps(nothing_yet()), json.dumps(self._snapshot()))]


class StatusStreamReader(_StatusReader, DataSourceStreamReader):
    """``spark.readStream``: first the present statuses, then each change."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._latest: dict[str, Json] | None = None
        self._look_at = 0

    def initialOffset(self) -> dict[str, Json]:  # noqa: N802
        return _offset(nothing_yet())

    def latestOffset(self) -> dict[str, Json]:  # type: ignore[override]  # noqa: N802
        """The statuses now; the previous offset while none has changed."""
        now = time.monotonic_ns()
        if self._latest is None or now >= self._look_at:
            self._look_at = now + _LOOK_NS
            found = self._snapshot()
            if self._latest is None or not is_alike(self._latest, found):
                self._latest = found
        return _offset(self._latest)

    @explained()
    def partitions(self, start: dict[str, Json], end: dict[str, Json]) -> Sequence[InputPartition]:
        """One task for all changes, or none. After a restart Spark calls this first."""
        first, last = _snapshot_of(start), _snapshot_of(end)
        if self._latest is None:
            self._latest = last  # nothing has changed since the checkpoint unless a snapshot shows it
        if next(changes_between(first, last), None) is None:
            return []
        return [StatusPartition(json.dumps(first), json.dumps(last))]


def _offset(snapshot: dict[str, Json]) -> dict[str, Json]:
    return {"v": _VERSION, "statuses": snapshot}


def _snapshot_of(offset: object) -> dict[str, Json]:
    """Raises UsageError for an offset of another source."""
    match offset:
        case {"v": 1, "statuses": {"at": int(), "endpoints": dict()} as snapshot}:
            return cast("dict[str, Json]", snapshot)
    raise UsageError(f"the checkpoint holds no offset of statuses: {offset!r:.200}")
