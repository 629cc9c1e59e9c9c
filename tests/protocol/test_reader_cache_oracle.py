"""The reader cache against the slow and obvious: one sample at a time, in plain Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rtps.transport.protocol.instances import Groups, running_maximum, separated
from spark_rtps.transport.protocol.reading.cache.reader_cache import ReaderCache
from spark_rtps.transport.qos import DestinationOrderKind, HistoryKind, OwnershipKind, Qos
from spark_rtps.transport.structure import INFINITE, Guid
from spark_rtps.transport.wire.samples import DISPOSED, NO_TIMESTAMP, REMOVED, UNREGISTERED
from tests.protocol.runs_of_samples import SECOND, WALL, Sample, keys_of, numbers, run_of, timestamp, writer

STATE_CHANGE = DISPOSED | UNREGISTERED


@dataclass
class Known:
    """What the oracle knows of an instance."""

    owner: int | None = None
    lapsed: bool = False
    newest: int | None = None
    passed: int | None = None
    deadline: int | None = None


@dataclass
class Oracle:
    qos: Qos
    writers: dict[Guid, Qos]
    known: dict[int, Known] = field(default_factory=dict)
    #: How far the reader's wall clock is from the writers'.
    step: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def accept(self, source: int, samples: list[Sample], batch: bool, now: int) -> list[int]:
        passing = [i for i, s in enumerate(samples) if self._passes(source, s, batch, now)]
        if batch:
            passing = self._bound(samples, passing)
        return passing

    def _passes(self, source: int, sample: Sample, batch: bool, now: int) -> bool:
        qos, stamp, reception = self.qos, timestamp(sample), WALL + now + self.step
        is_value = not sample.flags & STATE_CHANGE
        if batch and sample.flags & REMOVED:
            return self._drop("writer_removed_batch_sample_dropped_sample_count")
        lifespan = self.writers[writer(source)].lifespan
        if is_value and stamp != NO_TIMESTAMP and stamp + lifespan <= reception:
            return self._drop("expired_dropped_sample_count")
        latest = reception + qos.source_timestamp_tolerance
        by_source = qos.destination_order is DestinationOrderKind.BY_SOURCE_TIMESTAMP
        if by_source and stamp > latest:
            return self._drop("tolerance_source_timestamp_dropped_sample_count")
        known = self.known.setdefault(sample.key, Known())
        if qos.ownership is OwnershipKind.EXCLUSIVE and not self._may_write(source, known):
            return self._drop("ownership_dropped_sample_count")
        self._note(source, sample, known, now)
        stamp = reception if stamp == NO_TIMESTAMP else stamp
        if by_source:
            if known.newest is not None and known.newest > latest:
                known.newest = None
            if known.newest is not None and stamp < known.newest:
                return self._drop("old_source_timestamp_dropped_sample_count")
            known.newest = stamp
        if qos.time_based_filter and is_value:
            if stamp > latest:
                self.counts["refused_source_timestamp_sample_count"] += 1
                stamp = reception
            if known.passed is not None and known.passed > latest:
                known.passed = None
            if known.passed is not None and stamp - known.passed < qos.time_based_filter:
                return self._drop("time_based_filter_dropped_sample_count")
            known.passed = stamp
        return True

    def _may_write(self, source: int, known: Known) -> bool:
        if known.owner is None or known.lapsed or known.owner == source:
            return True
        mine = self.writers[writer(source)].ownership_strength
        theirs = self.writers[writer(known.owner)].ownership_strength
        return (mine, -source) > (theirs, -known.owner)

    def _note(self, source: int, sample: Sample, known: Known, now: int) -> None:
        if sample.flags & UNREGISTERED:
            if known.owner in (source, None):
                known.owner, known.deadline = None, None
        else:
            known.owner, known.lapsed = source, False
            known.deadline = None if sample.flags & DISPOSED else now + self.qos.deadline

    def _bound(self, samples: list[Sample], passing: list[int]) -> list[int]:
        qos = self.qos
        for name, bound, newest in (
            ("lost_by_history", qos.history_depth, True),
            ("rejected_by_samples_per_instance_limit", qos.max_samples_per_instance, False),
        ):
            if bound == INFINITE or (newest and qos.history is HistoryKind.KEEP_ALL):
                continue
            kept: list[int] = []
            of_instance: Counter[int] = Counter()
            for i in reversed(passing) if newest else passing:
                of_instance[samples[i].key] += 1
                if of_instance[samples[i].key] <= bound:
                    kept.append(i)
                else:
                    self.counts[name] += 1
            passing = sorted(kept)
        if qos.max_samples != INFINITE:
            self.counts["rejected_by_samples_limit"] += max(0, len(passing) - qos.max_samples)
            passing = passing[: qos.max_samples]
        return passing

    def lose(self, source: int) -> None:
        for known in self.known.values():
            if known.owner == source:
                known.owner, known.deadline = None, None

    def handle_timer(self, now: int) -> None:
        for known in self.known.values():
            while known.deadline is not None and known.deadline <= now:
                self.counts["requested_deadline_missed"] += 1
                known.deadline += self.qos.deadline
                known.lapsed = True

    def _drop(self, counter: str) -> bool:
        self.counts[counter] += 1
        return False


SAMPLES = st.builds(
    Sample,
    key=st.integers(0, 3),
    time=st.one_of(st.none(), st.integers(0, 40).map(lambda tenths: tenths / 10)),
    flags=st.sampled_from([0, 0, 0, 0, REMOVED, DISPOSED, UNREGISTERED, STATE_CHANGE]),
)
WRITE = st.tuples(st.integers(1, 3), st.lists(SAMPLES, min_size=1, max_size=12), st.booleans())
#: Seconds by which the reader's clock is off, as text: other steps have the other types.
CLOCK = st.sampled_from(["0", "2", "-2", "3600", "-3600"])
STEPS = st.lists(st.one_of(WRITE, st.integers(1, 3), st.floats(0, 2), CLOCK), max_size=12)
BOUND = st.one_of(st.just(INFINITE), st.integers(1, 4))
READERS = st.builds(
    Qos,
    ownership=st.sampled_from(OwnershipKind),
    destination_order=st.sampled_from(DestinationOrderKind),
    source_timestamp_tolerance=st.sampled_from([30 * SECOND, SECOND, 0, INFINITE]),
    time_based_filter=st.sampled_from([0, 1, SECOND // 2, SECOND]),
    deadline=st.sampled_from([INFINITE, SECOND // 2]),
    history=st.sampled_from(HistoryKind),
    history_depth=st.integers(1, 3),
    max_samples=BOUND,
    max_samples_per_instance=BOUND,
)
WRITERS = st.builds(
    Qos, ownership_strength=st.integers(0, 2), lifespan=st.sampled_from([INFINITE, 2 * SECOND])
)


@settings(max_examples=150, deadline=None)
@given(READERS, st.tuples(WRITERS, WRITERS, WRITERS), STEPS)
def test_all_rules_together(qos: Qos, writers: tuple[Qos, ...], steps: list[Any]) -> None:
    by_guid = {writer(number): each for number, each in enumerate(writers, 1)}
    cache = ReaderCache(qos, keys=keys_of, writer_qos=by_guid.get)
    oracle = Oracle(qos, by_guid)
    now, sn = 0, 1
    for step in steps:
        if isinstance(step, tuple):
            source, samples, batched = step
            run = run_of(source, sn, samples, batch_sn=int(batched))
            accepted = cache.accept(run, reception=WALL + now + oracle.step, now=now)
            expected = oracle.accept(source, samples, batched, now)
            assert numbers(accepted) == [sn + i for i in expected]
            sn += len(samples)
        elif isinstance(step, str):
            oracle.step = int(step) * SECOND
        elif isinstance(step, int):
            cache.writer_lost(writer(step))
            oracle.lose(step)
        else:
            now += round(step * SECOND)
            cache.handle_timer(now)
            oracle.handle_timer(now)
        counted = cache.counters.snapshot()
        del counted["alive_instance_count"]
        assert {name: count for name, count in counted.items() if count} == +oracle.counts


KEYED_TIMES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=60)


@given(KEYED_TIMES, st.integers(1, 20), st.dictionaries(st.integers(0, 3), st.integers(0, 40)))
def test_time_based_filter_keeps_what_is_far_enough_from_the_last_kept(
    items: list[tuple[int, int]], separation: int, before: dict[int, int]
) -> None:
    items = sorted(items, key=lambda item: item[0])
    keys = np.array([key for key, _ in items], np.int64)
    times = np.array([time for _, time in items], np.int64)
    _, group = np.unique(keys, return_inverse=True)
    groups = Groups(np.arange(len(items)), group.astype(np.int64), np.zeros((4, 16), np.uint8))
    last = {key: before.get(key, -1000) for key in range(4)}
    thresholds = np.array([last[int(key)] + separation for key in np.unique(keys)], np.int64)
    expected = []
    for key, time in items:
        expected.append(time >= last[key] + separation)
        if expected[-1]:
            last[key] = time
    assert separated(groups, times, thresholds, separation).tolist() == expected


@given(KEYED_TIMES)
def test_running_maximum_of_each_group(items: list[tuple[int, int]]) -> None:
    items = sorted(items, key=lambda item: item[0])
    highest: dict[int, int] = {}
    expected = []
    for key, value in items:
        highest[key] = max(value, highest.get(key, value))
        expected.append(highest[key])
    group, values = (np.array([item[i] for item in items], np.int64) for i in (0, 1))
    assert running_maximum(values, group).tolist() == expected


@given(st.lists(st.binary(min_size=16, max_size=16) | st.sampled_from([bytes(16), b"\1" * 16]), min_size=1))
def test_groups_are_stable_and_complete(keys: list[bytes]) -> None:
    array = np.frombuffer(b"".join(keys), np.uint8).reshape(-1, 16)
    positions = np.arange(len(keys)) * 3
    groups = Groups.group_by_key(positions, array)
    assert sorted(groups.positions.tolist()) == positions.tolist()
    assert [groups.keys[g].tobytes() for g in groups.group] == [keys[p // 3] for p in groups.positions]
    assert len(groups.keys) == len(set(keys)) == len(groups.starts())
    for start, stop in zip(groups.starts(), groups.stops(), strict=True):
        within = groups.positions[start:stop]
        assert (np.diff(within) > 0).all()
        assert groups.ranks()[start:stop].tolist() == list(range(len(within)))
        assert groups.ranks_from_end()[start:stop].tolist() == list(range(len(within)))[::-1]
