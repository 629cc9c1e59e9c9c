"""Readers behind a network that loses, repeats and reorders, with a writer of batches; by seeds."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from spark_rtps.transport.protocol.policies import ReaderPolicy
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.qos import Qos, ReliabilityKind
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.framing import frame_end_of_coherent_set
from tests.protocol.batch_writer import BatchWriter
from tests.protocol.lossy_link import MS, SECOND, LossyLink, Node

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE)
WRITER, READER = b"\0\0\1\3", b"\0\0\2\4"
SHIP = [
    ReaderPolicy(),
    ReaderPolicy(max_heartbeat_response_delay=20 * MS, heartbeat_suppression_duration=10 * MS),
    ReaderPolicy(receive_window_size=4, round_trip_time=5 * MS, nack_period=40 * MS),
]


def pair(
    seed: int, loss: float, qos: Qos = RELIABLE, policy: ReaderPolicy = SHIP[0]
) -> tuple[LossyLink, BatchWriter, Node, StatefulReader]:
    link = LossyLink(seed, loss=loss, duplicate=0.1, delay=(50_000, 3 * MS))
    a, b = link.node(), link.node()
    writer = BatchWriter(Guid(a.prefix, WRITER))
    reader = StatefulReader(Guid(b.prefix, READER), qos, policy=policy, random=random.Random(seed))
    a.writers.append(writer)
    b.readers.append(reader)
    link.match(writer, reader)
    link.run(20 * SECOND, until=lambda: reader.counters.heartbeats > 0)
    return link, writer, b, reader


def numbers(node: Node, reader: StatefulReader) -> list[int]:
    """What arrived: payloads have their own sequence numbers in them."""
    found: list[int] = []
    for run in node.taken.get(reader.guid, []):
        payloads = [run.samples().payload(i)[4:8] for i in range(run.count)]
        found += [int.from_bytes(payload, "little") for payload in payloads]
        assert found[-run.count :] == run.sequence_numbers().tolist()
    return found


@pytest.mark.parametrize("policy", SHIP)
@pytest.mark.parametrize("loss", [0.0, 0.05, 0.1, 0.2, 0.3])
@pytest.mark.parametrize("seed", range(4))
def test_batches_arrive_once_in_order_and_whole(seed: int, loss: float, policy: ReaderPolicy) -> None:
    link, writer, node, reader = pair(seed, loss, policy=policy)
    rng = random.Random(seed)
    sizes: dict[int, int] = {}
    for _ in range(60):
        for _ in range(rng.randint(1, 5)):
            if rng.random() < 0.1:
                writer.write_alone()
            else:
                block = writer.write_batch(rng.randint(1, 40))
                sizes[block.batch_sn] = block.count
        link.run(rng.randint(1, 10) * MS)
    link.run(60 * SECOND, until=lambda: writer.is_acknowledged)
    assert writer.is_acknowledged
    assert numbers(node, reader) == list(range(1, writer.last_sn + 1))
    assert reader.counters.lost_samples == 0
    for run in node.taken[reader.guid]:
        assert not run.batch_sn or run.count == sizes[run.batch_sn], "half a batch"
    assert writer.batch_acknacks > 0
    link.run(SECOND)
    before = link.datagrams
    link.run(10 * SECOND)
    assert link.datagrams == before, "all is said"


def test_without_loss_no_sample_is_repaired() -> None:
    link, writer, node, reader = pair(1, 0.0)
    link.duplicate = 0
    for _ in range(200):
        writer.write_batch(100)
        link.run(MS)
    link.run(SECOND)
    assert numbers(node, reader) == list(range(1, 20_001))
    assert writer.repaired == 0


def test_only_lost_batches_are_sent_again() -> None:
    link, writer, node, reader = pair(2, 0.1)
    link.duplicate = 0
    for _ in range(300):
        writer.write_batch(1000)
        link.run(2 * MS)
    link.run(20 * SECOND, until=lambda: writer.is_acknowledged)
    assert numbers(node, reader) == list(range(1, 300_001))
    assert writer.repaired < 100, "about the 30 that were lost, and the repairs that were"


@pytest.mark.parametrize("loss", [0.05, 0.3])
@pytest.mark.parametrize("seed", range(4))
def test_coherent_sets_of_batches_arrive_whole(seed: int, loss: float) -> None:
    link, writer, node, reader = pair(seed, loss, replace(RELIABLE, coherent_access=True))
    rng = random.Random(seed)
    sets: list[range] = []
    markers: set[int] = set()
    for _ in range(15):
        first = writer.last_sn + 1
        for _ in range(rng.randint(1, 30)):
            writer.write_batch(rng.randint(1, 50), coherent_set=first)
            if rng.random() < 0.5:
                link.run(MS)
        sets.append(range(first, writer.last_sn + 1))
        markers.add(writer.last_sn + 1)
        marker = frame_end_of_coherent_set(writer.guid.entity, writer.last_sn + 1)
        writer.end_set(np.asarray(marker.data))
        link.run(5 * MS)
        got = numbers(node, reader)
        assert not got or any(got[-1] == each[-1] for each in sets), "half a set"
    link.run(60 * SECOND, until=lambda: writer.is_acknowledged)
    assert numbers(node, reader) == [sn for each in sets for sn in each]
    assert reader.counters.coherent_sets_lost == 0


@pytest.mark.parametrize("seed", range(4))
def test_best_effort_readers_get_batches_whole_or_not(seed: int) -> None:
    link, writer, node, reader = pair_best_effort(seed, 0.2, Qos())
    sizes = {}
    for _ in range(200):
        block = writer.write_batch(random.Random(block_seed(seed, writer)).randint(1, 40))
        sizes[block.batch_sn] = block.count
        link.run(2 * MS)
    link.run(SECOND)
    got = numbers(node, reader)
    assert got == sorted(set(got))
    assert all(run.count == sizes[run.batch_sn] for run in node.taken[reader.guid])
    assert reader.counters.received_samples + reader.counters.lost_samples >= got[-1] - got[0] + 1


@pytest.mark.parametrize("seed", range(4))
def test_best_effort_readers_get_sets_whole_or_not(seed: int) -> None:
    link, writer, node, reader = pair_best_effort(seed, 0.05, Qos(coherent_access=True))
    sets: list[range] = []
    for _ in range(60):
        first = writer.last_sn + 1
        for _ in range(5):
            writer.write_batch(10, coherent_set=first)
            link.run(4 * MS)
        sets.append(range(first, writer.last_sn + 1))
    writer.write_alone()
    link.run(SECOND)
    got = set(numbers(node, reader))
    whole = [each for each in sets if set(each) <= got]
    assert all(each in whole or not set(each) & got for each in sets), "half a set"
    assert 0 < len(whole) < len(sets)
    assert reader.counters.coherent_sets_lost > 0


def pair_best_effort(seed: int, loss: float, qos: Qos) -> tuple[LossyLink, BatchWriter, Node, StatefulReader]:
    link = LossyLink(seed, loss=loss, duplicate=0.1, delay=(50_000, 3 * MS))
    a, b = link.node(), link.node()
    writer = BatchWriter(Guid(a.prefix, WRITER))
    reader = StatefulReader(Guid(b.prefix, READER), qos)
    a.writers.append(writer)
    b.readers.append(reader)
    link.match(writer, reader)
    return link, writer, b, reader


def block_seed(seed: int, writer: BatchWriter) -> int:
    return seed * 1000 + writer.last_batch_sn
