"""The permissions of this product's folders: a file follows the folder in which it lies.

A folder has a mode of its own, whatever the umask: by default only its user may enter it. Its files get the same
permissions without the execute bits, also those that another process makes, such as a task. Lock files are the
exception: a process that can open one can hold it, so that only users who may also write get it.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..errors import LogAccessError

#: The mode of a folder that only its user may enter.
PRIVATE: Final = 0o700
#: The file that a log's one appender locks. No other user has a reason to open it, whatever the folder's mode.
LOCK: Final = "lock"
#: The suffix of other lock files.
LOCK_SUFFIX: Final = ".lock"
_PERMISSIONS: Final = 0o777
_OF_FILES: Final = 0o666
_OWNERS: Final = 0o600


def make_folder(path: Path, mode: int = PRIVATE) -> None:
    """Make a folder with this mode, and its parents by the umask; an existing folder gets the mode too."""
    path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    _set_mode(path, mode)


def create_file(path: Path, flags: int, *, mode: int | None = None) -> int:
    """Open a file, made if it is missing; its mode follows from its name and its folder's mode unless it is given.

    A symbolic link is not followed: this product makes none.
    """
    fd = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, _OWNERS)
    try:
        wanted = _mode_of(path.name, path.parent.stat().st_mode) if mode is None else mode
        found = os.fstat(fd)
        if stat.S_IMODE(found.st_mode) != wanted and found.st_uid == os.geteuid():
            os.fchmod(fd, wanted)
    except BaseException:
        os.close(fd)
        raise
    return fd


def protect(directory: Path, mode: int = PRIVATE) -> None:
    """Give a folder, which may be older than this version, this mode, and its files the modes that follow.

    Raises LogAccessError for a folder of another user, OSError if the file system refuses the mode. On file systems
    that show one owner for everything, that owner counts as this user.
    """
    owner = directory.lstat().st_uid
    if owner not in (os.geteuid(), directory.parent.stat().st_uid):
        raise LogAccessError(f"{directory} belongs to another user ({owner})", path=directory, owner=owner)
    _set_mode(directory, mode)
    with os.scandir(directory) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # another process has renamed or removed it meanwhile
                if entry.is_file(follow_symlinks=False):
                    _set_mode(Path(entry.path), _mode_of(entry.name, mode))


def _mode_of(name: str, folder: int) -> int:
    """The mode of the file of this name in a folder of mode ``folder``."""
    mode = folder & _OF_FILES
    if name == LOCK:
        return mode & _OWNERS
    if name.endswith(LOCK_SUFFIX):
        return mode & ((mode & 0o222) << 1 | 0o222)
    return mode


def _set_mode(path: Path, mode: int) -> None:
    """Set the permissions, and keep the bit by which new files inherit the folder's group (setgid)."""
    found = stat.S_IMODE(path.stat().st_mode)
    if found & _PERMISSIONS != mode:
        path.chmod(found & ~_PERMISSIONS | mode)
