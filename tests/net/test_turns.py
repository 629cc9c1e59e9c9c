"""A burst of expensive datagrams keeps neither timers nor the other sockets from their turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from spark_rtps.transport.net import node as node_module
from spark_rtps.transport.net import receive_turns
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.net.send_failures import SendFailures
from spark_rtps.transport.net.sockets import BURST_BYTES, CONTENDED_BURST_BYTES, Sockets
from spark_rtps.transport.protocol.outgoing import OutgoingDatagrams
from spark_rtps.transport.protocol.participant.participant import RtpsParticipant
from spark_rtps.transport.protocol.receiving.message_receiver import Span
from spark_rtps.transport.wire.samples import U8
from tests.fuzz.expensive import datagrams
from tests.protocol.hostile_scene import EVIL_IP, Scene, announcement

MILLISECOND = 1_000_000


class FakeSockets:
    """Two sockets without a network: what they have received is put into their queues."""

    def __init__(self) -> None:
        self.user, self.metatraffic = object(), object()
        self.receivers = [self.user, self.metatraffic]
        self.discovery = None
        self.send_failures = SendFailures()
        self.burst_bytes = BURST_BYTES
        self.waiting: dict[object, deque[bytes]] = {each: deque() for each in self.receivers}
        self.renewed = 0
        self.buffer: U8 = np.zeros(BURST_BYTES, np.uint8)

    def renew_buffer(self) -> None:
        self.renewed += 1
        self.buffer = np.zeros(BURST_BYTES, np.uint8)

    def drain(self, source: object) -> list[Span]:
        spans: list[Span] = []
        at, queue = 0, self.waiting[source]
        while queue and at + len(queue[0]) <= BURST_BYTES:
            datagram = queue.popleft()
            self.buffer[at : at + len(datagram)] = np.frombuffer(datagram, np.uint8)
            spans.append((at, at + len(datagram), EVIL_IP))
            at += (len(datagram) + 7) & ~7
        return spans

    def send(self, outgoing: Iterable[OutgoingDatagrams]) -> int:
        return sum(1 for _ in outgoing)

    def close(self) -> None:
        pass


class Clock:
    """Time passes only by what the participant does: a microsecond for each unit of work."""

    def __init__(self, participant: RtpsParticipant) -> None:
        self._participant = participant

    def monotonic_ns(self) -> int:
        return 100_000 * MILLISECOND + self._participant._receiver.router.work * 1_000


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Scene, FakeSockets, Node]]:
    scene = Scene()
    sockets = FakeSockets()
    node = Node(NodeConfig(), cast(Sockets, sockets), scene.one)
    for module in (node_module, receive_turns):
        monkeypatch.setattr(module, "time", Clock(scene.one))
    yield scene, sockets, node
    node.close()


def expensive(scene: Scene) -> bytes:
    return next(datagram for name, datagram in datagrams(scene) if name == "DATA, backwards")


def test_one_socket_has_its_turn_and_no_more(scene: tuple[Scene, FakeSockets, Node]) -> None:
    attacked, sockets, node = scene
    sockets.waiting[sockets.user] += [expensive(attacked)] * 200
    longest, cycles, timers = 0, 0, 0
    handle_timer = attacked.one.handle_timer

    def timed(now: int) -> None:
        nonlocal timers
        timers += 1
        handle_timer(now)

    attacked.one.handle_timer = timed  # type: ignore[method-assign]
    while sockets.waiting[sockets.user] or node._turns.unfinished:
        if cycles == 2:  # somebody else speaks meanwhile
            sockets.waiting[sockets.metatraffic].append(announcement(b"\x42" * 12))
        before = node_module.time.monotonic_ns()  # type: ignore[attr-defined]
        node.do_work()
        cycles += 1
        if cycles == 3:
            assert b"\x42" * 12 in attacked.one.database.participants
        longest = max(longest, node_module.time.monotonic_ns() - before)  # type: ignore[attr-defined]
    assert longest < 60 * MILLISECOND, "a turn, a part, and the datagram in which it ends; for both sockets"
    assert cycles > 20
    assert timers > 5


def test_a_long_burst_is_neither_lost_nor_overwritten(scene: tuple[Scene, FakeSockets, Node]) -> None:
    attacked, sockets, node = scene
    sent = [expensive(attacked)] * 30
    sockets.waiting[sockets.user] += sent
    seen: list[bytes] = []
    receive = attacked.one._receiver.receive

    def noted(data: U8, view: memoryview, start: int, stop: int, source: str, *, now: int) -> None:
        seen.append(bytes(view[start:stop]))
        receive(data, view, start, stop, source, now=now)

    attacked.one._receiver.receive = noted  # type: ignore[assignment, method-assign]
    node.do_work()
    assert 0 < len(seen) < 16
    noise = bytes(range(1, 256)) * 200
    while node._turns.unfinished or sockets.waiting[sockets.user]:
        sockets.waiting[sockets.metatraffic] += [noise] * 20  # lies where the burst lay, all of it
        node.do_work()
    assert [each for each in seen if each != noise] == sent


def test_an_ordinary_burst_is_processed_at_once(scene: tuple[Scene, FakeSockets, Node]) -> None:
    attacked, sockets, node = scene
    plain = next(datagram for name, datagram in datagrams(attacked) if name == "DATA, alike")
    sockets.waiting[sockets.user] += [plain] * 15
    assert node.do_work() == 15
    assert not node._turns.unfinished
    assert not sockets.renewed


def test_the_rest_of_a_burst_keeps_the_duty_cycle_awake(scene: tuple[Scene, FakeSockets, Node]) -> None:
    attacked, sockets, node = scene
    sockets.waiting[sockets.user] += [expensive(attacked)] * 16
    node.do_work()
    assert node._turns.unfinished
    assert node._wait_ms(1.0) == 0
    node.close()
    assert not node._turns.unfinished


def test_a_burst_that_fails_in_its_middle_ends(scene: tuple[Scene, FakeSockets, Node]) -> None:
    attacked, sockets, node = scene
    sockets.waiting[sockets.user] += [expensive(attacked)] * 30
    node.do_work()
    assert node._turns.unfinished

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    receive, attacked.one._receiver.receive = attacked.one._receiver.receive, fail  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        node.do_work()
    attacked.one._receiver.receive = receive  # type: ignore[method-assign]
    assert not node._turns.unfinished
    node.do_work()


@pytest.mark.parametrize(
    ("received", "nbytes", "buffer", "coalescing"),
    [
        (1, 100, 32 << 20, False),
        (2, 200, 1 << 10, True),
        (2, 100_000, 32 << 20, True),
        (1, 60_000, 32 << 20, False),
        (2, 100_000, 200_000, False),  # what comes meanwhile would be lost
        (16, 4 << 20, 32 << 20, False),  # more is waiting already
    ],
)
def test_which_bursts_are_followed_by_a_coalescing_delay(
    scene: tuple[Scene, FakeSockets, Node],
    monkeypatch: pytest.MonkeyPatch,
    received: int,
    nbytes: int,
    buffer: int,
    coalescing: bool,
) -> None:
    _, sockets, node = scene
    slept: list[float] = []
    monkeypatch.setattr(node_module, "time", SimpleNamespace(sleep=slept.append, monotonic_ns=lambda: 0))

    def run_once(timeout: float) -> int:
        node._turns.received_bytes = nbytes
        return received

    monkeypatch.setattr(node, "run_once", run_once)
    monkeypatch.setattr(sockets, "granted_receive_buffer", buffer, raising=False)
    node.cycle(0.0)
    monkeypatch.undo()
    assert bool(slept) == coalescing


def test_bursts_are_longer_while_coalescing_delays_end_late(
    scene: tuple[Scene, FakeSockets, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late naps say that other processes want the processors."""
    _, sockets, node = scene
    clock = SimpleNamespace(now=0, late=0)

    def sleep(seconds: float) -> None:
        clock.now += round(seconds * 1e9) + clock.late

    def run_once(timeout: float) -> int:
        clock.now += 10 * MILLISECOND
        node._turns.received_bytes = 1 << 20
        return 16

    monkeypatch.setattr(node_module, "time", SimpleNamespace(sleep=sleep, monotonic_ns=lambda: clock.now))
    monkeypatch.setattr(node, "run_once", run_once)
    monkeypatch.setattr(sockets, "granted_receive_buffer", 32 << 20, raising=False)
    found = []
    for clock.late in (0, 3 * MILLISECOND, 0):
        for _ in range(20):
            node.cycle(0.0)
        found.append(sockets.burst_bytes)
    monkeypatch.undo()
    assert found == [BURST_BYTES, CONTENDED_BURST_BYTES, BURST_BYTES]


def test_a_log_that_cannot_be_handed_on_takes_no_datagram_with_it(
    scene: tuple[Scene, FakeSockets, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recipient fails on what a publication log holds, while datagrams have left the socket already."""
    attacked, sockets, node = scene

    def fails(*, now: int) -> tuple[int, int]:
        raise MemoryError

    monkeypatch.setattr(
        node._turns, "read_logs", SimpleNamespace(writers=[1], read_logs=fails, close=lambda: None)
    )
    sockets.waiting[sockets.user].append(announcement(b"\x42" * 12))
    with pytest.raises(MemoryError):
        node.do_work()
    assert b"\x42" * 12 in attacked.one.database.participants
