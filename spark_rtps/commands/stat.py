"""``spark-rtps stat``: what the sources and sinks of this host are doing."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .logs import LogDirs, directories
from .look import Look
from .network import seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..monitoring.stream_counters import Stream


def stat(
    log_dir: LogDirs = None,
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
    """Show the sources and sinks on this host: samples, rates, backlog, positions, losses, repairs, statuses."""
    period = None if watch is None else seconds(watch, "--watch")
    if period == 0:
        raise typer.BadParameter("the interval must be longer than zero, such as 2s", param_hint="--watch")
    with contextlib.suppress(KeyboardInterrupt):
        looks = _looks(directories(log_dir), period)
        if as_json:
            for look in looks:
                found = _as_json(look, time.time_ns(), everything=everything)
                typer.echo(json.dumps(found, indent=2 if period is None else None))
        else:
            _show(looks, everything=everything, system=system, live=period is not None)


def look_around(directories: list[Path], now: int, before: Look | None = None) -> Look:
    """The streams in the directories at ``now`` (CLOCK_MONOTONIC, ns); files of dead sinks are removed."""
    from ..monitoring.publisher_counters import FOLDER, remove_stale
    from ..monitoring.stream_counters import read_streams

    for directory in directories:
        remove_stale(directory / FOLDER)
    streams = read_streams(directories, now=now)
    if before is None or now <= before.at:
        return Look(directories, now, streams)
    samples = _rates(before, streams, now, lambda stream: stream.samples)
    nbytes = _rates(before, streams, now, lambda stream: stream.nbytes)
    return Look(directories, now, streams, samples, nbytes)


def _looks(directories: list[Path], period: float | None) -> Iterator[Look]:
    """A single look, or one after each ``period`` without end."""
    look = look_around(directories, time.monotonic_ns())
    yield look
    while period is not None:
        time.sleep(period)
        look = look_around(directories, time.monotonic_ns(), look)
        yield look


def _rates(
    before: Look, streams: Sequence[Stream], now: int, count: Callable[[Stream], int]
) -> dict[Path, float]:
    """The increase per second, without streams that are new or whose count began anew."""
    elapsed = (now - before.at) / 1e9
    then = {stream.path: count(stream) for stream in before.streams}
    more = {s.path: count(s) - then[s.path] for s in streams if s.path in then}
    return {path: n / elapsed for path, n in more.items() if n >= 0}


# --- for people -------------------------------------------------------------------------------------


def _show(looks: Iterator[Look], *, everything: bool, system: bool, live: bool) -> None:
    """Print the tables. On a terminal a live table fills the screen, and its last state is printed at the end."""
    from rich.console import Console, Group
    from rich.live import Live

    from .stat_tables import tables
    from .tables import show

    console = Console()
    if not (live and console.is_terminal):
        for look in looks:
            show(console, tables(look, everything=everything, system=system))
        return
    last: Look | None = None
    try:
        with Live(console=console, auto_refresh=False, screen=True) as screen:
            for last in looks:
                screen.update(Group(*tables(last, everything=everything, system=system)), refresh=True)
    finally:
        if last is not None:
            show(console, tables(last, everything=everything, system=system))


# --- for programs -----------------------------------------------------------------------------------


def _as_json(look: Look, wall: int, *, everything: bool) -> dict[str, Any]:
    from ..monitoring.report_json import streams_as_json

    return streams_as_json(
        look.shown(everything=everything),
        look.directories,
        wall,
        rates=look.rates,
        byte_rates=look.byte_rates,
    )
