"""The configuration of a participant on the network, as its owner asks for it."""

from __future__ import annotations

import os

from ..limits import UDP_PAYLOAD_MAX
from ..protocol.trust import Trust
from ..structure import NANOSECONDS, VENDOR_ID
from ..value_classes import value


@value
class RosNode:
    """A node of a ROS graph."""

    name: str
    namespace: str = "/"
    enclave: str = "/"
    #: Bytes of a GUID in ros_discovery_info: 24 up to ROS 2 Humble, 16 from Iron on.
    gid_bytes: int = 16


@value
class NodeConfig:
    """A participant's configuration on the network. Durations in ns, sizes in bytes."""

    domain: int = 0
    interface: str | None = None
    peers: tuple[str, ...] = ()
    #: IPv4 networks of the participants whose messages are accepted; empty: all.
    peers_allowed: tuple[str, ...] = ()
    #: How messages are authenticated.
    trust: Trust = Trust.ADDRESS
    participant_name: str = "spark-rtps"
    multicast: bool = True
    #: The group that readers join and announce: ``off``, ``auto`` (:mod:`.multicast_addresses`), ``address``, or
    #: ``address:port``.
    multicast_receive: str = "off"
    #: TTL of multicast datagrams: the number of routers they pass, and one more.
    multicast_ttl: int = 1
    #: Name or address of the only interface that takes multicast; None: all that are used.
    multicast_interface: str | None = None
    lease_duration: int = 10 * NANOSECONDS
    receive_buffer: int = 32 << 20
    send_buffer: int = 4 << 20
    #: Largest IP packet to send, in bytes; None: the largest that the interfaces send unfragmented.
    mtu: int | None = None
    #: A larger RTPS message is dropped.
    message_size_max: int = UDP_PAYLOAD_MAX
    guid_prefix: bytes | None = None
    #: How many participants had this GUID before.
    incarnation: int = 0
    #: Whether readers read the publication logs of this product's writers on this host, where these allow it.
    ipc: bool = False
    #: The ports to try first, as the index of a participant on its host; otherwise the lowest free one.
    participant_index: int | None = None
    #: The ports to try last, since a participant that is down for a moment will ask for them.
    reserved_ports: tuple[int, ...] = ()
    #: Whether to request the types of all endpoints of the domain.
    resolve_types: bool = False
    #: The participant's node in a ROS graph; None: it has none.
    ros: RosNode | None = None
    #: The hint for a peer that does not know the types of announced members; "": no hint.
    type_hint: str = ""


def new_guid_prefix() -> bytes:
    """A unique prefix: vendor id, process id, random bits (RTPS 2.5 §8.2.4.2)."""
    return VENDOR_ID + (os.getpid() & 0xFFFF).to_bytes(2, "big") + os.urandom(8)
