"""How long ago a receiver last ran on a stream log, whatever was done to the wall clock since.

The dates of the files tell that only as long as nobody sets the clock: on a host without a battery for its clock, which
starts in 1970, a log that ended a minute ago looks as if that were fifty years ago once the clock is set. So each
receiver writes down now and then what all clocks show. While the host runs, the one that is never set is believed; for
the time that it was off the wall clock is, within bounds, and who looks first after that writes down the sum.
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
    """A receiver runs on a log. Dates its files, too: storing to a mapped file does not on every file system, and what
    removes old files from /tmp goes by their dates."""
    _write(directory, _Unused(0, Clocks.read_now()))
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(OSError):  # it is trimmed or replaced meanwhile
                os.utime(entry.path, follow_symlinks=False)


def changed(directory: Path) -> int:
    """When a file of a log changed last, in ns since 1970. Raises OSError."""
    dates = (file.stat().st_mtime_ns for file in directory.iterdir() if not file.name.startswith(LAST_USE))
    return max(dates, default=directory.stat().st_mtime_ns)


def age(directory: Path, dated: int, now: Clocks) -> int:
    """For how many ns a log is not in use, whose files have changed at ``dated``, in ns since 1970."""
    by_date, unused = now.wall_ns - dated, _read(directory)
    if unused is None:
        return by_date
    return min(by_date, unused.until(now)) if by_date >= 0 else unused.until(now)


def keep_age(directory: Path, age: int, now: Clocks) -> None:
    """Write down how old a log is, if that is not yet known since the host was started."""
    unused = _read(directory)
    if unused is None or unused.at.boot != now.boot:
        _write(directory, _Unused(max(0, age), now))


@value
class _Unused:
    """A log was not in use for so many ``ns`` at that moment."""

    ns: int
    at: Clocks

    def until(self, now: Clocks) -> int:
        return self.ns + now.since(self.at, at_most=OFF_MAX_NS)


def _read(directory: Path) -> _Unused | None:
    """None: it is not written down, or nobody wrote this."""
    try:
        ns, *clocks = json.loads((directory / LAST_USE).read_bytes())
        return _Unused(max(0, int(ns)), Clocks.from_parts(*clocks))
    except (OSError, ValueError, TypeError, OverflowError, RecursionError):
        return None


def _write(directory: Path, unused: _Unused) -> None:
    with suppress(OSError):  # a full disk, or another user's log
        replace_text(directory / LAST_USE, json.dumps([unused.ns, *unused.at.parts]))
