"""A node in a ROS graph: what ROS 2's peers see of it, and how it meets their names, types and QoS."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.api.participant import Participant
from spark_rtps.columns.topic_plan import TopicPlan, plan_reading, schema_to_read, topic_type
from spark_rtps.columns.type_sources import discovered_type
from spark_rtps.datasource.receiver_session import ReceiverSession
from spark_rtps.options import AppliesTo, Settings, parse_options
from spark_rtps.transport.errors import OptionError
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import RosNode
from spark_rtps.transport.net.ros_graph import GRAPH_TOPIC
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.qos import DurabilityKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import ENTITYID_PARTICIPANT, Guid
from spark_rtps.transport.types.ros import ros_type
from spark_rtps.transport.types.ros_hash import type_hash, user_data_of
from tests.interop import ros_types
from tests.interop.cyclone_peer import CyclonePeer
from tests.interop.test_interop_naming import wait_for_rows
from tests.support.waiting import wait_until

TEMPERATURE = "sensor_msgs/msg/Temperature"


def gid(guid: Guid, size: int = 16) -> dict[str, bytes]:
    return {"data": (guid.prefix + guid.entity).ljust(size, b"\0")}


class _Nobody:
    def room(self) -> int:
        return 0

    def deliver(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("kind", "size"),
    [(ros_types.ParticipantEntitiesInfo, 16), (ros_types.ParticipantEntitiesInfoOfHumble, 24)],
)
def test_peers_see_the_node_and_its_endpoints(
    cyclone: Callable[..., CyclonePeer], participate: Callable[..., Node], kind: type, size: int
) -> None:
    ros = RosNode("bridge", "/robot1", gid_bytes=size)
    early, node = cyclone(), participate(ros=ros)
    early.reader(GRAPH_TOPIC, kind, transient_local=True)
    reported: dict[str, Any] = {}

    def says(readers: list[Guid], writers: list[Guid], peer: CyclonePeer = early) -> None:
        expected = {
            "gid": gid(Guid(node.guid_prefix, ENTITYID_PARTICIPANT), size),
            "node_entities_info_seq": [
                {
                    "node_namespace": "/robot1",
                    "node_name": "bridge",
                    "reader_gid_seq": [gid(each, size) for each in readers],
                    "writer_gid_seq": [gid(each, size) for each in writers],
                }
            ],
        }

        def is_reported() -> bool:
            for taken in peer.call("take", GRAPH_TOPIC):
                reported[""] = taken.row
            return reported.get("") == expected

        wait_until(is_reported, lambda: f"{expected}, and not {reported}")

    says([], [])
    writer = node.create_writer(WriterSpec("rt/a", "T", Qos()))
    says([], [writer.guid])
    reader = node.create_reader(ReaderSpec("rt/b", "T", Qos()), _Nobody())
    says([reader.guid], [writer.guid])
    node.delete_endpoint(writer.guid)
    says([reader.guid], [])
    late = cyclone()
    late.reader(GRAPH_TOPIC, kind, transient_local=True)
    reported.clear()
    says([reader.guid], [], late)
    assert all(getattr(event, "topic", "") != GRAPH_TOPIC for event in node.events())


def test_the_participant_has_an_enclave(participate: Callable[..., Node]) -> None:
    node, other = participate(ros=RosNode("n")), participate()
    wait_until(lambda: node.guid_prefix in other.participant.database.participants, "the node")
    assert other.participant.database.participants[node.guid_prefix].user_data == b"enclave=/;"
    wait_until(lambda: other.guid_prefix in node.participant.database.participants, "the other")
    assert node.participant.database.participants[other.guid_prefix].user_data == b""


# --- reading as ROS 2 does -------------------------------------------------------------------------------


def planned(domain: int, directory: Path, topic: str, **options: object) -> tuple[Settings, TopicPlan]:
    given = {"ros": "true", "topic": topic, "domain": domain, "interface": "lo", "log.dir": directory}
    texts = {k.replace("__", "."): str(v) for k, v in {**given, **options}.items()}
    settings = parse_options(texts, AppliesTo.READ)
    found = topic_type(settings)
    return settings, plan_reading(settings, schema_to_read(settings, found), found)


@contextmanager
def receiving(settings: Settings, plan: TopicPlan) -> Iterator[ReceiverSession]:
    session = ReceiverSession.on_new_log(settings, plan)
    try:
        yield session
    finally:
        session.stop()


def row(degrees: float) -> dict[str, Any]:
    header = {"stamp": {"sec": 1, "nanosec": 2}, "frame_id": "map"}
    return {"header": header, "temperature": degrees, "variance": 0.5}


@pytest.mark.parametrize("offered", ["sensor data", "reliable", "latched"])
def test_the_requested_qos_is_that_of_the_writer(
    domain: int, tmp_path: Path, cyclone: Callable[..., CyclonePeer], offered: str
) -> None:
    """The type comes by its name, since a query starts before its writer; a restarted receiver requests the same."""
    settings, plan = planned(domain, tmp_path, "/temperature", type=TEMPERATURE)
    reliable, kept = offered != "sensor data", offered == "latched"
    peer, topic = cyclone(), "rt/temperature"
    with receiving(settings, plan) as session:
        peer.writer(topic, ros_types.Temperature, reliable=reliable, transient_local=kept, keep=5)
        if not kept:
            peer.wait_for_match(topic)
        peer.write(topic, [row(1.0)])
        assert wait_for_rows(session, plan, 1) == [row(1.0)]
        requested = {
            "reliability": "RELIABLE" if reliable else "BEST_EFFORT",
            "durability": "TRANSIENT_LOCAL" if kept else "VOLATILE",
        }
        assert LogView(session.directory).metadata["requested"] == requested
        reader = peer.discovered("subscription", topic)
        assert reader["user_data"] == f"typehash={type_hash(ros_type(TEMPERATURE))};".encode()
        (guid,) = peer.matched(topic)
        os.kill(session._receiver.pid, signal.SIGKILL)
        wait_until(lambda: session.tail() and session.supervision.deaths, "another receiver")
        wait_until(lambda: session.counters().get("reader.matched_writers") == 1, "a match")
        peer.write(topic, [row(2.0)])
        assert wait_for_rows(session, plan, 2) == [row(1.0), row(2.0)]
        assert peer.matched(topic) == [guid]


def test_the_requested_qos_is_what_all_writers_offer(
    domain: int, tmp_path: Path, cyclone: Callable[..., CyclonePeer]
) -> None:
    """One of best effort decides for all."""
    first, second, topic = cyclone(), cyclone(), "rt/temperature"
    first.writer(topic, ros_types.Temperature, keep=5)
    second.writer(topic, ros_types.Temperature, reliable=False, keep=5)
    settings, plan = planned(domain, tmp_path, "temperature", type=TEMPERATURE)
    with receiving(settings, plan) as session:
        for peer in (first, second):
            peer.wait_for_match(topic)
            peer.write(topic, [row(3.0)])
        assert wait_for_rows(session, plan, 2) == [row(3.0)] * 2


# --- types by the name that the writer gives them ---------------------------------------------------------


def temperature_writer(node: Node, user_data: bytes = b"") -> None:
    name = ros_type(TEMPERATURE).name
    node.create_writer(WriterSpec("rt/temperature", name, Qos(user_data=user_data)))


def test_a_type_by_its_writers_name(domain: int, tmp_path: Path, participate: Callable[..., Node]) -> None:
    """ROS 2's peers announce names and hashes, and seldom types."""
    node = participate()
    writer = ros_type("geometry_msgs/msg/Inertia", "humble")
    node.create_writer(WriterSpec("rt/inertia", writer.name, Qos(user_data=user_data_of(writer))))
    _, plan = planned(domain, tmp_path, "/inertia")
    assert plan.struct == writer
    assert plan.type_name == "geometry_msgs::msg::dds_::Inertia_"
    reader = parse_options(
        {"ros": "true", "topic": "/inertia", "domain": str(domain), "interface": "lo"}, AppliesTo.READ
    )
    assert discovered_type(reader).struct == writer


def test_the_distribution_follows_from_the_hash(
    domain: int, tmp_path: Path, participate: Callable[..., Node]
) -> None:
    old, new = (ros_type("sensor_msgs/msg/Range", each) for each in ("humble", "jazzy"))
    assert old != new
    participate().create_writer(WriterSpec("rt/range", old.name, Qos(user_data=user_data_of(old))))
    _, plan = planned(domain, tmp_path, "/range")
    assert plan.struct == old


def test_a_definition_that_nobody_knows(
    domain: int, tmp_path: Path, participate: Callable[..., Node]
) -> None:
    temperature_writer(participate(participant_name="robot"), f"typehash=RIHS01_{'0' * 64};".encode())
    with pytest.raises(OptionError, match=r"that robot announces, RIHS01_0+: give its \.msg file"):
        planned(domain, tmp_path, "/temperature")


def test_a_reader_of_ours_reads_the_graph(participate: Callable[..., Node]) -> None:
    """As other participants of ours see it: one sample, kept for late joiners."""
    node = participate(ros=RosNode("n"))
    other = participate()
    wait_until(lambda: other.participant.database.endpoints_on(GRAPH_TOPIC), "the graph's writer")
    (writer,) = other.participant.database.endpoints_on(GRAPH_TOPIC)
    assert writer.guid.prefix == node.guid_prefix
    assert (writer.qos.reliability, writer.qos.durability) == (
        ReliabilityKind.RELIABLE,
        DurabilityKind.TRANSIENT_LOCAL,
    )


# --- types that are not announced ---------------------------------------------------------------------


@pytest.mark.parametrize(("options", "announced"), [({}, True), ({"type.announce": "false"}, False)])
def test_a_type_by_its_name_alone(
    domain: int, cyclone: Callable[..., CyclonePeer], options: dict[str, str], announced: bool
) -> None:
    """A peer that knows the type matches by its name, and has nothing that it could ask for."""
    peer = cyclone()
    peer.reader("rt/temperature", ros_types.Temperature)
    with (
        Participant(domain, interface="lo") as ours,
        ours.publish("rt/temperature", type=TEMPERATURE, options=options) as publication,
    ):
        peer.wait_for_match("rt/temperature")
        wait_until(lambda: peer.discovered("publication", "rt/temperature"), "the writer")
        assert peer.call("is_announced", "rt/temperature") is announced
        publication.write([row(4.0)])
        (taken,) = peer.take("rt/temperature", 1)
        assert taken.row == row(4.0)
