"""Samples both ways: reliable and not, in fragments, to and from late joiners; the representation; instances."""

from __future__ import annotations

from typing import Any

import pytest

from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.participant.events import IncompatibleQos
from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.wire.samples import DISPOSED, HAS_KEY_HASH, KEY_ONLY, UNREGISTERED
from tests.fastdds.fast_peer import FastPeer, Taken
from tests.fastdds.our_reader import OurReader, Row, write
from tests.fastdds.shapes import struct
from tests.interop import cyclone_types
from tests.interop.cyclone_peer import CyclonePeer, blob
from tests.interop.subscription import codec, qos
from tests.support.waiting import PATIENCE, wait_until

NUMBER, PART, BLOB = struct("Number"), struct("Part"), struct("Blob")
XCDR1, XCDR2 = DataRepresentation.XCDR1, DataRepresentation.XCDR2


def numbers(first: int, last: int) -> list[Row]:
    return [{"id": i % 3, "seq": i, "name": f"number {i}"} for i in range(first, last + 1)]


def blobs(*sizes: int) -> list[Row]:
    return [{"id": i, "data": blob(i, size).hex()[:size]} for i, size in enumerate(sizes)]


@pytest.mark.parametrize("reliable", [True, False], ids=["reliable", "best_effort"])
def test_from_fast_dds(reliable: bool, peer: FastPeer, node: Node, topic: str) -> None:
    peer.writer(topic, NUMBER, reliable=reliable)
    reader = OurReader(node, topic, NUMBER, qos(reliable=reliable))
    peer.wait_for_match(topic)
    reader.wait_for_match()
    for first in range(1, 2001, 100):
        peer.write(topic, numbers(first, first + 99))
        if reliable:
            peer.wait_for_acks(topic)
    received = reader.wait_for(2000 if reliable else 100)
    assert [sample.row for sample in received] == numbers(1, 2000)[: len(received)] or not reliable
    assert reader.reader.counters.lost_samples == 0 or not reliable


@pytest.mark.parametrize("reliable", [True, False], ids=["reliable", "best_effort"])
def test_to_fast_dds(reliable: bool, peer: FastPeer, node: Node, topic: str) -> None:
    peer.reader(topic, NUMBER, reliable=reliable)
    writer = node.create_writer(WriterSpec(topic, NUMBER.name, qos(reliable=reliable), keyed=True))
    assert writer.wait_for_readers(PATIENCE)
    peer.wait_for_match(topic)
    write(writer, NUMBER, numbers(1, 2000))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    taken = peer.take(topic, 2000 if reliable else 1)
    # it gives out by instance
    found = sorted((each.row for each in taken if each.row is not None), key=lambda row: row["seq"])
    assert found == numbers(1, 2000) or not reliable


def test_fragments_from_fast_dds(peer: FastPeer, node: Node, topic: str) -> None:
    peer.writer(topic, BLOB)
    reader = OurReader(node, topic, BLOB)
    peer.wait_for_match(topic)
    reader.wait_for_match()
    rows = blobs(100, 70_000, 300_000, 10)
    peer.write(topic, rows)
    assert reader.rows(len(rows)) == rows
    peer.wait_for_acks(topic)


def test_fragments_to_fast_dds(peer: FastPeer, node: Node, topic: str) -> None:
    peer.reader(topic, BLOB)
    writer = node.create_writer(WriterSpec(topic, BLOB.name, qos()))
    assert writer.wait_for_readers(PATIENCE)
    peer.wait_for_match(topic)
    rows = blobs(100, 70_000, 300_000, 10)
    write(writer, BLOB, rows)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert peer.take(topic, len(rows)) == [Taken("ALIVE", row) for row in rows]


def test_late_joiner_of_ours(peer: FastPeer, node: Node, topic: str) -> None:
    peer.writer(topic, NUMBER, transient_local=True, keep=2)
    peer.write(topic, numbers(1, 30))
    reader = OurReader(node, topic, NUMBER, qos(transient_local=True))
    assert sorted(row["seq"] for row in reader.rows(6) if row is not None) == [25, 26, 27, 28, 29, 30]
    peer.write(topic, numbers(31, 32))
    assert reader.rows(8)[6:] == numbers(31, 32)


def test_late_joiner_of_fast_dds(peer: FastPeer, node: Node, topic: str) -> None:
    writer = node.create_writer(WriterSpec(topic, NUMBER.name, qos(transient_local=True, keep=2), keyed=True))
    write(writer, NUMBER, numbers(1, 30))
    peer.reader(topic, NUMBER, transient_local=True)
    taken = peer.take(topic, 6)
    assert sorted(each.row["seq"] for each in taken if each.row) == [25, 26, 27, 28, 29, 30]
    write(writer, NUMBER, numbers(31, 31))
    assert peer.take(topic, 1) == [Taken("ALIVE", numbers(31, 31)[0])]


# --- representation -------------------------------------------------------------------------------


def test_fast_dds_is_never_sent_xcdr2(peer: FastPeer, node: Node, topic: str) -> None:
    """An XCDR2 payload ends its process; it says nothing of representations, and so takes XCDR1."""
    peer.reader(topic, NUMBER)
    writer = node.create_writer(WriterSpec(topic, NUMBER.name, qos(data_representation=(XCDR2,)), keyed=True))
    reasons: list[str] = []

    def is_reported() -> bool:
        events = node.events()
        reasons.extend(
            r for e in events if isinstance(e, IncompatibleQos) and e.topic == topic for r in e.reasons
        )
        return bool(reasons)

    wait_until(is_reported, "a mismatch")
    assert reasons[0].startswith("DATA_REPRESENTATION: ")
    write(writer, NUMBER, numbers(1, 3), representation=XCDR2)
    assert not writer.readers.has_ready()
    assert peer.take(topic, 0) == []


def test_a_reader_that_takes_both(peer: FastPeer, node: Node, topic: str) -> None:
    peer.writer(topic, NUMBER)
    reader = OurReader(node, topic, NUMBER, qos(data_representation=(XCDR2, XCDR1)))
    peer.wait_for_match(topic)
    reader.wait_for_match()
    peer.write(topic, numbers(1, 3))
    assert reader.rows(3) == numbers(1, 3)


# --- instances ------------------------------------------------------------------------------------

NUMBERS = numbers(0, 2)
#: Their key is longer than a key hash: it is hashed.
PARTS: list[Row] = [
    {"plant": "a plant with a long name", "number": 1, "weight": 0.5},
    {"plant": "", "number": 2, "weight": 1.5},
    {"plant": "a plant with a long name", "number": 3, "weight": 2.5},
]
CASES = pytest.mark.parametrize(("kind", "rows"), [("Number", NUMBERS), ("Part", PARTS)])


@CASES
def test_instances_from_fast_dds(kind: str, rows: list[Row], peer: FastPeer, node: Node, topic: str) -> None:
    """It disposes by key hash alone; who knows the instance knows its key. A volatile writer would have forgotten
    instances whose samples are all acknowledged."""
    peer.writer(topic, struct(kind), transient_local=True)
    reader = OurReader(node, topic, struct(kind))
    peer.wait_for_match(topic)
    reader.wait_for_match()
    peer.write(topic, rows)
    peer.write(topic, rows[:1], "dispose")
    peer.write(topic, rows[1:2], "unregister")
    peer.write(topic, rows[:1])
    received = reader.wait_for(6)
    assert [sample.row for sample in received if not sample.flags & (DISPOSED | UNREGISTERED)] == [
        *rows,
        rows[0],
    ]
    hashes = reader.codec.key_hashes(batch(reader, rows))
    disposed, unregistered = received[3:5]
    assert disposed.flags & (DISPOSED | UNREGISTERED | HAS_KEY_HASH) == DISPOSED | HAS_KEY_HASH
    assert unregistered.flags & UNREGISTERED
    found = {sample.sn: hash_of for sample, hash_of in zip(received, key_hashes(reader), strict=True)}
    assert found[disposed.sn] == hashes[0].tobytes()
    assert found[unregistered.sn] == hashes[1].tobytes()


@pytest.mark.parametrize("form", [0, KEY_ONLY], ids=["sample", "key"])
@CASES
def test_instances_to_fast_dds(
    kind: str, rows: list[Row], form: int, peer: FastPeer, node: Node, topic: str
) -> None:
    """The whole sample, or as a publication does, its key: one of up to 16 bytes Fast DDS takes for the key hash, so
    that it is lengthened."""
    t = struct(kind)
    peer.reader(topic, t)
    writer = node.create_writer(WriterSpec(topic, t.name, qos(), keyed=True))
    assert writer.wait_for_readers(PATIENCE)
    peer.wait_for_match(topic)

    def states(count: int) -> list[Taken]:
        taken = peer.take(topic, count)
        assert len(taken) == count
        return taken

    write(writer, t, rows)
    assert sorted(map(repr, states(3))) == sorted(repr(Taken("ALIVE", row)) for row in rows)
    write(writer, t, rows[:1], flags=DISPOSED | form)
    assert states(1) == [Taken("DISPOSED", None)]
    write(writer, t, rows[1:2], flags=UNREGISTERED | form)
    assert states(1) == [Taken("NO_WRITERS", None)]
    write(writer, t, rows[:1])
    assert states(1) == [Taken("ALIVE", rows[0])]


def test_keys_for_readers_of_three_kinds(peer: FastPeer, node: Node, domain: int, topic: str) -> None:
    """Fast DDS goes by the key hash, Cyclone DDS by the key, a reader of ours by either."""
    vehicle = codec("Vehicle").struct
    peer.reader(topic, vehicle)
    ours = OurReader(node, topic, vehicle)
    rows: list[Row] = [{"id": id, "note": "", "speed": 0.5} for id in (7, -8)]
    with CyclonePeer(domain) as cyclone:
        cyclone.reader(topic, cyclone_types.Vehicle)
        writer = node.create_writer(WriterSpec(topic, vehicle.name, qos(), keyed=True))
        cyclone.wait_for_match(topic)
        peer.wait_for_match(topic)
        wait_until(lambda: len(writer.writer.readers) == 3, "three readers")
        write(writer, vehicle, rows)
        assert len(peer.take(topic, 2)) == 2
        assert len(cyclone.take(topic, 2)) == 2
        write(writer, vehicle, rows[:1], flags=DISPOSED | KEY_ONLY)
        write(writer, vehicle, rows[1:], flags=UNREGISTERED | KEY_ONLY)
        assert peer.take(topic, 2) == [Taken("DISPOSED", None), Taken("NO_WRITERS", None)]
        ended = [(each.row["id"], each.valid, each.instance_state) for each in cyclone.take(topic, 2)]
        assert ended == [(7, False, "DISPOSED"), (-8, False, "NO_WRITERS")]
    received = ours.wait_for(4)[2:]
    assert [each.row and each.row["id"] for each in received] == [7, -8]


def batch(reader: OurReader, rows: list[Row]) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist(rows, schema=reader.codec.arrow_schema)


def key_hashes(reader: OurReader) -> list[bytes]:
    found = []
    for run in reader.runs():
        hashes = run.key_hashes()
        found += [b""] * run.count if hashes is None else [each.tobytes() for each in hashes]
    return found
