"""The directory of a receiver service: made, locked by one supervisor, and with a token for this host."""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path
from typing import Final

from ..transport.errors import LogError
from ..transport.log.permissions import PRIVATE, make_folder
from ..transport.log.small_file import replace_text

TOKEN_FILE: Final = "token"
_LOCK: Final = "supervisor.lock"


def hold_directory(directory: Path) -> int:
    """Make the directory if it is missing, and lock it until this process ends; returns the lock's descriptor.

    Raises LogError if it cannot be made, or another supervisor holds it.
    """
    try:
        if not directory.is_dir():
            make_folder(directory, PRIVATE)
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = f"{directory} cannot be used as `directory`: {error.strerror}"
        raise LogError(message, path=directory) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        message = f"another `spark-rtps receive` works in {directory}; end it, or name another directory"
        raise LogError(message, path=directory) from None
    return lock


def local_token(directory: Path) -> str:
    """The token in the directory, which is made at the first start. Raises LogError."""
    path = directory / TOKEN_FILE
    try:
        try:
            found = path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            found = ""
        if not found:
            found = secrets.token_hex(32)
            # with its mode from the beginning: a process that opened it earlier could read it
            replace_text(path, found + "\n", durable=True, mode=0o600)
    except (OSError, UnicodeDecodeError) as error:
        raise LogError(f"{path}: the token cannot be read or made: {error}", path=path) from None
    return found
