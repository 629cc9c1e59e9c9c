"""Forged sequence numbers of a matched writer: every honest row still arrives exactly once, within a bound.

What is forged passed every check of where it came from: a process on the writer's host sent it, or trust is off.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from spark_rtps.transport.limits import RUMOUR_BYTES_MAX, RUMOUR_RUNS_MAX
from spark_rtps.transport.protocol.counts import FORGET_NS
from spark_rtps.transport.protocol.loss_causes import LossCause
from spark_rtps.transport.protocol.reading.jumps import JumpKind
from spark_rtps.transport.protocol.reading.ordering.sequence_jumps import DELAY, REACH
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.wire.samples import Run
from spark_rtps.transport.wire.submessages import AckNack, HeartbeatFrag
from tests.protocol.jump_script import FAR, SECOND, bases, kinds
from tests.protocol.reader_script import ANY, IT, LASTING, MS, Script, started


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


def test_the_hot_path_asks_nothing_of_the_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    s = started()
    monkeypatch.setattr(type(s.reader._jumps), "admits", None)
    monkeypatch.setattr(type(s.reader._jumps), "admits_runs", None)
    for i in range(1, 2_000, 20):
        s.reader.on_run(Run(IT, i, 20, np.zeros(640, np.uint8), 32, 24, 8), now=s.now)
    assert len(s.taken()) == 2_000
