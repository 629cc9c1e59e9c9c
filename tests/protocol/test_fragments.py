"""Reassembly: any order, any packing, bounded whatever is declared."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from spark_rtps.transport import limits
from spark_rtps.transport.errors import DecodeError
from spark_rtps.transport.protocol.intervals import IntervalSet
from spark_rtps.transport.protocol.reading.ordering.fragments import FragmentBudget, FragmentedSample
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.parameters import (
    PID_KEY_HASH,
    PID_STATUS_INFO,
    ParameterList,
    encode_status_info,
)
from spark_rtps.transport.wire.samples import DISPOSED, HAS_KEY_HASH, KEY_ONLY
from spark_rtps.transport.wire.submessages import DataFrag

WRITER = Guid(b"w" * 12, b"\0\0\1\3")
ANY = bytes(4)


def frag(
    payload: bytes,
    first: int,
    count: int = 1,
    *,
    size: int = 8,
    sn: int = 1,
    total: int | None = None,
    qos: ParameterList | None = None,
    key: bool = False,
) -> DataFrag:
    piece = payload[(first - 1) * size : (first - 1 + count) * size]
    return DataFrag(ANY, WRITER.entity, sn, first, count, size, total or len(payload), piece, qos, key)


def begin(budget: FragmentBudget, first: DataFrag, now: int = 0) -> FragmentedSample:
    sample, evicted = budget.start(WRITER, first, 77, now)
    assert sample is not None
    assert not evicted
    return sample


@pytest.mark.parametrize("seed", range(50))
def test_any_order_and_packing(seed: int) -> None:
    rng = random.Random(seed)
    payload = rng.randbytes(rng.randrange(4, 400))
    pieces = -(-len(payload) // 8)
    todo = []
    first = 1
    while first <= pieces:
        count = min(rng.randrange(1, 6), pieces - first + 1)
        todo.append((first, count))
        first += count
    todo += rng.choices(todo, k=len(todo) // 2)  # retransmissions
    rng.shuffle(todo)
    sample = begin(FragmentBudget(), frag(payload, *todo[0]))
    seen: set[int] = set()
    for first, count in todo:
        assert sample.add(frag(payload, first, count), 0)
        seen.update(range(first, first + count))
        missing = sample.missing(pieces)
        assert sample.is_complete == (missing is None) == (len(seen) == pieces)
        if missing is not None:
            assert set(missing.numbers()) == set(range(1, pieces + 1)) - seen
    run = sample.to_run()
    assert bytes(run.samples().payload(0)) == payload
    assert run.timestamps()[0] == 77


def test_inline_qos_of_any_fragment() -> None:
    qos = ParameterList(((PID_KEY_HASH, b"k" * 16), (PID_STATUS_INFO, encode_status_info(DISPOSED))))
    sample = begin(FragmentBudget(), frag(b"x" * 20, 1, key=True))
    assert sample.add(frag(b"x" * 20, 2, 2, key=True), 0)
    assert sample.add(frag(b"x" * 20, 1, qos=qos, key=True), 0)
    run = sample.to_run()
    assert run.sample_flags()[0] == DISPOSED | KEY_ONLY | HAS_KEY_HASH
    hashes = run.key_hashes()
    assert hashes is not None
    assert hashes.tobytes() == b"k" * 16


def test_contradictions_are_refused_and_change_nothing() -> None:
    payload = bytes(range(40))
    sample = begin(FragmentBudget(), frag(payload, 1))
    assert sample.add(frag(payload, 1), 0)
    assert not sample.add(frag(payload, 2, total=48), 0)
    assert not sample.add(frag(payload, 2, size=4), 0)
    assert not sample.add(frag(payload, 2, key=True), 0)
    assert not sample.add(frag(payload, 6), 0), "past the end"
    assert not sample.add(DataFrag(ANY, WRITER.entity, 1, 2, 2, 8, 40, b"short"), 0)
    with pytest.raises(DecodeError):
        sample.add(frag(payload, 2, qos=ParameterList(((PID_KEY_HASH, b"short"),))), 0)
    assert list(sample.received) == [(1, 1)]


def test_declared_sizes_are_budgeted_before_they_are_allocated() -> None:
    budget = FragmentBudget()
    huge = limits.FRAGMENTED_SAMPLE_MAX
    assert not budget.admits(DataFrag(ANY, WRITER.entity, 1, 1, 1, 8, huge + 1, b"x" * 8))
    assert not budget.admits(DataFrag(ANY, WRITER.entity, 1, 1, 1, 0, 16, b""))
    taken = 0
    for sn in range(1, 100):
        sample, _ = budget.start(WRITER, DataFrag(ANY, WRITER.entity, sn, 1, 1, 8, huge, b"x" * 8), 0, 0)
        taken += sample is not None
    assert taken == limits.FRAGMENTED_BYTES_MAX // huge
    assert budget.nbytes <= limits.FRAGMENTED_BYTES_MAX
    # what stays idle gives way
    big = DataFrag(ANY, WRITER.entity, 300, 1, 1, 8, huge, b"x" * 8)
    sample, evicted = budget.start(WRITER, big, 0, 2_000_000_000)
    assert sample is not None
    assert len(evicted) == 1


def test_scattered_one_byte_fragments_are_bounded() -> None:
    total = 1 << 20
    sample = begin(FragmentBudget(), DataFrag(ANY, WRITER.entity, 1, 1, 1, 1, total, b"x"))
    taken = sum(
        sample.add(DataFrag(ANY, WRITER.entity, 1, n, 1, 1, total, b"x"), 0) for n in range(1, 20_001, 2)
    )
    assert taken == len(sample.received) == limits.REORDER_RUNS_MAX
    missing = sample.missing(total)
    assert missing is not None
    assert missing.num_bits <= 256


@pytest.mark.parametrize("seed", range(30))
def test_interval_set_against_a_set(seed: int) -> None:
    rng = random.Random(seed)
    intervals, model = IntervalSet(), set()
    for _ in range(60):
        first = rng.randrange(1, 60)
        last = first + rng.randrange(-1, 12)
        if rng.random() < 0.6:
            intervals.add(first, last)
            model.update(range(first, last + 1))
        else:
            intervals.remove(first, last)
            model.difference_update(range(first, last + 1))
        got = list(intervals)
        assert {n for a, b in got for n in range(a, b + 1)} == model
        assert all(b + 1 < c for (_, b), (c, _) in pairwise(got))
        window = set(range(first, first + 20))
        assert {n for a, b in intervals.holes(first, first + 19) for n in range(a, b + 1)} == window - model
        assert {n for a, b in intervals.within(first, first + 19) for n in range(a, b + 1)} == window & model
        assert all((n in intervals) == (n in model) for n in window)


def test_interval_set_takes_ranges_of_any_size() -> None:
    intervals = IntervalSet()
    intervals.add(1, 1 << 62)
    intervals.remove(1 << 40, 1 << 41)
    assert list(intervals) == [(1, (1 << 40) - 1), ((1 << 41) + 1, 1 << 62)]
    assert np.iinfo(np.int64).max > intervals.highest
