"""The transition tables of what a reader owes one writer, row by row; others test what it means on the wire."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from spark_rtps.transport.protocol.endpoint_info import WriterInfo
from spark_rtps.transport.protocol.policies import ReaderPolicy
from spark_rtps.transport.protocol.reading.ordering.reorder_buffer import ReorderBudget
from spark_rtps.transport.protocol.reading.ordering.writer_proxy import WriterProxy
from spark_rtps.transport.protocol.reading.response.heartbeat_response import HeartbeatResponse, ResponseState
from spark_rtps.transport.protocol.reading.response.nack_schedule import NackRequest, NackSchedule
from spark_rtps.transport.protocol.reading.response.preemptive_acknack import (
    PreemptiveAckNack,
    PreemptiveState,
)
from spark_rtps.transport.protocol.reading.response.response_delays import REPETITION_MIN, ResponseDelays
from spark_rtps.transport.structure import INFINITE
from tests.protocol.reader_script import IT, ME, MS, WHERE, samples

POLICY = replace(
    ReaderPolicy(), nack_delay=2 * MS, reorder_delay=10 * MS, round_trip_time=20 * MS, nack_period=60 * MS
)
INFO = WriterInfo(IT, WHERE, (), True, False)


# --- PreemptiveAckNack ---------------------------------------------------------------------------


def test_an_unheard_writer_gets_pre_emptive_acknacks_further_and_further_apart() -> None:
    policy = replace(POLICY, preemptive_period=100 * MS, preemptive_period_max=400 * MS)
    it, now, waits = PreemptiveAckNack(), 0, []
    assert (it.state, it.at) == (PreemptiveState.UNRECEIVED, INFINITE)
    for _ in range(5):
        it.on_due(policy, now)
        assert it.state is PreemptiveState.DUE
        waits.append(it.at - now)
        now = it.at
        it.on_response()
        assert it.state is PreemptiveState.UNRECEIVED  # type: ignore[comparison-overlap]
    assert waits == [100 * MS, 200 * MS, 400 * MS, 400 * MS, 400 * MS]
    for _ in range(12):
        it.on_due(policy, now)
    assert it.at - now == 30_000 * MS, "half a minute long as ever, then seldom"


@pytest.mark.parametrize("is_due", [False, True])
def test_a_heartbeat_ends_the_pre_emptive_acknacks(is_due: bool) -> None:
    it = PreemptiveAckNack()
    if is_due:
        it.on_due(POLICY, 0)
    assert it.on_heartbeat()
    assert (it.state, it.at) == (PreemptiveState.RECEIVED, INFINITE)
    assert not it.on_heartbeat(), "only the first is the first"
    it.on_response()
    assert it.state is PreemptiveState.RECEIVED


def test_base_0_is_tried_late_and_every_second_time() -> None:
    it, bases = PreemptiveAckNack(), []
    for count in range(1, 11):
        it.on_due(POLICY, 0)
        bases.append(it.acknack(ME.entity, INFO, count).missing.base)
    assert bases == [1, 1, 1, 1, 1, 0, 1, 0, 1, 0]


# --- HeartbeatResponse ---------------------------------------------------------------------------


def test_an_acknowledgement_owed_later_waits_and_an_earlier_time_wins() -> None:
    it = HeartbeatResponse()
    assert it.owe_at(50)
    assert (it.state, it.at) == (ResponseState.DELAYED, 50)
    assert not it.owe_at(60)
    assert it.owe_at(40)
    assert (it.state, it.at) == (ResponseState.DELAYED, 40)
    assert it.owe(), "its timer is no longer needed"
    assert (it.state, it.at) == (ResponseState.DUE, INFINITE)
    assert not it.owe_at(30), "it is owed now"


@pytest.mark.parametrize("state", ResponseState)
def test_an_acknack_settles_what_is_owed(state: ResponseState) -> None:
    it = HeartbeatResponse()
    if state is ResponseState.DELAYED:
        it.owe_at(50)
    elif state is ResponseState.DUE:
        it.owe()
    assert it.on_acknack(7) is (state is ResponseState.DELAYED)
    assert (it.state, it.at, it.acked_base) == (ResponseState.IDLE, INFINITE, 7)


def test_a_response_without_acknack_leaves_a_delayed_one_owed() -> None:
    it = HeartbeatResponse()
    it.owe_at(50)
    it.on_response()
    assert (it.state, it.at) == (ResponseState.DELAYED, 50)
    it.owe()
    it.on_response()
    assert it.state is ResponseState.IDLE


def test_heartbeats_before_an_answer_share_it_and_those_after_it_are_suppressed() -> None:
    delays = ResponseDelays(
        replace(POLICY, min_heartbeat_response_delay=5 * MS, max_heartbeat_response_delay=9 * MS), Random(1)
    )
    it = HeartbeatResponse()
    assert not it.suppresses(20 * MS, 0)
    at = it.answer_at(delays, 0)
    assert 5 * MS <= at <= 9 * MS
    assert it.answer_at(delays, 1 * MS) == at
    assert it.answer_at(delays, at) > at
    assert it.suppresses(20 * MS, at + 1)
    assert not it.suppresses(20 * MS, at + 20 * MS)


# --- NackSchedule --------------------------------------------------------------------------------


def schedule(last_sn: int, *held: tuple[int, int]) -> tuple[NackSchedule, WriterProxy]:
    """A writer of samples 1..last_sn, of which only ``held`` arrived."""
    proxy = WriterProxy(INFO, ReorderBudget(), reliable=True, expected=1)
    proxy.last_sn = last_sn
    for first, last in held:
        proxy.held.add_run(samples(first, last, 32))
    return NackSchedule(proxy, ResponseDelays(POLICY, Random(1))), proxy


def due(it: NackSchedule, *, closed: bool = False) -> tuple[int, NackRequest | None]:
    """When the timer comes, and what is requested then; the request is sent."""
    now = it.at
    request = it.on_timer(now, closed=closed, begun=0)
    it.on_response()
    return now, request


def test_quiet_until_a_hole_shows() -> None:
    it, _ = schedule(0, (3, 4))
    assert it.at == INFINITE
    assert it.on_hole(3, 0)
    assert (it.at, it.limit) == (POLICY.reorder_delay, 3)


def test_only_a_suspicion_that_is_due_sooner_moves_the_limit() -> None:
    it, _ = schedule(9, (3, 3), (6, 6))
    it.on_hole(3, 0)
    assert not it.on_hole(6, 1 * MS)
    assert (it.at, it.limit) == (POLICY.reorder_delay, 3)
    assert it.on_hole(6, 1 * MS, announced=True)
    assert (it.at, it.limit) == (1 * MS + POLICY.nack_delay, 6)


def test_a_request_is_repeated_with_growing_patience_while_nothing_comes() -> None:
    it, _ = schedule(2, (3, 3))
    it.on_hole(3, 0)
    at, request = due(it)
    assert request == (1, False)
    assert it.requested_to == 3
    waits = []
    for _ in range(4):
        before, (at, request) = at, due(it)
        assert request == (1, True)
        waits.append(at - before)
    assert waits == [20 * MS, 40 * MS, 60 * MS, 60 * MS]


def test_a_later_hole_is_requested_without_delaying_the_first_repetition() -> None:
    it, _ = schedule(2, (3, 3), (6, 6))
    it.on_hole(3, 0)
    at, _ = due(it)
    it.on_hole(6, at + 1 * MS, announced=True)
    second, request = due(it)
    assert (second, request) == (at + 3 * MS, (4, False))
    assert it.requested_to == 6
    third, request = due(it)
    assert (third, request) == (at + 20 * MS, (1, True))


def test_fragments_of_what_was_requested_make_the_schedule_impatient_again() -> None:
    it, _ = schedule(2, (3, 3))
    it.on_hole(3, 0)
    for _ in range(3):
        at, _ = due(it)
    assert it.at == at + 60 * MS
    assert it.on_fragment(1, at + 1 * MS), "what is missing when no more come is requested soon"
    assert it.at == at + 1 * MS + POLICY.reorder_delay


def test_a_fulfilled_request_lets_the_next_one_leave_at_once() -> None:
    it, proxy = schedule(4, (3, 3), (5, 5))
    it.on_hole(3, 0)
    at, request = due(it)
    assert request == (1, False)
    it.on_repair(at + 1 * MS)
    assert it.requested_to == 3, "it has not all come"
    proxy.held.add_run(samples(1, 2, 32))
    proxy.held.discard_below(4)
    proxy.move_to(4)
    assert it.on_repair(at + 2 * MS)
    assert (it.requested_to, it.at, it.limit) == (0, at + 2 * MS + POLICY.nack_delay, 5)
    assert due(it)[1] == (4, False)


def test_a_heartbeat_restores_the_patience_of_the_first_repetition() -> None:
    it, _ = schedule(2, (3, 3))
    it.on_hole(3, 0)
    for _ in range(4):
        at, _ = due(it)
    assert it.at == at + 60 * MS
    now = at + 30 * MS
    assert it.on_heartbeat(1, now, now, is_first=False)
    again, request = due(it)
    assert again == now + POLICY.nack_delay
    assert request == (1, True)
    assert it.at == again + 20 * MS


@pytest.mark.parametrize("closed", [False, True])
def test_the_timer_finds_nothing_to_request(closed: bool) -> None:
    it, proxy = schedule(2, (3, 3))
    it.on_hole(3, 0)
    if not closed:
        proxy.held.clear()
        proxy.move_to(4)
    assert due(it, closed=closed)[1] is None
    assert it.at == INFINITE


def test_a_writer_that_is_open_again_is_asked_at_once_for_all_it_announced() -> None:
    it, proxy = schedule(2, (3, 3))
    it.on_hole(3, 0)
    due(it)
    proxy.last_sn = 8
    it.on_open()
    assert (it.at, it.limit, it.requested_to) == (0, 8, 0)
    assert due(it)[1] == (1, False)
    assert it.requested_to == 8


def test_nothing_is_repeated_too_soon_whatever_the_policy_is() -> None:
    proxy = schedule(2, (3, 3))[1]
    hasty = replace(POLICY, nack_delay=0, reorder_delay=0, round_trip_time=0, nack_period=0)
    it = NackSchedule(proxy, ResponseDelays(hasty, Random(1)))
    it.on_hole(3, 0)
    at, _ = due(it)
    assert it.at == at + REPETITION_MIN
