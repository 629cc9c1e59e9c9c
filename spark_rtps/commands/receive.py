"""``spark-rtps receive``: a receiver service, which outlives the queries that read its logs."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console, RenderableType

    from ..receiver_service.config import ReceiverServiceConfig
    from ..receiver_service.rates import Rates
    from ..receiver_service.supervisor import Supervisor

_SHOW_SECONDS = 1.0


def receive(
    file: Annotated[
        Path,
        typer.Argument(help="TOML: the directory, who may read, and the subscriptions.", show_default=False),
    ],
    check: Annotated[bool, typer.Option("--check", help="Check the file, and receive nothing.")] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Lines in a terminal too, instead of the table.")
    ] = False,
) -> None:
    """Receive the subscriptions of FILE until TERM or Ctrl-C; HUP reads it again.

    Samples go into stream logs below `directory`, where queries with the option `receivers` read them, now or later.
    In a terminal a table shows what arrives.
    """
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if check:
        from ..receiver_service.config import read_config

        _print_check(Console(highlight=False, soft_wrap=True), read_config(file))
        return
    live = console.is_terminal and not plain
    _log_to(console, live=live)
    from ..receiver_service.service import Service

    service = Service(file)
    left = _run_live(service.run, console) if live else service.run()
    for sentence in left:
        typer.echo(f"left: {sentence}", err=True)
    typer.echo("ended; " + ("unread samples stay in the logs" if left else "nothing is left"), err=True)


def _log_to(console: Console, *, live: bool) -> None:
    from ..transport.receiver.log_lines import log_lines_to

    if live:
        from rich.logging import RichHandler

        log_lines_to(RichHandler(console=console), "%(message)s")
    else:
        log_lines_to(logging.StreamHandler())
        logging.getLogger("spark_rtps.receiver_service").setLevel(logging.INFO)


def _print_check(console: Console, config: ReceiverServiceConfig) -> None:
    from rich.markup import escape

    found = (*config.subscriptions, *config.patterns)
    for each in found:
        kept = each.settings.retention
        console.print(
            escape(
                f"{each.name}: topic {each.settings.topic}, domain {each.settings.domain}, keeps by {kept}"
            )
        )
        for warning in each.settings.warnings:
            console.print(escape(f"{each.name}: {warning}"), style="yellow")
    for warning in config.warnings:
        console.print(escape(warning), style="yellow")
    console.print(
        escape(f"{config.file}: {len(found)} subscriptions, served at {config.address}:{config.port}")
    )


def _run_live(run: Callable[[Callable[[Supervisor], None]], list[str]], console: Console) -> list[str]:
    from rich.live import Live

    from ..receiver_service.rates import Rates

    rates = Rates()
    shown_at = 0.0
    with Live(console=console, auto_refresh=False, transient=True) as screen:

        def show(supervisor: Supervisor) -> None:
            nonlocal shown_at
            now = time.monotonic()
            if now - shown_at >= _SHOW_SECONDS:
                shown_at = now
                screen.update(_table(supervisor, rates), refresh=True)

        return run(show)


def _table(supervisor: Supervisor, rates: Rates) -> RenderableType:
    from .tables import NOTHING, size, table

    where = "" if supervisor.port is None else f" at {supervisor.config.address}:{supervisor.port}"
    columns = ("subscription", "topic", "state", "writers", "samples/s", "log", "groups behind")
    rows = [
        (
            row.name,
            row.topic,
            row.error or row.state,
            str(row.writers),
            f"{row.rate:,.0f}",
            size(row.nbytes),
            ", ".join(f"{each.group} {size(each.nbytes)}" for each in row.behind) or NOTHING,
        )
        for row in rates.rows(supervisor.keepers, time.monotonic_ns())
    ]
    return table(f"receiving{where}", columns, rows, numbers=("writers", "samples/s", "log"))
