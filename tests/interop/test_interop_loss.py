"""Cyclone DDS as a lossy peer: it throws away some of what it sends; nothing is lost, doubled or out of order.

A lossy writer loses DATA, DATA_FRAG, HEARTBEAT and GAP; a lossy reader ACKNACK and NACK_FRAG; both lose discovery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest

from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.outgoing import OutgoingDatagrams
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from tests.interop import cyclone_types
from tests.interop.cyclone_peer import CyclonePeer, blob_row, number_row
from tests.interop.subscription import Subscription, batch_of, codec, qos
from tests.support.waiting import PATIENCE

LOSS = pytest.mark.parametrize("loss_per_mille", [50, 200])
#: Type, row of a number, samples: enough datagrams for a fifth of them to be noticed.
CASES: dict[str, tuple[str, Callable[[int], dict[str, Any]], int]] = {
    "unbatched": ("Number", number_row, 3_000),
    "batched": ("Number", number_row, 10_000),
    "fragmented": ("Blob", blob_row, 20),
}
FLOWS = pytest.mark.parametrize("flow", list(CASES))


@LOSS
@FLOWS
def test_lossy_writer(
    loss_per_mille: int,
    flow: str,
    cyclone: Callable[..., CyclonePeer],
    subscribe: Callable[..., Subscription],
) -> None:
    peer = cyclone(loss_per_mille=loss_per_mille, batching=flow == "batched")
    kind, row, count = CASES[flow]
    peer.writer("t", getattr(cyclone_types, kind))
    receiver = subscribe("t", kind)
    peer.wait_for_match("t")
    peer.call("write_numbers", "t", 0, count)
    peer.wait_for_acks("t")
    received = receiver.wait_for(count)
    assert [sample.row for sample in received] == [row(n) for n in range(count)]
    assert [sample.sn for sample in received] == list(range(1, count + 1))
    counters = receiver.counters(count)
    assert counters["reader.lost_samples"] == 0
    if loss_per_mille == 200:  # else there may have been none
        assert counters["reader.nacks_sent"] + counters["reader.nack_frags_sent"] > 0


@LOSS
@FLOWS
def test_lossy_reader(
    loss_per_mille: int, flow: str, cyclone: Callable[..., CyclonePeer], participate: Callable[..., Node]
) -> None:
    peer = cyclone(loss_per_mille=loss_per_mille)
    kind, row, count = CASES[flow]
    peer.reader("t", getattr(cyclone_types, kind))
    writer = participate().create_writer(WriterSpec("t", f"interop::{kind}", qos()))
    assert writer.wait_for_readers(PATIENCE)
    rows = [row(n) for n in range(count)]
    c = codec(kind)
    samples = c.encode_batch(batch_of(c, rows))
    step = 1 if flow == "unbatched" else count
    for first in range(0, count, step):
        writer.write_samples(samples.take_range(first, first + step))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert [sample.row for sample in peer.take("t", count)] == rows
    assert peer.call("take", "t") == []


@FLOWS
def test_lossy_network_to_cyclone(
    flow: str,
    cyclone: Callable[..., CyclonePeer],
    participate: Callable[..., Node],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fifth of what we send gets lost: Cyclone asks for it again."""
    peer = cyclone()
    kind, row, count = CASES[flow]
    peer.reader("t", getattr(cyclone_types, kind))
    node, random = participate(), Random(20)
    send = node.sockets.send

    def send_most(datagrams: Iterable[OutgoingDatagrams]) -> int:
        each_alone = [one for each in datagrams for one in each.apart()]
        return send([one for one in each_alone if random.random() >= 0.2])

    monkeypatch.setattr(node.sockets, "send", send_most)
    writer = node.create_writer(WriterSpec("t", f"interop::{kind}", qos()))
    assert writer.wait_for_readers(PATIENCE)
    rows = [row(n) for n in range(count)]
    c = codec(kind)
    samples = c.encode_batch(batch_of(c, rows))
    step = 1 if flow == "unbatched" else 200 if flow == "batched" else 5
    for first in range(0, count, step):
        writer.write_samples(samples.take_range(first, min(first + step, count)))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert [sample.row for sample in peer.take("t", count)] == rows
    counters = writer.writer.counters
    assert counters.repaired_samples + counters.repaired_fragments > 0
