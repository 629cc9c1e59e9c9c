"""``python -m tests.bench.spark_blobs``: large samples from a stream log through Spark to an Arrow consumer.

Held against a source of the same run which yields the same rows as record batches that are there. The log is one that
a receiver could have written, of one sample a frame; what is measured is what tasks do: map it, verify it, decode it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType
from rich.table import Table

from spark_rtps.columns.decoding import codec_for
from spark_rtps.columns.topic_plan import TopicPlan
from spark_rtps.datasource.log_reading import read_log
from spark_rtps.datasource.range_calculator import plan_partitions
from spark_rtps.options import Payload
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.types.arrow import arrow_schema
from spark_rtps.transport.wire.samples import Run
from tests.bench import figures
from tests.bench.codec import Shape, shapes

#: By the titles of the codecs' figures.
TITLES: Final = ("Image, 6 MB", "PointCloud2, 3 MB")
#: Bytes of a log.
_LOG_BYTES: Final = 120_000_000
_PARTITIONS: Final = 2
#: Of a batch on the way to the consumer: the shipped settings cut batches by rows only, so that all would be one.
_CONSUMED_BYTES: Final = 16 << 20
_WARM_UP, _RUNS = 3, 5
_WRITER: Final = Guid(bytes(range(12)), b"\x00\x00\x01\x03")


def spark_blobs() -> dict[str, Any]:
    """GB/s of each shape, of ours and of the source that is held against it; in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(found: dict[str, Any]) -> Table:
    shown = Table(title="large samples of a stream log through Spark to an Arrow consumer")
    for column in ("sample", "GB/s", "from batches that are there", "ratio", "wanted"):
        shown.add_column(column, justify="right")
    for title in TITLES:
        ours, theirs = found[title]["recorded"], found[title]["prebuilt"]
        shown.add_row(title, f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs:.2f}", "≥ 0.6")
    return shown


def _shape(title: str) -> Shape:
    return next(shape for shape in shapes() if shape.title == title)


def _batch(shape: Shape) -> pa.RecordBatch:
    """One sample, as the source yields it."""
    return pa.RecordBatch.from_pylist([shape.row(1)], schema=arrow_schema(shape.struct))


def _record(shape: Shape, directory: Path) -> int:
    """Write the log, and return how many samples are in it."""
    samples = codec_for(shape.struct, arrow_schema(shape.struct)).encode_batch(_batch(shape))
    size = int(samples.all_lengths()[0])
    count = _LOG_BYTES // size
    with StreamLog.create(directory, max_bytes=2 * _LOG_BYTES, metadata={}) as log:
        for number in range(count):
            run = Run(
                _WRITER, number + 1, 1, samples.data, stride=samples.data.nbytes, timestamp=time.time_ns()
            )
            run.payload_offset, run.payload_length = int(samples.all_offsets()[0]), size
            if not log.append(run, reception=time.time_ns()):
                raise RuntimeError("the log is full")
    return count


class _Batches(InputPartition):
    def __init__(self, count: int) -> None:
        self.count = count


class _BlobReader(DataSourceReader):
    """``log``: read it; without it ``count`` samples in prebuilt batches of one."""

    def __init__(self, options: dict[str, str]) -> None:
        self._shape = _shape(options["title"])
        self._log = options.get("log")
        self._count = int(options.get("count", 0))

    def partitions(self) -> list[InputPartition]:
        if self._log is None:
            return [_Batches(self._count // _PARTITIONS) for _ in range(_PARTITIONS)]
        directory = Path(self._log)
        end = Cursor(LogView(directory).end)
        return list(plan_partitions(directory, Cursor(0), end, min_partitions=_PARTITIONS, host=""))

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        struct = self._shape.struct
        if self._log is None:
            return iter([_batch(self._shape)] * partition.count)
        schema = arrow_schema(struct)
        return read_log(
            partition, TopicPlan("bench", struct.name, struct.is_keyed, Payload.CDR, struct, schema, schema)
        )


class Blobs(DataSource):
    """Format ``blobs``: large samples, from a log or from batches that are there."""

    @classmethod
    def name(cls) -> str:
        return "blobs"

    def schema(self) -> StructType:
        return from_arrow_schema(arrow_schema(_shape(self.options["title"]).struct))

    def reader(self, schema: StructType) -> _BlobReader:
        return _BlobReader(dict(self.options))


def _consume(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a user's function of Arrow batches sees: the bytes, without a copy."""
    for batch in batches:
        seen = sum(len(value.as_buffer()) for value in batch.column("data"))
        yield pa.record_batch({"bytes": pa.array([seen], pa.int64())})


def _rates(spark: Any, title: str, **options: Any) -> float:
    """Median GB/s."""
    rates = []
    for _ in range(_WARM_UP + _RUNS):
        frame = spark.read.format("blobs").options(title=title, **options).load()
        began = time.monotonic()
        rows = frame.select("data").mapInArrow(_consume, "bytes long").collect()
        rates.append(sum(row.bytes for row in rows) / 1e9 / (time.monotonic() - began))
    return statistics.median(rates[_WARM_UP:])  # type: ignore[no-any-return]


def _main() -> None:
    found: dict[str, Any] = {}
    with figures.spark_session() as spark:
        spark.dataSource.register(Blobs)
        spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", _CONSUMED_BYTES)
        for title in TITLES:
            with figures.scratch() as directory:
                count = _record(_shape(title), directory / "log")
                found[title] = {
                    "recorded": _rates(spark, title, log=str(directory / "log")),
                    "prebuilt": _rates(spark, title, count=count),
                }
    print(json.dumps(found))


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _main()
