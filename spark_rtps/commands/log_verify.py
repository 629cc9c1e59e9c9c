"""``spark-rtps log verify``: the checksums of stream logs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from .log_reading import existing, reading
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
    from collections.abc import Sequence

    from rich.console import RenderableType

    from ..transport.log.damage import Damage
    from ..transport.log.verification import Verified


def verify(
    log: Annotated[
        str,
        typer.Argument(
            metavar="LOG",
            help="The directory of a stream log, or of several such as log.dir; with --receiver as of `log show`.",
        ),
    ],
    receiver: Receiver = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Verify the checksums of all frames; the exit code is 1 if anything is damaged. The log may be in use."""
    from ..transport.log.log_view import LogView
    from ..transport.log.verification import find_logs, verify

    if receiver is not None:
        from ..serving.client.receiver_reports import ReceiverReports

        (served,) = served_at([receiver], Access(token_file, ca, certificate, key))
        with recorded(served, log) as (one, _):
            asked = ReceiverReports(served, patience=PATIENCE_SECONDS)
            found = [asked.walk(one.log, one.directory, bodies=True).verified]
    else:
        directory = existing(log)
        with reading(directory):
            found = [verify(LogView(path)) for path in find_logs(directory.absolute())]
    if as_json:
        typer.echo(json.dumps([verified_as_json(one) for one in found], indent=2))
    else:
        _print(log, found)
    if not all(one.is_sound for one in found):
        raise typer.Exit(1)


def verified_as_json(log: Verified) -> dict[str, object]:
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


def damage_tables(logs: Sequence[Verified]) -> list[RenderableType]:
    """The damaged places of all logs in one table, and why a log as a whole cannot be read or resumed."""
    from .tables import NOTHING, sentence, table

    parts: list[RenderableType] = []
    found = [damage for log in logs for damage in log.damage]
    if found:
        columns = ("position", "bytes", "samples", "first\nnumber", "writer\nlog")
        rows = [
            (
                str(damage.position),
                str(damage.nbytes),
                lost_samples(damage),
                NOTHING if damage.first_sn is None else str(damage.first_sn),
                f"{damage.writer or NOTHING}\n{damage.path.name}",
            )
            for damage in found
        ]
        parts.append(table("damaged", columns, rows, numbers=columns[:4]))
    parts += [
        sentence(f"{log.overflow} more places are damaged in {log.path}") for log in logs if log.overflow
    ]
    return parts + [sentence(error) for log in logs for error in log.errors]


def lost_samples(damage: Damage) -> str:
    """The number of samples; a question mark if it is not known."""
    return "?" if damage.rows is None else str(damage.rows)


def _print(where: str, logs: list[Verified]) -> None:
    from .tables import output, sentence, show, size, table

    if not logs:
        show(output(), [sentence(f"there is no stream log in {where}")])
        return
    columns = ("frames", "samples", "size", "damaged\nplaces", "log")
    rows = [
        (
            str(log.frames),
            str(log.rows),
            size(log.nbytes),
            str(len(log.damage) + log.overflow + len(log.errors)),
            log.path.name,
        )
        for log in logs
    ]
    show(output(), [table("verified", columns, rows, numbers=columns[:4]), *damage_tables(logs)])
