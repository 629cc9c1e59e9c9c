"""Samples stamped far ahead, and clocks that are set: what honest writers write is still delivered."""

from __future__ import annotations

from typing import Any

import pytest

from spark_rtps.transport.qos import DestinationOrderKind, OwnershipKind, Qos
from spark_rtps.transport.structure import INFINITE
from spark_rtps.transport.wire.samples import DISPOSED, UNREGISTERED
from tests.protocol.reader_cache_scene import Scene
from tests.protocol.runs_of_samples import SECOND, Sample, writer

HOUR = 3600.0
YEARS = 80 * 365 * 24 * HOUR
BY_SOURCE = {"destination_order": DestinationOrderKind.BY_SOURCE_TIMESTAMP}
POLICIES: dict[str, dict[str, Any]] = {
    "by source": BY_SOURCE,
    "time-based filter": {"time_based_filter": SECOND},
    "both": {**BY_SOURCE, "time_based_filter": SECOND},
    "exclusive": {**BY_SOURCE, "ownership": OwnershipKind.EXCLUSIVE},
}
each_policy = pytest.mark.parametrize("policies", POLICIES.values(), ids=POLICIES)


def honest(scene: Scene, seconds: int) -> int:
    """A sample a second of the writers' own clock, from an honest writer; returns how many were delivered."""
    delivered = 0
    for _ in range(seconds):
        scene.wait(SECOND)
        delivered += len(scene.write(1, Sample(time=scene.now / SECOND)))
    return delivered


@each_policy
@pytest.mark.parametrize("ahead", [31.0, HOUR, YEARS])
@pytest.mark.parametrize("flags", [0, DISPOSED, UNREGISTERED])
def test_a_sample_from_the_future_keeps_no_later_one_out(
    policies: dict[str, Any], ahead: float, flags: int
) -> None:
    scene = Scene(**policies)
    scene.writers[writer(1)] = Qos(ownership_strength=1)
    delivered = honest(scene, 5)
    for _ in range(5):
        scene.write(2, Sample(time=scene.now / SECOND + ahead, flags=flags))
        delivered += honest(scene, 5)
    assert delivered == 30


@each_policy
def test_a_sample_from_the_future_among_others_of_a_batch(policies: dict[str, Any]) -> None:
    scene = Scene(**policies)
    batch = [Sample(time=t) for t in (0.0, YEARS, 1.0, YEARS, 2.0)]
    assert {0, 2, 4} <= set(scene.write(1, *batch, batch_sn=1))


@each_policy
def test_a_sample_from_the_future_may_be_the_first(policies: dict[str, Any]) -> None:
    scene = Scene(**policies)
    scene.write(2, Sample(time=YEARS))
    scene.wait(SECOND)
    scene.cache.writer_lost(writer(2))
    assert honest(scene, 10) == 10


def test_a_refused_timestamp_is_counted_and_leaves_nothing_behind() -> None:
    scene = Scene(**BY_SOURCE, ownership=OwnershipKind.EXCLUSIVE, deadline=SECOND)
    assert scene.write(1, *(Sample(key, YEARS) for key in range(50))) == []
    assert scene.counted() == {"tolerance_source_timestamp_dropped_sample_count": 50}
    assert scene.cache.counters.alive_instance_count == 0
    assert scene.cache.get_timer() is None


def test_the_filter_counts_times_that_it_refuses() -> None:
    scene = Scene(time_based_filter=SECOND)
    assert scene.write(1, Sample(time=YEARS), Sample(time=YEARS + 2)) == [0]
    assert scene.counted() == {
        "refused_source_timestamp_sample_count": 2,
        "time_based_filter_dropped_sample_count": 1,
    }


@pytest.mark.parametrize(("tolerance", "kept"), [(0, 1), (SECOND, 2), (10 * SECOND, 3), (INFINITE, 5)])
def test_the_tolerance_is_inclusive(tolerance: int, kept: int) -> None:
    scene = Scene(**BY_SOURCE, source_timestamp_tolerance=tolerance)
    samples = [Sample(time=t) for t in (0.0, 1.0, 10.0, 10.001, YEARS)]
    assert len(scene.write(1, *samples)) == kept


# --- the reader's clock ----------------------------------------------------------------------------


@each_policy
@pytest.mark.parametrize("stamped", [True, False])
def test_the_readers_clock_is_set_forward_and_back(policies: dict[str, Any], stamped: bool) -> None:
    scene = Scene(**policies)
    for step in (0, 3600, 0, 3600, 7200, 0):
        scene.step = step * SECOND
        if stamped:
            assert honest(scene, 10) == 10
            continue
        delivered = 0
        for _ in range(10):
            scene.wait(SECOND)
            delivered += len(scene.write(1, Sample(time=None)))
        assert delivered == 10


def test_a_reader_clock_an_hour_behind_drops_and_counts_by_source_samples() -> None:
    """As RTI Connext's reader does. Once the clock is right, all is delivered at once."""
    scene = Scene(**BY_SOURCE)
    assert honest(scene, 10) == 10
    scene.step = -3600 * SECOND
    assert honest(scene, 10) == 0
    assert scene.counted() == {"tolerance_source_timestamp_dropped_sample_count": 10}
    scene.step = 0
    assert honest(scene, 10) == 10


def test_a_larger_tolerance_lets_an_hour_pass() -> None:
    scene = Scene(**BY_SOURCE, source_timestamp_tolerance=2 * 3600 * SECOND)
    scene.step = -3600 * SECOND
    assert honest(scene, 10) == 10


def test_a_reader_clock_an_hour_behind_filters_by_reception_time() -> None:
    scene = Scene(time_based_filter=SECOND)
    assert honest(scene, 10) == 10
    scene.step = -3600 * SECOND
    assert honest(scene, 10) == 10
    scene.step = 0
    assert honest(scene, 10) == 10
    assert scene.counted() == {"refused_source_timestamp_sample_count": 10}
