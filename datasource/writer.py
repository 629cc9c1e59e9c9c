"""The sink, batch and streaming: record batches of a task to samples, written and acknowledged."""

from __future__ import annotations

import select
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ..transport.errors import EncodeError, RtpsError
from ..transport.qos import DataRepresentation
from ..transport.types.cdr.lanes import copy_pieces
from ..transport.wire.samples import U8, Samples
from .decoding import codec_for
from .options import Payload, Settings
from .publishing import PUBLISHERS, Publication
from .relabelling import relabelled
from .schema import TopicPlan
from .workers import settle

#: The low two bits of an encapsulation header's options count the padding bytes at the end.
_OPTIONS_LOW_BYTE: Final = 3
_PADDING_BITS: Final = np.uint8(0x03)
#: Low byte of the encapsulation identifiers CDR_LE and CDR2_LE.
_CDR_LE: Final = 0x01
_CDR2_LE: Final = 0x07


@dataclass(frozen=True)
class RtpsCommitMessage(WriterCommitMessage):
    """What one task wrote."""

    rows: int
    samples: int


class _TaskWriter:
    """Writing one task's rows; pickled to the tasks."""

    def __init__(self, settings: Settings, plan: TopicPlan) -> None:
        self._settings = settings
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        settle()
        encode = _encoder(self._plan)
        publication: Publication | None = None
        rows = written = 0
        try:
            for batch in iterator:
                if not batch.num_rows:
                    continue
                if publication is None:  # a partition without rows needs no participant
                    publication = PUBLISHERS.publication(self._settings, self._plan)
                publication.wait_for_reader()
                if not rows:
                    publication.begin_coherent_set()
                samples, key_hashes = encode(batch)
                publication.write(samples, key_hashes)
                rows += batch.num_rows
                written += samples.count
            if publication is not None:
                if publication.in_coherent_set and _spark_has_hung_up():
                    raise RtpsError("Spark gave the task up; nothing of what it wrote becomes visible")
                publication.end_coherent_set()
        except BaseException:
            if publication is not None:
                publication.abort_coherent_set()
            raise
        if publication is not None:
            publication.wait_for_acknowledgments()
        return RtpsCommitMessage(rows, written)


def _spark_has_hung_up() -> bool:
    """Whether the rows ended because computing them failed, or the task was killed.

    Spark ends the rows then as if there were no more, and closes its end of the worker's connection, which
    nobody but pyspark/worker.py knows.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        connection = frame.f_locals.get("infile")
        if frame.f_code.co_name == "main" and connection is not None:
            poll = select.poll()
            poll.register(connection.fileno(), select.POLLRDHUP)
            return bool(poll.poll(0))
        frame = frame.f_back
    return False


class RtpsArrowWriter(_TaskWriter, DataSourceArrowWriter):
    """``df.write``: each task returns when its rows are acknowledged; a retried task writes them again."""


class RtpsStreamArrowWriter(_TaskWriter, DataSourceStreamArrowWriter):
    """``df.writeStream``: the same for every micro-batch."""


Encoder = Callable[[pa.RecordBatch], tuple[Samples, U8 | None]]


def _encoder(plan: TopicPlan) -> Encoder:
    match plan.payload:
        case Payload.CDR:
            return _cdr_encoder(plan)
        case Payload.BINARY:
            return lambda batch: (samples_of(batch.column("value")), None)
        case Payload.ARROW:
            return lambda batch: (arrow_sample(batch, plan.representation), None)


def _cdr_encoder(plan: TopicPlan) -> Encoder:
    assert plan.struct is not None
    codec = codec_for(plan.struct, None)
    representation = plan.representation
    is_renamed = not plan.data.equals(plan.columns)

    def encode(batch: pa.RecordBatch) -> tuple[Samples, U8 | None]:
        if is_renamed:
            batch = relabelled(batch, plan.data)
        samples = codec.encode(batch, representation=representation)
        return samples, codec.key_hashes(batch, representation=representation) if plan.keyed else None

    return encode


def samples_of(values: pa.Array) -> Samples:
    """Serialized payloads, encapsulation header included, each padded to a multiple of 4; one copy.

    What is padded here is told in the header, as XTypes 1.3 §7.6.3.1.2 has it; a payload that needs no
    padding keeps its header.
    """
    if not pa.types.is_binary(values.type):
        values = values.cast(pa.binary())
    if values.null_count:
        row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        raise EncodeError(f"column 'value', row {row}: a payload must not be null")
    n = len(values)
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[values.offset : values.offset + n + 1].astype(np.int64)
    lengths = np.diff(offsets)
    short = np.flatnonzero(lengths < 4)
    if len(short):
        raise EncodeError(
            f"column 'value', row {int(short[0])}: shorter than an encapsulation header, 4 bytes"
        )
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    padded = (lengths + 3) & -4
    starts = np.cumsum(padded) - padded
    out = np.zeros(int(padded.sum()), np.uint8)
    copy_pieces(out, starts, data, offsets[:-1], lengths)
    short_of = np.flatnonzero(padded > lengths)
    options = starts[short_of] + _OPTIONS_LOW_BYTE
    out[options] = (out[options] & ~_PADDING_BITS) | (padded - lengths)[short_of].astype(np.uint8)
    return Samples.ragged(out, starts, padded)


def arrow_sample(
    batch: pa.RecordBatch, representation: DataRepresentation = DataRepresentation.XCDR1
) -> Samples:
    """A record batch as one sample of ``spark_rtps::ArrowBatch``: header, octet count, Arrow IPC stream.

    The type is final: but for the header, both representations are the same bytes.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    ipc = np.frombuffer(sink.getvalue(), np.uint8)
    padding = -len(ipc) % 4
    data = np.zeros(8 + len(ipc) + padding, np.uint8)
    data[1] = _CDR2_LE if representation is DataRepresentation.XCDR2 else _CDR_LE
    data[_OPTIONS_LOW_BYTE] = padding
    data[4:8] = np.frombuffer(len(ipc).to_bytes(4, "little"), np.uint8)
    data[8 : 8 + len(ipc)] = ipc
    return Samples.uniform(data, 1, len(data))
