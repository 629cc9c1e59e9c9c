"""How long ago a receiver last ran on a stream log, independent of changes to the wall clock.

The dates of the files tell that only while the clock is not set: on a host without a battery for its clock, which
starts in 1970, a log that ended a minute ago looks fifty years old once the clock is set. So each receiver stores the
values of all clocks from time to time. While the host runs, the clock that is never set counts; for its downtime the
wall clock counts, within bounds, and the first process that checks after that stores the sum.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..value_classes import value
from .host_clocks import OFF_MAX_NS, Clocks
from .small_file import replace_text

LAST_USE: Final = "last_use"
#: A receiver notes that its log is in use as often as this.
IN_USE_NS: Final = 300_000_000_000


def note_in_use(directory: Path) -> None:
    """Note that a receiver runs on a log. Update the dates of its files too: storing to a mapped file does not on every
    file system, and programs that remove old files from /tmp go by their dates."""
    _write(directory, _Unused(0, Clocks.read_now()))
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(OSError):  # the file was trimmed or replaced meanwhile
                os.utime(entry.path, follow_symlinks=False)


def changed(directory: Path) -> int:
    """When a file of a log last changed, in ns since 1970. Raises OSError."""
    dates = (file.stat().st_mtime_ns for file in directory.iterdir() if not file.name.startswith(LAST_USE))
    return max(dates, default=directory.stat().st_mtime_ns)


def age(directory: Path, dated: int, now: Clocks) -> int:
    """For how many ns a log is not in use, whose files changed at ``dated``, in ns since 1970."""
    by_date, unused = now.wall_ns - dated, _read(directory)
    if unused is None:
        return by_date
    return min(by_date, unused.until(now)) if by_date >= 0 else unused.until(now)


def keep_age(directory: Path, age: int, now: Clocks) -> None:
    """Store the age of a log, unless it is stored already since the host was started."""
    unused = _read(directory)
    if unused is None or unused.at.boot != now.boot:
        _write(directory, _Unused(max(0, age), now))


@value
class _Unused:
    """A log had been unused for ``ns`` at a moment."""

    ns: int
    at: Clocks

    def until(self, now: Clocks) -> int:
        return self.ns + now.since(self.at, at_most=OFF_MAX_NS)


def _read(directory: Path) -> _Unused | None:
    """None: it is not stored, or invalid."""
    try:
        ns, *clocks = json.loads((directory / LAST_USE).read_bytes())
        return _Unused(max(0, int(ns)), Clocks.from_parts(*clocks))
    except (OSError, ValueError, TypeError, OverflowError, RecursionError):
        return None


def _write(directory: Path, unused: _Unused) -> None:
    with suppress(OSError):  # a full disk, or another user's log
        replace_text(directory / LAST_USE, json.dumps([unused.ns, *unused.at.parts]))
