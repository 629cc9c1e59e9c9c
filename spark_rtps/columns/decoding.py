"""Received samples to Arrow record batches of exactly the columns that the plan wants.

The samples come as frames, from a stream log or from the queue of a subscription.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..options import Mode, Payload
from ..transport.errors import (
    FilterError,
    LogDamagedError,
    TypeDefinitionError,
    UsageError,
)
from ..transport.limits import DECODE_LEAVES_MAX
from ..transport.log.damage import Damage
from ..transport.log.frame import Cursor, Frame
from ..transport.log.held_frames import Trimmed, held_frames
from ..transport.log.log_view import LogView
from ..transport.log_once import LogOnce
from ..transport.qos import TypeConsistency
from ..transport.receiver.writer_types import HAS_WRITER_TYPES, AnnouncedTypes
from ..transport.structure import KEY_HASH_BYTES, Guid
from ..transport.types.arrow import arrow_schema, projected
from ..transport.types.cdr.codec import Codec, Decoded
from ..transport.types.cdr.decoding.decoder import in_parts
from ..transport.types.model import Struct
from ..transport.types.xtypes.assignability import incompatibilities_of_types
from ..transport.wire.samples import HAS_KEY_HASH, I64, KEY_ONLY
from .chunks import ROWS, Chunk, chunks, halves
from .ipc_batches import read_batches
from .malformed import DROPPED, FAILED, NULLS, Malformed, Tally
from .nulls import columns_without_nulls, forbidden_nulls
from .plan_columns import plan_batch
from .sample_columns import (
    encapsulations,
    key_hashes,
    metadata_columns,
    payloads,
    select,
    topic_columns,
)
from .sidecar_files import DirectorySidecar, Sidecar
from .topic_plan import ARROW_BATCH, ContentFilter, TopicPlan

if TYPE_CHECKING:
    from ..transport.types.filter import Filter

_log = logging.getLogger("spark_rtps.datasource")

#: The warnings about skipped topics that this process has logged.
_LOGGED: Final = LogOnce(64)
NO_TYPES: Final = AnnouncedTypes({})
#: The columns that are decoded of an ArrowBatch.
_IPC: Final = pa.schema([("ipc", pa.binary())])

Mask = npt.NDArray[np.bool_]
#: Columns, and for each row the index of its sample in the chunk; None: every sample is one row.
Rows = tuple[list[pa.Array], I64 | None]


def decode_range(
    view: LogView,
    start: Cursor,
    end: Cursor,
    plan: TopicPlan,
    on_damage: Callable[[Damage], None] | None = None,
    sidecar: Sidecar | None = None,
    on_trimmed: Callable[[Trimmed], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of [start, end) of a log, in batches. ``sidecar`` has the sidecar files; None: the view's directory.

    Raises MalformedSampleError with ``mode=failfast``. Raises LogDamagedError for damaged frames unless there is
    ``on_damage``, and LogLostError for trimmed ones unless there is also ``on_trimmed``, which requires a view that
    returns copies.
    """
    sidecar = sidecar or DirectorySidecar(view.directory)
    announced = NO_TYPES
    if on_damage is not None and on_trimmed is not None:
        frames = held_frames(view, start, end, on_damage, on_trimmed)
    else:
        frames = view.frames(start, end, on_damage)
    if needs_writer_types(plan) or plan.many:
        announced = sidecar.writer_types()
        if announced.damage or (view.metadata.get(HAS_WRITER_TYPES) and not announced.is_full):
            frames = _of_known_writers(frames, announced, view.directory, on_damage)
    if plan.many and plan.named:
        frames = _of_type(frames, plan, announced)
    tally = Tally(plan)
    try:
        yield from decode_frames(frames, plan, tally, announced)
    finally:
        found = tally.close(view.directory)
        if found is not None:
            sidecar.report(found)


def _of_known_writers(
    frames: Iterable[Frame],
    announced: AnnouncedTypes,
    directory: Path,
    on_damage: Callable[[Damage], None] | None,
) -> Iterator[Frame]:
    """The frames of writers whose types the log has. The plan's type is a guess, which could misread the others."""
    for frame in frames:
        run = frame.run
        if run.writer in announced.by_writer:
            yield frame
            continue
        stop = frame.position + frame.length
        if on_damage is None:
            why = announced.damage or f"the log in {directory} has lost the types of some writers"
            raise LogDamagedError(
                f"{why}: {run.count} samples of writer {run.writer} from sequence number {run.first_sn} on, at "
                f"position {frame.position}, cannot be decoded",
                path=directory,
                position=frame.position,
                stop=stop,
                rows=run.count,
                writer=run.writer,
                first_sn=run.first_sn,
            )
        on_damage(Damage(directory, frame.position, stop, run.count, run.writer, run.first_sn))


def _of_type(frames: Iterable[Frame], plan: TopicPlan, announced: AnnouncedTypes) -> Iterator[Frame]:
    """The frames of topics that have the plan's type. A log of several topics may contain other topics."""
    for frame in frames:
        named = announced.topic_of(frame.run.writer, frame.position)
        if named.type_name in (None, plan.type_name):
            yield frame
            continue
        types = f"its type is {named.type_name!r}, not {plan.type_name!r} as the query reads"
        what = f"topic {named.topic!r} is skipped: {types}"
        if _LOGGED.is_new(what):
            _log.warning("%s", what)


def decode_frames(
    frames: Iterable[Frame],
    plan: TopicPlan,
    tally: Tally,
    announced: AnnouncedTypes = NO_TYPES,
) -> Iterator[pa.RecordBatch]:
    """The rows of frames, in batches; ``tally`` counts malformed and filtered samples.

    ``announced`` has the types of writers if the plan's type is a guess (:func:`needs_writer_types`), and the topics
    of writers if there are several topics.

    Raises MalformedSampleError with ``mode=failfast``.
    """
    by_writer = announced.by_writer if needs_writer_types(plan) else {}
    for group, written in _by_type(frames, plan, by_writer):
        for chunk in chunks(group, rows=min(ROWS, rows_at_once(plan))):
            yield from decode_chunk(chunk, plan, written, tally, announced)


def decode_chunk(
    chunk: Chunk,
    plan: TopicPlan,
    written: tuple[TopicPlan, str],
    tally: Tally,
    announced: AnnouncedTypes = NO_TYPES,
) -> Iterator[pa.RecordBatch]:
    """The rows of a chunk, in batches; ``written`` is the result of :func:`as_announced` for its writers.

    Raises MalformedSampleError with ``mode=failfast``.
    """
    by, unfit = written
    decode = {Payload.CDR: _decode_cdr, Payload.BINARY: _decode_binary, Payload.ARROW: _decode_arrow}[
        plan.payload
    ]
    for batch in (
        _unfit(chunk, unfit, plan, tally, announced) if unfit else decode(chunk, by, tally, announced)
    ):
        if batch.num_rows:
            yield batch


def needs_writer_types(plan: TopicPlan) -> bool:
    """Whether the type that a sample's writer announced matters, because the plan's is a guess or one of several."""
    return plan.payload is Payload.CDR and (plan.inferred or not plan.announced)


@lru_cache(maxsize=16)
def rows_at_once(plan: TopicPlan) -> int:
    """The number of rows that are decoded at once. It is lower for more columns, so that it bounds the memory."""
    return max(1, DECODE_LEAVES_MAX // max(1, sum(map(_leaf_columns, plan.columns.types))))


def _leaf_columns(t: pa.DataType) -> int:
    """How many columns there are when structs are flattened."""
    return sum(_leaf_columns(field.type) for field in t) if pa.types.is_struct(t) else 1


def _by_type(
    frames: Iterable[Frame], plan: TopicPlan, announced: Mapping[Guid, Struct | None]
) -> Iterator[tuple[Iterable[Frame], tuple[TopicPlan, str]]]:
    """Groups of frames, each with the result of :func:`as_announced` for the type that its writers announced."""
    if not announced:
        yield frames, (plan, "")
        return

    def written(frame: Frame) -> tuple[TopicPlan, str]:
        struct = announced.get(frame.run.writer)
        return (plan, "") if struct is None else as_announced(plan, struct)

    for each, group in groupby(frames, key=written):
        yield group, each


@lru_cache(maxsize=64)
def as_announced(plan: TopicPlan, struct: Struct) -> tuple[TopicPlan, str]:
    """The plan for the samples of a writer with this type, and why they are malformed; "" if they are not.

    If the plan's type stands for several types, samples are read as the plan's type, with nulls for members that the
    writer's type lacks. They are read by the writer's type if XCDR1 would otherwise be read at wrong offsets.
    """
    writer_plan = replace(plan, struct=struct)
    if plan.inferred and plan.struct is not None:
        if not incompatibilities_of_types(struct, plan.struct, TypeConsistency(), in_xcdr1=True):
            return plan, ""
        is_assignable = not incompatibilities_of_types(struct, plan.struct, TypeConsistency())
        writer_plan = replace(writer_plan, lacking=is_assignable)
    try:
        codec_for(struct, plan.data, writer_plan.lacking)
        if plan.filter is not None:
            _filter_for(struct, plan.filter)
    except (UsageError, FilterError, TypeDefinitionError) as error:
        return writer_plan, f"the type that its writer announced does not fit: {error}"
    return writer_plan, ""


# --- cdr ------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def codec_for(struct: Struct, data: pa.Schema | None, lacking: bool = False) -> Codec:
    """The compiled codec; each worker process has one per type."""
    return Codec(struct, arrow_schema=data, lacking=lacking)


@lru_cache(maxsize=16)
def _codec_of(plan: TopicPlan) -> Codec:
    """The codec of the plan's columns. A cache finds a plan faster than a type and a schema."""
    assert plan.struct is not None
    return codec_for(plan.struct, plan.data, plan.lacking)


@lru_cache(maxsize=16)
def _filter_for(struct: Struct, given: ContentFilter) -> tuple[Filter, Codec]:
    """The filter, and the codec of the members it reads, which the plan may lack or have as other column types."""
    from ..transport.types.filter import parse_filter

    compiled = parse_filter(given.expression, given.parameters, struct)
    return compiled, Codec(struct, arrow_schema=projected(arrow_schema(struct), compiled.fields))


def _decode_cdr(
    chunk: Chunk, plan: TopicPlan, tally: Tally, announced: AnnouncedTypes
) -> Iterator[pa.RecordBatch]:
    return in_parts(chunk, lambda part: _rows_of(part, plan, tally, announced), halves)


def _rows_of(chunk: Chunk, plan: TopicPlan, tally: Tally, announced: AnnouncedTypes) -> pa.RecordBatch:
    """The rows of a chunk. Raises TooManySamplesError, before anything is counted, if they are too many at once."""
    codec = _codec_of(plan)
    with_data = chunk.has_data()
    rows = None if with_data is None else np.flatnonzero(with_data)
    corrupt: list[Malformed] = []
    filtered: I64 | None = None
    if plan.filter is not None:
        rows, filtered = _passing(chunk, rows, plan, corrupt)
    decoded = codec.decode_samples(chunk.samples if rows is None else select(chunk.samples, rows))
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
    return plan_batch(columns, rows, chunk, plan, corrupt, announced)


def _passing(
    chunk: Chunk, rows: I64 | None, plan: TopicPlan, corrupt: list[Malformed]
) -> tuple[I64 | None, I64 | None]:
    """The samples that pass the filter (None: all), and those that do not (None: none)."""
    assert plan.struct is not None and plan.filter is not None
    compiled, codec = _filter_for(plan.struct, plan.filter)
    decoded = codec.decode_samples(chunk.samples if rows is None else select(chunk.samples, rows))
    if decoded.malformed is not None:
        rows = _without_malformed(chunk, rows, decoded, corrupt)
    passes = compiled.evaluate(decoded.batch)
    if passes.all():
        return rows, None
    rows = np.arange(chunk.count) if rows is None else rows
    return rows[passes], rows[~passes]


def _without_malformed(chunk: Chunk, rows: I64 | None, decoded: Decoded, corrupt: list[Malformed]) -> I64:
    """The samples that are well-formed; the others are added to ``corrupt``."""
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
    """Rows of samples that only end an instance: they are null except for the key, if the sample contains it."""
    flags, others = chunk.flags(), ~with_data
    keyed = np.flatnonzero(others & ((flags & KEY_ONLY) != 0) & (chunk.samples.all_lengths() > 0))
    keys, keyed = _well_formed(codec.decode_samples(select(chunk.samples, keyed), keys_only=True), keyed)
    others[keyed] = False
    hashed = np.flatnonzero(others & ((flags & HAS_KEY_HASH) != 0))
    hashes = chunk.key_hashes() if len(hashed) else None
    known = np.empty((0, KEY_HASH_BYTES), np.uint8) if hashes is None else hashes[hashed]
    # Fast DDS disposes with a key hash alone, which may contain the key
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


def _unfit(
    chunk: Chunk, reason: str, plan: TopicPlan, tally: Tally, announced: AnnouncedTypes
) -> Iterator[pa.RecordBatch]:
    """All samples are malformed, for a reason that they share."""
    tally.see(chunk, chunk.count)
    with_data = chunk.has_data()
    rows = np.arange(chunk.count) if with_data is None else np.flatnonzero(with_data)
    some = Malformed.alike(rows, reason)
    tally.malformed(chunk, some, _fate(plan))
    if _takes_nulls(plan):
        yield plan_batch(_nulls(plan.data, len(rows)), rows, chunk, plan, [some], announced)


def _without_nulls(
    columns: list[pa.Array],
    rows: I64 | None,
    chunk: Chunk,
    with_data: Mask | None,
    plan: TopicPlan,
    tally: Tally,
) -> Rows:
    """The columns without the rows that have a null where the schema declares NOT NULL."""
    promising = columns_without_nulls(plan.data)
    if not promising:
        return columns, rows
    lacking = np.zeros(len(columns[0]), np.bool_)
    names = []
    for i in promising:
        nulls = forbidden_nulls(columns[i], plan.data.field(i))
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
    tally.malformed(chunk, Malformed.alike(ends, reason), DROPPED)  # the end of an instance is not an error
    tally.malformed(chunk, Malformed.alike(bad, reason), FAILED if plan.mode is Mode.FAILFAST else DROPPED)
    keep = pa.array(~lacking)
    return [column.filter(keep) for column in columns], rows[~lacking]


# --- binary -----------------------------------------------------------------------------------------


def _decode_binary(
    chunk: Chunk, plan: TopicPlan, tally: Tally, announced: AnnouncedTypes
) -> Iterator[pa.RecordBatch]:
    columns = [
        *(topic_columns(chunk, announced) if plan.many else [pa.repeat(pa.scalar(plan.topic), chunk.count)]),
        *metadata_columns(chunk),
        encapsulations(chunk.samples),
        key_hashes(chunk),
        payloads(chunk.samples),
    ]
    yield pa.RecordBatch.from_arrays(columns, schema=plan.columns)


# --- arrow ------------------------------------------------------------------------------------------


def _decode_arrow(
    chunk: Chunk, plan: TopicPlan, tally: Tally, announced: AnnouncedTypes
) -> Iterator[pa.RecordBatch]:
    with_data = chunk.has_data()
    rows = np.arange(chunk.count) if with_data is None else np.flatnonzero(with_data)
    decoded = codec_for(ARROW_BATCH, _IPC).decode_samples(
        chunk.samples if with_data is None else select(chunk.samples, rows)
    )
    streams = iter(decoded.batch.column(0))
    at_once = rows_at_once(plan)
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
                yield plan_batch(part.columns, np.full(part.num_rows, row), chunk, plan, corrupt, announced)
