"""What is delivered is appended, many runs in a frame; what finds no room waits with memory of its own."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from spark_rtps.transport.errors import LogError
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.receiver import log_appender, writer_types
from spark_rtps.transport.receiver.consumption import Consumption
from spark_rtps.transport.receiver.full_log_warning import OnLogFull
from spark_rtps.transport.receiver.log_appender import LogAppender
from spark_rtps.transport.receiver.writer_types import WriterTypes, read_writer_types
from spark_rtps.transport.structure import NANOSECONDS, Guid
from spark_rtps.transport.wire.runs import scan
from spark_rtps.transport.wire.samples import Run
from tests.log.make_runs import guid, indexed, read, samples, uniform
from tests.support.refusals import OPENING, Refusal
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
def test_waiting_samples_keep_their_bytes_when_the_buffer_is_reused(words: tuple[int, ...]) -> None:
    payloads = [b"\0\1\0\0" + bytes((i,)) * 4 * words[i % len(words)] for i in range(1, 21)]
    buffer = np.frombuffer(
        b"".join(data(True, i, each) for i, each in enumerate(payloads, 1)), np.uint8
    ).copy()
    (run,) = scan(buffer, 0, len(buffer), PREFIX, 0).runs
    assert run.writer == Guid(PREFIX, b"\0\0\1\2") and np.shares_memory(run.data, buffer)
    log = Log()
    everything = SimpleNamespace(accept=lambda run, *, reception, now: run)
    shown = SimpleNamespace(show_log=lambda log: None)
    appender = LogAppender(cast(Any, log), cast(Any, everything), cast(Any, shown), None, None, hints={})
    reader = cast(Any, SimpleNamespace(hold_acknowledgments=False))
    appender.deliver(reader, [run])
    assert reader.hold_acknowledgments and not appender.room() and not log.payloads
    buffer[:] = 0xEE  # the next burst
    log.has_room = True
    appender.deliver(reader, [])
    assert log.payloads == payloads and not reader.hold_acknowledgments


def delivered(log: StreamLog, runs: list[Run], consumption: Consumption) -> LogAppender:
    """An appender, to which the runs were delivered at once."""
    everything = SimpleNamespace(accept=lambda run, *, reception, now: run)
    shown = SimpleNamespace(show_log=lambda log: None)
    appender = LogAppender(log, cast(Any, everything), cast(Any, shown), consumption, None, hints={})
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


def test_refused_samples_are_appended_when_there_is_capacity(tmp_path: Path) -> None:
    runs = [uniform(guid(1), 1 + 10 * i, 10, size=96) for i in range(100)]
    with StreamLog.create(tmp_path / "log", max_bytes=4 << 14, segment_bytes=1 << 14, metadata={}) as log:
        appender = delivered(log, runs, Consumption())
        assert not appender.room() and 0 < log.rows < 1_000
        reader = cast(Any, SimpleNamespace(hold_acknowledgments=False, consumed=lambda *_: None))
        while log.rows < 1_000:
            appender.commit_position(reader, log.position)
        assert log.writers == {guid(1): 1_000}


@pytest.mark.parametrize("on_full", [OnLogFull.HOLD, OnLogFull.DROP, OnLogFull.FAIL])
def test_appends_refused_without_descriptors_are_retried(
    on_full: OnLogFull, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At each place where it may: nothing ends, and nothing is lost or comes twice."""
    number, came = 0, True
    while came:
        number += 1
        refusal = Refusal(OPENING, number, errno.EMFILE)
        with StreamLog.create(
            tmp_path / str(number), max_bytes=4 << 14, segment_bytes=1 << 14, metadata={}
        ) as log:
            everything = SimpleNamespace(accept=lambda run, *, reception, now: run)
            appender = LogAppender(
                log,
                cast(Any, everything),
                cast(Any, SimpleNamespace(show_log=lambda log: None)),
                Consumption(),
                None,
                hints={},
                on_full=on_full,
            )
            reader = cast(Any, SimpleNamespace(hold_acknowledgments=False, consumed=lambda *_: None))
            found: list[int] = []
            for i in range(60):
                with refusal.armed():
                    appender.deliver(reader, [uniform(guid(1), 1 + 10 * i, 10, size=96)])
                if refusal.came and reader.hold_acknowledgments:
                    appender.commit_position(reader, log.base)
                assert not reader.hold_acknowledgments
                if i % 6 == 5:
                    found += read_numbers(log, found)
                    with refusal.armed():
                        appender.commit_position(reader, log.position)
            came = refusal.came
            assert found == [*range(1, 601)] and not appender.take_dropped()
    assert number > 5 and "retrying" in caplog.text


def read_numbers(log: StreamLog, found: list[int]) -> list[int]:
    """Those in the log that were not found yet."""
    frames = LogView(log.directory).frames(Cursor(log.base), Cursor(log.position))
    numbers = [int(sn) for frame in frames for sn in frame.run.sequence_numbers().tolist()]
    assert len(set(numbers)) == len(numbers)
    return [sn for sn in numbers if not found or sn > found[-1]]


# --- writers that have no line -------------------------------------------------------------------------------


class Recording:
    """An appender that records writers, on a log of small segments."""

    def __init__(self, directory: Path, topic: str | None = None) -> None:
        self.log = StreamLog.create(directory, max_bytes=4 << 14, segment_bytes=1 << 14, metadata={})
        self.types = WriterTypes(directory, lambda _: None)
        self.reader = cast(Any, SimpleNamespace(hold_acknowledgments=False, consumed=lambda *_: None))
        self.appender = self.another(topic)

    def another(self, topic: str | None) -> LogAppender:
        everything = cast(Any, SimpleNamespace(accept=lambda run, *, reception, now: run))
        shown = cast(Any, SimpleNamespace(show_log=lambda log: None))
        return LogAppender(self.log, everything, shown, None, self.types, hints={}, topic=topic)

    def found(self) -> list[tuple[Guid, int, str | None]]:
        """Writer, first number and topic of each frame; a writer that has no line is not sound."""
        reported = read_writer_types(self.log.directory)
        frames = LogView(self.log.directory).frames(Cursor(self.log.base), Cursor(self.log.position))
        runs = [(frame.run, frame.position) for frame in frames]
        assert not reported.damage and {run.writer for run, _ in runs} <= reported.by_writer.keys()
        return [(run.writer, run.first_sn, reported.topic_of(run.writer, at).topic) for run, at in runs]


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer_types, "_write", refuse)
        yield


def test_samples_of_a_writer_whose_line_cannot_be_written_wait(tmp_path: Path) -> None:
    """Nobody could read them: they are not acknowledged, and come when there is room."""
    recording = Recording(tmp_path / "log")
    appender, reader = recording.appender, recording.reader
    appender.deliver(reader, [uniform(guid(1), 1, 2)])
    with full_disk():
        appender.deliver(reader, [uniform(guid(2), 1, 2)])
        appender.deliver(reader, [uniform(guid(1), 3, 2)])
        assert reader.hold_acknowledgments and appender.is_full and not appender.room()
        appender.commit_position(reader, 0)
        assert recording.log.rows == 2
    appender.commit_position(reader, 0)
    assert not reader.hold_acknowledgments and not appender.is_full
    assert [(w, n) for w, n, _ in recording.found()] == [(guid(1), 1), (guid(2), 1), (guid(1), 3)]


def test_on_log_full_drop_drops_samples_of_a_writer_that_cannot_be_recorded(
    tmp_path: Path,
) -> None:
    recording = Recording(tmp_path / "log")
    appender, reader = recording.appender, recording.reader
    appender._on_full = OnLogFull.DROP
    with full_disk():
        appender.deliver(reader, [uniform(guid(2), 1, 2)])
    assert appender.take_dropped() == {guid(2): 2} and not reader.hold_acknowledgments
    appender.deliver(reader, [uniform(guid(2), 3, 2)])
    assert recording.found() == [(guid(2), 3, None)]


def test_samples_that_cannot_be_given_up_end_a_receiver_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recording, now = Recording(tmp_path / "log"), 0
    appender, reader, log = recording.appender, recording.reader, recording.log
    monkeypatch.setattr(log_appender, "time", SimpleNamespace(monotonic_ns=lambda: now, time_ns=lambda: 0))
    appender.deliver(reader, [uniform(guid(1), 1, 2)])

    def refuse(_: int) -> None:
        raise LogError("a segment cannot be deleted")

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(log, "trim", refuse)
            for _ in range(3):
                appender.commit_position(reader, log.position)
                now += 2 * NANOSECONDS
        appender.commit_position(reader, log.position)
    assert caplog.text.count("a segment cannot be deleted; retrying") == 2
    monkeypatch.setattr(log, "trim", refuse)
    appender.commit_position(reader, log.position)
    now += 5 * NANOSECONDS
    appender.commit_position(reader, log.position)
    now += 1
    with pytest.raises(LogError, match="cannot be deleted"):
        appender.commit_position(reader, log.position)


def test_sporadic_errors_of_the_system_end_no_receiver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording, now = Recording(tmp_path / "log"), 0
    appender, reader = recording.appender, recording.reader
    monkeypatch.setattr(log_appender, "time", SimpleNamespace(monotonic_ns=lambda: now, time_ns=lambda: 0))

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    for number in (1, 2, 3):
        with monkeypatch.context() as patch:
            patch.setattr(writer_types, "_write", refuse)
            appender.deliver(reader, [uniform(guid(number), 1, 2)])
        assert reader.hold_acknowledgments
        now += 10 * NANOSECONDS
        appender.commit_position(reader, 0)
        assert not reader.hold_acknowledgments and recording.log.rows == 2 * number


def test_a_full_disk_is_logged_once_each_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    recording = Recording(tmp_path / "log")
    appender, reader = recording.appender, recording.reader
    for time in (1, 2):
        with full_disk():
            appender.deliver(reader, [uniform(guid(2 * time), 1, 2)])
            for _ in range(20):
                appender.commit_position(reader, 0)
        assert caplog.text.count("writers are held back until there is space") == time
        appender.commit_position(reader, 0)
        assert not reader.hold_acknowledgments
        appender.deliver(reader, [uniform(guid(2 * time + 1), 1, 2)])
        assert caplog.text.count("until there is space") == time


def test_a_topic_that_is_recorded_late_begins_with_its_first_sample(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "log", "one")
    one, two, reader = recording.appender, recording.another("two"), recording.reader
    one.deliver(reader, [uniform(guid(1), 1, 1)])
    with full_disk():
        two.deliver(reader, [uniform(guid(1), 1, 2)])
        one.deliver(reader, [uniform(guid(1), 2, 1)])
    two.commit_position(reader, 0)
    assert recording.found() == [(guid(1), 1, "one"), (guid(1), 2, "one"), (guid(1), 1, "two")]


def test_writers_come_and_go_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_types, "TYPED_WRITERS_MAX", 8)
    recording = Recording(tmp_path / "log", "t")
    appender, reader, log = recording.appender, recording.reader, recording.log
    seen: set[Guid] = set()
    for n in range(100):
        appender.deliver(reader, [uniform(guid(n), 1, 40, size=96)])
        seen.update(writer for writer, _, topic in recording.found() if topic == "t")
        appender.commit_position(reader, log.position)
    assert seen == {guid(n) for n in range(100)} and not appender.take_dropped()


def test_more_writers_than_one_segment_may_have_are_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer_types, "TYPED_WRITERS_MAX", 8)
    recording = Recording(tmp_path / "log", "t")
    appender, reader, log = recording.appender, recording.reader, recording.log
    appender.deliver(reader, [uniform(guid(n), 1, 2) for n in range(10)])
    assert appender.take_dropped() == {guid(8): 2, guid(9): 2} and not reader.hold_acknowledgments
    assert [writer for writer, *_ in recording.found()] == [guid(n) for n in range(8)]
    assert caplog.text.count("are dropped until older samples are trimmed") == 1
    while not log.base:
        appender.deliver(reader, [uniform(guid(0), log.writers[guid(0)] + 1, 40, size=96)])
        appender.commit_position(reader, log.position)
    appender.deliver(reader, [uniform(guid(9), 3, 2)])
    assert recording.found()[-1] == (guid(9), 3, "t") and not appender.take_dropped()
