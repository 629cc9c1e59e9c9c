"""What a subscription makes of payloads that are no samples of the type, and of Arrow record batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import spark_rtps as rtps
from spark_rtps.columns.topic_plan import ARROW_BATCH
from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.qos import DataRepresentation, HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.types.arrow import struct_from_arrow
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.wire.samples import Samples
from tests.support.waiting import PATIENCE

SCHEMA = pa.schema([("id", pa.int32()), ("text", pa.string())])
QOS = Qos(
    reliability=ReliabilityKind.RELIABLE,
    history=HistoryKind.KEEP_ALL,
    data_representation=(DataRepresentation.XCDR1,),
)
TYPE = struct_from_arrow(SCHEMA, "T", optional=False)

Participate = Callable[..., rtps.Participant]


def writer_of(participant: rtps.Participant, struct: Struct) -> BlockingWriter:
    return participant.node.create_writer(WriterSpec("t", struct.name, QOS, type=struct))


def samples(*texts: str | None) -> Samples:
    """One for each text, numbered; None: a payload that ends within it."""
    rows = [{"id": i, "text": text or "broken"} for i, text in enumerate(texts)]
    encoded = Codec(TYPE).encode_batch(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    lengths = encoded.all_lengths() - np.array([8 if text is None else 0 for text in texts])
    return Samples.ragged(encoded.data, encoded.all_offsets(), lengths)


@pytest.fixture
def writer(participate: Participate) -> BlockingWriter:
    return writer_of(participate(), TYPE)


def subscribed(participate: Participate, writer: BlockingWriter, **arguments: Any) -> rtps.Subscription:
    subscription = participate().subscribe("t", **arguments)
    assert writer.wait_for_readers(PATIENCE)
    return subscription


class TestMalformed:
    def test_dropped_and_counted(self, participate: Participate, writer: BlockingWriter) -> None:
        subscription = subscribed(participate, writer)
        writer.write_samples(samples("a", None, "c"))
        assert subscription.take(max_rows=2, timeout=PATIENCE)["text"].to_pylist() == ["a", "c"]
        assert subscription.counters()["malformed_samples"] == 1

    def test_rows_of_nulls(self, participate: Participate, writer: BlockingWriter) -> None:
        subscription = subscribed(participate, writer, mode="permissive")
        writer.write_samples(samples("a", None, "c"))
        table = subscription.take(max_rows=3, timeout=PATIENCE)
        assert table["text"].to_pylist() == ["a", None, "c"]
        assert [each is None for each in table["_corrupt_record"].to_pylist()] == [True, False, True]

    def test_an_error(self, participate: Participate, writer: BlockingWriter) -> None:
        subscription = subscribed(participate, writer, mode="failfast")
        writer.write_samples(samples("a", None))
        with pytest.raises(rtps.MalformedSampleError, match="sample 2 of writer"):
            subscription.take(max_rows=2, timeout=PATIENCE)
        writer.write_samples(samples("later"))
        assert subscription.take(max_rows=2, timeout=PATIENCE)["text"].to_pylist() == ["a", "later"]


def test_record_batches_as_samples(participate: Participate) -> None:
    writer = writer_of(participate(), ARROW_BATCH)
    subscription = subscribed(participate, writer, payload="arrow", schema=SCHEMA)
    sink = pa.BufferOutputStream()
    rows = [{"id": i, "text": f"row {i}"} for i in range(5)]
    with pa.ipc.new_stream(sink, SCHEMA) as stream:
        stream.write_batch(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    ipc = pa.RecordBatch.from_pylist(
        [{"ipc": sink.getvalue().to_pybytes()}], pa.schema([("ipc", pa.binary())])
    )
    writer.write_samples(Codec(ARROW_BATCH, arrow_schema=ipc.schema).encode_batch(ipc))
    assert subscription.take(max_rows=5, timeout=PATIENCE).to_pylist() == rows


def test_through_memory_on_one_host(participate: Participate) -> None:
    """The participant's option ``ipc`` holds for what it reads."""
    writer = writer_of(participate(), TYPE)
    subscription = participate(options={"ipc": True}).subscribe("t")
    assert writer.wait_for_readers(PATIENCE)
    writer.write_samples(samples("a"))
    assert subscription.take(max_rows=1, timeout=PATIENCE)["text"].to_pylist() == ["a"]


def test_a_type_that_columns_make_reads_what_the_writer_announces(participate: Participate) -> None:
    """The columns pick members of the writer's type by name."""
    writer = writer_of(participate(), TYPE)
    schema = pa.schema([("text", pa.string())])
    subscription = participate().subscribe("t", schema=schema)
    assert subscription.wait_for_writers(PATIENCE)
    assert writer.wait_for_readers(PATIENCE)
    writer.write_samples(samples("a", "b"))
    assert subscription.take(max_rows=2, timeout=PATIENCE).to_pydict() == {"text": ["a", "b"]}
    assert subscription.type_name == "T"
