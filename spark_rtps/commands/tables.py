"""The output of the commands: tables, sizes, times and key hashes."""

from __future__ import annotations

import datetime
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console, RenderableType

    from ..transport.wire.samples import Run

NOTHING: Final = "-"
#: The width if the output is not a terminal: whoever reads it can wrap the lines.
_WIDE: Final = 10_000
_REPLACED: Final = "\N{REPLACEMENT CHARACTER}"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def output() -> Console:
    """The console for results: as wide as the terminal, or as the widest line if there is none."""
    from rich.console import Console

    made = Console()
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = _WIDE
    return made


def table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[str] = (),
    header: bool = True,
) -> RenderableType:
    """A table; the columns ``numbers`` are aligned to the right and never broken."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    style = box.SIMPLE_HEAD if header else box.SIMPLE
    made = Table(title=title, title_justify="left", box=style, show_header=header, pad_edge=False)
    for column in columns:
        if column in numbers:
            made.add_column(column, justify="right", no_wrap=True)
        else:
            made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(escape(visible(cell)) for cell in row))
    return made


def sentence(text: str) -> RenderableType:
    """A line of text that is not wrapped."""
    from rich.text import Text

    return Text(visible(text), overflow="ignore", no_wrap=True)


def visible(text: str) -> str:
    """The text without control characters, or characters that affect their neighbours; lines stay lines.

    Names of topics and types, and texts of other hosts, may contain any characters.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _REPLACED for c in text)


def show(console: Console, parts: Sequence[RenderableType]) -> None:
    """Print the parts one below the other."""
    from rich.text import Text

    for part in parts:
        console.print(part, soft_wrap=isinstance(part, Text), highlight=False)


def size(count: float) -> str:
    """Bytes in a readable unit: ``1.5 KiB``."""
    shown, unit = float(count), 0
    while shown >= 1024 and unit < len(_UNITS) - 1:
        shown, unit = shown / 1024, unit + 1
    return f"{shown:.{1 if unit and shown < 100 else 0}f} {_UNITS[unit]}"


def duration(ns: int) -> str:
    """Nanoseconds in a readable unit: ``120 us``."""
    for unit, name in ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")):
        if ns >= unit:
            return f"{ns / unit:.{1 if ns < 100 * unit else 0}f} {name}"
    return f"{ns} ns"


def moment(ns: int) -> str:
    """Nanoseconds since 1970 as the local time."""
    return datetime.datetime.fromtimestamp(ns // 1_000_000_000).strftime("%Y-%m-%d %H:%M:%S")


def instant(ns: int) -> str:
    """Nanoseconds since 1970 as the local time, to the nanosecond."""
    return f"{moment(ns)}.{ns % 1_000_000_000:09d}"


def fields(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in found.items())


def key_hashes(run: Run) -> list[str | None]:
    """The key hash of each sample, which alone identifies the instance where there is no payload; None: it has none."""
    from ..transport.wire.samples import HAS_KEY_HASH

    hashes = run.key_hashes()
    if hashes is None:
        return [None] * run.count
    known = (run.sample_flags() & HAS_KEY_HASH) != 0
    if run.index is None:
        known[:] = True  # in a uniform run every sample has one
    return [h.tobytes().hex() if k else None for h, k in zip(hashes, known, strict=True)]
