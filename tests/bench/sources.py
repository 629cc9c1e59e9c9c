"""Spark sources and sinks that do nothing but move Arrow batches: the ceilings our figures are held against."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

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
