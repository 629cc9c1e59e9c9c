"""Tethering by virtual time: who is let go, when it is told, when it stops counting, when it is back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rtps.transport.log.subscriber_slots import SubscriberState
from spark_rtps.transport.log.tethering import Consumer, Tethering
from spark_rtps.transport.structure import Guid

ACTIVE, LINGER, RESTING = SubscriberState.ACTIVE, SubscriberState.LINGER, SubscriberState.RESTING
WINDOW = 800
LIMIT, REST = 5_000, 10_000
A, B, C = (Guid(bytes(12), bytes((n, 0, 0, 4))) for n in (1, 2, 3))


class Log:
    """A log's consumers and a clock."""

    def __init__(self) -> None:
        self.tethering = Tethering(WINDOW, LIMIT, REST)
        self.now = 1_000_000
        self.sent = 0
        self.consumers: dict[Guid, Consumer] = {}

    def at(self, guid: Guid, position: int, *, tethered: bool = False) -> None:
        self.consumers[guid] = Consumer(position, tethered)

    def after(self, time: int) -> list[tuple[Guid, SubscriberState]]:
        self.now += time
        return self.tethering.update(self.consumers, self.sent, now=self.now)


def lagging() -> Log:
    """A is in the bottom of the window at whose top B is."""
    log = Log()
    log.at(A, 100)
    log.at(B, 800, tethered=True)
    assert log.after(0) == []
    return log


def test_a_slow_reader_goes_through_all_states() -> None:
    log = lagging()
    assert log.after(LIMIT - 1) == [] and log.tethering.state(A) is ACTIVE
    assert log.after(1) == [(A, LINGER)] and log.tethering.state(A) is LINGER
    assert log.after(LIMIT - 1) == []
    assert log.after(1) == [(A, RESTING)]
    assert log.after(REST - 1) == []
    assert log.after(1) == [(A, ACTIVE)]
    log.at(A, 800)
    assert log.after(10 * LIMIT) == []


def test_the_last_eighth_is_meant() -> None:
    log = lagging()
    log.at(A, 101)
    assert log.after(10 * LIMIT) == []
    log.at(A, 100)
    assert log.after(LIMIT - 1) == [] and log.after(1) == [(A, LINGER)]


def test_a_reader_that_leaves_the_bottom_of_the_window_starts_a_new_time_out() -> None:
    log = lagging()
    log.after(LIMIT - 1)
    log.at(A, 300)
    log.after(0)
    log.at(A, 100)
    assert log.after(LIMIT - 1) == []
    assert log.after(1) == [(A, LINGER)]


def test_a_lingering_reader_is_let_go_however_fast_it_becomes() -> None:
    log = lagging()
    log.after(LIMIT)
    log.at(A, 800)
    assert log.after(LIMIT) == [(A, RESTING)]


def test_a_tethered_one_is_waited_for() -> None:
    log = lagging()
    log.at(A, 100, tethered=True)
    assert log.after(1_000 * LIMIT) == [] and log.tethering.state(A) is ACTIVE


def test_a_single_reader_is_never_let_go() -> None:
    log = lagging()
    del log.consumers[B]
    assert log.after(1_000 * LIMIT) == []


def test_readers_by_udp_are_consumers_too() -> None:
    log = lagging()
    del log.consumers[B]
    log.sent = 800
    log.after(0)
    assert log.after(LIMIT) == [(A, LINGER)]


def test_a_resting_reader_neither_delays_nor_advances_the_limit() -> None:
    log = lagging()
    log.at(C, 100)
    log.after(0)
    assert log.after(LIMIT) == [(A, LINGER), (C, LINGER)]
    log.after(LIMIT)
    del log.consumers[B]
    log.at(A, 5_000)  # it says so, but it rests
    assert log.after(REST) == [(A, ACTIVE), (C, ACTIVE)]


def test_two_untethered_ones_of_which_one_is_slow() -> None:
    log = Log()
    log.at(A, 0)
    log.at(B, WINDOW)
    log.after(0)
    assert log.after(LIMIT) == [(A, LINGER)]
    log.at(B, 2 * WINDOW)
    assert log.after(LIMIT) == [(A, RESTING)] and log.tethering.state(B) is ACTIVE


def test_a_reader_that_leaves_is_forgotten() -> None:
    log = lagging()
    log.after(LIMIT)
    del log.consumers[A]
    log.after(0)
    log.at(A, 100)
    assert log.after(LIMIT - 1) == [] and log.tethering.state(A) is ACTIVE


def test_nothing_was_published_yet() -> None:
    log = Log()
    log.at(A, 0)
    log.at(B, 0)
    assert log.after(0) == [] and log.after(10 * LIMIT) == []


def test_get_timer_is_the_next_change_of_state() -> None:
    log = lagging()
    assert log.tethering.get_timer() is None
    log.after(LIMIT)
    assert log.tethering.get_timer() == log.now + LIMIT
    log.after(LIMIT)
    assert log.tethering.get_timer() == log.now + REST


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3_000),
            st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 400)),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_states_follow_each_other_and_last_as_long_as_they_should(
    steps: list[tuple[int, dict[Guid, int], bool]],
) -> None:
    log, since = Log(), {}
    for guid in (A, B, C):
        log.at(guid, 0, tethered=guid == C)
        since[guid] = (ACTIVE, log.now)
    order = {ACTIVE: LINGER, LINGER: RESTING, RESTING: ACTIVE}
    least = {LINGER: LIMIT, RESTING: REST}
    for wait, moves, publishes in steps:
        for guid, by in moves.items():
            log.at(guid, log.consumers[guid].position + by, tethered=guid == C)
        log.sent += 100 * publishes
        for guid, state in log.after(wait):
            before, begun = since[guid]
            assert guid != C and state is order[before] is log.tethering.state(guid)
            assert log.now - begun >= least.get(before, LIMIT)
            since[guid] = (state, log.now)
