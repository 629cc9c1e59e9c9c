"""The common part of the commands that join a domain: their options, and the participant made from them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..api.participant import Participant


def seconds(text: str, option: str | None = None) -> float:
    """Seconds of a duration written as in options, or of a plain number; ``option`` is named in the error."""
    from ..options import texts

    try:
        return texts.seconds(texts.duration(text.strip(), unit="s"))
    except ValueError:
        message = f"{text!r} is not a duration; write it as 200ms, 3s or 5min"
        raise typer.BadParameter(message, param_hint=option) from None


Domain = Annotated[int, typer.Option("--domain", "-d", min=0, max=232, help="The DDS domain to join.")]
Interface = Annotated[
    str | None,
    typer.Option("--interface", "-i", help="Name or address of the interface; all but loopback by default."),
]
Peers = Annotated[
    str, typer.Option("--peers", help="Hosts to announce to by unicast, comma-separated: host, host:port.")
]


#: Of commands that also take the domain from ROS 2's environment.
AnyDomain = Annotated[
    int | None,
    typer.Option(
        "--domain", "-d", min=0, max=232, help="The DDS domain to join: 0, with --ros that of ROS_DOMAIN_ID."
    ),
]
Ros = Annotated[bool, typer.Option("--ros", help="Names, types and environment are those of ROS 2.")]


def ros_distribution() -> str:
    """The ROS 2 distribution of ROS_DISTRO, whose definitions are used for types that are known by name only; default:
    that of the option type.ros_distribution."""
    from ..options.table import BY_KEY

    spec = BY_KEY["type.ros_distribution"]
    named = os.environ.get("ROS_DISTRO", "").strip().lower()
    return named if named in spec.choices else spec.default or ""


def joined(
    domain: int | None, interface: str | None, peers: str, *, name: str, node: str | None = None
) -> Participant:
    """A participant for one command, named ``name``; to be entered by ``with``. ``node``: its name in a ROS graph."""
    from ..api.participant import Participant

    options: dict[str, str | bool] = {"participant.name": name}
    if node is not None:
        options |= {"ros": True, "ros.node": node}
    return Participant(domain, interface=interface, peers=peers or None, options=options)
