"""``spark-rtps ls --ros`` and ``echo --ros`` on a graph that has a node of ours and a writer of Cyclone DDS."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from spark_rtps.cli import app
from spark_rtps.monitoring.ros_nodes import nodes_of
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import RosNode
from spark_rtps.transport.net.ros_graph import RosGraph
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.qos import DurabilityKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.types.ros import ros_type
from spark_rtps.transport.types.ros_hash import user_data_of
from spark_rtps.transport.wire.samples import Samples
from tests.interop import ros_types
from tests.interop.cyclone_peer import CyclonePeer
from tests.support.waiting import wait_until


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_ls_and_echo(
    domain: int,
    cyclone: Callable[..., CyclonePeer],
    participate: Callable[..., Node],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nodes come from the graph; a peer that publishes no graph has no node. The domain is that of ROS_DOMAIN_ID."""
    struct = ros_type("geometry_msgs/msg/Point")
    node = participate(ros=RosNode("bridge", "/robot1"))
    qos = Qos(
        reliability=ReliabilityKind.RELIABLE,
        durability=DurabilityKind.TRANSIENT_LOCAL,
        user_data=user_data_of(struct),
    )
    writer = node.create_writer(WriterSpec("rt/robot1/point", struct.name, qos))
    peer = cyclone()
    peer.writer("rt/temperature", ros_types.Temperature, transient_local=True)
    header = {"stamp": {"sec": 1, "nanosec": 2}, "frame_id": "map"}
    peer.write("rt/temperature", [{"header": header, "temperature": 21.5, "variance": 0.5}])
    monkeypatch.setenv("ROS_DOMAIN_ID", str(domain))
    on, seen = ("--ros", "--interface", "lo"), {}

    def is_seen() -> bool:
        listed = run("ls", *on, "--wait", "500ms", "--json")
        assert listed.exit_code == 0, listed.output
        seen.update(json.loads(listed.stdout))
        return len(seen["endpoints"]) == 2 and seen["nodes"] == ["/robot1/bridge"]

    wait_until(is_seen, lambda: f"a node and two topics, not {seen}")
    point, temperature = seen["endpoints"]
    assert (point["topic"], point["type"]) == ("/robot1/point", "geometry_msgs/msg/Point")
    assert (point["kind"], point["node"]) == ("publisher", "/robot1/bridge")
    assert (temperature["topic"], temperature["node"]) == ("/temperature", "")
    assert "/robot1/bridge" in run("ls", *on, "--wait", "1s").stdout

    body = np.frombuffer(b"\0\1\0\0" + np.array([1, 2, 3], "<f8").tobytes(), np.uint8)
    writer.write_samples(Samples(body, 1, stride=len(body), size=len(body)))
    for topic, expected in (
        ("/robot1/point", {"x": 1.0, "y": 2.0, "z": 3.0}),  # which announces its name and hash alone
        ("temperature", {"header": header, "temperature": 21.5, "variance": 0.5}),
    ):
        echoed = run("echo", topic, *on, "--count", "1", "--timeout", "60s")
        assert echoed.exit_code == 0, echoed.output
        assert json.loads(echoed.stdout) == expected


def test_ls_of_no_graph(domain: int) -> None:
    shown = run("ls", "--ros", "--interface", "lo", "--wait", "200ms", "--domain", str(domain))
    assert f"no node and no topic of ROS 2 seen on domain {domain}" in shown.stdout


@pytest.mark.parametrize("size", [16, 24])
@pytest.mark.parametrize("endpoints", [0, 3])
def test_the_graph_is_read_as_it_is_written(size: int, endpoints: int) -> None:
    prefix = bytes(range(1, 13))
    guids = [Guid(prefix, bytes((0, 0, i, 4))) for i in range(endpoints)]
    graph = RosGraph(
        RosNode("n", "/a" * endpoints or "/", gid_bytes=size),
        prefix,
        StatefulWriter(Guid(prefix, b"\0\0\1\3"), Qos()),
    )
    for guid in guids:
        graph.add_endpoint(guid, writes=bool(guid.entity[2] % 2))
    sample = np.frombuffer(graph.sample(), np.uint8)
    ((owner, (node,)),) = nodes_of(Samples(sample, 1, stride=len(sample), size=len(sample)))
    assert owner == prefix
    assert (node.name, node.endpoints) == (f"{'/a' * endpoints}/n", frozenset(guids))
    for end in range(4, len(sample), 4):
        cut = sample[:end].copy()
        list(nodes_of(Samples(cut, 1, stride=end, size=end)))  # raises nothing
