"""What a hostile writer cannot make a reader do: bounds on memory, time and answers."""

from __future__ import annotations

import time

import numpy as np
import pytest

from spark_rtps.transport import limits
from spark_rtps.transport.errors import DecodeError, DropReason
from spark_rtps.transport.protocol.endpoint_info import WriterInfo
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.numbers import FragmentNumberSet, SequenceNumberSet
from spark_rtps.transport.wire.samples import SAMPLE_INDEX, Run
from spark_rtps.transport.wire.submessages import (
    AckNack,
    DataFrag,
    Gap,
    Heartbeat,
    HeartbeatFrag,
    NackFrag,
    decode_submessage,
)
from tests.protocol.reader_script import ANY, IT, MS, POLICY, WHERE, Script, started


def quick(started_at: float) -> bool:
    return time.process_time() - started_at < 2.0


def test_huge_gaps() -> None:
    s, t = started(), time.process_time()
    s.data(2).gap(5, 1 << 62)
    s.gap(1 << 61, (1 << 62) - 1, *range((1 << 62) - 1, (1 << 62) + 200, 2))
    for i in range(5_000):
        s.gap(1_000_000 + 4 * i, 1_000_002 + 4 * i)
    assert quick(t)
    s.data(1).data(3, 4)
    assert s.taken() == [1, 2, 3, 4]
    s.heartbeat(1, 1 << 62).sleep(1000 * MS)
    assert all(x.missing.num_bits <= 256 for x in s.output() if isinstance(x, AckNack))


def test_scattered_gaps_are_bounded() -> None:
    s, t = started(), time.process_time()
    for i in range(10_000):
        s.gap(10 + 3 * i, 11 + 3 * i)
    assert s.reader.counters.gap_overflow == 10_000 - limits.REORDER_RUNS_MAX
    s.data(1, 40_000)
    assert len(s.taken()) == 40_000
    assert quick(t)


def test_far_future_heartbeats() -> None:
    s, t = started(), time.process_time()
    s.data(1)
    s.heartbeat(1, (1 << 63) - 1).sleep(5000 * MS)
    for output in s.output():
        assert isinstance(output, AckNack)
        assert output.missing.num_bits <= 256
    s.heartbeat(1, 2)  # the true one takes it back
    s.data(2).sleep(1000 * MS)
    s.output()
    assert s.taken() == [1, 2]
    s.sleep(1000 * MS)
    assert s.output() == []
    for first, last in ((5, 3), (0, 3), (-1, 3)):  # no reader ever sees such a one
        raw = memoryview(Heartbeat(ANY, IT.entity, first, last, 99).encode())
        with pytest.raises(DecodeError) as caught:
            decode_submessage(raw[0], raw[1], raw[4:])
        assert caught.value.reason is DropReason.BAD_SEQUENCE_NUMBER
    assert quick(t)


def test_the_highest_sequence_number_there_is() -> None:
    s = started()
    most = (1 << 63) - 1
    s.heartbeat(most, most).sleep(50 * MS)
    s.heartbeat(most, most).output()
    s.reader.on_run(Run(IT, most, 1, np.zeros(32, np.uint8), 32, 24, 8), now=s.now)
    s.heartbeat(most, most).sleep(100 * MS)
    (output,) = s.output()
    assert isinstance(output, AckNack)
    assert output.missing.base == most, "there is no number behind it to acknowledge it with"
    s.frag(most, 1).heartbeat(most, most).sleep(100 * MS).output()
    s.reader.unmatch_writer(IT)
    assert s.reader.delivery.reassembly.budget.nbytes == 0


def test_out_of_order_data_is_bounded() -> None:
    s, t = started(), time.process_time()
    for i in range(6_000):
        s.data(3 + 2 * i)
    held = s.proxy.held
    assert len(held) <= limits.REORDER_RUNS_MAX
    assert s.reader.counters.reorder_overflow > 0
    for i in range(100):
        s.data(1_000_000 + 100 * i, size=1 << 20)
    assert held.nbytes <= limits.REORDER_WRITER_BYTES_MAX + (1 << 20)
    s.data(2)
    assert 3 in held, "what comes first is kept, what comes later gives way"
    s.data(1)
    assert s.taken()[:3] == [1, 2, 3]
    assert quick(t)


def test_given_up_runs_are_requested_later() -> None:
    s = started()
    s.proxy.held.runs_max = 2
    s.data(3).data(5).data(7)
    s.data(1, 2).data(4)
    assert s.taken() == [1, 2, 3, 4, 5]
    s.sleep(50 * MS)
    output = s.output()[-1]
    assert isinstance(output, AckNack)
    assert output.missing.ranges() == [(6, 7)]


def test_endless_fragments() -> None:
    s, t = started(), time.process_time()
    for sn in range(2, 5_000):
        s.frag(sn, 1, total=200 << 20)
    assert s.reader.delivery.reassembly.budget.nbytes <= limits.FRAGMENTED_BYTES_MAX
    for sn in range(5_000, 9_000):
        s.frag(sn, 1)
    assert len(s.proxy.fragments) <= limits.FRAGMENTED_SAMPLES_MAX
    assert s.reader.counters.fragment_overflow > 0
    s.frag(1, 1, count=10)
    assert s.taken() == [1], "what is expected finds room"
    s.sleep(1000 * MS)
    s.output()
    assert quick(t)


def test_contradicting_fragments_are_counted() -> None:
    s = started()
    s.frag(1, 1).frag(1, 2, size=50).frag(1, 2, total=2000)
    assert s.reader.counters.bad_fragments == 2
    s.reader.on_data_frag(IT, DataFrag(ANY, IT.entity, 2, 1, 1, 0, 0, b""), 0, now=s.now)
    assert s.reader.counters.fragment_overflow == 1
    assert set(s.proxy.fragments) == {1}


@pytest.mark.parametrize("size", [0xFFFFFFFF, limits.FRAGMENTED_SAMPLE_MAX + 1])
def test_a_sample_larger_than_anybody_takes_does_not_stall_its_writer(size: int) -> None:
    s = started()
    s.data(1).frag(2, 1, total=size).frag(2, 2, total=size).data(3).heartbeat(1, 3)
    assert s.taken() == [1, 3]
    assert s.reader.counters.oversized_samples == 1
    assert s.reader.delivery.reassembly.budget.nbytes == 0
    output = s.sleep(1000 * MS).output()[-1]
    assert isinstance(output, AckNack)
    assert (output.missing.base, output.final) == (4, True)


def test_the_owner_says_how_large_a_sample_may_be() -> None:
    s = started()
    s.reader.delivery.sample_size_max = 100
    s.data(1, 3, size=124).data(4, 5, size=128)  # with 24 bytes of DATA header each
    assert s.taken() == [1, 2, 3]
    assert s.reader.counters.oversized_samples == 2
    lengths = [40, 101, 60, 200, 20]
    index = np.zeros(5, SAMPLE_INDEX)
    index["length"] = lengths
    index["offset"] = [0, 40, 144, 204, 404]
    run = Run(IT, 6, 5, np.zeros(424, np.uint8), index=index)
    s.reader.on_run(run, now=s.now)
    s.reader.on_run(run, now=s.now)
    assert s.taken() == [6, 8, 10]
    assert s.reader.counters.oversized_samples == 4
    s.frag(11, 1, size=50, total=101).frag(11, 2, size=50, total=101).frag(12, 1, size=50, total=100, count=2)
    assert s.taken() == [12]
    assert s.reader.counters.oversized_samples == 5
    assert s.reader.counters.lost_samples == 0
    assert s.reader.counters.irrelevant_samples == 5


def test_oversized_samples_ahead_of_their_turn() -> None:
    s = started()
    s.reader.delivery.sample_size_max = 100
    s.data(3, size=200).data(4)
    output = s.sleep(POLICY.reorder_delay).output()[-1]
    assert isinstance(output, AckNack)
    assert output.missing.ranges() == [(1, 2)]
    s.data(1, 2)
    assert s.taken() == [1, 2, 4]
    s = Script()  # before the first HEARTBEAT, too
    s.reader.delivery.sample_size_max = 100
    s.data(6, size=200).data(7).heartbeat(5, 7).data(5)
    assert s.taken() == [5, 7]
    s = Script(Qos(), reliable=False)
    s.reader.delivery.sample_size_max = 100
    s.data(5, size=200).data(6).data(9, size=200).data(8).data(10)
    assert s.taken() == [6, 10]
    assert s.reader.counters.oversized_samples == 2
    assert s.reader.counters.lost_samples == 2  # 7 and 8


def test_all_writers_together_are_bounded() -> None:
    s = started()
    s.reader.delivery.reorder_budget.bytes_max = 100_000
    others = [Guid(bytes((i,)) * 12, IT.entity) for i in range(1, 50)]
    for guid in others:
        s.reader.match_writer(WriterInfo(guid, WHERE, (), True, False), now=s.now)
        s.reader.on_heartbeat(guid, Heartbeat(ANY, guid.entity, 1, 0, 1), now=s.now)
        for sn in range(2, 20):
            s.reader.on_run(Run(guid, sn, 1, np.zeros(1024, np.uint8), 1024, 24, 1000), now=s.now)
    budget = s.reader.delivery.reorder_budget
    held = [proxy.held for proxy in s.reader.writers.values()]
    assert sum(each.nbytes for each in held) == budget.nbytes <= 100_000
    assert s.reader.counters.reorder_overflow == 49 * 18 - 100_000 // 1024
    s.data(1, 3)
    assert s.taken() == [1, 2, 3], "what is next needs no room"
    for guid in others:
        s.reader.unmatch_writer(guid)
    assert budget.nbytes == 0
    s.data(5)
    assert 5 in s.proxy.held


def test_counters_fit_64_bits() -> None:
    s = started()
    for _ in range(3):
        s.reader.unmatch_writer(IT)
        s.reader._earlier.take_match(IT)
        s.reader.match_writer(WriterInfo(IT, WHERE, (), True, False), now=s.now)
        s.heartbeat(1, 0).heartbeat((1 << 63) - 1, (1 << 63) - 1)
        s.sleep(50 * MS).heartbeat((1 << 63) - 1, (1 << 63) - 1)
    assert s.reader.counters.lost_samples > 1 << 63
    assert s.reader.counters.snapshot()["lost_samples"] == (1 << 63) - 1


def test_unmatched_writers_are_ignored() -> None:
    s = started()
    unmatched_peer = Guid(b"x" * 12, IT.entity)
    s.reader.on_run(Run(unmatched_peer, 1, 1, np.zeros(32, np.uint8), 32, 24, 8), now=s.now)
    s.reader.on_heartbeat(unmatched_peer, Heartbeat(ANY, IT.entity, 1, 9, 1), now=s.now)
    s.reader.on_gap(unmatched_peer, Gap(ANY, IT.entity, 1, SequenceNumberSet(5)), now=s.now)
    s.reader.on_data_frag(unmatched_peer, DataFrag(ANY, IT.entity, 1, 1, 1, 4, 8, b"1234"), 0, now=s.now)
    s.reader.on_heartbeat_frag(unmatched_peer, HeartbeatFrag(ANY, IT.entity, 1, 1, 1), now=s.now)
    assert s.taken() == []
    assert s.output() == []
    assert s.reader.counters.unknown_writer == 2


def test_a_storm_of_heartbeats_is_one_answer_a_cycle() -> None:
    s = started()
    for _ in range(1000):
        s.heartbeat(1, 0)
    assert len(s.output()) == 1


def test_fragment_number_sets_stay_within_256_bits() -> None:
    s = started()
    s.frag(1, 3000, size=4, total=1 << 20).data(2).heartbeat(1, 2).sleep(5 * MS)
    (nack,) = [x for x in s.output() if isinstance(x, NackFrag)]
    assert nack.missing == FragmentNumberSet.from_numbers(1, range(1, 257))
