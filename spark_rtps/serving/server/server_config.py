"""The configuration of a log server, and how long it waits for whom."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...transport.value_classes import value

if TYPE_CHECKING:
    from ...transport.net.node_config import NodeConfig


@value
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


@value
class LogServerConfig:
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
    #: Whether it is the server of a receiver service, which the rest is for; ``token`` is unused then.
    receiver_service: bool = False
    #: Role -> token.
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: PEM file: clients with a certificate of this authority have the role ``client_role``.
    client_ca: str | None = None
    client_role: str = "commit"
    #: Nanoseconds after which a consumer group is removed that committed nothing.
    groups_retention: int = 7 * 86_400 * 10**9
    #: How ``/v1/topics`` joins the domain; None: it does not.
    node: NodeConfig | None = None

    def to_json(self) -> str:
        """The configuration as one line of JSON."""
        raw = {**dataclasses.asdict(self), "log_dir": str(self.log_dir), "tokens": dict(self.tokens)}
        if self.node is not None:
            raw["node"]["guid_prefix"] = None  # a participant that looks around is another one
        return json.dumps(raw)

    @classmethod
    def from_json(cls, text: str) -> LogServerConfig:
        raw = json.loads(text)
        read: dict[str, Any] = {
            "log_dir": Path(raw["log_dir"]),
            "bounds": Bounds(**raw["bounds"]),
            "logs": tuple(raw["logs"]),
        }
        if raw.get("node") is not None:
            read["node"] = _node(raw["node"])
        return cls(**{**raw, **read})


def _node(raw: dict[str, Any]) -> NodeConfig:
    # here: a query's server has no use for it, and would start three times slower
    from ...transport.net.node_config import NodeConfig
    from ...transport.protocol.trust import Trust

    lists = {name: tuple(raw[name]) for name in ("peers", "peers_allowed")}
    return NodeConfig(**{**raw, **lists, "trust": Trust(raw["trust"])})
