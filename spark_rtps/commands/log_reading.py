"""The common part of the commands that inspect a stream log: which log, which part of it, and their errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..transport.errors import LogError, LogFormatError, LogLostError, reason
from .receivers import Access, recorded, served_at
from .tables import visible

if TYPE_CHECKING:
    from ..transport.log.log_view import Item, LogView

#: Logs that an error names.
_NAMED_MAX: Final = 3
_PATHS: Final = "`spark-rtps stat --all --json` has the paths of those that there are"

Log = Annotated[
    str,
    typer.Argument(
        metavar="LOG",
        help="The directory of a stream log; with --receiver a subscription's name or topic, or the id of its log.",
    ),
]
From = Annotated[
    int | None,
    typer.Option("--from", metavar="POSITION", help="Begin with the frame in which this position lies."),
]
To = Annotated[
    int | None,
    typer.Option("--to", metavar="POSITION", help="End before the first frame that starts here or behind."),
]
Verify = Annotated[
    bool, typer.Option("--verify", help="Verify the checksums of all bytes, not only those of headers.")
]
AsJsonLines = Annotated[bool, typer.Option("--json", help="Print JSON lines instead of text.")]


@contextmanager
def reading(directory: Path) -> Iterator[None]:
    """Errors raised inside name what to do so that the log in ``directory`` can be read."""
    try:
        yield
    except LogFormatError as error:
        raise _with_fix(
            error, directory, "look at it with the version of spark-rtps that wrote it"
        ) from error
    except LogLostError as error:
        raise _with_fix(error, directory, "restore that file: without it the log cannot be read") from error
    except LogError as error:
        if isinstance(error.__cause__, OSError):
            raise _with_fix(error, directory, _fix_of(error.__cause__)) from error
        raise
    except OSError as error:
        if error.filename is None:  # the output's reader has ended
            raise
        collected = LogError(f"cannot read {error.filename}: {reason(error)}")
        raise _with_fix(collected, directory, _fix_of(error)) from error


@contextmanager
def opened(log: str, receiver: str | None, access: Access) -> Iterator[LogView]:
    """The log in a directory of this host, or of a subscription of a receiver. Errors name what to do."""
    if receiver is not None:
        from ..transport.log.log_view import LogView

        with recorded(served_at([receiver], access)[0], log) as (_, fetched):
            yield LogView.over(fetched)
        return
    directory = existing(log)
    with reading(directory):
        yield one_log(directory)


def existing(log: str) -> Path:
    """The directory of this name. Raises a usage error."""
    directory = Path(log)
    if not directory.is_dir():
        raise typer.BadParameter(f"Directory {log!r} does not exist.", param_hint="LOG")
    return directory


def one_log(directory: Path) -> LogView:
    """The log in ``directory``. Raises LogError if there is none, or this version cannot read it."""
    from ..transport.log.log_view import LogView
    from ..transport.log.verification import find_logs

    where = directory.absolute()
    logs = list(find_logs(where))
    if where not in logs:
        named = ", ".join(map(str, logs[:_NAMED_MAX])) + (", ..." if len(logs) > _NAMED_MAX else "")
        fix = f"name one of those in it: {named}" if logs else _PATHS
        raise LogError(f"there is no stream log in {directory}; {fix}", path=directory)
    view = LogView.copying(where)  # a receiver may trim it, and overwrite it, while it is read
    _ = view.metadata  # which raises an error
    return view


def items(view: LogView, start: int | None, stop: int | None, *, bodies: bool) -> Iterator[Item]:
    """The contents of the log between the positions of --from and --to; both have to lie in it."""
    from ..transport.log.verification import extent, scan_log

    base, end, error = extent(view)
    if error is not None:
        typer.echo(visible(error), err=True)
    for option, position in (("--from", start), ("--to", stop)):
        if position is not None and not base <= position <= end:
            held = f"position {position} is not in the log, which holds positions {base} to {end}"
            raise typer.BadParameter(held, param_hint=option)
    first, last = base if start is None else start, end if stop is None else stop
    if first > last:
        raise typer.BadParameter(f"{last} lies before --from {first}", param_hint="--to")
    if start is not None:
        first = _start_of(view, first, base, end)
    return scan_log(view, first, last, bodies=bodies)


def _start_of(view: LogView, position: int, base: int, end: int) -> int:
    """Where the frame or the damage starts that contains the position; the segments before it are not scanned."""
    from ..transport.log.verification import scan_log

    bases = [file.base for file in view.segments if base <= file.base <= position]
    headers = scan_log(view, max(bases, default=base), end, bodies=False)
    return next((item.position for item in headers if item.stop > position), position)


def _with_fix(error: LogError, directory: Path, fix: str) -> LogError:
    """An error without the hints for queries."""
    return LogError(f"{error}; {fix}", path=error.path or directory)


def _fix_of(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "call this as the user of its query, or set log.mode=0750 for that"
    return _PATHS
