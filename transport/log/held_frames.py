"""What a log still holds of a range of which the beginning may be trimmed before it is read, or while it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from ..errors import LogLostError
from .damage import Damage
from .frame import Cursor, Frame
from .log_view import LogView


class Trimmed(NamedTuple):
    """Positions [position, stop) that the log no longer holds; ``rows`` in them, None if that is not known."""

    position: int
    stop: int
    rows: int | None


def held_frames(
    view: LogView,
    start: Cursor,
    end: Cursor,
    on_damage: Callable[[Damage], None],
    on_trimmed: Callable[[Trimmed], None],
) -> Iterator[Frame]:
    """As ``view.frames``, but what is trimmed is handed over, and the frames behind it follow.

    The view must hand out copies: what a frame holds has to be sure before all are read. LogLostError says from which
    position on the range cannot be read for another reason.
    """
    at = start
    rows = 0 if start == (0, 0) else None  # how many samples lie before, if that is known

    def passed(damage: Damage) -> None:
        nonlocal at, rows
        at, rows = Cursor(damage.stop), None
        on_damage(damage)

    while at < end:
        try:
            for frame in view.frames(at, end, passed):
                at, rows = Cursor(frame.stop), frame.rows_before + frame.run.count
                yield frame
            return
        except LogLostError as error:
            held = min(Cursor(_base(view, at.position, error)), end)
            count = None if rows is None else view.rows_before(held.position)
            if count is not None and rows is not None:
                count += held.row - rows
            on_trimmed(Trimmed(at.position, held.position, count))
            at, rows = held, None


def _base(view: LogView, position: int, error: LogLostError) -> int:
    """The log's base, if ``position`` is trimmed; else raises the error."""
    with suppress(LogLostError):
        if (base := view.base) > position:
            return base
    raise LogLostError(str(error), path=error.path, position=position) from error
