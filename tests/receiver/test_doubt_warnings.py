"""What a receiver says of a writer that may have been restarted under its GUID."""

from __future__ import annotations

import logging

import pytest

from spark_rtps.options.explanations import RECEIVER_HINTS
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.receiver.config import ReceiverConfig
from spark_rtps.transport.receiver.warnings import DoubtWarnings
from spark_rtps.transport.structure import Guid


def test_a_reader_in_doubt_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    config = ReceiverConfig("/nowhere", "t", "T", keyed=False, hints=RECEIVER_HINTS)
    warnings = DoubtWarnings(config)
    reader = StatefulReader(Guid(b"r" * 12, b"\0\0\2\4"), Qos())
    with caplog.at_level(logging.WARNING, logger="spark_rtps.receiver"):
        warnings.warn_if_new(reader)
        assert not caplog.messages
        for _ in range(2):
            reader.counters.doubted_samples += 5
            warnings.warn_if_new(reader)
    (output,) = caplog.messages
    assert output.startswith(
        "topic 't': a reliable writer sends only samples with sequence numbers that were read before"
    )
    assert "start the query again, with reliability=reliable" in output
