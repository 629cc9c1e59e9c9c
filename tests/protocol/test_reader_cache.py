"""Each rule of the reader cache, in virtual time; named after the policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from spark_rtps.transport.protocol.reading.cache import reader_cache
from spark_rtps.transport.protocol.reading.cache.reader_cache import ReaderCache
from spark_rtps.transport.qos import DestinationOrderKind, HistoryKind, OwnershipKind, Qos
from spark_rtps.transport.structure import INFINITE
from spark_rtps.transport.wire.samples import DISPOSED, HAS_KEY_HASH, KEY_ONLY, REMOVED, UNREGISTERED
from tests.protocol.reader_cache_scene import Scene
from tests.protocol.runs_of_samples import SECOND, WALL, Sample, numbers, run_of, uniform_run, writer

MILLISECOND = SECOND // 1000


def at(*times: float | None, key: int = 0) -> Sequence[Sample]:
    return [Sample(key, time) for time in times]


# --- transparency ----------------------------------------------------------------------------------


def test_transparent_gives_back_the_very_run() -> None:
    scene = Scene(keyed=False)
    for batch_sn in (0, 7):
        run = uniform_run(1, 1, 100, batch_sn=batch_sn)
        assert scene.cache.accept(run, reception=WALL, now=0) is run
    assert scene.cache.get_timer() is None
    scene.cache.handle_timer(5)
    assert scene.counted() == {}


def test_transparent_does_not_ask_for_keys() -> None:
    def no_keys(run: object) -> Any:
        raise AssertionError("asked for keys")

    cache = ReaderCache(Qos(history=HistoryKind.KEEP_ALL), keys=no_keys, writer_qos=lambda guid: None)
    assert cache.accept(run_of(1, 1, at(1, 2)), reception=WALL, now=0) is not None


@pytest.mark.parametrize(
    "policy",
    [
        {"ownership": OwnershipKind.EXCLUSIVE},
        {"destination_order": DestinationOrderKind.BY_SOURCE_TIMESTAMP},
        {"time_based_filter": 1},
        {"deadline": SECOND},
        {"max_instances": 5},
    ],
)
def test_instances_are_known_with(policy: dict[str, Any]) -> None:
    scene = Scene(**policy)
    scene.write(1, Sample())
    assert scene.cache.counters.alive_instance_count == 1


# --- removed samples -------------------------------------------------------------------------------


def test_writer_removed_batch_sample_dropped_sample_count() -> None:
    scene = Scene()
    batch = [Sample(flags=REMOVED), Sample(), Sample(flags=REMOVED), Sample()]
    assert scene.write(1, *batch, batch_sn=1) == [1, 3]
    assert scene.counted() == {"writer_removed_batch_sample_dropped_sample_count": 2}
    assert scene.write(1, Sample(flags=REMOVED), batch_sn=2) == []
    assert scene.counted() == {"writer_removed_batch_sample_dropped_sample_count": 3}


def test_accept_writer_removed_batch_samples() -> None:
    scene = Scene(accept_removed=True)
    assert scene.write(1, Sample(flags=REMOVED), Sample(), batch_sn=1) == [0, 1]
    assert scene.counted() == {}


def test_removed_uniform_run() -> None:
    scene = Scene(keyed=False)
    run = uniform_run(1, 1, 5, batch_sn=1)
    run.flags = REMOVED
    assert scene.cache.accept(run, reception=WALL, now=0) is None
    assert scene.counted() == {"writer_removed_batch_sample_dropped_sample_count": 5}


# --- LIFESPAN --------------------------------------------------------------------------------------


def test_lifespan() -> None:
    scene = Scene()
    scene.writers[writer(1)] = Qos(lifespan=2 * SECOND)
    scene.now = 5 * SECOND
    assert scene.write(1, *at(2.9, 3.0, 3.1, 5.0)) == [2, 3]
    assert scene.counted() == {"expired_dropped_sample_count": 2}
    assert scene.write(2, *at(2.9, 3.0)) == [0, 1]  # another writer, another lifespan


def test_lifespan_needs_a_source_timestamp_and_spares_state_changes() -> None:
    scene = Scene()
    scene.writers[writer(1)] = Qos(lifespan=0)
    scene.now = 5 * SECOND
    assert scene.write(
        1, *at(None, 1), Sample(time=1, flags=DISPOSED), Sample(time=1, flags=UNREGISTERED)
    ) == [
        0,
        2,
        3,
    ]
    assert scene.counted() == {"expired_dropped_sample_count": 1}


def test_lifespan_as_long_as_can_be_does_not_overflow() -> None:
    scene = Scene()
    scene.writers[writer(1)] = Qos(lifespan=INFINITE - 1)
    assert scene.write(1, Sample(time=2.5e9)) == [0]  # near the end of the wire's seconds


def test_lifespan_whole_uniform_run() -> None:
    scene = Scene(keyed=False)
    scene.writers[writer(1)] = Qos(lifespan=SECOND)
    run = uniform_run(1, 1, 3)
    assert scene.cache.accept(run, reception=WALL, now=0) is run
    assert scene.cache.accept(run, reception=WALL + SECOND, now=0) is None


# --- OWNERSHIP -------------------------------------------------------------------------------------


def exclusive(*strengths: int, **policies: Any) -> Scene:
    scene = Scene(ownership=OwnershipKind.EXCLUSIVE, **policies)
    for number, strength in enumerate(strengths, 1):
        scene.writers[writer(number)] = Qos(
            ownership=OwnershipKind.EXCLUSIVE, ownership_strength=strength, lifespan=INFINITE
        )
    return scene


def test_ownership_exclusive_the_strongest_passes() -> None:
    scene = exclusive(1, 5)
    assert scene.write(1, Sample(), Sample()) == [0, 1]
    assert scene.write(2, Sample()) == [0]
    assert scene.write(1, Sample(), Sample()) == []
    assert scene.write(2, Sample()) == [0]
    assert scene.counted() == {"ownership_dropped_sample_count": 2}


def test_ownership_exclusive_is_per_instance() -> None:
    scene = exclusive(1, 5)
    assert scene.write(2, Sample(key=1)) == [0]
    assert scene.write(1, Sample(key=1), Sample(key=2), Sample(key=1), Sample(key=2)) == [1, 3]


def test_ownership_exclusive_ties_go_to_the_lowest_guid() -> None:
    scene = exclusive(3, 3)
    assert scene.write(2, Sample()) == [0]
    assert scene.write(1, Sample()) == [0]
    assert scene.write(2, Sample()) == []


def test_ownership_strength_may_change() -> None:
    scene = exclusive(1, 5)
    assert scene.write(2, Sample()) == [0]
    scene.writers[writer(1)] = Qos(ownership_strength=9)
    assert scene.write(1, Sample()) == [0]
    assert scene.write(2, Sample()) == []


def test_ownership_passes_on_when_the_owner_is_lost() -> None:
    scene = exclusive(1, 5)
    scene.write(2, Sample())
    scene.cache.writer_lost(writer(2))
    assert scene.write(1, Sample()) == [0]
    assert scene.write(2, Sample()) == [0]  # back, and stronger
    del scene.writers[writer(2)]  # not matched any more, and nobody said so yet
    assert scene.write(1, Sample()) == [0]


def test_ownership_passes_on_when_the_owner_unregisters() -> None:
    scene = exclusive(1, 5)
    assert scene.write(2, Sample(), Sample(flags=UNREGISTERED)) == [0, 1]
    assert scene.write(1, Sample()) == [0]
    assert scene.write(2, Sample(flags=UNREGISTERED), Sample()) == [0, 1]  # in one run
    assert scene.write(1, Sample()) == []


def test_ownership_stays_with_the_disposing_writer() -> None:
    scene = exclusive(1, 5)
    assert scene.write(2, Sample(), Sample(flags=DISPOSED)) == [0, 1]
    assert scene.write(1, Sample()) == []


def test_ownership_state_changes_of_others_do_not_pass() -> None:
    scene = exclusive(1, 5)
    scene.write(2, Sample())
    assert scene.write(1, Sample(flags=DISPOSED), Sample(flags=UNREGISTERED | KEY_ONLY)) == []
    assert scene.write(1, Sample()) == []
    assert scene.counted() == {"ownership_dropped_sample_count": 3}


def test_ownership_passes_on_when_the_owner_misses_its_deadline() -> None:
    scene = exclusive(1, 5, deadline=SECOND)
    scene.write(2, Sample(key=1), Sample(key=2))
    scene.wait(SECOND // 2)
    scene.write(2, Sample(key=2))
    scene.wait(SECOND // 2)
    assert scene.write(1, Sample(key=1), Sample(key=2)) == [0]
    assert scene.write(2, Sample(key=1)) == [0]  # back, and stronger
    assert scene.counted() == {"ownership_dropped_sample_count": 1, "requested_deadline_missed": 1}


def test_ownership_refused_samples_do_not_keep_a_deadline() -> None:
    scene = exclusive(1, 5, deadline=SECOND)
    scene.write(2, Sample())
    scene.wait(900 * MILLISECOND)
    assert scene.write(1, Sample()) == []
    scene.wait(100 * MILLISECOND)
    assert scene.cache.counters.requested_deadline_missed == 1
    assert scene.write(1, Sample()) == [0]


def test_ownership_without_a_key_is_of_the_topic() -> None:
    scene = Scene(keyed=False, ownership=OwnershipKind.EXCLUSIVE)
    scene.writers[writer(2)] = Qos(ownership_strength=1)
    run = uniform_run(2, 1, 4)
    assert scene.cache.accept(run, reception=WALL, now=0) is run
    assert scene.cache.accept(uniform_run(1, 1, 4), reception=WALL, now=0) is None


def test_ownership_shared_refuses_nobody() -> None:
    scene = Scene(deadline=SECOND)
    scene.writers[writer(2)] = Qos(ownership_strength=5)
    assert scene.write(2, Sample()) == [0]
    assert scene.write(1, Sample()) == [0]


def test_ownership_once_passed_on_is_firm_again() -> None:
    scene = exclusive(1, 5, 9, deadline=SECOND)
    scene.write(3, Sample())
    scene.wait(SECOND)
    assert scene.write(2, Sample()) == [0]
    assert scene.write(1, Sample()) == []


def test_ownership_does_not_mix_up_writers_that_come_and_go() -> None:
    scene = exclusive(1, 5, 9)
    scene.write(1, Sample(key=1))
    scene.write(2, Sample(key=2))
    scene.cache.writer_lost(writer(1))
    scene.write(3, Sample(key=3))
    assert scene.write(2, Sample(key=3)) == []
    scene.cache.writer_lost(writer(3))
    assert scene.write(1, Sample(key=2), Sample(key=3)) == [1]


def test_ownership_forgets_lost_writers() -> None:
    scene = exclusive()
    for round_ in range(50):
        for source in (1, 2, 3):
            scene.write(source, Sample(key=round_))
            scene.cache.writer_lost(writer(source))
    assert scene.cache._ownership._numbers == {}
    assert len(scene.cache._ownership._free) <= 3
    scene.cache.writer_lost(writer(9))


# --- DESTINATION_ORDER -----------------------------------------------------------------------------


def test_destination_order_by_source_timestamp() -> None:
    scene = Scene(destination_order=DestinationOrderKind.BY_SOURCE_TIMESTAMP)
    assert scene.write(1, *at(1, 3, 2, 3, 4)) == [0, 1, 3, 4]
    assert scene.write(2, *at(3.9, 4, 5)) == [1, 2]
    assert scene.write(2, *at(0, 1, key=7)) == [0, 1]
    assert scene.counted() == {"old_source_timestamp_dropped_sample_count": 2}


def test_destination_order_is_not_moved_back_by_what_it_drops() -> None:
    scene = Scene(destination_order=DestinationOrderKind.BY_SOURCE_TIMESTAMP)
    assert scene.write(1, *at(5)) == [0]
    assert scene.write(1, *at(3)) == []
    assert scene.write(1, *at(4)) == []


def test_destination_order_falls_back_to_reception() -> None:
    scene = Scene(destination_order=DestinationOrderKind.BY_SOURCE_TIMESTAMP)
    scene.now = 5 * SECOND
    assert scene.write(1, *at(None, 4.9, 5.1)) == [0, 2]


def test_destination_order_holds_for_disposes() -> None:
    scene = Scene(destination_order=DestinationOrderKind.BY_SOURCE_TIMESTAMP)
    assert scene.write(1, *at(5)) == [0]
    assert scene.write(2, Sample(time=4, flags=DISPOSED)) == []


def test_destination_order_by_reception_drops_nothing() -> None:
    assert Scene().write(1, *at(3, 2, 1)) == [0, 1, 2]


# --- TIME_BASED_FILTER -----------------------------------------------------------------------------


def test_time_based_filter() -> None:
    scene = Scene(time_based_filter=SECOND)
    assert scene.write(1, *at(0, 0.5, 0.9, 1.0, 1.9, 2.5, 2.6)) == [0, 3, 5]
    assert scene.write(1, *at(3.4, 3.5)) == [1]
    assert scene.counted() == {"time_based_filter_dropped_sample_count": 5}


def test_time_based_filter_is_per_instance() -> None:
    scene = Scene(time_based_filter=SECOND)
    mixed = [Sample(k, t / 10) for t in range(25) for k in (1, 2)]
    assert scene.write(1, *mixed) == [0, 1, 20, 21, 40, 41]


def test_time_based_filter_falls_back_to_reception() -> None:
    scene = Scene(time_based_filter=SECOND)
    assert scene.write(1, *at(None, None)) == [0]
    scene.wait(SECOND)
    assert scene.write(1, *at(None)) == [0]


def test_time_based_filter_lets_state_changes_pass() -> None:
    scene = Scene(time_based_filter=SECOND)
    kinds = [0, DISPOSED, 0, UNREGISTERED]
    assert scene.write(1, *(Sample(time=i / 100, flags=f) for i, f in enumerate(kinds))) == [0, 1, 3]
    assert scene.write(1, Sample(time=0.5, flags=DISPOSED)) == [0]


def test_time_based_filter_infinite_passes_one() -> None:
    scene = Scene(time_based_filter=INFINITE)
    assert scene.write(1, *at(0, 1e9, 2.5e9)) == [0]


def test_time_based_filter_does_not_make_a_deadline_missed() -> None:
    scene = Scene(time_based_filter=SECOND, deadline=SECOND)
    for _ in range(10):
        scene.write(1, Sample(time=scene.now / SECOND))
        scene.wait(800 * MILLISECOND)
    assert "requested_deadline_missed" not in scene.counted()


# --- HISTORY ---------------------------------------------------------------------------------------


def test_history_keep_last_of_a_batch() -> None:
    scene = Scene(history=HistoryKind.KEEP_LAST, history_depth=2)
    batch = [Sample(key) for key in (1, 1, 2, 1, 2, 3)]
    assert scene.write(1, *batch, batch_sn=1) == [1, 2, 3, 4, 5]
    assert scene.write(1, *batch, batch_sn=2) == [1, 2, 3, 4, 5]
    assert scene.counted() == {"lost_by_history": 2}
    assert scene.cache.counters.alive_instance_count == 0, "unbatched samples are not looked at"


def test_history_keep_last_loses_nothing_unbatched() -> None:
    scene = Scene(history=HistoryKind.KEEP_LAST, history_depth=1)
    assert scene.write(1, *at(1, 2, 3)) == [0, 1, 2]
    assert scene.counted() == {}


def test_history_keep_last_without_a_key() -> None:
    scene = Scene(keyed=False, history=HistoryKind.KEEP_LAST, history_depth=3)
    accepted = scene.cache.accept(uniform_run(1, 1, 10, batch_sn=1), reception=WALL, now=0)
    assert numbers(accepted) == [8, 9, 10]
    assert accepted is not None and accepted.stride == 8
    assert scene.counted() == {"lost_by_history": 7}


def test_history_does_not_count_removed_samples_twice() -> None:
    scene = Scene(history=HistoryKind.KEEP_LAST, history_depth=1)
    assert scene.write(1, Sample(), Sample(), Sample(flags=REMOVED), batch_sn=1) == [1]
    assert scene.counted() == {"writer_removed_batch_sample_dropped_sample_count": 1, "lost_by_history": 1}


# --- RESOURCE_LIMITS -------------------------------------------------------------------------------


def test_resource_limits_max_instances() -> None:
    scene = Scene(max_instances=2)
    assert scene.write(1, *(Sample(key) for key in (1, 2, 3, 1, 3))) == [0, 1, 3]
    assert scene.counted() == {"rejected_by_instances_limit": 2}
    assert scene.cache.counters.alive_instance_count == 2
    assert scene.write(1, Sample(1, flags=UNREGISTERED)) == [0]
    assert scene.cache.counters.alive_instance_count == 1
    assert scene.write(1, Sample(3)) == [0]
    assert scene.write(1, Sample(1), Sample(2)) == [1]


def test_resource_limits_max_instances_a_lost_writer_makes_room() -> None:
    scene = Scene(max_instances=2)
    assert scene.write(1, Sample(1)) == [0]
    assert scene.write(2, Sample(2)) == [0]
    scene.cache.writer_lost(writer(1))
    assert scene.write(2, Sample(2), Sample(3), Sample(4)) == [0, 1]


def test_resource_limits_max_instances_an_instance_that_is_back_stays() -> None:
    scene = Scene(max_instances=2)
    scene.write(1, Sample(1), Sample(2))
    scene.write(1, Sample(1, flags=UNREGISTERED))
    assert scene.write(1, Sample(1)) == [0]
    assert scene.write(1, Sample(3)) == []
    assert scene.cache.counters.alive_instance_count == 2


def test_resource_limits_max_instances_does_not_bind_without_a_key() -> None:
    scene = Scene(keyed=False, max_instances=1)
    run = uniform_run(1, 1, 5)
    assert scene.cache.accept(run, reception=WALL, now=0) is run
    assert scene.cache.counters.alive_instance_count == 0


def test_resource_limits_max_samples_per_instance_of_a_batch() -> None:
    scene = Scene(max_samples_per_instance=2)
    batch = [Sample(key) for key in (1, 1, 2, 1)]
    assert scene.write(1, *batch, batch_sn=1) == [0, 1, 2]
    assert scene.write(1, *batch) == [0, 1, 2, 3]
    assert scene.counted() == {"rejected_by_samples_per_instance_limit": 1}


def test_resource_limits_max_samples_of_a_batch() -> None:
    scene = Scene(max_samples=3)
    batch = [Sample(key) for key in (2, 1, 2, 1)]
    assert scene.write(1, *batch, batch_sn=1) == [0, 1, 2]
    assert scene.counted() == {"rejected_by_samples_limit": 1}


def test_instances_are_bounded_whatever_writers_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_cache, "INSTANCES_MAX", 100)
    scene = Scene(time_based_filter=SECOND)
    assert len(scene.write(1, *(Sample(key) for key in range(1000)))) == 100
    assert scene.counted() == {"rejected_by_instances_limit": 900}
    scene.cache.writer_lost(writer(1))
    assert len(scene.write(2, *(Sample(key) for key in range(1000, 1500)))) == 100
    assert len(scene.cache._instances) == 100


# --- shapes of runs --------------------------------------------------------------------------------


def test_order_of_rules_each_sample_is_counted_once() -> None:
    scene = Scene(
        time_based_filter=SECOND,
        destination_order=DestinationOrderKind.BY_SOURCE_TIMESTAMP,
        history=HistoryKind.KEEP_LAST,
        history_depth=1,
    )
    scene.writers[writer(1)] = Qos(lifespan=4 * SECOND)
    scene.now = 5 * SECOND
    batch = [
        Sample(time=0.5, flags=REMOVED),
        Sample(time=0.5),
        Sample(time=2.0),
        Sample(time=1.5),
        Sample(time=2.5),
        Sample(time=3.0),
    ]
    assert scene.write(1, *batch, batch_sn=1) == [5]
    assert scene.counted() == {
        "writer_removed_batch_sample_dropped_sample_count": 1,
        "expired_dropped_sample_count": 1,
        "old_source_timestamp_dropped_sample_count": 1,
        "time_based_filter_dropped_sample_count": 1,
        "lost_by_history": 1,
    }


def test_a_sparse_run_stays_right() -> None:
    scene = Scene(time_based_filter=SECOND)
    run = run_of(1, 10, at(0, 1, 2, 3, 4)).select(np.array([True, False, True, False, True]))
    assert run is not None
    accepted = scene.cache.accept(run, reception=WALL, now=0)
    assert numbers(accepted) == [10, 12, 14]
    run = run_of(1, 20, at(4.5, 5, 5.5, 6)).select(np.array([True, True, False, True]))
    assert run is not None
    assert numbers(scene.cache.accept(run, reception=WALL, now=0)) == [21, 23]


def test_keys_without_hashes_on_the_wire_come_from_the_caller() -> None:
    def keys(run: Any) -> Any:
        hashes = np.zeros((run.count, 16), np.uint8)
        hashes[:, 15] = run.sequence_numbers() % 2
        return hashes

    cache = ReaderCache(Qos(time_based_filter=SECOND), keys=keys, writer_qos=lambda guid: None)
    run = run_of(1, 1, at(0, 0, 0.5, 0.5, 1, 1), hashes=False)
    assert not run.sample_flags().any() & HAS_KEY_HASH
    assert numbers(cache.accept(run, reception=WALL, now=0)) == [1, 2, 5, 6]
