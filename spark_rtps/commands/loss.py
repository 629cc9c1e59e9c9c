"""``spark-rtps loss``: the samples that sources of this host lost, by writer and cause."""

from __future__ import annotations

import json
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
    """Show the samples that sources on this host lost: by writer and cause, how often, how many, and when."""
    from ..monitoring.report_json import losses_as_json
    from ..monitoring.reports import read_losses

    where = directories(log_dir)
    reports = read_losses(where)
    if as_json:
        typer.echo(json.dumps(losses_as_json(reports, where), indent=2))
    else:
        _print_table(where, reports)


def _samples(loss: Loss) -> str:
    """How many samples; what is not known is a question mark."""
    if loss.unknown:
        return f"{loss.samples} + ?" if loss.samples else "?"
    return str(loss.samples)


def _print_table(where: list[Path], reports: list[LossesOfLog]) -> None:
    from rich.console import Console

    from .tables import moment, sentence, show, size, table

    found = sorted((loss for report in reports for loss in report.losses), key=lambda loss: -loss.last_ns)
    if not found:
        looked = ", ".join(map(str, where))
        show(Console(), [sentence(f"no loss; searched {looked} (--log-dir adds directories)")])
        return
    columns = ("topic\nwriter", "cause", "times", "samples\n~bytes", "first\nlast")
    rows = [
        (
            f"{loss.topic}\n{loss.writer or 'unknown'}",
            loss.cause,
            str(loss.observations),
            f"{_samples(loss)}\n{size(loss.nbytes)}",
            f"{moment(loss.first_ns)}\n{moment(loss.last_ns)}",
        )
        for loss in found
    ]
    parts = [table("lost", columns, rows, numbers=columns[2:])]
    for report in reports:
        if report.overflow:
            parts.append(sentence(f"{report.path} is full: {report.overflow} more were not recorded"))
    show(Console(), parts)
