"""Topics of ROS 2 that are read together: namespaces, remappings and partitions, types by name and hash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.columns.topic_plan import TopicPlan
from spark_rtps.datasource.receiver_session import ReceiverSession
from spark_rtps.datasource.source import Ros2DataSource
from spark_rtps.options import AppliesTo, Payload
from spark_rtps.transport.errors import OptionError
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.types.ros import ros_type
from spark_rtps.transport.types.ros_hash import user_data_of
from tests.interop import ros_types
from tests.interop.cyclone_peer import CyclonePeer
from tests.support.live_source import receiving, rows

TEMPERATURE, RANGE = "sensor_msgs/msg/Temperature", "sensor_msgs/msg/Range"


def source(domain: int, directory: Path, **options: object) -> Ros2DataSource:
    given = {"domain": domain, "interface": "lo", "log.dir": directory, **options}
    return Ros2DataSource({key.replace("__", "."): str(value) for key, value in given.items()})


def temperatures(session: ReceiverSession, plan: TopicPlan, count: int) -> set[tuple[str, float]]:
    return {(row["topic"], row["temperature"]) for row in rows(session, plan, count)}


def row(degrees: float) -> dict[str, Any]:
    header = {"stamp": {"sec": 1, "nanosec": 2}, "frame_id": "map"}
    return {"header": header, "temperature": degrees, "variance": 0.5}


def test_a_pattern_within_a_namespace_and_partitions(
    domain: int, tmp_path: Path, cyclone: Callable[..., CyclonePeer]
) -> None:
    """Topics join that are written later; those of other namespaces and partitions are not even matched."""
    asked = {"subscribePattern": "(front|rear)/.*", "ros.namespace": "/robot1", "partition": "cell*"}
    peer, late, other = cyclone(), cyclone(), cyclone()
    read = {"rt/robot1/front/temperature": 1.0, "rt/robot1/rear/temperature": 2.0}
    not_read = ["rt/robot2/front/temperature", "rt/robot1/top/temperature", "rt/front/temperature"]
    for topic in ("rt/robot1/front/temperature", *not_read):
        peer.writer(topic, ros_types.Temperature, keep=5, partition=("cell1",))
    other.writer("rt/robot1/front/temperature", ros_types.Temperature, keep=5, partition=("hall",))
    with receiving(source(domain, tmp_path, **asked, type=TEMPERATURE)) as (session, plan):
        late.writer("rt/robot1/rear/temperature", ros_types.Temperature, keep=5, partition=("cell2",))
        for each, topic in zip((peer, late), read, strict=True):
            each.wait_for_match(topic)
            each.write(topic, [row(read[topic])])
        assert temperatures(session, plan, 2) == set(read.items())
        assert [peer.matched(topic) for topic in not_read] == [[], [], []]
        assert other.matched("rt/robot1/front/temperature") == []


def test_names_are_remapped_and_patterns_are_not(
    domain: int, tmp_path: Path, cyclone: Callable[..., CyclonePeer]
) -> None:
    peer = cyclone()
    names = {"rt/robot1/front/temperature": 1.0, "rt/temperature": 2.0, "rt/robot1/left": 3.0}
    for topic in names:
        peer.writer(topic, ros_types.Temperature, transient_local=True, keep=5)
        peer.write(topic, [row(names[topic])])
    asked = {"ros.namespace": "robot1", "ros.remap": "left:=front/temperature", "type": TEMPERATURE}
    with receiving(source(domain, tmp_path, **asked, subscribe="left, /temperature")) as (session, plan):
        found = temperatures(session, plan, 2)
    assert found == {("rt/robot1/front/temperature", 1.0), ("rt/temperature", 2.0)}
    with receiving(source(domain, tmp_path, **asked, subscribePattern="left")) as (
        session,
        plan,
    ):
        assert temperatures(session, plan, 1) == {("rt/robot1/left", 3.0)}


# --- types that are not announced ---------------------------------------------------------------------


def writes(
    node: Node, topic: str, name: str, distribution: str = "jazzy", user_data: bytes | None = None
) -> None:
    """As rmw does it: with the name of the type and its hash."""
    struct = ros_type(name, distribution)
    reported = user_data_of(struct) if user_data is None else user_data
    node.create_writer(WriterSpec(topic, struct.name, Qos(user_data=reported)))


def test_one_type_by_its_name(domain: int, tmp_path: Path, participate: Callable[..., Node]) -> None:
    node = participate()
    for name in ("a", "b"):
        writes(node, f"rt/{name}/range", RANGE, "humble")
    writes(node, "rt/other", TEMPERATURE)
    for asked in ({"subscribePattern": "/./range"}, {"subscribe": "a/range,/b/range"}):
        found = source(domain, tmp_path, **asked)
        assert found.schema().names[:2] == ["topic", "header"]
        assert found._topic_type is not None and found._topic_type.struct == ros_type(RANGE, "humble")
    both = source(domain, tmp_path, subscribePattern="/.*")
    assert both.schema().names[:3] == ["topic", "type_name", "type_hash"]
    assert both._settings(AppliesTo.READ).payload is Payload.BINARY


def test_a_definition_that_nobody_knows(
    domain: int, tmp_path: Path, participate: Callable[..., Node]
) -> None:
    writes(participate(), "rt/range", RANGE, user_data=f"typehash=RIHS01_{'0' * 64};".encode())
    with pytest.raises(OptionError, match=r"RIHS01_0+: give its \.msg file"):
        source(domain, tmp_path, subscribePattern=".*").schema()
