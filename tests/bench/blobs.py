"""Large samples: our writer → our receiver's stream log, in bytes a second, and in CPU time for each GB.

Held against a plain Python loop of the same run, which sends and receives datagrams as large, and keeps nothing.
The first samples are not counted: a log that is trimmed as it grows has pages of its own only after a few segments.
"""

from __future__ import annotations

from typing import Any, Final

from rich.table import Table

from tests.bench import cost
from tests.bench.flow import plain

#: Bytes of a sample: as DATA that share datagrams, and in fragments.
SIZES: Final = (8 << 10, 64 << 10, 1 << 20, 6 << 20)
#: Bytes of a datagram.
MESSAGE: Final = 63 << 10


def blob(domain: int, size: int) -> dict[str, float]:
    """GB/s of samples of ``size`` bytes, and seconds of CPU time for each GB of the receiver and of the writer."""
    found = cost.large(domain, size)
    return {
        "GB/s": found.samples * size / 1e9,
        "receiver": found.receiver * 1e9 / size,
        "writer": found.writer * 1e9 / size,
    }


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
