"""What an unmatched participant could once do, each attack by itself, in virtual time.

It is an ordinary participant at an address of its own, which is matched with nobody and has read everybody's
GUIDs. While it attacks, every honest row arrives once, in order and in time, and work, memory and traffic are bounded.
"""

from __future__ import annotations

import struct
import tracemalloc
from functools import partial

import pytest

from spark_rtps.transport import limits
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.qos import DestinationOrderKind
from spark_rtps.transport.structure import Guid
from tests.hostile import messages as m
from tests.hostile.attacker import FAR, WRITER, Datagram
from tests.hostile.attacks import batch_bomb, mixed_batch, payload
from tests.hostile.scene import ATTACKER, BEST_EFFORT, BOUND, RELIABLE, HostileScene
from tests.hostile.work import calls_of
from tests.protocol import reader_cache_scene
from tests.protocol.runs_of_samples import Sample
from tests.support.virtual_network import MILLISECOND, SECOND


@pytest.fixture
def scene() -> HostileScene:
    scene = HostileScene()
    scene.assert_rows_arrive()
    return scene


def under_attack(scene: HostileScene, *datagrams: bytes, user: bool = True) -> None:
    """The attacker sends these, between rows and as they arrive."""
    scene.work()
    scene.send("unmatched", (Datagram(each, user) for each in datagrams))
    scene.work()
    scene.run(50 * MILLISECOND)
    scene.assert_rows_arrive()


# --- a batch of mixed shapes --------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("kinds", [2, 8])
@pytest.mark.parametrize("writer", [WRITER, m.PUBLICATIONS_WRITER], ids=["user", "builtin"])
def test_a_batch_of_an_unmatched_participant_is_not_unpacked(
    scene: HostileScene, codec: str, kinds: int, writer: bytes
) -> None:
    bomb = batch_bomb(writer, kinds=kinds, codec=codec)
    honest = batch_bomb(scene.other.writer, kinds=kinds, codec=codec)
    unmatched_peer = scene.attackers["unmatched"]
    for datagram in (
        unmatched_peer.output(bomb),
        unmatched_peer.to(scene.on, bomb),
        unmatched_peer.to(scene.on, honest),
        unmatched_peer.to(scene.on, honest, prefix=scene.other.prefix),
    ):
        deliver = partial(scene.network.deliver, scene.one, datagram, ATTACKER)
        deliver()
        assert calls_of(deliver) < 1_500
    scene.assert_rows_arrive()


@pytest.mark.parametrize("kinds", [2, 3, 8])
def test_a_peers_batch_costs_work_by_the_kilobyte(scene: HostileScene, kinds: int) -> None:
    """A matched writer's batch is unpacked; of many shapes it costs what it would of few, or is dropped."""
    scene.let_the_peer_match()
    peer = scene.attackers["peer"]
    one = m.compressed(mixed_batch(WRITER, 1 << 20, kinds=kinds), "zstd")
    for bomb, bound in ((one, 10_000), (batch_bomb(WRITER, kinds=kinds), 64 * 10_000)):
        datagram = peer.to(scene.on, bomb)
        assert calls_of(partial(scene.network.deliver, scene.one, datagram, peer.here[0])) < bound
    scene.assert_rows_arrive()


# --- sequence numbers of somebody else's --------------------------------------------------------------


@pytest.mark.parametrize("named", ["header", "info_source"])
@pytest.mark.parametrize("to", ["INFO_DST", "everybody"])
@pytest.mark.parametrize("what", ["heartbeat", "gap", "data", "gap to this reader", "near gap", "next row"])
def test_an_attacker_cannot_advance_another_writers_stream(
    scene: HostileScene, what: str, named: str, to: str
) -> None:
    other, near = scene.other, scene.received.written + 3
    output = {
        "heartbeat": m.heartbeat(other.writer, FAR, FAR + 5, 1 << 20),
        "gap": m.gap(other.writer, 1, FAR),
        "data": m.data(other.writer, FAR, payload()),
        "gap to this reader": m.gap(other.writer, 1, FAR, reader=scene.on.reader),
        "near gap": m.gap(other.writer, 1, near),
        "next row": m.data(other.writer, scene.received.written + 1, payload()),
    }[what]
    prefix = other.prefix if named == "header" else scene.attackers["unmatched"].prefix
    before = [m.info_source(other.prefix)] if named == "info_source" else []
    if to == "INFO_DST":
        before.append(m.info_destination(scene.on.prefix))
    attack = m.message(prefix, *before, output)
    scene.network.deliver(scene.one, attack, ATTACKER)
    under_attack(scene, *[attack] * 20)


@pytest.mark.parametrize("reliable", [True, False], ids=["reliable", "best effort"])
@pytest.mark.parametrize("what", ["data", "heartbeat", "gap"])
def test_a_stream_that_begins_is_not_moved_forward_either(reliable: bool, what: str) -> None:
    """Nothing has arrived so far that says where the stream is."""
    scene = HostileScene(qos=RELIABLE if reliable else BEST_EFFORT)
    output = {
        "data": m.data(scene.other.writer, FAR, payload()),
        "heartbeat": m.heartbeat(scene.other.writer, FAR, FAR + 5, 1 << 20),
        "gap": m.gap(scene.other.writer, 1, FAR),
    }[what]
    under_attack(scene, *[scene.attackers["unmatched"].to(scene.on, output, prefix=scene.other.prefix)] * 3)


@pytest.mark.parametrize("what", ["data", "heartbeat", "gap"])
def test_a_rematched_stream_is_not_moved_forward_either(scene: HostileScene, what: str) -> None:
    """The honest participant goes and comes back under its old name, as a restarted one does."""
    output = {
        "data": m.data(scene.other.writer, FAR, payload()),
        "heartbeat": m.heartbeat(scene.other.writer, FAR, FAR + 5, 1 << 20),
        "gap": m.gap(scene.other.writer, 1, FAR),
    }[what]
    forged = scene.attackers["unmatched"].to(scene.on, output, prefix=scene.other.prefix)
    host = scene.network._hosts.pop(scene.other.user[0])
    scene.send("unmatched", [Datagram(forged)])
    scene.rest(60 * SECOND)  # its lease ends
    assert scene.writer.guid not in scene.reader.writers
    scene.send("unmatched", [Datagram(forged)])
    scene.network._hosts[scene.other.user[0]] = host
    assert scene.run(60 * SECOND, until=scene.is_matched)
    under_attack(scene, forged)


def test_a_burst_of_honest_and_forged_rows_is_separated(scene: HostileScene) -> None:
    """Many datagrams of one sample each are looked at together: each counts by where it came from."""
    other = scene.other
    sent: list[tuple[bytes, str]] = []
    first = scene.received.written + 1
    for i in range(16):
        honest = struct.pack("<HHII", 0x0100, 0, 1, scene.received.written + i)
        for source, body in ((scene.other.user[0], honest), (ATTACKER, payload())):
            sample = m.data(other.writer, first + i, body)
            sent.append((m.message(other.prefix, m.info_timestamp(1.7e9), sample), source))
    # the attacker's come first
    sent.sort(key=lambda each: each[1] != ATTACKER)
    scene.network.deliver_burst(scene.one, sent)
    scene.received.take()
    assert scene.received.arrived == scene.received.written + 16


# --- discovery in another's name ----------------------------------------------------------------------


@pytest.mark.parametrize("which", ["writer", "reader", "participant"])
@pytest.mark.parametrize("hashed", [True, False])
@pytest.mark.parametrize("sn", [2, FAR])
def test_an_attacker_cannot_dispose_anothers_endpoint(
    scene: HostileScene, which: str, hashed: bool, sn: int
) -> None:
    unmatched_peer, other = scene.attackers["unmatched"], scene.other
    gone = m.status_info(disposed=True, unregistered=True)
    if which == "participant":
        guid = other.prefix + m.PARTICIPANT
        qos = [*([m.key_hash(guid)] if hashed else []), gone]
        key = m.parameter_payload([(0x0050, guid)])
        forged = [m.message(other.prefix, m.data(m.SPDP_WRITER, sn, key, inline_qos=qos, key=True))]
    else:
        builtin = m.PUBLICATIONS_WRITER if which == "writer" else m.SUBSCRIPTIONS_WRITER
        guid = other.writer_guid if which == "writer" else other.reader_guid
        qos = [*([m.key_hash(guid)] if hashed else []), gone]
        forged = [
            unmatched_peer.sedp(
                scene.on, builtin, m.endpoint_key(guid), prefix=other.prefix, sn=each, inline_qos=qos
            ).payload
            for each in (sn, sn + 1, sn + 2)
        ]
    lost = len(scene.network.events[scene.one.prefix])
    under_attack(scene, *forged)
    assert len(scene.network.events[scene.one.prefix]) == lost
    scene.assert_newcomers_are_found()
    # what the honest participant announces next is news still
    second = scene.two.create_writer(WriterSpec("t2", "T", RELIABLE), now=scene.network.now)
    reader = scene.one.create_reader(ReaderSpec("t2", "T", RELIABLE), now=scene.network.now)
    assert scene.run(BOUND, until=lambda: second.guid in reader.writers)


# --- acknowledgements ---------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [10**6, FAR, 6, 10])
@pytest.mark.parametrize("how", ["acknack", "acknack_batch", "status_message"])
def test_an_attacker_cannot_acknowledge_for_another_reader(scene: HostileScene, base: int, how: str) -> None:
    """A sink reports success for rows that its reader has, and for no others."""
    honest = scene.network._hosts.pop(scene.other.user[0])  # it is away: nothing of it arrives
    scene.sunk.write(5, scene.network.now)
    forged = {
        "acknack": m.acknack(scene.other.reader, scene.on.writer, base, 0, 1 << 20),
        "acknack_batch": m.acknack_batch(scene.other.reader, scene.on.writer, base, 0, 1 << 20),
        "status_message": m.status_message(scene.other.reader, scene.on.writer, base, 1 << 20, 1 << 20),
    }[how]
    scene.send(
        "unmatched", [Datagram(scene.attackers["unmatched"].to(scene.on, forged, prefix=scene.other.prefix))]
    )
    scene.run(SECOND)
    assert scene.sunk.acknowledged == 5
    assert scene.sunk.writer.unacknowledged()
    scene.network._hosts[scene.other.user[0]] = honest
    scene.assert_rows_arrive(5 * SECOND)


@pytest.mark.parametrize("base", [10**6, FAR])
@pytest.mark.parametrize("how", ["acknack", "acknack_batch"])
def test_samples_never_sent_are_not_acknowledged(scene: HostileScene, base: int, how: str) -> None:
    """Not even by the matched reader itself: later rows are still waited for."""
    make = m.acknack if how == "acknack" else m.acknack_batch
    forged = make(scene.other.reader, scene.on.writer, base, 0, 1 << 20)
    datagram = m.message(scene.other.prefix, m.info_destination(scene.on.prefix), forged)
    scene.network.deliver(scene.one, datagram, scene.other.user[0])
    honest = scene.network._hosts.pop(scene.other.user[0])
    scene.sunk.write(5, scene.network.now)
    scene.run(100 * MILLISECOND)
    assert scene.sunk.acknowledged == 5
    scene.network._hosts[scene.other.user[0]] = honest


def test_a_storm_of_requests_in_anothers_name_is_not_answered(scene: HostileScene) -> None:
    unmatched_peer = scene.attackers["unmatched"]
    scene.work(300, size=1_000)
    scene.run(100 * MILLISECOND)
    host = scene.other.user[0]
    before = scene.bytes_to(host)
    for _ in range(1_000):
        nack = m.acknack(scene.other.reader, scene.on.writer, 1, 256, unmatched_peer.count())
        scene.send("unmatched", [Datagram(unmatched_peer.to(scene.on, nack, prefix=scene.other.prefix))])
        scene.run(MILLISECOND)
    assert scene.bytes_to(host) - before < 20_000
    scene.assert_rows_arrive()


# --- memory and time ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "who", ["an unmatched participant", "an unmatched participant under another GUID", "a matched peer"]
)
def test_fragments_that_never_become_whole_take_little_memory(scene: HostileScene, who: str) -> None:
    name = "peer" if who == "a matched peer" else "unmatched"
    attacker = scene.attackers[name]
    if name == "peer":
        scene.let_the_peer_match()
    forged = who == "an unmatched participant under another GUID"
    prefix, writer = (scene.other.prefix, scene.other.writer) if forged else (attacker.prefix, WRITER)
    size = 60_000
    tracemalloc.start()
    for sn in range(1, 100):
        for first in (1, 2, 4):
            fragment = m.data_frag(writer, sn, first, 1, size, 250 << 20, bytes(size))
            datagram = attacker.to(scene.on, fragment, prefix=prefix)
            scene.network.deliver(scene.one, datagram, attacker.here[0])
        scene.work(1)
        scene.run(MILLISECOND)
    scene.assert_rows_arrive()
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 96 << 20
    assert held < (64 << 20 if name == "peer" else 4 << 20)


def test_a_reorder_buffer_of_a_peer_leaves_room_for_others(scene: HostileScene) -> None:
    """A matched writer's rows behind a hole are bounded, and other writers' rows are not held up by them."""
    scene.let_the_peer_match()
    peer = scene.attackers["peer"]
    tracemalloc.start()
    row = payload() + bytes(60_000)
    for sn in range(2, 1_000):
        scene.network.deliver(scene.one, peer.to(scene.on, m.data(WRITER, sn, row)), peer.here[0])
        if sn % 20 == 0:
            scene.work(1)
            scene.run(MILLISECOND)
    scene.assert_rows_arrive()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < limits.REORDER_WRITER_BYTES_MAX + (32 << 20)


YEARS = 80 * 365 * 86_400


def test_a_timestamp_in_the_far_future_ends_no_order_by_source() -> None:
    cache = reader_cache_scene.Scene(keyed=False, destination_order=DestinationOrderKind.BY_SOURCE_TIMESTAMP)
    assert cache.write(1, Sample(time=0)) == [0]
    cache.write(2, Sample(time=YEARS))
    for i in range(5):
        cache.wait(SECOND)
        assert cache.write(1, Sample(time=i + 1)) == [0]


def test_a_timestamp_in_the_far_future_fills_no_time_based_filter() -> None:
    cache = reader_cache_scene.Scene(keyed=False, time_based_filter=SECOND)
    assert cache.write(1, Sample(time=0)) == [0]
    cache.write(2, Sample(time=YEARS))
    for i in range(5):
        cache.wait(2 * SECOND)
        assert cache.write(1, Sample(time=2 * i + 2)) == [0]


# --- a matched writer's own leaps ---------------------------------------------------------------------


def test_a_row_beyond_what_its_writer_announced_waits(scene: HostileScene) -> None:
    """A matched writer that leaps forward is not believed before its HEARTBEAT says so, nor after one that does not."""
    scene.let_the_peer_match()
    peer, guid = scene.attackers["peer"], Guid(scene.attackers["peer"].prefix, WRITER)
    taken: list[int] = []

    def say(*submessages: bytes) -> list[int]:
        scene.network.deliver(scene.one, peer.to(scene.on, *submessages), peer.here[0])
        for run in scene.reader.take_runs():
            if run.writer == guid:
                taken.extend(run.sequence_numbers().tolist())
        return taken

    say(m.heartbeat(WRITER, 1, 2, peer.count()), m.data(WRITER, 1, payload()), m.data(WRITER, 2, payload()))
    assert taken == [1, 2]
    say(m.data(WRITER, FAR, payload()))
    say(m.data(WRITER, 3, payload()), m.heartbeat(WRITER, 1, 3, peer.count()))
    scene.run(SECOND)
    assert say(m.data(WRITER, 4, payload()), m.heartbeat(WRITER, 1, 4, peer.count())) == [1, 2, 3, 4]
