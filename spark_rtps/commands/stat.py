"""``spark-rtps stat``: the state of the sources and sinks of this host."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .logs import LogDirs
from .network import seconds
from .receivers import Access, Ca, Certificate, Collected, Key, Receivers, TokenFile, Where
from .stat_snapshot import StatSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..monitoring.stream_counters import Stream


def stat(
    log_dir: LogDirs = None,
    receiver: Receivers = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    watch: Annotated[
        str | None,
        typer.Option(
            "--watch", "-w", help="Repeat at this interval, such as 2s, until Ctrl-C, and show rates."
        ),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", "-a", help="Also show sources that have ended and whose logs still exist."),
    ] = False,
    system: Annotated[
        bool, typer.Option("--system", "-s", help="Also show the counters of all streams together.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON instead of tables; with --watch one line each time."),
    ] = False,
) -> None:
    """Show sources and sinks: samples, rates, backlog, positions, losses, repairs, statuses."""
    period = None if watch is None else seconds(watch, "--watch")
    if period == 0:
        raise typer.BadParameter("the interval must be longer than zero, such as 2s", param_hint="--watch")
    with contextlib.suppress(KeyboardInterrupt):
        see = Where(log_dir, receiver, Access(token_file, ca, certificate, key)).collect(
            streams_here, lambda asked: asked.streams()
        )
        looks = _looks(see, period)
        if as_json:
            for look in looks:
                found = _as_json(look, time.time_ns(), everything=everything)
                typer.echo(json.dumps(found, indent=2 if period is None else None))
        else:
            _show(looks, everything=everything, system=system, live=period is not None)


def streams_here(directories: list[Path]) -> list[Stream]:
    """The streams in the directories; files of dead sinks are removed."""
    from ..monitoring.publisher_counters import remove_stale
    from ..monitoring.publisher_files import FOLDER
    from ..monitoring.stream_counters import read_streams

    for directory in directories:
        remove_stale(directory / FOLDER)
    return read_streams(directories, now=time.monotonic_ns())


def _looks(see: Callable[[], Collected[Stream]], period: float | None) -> Iterator[StatSnapshot]:
    """A single snapshot, or one after each ``period`` without end, also while receivers do not answer."""
    collected = see()
    collected.check()
    look = StatSnapshot.after(None, collected, time.monotonic_ns())
    yield look
    while period is not None:
        time.sleep(period)
        look = StatSnapshot.after(look, see(), time.monotonic_ns())
        yield look
    if collected.unreached:
        raise typer.Exit(1)


# --- for people -------------------------------------------------------------------------------------


def _show(looks: Iterator[StatSnapshot], *, everything: bool, system: bool, live: bool) -> None:
    """Print the tables. On a terminal a live table fills the screen, and its last state is printed at the end."""
    from rich.console import Group
    from rich.live import Live

    from .stat_tables import tables
    from .tables import output, show

    console = output()
    if not (live and console.is_terminal):
        for look in looks:
            show(console, tables(look, everything=everything, system=system))
        return
    last: StatSnapshot | None = None
    try:
        with Live(console=console, auto_refresh=False, screen=True) as screen:
            for last in looks:
                screen.update(Group(*tables(last, everything=everything, system=system)), refresh=True)
    finally:
        if last is not None:
            show(console, tables(last, everything=everything, system=system))


# --- for programs -----------------------------------------------------------------------------------


def _as_json(look: StatSnapshot, wall: int, *, everything: bool) -> dict[str, Any]:
    from ..monitoring.report_json import streams_as_json

    streams, places = look.shown(everything=everything), look.collected.places
    found = streams_as_json(streams, places, wall, rates=look.rates, byte_rates=look.byte_rates)
    return look.collected.extended(found)
