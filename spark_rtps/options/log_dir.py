"""The directory of all stream logs of a user on this host: option ``log.dir``."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Final

from ..transport.errors import OptionError
from ..transport.log.permissions import PRIVATE, make_folder

#: Write permissions of other users, who could replace logs in the default directory.
_NEVER: Final = 0o022


def default_log_dir() -> Path:
    """The directory of logs if ``log.dir`` is not set. Any user can guess the name and create it first."""
    return Path(tempfile.gettempdir()) / f"spark-rtps-{os.getuid()}"


def make_log_dir(path: Path, mode: int | None = None) -> None:
    """Make the directory of all logs. Raises OptionError if that fails, or if others can enter the default directory.

    ``mode`` is the mode of the logs in it, which a new directory gets too. None: any mode. A directory that the user
    named may belong to anyone and be open to anyone, because each log in it has a mode of its own. The default one is
    in a directory where any user can create it first.
    """
    try:
        try:
            path.mkdir(mode=PRIVATE, parents=True)
        except FileExistsError:
            if not path.is_dir():
                raise
        else:
            make_folder(path, (mode or PRIVATE) & ~_NEVER if path == default_log_dir() else mode or PRIVATE)
        if path == default_log_dir():
            _check_default(path, mode)
    except OSError as error:
        fix = f"cannot be made ({error.strerror}); name a directory that can be made"
        raise OptionError("log.dir", str(path), fix) from None


def _check_default(path: Path, mode: int | None) -> None:
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise OptionError("log.dir", str(path), "belongs to another user; name a directory of your own")
    bits = stat.S_IMODE(found.st_mode)
    wanted = (0o755 if mode is None else mode) & ~_NEVER
    if bits & 0o077 & ~wanted:
        fix = f"is open to other users (mode {bits:04o}): chmod 700 it, name a directory of your own"
        lifted = "" if bits & _NEVER else f", or set log.mode={bits:04o}"
        raise OptionError("log.dir", str(path), fix + lifted)
    if mode is not None and wanted & ~bits:
        path.chmod(bits | wanted)  # otherwise nobody else could enter the logs, whatever their mode
