"""``spark-rtps errors``: the distinct errors and warnings of the processes of this host."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from .logs import LogDirs
from .receivers import Access, Ca, Certificate, Collected, Key, Receivers, TokenFile, Where

if TYPE_CHECKING:
    from ..monitoring.reports import ErrorReport


def errors(
    query: Annotated[
        str | None,
        typer.Option("--query", "-q", help="Only those of the query with this name or id, or its beginning."),
    ] = None,
    log_dir: LogDirs = None,
    receiver: Receivers = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show the distinct errors and warnings of sources and sinks: how often, first and last time."""
    from ..monitoring.report_json import errors_as_json
    from ..monitoring.reports import read_error_reports

    collected = Where(log_dir, receiver, Access(token_file, ca, certificate, key)).collect(
        read_error_reports, lambda asked: asked.errors()
    )()
    collected.check()
    if query is not None:
        collected.entries[:] = [each for each in collected.entries if _is_of(each, query)]
    if as_json:
        typer.echo(
            json.dumps(collected.extended(errors_as_json(collected.entries, collected.places)), indent=2)
        )
    else:
        _print_table(collected)
    collected.end()


def _is_of(report: ErrorReport, query: str) -> bool:
    return bool(query) and (report.query.name == query or report.query.id.startswith(query))


def _print_table(collected: Collected[ErrorReport]) -> None:
    from .tables import moment, output, sentence, show, table

    found = [(error, report) for report in collected.entries for error in report.errors]
    if not found:
        show(output(), [sentence(collected.nothing("no error and no warning"))])
        return
    found.sort(key=lambda pair: pair[0].last_ns, reverse=True)
    rows = [
        (
            str(error.count),
            f"{moment(error.first_ns)}\n{moment(error.last_ns)}",
            (f"{report.topic}\nsource {report.pid}" if report.topic else f"process {report.pid}")
            + (f"\nquery {report.query}" if report.query.id else "")
            + collected.at(report.path),
            f"{error.level}\n{error.text}",
        )
        for error, report in found
    ]
    parts = [table("errors", ("times", "first\nlast", "where", ""), rows, numbers=("times", "first\nlast"))]
    for report in collected.entries:
        if report.overflow:
            parts.append(sentence(f"{report.path} is full: {report.overflow} more errors were not recorded"))
    show(output(), parts)
