"""Files that several processes map: each file is complete before it gets its name."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ..errors import LogError
from .permissions import create_file
from .segment import allocate, refusal
from .small_file import UNFINISHED

_T = TypeVar("_T")


def unfinished(path: Path) -> Path:
    """The path of a file until it gets its name."""
    return path.with_name(path.name + UNFINISHED)


def create_mapped(
    path: Path, size: int, fill: Callable[[mmap.mmap], _T], *, what: str, mode: int | None = None
) -> _T:
    """Make a file of ``size`` zeros, let ``fill`` fill its mapping, give it its name, and return the result of
    ``fill``.

    Without ``mode`` the mode follows the folder's. An older file of that name is replaced; a process that has mapped it
    keeps it. Raises LogFullError for a full disk, LogError if the file cannot be made; no file is left behind then.
    """
    made_at = unfinished(path)
    try:
        fd = create_file(made_at, os.O_RDWR | os.O_TRUNC, mode=mode)
        try:
            allocate(fd, path.parent, size)
            made = fill(mmap.mmap(fd, size))
            os.replace(made_at, path)
        except BaseException:
            os.unlink(made_at)
            raise
        finally:
            os.close(fd)
    except OSError as error:
        raise refusal(error, f"create {what}", path=path) from error
    return made


def map_file(path: Path, least: int, *, what: str, otherwise: str, writable: bool = True) -> mmap.mmap:
    """Map the file that another process made; LogError with the text ``otherwise`` if it is shorter than ``least``."""
    try:
        fd = os.open(path, os.O_RDWR if writable else os.O_RDONLY)
        try:
            size = os.fstat(fd).st_size
            if size < least:
                raise LogError(otherwise, path=path)
            return mmap.mmap(fd, size, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
        finally:
            os.close(fd)
    except OSError as error:
        raise refusal(error, f"open {what}", path=path) from error
