"""Lines of a log for terminals and files: what peers and clients have named does not control how they are shown."""

from __future__ import annotations

import logging
from typing import Final

#: With the time, for a process that writes to nobody in particular.
TIMED: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_REPLACED: Final = "\N{REPLACEMENT CHARACTER}"


class LogLines(logging.Formatter):
    """Each message is one line of characters that can be printed; a traceback below it stays as it is."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (logging's name)
        line = super().formatMessage(record)
        return line if line.isprintable() else "".join(c if c.isprintable() else _REPLACED for c in line)


def log_lines_to(handler: logging.Handler, form: str = TIMED) -> None:
    """Warnings and errors of this process go there."""
    handler.setFormatter(LogLines(form))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
