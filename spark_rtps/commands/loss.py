"""``spark-rtps loss``: the samples that sources of this host lost, by writer and cause."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from .logs import LogDirs
from .receivers import Access, Ca, Certificate, Collected, Key, Receivers, TokenFile, Where

if TYPE_CHECKING:
    from ..monitoring.reports import LossesOfLog
    from ..transport.log.loss_report import Loss


def loss(
    log_dir: LogDirs = None,
    receiver: Receivers = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show the samples that sources lost: by writer and cause, how often, how many, and when."""
    from ..monitoring.report_json import losses_as_json
    from ..monitoring.reports import read_losses

    collected = Where(log_dir, receiver, Access(token_file, ca, certificate, key)).collect(
        read_losses, lambda asked: asked.losses()
    )()
    collected.check()
    if as_json:
        typer.echo(
            json.dumps(collected.extended(losses_as_json(collected.entries, collected.places)), indent=2)
        )
    else:
        _print_table(collected)
    collected.end()


def _samples(loss: Loss) -> str:
    """The number of samples; a question mark if it is not known."""
    if loss.unknown:
        return f"{loss.samples} + ?" if loss.samples else "?"
    return str(loss.samples)


def _print_table(collected: Collected[LossesOfLog]) -> None:
    from .tables import moment, output, sentence, show, size, table

    found = [(loss, collected.at(report.path)) for report in collected.entries for loss in report.losses]
    if not found:
        show(output(), [sentence(collected.nothing("no loss"))])
        return
    found.sort(key=lambda pair: -pair[0].last_ns)
    columns = ("topic\nwriter", "cause", "times", "samples\n~bytes", "first\nlast")
    rows = [
        (
            f"{loss.topic}{where}\n{loss.writer or 'unknown'}",
            loss.cause,
            str(loss.observations),
            f"{_samples(loss)}\n{size(loss.nbytes)}",
            f"{moment(loss.first_ns)}\n{moment(loss.last_ns)}",
        )
        for loss, where in found
    ]
    parts = [table("lost", columns, rows, numbers=columns[2:])]
    for report in collected.entries:
        if report.overflow:
            parts.append(sentence(f"{report.path} is full: {report.overflow} more losses were not recorded"))
    show(output(), parts)
