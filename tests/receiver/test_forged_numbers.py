"""Forged numbers and the stream log: none gets in before it is confirmed, and one that is in does no lasting harm."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.protocol.reading.ordering.sequence_jumps import DELAY
from spark_rtps.transport.receiver.jump_warnings import JumpWarnings
from tests.protocol.reader_script import IT, MS, Script, samples

FAR = 10**12


def receive(script: Script, log: StreamLog) -> list[int]:
    """What a receiver does with what is delivered."""
    for run in script.reader.take():
        assert log.append(run, reception=0)
    return [log.rows, log.writers.get(IT, 0)]


def opened(directory: Path) -> StreamLog:
    if StreamLog.exists(directory):
        return StreamLog.open(directory)
    return StreamLog.create(directory, max_bytes=1 << 20, metadata={"topic": "T"})


def test_a_forged_number_does_not_get_into_the_log(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        s = Script(resume=dict(log.writers))
        s.heartbeat(1, 5).data(1, 5)
        s.data(FAR).gap(1, FAR).batch(FAR, FAR, FAR + 9).heartbeat(FAR, FAR)
        assert receive(s, log) == [5, 5]
        s.reader.unmatch_writer(IT)
    with opened(tmp_path) as log:
        s = Script(resume=dict(log.writers))
        s.heartbeat(6, 8).data(6, 8)
        assert receive(s, log) == [8, 8]


def test_a_log_that_holds_a_forged_number_goes_on_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.append(samples(1, 5, 32), reception=0)
        log.append(samples(FAR, FAR, 32), reception=0)
    with opened(tmp_path) as log:
        s = Script(resume=dict(log.writers))
        s.heartbeat(6, 8).data(6, 8)
        s.now += DELAY
        s.heartbeat(6, 8).data(9, 10)
        assert receive(s, log) == [8, 10], "what comes from then on"
    with opened(tmp_path) as log:
        s = Script(resume=dict(log.writers))
        s.now += MS
        s.heartbeat(11, 12).data(11, 12)
        s.now += DELAY
        s.heartbeat(11, 12).data(13)
        assert receive(s, log)[1] == 13


def test_a_jump_that_was_taken_back_is_not_resumed_from(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        s = Script()
        s.heartbeat(1, 5).data(1, 5)
        s.heartbeat(FAR, FAR)
        s.now += DELAY
        s.heartbeat(FAR, FAR).data(FAR)  # the writer was silent: the forger had its way
        assert receive(s, log) == [6, FAR]
        s.now += 100 * MS
        s.heartbeat(1, 8).data(6, 8)
        assert receive(s, log) == [9, 8]


def test_each_writer_is_warned_of_once_with_its_numbers(caplog: pytest.LogCaptureFixture) -> None:
    warnings = JumpWarnings("Square")
    s = Script()
    with caplog.at_level(logging.WARNING):
        for i in range(10):
            s.heartbeat(1, 5).data(1, 5)
            s.data(FAR + i * 100_000)
            s.heartbeat(1, 5)
            warnings.report(s.reader)
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 2
    assert all("Square" in text and str(IT) in text and "6" in text and str(FAR) in text for text in texts)
    assert "has to confirm" in texts[0]
    assert "was forged" in texts[1]
