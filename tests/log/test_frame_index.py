"""ReservedFrames in a log that are found by what was walked before: the same places, and no part is walked twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from spark_rtps.transport.log import frame_index, frame_search, segment
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.frame_index import FrameIndex
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.stream_log import StreamLog
from tests.log.make_runs import guid, single, uniform

W1 = guid(1)
PAGE = segment.PAGE


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StreamLog:
    """Marks lie three frames apart."""
    for module in (frame_index, frame_search):
        monkeypatch.setattr(module, "MARK_FRAMES", 3)
    return StreamLog.create(tmp_path / "log", max_bytes=64 * PAGE, segment_bytes=2 * PAGE, metadata={})


def fill(log: StreamLog, count: int, rng: random.Random) -> None:
    for _ in range(count):
        many = rng.random() < 0.3
        run = uniform(W1, log.rows + 1, rng.randrange(2, 9)) if many else single(W1, log.rows + 1, 100)
        assert log.append(run, reception=1_000_000 + 10 * log.rows + rng.randrange(-300, 300))


@pytest.mark.parametrize("seed", range(4))
def test_places_are_those_that_a_view_without_an_index_finds(log: StreamLog, seed: int) -> None:
    rng, index = random.Random(seed), FrameIndex()
    for _ in range(6):
        fill(log, 40, rng)
        if rng.random() < 0.5:
            log.trim(rng.randrange(log.base, log.position))
        plain, tail = LogView(log.directory), log.position
        for _ in range(20):
            view = LogView(log.directory, index=index)
            position = plain.next_frame(rng.randrange(log.base, tail))
            start = Cursor(position)
            rows, nbytes = rng.randrange(1, 400), rng.randrange(1, tail)
            limits = rng.choice(
                ({"max_rows": rows}, {"max_bytes": nbytes}, {"max_rows": rows, "max_bytes": nbytes})
            )
            assert view.advance(start, **limits, tail=tail) == plain.advance(start, **limits, tail=tail)
            pieces = rng.randrange(1, 9)
            assert view.split(start, Cursor(tail), pieces) == plain.split(start, Cursor(tail), pieces)
            time = 1_000_000 + rng.randrange(-100, 10 * log.rows + 100)
            assert view.at(time) == plain.at(time)
            inside = rng.randrange(log.base, tail)
            assert view.is_frame(inside) == plain.is_frame(inside)


class Left(Exception):
    """Whoever asked has gone."""


def test_a_scan_that_ends_with_its_request_is_resumed(log: StreamLog) -> None:
    log = StreamLog.create(
        log.directory.parent / "long", max_bytes=1 << 22, segment_bytes=1 << 20, metadata={}
    )
    for number in range(2_000):
        assert log.append(single(W1, number + 1, 100), reception=number)
    index, steps = FrameIndex(), []
    wanted = LogView(log.directory).at(1_900)

    def still() -> None:
        steps.append(1)
        if len(steps) % 100 == 0:
            raise Left

    tries = 0
    while True:
        tries += 1
        try:
            assert LogView(log.directory, index=index, still=still).at(1_900) == wanted
            break
        except Left:
            continue
    assert 6 <= tries <= 8 and len(steps) < 2_000 / 3 + 2, "no part of it is walked again"
    walked = len(steps)
    view = LogView(log.directory, index=index, still=still)
    assert view.at(1_800) == LogView(log.directory).at(1_800)
    assert len(view.split(Cursor(0), wanted, 7)) == 7
    assert len(steps) == walked


def test_segments_that_are_gone_are_forgotten(log: StreamLog) -> None:
    rng, index = random.Random(1), FrameIndex()
    fill(log, 200, rng)
    LogView(log.directory, index=index).split(Cursor(0), Cursor(log.position), 40)
    assert len(index._marks) > 4
    log.trim(log.position)
    fill(log, 8, rng)
    LogView(log.directory, index=index).advance(Cursor(log.base), max_rows=1 << 40, tail=log.position)
    assert len(index._marks) <= 2
