"""How a participant sits on the network: what its owner asks for, and what its sockets and interfaces allow."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass

from ..limits import MESSAGE_SIZE_MAX, UDP_PAYLOAD_MAX
from ..protocol.participant import Participant, ParticipantConfig
from ..protocol.trust import Trust
from ..structure import NANOSECONDS, VENDOR_ID
from . import interfaces, peers
from .sockets import Sockets

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """How a participant sits on the network. Durations in ns, sizes in bytes."""

    domain: int = 0
    interface: str | None = None
    peers: tuple[str, ...] = ()
    #: IPv4 networks of the participants to listen to; empty: all.
    peers_allowed: tuple[str, ...] = ()
    #: What messages are believed by.
    trust: Trust = Trust.ADDRESS
    participant_name: str = "spark-rtps"
    multicast: bool = True
    lease_duration: int = 10 * NANOSECONDS
    receive_buffer: int = 32 << 20
    #: Bytes of an IP packet to fill at most; None: what the interfaces take unfragmented.
    mtu: int | None = None
    #: A longer RTPS message is dropped.
    message_size_max: int = UDP_PAYLOAD_MAX
    guid_prefix: bytes | None = None
    #: How many participants have had this GUID before.
    incarnation: int = 0
    #: Readers read the publication logs of writers of ours on this host which allow it.
    ipc: bool = False
    #: Ask for the types of all endpoints of the domain.
    resolve_types: bool = False


def new_guid_prefix() -> bytes:
    """A unique prefix: vendor id, process id, random bits (RTPS 2.5 §8.2.4.2)."""
    return VENDOR_ID + (os.getpid() & 0xFFFF).to_bytes(2, "big") + os.urandom(8)


def join(config: NodeConfig, sockets: Sockets) -> Participant:
    """The participant that speaks through these sockets."""
    if sockets.granted_receive_buffer < config.receive_buffer:
        _log.warning(
            "the kernel grants %d bytes of receive buffer of the %d asked for; raise net.core.rmem_max",
            sockets.granted_receive_buffer,
            config.receive_buffer,
        )
    return Participant(
        ParticipantConfig(
            guid_prefix=config.guid_prefix or new_guid_prefix(),
            incarnation=config.incarnation,
            domain=config.domain,
            name=config.participant_name,
            metatraffic_unicast=sockets.metatraffic_unicast,
            metatraffic_multicast=sockets.metatraffic_multicast,
            default_unicast=sockets.default_unicast,
            default_multicast=(),
            peers=peers.resolve(config.peers, config.domain),
            peers_allowed=config.peers_allowed,
            trust=config.trust,
            announce_multicast=sockets.multicast,
            lease_duration=config.lease_duration,
            message_size_max=config.message_size_max,
            message_size=_message_size(config, sockets.interfaces),
            resolve_types=config.resolve_types,
        ),
        now=time.monotonic_ns(),
    )


def _message_size(config: NodeConfig, used: list[interfaces.Interface]) -> int:
    """Bytes of the RTPS messages to send: as many as no interface on the way out fragments, or as asked."""
    unfragmented = interfaces.unfragmented(used)
    if config.mtu is None:
        return min(MESSAGE_SIZE_MAX, unfragmented)
    wanted = config.mtu - interfaces.HEADERS
    if wanted > unfragmented:
        narrow = min(used, key=lambda i: i.mtu)
        _log.warning(
            "mtu %d: interface %s has an MTU of %d and fragments larger packets; the loss of one fragment loses "
            "the whole datagram. Lower the option mtu, or leave it out",
            config.mtu,
            narrow.name,
            narrow.mtu,
        )
    return min(MESSAGE_SIZE_MAX, wanted)
