"""Large samples: our writer → our receiver's stream log, in bytes a second, and in CPU time for each GB.

Held against a plain Python loop of the same run, which sends and receives datagrams as large, and keeps nothing.
The first samples are not counted: a log that is trimmed as it grows has pages of its own only after a few segments.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, Final

from rich.table import Table

from tests.bench.figures import receiving
from tests.bench.flow import plain
from tests.bench.peers import Peer

#: Bytes of a sample: as DATA that share datagrams, and in fragments.
SIZES: Final = (8 << 10, 64 << 10, 1 << 20, 6 << 20)
#: Bytes of a datagram.
MESSAGE: Final = 63 << 10
_BLOCK_BYTES: Final = 4 << 20
_WARM_UP_BYTES: Final = 400_000_000
_WARM_UP_SECONDS: Final = 20.0
_SECONDS: Final = 4.0


def blob(domain: int, size: int) -> dict[str, float]:
    """GB/s of samples of ``size`` bytes, and seconds of CPU time for each GB of the receiver and of the writer."""
    how = {"mode": "log", "size": size, "rate": 0, "block": max(1, _BLOCK_BYTES // size)}
    with receiving(domain) as process:
        peer = Peer("policy_writer", domain, json.dumps(how))
        _pump(process, _WARM_UP_SECONDS, _WARM_UP_BYTES)
        rows, started = process.counters()["log.rows"], time.monotonic()
        before = _cpu(process.pid), _cpu(peer.pid)
        _pump(process, _SECONDS)
        after = _cpu(process.pid), _cpu(peer.pid)
        counters, seconds = process.counters(), time.monotonic() - started
        peer.stop()
    if counters.get("reader.lost_samples", 0):
        raise RuntimeError(f"{counters['reader.lost_samples']} samples lost on a reliable topic")
    received = (counters["log.rows"] - rows) * size / 1e9
    return {
        "GB/s": received / seconds,
        "receiver": (after[0] - before[0]) / received,
        "writer": (after[1] - before[1]) / received,
    }


def _pump(process: Any, seconds: float, nbytes: int = 1 << 62) -> None:
    """Commit what is received for so long, or until so much was."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.cursor().position < nbytes:
        time.sleep(0.02)
        process.commit(process.cursor().position)


def _cpu(pid: int) -> float:
    """Seconds of CPU time that a process has used."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def blobs(domain: int) -> dict[str, Any]:
    """By size of the samples, and of the plain loop."""
    return {"plain": plain(MESSAGE) * MESSAGE / 1e9, **{str(size): blob(domain, size) for size in SIZES}}


def table(found: dict[str, Any]) -> Table:
    title = f"large samples, reliable, against {found['plain']:.2f} GB/s of a plain socket loop"
    shown = Table(title=title)
    for column in ("sample", "GB/s", "of the loop", "CPU s/GB: receiver", "writer"):
        shown.add_column(column, justify="right")
    for size in SIZES:
        row = found[str(size)]
        cells = (row["GB/s"], row["GB/s"] / found["plain"], row["receiver"], row["writer"])
        shown.add_row(f"{size >> 10} KiB", *(f"{cell:.2f}" for cell in cells))
    return shown
