"""What samples cost: CPU time of the receiver and of the writer, for a million small ones and for a GB of large ones.

And the memory that both take meanwhile which is no file's. The first samples are not counted: a log that is trimmed as
it grows has pages of its own only after a few segments.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.table import Table

from tests.bench.figures import receiving
from tests.bench.peers import Peer

_WARM_UP_BYTES: Final = 400_000_000
_WARM_UP_SECONDS: Final = 20.0
_SECONDS: Final = 4.0
_IP_UDP: Final = 28
#: Samples from this size on are written so many bytes at a time.
_LARGE: Final = 8 << 10
_BLOCK_BYTES: Final = 4 << 20
#: By name: how samples are sent, their bytes, and bytes of a datagram, 0: as the writer likes.
CASES: Final = {
    "64 B": ("log", 64, 0),
    "64 B in 1,408": ("log", 64, 1_408),
    "64 B in 1,408, batches": ("data_batch", 64, 1_408),
    "1 KiB": ("log", 1 << 10, 0),
    "1 KiB, batches": ("data_batch", 1 << 10, 0),
    "8 KiB": ("log", 8 << 10, 0),
    "8 KiB, batches": ("data_batch", 8 << 10, 0),
    "64 KiB": ("log", 64 << 10, 0),
    "1 MiB": ("log", 1 << 20, 0),
    "6 MiB": ("log", 6 << 20, 0),
}


@dataclass(frozen=True)
class Cost:
    """Samples a second, seconds of CPU time for a sample of each process, and MB of each."""

    samples: float
    receiver: float
    writer: float
    receiver_memory: float
    writer_memory: float


def cost(
    domain: int, mode: str, size: int, message: int = 0, *, block: int = 0, seconds: float = _SECONDS
) -> Cost:
    """Of samples of ``size`` bytes in datagrams of ``message``, written in blocks of ``block`` (0: the writer's own)
    as fast as they are taken."""
    how = {"mode": mode, "size": size, "rate": 0, "block": block}
    if message:
        how["mtu"] = message + _IP_UDP
    with receiving(domain) as process:
        peer = Peer("policy_writer", domain, json.dumps(how))
        _pump(process, _WARM_UP_SECONDS, _WARM_UP_BYTES)
        rows, started = process.counters()["log.rows"], time.monotonic()
        before = cpu_seconds(process.pid), cpu_seconds(peer.pid)
        _pump(process, seconds)
        after = cpu_seconds(process.pid), cpu_seconds(peer.pid)
        counters, took = process.counters(), time.monotonic() - started
        held = memory(process.pid), memory(peer.pid)
        peer.stop()
    if counters.get("reader.lost_samples", 0):
        raise RuntimeError(f"{counters['reader.lost_samples']} samples lost on a reliable topic")
    received = counters["log.rows"] - rows
    spent = [(then - now) / received for now, then in zip(before, after, strict=True)]
    return Cost(received / took, spent[0], spent[1], *held)


def large(domain: int, size: int) -> Cost:
    """As :func:`cost`, of samples that are written a few at a time."""
    return cost(domain, "log", size, block=max(1, _BLOCK_BYTES // size))


def _pump(process: Any, seconds: float, nbytes: int = 1 << 62) -> None:
    """Commit what is received for so long, or until so much was."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.cursor().position < nbytes:
        time.sleep(0.02)
        process.commit_position(process.cursor().position)


def cpu_seconds(pid: int) -> float:
    """Seconds of CPU time that a process has used."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> float:
    """MB of a process that are no file's."""
    with open(f"/proc/{pid}/status") as file:
        kilobytes = next(line for line in file if line.startswith("RssAnon:")).split()[1]
    return int(kilobytes) * 1024 / 1e6


def costs(domain: int) -> dict[str, Any]:
    """All cases, by name."""
    return {name: asdict(case(domain, name)) for name in CASES}


def case(domain: int, name: str, seconds: float = _SECONDS) -> Cost:
    """One of the CASES."""
    mode, size, message = CASES[name]
    block = max(1, _BLOCK_BYTES // size) if size >= _LARGE else 0
    return cost(domain, mode, size, message, block=block, seconds=seconds)


def table(found: dict[str, Any]) -> Table:
    """What is printed."""
    shown = Table(title="CPU time and memory, our writer → our receiver's stream log, reliable")
    columns = ("samples", "million/s", "GB/s", "s/million: receiver", "writer", "s/GB: receiver", "writer")
    for column in (*columns, "MB: receiver", "writer"):
        shown.add_column(column, justify="right")
    for name, row in found.items():
        size = CASES[name][1]
        cells = [
            f"{row['samples'] / 1e6:.3f}",
            f"{row['samples'] * size / 1e9:.2f}",
            *(f"{row[key] * 1e6:.3f}" for key in ("receiver", "writer")),
            *(f"{row[key] * 1e9 / size:.2f}" for key in ("receiver", "writer")),
            *(f"{row[key]:.0f}" for key in ("receiver_memory", "writer_memory")),
        ]
        shown.add_row(name, *cells)
    return shown
