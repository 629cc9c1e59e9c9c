"""When a reader answers HEARTBEATs, parameter by parameter of its policy."""

from __future__ import annotations

from random import Random

import pytest

from spark_rtps.transport.protocol.policies import ReaderPolicy
from spark_rtps.transport.wire.submessages import AckNack
from tests.protocol.reader_script import MS, RELIABLE, Script, started

DELAYED = ReaderPolicy(min_heartbeat_response_delay=100 * MS, max_heartbeat_response_delay=300 * MS)


def first_answer_after(s: Script, most: int) -> tuple[int, AckNack]:
    """How long the reader takes to say something, in ms, and what."""
    for ms in range(most):
        for output in s.output():
            assert isinstance(output, AckNack)
            return ms, output
        s.sleep(MS)
    raise AssertionError("nothing was said")


def quiet(**policy: object) -> Script:
    """A reader that has answered its first HEARTBEAT."""
    s = started(policy=ReaderPolicy(**policy))
    s.sleep(1000 * MS)
    s.output()
    return s


def test_heartbeat_response_delays_of_0_answer_at_once() -> None:
    s = started()
    s.data(1, 3).heartbeat(1, 3)
    assert first_answer_after(s, 1)[1].missing.base == 4


@pytest.mark.parametrize("seed", range(5))
def test_heartbeat_response_delays_bound_an_acknowledgement(
    seed: int,
) -> None:
    s = started(policy=DELAYED, random=Random(seed))
    s.sleep(1000 * MS).output()
    s.data(1, 3).heartbeat(1, 3)
    ms, output = first_answer_after(s, 400)
    assert 100 <= ms <= 301
    assert (output.missing.base, output.final) == (4, True)
    assert s.reader.get_timer() is None


def test_max_heartbeat_response_delay_is_drawn_evenly() -> None:
    s = started(policy=DELAYED, random=Random(1))
    s.sleep(1000 * MS).output()
    delays = []
    for sn in range(1, 301):
        s.data(sn).heartbeat(1, sn)
        delays.append(first_answer_after(s, 400)[0])
    quarters = [sum(100 + 50 * i < delay <= 150 + 50 * i for delay in delays) for i in range(4)]
    assert min(quarters) > 45, quarters


def test_min_heartbeat_response_delay_holds_for_requests_too() -> None:
    s = started(policy=DELAYED, random=Random(3))
    s.sleep(1000 * MS).output()
    s.data(1).data(4).heartbeat(1, 4)
    ms, output = first_answer_after(s, 400)
    assert 100 <= ms <= 302
    assert output.missing.ranges() == [(2, 3)]
    s.data(2, 3).data(6)  # a hole without a HEARTBEAT: all readers see it at once
    ms, output = first_answer_after(s, 400)
    assert 100 <= ms <= 312
    assert output.missing.ranges() == [(5, 5)]


def test_max_heartbeat_response_delay_gathers_heartbeats_into_one_answer() -> None:
    s = started(policy=DELAYED, random=Random(3))
    s.sleep(1000 * MS).output()
    for sn in range(1, 11):
        s.data(sn).heartbeat(1, sn).sleep(5 * MS)
    assert s.output() == []
    s.sleep(300 * MS)
    (output,) = s.output()
    assert isinstance(output, AckNack)
    assert output.missing.base == 11
    assert s.reader.counters.heartbeats == 11


def test_readers_without_a_generator_draw_differently() -> None:
    from spark_rtps.transport.protocol.reading.reader import StatefulReader
    from spark_rtps.transport.structure import Guid
    from tests.protocol.reader_script import ME

    draws = {
        StatefulReader(Guid(bytes((i,)) * 12, ME.entity), RELIABLE, policy=DELAYED)._responder.delays.draw()
        for i in range(20)
    }
    assert len(draws) == 20


def test_heartbeat_suppression_duration_0_answers_each() -> None:
    s = started()
    for sn in range(1, 6):
        s.data(sn).heartbeat(1, sn)
        assert len(s.output()) == 1


def test_heartbeat_suppression_duration_silences_what_follows_an_answer() -> None:
    s = quiet(heartbeat_suppression_duration=50 * MS)
    answers = []
    for sn in range(1, 21):  # a HEARTBEAT every 10 ms
        s.data(sn).heartbeat(1, sn)
        answers += [(sn, output.missing.base) for output in s.output() if isinstance(output, AckNack)]
        s.sleep(10 * MS)
    assert answers == [(1, 2), (6, 7), (11, 12), (16, 17)]
    assert s.reader.counters.suppressed_heartbeats == 16


def test_heartbeat_suppression_duration_ignores_no_news() -> None:
    s = quiet(heartbeat_suppression_duration=50 * MS)
    s.data(1).heartbeat(1, 1).data(5).heartbeat(4, 5, final=True)
    assert s.taken() == [1]
    assert s.reader.counters.lost_samples == 2, "that 2 and 3 are gone is news, answered or not"
    s.output()
    s.data(4)
    assert s.taken() == [4, 5]


def test_heartbeat_suppression_duration_does_not_begin_with_a_final_heartbeat() -> None:
    s = quiet(heartbeat_suppression_duration=50 * MS)
    s.data(1).heartbeat(1, 1, final=True)
    assert s.output() == []
    s.heartbeat(1, 1)
    assert len(s.output()) == 1


def test_disable_positive_acks_only_requests() -> None:
    s = Script(policy=ReaderPolicy(disable_positive_acks=True))
    (output,) = s.output()
    assert isinstance(output, AckNack)
    assert not output.final, "the pre-emptive one: writers are to know the reader"
    s.heartbeat(1, 0)
    for sn in range(1, 20):
        s.data(sn).heartbeat(1, sn).sleep(20 * MS)
        assert s.output() == []
    s.data(21).heartbeat(1, 21).sleep(5 * MS)
    (output,) = s.output()
    assert isinstance(output, AckNack)
    assert (output.missing.base, output.missing.ranges()) == (20, [(20, 20)])
    s.data(20).heartbeat(1, 21).sleep(1000 * MS)
    assert s.output() == []
    assert s.reader.get_timer() is None


def test_disable_positive_acks_of_the_writer_counts_too() -> None:
    s = started(no_positive_acks=True)
    s.data(1, 3).heartbeat(1, 3).sleep(1000 * MS)
    assert s.output() == []
    s.reader.window = 0
    s.data(4)
    s.reader.window = 1000
    s.sleep(100 * MS)
    (output,) = s.output()
    assert isinstance(output, AckNack)
    assert output.missing.ranges() == [(4, 4)], "what the window kept out is requested all the same"
