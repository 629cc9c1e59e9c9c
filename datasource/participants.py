"""Where the participants of sources and sinks sit on the network, and how long they are waited for."""

from __future__ import annotations

from typing import Final

from ..transport.net.node import NodeConfig
from ..transport.structure import INFINITE, NANOSECONDS
from .options import Settings

_FOREVER_SECONDS: Final = 1e9


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


def seconds(duration: int) -> float:
    """A duration of the settings, ns, as time-outs are given."""
    return _FOREVER_SECONDS if duration >= INFINITE else duration / NANOSECONDS
