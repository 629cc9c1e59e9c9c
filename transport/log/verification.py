"""Scans a stream log for damage, also while a receiver appends to it and trims it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from pathlib import Path
from typing import NamedTuple

from ..errors import LogError, LogLostError
from ..limits import DAMAGE_LISTED_MAX
from ..value_classes import slotted
from .damage import Damage
from .frame import Cursor, Frame
from .log_view import Item, LogView
from .segment import METADATA, list_segments


@slotted
class Verified:
    """The valid and the damaged parts of a log; positions [base, end) were scanned."""

    path: Path
    base: int = 0
    end: int = 0
    frames: int = 0
    rows: int = 0
    #: Bytes of the valid frames, headers included.
    nbytes: int = 0
    damage: list[Damage] = field(default_factory=list)
    #: Damage beyond that which is listed.
    overflow: int = 0
    #: Why the log as a whole cannot be read, or not be resumed.
    errors: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not self.damage and not self.errors

    def add_item(self, item: Item) -> None:
        """Count an item behind all items so far."""
        if isinstance(item, Frame):
            self.frames += 1
            self.rows += item.run.count
            self.nbytes += item.length
        elif isinstance(item, Damage):
            if len(self.damage) < DAMAGE_LISTED_MAX:
                self.damage.append(item)
            else:
                self.overflow += 1


class Extent(NamedTuple):
    """Positions [base, end) that a log holds now; ``error``: why it could not be resumed."""

    base: int
    end: int
    error: str | None = None


def find_logs(directory: Path) -> Iterator[Path]:
    """``directory`` itself if it is a stream log's, otherwise the logs in it, also those with missing files."""
    if _is_log(directory):
        yield directory
        return
    for path in sorted(directory.iterdir()):
        if path.is_dir() and _is_log(path):
            yield path


def extent(view: LogView) -> Extent:
    """The positions that a log holds, taken from its segments if its records are lost. Raises LogError."""
    try:
        return Extent(view.base, view.end)
    except LogLostError as error:  # the frames may be valid all the same
        base = min((file.base for file in view.segments), default=0)
        return Extent(base, view.end, str(error))


def scan_log(view: LogView, position: int, end: int, *, bodies: bool = True) -> Iterator[Item]:
    """The items in positions [position, end) of a log, without those trimmed meanwhile. Raises LogError."""
    while position < end:
        try:
            for item in view.items(Cursor(position), Cursor(end), bodies=bodies):
                position = item.stop
                yield item
            return
        except LogLostError:
            base = view.base
            if base <= position:
                raise
            position = base


def verify(
    view: LogView, *, bodies: bool = True, on_frame: Callable[[Frame], None] | None = None
) -> Verified:
    """Verify the frames of one log, up to its current end; without ``bodies`` only their headers.

    The valid frames are handed to ``on_frame``.
    """
    found = Verified(view.directory)
    try:
        found.base, found.end, error = extent(view)
        if error is not None:
            found.errors.append(error)
        for item in scan_log(view, found.base, found.end, bodies=bodies):
            found.add_item(item)
            if on_frame is not None and isinstance(item, Frame):
                on_frame(item)
    except LogError as failure:
        if str(failure) not in found.errors:
            found.errors.append(str(failure))
    return found


def _is_log(directory: Path) -> bool:
    return (directory / METADATA).exists() or bool(list_segments(directory))
