"""The machines of one reader, each against the table in its header."""

from __future__ import annotations

import itertools

import pytest

from spark_rtps.transport.protocol.writing.readers.activity import (
    ACTIVE,
    INACTIVE,
    RESTING,
    Activity,
    ActivityEvent,
    ActivityState,
)
from spark_rtps.transport.protocol.writing.readers.heartbeat_timer import (
    IDLE,
    PACED,
    UNACKNOWLEDGED_INTERVAL_MAX,
    UNRECEIVED,
    HeartbeatTimer,
)
from spark_rtps.transport.protocol.writing.readers.reader_repairs import DELAYED, HELD, ReaderRepairs
from spark_rtps.transport.protocol.writing.readers.reader_repairs import IDLE as NOTHING_ASKED
from spark_rtps.transport.structure import INFINITE
from spark_rtps.transport.wire.numbers import SequenceNumberSet

MS = 1_000_000
TABLE = {
    ACTIVE: {ActivityEvent.FALLS_SILENT: INACTIVE, ActivityEvent.RESTS: RESTING},
    INACTIVE: {ActivityEvent.ANSWERS: ACTIVE, ActivityEvent.RESTS: RESTING},
    RESTING: {ActivityEvent.RESUMES: ACTIVE},
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(ActivityState, ActivityEvent)))
def test_activity(state: ActivityState, event: ActivityEvent) -> None:
    activity = Activity()
    activity.state = state
    assert activity.on(event) is (event in TABLE[state])
    assert activity.state is TABLE[state].get(event, state)


def test_one_heartbeat_in_each_period_counts_as_unanswered() -> None:
    activity = Activity()
    for now in (100, 110, 199, 200, 350):
        activity.asked(100 * MS, now * MS)
    assert (activity.unanswered, activity.silent_since) == (3, 100 * MS)
    assert not activity.answered() and activity.unanswered == 0
    activity.asked(100 * MS, 500 * MS)
    assert (activity.unanswered, activity.silent_since) == (1, 500 * MS)


def test_an_acknack_that_acknowledges_no_more_than_those_before_repeats() -> None:
    activity = Activity()
    assert not activity.repeats(SequenceNumberSet(5), 10)
    assert activity.repeats(SequenceNumberSet(5), 10)
    assert activity.repeats(SequenceNumberSet.from_numbers(5, [7]), 10), "it requests something else"
    assert activity.repeats(SequenceNumberSet(4), 10) and activity.repeats(SequenceNumberSet(5), 10)
    assert not activity.repeats(SequenceNumberSet(7), 10)
    assert activity.repeats(SequenceNumberSet(7), 10)
    assert not activity.repeats(SequenceNumberSet(7), 6), "nothing that it lacks has been sent"


def test_heartbeats_to_a_reader_that_never_answered_become_rarer() -> None:
    timer = HeartbeatTimer()
    assert (timer.state, timer.due_at) == (IDLE, INFINITE)
    timer.received()
    assert timer.state is IDLE
    timer.lacks(received=False)
    assert timer.state is UNRECEIVED  # type: ignore[comparison-overlap]
    seen = []
    for _ in range(7):
        timer.overdue(100 * MS)
        seen.append(timer.unacknowledged_interval // MS)
    assert seen == [200, 400, 800, 1_600, 3_000, 3_000, UNACKNOWLEDGED_INTERVAL_MAX // MS]
    timer.received()
    assert timer.state is PACED
    timer.overdue(100 * MS)
    assert timer.unacknowledged_interval == UNACKNOWLEDGED_INTERVAL_MAX, "what is paced becomes no rarer"


def test_a_heartbeat_is_due_in_an_interval_or_sooner() -> None:
    timer = HeartbeatTimer()
    timer.lacks(received=True)
    timer.sent(100, 1_000)
    assert (timer.state, timer.due_at) == (PACED, 1_100)
    timer.hurries(200, 1_000)
    assert timer.due_at == 1_100, "it stays due when it was"
    timer.hurries(10, 1_000)
    assert timer.due_at == 1_010
    timer.complete()
    assert (timer.state, timer.due_at) == (IDLE, INFINITE)


def test_requests_are_answered_at_once_or_later_or_when_there_are_tokens() -> None:
    repairs = ReaderRepairs()
    assert repairs.asks(5, delay=0, congested=False), "at once"
    assert repairs.state is NOTHING_ASKED
    assert not repairs.asks(5, delay=10, congested=False)
    assert (repairs.state, repairs.due_at) == (DELAYED, 15)
    assert not repairs.asks(9, delay=10, congested=False)
    assert (repairs.state, repairs.due_at) == (DELAYED, 15), "with the first request"
    assert not repairs.asks(11, delay=10, congested=True)
    assert (repairs.state, repairs.due_at) == (HELD, 11)
    assert not repairs.asks(12, delay=10, congested=False)
    assert (repairs.state, repairs.due_at) == (HELD, 11)
    assert repairs.asks(13, delay=0, congested=False)


@pytest.mark.parametrize("gone", [False, True])
def test_answered_or_forgotten_requests_are_not_repeated(gone: bool) -> None:
    repairs = ReaderRepairs()
    repairs.requested.add_missing(SequenceNumberSet.from_numbers(1, [2, 3]))
    repairs.asks(5, delay=10, congested=False)
    asked = repairs.requested
    if gone:
        repairs.gone()
    else:
        assert repairs.take_requests() is asked
    assert (repairs.state, repairs.due_at, bool(repairs.requested)) == (NOTHING_ASKED, INFINITE, False)
