"""Topics without IDL: the types that Fast DDS announces, and what is read by them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.discovery.type_lookup import NOT_ANNOUNCED as SILENT
from spark_rtps.transport.protocol.participant.participant import RemoteEndpoint
from spark_rtps.transport.types.model import Map, Sequence, Struct, Type, without_aliases
from tests.fastdds.fast_peer import FastPeer
from tests.fastdds.our_reader import OurReader
from tests.fastdds.shapes import NOT_ANNOUNCED, ROWS, struct
from tests.support.waiting import wait_until

#: How its dynamic types bound a collection that has no bound.
ELEMENTS_MAX = 100


def endpoint(node: Node, topic: str) -> RemoteEndpoint:
    found: list[RemoteEndpoint] = []

    def is_there() -> bool:
        with node.lock:
            found[:] = [each for each in node.participant.database.endpoints if each.topic == topic]
        return bool(found)

    wait_until(is_there, f"an endpoint of {topic}")
    return found[0]


def bounded(t: Type) -> Type:
    if isinstance(t, Sequence):
        return replace(t, element=bounded(t.element), bound=t.bound or ELEMENTS_MAX)
    return replace(t, bound=t.bound or ELEMENTS_MAX) if isinstance(t, Map) else t


@pytest.mark.parametrize("kind", [kind for kind in ROWS if kind not in NOT_ANNOUNCED])
def test_read_without_idl(kind: str, peer: FastPeer, node: Node, topic: str) -> None:
    peer.writer(topic, struct(kind))
    guid = endpoint(node, topic).guid
    with node.lock:
        reported = node.participant.database.type_of(guid)
        assert node.participant.database.type_failure(guid) is None
    expected = without_aliases(struct(kind))
    assert isinstance(expected, Struct)
    members = tuple(replace(member, type=bounded(member.type)) for member in expected.members)
    assert reported == replace(expected, members=members)
    reader = OurReader(node, topic, reported)
    peer.wait_for_match(topic)
    reader.wait_for_match()
    peer.write(topic, ROWS[kind])
    assert reader.rows(len(ROWS[kind])) == ROWS[kind]


def test_a_type_that_it_does_not_announce(peer: FastPeer, node: Node, topic: str) -> None:
    peer.writer(topic, struct("Enums"), announced=False)
    guid = endpoint(node, topic).guid
    with node.lock:
        assert node.participant.database.type_failure(guid) == SILENT


def test_our_types_are_no_trouble_to_it(peer: FastPeer, node: Node, topic: str) -> None:
    """Its type information is of another encoding than ours: it goes by the name."""
    peer.writer(topic, struct("Number"))
    reader = OurReader(node, topic, struct("Number"), reported=True)
    peer.wait_for_match(topic)
    reader.wait_for_match()
    rows = [{"id": 1, "seq": 2, "name": "three"}]
    peer.write(topic, rows)
    assert reader.rows(1) == rows
