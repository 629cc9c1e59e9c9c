"""Readers with coherent access: all of a set, or none of it (RTPS 2.5 §8.7.5)."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from spark_rtps.transport.protocol.endpoint_info import WriterInfo
from spark_rtps.transport.protocol.policies import LossCause, ReaderPolicy
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.wire.batch import Batch
from spark_rtps.transport.wire.parameters import (
    PID_COHERENT_SET,
    ParameterList,
    decode_parameters,
    encode_parameters,
)
from spark_rtps.transport.wire.samples import DISPOSED, Run
from spark_rtps.transport.wire.submessages import AckNack, AckNackBatch, DataFrag
from tests.protocol.reader_script import (
    ANY,
    IT,
    LASTING,
    MS,
    POLICY,
    RELIABLE,
    WHERE,
    Script,
    samples,
    started,
)
from tests.support.campaigns import seeds

COHERENT = replace(RELIABLE, coherent_access=True)
BEST_EFFORT = Qos(coherent_access=True)


def coherent() -> Script:
    return started(qos=COHERENT)


def best_effort() -> Script:
    return Script(BEST_EFFORT, reliable=False)


def test_a_set_is_handed_out_when_its_end_marker_came() -> None:
    s = coherent()
    s.data(1, 3, of=1).data(4, of=1)
    assert s.taken() == []
    s.end_of_set(5)
    assert s.taken() == [1, 2, 3, 4]
    assert s.proxy.expected == 6
    assert s.reader.counters.irrelevant_samples == 1


def test_an_end_marker_that_overtakes_its_set_ends_it() -> None:
    s = coherent()
    s.end_of_set(5)
    assert s.proxy.expected == 1
    s.data(1, 4, of=1)
    assert s.taken() == [1, 2, 3, 4]
    assert s.proxy.expected == 6


def test_a_gap_over_what_is_held_of_a_set_takes_the_set_back() -> None:
    s = coherent()
    s.data(1, 3, of=1).data(5, of=1)
    s.gap(1, 7)
    assert s.taken() == []
    assert s.proxy.expected == 7
    assert s.reader.counters.coherent_sets_lost == s.reader.counters.lost_samples == 0
    s.data(4, of=1).data(7, 8)
    assert s.taken() == [7, 8]


def test_a_gap_over_a_part_of_a_set_loses_all_of_it() -> None:
    s = coherent()
    s.data(2, 3, of=1)
    s.gap(3, 4)
    s.data(1, of=1).data(4, of=1).end_of_set(5)
    assert s.taken() == []
    assert s.proxy.expected == 6


def test_a_sample_of_no_set_or_of_another_ends_a_set() -> None:
    s = coherent()
    s.data(1, 3, of=1).data(4)
    assert s.taken() == [1, 2, 3, 4]
    s.data(5, 6, of=5).data(7, 8, of=7)
    assert s.taken() == [5, 6]
    s.data(9)
    assert s.taken() == [7, 8, 9]


def test_a_set_with_a_hole_waits_for_it() -> None:
    s = coherent()
    s.data(1, 2, of=1).data(4, 5, of=1).end_of_set(6).data(7)
    assert s.taken() == []
    output = s.sleep(POLICY.reorder_delay).output()[-1]
    assert isinstance(output, AckNack)
    assert output.missing.base == 1, "nothing of it is acknowledged"
    assert output.missing.ranges() == [(3, 3)]
    s.data(3, of=1)
    assert s.taken() == [1, 2, 3, 4, 5, 7]


def test_a_set_whose_end_is_missing_waits_for_it() -> None:
    s = coherent()
    s.data(1, 2, of=1).data(4)
    assert s.taken() == []
    s.end_of_set(3)
    assert s.taken() == [1, 2, 4]
    s.data(5, of=5).data(8, of=8)
    assert s.taken() == [], "6 may be of the set"
    s.gap(6, 8)
    assert s.taken() == [5]


def test_an_open_set_is_not_acknowledged() -> None:
    s = coherent()
    s.data(1).data(2, 5, of=2).heartbeat(1, 5)
    (output,) = s.output()
    assert isinstance(output, AckNack)
    assert (output.missing.base, output.final) == (2, True)
    s.end_of_set(6).heartbeat(1, 6)
    (output,) = s.output()
    assert isinstance(output, AckNack)
    assert output.missing.base == 7


def test_an_open_set_is_not_asked_for() -> None:
    s = coherent()
    s.data(1, 5, of=1).heartbeat(1, 5).output()
    s.sleep(1000 * MS)
    assert s.output() == []
    assert s.reader.get_timer() is None


def test_a_set_of_batches() -> None:
    s = coherent()
    s.batch(1, 1, 10, of=1).batch(3, 21, 30, of=1).end_of_set(31)
    output = s.sleep(POLICY.reorder_delay).output()[-1]
    assert isinstance(output, AckNackBatch)
    assert (output.missing.base, output.missing.ranges()) == (1, [(2, 2)])
    s.batch(2, 11, 20, of=1)
    assert s.taken() == list(range(1, 31))


def test_a_long_set_is_repaired_beyond_what_one_acknack_reaches() -> None:
    s = coherent()
    s.data(1, 999, of=1).data(1001, 1300, of=1).end_of_set(1301)
    output = s.sleep(POLICY.reorder_delay).output()[-1]
    assert isinstance(output, AckNack)
    assert output.missing.ranges() == [(1000, 1000)]
    s.data(1000, of=1)
    assert s.taken() == list(range(1, 1301))


def test_without_coherent_access_sets_are_samples_like_any_other() -> None:
    s = started()
    s.data(1, 3, of=1)
    assert s.taken() == [1, 2, 3]
    s.data(5, of=1).end_of_set(6)
    s.data(4, of=1)
    assert s.taken() == [4, 5]
    s.end_of_set(7).data(8)
    assert s.taken() == [8]
    assert s.reader.counters.irrelevant_samples == 2
    s = Script(Qos(), reliable=False)
    s.data(1, 3, of=1).end_of_set(4).end_of_set(4).data(5).end_of_set(9).data(10)
    assert s.taken() == [1, 2, 3, 5, 10]
    assert s.reader.counters.lost_samples == 3


def test_end_markers_are_empty_data_and_nothing_else() -> None:
    s = started()
    of_no_set = samples(1, 1, 32)
    of_no_set.coherent_set = -1
    dispose = Run(IT, 2, 1, np.zeros(32, np.uint8), 32, 32, 0, coherent_set=-1, flags=DISPOSED)
    for run in (of_no_set, dispose):
        s.reader.on_run(run, now=s.now)
    assert s.taken() == [1, 2]


def test_a_set_larger_than_the_buffer_is_lost_not_waited_for() -> None:
    s = coherent()
    s.proxy.held.bytes_max = 32 * 10
    s.data(1, 5, of=1).data(6, 10, of=1)
    s.data(11, 15, of=1).data(16, of=1).data(18, of=1).data(17, of=1).end_of_set(19).data(20, of=20).data(21)
    assert s.taken() == [20, 21]
    assert s.reader.counters.coherent_sets_lost == 1
    assert s.reader.counters.lost_samples == 18
    s = coherent()
    s.proxy.held.runs_max = 3
    s.data(1, of=1).data(3, of=1).data(5, of=1)
    assert s.proxy.expected == 1
    s.data(7, of=1)
    assert s.proxy.expected == 8, "2, 4 and 6 are not waited for"
    assert s.reader.counters.lost_samples == 7
    s.data(8, of=1).data(9)
    assert s.taken() == [9]


def test_a_set_that_just_fits_needs_no_room_for_its_end() -> None:
    s = coherent()
    s.proxy.held.runs_max = 3
    s.data(1, of=1).data(2, of=1).data(3, of=1).end_of_set(4)
    assert s.taken() == [1, 2, 3]
    s.data(5, of=5).data(6, of=5).data(7, of=5).data(8, of=8).data(9)
    assert s.taken() == [5, 6, 7, 8, 9]


def test_a_set_larger_than_the_owner_takes_is_lost() -> None:
    s = coherent()
    s.reader.delivery.sample_size_max = 100
    s.data(1, 2, of=1).data(3, 4, of=1).end_of_set(5).data(6)
    assert s.taken() == [6]
    assert s.reader.counters.coherent_sets_lost == 1
    assert s.reader.counters.lost_samples == 4


def test_a_set_with_a_sample_larger_than_the_owner_takes_is_lost() -> None:
    s = coherent()
    s.reader.delivery.sample_size_max = 100
    s.data(1).data(2, of=2).data(3, of=2, size=200).data(4, of=2).end_of_set(5).data(6, of=6).end_of_set(7)
    assert s.taken() == [1, 6]
    assert s.reader.counters.oversized_samples == 1
    assert s.reader.counters.coherent_sets_lost == 1


def test_a_set_waits_for_the_window_as_a_whole() -> None:
    s = coherent()
    s.reader.window = 100
    s.data(1, 2, of=1).data(3, 4, of=1).end_of_set(5).data(6)
    assert s.taken() == []
    assert s.reader.counters.window_closed == 4
    s.reader.window = 100
    assert s.taken() == []
    s.reader.window = 160
    assert s.taken() == [1, 2, 3, 4, 6]


def test_receive_window_size_holds_for_sets_too() -> None:
    s = started(qos=COHERENT, policy=ReaderPolicy(receive_window_size=5))
    s.data(1, 3, of=1).data(4, 5, of=1).data(6, of=1).data(7, of=1).data(8)
    assert s.taken() == [8]
    assert s.reader.counters.coherent_sets_lost == 1


def test_samples_that_the_writer_no_longer_has_break_their_set() -> None:
    s = coherent()
    s.data(1, 3, of=1).data(5, 6, of=1).data(8, 9, of=8).heartbeat(5, 9)
    assert s.taken() == []
    s.end_of_set(7)
    assert s.reader.counters.coherent_sets_lost == 1
    assert s.reader.counters.lost_samples == 6
    s.data(10)
    assert s.taken() == [8, 9, 10]


def test_a_hole_behind_a_set_that_will_not_be_filled_may_have_been_of_it() -> None:
    s = coherent()
    s.data(1, 3, of=1).data(5).heartbeat(5, 5)
    assert s.taken() == [5]
    assert s.reader.counters.coherent_sets_lost == 1
    assert s.reader.counters.lost_samples == 4


def test_a_set_whose_end_has_outlived_its_lifespan_is_lost_not_waited_for() -> None:
    """A late joiner got the first samples; the others, and the end, were over before they could be repaired."""
    s = coherent()
    s.data(1, 3, of=1).gap(4, 9)
    s.heartbeat(1, 8)
    assert s.taken() == [], "the rest of the set may come"
    s.heartbeat(9, 8)
    assert s.taken() == []
    assert s.proxy.expected == 9
    assert s.reader.delivery.losses.take() == {(IT, LossCause.COHERENT_SET): 3}
    s.data(9)
    assert s.taken() == [9]


def test_irrelevant_samples_do_not_break_a_set() -> None:
    s = coherent()
    s.data(1, of=1).gap(2, 4).data(4, of=1).end_of_set(5)
    assert s.taken() == [1, 4]


def test_samples_that_name_no_set_and_come_behind_an_end_marker_are_handed_out() -> None:
    s = coherent()
    s.data(6, of=-1).data(5, of=-1).end_of_set(4).data(2, 3, of=2).data(1)
    assert s.taken() == [1, 2, 3, 5, 6]
    assert s.reader.counters.irrelevant_samples == 1
    assert s.reader.counters.received_samples == 5


def test_an_end_marker_behind_samples_that_name_no_set_is_not_handed_out() -> None:
    s = coherent()
    s.data(2, of=-1).end_of_set(3).data(4).data(1)
    assert s.taken() == [1, 2, 4]
    assert s.reader.counters.irrelevant_samples == 1


def test_an_end_marker_inside_a_batch_is_not_handed_out() -> None:
    runs = [samples(2, 2, 32), Run(IT, 3, 1, np.zeros(32, np.uint8), 32, 32, 0, coherent_set=-1)]
    for run in runs:
        run.batch_sn = 1
    s = coherent()
    s.reader.on_batch(Batch(1, 2, 3, runs, 0, ANY, IT), now=s.now)
    s.data(4).data(1)
    assert s.taken() == [1, 2, 4]
    assert s.reader.counters.irrelevant_samples == 1


def test_a_writer_that_goes_away_takes_its_open_set_along() -> None:
    s = coherent()
    s.data(1).data(2, 4, of=2).data(6, of=2).data(8, of=7)
    s.reader.unmatch_writer(IT)
    assert s.taken() == [1]
    assert s.reader.counters.coherent_sets_lost == 2
    assert s.reader.counters.lost_samples == 7
    assert s.reader.delivery.reorder_budget.nbytes == 0


def test_a_reader_that_came_in_the_middle_of_a_set_waits_for_the_next() -> None:
    s = Script(COHERENT)
    s.data(5, 6, of=3).end_of_set(7).data(8, of=8).heartbeat(5, 8)
    assert s.taken() == []
    s.end_of_set(9)
    assert s.taken() == [8]
    assert s.reader.counters.coherent_sets_lost == 1


def test_a_reader_that_resumes_in_the_middle_of_a_set_takes_the_rest() -> None:
    s = started(qos=COHERENT, resume={IT: 3})
    s.data(4, 5, of=2).end_of_set(6)
    assert s.taken() == [4, 5], "2 and 3 were handed out in its earlier life"


def test_a_late_joiner_gets_whole_sets() -> None:
    qos = replace(LASTING, coherent_access=True)
    s = Script(qos, transient_local=True)
    s.heartbeat(5, 9).data(5, 6, of=3).data(7, 8, of=7).end_of_set(9)
    assert s.taken() == [7, 8]
    assert s.reader.counters.coherent_sets_lost == 1


def test_best_effort_sets() -> None:
    s = best_effort()
    s.data(1, 2, of=1).data(3, of=1).end_of_set(4)
    assert s.taken() == [1, 2, 3]
    s.data(5, of=5).data(7, of=5).end_of_set(8).data(9, 10, of=9).data(11)
    assert s.taken() == [9, 10, 11]
    assert s.reader.counters.coherent_sets_lost == 1
    assert s.reader.counters.lost_samples == 3
    s.data(12, of=12).data(14)  # 13 may have been of the set
    assert s.taken() == [14]
    s.data(17, of=15).data(18)
    assert s.taken() == [18]
    s.data(19, of=19).data(18).gap(20, 21).data(21, of=19).data(22)
    assert s.taken() == [19, 21, 22]
    assert s.reader.delivery.reorder_budget.nbytes == 0
    assert s.reader.get_timer() is None


def test_best_effort_sets_never_wait_for_the_window() -> None:
    s = best_effort()
    s.reader.window = 50
    s.data(1, 2, of=1).end_of_set(3)
    s.reader.window = 1000
    s.data(4)
    assert s.taken() == [4]
    assert s.reader.counters.window_closed == 2


def test_best_effort_sets_are_bounded() -> None:
    s = best_effort()
    s.proxy.held.runs_max = 3
    for sn in range(1, 10):
        s.data(sn, of=1)
    s.data(10, of=10).data(11)
    assert s.taken() == [10, 11]
    assert s.reader.counters.coherent_sets_lost == 1
    assert s.reader.counters.lost_samples == 9


@pytest.mark.parametrize("little_endian", [False, True])
@pytest.mark.parametrize(("number", "waits"), [(1, True), (-(1 << 32), False)])
def test_fragmented_samples_of_a_set(little_endian: bool, number: int, waits: bool) -> None:
    s = coherent()
    order = "little" if little_endian else "big"
    value = (number >> 32).to_bytes(4, order, signed=True) + (number & 0xFFFFFFFF).to_bytes(4, order)
    encoded = encode_parameters([(PID_COHERENT_SET, value)], little_endian)
    qos: ParameterList = decode_parameters(memoryview(encoded), little_endian)[0]
    for number in (1, 2):
        frag = DataFrag(ANY, IT.entity, 1, number, 1, 8, 16, bytes(8), qos)
        s.reader.on_data_frag(IT, frag, 0, now=s.now)
    assert s.taken() == ([] if waits else [1])
    s.data(2)
    assert s.taken() == ([1, 2] if waits else [2])


def test_forged_sets_cost_little() -> None:
    s = coherent()
    for sn in range(1, 20_000):
        s.data(2 * sn, of=[1, 0, 1 << 62, 2 * sn, -1][sn % 5])
    s.heartbeat(1 << 61, 1 << 62)
    s.taken()
    s.data(1 << 62, of=1)
    assert s.proxy.held.nbytes < 1 << 20
    s = best_effort()
    for sn in range(1, 20_000):
        s.data(2 * sn, of=[1, 0, 1 << 62, 2 * sn, -1][sn % 5])
    assert s.proxy.held.nbytes < 1 << 20
    assert len(s.proxy.sets._lost) <= 4096


@pytest.mark.parametrize("seed", seeds(40))
def test_whatever_the_order_sets_are_whole_and_in_order(seed: int) -> None:
    """Runs and GAPs of random sets in random order, repeated and cut: all arrives, set by set."""
    r = random.Random(seed)
    s = coherent()
    sets: list[list[int]] = []
    pieces: list[tuple[int, int, int]] = []  # first, last, set; end markers have set -1
    sn = 1
    for _ in range(r.randint(1, 6)):
        first = sn
        if r.random() < 0.2:
            sets.append([sn])
            pieces.append((sn, sn, 0))
            sn += 1
            continue
        for _ in range(r.randint(1, 5)):
            last = sn + r.randint(0, 3)
            pieces.append((sn, last, first))
            sn = last + 1
        sets.append(list(range(first, sn)))
        if r.random() < 0.7:
            pieces.append((sn, sn, -1))
            sn += 1
    pieces.append((sn, sn, 0))
    sets.append([sn])
    todo = pieces + r.sample(pieces, len(pieces) // 2)
    r.shuffle(todo)
    got: list[int] = []
    for first, last, of in todo:
        if of < 0:
            s.end_of_set(first)
        else:
            s.data(first, last, of=of)
        if r.random() < 0.3:
            s.reader.window = r.choice([0, 64, 1 << 20])
        taken = s.taken()
        got += taken
        for each in sets:
            assert set(each) <= set(got) or not set(each) & set(got), "half a set"
        s.heartbeat(1, sn).sleep(5 * MS)
        s.output()
    s.reader.window = 1 << 30
    for first, last, of in pieces:  # what a closed window kept out
        s.end_of_set(first) if of < 0 else s.data(first, last, of=of)
    got += s.taken()
    assert got == [number for each in sets for number in each]
    assert s.reader.counters.lost_samples == s.reader.counters.coherent_sets_lost == 0


def test_rematched_it_goes_on() -> None:
    s = coherent()
    s.data(1).data(2, of=2)
    s.reader.unmatch_writer(IT)
    s.reader.match_writer(WriterInfo(IT, WHERE, (), True, False), now=s.now)
    s.data(2, of=2).end_of_set(3)
    assert s.taken() == [1, 2]
