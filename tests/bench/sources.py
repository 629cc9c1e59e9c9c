"""Spark sources and sinks that do nothing but move Arrow batches: the ceilings our figures are held against."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from spark_rtps.columns.topic_plan import TopicPlan
from spark_rtps.datasource.log_reading import read_log
from spark_rtps.datasource.range_calculator import plan_partitions
from spark_rtps.datasource.workers import settle
from spark_rtps.options import Payload
from spark_rtps.serving.wire_format.served import Served
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.types.arrow import arrow_schema
from spark_rtps.transport.types.idl.parser import parse_struct
from tests.bench.peers import IDL, TYPE_NAME

SCHEMA = "id BIGINT, seq BIGINT, v ARRAY<DOUBLE>"
BATCH_ROWS = 20_000


def batch(rows: int = BATCH_ROWS) -> pa.RecordBatch:
    """Rows as the source of the bench's topic yields them: (id, seq, v[7])."""
    values = pa.array(np.random.default_rng(1).random(rows * 7))
    return pa.record_batch(
        {
            "id": pa.array(np.arange(rows, dtype=np.int64)),
            "seq": pa.array(np.arange(rows, dtype=np.int64)),
            "v": pa.ListArray.from_arrays(pa.array(np.arange(0, rows * 7 + 1, 7, dtype=np.int32)), values),
        }
    )


class _Range(InputPartition):
    def __init__(self, batches: int) -> None:
        self.batches = batches


class PrebuiltReader(DataSourceStreamReader):
    """Each trigger is ``batchesPerTrigger`` prebuilt batches in ``partitions`` partitions."""

    def __init__(self, options: dict[str, str]) -> None:
        self._per_trigger = int(options.get("batchespertrigger", 50))
        self._partitions = int(options.get("partitions", 2))

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        self._at = getattr(self, "_at", 0) + self._per_trigger
        return {"batch": self._at}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        each = (end["batch"] - start["batch"]) // self._partitions
        return [_Range(each) for _ in range(self._partitions)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        one = batch()
        for _ in range(partition.batches):
            yield one


class CountingWriter(DataSourceStreamArrowWriter):
    """Takes every batch and looks at nothing but its length."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        sum(b.num_rows for b in iterator)
        return WriterCommitMessage()

    def commit(self, messages: Any, batchId: int) -> None: ...

    def abort(self, messages: Any, batchId: int) -> None: ...


class Prebuilt(DataSource):
    """Format ``prebuilt``: the ceiling of a source and, as a sink, of a writer."""

    @classmethod
    def name(cls) -> str:
        return "prebuilt"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> PrebuiltReader:
        return PrebuiltReader(dict(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> CountingWriter:
        return CountingWriter()


class _Instant(InputPartition):
    def __init__(self, at: int) -> None:
        self.at = at


class InstantReader(DataSourceStreamReader):
    """Each trigger finds one row ready, of the columns of the bench's topic: id and seq are the halves of when it was
    asked for, in ns since 1970."""

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        return {"at": time.time_ns()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [_Instant(end["at"])]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        settle()  # as our source does, so that the difference is what ours does with rows
        values = ([partition.at >> 32], [partition.at & 0xFFFFFFFF], [[0.0] * 7])
        yield pa.record_batch([pa.array(each) for each in values], names=["id", "seq", "v"])


class Instant(DataSource):
    """Format ``instant``: the floor of latencies."""

    @classmethod
    def name(cls) -> str:
        return "instant"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> InstantReader:
        return InstantReader()


class RecordedReader(DataSourceReader):
    """The rows of a stream log, by the code that tasks run: mapped, or fetched from ``address``."""

    def __init__(self, options: dict[str, str]) -> None:
        self._log = Path(options["log"])
        self._partitions = int(options.get("partitions", 1))
        self._served = None
        if "address" in options:
            self._served = Served((options["address"],), options["key"], options.get("ca") or None)

    def partitions(self) -> list[InputPartition]:
        view = LogView(self._log)
        planned = plan_partitions(
            self._log,
            Cursor(0),
            Cursor(view.end),
            min_partitions=self._partitions,
            host="",
            served=self._served,
        )
        return [replace(each, place=None) for each in planned] if self._served else list(planned)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        struct = parse_struct(IDL, TYPE_NAME, "the bench's type")
        data = arrow_schema(struct)
        plan = TopicPlan("bench", struct.name, struct.is_keyed, Payload.CDR, struct, data, data)
        return read_log(partition, plan)


class Recorded(DataSource):
    """Format ``recorded``: a log that is there, read over and over."""

    @classmethod
    def name(cls) -> str:
        return "recorded"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> RecordedReader:
        return RecordedReader(dict(self.options))
