"""Warnings of a receiver, each logged once for a subscription, with hints (:mod:`.hints`)."""

from __future__ import annotations

import logging

from ..protocol.reading.cache.reader_cache import ReaderCacheCounters
from ..protocol.reading.reader import StatefulReader
from ..structure import NANOSECONDS, Guid
from .config import ReceiverConfig
from .hints import DOUBTED, EXPIRED, FAR_AHEAD, SUPPRESSED_HEARTBEATS, with_hints

_log = logging.getLogger("spark_rtps.receiver")


class ClockWarnings:
    """Warns when clocks that differ are the likely reason for dropped samples.

    LIFESPAN and DESTINATION_ORDER compare the source timestamp of a sample with the wall clock of the reader. DDS
    assumes that these clocks are synchronized; where they are not, samples are dropped and counted.
    """

    def __init__(self, config: ReceiverConfig) -> None:
        self._topic = config.topic
        self._hints = config.hints
        self._tolerance = config.qos.source_timestamp_tolerance
        self._logged: set[str] = set()

    def warn_if_new(self, counters: ReaderCacheCounters) -> None:
        """Warn of counters that are no longer zero."""
        seconds = f"{self._tolerance / NANOSECONDS:g}"
        for kind, count, what in (
            (
                FAR_AHEAD,
                counters.tolerance_source_timestamp_dropped_sample_count,
                f"are stamped more than {seconds} s ahead of their reception",
            ),
            (
                EXPIRED,
                counters.expired_dropped_sample_count,
                "had outlived their LIFESPAN when they were received",
            ),
        ):
            if count and kind not in self._logged:
                self._logged.add(kind)
                text = with_hints(f"samples dropped that {what}", [kind], self._hints)
                _log.warning("topic %r: %s", self._topic, text)


class DoubtWarnings:
    """Warns of a writer that may have been restarted under the same GUID while its reader goes on.

    Such a reliable writer may be sending repairs for other readers: the reader drops samples with sequence numbers that
    it read before, and counts them as doubted_samples (:mod:`..protocol.reading.reader`).
    """

    def __init__(self, config: ReceiverConfig) -> None:
        self._topic = config.topic
        self._hints = config.hints
        self._is_logged = False

    def warn_if_new(self, reader: StatefulReader) -> None:
        """Warn if it is the first time that the reader is in doubt."""
        if self._is_logged or not reader.counters.doubted_samples:
            return
        self._is_logged = True
        text = with_hints(
            "a reliable writer sends only samples with sequence numbers that were read before; they are dropped: it "
            "repeats them for others, or was restarted under the same GUID",
            [DOUBTED],
            self._hints,
        )
        _log.warning("topic %r: %s", self._topic, text)


class HeartbeatWarnings:
    """Warns of a writer that repeats its HEARTBEATs faster than its reader answers them.

    RTI demands that a writer's heartbeat_period be no less than the heartbeat_suppression_duration of its readers. This
    product's writers announce their period; unanswered HEARTBEATs of any writer are counted as suppressed_heartbeats.
    """

    def __init__(self, config: ReceiverConfig) -> None:
        self._topic = config.topic
        self._hints = config.hints
        self._is_logged = False

    def writer_matched(self, reader: StatefulReader, writer: Guid) -> None:
        """Warn if it is the first such writer."""
        proxy = reader.writers.get(writer)
        if (
            self._is_logged
            or proxy is None
            or not proxy.reliable
            or not proxy.info.is_suppressed(reader.policy)
        ):
            return
        self._is_logged = True
        silence, period = reader.policy.heartbeat_suppression_duration, proxy.info.heartbeat_period
        text = with_hints(
            f"the reader answers no HEARTBEAT for {silence / NANOSECONDS:g} s after one that it answers, but writer "
            f"{writer} repeats its own after {period / NANOSECONDS:g} s: losses may be repaired later",
            [SUPPRESSED_HEARTBEATS],
            self._hints,
        )
        _log.warning("topic %r: %s", self._topic, text)
