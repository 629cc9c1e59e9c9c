"""Where the commands search for the sources and sinks of this host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

LogDirs = Annotated[
    list[Path] | None,
    typer.Option("--log-dir", "-l", help="Also search here: the log.dir of queries that set it. Repeatable."),
]


def directories(given: list[Path] | None) -> list[Path]:
    """The default directory of logs, and the given ones."""
    from ..options import default_log_dir

    return list(dict.fromkeys([default_log_dir(), *(path.absolute() for path in given or ())]))
