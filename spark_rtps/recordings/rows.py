"""The rows of a piece of a recording: its samples as chunks, decoded like those of a stream log."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa

from ..columns.chunks import BIG_BYTES, ROWS, Chunk
from ..columns.decoding import NO_TYPES, as_announced, decode_chunk, needs_writer_types, rows_at_once
from ..columns.malformed import Tally
from ..columns.topic_plan import TopicPlan
from ..transport.log.frame import Frame
from ..transport.receiver.writer_types import AnnouncedTypes, WriterTopic
from ..transport.structure import KEY_HASH_BYTES
from ..transport.wire.samples import SAMPLE_INDEX, Run, Samples
from .files import open_piece
from .recorded import ALL_TIMES, Channel, Piece, RecordedSamples, Times


def decode_piece(
    piece: Piece, plan: TopicPlan, times: Times = ALL_TIMES, *, is_lenient: bool = False
) -> Iterator[pa.RecordBatch]:
    """The rows of a piece, in batches; ``is_lenient``: damaged parts are skipped where possible.

    Raises MalformedSampleError with ``mode=failfast``, and RecordingError for damage.
    """
    file, tally = open_piece(piece, is_lenient=is_lenient), Tally(plan)
    typed, rows, before = needs_writer_types(plan), min(ROWS, rows_at_once(plan)), 0
    try:
        for whole in file.read_piece(piece, times):
            struct = whole.channel.struct
            written = as_announced(plan, struct) if typed and struct is not None else (plan, "")
            announced = _announced(whole.channel) if plan.many else NO_TYPES
            for samples in whole.parts(rows, BIG_BYTES):
                yield from decode_chunk(chunk_of(samples, before), plan, written, tally, announced)
                before += samples.count
    finally:
        tally.close(None)


@lru_cache(maxsize=64)
def _announced(channel: Channel) -> AnnouncedTypes:
    """The topic and the type of a channel's samples, as a log has them for its writers."""
    topic = WriterTopic(channel.topic, channel.type_name or None, channel.type_hash)
    return AnnouncedTypes({}, topics={channel.writer: (topic,)})


def chunk_of(samples: RecordedSamples, before: int = 0) -> Chunk:
    """The samples as a chunk of one frame; ``before`` samples of the piece lie before it. No copy of payloads."""
    low = int(samples.offsets.min()) if samples.count else 0
    high = int((samples.offsets + samples.lengths).max()) if samples.count else 0
    data, offsets = samples.data[low:high], samples.offsets - low
    index = np.zeros(samples.count, SAMPLE_INDEX)
    index["offset"] = offsets
    index["length"] = samples.lengths
    index["timestamp"] = samples.source_times
    first_sn = int(samples.sequence_numbers.min()) if samples.count else 0
    index["sn_offset"] = samples.sequence_numbers - first_sn
    if samples.flags is not None:
        index["flags"] = samples.flags
    if samples.key_hashes is not None:
        index["key_hash"] = samples.key_hashes.view(f"V{KEY_HASH_BYTES}").reshape(-1)
    run = Run(samples.channel.writer, first_sn, samples.count, data, index=index, sparse=True)
    first = int(samples.log_times[0]) if samples.count else 0
    frame = Frame(0, 0, first, before, run, samples.log_times)
    return Chunk([frame], Samples.ragged(data, offsets, samples.lengths), index)
