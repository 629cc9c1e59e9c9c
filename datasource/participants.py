"""Where the participants of sources and sinks sit on the network."""

from __future__ import annotations

from ..transport.net.node import NodeConfig
from .options import Settings


def node_config(settings: Settings) -> NodeConfig:
    """The participant of a source or a sink."""
    return NodeConfig(
        domain=settings.domain,
        interface=settings.interface,
        peers=settings.peers,
        participant_name=settings.participant_name,
        multicast=settings.multicast,
        lease_duration=settings.participant_lease_duration,
        receive_buffer=settings.receive_buffer,
        mtu=settings.mtu,
        message_size_max=settings.message_size_max,
        ipc=settings.ipc,
    )
