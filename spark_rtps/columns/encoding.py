"""Record batches to samples: serialized payloads, and the key hashes of keyed topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from ..options import Payload
from ..transport.errors import EncodeError
from ..transport.qos import DataRepresentation
from ..transport.types.cdr.cursors import copy_pieces
from ..transport.wire.samples import OPTIONS_LOW_BYTE, U8, Samples
from .decoding import codec_for
from .relabelling import relabelled
from .topic_plan import TopicPlan

#: The low two bits of an encapsulation header's options count the padding bytes at the end.
_PADDING_BITS: Final = np.uint8(0x03)
#: Low byte of the encapsulation identifiers CDR_LE and CDR2_LE.
_CDR_LE: Final = 0x01
_CDR2_LE: Final = 0x07


Encoder = Callable[[pa.RecordBatch], tuple[Samples, U8 | None]]


def encoder_for(plan: TopicPlan) -> Encoder:
    """A function from record batches of the plan's columns to samples, and to key hashes if the topic has a key."""
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
        samples = codec.encode_batch(batch, representation=representation)
        return samples, codec.key_hashes(batch, representation=representation) if plan.keyed else None

    return encode


def samples_of(values: pa.Array) -> Samples:
    """Serialized payloads, encapsulation header included, each padded to a multiple of 4; one copy.

    The header announces the padding that is added here (XTypes 1.3 §7.6.3.1.2); a payload that needs no padding keeps
    its header.
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
    options = starts[short_of] + OPTIONS_LOW_BYTE
    out[options] = (out[options] & ~_PADDING_BITS) | (padded - lengths)[short_of].astype(np.uint8)
    return Samples.ragged(out, starts, padded)


def arrow_sample(
    batch: pa.RecordBatch, representation: DataRepresentation = DataRepresentation.XCDR1
) -> Samples:
    """A record batch as one sample of ``spark_rtps::ArrowBatch``: header, octet count, Arrow IPC stream.

    The type is final, so both representations have the same bytes except for the header.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    ipc = np.frombuffer(sink.getvalue(), np.uint8)
    padding = -len(ipc) % 4
    data = np.zeros(8 + len(ipc) + padding, np.uint8)
    data[1] = _CDR2_LE if representation is DataRepresentation.XCDR2 else _CDR_LE
    data[OPTIONS_LOW_BYTE] = padding
    data[4:8] = np.frombuffer(len(ipc).to_bytes(4, "little"), np.uint8)
    data[8 : 8 + len(ipc)] = ipc
    return Samples.uniform(data, 1, len(data))
