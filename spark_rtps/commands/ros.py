"""The output of ``spark-rtps ls --ros``: nodes, and topics under their ROS 2 names."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import typer

from ..transport.value_classes import value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..api.participant import Participant
    from ..monitoring.ros_nodes import RosNodeSeen
    from ..transport.protocol.participant.participant import RemoteEndpoint

#: Name prefix of the nodes that ROS 2's tools hide.
HIDDEN_NODE: Final = "_spark_rtps_cli"
#: The limit for unread samples of the graph, in bytes.
_INBOX_BYTES: Final = 16 << 20


@value
class RosEndpoint:
    """A publisher or a subscription (``kind``) of a node, in ROS 2's words."""

    topic: str
    type: str
    kind: str
    qos: tuple[str, ...]
    node: str


def list_graph(participant: Participant, patience: float, *, as_json: bool) -> None:
    """Listen for ``patience`` seconds, then print the nodes and topics that were seen."""
    nodes = _listen(participant, patience)
    endpoints = ros_endpoints(nodes, participant.endpoints())
    names = sorted({node.name for node in nodes} - {f"/{HIDDEN_NODE}"})
    if as_json:
        typer.echo(json.dumps({"nodes": names, "endpoints": [asdict(each) for each in endpoints]}, indent=2))
        return
    from .tables import output, sentence, show, table

    if not names and not endpoints:
        seen = f"no node and no topic of ROS 2 seen on domain {participant.domain} within {patience:g} s"
        show(output(), [sentence(seen)])
        return
    rows = [(e.topic, e.type, e.kind, ", ".join(e.qos), e.node) for e in endpoints]
    parts = [
        table(f"nodes of domain {participant.domain}", ("node",), [(name,) for name in names]),
        table("topics", ("topic", "type", "", "QoS", "node"), rows),
    ]
    show(output(), parts)


def ros_endpoints(nodes: Iterable[RosNodeSeen], endpoints: Iterable[RemoteEndpoint]) -> list[RosEndpoint]:
    """The endpoints on topics of ROS 2, each with its node, which is empty for other participants."""
    from ..monitoring.seen_topics import qos_words
    from ..options.ros import ros_name

    owners = {guid: node.name for node in nodes for guid in node.endpoints}
    kinds = {"writer": "publisher", "reader": "subscription"}
    found = [
        RosEndpoint(
            topic,
            _type(each.type_name),
            kinds[each.kind],
            tuple(qos_words(each.qos)),
            owners.get(each.guid, ""),
        )
        for each in endpoints
        if (topic := ros_name(each.topic)) is not None
    ]
    return sorted(found, key=lambda each: (each.topic, each.kind, each.node))


def _type(name: str) -> str:
    from ..transport.errors import TypeDefinitionError
    from ..transport.types.ros_names import ros_type_name

    try:
        return ros_type_name(name)
    except TypeDefinitionError:
        return name


def _listen(participant: Participant, patience: float) -> list[RosNodeSeen]:
    """The nodes that participants publish, as last published."""
    from ..api.inbox import Inbox
    from ..monitoring.ros_nodes import nodes_of
    from ..transport.net.ros_graph import GRAPH_QOS, GRAPH_TOPIC, GRAPH_TYPE
    from ..transport.protocol.participant.endpoint_specs import ReaderSpec

    inbox = Inbox(participant.node, capacity=_INBOX_BYTES)
    inbox.join_topic(ReaderSpec(GRAPH_TOPIC, GRAPH_TYPE, GRAPH_QOS))
    deadline = time.monotonic() + patience
    by_participant: dict[bytes, list[RosNodeSeen]] = {}
    while True:
        arrivals = inbox.arrived.count
        for frame in inbox.take_frames():
            for prefix, nodes in nodes_of(frame.run.samples()):
                if prefix == frame.run.writer.prefix:  # a participant may only publish its own nodes
                    by_participant[prefix] = nodes
        inbox.hold(0)
        inbox.go_on()
        if time.monotonic() >= deadline or not inbox.arrived.wait(arrivals, deadline):
            break
    inbox.close()
    there = {each.guid_prefix for each in participant.participants()}
    return [node for prefix, nodes in by_participant.items() if prefix in there for node in nodes]
