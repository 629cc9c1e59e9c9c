"""Files that several processes map: made whole before they have their name, and mapped as they are."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ..errors import LogError
from .segment import allocate, refusal
from .small_file import UNFINISHED

_T = TypeVar("_T")


def create_mapped(
    path: Path, size: int, fill: Callable[[mmap.mmap], _T], *, what: str, mode: int = 0o644
) -> _T:
    """What ``fill`` makes of the mapping of a new file of ``size`` zeros, which gets its name afterwards.

    A file that is there is replaced; who mapped that one keeps it. Raises LogFullError where there is no room, LogError
    where the file cannot be made; nothing is left behind then.
    """
    unfinished = path.with_name(path.name + UNFINISHED)
    try:
        fd = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)
        try:
            allocate(fd, path.parent, size)
            made = fill(mmap.mmap(fd, size))
            os.replace(unfinished, path)
        except BaseException:
            os.unlink(unfinished)
            raise
        finally:
            os.close(fd)
    except OSError as error:
        raise refusal(error, f"create {what}") from error
    return made


def map_file(path: Path, least: int, *, what: str, otherwise: str, writable: bool = True) -> mmap.mmap:
    """The file another process made; LogError, ``otherwise``, if it has fewer than ``least`` bytes."""
    try:
        fd = os.open(path, os.O_RDWR if writable else os.O_RDONLY)
        try:
            size = os.fstat(fd).st_size
            if size < least:
                raise LogError(otherwise)
            return mmap.mmap(fd, size, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
        finally:
            os.close(fd)
    except OSError as error:
        raise refusal(error, f"open {what}") from error
