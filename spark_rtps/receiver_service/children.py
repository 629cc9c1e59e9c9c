"""Starts the real processes of a receiver service."""

from __future__ import annotations

from ..serving.server.process import LogServerConfig, ReceiverServiceServerProcess
from .config import ReceiverServiceConfig


def server_config(config: ReceiverServiceConfig, port: int) -> LogServerConfig:
    """The log server's part of the configuration."""
    return LogServerConfig(
        log_dir=config.directory,
        address=config.address,
        port=port,
        token="",  # each role has its own token
        certificate=None if config.certificate is None else str(config.certificate),
        key=None if config.key is None else str(config.key),
        receiver_service=True,
        tokens=config.tokens or {},
        client_ca=None if config.client_ca is None else str(config.client_ca),
        client_role=config.client_role,
        groups_retention=config.groups_retention,
        node=config.network,
    )


def start_server(config: ReceiverServiceConfig, port: int) -> ReceiverServiceServerProcess:
    """Start the log server. Raises TransportError if it cannot listen, or cannot use its certificate."""
    return ReceiverServiceServerProcess.start(server_config(config, port))
