"""The first sample of a log that was received at or after a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_rtps.transport.log import segment
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.stream_log import StreamLog
from tests.log.make_runs import guid, single, uniform

W1 = guid(1)
PAGE = segment.PAGE


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    return StreamLog.create(tmp_path / "log", max_bytes=64 * PAGE, segment_bytes=PAGE, metadata={})


def fill(log: StreamLog, count: int) -> dict[int, int]:
    """Frames received at 1000, 1010, ...; their positions by time."""
    found = {}
    for number in range(count):
        if number % 3:
            log.append(single(W1, log.rows + 1, 300), reception=1000 + 10 * number)
        else:
            log.append(uniform(W1, log.rows + 1, 4), reception=1000 + 10 * number)
    for frame in LogView(log.directory).frames(Cursor(log.base), Cursor(log.position)):
        found[frame.reception] = frame.position
    return found


def test_every_time_finds_its_sample(log: StreamLog) -> None:
    positions = fill(log, 60)
    assert len(log._segments.files) > 4
    view = LogView(log.directory)
    for time, position in positions.items():
        assert view.at(time) == Cursor(position)
        assert view.at(time - 5) == Cursor(position), "between two samples: the later one"
    assert view.at(0) == Cursor(0)
    assert view.at(max(positions) + 1) == Cursor(log.position)


def test_an_empty_log_has_only_an_end(log: StreamLog) -> None:
    assert LogView(log.directory).at(0) == LogView(log.directory).at(1 << 62) == Cursor(0)


def test_trimmed_frames_are_not_found(log: StreamLog) -> None:
    positions = fill(log, 60)
    log.trim(3 * PAGE)
    assert LogView(log.directory).at(0) == Cursor(3 * PAGE)
    left = min(time for time, position in positions.items() if position >= log.base)
    assert LogView(log.directory).at(left + 1).position == positions[left + 10]


def test_segments_before_the_time_are_not_scanned(log: StreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
    positions = fill(log, 90)
    view = LogView(log.directory)
    walked: list[Any] = []
    monkeypatch.setattr(view._segments, "headers", _recorded(view, walked))
    assert view.at(max(positions)).position == positions[max(positions)]
    assert len(walked) < len(positions) / 2


def _recorded(view: LogView, walked: list[int]) -> Any:
    headers = view._segments.headers

    def record(position: int, stop: int) -> Any:
        for header in headers(position, stop):
            walked.append(header.position)
            yield header

    return record


def test_damage_is_passed_over(log: StreamLog) -> None:
    positions = fill(log, 60)
    path = segment.segment_path(log.directory, 2 * PAGE)
    path.write_bytes(bytes(PAGE))
    view = LogView(log.directory)
    sound = {time: at for time, at in positions.items() if not 2 * PAGE <= at < 3 * PAGE}
    for time in positions:
        assert view.at(time).position == min(at for later, at in sound.items() if later >= time)
