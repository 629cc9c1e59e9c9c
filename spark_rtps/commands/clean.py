"""``spark-rtps clean``: lists or removes logs of ended queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .logs import LogDirs, directories
from .network import seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..transport.log.log_retention import EndedLog


def clean(
    log_dir: LogDirs = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            help="Also logs that have not changed for this long, such as 2d; 0s: all that have ended. "
            "Default: that of log.retention.",
        ),
    ] = None,
    max_bytes: Annotated[
        str | None,
        typer.Option(
            "--max-bytes",
            help="Also the oldest logs until what has ended takes no more than this in each directory, such as 10GiB.",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", "--force", "-f", help="Remove them, instead of only naming them.")
    ] = False,
) -> None:
    """Name the logs of ended queries that may go, and why; with --yes remove them. No log that is in use is touched.

    A query cannot go on from its checkpoint once its log is removed.
    """
    from ..options.table import BY_KEY
    from ..transport.log.host_clocks import Clocks
    from ..transport.log.log_retention import ended_logs, given_up, remove_log
    from ..transport.structure import NANOSECONDS

    kept = BY_KEY["log.retention"].default if older_than is None else older_than
    period = int(seconds(kept or "", "--older-than") * NANOSECONDS)
    nbytes = None if max_bytes is None else _size(max_bytes)
    now = Clocks.read_now()
    rows: list[tuple[EndedLog, str, bool]] = []
    left: list[EndedLog] = []
    for directory in directories(log_dir):
        logs = ended_logs(directory, now=now)
        found = given_up(logs, period=period, nbytes=nbytes)
        rows += [
            (log, why, not yes or remove_log(log.directory, why, changed=log.changed)) for log, why in found
        ]
        given = {log.directory for log, _ in found}
        left += [log for log in logs if log.directory not in given]
    _print(rows, left, is_done=yes)
    if not all(gone for _, _, gone in rows):
        raise typer.Exit(1)


def _size(text: str) -> int:
    from ..options import texts

    try:
        return texts.size(text.strip())
    except ValueError:
        message = f"{text!r} is not a size; write it as 512MiB or 10GiB"
        raise typer.BadParameter(message, param_hint="--max-bytes") from None


def _print(rows: Sequence[tuple[EndedLog, str, bool]], left: Sequence[EndedLog], *, is_done: bool) -> None:
    from .tables import moment, output, sentence, show, size, table

    parts = []
    if rows:
        columns = ("log", "on disk", "last change", "why")
        cells = [
            (
                str(log.directory),
                size(log.nbytes),
                moment(log.changed),
                why if gone else f"{why}; it is in use again, or cannot be removed by this user",
            )
            for log, why, gone in rows
        ]
        parts.append(table("removed" if is_done else "to remove", columns, cells, numbers=columns[1:3]))
    total = size(sum(log.nbytes for log, _, gone in rows if gone))
    count = sum(gone for _, _, gone in rows)
    logs = "1 log" if count == 1 else f"{count} logs"
    if is_done:
        parts.append(sentence(f"{logs} removed, {total}"))
    elif rows:
        parts.append(sentence(f"{logs} would be removed, {total}: --yes does it"))
    else:
        parts.append(sentence("nothing to remove"))
    if left:
        kept = f"{len(left)} more of ended queries stay, {size(sum(log.nbytes for log in left))}"
        parts.append(sentence(f"{kept}: --older-than and --max-bytes reach them"))
    show(output(), parts)
