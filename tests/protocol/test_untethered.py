"""A reader with tether=false that is too slow: what it says, what it drops, and how it comes back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_rtps.transport.protocol.policies import CongestionControlPolicy, ReaderPolicy
from spark_rtps.transport.wire.status_messages import RttMeasurement, StatusMessage
from spark_rtps.transport.wire.submessages import AckNack
from tests.protocol.reader_script import IT, POLICY, Script

WINDOW = 64_000
LIMIT, REST = 5_000_000_000, 10_000_000_000
SIZE = 1_000
#: How often the reader asks.
STEP = LIMIT // 8
UNTETHERED = replace(
    POLICY,
    congestion_control=CongestionControlPolicy(max_window=WINDOW),
    tether=False,
    untethered_window_limit_timeout=LIMIT,
    untethered_resting_timeout=REST,
)
TETHERED = replace(UNTETHERED, tether=True)


def script(policy: ReaderPolicy = UNTETHERED, *, room: int = WINDOW, **options: bool) -> Script:
    each = Script(policy=policy, status_messages=True, **options)
    each.reader.window = room
    each.heartbeat(1, 0).sleep(1_000_000_000).output()
    return each


def full(policy: ReaderPolicy = UNTETHERED) -> Script:
    """Its owner takes nothing more: the window is closed, and the writer knows it."""
    each = script(policy)
    each.data(1, 64, SIZE)
    messages = status(each.heartbeat(1, 64))
    assert messages[-1].receiver_window == 0
    return each


def status(each: Script) -> list[StatusMessage]:
    return [found for found in each.output() if isinstance(found, StatusMessage)]


def held(each: Script, time: int, *, others_wait: bool = True) -> list[object]:
    """What is said in so much time by a reader whose writer answers its questions."""
    output: list[object] = []
    until = each.now + time
    while each.now < until:
        each.sleep(min(STEP, until - each.now))
        for found in each.output():
            output.append(found)
            if isinstance(found, RttMeasurement):
                answer = replace(found, reply=True, others_wait=others_wait)
                each.reader.on_rtt_measurement(IT, answer, now=each.now)
    return output


def resting(each: Script) -> Script:
    held(each, 2 * LIMIT + 2 * STEP)
    assert each.proxy.resting
    return each


def acknowledged(each: Script, last: int) -> int:
    """What the answer to a HEARTBEAT acknowledges."""
    found = [output for output in each.heartbeat(1, last).output() if isinstance(output, AckNack)]
    assert found and found[-1].missing.is_empty
    return found[-1].missing.base - 1


def test_a_slow_reader_lingers_rests_and_rejoins_at_the_newest() -> None:
    each = full()
    held(each, LIMIT - STEP)
    assert each.reader.counters.unavailable == 0
    held(each, 3 * STEP)
    assert each.reader.counters.unavailable == 1 and not each.proxy.resting, "it is still waited for"
    output = held(each, LIMIT - 2 * STEP)
    assert not each.proxy.resting
    assert not any(isinstance(found, StatusMessage) and found.end_of_stream for found in output)
    [message] = [found for found in held(each, 2 * STEP) if isinstance(found, StatusMessage)]
    assert each.proxy.resting and each.reader.counters.unavailable == 1
    assert message.end_of_stream and message.consumption_sn == 64 and message.receiver_window == WINDOW
    assert each.taken() == list(range(1, 65))
    each.data(65, 80, SIZE).data(90, 95, SIZE).frag(96, 1).heartbeat(1, 100)
    each.sleep(1_000_000_000)
    assert each.taken() == [] and acknowledged(each, 120) == 120
    assert each.reader.counters.lost_samples == 120 - 64 and each.reader.counters.nacks_sent == 0
    each.reader.window = WINDOW
    each.sleep(REST)
    assert not each.proxy.resting
    assert [message.end_of_stream for message in status(each)][-1] is False
    each.data(121, 125, SIZE)
    assert each.taken() == [121, 122, 123, 124, 125] and acknowledged(each, 125) == 125


def test_an_untethered_reader_that_is_not_waited_for_loses_nothing() -> None:
    each = full()
    asked = [
        found for found in held(each, 20 * LIMIT, others_wait=False) if isinstance(found, RttMeasurement)
    ]
    assert len(asked) == 160 and not each.proxy.resting and each.reader.counters.unavailable == 0
    each.reader.window = WINDOW
    each.data(65, 70, SIZE)
    assert each.taken() == list(range(1, 71)) and each.reader.counters.lost_samples == 0


def test_a_writer_that_does_not_answer_waits() -> None:
    each = full().sleep(20 * LIMIT)
    assert not each.proxy.resting and each.reader.counters.unavailable == 0


def test_a_pause_of_waiting_readers_restarts_the_time_out() -> None:
    each = full()
    held(each, LIMIT - STEP)
    held(each, STEP, others_wait=False)
    held(each, LIMIT - STEP)
    assert each.reader.counters.unavailable == 0
    held(each, 3 * STEP)
    assert each.reader.counters.unavailable == 1


def test_samples_that_arrive_while_it_lingers_are_taken() -> None:
    each = full()
    held(each, LIMIT + 2 * STEP)
    assert each.reader.counters.unavailable == 1
    each.reader.window = WINDOW
    each.data(65, 66, SIZE)
    assert each.taken() == list(range(1, 67))
    held(each, LIMIT + STEP, others_wait=False)
    assert each.proxy.resting, "it is decided"


def test_an_answer_that_was_not_asked_for_decides_nothing() -> None:
    each = full()
    for _ in range(100):
        each.sleep(STEP)
        forged = RttMeasurement(each.reader.guid.entity, IT.entity, 5, reply=True, others_wait=True)
        each.reader.on_rtt_measurement(IT, forged, now=each.now)
        each.output()
    assert not each.proxy.resting and each.reader.counters.unavailable == 0


def test_questions_are_no_measurements() -> None:
    each = full()
    held(each, LIMIT)
    assert each.reader.counters.rtt_measurements == 0 and each.reader.status.positions(each.proxy).rtt_ns == 0


def test_uncommitted_samples_fill_the_window_too() -> None:
    each = Script(policy=UNTETHERED, status_messages=True)
    each.reader.window, each.reader.status.consumption_held = 10 * WINDOW, True
    each.heartbeat(1, 0).sleep(1_000_000_000).output()
    each.data(1, 60, SIZE)
    assert len(each.taken()) == 60
    held(each, 2 * LIMIT + 2 * STEP)
    assert each.proxy.resting


def test_all_status_messages_of_a_resting_reader_say_resting() -> None:
    each = resting(full())
    messages = [message for last in range(65, 75) for message in status(each.heartbeat(1, last))]
    assert messages and all(message.end_of_stream for message in messages)


def test_a_tethered_one_is_patient() -> None:
    each = full(TETHERED)
    output = held(each, 10 * LIMIT)
    assert not any(isinstance(found, RttMeasurement) for found in output)
    assert not each.proxy.resting and each.reader.counters.unavailable == 0


def test_a_reader_with_capacity_in_time_continues() -> None:
    each = full()
    held(each, LIMIT - STEP)
    each.reader.window = WINDOW
    held(each, 10 * LIMIT)
    assert not each.proxy.resting
    each.data(65, 128, SIZE).heartbeat(1, 128).output()
    held(each, LIMIT - STEP)
    assert each.reader.counters.unavailable == 0, "its time began anew"
    held(each, LIMIT + 4 * STEP)
    assert each.proxy.resting


@pytest.mark.parametrize(("room", "rests"), [(WINDOW // 8, True), (WINDOW // 8 + 1_000, False)])
def test_the_last_eighth_is_meant(room: int, rests: bool) -> None:
    each = script(room=room)
    each.data(1).heartbeat(1, 1).output()
    each.reader.window = room
    each.heartbeat(1, 1).output()
    held(each, 2 * LIMIT + 4 * STEP)
    assert each.proxy.resting is rests


def test_held_samples_are_dropped() -> None:
    each = full()
    each.data(70, 75, SIZE).frag(80, 1)
    assert each.proxy.held and each.proxy.fragments
    resting(each)
    assert each.proxy.resting and not each.proxy.held and not each.proxy.fragments
    assert each.taken() == list(range(1, 65)) and acknowledged(each, 80) == 80


def test_batches_are_passed_too() -> None:
    each = resting(full())
    each.batch(1, 65, 99)
    assert each.proxy.expected == 100 and each.taken()[-1] == 64


def test_a_writer_that_goes_while_it_rests() -> None:
    each = resting(full())
    each.reader.unmatch_writer(IT)
    each.sleep(10 * REST)
    assert each.reader.get_timer() is None


@pytest.mark.parametrize("waited", [0, 2 * LIMIT])
def test_a_writer_on_this_host_decides_when_a_reader_rests(waited: int) -> None:
    each = full().sleep(waited)
    each.reader.untethered.rest(IT)
    assert each.proxy.resting and each.sleep(10 * REST).proxy.resting, "it is the writer's to end it"
    each.reader.untethered.rejoin(IT)
    assert not each.proxy.resting and each.reader.counters.unavailable == 1


def test_a_resting_reader_rejoins_when_the_log_lets_it() -> None:
    each = full()
    held(each, 2 * LIMIT + 4 * STEP)
    assert each.proxy.resting
    each.reader.untethered.rest(IT)
    assert each.sleep(10 * REST).proxy.resting, "the log has let it go meanwhile"
    each.reader.untethered.rejoin(IT)
    assert not each.proxy.resting and each.reader.counters.unavailable == 1


def test_a_reader_without_a_first_number() -> None:
    each = Script(policy=UNTETHERED, status_messages=True)
    each.reader.untethered.rest(IT)
    each.data(5, 9)
    assert each.taken() == []
    each.heartbeat(1, 20)
    each.reader.untethered.rejoin(IT)
    each.data(21)
    assert each.taken() == [21]
