"""Warns before a log is full what will happen then, and to which writers.

A log fills while its consumer commits less than is received, or while the disk has less free space than the log may
take.
There is one warning when it is nearly full and one when it is, and again only after it was half empty.
"""

from __future__ import annotations

import enum
import logging
import os
from collections.abc import Collection, Mapping
from typing import Final

from ..log.stream_log import StreamLog
from ..structure import Guid
from .hints import LOG_FILLS, with_hints

_log = logging.getLogger("spark_rtps.receiver")

#: Percent of the log's limit, or of what the free disk space allows.
_NEARLY_FULL: Final = 75
_HALF: Final = 50
_WRITERS_NAMED_MAX: Final = 5


class OnLogFull(enum.StrEnum):
    """What happens to samples that do not fit into the log."""

    #: The samples wait, and their writers with them.
    HOLD = "hold"
    #: They are acknowledged, counted and lost.
    DROP = "drop"
    #: The receiver ends.
    FAIL = "fail"


_THEN: Final = {
    OnLogFull.HOLD: "these reliable writers are held back until there is space, and their writes may time out",
    OnLogFull.DROP: "samples of all writers are dropped until there is space, also of these reliable ones",
    OnLogFull.FAIL: "the query fails, so that these reliable writers need not wait",
}


class FullLogWarning:
    """Watches one log without retention, in which only commits free space."""

    def __init__(self, topic: str, log: StreamLog, on_full: OnLogFull, hints: Mapping[str, str]) -> None:
        self._topic = topic
        self._log = log
        self._on_full = on_full
        self._hints = hints
        #: How full the log was when the last warning was logged; 0: no warning, or the log was half empty since.
        self._warned_at = 0

    def warn_if_full(self, writers: Collection[Guid], *, is_full: bool) -> None:
        """``writers``: the matched reliable ones; ``is_full``: a sample did not fit."""
        used, most, what = self._used()
        full = 100 if is_full else min(99, 100 * used // max(most, 1))
        if full < _HALF:
            self._warned_at = 0
        if full < _NEARLY_FULL or self._warned_at >= (100 if is_full else _NEARLY_FULL):
            return
        self._warned_at = full
        named = ", ".join(str(guid) for guid in list(writers)[:_WRITERS_NAMED_MAX]) or "none so far"
        more = len(writers) - _WRITERS_NAMED_MAX
        _log.warning(
            "%s",
            with_hints(
                f"topic {self._topic!r}: the log {self._log.directory} "
                + ("is full" if is_full else f"is nearly full: it takes {used} of {most} bytes, {what}")
                + f"; {'now' if is_full else 'once it is'} {_THEN[self._on_full]}: {named}"
                + (f" and {more} more" if more > 0 else ""),
                [LOG_FILLS],
                self._hints,
            ),
        )

    def _used(self) -> tuple[int, int, str]:
        """The bytes that the log takes, its limit, and the reason for that limit."""
        log = self._log
        used = log.max_bytes - log.free_bytes
        try:
            disk = os.statvfs(log.directory)
        except OSError:
            return used, log.max_bytes, "its limit"
        room = used + disk.f_bavail * disk.f_frsize
        if room < log.max_bytes:
            return used, room, "all the space that the disk has for it"
        return used, log.max_bytes, "its limit"
