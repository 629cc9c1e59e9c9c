"""A writer whose HEARTBEATs come sooner than its reader answers one after another: the reader knows, and counts it."""

from __future__ import annotations

import pytest

from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.policies import PublicationPolicy, ReaderPolicy, WriterPolicy
from spark_rtps.transport.qos import Qos, ReliabilityKind
from tests.support.virtual_network import SECOND, VirtualNetwork

MS = 1_000_000
RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE)


@pytest.mark.parametrize(
    ("period", "qos", "suppressed"),
    [(50 * MS, RELIABLE, 1), (100 * MS, RELIABLE, 0), (300 * MS, RELIABLE, 0), (50 * MS, Qos(), 0)],
    ids=["less", "equal", "more", "best_effort"],
)
def test_the_reader_knows_the_period_of_a_writer_of_ours(period: int, qos: Qos, suppressed: int) -> None:
    network = VirtualNetwork()
    ours, theirs = network.add(), network.add()
    policy = ReaderPolicy(heartbeat_suppression_duration=100 * MS)
    wanted = RELIABLE if qos.is_reliable else Qos()
    reader = ours.create_reader(ReaderSpec("t", "T", wanted, policy=policy), now=network.now)
    sends = PublicationPolicy(writer=WriterPolicy(heartbeat_period=period))
    writer = theirs.create_writer(WriterSpec("t", "T", qos, policy=sends), now=network.now)
    assert network.run(5 * SECOND, lambda: writer.guid in reader.writers)
    assert reader.writers[writer.guid].info.heartbeat_period == (period if qos.is_reliable else 0)
    assert reader.counters.suppressed_writers == suppressed
