"""Columns that do not depend on the type of samples: payloads, metadata, instance states."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..transport.receiver.writer_types import AnnouncedTypes, WriterTopic
from ..transport.structure import GUID_UNKNOWN, Guid
from ..transport.types.arrow import TIME
from ..transport.types.cdr.cursors import gather_bytes, offsets_of
from ..transport.types.cdr.decoding.arrays import binary_array, constant_offsets
from ..transport.wire.samples import (
    DISPOSED,
    ENCAPSULATION_BYTES,
    HAS_KEY_HASH,
    I64,
    NO_TIMESTAMP,
    UNREGISTERED,
    Samples,
)
from .chunks import Chunk

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


def payloads(samples: Samples) -> pa.BinaryArray:
    """The payloads as binary values, encapsulation header included; one copy."""
    if samples.is_uniform:
        data = np.ascontiguousarray(samples.rows()).reshape(-1)
        return binary_array(data, constant_offsets(samples.count, samples.size), pa.binary())
    lengths = samples.all_lengths()
    data = gather_bytes(samples.data, samples.all_offsets(), lengths)
    return binary_array(data, offsets_of(lengths), pa.binary())


def encapsulations(samples: Samples) -> pa.Array:
    known = samples.all_lengths() >= ENCAPSULATION_BYTES
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


def key_hashes(chunk: Chunk) -> pa.Array:
    hashes = chunk.key_hashes()
    if hashes is None:
        return pa.nulls(chunk.count, pa.binary())
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), chunk.count, [None, pa.py_buffer(hashes)])
    present = (chunk.flags() & HAS_KEY_HASH) != 0
    return pc.if_else(pa.array(present), fixed.cast(pa.binary()), pa.scalar(None, pa.binary()))


def metadata_columns(chunk: Chunk) -> list[pa.Array]:
    """The columns of METADATA_SCHEMA for the samples of a chunk."""
    return [
        _writers(chunk),
        _sequence_numbers(chunk),
        _timestamps(chunk.source_timestamps()),
        log_times(chunk),
        _instance_states(chunk),
    ]


def topic_columns(chunk: Chunk, announced: AnnouncedTypes) -> list[pa.Array]:
    """The columns of TOPIC_SCHEMA for the samples of a chunk."""
    numbers: dict[WriterTopic, int] = {}
    topics = (announced.topic_of(frame.run.writer, frame.position) for frame in chunk.frames)
    of_frames = np.array([numbers.setdefault(each, len(numbers)) for each in topics], np.int32)
    index = pa.array(np.repeat(of_frames, chunk.counts))
    fields = zip(*((each.topic, each.type_name, each.type_hash) for each in numbers), strict=True)
    return [pa.array(field, pa.string()).take(index) for field in fields]


def log_times(chunk: Chunk) -> pa.Array:
    """The times at which the samples of a chunk were received, or logged in a recording."""
    return _timestamps(chunk.receptions())


def _sequence_numbers(chunk: Chunk) -> pa.Array:
    """Sequence numbers; null if a recording has none. In RTPS they begin with 1."""
    numbers = chunk.sequence_numbers()
    unknown = numbers == 0
    return pa.array(numbers, mask=unknown if unknown.any() else None)


def _writers(chunk: Chunk) -> pa.Array:
    """Writers; null if a recording does not name them."""
    numbers: dict[Guid, int] = {}
    of_frames = np.array([numbers.setdefault(f.run.writer, len(numbers)) for f in chunk.frames], np.int32)
    names = pa.array([None if guid == GUID_UNKNOWN else str(guid) for guid in numbers], pa.string())
    if len(numbers) == 1:
        return pa.repeat(names[0], chunk.count)
    return names.take(pa.array(np.repeat(of_frames, chunk.counts)))


def _timestamps(ns: I64) -> pa.Array:
    absent = ns == NO_TIMESTAMP
    us = pa.array(np.floor_divide(ns, 1000), mask=absent if absent.any() else None)
    return us.cast(TIME)


def _instance_states(chunk: Chunk) -> pa.Array:
    flags = chunk.flags()
    if not (flags & (DISPOSED | UNREGISTERED)).any():
        return pa.repeat(pa.scalar(ALIVE), chunk.count)
    state = np.where(flags & DISPOSED, 1, np.where(flags & UNREGISTERED, 2, 0))
    return pa.array([ALIVE, NOT_ALIVE_DISPOSED, NOT_ALIVE_NO_WRITERS]).take(pa.array(state))


def select(samples: Samples, rows: I64) -> Samples:
    """The samples with these indices; no copy of payloads."""
    return Samples.ragged(samples.data, samples.all_offsets()[rows], samples.all_lengths()[rows])
