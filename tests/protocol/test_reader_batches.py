"""A reader and a writer that sends batches: whole batches, and answers in their numbers."""

from __future__ import annotations

import numpy as np
import pytest

from spark_rtps.transport import limits
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.wire.batch import Batch
from spark_rtps.transport.wire.samples import Run
from spark_rtps.transport.wire.submessages import AckNack, AckNackBatch
from tests.protocol.reader_script import ANY, IT, LASTING, MS, POLICY, Script, samples, started


def the_one(output: list[object]) -> AckNack | AckNackBatch:
    (answer,) = output
    assert isinstance(answer, AckNack | AckNackBatch)
    return answer


def test_the_next_batch_goes_through_without_a_copy() -> None:
    s = started()
    run = samples(1, 5, 32)
    run.batch_sn = 1
    s.reader.on_batch(Batch(1, 1, 5, [run], 0, ANY, IT), now=s.now)
    (taken,) = s.reader.take_runs()
    assert taken is run
    assert s.reader.counters.received_batches == 1


def test_a_batch_out_of_turn_is_not_copied_either() -> None:
    s = started()
    run = samples(6, 9, 32)
    run.batch_sn = 2
    s.reader.on_batch(Batch(2, 6, 9, [run], 0, ANY, IT), now=s.now)
    s.batch(1, 1, 5)
    assert s.reader.take_runs()[1] is run


def test_batches_are_acknowledged_by_their_numbers() -> None:
    s = started()
    s.batch(1, 1, 100).batch(2, 101, 200).heartbeat_batch((1, 2), 1, 200)
    answer = the_one(s.output())
    assert isinstance(answer, AckNackBatch)
    assert (answer.missing.base, answer.missing.is_empty, answer.final) == (3, True, True)
    s.heartbeat_batch((1, 2), 1, 200, final=True)
    assert s.output() == []


def test_missing_batches_are_requested_by_their_numbers() -> None:
    s = started()
    s.batch(1, 1, 1000).batch(3, 2001, 3000).batch(6, 5001, 6000).sleep(POLICY.reorder_delay)
    answer = the_one(s.output())
    assert isinstance(answer, AckNackBatch)
    assert answer.missing.base == 2
    assert answer.missing.ranges() == [(2, 2)], "what lies before the batch that showed the hole"
    s.heartbeat_batch((1, 7), 1, 6500).sleep(2 * MS)
    answer = the_one(s.output())
    assert isinstance(answer, AckNackBatch)
    assert answer.missing.ranges() == [(4, 5)], "2 may be on its way"
    s.sleep(2 * POLICY.round_trip_time)
    answer = the_one(s.output())
    assert isinstance(answer, AckNackBatch)
    assert answer.missing.ranges() == [(2, 2), (4, 5), (7, 7)], "7: only the HEARTBEAT_BATCH told of it"
    for number in (2, 4, 5, 7):
        s.batch(number, 1000 * number - 999, min(1000 * number, 6500))
    assert s.taken() == list(range(1, 6501))
    s.heartbeat_batch((1, 7), 1, 6500)
    answer = the_one(s.output())
    assert isinstance(answer, AckNackBatch)
    assert answer.missing.base == 8


def test_history_is_requested_by_batch_numbers() -> None:
    s = Script(LASTING, transient_local=True)
    s.output()
    s.heartbeat_batch((5, 400), 401, 40_000).sleep(POLICY.nack_delay)
    answer = s.output()[-1]
    assert isinstance(answer, AckNackBatch)
    assert answer.missing.ranges() == [(5, 260)], "256 of them at once"


def test_sequence_numbers_are_requested_where_batch_numbers_cannot() -> None:
    s = started()
    s.batch(1, 1, 10).data(11).heartbeat(1, 11)  # a sample outside of any batch
    answer = the_one(s.output())
    assert isinstance(answer, AckNack)
    assert answer.missing.base == 12
    s.data(14).batch(2, 15, 20).sleep(POLICY.reorder_delay)
    answer = the_one(s.output())
    assert isinstance(answer, AckNack)
    assert answer.missing.ranges() == [(12, 13)]
    s.data(12, 13).heartbeat_batch((1, 2), 1, 20)
    answer = the_one(s.output())
    assert isinstance(answer, AckNackBatch)
    assert answer.missing.base == 3


def test_a_lone_sample_next_to_missing_batches_is_not_acknowledged_with_them() -> None:
    s = started()
    # 1: 1-10, then 11 alone, 2: 12-20, 3: 21-30; all but 1 and 3 are lost
    s.batch(1, 1, 10).batch(3, 21, 30).sleep(POLICY.reorder_delay)
    answer = the_one(s.output())
    assert isinstance(answer, AckNackBatch)
    assert answer.missing.ranges() == [(2, 2)]
    s.batch(2, 12, 20).sleep(POLICY.round_trip_time)
    s.heartbeat_batch((1, 3), 1, 30).sleep(POLICY.round_trip_time)
    answer = s.output()[-1]  # type: ignore[assignment]
    assert isinstance(answer, AckNack)
    assert answer.missing.base == 11
    assert answer.missing.ranges() == [(11, 11)]
    s.data(11)
    assert s.taken() == list(range(1, 31))


def test_a_batch_of_which_a_part_came_as_data_is_cut() -> None:
    s = started()
    s.data(1, 3).batch(1, 1, 10)
    assert s.taken() == list(range(1, 11))
    assert s.reader.counters.duplicate_samples == 3
    s.batch(1, 1, 10)
    assert s.taken() == []


def test_numbers_left_out_of_a_batch_are_irrelevant() -> None:
    s = started()
    s.batch(1, 1, 10, without=(4, 5, 10))
    assert s.taken() == [1, 2, 3, 6, 7, 8, 9]
    assert s.proxy.expected == 11
    assert s.reader.counters.irrelevant_samples == 3
    s.batch(3, 21, 30, without=(21, 25)).batch(2, 11, 20)
    assert s.taken() == [*range(11, 21), *range(22, 25), *range(26, 31)]
    assert s.proxy.expected == 31
    s.batch(3, 21, 30, without=(21, 25))
    assert s.taken() == []


@pytest.mark.parametrize("ahead", [False, True])
def test_a_batch_waits_for_the_window_as_a_whole(ahead: bool) -> None:
    s = started()
    s.data(1)
    s.taken()
    s.reader.window = 200
    if ahead:
        s.batch(2, 3, 12, without=(5,))
        s.data(2)
        assert s.taken() == [2]
    else:
        s.data(2)
        s.batch(2, 3, 12, without=(5,))
        assert s.taken() == [2]
    assert s.reader.counters.window_closed
    s.reader.window = 9 * 32
    s.batch(2, 3, 12, without=(5,))
    assert s.taken() == [3, 4, *range(6, 13)]


def test_a_batch_that_does_not_fit_the_buffer_is_given_up_whole() -> None:
    s = started()
    s.proxy.held.runs_max = 3
    s.batch(4, 31, 40).batch(3, 21, 30, without=(22, 24, 26))  # four runs
    assert [run.batch_sn for run in s.proxy.held.runs] == [], "4 had made room"
    s = started()
    s.proxy.held.runs_max = 3
    s.batch(3, 21, 30, without=(22,)).batch(4, 31, 40).batch(2, 11, 20)
    assert [run.batch_sn for run in s.proxy.held.runs] == [2, 3, 3]
    s.data(5)
    assert [run.batch_sn for run in s.proxy.held.runs] == [0, 2], "both of 3 gave way"
    assert s.reader.counters.reorder_overflow == 10 + 9


def test_best_effort_batches() -> None:
    s = Script(Qos(), reliable=False)
    s.batch(3, 21, 30).batch(5, 41, 50, without=(45,)).batch(4, 31, 40)
    assert s.taken() == [*range(21, 31), *range(41, 45), *range(46, 51)]
    assert s.reader.counters.lost_samples == 10
    s.reader.window = 100
    s.batch(6, 51, 60, without=(55,))
    assert s.taken() == []
    assert s.output() == []


def test_before_the_first_heartbeat_batches_are_held() -> None:
    s = Script()
    s.batch(8, 71, 80).heartbeat_batch((7, 8), 61, 80).sleep(POLICY.nack_delay)
    answer = s.output()[-1]
    assert isinstance(answer, AckNackBatch)
    assert answer.missing.base == 7
    assert answer.missing.ranges() == [(7, 7)]
    s.batch(7, 61, 70)
    assert s.taken() == list(range(61, 81))


def test_edges_are_bounded() -> None:
    s = started()
    for number in range(2, 10_000):
        s.batch(number, 10 * number, 10 * number + 1)
        s.heartbeat_batch((1, number), 1, 10 * number + 1)
    batches = s.proxy.batches
    assert batches is not None
    assert len(batches._starts) <= limits.REORDER_RUNS_MAX
    assert len(batches._ends) <= limits.REORDER_RUNS_MAX
    s.sleep(100 * MS)
    assert s.output()


def test_impossible_numbers_are_answered_with_possible_ones() -> None:
    s = started()
    most = (1 << 63) - 1
    s.batch(most, 1, 10).heartbeat_batch((most, most), 1, 10)
    answer = the_one(s.output())
    assert isinstance(answer, AckNack)
    assert answer.missing.base == 11
    s.batch(3, 21, 30).batch(2, 41, 50).heartbeat_batch((1, 9), 1, 60).sleep(100 * MS)  # they contradict
    for output in s.output():
        assert isinstance(output, AckNack | AckNackBatch)
        assert output.missing.num_bits <= 256
    s.heartbeat_batch((1, most), 1, most).sleep(100 * MS)
    s.output()
    s.reader.on_run(Run(IT, most, 1, np.zeros(32, np.uint8), 32, 24, 8), now=s.now)
    s.heartbeat(most, most).sleep(100 * MS).output()


def test_nothing_is_kept_of_batches_that_were_held() -> None:
    s = started()
    for i in range(1, 50):
        s.batch(2 * i + 1, 20 * i + 1, 20 * i + 10).batch(2 * i, 20 * i - 9, 20 * i)
    s.data(1, 10)
    assert s.taken() == list(range(1, 991))
    held = s.proxy.held
    assert (len(held), held.window.units, held.nbytes, len(held.window._batches)) == (0, 0, 0, 0)
