"""Publication logs, GSO buffers, back-pressure and status messages against Cyclone DDS, which knows nothing of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.policies import FlowControlPolicy, PublicationPolicy
from spark_rtps.transport.qos import Qos
from tests.interop.cyclone_peer import CyclonePeer
from tests.interop.cyclone_types import Number, Vehicle
from tests.interop.subscription import Subscription, qos
from tests.interop.test_interop_delivery import numbers, vehicles, write
from tests.support.waiting import PATIENCE

StartPeer = Callable[..., CyclonePeer]
StartNode = Callable[..., Node]
StartReceiver = Callable[..., Subscription]

COUNT = 20_000
SHORT_TERMS = FlowControlPolicy(term_length=64 << 10)


def create(node: Node, kind: str, offered: Qos, policy: FlowControlPolicy = SHORT_TERMS) -> BlockingWriter:
    """A writer of the topic ``t`` with a publication log."""
    publication = PublicationPolicy(flow_control=policy)
    return node.create_writer(
        WriterSpec("t", f"interop::{kind}", offered, keyed=kind == "Vehicle", policy=publication)
    )


@pytest.mark.parametrize(
    ("mtu", "per_mille", "strategy", "count"),
    [
        (1_400, 0, "min", COUNT),
        (1_400, 50, "max", 10_000),
        (1_400, 200, "min", 6_000),
        (65_535, 50, "min", COUNT),
    ],
)
def test_gso_buffers_to_cyclone(
    mtu: int, per_mille: int, strategy: str, count: int, cyclone: StartPeer, lossy: StartNode
) -> None:
    node = lossy(per_mille, mtu=mtu)
    peer = cyclone()
    peer.reader("t", Number)
    writer = create(node, "Number", qos(), replace(SHORT_TERMS, strategy=strategy))
    peer.wait_for_match("t")
    assert writer.wait_for_readers(PATIENCE)
    write(writer, "Number", numbers(0, count))
    assert [sample.row for sample in peer.take("t", count)] == numbers(0, count)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    positions = writer.writer.positions
    assert positions.pub_pos == positions.snd_pos > 3 * SHORT_TERMS.term_length, "the terms went round"


def test_a_late_joiner_is_served_from_the_log_and_from_what_was_moved_out_of_it(
    cyclone: StartPeer, participate: StartNode
) -> None:
    writer = create(participate(mtu=1_400), "Number", qos(transient_local=True))
    write(writer, "Number", numbers(0, COUNT))
    peer = cyclone()
    peer.reader("t", Number, transient_local=True)
    assert [sample.row for sample in peer.take("t", COUNT)] == numbers(0, COUNT)


def test_keyed_gso_buffers_to_cyclone(cyclone: StartPeer, participate: StartNode) -> None:
    peer = cyclone()
    peer.reader("t", Vehicle)
    writer = create(participate(mtu=1_400), "Vehicle", qos())
    peer.wait_for_match("t")
    assert writer.wait_for_readers(PATIENCE)
    rows = vehicles() * 100
    write(writer, "Vehicle", rows)
    taken = [sample.row for sample in peer.take("t", len(rows))]
    for instance in range(3):
        assert [r for r in taken if r["id"] == instance] == [r for r in rows if r["id"] == instance]


def test_a_group_of_ours_and_cyclone(
    cyclone: StartPeer, participate: StartNode, subscribe: StartReceiver
) -> None:
    """Nothing is written before both are there; the status messages of ours are nothing to Cyclone."""
    writer = create(participate(), "Number", qos(), replace(SHORT_TERMS, group_min_size=2))
    peer = cyclone()
    peer.reader("t", Number)
    peer.wait_for_match("t")
    assert not writer.writer.positions.is_connected
    receiver = subscribe("t", "Number")
    receiver.wait_for_match()
    write(writer, "Number", numbers(0, COUNT))
    assert [sample.row for sample in receiver.wait_for(COUNT)] == numbers(0, COUNT)
    assert [sample.row for sample in peer.take("t", COUNT)] == numbers(0, COUNT)
    assert writer.writer.counters.status_messages_received > 0
