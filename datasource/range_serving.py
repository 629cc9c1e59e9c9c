"""The range server of a query: it hands the samples of the query's log to tasks on other hosts."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from ..options import Settings
from ..serving.process import RangeServerConfig, RangeServerProcess
from ..serving.served import Served
from ..transport.errors import OptionError, RtpsError
from ..transport.net.interfaces import interfaces

_log = logging.getLogger("spark_rtps.datasource")

_ANY: Final = "0.0.0.0"
_TOKEN_BYTES: Final = 32
_CERTIFICATE: Final = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


class Server(Protocol):
    """The part of :class:`RangeServerProcess` that is used here."""

    @property
    def port(self) -> int: ...
    def serve(self, log: str) -> None: ...
    def check(self) -> None: ...
    def stop(self) -> None: ...


StartServer: TypeAlias = Callable[[RangeServerConfig], Server]


class RangeServing:
    """The server is started when a range is planned first. One that has died is started again at the same port, so that
    tasks which know it find it again."""

    def __init__(self, settings: Settings, *, start: StartServer = RangeServerProcess.start) -> None:
        self._settings = settings
        self._start = start
        self._token = secrets.token_hex(_TOKEN_BYTES)
        self._server: Server | None = None
        self._port = settings.serve_port
        self._logs: dict[str, None] = {}

    def served(self, log: str) -> Served | None:
        """Where tasks fetch ``log`` from; None: it is not served. Raises RtpsError if the server cannot start."""
        settings = self._settings
        if settings.serve_address is None:
            return None
        server = self._running(settings.serve_address)
        if log not in self._logs:
            self._logs[log] = None
            server.serve(log)
        hosts = _addresses() if settings.serve_address == _ANY else [settings.serve_address]
        certificate = (
            None if settings.serve_certificate is None else _certificates(settings.serve_certificate)
        )
        return Served(tuple(f"{host}:{server.port}" for host in hosts), self._token, certificate)

    def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def _running(self, address: str) -> Server:
        if self._server is not None:
            try:
                self._server.check()
            except RtpsError as error:
                _log.warning("%s; starting it again", error)
                self.stop()
        if self._server is None:
            settings = self._settings
            if not self._logs and settings.serve_certificate is None and not address.startswith("127."):
                _log.warning(
                    "topic %r: samples are served at %s in the clear; set serve.certificate and serve.key for TLS",
                    settings.topic,
                    address,
                )
            self._server = self._start(
                RangeServerConfig(
                    log_dir=settings.log_dir,
                    address=address,
                    port=self._port,
                    token=self._token,
                    certificate=settings.serve_certificate,
                    key=settings.serve_key,
                )
            )
            self._port = self._server.port
            for log in self._logs:
                self._server.serve(log)
        return self._server


def _addresses() -> list[str]:
    """Of this host, as others reach it: loopback, where they have other servers, only if there is nothing else."""
    found = interfaces()
    return [i.address for i in found if not i.is_loopback] or [i.address for i in found]


def _certificates(path: str) -> str:
    """The certificates in a PEM file, which may hold the key as well."""
    try:
        text = Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError("serve.certificate", path, f"cannot be read: {error}") from error
    return "\n".join(_CERTIFICATE.findall(text))
