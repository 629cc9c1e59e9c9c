"""Whether an offset of a checkpoint lies in a stream log: inside what it holds, and at the beginning of a frame."""

from __future__ import annotations

from ...monitoring.decoding_report import MISPLACED, NOT_HELD
from ...transport.errors import LogLostError
from ...transport.log.frame import Cursor
from ...transport.log.log_view import LogView
from ...transport.value_classes import value


@value
class MisplacedOffset:
    """An offset at which the log cannot be read, why, and the next cursor where it can."""

    what: str
    cause: str
    place: Cursor


def find_misplacement(view: LogView, cursor: Cursor, *, base: int, tail: Cursor) -> MisplacedOffset | None:
    """The fault of an offset of a log that holds [``base``, ``tail``); None: there is none.

    Raises LogLostError for an offset beyond the end.
    """
    held = f"the stream log {view.directory} holds positions {base} to {tail.position}"
    if cursor > tail:
        raise LogLostError(
            f"{held}, but the offset of the checkpoint is {describe_cursor(cursor)}, beyond its end",
            path=view.directory,
            position=cursor.position,
        )
    if cursor.position < base:
        what = f"{held}, but the offset of the checkpoint is {describe_cursor(cursor)}, before its beginning"
        return MisplacedOffset(what, NOT_HELD, Cursor(base))
    if cursor == tail:
        return None
    here = Cursor(cursor.position)
    if not view.is_frame(cursor.position):
        what = f"the offset of the checkpoint is {describe_cursor(cursor)}, where no frame of the stream log begins"
    elif cursor.row and view.advance(here, max_rows=cursor.row, tail=tail.position) != cursor:
        what = f"the offset of the checkpoint is {describe_cursor(cursor)}, but that frame of the stream log is shorter"
    else:
        return None
    following = view.next_frame(cursor.position + 1)
    return MisplacedOffset(f"{what}; {held}", MISPLACED, Cursor(min(following, tail.position)))


def describe_cursor(cursor: Cursor) -> str:
    """A cursor in words."""
    return f"position {cursor.position}" + (f", row {cursor.row}" if cursor.row else "")
