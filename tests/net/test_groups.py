"""Which group a participant's readers join, and the sockets of it."""

from __future__ import annotations

import contextlib
import select
import socket
from pathlib import Path

import pytest

from spark_rtps.transport.errors import TransportError, UsageError
from spark_rtps.transport.net import interfaces
from spark_rtps.transport.net.interfaces import Interface
from spark_rtps.transport.net.multicast_addresses import group_to_join, parse_group
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.net.sockets import Sockets
from spark_rtps.transport.protocol.outgoing import OutgoingDatagrams
from spark_rtps.transport.structure import Locator
from tests.support import domains

DOMAIN = domains.NET_SOCKETS
LO = Interface("lo", "127.0.0.1", 65_536, "255.0.0.0")
ETH = Interface("eth0", "10.1.2.3", 1_500, "255.255.0.0", True)
TUNNEL = Interface("tun0", "10.9.0.1", 1_400, "255.255.255.0", False)
GROUP = Locator("239.255.0.1", 7401 + 250 * DOMAIN)


def config(receive: str, *, multicast: bool = True) -> NodeConfig:
    return NodeConfig(domain=DOMAIN, multicast=multicast, multicast_receive=receive)


@pytest.mark.parametrize(
    ("used", "group"),
    [([ETH], GROUP), ([ETH, ETH], GROUP), ([LO], None), ([TUNNEL], None), ([ETH, TUNNEL], None)],
)
def test_auto_is_the_domains_group_where_all_interfaces_carry_it(
    used: list[Interface], group: Locator | None
) -> None:
    assert group_to_join(config("auto"), used) == group
    assert group_to_join(config("auto", multicast=False), used) is None
    assert group_to_join(config("off"), used) is None
    assert group_to_join(config("239.1.2.3:99"), used) == Locator("239.1.2.3", 99)


def test_auto_is_off_on_a_wireless_interface(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(interfaces, "_DEVICES", tmp_path)
    (tmp_path / "eth0" / "phy80211").mkdir(parents=True)
    assert group_to_join(config("auto"), [ETH]) is None


def test_the_port_of_a_group_is_the_domains() -> None:
    assert parse_group("239.1.2.3", DOMAIN) == Locator("239.1.2.3", GROUP.port)
    assert parse_group("239.1.2.3:7", DOMAIN) == Locator("239.1.2.3", 7)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("10.0.0.1", "not a multicast group"),
        ("255.255.255.255", "not a multicast group"),
        ("host", "not an IPv4 address"),
        ("", "not an IPv4 address"),
        ("239.1.2", "not an IPv4 address"),
        ("239.1.2.3:", "not a UDP port"),
        ("239.1.2.3:0", "not a UDP port"),
        ("239.1.2.3:65536", "not a UDP port"),
        ("239.1.2.3:x", "not a UDP port"),
        ("239.255.0.1:7400", "reserved for discovery"),
        ("239.255.0.1:7650", "reserved for discovery"),
        ("224.0.0.5", "routing protocols"),
    ],
)
def test_an_invalid_group_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_group(text, DOMAIN)


def test_the_network_of_an_interface() -> None:
    assert (ETH.network, LO.network) == ("10.1.0.0/16", "127.0.0.0/8")
    (loopback,) = interfaces.select("lo")
    assert loopback == LO


def open_sockets(*used: Interface, **options: object) -> contextlib.closing[Sockets]:
    given = {"multicast": True, "receive_buffer": 1 << 20, **options}
    return contextlib.closing(Sockets.open(DOMAIN, [*used] or [LO], **given))


def received(sockets: Sockets, source: socket.socket) -> list[bytes]:
    assert select.select([source], [], [], 10)[0]
    return [bytes(sockets.buffer[start:stop]) for start, stop, _ in sockets.drain(source)]


def test_all_members_receive_a_datagram_sent_once() -> None:
    with open_sockets() as one, open_sockets() as two, open_sockets() as three:
        for each in (two, three):
            assert each.join(GROUP, 1 << 20)
        for via in ("", "127.0.0.1"):
            one.send([OutgoingDatagrams([b"sample"], (GROUP._replace(via=via),))])
            assert [received(each, each.receivers[-1]) for each in (two, three)] == [[b"sample"]] * 2
        assert one.sent == 2
        assert not any(one.drain(source) for source in one.receivers)


def test_time_to_live() -> None:
    with open_sockets(ttl=7) as sockets:
        (sender,) = sockets._senders
        assert sender.getsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL) == 7


def test_multicast_on_one_interface_alone() -> None:
    also = LO._replace(address="127.0.0.2")
    for wanted in ("127.0.0.2", "lo"):
        with open_sockets(LO, also, multicast_interface=wanted) as sockets:
            assert also in sockets.multicast_interfaces
            assert (LO in sockets.multicast_interfaces) == (wanted == "lo")
    with pytest.raises(TransportError, match="'eth9' is not among those in use: lo"):
        open_sockets(multicast_interface="eth9")


def rtps(prefix: int, text: bytes = b"") -> bytes:
    return b"RTPS\2\5\1\x7e" + bytes((prefix,)) * 12 + text


def test_only_accepted_participants_are_received_from_a_group() -> None:
    """The others are dropped by the kernel, and so is what is no RTPS message."""
    with open_sockets() as one, open_sockets() as two:
        assert two.join(GROUP, 1 << 20)
        group = two.receivers[-1]
        few, many = [bytes((i,)) * 12 for i in (3, 5, 9)], [i.to_bytes(2, "big") * 6 for i in range(1_000)]
        for listened, found in ((few, {3, 5, 9}), ([], set()), (many, set(range(10))), (few[1:], {5, 9})):
            two.listen_to(listened)
            for i in range(10):
                one.send([OutgoingDatagrams([rtps(i)], (GROUP,))])
            one.send([OutgoingDatagrams([b"short"], (GROUP,))])
            wanted = [rtps(i) for i in sorted(found)]
            got = [bytes(two.buffer[start:stop]) for start, stop, _ in two.drain(group)]
            assert [each for each in got if len(each) > 5] == wanted
            assert (b"short" in got) == (listened is many)


def test_gso_buffers_are_accepted_by_their_first_message() -> None:
    with open_sockets() as one, open_sockets() as two:
        assert two.join(GROUP, 1 << 20)
        two.listen_to([bytes((4,)) * 12])
        for prefix in (3, 4):
            one.send([OutgoingDatagrams([rtps(prefix, bytes(80))], (GROUP,)) for _ in range(20)])
        group = two.receivers[-1]
        got = [bytes(two.buffer[start:stop]) for start, stop, _ in two.drain(group)]
        assert got == [rtps(4, bytes(80))] * 20
