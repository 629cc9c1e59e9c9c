"""Every policy of our reliable protocol that could upset a foreign peer, with Cyclone DDS at the other end and a
tenth of the datagrams lost: it may be slower, but all arrives, once and in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.outgoing import OutgoingDatagrams
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.policies import PublicationPolicy, ReaderPolicy, WriterPolicy
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.message import iter_submessages
from spark_rtps.transport.wire.submessages import AckNack, Heartbeat
from tests.interop.cyclone_peer import CyclonePeer, blob_row, number_row
from tests.interop.cyclone_types import Blob, Number
from tests.interop.subscription import LocalReader, batch_of, codec, qos
from tests.support.waiting import PATIENCE, wait_until

MS = 1_000_000
COUNT = 400
LOSS = 100  # per mille
READERS = {
    "late_answers": ReaderPolicy(min_heartbeat_response_delay=50 * MS, max_heartbeat_response_delay=200 * MS),
    "few_answers": ReaderPolicy(heartbeat_suppression_duration=100 * MS),
    "late_requests": ReaderPolicy(nack_delay=50 * MS, reorder_delay=100 * MS),
    "hasty_requests": ReaderPolicy(nack_delay=0, reorder_delay=0, round_trip_time=MS, nack_period=2 * MS),
    "rare_repetitions": ReaderPolicy(round_trip_time=200 * MS, nack_period=200 * MS),
    "small_window": ReaderPolicy(receive_window_size=8),
    "late_introduction": ReaderPolicy(preemptive_period=500 * MS, preemptive_period_max=500 * MS),
    "all_slow": ReaderPolicy(
        min_heartbeat_response_delay=100 * MS,
        max_heartbeat_response_delay=200 * MS,
        heartbeat_suppression_duration=50 * MS,
        round_trip_time=100 * MS,
        nack_delay=20 * MS,
        reorder_delay=20 * MS,
        receive_window_size=256,
    ),
}
WINDOW = {"min_send_window_size": 32, "max_send_window_size": 32}
WRITERS = {
    "small_window": WriterPolicy(**WINDOW),
    "heartbeat_with_every_sample": WriterPolicy(**WINDOW, heartbeats_per_max_samples=32),
    "no_piggyback": WriterPolicy(**WINDOW, heartbeats_per_max_samples=0),
    "window_that_moves": WriterPolicy(
        min_send_window_size=2, max_send_window_size=64, send_window_update_period=20 * MS
    ),
    "window_of_one": WriterPolicy(
        min_send_window_size=1, max_send_window_size=1, heartbeats_per_max_samples=1
    ),
    "small_window_of_bytes": WriterPolicy(send_window_bytes=4096),
    "fast_heartbeats": WriterPolicy(heartbeat_period=4 * MS, fast_heartbeat_period=MS, high_watermark=16),
    "slow_heartbeats": WriterPolicy(heartbeat_period=300 * MS, fast_heartbeat_period=300 * MS),
    "one_sample_a_repair": WriterPolicy(max_bytes_per_nack_response=1),
    "late_repairs": WriterPolicy(min_nack_response_delay=20 * MS, max_nack_response_delay=60 * MS),
    "suppressed_requests": WriterPolicy(nack_suppression_duration=150 * MS),
    "short_of_repairs": WriterPolicy(max_repair_bytes=1, max_samples_per_repair=1),
    "no_positive_acks": WriterPolicy(
        disable_positive_acks=True, disable_positive_acks_min_sample_keep_duration=5_000 * MS
    ),
    "impatient": WriterPolicy(max_heartbeat_retries=1000, inactivate_nonprogressing_readers=True),
}
#: One sample for each request, and Cyclone asks ten times a second (its NackDelay); or one for each HEARTBEAT.
SLOW = {"one_sample_a_repair", "short_of_repairs", "window_of_one"}


@pytest.fixture(scope="module")
def domain(shared_domain: int) -> int:
    return shared_domain


@pytest.fixture(scope="module")
def lossy_peer(shared_domain: int) -> Iterator[CyclonePeer]:
    with CyclonePeer(shared_domain, loss_per_mille=LOSS) as peer:
        yield peer


@pytest.fixture
def lossy_node(lossy: Callable[..., Node]) -> Node:
    return lossy(LOSS)


def rows(count: int = COUNT) -> list[dict[str, Any]]:
    return [number_row(n) for n in range(count)]


@pytest.mark.parametrize("name", list(READERS))
def test_reader_policy(name: str, lossy_peer: CyclonePeer, lossy_node: Node, topic: str) -> None:
    lossy_peer.writer(topic, Number)
    reader = LocalReader(lossy_node, topic, "Number", qos(), READERS[name])
    lossy_peer.wait_for_match(topic)
    lossy_peer.call("write_numbers", topic, 0, COUNT)
    lossy_peer.wait_for_acks(topic)
    received = reader.wait_for(COUNT)
    assert [sample.row for sample in received] == rows()
    assert [sample.sn for sample in received] == list(range(1, COUNT + 1))
    assert reader.reader.counters.lost_samples == 0


@pytest.mark.parametrize("name", ["late_answers", "small_window"])
def test_reader_policy_with_fragments(
    name: str, lossy_peer: CyclonePeer, lossy_node: Node, topic: str
) -> None:
    lossy_peer.writer(topic, Blob)
    reader = LocalReader(lossy_node, topic, "Blob", qos(), READERS[name])
    lossy_peer.wait_for_match(topic)
    lossy_peer.call("write_numbers", topic, 0, 10)
    lossy_peer.wait_for_acks(topic)
    assert [sample.row for sample in reader.wait_for(10)] == [blob_row(n) for n in range(10)]


@pytest.mark.parametrize("name", list(WRITERS))
def test_writer_policy(name: str, lossy_peer: CyclonePeer, lossy_node: Node, topic: str) -> None:
    """Written singly, and by hundreds where a hundred lost at once are repaired before long."""
    policy, count = PublicationPolicy(writer=WRITERS[name]), 100 if name in SLOW else COUNT
    lossy_peer.reader(topic, Number)
    writer = lossy_node.create_writer(
        WriterSpec(topic, "interop::Number", qos(transient_local=True), policy=policy)
    )
    assert writer.wait_for_readers(PATIENCE)
    samples = codec("Number").encode_batch(batch_of(codec("Number"), rows(count)))
    single = min(count, COUNT // 2)
    for n in range(single):
        writer.write_samples(samples.take_range(n, n + 1))
    for first in range(single, count, 100):
        writer.write_samples(samples.take_range(first, first + 100))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert [sample.row for sample in lossy_peer.take(topic, count)] == rows(count)
    assert lossy_peer.call("take", topic) == []


@pytest.mark.parametrize("name", ["one_sample_a_repair", "suppressed_requests", "small_window"])
def test_writer_policy_with_fragments(
    name: str, lossy_peer: CyclonePeer, lossy_node: Node, topic: str
) -> None:
    policy = PublicationPolicy(writer=WRITERS[name])
    lossy_peer.reader(topic, Blob)
    writer = lossy_node.create_writer(WriterSpec(topic, "interop::Blob", qos(), policy=policy))
    assert writer.wait_for_readers(PATIENCE)
    blobs = [blob_row(n) for n in range(6)]
    writer.write_samples(codec("Blob").encode_batch(batch_of(codec("Blob"), blobs)))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert [sample.row for sample in lossy_peer.take(topic, 6)] == blobs


@pytest.mark.parametrize("name", ["one_sample_a_repair", "late_repairs", "no_piggyback"])
def test_writer_policy_with_a_late_joiner(
    name: str, lossy_peer: CyclonePeer, lossy_node: Node, topic: str
) -> None:
    """Cyclone asks for the whole history."""
    count = 15 if name in SLOW else 200
    policy = PublicationPolicy(writer=WRITERS[name])
    writer = lossy_node.create_writer(
        WriterSpec(topic, "interop::Number", qos(transient_local=True), policy=policy)
    )
    writer.write_samples(codec("Number").encode_batch(batch_of(codec("Number"), rows(count))))
    lossy_peer.reader(topic, Number, transient_local=True)
    assert [sample.row for sample in lossy_peer.take(topic, count)] == rows(count)
    assert writer.wait_for_readers(PATIENCE)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}


@pytest.mark.parametrize("transient_local", [False, True], ids=["volatile", "transient_local"])
def test_ready_when_a_heartbeat_was_answered(
    transient_local: bool,
    shared_peer: CyclonePeer,
    participate: Callable[..., Node],
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until its first HEARTBEAT Cyclone DDS believes nothing to be missing: what was lost before is not asked for
    again. That it is there, which its pre-emptive ACKNACK tells, is not enough; and it is asked until it answers."""
    shared_peer.reader(topic, Number)
    node, silent, lost = participate(), True, 3
    send = node.sockets.send

    def send_without_heartbeats(datagrams: Iterable[OutgoingDatagrams]) -> int:
        return send([each for each in datagrams if not (silent and _is_heartbeat(each))])

    monkeypatch.setattr(node.sockets, "send", send_without_heartbeats)
    with node.lock:
        writer = node.create_writer(
            WriterSpec(topic, "interop::Number", qos(transient_local=transient_local))
        )
        on_acknack = writer.writer.feedback.on_acknack

        def lose_answers(reader: Guid, acknack: AckNack, *, now: int) -> None:
            nonlocal lost
            lost -= acknack.final
            if not acknack.final or lost < 0:
                on_acknack(reader, acknack, now=now)

        monkeypatch.setattr(writer.writer.feedback, "on_acknack", lose_answers)
    wait_until(lambda: writer.writer.counters.acknacks > 0, "a pre-emptive ACKNACK")
    assert not writer.readers.has_ready()
    silent = False
    assert writer.wait_for_readers(PATIENCE)


def _is_heartbeat(datagram: OutgoingDatagrams) -> bool:
    """Whether it holds a HEARTBEAT of a user's writer."""
    message = memoryview(b"".join(bytes(buffer) for buffer in datagram.buffers))
    return any(
        kind == Heartbeat.KIND and message[start + 7] & 0xC0 == 0
        for kind, _, start, _ in iter_submessages(message)
    )
