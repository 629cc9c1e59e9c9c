"""The directory of all stream logs of a user on this host: option ``log.dir``."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ..transport.errors import OptionError


def default_log_dir() -> Path:
    """The directory of logs without ``log.dir``. Any user can guess the name, and create it first."""
    return Path(tempfile.gettempdir()) / f"spark-rtps-{os.getuid()}"


def make_log_dir(path: Path) -> None:
    """Make the directory of all logs; OptionError if it cannot be made, or the default one belongs to another user.

    A directory that the user named may belong to anyone. The default one lies where any user can create it first.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = path.lstat().st_uid
    except OSError as error:
        fix = f"cannot be made ({error.strerror}); name a directory that can be made"
        raise OptionError("log.dir", str(path), fix) from None
    if path == default_log_dir() and owner != os.getuid():
        raise OptionError("log.dir", str(path), "belongs to another user; name a directory of your own")
