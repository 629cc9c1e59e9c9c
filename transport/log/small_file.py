"""Small files that are replaced as a whole: a reader finds the old file or the new one, never a part of one."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from .permissions import create_file

#: The suffix of files that are not complete.
UNFINISHED: Final = ".new"


def replace_text(path: Path, text: str, *, durable: bool = False, mode: int | None = None) -> None:
    """Write ``text`` as UTF-8 to a file beside ``path``, then rename that to ``path``. Raises OSError.

    ``durable``: the file survives a power failure, complete, once this returns. ``mode``: the mode of the file from its
    creation; None: the mode of its folder.
    """
    unfinished = path.with_name(path.name + UNFINISHED)
    with open(create_file(unfinished, os.O_WRONLY | os.O_TRUNC, mode=mode), "w", encoding="utf-8") as file:
        file.write(text)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.replace(unfinished, path)
    if durable:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Write the names of a folder's files to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # file systems that cannot sync folders
            raise
    finally:
        os.close(descriptor)
