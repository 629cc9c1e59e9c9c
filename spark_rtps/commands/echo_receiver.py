"""The samples in the log of a receiver's subscription, and new ones, for ``spark-rtps echo``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

import typer

from .receivers import PATIENCE_SECONDS, recorded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..serving.client.remote_log import RemoteLog
    from ..serving.wire_format.served import Served
    from ..transport.log.log_view import LogView
    from ..transport.receiver.writer_types import AnnouncedTypes
    from ..transport.structure import Guid
    from ..transport.types.model import Struct
    from ..transport.wire.samples import Run

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_POLL_SECONDS: Final = 5.0
_DIGITS_MAX: Final = 18


class RecordedRun(NamedTuple):
    """A run of a log. ``topic`` is None where the log has one; ``announced_type``: that of its writer, if known."""

    run: Run
    topic: str | None
    type_name: str
    announced_type: Struct | None


def recorded_runs(served: Served, name: str, start: str, deadline: float | None) -> Iterator[RecordedRun]:
    """The runs of a subscription from ``start`` until the deadline; those present if the deadline is over."""
    from ..serving.client.receiver_client import ReceiverClient
    from ..transport.log.frame import Cursor
    from ..transport.log.log_view import LogView

    is_over = deadline is not None and time.monotonic() >= deadline
    # a request that waits for more of the log is answered that much later
    client = ReceiverClient(served, patience=PATIENCE_SECONDS + _POLL_SECONDS)
    with recorded(served, name) as (one, fetched):
        view, types = LogView.over(fetched), _Types(fetched)
        only_type = one.type or ""
        position = _start(view, start)
        while True:
            end = client.tail(one.log, after=position, wait=_left(deadline)).position
            if end > position:
                for frame in view.frames(Cursor(position), Cursor(end)):
                    if not (_left(deadline) or is_over):
                        return
                    announced_type = types.type_of(frame.run.writer)
                    about = announced_type.topic_of(frame.run.writer, frame.position)
                    struct = announced_type.by_writer.get(frame.run.writer)
                    yield RecordedRun(frame.run, about.topic, about.type_name or only_type, struct)
                position = end
            if not _left(deadline):
                return


def checked_start(text: str) -> str:
    """The start: earliest, latest, or a position. Raises a usage error."""
    is_position = text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
    if not (is_position or text in (EARLIEST, LATEST)):
        message = f"{text!r} is not a position in a log; write {EARLIEST}, {LATEST} or a position"
        raise typer.BadParameter(message, param_hint="--from")
    return text


class _Types:
    """The types announced by the writers of a log, which are requested again for each new writer."""

    def __init__(self, fetched: RemoteLog) -> None:
        self._fetched = fetched
        self._announced: AnnouncedTypes | None = None
        self._asked_for: set[Guid] = set()

    def type_of(self, writer: Guid) -> AnnouncedTypes:
        """The announced types, including those of this writer."""
        if self._announced is None or writer not in self._asked_for:
            self._announced = self._fetched.writer_types()
            self._asked_for.update(self._announced.by_writer, (writer,))
        return self._announced


def _start(view: LogView, start: str) -> int:
    if start == EARLIEST:
        return view.base
    return view.end if start == LATEST else int(start)


def _left(deadline: float | None) -> float:
    """Seconds for which the next request may wait."""
    return _POLL_SECONDS if deadline is None else max(0.0, min(_POLL_SECONDS, deadline - time.monotonic()))
