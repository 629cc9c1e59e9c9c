"""Whether a process appends to a stream log: its one appender holds the log's lock."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from .permissions import LOCK


def let_go(lock: int) -> None:
    """Close a file whose lock was held for a moment. A child forked meanwhile has a copy of the descriptor, and would
    otherwise hold the lock for as long as it lives."""
    try:
        fcntl.flock(lock, fcntl.LOCK_UN)
    finally:
        os.close(lock)


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
        let_go(lock)
    return False
