"""How often a receiver was started on its log: each start has the same GUID, and peers may know an earlier one."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Final

from ..errors import LogError, reason
from ..log.small_file import replace_text

_log = logging.getLogger("spark_rtps.receiver")

_FILE: Final = "incarnation"
#: Beyond it there are no sequence numbers for an incarnation's announcements.
_MAX: Final = 1 << 32


def next_incarnation(directory: Path) -> int:
    """0 for the first start, and one more for each later start.

    Raises LogError for a number that is there and cannot be read now: peers would take a lower one for old news.
    """
    path = directory / _FILE
    try:
        number = int(path.read_text(encoding="ascii")) + 1
        if not 0 < number < _MAX:
            raise ValueError(f"{number - 1} is no number of starts")
    except FileNotFoundError:
        number = 0
    except OSError as error:
        raise LogError(f"cannot read {path}: {reason(error)}", path=path) from error
    except ValueError as error:
        _log.warning("%s is ignored: %s", path, error)
        number = 0
    try:
        _write(path, str(number))
    except OSError as error:
        _log.warning("%s is not written: %s", path, error)
    return number


def _write(path: Path, text: str) -> None:
    """Replace the file, or where the disk has no room for another one, its text."""
    try:
        replace_text(path, text, durable=True)  # a power failure must not bring an earlier number back
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            os.ftruncate(fd, os.pwrite(fd, text.encode(), 0))
        finally:
            os.close(fd)
