"""``spark-rtps loss``: the samples that sources of this host lost, by writer."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from .logs import LogDirs, directories

if TYPE_CHECKING:
    from pathlib import Path

    from ..monitoring.reports import LossesOfLog
    from ..transport.log.loss_report import Loss


def loss(
    log_dir: LogDirs = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show the samples that sources on this host lost: by writer, how often, how many, first and last time."""
    from ..monitoring.reports import read_losses

    where = directories(log_dir)
    reports = read_losses(where)
    if as_json:
        typer.echo(json.dumps(_as_json(where, reports), indent=2))
    else:
        _print_table(where, reports)


def _as_json(where: list[Path], reports: list[LossesOfLog]) -> dict[str, object]:
    return {
        "looked_in": [str(directory) for directory in where],
        "reports": [
            {
                "path": str(report.path),
                "topic": report.topic,
                "losses": [_loss_as_json(loss) for loss in report.losses],
                "overflow": report.overflow,
            }
            for report in reports
        ],
    }


def _loss_as_json(loss: Loss) -> dict[str, object]:
    found = {**asdict(loss), "writer": str(loss.writer)}
    found["bytes"] = found.pop("nbytes")
    return found


def _print_table(where: list[Path], reports: list[LossesOfLog]) -> None:
    from rich.console import Console

    from .tables import moment, sentence, show, size, table

    found = sorted((loss for report in reports for loss in report.losses), key=lambda loss: -loss.last_ns)
    if not found:
        looked = ", ".join(map(str, where))
        show(Console(), [sentence(f"no loss; searched {looked} (--log-dir adds directories)")])
        return
    columns = ("topic\nwriter", "times", "samples\n~bytes", "first\nlast")
    rows = [
        (
            f"{loss.topic}\n{loss.writer}",
            str(loss.observations),
            f"{loss.samples}\n{size(loss.nbytes)}",
            f"{moment(loss.first_ns)}\n{moment(loss.last_ns)}",
        )
        for loss in found
    ]
    parts = [table("lost", columns, rows, numbers=columns[1:])]
    for report in reports:
        if report.overflow:
            parts.append(sentence(f"{report.path} is full: {report.overflow} more were not recorded"))
    show(Console(), parts)
