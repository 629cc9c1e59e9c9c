"""Jumps of sequence numbers that turn out to be false are taken back: what was passed is asked for, and counts once."""

from __future__ import annotations

import pytest

from spark_rtps.transport.protocol.endpoint_info import WriterInfo
from spark_rtps.transport.protocol.reading.jumps import JumpKind, JumpReport
from spark_rtps.transport.protocol.reading.ordering.sequence_jumps import (
    BEYOND,
    DELAY,
    PASS_LEAST,
    PASSES_MAX,
    REACH,
)
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.wire.submessages import AckNack
from tests.protocol.jump_script import FAR, SECOND, bases, kinds
from tests.protocol.reader_script import IT, MS, WHERE, Script, started


@pytest.mark.parametrize("by", ["HEARTBEAT", "GAP", "GAP ahead"])
@pytest.mark.parametrize("number", [50, 1_000, REACH])
def test_a_small_jump_is_taken_back_by_the_next_heartbeat(by: str, number: int) -> None:
    s = started()
    s.data(1, 5).heartbeat(1, 5).said()
    if by == "HEARTBEAT":
        s.heartbeat(number, number)
    else:
        s.gap(6 if by == "GAP" else 7, number)
    s.now += MS
    s.data(6).data(7).data(8)
    assert s.taken() == ([1, 2, 3, 4, 5, 6] if by == "GAP ahead" else [1, 2, 3, 4, 5])
    s.heartbeat(1, 8).sleep(50 * MS)
    requested = [each for each in s.said() if isinstance(each, AckNack)]
    expected = 7 if by == "GAP ahead" else 6
    assert requested[-1].missing.base == expected
    assert requested[-1].missing.ranges() == [(expected, 8)]
    s.data(expected, 8)
    assert s.taken() == list(range(expected, 9))
    assert s.reader.counters.lost_samples == s.reader.counters.irrelevant_samples == 0
    assert s.reader.counters.jumps_undone == 1
    assert s.reader.take_losses() == {}
    s.data(9, number + 5)
    assert s.taken() == list(range(9, number + 6)), "once, and all of them"


def test_a_sample_too_large_is_counted_once_though_it_overtook_a_heartbeat() -> None:
    s = started()
    s.data(1).heartbeat(1, 1)
    s.reader.sample_size_max = 1
    s.data(2)
    s.reader.sample_size_max = 1 << 20
    s.data(3).heartbeat(1, 1)
    assert s.reader.counters.jumps_undone == 1
    s.reader.sample_size_max = 1
    s.data(2)
    s.reader.sample_size_max = 1 << 20
    s.data(3).data(4)
    assert s.taken() == [1, 3, 4]
    assert s.reader.counters.oversized_samples == 1


def test_a_confirmed_jump_is_taken_back_by_a_lower_heartbeat() -> None:
    s = started()
    s.data(1, 5).heartbeat(1, 5).said()
    s.heartbeat(FAR, FAR)
    s.now += DELAY
    s.heartbeat(FAR, FAR).data(FAR)  # the writer was silent: the forger had its way
    assert s.taken() == [1, 2, 3, 4, 5, FAR]
    s.now += SECOND
    s.heartbeat(6, 7).sleep(50 * MS)
    assert bases(s)[-1] == 6
    s.data(6, 7)
    assert s.taken() == [6, 7]
    assert s.reader.counters.lost_samples == 0
    assert kinds(s) == [JumpKind.HELD, JumpKind.CONFIRMED, JumpKind.UNDONE]


def test_a_jump_is_taken_back_after_a_rematch() -> None:
    s = started()
    s.data(1, 5).heartbeat(1, 5)
    s.heartbeat(FAR, FAR)
    s.now += DELAY
    s.heartbeat(FAR, FAR)
    s.reader.unmatch_writer(IT)
    s.reader.match_writer(WriterInfo(IT, WHERE, (), True, False), now=s.now)
    s.heartbeat(1, 7).sleep(50 * MS)
    s.data(6, 7)
    assert s.taken() == [1, 2, 3, 4, 5, 6, 7]


def test_forged_samples_within_reach_are_delivered_and_their_numbers_count() -> None:
    """One forged message that names the next number is as good as the writer's own: what it costs is that sample."""
    s = started()
    s.data(1, 5).heartbeat(1, 5)
    s.data(6)
    s.now += MS
    s.data(6).data(7)
    assert s.taken() == [1, 2, 3, 4, 5, 6, 7]
    assert s.reader.counters.duplicate_samples == 1


def test_forged_samples_behind_a_forged_gap_do_not_hide_the_honest_ones_before_them() -> None:
    s = started()
    s.data(1, 5).heartbeat(1, 5)
    s.gap(6, 1_000).data(1_000, 1_009)
    assert s.taken() == [1, 2, 3, 4, 5, *range(1_000, 1_010)]
    s.now += MS
    s.heartbeat(1, 8).data(6, 8)
    assert s.taken() == [6, 7, 8]
    s.data(9, 1_020)
    assert s.taken() == [*range(9, 1_000), *range(1_010, 1_021)], "delivered once"


def test_forged_samples_held_within_reach_are_dropped() -> None:
    s = started()
    s.data(1, 5).heartbeat(1, 5)
    s.data(500).frag(600, 1)
    for i in range(6, 12):
        s.now += BEYOND // 4
        s.data(i).heartbeat(1, i)
    assert not s.proxy.held
    assert not s.proxy.fragments
    s.data(12, 601)
    assert s.taken() == list(range(1, 602)), "the honest 500 and 600"


def test_heartbeats_that_were_overtaken_drop_nothing() -> None:
    s = started()
    s.data(2, 100)
    for i in range(2, 100):
        s.heartbeat(1, i)
        s.now += MS
    s.data(1)
    assert s.taken() == list(range(1, 101))


def test_a_lower_heartbeat_alone_never_brings_back_what_was_delivered() -> None:
    s = started()
    s.data(1, 100).heartbeat(1, 100)
    s.taken()
    for i in range(20):
        s.now += 100 * MS
        s.heartbeat(1, 50 - i)
        s.data(40, 60)
    assert s.taken() == []
    assert bases(s)[-1] <= 51, "nothing is acknowledged that the writer does not have"
    s.heartbeat(1, 101).data(101)
    assert s.taken() == [101]


def test_honest_losses_are_not_taken_back_by_late_heartbeats() -> None:
    s = started()
    s.data(1, 5).heartbeat(1, 5).heartbeat(11, 12).data(11, 12)
    assert s.reader.counters.lost_samples == 5
    s.heartbeat(1, 5, count=2)  # late: it is a repetition
    assert s.reader.counters.lost_samples == 5
    s.data(13)
    assert s.taken() == [1, 2, 3, 4, 5, 11, 12, 13]


@pytest.mark.parametrize("wide", [PASS_LEAST, REACH])
def test_a_best_effort_jump_within_reach_is_taken_back_by_data(wide: int) -> None:
    s = Script(Qos(), reliable=False)
    s.data(1, 5).data(6 + wide)
    honest = 6
    for _ in range(10):
        s.now += 3 * MS
        s.data(honest)
        honest += 1
    assert s.taken() == [1, 2, 3, 4, 5, 6 + wide, *range(6, 16)], "what came meanwhile was kept"
    assert s.reader.counters.lost_samples == 0
    assert s.reader.counters.jumps_undone == 1


def test_late_best_effort_data_is_late_where_the_writer_goes_on() -> None:
    s = Script(Qos(), reliable=False)
    s.data(1, 5).data(6 + 2 * PASS_LEAST)
    for i in range(100):
        s.now += MS
        s.data(6 + i).data(7 + 2 * PASS_LEAST + i)
    taken = s.taken()
    assert taken == sorted(taken)
    assert s.reader.counters.jumps_undone == 0


def test_a_coherent_reader_gets_the_sets_that_were_passed() -> None:
    from dataclasses import replace

    from tests.protocol.reader_script import RELIABLE

    s = started(qos=replace(RELIABLE, coherent_access=True))
    s.data(1, 2).heartbeat(1, 2)
    s.gap(3, 1_000)
    s.heartbeat(1, 6).data(3, 5, of=3).end_of_set(6).data(7)
    assert s.taken() == [1, 2, 3, 4, 5, 7]


def test_passes_are_bounded() -> None:
    s = started()
    s.data(1)
    for i in range(100):
        s.gap(2 + 3 * i, 4 + 3 * i).data(4 + 3 * i)
    assert len(s.proxy.jumps.passes) == PASSES_MAX


# --- numbers of an earlier life ------------------------------------------------------------------------------


@pytest.mark.parametrize("resumed", [FAR, 1_000, (1 << 63) - 1])
def test_a_forged_number_in_the_log_is_undone_by_two_heartbeats(resumed: int) -> None:
    s = Script(resume={IT: resumed})
    s.heartbeat(1, 8)
    assert s.taken() == []
    s.sleep(2 * DELAY)
    assert all(base <= 9 for base in bases(s)), "nothing is acknowledged that the writer does not have"
    s.heartbeat(1, 8).data(9, 12)
    assert s.taken() == [9, 10, 11, 12]
    s.heartbeat(9, 12)
    assert bases(s) == [13]
    assert s.reader.take_jumps()[-1] == JumpReport(IT, JumpKind.UNDONE, 9, resumed + 1)


def test_an_honest_number_in_the_log_stays() -> None:
    s = Script(resume={IT: 1_000})
    s.heartbeat(900, 990)  # forged, or very late
    s.now += 2 * DELAY
    s.data(1_001).heartbeat(900, 990)
    s.now += 2 * DELAY
    s.heartbeat(900, 990).data(995)
    assert s.taken() == [1_001]
    s.heartbeat(1_000, 1_002).data(1_002)
    assert s.taken() == [1_002]


def test_a_forged_number_of_a_best_effort_writer_in_the_log_is_undone_by_data() -> None:
    s = Script(Qos(), reliable=False, resume={IT: FAR})
    for i in range(10):
        s.data(50 + i)
        s.now += 5 * MS
    assert s.taken() == list(range(50, 60))
