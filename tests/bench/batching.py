"""What batching is worth: sizes of samples × ways of sending them, our writer → our receiver's stream log.

Throughput is of blocks of samples written as fast as they are taken, latency (from write() to the log) of single
writes at a low rate. Datagrams and acknowledgement traffic are the writer's own counts.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from rich.table import Table

from tests.bench.figures import receiving
from tests.bench.peers import Peer

SIZES: Final = (16, 64, 256, 1024, 8192)
MODES: Final = ("unbatched", "coalesced", "data_batch", "compressed", "turbo")
#: The same with a send window of 256 samples, eight HEARTBEATs a window: where ACKNACKs are counted in samples.
WINDOWED: Final = ("unbatched_w256", "data_batch_w256")
#: Fixed batches that turbo mode is held against, besides data_batch: bytes.
FIXED: Final = (1024, 8192)
PROBE: Final = 64
_WARM_UP: Final = 0.7
_SECONDS: Final = 2.5
_LOW_RATE: Final = 200
_LATENCY_SECONDS: Final = 4.0


@dataclass(frozen=True)
class Throughput:
    """One cell: samples and bytes a second, datagrams and ACKNACKs per 1,000 samples."""

    samples: float
    megabytes: float
    datagrams: float
    acknacks: float


def throughput(domain: int, mode: str, size: int, *, block: int = 0) -> Throughput:
    with receiving(domain) as process:
        peer = Peer(
            "policy_writer", domain, json.dumps({"mode": mode, "size": size, "rate": 0, "block": block})
        )
        _pump(process, _WARM_UP)
        before, started = process.counters()["log.rows"], time.monotonic()
        _pump(process, _SECONDS)
        rows, seconds = process.counters()["log.rows"] - before, time.monotonic() - started
        output = peer.stop()
        lost = process.counters().get("reader.lost_samples", 0)
    if lost:
        raise RuntimeError(f"{mode}, {size} bytes: {lost} samples lost on a reliable topic")
    thousands = max(output["written"], 1) / 1000
    return Throughput(
        rows / seconds,
        rows * size / seconds / 1e6,
        output["datagrams"] / thousands,
        output["acknacks"] / thousands,
    )


def low_rate_latency(domain: int, mode: str, size: int = PROBE) -> tuple[float, float]:
    """Microseconds from write() to the log, of one sample at a time: (p50, p99)."""
    from spark_rtps.transport.log.frame import Cursor
    from spark_rtps.transport.log.log_view import LogView

    with receiving(domain) as process:
        peer = Peer(
            "policy_writer", domain, json.dumps({"mode": mode, "size": size, "rate": _LOW_RATE, "block": 1})
        )
        time.sleep(_WARM_UP)
        start = process.cursor()
        time.sleep(_LATENCY_SECONDS)
        view = LogView(process.directory)
        delays = [
            (frame.reception - frame.run.timestamps()) / 1e3
            for frame in view.frames(Cursor(start.position), process.cursor())
        ]
        peer.stop()
    values = np.concatenate(delays)
    return float(np.percentile(values, 50)), float(np.percentile(values, 99))


def _pump(process: Any, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.05)
        process.commit_position(process.cursor().position)


def batching(domain: int) -> dict[str, Any]:
    """All cells."""
    cells = {f"{mode}/{size}": asdict(throughput(domain, mode, size)) for size in SIZES for mode in MODES}
    for limit in FIXED:
        cells[f"data_batch:{limit}/{PROBE}"] = asdict(throughput(domain, f"data_batch:{limit}", PROBE))
    for mode in WINDOWED:
        cells[f"{mode}/{PROBE}"] = asdict(throughput(domain, mode, PROBE))
    return {"cells": cells, "latency_us": {mode: low_rate_latency(domain, mode) for mode in MODES}}


#: (what is wanted, ratio wanted at least)
WANTED: Final = (
    ("data_batch, of unbatched samples/s, 64 B", 10.0),
    ("fewer ACKNACKs a sample with data_batch than unbatched, 64 B, window of 256", 50.0),
    ("turbo, of the best fixed batch, 64 B", 0.85),
    ("unbatched low-rate p50, of turbo's", 0.5),
)


def ratios(found: dict[str, Any]) -> list[float]:
    """What WANTED asks for, in its order."""
    cells, latency = found["cells"], found["latency_us"]
    unbatched, batch = cells[f"unbatched/{PROBE}"], cells[f"data_batch/{PROBE}"]
    fixed = [batch, *(cells[f"data_batch:{limit}/{PROBE}"] for limit in FIXED)]
    return [
        batch["samples"] / unbatched["samples"],
        cells[f"unbatched_w256/{PROBE}"]["acknacks"]
        / max(cells[f"data_batch_w256/{PROBE}"]["acknacks"], 1e-9),
        cells[f"turbo/{PROBE}"]["samples"] / max(cell["samples"] for cell in fixed),
        latency["unbatched"][0] / latency["turbo"][0],
    ]


def tables(found: dict[str, Any]) -> list[Table]:
    table = Table(title="ways of sending, reliable, loopback UDP, blocks of samples")
    for column in ("bytes", "way", "million/s", "MB/s", "datagrams/1,000", "ACKNACKs/1,000"):
        table.add_column(column, justify="left" if column == "way" else "right")
    for name, cell in found["cells"].items():
        mode, size = name.split("/")
        table.add_row(
            size,
            mode,
            f"{cell['samples'] / 1e6:.3f}",
            f"{cell['megabytes']:.0f}",
            f"{cell['datagrams']:.2f}",
            f"{cell['acknacks']:.3f}",
        )
    latency = Table(title=f"write() → log, {PROBE} bytes, {_LOW_RATE} single writes a second")
    for column in ("way", "p50 µs", "p99 µs"):
        latency.add_column(column, justify="left" if column == "way" else "right")
    for mode, (p50, p99) in found["latency_us"].items():
        latency.add_row(mode, f"{p50:.0f}", f"{p99:.0f}")
    wanted = Table(title="wanted")
    for column in ("what", "ratio", "wanted"):
        wanted.add_column(column, justify="left" if column == "what" else "right")
    for (title, least), ratio in zip(WANTED, ratios(found), strict=True):
        wanted.add_row(title, f"{ratio:.2f}", f"≥ {least:g}")
    return [table, latency, wanted]
