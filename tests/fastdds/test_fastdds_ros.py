"""Topics with ROS 2's names that Fast DDS writes, as rmw_fastrtps does: without a type, with a hash since Iron."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import spark_rtps as rtps
from spark_rtps.cli import app
from spark_rtps.datasource.source import Ros2DataSource
from spark_rtps.transport.types.model import Primitive, PrimitiveKind, Struct
from spark_rtps.transport.types.ros import ros_type
from spark_rtps.transport.types.ros_hash import type_hash, user_data_of
from tests.fastdds.fast_peer import FastPeer
from tests.support.live_source import receiving, rows
from tests.support.waiting import wait_until

TEMPERATURE, RANGE = "sensor_msgs/msg/Temperature", "sensor_msgs/msg/Range"
#: What a latched topic of ROS 2 offers.
LATCHED = {"announced": False, "transient_local": True, "keep": 10}


def row(degrees: float) -> dict[str, Any]:
    header = {"stamp": {"sec": 1, "nanosec": 2}, "frame_id": "map"}
    return {"header": header, "temperature": degrees, "variance": 0.5}


def source(domain: int, directory: Path, **options: str) -> Ros2DataSource:
    return Ros2DataSource({"domain": str(domain), "interface": "lo", "log.dir": str(directory), **options})


@pytest.fixture(scope="module")
def robot(peer: FastPeer) -> FastPeer:
    """It writes a temperature by the name of its type alone, and two ranges of Humble, whose hash it tells."""
    peer.writer("rt/robot1/temperature", ros_type(TEMPERATURE), **LATCHED)
    peer.write("rt/robot1/temperature", [row(20.5), row(21.0)])
    struct = ros_type(RANGE, "humble")
    for name in ("front", "rear"):
        topic = f"rt/robot1/{name}/range"
        peer.writer(topic, with_octets(struct), user_data=user_data_of(struct).decode(), **LATCHED)
        peer.write(topic, [distance(1.5 if name == "front" else 2.5)])
    return peer


def with_octets(struct: Struct) -> Struct:
    """The same bytes: dynamic types of Fast DDS 2 have no uint8."""
    octet, uint8 = (Primitive(kind) for kind in (PrimitiveKind.BYTE, PrimitiveKind.UINT8))
    members = (replace(each, type=octet) if each.type == uint8 else each for each in struct.members)
    return replace(struct, members=tuple(members))


def distance(meters: float) -> dict[str, Any]:
    header = {"stamp": {"sec": 1, "nanosec": 2}, "frame_id": "map"}
    return {"header": header, "radiation_type": 1, "field_of_view": 0.5} | {
        "min_range": 0.25,
        "max_range": 8.0,
        "range": meters,
    }


def test_ls_and_echo_name_it_as_ros_does(
    robot: FastPeer, domain: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROS_DOMAIN_ID", str(domain))
    seen: list[dict[str, Any]] = []

    def is_seen() -> bool:
        listed = CliRunner().invoke(app, ["ls", "--ros", "--interface", "lo", "--wait", "500ms", "--json"])
        assert listed.exit_code == 0, listed.output
        seen[:] = json.loads(listed.stdout)["endpoints"]
        return len(seen) == 3

    wait_until(is_seen, lambda: f"three topics, not {seen}")
    assert [(each["topic"], each["type"], each["kind"]) for each in seen] == [
        ("/robot1/front/range", RANGE, "publisher"),
        ("/robot1/rear/range", RANGE, "publisher"),
        ("/robot1/temperature", TEMPERATURE, "publisher"),
    ]
    echo = ["echo", "robot1/temperature", "--ros", "--interface", "lo", "--count", "2", "--timeout", "60s"]
    echoed = CliRunner().invoke(app, echo)
    assert echoed.exit_code == 0, echoed.output
    assert [json.loads(line) for line in echoed.stdout.splitlines()] == [row(20.5), row(21.0)]


@pytest.mark.parametrize("topic", ["/robot1/temperature", "temperature"])
def test_a_fast_dds_writer_is_read_by_its_type_name(
    robot: FastPeer, domain: int, tmp_path: Path, topic: str
) -> None:
    """The type comes by its name; what the writer keeps for late joiners is requested, because it offers it."""
    names = {"topic": topic, "ros.namespace": "/robot1"}
    with receiving(source(domain, tmp_path, **names)) as (session, plan):
        assert rows(session, plan, 2) == [row(20.5), row(21.0)]
        robot.wait_for_match("rt/robot1/temperature")
        robot.write("rt/robot1/temperature", [row(22.0)])
        assert rows(session, plan, 3)[2:] == [row(22.0)]
    robot.wait_for_match("rt/robot1/temperature", 0)
    robot.delete("rt/robot1/temperature")  # what it keeps is as before for the next test
    robot.writer("rt/robot1/temperature", ros_type(TEMPERATURE), **LATCHED)
    robot.write("rt/robot1/temperature", [row(20.5), row(21.0)])


def test_topics_by_a_pattern(robot: FastPeer, domain: int, tmp_path: Path) -> None:
    """Of one type as their hash says; of several with their hashes, where they tell one."""
    with receiving(source(domain, tmp_path, subscribePattern="/robot1/.*/range")) as (session, plan):
        assert plan.struct == ros_type(RANGE, "humble")
        found = {row.pop("topic"): row for row in rows(session, plan, 2)}
    assert found == {"rt/robot1/front/range": distance(1.5), "rt/robot1/rear/range": distance(2.5)}
    with receiving(source(domain, tmp_path, subscribePattern=".*", payload="binary")) as (session, plan):
        reported = {(row["topic"], row["type_name"], row["type_hash"]) for row in rows(session, plan, 4)}
    hashed = type_hash(ros_type(RANGE, "humble"))
    names = {name: ros_type(name).name for name in (TEMPERATURE, RANGE)}
    assert reported == {
        ("rt/robot1/temperature", names[TEMPERATURE], None),
        *((f"rt/robot1/{end}/range", names[RANGE], hashed) for end in ("front", "rear")),
    }


def test_fast_dds_reads_samples_of_our_node(peer: FastPeer, domain: int) -> None:
    peer.reader("rt/robot1/cmd", ros_type(TEMPERATURE), announced=False, keep=10)
    options = {"ros": "true", "ros.namespace": "/robot1"}
    with (
        rtps.Participant(domain, interface="lo", options=options) as ours,
        ours.publish("rt/robot1/cmd", type=TEMPERATURE) as publication,
    ):
        assert publication.wait_for_readers(60)
        publication.write([row(4.0)])
        (taken,) = peer.take("rt/robot1/cmd", 1)
    assert taken.row == row(4.0)
