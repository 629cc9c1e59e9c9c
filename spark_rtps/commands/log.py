"""``spark-rtps log``: the stream logs on this host themselves."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..transport.log.verification import Verified

app = typer.Typer(help="Look after the stream logs on this host.", no_args_is_help=True)


@app.callback()
def log() -> None:
    """Look after the stream logs on this host."""


@app.command()
def verify(
    directory: Annotated[
        Path,
        typer.Argument(
            help="A stream log, or a directory of them such as log.dir.", exists=True, file_okay=False
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Verify the checksums of all frames; the exit code is 1 if anything is damaged. Receivers may go on meanwhile."""
    from ..transport.log.verification import find_logs, verify

    found = [verify(path) for path in find_logs(directory.absolute())]
    if as_json:
        typer.echo(json.dumps([_as_json(log) for log in found], indent=2))
    else:
        _print(directory, found)
    if not all(log.is_sound for log in found):
        raise typer.Exit(1)


def _as_json(log: Verified) -> dict[str, object]:
    damage = [
        {
            **asdict(damage),
            "path": str(damage.path),
            "bytes": damage.nbytes,
            "writer": None if damage.writer is None else str(damage.writer),
        }
        for damage in log.damage
    ]
    shown = asdict(log) | {"path": str(log.path), "damage": damage}
    shown["bytes"] = shown.pop("nbytes")
    return shown


def _print(directory: Path, logs: list[Verified]) -> None:
    from rich.console import Console

    from .tables import NOTHING, sentence, show, size, table

    if not logs:
        show(Console(), [sentence(f"there is no stream log in {directory}")])
        return
    columns = ("frames", "samples", "size", "damaged\nplaces", "log")
    rows = [
        (
            str(log.frames),
            str(log.rows),
            size(log.nbytes),
            str(len(log.damage) + len(log.errors)),
            log.path.name,
        )
        for log in logs
    ]
    parts = [table("verified", columns, rows, numbers=columns[:4])]
    found = [damage for log in logs for damage in log.damage]
    if found:
        columns = ("position", "bytes", "samples", "first\nnumber", "writer\nlog")
        rows = [
            (
                str(damage.position),
                str(damage.nbytes),
                "?" if damage.rows is None else str(damage.rows),
                NOTHING if damage.first_sn is None else str(damage.first_sn),
                f"{NOTHING if damage.writer is None else damage.writer}\n{damage.path.name}",
            )
            for damage in found
        ]
        parts.append(table("damaged", columns, rows, numbers=columns[:4]))
    parts += [sentence(error) for log in logs for error in log.errors]
    show(Console(), parts)
