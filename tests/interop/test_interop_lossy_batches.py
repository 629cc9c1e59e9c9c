"""Many samples a datagram, ours and Cyclone's, while both sides lose some of what they send: DATA, HEARTBEATs and
GAPs of one, ACKNACKs of the other, discovery of both. Every sample arrives once, and in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.wire.samples import DISPOSED, KEY_ONLY
from tests.interop.cyclone_peer import CyclonePeer, Taken, number_row
from tests.interop.cyclone_types import Number, Vehicle
from tests.interop.subscription import LocalReader, Received, Subscription, batch_of, codec, qos
from tests.support.waiting import PATIENCE, wait_until

Row = dict[str, Any]
LOSS = pytest.mark.parametrize("per_mille", [50, 200])
COUNT = 3_000
HISTORY = 1_000
#: A dispose of the first instance goes between blocks.
BLOCKS, BLOCK, INSTANCES = 6, 100, 5


def vehicles(block: int) -> list[Row]:
    first = block * BLOCK
    return [{"id": n % INSTANCES, "note": f"n{n}", "speed": float(n)} for n in range(first, first + BLOCK)]


def write(writer: BlockingWriter, kind: str, rows: Sequence[Row], flags: int = 0) -> None:
    c = codec(kind)
    batch = batch_of(c, list(rows))
    writer.write_samples(
        c.encode_batch(batch), key_hashes=c.key_hashes(batch) if c.struct.is_keyed else None, flags=flags
    )


def numbers(count: int) -> list[Row]:
    return [number_row(n) for n in range(count)]


@LOSS
def test_batches_of_a_cyclone_writer(
    per_mille: int,
    cyclone: Callable[..., CyclonePeer],
    lossy: Callable[..., Node],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Batched by the writer's own policy; the other way to it is the configuration of the domain."""
    peer, node = cyclone(loss_per_mille=per_mille), lossy(per_mille)
    sizes: list[int] = []
    drain = node.sockets.drain

    def drain_and_measure(source: Any) -> Any:
        spans = drain(source)
        sizes.extend(stop - start for start, stop, _ in spans)
        return spans

    monkeypatch.setattr(node.sockets, "drain", drain_and_measure)
    peer.writer("t", Number, batching=True)
    reader = LocalReader(node, "t", "Number", qos())
    peer.wait_for_match("t")
    peer.call("write_numbers", "t", 0, COUNT)
    peer.wait_for_acks("t")
    received = reader.wait_for(COUNT)
    assert [sample.row for sample in received] == numbers(COUNT)
    assert [sample.sn for sample in received] == list(range(1, COUNT + 1))
    assert reader.reader.counters.lost_samples == 0
    assert max(sizes) > 4096  # they were batches


@LOSS
def test_batches_of_a_keyed_cyclone_writer(
    per_mille: int, cyclone: Callable[..., CyclonePeer], lossy: Callable[..., Node]
) -> None:
    peer, node = cyclone(loss_per_mille=per_mille, batching=True), lossy(per_mille)
    peer.writer("t", Vehicle)
    reader = LocalReader(node, "t", "Vehicle", qos())
    peer.wait_for_match("t")
    expected: list[Row] = []
    for block in range(BLOCKS):
        peer.write("t", vehicles(block))
        peer.write("t", vehicles(block)[:1], "dispose")
        expected += [*vehicles(block), {"id": 0, "note": None, "speed": None}]
    peer.wait_for_acks("t")
    assert [_announced(sample) for sample in reader.wait_for(len(expected))] == expected


@LOSS
def test_our_coalesced_samples(
    per_mille: int, cyclone: Callable[..., CyclonePeer], lossy: Callable[..., Node]
) -> None:
    """To Cyclone, which sees an instance's samples in order, and to a reader of our own."""
    peer, node, other = cyclone(loss_per_mille=per_mille), lossy(per_mille), lossy(per_mille + 1)
    peer.reader("t", Vehicle)
    reader = LocalReader(other, "t", "Vehicle", qos())
    writer = node.create_writer(WriterSpec("t", "interop::Vehicle", qos(), keyed=True))
    wait_until(lambda: len(writer.readers.ready_reliable()) == 2, "two ready readers")
    expected: list[Row] = []
    for block in range(BLOCKS):
        write(writer, "Vehicle", vehicles(block))
        write(writer, "Vehicle", vehicles(block)[:1], DISPOSED | KEY_ONLY)
        expected += [*vehicles(block), {"id": 0, "note": None, "speed": None}]
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert [_announced(sample) for sample in reader.wait_for(len(expected))] == expected
    taken = peer.take("t", BLOCKS * BLOCK)
    for instance in range(INSTANCES):
        values = [row for row in expected if row["id"] == instance and row["note"] is not None]
        assert [each.row for each in taken if each.valid and each.row["id"] == instance] == values
    assert _states(taken, 0) == {"DISPOSED"} and _states(taken, 1) == {"ALIVE"}


@LOSS
def test_late_joiner_of_cyclones_batches(
    per_mille: int, cyclone: Callable[..., CyclonePeer], subscribe: Callable[..., Subscription]
) -> None:
    """The history, and what is written while it is repaired."""
    peer = cyclone(loss_per_mille=per_mille)
    peer.writer("t", Number, transient_local=True, batching=True)
    peer.call("write_numbers", "t", 0, HISTORY)
    receiver = subscribe("t", "Number", subscribe=qos(transient_local=True))
    peer.call("write_numbers", "t", HISTORY, HISTORY)
    peer.wait_for_match("t")
    peer.wait_for_acks("t")
    received = receiver.wait_for(2 * HISTORY)
    assert [sample.row for sample in received] == numbers(2 * HISTORY)
    assert receiver.counters(2 * HISTORY)["reader.lost_samples"] == 0


@LOSS
def test_cyclone_as_late_joiner_of_our_coalesced_samples(
    per_mille: int, cyclone: Callable[..., CyclonePeer], lossy: Callable[..., Node]
) -> None:
    writer = lossy(per_mille).create_writer(WriterSpec("t", "interop::Number", qos(transient_local=True)))
    write(writer, "Number", numbers(HISTORY))
    peer = cyclone(loss_per_mille=per_mille)
    peer.reader("t", Number, transient_local=True)
    for first in range(HISTORY, 2 * HISTORY, 100):
        write(writer, "Number", numbers(2 * HISTORY)[first : first + 100])
    assert [sample.row for sample in peer.take("t", 2 * HISTORY)] == numbers(2 * HISTORY)
    assert writer.wait_for_readers(PATIENCE)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}


def _announced(sample: Received) -> Row | None:
    """The row; of a dispose its key alone."""
    if sample.row is not None and sample.flags & DISPOSED:
        return {"id": sample.row["id"], "note": None, "speed": None}
    return sample.row


def _states(taken: list[Taken], instance: int) -> set[str]:
    return {each.instance_state for each in taken if each.row["id"] == instance}
