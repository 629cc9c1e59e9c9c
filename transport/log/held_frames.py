"""The frames of a range that a log still holds, although its beginning may be trimmed before or during the read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from ..errors import LogLostError
from .damage import Damage
from .frame import Cursor, Frame
from .log_view import LogView


class Trimmed(NamedTuple):
    """Positions [position, stop) that the log no longer holds; ``rows``: the samples in them, None if unknown."""

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
    """Like ``view.frames``, but reports trimmed positions to ``on_trimmed``, and continues with the frames behind them.

    The view must return copies: a frame's content has to be final before all frames are read. LogLostError names the
    position from which the range cannot be read for another reason.
    """
    at = start
    rows = 0 if start == (0, 0) else None  # the number of samples before, if it is known

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
    """The log's base if ``position`` is trimmed; otherwise raises the error."""
    with suppress(LogLostError):
        if (base := view.base) > position:
            return base
    raise LogLostError(str(error), path=error.path, position=position) from error
