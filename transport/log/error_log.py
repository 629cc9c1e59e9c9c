"""The distinct error log of a process: each warning or error once, with its count and times (as Aeron's).

Level, logger and text distinguish errors, but numbers in the text do not: "3 samples lost" and "5 samples lost" are
one error, with the text of its first occurrence. The file is one of :mod:`.observations`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ..errors import RtpsError
from ..structure import NANOSECONDS
from ..value_classes import value
from .observations import Observations, read_observations
from .owner_lock import OwnerLock

#: The name of the error log in a stream log's directory.
ERROR_LOG: Final = "error_log"
_LOGGER: Final = "spark_rtps"
_MAGIC: Final = b"rtpserr1"
#: Bytes of the file, since peers can cause any number of different errors.
_SIZE: Final = 256 << 10
#: Bytes of one error; a longer traceback is truncated.
_CONTENT_MAX: Final = 4096
#: A number that stands alone. Numbers in addresses, versions and GUIDs identify the error, and count.
_NUMBER: Final = re.compile(rb"(?<![\w.:-])\d+(?:\.\d+)?(?![\w:-]|\.\d)")


@value
class DistinctError:
    """One error; times in ns since 1970."""

    level: str
    logger: str
    text: str
    count: int
    first_ns: int
    last_ns: int


class ErrorLog:
    """The error log at ``path``, made at the first error. Not thread-safe: the handler calls it under its lock."""

    def __init__(self, path: Path, *, size: int = _SIZE) -> None:
        self.path = path
        self._size = size
        self._file: Observations | None = None
        #: Shows processes of other PID namespaces that this process still runs.
        self._lock: OwnerLock | None = None

    def record(self, level: str, logger: str, text: str, *, now: int) -> None:
        """Count one more error; LogError if there is no file and none can be made."""
        if self._file is None:
            self._file = Observations.open(self.path, magic=_MAGIC, size=self._size, key=_without_numbers)
            self._lock = OwnerLock.hold(self.path)
        content = f"{level}\n{logger}\n{text}".encode("utf-8", "replace")[:_CONTENT_MAX]
        self._file.observe(content, now=now)


def read_error_log(path: Path) -> tuple[list[DistinctError], int]:
    """The errors, oldest first, and the number of errors that did not fit; LogError if there is no log."""
    entries, overflow = read_observations(path, magic=_MAGIC)
    errors = []
    for entry in entries:
        level, logger, text = [*entry.content.decode("utf-8", "replace").split("\n", 2), "", ""][:3]
        errors.append(DistinctError(level, logger, text, entry.observations, entry.first, entry.last))
    return errors, overflow


class ErrorLogHandler(logging.Handler):
    """Writes the warnings and errors of this product's loggers into an error log; one that cannot be written is
    skipped.

    ``path`` is called when the first error is written, and again in a forked child.
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
            self._log = None  # for good: other parts report the disk's error
        except Exception:  # noqa: BLE001  (a record that cannot be formatted; all handlers treat it so)
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
    """Write the warnings and errors of this product's loggers to an error log too, in this process and its forks."""
    logger = logging.getLogger(_LOGGER)
    if not any(isinstance(handler, ErrorLogHandler) for handler in logger.handlers):
        logger.addHandler(ErrorLogHandler(path))


def _is_alone(record: logging.LogRecord) -> bool:
    """Whether there is no other handler: the record then goes to stderr, as it would without this one."""
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None:
        if any(not isinstance(handler, ErrorLogHandler) for handler in logger.handlers):
            return False
        logger = logger.parent if logger.propagate else None
    return True


def _without_numbers(content: bytes) -> bytes:
    return _NUMBER.sub(b"#", content)
