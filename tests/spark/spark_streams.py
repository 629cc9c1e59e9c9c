"""What the tests with a real Spark share: a publisher, a source, queries, waiting."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.receiver.config import ReceiverConfig
from spark_rtps.transport.receiver.process import ReceiverProcess
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.wire.samples import DISPOSED, KEY_ONLY, U8, UNREGISTERED, Samples
from tests.support import domains
from tests.support.stream_logs import POINT, encoded
from tests.support.surroundings import INTERFACE
from tests.support.waiting import PATIENCE, wait_until

DOMAIN = domains.of_this_process(domains.SPARK)
POINT_DDL = "id INT, x DOUBLE"


class Publisher:
    """A writer in the test's own process."""

    def __init__(
        self,
        node: Node,
        topic: str,
        struct: Struct = POINT,
        *,
        durability: DurabilityKind = DurabilityKind.VOLATILE,
        reliability: ReliabilityKind = ReliabilityKind.RELIABLE,
    ) -> None:
        self.struct = struct
        qos = Qos(reliability=reliability, durability=durability, history=HistoryKind.KEEP_ALL)
        self.writer: BlockingWriter = node.create_writer(
            WriterSpec(topic, struct.name, qos, keyed=struct.is_keyed)
        )

    def write(self, batch: pa.RecordBatch, *, readers: int = 1) -> None:
        """Write when that many readers are there; return when all of them have it."""
        self.wait_for_readers(readers)
        self.write_samples(encoded(batch, self.struct), key_hashes=self._key_hashes(batch))

    def write_unread(self, batch: pa.RecordBatch) -> None:
        """Write without waiting for readers, or for what they acknowledge."""
        self.writer.write_samples(encoded(batch, self.struct), key_hashes=self._key_hashes(batch))

    def write_samples(self, samples: Samples, *, flags: int = 0, key_hashes: U8 | None = None) -> None:
        self.writer.write_samples(samples, flags=flags, key_hashes=key_hashes)
        assert self.writer.wait_for_acknowledgments(PATIENCE) == {}

    def dispose(self, batch: pa.RecordBatch, *, unregister: bool = False) -> None:
        keys = Codec(self.struct).encode_keys(batch)
        flags = KEY_ONLY | (UNREGISTERED if unregister else DISPOSED)
        self.write_samples(keys, flags=flags, key_hashes=self._key_hashes(batch))

    def _key_hashes(self, batch: pa.RecordBatch) -> U8 | None:
        return Codec(self.struct).key_hashes(batch) if self.struct.is_keyed else None

    def wait_for_readers(self, readers: int = 1) -> None:
        wait_until(lambda: self.ready() >= readers, f"{readers} readers of {self.writer.topic}")

    def ready(self) -> int:
        with self.writer.node.lock:
            return sum(proxy.is_ready for proxy in self.writer.writer.readers.values())


def source(
    spark: SparkSession, topic: str, log_dir: Path, ddl: str | None = POINT_DDL, **options: object
) -> DataFrame:
    """A streaming DataFrame of a topic; history__depth is the option history.depth."""
    reader = spark.readStream.format("rtps").options(**network(log_dir, **options))
    if ddl is not None:
        reader = reader.schema(ddl)
    return reader.load(topic)


def network(log_dir: Path | None = None, **options: object) -> dict[str, str]:
    given = {"domain": DOMAIN, "interface": INTERFACE, "type": "Point", "key": "id", **options}
    if log_dir is not None:
        given["log.dir"] = log_dir
    return {k.replace("__", "."): str(v) for k, v in given.items() if v is not None}


def sink_options(**options: object) -> dict[str, str]:
    """As :func:`network`, for a sink whose readers know no @optional members."""
    return network(**{"nullable": "required", **options})


@contextlib.contextmanager
def running(df: DataFrame, checkpoint: Path, **settings: object) -> Iterator[StreamingQuery]:
    """The query into an in-memory table, stopped at the end."""
    name = f"q_{time.monotonic_ns()}"
    writer = df.writeStream.format("memory").queryName(name).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(**(settings or {"processingTime": "0 seconds"})).start()  # type: ignore[call-overload]
    try:
        yield query
    finally:
        query.stop()


def rows(spark: SparkSession, query: StreamingQuery) -> DataFrame:
    return spark.table(query.name)


def wait_for_rows(spark: SparkSession, query: StreamingQuery, count: int) -> DataFrame:
    counted: object = ()  # a job, so only after a batch

    def enough() -> bool:
        nonlocal counted
        error = query.exception()
        if error is not None:
            raise error
        progress = query.lastProgress
        batch = progress and progress["batchId"]
        if batch == counted:
            return False
        counted = batch
        return rows(spark, query).count() >= count

    wait_until(enough, f"{count} rows", every=0.02)
    return rows(spark, query)


class Subscriber:
    """A receiver in a process of its own, and what it got as columns."""

    def __init__(self, directory: Path, topic: str, struct: Struct, **qos: object) -> None:
        self.codec = Codec(struct)
        self.directory = directory
        self.receiver = ReceiverProcess.start(
            ReceiverConfig(
                str(directory),
                topic,
                struct.name,
                struct.is_keyed,
                Qos(reliability=ReliabilityKind.RELIABLE, **qos),
                node=NodeConfig(domain=DOMAIN, interface=INTERFACE, participant_name="subscriber"),
            )
        )

    def table(self) -> pa.Table:
        frames = LogView(self.directory).frames(Cursor(0), self.receiver.cursor())
        batches = [self.codec.decode_samples(f.run.samples()).batch for f in frames]
        return pa.Table.from_batches(batches, self.codec.arrow_schema)

    def wait_for(self, count: int) -> pa.Table:
        wait_until(lambda: self.receiver.counters()["log.rows"] >= count, f"{count} samples")
        return self.table()

    def stop(self) -> None:
        self.receiver.stop()
