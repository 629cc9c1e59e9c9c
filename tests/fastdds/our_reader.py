"""A reader of ours on any struct, as the tests see it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.endpoint_info import ContentFilterProperty
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec
from spark_rtps.transport.qos import DataRepresentation, Qos
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.wire.samples import KEY_ONLY
from tests.interop.subscription import LocalReader, qos

Row = dict[str, Any]


class OurReader(LocalReader):
    """``reported``: peers are told its type."""

    def __init__(
        self,
        node: Node,
        topic: str,
        struct: Struct,
        requested: Qos | None = None,
        *,
        reported: bool = False,
        expression: str = "",
        parameters: tuple[str, ...] = (),
    ) -> None:
        self.node = node
        self.codec = Codec(struct)
        self._runs = []
        content_filter = None
        if expression:
            content_filter = ContentFilterProperty(
                f"{topic} filtered", topic, "DDSSQL", expression, parameters
            )
        with node.lock:
            spec = ReaderSpec(
                topic,
                struct.name,
                requested or qos(),
                keyed=struct.is_keyed,
                type=struct if reported else None,
                content_filter=content_filter,
            )
            self.reader = node.create_reader(spec, self)

    def rows(self, count: int) -> list[Row | None]:
        return [sample.row for sample in self.wait_for(count)]


def write(
    writer: BlockingWriter,
    struct: Struct,
    rows: list[Row],
    *,
    flags: int = 0,
    representation: DataRepresentation = DataRepresentation.XCDR1,
) -> None:
    """With the flag KEY_ONLY the rows' keys."""
    codec = Codec(struct)
    batch = pa.RecordBatch.from_pylist(rows, schema=codec.arrow_schema)
    encode = codec.encode_keys if flags & KEY_ONLY else codec.encode_batch
    samples = encode(batch, representation=representation)
    hashes = codec.key_hashes(batch) if struct.is_keyed else None
    writer.write_samples(samples, flags=flags, key_hashes=hashes)
