"""The samples of a log that are trimmed for new ones although no consumer has committed them.

For receivers that outlive their readers: writers must not wait while no reader runs. Whole logs that ended are removed
elsewhere (:mod:`.log_retention`).
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

#: Between two checks for samples that are too old.
_LOOK_NS: Final = NANOSECONDS
#: The file with the clocks' values for the log's next receiver, and how often it is written.
_CLOCKS: Final = "clocks"
_WRITE_NS: Final = 300 * NANOSECONDS


class Retention:
    """Trims the oldest segments of ``log`` by the policy ``config.retention``."""

    def __init__(self, config: ReceiverConfig, log: StreamLog, shown: ShownCounters) -> None:
        self._topic = config.topic
        self._period = config.retention_ns if config.retention == "time" else None
        self._log = log
        self._view = LogView(log.directory)
        self._shown = shown
        self._look_at = 0
        self._path = log.directory / _CLOCKS
        #: The clocks' values at the last check, or those that an earlier receiver of the log wrote.
        self._seen: Clocks | None = None
        self._write_at = self._none_until = 0
        self._is_reported = self._is_refused = False

    @classmethod
    def for_config(cls, config: ReceiverConfig, log: StreamLog, shown: ShownCounters) -> Retention | None:
        """None: only commits free space."""
        return None if config.retention == "committed" else cls(config, log, shown)

    def make_room(self) -> bool:
        """Trim the oldest segment; False: it is the only one. Raises LogError."""
        base = self._log.base
        if not self._log.trim_oldest():
            return False
        if not self._is_reported:
            self._is_reported = True
            _log.warning(
                "topic %r: the log %s is full; from now on its oldest samples are removed for new ones",
                self._topic,
                self._log.directory,
            )
        self._shown.add_trimmed(self._log.base - base)
        return True

    def expire(self, clocks: Clocks) -> None:
        """Trim segments that are too old. A refusal by the system is logged once, and retried at the next check.

        Samples are dated by the wall clock. When that is set forward, as on a host without a battery for its clock,
        earlier samples look older than they are: no sample counts as too old then until the period has passed once.
        """
        now = clocks.uptime_ns
        if self._period is None or now < self._look_at:
            return
        self._look_at = now + _LOOK_NS
        seen, self._seen = self._seen or self._written(), clocks
        if seen is not None and clocks.step_since(seen) > 0:
            self._none_until = now + self._period
        if now < self._none_until:
            return  # the file stays as it is: a receiver that starts now also finds that the clock was set
        if now >= self._write_at:
            self._write_at = now + _WRITE_NS
            with suppress(OSError):  # a full disk: the values written before count
                replace_text(self._path, json.dumps(clocks.parts))
        base = self._log.base
        try:
            kept = self._view.at(clocks.wall_ns - self._period).position
            if kept > base:
                self._log.trim(min(kept, self._log.position))
            self._is_refused = False
        except LogError as error:
            if not self._is_refused:
                message = "topic %r: removing expired samples failed: %s; retrying"
                _log.error(message, self._topic, error)
            self._is_refused = True
        self._shown.add_trimmed(self._log.base - base)

    def _written(self) -> Clocks | None:
        """The recorded values; None: there are none that can be read."""
        try:
            return Clocks.from_parts(*json.loads(self._path.read_bytes()))
        except (OSError, ValueError, TypeError, RecursionError):
            return None
