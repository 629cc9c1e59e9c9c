"""``spark-rtps log publication``: what writers of this host have published, by term and frame."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..transport.errors import LogError
from .log_reading import reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from ..transport.log.publication_log import PublicationLog
    from ..transport.log.publication_scan import PlacedFrame

_SUFFIX: Final = ".publication"


def publication(
    logs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Publication logs, as files, or their directory. Default: those of all this user's writers.",
        ),
    ] = None,
    frames: Annotated[bool, typer.Option("--frames", help="Print a line for each frame, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show publication logs: terms, positions, frames and readers of writers with ipc=true or for spies.

    Writers may continue meanwhile; the log of a killed writer can be shown until the next one begins.
    """
    from ..transport.log.named_logs import directory_of_user
    from ..transport.log.publication_log import PublicationLog

    paths = _files(logs or [directory_of_user()], must_exist=logs is not None)
    shown = []
    for path in paths:
        with reading(path):
            try:
                shown.append(_look(PublicationLog.open(path), frames=frames))
            except LogError:
                if path.exists() or logs is not None:
                    raise
    if as_json:
        typer.echo(json.dumps(shown, indent=2))
    else:
        _print(shown)


def _files(given: Sequence[Path], *, must_exist: bool) -> list[Path]:
    found: list[Path] = []
    for path in given:
        if must_exist and not path.exists():
            raise typer.BadParameter(f"{str(path)!r} does not exist.", param_hint="FILE")
        found += sorted(path.glob(f"*{_SUFFIX}")) if path.is_dir() or not must_exist else [path]
    return found


def _look(log: PublicationLog, *, frames: bool) -> dict[str, Any]:
    from ..transport.log.publication_scan import first_frame, frames_of, terms_of

    metadata = log.metadata
    found = list(frames_of(log))
    kinds = Counter(frame.kind.value for frame in found)
    terms = [
        {
            "number": term.number,
            "term_id": term.term_id,
            "tail": term.tail,
            "from": term.start,
            "to": term.stop,
            "active": term.is_active,
            "frames": sum(term.start <= frame.position < term.stop for frame in found),
        }
        for term in terms_of(log)
    ]
    subscribers = [
        {
            "guid": str(slot.guid),
            "position": slot.position,
            "state": slot.state.name.lower(),
            "spy": slot.is_spy,
            "tether": slot.is_tethered,
        }
        for slot in log.subscribers()
    ]
    shown: dict[str, Any] = {
        "path": str(log.path),
        "topic": log.about.get("topic"),
        "type": log.about.get("type"),
        "domain": log.about.get("domain"),
        "writer": log.about.get("guid"),
        "process": metadata.owner.process,
        "alive": metadata.owner_lives,
        "end_of_stream": metadata.end_of_stream,
        "term_length": log.term_length,
        "initial_term_id": log.initial_term_id,
        "tail": log.position,
        **metadata.positions(),
        "first_frame": first_frame(log),
        "frames": {kind: kinds.get(kind, 0) for kind in ("data", "pad", "claim")},
        "samples": sum(frame.samples for frame in found if frame.kind.value == "data"),
        "terms": terms,
        "subscribers": subscribers,
    }
    return shown | {"each_frame": [_frame(frame) for frame in found]} if frames else shown


def _frame(frame: PlacedFrame) -> dict[str, Any]:
    return {
        "position": frame.position,
        "length": frame.length,
        "kind": frame.kind.value,
        "term_id": frame.term_id,
        "first_sn": frame.first_sn,
        "samples": frame.samples,
        "segment": frame.segment,
    }


_POSITIONS: Final = ("pub_pos", "pub_lmt", "snd_pos", "snd_lmt", "snd_bpe", "clean_pos", "unblocked")


def _print(shown: Sequence[dict[str, Any]]) -> None:
    from .tables import output, sentence, show

    console = output()
    if not shown:
        show(
            console,
            [sentence("no writer of this user on this host has a publication log that others can open")],
        )
    for log in shown:
        show(console, _parts(log))


def _parts(log: dict[str, Any]) -> list[RenderableType]:
    from .tables import sentence, size, table

    state = "written" if log["alive"] else "left behind"
    parts: list[RenderableType] = [
        sentence(f"{log['path']}"),
        sentence(
            f"topic {log['topic']} of domain {log['domain']}, writer {log['writer']}, {state} by process "
            f"{log['process']}"
        ),
        sentence(
            f"{size(log['term_length'])} a term, initial term id {log['initial_term_id']}; "
            + ("connected" if log["is_connected"] else "not connected")
        ),
        table(
            "positions",
            tuple(name.replace("_", "-") for name in _POSITIONS),
            [[str(log[name]) for name in _POSITIONS]],
            numbers=tuple(name.replace("_", "-") for name in _POSITIONS),
        ),
        _of(log, "terms", ("number", "term_id", "tail", "from", "to", "frames", "active")),
    ]
    if log["subscribers"]:
        parts.append(_of(log, "subscribers", ("position", "state", "spy", "tether", "guid")))
    if "each_frame" in log:
        columns = ("position", "length", "kind", "term_id", "first_sn", "samples", "segment")
        parts.append(_of(log, "each_frame", columns, title="frames"))
    return parts


def _of(log: dict[str, Any], name: str, columns: tuple[str, ...], *, title: str = "") -> RenderableType:
    from .tables import table

    cells = [[str(row[column]) for column in columns] for row in log[name]]
    return table(title or name, columns, cells, numbers=columns[:-1])
