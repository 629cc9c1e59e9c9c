"""Stream logs which tests write without a network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.model import Member, Primitive, PrimitiveKind, String, Struct
from spark_rtps.transport.wire.samples import SAMPLE_INDEX, Run, Samples

WRITER = Guid(bytes(range(12)), b"\x00\x00\x01\x02")
OTHER = Guid(bytes(range(12, 24)), b"\x00\x00\x02\x02")
POINT = Struct(
    "Point",
    (
        Member("id", Primitive(PrimitiveKind.INT32), 0, key=True),
        Member("x", Primitive(PrimitiveKind.FLOAT64), 1),
    ),
)
NOTE = Struct(
    "Note",
    (Member("id", Primitive(PrimitiveKind.INT32), 0, key=True), Member("text", String(), 1)),
)
RECEPTION = 1_700_000_000_000_001_000
SOURCE = 1_700_000_000_000_000_000


def points(first: int, count: int) -> pa.RecordBatch:
    ids = np.arange(first, first + count, dtype=np.int32)
    return pa.record_batch({"id": ids, "x": ids / 2})


def notes(first: int, count: int) -> pa.RecordBatch:
    ids = range(first, first + count)
    return pa.record_batch({"id": pa.array(ids, pa.int32()), "text": ["n" * (i % 7) for i in ids]})


def run_of(samples: Samples, first_sn: int, *, writer: Guid = WRITER, timestamp: int = SOURCE) -> Run:
    """A run of these samples, uniform if they are."""
    if samples.is_uniform:
        run = Run(writer, first_sn, samples.count, samples.data, stride=samples.stride, timestamp=timestamp)
        run.payload_length = samples.size
        return run
    index = np.zeros(samples.count, SAMPLE_INDEX)
    index["offset"], index["length"] = samples.all_offsets(), samples.all_lengths()
    index["timestamp"] = timestamp
    return Run(writer, first_sn, samples.count, samples.data, index=index)


def encoded(batch: pa.RecordBatch, struct: Struct = POINT) -> Samples:
    return Codec(struct).encode_batch(batch)


def write_log(directory: Path, runs: list[Run]) -> Cursor:
    """Write a log of these runs and return its end."""
    with StreamLog.create(directory, max_bytes=256 << 20, segment_bytes=1 << 20, metadata={}) as log:
        for run in runs:
            assert log.append(run, reception=RECEPTION)
        return Cursor(log.position)
