"""What the commands that look at this host's sources and sinks have in common: where they look."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

LogDirs = Annotated[
    list[Path] | None,
    typer.Option("--log-dir", "-l", help="Look here too: the log.dir of queries that set it. Repeatable."),
]


def directories(given: list[Path] | None) -> list[Path]:
    """The default directory of logs, and those that were named."""
    from ..datasource.options import default_log_dir

    return list(dict.fromkeys([default_log_dir(), *(path.absolute() for path in given or ())]))
