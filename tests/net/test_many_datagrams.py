"""Many small datagrams in one system call: what comes out is what `recvfrom` would have handed out, one by one."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_rtps.transport.limits import UDP_PAYLOAD_MAX
from spark_rtps.transport.net import many_datagrams
from spark_rtps.transport.net.interfaces import Interface
from spark_rtps.transport.net.many_datagrams import ManyDatagrams
from spark_rtps.transport.net.sockets import Sockets
from tests.support import domains

LOOPBACK = [Interface("lo", "127.0.0.1", 65_536)]


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    sockets = Sockets.open(domains.NET_SOCKETS, LOOPBACK, multicast=False, receive_buffer=8 << 20)
    yield sockets
    sockets.close()


@pytest.fixture
def senders() -> Iterator[list[socket.socket]]:
    opened = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for i, sender in enumerate(opened, 1):
        sender.bind((f"127.0.0.{i}", 0))
    yield opened
    for sender in opened:
        sender.close()


def drained(sockets: Sockets) -> list[tuple[bytes, str]]:
    spans = sockets.drain(sockets.user)
    assert all(start % 4 == 0 for start, _, _ in spans)
    return [(sockets.buffer[start:stop].tobytes(), source) for start, stop, source in spans]


def send(sockets: Sockets, senders: list[socket.socket], sent: list[tuple[bytes, str]]) -> None:
    to = sockets.default_unicast[0]
    for datagram, source in sent:
        senders[int(source[-1]) - 1].sendto(datagram, (to.address, to.port))


def teach(sockets: Sockets, senders: list[socket.socket], size: int = 64) -> None:
    send(sockets, senders, [(bytes(size), "127.0.0.1")] * 40)
    drained(sockets)
    many = sockets._many[sockets.user]
    assert many is not None and many.expects_many


@pytest.mark.parametrize("count", [1, 31, 32, 33, 100])
def test_datagrams_of_several_senders(sockets: Sockets, senders: list[socket.socket], count: int) -> None:
    teach(sockets, senders)
    sent = [(bytes([i]) * (i % 60), f"127.0.0.{1 + i % 3 // 2}") for i in range(count)]
    send(sockets, senders, sent)
    assert drained(sockets) == sent
    assert drained(sockets) == []


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 63, 64, 65, 72, 1_500, 60_000]), st.integers(1, 2)), max_size=60
    )
)
def test_datagrams_longer_than_those_before(
    sockets: Sockets, senders: list[socket.socket], shape: list[tuple[int, int]]
) -> None:
    teach(sockets, senders)
    sent = [((i.to_bytes(4, "little") * size)[:size], f"127.0.0.{n}") for i, (size, n) in enumerate(shape)]
    send(sockets, senders, sent)
    found = []
    while some := drained(sockets):
        found += some
    assert found == sent


def test_the_longest_datagrams_all_at_once_have_room(
    sockets: Sockets, senders: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    teach(sockets, senders)
    monkeypatch.setattr("spark_rtps.transport.net.sockets.BURST_BYTES", 64 * 64)
    sent = [(bytes([i]) * UDP_PAYLOAD_MAX, "127.0.0.1") for i in range(64)]
    send(sockets, senders, sent)
    assert drained(sockets) == sent


def test_long_datagrams_are_received_one_by_one(sockets: Sockets, senders: list[socket.socket]) -> None:
    assert (found := sockets._many[sockets.user]) is not None
    teach(sockets, senders)
    for size, many in ((64, True), (2_000, False), (64, False)):
        sent = [(bytes(size), "127.0.0.1")] * 3
        send(sockets, senders, sent)
        assert drained(sockets) == sent
        assert found.expects_many is many


def test_a_system_without_the_call(
    sockets: Sockets, senders: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many_datagrams.sys, "platform", "elsewhere")  # type: ignore[attr-defined]
    assert ManyDatagrams.where_possible() is None
    sockets._many[sockets.user] = None
    sent = [(bytes(64), "127.0.0.1")] * 40
    for _ in range(2):
        send(sockets, senders, sent)
        assert drained(sockets) == sent
