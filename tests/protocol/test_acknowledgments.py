"""A reader acknowledges what its owner has, and nothing else; what a writer took with it is counted."""

from __future__ import annotations

from spark_rtps.transport.protocol.endpoint_info import WriterInfo
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.wire.submessages import AckNack, NackFrag
from tests.protocol.reader_script import IT, LASTING, MS, POLICY, WHERE, Script, started, submessages


def output(s: Script) -> list[object]:
    """What the reader says to an owner that did not take."""
    return submessages(s.reader.outgoing())


def test_nothing_is_acknowledged_before_it_is_taken() -> None:
    s = started()
    s.data(1, 5).heartbeat(1, 5)
    assert output(s) == []
    s.heartbeat(1, 5).sleep(100 * MS)
    assert output(s) == []
    assert s.taken() == [1, 2, 3, 4, 5]
    (acknack,) = output(s)
    assert isinstance(acknack, AckNack)
    assert (acknack.missing.base, acknack.final) == (6, True)
    assert output(s) == []


def test_requests_acknowledge_too_and_wait_with_it() -> None:
    s = started()
    s.data(1).data(4).frag(6, 1).heartbeat(1, 6).sleep(25 * MS)
    assert output(s) == []
    assert s.taken() == [1]
    both = output(s)
    assert [type(each) for each in both] == [AckNack, NackFrag]
    assert isinstance(both[0], AckNack)
    assert both[0].missing.base == 2
    assert both[0].missing.ranges() == [(2, 3), (5, 5)]


def test_requests_held_back_add_up() -> None:
    s = started()
    s.data(1).data(4).heartbeat(1, 4).sleep(POLICY.nack_delay)
    s.data(8).heartbeat(1, 8).sleep(5 * MS)  # 2 and 3 are not due again, 5 to 7 are now
    assert output(s) == []
    assert s.taken() == [1]
    (acknack,) = output(s)
    assert isinstance(acknack, AckNack)
    assert acknack.missing.ranges() == [(2, 3), (5, 7)]


def test_samples_released_by_the_window_are_acknowledged_after_the_take() -> None:
    s = started()
    s.data(2, 3)
    s.reader.window = 40
    s.data(1)
    assert s.taken() == [1]
    s.reader.window = 64  # 2 and 3 are ready, and the timer for their acknowledgement is in the past
    s.reader.handle_timer(s.now)
    assert output(s) == []
    assert s.taken() == [2, 3]
    (acknack,) = output(s)
    assert isinstance(acknack, AckNack)
    assert acknack.missing.base == 4


def test_the_owner_holds_acknowledgements_back() -> None:
    s = started()
    s.reader.hold_acknowledgments = True
    s.data(1, 3).data(5)
    assert s.taken() == [1, 2, 3]
    s.heartbeat(1, 5).sleep(1000 * MS)
    assert s.output() == []
    s.reader.hold_acknowledgments = False
    (acknack,) = s.output()
    assert isinstance(acknack, AckNack)
    assert acknack.missing.base == 4
    assert acknack.missing.ranges() == [(4, 4)]


def test_preemptive_acknacks_are_never_held_back() -> None:
    s = Script(resume={IT: 2})
    s.reader.hold_acknowledgments = True
    s.data(3)
    (acknack,) = output(s)
    assert isinstance(acknack, AckNack)
    assert (acknack.missing.base, acknack.final) == (1, False)
    s.sleep(POLICY.preemptive_period)
    assert len(output(s)) == 1
    s.heartbeat(1, 3)
    assert output(s) == []


def test_history_is_requested_soon_after_the_first_heartbeat() -> None:
    s = Script(LASTING, transient_local=True)
    s.output()
    s.heartbeat(1, 5).sleep(POLICY.nack_delay)
    acknack = s.output()[-1]
    assert isinstance(acknack, AckNack)
    assert acknack.missing.ranges() == [(1, 5)]
    s.data(1, 5).heartbeat(1, 6)
    s.output()
    s.sleep(POLICY.nack_delay)
    assert s.output() == [], "6 may be on its way"


def test_missing_samples_of_a_writer_that_leaves_are_lost() -> None:
    s = started()
    # 4 and 5 are missing, 7 is begun, 8 is irrelevant, 10 was announced
    s.data(1, 3).data(6).frag(7, 1).gap(8, 9).data(9).heartbeat(1, 10)
    assert s.taken() == [1, 2, 3]
    s.reader.unmatch_writer(IT)
    assert s.reader.counters.lost_samples == 6
    assert s.reader.delivery.reorder_budget.nbytes == s.reader.delivery.reassembly.budget.nbytes == 0
    # nothing is lost where nothing was begun
    s.reader.match_writer(WriterInfo(IT, WHERE, (), True, False), now=s.now)
    s.reader.unmatch_writer(IT)
    assert s.reader.counters.lost_samples == 6


def test_a_writer_that_leaves_before_its_heartbeat_counts_only_seen_losses() -> None:
    s = Script()
    s.data(7, 8).frag(10, 1)  # no HEARTBEAT: whether 1 to 6 were ours nobody knows
    s.reader.unmatch_writer(IT)
    assert s.reader.counters.lost_samples == 3
    s = Script(Qos(), reliable=False)
    s.data(1).frag(5, 1)
    s.reader.unmatch_writer(IT)
    assert s.reader.counters.lost_samples == 1


def test_samples_of_a_forged_heartbeat_are_lost_when_the_writer_leaves() -> None:
    """Nobody can tell it from the writer's own: both come from its address. The count stays at the most it can hold."""
    s = started()
    s.heartbeat(1, (1 << 63) - 1)
    s.reader.unmatch_writer(IT)
    assert s.reader.counters.lost_samples == (1 << 63) - 1
