"""A log whose numbers are not those of its writer: the writer began anew under its GUID, or they were forged."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.protocol.reading.ordering.writer_proxy import ANEW_NS
from tests.protocol.reader_script import IT, Script, samples

FAR = 10**12


def receive(script: Script, log: StreamLog) -> list[int]:
    """What a receiver does with what is delivered."""
    for run in script.reader.take_runs():
        assert log.append(run, reception=0)
    return [log.rows, log.writers.get(IT, 0)]


def opened(directory: Path) -> StreamLog:
    if StreamLog.exists(directory):
        return StreamLog.open(directory)
    return StreamLog.create(directory, max_bytes=1 << 20, metadata={"topic": "T"})


@pytest.mark.parametrize("number", [1_000, FAR, (1 << 63) - 2])
def test_a_log_that_ends_beyond_its_writer_goes_on_after_a_restart(tmp_path: Path, number: int) -> None:
    with opened(tmp_path) as log:
        log.append(samples(1, 5, 32), reception=0)
        log.append(samples(number, number, 32), reception=0)
    with opened(tmp_path) as log:
        s = Script(resume=dict(log.writers))
        s.heartbeat(1, 3).data(1, 3)
        s.now += ANEW_NS
        s.heartbeat(1, 3).data(1, 4)
        assert receive(s, log) == [10, 4]
    with opened(tmp_path) as log:
        s = Script(resume=dict(log.writers))
        s.heartbeat(1, 5).data(1, 5)
        assert receive(s, log) == [11, 5], "at once, and none twice"
