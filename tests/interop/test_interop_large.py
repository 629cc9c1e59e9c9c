"""Samples far larger than a datagram."""

from __future__ import annotations

from collections.abc import Callable

from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from tests.interop.cyclone_peer import CyclonePeer, blob_row
from tests.interop.cyclone_types import Blob
from tests.interop.subscription import Subscription, batch_of, codec, qos
from tests.support.waiting import PATIENCE

MIB = 1 << 20


def test_4_mib_from_cyclone(
    cyclone: Callable[..., CyclonePeer], subscribe: Callable[..., Subscription]
) -> None:
    peer = cyclone()
    peer.writer("t", Blob)
    receiver = subscribe("t", "Blob")
    peer.wait_for_match("t")
    rows = [blob_row(1, 4 * MIB), blob_row(2, 10), blob_row(3, 4 * MIB + 3)]
    peer.write("t", rows)
    peer.wait_for_acks("t")
    assert [sample.row for sample in receiver.wait_for(3)] == rows


def test_4_mib_to_cyclone(cyclone: Callable[..., CyclonePeer], participate: Callable[..., Node]) -> None:
    peer = cyclone()
    peer.reader("t", Blob)
    writer = participate().create_writer(WriterSpec("t", "interop::Blob", qos()))
    assert writer.wait_for_readers(PATIENCE)
    rows = [blob_row(1, 4 * MIB), blob_row(2, 10), blob_row(3, 4 * MIB + 3)]
    writer.write_samples(codec("Blob").encode_batch(batch_of(codec("Blob"), rows)))
    assert [sample.row for sample in peer.take("t", 3)] == rows
    assert writer.wait_for_acknowledgments(PATIENCE) == {}


def test_16_mib_between_ourselves(
    subscribe: Callable[..., Subscription], participate: Callable[..., Node]
) -> None:
    receiver = subscribe("t", "Blob")
    writer = participate().create_writer(WriterSpec("t", "interop::Blob", qos()))
    assert writer.wait_for_readers(PATIENCE)
    rows = [blob_row(1, 16 * MIB), blob_row(2, 16 * MIB - 5)]
    writer.write_samples(codec("Blob").encode_batch(batch_of(codec("Blob"), rows)))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert [sample.row for sample in receiver.wait_for(2)] == rows
