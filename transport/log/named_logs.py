"""The named publication logs of this host's user, which readers and spies open.

They lie in a directory of the user's own in shared memory, or below the system's temporary directory where there is
no shared memory. Each log has a random name and lives as long as its writer. The logs of killed processes are removed
by the next process that makes one, also in another container that shares the directory.

Invariant: only names made here are opened, and only in that directory, whatever name a peer announces.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ..errors import LogError
from .publication_log import PublicationLog
from .publication_log_metadata import LogOwner
from .segment import JSON, refusal
from .small_file import UNFINISHED

_SHARED_MEMORY: Final = Path("/dev/shm")
_SUFFIX: Final = ".publication"
_NAME: Final = re.compile(r"[0-9a-f]{32}\.publication")
#: The process that makes a file has died if the file is unfinished for longer than this.
_UNFINISHED_SECONDS: Final = 60.0


class NamedLog(NamedTuple):
    """A log that a process is writing, and its metadata."""

    path: Path
    about: Mapping[str, JSON]


def directory_of_user() -> Path:
    """The directory of this user's logs."""
    usable = os.access(_SHARED_MEMORY, os.W_OK | os.X_OK)
    root = _SHARED_MEMORY if usable else Path(tempfile.gettempdir())
    return root / f"spark-rtps-{os.getuid()}"


class NamedLogs:
    """The logs in one directory, by default the user's."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory: Final = directory or directory_of_user()
        #: The logs that were opened before, by name, with their owners. Names are never reused.
        self._known: dict[str, tuple[LogOwner, NamedLog]] = {}

    def create(self, term_length: int, about: Mapping[str, JSON]) -> PublicationLog:
        """A log with a new name. LogError if the directory is not this user's, LogFullError for a full disk."""
        self._make_directory()
        self.remove_dead()
        path = self.directory / (secrets.token_hex(16) + _SUFFIX)
        return PublicationLog.create(term_length, path=path, about=about)

    def map_log(self, name: str) -> PublicationLog:
        """Map the log of that name; LogError if there is none, or its writer is gone."""
        if not _NAME.fullmatch(name):
            raise LogError(f"{name!r} is not a name of a publication log")
        self._check_directory()
        log = PublicationLog.open(self.directory / name)
        if not log.metadata.owner_lives:
            raise LogError(
                f"process {log.metadata.owner.process}, which wrote {log.path}, is gone",
                path=log.path,
                process=log.metadata.owner.process,
            )
        return log

    def listing(self) -> list[NamedLog]:
        """The logs that are being written now."""
        known, self._known = self._known, {}
        for name in self._names():
            try:
                self._known[name] = known.get(name) or self._look_into(name)
            except LogError:
                continue  # just removed, left behind, or of another version
        return [log for owner, log in self._known.values() if owner.lives(log.path)]

    def remove_dead(self) -> list[Path]:
        """Remove the logs of processes that have ended; returns the files."""
        removed = []
        for name in self._names():
            path = self.directory / name
            with contextlib.suppress(LogError):  # a log of another version stays
                if not PublicationLog.open(path).metadata.owner_lives:
                    path.unlink(missing_ok=True)
                    removed.append(path)
        for path in self.directory.glob("*" + UNFINISHED):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < time.time() - _UNFINISHED_SECONDS:
                    path.unlink()
                    removed.append(path)
        return removed

    # --- inside ------------------------------------------------------------------------------------

    def _look_into(self, name: str) -> tuple[LogOwner, NamedLog]:
        log = self.map_log(name)
        return log.metadata.owner, NamedLog(self.directory / name, log.about)

    def _names(self) -> list[str]:
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise refusal(error, f"look into {self.directory}", path=self.directory) from error
        if names:
            self._check_directory()
        return sorted(name for name in names if _NAME.fullmatch(name))

    def _make_directory(self) -> None:
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise refusal(error, f"make {self.directory}", path=self.directory) from error
        self._check_directory()

    def _check_directory(self) -> None:
        """LogError unless only this user can create files in it: its name can be guessed by every user."""
        try:
            found = self.directory.lstat()
        except OSError as error:
            raise refusal(error, f"use {self.directory}", path=self.directory) from error
        ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
        if not ours or stat.S_IMODE(found.st_mode) & 0o077:
            raise LogError(
                f"{self.directory} is not a directory that only this user can enter; remove it",
                path=self.directory,
            )


def remove(log: PublicationLog) -> None:
    """Remove the name of a log whose writer has ended. A process that has mapped the log can read on to its end."""
    log.metadata.end_of_stream = True
    log.close()
    if log.path is not None:
        with contextlib.suppress(OSError):
            log.path.unlink()
