"""Which samples of a log make room for new ones, although nobody has said that they are consumed.

For receivers that outlive their readers: a writer must not wait because none of them runs. Whole logs that ended are
removed elsewhere (:mod:`.log_retention`).
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from typing import Final

from ..errors import LogError
from ..log.host_clocks import Clocks
from ..log.log_view import LogView
from ..log.small_file import replace_text
from ..log.stream_log import StreamLog
from ..structure import NANOSECONDS
from .config import ReceiverConfig
from .shown_counters import ShownCounters

_log = logging.getLogger("spark_rtps.receiver")

#: Between two looks for samples that are too old.
_LOOK_NS: Final = NANOSECONDS
#: The file that says what the clocks showed, for the log's next receiver, and how often it is written.
_CLOCKS: Final = "clocks"
_WRITE_NS: Final = 300 * NANOSECONDS


class Retention:
    """The oldest segments of ``log`` are trimmed as ``config.retention`` says."""

    def __init__(self, config: ReceiverConfig, log: StreamLog, shown: ShownCounters) -> None:
        self._topic = config.topic
        self._period = config.retention_ns if config.retention == "time" else None
        self._log = log
        self._view = LogView(log.directory)
        self._shown = shown
        self._look_at = 0
        self._path = log.directory / _CLOCKS
        #: What the clocks showed at the last look, or what an earlier receiver of the log has written down of that.
        self._seen: Clocks | None = None
        self._write_at = self._none_until = 0
        self._is_reported = self._is_refused = False

    @classmethod
    def for_config(cls, config: ReceiverConfig, log: StreamLog, shown: ShownCounters) -> Retention | None:
        """None: what is not consumed stays."""
        return None if config.retention == "committed" else cls(config, log, shown)

    def make_room(self) -> bool:
        """Trim the oldest segment; False: there is no other one. Raises LogError."""
        base = self._log.base
        if not self._log.trim_oldest():
            return False
        if not self._is_reported:
            self._is_reported = True
            _log.warning(
                "topic %r: the log %s is full; from now on its oldest samples make room for new ones",
                self._topic,
                self._log.directory,
            )
        self._shown.add_trimmed(self._log.base - base)
        return True

    def expire(self, clocks: Clocks) -> None:
        """Trim segments that are too old. What the system refuses is said once, and tried again at the next look.

        Samples are dated by the wall clock. When that is set forward, as on a host without a battery for its clock,
        those before look older than they are: nothing is too old then until the period has passed once.
        """
        now = clocks.uptime_ns
        if self._period is None or now < self._look_at:
            return
        self._look_at = now + _LOOK_NS
        seen, self._seen = self._seen or self._written(), clocks
        if seen is not None and clocks.step_since(seen) > 0:
            self._none_until = now + self._period
        if now < self._none_until:
            return  # nothing is written down either: whoever starts meanwhile finds that the clock was set, too
        if now >= self._write_at:
            self._write_at = now + _WRITE_NS
            with suppress(OSError):  # a full disk: what was written before counts
                replace_text(self._path, json.dumps(clocks.parts))
        base = self._log.base
        try:
            kept = self._view.at(clocks.wall_ns - self._period).position
            if kept > base:
                self._log.trim(min(kept, self._log.position))
            self._is_refused = False
        except LogError as error:
            if not self._is_refused:
                message = (
                    "topic %r: samples that are old enough cannot be given up now: %s; it is tried again"
                )
                _log.error(message, self._topic, error)
            self._is_refused = True
        self._shown.add_trimmed(self._log.base - base)

    def _written(self) -> Clocks | None:
        """None: nobody has written that down, or not so."""
        try:
            return Clocks.from_parts(*json.loads(self._path.read_bytes()))
        except (OSError, ValueError, TypeError, RecursionError):
            return None
