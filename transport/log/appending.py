"""Whether a process appends to a stream log: its one appender holds the log's lock."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from .permissions import LOCK

#: A receiver dates the files of its log as often as this: one that has not changed for twice as long may be given up.
IN_USE_NS: Final = 300_000_000_000


def is_appended_to(directory: Path) -> bool:
    """Whether a process appends to the log in ``directory``."""
    try:
        lock = os.open(directory / LOCK, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def note_in_use(directory: Path) -> None:
    """Date the files of a log now: storing to a mapped file does not on every file system, and what removes old files
    from /tmp goes by their dates."""
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(OSError):  # it is trimmed or replaced meanwhile
                os.utime(entry.path, follow_symlinks=False)
