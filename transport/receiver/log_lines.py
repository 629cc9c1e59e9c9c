"""Log lines for terminals and files: names from peers and clients cannot control the terminal."""

from __future__ import annotations

import logging
from typing import Final

#: With the time, for a process whose output may go anywhere.
TIMED: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_REPLACED: Final = "\N{REPLACEMENT CHARACTER}"


class LogLines(logging.Formatter):
    """Each message is one line of printable characters; a traceback below it stays as it is."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (logging's name)
        line = super().formatMessage(record)
        return line if line.isprintable() else "".join(c if c.isprintable() else _REPLACED for c in line)


def log_lines_to(handler: logging.Handler, form: str = TIMED) -> None:
    """Send warnings and errors of this process to ``handler``."""
    handler.setFormatter(LogLines(form))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
