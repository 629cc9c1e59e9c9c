"""What a receiver says of clocks that differ: once for each kind, with what to do about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_rtps.options.explanations import RECEIVER_HINTS
from spark_rtps.transport.protocol.reading.cache.reader_cache import ReaderCacheCounters
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.receiver.config import ReceiverConfig
from spark_rtps.transport.receiver.warnings import ClockWarnings


def test_each_kind_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    config = ReceiverConfig("/nowhere", "Pressure", "T", keyed=False, hints=RECEIVER_HINTS)
    warnings = ClockWarnings(replace(config, qos=Qos(source_timestamp_tolerance=30_000_000_000)))
    counters = ReaderCacheCounters()
    warnings.warn_if_new(counters)
    assert caplog.messages == []
    counters.expired_dropped_sample_count = 3
    warnings.warn_if_new(counters)
    counters.expired_dropped_sample_count = 5
    counters.tolerance_source_timestamp_dropped_sample_count = 1
    warnings.warn_if_new(counters)
    warnings.warn_if_new(counters)
    expired, ahead = caplog.messages
    assert expired.startswith(
        "topic 'Pressure': samples dropped that had outlived their LIFESPAN when they were received ("
    )
    assert "compare the clocks of this host and of the writers'" in expired
    assert ahead.startswith(
        "topic 'Pressure': samples dropped that are stamped more than 30 s ahead of their "
    )
    assert "destination_order.source_timestamp_tolerance" in ahead
