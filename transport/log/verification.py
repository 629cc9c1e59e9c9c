"""Verifies all frames of a stream log, also while a receiver appends to it and trims it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import LogError, LogLostError
from .damage import Damage
from .frame import Cursor
from .log_view import LogView
from .segment import METADATA, list_segments


@dataclass(slots=True)
class Verified:
    """What is sound in a log, and what is damaged; positions [base, end) were looked at."""

    path: Path
    base: int = 0
    end: int = 0
    frames: int = 0
    rows: int = 0
    #: Bytes of the sound frames, headers included.
    nbytes: int = 0
    damage: list[Damage] = field(default_factory=list)
    #: Why the log as a whole cannot be read, or not be resumed.
    errors: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not self.damage and not self.errors


def find_logs(directory: Path) -> Iterator[Path]:
    """``directory`` itself if it is a stream log's, else the logs in it; also those that lost a part of their files."""
    if _is_log(directory):
        yield directory
        return
    for path in sorted(directory.iterdir()):
        if path.is_dir() and _is_log(path):
            yield path


def verify(directory: Path) -> Verified:
    """Verify the frames of one log, up to where it ends now."""
    view, found = LogView(directory), Verified(directory)
    try:
        try:
            found.base = view.base
        except LogLostError as error:  # the frames may be sound all the same
            found.errors.append(str(error))
            found.base = min((file.base for file in list_segments(directory)), default=0)
        found.end = view.end
        position = found.base
        while position < found.end:
            position = _verify(view, position, found)
    except LogError as error:
        if str(error) not in found.errors:
            found.errors.append(str(error))
    return found


def _verify(view: LogView, position: int, found: Verified) -> int:
    """Verify on from ``position``; where to go on, because what came next was trimmed meanwhile."""
    try:
        for frame in view.frames(Cursor(position), Cursor(found.end), found.damage.append):
            found.frames += 1
            found.rows += frame.run.count
            found.nbytes += frame.length
    except LogLostError:
        base = view.base
        if base <= position:
            raise
        return min(base, found.end)
    return found.end


def _is_log(directory: Path) -> bool:
    return (directory / METADATA).exists() or bool(list_segments(directory))
