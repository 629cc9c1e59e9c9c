"""What is delivered is appended, many runs in a frame; what finds no room waits with memory of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.receiver.consumption import Consumption
from spark_rtps.transport.receiver.log_appender import LogAppender
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.runs import scan
from spark_rtps.transport.wire.samples import Run
from tests.log.make_runs import guid, indexed, read, samples, uniform
from tests.wire.plain_data import data

PREFIX = b"\1" * 12


class Log:
    """A stream log with room, or without."""

    max_bytes, base, position, free_bytes, shared_bytes_max = 1 << 20, 0, 0, 1 << 20, 1 << 17
    places = ()

    def __init__(self) -> None:
        self.has_room = False
        self.payloads: list[bytes] = []

    def append(self, run: Run, *, reception: int, more: Sequence[Run] = ()) -> bool:
        for each in (run, *more) if self.has_room else ():
            samples = each.samples()
            self.payloads += [bytes(samples.payload(i)) for i in range(each.count)]
        return self.has_room


@pytest.mark.parametrize("words", [(2,), (2, 3)], ids=["equal", "unequal"])
def test_what_waits_for_room_is_not_what_is_received_next(words: tuple[int, ...]) -> None:
    payloads = [b"\0\1\0\0" + bytes((i,)) * 4 * words[i % len(words)] for i in range(1, 21)]
    buffer = np.frombuffer(
        b"".join(data(True, i, each) for i, each in enumerate(payloads, 1)), np.uint8
    ).copy()
    (run,) = scan(buffer, 0, len(buffer), PREFIX, 0).runs
    assert run.writer == Guid(PREFIX, b"\0\0\1\2") and np.shares_memory(run.data, buffer)
    log = Log()
    everything = SimpleNamespace(accept=lambda run, *, reception, now: run)
    shown = SimpleNamespace(show_log=lambda log: None)
    appender = LogAppender(cast(Any, log), cast(Any, everything), cast(Any, shown), None, None, remedies={})
    reader = cast(Any, SimpleNamespace(hold_acknowledgments=False))
    appender.deliver(reader, [run])
    assert reader.hold_acknowledgments and not appender.room() and not log.payloads
    buffer[:] = 0xEE  # the next drain
    log.has_room = True
    appender.deliver(reader, [])
    assert log.payloads == payloads and not reader.hold_acknowledgments


def delivered(log: StreamLog, runs: list[Run], consumption: Consumption) -> LogAppender:
    """An appender, to which the runs were delivered at once."""
    everything = SimpleNamespace(accept=lambda run, *, reception, now: run)
    shown = SimpleNamespace(show_log=lambda log: None)
    appender = LogAppender(log, cast(Any, everything), cast(Any, shown), consumption, None, remedies={})
    appender.deliver(cast(Any, SimpleNamespace(hold_acknowledgments=False)), runs)
    return appender


def test_runs_that_go_on_from_one_another_share_a_frame(tmp_path: Path) -> None:
    w1, w2 = guid(1), guid(2)
    together = [uniform(w1, 1, 5), uniform(w1, 6, 1), uniform(w1, 7, 3)]
    others = [
        uniform(w2, 1, 2),  # of another writer
        uniform(w2, 4, 2),  # numbers are left out
        replace(uniform(w2, 6, 2), flags=0),
        uniform(w2, 8, 2, size=64),
        replace(uniform(w2, 10, 2, size=64), timestamp=6),
        replace(uniform(w2, 12, 2, size=64), timestamp=6, reader_id=b"abcd"),
        indexed(w2, 14, 3),
        indexed(w2, 17, 3),
    ]
    consumption = Consumption()
    with StreamLog.create(tmp_path / "log", max_bytes=1 << 20, segment_bytes=1 << 18, metadata={}) as log:
        delivered(log, together + others, consumption)
        frames = list(LogView(log.directory).frames(Cursor(0), Cursor(log.position)))
        assert [frame.run.count for frame in frames] == [9] + [run.count for run in others]
        assert read(log.directory, 0, log.position) == [
            each for run in together + others for each in samples(run)
        ]
        assert log.rows == sum(run.count for run in together + others)
        assert log.writers == {w1: 9, w2: 19}
        (done,) = list(consumption.on_commit(frames[0].length))
        assert (done.writer, done.last_sn, done.nbytes) == (w1, 9, sum(run.nbytes for run in together))


def test_a_frame_that_is_shared_is_no_longer_than_others(tmp_path: Path) -> None:
    runs = [uniform(guid(1), 1 + 10 * i, 10, size=96) for i in range(100)]
    with StreamLog.create(tmp_path / "log", max_bytes=1 << 20, segment_bytes=1 << 16, metadata={}) as log:
        delivered(log, runs, Consumption())
        frames = list(LogView(log.directory).frames(Cursor(0), Cursor(log.position)))
        assert max(frame.run.nbytes for frame in frames) <= log.shared_bytes_max
        assert 10 < len(frames) < 20
        assert read(log.directory, 0, log.position) == [each for run in runs for each in samples(run)]


def test_what_found_no_room_comes_when_there_is(tmp_path: Path) -> None:
    runs = [uniform(guid(1), 1 + 10 * i, 10, size=96) for i in range(100)]
    with StreamLog.create(tmp_path / "log", max_bytes=4 << 14, segment_bytes=1 << 14, metadata={}) as log:
        appender = delivered(log, runs, Consumption())
        assert not appender.room() and 0 < log.rows < 1_000
        reader = cast(Any, SimpleNamespace(hold_acknowledgments=False, consumed=lambda *_: None))
        while log.rows < 1_000:
            appender.commit(reader, log.position)
        assert log.writers == {guid(1): 1_000}
