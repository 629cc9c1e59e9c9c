"""``spark-rtps log frames``: the frames of a stream log, one line each."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..transport.value_classes import value
from .log_reading import AsJsonLines, From, Log, To, Verify, items, opened
from .receivers import Access, Ca, Certificate, Key, Receiver, TokenFile

if TYPE_CHECKING:
    from ..transport.log.log_view import Item

_LINE: Final = "{:>14} {:>10} {:<8} {:>13} {:>8}  {:<29}  {:<35}  {}"
_TITLES: Final = (
    "position",
    "length",
    "kind",
    "rows before",
    "count",
    "reception",
    "writer",
    "sequence numbers",
)
_DAMAGED: Final = "damaged"


@value
class _Line:
    """The columns of a line, under their names in JSON; None: unknown, or absent."""

    position: int
    length: int
    kind: str
    rows_before: int | None = None
    count: int | None = None
    writer: str | None = None
    first_sn: int | None = None
    last_sn: int | None = None
    reception_ns: int | None = None


def frames(
    log: Log,
    start: From = None,
    stop: To = None,
    writer: Annotated[
        str | None,
        typer.Option(
            "--writer", metavar="GUID", help="Only the frames of this writer, and damage that may be its."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="End after this number of lines.")
    ] = None,
    verify: Verify = False,
    receiver: Receiver = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    as_json: AsJsonLines = False,
) -> None:
    """Print one line for each frame and for each damaged place. The exit code is 1 if there is such a place among them.

    Lines of kind pad are the ends of segments, which hold nothing.
    """
    wanted = None if writer is None else _guid(writer)
    printed, is_damaged = 0, False
    with opened(log, receiver, Access(token_file, ca, certificate, key)) as view:
        found = items(view, start, stop, bodies=verify)
        if not as_json:
            typer.echo(_LINE.format(*_TITLES))
        for item in found:
            line = _line(item)
            if wanted not in (None, line.writer) and not (line.kind == _DAMAGED and line.writer is None):
                continue
            typer.echo(json.dumps(asdict(line)) if as_json else _text(line))
            is_damaged |= line.kind == _DAMAGED
            printed += 1
            if printed == limit:
                break
    if is_damaged:
        raise typer.Exit(1)


def _guid(text: str) -> str:
    """The GUID in the form of the lines."""
    from ..transport.structure import Guid

    found = Guid.parse(text.lower())
    if found is None:
        wrong = f"{text!r} is not a GUID such as 01100142.2a5b0d5e.7f3c1a90:00000102; `log show` lists the writers'"
        raise typer.BadParameter(wrong, param_hint="--writer")
    return str(found)


def _line(item: Item) -> _Line:
    from ..transport.log.damage import Damage
    from ..transport.log.frame import Frame

    length = item.stop - item.position
    match item:
        case Frame(rows_before=rows_before, run=run):
            whose = (str(run.writer), run.first_sn, run.last_sn)
            return _Line(item.position, length, "run", rows_before, run.count, *whose, item.reception)
        case Damage(writer=writer):
            whom = None if writer is None else str(writer)
            return _Line(item.position, length, _DAMAGED, None, item.rows, whom, item.first_sn)
    return _Line(item.position, length, "pad", item.rows_before, 0)


def _text(line: _Line) -> str:
    from .tables import NOTHING, instant

    return _LINE.format(
        line.position,
        line.length,
        line.kind,
        NOTHING if line.rows_before is None else line.rows_before,
        "?" if line.count is None else line.count,
        NOTHING if line.reception_ns is None else instant(line.reception_ns),
        line.writer or NOTHING,
        NOTHING if line.first_sn is None else f"{line.first_sn}..{line.last_sn or ''}",
    )
