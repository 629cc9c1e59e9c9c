"""Types and values, both ways: what Fast DDS wrote in our columns, ours as its dynamic types read it."""

from __future__ import annotations

import pytest

from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from tests.fastdds.fast_peer import FastPeer, Taken
from tests.fastdds.our_reader import OurReader, write
from tests.fastdds.shapes import NOT_ANNOUNCED, ROWS, struct
from tests.interop.subscription import qos
from tests.support.waiting import PATIENCE


@pytest.mark.parametrize("kind", ROWS)
def test_from_fast_dds(kind: str, peer: FastPeer, node: Node, topic: str) -> None:
    peer.writer(topic, struct(kind), announced=kind not in NOT_ANNOUNCED)
    reader = OurReader(node, topic, struct(kind))
    peer.wait_for_match(topic)
    reader.wait_for_match()
    peer.write(topic, ROWS[kind])
    rows = reader.rows(len(ROWS[kind]))
    assert rows == ROWS[kind]
    assert repr(rows) == repr(ROWS[kind])


@pytest.mark.parametrize("kind", ROWS)
def test_to_fast_dds(kind: str, peer: FastPeer, node: Node, topic: str) -> None:
    peer.reader(topic, struct(kind), announced=kind not in NOT_ANNOUNCED)
    writer = node.create_writer(WriterSpec(topic, struct(kind).name, qos(), keyed=struct(kind).is_keyed))
    assert writer.wait_for_readers(PATIENCE)
    peer.wait_for_match(topic)
    write(writer, struct(kind), ROWS[kind])
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert peer.take(topic, len(ROWS[kind])) == [Taken("ALIVE", row) for row in ROWS[kind]]
