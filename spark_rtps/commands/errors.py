"""``spark-rtps errors``: the distinct errors and warnings of the processes of this host."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from .logs import LogDirs, directories

if TYPE_CHECKING:
    from pathlib import Path

    from ..monitoring.reports import ErrorReport


def errors(
    log_dir: LogDirs = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show the distinct errors and warnings of sources and sinks on this host: how often, first and last time."""
    from ..monitoring.report_json import errors_as_json
    from ..monitoring.reports import read_error_reports

    where = directories(log_dir)
    reports = read_error_reports(where)
    if as_json:
        typer.echo(json.dumps(errors_as_json(reports, where), indent=2))
    else:
        _print_table(where, reports)


def _print_table(where: list[Path], reports: list[ErrorReport]) -> None:
    from rich.console import Console

    from .tables import moment, sentence, show, table

    found = [(error, report) for report in reports for error in report.errors]
    if not found:
        looked = ", ".join(map(str, where))
        said = f"no error and no warning; searched {looked} (--log-dir adds directories)"
        show(Console(), [sentence(said)])
        return
    found.sort(key=lambda pair: pair[0].last_ns, reverse=True)
    rows = [
        (
            str(error.count),
            f"{moment(error.first_ns)}\n{moment(error.last_ns)}",
            f"{report.topic}\nsource {report.pid}" if report.topic else f"process {report.pid}",
            f"{error.level}\n{error.text}",
        )
        for error, report in found
    ]
    parts = [table("errors", ("times", "first\nlast", "where", ""), rows, numbers=("times", "first\nlast"))]
    for report in reports:
        if report.overflow:
            parts.append(sentence(f"{report.path} is full: {report.overflow} more were not recorded"))
    show(Console(), parts)
