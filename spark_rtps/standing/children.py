"""The processes of a standing receiver, as they are started for real."""

from __future__ import annotations

from ..serving.process import RangeServerConfig, StandingServerProcess
from .config import StandingConfig


def server_config(config: StandingConfig, port: int) -> RangeServerConfig:
    """The range server's part of what the file says."""
    return RangeServerConfig(
        log_dir=config.directory,
        address=config.address,
        port=port,
        token="",  # roles have tokens of their own
        certificate=None if config.certificate is None else str(config.certificate),
        key=None if config.key is None else str(config.key),
        standing=True,
        tokens=config.tokens or {},
        client_ca=None if config.client_ca is None else str(config.client_ca),
        client_role=config.client_role,
        groups_retention=config.groups_retention,
        node=config.network,
    )


def start_server(config: StandingConfig, port: int) -> StandingServerProcess:
    """Start the range server. Raises TransportError if it cannot listen, or cannot use its certificate."""
    return StandingServerProcess.start(server_config(config, port))
