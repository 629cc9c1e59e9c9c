"""A reader whose owner has little room: what was merged on the way is handed out in parts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_rtps.transport.protocol.reading.ordering.reorder_buffer import ReorderBudget, ReorderBuffer
from spark_rtps.transport.wire.samples import Run
from spark_rtps.transport.wire.submessages import AckNack
from tests.protocol.reader_script import RELIABLE, samples, started


def test_a_run_longer_than_the_room_is_taken_in_parts() -> None:
    s = started()
    s.reader.window = 1_000
    s.data(1, 100)  # 3,200 bytes, merged from several datagrams
    assert s.taken() == list(range(1, 32))
    s.reader.window = 640
    s.output()
    s.data(32, 100)
    assert s.taken() == list(range(32, 52))
    s.reader.window = 10_000
    s.data(52, 100)
    assert s.taken() == list(range(52, 101))


def test_a_closed_way_opens_with_little_room() -> None:
    s = started()
    s.reader.window = 0
    s.data(1, 40_000 // 32)
    assert s.taken() == []
    s.heartbeat(1, 1_250)
    s.output()
    s.reader.window = 4_096
    s.sleep(50_000_000)
    asked = [each for each in s.output() if isinstance(each, AckNack) and not each.missing.is_empty]
    assert asked, "it need not wait for room for all of it"


def test_held_samples_are_delivered_in_parts_too() -> None:
    s = started()
    s.reader.window = 1_000
    s.data(2, 100)
    s.data(1)
    assert s.taken() == list(range(1, 32))
    s.reader.window = 1_600
    assert s.taken() == [], "not in dribbles: 4 KiB, or all of it, have to fit"
    s.reader.window = 2_208
    assert s.taken() == list(range(32, 101))


def test_samples_held_behind_a_gap_are_delivered_in_parts_and_once() -> None:
    s = started()
    s.reader.window = 1_000
    s.data(3, 100)
    s.gap(2, 3)
    s.data(1)
    assert s.taken() == [1, *range(3, 33)]
    s.reader.window = 1 << 20
    assert s.taken() == list(range(33, 101))
    assert s.reader.counters.irrelevant_samples == 1


@pytest.mark.parametrize("kind", ["batch", "set"])
def test_a_coherent_run_is_taken_whole_or_not_at_all(kind: str) -> None:
    s = started(qos=replace(RELIABLE, coherent_access=kind == "set"))
    s.reader.window = 1_000
    if kind == "batch":
        s.batch(1, 1, 100)
    else:
        s.data(1, 100, of=1).end_of_set(101)
    assert s.taken() == []
    s.reader.window = 1 << 20
    if kind == "batch":
        s.batch(1, 1, 100)
    assert s.taken() == list(range(1, 101))


def _held(first: int, last: int, *, batch: int = 0) -> Run:
    run = samples(first, last, 32)
    run.batch_sn = batch
    return run


def test_a_run_refused_by_a_full_buffer_leaves_nothing_in_it() -> None:
    held = ReorderBuffer(ReorderBudget(), units_max=4)
    assert held.add_run(_held(10, 13)) == (4, 4, 0)
    assert held.add_run(_held(20, 22)) == (3, 0, 3)
    assert (len(held), held.window.units, held.highest) == (1, 4, 13)


def test_a_batch_is_held_whole_or_not_at_all() -> None:
    held = ReorderBuffer(ReorderBudget(), units_max=4)
    held.bytes_max = 6 * 32
    assert held.add_run(_held(10, 12)) == (3, 3, 0)
    assert held.add_run(_held(20, 27, batch=1)) == (8, 0, 8)
    assert (len(held), held.highest) == (1, 12)


def test_a_run_is_not_cut_for_the_receive_window_where_the_bytes_do_not_fit_either() -> None:
    held = ReorderBuffer(ReorderBudget(), units_max=8)
    held.bytes_max = 5 * 32
    assert held.add_run(_held(10, 13)) == (4, 4, 0)
    assert held.add_run(_held(20, 29)) == (10, 0, 10)
    assert held.nbytes <= held.bytes_max


def test_held_samples_that_arrive_again_in_another_run_are_duplicates() -> None:
    s = started()
    s.data(3, 6).data(1, 4).heartbeat(1, 6)
    assert s.taken() == [1, 2, 3, 4, 5, 6]
    assert (s.reader.counters.received_samples, s.reader.counters.duplicate_samples) == (6, 2)


def test_a_part_of_the_held_samples_can_be_discarded() -> None:
    held = ReorderBuffer(ReorderBudget())
    held.add_run(_held(10, 13))
    assert (held.discard_below(12), held.window.units, held.nbytes, sum(run.count for run in held.runs)) == (
        2,
        2,
        64,
        2,
    )
    assert held.discard_below(14) == 2
    assert (held.window.units, held.nbytes, len(held)) == (0, 0, 0)
