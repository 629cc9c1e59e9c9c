"""MANUAL liveliness: what a writer writes, in whatever form, says that it lives, to itself and to others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_rtps.transport.protocol.participant import events
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.participant import RtpsParticipant
from spark_rtps.transport.protocol.policies import BatchPolicy, Compression, PublicationPolicy
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.qos import HistoryKind, LivelinessKind, Qos, ReliabilityKind
from spark_rtps.transport.wire.message import Header
from spark_rtps.transport.wire.submessages import Heartbeat
from tests.support.numbered_samples import numbered
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork

LEASE = SECOND
BEST_EFFORT = Qos()
RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
BATCH = BatchPolicy(enable=True, max_data_bytes=60_000)
BY_TOPIC, BY_PARTICIPANT = LivelinessKind.MANUAL_BY_TOPIC, LivelinessKind.MANUAL_BY_PARTICIPANT


def manual(qos: Qos, kind: LivelinessKind = BY_TOPIC) -> Qos:
    return replace(qos, liveliness=kind, liveliness_lease_duration=LEASE)


class Scene:
    """A participant that reads, one that writes."""

    def __init__(
        self, qos: Qos = RELIABLE, *, kind: LivelinessKind = BY_TOPIC, policy: PublicationPolicy | None = None
    ) -> None:
        self.network = VirtualNetwork()
        self.there, self.here = self.network.add(), self.network.add()
        now = self.network.now
        self.reader = self.there.create_reader(ReaderSpec("t", "T", qos), now=now)
        self.writer: StatefulWriter = self.here.create_writer(
            WriterSpec("t", "T", manual(qos, kind), policy=policy or PublicationPolicy()), now=now
        )
        self.network.run(SECOND // 2)
        assert self.writer.readers

    def write(self, *, size: int = 12, times: int = 12, flush: bool = True) -> None:
        """Write, four times a lease."""
        for _ in range(times):
            self.writer.write_samples(numbered(0, 1, size=size), timestamp=0, now=self.network.now)
            if flush:
                self.writer.flush_batch(now=self.network.now)
            self.network.run(LEASE // 4)
            self.reader.take_runs()

    def output(self, participant: RtpsParticipant) -> list[type]:
        """What became of the liveliness of writers."""
        kinds = (events.LivelinessLost, events.LivelinessGained)
        return [type(each) for each in self.network.events[participant.prefix] if isinstance(each, kinds)]


@pytest.mark.parametrize("qos", [RELIABLE, BEST_EFFORT], ids=["reliable", "best_effort"])
@pytest.mark.parametrize("size", [12, 100_000], ids=["data", "data_frag"])
@pytest.mark.parametrize(
    "batch",
    [BatchPolicy(), BATCH, replace(BATCH, compression=Compression.LZ4, compression_threshold=0)],
    ids=["unbatched", "batch", "compressed"],
)
def test_writes_keep_a_manual_by_topic_writer_alive(qos: Qos, size: int, batch: BatchPolicy) -> None:
    scene = Scene(qos, policy=PublicationPolicy(batch=batch))
    scene.write(size=size)
    assert scene.output(scene.there) == scene.output(scene.here) == []


def test_a_writer_that_falls_silent_is_lost_and_comes_back() -> None:
    scene = Scene()
    scene.write(times=2)
    scene.network.run(2 * LEASE)
    assert scene.output(scene.there) == scene.output(scene.here) == [events.LivelinessLost]
    scene.write(times=40)
    expected = [events.LivelinessLost, events.LivelinessGained]
    assert scene.output(scene.there) == scene.output(scene.here) == expected


def test_batched_samples_assert_liveliness_locally() -> None:
    scene = Scene(policy=PublicationPolicy(batch=BATCH))
    scene.write(flush=False)
    assert scene.writer.intake.count == 12
    assert scene.output(scene.here) == []
    assert scene.output(scene.there) == [events.LivelinessLost]  # nothing has reached it


@pytest.mark.parametrize("qos", [RELIABLE, BEST_EFFORT], ids=["reliable", "best_effort"])
@pytest.mark.parametrize("batch", [BatchPolicy(), BATCH], ids=["heartbeat", "heartbeat_batch"])
def test_assertions_keep_a_manual_by_topic_writer_alive(qos: Qos, batch: BatchPolicy) -> None:
    scene = Scene(qos, policy=PublicationPolicy(batch=batch))
    for _ in range(12):
        scene.here.assert_liveliness(scene.network.now, scene.writer.guid)
        scene.network.run(LEASE // 4)
    assert scene.output(scene.there) == scene.output(scene.here) == []


@pytest.mark.parametrize("liveliness", [True, False])
def test_only_heartbeats_with_the_liveliness_flag_count(liveliness: bool) -> None:
    scene = Scene()
    guid = scene.writer.guid
    for count in range(1_000, 1_012):
        heartbeat = Heartbeat(bytes(4), guid.entity, 1, 0, count, final=True, liveliness=liveliness)
        message = Header(prefix=guid.prefix).encode() + heartbeat.encode()
        scene.network.deliver(scene.there, message, scene.network.address_of(scene.here))
        scene.network.run(LEASE // 4)
    assert scene.output(scene.there) == ([] if liveliness else [events.LivelinessLost])


def test_a_write_of_one_keeps_all_manual_by_participant_writers_alive() -> None:
    scene = Scene(kind=BY_PARTICIPANT)
    now = scene.network.now
    scene.there.create_reader(ReaderSpec("other", "T", RELIABLE), now=now)
    scene.here.create_writer(WriterSpec("other", "T", manual(RELIABLE, BY_PARTICIPANT)), now=now)
    scene.write()
    assert scene.output(scene.there) == scene.output(scene.here) == []
    scene.network.run(3 * LEASE)
    assert scene.output(scene.there) == scene.output(scene.here) == [events.LivelinessLost] * 2


def test_writes_of_others_do_not_keep_a_manual_by_topic_writer_alive() -> None:
    scene = Scene()
    other = scene.here.create_writer(WriterSpec("other", "T", manual(RELIABLE)), now=scene.network.now)
    for _ in range(12):
        other.write_samples(numbered(0, 1), timestamp=0, now=scene.network.now)
        scene.network.run(LEASE // 4)
    assert scene.output(scene.there) == scene.output(scene.here) == [events.LivelinessLost]


def test_the_event_names_writer_and_topic_on_both_sides() -> None:
    scene = Scene()
    scene.network.run(2 * LEASE)
    for participant in (scene.there, scene.here):
        lost = [e for e in scene.network.events[participant.prefix] if isinstance(e, events.LivelinessLost)]
        assert lost == [events.LivelinessLost(scene.writer.guid, "t")]


def test_a_deleted_writer_is_not_watched() -> None:
    scene = Scene()
    scene.here.delete_endpoint(scene.writer.guid, scene.network.now)
    scene.network.run(3 * LEASE + 10 * MILLISECOND)
    assert scene.output(scene.here) == []
