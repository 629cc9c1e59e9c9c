"""``spark-rtps log show``: what a stream log is and what it holds."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from .log_reading import Directory, Verify, one_log, reading
from .log_verify import damage_tables, verified_as_json

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

    from ..monitoring.stream_counters import Stream
    from ..transport.log.inventory import Inventory
    from ..transport.log.segment import StreamLogMetadata
    from ..transport.log.verification import Verified


@dataclass(frozen=True, slots=True)
class _Log:
    metadata: StreamLogMetadata
    verified: Verified
    inventory: Inventory
    #: The source whose receiver appends to it, or appended last; None: it is not known.
    source: Stream | None
    disk_bytes: int


def show(
    directory: Directory,
    verify: Verify = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show what a stream log is and holds: its topic, positions, segments, writers and damage, and its receiver.

    The exit code is 1 if anything is damaged.
    """
    with reading(directory):
        found = _look(one_log(directory).directory, bodies=verify)
    if as_json:
        typer.echo(json.dumps(_as_json(found), indent=2))
    else:
        _print(found)
    if not found.verified.is_sound:
        raise typer.Exit(1)


def _look(directory: Path, *, bodies: bool) -> _Log:
    from ..monitoring.stream_counters import read_source
    from ..transport.log.inventory import Inventory
    from ..transport.log.segment import read_metadata
    from ..transport.log.verification import verify

    inventory = Inventory(directory)
    return _Log(
        read_metadata(directory),
        verify(directory, bodies=bodies, on_frame=inventory.count),
        inventory,
        read_source(directory, now=time.monotonic_ns()),
        _disk_bytes(directory),
    )


def _disk_bytes(directory: Path) -> int:
    """Bytes that the files take up on the disk, whatever they hold."""
    total = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # trimmed meanwhile
                total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


def _as_json(log: _Log) -> dict[str, object]:
    from ..transport.log.segment import VERSION

    given, inventory, source = log.metadata.given, log.inventory, log.source
    segments = [asdict(segment) for segment in inventory.segments]
    for segment in segments:
        segment["first_reception_ns"] = segment.pop("first_reception")
        segment["last_reception_ns"] = segment.pop("last_reception")
    return {
        **verified_as_json(log.verified),
        "topic": given.get("topic"),
        "type": given.get("type"),
        "format": VERSION,
        "disk_bytes": log.disk_bytes,
        "receiver": None if source is None else {"pid": source.pid, "state": source.state.value},
        "segments": segments,
        "writers": [
            {
                "writer": str(writer.writer),
                "highest_sn": writer.highest_sn,
                "rows": writer.rows,
                "bytes": writer.nbytes,
            }
            for writer in inventory.writers.values()
        ],
        "writers_overflow": inventory.overflow,
    }


def _print(log: _Log) -> None:
    from rich.console import Console

    from ..transport.log.segment import VERSION
    from .tables import NOTHING, sentence, show, size, table

    given, verified, source = log.metadata.given, log.verified, log.source
    about = {
        "topic": str(given.get("topic") or NOTHING),
        "type": str(given.get("type") or NOTHING),
        "format": str(VERSION),
        "positions": f"{verified.base} to {verified.end}",
        "samples": f"{verified.rows} in {verified.frames} frames, {size(verified.nbytes)}",
        "on disk": size(log.disk_bytes),
        "receiver": NOTHING if source is None else f"process {source.pid}, {source.state.value}",
    }
    parts = [
        sentence(str(verified.path)),
        table("", ("", ""), list(about.items()), header=False),
        _segments(log.inventory),
        _writers(log.inventory),
    ]
    if log.inventory.overflow:
        parts.append(sentence(f"{log.inventory.overflow} more frames are of writers that are not listed"))
    show(Console(), [*parts, *damage_tables([verified])])


def _segments(inventory: Inventory) -> RenderableType:
    from .tables import NOTHING, moment, table

    columns = ("base", "end", "frames", "samples", "first reception", "last reception")
    rows = []
    for segment in inventory.segments:
        times = (segment.first_reception, segment.last_reception)
        numbers = map(str, (segment.base, segment.end, segment.frames, segment.rows))
        rows.append((*numbers, *(NOTHING if ns is None else moment(ns) for ns in times)))
    return table("segments", columns, rows, numbers=columns)


def _writers(inventory: Inventory) -> RenderableType:
    from .tables import size, table

    columns = ("highest\nnumber", "samples", "size", "writer")
    rows = [
        (str(writer.highest_sn), str(writer.rows), size(writer.nbytes), str(writer.writer))
        for writer in inventory.writers.values()
    ]
    return table("writers", columns, rows, numbers=columns[:3])
