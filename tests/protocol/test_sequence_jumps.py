"""Forged sequence numbers of a matched writer: every honest row still arrives exactly once, within a bound.

What is forged passed every check of where it came from: a process on the writer's host sent it, or trust is off.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from spark_rtps.transport.limits import RUMOUR_BYTES_MAX, RUMOUR_RUNS_MAX
from spark_rtps.transport.protocol.counts import FORGET_NS
from spark_rtps.transport.protocol.endpoint_info import WriterInfo
from spark_rtps.transport.protocol.loss_causes import LossCause
from spark_rtps.transport.protocol.reading.jumps import JumpKind, JumpReport
from spark_rtps.transport.protocol.reading.ordering.sequence_jumps import (
    BEYOND,
    DELAY,
    PASS_LEAST,
    PASSES_MAX,
    REACH,
)
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.wire.samples import Run
from spark_rtps.transport.wire.submessages import AckNack, HeartbeatFrag
from tests.protocol.reader_script import ANY, IT, LASTING, MS, WHERE, Script, started

FAR = 10**12
SECOND = 1_000 * MS


def kinds(s: Script) -> list[JumpKind]:
    return [each.kind for each in s.reader.take_jumps()]


def bases(s: Script) -> list[int]:
    return [each.missing.base for each in s.said() if isinstance(each, AckNack)]


def heartbeat_frag(s: Script, sn: int) -> None:
    s.count += 1
    s.reader.on_heartbeat_frag(IT, HeartbeatFrag(ANY, IT.entity, sn, 5, s.count), now=s.now)


FORGED: dict[str, Callable[[Script, int], object]] = {
    "HEARTBEAT first": lambda s, sn: s.heartbeat(sn, sn, count=s.count + 5),
    "HEARTBEAT last": lambda s, sn: s.heartbeat(1, sn, count=s.count + 5),
    "HEARTBEAT with a count far ahead": lambda s, sn: s.heartbeat(
        sn, sn, count=(s.count + (1 << 30)) % (1 << 31)
    ),
    "HEARTBEAT_BATCH": lambda s, sn: s.heartbeat_batch((sn, sn), sn, sn),
    "HEARTBEAT_FRAG": heartbeat_frag,
    "GAP": lambda s, sn: s.gap(1, sn),
    "GAP of a bitmap": lambda s, sn: s.gap(sn, sn, sn, sn + 7),
    "DATA": lambda s, sn: s.data(sn),
    "a run of DATA": lambda s, sn: s.data(sn, sn + 9),
    "DATA_BATCH": lambda s, sn: s.batch(sn, sn, sn + 9),
    "DATA_BATCH with holes": lambda s, sn: s.batch(sn, sn, sn + 9, without=(sn + 3,)),
    "DATA_FRAG": lambda s, sn: s.frag(sn, 1),
    "DATA_FRAG of all fragments": lambda s, sn: s.frag(sn, 1, count=10),
    "the end of a coherent set": lambda s, sn: s.end_of_set(sn),
    "an oversized sample": lambda s, sn: s.frag(sn, 1, total=1 << 30),
}
NUMBERS = {"10 ** 12": FAR, "near 2 ** 63": (1 << 63) - 20, "just beyond reach": REACH + 200}


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", FORGED)
def test_one_forged_message_beyond_reach_changes_nothing(name: str, number: str) -> None:
    s = started()
    s.data(1, 5).heartbeat(1, 5)
    assert s.taken() == [1, 2, 3, 4, 5]
    count = s.count
    FORGED[name](s, NUMBERS[number])
    s.count = count
    assert s.reader.counters.jumps_held + s.reader.counters.stale_counts == 1
    s.sleep(5 * MS)
    s.data(6, 8)
    assert s.taken() == [6, 7, 8], "at once"
    s.heartbeat(1, 10).sleep(50 * MS)
    assert 9 in bases(s), "nothing forged is acknowledged"
    s.data(9, 10).heartbeat(1, 10)
    assert s.taken() == [9, 10]
    assert s.reader.counters.lost_samples == s.reader.counters.irrelevant_samples == 0
    assert s.reader.counters.jumps_confirmed == 0
    assert s.proxy.jumps.rumour is None
    assert not s.proxy.held
    assert s.proxy.held._budget.nbytes == 0


@pytest.mark.parametrize("name", [name for name in FORGED if "HEARTBEAT" not in name and "GAP" not in name])
def test_one_forged_message_beyond_reach_changes_nothing_best_effort(name: str) -> None:
    s = Script(Qos(), reliable=False)
    s.data(1, 5)
    FORGED[name](s, FAR)
    s.sleep(50 * MS)
    s.data(6, 8)
    FORGED[name](s, FAR + 20)
    s.data(9)
    assert s.taken() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert s.reader.counters.lost_samples == 0
    assert s.reader.counters.jumps_confirmed == 0


@pytest.mark.parametrize("name", FORGED)
def test_a_burst_of_forged_messages_changes_nothing(name: str) -> None:
    s = started()
    s.data(1, 5).heartbeat(1, 5)
    for i in range(200):
        FORGED[name](s, FAR + 10 * i)
        s.now += DELAY // 201
    s.data(6).heartbeat(1, 6)
    assert s.taken() == [1, 2, 3, 4, 5, 6]
    assert s.reader.counters.lost_samples == s.reader.counters.irrelevant_samples == 0


@pytest.mark.parametrize("name", FORGED)
def test_the_very_first_message_of_a_writer_is_forged(name: str) -> None:
    s = Script()
    FORGED[name](s, FAR)
    s.sleep(FORGET_NS)  # its count is all that is known
    s.heartbeat(1, 3, count=3).data(1, 3)
    assert s.taken() == [1, 2, 3]
    s.data(4).heartbeat(1, 4, count=4)
    assert s.taken() == [4]
    assert s.reader.counters.lost_samples == 0


def test_the_first_message_of_a_transient_local_writer_is_forged() -> None:
    s = Script(LASTING, transient_local=True)
    s.heartbeat(FAR, FAR).sleep(5 * MS)
    s.heartbeat(1, 3).data(1, 3)
    assert s.taken() == [1, 2, 3]


def test_a_writer_is_asked_where_it_is_and_its_answer_refutes_the_jump() -> None:
    s = started()
    s.data(1, 5).heartbeat(1, 5).said()
    s.taken()
    s.heartbeat(FAR, FAR)
    asked = [each for each in s.said() if isinstance(each, AckNack)]
    assert [(each.missing.base, each.missing.is_empty, each.final) for each in asked] == [(6, True, False)]
    s.now += MS
    s.heartbeat(1, 5)  # the honest answer
    s.now += 2 * DELAY
    s.heartbeat(FAR, FAR)  # begins anew
    assert s.proxy.expected == 6
    assert kinds(s) == [JumpKind.HELD, JumpKind.REFUTED]


def test_a_silent_writer_is_not_asked_for_ever() -> None:
    s = started()
    s.data(1).heartbeat(1, 1).said()
    s.heartbeat(FAR, FAR).sleep(60 * SECOND)
    assert len(s.said()) <= 1
    asked = 0
    s.heartbeat(1, 1)
    s.heartbeat(FAR, FAR)
    for _ in range(100):
        asked += len(s.said())
        s.sleep(SECOND)
    assert asked <= 10


# --- honest jumps ------------------------------------------------------------------------------------------


def test_an_honest_jump_of_a_keep_last_writer_goes_on_with_the_second_heartbeat() -> None:
    """A reader that was away for an hour from a KEEP_LAST 1 writer at 1 MHz."""
    s = started()
    s.data(1, 5).heartbeat(1, 5).said()
    s.taken()
    away = 3_600_000_000
    s.heartbeat(away, away)
    s.sleep(100 * MS)
    assert s.taken() == []
    s.heartbeat(away + 1, away + 1).data(away + 1)
    assert s.taken() == [away + 1]
    assert s.reader.counters.lost_samples == away + 1 - 6
    s.heartbeat(away + 1, away + 1).data(away + 2)
    assert s.taken() == [away + 2]
    assert s.reader.counters.lost_samples == away + 1 - 6, "counted once"
    assert s.reader.take_losses() == {(IT, LossCause.HISTORY): away + 1 - 6}
    assert kinds(s) == [JumpKind.HELD, JumpKind.CONFIRMED]


def test_an_honest_jump_goes_on_with_data_where_heartbeats_are_rare() -> None:
    s = started()
    s.data(1, 5).heartbeat(1, 5).said()
    s.taken()
    s.heartbeat(FAR, FAR)
    for i in range(1, 31):
        s.now += MS
        s.data(FAR + i)
    s.sleep(100 * MS)
    requested = [each.missing.ranges() for each in s.said() if isinstance(each, AckNack)]
    assert requested[-1] == [(FAR, FAR)]
    s.data(FAR)
    assert s.taken() == list(range(FAR, FAR + 31)), "what came meanwhile was kept"
    assert s.reader.counters.lost_samples == FAR - 6


def test_a_late_joiner_of_an_old_writer() -> None:
    s = Script()
    s.heartbeat(FAR, FAR - 1).data(FAR, FAR + 3)
    s.now += DELAY
    s.data(FAR + 4)
    assert s.taken() == list(range(FAR, FAR + 5))
    assert s.reader.counters.lost_samples == 0
    assert bases(s)[-1:] == [FAR + 5]


def test_a_late_joiner_of_an_old_transient_local_writer_starts_where_it_began_to_hear_it() -> None:
    s = Script(transient_local=True)
    s.data(FAR).heartbeat(1, FAR).data(FAR + 1)
    s.now += DELAY
    s.heartbeat(1, FAR + 1)
    assert s.taken() == [FAR, FAR + 1]


def test_an_honest_best_effort_jump_loses_nothing_that_came() -> None:
    s = Script(Qos(), reliable=False)
    s.data(1, 5)
    for i in range(50):
        s.data(FAR + i)
        s.now += MS
    assert s.taken() == [1, 2, 3, 4, 5, *range(FAR, FAR + 50)]
    assert s.reader.counters.lost_samples == FAR - 6
    assert s.reader.counters.jumps_confirmed == 1


def test_a_late_joiner_of_an_old_best_effort_writer() -> None:
    s = Script(Qos(), reliable=False)
    s.data(FAR).sleep(SECOND)
    assert s.taken() == []
    s.data(FAR + 1)
    assert s.taken() == [FAR, FAR + 1]
    assert s.reader.counters.lost_samples == 0


def test_what_is_kept_back_is_bounded() -> None:
    s = Script(Qos(), reliable=False)
    s.data(1)
    for i in range(2 * RUMOUR_RUNS_MAX):
        s.data(FAR + i)
    rumour = s.proxy.jumps.rumour
    assert rumour is not None
    assert len(rumour.runs) == RUMOUR_RUNS_MAX
    s = Script(Qos(), reliable=False)
    s.data(1)
    for i in range(10):
        s.data(FAR + i, size=1 << 20)
    budget = s.proxy.held._budget
    assert 0 < budget.nbytes <= RUMOUR_BYTES_MAX
    s.reader.unmatch_writer(IT)
    assert budget.nbytes == 0


def test_an_old_number_confirms_nothing() -> None:
    s = Script(Qos(), reliable=False)
    s.data(1).data(FAR)
    s.now += 2 * DELAY
    s.data(FAR)
    assert s.taken() == [1], "the same message twice"


# --- what is taken back ------------------------------------------------------------------------------------


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


def test_the_hot_path_asks_nothing_of_the_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    s = started()
    monkeypatch.setattr(type(s.reader._jumps), "admits", None)
    monkeypatch.setattr(type(s.reader._jumps), "admits_runs", None)
    for i in range(1, 2_000, 20):
        s.reader.on_run(Run(IT, i, 20, np.zeros(640, np.uint8), 32, 24, 8), now=s.now)
    assert len(s.taken()) == 2_000
