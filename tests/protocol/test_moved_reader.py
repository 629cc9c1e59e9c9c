"""A reader that goes on under another GUID: what its writers sent meanwhile, and do not send again, is missed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.policies import LossCause
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.samples import Samples
from tests.protocol.reader_script import IT, LASTING, RELIABLE, Script
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork

BEST_EFFORT = Qos(reliability=ReliabilityKind.BEST_EFFORT)


def moved(qos: Qos = RELIABLE, **options: object) -> Script:
    """Ten samples were received before."""
    return Script(qos, resume={IT: 10}, moved_from=[IT], **options)


def counted(s: Script) -> tuple[int, int, int]:
    """Lost, of those missed, and irrelevant."""
    counters = s.reader.counters
    return counters.lost_samples, counters.missed_samples, counters.irrelevant_samples


def test_samples_before_the_first_heartbeat_are_missed() -> None:
    s = moved()
    s.heartbeat(51, 50)
    assert counted(s) == (40, 40, 0)
    assert s.reader.delivery.losses.take() == {(IT, LossCause.MOVED): 40}
    s.data(51, 60)
    assert s.taken() == list(range(51, 61))
    s.heartbeat(71, 70)
    assert counted(s) == (50, 40, 0), "later losses are of another kind"
    assert s.reader.delivery.losses.take() == {(IT, LossCause.HISTORY): 10}


def test_samples_that_the_writer_still_has_are_read() -> None:
    s = moved(LASTING, transient_local=True)
    s.heartbeat(31, 50).data(31, 50)
    assert s.taken() == list(range(31, 51))
    assert counted(s) == (20, 20, 0)


def test_gaps_up_to_the_first_heartbeat_are_missed_and_later_ones_are_irrelevant() -> None:
    s = moved(LASTING, transient_local=True)
    s.heartbeat(1, 20).gap(11, 15).data(15, 18).gap(19, 21)
    assert s.taken() == [15, 16, 17, 18]
    assert counted(s) == (6, 6, 0)
    s.gap(21, 26).data(26)
    assert s.taken() == [26]
    assert counted(s) == (6, 6, 5)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_gap_data_and_heartbeat_count_alike_in_any_order(order: tuple[int, ...]) -> None:
    s = moved(LASTING, transient_local=True)
    steps = (lambda: s.gap(11, 15), lambda: s.data(15, 18), lambda: s.heartbeat(11, 20))
    for each in order:
        steps[each]()
    s.gap(19, 21)
    assert s.taken() == [15, 16, 17, 18]
    assert counted(s) == (6, 6, 0)


def test_a_gap_that_reaches_beyond_the_heartbeat_is_divided() -> None:
    s = moved(LASTING, transient_local=True)
    s.heartbeat(1, 20).gap(11, 31).data(31)
    assert s.taken() == [31]
    assert counted(s) == (10, 10, 10)


def test_samples_that_the_writer_filters_are_not_missed() -> None:
    s = moved(LASTING, transient_local=True, filters=True)
    s.heartbeat(1, 20).gap(11, 15).data(15, 20)
    assert s.taken() == list(range(15, 21))
    assert counted(s) == (0, 0, 4)


def test_numbers_that_no_sample_passed_are_not_counted() -> None:
    s = moved()
    s.heartbeat(11, 10).data(11, 12)
    assert s.taken() == [11, 12]
    assert counted(s) == (0, 0, 0)


def test_samples_behind_the_last_one_of_the_log_come_once() -> None:
    s = moved(LASTING, transient_local=True)
    s.data(1, 12).heartbeat(1, 12)
    assert s.taken() == [11, 12]
    assert counted(s) == (0, 0, 0)


def test_a_best_effort_writer_is_where_its_first_sample_is() -> None:
    s = moved(BEST_EFFORT, reliable=False)
    s.data(31, 35)
    assert counted(s) == (20, 20, 0)
    s.data(41)
    assert s.taken() == [*range(31, 36), 41]
    assert counted(s) == (25, 20, 0)
    assert s.reader.delivery.losses.take() == {(IT, LossCause.MOVED): 20, (IT, LossCause.NOT_RECEIVED): 5}


def test_missed_samples_stay_missed_after_a_lower_heartbeat() -> None:
    s = moved()
    s.heartbeat(5_001, 5_000)
    assert s.reader.delivery.losses.take() == {(IT, LossCause.MOVED): 4_990}
    s.heartbeat(21, 20).data(21)
    assert s.taken() == []
    assert counted(s) == (4_990, 4_990, 0)
    assert s.reader.delivery.losses.take() == {}


def test_a_writer_that_leaves_before_it_is_received_counts_on_its_return() -> None:
    s = moved()
    info = s.proxy.info
    s.reader.unmatch_writer(IT)
    s.reader.match_writer(info, now=s.now)
    s.heartbeat(31, 30)
    assert counted(s) == (20, 20, 0)
    s.reader.unmatch_writer(IT)
    s.reader.match_writer(info, now=s.now)
    s.heartbeat(41, 40)
    assert counted(s) == (30, 20, 0)


def test_a_restart_under_the_same_guid_misses_nothing() -> None:
    s = Script(LASTING, transient_local=True, resume={IT: 10})
    s.heartbeat(13, 20).gap(13, 15).data(15, 20)
    assert counted(s) == (2, 0, 2)


# --- two participants --------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [0.0, 0.2])
@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("depth", [0, 1, 20])
@pytest.mark.parametrize("silent", [0, 20])
def test_a_moved_reader_receives_or_misses_each_sample_once(
    lasting: bool, depth: int, loss: float, silent: int
) -> None:
    """All that was written is received once or missed; ``silent``: seconds, longer than the lease or none."""
    qos = Qos(
        reliability=ReliabilityKind.RELIABLE,
        durability=DurabilityKind.TRANSIENT_LOCAL if lasting else DurabilityKind.VOLATILE,
        history=HistoryKind.KEEP_LAST if depth else HistoryKind.KEEP_ALL,
        history_depth=depth or 1,
    )
    network = VirtualNetwork(seed=7, loss=loss)
    peer, here = network.add(), network.add()
    writer = peer.create_writer(WriterSpec("t", "T", qos), now=network.now)
    spec = ReaderSpec("t", "T", qos, entity_key=1)
    reader = here.create_reader(spec, now=network.now)
    got: list[int] = []

    def take() -> bool:
        got.extend(sn for run in reader.take_runs() for sn in range(run.first_sn, run.last_sn + 1))
        return False

    samples = Samples.uniform(np.zeros(32, np.uint8), 1, 32)

    def write(count: int) -> None:
        for _ in range(count):
            writer.write_samples(samples, timestamp=network.now, now=network.now)
            network.run(MILLISECOND, until=take)

    assert network.run(5 * SECOND, until=lambda: bool(writer.readers) and bool(reader.writers))
    write(100)
    network.run(SECOND, until=take)
    assert got == list(range(1, 101))

    network.unplug(here)
    write(50)
    network.run(silent * SECOND)
    write(50)
    there = network.add()
    known: dict[Guid, int] = {writer.guid: got[-1]}
    reader = there.create_reader(replace(spec, resume=known, moved_from=[writer.guid]), now=network.now)
    assert network.run(10 * SECOND, until=lambda: writer.guid in reader.writers), "matched again"
    write(100)
    network.run(5 * SECOND, until=take)

    assert got == sorted(set(got)) and got[-1] == 300
    assert len(got) + reader.counters.missed_samples == 300
    assert reader.counters.lost_samples == reader.counters.missed_samples
    assert sum(reader.delivery.losses.take().values()) == reader.counters.lost_samples
    if lasting and not depth:
        assert reader.counters.missed_samples == 0
