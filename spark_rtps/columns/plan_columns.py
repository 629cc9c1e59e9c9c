"""All columns of a plan: the decoded ones, and the metadata and the corrupt record if the plan has them."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..transport.receiver.writer_types import AnnouncedTypes
from ..transport.types.arrow import TIME
from ..transport.wire.samples import I64
from .chunks import Chunk
from .malformed import Malformed
from .relabelling import relabelled
from .sample_columns import log_times, metadata_columns, payloads, select, topic_columns
from .topic_plan import (
    EVENT_TIME_COLUMN,
    LOG_TIME_COLUMN,
    METADATA_COLUMN,
    METADATA_SCHEMA,
    TOPIC_COLUMN,
    TOPIC_SCHEMA,
    TopicPlan,
)

#: Bytes of a payload that a corrupt record of type STRING shows.
_SHOWN_BYTES: Final = 64


def plan_batch(
    columns: list[pa.Array],
    rows: I64 | None,
    chunk: Chunk,
    plan: TopicPlan,
    corrupt: list[Malformed],
    announced: AnnouncedTypes,
) -> pa.RecordBatch:
    """The batch of the columns and, if the plan has them, ``topic``, ``_rtps`` and the corrupt record."""
    if len(plan.data) < len(plan.columns):
        added = {}
        if plan.has_metadata:
            added[METADATA_COLUMN] = _metadata(chunk, rows, plan, announced)
        if plan.has_topic:
            topics = topic_columns(chunk, announced)[0]
            added[TOPIC_COLUMN] = topics if rows is None else topics.take(pa.array(rows))
        if plan.has_log_time:
            times = log_times(chunk)
            added[LOG_TIME_COLUMN] = times if rows is None else times.take(pa.array(rows))
        if plan.event_time:
            added[EVENT_TIME_COLUMN] = _event_times(columns, plan)
        if plan.corrupt is not None:
            added[plan.corrupt] = _corrupt_records(chunk, rows, plan, corrupt)
        data = iter(columns)
        columns = [added[name] if name in added else next(data) for name in plan.columns.names]
    if [column.type for column in columns] != plan.columns.types:  # structs have the members' names inside
        columns = relabelled(pa.RecordBatch.from_arrays(columns, plan.columns.names), plan.columns).columns
    return pa.RecordBatch.from_arrays(columns, schema=plan.columns)


def _event_times(columns: list[pa.Array], plan: TopicPlan) -> pa.Array:
    """The times at the plan's path, rounded down to microseconds."""
    name, *names = plan.event_time
    times = columns[plan.data.get_field_index(name)]
    if names:
        times = pc.struct_field(times, names)
    if not pa.types.is_struct(times.type):
        return times
    seconds, fractions = (pc.struct_field(times, each).cast(pa.int64()) for each in ("sec", "nanosec"))
    return pc.add(pc.multiply(seconds, 1_000_000), pc.divide(fractions, 1_000)).cast(TIME)


def _metadata(chunk: Chunk, rows: I64 | None, plan: TopicPlan, announced: AnnouncedTypes) -> pa.StructArray:
    struct = plan.columns.field(METADATA_COLUMN).type
    by_name = dict(zip(METADATA_SCHEMA.names, metadata_columns(chunk), strict=True))
    if plan.many:
        by_name |= zip(TOPIC_SCHEMA.names, topic_columns(chunk, announced), strict=True)
    fields = [struct.field(i) for i in range(struct.num_fields)]
    column = pa.StructArray.from_arrays([by_name[f.name] for f in fields], fields=fields)
    return column if rows is None else column.take(pa.array(rows))


def _corrupt_records(chunk: Chunk, rows: I64 | None, plan: TopicPlan, corrupt: list[Malformed]) -> pa.Array:
    """The payloads of malformed samples, or the reasons why they are malformed; null for others."""
    t = plan.columns.field(plan.corrupt).type
    count = chunk.count if rows is None else len(rows)
    if not corrupt or rows is None:
        return pa.nulls(count, t)
    bad = np.concatenate([some.rows for some in corrupt])
    samples = select(chunk.samples, bad)
    if pa.types.is_string(t):
        reasons = [reason for some in corrupt for reason in some.reasons()]
        records = pa.array([_announced(reason, samples.payload(i)) for i, reason in enumerate(reasons)], t)
    else:
        records = payloads(samples)
    at = np.full(chunk.count, -1, np.int64)
    at[bad] = np.arange(len(bad))
    return records.take(pa.array(at[rows], mask=at[rows] < 0))


def _announced(reason: str, payload: memoryview) -> str:
    shown = payload[:_SHOWN_BYTES].hex()
    return f"{reason}; {len(payload)} bytes: {shown}{'...' if len(payload) > _SHOWN_BYTES else ''}"
