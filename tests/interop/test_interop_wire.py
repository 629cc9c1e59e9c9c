"""Wireshark judges what we send in a session with Cyclone DDS that makes us say everything we can say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from spark_rtps.transport.limits import FRAGMENT_SIZE
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.recipients import Discard
from spark_rtps.transport.protocol.outgoing import OutgoingDatagrams
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.policies import BatchPolicy, PublicationPolicy
from spark_rtps.transport.wire.samples import DISPOSED, KEY_ONLY
from tests.interop.cyclone_peer import CyclonePeer, blob_row, number_row
from tests.interop.cyclone_types import Blob, Number, Vehicle
from tests.interop.subscription import batch_of, codec, qos
from tests.support.pcap import write_pcap
from tests.support.waiting import PATIENCE, wait_until
from tests.support.wireshark import tshark


class Submessage(NamedTuple):
    """As Wireshark read it; ``sn`` is 0 where there is no single one."""

    kind: str
    writer: bytes
    sn: int


def submessages(capture: Path) -> list[Submessage]:
    """Every submessage of a capture that is from or to a writer."""
    found: list[Submessage] = []
    kind = ""
    for line in tshark(capture, "-V", "-Y", "rtps", "-O", "rtps").splitlines():
        name, _, value = line.strip().partition(": ")
        if name == "submessageId":
            kind = value.partition(" ")[0]
        elif name == "writerEntityId":
            found.append(Submessage(kind, _entity(value), 0))
        elif name == "writerSeqNumber":
            found[-1] = found[-1]._replace(sn=int(value))
    return found


def _entity(text: str) -> bytes:
    """``NAME (0x000100c2)`` or ``0x00000102 (...: 0x000001)``."""
    found = re.search("0x([0-9a-f]{8})", text)
    assert found is not None, text
    return bytes.fromhex(found[1])


@pytest.fixture
def node(participate: Callable[..., Node], monkeypatch: pytest.MonkeyPatch, sent: list[bytes]) -> Node:
    """A node that writes down what it sends, and of every tenth datagram then sends nothing."""
    node, random = participate(), Random(9)
    send = node.sockets.send

    def record(datagrams: Iterable[OutgoingDatagrams]) -> int:
        datagrams = list(chain.from_iterable(each.apart() for each in datagrams))
        sent.extend(b"".join(map(bytes, each.buffers)) for each in datagrams)
        return send([datagram for datagram in datagrams if random.random() >= 0.1])

    monkeypatch.setattr(node.sockets, "send", record)
    return node


@pytest.fixture
def sent() -> list[bytes]:
    return []


def test_wireshark_finds_nothing_wrong(
    node: Node, sent: list[bytes], cyclone: Callable[..., CyclonePeer], tmp_path: Path
) -> None:
    peer = cyclone(loss_per_mille=100)
    # ours: many small samples, large ones, and an instance's life; late joiners make repairs and gaps of them
    numbers = node.create_writer(
        WriterSpec("numbers", "interop::Number", qos(transient_local=True, keep=1500))
    )
    blobs = node.create_writer(WriterSpec("blobs", "interop::Blob", qos()))
    vehicles = node.create_writer(
        WriterSpec("vehicles", "interop::Vehicle", qos(transient_local=True, keep=1), keyed=True)
    )
    # what remains of three instances that were written once and one that was written often has a hole
    cars = batch_of(
        codec("Vehicle"), [{"id": min(n, 3), "note": "n" * n, "speed": float(n)} for n in range(12)]
    )
    hashes = codec("Vehicle").key_hashes(cars)
    vehicles.write_samples(codec("Vehicle").encode_batch(cars), key_hashes=hashes)
    vehicles.write_samples(
        codec("Vehicle").encode_keys(cars.slice(0, 1)), key_hashes=hashes[:1], flags=DISPOSED | KEY_ONLY
    )
    numbers.write_samples(
        codec("Number").encode_batch(batch_of(codec("Number"), [number_row(n) for n in range(2000)]))
    )
    for topic, kind, durable in (
        ("numbers", Number, True),
        ("blobs", Blob, False),
        ("vehicles", Vehicle, True),
    ):
        peer.reader(topic, kind, transient_local=durable)
    # theirs, so that we acknowledge and ask again
    reader = node.create_reader(ReaderSpec("theirs", "interop::Blob", qos()), Discard())
    small = node.create_reader(ReaderSpec("small", "interop::Number", qos(transient_local=True)), Discard())
    peer.writer("theirs", Blob)
    peer.writer("small", Number, transient_local=True)
    peer.wait_for_match("theirs")
    peer.wait_for_match("small")
    assert blobs.wait_for_readers(PATIENCE)
    large = codec("Blob").encode_batch(batch_of(codec("Blob"), [blob_row(n) for n in range(20)]))
    blobs.write_samples(large)
    peer.call("write_numbers", "theirs", 0, 20)
    peer.call("write_numbers", "small", 0, 500)
    for writer in (numbers, blobs, vehicles):
        assert writer.wait_for_readers(PATIENCE)
        assert writer.wait_for_acknowledgments(PATIENCE) == {}
    peer.wait_for_acks("theirs")
    peer.wait_for_acks("small")
    assert [taken.row for taken in peer.take("numbers", 1500)] == [number_row(n) for n in range(500, 2000)]
    wait_until(lambda: reader.counters.received_samples == 20, "their blobs")
    node.delete_endpoint(small.guid)
    node.close()

    capture = tmp_path / "sent.pcap"
    capture.write_bytes(write_pcap(sent))
    assert tshark(capture, "-Y", "!rtps || _ws.malformed || _ws.expert") == ""
    found = submessages(capture)
    kinds = Counter(each.kind for each in found)
    for kind in ("DATA", "DATA_FRAG", "HEARTBEAT", "GAP", "ACKNACK", "NACK_FRAG"):  # type: ignore[assignment]
        assert kinds[kind] > 0, f"no {kind} in {kinds}"
    # late joiners got what the history kept, by repairs alone; the others everything, and repairs
    by_writer = {
        writer.guid.entity: [
            each.sn
            for each in found
            if each.writer == writer.guid.entity and each.kind in ("DATA", "DATA_FRAG")
        ]
        for writer in (numbers, vehicles, blobs)
    }
    assert set(by_writer[numbers.guid.entity]) == set(range(501, 2001))
    assert len(by_writer[numbers.guid.entity]) == numbers.writer.counters.repaired_samples
    assert set(by_writer[vehicles.guid.entity]) == {2, 3, 12, 13}
    assert len(by_writer[vehicles.guid.entity]) == vehicles.writer.counters.repaired_samples
    fragments = int((-(-large.all_lengths() // FRAGMENT_SIZE)).sum())
    assert Counter(set(by_writer[blobs.guid.entity])) == Counter(range(1, 21))
    assert len(by_writer[blobs.guid.entity]) == fragments + blobs.writer.counters.repaired_fragments


def test_wireshark_finds_every_sample_of_our_batches(
    participate: Callable[..., Node], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What our own endpoints say to each other under loss: batches, their HEARTBEATs, their acknowledgements."""
    sent: list[bytes] = []
    random = Random(4)
    writing, reading = participate(), participate()
    for node in (writing, reading):

        def record(
            datagrams: Iterable[OutgoingDatagrams],
            send: Callable[[list[OutgoingDatagrams]], int] = node.sockets.send,
        ) -> int:
            datagrams = list(chain.from_iterable(each.apart() for each in datagrams))
            sent.extend(b"".join(map(bytes, each.buffers)) for each in datagrams)
            return send([datagram for datagram in datagrams if random.random() >= 0.1])

        monkeypatch.setattr(node.sockets, "send", record)
    policy = PublicationPolicy(batch=BatchPolicy(enable=True, max_samples=300))
    writer = writing.create_writer(WriterSpec("cars", "interop::Vehicle", qos(), keyed=True, policy=policy))
    reader = reading.create_reader(ReaderSpec("cars", "interop::Vehicle", qos(), keyed=True), Discard())
    assert writer.wait_for_readers(PATIENCE)
    cars = batch_of(
        codec("Vehicle"), [{"id": n % 40, "note": "n" * (n % 9), "speed": float(n)} for n in range(3_000)]
    )
    writer.write_samples(codec("Vehicle").encode_batch(cars), key_hashes=codec("Vehicle").key_hashes(cars))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert reader.counters.received_samples == 3_000

    capture = tmp_path / "batches.pcap"
    capture.write_bytes(write_pcap(sent))
    assert tshark(capture, "-Y", "!rtps || _ws.malformed || _ws.expert") == ""
    kinds = Counter(each.kind for each in submessages(capture))
    assert min(kinds[kind] for kind in ("DATA_BATCH", "HEARTBEAT_BATCH", "ACKNACK_BATCH")) > 0, kinds
    found = tshark(capture, "-Y", "rtps.sm.id == 0x18", "-T", "fields", "-e", "rtps.serialized_data")
    samples = sum(len(line.split(",")) for line in found.splitlines())
    assert samples == 3_000 + writer.writer.counters.repaired_samples
