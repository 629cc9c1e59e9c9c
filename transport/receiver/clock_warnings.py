"""What a receiver says, once each, when clocks that differ are the likely reason for what it drops.

LIFESPAN and DESTINATION_ORDER compare the time at which a writer stamped a sample with the wall clock of the reader.
DDS takes these clocks for synchronized; where they are not, samples are dropped, and counted.
"""

from __future__ import annotations

import logging

from ..protocol.reading.cache.reader_cache import ReaderCacheCounters
from ..structure import NANOSECONDS
from .config import ReceiverConfig
from .remedies import EXPIRED, FAR_AHEAD, with_remedies

_log = logging.getLogger("spark_rtps.receiver")


class ClockWarnings:
    """Those of one subscription."""

    def __init__(self, config: ReceiverConfig) -> None:
        self._topic = config.topic
        self._remedies = config.remedies
        self._tolerance = config.qos.source_timestamp_tolerance
        self._said: set[str] = set()

    def look(self, counters: ReaderCacheCounters) -> None:
        """Warn of what is counted now and was not before."""
        seconds = f"{self._tolerance / NANOSECONDS:g}"
        for kind, count, what in (
            (
                FAR_AHEAD,
                counters.tolerance_source_timestamp_dropped_sample_count,
                f"are stamped more than {seconds} s ahead of their reception",
            ),
            (EXPIRED, counters.expired_dropped_sample_count, "had outlived their LIFESPAN when they came"),
        ):
            if count and kind not in self._said:
                self._said.add(kind)
                text = with_remedies(f"samples dropped that {what}", [kind], self._remedies)
                _log.warning("topic %r: %s", self._topic, text)
