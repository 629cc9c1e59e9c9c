"""``python -m tests.bench.growth [--docs DIRECTORY]``: what grows with a log's length and a micro-batch's partitions.

The logs are such as a receiver could have written: 64-byte samples in frames of one datagram each. Of each length a
process of its own writes one and ends without closing it, as a receiver that is killed; then the log is opened again,
which is what a restart of a receiver waits for, and micro-batches are planned at its beginning and at its end.
``--docs`` draws growth.svg into the directory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
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

#: GB of a log; those that would not leave as much again free on the disk are left out.
LENGTHS: Final = (1, 2, 4, 8)
PARTITIONS: Final = (1, 4, 16, 64, 256)
_MICRO_BATCH: Final = 100_000_000
_FRAME_ROWS: Final = 700
_STRIDE: Final = 92  # INFO_TS, DATA, encapsulation, 64 bytes
_PAYLOAD_BYTES: Final = 68
_TURNS: Final = 3


def growth() -> dict[str, Any]:
    """By length in GB: seconds to append, to open again and to plan; by number of partitions: seconds to read."""
    lengths: dict[str, dict[str, float]] = {}
    with figures.scratch() as directory:
        for length in LENGTHS:
            if shutil.disk_usage(directory).free > 2 * length * 1_000_000_000:
                lengths[str(length)] = _of_length(directory / "log", length * 1_000_000_000)
                shutil.rmtree(directory / "log")
        _written(directory / "log", _MICRO_BATCH)
        partitions = {str(count): _in_partitions(directory / "log", count) for count in PARTITIONS}
    return {"lengths": lengths, "partitions": partitions}


def lines(found: dict[str, Any]) -> list[str]:
    shown = [
        f"a log of {length} GB: appended in {of['append']:.2f} s, opened again after a kill in {1e3 * of['open']:.1f} "
        f"ms, 100 MB planned at its beginning in {1e3 * of['plan_first']:.1f} ms, at its end in "
        f"{1e3 * of['plan_last']:.1f} ms"
        for length, of in found["lengths"].items()
    ]
    return shown + [
        f"100 MB in {count} partitions: planned in {1e3 * of['plan']:.1f} ms, read in {of['read']:.3f} s of one core"
        for count, of in found["partitions"].items()
    ]


def _append(directory: Path, nbytes: int) -> None:
    """Write a log, print how long that took, and end without closing it."""
    values = np.random.default_rng(1).integers(0, 256, (_FRAME_ROWS, _STRIDE), np.uint8)
    values[:, 24:28] = 0, 1, 0, 0  # CDR_LE
    writer = Guid(bytes(range(12)), b"\x00\x00\x01\x02")
    log = StreamLog.create(directory, max_bytes=2 * nbytes, metadata={})
    began = time.monotonic()
    while log.position < nbytes:
        run = Run(writer, log.rows + 1, _FRAME_ROWS, values.reshape(-1), stride=_STRIDE, timestamp=1)
        run.payload_offset, run.payload_length = 24, _PAYLOAD_BYTES
        log.append(run, reception=time.time_ns())
    print(time.monotonic() - began, flush=True)
    os._exit(0)


def _written(directory: Path, nbytes: int) -> float:
    command = [
        sys.executable,
        "-m",
        "tests.bench.growth",
        "--append",
        str(directory),
        "--nbytes",
        str(nbytes),
    ]
    return float(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)


def _of_length(directory: Path, nbytes: int) -> dict[str, float]:
    appended = _written(directory, nbytes)
    began = time.monotonic()
    log = StreamLog.open(directory)
    opened, end = time.monotonic() - began, Cursor(log.position, 0)
    limits = Limits(max_bytes=_MICRO_BATCH)

    def plan(start: Cursor) -> Callable[[], object]:
        def planned() -> object:
            last = plan_end(directory, start, end, limits, log_max_bytes=4 * nbytes)
            return plan_partitions(directory, start, last, min_partitions=2, host="")

        return planned

    last = LogView(directory).next_frame(end.position - _MICRO_BATCH)
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
        "plan": _took(lambda: plan_partitions(directory, Cursor(0), end, min_partitions=count, host="")),
        "read": _took(read),
    }


def _took(work: Callable[[], object]) -> float:
    """Median seconds."""

    def once() -> float:
        began = time.monotonic()
        work()
        return time.monotonic() - began

    return statistics.median(once() for _ in range(_TURNS))


def draw(found: dict[str, Any], directory: Path) -> None:
    """growth.svg, in ``directory``."""
    from tests.simulation.plots import COLOURS, panels, plt  # matplotlib is wanted here only

    figure, (lengths, partitions) = panels(2)
    for (name, label), colour in zip(
        (
            ("open", "open after a kill"),
            ("plan_first", "plan at the beginning"),
            ("plan_last", "plan at the end"),
        ),
        COLOURS,
        strict=False,
    ):
        x = [float(length) for length in found["lengths"]]
        lengths.plot(
            x, [1e3 * of[name] for of in found["lengths"].values()], "o-", color=colour, ms=3, label=label
        )
    lengths.set_xlabel("length of the log, GB")
    lengths.set_ylabel("ms")
    lengths.set_ylim(bottom=0)
    lengths.legend(frameon=False)
    for (name, label), colour in zip((("read", "read, one core"), ("plan", "plan")), COLOURS, strict=False):
        x = [float(count) for count in found["partitions"]]
        y = [1e3 * of[name] for of in found["partitions"].values()]
        partitions.plot(x, y, "o-", color=colour, ms=3, label=label)
    partitions.set_xscale("log", base=2)
    partitions.set_xlabel("partitions of 100 MB")
    partitions.set_ylabel("ms")
    partitions.set_ylim(bottom=0)
    partitions.legend(frameon=False)
    figure.savefig(directory / "growth.svg", metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, metavar="DIRECTORY", help="draw growth.svg into this directory")
    parser.add_argument("--append", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--nbytes", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.append is not None:
        _append(arguments.append, arguments.nbytes)
    found = growth()
    for line in lines(found):
        print(line)
    if arguments.docs is not None:
        draw(found, arguments.docs)
        print(json.dumps(found))


if __name__ == "__main__":
    main()
