"""Makes a participant from its owner's configuration, within the limits of its sockets and interfaces."""

from __future__ import annotations

import logging
import time

from ..limits import MESSAGE_SIZE_MAX
from ..protocol.participant.participant import ParticipantConfig, RtpsParticipant
from . import interfaces, peers
from .node_config import NodeConfig, new_guid_prefix
from .ros_graph import user_data_of
from .sockets import Sockets

_log = logging.getLogger(__name__)


def join(config: NodeConfig, sockets: Sockets) -> RtpsParticipant:
    """The participant that uses these sockets."""
    for kind, granted, wanted, limit in (
        ("receive", sockets.granted_receive_buffer, config.receive_buffer, "rmem_max"),
        ("send", sockets.granted_send_buffer, config.send_buffer, "wmem_max"),
    ):
        if granted < wanted:
            _log.warning(
                "the kernel granted %d bytes of %s buffer of the %d asked for; raise net.core.%s",
                granted,
                kind,
                wanted,
                limit,
            )
    return RtpsParticipant(
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
            multicast_networks=tuple((i.address, i.network) for i in sockets.multicast_interfaces),
            multicast_ttl=config.multicast_ttl,
            lease_duration=config.lease_duration,
            receive_buffer=sockets.granted_receive_buffer,
            message_size_max=config.message_size_max,
            message_size=_message_size(config, sockets.interfaces),
            resolve_types=config.resolve_types,
            user_data=b"" if config.ros is None else user_data_of(config.ros),
        ),
        now=time.monotonic_ns(),
    )


def _message_size(config: NodeConfig, used: list[interfaces.Interface]) -> int:
    """Bytes of the RTPS messages to send: the most that no outgoing interface fragments, or the configured ``mtu``."""
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
