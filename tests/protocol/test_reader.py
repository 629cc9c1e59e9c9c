"""The stateful reader, submessage by submessage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from spark_rtps.transport import limits
from spark_rtps.transport.protocol.endpoint_info import WriterInfo
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.structure import Locator
from spark_rtps.transport.wire.samples import Run
from spark_rtps.transport.wire.submessages import AckNack, HeartbeatFrag, NackFrag
from tests.protocol.reader_script import ANY, IT, LASTING, MS, POLICY, RELIABLE, WHERE, Script, started


def test_the_next_run_goes_through_without_a_copy() -> None:
    s = started()
    run = Run(IT, 1, 2, np.zeros(64, np.uint8), 32, 24, 8)
    s.reader.on_run(run, now=s.now)
    assert s.reader.take_runs() == [run]
    assert s.reader.take_runs() == []
    assert s.output() == []


def test_held_samples_own_their_memory() -> None:
    s = started()
    s.data(3, 4).data(1, 2)
    late = s.reader.take_runs()[1]
    assert late.first_sn == 3
    assert late.data[31] == 3, "not 0xEE: it was copied"


@pytest.mark.parametrize("of", [0, 3])
def test_a_held_sample_is_no_duplicate_when_it_is_delivered(of: int) -> None:
    s = Script(replace(RELIABLE, coherent_access=True))
    s.heartbeat(1, 0).data(1).data(3, 5, of=of).data(6, 7, of=of).data(2).data(8)
    assert s.taken() == list(range(1, 9))
    assert s.reader.counters.duplicate_samples == 0
    assert s.reader.counters.held_samples >= 5
    assert s.reader.counters.heartbeats == 1


def test_out_of_order_duplicates_and_overlaps() -> None:
    s = started()
    s.data(4, 6).data(9).data(5, 8)
    assert s.taken() == []
    s.data(1, 4)
    assert s.taken() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    s.data(3, 11).data(2)
    assert s.taken() == [10, 11]
    assert s.reader.counters.duplicate_samples >= 2 + 7 + 1
    assert s.reader.counters.received_samples == 11


def test_preemptive_acknacks_alternate_late() -> None:
    s = Script()
    bases = []
    for _ in range(2000):
        for output in s.output():
            assert isinstance(output, AckNack)
            assert output.count >= 1
            assert not output.final
            assert output.missing.is_empty
            bases.append(output.missing.base)
        s.sleep(10 * MS)
    assert bases[:5] == [1] * 5, "Cyclone DDS would complain about base 0"
    assert 0 in bases, "Fast DDS answers nothing else"
    assert len(bases) < 15
    s.heartbeat(1, 0)
    (output,) = s.output()
    assert isinstance(output, AckNack)
    assert (output.missing.base, output.final) == (1, True)
    assert s.reader.get_timer() is None


def test_a_preemptive_acknack_has_base_0_where_only_that_is_answered() -> None:
    """Fast DDS: it has sent a HEARTBEAT at the match, which may have come before we had matched."""
    s = Script(preemptive_base=0)
    (output,) = s.output()
    assert isinstance(output, AckNack)
    assert (output.missing.base, output.missing.is_empty, output.final) == (0, True, False)


@pytest.mark.parametrize("filters", [False, True])
def test_removed_samples_of_a_filtering_writer_are_irrelevant(filters: bool) -> None:
    """Fast DDS 3 forgets what does not pass before it has told that it is irrelevant."""
    s = Script(filters=filters)
    s.heartbeat(1, 0).data(1).heartbeat(5, 5).data(5)
    assert s.taken() == [1, 5]
    counters = s.reader.counters
    assert (counters.lost_samples, counters.irrelevant_samples) == ((0, 3) if filters else (3, 0))


def test_heartbeats_are_answered_at_once_unless_final() -> None:
    s = started()
    s.data(1, 5).heartbeat(1, 5)
    (output,) = s.output()
    assert isinstance(output, AckNack)
    assert (output.missing.base, output.missing.num_bits, output.final) == (6, 0, True)
    s.data(6, 7).heartbeat(1, 7, final=True)
    assert s.output() == []
    s.data(8).heartbeat(1, 8).heartbeat(1, 8)
    assert len(s.output()) == 1


def test_a_proven_hole_is_requested_soon_and_again_until_it_comes() -> None:
    s = started()
    s.data(1, 2).data(5).data(9, 10).heartbeat(1, 10)
    (output,) = s.output()
    assert isinstance(output, AckNack)
    assert output.missing.is_empty, "an acknowledgement of 1 and 2"
    s.sleep(POLICY.nack_delay)
    (output,) = s.output()
    assert isinstance(output, AckNack)
    assert output.missing.base == 3
    assert output.missing.ranges() == [(3, 4), (6, 8)]
    assert not output.final
    first_count = output.count
    s.heartbeat(1, 10).sleep(2 * MS)
    assert s.output() == [], "it is on its way"
    s.sleep(POLICY.round_trip_time)
    (output,) = s.output()
    assert isinstance(output, AckNack)
    assert output.count > first_count
    again = sum(len(s.sleep(10 * MS).output()) for _ in range(2000))
    assert 50 < again < 80, "backs off, does not give up"
    s.data(6, 8).data(3, 4)
    assert s.taken() == list(range(1, 11))
    s.sleep(1000 * MS)
    assert s.output() == []
    assert s.reader.get_timer() is None


def test_a_hole_is_requested_without_a_heartbeat() -> None:
    s = started()
    s.data(3).sleep(POLICY.reorder_delay)
    (output,) = s.output()
    assert isinstance(output, AckNack)
    assert output.missing.ranges() == [(1, 2)]


def test_samples_on_their_way_are_not_requested() -> None:
    s = started()
    for i in range(1, 200):  # each heartbeat announces what arrives 2 ms later
        s.heartbeat(1, i)
        s.sleep(2 * MS)
        s.data(i)
    assert s.reader.counters.nacks_sent == 0


def test_requests_stay_within_256_bits_and_what_was_announced() -> None:
    s = started()
    s.data(1000).heartbeat(1, 1003).sleep(20 * MS)
    output = s.output()[-1]
    assert isinstance(output, AckNack)
    assert output.missing.ranges() == [(1, 256)]
    s.data(1, 999)
    s.output()
    s.heartbeat(1, 1003).sleep(30 * MS)
    output = s.output()[-1]
    assert isinstance(output, AckNack)
    assert (output.missing.base, output.missing.num_bits) == (1001, 3)


def test_first_sn_advancing_loses_what_was_expected() -> None:
    s = started()
    s.data(1).data(3).data(7).heartbeat(6, 7)
    assert s.taken() == [1, 3]
    assert s.reader.counters.lost_samples == 3  # 2, 4, 5
    s.data(6)
    assert s.taken() == [6, 7]
    s.heartbeat(20, 19)
    assert s.reader.counters.lost_samples == 3 + 12


def test_gaps_are_irrelevant_not_lost() -> None:
    s = started()
    s.data(1).gap(2, 5).data(5, 6)
    assert s.taken() == [1, 5, 6]
    s.gap(8, 9, 10, 12).data(7).data(9).data(11).data(13)
    assert s.taken() == [7, 9, 11, 13]
    assert s.reader.counters.irrelevant_samples == 3 + 3
    assert s.reader.counters.lost_samples == 0
    s.data(20).gap(14, 20)
    assert s.taken() == [20]


def test_held_data_survives_a_gap_over_it() -> None:
    s = started()
    s.data(3).gap(2, 5).data(1)
    assert s.taken() == [1, 3]


@pytest.mark.parametrize(
    ("qos", "transient_local", "steps", "expected"),
    [
        # volatile writer: everything from the first heartbeat's first_sn, held until then
        (RELIABLE, False, lambda s: s.data(7).heartbeat(5, 7).data(5, 6), [5, 6, 7]),
        (RELIABLE, False, lambda s: s.data(7), []),
        # transient-local writer, volatile reader: no history
        (RELIABLE, True, lambda s: s.heartbeat(1, 7).data(5, 9), [8, 9]),
        (RELIABLE, True, lambda s: s.data(8).heartbeat(1, 8).data(9), [8, 9]),
        # transient-local reader: all there is
        (LASTING, True, lambda s: s.heartbeat(1, 3).data(1, 3), [1, 2, 3]),
        (LASTING, True, lambda s: s.data(5).heartbeat(4, 5).data(4), [4, 5]),
        # best-effort: from the first data on
        (Qos(), False, lambda s: s.data(7).data(8), [7, 8]),
    ],
)
def test_where_a_reader_starts(
    qos: Qos, transient_local: bool, steps: list[Any], expected: list[int]
) -> None:
    s = Script(qos, transient_local=transient_local)
    steps(s)  # type: ignore[operator]
    assert s.taken() == expected
    assert s.reader.counters.lost_samples == 0


def test_resume_starts_after_what_was_delivered() -> None:
    s = Script(resume={IT: 10})
    s.data(9, 12)
    assert s.taken() == [11, 12]
    s = Script(resume={IT: 10})
    s.heartbeat(15, 16).data(15, 16)
    assert s.taken() == [15, 16]
    assert s.reader.counters.lost_samples == 4
    s = Script(LASTING, transient_local=True, resume={IT: 10})
    s.heartbeat(1, 12).sleep(20 * MS)
    output = s.output()[-1]
    assert isinstance(output, AckNack)
    assert output.missing.ranges() == [(11, 12)]


def test_best_effort_goes_forward_only() -> None:
    s = Script(Qos(), reliable=False)
    s.data(5, 6).data(9).data(7, 8).data(8, 10).heartbeat(1, 50).gap(11, 15).data(15)
    assert s.taken() == [5, 6, 9, 10, 15]
    assert s.reader.counters.lost_samples == 2
    assert s.output() == []
    assert s.reader.get_timer() is None


def test_best_effort_counts_what_finds_no_room_once() -> None:
    s = Script(Qos(), reliable=False)
    s.data(1)
    s.reader.window = 10
    s.data(2, 3)
    s.reader.window = 1000
    s.data(5)
    assert s.taken() == [1, 5]
    assert s.reader.counters.window_closed == 2
    assert s.reader.counters.lost_samples == 1, "4 alone"


def test_best_effort_begins_with_the_beginning_of_a_sample() -> None:
    s = Script(Qos(), reliable=False)
    for number in range(4, 11):
        s.frag(1, number)  # the others were sent before the match
    for number in range(1, 11):
        s.frag(2, number)
    assert s.taken() == [2]
    assert s.reader.counters.lost_samples == 0


def test_best_effort_counts_fragments_that_find_no_room_once() -> None:
    s = Script(Qos(), reliable=False)
    s.data(1)
    s.reader.window = 10
    for number in range(1, 11):
        s.frag(2, number)
    s.frag(2, 10).frag(3, 1)
    s.reader.window = 10_000
    s.data(5)
    assert s.taken() == [1, 5]
    assert s.reader.counters.window_closed == 1, "2"
    assert s.reader.counters.lost_samples == 2, "3, of which the rest never came, and 4"


@pytest.mark.parametrize("coherent", [False, True])
def test_best_effort_counts_a_batch_that_finds_no_room_once(*, coherent: bool) -> None:
    s = Script(replace(Qos(), coherent_access=coherent), reliable=False)
    s.data(1)
    s.reader.window = 40
    s.batch(1, 2, 6, without=(4,), of=2 * coherent)
    if coherent:
        s.end_of_set(7)
    s.reader.window = 10_000
    s.data(9)
    assert s.taken() == [1, 9]
    assert s.reader.counters.window_closed == 4
    assert s.reader.counters.lost_samples == 1 + (not coherent), "8, and 7 if it is no end of a set"
    assert s.reader.counters.irrelevant_samples == 1 + coherent


def test_the_window() -> None:
    s = started()
    s.reader.window = 100
    s.data(1, 3).data(4)
    assert s.taken() == [1, 2, 3]
    assert s.reader.counters.window_closed == 1
    s.data(6).heartbeat(1, 6).sleep(1000 * MS)
    for output in s.output():
        assert isinstance(output, AckNack)
        assert output.missing.is_empty
        assert output.missing.base == 4
    s.reader.window = 20
    assert s.reader.get_timer() is None, "4 would still not fit"
    s.reader.window = 1000
    assert s.reader.get_timer() == 0
    s.reader.handle_timer(s.now)
    (output,) = s.output()
    assert isinstance(output, AckNack)
    assert output.missing.ranges() == [(4, 5)]
    s.data(4, 5)
    assert s.taken() == [4, 5, 6]


def test_held_runs_wait_for_the_window_too() -> None:
    s = started()
    s.data(2, 3).data(4)
    s.reader.window = 40
    s.data(1)
    assert s.taken() == [1]
    s.reader.window = 64
    assert s.taken() == [2, 3]
    s.reader.window = 64
    assert s.taken() == [4]
    s.reader.handle_timer(s.now)
    output = s.output()[-1]
    assert isinstance(output, AckNack)
    assert output.missing.base == 5
    assert s.reader.window == 32


def test_a_reassembled_sample_waits_for_the_window() -> None:
    s = started()
    s.reader.window = 500
    s.frag(1, 1, count=10)
    assert s.taken() == []
    s.reader.window = 1000
    (run,) = s.reader.take_runs()
    assert run.nbytes == 1000
    assert s.reader.delivery.reassembly.budget.nbytes == 0


def test_fragments_are_requested_by_nack_frag() -> None:
    s = started()
    s.frag(1, 1).frag(1, 3).frag(1, 6).data(2)
    s.heartbeat(1, 2).sleep(3 * MS)
    output = s.output()
    nack = next(x for x in output if isinstance(x, NackFrag))
    assert (nack.sn, list(nack.missing.numbers())) == (1, [2, 4, 5, 7, 8, 9, 10])
    assert all(x.missing.is_empty for x in output if isinstance(x, AckNack))
    for number in (2, 4, 5, 7, 8, 9, 10):
        s.frag(1, number)
    assert s.taken() == [1, 2]
    s.frag(1, 4)
    assert s.reader.counters.duplicate_fragments == 1
    assert s.reader.delivery.reassembly.budget.nbytes == 0


def test_fragments_under_way_are_left_alone() -> None:
    s = started()
    for number in range(1, 10):
        s.frag(1, number).sleep(5 * MS)
    assert not any(isinstance(x, NackFrag) for x in s.output())
    s.sleep(30 * MS)
    nacks = [x for x in s.output() if isinstance(x, NackFrag)]
    assert list(nacks[0].missing.numbers()) == [10], "silent for long enough"


def test_heartbeat_frag_speeds_a_request_up() -> None:
    s = started()
    s.frag(1, 1)
    s.reader.on_heartbeat_frag(IT, HeartbeatFrag(ANY, IT.entity, 1, 4, 1), now=s.now)
    s.sleep(POLICY.nack_delay)
    (nack,) = s.output()
    assert isinstance(nack, NackFrag)
    assert list(nack.missing.numbers()) == [2, 3, 4]
    s.reader.on_heartbeat_frag(IT, HeartbeatFrag(ANY, IT.entity, 1, 4, 1), now=s.now)
    assert s.reader.counters.stale_counts == 1


def test_two_large_samples_get_two_counts() -> None:
    s = started()
    s.frag(1, 1).frag(2, 1).data(3).heartbeat(1, 3).sleep(3 * MS)
    counts = [x.count for x in s.output() if isinstance(x, NackFrag)]
    assert len(counts) == 2
    assert counts[0] < counts[1]


def test_best_effort_fragments_of_an_older_sample_are_given_up() -> None:
    s = Script(Qos(), reliable=False)
    s.frag(1, 1).frag(2, 1, count=10).frag(1, 2, count=9)
    assert s.taken() == [2]
    assert s.reader.delivery.reassembly.budget.nbytes == 0
    for sn in range(3, 200):
        s.frag(sn, 1)
    assert len(s.proxy.fragments) <= limits.FRAGMENTED_SAMPLES_MAX
    s.frag(199, 2, count=9)
    assert s.taken() == [199], "the newest is what has a chance"


def test_stale_counts_are_ignored() -> None:
    s = started()
    s.heartbeat(1, 5, count=2)
    s.heartbeat(1, 50, count=2).heartbeat(1, 60, count=1)
    assert s.proxy.last_sn == 5
    assert s.reader.counters.stale_counts == 2
    s.heartbeat(1, 6, count=-(1 << 31) + 100)
    assert s.proxy.last_sn == 5, "just over half the circle is old"
    s.now += 600 * MS
    s.heartbeat(1, 7, count=1)
    assert s.proxy.last_sn == 7, "a writer that was silent may have been restarted"


def test_our_counts_rise_across_a_restart() -> None:
    s = started()
    s.heartbeat(1, 0)
    (before,) = s.output()
    s.now += 1000 * MS
    again = Script()
    again.now = s.now
    again.reader.unmatch_writer(IT)
    again.reader.match_writer(WriterInfo(IT, WHERE, (), True, False), now=s.now)
    (after,) = again.output()
    assert isinstance(before, AckNack)
    assert isinstance(after, AckNack)
    assert after.count > before.count


def test_rematching_changes_locators_only() -> None:
    s = started()
    s.data(1, 3)
    elsewhere = (Locator("10.9.9.9", 7500),)
    s.reader.match_writer(WriterInfo(IT, elsewhere, (), True, False), now=s.now)
    s.heartbeat(1, 3)
    assert s.taken() == [1, 2, 3]
    (out,) = s.reader.outgoing()
    assert out.destinations == elsewhere


def test_unmatching_forgets_everything_but_the_position() -> None:
    s = started()
    s.data(1, 3).frag(9, 1).data(7)
    s.reader.unmatch_writer(IT)
    s.reader.unmatch_writer(IT)
    assert s.reader.get_timer() is None
    assert s.output() == []
    assert s.reader.delivery.reassembly.budget.nbytes == 0
    s.data(4)
    assert s.reader.counters.unknown_writer == 1
    s.reader.match_writer(WriterInfo(IT, WHERE, (), True, False), now=s.now)
    s.data(3, 4)
    assert s.taken() == [1, 2, 3, 4]
