"""What the commands that join a domain have in common: their options, and the node made from them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..transport.net.node import Node
    from ..transport.protocol.discovery.participant_data import ParticipantData
    from ..transport.protocol.participant import RemoteEndpoint


def seconds(text: str, option: str | None = None) -> float:
    """A duration as options have it, or a plain number of seconds; ``option`` has it, for the message."""
    from ..datasource import quantities

    try:
        return quantities.seconds(quantities.duration(text.strip(), unit="s"))
    except ValueError:
        message = f"{text!r} is no duration; write it as 200ms, 3s or 5min"
        raise typer.BadParameter(message, param_hint=option) from None


Domain = Annotated[int, typer.Option("--domain", "-d", min=0, max=232, help="The DDS domain to join.")]
Interface = Annotated[
    str | None,
    typer.Option("--interface", "-i", help="Name or address of the interface; all but loopback by default."),
]
Peers = Annotated[
    str, typer.Option("--peers", help="Hosts to announce to by unicast, comma-separated: host, host:port.")
]


@contextmanager
def joined(
    domain: int, interface: str | None, peers: str, *, name: str, resolve_types: bool = False
) -> Iterator[Node]:
    """A running participant that says goodbye at the end; ``resolve_types``: it asks peers for their types."""
    from ..transport.net.node import Node, NodeConfig

    names = tuple(peer.strip() for peer in peers.split(",") if peer.strip())
    node = Node(
        NodeConfig(
            domain=domain,
            interface=interface,
            peers=names,
            participant_name=name,
            resolve_types=resolve_types,
        )
    )
    node.start()
    try:
        yield node
    finally:
        node.close()


def seen_participants(node: Node) -> list[ParticipantData]:
    """The participants discovered so far, ourselves not among them."""
    with node.lock:
        return list(node.participant.remote_participants.values())


def seen_endpoints(node: Node) -> list[RemoteEndpoint]:
    """The readers and writers discovered so far, ours not among them."""
    with node.lock:
        return list(node.participant.remote_endpoints)
