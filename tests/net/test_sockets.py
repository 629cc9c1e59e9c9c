"""Interfaces, peers and sockets, on loopback."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from spark_rtps.transport.errors import TransportError
from spark_rtps.transport.net import interfaces, peers, udp_sockets
from spark_rtps.transport.net.interfaces import Interface
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.net.sockets import BURST_BYTES, CONTENDED_BURST_BYTES, Sockets
from spark_rtps.transport.protocol.outgoing import OutgoingDatagrams
from spark_rtps.transport.protocol.receiving.message_receiver import Span
from spark_rtps.transport.structure import Locator, metatraffic_unicast_port, user_unicast_port
from tests.net.bridged_hosts import BridgedHosts
from tests.net.shaped_link import NoNamespaces
from tests.support import domains
from tests.support.waiting import PATIENCE, wait_until

LOOPBACK = [Interface("lo", "127.0.0.1", 65_536, "255.0.0.0")]
DOMAIN = domains.NET_SOCKETS


def open_sockets(domain: int = DOMAIN, *, multicast: bool = True) -> Sockets:
    return Sockets.open(domain, LOOPBACK, multicast=multicast, receive_buffer=1 << 20)


def test_loopback_is_chosen_by_name_and_by_any_of_its_addresses() -> None:
    assert interfaces.select("lo") == LOOPBACK
    assert interfaces.select("127.0.0.1") == LOOPBACK
    assert interfaces.select("127.5.6.7") == [Interface("lo", "127.5.6.7", 65_536, "255.0.0.0")]


def test_an_unknown_interface_names_those_there_are() -> None:
    with pytest.raises(TransportError, match=r"'eth77'.*those that are: .*lo \(127\.0\.0\.1\)"):
        interfaces.select("eth77")


def test_no_interface_at_all_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interfaces, "interfaces", list)
    with pytest.raises(TransportError, match="no network interface is up"):
        interfaces.select(None)


def test_a_peer_without_a_port_stands_for_ten_participants() -> None:
    found = peers.resolve(("127.0.0.1",), 3)
    assert [p.port for p in found] == [metatraffic_unicast_port(3, i) for i in range(10)]
    assert peers.resolve(("localhost:7777",), 3) == (Locator("127.0.0.1", 7777),)
    assert not peers.has_names(("127.0.0.1:1",)) and peers.has_names(("localhost",))


def test_the_buffers_are_those_asked_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = NodeConfig(domain=DOMAIN, interface="lo", receive_buffer=300_000, send_buffer=200_000)
    with contextlib.closing(Node.open(config)) as node:
        assert node.sockets.granted_receive_buffer == 300_000
        assert node.sockets.granted_send_buffer == 200_000
    assert "the kernel granted" not in caplog.text
    set_buffer = udp_sockets._set_buffer
    monkeypatch.setattr(
        udp_sockets, "_set_buffer", lambda s, force, plain, size: set_buffer(s, force, plain, size // 2)
    )
    with contextlib.closing(Node.open(config)):
        pass
    assert (
        "granted 150000 bytes of receive buffer of the 300000 asked for; raise net.core.rmem_max"
        in caplog.text
    )
    assert (
        "granted 100000 bytes of send buffer of the 200000 asked for; raise net.core.wmem_max" in caplog.text
    )


@pytest.mark.parametrize("peer", ["", ":7400", "host:port", "host:0", "host:70000"])
def test_a_peer_that_is_none_is_named(peer: str) -> None:
    with pytest.raises(TransportError, match="HOST or HOST:PORT"):
        peers.resolve((peer,), 0)


def test_a_name_that_does_not_resolve_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert peers.resolve(("no-such-host.invalid",), 0) == ()
    assert "no-such-host.invalid" in caplog.text


def test_participants_of_one_host_take_the_next_index() -> None:
    first, second = open_sockets(), open_sockets()
    try:
        assert (first.participant_index, second.participant_index) == (0, 1)
        assert second.metatraffic_unicast[0].port == first.metatraffic_unicast[0].port + 2
        assert second.default_unicast[0].port == second.metatraffic_unicast[0].port + 1
    finally:
        first.close()
        second.close()


def test_a_taken_port_is_skipped_and_all_taken_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_rtps.transport.net.binding._PARTICIPANT_INDEX_MAX", 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", metatraffic_unicast_port(DOMAIN, 0)))
        with pytest.raises(TransportError, match=rf"no free UDP port pair for domain {DOMAIN}"):
            open_sockets()


def test_reserved_ports_are_taken_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_rtps.transport.net.binding._PARTICIPANT_INDEX_MAX", 3)
    reserved = (metatraffic_unicast_port(DOMAIN, 0), user_unicast_port(DOMAIN, 1))
    opened: list[Sockets] = []
    try:
        for _ in range(3):
            opened.append(
                Sockets.open(DOMAIN, LOOPBACK, multicast=False, receive_buffer=0, reserved_ports=reserved)
            )
        assert [each.participant_index for each in opened] == [2, 0, 1]
    finally:
        for each in opened:
            each.close()


def test_a_domain_without_ports_is_refused() -> None:
    with pytest.raises(TransportError, match="0 to 232"):
        Sockets.open(233, LOOPBACK, multicast=False, receive_buffer=0)


def test_datagrams_are_received_into_one_buffer() -> None:
    sockets = open_sockets()
    try:
        to = sockets.default_unicast
        sent = [bytes([i]) * (i + 1) for i in range(50)]
        assert (
            sockets.send([OutgoingDatagrams([m[:1], np.frombuffer(m[1:], np.uint8)], to) for m in sent]) == 50
        )
        spans = sockets.drain(sockets.user)
        assert [sockets.buffer[a:b].tobytes() for a, b, _ in spans] == sent
        assert all(start % 8 == 0 and source == "127.0.0.1" for start, _, source in spans)
        assert sockets.drain(sockets.user) == []
    finally:
        sockets.close()


class Flood:
    """A socket in which empty datagrams wait, as many as one looks for; more than ``most`` are too many."""

    def __init__(self, most: int) -> None:
        self.left = most

    def recvfrom_into(self, buffer: memoryview) -> tuple[int, tuple[str, int]]:
        self.left -= 1
        assert self.left
        return 0, ("127.0.0.66", 9)

    def recvmsg_into(
        self, buffers: tuple[memoryview], size: int
    ) -> tuple[int, list[Any], int, tuple[str, int]]:
        return 0, [], 0, self.recvfrom_into(buffers[0])[1]


@pytest.mark.parametrize("gso_buffers", [False, True])
@pytest.mark.parametrize("enough", [BURST_BYTES, CONTENDED_BURST_BYTES])
def test_a_burst_of_empty_datagrams_ends(gso_buffers: bool, enough: int) -> None:
    """They come as fast as they are received, from several senders."""
    sockets = open_sockets()
    sockets.burst_bytes = enough
    try:
        flood = cast(Any, Flood(BURST_BYTES))
        spans: list[Span] = []
        if gso_buffers:
            sockets._receive_coalesced(flood, spans)
        else:
            sockets._drain(flood, spans)
        assert 0 < len(spans) <= (2 * BURST_BYTES if gso_buffers else BURST_BYTES) // 8
    finally:
        sockets.close()


class Stream:
    """A socket in which datagrams of these sizes wait."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes

    def recvfrom_into(self, buffer: memoryview) -> tuple[int, tuple[str, int]]:
        if not self.sizes:
            raise BlockingIOError
        return self.sizes.pop(0), ("127.0.0.66", 9)


@pytest.mark.parametrize(
    ("sizes", "last"),
    [
        ([60_000] * 17 + [900], 900),  # samples of a megabyte end where the burst does
        ([60_000, 900], 900),
        ([60_000], 60_000),  # no end is in sight
        ([1_400], 1_400),
    ],
)
@pytest.mark.parametrize("enough", [BURST_BYTES, CONTENDED_BURST_BYTES])
def test_a_burst_of_large_samples_ends_at_a_samples_end(sizes: list[int], last: int, enough: int) -> None:
    sockets = open_sockets()
    sockets.burst_bytes = enough
    try:
        spans: list[Span] = []
        sockets._drain(cast(Any, Stream(sizes * (4 * enough // sum(sizes)))), spans)
        assert spans[-1][1] <= sockets.buffer.nbytes
    finally:
        sockets.close()
    start, stop, _ = spans[-1]
    assert stop - start == last
    if sizes == [1_400]:
        enough = BURST_BYTES  # each is a step: a longer drain would keep the others waiting
    assert enough - 8 <= stop <= enough + BURST_BYTES // 2


def test_multicast_reaches_every_participant_of_the_host() -> None:
    first, second = open_sockets(), open_sockets()
    try:
        first.send([OutgoingDatagrams([b"hello"], first.metatraffic_multicast)])
        for sockets in (first, second):
            (span,) = sockets.drain(sockets.receivers[-1])
            assert sockets.buffer[span[0] : span[1]].tobytes() == b"hello"
            assert span[2] == "127.0.0.1"
    finally:
        first.close()
        second.close()


def test_without_multicast_there_is_no_group_socket() -> None:
    sockets = open_sockets(multicast=False)
    try:
        assert sockets.metatraffic_multicast == () and len(sockets.receivers) == 2
    finally:
        sockets.close()


@pytest.mark.parametrize(("segment", "group"), [(20_000, 45_000), (1_000, 2_300)])
def test_messages_of_groups_arrive_as_they_were_cut(segment: int, group: int) -> None:
    whole = np.arange(2 * group + 500, dtype=np.uint32).astype(np.uint8)
    with contextlib.closing(open_sockets()) as one, contextlib.closing(open_sockets()) as other:
        gso_buffer = OutgoingDatagrams([whole], other.default_unicast, segment, group)
        assert one.send([gso_buffer]) == len(gso_buffer.messages()) == 7
        found: list[bytes] = []
        wait_until(lambda: found.extend(_drained(other)) or len(found) == 7)
    assert found == gso_buffer.messages()


def _drained(sockets: Sockets) -> list[bytes]:
    return [sockets.buffer[start:stop].tobytes() for start, stop, _ in sockets.drain(sockets.user)]


def test_sending_into_the_void_is_counted_not_raised() -> None:
    sockets = open_sockets()
    try:
        sockets.send([OutgoingDatagrams([bytes(70_000)], (Locator("127.0.0.1", 9),))])
        assert sockets.send_failures.count == 1
    finally:
        sockets.close()


def test_a_device_that_comes_back_is_joined_again() -> None:
    """A network adapter that was unplugged, or a tunnel that was started anew."""
    try:
        hosts = BridgedHosts(2)
    except NoNamespaces as error:
        pytest.skip(f"no network namespaces: {error}")
    with contextlib.closing(hosts), contextlib.ExitStack() as opened:
        ends = []
        for host in range(2):
            with hosts.inside(host):
                Path("/proc/sys/net/ipv4/igmp_max_memberships").write_text("1")
                here = [Interface("v0", hosts.address(host), 1500, "255.255.255.0", multicast=True)]
                ends.append(Sockets.open(DOMAIN, here, multicast=True, receive_buffer=1 << 20))
            opened.callback(ends[-1].close)
        group = ends[0].metatraffic_multicast
        hello = [OutgoingDatagrams([b"RTPS" + bytes(16)], group)]
        sources = [hosts.address(host) for host in range(2)]

        def meet() -> None:
            """Whatever one of them sends, both receive it."""
            for sender, source in zip(ends, sources, strict=True):
                assert sender.send(hello) == 1
                for receiver in ends:
                    assert receiver.discovery is not None
                    select.select([receiver.discovery], [], [], PATIENCE)
                    assert [found for *_, found in receiver.drain(receiver.discovery)] == [source]

        meet()
        for _ in range(2):
            hosts.unplug(0)
            assert ends[0].send(hello) == 0
            hosts.plug(0)
            ends[0].send(hello)  # which finds out
        meet()
