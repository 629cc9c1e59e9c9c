"""Ranges of the stream log to Arrow record batches of exactly the schema Spark wants; runs in tasks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..transport.errors import (
    FilterError,
    LogLostError,
    TypeDefinitionError,
    UsageError,
)
from ..transport.limits import DECODE_LEAVES_MAX
from ..transport.log.frame import Cursor, Frame
from ..transport.log.log_view import LogView
from ..transport.receiver.writer_types import read_writer_types
from ..transport.types.arrow import arrow_schema, projected
from ..transport.types.cdr.codec import Codec, Decoded
from ..transport.types.cdr.decoding.decoder import in_parts
from ..transport.types.model import Struct
from ..transport.wire.samples import HAS_KEY_HASH, I64, KEY_ONLY
from .chunks import ROWS, Chunk, chunks, halves
from .ipc_batches import read_batches
from .malformed import DROPPED, FAILED, NULLS, Malformed, Tally
from .options import Mode, Payload
from .planning import LogPartition
from .relabelling import relabelled
from .sample_columns import encapsulations, key_hashes, metadata_columns, payloads, select
from .schema import ARROW_BATCH, METADATA_COLUMN, METADATA_SCHEMA, ContentFilter, TopicPlan
from .workers import settle

if TYPE_CHECKING:
    from ..transport.types.filter import Filter

_KEY_HASH_BYTES: Final = 16
#: What an ArrowBatch is read as.
_IPC: Final = pa.schema([("ipc", pa.binary())])
#: Bytes of a payload that a corrupt record of type STRING shows.
_SHOWN_BYTES: Final = 64

Mask = npt.NDArray[np.bool_]
#: Columns, and which sample of the chunk each row is; None: all of them, one after the other.
Rows = tuple[list[pa.Array], I64 | None]


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


def decode_range(view: LogView, start: Cursor, end: Cursor, plan: TopicPlan) -> Iterator[pa.RecordBatch]:
    """The rows of [start, end) of a log, in batches.

    Raises MalformedSampleError with ``mode=failfast``.
    """
    decode = {Payload.CDR: _decode_cdr, Payload.BINARY: _decode_binary, Payload.ARROW: _decode_arrow}[
        plan.payload
    ]
    tally = Tally(plan)
    try:
        for frames, (written, unfit) in _by_type(view, start, end, plan):
            for chunk in chunks(frames, rows=min(ROWS, _rows_at_once(plan))):
                batches = _unfit(chunk, unfit, plan, tally) if unfit else decode(chunk, written, tally)
                for batch in batches:
                    if batch.num_rows:
                        yield batch
    finally:
        tally.close(view.directory)


def _rows_at_once(plan: TopicPlan) -> int:
    """So many that they are not much memory, be they but nulls of a few bytes of the log."""
    return max(1, DECODE_LEAVES_MAX // max(1, sum(map(_leaf_columns, plan.columns.types))))


def _leaf_columns(t: pa.DataType) -> int:
    """Columns at the ends of nested structs."""
    return sum(_leaf_columns(field.type) for field in t) if pa.types.is_struct(t) else 1


def _by_type(
    view: LogView, start: Cursor, end: Cursor, plan: TopicPlan
) -> Iterator[tuple[Iterator[Frame], tuple[TopicPlan, str]]]:
    """The frames, and how they are read: where the plan's type is a guess, by the type that their writers told.

    Or why they cannot be.
    """
    frames = view.frames(start, end)
    told = {} if plan.announced or plan.payload is not Payload.CDR else read_writer_types(view.directory)
    if not told:
        yield frames, (plan, "")
        return
    plans = {writer: _as_told(plan, struct) for writer, struct in told.items() if struct is not None}
    for written, group in groupby(frames, key=lambda frame: plans.get(frame.run.writer, (plan, ""))):
        yield group, written


@lru_cache(maxsize=64)
def _as_told(plan: TopicPlan, struct: Struct) -> tuple[TopicPlan, str]:
    """The plan with a writer's type, and what the plan needs that it does not have: then nothing is guessed."""
    told = replace(plan, struct=struct)
    try:
        codec_for(struct, plan.data)
        if plan.filter is not None:
            _filter_for(struct, plan.filter)
    except (UsageError, FilterError, TypeDefinitionError) as error:
        return told, f"its writer tells another type: {error}"
    return told, ""


# --- cdr ------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def codec_for(struct: Struct, data: pa.Schema | None) -> Codec:
    """The compiled codec; one per type in each worker process."""
    return Codec(struct, arrow_schema=data)


@lru_cache(maxsize=16)
def _filter_for(struct: Struct, given: ContentFilter) -> tuple[Filter, Codec]:
    """The filter, and the codec of the members it looks at: the plan's columns may lack them, or hold other types."""
    from ..transport.types.filter import parse_filter

    compiled = parse_filter(given.expression, given.parameters, struct)
    return compiled, Codec(struct, arrow_schema=projected(arrow_schema(struct), compiled.fields))


def _decode_cdr(chunk: Chunk, plan: TopicPlan, tally: Tally) -> Iterator[pa.RecordBatch]:
    return in_parts(chunk, lambda part: _rows_of(part, plan, tally), halves)


def _rows_of(chunk: Chunk, plan: TopicPlan, tally: Tally) -> pa.RecordBatch:
    """The rows of a chunk. Raises TooManySamplesError, before anything is counted, if they are too many at once."""
    assert plan.struct is not None
    codec = codec_for(plan.struct, plan.data)
    with_data = chunk.has_data()
    rows = None if with_data is None else np.flatnonzero(with_data)
    corrupt: list[Malformed] = []
    filtered: I64 | None = None
    if plan.filter is not None:
        rows, filtered = _passing(chunk, rows, plan, corrupt)
    decoded = codec.decode(chunk.samples if rows is None else select(chunk.samples, rows))
    if decoded.malformed is not None:
        rows = _without_malformed(chunk, rows, decoded, corrupt)
    columns = decoded.batch.columns
    ends = with_data is not None and plan.has_metadata
    if ends or (corrupt and _takes_nulls(plan)):
        parts = [(columns, np.arange(chunk.count) if rows is None else rows)]
        if with_data is not None and ends:
            parts += _ends_of_instances(chunk, with_data, codec, plan)
        if _takes_nulls(plan):
            parts += [(_nulls(plan.data, len(some.rows)), some.rows) for some in corrupt]
        columns, rows = _in_order(parts)
    tally.see(chunk, chunk.count)
    for some in corrupt:
        tally.malformed(chunk, some, _fate(plan))
    if filtered is not None:
        tally.filtered(chunk, filtered)
    columns, rows = _without_nulls(columns, rows, chunk, with_data, plan, tally)
    return _batch(columns, rows, chunk, plan, corrupt)


def _passing(
    chunk: Chunk, rows: I64 | None, plan: TopicPlan, corrupt: list[Malformed]
) -> tuple[I64 | None, I64 | None]:
    """Which of these samples pass the filter, and which do not; None: all there are, and none."""
    assert plan.struct is not None and plan.filter is not None
    compiled, codec = _filter_for(plan.struct, plan.filter)
    decoded = codec.decode(chunk.samples if rows is None else select(chunk.samples, rows))
    if decoded.malformed is not None:
        rows = _without_malformed(chunk, rows, decoded, corrupt)
    passes = compiled.evaluate(decoded.batch)
    if passes.all():
        return rows, None
    rows = np.arange(chunk.count) if rows is None else rows
    return rows[passes], rows[~passes]


def _without_malformed(chunk: Chunk, rows: I64 | None, decoded: Decoded, corrupt: list[Malformed]) -> I64:
    """Which samples are left. The others are in ``corrupt``."""
    bad, codes = decoded.malformed, decoded.codes
    rows = np.arange(chunk.count) if rows is None else rows
    assert bad is not None and codes is not None
    corrupt.append(Malformed(rows[bad], codes[bad] - 1, decoded.words))
    return rows[~bad]


def _takes_nulls(plan: TopicPlan) -> bool:
    """Whether a malformed sample becomes a row: not where a column is declared NOT NULL."""
    return plan.mode is Mode.PERMISSIVE and all(field.nullable for field in plan.data)


def _fate(plan: TopicPlan) -> str:
    if plan.mode is Mode.FAILFAST:
        return FAILED
    return NULLS if _takes_nulls(plan) else DROPPED


def _nulls(schema: pa.Schema, count: int) -> list[pa.Array]:
    return [pa.nulls(count, t) for t in schema.types]


def _in_order(parts: list[tuple[list[pa.Array], I64]]) -> tuple[list[pa.Array], I64]:
    """The rows of all parts, in the order of the samples."""
    rows = np.concatenate([rows for _, rows in parts])
    order = np.argsort(rows, kind="stable")
    index = pa.array(order)
    columns = zip(*(columns for columns, _ in parts), strict=True)
    return [pa.concat_arrays(column).take(index) for column in columns], rows[order]


def _ends_of_instances(
    chunk: Chunk, with_data: Mask, codec: Codec, plan: TopicPlan
) -> list[tuple[list[pa.Array], I64]]:
    """Rows of the samples that only tell the end of an instance: null but for the key, as far as they tell it."""
    flags, others = chunk.flags(), ~with_data
    keyed = np.flatnonzero(others & ((flags & KEY_ONLY) != 0) & (chunk.samples.all_lengths() > 0))
    keys, keyed = _well_formed(codec.decode(select(chunk.samples, keyed), keys_only=True), keyed)
    others[keyed] = False
    hashed = np.flatnonzero(others & ((flags & HAS_KEY_HASH) != 0))
    hashes = chunk.key_hashes() if len(hashed) else None
    known = np.empty((0, _KEY_HASH_BYTES), np.uint8) if hashes is None else hashes[hashed]
    # Fast DDS disposes with a key hash alone, which may hold the key
    of_hashes = codec.decode_key_hashes(known)
    parts = [(keys, keyed)]
    if of_hashes is not None and hashes is not None:
        from_hashes, hashed = _well_formed(of_hashes, hashed)
        others[hashed] = False
        parts.append((from_hashes, hashed))
    unknown = np.flatnonzero(others)
    return [*parts, (_nulls(plan.data, len(unknown)), unknown)]


def _well_formed(decoded: Decoded, rows: I64) -> tuple[list[pa.Array], I64]:
    return decoded.batch.columns, rows if decoded.malformed is None else rows[~decoded.malformed]


def _unfit(chunk: Chunk, reason: str, plan: TopicPlan, tally: Tally) -> Iterator[pa.RecordBatch]:
    """All samples are malformed, for a reason that they share."""
    tally.see(chunk, chunk.count)
    with_data = chunk.has_data()
    rows = np.arange(chunk.count) if with_data is None else np.flatnonzero(with_data)
    some = Malformed.alike(rows, reason)
    tally.malformed(chunk, some, _fate(plan))
    if _takes_nulls(plan):
        yield _batch(_nulls(plan.data, len(rows)), rows, chunk, plan, [some])


# --- columns that are declared NOT NULL ---------------------------------------------------------------


def _without_nulls(
    columns: list[pa.Array],
    rows: I64 | None,
    chunk: Chunk,
    with_data: Mask | None,
    plan: TopicPlan,
    tally: Tally,
) -> Rows:
    """Without the rows that have a null where none is declared to be: Spark would read some number there."""
    promising = _promising(plan.data)
    if not promising:
        return columns, rows
    lacking = np.zeros(len(columns[0]), np.bool_)
    names = []
    for i in promising:
        nulls = _forbidden_nulls(columns[i], plan.data.field(i))
        if nulls is not None:
            lacking |= nulls
            names.append(plan.data.field(i).name)
    if not names:
        return columns, rows
    rows = np.arange(chunk.count) if rows is None else rows
    reason = f"no value for {', '.join(names)}, declared NOT NULL"
    bad, ends = rows[lacking], rows[:0]
    if with_data is not None:
        bad, ends = bad[with_data[bad]], bad[~with_data[bad]]
    tally.malformed(chunk, Malformed.alike(ends, reason), DROPPED)  # an instance's end is nobody's fault
    tally.malformed(chunk, Malformed.alike(bad, reason), FAILED if plan.mode is Mode.FAILFAST else DROPPED)
    keep = pa.array(~lacking)
    return [column.filter(keep) for column in columns], rows[~lacking]


@lru_cache(maxsize=16)
def _promising(schema: pa.Schema) -> list[int]:
    """Which columns have no nulls, or none somewhere inside."""
    return [i for i, field in enumerate(schema) if _is_promising(field)]


def _is_promising(field: pa.Field) -> bool:
    return not field.nullable or any(map(_is_promising, _inner_fields(field.type)))


def _inner_fields(t: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(t):
        return [t.item_field]  # no key is ever null
    if pa.types.is_list(t):
        return [t.value_field]
    return [t.field(i) for i in range(t.num_fields)] if pa.types.is_struct(t) else []


def _forbidden_nulls(array: pa.Array, field: pa.Field) -> Mask | None:
    """Where there is a null that ``field`` does not allow, itself or inside of it."""
    found: Mask | None = None
    if not field.nullable and array.null_count:
        found = array.is_null().to_numpy(zero_copy_only=False)
    for i, inner in enumerate(_inner_fields(field.type)):
        if not _is_promising(inner):
            continue
        if pa.types.is_struct(field.type):
            nulls = _forbidden_nulls(array.field(i), inner)
        else:
            nulls = _forbidden_in_elements(array, inner)
        if nulls is not None and array.null_count:
            nulls &= array.is_valid().to_numpy(zero_copy_only=False)
        if nulls is not None:
            found = nulls if found is None else found | nulls
    return found if found is not None and found.any() else None


def _forbidden_in_elements(array: pa.ListArray, inner: pa.Field) -> Mask | None:
    offsets = array.offsets.to_numpy()
    values = array.items if pa.types.is_map(array.type) else array.values
    nulls = _forbidden_nulls(values.slice(offsets[0], offsets[-1] - offsets[0]), inner)
    if nulls is None:
        return None
    before = np.concatenate([[0], np.cumsum(nulls)])[offsets - offsets[0]]
    found: Mask = np.diff(before) > 0
    return found


# --- binary -----------------------------------------------------------------------------------------


def _decode_binary(chunk: Chunk, plan: TopicPlan, tally: Tally) -> Iterator[pa.RecordBatch]:
    columns = [
        pa.repeat(pa.scalar(plan.topic), chunk.count),
        *metadata_columns(chunk),
        encapsulations(chunk.samples),
        key_hashes(chunk),
        payloads(chunk.samples),
    ]
    yield pa.RecordBatch.from_arrays(columns, schema=plan.columns)


# --- arrow ------------------------------------------------------------------------------------------


def _decode_arrow(chunk: Chunk, plan: TopicPlan, tally: Tally) -> Iterator[pa.RecordBatch]:
    with_data = chunk.has_data()
    rows = np.arange(chunk.count) if with_data is None else np.flatnonzero(with_data)
    decoded = codec_for(ARROW_BATCH, _IPC).decode(
        chunk.samples if with_data is None else select(chunk.samples, rows)
    )
    streams = iter(decoded.batch.column(0))
    at_once = _rows_at_once(plan)
    for i, row in enumerate(rows.tolist()):
        tally.see(chunk, row + 1)
        batches: list[pa.RecordBatch] = []
        if decoded.malformed is not None and decoded.malformed[i]:
            reason = decoded.reason(i)
        else:
            batches, reason = read_batches(next(streams).as_buffer(), plan.data)
        corrupt = []
        if reason:
            corrupt = [Malformed.alike(np.array([row]), reason)]
            tally.malformed(chunk, corrupt[0], _fate(plan))
            if _takes_nulls(plan):
                batches = [pa.RecordBatch.from_arrays(_nulls(plan.data, 1), schema=plan.data)]
        for batch in batches:
            for first in range(0, batch.num_rows, at_once):
                part = batch.slice(first, at_once)
                yield _batch(part.columns, np.full(part.num_rows, row), chunk, plan, corrupt)


# --- what Spark wants -----------------------------------------------------------------------------------


def _batch(
    columns: list[pa.Array], rows: I64 | None, chunk: Chunk, plan: TopicPlan, corrupt: list[Malformed]
) -> pa.RecordBatch:
    """The columns with ``_rtps`` and the corrupt record where the plan wants them."""
    if len(plan.data) < len(plan.columns):
        added = {}
        if plan.has_metadata:
            added[METADATA_COLUMN] = _metadata(chunk, rows, plan)
        if plan.corrupt is not None:
            added[plan.corrupt] = _corrupt_records(chunk, rows, plan, corrupt)
        data = iter(columns)
        columns = [added[name] if name in added else next(data) for name in plan.columns.names]
    if [column.type for column in columns] != plan.columns.types:  # structs have the members' names inside
        columns = relabelled(pa.RecordBatch.from_arrays(columns, plan.columns.names), plan.columns).columns
    return pa.RecordBatch.from_arrays(columns, schema=plan.columns)


def _metadata(chunk: Chunk, rows: I64 | None, plan: TopicPlan) -> pa.StructArray:
    struct = plan.columns.field(METADATA_COLUMN).type
    by_name = dict(zip(METADATA_SCHEMA.names, metadata_columns(chunk), strict=True))
    fields = [struct.field(i) for i in range(struct.num_fields)]
    column = pa.StructArray.from_arrays([by_name[f.name] for f in fields], fields=fields)
    return column if rows is None else column.take(pa.array(rows))


def _corrupt_records(chunk: Chunk, rows: I64 | None, plan: TopicPlan, corrupt: list[Malformed]) -> pa.Array:
    """The payloads of malformed samples, or why they are that; null for others."""
    t = plan.columns.field(plan.corrupt).type
    count = chunk.count if rows is None else len(rows)
    if not corrupt or rows is None:
        return pa.nulls(count, t)
    bad = np.concatenate([some.rows for some in corrupt])
    samples = select(chunk.samples, bad)
    if pa.types.is_string(t):
        reasons = [reason for some in corrupt for reason in some.reasons()]
        records = pa.array([_told(reason, samples.payload(i)) for i, reason in enumerate(reasons)], t)
    else:
        records = payloads(samples)
    at = np.full(chunk.count, -1, np.int64)
    at[bad] = np.arange(len(bad))
    return records.take(pa.array(at[rows], mask=at[rows] < 0))


def _told(reason: str, payload: memoryview) -> str:
    shown = payload[:_SHOWN_BYTES].hex()
    return f"{reason}; {len(payload)} bytes: {shown}{'...' if len(payload) > _SHOWN_BYTES else ''}"
