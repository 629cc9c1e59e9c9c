"""Reassembly: any order, any packing, bounded whatever is declared."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from spark_rtps.transport import limits
from spark_rtps.transport.errors import DecodeError
from spark_rtps.transport.protocol.endpoint_info import WriterInfo
from spark_rtps.transport.protocol.intervals import IntervalSet
from spark_rtps.transport.protocol.policies import ReaderCounters
from spark_rtps.transport.protocol.reading.ordering.fragments import FragmentBudget, FragmentedSample
from spark_rtps.transport.protocol.reading.ordering.reassembly import Reassembly
from spark_rtps.transport.protocol.reading.ordering.reorder_buffer import ReorderBudget
from spark_rtps.transport.protocol.reading.ordering.writer_proxy import WriterProxy
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.parameters import (
    PID_KEY_HASH,
    PID_STATUS_INFO,
    ParameterList,
    encode_status_info,
)
from spark_rtps.transport.wire.samples import DISPOSED, HAS_KEY_HASH, KEY_ONLY, Run
from spark_rtps.transport.wire.submessages import DataFrag
from tests.support.campaigns import seeds

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
    sample = budget.start(WRITER, first, 77, now)
    assert sample is not None
    return sample


@pytest.mark.parametrize("seed", seeds(50))
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
        assert sample.add_fragments(frag(payload, first, count), 0)
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
    assert sample.add_fragments(frag(b"x" * 20, 2, 2, key=True), 0)
    assert sample.add_fragments(frag(b"x" * 20, 1, qos=qos, key=True), 0)
    run = sample.to_run()
    assert run.sample_flags()[0] == DISPOSED | KEY_ONLY | HAS_KEY_HASH
    hashes = run.key_hashes()
    assert hashes is not None
    assert hashes.tobytes() == b"k" * 16


def test_contradictions_are_refused_and_change_nothing() -> None:
    payload = bytes(range(40))
    sample = begin(FragmentBudget(), frag(payload, 1))
    assert sample.add_fragments(frag(payload, 1), 0)
    assert not sample.add_fragments(frag(payload, 2, total=48), 0)
    assert not sample.add_fragments(frag(payload, 2, size=4), 0)
    assert not sample.add_fragments(frag(payload, 2, key=True), 0)
    assert not sample.add_fragments(frag(payload, 6), 0), "past the end"
    assert not sample.add_fragments(DataFrag(ANY, WRITER.entity, 1, 2, 2, 8, 40, b"short"), 0)
    with pytest.raises(DecodeError):
        sample.add_fragments(frag(payload, 2, qos=ParameterList(((PID_KEY_HASH, b"short"),))), 0)
    assert list(sample.received) == [(1, 1)]


def test_impossible_sizes_are_not_admitted() -> None:
    budget = FragmentBudget()
    huge = limits.FRAGMENTED_SAMPLE_MAX
    assert budget.admits(DataFrag(ANY, WRITER.entity, 1, 1, 1, 8, huge, b"x" * 8))
    assert not budget.admits(DataFrag(ANY, WRITER.entity, 1, 1, 1, 8, huge + 1, b"x" * 8))
    assert not budget.admits(DataFrag(ANY, WRITER.entity, 1, 1, 1, 0, 16, b""))


class Flood:
    """A reader's reassembly, and writers of several participants."""

    def __init__(self) -> None:
        self.writers: dict[Guid, WriterProxy] = {}
        self.counters = ReaderCounters()
        self.reassembly = Reassembly(self.writers, self.counters)

    def writer(self, participant: int, number: int = 1, *, reliable: bool = True) -> WriterProxy:
        guid = Guid(bytes((participant,)) * 12, bytes((0, 0, number, 3)))
        info = WriterInfo(guid, (), (), reliable=reliable, transient_local=False)
        self.writers[guid] = WriterProxy(info, ReorderBudget(), reliable=reliable, expected=1)
        return self.writers[guid]

    def add(
        self, proxy: WriterProxy, sn: int, first: int, *, total: int, size: int = 0xF000, now: int = 0
    ) -> Run | None:
        payload = bytes(min(size, total - (first - 1) * size))
        frag = DataFrag(ANY, proxy.guid.entity, sn, first, 1, size, total, payload)
        completed = self.reassembly.add_fragments(proxy, frag, 0, now)
        return None if completed is None else completed.run

    @property
    def nbytes(self) -> int:
        budget = self.reassembly.budget
        assert budget.nbytes == sum(
            sample.nbytes for proxy in self.writers.values() for sample in proxy.fragments.values()
        )
        assert len(budget) == sum(len(proxy.fragments) for proxy in self.writers.values())
        return budget.nbytes


HUGE = limits.FRAGMENTED_SAMPLE_MAX


def test_memory_is_taken_as_bytes_arrive_not_as_declared() -> None:
    flood = Flood()
    proxy = flood.writer(1)
    for sn in range(1, 51):
        flood.add(proxy, sn, 1, total=HUGE)
    assert len(proxy.fragments) == 50, "what is declared takes no room"
    assert flood.nbytes <= 50 * (4 << 20)


def test_the_memory_of_fragments_is_within_the_counted_bytes() -> None:
    """Scattered fragments of one byte each, in a child of its own: the kernel's number."""
    code = (
        "import resource\n"
        "from tests.protocol.test_fragments import Flood, HUGE\n"
        "flood = Flood()\n"
        "proxies = [flood.writer(1, i) for i in range(1, 5)]\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for sn in range(1, 9):\n"
        "    for proxy in proxies:\n"
        "        for i in range(400):\n"
        "            flood.add(proxy, sn, 1 + i * (80 << 12), total=HUGE, size=2)\n"
        "grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10\n"
        "print(grown, flood.nbytes)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    output = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    grown, counted = map(int, output.stdout.split())
    assert grown <= limits.FRAGMENTED_BYTES_MAX + (16 << 20)
    assert counted <= limits.FRAGMENTED_BYTES_MAX


@pytest.mark.parametrize("reliable", [True, False])
def test_a_flood_of_one_participant_takes_nothing_from_another(reliable: bool) -> None:
    """By bytes, by number, and by many writers: honest samples are all completed meanwhile."""
    flood = Flood()
    honest = [flood.writer(1, i, reliable=reliable) for i in range(1, 4)]
    evil = [flood.writer(2, i) for i in range(1, 40)]
    done = 0
    pieces = 100
    for sn in range(1, 4):
        for first in range(1, pieces + 1):
            for proxy in honest:
                done += flood.add(proxy, sn, first, total=pieces * 0xF000, now=first) is not None
            for i, proxy in enumerate(evil):
                flood.add(proxy, sn * 1_000 + first, 1 + (i * 37 + first * 64) % 4_000, total=HUGE, now=first)
            assert flood.nbytes <= limits.FRAGMENTED_BYTES_MAX
            assert len(flood.reassembly.budget) <= limits.FRAGMENTED_SAMPLES_MAX
        assert done == 3 * sn
    assert flood.counters.fragment_overflow > 100


def test_the_largest_sample_is_completed_among_others() -> None:
    flood = Flood()
    large, small = flood.writer(1), flood.writer(2)
    flood.add(small, 1, 1, total=32 << 20)
    size, first = 0xF000, 1
    run = None
    while run is None and (first - 1) * size < HUGE:
        run = flood.add(large, 1, first, total=HUGE)
        flood.add(small, 1, 2, total=32 << 20)
        first += 1
    assert run is not None
    assert run.nbytes == HUGE
    assert small.fragments


def test_only_what_arrived_leaves_a_place() -> None:
    """Whatever a sample declares, and wherever its fragments lie, no more of its memory is touched."""
    flood, place = Flood(), np.full(8 << 20, 0xEE, np.uint8)
    flood.reassembly.places = lambda nbytes, count: place[:nbytes]
    proxy, size = flood.writer(1), 0xF000
    proxy.begin_at(1)
    last = place.nbytes // size + 1
    for first in (1, 2, last):
        flood.add(proxy, 1, first, total=place.nbytes)
    assert not place[: 2 * size].any() and not place[(last - 1) * size :].any()
    sample = proxy.fragments[1]
    assert sample.in_place and np.shares_memory(sample.data, place)
    flood.reassembly.vacate()
    assert not sample.in_place and not np.shares_memory(sample.data, place)
    assert not sample.data[: 2 * size].any() and not sample.data[(last - 1) * size :].any()
    assert not (sample.data[2 * size : (last - 1) * size] == 0xEE).all()


def test_the_last_needed_sample_of_a_writer_is_evicted() -> None:
    flood = Flood()
    proxy = flood.writer(1)
    for sn in (3, 1, 2):
        for first in range(1, 2_600):
            flood.add(proxy, sn, first, total=HUGE)
    assert min(proxy.fragments) == 1
    assert proxy.fragments[1].nbytes > 150 << 20
    assert 3 not in proxy.fragments
    assert flood.nbytes <= limits.FRAGMENTED_BYTES_MAX


def test_fragments_of_an_idle_writer_are_evicted_first() -> None:
    flood = Flood()
    idle, busy = flood.writer(1), flood.writer(2)
    flood.add(idle, 1, 1, total=HUGE)
    for sn in range(1, limits.FRAGMENTED_SAMPLES_MAX):
        flood.add(busy, sn, 1, total=HUGE, now=1_000_000_000)
    flood.add(busy, 500, 1, total=HUGE, now=1_000_000_000)
    assert not idle.fragments
    assert 500 in busy.fragments


def test_scattered_one_byte_fragments_are_bounded() -> None:
    total = 1 << 20
    sample = begin(FragmentBudget(), DataFrag(ANY, WRITER.entity, 1, 1, 1, 1, total, b"x"))
    taken = sum(
        sample.add_fragments(DataFrag(ANY, WRITER.entity, 1, n, 1, 1, total, b"x"), 0)
        for n in range(1, 20_001, 2)
    )
    assert taken == len(sample.received) == limits.REORDER_RUNS_MAX
    missing = sample.missing(total)
    assert missing is not None
    assert missing.num_bits <= 256


@pytest.mark.parametrize("seed", seeds(30))
def test_interval_set_against_a_set(seed: int) -> None:
    rng = random.Random(seed)
    intervals, model = IntervalSet(), set()  # type: ignore[var-annotated]
    for _ in range(60):
        first = rng.randrange(1, 60)
        last = first + rng.randrange(-1, 12)
        if rng.random() < 0.6:
            intervals.add_range(first, last)
            model.update(range(first, last + 1))
        else:
            intervals.remove_range(first, last)
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
    intervals.add_range(1, 1 << 62)
    intervals.remove_range(1 << 40, 1 << 41)
    assert list(intervals) == [(1, (1 << 40) - 1), ((1 << 41) + 1, 1 << 62)]
    assert np.iinfo(np.int64).max > intervals.highest
