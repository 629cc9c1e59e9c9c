"""Where the commands search for the sources and sinks of this host."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

LogDirs = Annotated[
    list[Path] | None,
    typer.Option("--log-dir", "-l", help="Also search here: the log.dir of queries that set it. Repeatable."),
]


def directories(given: list[Path] | None) -> list[Path]:
    """The default directory of logs, and the given ones, each once. Unreadable folders are reported on stderr."""
    from ..options import default_log_dir

    named = [default_log_dir(), *(path.absolute() for path in given or ())]
    real: dict[str, Path] = {}
    for path in named:
        real.setdefault(os.path.realpath(path), path)
    found = list(real.values())
    for directory in found:
        closed = _closed(directory)
        if closed:
            first = closed[0] if len(closed) == 1 else f"{closed[0]} and {len(closed) - 1} more"
            fix = "call this as the user of their queries, or set log.mode=0750 for those"
            typer.echo(f"{first} cannot be read by this user: {fix}", err=True)
    return found


def _closed(directory: Path) -> list[Path]:
    """The folders of logs in ``directory``, or itself, that this user may not enter."""
    try:
        folders = [Path(entry.path) for entry in os.scandir(directory) if entry.is_dir()]
    except FileNotFoundError:
        return []
    except OSError:
        return [directory]
    return sorted(folder for folder in folders if not os.access(folder, os.R_OK | os.X_OK))
