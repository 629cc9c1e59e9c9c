"""The distinct error log of a process: each warning or error once, with how often and when (as Aeron's).

Errors are told apart by level, logger and text, but for the numbers in it: "3 samples lost" and "5 samples lost" are
one error, whose text is that of its first time. The file is that of :mod:`.observations`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..errors import RtpsError
from ..structure import NANOSECONDS
from .observations import Observations, read_observations

#: Of the error log in a stream log's directory.
ERROR_LOG: Final = "error_log"
_LOGGER: Final = "spark_rtps"
_MAGIC: Final = b"rtpserr1"
#: Peers can make us write any number of different errors.
_SIZE: Final = 256 << 10
#: Bytes of one error; a traceback is cut.
_CONTENT_MAX: Final = 4096
#: A number that stands alone. Not so those of addresses, versions and GUIDs: they say what it is about.
_NUMBER: Final = re.compile(rb"(?<![\w.:-])\d+(?:\.\d+)?(?![\w:-]|\.\d)")


@dataclass(frozen=True, slots=True)
class DistinctError:
    """One error; times since 1970."""

    level: str
    logger: str
    text: str
    count: int
    first_ns: int
    last_ns: int


class ErrorLog:
    """The error log at ``path``, made at the first error. Not thread-safe: the handler's lock sees to that."""

    def __init__(self, path: Path, *, size: int = _SIZE) -> None:
        self.path = path
        self._size = size
        self._file: Observations | None = None
        self._known: dict[bytes, int] = {}

    def record(self, level: str, logger: str, text: str, *, now: int) -> None:
        """One more error; LogError if there is no file and none can be made."""
        file = self._file or self._open()
        content = f"{level}\n{logger}\n{text}".encode("utf-8", "replace")[:_CONTENT_MAX]
        key = _key(content)
        at = self._known.get(key)
        if at is None:
            at = file.add(content, now=now)
            if at is None:
                file.overflowed()
                return
            self._known[key] = at
        file.observe(at, now=now)

    def _open(self) -> Observations:
        self._file = file = Observations.open(self.path, magic=_MAGIC, size=self._size)
        self._known = {_key(content): at for content, at in file.found.items()}
        return file


def read_error_log(path: Path) -> tuple[list[DistinctError], int]:
    """The errors, oldest first, and how many more there were that found no room; LogError if there is no log."""
    entries, overflow = read_observations(path, magic=_MAGIC)
    errors = []
    for entry in entries:
        level, logger, text = [*entry.content.decode("utf-8", "replace").split("\n", 2), "", ""][:3]
        errors.append(DistinctError(level, logger, text, entry.observations, entry.first, entry.last))
    return errors, overflow


class ErrorLogHandler(logging.Handler):
    """Puts what our loggers warn of into an error log. It never fails who logs: what cannot be written is not.

    ``path`` is asked for when something is to be written, and again in a forked child.
    """

    def __init__(self, path: Callable[[], Path]) -> None:
        super().__init__(logging.WARNING)
        self._path = path
        self._pid = 0
        self._log: ErrorLog | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._record(record)
        except (RtpsError, OSError):
            self._log = None  # and so for good: what is wrong with the disk is told by others
        except Exception:  # noqa: BLE001  (a record that cannot be formatted; all handlers do it so)
            self.handleError(record)
        if logging.lastResort is not None and _is_alone(record):
            logging.lastResort.handle(record)

    def _record(self, record: logging.LogRecord) -> None:
        if self._pid != os.getpid():
            self._pid, self._log = os.getpid(), None
            self._log = ErrorLog(self._path())
        if self._log is not None:
            now = int(record.created * NANOSECONDS)
            self._log.record(record.levelname, record.name, self.format(record), now=now)


def log_errors(path: Callable[[], Path]) -> None:
    """From now on the warnings and errors of our loggers go to an error log, too; once in a process and its forks."""
    logger = logging.getLogger(_LOGGER)
    if not any(isinstance(handler, ErrorLogHandler) for handler in logger.handlers):
        logger.addHandler(ErrorLogHandler(path))


def _is_alone(record: logging.LogRecord) -> bool:
    """Whether nobody else would say it: a logger without handlers says it on stderr, and we are no reason not to."""
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None:
        if any(not isinstance(handler, ErrorLogHandler) for handler in logger.handlers):
            return False
        logger = logger.parent if logger.propagate else None
    return True


def _key(content: bytes) -> bytes:
    return _NUMBER.sub(b"#", content)
