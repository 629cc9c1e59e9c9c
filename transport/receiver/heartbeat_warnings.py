"""What a receiver says, once, of a writer whose HEARTBEATs come sooner than its reader answers one after another.

RTI demands that a writer's heartbeat_period be no less than the heartbeat_suppression_duration of its readers. Writers
of ours announce their period; how many HEARTBEATs of any writer stay unanswered is counted as suppressed_heartbeats.
"""

from __future__ import annotations

import logging

from ..protocol.reading.reader import StatefulReader
from ..structure import NANOSECONDS, Guid
from .config import ReceiverConfig
from .remedies import SUPPRESSED_HEARTBEATS, with_remedies

_log = logging.getLogger("spark_rtps.receiver")


class HeartbeatWarnings:
    """That of one subscription."""

    def __init__(self, config: ReceiverConfig) -> None:
        self._topic = config.topic
        self._remedies = config.remedies
        self._is_said = False

    def writer_matched(self, reader: StatefulReader, writer: Guid) -> None:
        """Warn if it is the first such writer."""
        proxy = reader.writers.get(writer)
        if (
            self._is_said
            or proxy is None
            or not proxy.reliable
            or not proxy.info.is_suppressed(reader.policy)
        ):
            return
        self._is_said = True
        silence, period = reader.policy.heartbeat_suppression_duration, proxy.info.heartbeat_period
        text = with_remedies(
            f"the reader answers no HEARTBEAT for {silence / NANOSECONDS:g} s after one that it answers, but writer "
            f"{writer} repeats its own after {period / NANOSECONDS:g} s: losses may be repaired later",
            [SUPPRESSED_HEARTBEATS],
            self._remedies,
        )
        _log.warning("topic %r: %s", self._topic, text)
