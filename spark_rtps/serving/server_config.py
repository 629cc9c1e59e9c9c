"""The configuration of a range server, and how long it waits for whom."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one connection, and all of them, may take. Seconds and bytes."""

    connections: int = 256
    #: A request's line and headers, and its body.
    header_bytes: int = 16 << 10
    body_bytes: int = 4 << 20
    #: From a request's first byte to its last one, and for a TLS handshake.
    request_seconds: float = 10.0
    #: Without a request.
    idle_seconds: float = 120.0
    #: Until a reader that takes nothing is given up.
    stalled_seconds: float = 60.0
    #: A server that was started for a connection ends when it was of no use for so long.
    unused_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class RangeServerConfig:
    """Where the logs lie, and at which address they are served to whom; ``certificate`` and ``key`` are PEM files.

    ``descriptor`` is that of a socket which listens there already, and which the server is handed; ``logs`` are those
    that it serves from the beginning on.
    """

    log_dir: Path
    address: str
    port: int
    token: str = field(repr=False)
    certificate: str | None = None
    key: str | None = None
    bounds: Bounds = Bounds()
    descriptor: int | None = None
    logs: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The configuration as one line of JSON."""
        return json.dumps({**dataclasses.asdict(self), "log_dir": str(self.log_dir)})

    @classmethod
    def from_json(cls, text: str) -> RangeServerConfig:
        raw = json.loads(text)
        read = {
            "log_dir": Path(raw["log_dir"]),
            "bounds": Bounds(**raw["bounds"]),
            "logs": tuple(raw["logs"]),
        }
        return cls(**{**raw, **read})
