"""Settings to configurations of participants and writers."""

from __future__ import annotations

from typing import Final

from ..transport.net.node_config import NodeConfig
from ..transport.protocol.policies import PublicationPolicy
from .settings import Settings

#: Where a peer does not know all of an announced type.
_TYPE_HINT: Final = "set type.announce=false, and peers match by the type's name"


def node_config(settings: Settings) -> NodeConfig:
    """The participant of a source or a sink."""
    return NodeConfig(
        domain=settings.domain,
        interface=settings.interface,
        peers=settings.peers,
        peers_allowed=settings.peers_allowed,
        trust=settings.trust,
        participant_name=settings.participant_name,
        multicast=settings.multicast,
        multicast_receive=settings.multicast_receive,
        multicast_ttl=settings.multicast_ttl,
        multicast_interface=settings.multicast_interface,
        lease_duration=settings.participant_lease_duration,
        receive_buffer=settings.receive_buffer,
        send_buffer=settings.send_buffer,
        mtu=settings.mtu,
        message_size_max=settings.message_size_max,
        ipc=settings.ipc,
        ros=settings.ros,
        type_hint=_TYPE_HINT,
    )


def publication_policy(settings: Settings) -> PublicationPolicy:
    """The policy by which the writer of a sink sends."""
    return PublicationPolicy(
        writer=settings.writer_policy,
        batch=settings.batch,
        flow_controller=settings.flow_controller,
        transport_priority=settings.transport_priority,
        coalescing=settings.coalescing,
        interceptor=settings.interceptor,
        flow_control=settings.flow_control,
        readers_allowed=settings.readers_allowed,
        multicast=settings.multicast_send,
    )
