"""DEADLINE as a reader requests it, in virtual time: REQUESTED_DEADLINE_MISSED."""

from __future__ import annotations

import pytest

from spark_rtps.transport.protocol.reading.cache import reader_cache
from spark_rtps.transport.wire.samples import DISPOSED, UNREGISTERED
from tests.protocol.reader_cache_scene import Scene
from tests.protocol.runs_of_samples import SECOND, WALL, Sample, uniform_run, writer


def test_deadline_requested_missed() -> None:
    scene = Scene(deadline=SECOND)
    assert scene.cache.get_timer() is None
    scene.write(1, Sample(key=1), Sample(key=2))
    scene.wait(SECOND - 1)
    assert scene.counted() == {}
    scene.write(1, Sample(key=2))
    scene.wait(1)
    assert scene.counted() == {"requested_deadline_missed": 1}
    scene.wait(3 * SECOND)  # one for each period, for each instance
    assert scene.counted() == {"requested_deadline_missed": 1 + 3 + 3}


@pytest.mark.parametrize("state_change", [DISPOSED, UNREGISTERED])
def test_deadline_is_not_watched_of_instances_that_are_not_alive(state_change: int) -> None:
    scene = Scene(deadline=SECOND)
    scene.write(1, Sample(key=1))
    scene.write(1, Sample(key=1, flags=state_change))
    scene.wait(5 * SECOND)
    assert scene.counted() == {}
    assert scene.cache.get_timer() is None
    scene.write(1, Sample(key=1))
    scene.wait(SECOND)
    assert scene.counted() == {"requested_deadline_missed": 1}


def test_deadline_is_not_watched_of_lost_writers() -> None:
    scene = Scene(deadline=SECOND)
    scene.write(1, Sample(key=1))
    scene.write(2, Sample(key=2))
    scene.cache.writer_lost(writer(1))
    scene.wait(SECOND)
    assert scene.counted() == {"requested_deadline_missed": 1}


def test_deadline_goes_on_when_one_of_two_writers_unregisters() -> None:
    scene = Scene(deadline=SECOND)
    scene.write(1, Sample())
    scene.write(2, Sample())
    scene.write(1, Sample(flags=UNREGISTERED))
    scene.wait(SECOND)
    assert scene.counted() == {"requested_deadline_missed": 1}


def test_deadline_a_late_timer_counts_all_periods() -> None:
    scene = Scene(deadline=SECOND)
    scene.write(1, Sample())
    scene.cache.handle_timer(4 * SECOND + 1)
    assert scene.counted() == {"requested_deadline_missed": 4}
    assert scene.cache.get_timer() == 5 * SECOND


def test_deadline_begins_with_the_first_sample() -> None:
    scene = Scene(deadline=SECOND)
    scene.wait(10 * SECOND)
    scene.write(1, Sample())
    assert scene.cache.get_timer() == 11 * SECOND
    assert scene.counted() == {}


def test_deadline_without_a_key_is_of_the_topic() -> None:
    scene = Scene(keyed=False, deadline=SECOND)
    run = uniform_run(1, 1, 5)
    assert scene.cache.accept(run, reception=WALL, now=0) is run
    scene.wait(2 * SECOND)
    assert scene.counted() == {"requested_deadline_missed": 2}


def test_deadline_instances_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_cache, "INSTANCES_MAX", 10)
    scene = Scene(deadline=SECOND)
    scene.write(1, *(Sample(key) for key in range(30)))
    scene.wait(SECOND)
    assert scene.cache.counters.requested_deadline_missed == 10


def test_deadline_none_asked_for() -> None:
    scene = Scene()
    scene.write(1, Sample())
    assert scene.cache.get_timer() is None
