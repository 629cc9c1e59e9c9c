"""A batching writer of ours with readers of both kinds: Cyclone DDS gets DATA that share datagrams, ours DATA_BATCH.
Each has every sample once, and in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.outgoing import OutgoingDatagrams
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.policies import (
    BatchPolicy,
    BatchWire,
    Compression,
    FlowControllerPolicy,
    PublicationPolicy,
)
from spark_rtps.transport.qos import PresentationScope, Qos
from spark_rtps.transport.structure import Locator
from spark_rtps.transport.wire.batch import DATA_BATCH, HEARTBEAT_BATCH
from spark_rtps.transport.wire.compressed import COMPRESSED
from spark_rtps.transport.wire.message import iter_submessages
from spark_rtps.transport.wire.samples import DISPOSED, KEY_ONLY, REMOVED, UNREGISTERED
from spark_rtps.transport.wire.submessages import Data
from tests.interop import cyclone_types
from tests.interop.cyclone_peer import CyclonePeer, Taken, blob, number_row
from tests.interop.subscription import LocalReader, Subscription, batch_of, codec, qos
from tests.support.waiting import PATIENCE, wait_until

Row = dict[str, Any]
MS = 1_000_000
LOSS = 200  # per mille
VEHICLES = 4
BATCH = BatchPolicy(enable=True)
POLICIES = {
    "plain": BATCH,
    "three_samples": replace(BATCH, max_samples=3),
    "own_timestamps": replace(BATCH, source_timestamp_resolution=0),
    "full_datagrams": replace(BATCH, max_data_bytes=60_000),
    "lz4": replace(BATCH, max_data_bytes=16_384, compression=Compression.LZ4),
    "zstd": replace(BATCH, max_data_bytes=16_384, compression=Compression.ZSTD, compression_threshold=0),
    "no_key_hash": replace(BATCH, disable_inline_keyhash=True),
    "few_batches": replace(BATCH, max_batches=2),
    "flushed_late": replace(BATCH, max_data_bytes=60_000, max_flush_delay=20 * MS),
    "as_data": replace(BATCH, wire=BatchWire.DATA),
    "turbo": BatchPolicy(turbo_mode=True),
}
KINDS = pytest.mark.parametrize("kind", ["Number", "Vehicle"])


@pytest.fixture(scope="module")
def domain(shared_domain: int) -> int:
    return shared_domain


@pytest.fixture(scope="module")
def lossy_peer(shared_domain: int) -> Iterator[CyclonePeer]:
    with CyclonePeer(shared_domain, loss_per_mille=LOSS) as peer:
        yield peer


class Written(NamedTuple):
    """Rows in the order in which they were written; a row of None but for its key is a dispose."""

    kind: str
    rows: list[Row]


def row(kind: str, n: int) -> Row:
    return number_row(n) if kind == "Number" else {"id": n % VEHICLES, "note": f"n{n}", "speed": float(n)}


def end_of(vehicle: int) -> Row:
    return {"id": vehicle, "note": None, "speed": None}


def write(writer: BlockingWriter, kind: str, rows: list[Row], flags: int = 0) -> None:
    c = codec(kind)
    batch = batch_of(c, rows)
    writer.write_samples(
        c.encode_batch(batch), key_hashes=c.key_hashes(batch) if c.struct.is_keyed else None, flags=flags
    )


def write_all(writer: BlockingWriter, kind: str, blocks: int = 6, block: int = 50) -> Written:
    """Blocks, each then twenty samples one by one, and of a keyed topic a dispose."""
    written: list[Row] = []
    n = 0
    for _ in range(blocks):
        for size in (block, *[1] * 20):
            rows = [row(kind, i) for i in range(n, n + size)]
            write(writer, kind, rows)
            written += rows
            n += size
        if kind == "Vehicle":
            write(writer, kind, [row(kind, 0)], DISPOSED | KEY_ONLY)
            written.append(end_of(0))
    return Written(kind, written)


def create_writer(
    node: Node, topic: str, kind: str, policy: BatchPolicy, offered: Qos | None = None
) -> BlockingWriter:
    return node.create_writer(
        WriterSpec(
            topic,
            f"interop::{kind}",
            offered or qos(),
            keyed=codec(kind).struct.is_keyed,
            policy=PublicationPolicy(batch=policy),
        )
    )


def check_ours(reader: LocalReader | Subscription, written: Written) -> None:
    """All of it in the order in which it was written."""
    received = reader.wait_for(len(written.rows))
    rows = [end_of(s.row["id"]) if s.row and s.flags & DISPOSED else s.row for s in received]
    assert rows == written.rows
    assert [sample.sn for sample in received] == list(range(1, len(rows) + 1))


def check_cyclones(peer: CyclonePeer, topic: str, written: Written) -> None:
    """All of it, instance by instance: so Cyclone hands it out. A dispose may come with a take of its own."""
    values = [each for each in written.rows if each.get("note", "") is not None]
    taken: list[Taken] = []

    def complete() -> bool:
        taken.extend(peer.call("take", topic))
        ended = written.kind == "Number" or _states(taken, 0)[-1:] == ["DISPOSED"]
        return ended and sum(each.valid for each in taken) >= len(values)

    wait_until(complete, lambda: f"{len(values)} samples on {topic}; there are {len(taken)}")
    valid = [each for each in taken if each.valid]
    if written.kind == "Number":
        assert [each.row for each in valid] == values
    else:
        for vehicle in range(VEHICLES):
            assert _of(valid, vehicle) == [each for each in values if each["id"] == vehicle]
    assert peer.call("take", topic) == []


def _states(taken: list[Taken], vehicle: int) -> list[str]:
    return [each.instance_state for each in taken if each.row["id"] == vehicle]


def _of(taken: list[Taken], vehicle: int) -> list[Row]:
    return [each.row for each in taken if each.row["id"] == vehicle]


class Sent:
    """Kinds of submessages that a node sent, by destination."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self._kinds: dict[Locator, set[int]] = {}
        send = node.sockets.send

        def record(datagrams: Iterable[OutgoingDatagrams]) -> int:
            datagrams = list(datagrams)
            for datagram in datagrams:
                kinds = {
                    kind
                    for message in datagram.messages()
                    for kind, *_ in iter_submessages(memoryview(message))
                }
                for destination in datagram.destinations:
                    self._kinds.setdefault(destination, set()).update(kinds)
            return send(datagrams)

        monkeypatch.setattr(node.sockets, "send", record)

    def to(self, writer: BlockingWriter, *, ours: bool) -> set[int]:
        """Of DATA and its kin, what went to the readers of one sort."""
        infos = [proxy.info for proxy in writer.writer.readers.values() if proxy.info.batches is ours]
        assert len(infos) == 1
        found = set().union(*(self._kinds.get(each, set()) for each in infos[0].destinations))
        return found & {Data.KIND, DATA_BATCH, HEARTBEAT_BATCH, COMPRESSED}


@KINDS
@pytest.mark.parametrize("name", list(POLICIES))
def test_both_readers(
    name: str,
    kind: str,
    shared_peer: CyclonePeer,
    participate: Callable[..., Node],
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = participate()
    sent = Sent(node, monkeypatch)
    reader = LocalReader(participate(), topic, kind, qos())
    shared_peer.reader(topic, getattr(cyclone_types, kind))
    writer = create_writer(node, topic, kind, POLICIES[name])
    shared_peer.wait_for_match(topic)
    reader.wait_for_match()
    wait_until(lambda: len(writer.readers.ready_reliable()) == 2, "two ready readers")
    written = write_all(writer, kind)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    check_ours(reader, written)
    check_cyclones(shared_peer, topic, written)
    assert sent.to(writer, ours=False) == {Data.KIND}
    kinds = sent.to(writer, ours=True)
    if name == "as_data":
        assert kinds == {Data.KIND}
    else:
        assert DATA_BATCH in kinds or COMPRESSED in kinds
        assert (COMPRESSED in kinds) == (POLICIES[name].compression is not Compression.NONE)


@KINDS
@pytest.mark.parametrize("name", ["plain", "zstd", "turbo"])
def test_both_readers_with_loss(
    name: str, kind: str, lossy_peer: CyclonePeer, lossy: Callable[..., Node], topic: str
) -> None:
    reader = LocalReader(lossy(LOSS), topic, kind, qos())
    lossy_peer.reader(topic, getattr(cyclone_types, kind))
    writer = create_writer(lossy(LOSS + 1), topic, kind, POLICIES[name])
    lossy_peer.wait_for_match(topic)
    reader.wait_for_match()
    wait_until(lambda: len(writer.readers.ready_reliable()) == 2, "two ready readers")
    written = write_all(writer, kind)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    check_ours(reader, written)
    check_cyclones(lossy_peer, topic, written)


@KINDS
@pytest.mark.parametrize(
    ("name", "lossless"),
    [("plain", True), ("as_data", True), ("turbo", True), ("plain", False), ("lz4", False), ("turbo", False)],
)
def test_late_joiners(
    name: str,
    lossless: bool,
    kind: str,
    shared_peer: CyclonePeer,
    lossy_peer: CyclonePeer,
    participate: Callable[..., Node],
    lossy: Callable[..., Node],
    topic: str,
) -> None:
    """KEEP_ALL: the whole history, then what is written later."""
    peer = shared_peer if lossless else lossy_peer
    node, other = (participate(), participate()) if lossless else (lossy(LOSS), lossy(LOSS + 1))
    writer = create_writer(node, topic, kind, POLICIES[name], qos(transient_local=True))
    history = write_all(writer, kind, blocks=3)
    writer.flush()
    peer.reader(topic, getattr(cyclone_types, kind), transient_local=True)
    reader = LocalReader(other, topic, kind, qos(transient_local=True))
    reader.wait_for(len(history.rows))
    wait_until(lambda: len(writer.readers.ready_reliable()) == 2, "two ready readers")
    later = write_all(writer, kind, blocks=1)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    written = Written(kind, history.rows + later.rows)
    check_ours(reader, written)
    check_cyclones(peer, topic, written)


@pytest.mark.parametrize(("kind", "depth"), [("Number", 40), ("Vehicle", 2)])
@pytest.mark.parametrize("name", ["plain", "turbo"])
def test_late_joiners_find_the_last(
    name: str,
    kind: str,
    depth: int,
    shared_peer: CyclonePeer,
    subscribe: Callable[..., Subscription],
    participate: Callable[..., Node],
    topic: str,
) -> None:
    """KEEP_LAST: samples replaced within a batch are marked as removed for us, and never shown to Cyclone."""
    writer = create_writer(participate(), topic, kind, POLICIES[name], qos(transient_local=True, keep=depth))
    written = [row(kind, n) for n in range(203)]
    for first in range(0, len(written), 29):
        write(writer, kind, written[first : first + 29])
    writer.flush()
    kept = written[-depth:] if kind == "Number" else written[-depth * VEHICLES :]
    shared_peer.reader(topic, getattr(cyclone_types, kind), transient_local=True)
    receiver = subscribe(topic, kind, subscribe=qos(transient_local=True))
    received = receiver.wait_for(len(kept))
    assert [sample.row for sample in received] == kept
    assert not any(sample.flags & REMOVED for sample in received)
    taken = [each.row for each in shared_peer.take(topic, len(kept))]
    assert sorted(taken, key=str) == sorted(kept, key=str)
    wait_until(lambda: len(writer.readers.ready_reliable()) == 2, "two ready readers")
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert shared_peer.call("take", topic) == []
    assert len(receiver.received()) == len(kept)
    assert receiver.counters(len(kept))["reader.lost_samples"] == 0


def test_samples_removed_from_the_midst_of_a_batch(
    shared_peer: CyclonePeer,
    subscribe: Callable[..., Subscription],
    participate: Callable[..., Node],
    topic: str,
) -> None:
    """KEEP_LAST 1, and a batch whose first sample is its instance's last: nobody is shown those between, neither
    who is there nor who joins late."""
    policy = replace(BATCH, max_data_bytes=16_384)
    writer = create_writer(participate(), topic, "Vehicle", policy, qos(transient_local=True, keep=1))
    rows = [{"id": vehicle, "note": f"n{n}", "speed": 0.0} for n, vehicle in enumerate([9, *[1, 2] * 20])]
    kept = [rows[0], *rows[-2:]]
    shared_peer.reader(topic, cyclone_types.Vehicle)
    receiver = subscribe(topic, "Vehicle")
    wait_until(lambda: len(writer.readers.ready_reliable()) == 2, "two ready readers")
    write(writer, "Vehicle", rows)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    late = subscribe(topic, "Vehicle", subscribe=qos(transient_local=True))
    for ours in (receiver, late):
        assert [sample.row for sample in ours.wait_for(3)] == kept
        ours.wait_for_counter("cache.writer_removed_batch_sample_dropped_sample_count", len(rows) - len(kept))
        assert len(ours.received()) == 3
        assert ours.process.counters()["reader.lost_samples"] == 0
    assert [each.row for each in shared_peer.take(topic, 3)] == kept
    shared_peer.call("delete", topic)
    shared_peer.reader(topic, cyclone_types.Vehicle, transient_local=True)
    assert [each.row for each in shared_peer.take(topic, 3)] == kept
    wait_until(lambda: len(writer.readers.ready_reliable()) == 3, "three ready readers")
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert shared_peer.call("take", topic) == []


@pytest.mark.parametrize("batch", [BatchPolicy(), BATCH], ids=["coalesced", "batched"])
def test_coherent_sets(
    batch: BatchPolicy, shared_peer: CyclonePeer, participate: Callable[..., Node], topic: str
) -> None:
    """What says that samples belong together, and where a set ends, is nothing to Cyclone: it has the samples."""
    level = {"presentation_scope": PresentationScope.TOPIC, "coherent_access": True}
    shared_peer.reader(topic, cyclone_types.Number, **level)
    reader = LocalReader(participate(), topic, "Number", qos(**level))
    writer = create_writer(participate(), topic, "Number", batch, qos(**level))
    reader.wait_for_match()
    wait_until(lambda: len(writer.readers.ready_reliable()) == 2, "two ready readers")
    rows = [row("Number", n) for n in range(120)]
    write(writer, "Number", rows[:10])
    for first in range(10, 100, 30):
        writer.begin_coherent_set()
        write(writer, "Number", rows[first : first + 15])
        write(writer, "Number", rows[first + 15 : first + 30])
        writer.end_coherent_set()
    write(writer, "Number", rows[100:])
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert [sample.row for sample in reader.wait_for(120)] == rows
    assert [each.row for each in shared_peer.take(topic, 120)] == rows
    assert shared_peer.call("take", topic) == []
    assert shared_peer.status(topic, "sample_lost")["total_count"] == 0


@pytest.mark.parametrize("name", ["plain", "zstd"])
def test_large_samples_between_small_ones(
    name: str, lossy_peer: CyclonePeer, lossy: Callable[..., Node], topic: str
) -> None:
    """What fits no batch goes alone, in fragments if it must; the order stays."""
    rows = [{"id": n, "data": blob(n, [10, 20, 900, 3_000, 150_000][n % 5])} for n in range(40)]
    lossy_peer.reader(topic, cyclone_types.Blob)
    reader = LocalReader(lossy(LOSS), topic, "Blob", qos())
    writer = create_writer(lossy(LOSS + 1), topic, "Blob", POLICIES[name])
    wait_until(lambda: len(writer.readers.ready_reliable()) == 2, "two ready readers")
    for first in range(0, len(rows), 4):
        write(writer, "Blob", rows[first : first + 4])
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert [sample.row for sample in reader.wait_for(len(rows))] == rows
    assert [each.row for each in lossy_peer.take(topic, len(rows))] == rows


@KINDS
@pytest.mark.parametrize("name", ["plain", "lz4", "turbo"])
def test_best_effort_readers(
    name: str, kind: str, shared_peer: CyclonePeer, participate: Callable[..., Node], topic: str
) -> None:
    """Nobody acknowledges, so the batch in progress is flushed by hand."""
    shared_peer.reader(topic, getattr(cyclone_types, kind), reliable=False)
    reader = LocalReader(participate(), topic, kind, qos(reliable=False))
    writer = create_writer(participate(), topic, kind, POLICIES[name])
    shared_peer.wait_for_match(topic)
    reader.wait_for_match()
    wait_until(lambda: len(writer.writer.readers) == 2, "two readers")
    written = write_all(writer, kind, blocks=2)
    writer.flush()
    check_ours(reader, written)
    check_cyclones(shared_peer, topic, written)


def test_flow_controller(shared_peer: CyclonePeer, participate: Callable[..., Node], topic: str) -> None:
    """Asynchronous publishing: batches wait for tokens, and all arrive."""
    policy = PublicationPolicy(
        batch=BATCH,
        flow_controller=FlowControllerPolicy(
            name="slow", max_tokens=4, tokens_added_per_period=4, period=5 * MS, bytes_per_token=4096
        ),
    )
    shared_peer.reader(topic, cyclone_types.Number)
    reader = LocalReader(participate(), topic, "Number", qos())
    writer = participate().create_writer(WriterSpec(topic, "interop::Number", qos(), policy=policy))
    reader.wait_for_match()
    wait_until(lambda: len(writer.readers.ready_reliable()) == 2, "two ready readers")
    written = write_all(writer, "Number")
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    check_ours(reader, written)
    check_cyclones(shared_peer, topic, written)


def test_instances_end_within_batches(
    shared_peer: CyclonePeer, participate: Callable[..., Node], topic: str
) -> None:
    """Disposed and unregistered samples have no data in a DATA_BATCH; as DATA Cyclone gets the key with them."""
    shared_peer.reader(topic, cyclone_types.Vehicle)
    reader = LocalReader(participate(), topic, "Vehicle", qos())
    writer = create_writer(participate(), topic, "Vehicle", BATCH)
    reader.wait_for_match()
    wait_until(lambda: len(writer.readers.ready_reliable()) == 2, "two ready readers")
    rows = [row("Vehicle", n) for n in range(VEHICLES)]
    write(writer, "Vehicle", rows)
    flags = [DISPOSED | KEY_ONLY, UNREGISTERED | KEY_ONLY, DISPOSED | UNREGISTERED | KEY_ONLY]
    for vehicle, flag in enumerate(flags):
        write(writer, "Vehicle", [rows[vehicle]], flag)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    received = reader.wait_for(VEHICLES + 3)
    hashes = [
        each for run in reader.runs() for each in (run.key_hashes() if run.key_hashes() is not None else [])
    ]
    ended = [sample.flags & (DISPOSED | UNREGISTERED) for sample in received[VEHICLES:]]
    assert ended == [DISPOSED, UNREGISTERED, DISPOSED | UNREGISTERED]
    assert [bytes(h) for h in hashes[VEHICLES:]] == [bytes(h) for h in hashes[:3]]
    taken = shared_peer.take(topic, VEHICLES)
    states = {each.row["id"]: each.instance_state for each in taken}
    assert states == {0: "DISPOSED", 1: "NO_WRITERS", 2: "DISPOSED", 3: "ALIVE"}
