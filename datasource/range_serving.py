"""Where tasks on other hosts fetch the samples of a query's log: the listening server, and its description for
tasks."""

from __future__ import annotations

import logging
import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from ..options import Settings
from ..serving.server.listening import reached_at
from ..serving.server.on_demand_server import OnDemandServer
from ..serving.server.process import LogServerConfig
from ..serving.wire_format.loopback import loopback_network
from ..serving.wire_format.served import Served
from ..transport.errors import OptionError
from ..transport.net.interfaces import interfaces, select

_log = logging.getLogger("spark_rtps.datasource")

_ANY: Final = "0.0.0.0"
_LOOPBACK: Final = "127.0.0.1"
_NONE: Final = "none"
#: The address that the user has chosen for Spark on this host.
_SPARK_ADDRESS: Final = "SPARK_LOCAL_IP"
_TOKEN_BYTES: Final = 32
#: How long the addresses of this host count as unchanged.
_LOOK_SECONDS: Final = 5.0
_CERTIFICATE: Final = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


class QueryLogServer(Protocol):
    """The part of :class:`OnDemandServer` that is used here."""

    @property
    def port(self) -> int: ...
    def serve(self, log: str) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


class Listen(Protocol):
    """Makes a server, which listens from then on."""

    def __call__(self, config: LogServerConfig, *, crossed: Callable[[str], None]) -> QueryLogServer: ...


class RangeServing:
    """Listens as soon as the first range is planned. A server runs once a task has connected.

    Where the user has set an address or a certificate, it starts at once, so that errors in them surface early.
    """

    def __init__(self, settings: Settings, *, listen: Listen = OnDemandServer) -> None:
        self._settings = settings
        self._listen = listen
        self._token = secrets.token_hex(_TOKEN_BYTES)
        self._server: QueryLogServer | None = None
        self._certificate: str | None = None
        self._address = ""
        self._served: Served | None = None
        self._looked_at = 0.0

    def served(self, log: str) -> Served | None:
        """Where tasks fetch ``log`` from; None: it is not served. Raises RtpsError if the server cannot start."""
        if self._settings.serve_address == _NONE:
            return None
        server = self._server or self._begin()
        server.serve(log)
        now = time.monotonic()
        if self._served is None or now >= self._looked_at + _LOOK_SECONDS:
            self._served, self._looked_at = self._look(server), now
        return self._served

    def stop(self) -> None:
        server, self._server, self._served = self._server, None, None
        if server is not None:
            server.stop()

    def _look(self, server: QueryLogServer) -> Served:
        """Where other hosts reach this one now."""
        hosts = reached_at(os.environ.get(_SPARK_ADDRESS)) if self._address == _ANY else [self._address]
        addresses = tuple(f"{host}:{server.port}" for host in hosts)
        return Served(addresses, self._token, self._certificate, network=loopback_network(addresses))

    def _begin(self) -> QueryLogServer:
        settings = self._settings
        if settings.serve_certificate is not None:
            self._certificate = _certificates(settings.serve_certificate)
        self._address = settings.serve_address or _own_address(settings.interface)
        server = self._listen(
            LogServerConfig(
                log_dir=settings.log_dir,
                address=self._address,
                port=settings.serve_port,
                token=self._token,
                certificate=settings.serve_certificate,
                key=settings.serve_key,
            ),
            crossed=self._crossed,
        )
        try:
            if settings.serve_address is not None or settings.serve_certificate is not None:
                server.start()
        except BaseException:
            server.stop()
            raise
        self._server = server
        return server

    def _crossed(self, peer: str) -> None:
        """The first peer on another host has been admitted."""
        if self._settings.serve_certificate is None:
            _log.warning(
                "topic %r: tasks on other hosts, the first at %s, fetch samples in the clear; set serve.certificate "
                "and serve.key for TLS",
                self._settings.topic,
                peer,
            )


def _own_address(interface: str | None) -> str:
    """All addresses; only loopback where the query is to stay there, or where there is nothing else."""
    chosen = interfaces() if interface is None else select(interface)
    return _LOOPBACK if all(each.is_loopback for each in chosen) else _ANY


def _certificates(path: str) -> str:
    """The certificates in a PEM file, which may hold the key as well."""
    try:
        text = Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError("serve.certificate", path, f"cannot be read: {error}") from error
    return "\n".join(_CERTIFICATE.findall(text))
