"""Ranges of the stream log to Arrow record batches of exactly the schema Spark wants; runs in tasks."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..transport.errors import LogLostError, UsageError
from ..transport.log.frame import Cursor
from ..transport.log.log_view import LogView
from ..transport.structure import Guid
from ..transport.types.cdr.codec import Codec
from ..transport.types.cdr.lanes import gather_bytes
from ..transport.types.model import Struct
from ..transport.wire.samples import (
    DISPOSED,
    HAS_KEY_HASH,
    I64,
    KEY_ONLY,
    NO_TIMESTAMP,
    UNREGISTERED,
    Samples,
)
from .chunks import Chunk, chunks
from .options import Payload
from .planning import LogPartition
from .schema import ARROW_BATCH, METADATA_COLUMN, TopicPlan
from .workers import settle

_log = logging.getLogger("spark_rtps.datasource")

_ENCAPSULATION_BYTES: Final = 4
_KEY_HASH_BYTES: Final = 16
#: Characters of a reason that quotes what a peer sent.
_REASON_MAX: Final = 500
#: Names of encapsulation identifiers (XTypes 1.3 §7.6.3.1.2, RTPS 2.5 §10.2.1.2).
ENCAPSULATIONS: Final = {
    0x0000: "CDR_BE",
    0x0001: "CDR_LE",
    0x0002: "PL_CDR_BE",
    0x0003: "PL_CDR_LE",
    0x0006: "CDR2_BE",
    0x0007: "CDR2_LE",
    0x0008: "D_CDR2_BE",
    0x0009: "D_CDR2_LE",
    0x000A: "PL_CDR2_BE",
    0x000B: "PL_CDR2_LE",
}
ALIVE: Final = "ALIVE"
NOT_ALIVE_DISPOSED: Final = "NOT_ALIVE_DISPOSED"
NOT_ALIVE_NO_WRITERS: Final = "NOT_ALIVE_NO_WRITERS"

Mask = npt.NDArray[np.bool_]


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
    """The rows of [start, end) of a log, in batches."""
    decode = {Payload.CDR: _decode_cdr, Payload.BINARY: _decode_binary, Payload.ARROW: _decode_arrow}[
        plan.payload
    ]
    malformed = Malformed()
    for chunk in chunks(view.frames(start, end)):
        for batch in decode(chunk, plan, malformed):
            if batch.num_rows:
                yield batch
    malformed.tell(plan.topic)


class Malformed:
    """Samples that do not decode, by writer; of each writer the first reason that is known."""

    def __init__(self) -> None:
        self._counts: Counter[Guid] = Counter()
        self._reasons: dict[Guid, str] = {}

    def add(self, chunk: Chunk, bad: Mask, reason: str | None = None) -> None:
        frames = chunk.frame_index()[bad]
        for i, count in zip(*np.unique(frames, return_counts=True), strict=True):
            writer = chunk.frames[int(i)].run.writer
            self._counts[writer] += int(count)
            if reason is not None:
                self._reasons.setdefault(writer, reason)

    def add_one(self, chunk: Chunk, row: int, reason: str) -> None:
        writer = chunk.frames[int(chunk.frame_index()[row])].run.writer
        self._counts[writer] += 1
        self._reasons.setdefault(writer, reason[:_REASON_MAX])

    def tell(self, topic: str) -> None:
        for writer, count in self._counts.items():
            reason = self._reasons.get(
                writer,
                "they are not what the type says; do its members match the writer's, one by one in order?",
            )
            _log.warning(
                "topic %r: %d malformed samples of writer %s were dropped: %s", topic, count, writer, reason
            )


# --- cdr ------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def codec_for(struct: Struct, data: pa.Schema | None) -> Codec:
    """The compiled codec; one per type in each worker process."""
    return Codec(struct, arrow_schema=data)


def _decode_cdr(chunk: Chunk, plan: TopicPlan, malformed: Malformed) -> Iterator[pa.RecordBatch]:
    assert plan.struct is not None
    codec = codec_for(plan.struct, plan.data)
    with_data = chunk.has_data()
    if with_data is None:
        decoded = codec.decode(chunk.samples)
        rows: I64 | None = None
        batch = decoded.batch
        if decoded.malformed is not None:
            malformed.add(chunk, decoded.malformed)
            rows = np.flatnonzero(~decoded.malformed)
    else:
        batch, rows = _decode_mixed(chunk, with_data, codec, plan, malformed)
    batch, rows = _without_nulls(batch, rows, chunk, plan, malformed)
    columns = batch.columns
    if plan.has_metadata:
        columns = _with_metadata(columns, chunk, rows, plan)
    yield pa.RecordBatch.from_arrays(columns, schema=plan.columns)


def _without_nulls(
    batch: pa.RecordBatch, rows: I64 | None, chunk: Chunk, plan: TopicPlan, malformed: Malformed
) -> tuple[pa.RecordBatch, I64 | None]:
    """Without the rows that have a null in a column declared NOT NULL: Spark would read some number there."""
    lacking = np.zeros(batch.num_rows, np.bool_)
    names = []
    for field, column in zip(plan.data, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            lacking |= column.is_null().to_numpy(zero_copy_only=False)
            names.append(field.name)
    if not names:
        return batch, rows
    if rows is None:
        rows = np.arange(chunk.count)
    bad = np.zeros(chunk.count, np.bool_)
    bad[rows[lacking]] = True
    malformed.add(chunk, bad, f"no value for {', '.join(names)}, declared NOT NULL"[:_REASON_MAX])
    return batch.take(pa.array(np.flatnonzero(~lacking))), rows[~lacking]


def _decode_mixed(
    chunk: Chunk, with_data: Mask, codec: Codec, plan: TopicPlan, malformed: Malformed
) -> tuple[pa.RecordBatch, I64]:
    """Samples of which some only tell the end of an instance: (batch, which sample each row is)."""
    alive = np.flatnonzero(with_data)
    decoded = codec.decode(select(chunk.samples, alive))
    if decoded.malformed is not None:
        bad = np.zeros(chunk.count, np.bool_)
        bad[alive[decoded.malformed]] = True
        malformed.add(chunk, bad)
        alive = alive[~decoded.malformed]
    if not plan.has_metadata:
        return decoded.batch, alive
    flags, others = chunk.flags(), ~with_data
    keyed = np.flatnonzero(others & ((flags & KEY_ONLY) != 0) & (chunk.samples.all_lengths() > 0))
    keys, keyed = _decode_keys(codec, select(chunk.samples, keyed), keyed)
    others[keyed] = False
    hashed = np.flatnonzero(others & ((flags & HAS_KEY_HASH) != 0))
    from_hash, hashed = _decode_hashes(codec, chunk, hashed)
    others[hashed] = False
    unknown = np.flatnonzero(others)
    schema = decoded.batch.schema  # of plan.data, but whatever is NOT NULL there may be null here
    nulls = [pa.nulls(len(unknown), t) for t in schema.types]
    nothing = pa.RecordBatch.from_arrays(nulls, schema=schema)
    rows = np.concatenate([alive, keyed, hashed, unknown])
    order = np.argsort(rows, kind="stable")
    table = pa.Table.from_batches([decoded.batch, keys, from_hash, nothing]).take(pa.array(order))
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else nothing, rows[order]


def _decode_keys(codec: Codec, keys: Samples, rows: I64) -> tuple[pa.RecordBatch, I64]:
    """Serialized keys as rows with nothing else, and which of ``rows`` they are: malformed ones are not."""
    decoded = codec.decode(keys, keys_only=True)
    return decoded.batch, rows if decoded.malformed is None else rows[~decoded.malformed]


def _decode_hashes(codec: Codec, chunk: Chunk, rows: I64) -> tuple[pa.RecordBatch, I64]:
    """Keys out of key hashes, where those hold the key (Fast DDS disposes with a key hash alone)."""
    hashes = chunk.key_hashes() if len(rows) else None
    known = np.empty((0, _KEY_HASH_BYTES), np.uint8) if hashes is None else hashes[rows]
    decoded = codec.decode_key_hashes(known)
    if decoded is None or hashes is None:
        return codec.decode(select(chunk.samples, rows[:0])).batch, rows[:0]
    return decoded.batch, rows if decoded.malformed is None else rows[~decoded.malformed]


# --- binary -----------------------------------------------------------------------------------------


def _decode_binary(chunk: Chunk, plan: TopicPlan, malformed: Malformed) -> Iterator[pa.RecordBatch]:
    n = chunk.count
    columns = [
        pa.repeat(pa.scalar(plan.topic), n),
        *metadata_columns(chunk),
        _encapsulations(chunk.samples),
        _key_hashes(chunk),
        payloads(chunk.samples),
    ]
    yield pa.RecordBatch.from_arrays(columns, schema=plan.columns)


def payloads(samples: Samples) -> pa.BinaryArray:
    """The payloads as binary values, encapsulation header included; one copy."""
    n = samples.count
    if samples.is_uniform:
        data = np.ascontiguousarray(samples.rows()).reshape(-1)
        offsets = samples.size * np.arange(n + 1, dtype=np.int64)
    else:
        lengths = samples.all_lengths()
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        data = gather_bytes(samples.data, samples.all_offsets(), lengths)
    return pa.Array.from_buffers(
        pa.binary(),
        n,
        [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))],
    )


def _encapsulations(samples: Samples) -> pa.Array:
    known = samples.all_lengths() >= _ENCAPSULATION_BYTES
    at = np.where(known, samples.all_offsets(), 0)
    data = samples.data
    ids = (
        (data[at].astype(np.int64) << 8) | data[np.minimum(at + 1, max(0, len(data) - 1))]
        if len(data)
        else np.zeros(samples.count, np.int64)
    )
    distinct, index = np.unique(ids, return_inverse=True)
    names = pa.array([ENCAPSULATIONS.get(int(i), f"0x{int(i):04x}") for i in distinct], pa.string())
    return names.take(pa.array(index.reshape(-1), mask=~known))


def _key_hashes(chunk: Chunk) -> pa.Array:
    hashes = chunk.key_hashes()
    if hashes is None:
        return pa.nulls(chunk.count, pa.binary())
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), chunk.count, [None, pa.py_buffer(hashes)])
    present = (chunk.flags() & HAS_KEY_HASH) != 0
    return pc.if_else(pa.array(present), fixed.cast(pa.binary()), pa.scalar(None, pa.binary()))


# --- arrow ------------------------------------------------------------------------------------------


def _decode_arrow(chunk: Chunk, plan: TopicPlan, malformed: Malformed) -> Iterator[pa.RecordBatch]:
    codec = codec_for(ARROW_BATCH, pa.schema([("ipc", pa.binary())]))
    with_data = chunk.has_data()
    rows = np.arange(chunk.count) if with_data is None else np.flatnonzero(with_data)
    samples = chunk.samples if with_data is None else select(chunk.samples, rows)
    decoded = codec.decode(samples)
    if decoded.malformed is not None:
        bad = np.zeros(chunk.count, np.bool_)
        bad[rows[decoded.malformed]] = True
        malformed.add(chunk, bad)
        rows = rows[~decoded.malformed]
    for row, ipc in zip(rows, decoded.batch.column(0), strict=True):
        try:
            batches = [conform(batch, plan.data) for batch in pa.ipc.open_stream(ipc.as_buffer())]
        except (pa.ArrowException, OSError, MemoryError, UsageError) as error:
            # whatever it is, it comes from a peer: a task that failed of it would fail at every restart
            malformed.add_one(chunk, int(row), str(error))
            continue
        for batch in batches:
            columns = batch.columns
            if plan.has_metadata:
                columns = _with_metadata(columns, chunk, np.full(batch.num_rows, row), plan)
            yield pa.RecordBatch.from_arrays(columns, schema=plan.columns)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of ``schema`` out of a peer's ``batch``, by name, cast where types differ.

    Raises UsageError when a column is missing or a value does not fit, ArrowException when the batch is not
    sound.
    """
    batch.validate(full=True)  # offsets too: the JVM follows them without a look
    columns = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            raise UsageError(f"there is no column {field.name!r} among {batch.schema.names}")
        column = batch.column(at)
        if column.type != field.type:
            try:
                column = column.cast(field.type)
            except pa.ArrowException as error:
                raise UsageError(
                    f"column {field.name!r} is {column.type} and does not fit {field.type}: {error}"
                ) from None
        if not field.nullable and column.null_count:
            raise UsageError(f"column {field.name!r} is declared NOT NULL and has nulls")
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# --- metadata ---------------------------------------------------------------------------------------


def metadata_columns(chunk: Chunk) -> list[pa.Array]:
    """The columns of METADATA_SCHEMA for the samples of a chunk."""
    return [
        _writers(chunk),
        pa.array(chunk.sequence_numbers()),
        _timestamps(chunk.source_timestamps()),
        _timestamps(np.repeat(np.array([f.reception for f in chunk.frames], np.int64), chunk.counts)),
        _instance_states(chunk),
    ]


def _writers(chunk: Chunk) -> pa.Array:
    numbers: dict[Guid, int] = {}
    of_frames = np.array([numbers.setdefault(f.run.writer, len(numbers)) for f in chunk.frames], np.int32)
    names = pa.array([str(guid) for guid in numbers])
    if len(numbers) == 1:
        return pa.repeat(names[0], chunk.count)
    return names.take(pa.array(np.repeat(of_frames, chunk.counts)))


def _with_metadata(
    columns: list[pa.Array], chunk: Chunk, rows: I64 | None, plan: TopicPlan
) -> list[pa.Array]:
    """The columns with ``_rtps`` where the plan wants it; ``rows`` says which sample each row is."""
    struct = plan.columns.field(METADATA_COLUMN).type
    by_name = dict(
        zip(
            ("writer", "sequence_number", "source_timestamp", "reception_timestamp", "instance_state"),
            metadata_columns(chunk),
            strict=True,
        )
    )
    fields = [struct.field(i) for i in range(struct.num_fields)]
    column = pa.StructArray.from_arrays([by_name[f.name] for f in fields], fields=fields)
    if rows is not None:
        column = column.take(pa.array(rows))
    data = iter(columns)
    return [column if name == METADATA_COLUMN else next(data) for name in plan.columns.names]


def _timestamps(ns: I64) -> pa.Array:
    absent = ns == NO_TIMESTAMP
    us = pa.array(np.floor_divide(ns, 1000), mask=absent if absent.any() else None)
    return us.cast(pa.timestamp("us", tz="UTC"))


def _instance_states(chunk: Chunk) -> pa.Array:
    flags = chunk.flags()
    if not (flags & (DISPOSED | UNREGISTERED)).any():
        return pa.repeat(pa.scalar(ALIVE), chunk.count)
    state = np.where(flags & DISPOSED, 1, np.where(flags & UNREGISTERED, 2, 0))
    return pa.array([ALIVE, NOT_ALIVE_DISPOSED, NOT_ALIVE_NO_WRITERS]).take(pa.array(state))


# --- rows ---------------------------------------------------------------------------------------------


def select(samples: Samples, rows: I64) -> Samples:
    """The samples with these indices; no copy of payloads."""
    return Samples.ragged(samples.data, samples.all_offsets()[rows], samples.all_lengths()[rows])
