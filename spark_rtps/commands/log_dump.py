"""``spark-rtps log dump``: the samples of a stream log, one line each."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..transport.value_classes import value
from .log_reading import AsJsonLines, From, Log, To, items, opened
from .receivers import Access, Ca, Certificate, Key, Receiver, TokenFile
from .tables import key_hashes, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..transport.log.log_view import Frame

_LINE: Final = "{:>18}  {:<35}  {:>10}  {:<29}  {:<12}  {}"
_TITLES: Final = ("position/row", "writer", "number", "source timestamp", "flags", "payload")


@value
class _Sample:
    """The columns of a line, under their names in JSON."""

    position: int
    row: int
    writer: str
    sn: int
    source_timestamp_ns: int | None
    reception_ns: int
    flags: list[str]
    key_hash: str | None
    payload: str


def dump(
    log: Log,
    start: From = None,
    stop: To = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="End after this number of samples.")
    ] = None,
    receiver: Receiver = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    as_json: AsJsonLines = False,
) -> None:
    """Print one line for each sample, with its payload in hexadecimal as it was received.

    Damage is reported on stderr; the exit code is 1 if there is any among the samples.
    """
    from ..transport.log.damage import Damage
    from ..transport.log.frame import Frame

    left, is_damaged = limit, False
    with opened(log, receiver, Access(token_file, ca, certificate, key)) as view:
        found = items(view, start, stop, bodies=True)
        if not as_json:
            typer.echo(_LINE.format(*_TITLES))
        for item in found:
            if isinstance(item, Damage):
                typer.echo(visible(str(item)), err=True)
                is_damaged = True
            elif isinstance(item, Frame):
                for sample in _samples(item, left):
                    typer.echo(json.dumps(asdict(sample)) if as_json else _text(sample))
                if left is not None:
                    left -= min(left, item.run.count)
                    if not left:
                        break
    if is_damaged:
        raise typer.Exit(1)


def _samples(frame: Frame, limit: int | None) -> Iterator[_Sample]:
    """The first samples of a frame; each payload is made when it is needed."""
    from ..transport.wire.samples import NO_TIMESTAMP

    run = frame.run if limit is None else frame.run.take_range(0, min(limit, frame.run.count))
    samples, writer = run.samples(), str(run.writer)
    columns = (run.sequence_numbers(), run.timestamps(), run.sample_flags(), key_hashes(run))
    for row, (sn, timestamp, flags, key_hash) in enumerate(zip(*columns, strict=True)):
        yield _Sample(
            frame.position,
            row,
            writer,
            int(sn),
            None if timestamp == NO_TIMESTAMP else int(timestamp),
            frame.reception,
            _names(int(flags)),
            key_hash,
            samples.payload(row).hex(),
        )


def _names(flags: int) -> list[str]:
    from ..transport.wire.samples import DISPOSED, FILTERED, KEY_ONLY, REMOVED, UNREGISTERED

    names = {
        DISPOSED: "disposed",
        UNREGISTERED: "unregistered",
        FILTERED: "filtered",
        KEY_ONLY: "key_only",
        REMOVED: "removed",
    }
    return [name for flag, name in names.items() if flags & flag]


def _text(sample: _Sample) -> str:
    from .tables import NOTHING, instant

    timestamp = sample.source_timestamp_ns
    key_hash = NOTHING if sample.key_hash is None else f"key hash {sample.key_hash}"
    return _LINE.format(
        f"{sample.position}/{sample.row}",
        sample.writer,
        sample.sn,
        NOTHING if timestamp is None else instant(timestamp),
        ",".join(sample.flags) or NOTHING,
        sample.payload or key_hash,
    )
