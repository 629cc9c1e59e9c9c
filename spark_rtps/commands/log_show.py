"""``spark-rtps log show``: the description and contents of a stream log."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ..transport.value_classes import value
from .log_reading import Log, Verify, opened
from .log_verify import damage_tables, verified_as_json
from .receivers import (
    PATIENCE_SECONDS,
    Access,
    Ca,
    Certificate,
    Key,
    Receiver,
    TokenFile,
    recorded,
    served_at,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

    from ..monitoring.consumer_groups import ConsumerGroup
    from ..monitoring.stream_counters import Stream
    from ..serving.wire_format.log_scan import ScannedLog
    from ..transport.log.inventory import Inventory
    from ..transport.log.segment import JSON
    from ..transport.log.verification import Verified


@value
class _Log:
    given: dict[str, JSON]
    verified: Verified
    inventory: Inventory | ScannedLog
    #: The source whose receiver appends to it, or appended last; None: it is not known.
    source: Stream | None
    disk_bytes: int
    groups: list[ConsumerGroup]


def show(
    log: Log,
    verify: Verify = False,
    receiver: Receiver = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show a stream log: its topic, positions, segments, writers and damage, and its receiver.

    The exit code is 1 if anything is damaged. A receiver scans its log itself.
    """
    if receiver is None:
        with opened(log, None, Access()) as view:
            found = _look(view.directory, bodies=verify)
    else:
        from ..serving.client.receiver_reports import ReceiverReports
        from ..transport.log.log_view import LogView

        (served,) = served_at([receiver], Access(token_file, ca, certificate, key))
        with recorded(served, log) as (one, fetched):
            asked = ReceiverReports(served, patience=PATIENCE_SECONDS)
            source = next((stream for stream in asked.streams() if stream.path == one.directory), None)
            view, scanned = LogView.over(fetched), asked.walk(one.log, one.directory, bodies=verify)
            disk_bytes = sum(file.size for file in view.segments)
            groups = asked.groups(one.log)
            found = _Log(view.metadata, scanned.verified, scanned, source, disk_bytes, groups)
    if as_json:
        typer.echo(json.dumps(_as_json(found), indent=2))
    else:
        _print(found)
    if not found.verified.is_sound:
        raise typer.Exit(1)


def _look(directory: Path, *, bodies: bool) -> _Log:
    from ..monitoring.consumer_groups import read_groups
    from ..monitoring.stream_counters import read_source
    from ..transport.log.inventory import Inventory
    from ..transport.log.log_view import LogView
    from ..transport.log.verification import verify

    view, inventory = LogView(directory), Inventory.of_log(directory)
    return _Log(
        view.metadata,
        verify(view, bodies=bodies, on_frame=inventory.count),
        inventory,
        read_source(directory, now=time.monotonic_ns()),
        _disk_bytes(directory),
        read_groups(directory),
    )


def _disk_bytes(directory: Path) -> int:
    """Bytes that the files take up on the disk, which may differ from their sizes."""
    total = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # trimmed meanwhile
                total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


def _as_json(log: _Log) -> dict[str, object]:
    from ..transport.log.segment import VERSION

    given, inventory, source = log.given, log.inventory, log.source
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
                "missing": writer.missing,
                "rows": writer.rows,
                "bytes": writer.nbytes,
            }
            for writer in inventory.writers.values()
        ],
        "writers_overflow": inventory.overflow,
        "groups": [
            {
                "name": group.name,
                "position": group.position,
                "row": group.row,
                "at_ns": group.at_ns,
                "behind_bytes": max(0, log.verified.end - group.position),
                "missed_bytes": group.missed_of(log.verified.base),
            }
            for group in log.groups
        ],
    }


def _print(log: _Log) -> None:
    from ..transport.log.segment import VERSION
    from .tables import NOTHING, output, sentence, show, size, table

    given, verified, source = log.given, log.verified, log.source
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
    if log.groups:
        parts.append(_groups(log.groups, verified.base, verified.end))
    if log.inventory.overflow:
        parts.append(sentence(f"{log.inventory.overflow} more frames are of writers that are not listed"))
    show(output(), [*parts, *damage_tables([verified])])


def _segments(inventory: Inventory | ScannedLog) -> RenderableType:
    from .tables import NOTHING, moment, table

    columns = ("base", "end", "frames", "samples", "first reception", "last reception")
    rows = []
    for segment in inventory.segments:
        times = (segment.first_reception, segment.last_reception)
        numbers = map(str, (segment.base, segment.end, segment.frames, segment.rows))
        rows.append((*numbers, *(NOTHING if ns is None else moment(ns) for ns in times)))
    return table("segments", columns, rows, numbers=columns)


def _groups(groups: list[ConsumerGroup], base: int, end: int) -> RenderableType:
    from .tables import moment, size, table

    columns = ("position", "behind", "missed", "committed", "group")
    rows = [
        (
            str(group.position),
            size(max(0, end - group.position)),
            size(group.missed_of(base)),
            moment(group.at_ns),
            group.name,
        )
        for group in groups
    ]
    return table("consumer groups", columns, rows, numbers=columns[:4])


def _writers(inventory: Inventory | ScannedLog) -> RenderableType:
    from .tables import size, table

    columns = ("highest\nnumber", "samples", "numbers\nmissing", "size", "writer")
    rows = [
        (
            str(writer.highest_sn),
            str(writer.rows),
            str(writer.missing),
            size(writer.nbytes),
            str(writer.writer),
        )
        for writer in inventory.writers.values()
    ]
    return table("writers", columns, rows, numbers=columns[:4])
