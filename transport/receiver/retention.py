"""Which samples of a log make room for new ones, although nobody has said that they are consumed.

For receivers that outlive their readers: a writer must not wait because none of them runs.
"""

from __future__ import annotations

import logging
from typing import Final

from ..log.log_view import LogView
from ..log.stream_log import StreamLog
from ..structure import NANOSECONDS
from .config import ReceiverConfig
from .shown_counters import ShownCounters

_log = logging.getLogger("spark_rtps.receiver")

#: Between two looks for samples that are too old.
_LOOK_NS: Final = NANOSECONDS
#: By so much the wall clock is set, and not only adjusted, between two looks.
_STEP_NS: Final = NANOSECONDS


class Retention:
    """The oldest segments of ``log`` are trimmed as ``config.retention`` says."""

    def __init__(self, config: ReceiverConfig, log: StreamLog, shown: ShownCounters) -> None:
        self._topic = config.topic
        self._period = config.retention_ns if config.retention == "time" else None
        self._log = log
        self._view = LogView(log.directory)
        self._shown = shown
        self._look_at = 0
        #: When the host was started, by the wall clock; None: nobody has looked yet.
        self._started: int | None = None
        self._none_until = 0
        self._is_told = False

    @classmethod
    def of(cls, config: ReceiverConfig, log: StreamLog, shown: ShownCounters) -> Retention | None:
        """None: what is not consumed stays."""
        return None if config.retention == "committed" else cls(config, log, shown)

    def make_room(self) -> bool:
        """Trim the oldest segment; False: there is no other one. Raises LogError."""
        base = self._log.base
        if not self._log.trim_oldest():
            return False
        if not self._is_told:
            self._is_told = True
            _log.warning(
                "topic %r: the log %s is full; from now on its oldest samples make room for new ones",
                self._topic,
                self._log.directory,
            )
        self._shown.add_trimmed(self._log.base - base)
        return True

    def expire(self, *, now: int, wall: int) -> None:
        """Trim segments that are too old. Raises LogError.

        ``now`` is since the host was started, also while it slept, ``wall`` since 1970, both in ns. Samples are dated
        by the wall clock. When that is set forward, as on a host without a battery for its clock, those before look
        older than they are: nothing is too old then until the period has passed once.
        """
        if self._period is None or now < self._look_at:
            return
        self._look_at = now + _LOOK_NS
        started, self._started = self._started, wall - now
        if started is not None and self._started - started > _STEP_NS:
            self._none_until = now + self._period
        if now < self._none_until:
            return
        base, kept = self._log.base, self._view.at(wall - self._period).position
        if kept > base:
            self._log.trim(min(kept, self._log.position))
            self._shown.add_trimmed(self._log.base - base)
