"""What grows with the length of a log, and with the partitions of a micro-batch.

The logs are such as a receiver could have written: 64-byte samples in frames of one datagram each. Of each length a
process of its own writes one and ends without closing it, as a receiver that is killed; then the log is opened again,
which is what a restart of a receiver waits for, and micro-batches are planned at its beginning and at its end.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_rtps.columns.topic_plan import TopicPlan
from spark_rtps.datasource.log_reading import read_log
from spark_rtps.datasource.range_calculator import Limits, plan_end, plan_partitions
from spark_rtps.options import Payload
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.types.arrow import arrow_schema
from spark_rtps.transport.types.idl.parser import parse_struct
from spark_rtps.transport.wire.samples import Run
from tests.bench import figures
from tests.bench.peers import IDL, TYPE_NAME

#: GB of a log; those that would not leave ``_LEFT`` bytes free on the disk are left out.
LENGTHS: Final = (1, 2, 4, 8, 16, 50)
_LEFT: Final = 12_000_000_000
PARTITIONS: Final = (1, 4, 16, 64, 256)
MICRO_BATCH: Final = 100_000_000
_FRAME_ROWS: Final = 700
_STRIDE: Final = 92  # INFO_TS, DATA, encapsulation, 64 bytes
_PAYLOAD_BYTES: Final = 68
_TURNS: Final = 3


def by_length(
    lengths: Sequence[float] = LENGTHS, micro_batch: int = MICRO_BATCH
) -> dict[str, dict[str, float]]:
    """By length in GB: seconds to append it, to open it again, and to plan a micro-batch at its two ends."""
    found = {}
    for length in lengths:
        with figures.scratch() as directory:
            nbytes = int(length * 1_000_000_000)
            if shutil.disk_usage(directory).free > nbytes + _LEFT:
                found[str(length)] = _of_length(directory / "log", nbytes, micro_batch)
    return found


def by_partitions(
    counts: Sequence[int] = PARTITIONS, micro_batch: int = MICRO_BATCH, *, with_spark: bool = True
) -> dict[str, dict[str, float]]:
    """By partitions asked for: those that were planned, seconds to plan and, on one core, to read them; by Spark, into
    a sink that does nothing, on two cores."""
    with figures.scratch() as directory:
        _written(directory / "log", micro_batch)
        found = {str(count): _in_partitions(directory / "log", count) for count in counts}
        if with_spark:
            with figures.spark_session() as spark:
                for count in counts:
                    found[str(count)]["spark"] = _by_spark(spark, directory / "log", count)
    return found


def append(directory: Path, nbytes: int) -> float:
    """Write a log of so many bytes; returns how long that took."""
    values = np.random.default_rng(1).integers(0, 256, (_FRAME_ROWS, _STRIDE), np.uint8)
    values[:, 24:28] = 0, 1, 0, 0  # CDR_LE
    writer = Guid(bytes(range(12)), b"\x00\x00\x01\x02")
    log = StreamLog.create(directory, max_bytes=2 * nbytes, metadata={})
    began = time.monotonic()
    while log.position < nbytes:
        run = Run(writer, log.rows + 1, _FRAME_ROWS, values.reshape(-1), stride=_STRIDE, timestamp=1)
        run.payload_offset, run.payload_length = 24, _PAYLOAD_BYTES
        log.append(run, reception=time.time_ns())
    return time.monotonic() - began


def _written(directory: Path, nbytes: int) -> float:
    command = [sys.executable, "-m", "tests.bench.growth.logs", str(directory), str(nbytes)]
    return float(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)


def _of_length(directory: Path, nbytes: int, micro_batch: int) -> dict[str, float]:
    appended = _written(directory, nbytes)
    began = time.monotonic()
    log = StreamLog.open(directory)
    opened, end = time.monotonic() - began, Cursor(log.position, 0)
    limits = Limits(max_bytes=micro_batch)

    def plan(start: Cursor) -> Callable[[], object]:
        def planned() -> object:
            last = plan_end(directory, start, end, limits, log_max_bytes=4 * nbytes)
            return plan_partitions(directory, start, last, min_partitions=2, host="")

        return planned

    last = LogView(directory).next_frame(max(0, end.position - micro_batch))
    found = {
        "append": appended,
        "open": opened,
        "plan_first": _took(plan(Cursor(0))),
        "plan_last": _took(plan(Cursor(last))),
    }
    log.close()
    return found


def _in_partitions(directory: Path, count: int) -> dict[str, float]:
    struct = parse_struct(IDL, TYPE_NAME, "the bench's type")
    schema = arrow_schema(struct)
    plan = TopicPlan("bench", struct.name, struct.is_keyed, Payload.CDR, struct, schema, schema)
    end = Cursor(LogView(directory).end)
    planned = plan_partitions(directory, Cursor(0), end, min_partitions=count, host="")

    def read() -> int:
        rows = 0
        for partition in planned:
            batch: pa.RecordBatch
            for batch in read_log(partition, plan):
                rows += batch.num_rows
        return rows

    return {
        "planned": len(planned),
        "plan": _took(lambda: plan_partitions(directory, Cursor(0), end, min_partitions=count, host="")),
        "read": _took(read),
    }


def _by_spark(spark: Any, directory: Path, count: int) -> float:
    frame = spark.read.format("recorded").options(log=str(directory), partitions=count).load()
    writer = frame.write.format("noop").mode("overwrite")
    writer.save()
    return _took(writer.save)


def _took(work: Callable[[], object]) -> float:
    """Median seconds."""

    def once() -> float:
        began = time.monotonic()
        work()
        return time.monotonic() - began

    return statistics.median(once() for _ in range(_TURNS))


if __name__ == "__main__":
    print(append(Path(sys.argv[1]), int(sys.argv[2])), flush=True)
    os._exit(0)  # as killed: nothing is closed
