"""Readers on one host with little capacity, or slow ones: which writers they hold up, and for how long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_rtps.transport.errors import AcknowledgmentError
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.policies import FlowControlPolicy, ReaderPolicy
from spark_rtps.transport.structure import NANOSECONDS
from tests.net.net_scene import BEST_EFFORT, Scene, scene_of
from tests.net.on_host_scene import (
    TERM,
    hold,
    ipc_writer,
    pass_the_first_window,
    readers_on_host,
    write_until_it_has,
)
from tests.support import domains
from tests.support.numbered_samples import numbered
from tests.support.waiting import PATIENCE


@pytest.fixture
def scene(directory: Path) -> Iterator[Scene]:
    with scene_of(domains.NET_ON_HOST) as scene:
        yield scene


# --- room ------------------------------------------------------------------------------------------------


def test_a_reader_without_room_holds_the_writer_back_and_asks_for_nothing(scene: Scene) -> None:
    node = scene.node(ipc=True)
    got = scene.reader(node)
    writer = ipc_writer(scene, scene.node())
    pass_the_first_window(scene, writer, got)
    nacks, by_udp, written = (
        got.reader.counters.nacks_sent,
        len(scene.samples_sent(writer)),
        writer.writer.last_sn,
    )
    hold(got, node, 100_000)
    begun = writer.writer.positions.pub_pos
    with pytest.raises(AcknowledgmentError, match="made no progress"):
        writer.write_samples(numbered(written, 100_000, size=1_000), timeout=1.0)
    scene.wait(lambda: got.reader.window < 80_000)
    assert got.reader.counters.nacks_sent == nacks and len(scene.samples_sent(writer)) == by_udp
    with writer.node.lock:
        assert 0 < writer.writer.positions.pub_pos - begun <= TERM + 200_000
    hold(got, node, 1 << 40)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: len(got.numbers) == writer.writer.last_sn)
    assert got.numbers == list(range(writer.writer.last_sn))
    assert len(scene.samples_sent(writer)) == by_udp and got.reader.counters.lost_samples == 0


def test_room_that_comes_in_small_pieces(scene: Scene) -> None:
    node = scene.node(ipc=True)
    got = scene.reader(node)
    writer = ipc_writer(scene, scene.node())
    hold(got, node, 0)
    writer.write_samples(numbered(0, 2_000, size=100))
    deadline = time.monotonic() + PATIENCE
    while len(got.numbers) < 2_000 and time.monotonic() < deadline:
        hold(got, node, 70_000)
        time.sleep(0.01)
    assert got.numbers == list(range(2_000)) and got.reader.counters.lost_samples == 0


def test_samples_consumed_later_are_reported_later(scene: Scene) -> None:
    node = scene.node(ipc=True)
    got = scene.reader(node)
    got.reader.status.consumption_held = True
    writer = ipc_writer(scene, scene.node())
    log = writer.writer._unsent.log
    assert log is not None
    begun = log.position
    writer.write_samples(numbered(0, 100, size=1_000))
    scene.wait(lambda: len(got.numbers) == 100)
    (slot,) = log.subscribers()  # type: ignore[attr-defined]
    assert slot.position == begun < log.position
    with node.lock:
        (proxy,) = got.reader.writers.values()
        got.reader.consumed(writer.guid, 100, proxy.stream.rcv_pos)
    node.wake()
    scene.wait(lambda: slot.position == log.position)


# --- waiting ---------------------------------------------------------------------------------------------


def test_a_reader_that_waits_is_woken_by_a_datagram_without_samples(scene: Scene) -> None:
    node = scene.node(ipc=True)
    got = scene.reader(node, BEST_EFFORT)
    writer = ipc_writer(scene, scene.node(), BEST_EFFORT)
    (slot,) = writer.writer._unsent.log.subscribers()
    for i in range(20):
        scene.wait(lambda: slot.waiting)
        writer.write_samples(numbered(i, 1))
        scene.wait(lambda i=i: got.numbers == list(range(i + 1)))  # type: ignore[misc]
    assert isinstance(writer.node, Node)
    sent = [each.data for each in scene.sent[writer.node] if len(each.data) == 20]
    assert sent and scene.samples_sent(writer) == []
    assert not any(node.participant.drops.values())


def test_a_reader_has_a_slot_that_shows_it_is_alive(scene: Scene) -> None:
    node = scene.node(ipc=True)
    scene.reader(node)
    writer = ipc_writer(scene, scene.node())
    (slot,) = writer.writer._unsent.log.subscribers()
    before = slot.heartbeat
    scene.wait(lambda: slot.heartbeat > before)


def test_an_untethered_reader_that_is_slow_is_let_go_and_rejoins(scene: Scene) -> None:
    soon = NANOSECONDS // 4
    flow = FlowControlPolicy(
        ipc=True,
        term_length=TERM,
        untethered_window_limit_timeout=soon,
        untethered_resting_timeout=soon,
    )
    slow_node = scene.node(ipc=True)
    fast = scene.reader(scene.node(ipc=True))
    policy = ReaderPolicy(tether=False, untethered_window_limit_timeout=soon, untethered_resting_timeout=soon)
    slow = scene.reader(slow_node, policy=policy)
    writer = scene.writer(scene.node(), readers=2, flow_control=flow)
    scene.wait(lambda: readers_on_host(writer) == 2)
    hold(slow, slow_node, 100_000)
    written = 0
    while not slow.reader.counters.unavailable:
        writer.write_samples(numbered(written, 100, size=1_000), timeout=PATIENCE)
        written += 100
    begun = time.monotonic()
    while time.monotonic() < begun + 0.5:  # it rests, and holds nobody up
        writer.write_samples(numbered(written, 10, size=1_000), timeout=PATIENCE)
        written += 10
    hold(slow, slow_node, 1 << 40)
    (proxy,) = slow.reader.writers.values()
    scene.wait(lambda: not proxy.resting)
    write_until_it_has(1_000, slow, writer)
    written = writer.writer.last_sn
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: fast.numbers == list(range(written)))
    assert len(slow.numbers) < written and slow.numbers == sorted(set(slow.numbers))
    assert slow.reader.counters.lost_samples > 0


def test_a_sample_that_its_owner_never_has_room_for_holds_nobody_up(scene: Scene) -> None:
    node = scene.node(ipc=True)
    got = scene.reader(node)
    writer = ipc_writer(scene, scene.node())
    with node.lock:
        got.reader.delivery.sample_size_max = 20_000
    hold(got, node, 50_000)
    writer.write_samples(numbered(0, 1))
    writer.write_samples(numbered(1, 1, size=100_000))
    writer.write_samples(numbered(2, 1))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    scene.wait(lambda: got.numbers == [0, 2])
    assert got.reader.counters.oversized_samples == 1
