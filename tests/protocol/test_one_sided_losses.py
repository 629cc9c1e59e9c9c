"""One participant loses the other by its lease, and is still known to that one: a network that lets through one way."""

from __future__ import annotations

import pytest

from spark_rtps.transport.limits import DISPOSED_ENDPOINTS_MAX
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.participant import RtpsParticipant
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from tests.support.virtual_network import SECOND, VirtualNetwork

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)


def lose(network: VirtualNetwork, host: RtpsParticipant, peer: RtpsParticipant) -> None:
    """The host hears nothing of the peer for longer than its lease; the peer hears the host."""
    network.blocked.add((network.address_of(peer), network.address_of(host)))
    assert network.run(60 * SECOND, until=lambda: not host.database.participants)
    assert list(peer.database.participants) == [host.prefix]


def find_again(network: VirtualNetwork, host: RtpsParticipant, peer: RtpsParticipant) -> None:
    network.blocked.clear()
    assert network.run(60 * SECOND, until=lambda: list(host.database.participants) == [peer.prefix])
    network.run(2 * SECOND)


@pytest.mark.parametrize("others", [0, DISPOSED_ENDPOINTS_MAX - 1])
def test_endpoints_deleted_meanwhile_are_gone_for_the_peer(others: int) -> None:
    network = VirtualNetwork()
    host, peer = network.add(), network.add()
    readers = [host.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now) for _ in range(1 + others)]
    deleted = host.create_writer(WriterSpec("u", "T", RELIABLE), now=network.now)
    kept = host.create_reader(ReaderSpec("v", "T", RELIABLE), now=network.now)
    writer = peer.create_writer(WriterSpec("t", "T", RELIABLE), now=network.now)
    network.run(2 * SECOND)
    assert len(writer.readers) == 1 + others

    lose(network, host, peer)
    for each in (*readers, *([] if others else [deleted])):
        host.delete_endpoint(each.guid, network.now)  # type: ignore[attr-defined]
    network.run(SECOND)
    assert len(writer.readers) == 1 + others, "it cannot know yet"
    find_again(network, host, peer)
    assert not writer.readers
    assert (peer.database.endpoint(deleted.guid) is None) == (not others)
    assert peer.database.endpoint(kept.guid) is not None


def test_an_endpoint_that_is_made_again_is_there() -> None:
    """The entity key that was deleted first is taken again; its disposal must not come after it."""
    network = VirtualNetwork()
    host = network.add()
    first = host.create_reader(ReaderSpec("t", "T", RELIABLE, entity_key=1), now=network.now)
    host.delete_endpoint(first.guid, network.now)
    host.create_reader(ReaderSpec("t", "T", RELIABLE, entity_key=1), now=network.now)
    for key in range(2, DISPOSED_ENDPOINTS_MAX + 10):
        other = host.create_reader(ReaderSpec("t", "T", RELIABLE, entity_key=key), now=network.now)
        host.delete_endpoint(other.guid, network.now)
    peer = network.add()
    network.run(2 * SECOND)
    assert [each.guid for each in peer.database.endpoints_on("t")] == [first.guid]


def test_kept_disposals_expire() -> None:
    network = VirtualNetwork()
    host = network.add()
    for _ in range(2 * DISPOSED_ENDPOINTS_MAX):
        reader = host.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
        host.delete_endpoint(reader.guid, network.now)
    announcing = host._sedp.subscriptions_writer
    assert announcing.history.samples == DISPOSED_ENDPOINTS_MAX
