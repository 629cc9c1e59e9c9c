"""What a reader requests, and how often, parameter by parameter of its policy."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from spark_rtps.transport.protocol.policies import ReaderPolicy
from spark_rtps.transport.wire.submessages import AckNack, NackFrag
from tests.protocol.reader_script import MS, Script, started


def requests(s: Script, duration: int) -> list[tuple[int, list[tuple[int, int]]]]:
    """(time in ms since the start, ranges) of what is requested within ``duration`` ms."""
    found = []
    for ms in range(duration):
        for output in s.output():
            if isinstance(output, AckNack) and not output.missing.is_empty:
                found.append((ms, output.missing.ranges()))
        s.sleep(MS)
    return found


@pytest.mark.parametrize("round_trip_time", [0, 5, 50, 200])
def test_round_trip_time_is_the_least_between_requests_for_the_same_sample(round_trip_time: int) -> None:
    s = started(policy=ReaderPolicy(round_trip_time=round_trip_time * MS, nack_period=10_000 * MS))
    s.data(1).data(3)
    times = []
    for ms in range(1000):
        if ms % 3 == 0:  # whatever the writer says meanwhile
            s.heartbeat(1, 3)
        times += [ms for output in s.output() if isinstance(output, AckNack) and not output.missing.is_empty]
        s.sleep(MS)
    assert len(times) > 1
    assert all(b - a >= max(round_trip_time, 1) for a, b in pairwise(times)), times


def test_round_trip_time_does_not_delay_what_is_requested_for_the_first_time() -> None:
    s = started(policy=ReaderPolicy(round_trip_time=200 * MS))
    s.data(1).data(3)
    assert requests(s, 15) == [(10, [(2, 2)])]
    s.data(5)
    assert requests(s, 15) == [(10, [(4, 4)])]


def test_round_trip_time_holds_for_fragments() -> None:
    s = started(policy=ReaderPolicy(round_trip_time=100 * MS, nack_period=100 * MS))
    s.frag(1, 1).frag(1, 4).heartbeat(1, 1)
    times = []
    for ms in range(300):
        if ms == 20:
            s.frag(1, 2)  # a part of what was requested
        times += [ms for output in s.output() if isinstance(output, NackFrag)]
        s.sleep(MS)
    assert len(times) == 3
    assert times[1] - times[0] >= 100


def test_round_trip_time_0_does_not_ask_without_end() -> None:
    s = started(policy=ReaderPolicy(round_trip_time=0, nack_delay=0, reorder_delay=0, nack_period=0))
    s.data(2)
    assert len(requests(s, 100)) <= 100


def test_nack_period_is_the_longest_between_requests() -> None:
    s = started(policy=ReaderPolicy(round_trip_time=10 * MS, nack_period=80 * MS))
    s.data(1).data(3)
    times = [ms for ms, _ in requests(s, 1000)]
    assert [b - a for a, b in pairwise(times)][:4] == [10, 20, 40, 80]
    assert {b - a for a, b in pairwise(times[4:])} == {80}


def test_nack_period_requests_without_further_heartbeats() -> None:
    s = started(policy=ReaderPolicy(nack_period=500 * MS))
    s.data(1).heartbeat(1, 3)  # 2 and 3 were lost, and so is all the writer says from now on
    assert len(requests(s, 10_000)) >= 20


def test_receive_window_size_bounds_what_is_held() -> None:
    s = started(policy=ReaderPolicy(receive_window_size=10))
    s.data(2, 8).data(9, 15)
    assert s.proxy.held.window.units == 10
    assert 11 in s.proxy.held
    assert 12 not in s.proxy.held
    assert s.reader.counters.receive_window_overflow == 4
    s.data(1)
    assert s.taken() == list(range(1, 12))
    assert requests(s, 50)[0][1] == [(12, 15)], "dropped, and requested later"
    s.data(12, 15)
    assert s.taken() == [12, 13, 14, 15]


def test_receive_window_size_keeps_the_lowest() -> None:
    s = started(policy=ReaderPolicy(receive_window_size=3))
    s.data(10).data(11).data(12).data(4).data(2)
    s.data(1).data(3)
    assert s.taken() == [1, 2, 3, 4]
    assert s.reader.counters.receive_window_overflow == 2


def test_receive_window_size_full_asks_only_for_what_fits() -> None:
    s = started(policy=ReaderPolicy(receive_window_size=2))
    s.data(1).data(3).data(5).heartbeat(1, 20)
    assert requests(s, 15)[0][1] == [(2, 2), (4, 4)]


def test_receive_window_size_counts_a_batch_as_one() -> None:
    s = started(policy=ReaderPolicy(receive_window_size=2))
    s.batch(2, 11, 20).batch(3, 21, 30, without=(25,)).batch(4, 31, 40)
    assert s.proxy.held.window.units == 2
    assert s.reader.counters.receive_window_overflow == 10
    s.batch(1, 1, 10)
    assert s.taken() == [sn for sn in range(1, 31) if sn != 25]


def test_receive_window_size_unlimited_by_default() -> None:
    s = started()
    s.data(2, 10_000)
    assert s.proxy.held.window.units == 9_999


@pytest.mark.parametrize("seed", range(10))
def test_receive_window_size_is_kept_whatever_comes(seed: int) -> None:
    r = random.Random(seed)
    s = started(policy=ReaderPolicy(receive_window_size=20))
    held = s.proxy.held
    got: list[int] = []
    for _ in range(400):
        number = r.randint(1, 40)
        first = 10 * number - 9
        if r.random() < 0.5:
            s.batch(number, first, first + 9, without=r.choice([(), (first + 3,), (first, first + 7)]))
        else:
            start = first + r.randint(0, 9)
            s.data(start, r.randint(start, first + 9))
        got += s.taken()
        batches = {run.batch_sn for run in held.runs if run.batch_sn}
        assert (
            held.window.units == len(batches) + sum(run.count for run in held.runs if not run.batch_sn) <= 20
        )
        assert held.nbytes == s.reader.delivery.reorder_budget.nbytes == sum(run.nbytes for run in held.runs)
    assert got == sorted(set(got))
