"""``spark-rtps ls``: the participants of a domain, and what they read and write."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from .network import AnyDomain, Interface, Peers, Ros, joined, seconds
from .receivers import (
    PATIENCE_SECONDS,
    Access,
    Ca,
    Certificate,
    Key,
    Receiver,
    TokenFile,
    asking,
    only_here,
    served_at,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..monitoring.seen_topics import SeenEndpoint, SeenTopics
    from ..serving.wire_format.served import Served


def ls(
    domain: AnyDomain = None,
    interface: Interface = None,
    peers: Peers = "",
    wait: Annotated[str, typer.Option("--wait", "-w", help="How long to listen: 500ms, 3s, 5min.")] = "3s",
    receiver: Receiver = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    ros: Ros = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """List the participants, topics, types and QoS seen on a domain, or on the domain of a receiver."""

    from ..monitoring.seen_topics import SeenTopics

    patience = seconds(wait, "--wait")
    if receiver is not None:
        for given, option in (
            (domain, "--domain"),
            (ros, "--ros"),
            (interface, "--interface"),
            (peers, "--peers"),
        ):
            only_here(given, option)
        seen = _seen_by(served_at([receiver], Access(token_file, ca, certificate, key))[0], patience)
    elif ros:
        from .ros import HIDDEN_NODE, list_graph

        with joined(domain, interface, peers, name="spark-rtps ls", node=HIDDEN_NODE) as participant:
            list_graph(participant, patience, as_json=as_json)
        return
    else:
        with joined(domain, interface, peers, name="spark-rtps ls") as participant:
            time.sleep(patience)
            seen = SeenTopics.describe(
                participant.domain, participant.participants(), participant.endpoints()
            )
    if as_json:
        typer.echo(json.dumps(seen.as_json(), indent=2))
    else:
        _print_tables(seen, patience)


def _seen_by(served: Served, patience: float) -> SeenTopics:
    """The endpoints that a receiver discovers while it listens for ``patience`` seconds."""
    from ..serving.client.receiver_reports import ReceiverReports
    from ..serving.wire_format.receiver_service import LISTEN_SECONDS_ASKED_MAX

    if patience > LISTEN_SECONDS_ASKED_MAX:
        message = f"a receiver listens for {LISTEN_SECONDS_ASKED_MAX:g} s at most"
        raise typer.BadParameter(message, param_hint="--wait")
    with asking(served.addresses[0]):
        return ReceiverReports(served, patience=PATIENCE_SECONDS).topics(patience)


def _print_tables(seen: SeenTopics, patience: float) -> None:
    from .tables import output, sentence, show, table

    if not seen.participants:
        show(output(), [sentence(f"no participant seen on domain {seen.domain} within {patience:g} s")])
        return
    participants = [(p.guid_prefix, p.name, p.vendor, "\n".join(p.addresses)) for p in seen.participants]
    endpoints = together(seen.endpoints)
    columns = ("GUID prefix", "name", "vendor", "address")
    parts = [
        table(f"participants of domain {seen.domain}", columns, participants),
        table("topics", ("topic", "type", "", "QoS", "participant"), endpoints),
    ]
    show(output(), parts)


def together(endpoints: Iterable[SeenEndpoint]) -> list[tuple[str, ...]]:
    """The endpoints as rows. Endpoints that would look the same, such as the writers of a sink's workers, share a
    row."""
    found = Counter((e.topic, e.type, e.kind, ", ".join(e.qos), e.participant) for e in endpoints)
    return [(*row, who if n == 1 else f"{who} ({n} of them)") for (*row, who), n in found.items()]
