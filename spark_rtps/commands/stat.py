"""``spark-rtps stat``: what the sources and sinks of this host are doing."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from .network import seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console, RenderableType

    from ..datasource.stream_counters import MatchedReader, Stream

_NOTHING: Final = "-"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Look:
    """The streams at one time, and how many samples a second each had since the look before."""

    directories: list[Path]
    at: int
    streams: list[Stream]
    rates: dict[Path, float]


def stat(
    log_dir: Annotated[
        list[Path] | None,
        typer.Option(
            "--log-dir", "-l", help="Look here too: the log.dir of queries that set it. Repeatable."
        ),
    ] = None,
    watch: Annotated[
        str | None,
        typer.Option("--watch", "-w", help="Look again so often, until Ctrl-C, and show rates: 2s."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also sources that ended, as far as their logs are kept.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON instead of tables; one line a look with --watch."),
    ] = False,
) -> None:
    """Show the sources and sinks on this host: samples, backlog, losses, repairs, statuses."""
    from rich.console import Console

    from ..datasource.options import default_log_dir

    directories = list(dict.fromkeys([default_log_dir(), *(path.absolute() for path in log_dir or ())]))
    period = None if watch is None else seconds(watch)
    if period == 0:
        raise typer.BadParameter("--watch needs a time to wait between two looks, as in 2s")
    console = Console()
    before: Look | None = None
    while True:
        look = look_around(directories, time.monotonic_ns(), before)
        if as_json:
            found = _as_json(look, time.time_ns(), everything=everything)
            typer.echo(json.dumps(found, indent=None if watch else 2))
        else:
            if before is not None and console.is_terminal:
                console.clear()
            _print_tables(console, look, everything=everything)
        if period is None:
            return
        before = look
        try:
            time.sleep(period)
        except KeyboardInterrupt:
            return


def look_around(directories: list[Path], now: int, before: Look | None = None) -> Look:
    """What there is in the directories, ``now`` (CLOCK_MONOTONIC, ns); leftovers of dead sinks are removed."""
    from ..datasource.publisher_counters import FOLDER, remove_stale
    from ..datasource.stream_counters import read_streams

    for directory in directories:
        remove_stale(directory / FOLDER)
    streams = read_streams(directories, now=now)
    rates = {} if before is None else _rates(before, streams, now)
    return Look(directories, now, streams, rates)


def _rates(before: Look, streams: Sequence[Stream], now: int) -> dict[Path, float]:
    """Samples a second; none for a stream that is new, or began to count anew."""
    elapsed = (now - before.at) / 1e9
    if elapsed <= 0:
        return {}
    then = {stream.path: stream.samples for stream in before.streams}
    more = {s.path: s.samples - then[s.path] for s in streams if s.path in then}
    return {path: count / elapsed for path, count in more.items() if count >= 0}


# --- for programs -----------------------------------------------------------------------------------


def _as_json(look: Look, wall: int, *, everything: bool) -> dict[str, Any]:
    from ..datasource.stream_counters import State

    streams = [s for s in look.streams if everything or s.state is not State.ENDED]
    return {
        "time_ns": wall,
        "looked_in": [str(directory) for directory in look.directories],
        "streams": [_stream_as_json(stream, look.rates.get(stream.path)) for stream in streams],
    }


def _stream_as_json(stream: Stream, rate: float | None) -> dict[str, Any]:
    return {
        "kind": stream.kind.value,
        "topic": stream.topic,
        "type": stream.type,
        "domain": stream.domain,
        "guid_prefix": stream.guid_prefix,
        "pid": stream.pid,
        "state": stream.state.value,
        "path": str(stream.path),
        "samples": stream.samples,
        "samples_per_second": None if rate is None else round(rate, 3),
        "behind_samples": stream.behind_samples,
        "behind_bytes": stream.behind_bytes,
        "peers": stream.peers,
        "lost": stream.lost,
        "rejected": stream.rejected,
        "repairs": stream.repairs,
        "back_pressure": stream.back_pressure,
        "statuses": stream.statuses,
        "drops": stream.drops,
        "readers": [{**asdict(reader), "guid": str(reader.guid)} for reader in stream.readers],
        "counters": stream.counters,
    }


# --- for people -------------------------------------------------------------------------------------


def _print_tables(console: Console, look: Look, *, everything: bool) -> None:
    from ..datasource.stream_counters import State

    streams = [s for s in look.streams if everything or s.state is not State.ENDED]
    hidden = len(look.streams) - len(streams)
    if not streams:
        where = ", ".join(str(directory) for directory in look.directories)
        _say(
            console, f"no source or sink runs on this host; looked in {where} (--log-dir looks elsewhere too)"
        )
    else:
        console.print(_streams_table(streams, look.rates))
    if hidden:
        _say(console, f"{hidden} that ended: --all shows them")
    rows = [(s.topic, _who(s), *row) for s in streams for row in _status_rows(s)]
    if rows:
        console.print(_table("statuses", ("stream", "", "status", ""), rows))
    readers = [_reader_row(s, reader) for s in streams for reader in s.readers]
    if readers:
        columns = ("topic", "sink", "reader", "acknowledged", "behind", "")
        console.print(_table("readers of the sinks", columns, readers))


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _who(stream: Stream) -> str:
    return f"{stream.kind.value} {stream.pid}"


def _streams_table(streams: Sequence[Stream], rates: Mapping[Path, float]) -> RenderableType:
    columns = ("stream", "samples", "behind", "peers", "lost", "rejected", "repairs", "held")
    rows = [_stream_row(stream, rates.get(stream.path)) for stream in streams]
    return _table("streams", columns, rows, numbers=True)


def _stream_row(stream: Stream, rate: float | None) -> tuple[str, ...]:
    domain = "" if stream.domain is None else f"domain {stream.domain}, "
    return (
        f"{stream.topic}\n{stream.kind.value}, {domain}{stream.state.value} {stream.pid}",
        str(stream.samples) if rate is None else f"{stream.samples}\n{rate:.0f}/s",
        _backlog(stream),
        *map(str, (stream.peers, stream.lost, stream.rejected, stream.repairs, stream.back_pressure)),
    )


def _backlog(stream: Stream) -> str:
    size = _size(stream.behind_bytes)
    return size if stream.behind_samples is None else f"{stream.behind_samples}\n{size}"


def _status_rows(stream: Stream) -> list[tuple[str, str]]:
    """DDS's statuses with what is not zero in them, then what was dropped."""
    from ..datasource.stream_counters import raised

    rows = [(name, _fields(fields)) for name, fields in sorted(raised(stream.counters).items())]
    drops = {reason: count for reason, count in stream.drops.items() if count}
    return [*rows, ("messages dropped", _fields(drops))] if drops else rows


def _fields(fields: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in fields.items())


def _reader_row(stream: Stream, reader: MatchedReader) -> tuple[str, ...]:
    which = (stream.topic, str(stream.pid), str(reader.guid))
    if reader.acked_sn is None:
        return *which, _NOTHING, _NOTHING, "best effort"
    behind = max(0, stream.counters.get("writer.last_sn", 0) - reader.acked_sn)
    return *which, str(reader.acked_sn), str(behind), "" if reader.active else "inactive"


def _size(count: int) -> str:
    size, unit = float(count), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.{1 if unit and size < 100 else 0}f} {_UNITS[unit]}"


def _table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = False
) -> RenderableType:
    """``numbers``: all columns but the first are."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        if numbers and column is not columns[0]:
            table.add_column(column, justify="right", no_wrap=True)
        else:
            table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    return table
