"""Sequence numbers that were passed: they stay passed, they are counted, and no message brings back what was delivered.

What is forged here passed every check of where it came from: it was sent from the writer's own address.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from spark_rtps.transport.limits import NUMBER_SET_BITS, REORDER_WRITER_BYTES_MAX
from spark_rtps.transport.protocol.endpoint_info import WriterInfo
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.policies import LossCause
from spark_rtps.transport.protocol.reading.ordering.writer_proxy import ANEW_NS
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.submessages import AckNack, HeartbeatFrag
from tests.protocol.reader_script import ANY, IT, LASTING, MS, WHERE, Script, started
from tests.support.campaigns import seeds
from tests.support.virtual_network import SECOND, VirtualNetwork

FAR = 10**12


def requested(s: Script) -> list[tuple[int, int]]:
    """What the reader requests now."""
    s.sleep(50 * MS)
    return [each for output in s.output() if isinstance(output, AckNack) for each in output.missing.ranges()]


# --- honest peers: what overtakes what -------------------------------------------------------------


def test_heartbeats_overtaken_twice_behind_a_gap_bring_nothing_back() -> None:
    s = started()
    s.data(1, 5).gap(6, 9).data(9, 12).heartbeat(1, 7).gap(6, 9).data(13).heartbeat(1, 11)
    s.gap(6, 9).heartbeat(1, 13)
    assert requested(s) == []
    s.data(9, 12)
    assert s.taken() == [1, 2, 3, 4, 5, 9, 10, 11, 12, 13]
    assert s.reader.counters.irrelevant_samples == 3 and s.reader.counters.lost_samples == 0


def test_heartbeats_overtaken_twice_before_a_gap_is_filled_bring_nothing_back() -> None:
    s = started()
    s.data(1, 5).gap(6, 9).data(9, 12).gap(13, 15).data(15, 20)
    s.heartbeat(1, 13).heartbeat(1, 7).heartbeat(1, 20)
    assert requested(s) == []
    s.data(9, 20)
    assert s.taken() == [1, 2, 3, 4, 5, 9, 10, 11, 12, *range(15, 21)]


def test_removed_samples_are_lost_once_though_an_older_heartbeat_follows() -> None:
    s = started()
    s.data(1, 60).heartbeat(61, 81).heartbeat(61, 60)
    s.data(61, 81)
    assert s.taken() == list(range(1, 82))
    s.heartbeat(91, 95).heartbeat(91, 90).data(91, 95)
    assert s.taken() == [91, 92, 93, 94, 95]
    assert s.reader.delivery.losses.take() == {(IT, LossCause.HISTORY): 9}


@pytest.mark.parametrize("seed", seeds(40))
def test_whatever_comes_in_whatever_order_each_sample_is_delivered_once_and_in_order(seed: int) -> None:
    d = Random(seed)
    qos = LASTING if d.random() < 0.3 else None
    s = started() if qos is None else started(qos=qos, transient_local=True)
    taken: list[int] = []
    at = 1
    for _ in range(300):
        first = max(1, at + d.randint(-30, 12))
        last = first + d.randint(0, 6)
        match d.randrange(5):
            case 0 | 1:
                s.data(first, last)
            case 2:
                s.gap(first, last + 1)
            case 3:
                s.heartbeat(max(1, first - d.randint(0, 40)), last)
            case 4:
                s.batch(first, first, last)
        at = max(at, last - 5)
        if d.random() < 0.3:
            s.sleep(d.choice((0, MS, 50 * MS)))
            s.output()
        taken += s.taken()
    assert taken == sorted(set(taken))
    counters = s.reader.counters
    passed = counters.lost_samples + counters.irrelevant_samples
    assert len(taken) + passed == s.proxy.expected - 1, "every number below is delivered or counted"


def test_a_lower_heartbeat_never_brings_back_what_was_delivered() -> None:
    s = started()
    s.data(1, 100).heartbeat(1, 100)
    s.taken()
    for i in range(40):
        s.now += 100 * MS
        s.heartbeat(1, 50 - i)
        s.data(40, 60)
    assert s.taken() == []
    s.heartbeat(1, 101).data(101)
    assert s.taken() == [101]


def test_a_repeated_heartbeat_changes_nothing() -> None:
    s = started()
    s.data(1, 5).heartbeat(1, 5).heartbeat(11, 12).data(11, 12)
    s.heartbeat(15, 20, count=2)
    assert s.reader.counters.stale_counts == 1
    s.data(13)
    assert s.taken() == [1, 2, 3, 4, 5, 11, 12, 13]
    assert s.reader.counters.lost_samples == 5


def test_a_late_joiner_of_an_old_writer_begins_at_once_and_loses_nothing() -> None:
    s = Script()
    s.heartbeat(FAR, FAR - 1).data(FAR, FAR + 3)
    assert s.taken() == list(range(FAR, FAR + 4))
    assert s.reader.counters.lost_samples == 0
    s = Script(Qos(), reliable=False)
    s.data(FAR)
    assert s.taken() == [FAR]
    assert s.reader.counters.lost_samples == 0


def test_a_reader_that_was_away_goes_on_at_once_and_counts_what_it_missed() -> None:
    s = started()
    s.data(1, 5).heartbeat(1, 5)
    s.heartbeat(FAR, FAR).data(FAR)
    assert s.taken() == [1, 2, 3, 4, 5, FAR]
    assert s.reader.delivery.losses.take() == {(IT, LossCause.HISTORY): FAR - 6}


# --- forged messages --------------------------------------------------------------------------------


def heartbeat_frag(s: Script, sn: int) -> None:
    s.count += 1
    s.reader.on_heartbeat_frag(IT, HeartbeatFrag(ANY, IT.entity, sn, 5, s.count), now=s.now)


FORGED: dict[str, Callable[[Script, int], object]] = {
    "HEARTBEAT first": lambda s, sn: s.heartbeat(sn, sn),
    "HEARTBEAT last": lambda s, sn: s.heartbeat(1, sn),
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
#: These say that what lies before them will never come.
PASSING = ("HEARTBEAT first", "HEARTBEAT_BATCH", "GAP")


@pytest.mark.parametrize("number", [FAR, (1 << 63) - 20])
@pytest.mark.parametrize("name", [name for name in FORGED if name not in PASSING])
def test_a_forged_number_far_ahead_holds_up_nothing(name: str, number: int) -> None:
    s = started()
    s.data(1, 5).heartbeat(1, 5)
    FORGED[name](s, number)
    s.sleep(50 * MS)
    s.data(6, 8).heartbeat(1, 8)
    assert s.taken() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert s.reader.counters.lost_samples == 0
    for i in range(9, 200):
        s.data(i)
    assert s.taken() == list(range(9, 200))


@pytest.mark.parametrize("name", PASSING)
def test_numbers_skipped_by_a_forged_message_are_counted_once(name: str) -> None:
    s = started()
    s.data(1, 5).heartbeat(1, 5)
    FORGED[name](s, 1_000)
    s.heartbeat(1, 8).data(6, 8)
    assert s.taken() == [1, 2, 3, 4, 5]
    counters = s.reader.counters
    assert (counters.lost_samples, counters.irrelevant_samples) == ((0, 994) if name == "GAP" else (994, 0))
    assert s.reader.delivery.losses.take() == ({} if name == "GAP" else {(IT, LossCause.HISTORY): 994})
    assert counters.duplicate_samples == 3
    s.data(9, 1_010)
    assert s.taken() == list(range(1_000, 1_011))


def test_numbers_skipped_by_a_forged_sample_are_counted_lost_once() -> None:
    s = Script(Qos(), reliable=False)
    s.data(1, 5).data(1_000)
    s.sleep(2 * ANEW_NS)
    s.data(6, 8)
    s.sleep(2 * ANEW_NS)
    s.data(9, 1_010)
    assert s.taken() == [1, 2, 3, 4, 5, *range(1_000, 1_011)]
    assert s.reader.delivery.losses.take() == {(IT, LossCause.NOT_RECEIVED): 994}


@pytest.mark.parametrize("name", FORGED)
def test_forged_numbers_cost_bounded_memory_and_requests(name: str) -> None:
    s = started()
    s.data(1, 5).heartbeat(1, 5)
    d = Random(1)
    for _ in range(3_000):
        FORGED[name](s, d.randrange(FAR, FAR + 10**6))
        s.now += MS
        for output in s.output():
            if isinstance(output, AckNack):
                ranges = output.missing.ranges()
                assert sum(last - first + 1 for first, last in ranges) <= NUMBER_SET_BITS
    assert s.proxy.held.nbytes <= REORDER_WRITER_BYTES_MAX
    assert len(s.proxy.held) <= s.proxy.held.runs_max
    assert len(s.proxy.held.covered) <= s.proxy.held.runs_max
    taken = s.taken()
    assert taken == sorted(set(taken))


def test_the_first_message_of_a_transient_local_writer_is_forged() -> None:
    s = Script(LASTING, transient_local=True)
    s.heartbeat(1, FAR).sleep(5 * MS)
    s.heartbeat(1, 3).data(1, 3)
    assert s.taken() == [1, 2, 3]


# --- writers that began anew under their GUID -----------------------------------------------------------


@pytest.mark.parametrize("resumed", [FAR, 1_000, (1 << 63) - 1])
def test_a_writer_restarted_while_no_reader_ran_is_read_from_its_start(resumed: int) -> None:
    """A participant of another stack that is restarted in a container may have the same GUID again."""
    s = Script(resume={IT: resumed})
    s.heartbeat(1, 8).data(1, 8)
    assert s.taken() == []
    s.sleep(ANEW_NS // 2)
    s.heartbeat(1, 8)
    assert all(each.missing.base <= 1 for each in s.output() if isinstance(each, AckNack)), (
        "none acknowledged"
    )
    s.sleep(ANEW_NS)
    s.heartbeat(1, 8)
    assert requested(s) == [(1, 8)]
    s.data(1, 8).data(9, 12)
    assert s.taken() == list(range(1, 13))
    assert s.reader.counters.lost_samples == 0


@pytest.mark.parametrize("reliable", [True, False])
def test_a_writer_that_began_anew_while_it_was_away_is_read(reliable: bool) -> None:
    s = Script(reliable=True) if reliable else Script(Qos(), reliable=False)
    s.heartbeat(1, 0)
    s.data(1, 100)
    s.reader.unmatch_writer(IT)
    s.reader.match_writer(WriterInfo(IT, WHERE, (), reliable, False), now=s.now)
    for i in range(1, 40):
        s.now += 50 * MS
        s.data(i)
        s.heartbeat(1, i)
    if reliable:
        assert requested(s) == [(1, 21)], "what came meanwhile is asked for again"
        s.data(1, 21)
    taken = s.taken()
    assert taken[:100] == list(range(1, 101))
    assert taken[100:] == list(range(1 if reliable else 21, 40))
    assert s.reader.counters.lost_samples == (0 if reliable else 20), "what came while it was in doubt"


@pytest.mark.parametrize("bursts", [True, False])
@pytest.mark.parametrize("size", [16, 100_000, 300_000])
def test_a_best_effort_writer_restarted_under_its_guid_is_read(size: int, bursts: bool) -> None:
    network = VirtualNetwork(bursts=bursts)
    reading = network.add(lease_duration=SECOND)
    reader = reading.create_reader(ReaderSpec("t", "T", Qos(), keyed=False), now=network.now)

    def live(count: int) -> list[int]:
        """One life of the writer; returns what is read of it."""
        host = network.add(guid_prefix=b"W" * 12, lease_duration=SECOND)
        spec = WriterSpec("t", "T", Qos(), keyed=False, entity_key=5)
        writer = host.create_writer(spec, now=network.now)
        network.run(SECOND)
        taken = []
        for _ in range(count):
            data = Samples.uniform(np.zeros(size, np.uint8), 1, size)
            assert writer.write_samples(data, timestamp=network.now, now=network.now) == 1
            network.run(100 * MS)
            taken += [sn for run in reader.take_runs() for sn in run.sequence_numbers().tolist()]
        network.unplug(host)
        network.run(10 * SECOND)
        assert not reader.writers
        return taken

    assert live(40) == list(range(1, 41))
    taken = live(20)
    lost = 20 - len(taken)
    assert lost <= ANEW_NS // (100 * MS) and taken == list(range(lost + 1, 21))
    assert reader.counters.lost_samples == lost


@pytest.mark.parametrize("reliable", [True, False])
def test_a_writer_that_was_seen_where_it_was_has_not_begun_anew(reliable: bool) -> None:
    s = Script(resume={IT: 1_000}) if reliable else Script(Qos(), reliable=False, resume={IT: 1_000})
    s.heartbeat(900, 990).data(995)  # very late
    s.now += ANEW_NS // 2
    s.data(1_001)
    for _ in range(10):
        s.now += ANEW_NS
        s.heartbeat(900, 990).data(995, 1_000)
    assert s.taken() == [1_001]
    s.heartbeat(1_000, 1_002).data(1_002)
    assert s.taken() == [1_002]


def test_a_gap_from_below_the_expected_number_loses_nothing() -> None:
    s = Script(Qos(), reliable=False)
    s.data(1, 5).gap(3, 8).data(8)
    assert s.taken() == [1, 2, 3, 4, 5, 8]
    assert (s.reader.counters.lost_samples, s.reader.counters.irrelevant_samples) == (0, 2)


@pytest.mark.parametrize("how", ["data", "batch", "fragments", "two ways"])
def test_a_best_effort_writer_that_began_anew_before_it_was_missed_is_read(how: str) -> None:
    """Nobody noticed the restart: its lease had not ended."""
    s = Script(Qos(), reliable=False)
    s.data(1, 100)
    assert s.taken() == list(range(1, 101))
    for i in range(1, 41):
        s.now += 50 * MS
        if how == "batch":
            s.batch(i, i, i)
        elif how == "fragments":
            s.frag(i, 1, total=200).frag(i, 2, total=200)
        elif how == "two ways":  # one of which takes longer
            s.data(i).data(max(i - 1, 1))
        else:
            s.data(i)
    assert s.taken() == list(range(21, 41))
    assert (s.reader.counters.lost_samples, s.reader.counters.doubted_samples) == (20, 0)
    s.data(41, 200)
    assert s.taken() == list(range(41, 201))
    assert s.reader.counters.lost_samples == 20


def test_a_best_effort_reader_counts_doubted_samples_of_a_reliable_writer() -> None:
    s = Script(Qos())
    s.data(1, 100)
    assert s.taken() == list(range(1, 101))
    for i in range(1, 41):
        s.now += 50 * MS
        s.data(i)
    assert s.taken() == []
    assert s.reader.counters.doubted_samples == s.reader.counters.duplicate_samples == 40
    s.data(101).data(41, 60)
    assert s.taken() == [101], "it repeated them for others"
    assert s.reader.counters.doubted_samples == 40


def test_late_or_duplicate_samples_are_not_doubted() -> None:
    s = Script(Qos(), reliable=False)
    s.data(1, 100)
    for i in range(40):  # two ways lead here, and it writes little
        s.now += ANEW_NS
        s.data(101 + i).data(100 + i).data(101 + i)
    for _ in range(10):
        s.now += ANEW_NS
        s.data(139)
    for i in range(139, 100, -1):
        s.now += ANEW_NS
        s.data(i)
    for i in (106, 120):  # very late, but few
        s.now += ANEW_NS
        s.data(i, i + 4)
    assert s.taken() == list(range(1, 141))
    counters = s.reader.counters
    assert (counters.lost_samples, counters.doubted_samples) == (0, 0)


def test_a_reliable_reader_counts_doubted_samples_of_a_reliable_writer() -> None:
    """Nobody noticed the restart: its lease had not ended."""
    s = started()
    s.data(1, 100).heartbeat(1, 100)
    assert s.taken() == list(range(1, 101))
    for i in range(1, 41):
        s.sleep(50 * MS)
        s.data(i).heartbeat(1, i)
    assert s.taken() == []
    assert s.reader.counters.doubted_samples == s.reader.counters.duplicate_samples == 40


def test_a_rematched_reliable_writer_is_not_doubted_before_its_heartbeats() -> None:
    """The query was started again, and the writer, too. It tells seldom where it is, and nothing is lost."""
    s = Script(resume={IT: 1_000})
    for i in range(1, 61):
        s.sleep(50 * MS)
        s.data(i)
        if i % 20 == 0:
            s.heartbeat(1, i)
    s.data(1, 60)
    assert s.taken() == list(range(1, 61))
    assert s.reader.counters.doubted_samples == 0


def test_repairs_within_a_heartbeats_range_are_not_doubted() -> None:
    s = started()
    s.data(1, 100).heartbeat(1, 100)
    for i in range(1, 41):
        s.sleep(50 * MS)
        s.data(i)
    assert s.taken() == list(range(1, 101))
    assert (s.reader.counters.doubted_samples, s.reader.counters.duplicate_samples) == (0, 40)


def test_a_best_effort_reader_takes_no_repair_for_a_restart() -> None:
    s = Script(Qos(), resume={IT: 1_000})
    for i in range(100):
        s.now += ANEW_NS // 10
        s.data(1 + i)
    assert s.taken() == []
    s.data(1_001)
    assert s.taken() == [1_001]


@pytest.mark.parametrize("pause", [0, 500, 10_000], ids=["no_pause", "short_pause", "long_pause"])
@pytest.mark.parametrize("lag", [200, 900])
def test_copies_by_a_slower_path_are_dropped_when_a_best_effort_writer_pauses(lag: int, pause: int) -> None:
    """They rise as a writer's do that was restarted, but for less than a second."""
    s = Script(Qos(), reliable=False)
    sent = [(100 * i + (pause if i > 50 else 0), i) for i in range(1, 101)]
    begun = s.now
    for at, number in sorted([*sent, *((at + lag, number) for at, number in sent)]):
        s.sleep(begun + at * MS - s.now)
        s.data(number)
    assert s.taken() == list(range(1, 101))
    assert s.reader.counters.lost_samples == 0
