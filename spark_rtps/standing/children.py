"""The processes of a standing receiver, as they are started for real."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from ..serving.process import RangeServerConfig, RangeServerProcess
from ..serving.standing import ROLES
from ..transport.errors import RtpsError
from .config import StandingConfig
from .server_keeper import Request, Server


class LogServer:
    """A range server that serves the logs of all subscriptions, with the strongest of the tokens."""

    def __init__(self, process: RangeServerProcess) -> None:
        self._process = process
        self._served: set[str] = set()

    @classmethod
    def start(cls, config: StandingConfig, port: int) -> Server:
        """Start the server. Raises TransportError if it cannot listen, or cannot use its certificate."""
        tokens = config.tokens or {}
        token = next((tokens[role] for role in reversed(ROLES) if role in tokens), None)
        return cls(
            RangeServerProcess.start(
                RangeServerConfig(
                    log_dir=config.directory,
                    address=config.address,
                    port=port,
                    token=token or secrets.token_hex(32),
                    certificate=None if config.certificate is None else str(config.certificate),
                    key=None if config.key is None else str(config.key),
                )
            )
        )

    @property
    def port(self) -> int:
        return self._process.port

    def tell(self, subscriptions: Sequence[Mapping[str, Any]]) -> None:
        for each in subscriptions:
            if each["log"] not in self._served:
                self._process.serve(each["log"])
                self._served.add(each["log"])

    def requests(self) -> Sequence[Request]:
        self._process.notes()
        return ()

    def fileno(self) -> int:
        return self._process.fileno()

    def answer(self, number: int, *, name: str | None = None, error: str | None = None) -> None:
        raise RtpsError(f"nobody asked for {number}: {name or error}")

    def check(self) -> None:
        self._process.check()

    def stop(self) -> None:
        self._process.stop()
