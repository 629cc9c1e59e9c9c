"""Several participants on one host, found by multicast and without it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.structure import VENDOR_CYCLONE
from tests.interop.cyclone_peer import CyclonePeer, number_row
from tests.interop.cyclone_types import Number
from tests.interop.subscription import Subscription, batch_of, codec, qos
from tests.support.waiting import PATIENCE, wait_until

COUNT = 200
ROWS = [number_row(n) for n in range(COUNT)]


def test_two_receivers_and_a_cyclone_reader(
    cyclone: Callable[..., CyclonePeer],
    subscribe: Callable[..., Subscription],
) -> None:
    """One Cyclone writer has three readers: it may send to all of them by multicast."""
    peer, other = cyclone(), cyclone()
    peer.writer("t", Number)
    other.reader("t", Number)
    receivers = [subscribe("t", "Number"), subscribe("t", "Number")]
    peer.wait_for_match("t", 3)
    peer.call("write_numbers", "t", 0, COUNT)
    peer.wait_for_acks("t")
    for receiver in receivers:
        received = receiver.wait_for(COUNT)
        assert [sample.row for sample in received] == ROWS
    assert [sample.row for sample in other.take("t", COUNT)] == ROWS


def test_two_cyclone_writers_and_one_of_ours(
    cyclone: Callable[..., CyclonePeer],
    subscribe: Callable[..., Subscription],
    participate: Callable[..., Node],
) -> None:
    receiver = subscribe("t", "Number")
    peers = [cyclone(), cyclone()]
    for peer in peers:
        peer.writer("t", Number)
    writer = participate().create_writer(WriterSpec("t", "interop::Number", qos()))
    assert writer.wait_for_readers(PATIENCE)
    for peer in peers:
        peer.wait_for_match("t")
        peer.call("write_numbers", "t", 0, COUNT)
    writer.write_samples(codec("Number").encode_batch(batch_of(codec("Number"), ROWS)))
    received = receiver.wait_for(3 * COUNT)
    writers = {sample.writer for sample in received}
    assert len(writers) == 3
    for each in writers:
        assert [sample.row for sample in received if sample.writer == each] == ROWS


def test_endpoints_deleted_before_a_peer_came(
    cyclone: Callable[..., CyclonePeer],
    participate: Callable[..., Node],
) -> None:
    """A peer that comes later is told that they are gone, though it never knew them."""
    node = participate()
    for _ in range(3):
        node.delete_endpoint(node.create_writer(WriterSpec("t", "interop::Number", qos())).guid)
    writer = node.create_writer(WriterSpec("t", "interop::Number", qos()))
    peer = cyclone()
    peer.reader("t", Number)
    assert writer.wait_for_readers(PATIENCE)
    peer.wait_for_match("t")
    writer.write_samples(codec("Number").encode_batch(batch_of(codec("Number"), ROWS)))
    assert [sample.row for sample in peer.take("t", COUNT)] == ROWS
    assert len(peer.call("discovered", "publication", "t")) == 1


@pytest.mark.parametrize(
    ("of_cyclone", "of_ours"),
    [
        pytest.param(("127.0.0.1",), ("127.0.0.1",), id="both"),
        pytest.param((), ("localhost",), id="host_name"),
        # Cyclone tells its peers of itself when it starts, and then no more for half a minute
        pytest.param(("localhost",), (), id="only_cyclones"),
    ],
)
def test_without_multicast(
    of_cyclone: tuple[str, ...],
    of_ours: tuple[str, ...],
    cyclone: Callable[..., CyclonePeer],
    subscribe: Callable[..., Subscription],
    participate: Callable[..., Node],
) -> None:
    receiver = subscribe("from", "Number", multicast=False, peers=of_ours)
    node = participate(multicast=False, peers=of_ours)
    writer = node.create_writer(WriterSpec("to", "interop::Number", qos()))
    peer = cyclone(multicast="false", peers=of_cyclone)
    peer.writer("from", Number)
    peer.reader("to", Number)
    assert writer.wait_for_readers(PATIENCE)
    peer.wait_for_match("from")
    peer.call("write_numbers", "from", 0, COUNT)
    writer.write_samples(codec("Number").encode_batch(batch_of(codec("Number"), ROWS)))
    assert [sample.row for sample in receiver.wait_for(COUNT)] == ROWS
    assert [sample.row for sample in peer.take("to", COUNT)] == ROWS
    assert not node.sockets.multicast


def test_a_node_discovers_participants_and_endpoints(
    cyclone: Callable[..., CyclonePeer], participate: Callable[..., Node]
) -> None:
    peer = cyclone()
    peer.writer("w", Number, transient_local=True)
    peer.reader("r", Number, reliable=False)
    node = participate()

    def seen() -> dict[str, tuple[str, str, bytes, int, int]]:
        with node.lock:
            found = node.participant.database.endpoints
        return {
            each.topic: (each.kind, each.type_name, each.vendor, each.qos.reliability, each.qos.durability)
            for each in found
            if not each.topic.startswith("DCPS")
        }

    wait_until(lambda: len(seen()) == 2, "two endpoints")
    assert seen() == {
        "w": ("writer", "interop::Number", VENDOR_CYCLONE, 2, 1),
        "r": ("reader", "interop::Number", VENDOR_CYCLONE, 1, 0),
    }
    peer.call("delete", "w")
    wait_until(lambda: set(seen()) == {"r"}, "the end of the writer")


def test_a_killed_cyclone_participant_is_forgotten_with_its_lease(
    cyclone: Callable[..., CyclonePeer], subscribe: Callable[..., Subscription]
) -> None:
    peer = cyclone(lease_seconds=2)
    peer.writer("t", Number)
    receiver = subscribe("t", "Number")
    receiver.wait_for_match()
    peer.kill()
    receiver.wait_for_match(0)


def test_three_participants_of_one_process(
    cyclone: Callable[..., CyclonePeer],
    subscribe: Callable[..., Subscription],
) -> None:
    """Cyclone announces them in one datagram, from one address and port."""
    peer = cyclone()
    names = ["a", "b", "c"]
    for name in names:
        peer.call("writer_of_another", name, "t", Number)
    receiver = subscribe("t", "Number")
    for name in names:
        peer.wait_for_match(name)
        peer.call("write_numbers", name, 0, COUNT)
    received = receiver.wait_for(3 * COUNT)
    writers = {sample.writer for sample in received}
    assert len(writers) == 3
    for each in writers:
        assert [sample.row for sample in received if sample.writer == each] == ROWS
