"""What a receiver has in the log of a subscription, and what comes to it, for ``spark-rtps echo``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import typer

from .receivers import PATIENCE_SECONDS, recorded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..serving.fetched_log import FetchedLog
    from ..serving.served import Served
    from ..serving.standing import SubscriptionInfo
    from ..transport.log.log_view import LogView
    from ..transport.structure import Guid
    from ..transport.types.model import Struct
    from ..transport.wire.samples import Run

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_POLL_SECONDS: Final = 5.0
_DIGITS_MAX: Final = 18


def recorded_runs(
    served: Served, name: str, start: str, deadline: float | None
) -> Iterator[tuple[Run, SubscriptionInfo, Struct | None]]:
    """The runs of a subscription from ``start`` on until the deadline, each with the type that its writer told."""
    from ..serving.receiver_client import ReceiverClient
    from ..transport.log.frame import Cursor
    from ..transport.log.log_view import LogView

    client = ReceiverClient(served, patience=PATIENCE_SECONDS)
    with recorded(served, name) as (one, fetched):
        view, types = LogView.over(fetched), _Types(fetched)
        position = _start(view, start)
        while True:
            end = client.tail(one.log, after=position, wait=_left(deadline)).position
            if end > position:
                for frame in view.frames(Cursor(position), Cursor(end)):
                    yield frame.run, one, types.of(frame.run.writer)
                position = end
            if not _left(deadline):
                return


def checked_start(text: str) -> str:
    """Where to begin: earliest, latest, or a position. Raises a usage error."""
    is_position = text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
    if not (is_position or text in (EARLIEST, LATEST)):
        said = f"{text!r} is no place in a log; write {EARLIEST}, {LATEST} or a position"
        raise typer.BadParameter(said, param_hint="--from")
    return text


class _Types:
    """The types that the writers of a log told. They are asked for again when a writer is new."""

    def __init__(self, fetched: FetchedLog) -> None:
        self._fetched = fetched
        self._known: dict[Guid, Struct | None] = {}

    def of(self, writer: Guid) -> Struct | None:
        if writer not in self._known:
            self._known.update(self._fetched.writer_types().by_writer)
            self._known.setdefault(writer, None)
        return self._known[writer]


def _start(view: LogView, start: str) -> int:
    if start == EARLIEST:
        return view.base
    return view.end if start == LATEST else int(start)


def _left(deadline: float | None) -> float:
    """Seconds for which the next request may wait."""
    return _POLL_SECONDS if deadline is None else max(0.0, min(_POLL_SECONDS, deadline - time.monotonic()))
