"""The configuration of a log server, and its limits."""

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
    """The limits of one connection, and of all, in seconds and bytes."""

    connections: int = 256
    #: Of a request's line and headers, and of its body.
    header_bytes: int = 16 << 10
    body_bytes: int = 4 << 20
    #: From a request's first byte to its last one, and for a TLS handshake.
    request_seconds: float = 10.0
    #: Without a request.
    idle_seconds: float = 120.0
    #: Until a client that reads nothing is given up.
    stalled_seconds: float = 60.0
    #: A server that was started for a connection exits when unused for this long.
    unused_seconds: float = 300.0


@value
class LogServerConfig:
    """Where the logs lie, and where they are served to which clients; ``certificate`` and ``key`` are PEM files.

    ``descriptor``: an inherited socket that listens there already; ``logs``: those served from the beginning.
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
    #: Whether it is the server of a receiver service, which uses the fields below; ``token`` is unused then.
    receiver_service: bool = False
    #: Role -> token.
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: PEM file: clients with a certificate of this authority have the role ``client_role``.
    client_ca: str | None = None
    client_role: str = "commit"
    #: Nanoseconds after which a consumer group without commits is removed.
    groups_retention: int = 7 * 86_400 * 10**9
    #: How ``/v1/topics`` joins the domain; None: it does not.
    node: NodeConfig | None = None

    def to_json(self) -> str:
        """The configuration as one line of JSON."""
        raw = {**dataclasses.asdict(self), "log_dir": str(self.log_dir), "tokens": dict(self.tokens)}
        if self.node is not None:
            raw["node"]["guid_prefix"] = None  # the observing participant is another one
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
    # imported here: the server of a query does not need it, and would start three times slower
    from ...transport.net.node_config import NodeConfig
    from ...transport.protocol.trust import Trust

    lists = {name: tuple(raw[name]) for name in ("peers", "peers_allowed")}
    return NodeConfig(**{**raw, **lists, "trust": Trust(raw["trust"])})
