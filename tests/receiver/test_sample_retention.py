"""A receiver whose log is full of what nobody has consumed yet, and whose writers must not wait."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spark_rtps.serving.wire_format.misplaced_offset import find_misplacement
from spark_rtps.transport.errors import LogFullError
from spark_rtps.transport.log import segment
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.host_clocks import Clocks
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.receiver.config import ReceiverConfig
from spark_rtps.transport.receiver.log_appender import LogAppender
from spark_rtps.transport.receiver.sample_retention import Retention
from spark_rtps.transport.receiver.shown_counters import ShownCounters
from tests.log.make_runs import all_samples, guid, single, uniform
from tests.support.refusals import REFUSALS, Refusal

PAGE = segment.PAGE
W1 = guid(1)
SECOND = 1_000_000_000
YEAR = 31_536_000 * SECOND


def at(uptime: int, *, wall: int, boot: str = "first") -> Clocks:
    return Clocks(wall, uptime, boot)


class Scene:
    """A log of eight segments of two pages, and the appender in front of it."""

    def __init__(self, directory: Path, retention: str, period: int = 0) -> None:
        self.log = StreamLog.create(
            directory / "log", max_bytes=16 * PAGE, segment_bytes=2 * PAGE, metadata={}
        )
        self.shown = ShownCounters(self.log.directory, self.log, domain=0)
        self.config = ReceiverConfig(
            str(self.log.directory), "numbers", "Number", False, retention=retention, retention_ns=period
        )
        self.retention = Retention.for_config(self.config, self.log, self.shown)
        everything = SimpleNamespace(accept=lambda run, *, reception, now: run)
        self.appender = LogAppender(
            self.log, cast(Any, everything), self.shown, None, None, hints={}, retention=self.retention
        )
        self.reader = cast(Any, SimpleNamespace(hold_acknowledgments=False))
        self.sent = 0

    def start_again(self) -> None:
        self.retention = Retention.for_config(self.config, self.log, self.shown)
        assert self.retention is not None

    def deliver(self, count: int, size: int = 300) -> None:
        for _ in range(count):
            self.sent += 1
            self.appender.deliver(self.reader, [single(W1, self.sent, size)])

    def held(self) -> list[int]:
        frames = LogView(self.log.directory).frames(Cursor(self.log.base), Cursor(self.log.position))
        return [sample.sn for sample in all_samples(frames)]

    def trimmed(self) -> int:
        return self.shown._counters.snapshot()["log.trimmed_bytes"]


def test_retention_by_commits_holds_writers_back_when_the_log_is_full(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "committed")
    assert scene.retention is None
    scene.deliver(400)
    assert scene.reader.hold_acknowledgments and scene.appender.room() == 0
    assert scene.held()[0] == 1 and scene.trimmed() == 0


def test_retention_by_bytes_trims_the_oldest(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(tmp_path, "bytes")
    for _ in range(40):
        scene.deliver(10)
        assert scene.appender.room() > 0
        assert not scene.reader.hold_acknowledgments
    held = scene.held()
    assert held == list(range(held[0], 401)) and held[0] > 1
    assert scene.trimmed() == scene.log.base > 0
    files = [path.stat().st_size for path in scene.log.directory.glob("*.s*")]
    assert sum(files) <= scene.log.max_bytes
    output = [each.message for each in caplog.records if "are removed for new ones" in each.message]
    assert len(output) == 1 and "topic 'numbers'" in output[0]


def test_retention_by_bytes_makes_space_for_a_long_delivery(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "bytes")
    scene.deliver(100)
    runs = [uniform(W1, 101 + 20 * number, 20) for number in range(200)]
    scene.appender.deliver(scene.reader, runs)
    assert not scene.reader.hold_acknowledgments
    held = scene.held()
    assert held == list(range(held[0], 101 + 4000))


def test_retention_by_bytes_makes_space_for_a_run_of_several_segments(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "bytes")
    scene.deliver(200)
    scene.deliver(1, size=12 * PAGE)
    assert not scene.reader.hold_acknowledgments
    assert scene.held()[-1] == 201


def test_a_sample_that_never_fits_is_logged_and_nothing_is_trimmed(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "bytes")
    scene.deliver(200)
    base = scene.log.base
    scene.deliver(1, size=20 * PAGE)
    assert scene.reader.hold_acknowledgments and scene.log.base == base


def test_on_a_full_disk_too_the_oldest_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, "bytes")
    scene.deliver(60)
    assert scene.log.base == 0

    def full(*_: object) -> None:
        raise LogFullError("no room", path=tmp_path)

    monkeypatch.setattr(segment, "allocate", full)
    scene.deliver(200)
    assert not scene.reader.hold_acknowledgments
    held = scene.held()
    assert held == list(range(held[0], 261)) and scene.log.base > 0


def test_retention_by_time_trims_old_samples(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "time", period=10 * SECOND)
    assert scene.retention is not None
    for number in range(1, 101):
        scene.log.append(single(W1, number, 300), reception=number * SECOND)
    scene.retention.expire(at(0, wall=60 * SECOND))
    held = scene.held()
    assert held[0] <= 50 < held[0] + 2 * PAGE // 400, "in whole segments"
    assert scene.trimmed() == scene.log.base
    scene.retention.expire(at(SECOND - 1, wall=500 * SECOND))
    assert scene.held() == held, "not looked at so soon again"
    scene.retention.expire(at(440 * SECOND, wall=500 * SECOND))
    assert not scene.held() or scene.held()[0] > 90


def test_a_clock_that_is_set_forward_makes_nothing_too_old(tmp_path: Path) -> None:
    """A host without a battery for its clock starts in 1970; then the clock is set."""
    scene = Scene(tmp_path, "time", period=1000 * SECOND)
    assert scene.retention is not None
    for number in range(1, 101):
        scene.log.append(single(W1, number, 300), reception=number * SECOND)
    now = 100 * SECOND
    scene.retention.expire(at(now, wall=now))
    for later in (1, 2, 500, 998):
        scene.retention.expire(at(now + later * SECOND, wall=now + later * SECOND + 50 * YEAR))
        assert scene.held() == list(range(1, 101))
    scene.retention.expire(at(now + 1001 * SECOND, wall=now + 1001 * SECOND + 50 * YEAR))
    assert not scene.held() or scene.held()[0] > 90


@pytest.mark.parametrize(
    ("uptime", "boot"), [(300, "first"), (20, "second")], ids=["the same boot", "another boot"]
)
def test_a_clock_that_is_set_while_no_receiver_runs_makes_nothing_too_old(
    tmp_path: Path, uptime: int, boot: str
) -> None:
    scene = Scene(tmp_path, "time", period=1000 * SECOND)
    assert scene.retention is not None
    for number in range(1, 101):
        scene.log.append(single(W1, number, 300), reception=number * SECOND)
    now = 100 * SECOND
    scene.retention.expire(at(now, wall=now))
    for later in (0, 500, 999):  # a receiver that is started again and again
        moment = (uptime + later) * SECOND
        scene.start_again()
        scene.retention.expire(at(moment, wall=moment + 50 * YEAR, boot=boot))
        assert scene.held() == list(range(1, 101))
    for later in (1000, 2000):
        moment = (uptime + 999 + later) * SECOND
        scene.retention.expire(at(moment, wall=moment + 50 * YEAR, boot=boot))
    assert not scene.held() or scene.held()[0] > 90


def test_samples_that_aged_without_a_receiver_are_trimmed(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "time", period=1000 * SECOND)
    assert scene.retention is not None
    for number in range(1, 101):
        scene.log.append(single(W1, number, 300), reception=number * SECOND)
    scene.retention.expire(at(100 * SECOND, wall=100 * SECOND))
    scene.start_again()
    scene.retention.expire(at(5 * SECOND, wall=3600 * SECOND, boot="second"))
    assert not scene.held() or scene.held()[0] > 90


def test_retention_by_time_loses_no_sample_of_a_reader_at_the_end(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "time", period=10 * SECOND)
    assert scene.retention is not None
    place, got, base = Cursor(0), [], 0
    for number in range(1, 31):
        now = 20 * number * SECOND
        scene.log.append(single(W1, number, 3000), reception=now)
        scene.retention.expire(at(now, wall=now))
        view, end = LogView(scene.log.directory), Cursor(scene.log.position)
        assert find_misplacement(view, place, base=view.base, tail=end) is None
        got += [sample.sn for sample in all_samples(view.frames(place, end))]
        place, base = end, view.base
    assert got == list(range(1, 31)) and base > 0


def test_retention_by_time_trims_a_full_log_too(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "time", period=1 << 60)
    scene.deliver(400)
    assert not scene.reader.hold_acknowledgments and scene.trimmed() > 0


def test_a_configuration_travels_with_its_retention() -> None:
    config = ReceiverConfig("/log", "numbers", None, None, retention="time", retention_ns=5)
    assert ReceiverConfig.from_json(config.to_json()) == config
    assert replace(config, retention="bytes").retention == "bytes"


@pytest.mark.parametrize(("functions", "code"), REFUSALS)
def test_old_samples_are_trimmed_later_where_the_system_refuses(
    functions: Any, code: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    number, came = 0, True
    while came:
        number += 1
        scene, refusal = Scene(tmp_path / str(number), "time", 60 * SECOND), Refusal(functions, number, code)
        assert scene.retention is not None
        scene.deliver(100)
        now = time.time_ns()
        with refusal.armed():
            scene.retention.expire(at(0, wall=now))
            scene.retention.expire(at(61 * SECOND, wall=now + 61 * SECOND))
            scene.retention.expire(at(62 * SECOND, wall=now + 62 * SECOND))
        came = refusal.came
        assert len(LogView(scene.log.directory).segments) == 1
        assert scene.held()[-1] == 100 and scene.trimmed() == scene.log.base
        scene.log.close()
    assert number > 2 and "retrying" in caplog.text
