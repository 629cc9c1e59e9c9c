"""Types without IDL: Cyclone's as we find them out, ours as Cyclone and its tools do, and which of them match."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.transport.errors import DropReason
from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.net.recipients import Discard
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.events import IncompatibleQos, Matched
from spark_rtps.transport.protocol.participant.participant import (
    ParticipantConfig,
    RemoteEndpoint,
    RtpsParticipant,
)
from spark_rtps.transport.qos import DataRepresentation, TypeConsistency, TypeConsistencyKind
from spark_rtps.transport.structure import Guid, Locator
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Struct
from tests.interop import cyclone_shapes as shapes
from tests.interop.cyclone_peer import CyclonePeer
from tests.interop.subscription import qos
from tests.support import pcap
from tests.support.virtual_network import MILLISECOND
from tests.support.waiting import PATIENCE, wait_until

XCDR2 = (DataRepresentation.XCDR2,)
TOOL = Path(sys.executable).with_name("cyclonedds")
TOOL_CONFIG = (
    '<CycloneDDS><Domain><General><Interfaces><NetworkInterface name="lo"/></Interfaces></General></Domain>'
    "</CycloneDDS>"
)
ROWS = [{"a": 7, "b": "seven"}, {"a": -8, "b": "minus eight"}]


@cache
def struct(name: str) -> Struct:
    found = parse_idl(shapes.IDL)[f"shapes::{name}"]
    assert isinstance(found, Struct)
    return found


@pytest.fixture(scope="module")
def peer(shared_peer: CyclonePeer) -> CyclonePeer:
    return shared_peer


@pytest.fixture
def domain(shared_domain: int) -> int:
    return shared_domain


@pytest.fixture(scope="module")
def node(shared_domain: int) -> Iterator[Node]:
    config = NodeConfig(domain=shared_domain, interface="lo", resolve_types=True)
    with closing(Node.open(config).start()) as node:
        yield node


def endpoint(node: Node, topic: str) -> RemoteEndpoint:
    """The one endpoint of others on a topic, once its type is known, or never will be."""
    found: list[RemoteEndpoint] = []

    def is_there() -> bool:
        with node.lock:
            participant = node.participant
            found[:] = [each for each in participant.database.endpoints if each.topic == topic]
            return bool(found) and all(
                participant.database.type_of(each.guid) or participant.database.type_failure(each.guid)
                for each in found
            )

    wait_until(is_there, f"an endpoint of {topic}")
    (one,) = found
    return one


def appendable_writer(node: Node, topic: str, name: str = "Appendable") -> BlockingWriter:
    return node.create_writer(
        WriterSpec(topic, f"ours::{name}", qos(data_representation=XCDR2), type=struct(name))
    )


def write(writer: BlockingWriter, rows: list[dict[str, Any]], name: str = "Appendable") -> None:
    codec = Codec(struct(name))
    batch = pa.RecordBatch.from_pylist(rows, schema=codec.arrow_schema)
    writer.write_samples(codec.encode_batch(batch, representation=DataRepresentation.XCDR2))


# --- Cyclone's types ------------------------------------------------------------------------------


def test_every_shape_is_what_idl_says(peer: CyclonePeer, node: Node) -> None:
    for kind in shapes.SHAPES:
        peer.writer(f"shape_{kind.__name__}", kind)
    assert len(shapes.SHAPES) >= 30
    for kind in shapes.SHAPES:
        found = endpoint(node, f"shape_{kind.__name__}")
        with node.lock:
            reported, failure = (
                node.participant.database.type_of(found.guid),
                node.participant.database.type_failure(found.guid),
            )
        assert failure is None
        assert reported == struct(kind.__name__)
        assert found.type_information is not None
    assert node.counters.by_label().get("participant.bad_parameter", 0) == 0


# --- ours -----------------------------------------------------------------------------------------


def test_cyclone_reads_our_samples_without_idl(peer: CyclonePeer, node: Node, topic: str) -> None:
    writer = appendable_writer(node, topic)
    members = peer.reader_without_idl(topic)
    assert list(members) == ["a", "b"]
    assert writer.wait_for_readers(PATIENCE)
    write(writer, ROWS)
    assert [sample.row for sample in peer.take(topic, len(ROWS))] == ROWS


@pytest.mark.parametrize("kind", shapes.SHAPES, ids=lambda kind: kind.__name__)
def test_cyclone_resolves_our_types(kind: type, peer: CyclonePeer, node: Node, topic: str) -> None:
    t = struct(kind.__name__)
    writer = node.create_writer(
        WriterSpec(topic, t.name, qos(data_representation=XCDR2), keyed=t.is_keyed, type=t)
    )
    members = peer.reader_without_idl(topic)
    assert set(members) <= {member.name for member in t.members}
    if kind is shapes.SmallEnums:  # the classes that Cyclone's Python makes forget an enum's bit bound
        assert "the writer's enum has 8 bits, the reader's has 32" in reasons(node, topic)[0]
        return
    assert writer.wait_for_readers(PATIENCE)


@contextmanager
def tool(domain: int, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """One of Cyclone's command line tools."""
    process = subprocess.Popen(
        [TOOL, *arguments, "--id", str(domain), "--suppress-progress-bar", "--color", "none"],
        env={**os.environ, "CYCLONEDDS_URI": TOOL_CONFIG, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def up_to(last: str, process: subprocess.Popen[str]) -> str:
    """What it prints until a line has ``last`` in it."""
    printed = ""
    killing = threading.Timer(PATIENCE, process.kill)
    killing.start()
    assert process.stdout is not None
    for line in process.stdout:
        printed += line
        if last in line:
            break
    killing.cancel()
    return printed


def test_the_tool_prints_our_type(domain: int, node: Node, topic: str) -> None:
    node.create_writer(WriterSpec(topic, "ours", qos(data_representation=XCDR2), type=struct("NestedA")))
    lines = ("struct PointA {", "double x;", "struct NestedA {", "@appendable", "byte after;")

    def is_printed() -> bool:
        """It prints what it found within a second, which on a loaded machine is nothing."""
        with tool(domain, "typeof", topic, "--runtime", "1s") as process:
            printed, _ = process.communicate(timeout=PATIENCE)
        return all(line in printed for line in lines)

    wait_until(is_printed, "the type")


def test_the_tool_subscribes_to_our_topic(domain: int, node: Node, topic: str) -> None:
    writer = appendable_writer(node, topic)
    deadline, printed = time.monotonic() + PATIENCE, ""
    while not printed and time.monotonic() < deadline:
        with tool(domain, "subscribe", topic, "--runtime", "1s") as process:
            # It ends by itself when it has not found the topic within a second.
            wait_until(lambda: writer.readers.has_ready() or process.poll() is not None, "the tool")
            if process.poll() is None:
                write(writer, ROWS)
                printed = up_to("minus eight", process)
                process.send_signal(signal.SIGINT)
    assert "a=7" in printed
    assert "b='seven'" in printed
    assert "a=-8" in printed


# --- who matches ----------------------------------------------------------------------------------

EXACT = TypeConsistency(TypeConsistencyKind.DISALLOW_TYPE_COERCION)
NAMELESS = TypeConsistency(ignore_member_names=True)
NARROW = TypeConsistency(prevent_type_widening=True)


def reasons(node: Node, topic: str) -> tuple[str, ...]:
    """Of the first mismatch on a topic."""
    found: list[IncompatibleQos] = []

    def is_reported() -> bool:
        events = node.events()
        found.extend(each for each in events if isinstance(each, IncompatibleQos) and each.topic == topic)
        return bool(found)

    wait_until(is_reported, f"a mismatch on {topic}")
    return found[0].reasons


@pytest.mark.parametrize("kind", [shapes.Appendable, shapes.AppendableMore])
def test_our_reader_of_an_assignable_type(kind: type, peer: CyclonePeer, node: Node, topic: str) -> None:
    other = {"Appendable": "AppendableMore", "AppendableMore": "Appendable"}[kind.__name__]
    peer.writer(topic, kind)
    reader = node.create_reader(ReaderSpec(topic, "ours", qos(), type=struct(other)), Discard())
    peer.wait_for_match(topic)
    wait_until(lambda: bool(reader.writers), "our match")


@pytest.mark.parametrize("kind", [shapes.Appendable, shapes.AppendableMore])
def test_our_writer_of_an_assignable_type(kind: type, peer: CyclonePeer, node: Node, topic: str) -> None:
    other = {"Appendable": "AppendableMore", "AppendableMore": "Appendable"}[kind.__name__]
    peer.reader(topic, kind)
    writer = appendable_writer(node, topic, other)
    peer.wait_for_match(topic)
    assert writer.wait_for_readers(PATIENCE)


def test_our_reader_of_another_type(peer: CyclonePeer, node: Node, topic: str) -> None:
    peer.writer(topic, shapes.Appendable)
    reader = node.create_reader(
        ReaderSpec(topic, "shapes::Appendable", qos(), type=struct("AppendableOther")), Discard()
    )
    (first, *_) = reasons(node, topic)
    assert first.startswith("TYPE_CONSISTENCY: ")
    assert "a" in first
    wait_until(lambda: peer.status(topic, "offered_incompatible_qos")["total_count"] == 1, "theirs")
    assert peer.matched(topic) == []
    assert not reader.writers


def test_our_writer_of_another_type(peer: CyclonePeer, node: Node, topic: str) -> None:
    peer.reader(topic, shapes.Appendable)
    writer = node.create_writer(
        WriterSpec(
            topic, "shapes::Appendable", qos(data_representation=XCDR2), type=struct("AppendableOther")
        )
    )
    (first, *_) = reasons(node, topic)
    assert first.startswith("TYPE_CONSISTENCY: ")
    wait_until(lambda: peer.status(topic, "requested_incompatible_qos")["total_count"] == 1, "theirs")
    assert peer.matched(topic) == []
    assert not writer.readers.has_ready()


@pytest.mark.parametrize(
    ("consistency", "matches"),
    [
        pytest.param(TypeConsistency(), True, id="default"),
        pytest.param(EXACT, False, id="disallow_type_coercion"),
        pytest.param(NARROW, False, id="prevent_type_widening"),
        pytest.param(TypeConsistency(force_type_validation=True), True, id="force_type_validation"),
    ],
)
def test_the_type_consistency_of_our_reader(
    consistency: TypeConsistency, matches: bool, peer: CyclonePeer, node: Node, topic: str
) -> None:
    peer.writer(topic, shapes.AppendableMore)
    policies = qos(type_consistency=consistency)
    reader = node.create_reader(ReaderSpec(topic, "ours", policies, type=struct("Appendable")), Discard())
    if matches:
        peer.wait_for_match(topic)
        wait_until(lambda: bool(reader.writers), "our match")
        return
    assert reasons(node, topic)[0].startswith("TYPE_CONSISTENCY: ")
    wait_until(lambda: peer.status(topic, "offered_incompatible_qos")["total_count"] == 1, "theirs")
    assert peer.matched(topic) == []


def test_cyclone_understands_our_type_consistency(peer: CyclonePeer, node: Node, topic: str) -> None:
    consistency = TypeConsistency(TypeConsistencyKind.ALLOW_TYPE_COERCION, False, True, True, True, True)
    policies = qos(type_consistency=consistency)
    node.create_reader(ReaderSpec(topic, "ours", policies, type=struct("Appendable")), Discard())
    assert peer.discovered("subscription", topic)["type_consistency"] == {
        "ignore_sequence_bounds": False,
        "ignore_string_bounds": True,
        "ignore_member_names": True,
        "prevent_type_widening": True,
        "force_type_validation": True,
    }


def test_a_type_that_grows_meanwhile(
    peer: CyclonePeer, node: Node, topic: str, cyclone: Callable[..., CyclonePeer]
) -> None:
    """A new writer with an appended member: both are read, and both types are known."""
    peer.writer(topic, shapes.Appendable)
    reader = node.create_reader(ReaderSpec(topic, "ours", qos(), type=struct("Appendable")), Discard())
    wait_until(lambda: len(reader.writers) == 1, "the first writer")
    second = cyclone()
    second.writer(topic, shapes.AppendableMore)
    wait_until(lambda: len(reader.writers) == 2, "the second writer")
    with node.lock:
        reported = [node.participant.database.type_of(guid) for guid in reader.writers]
    assert reported == [struct("Appendable"), struct("AppendableMore")]


# --- captures -------------------------------------------------------------------------------------

#: What the captures' README says of the type on all of them.
RICH = """
module lab {
  @final enum Color { RED, GREEN, BLUE };
  @final struct Point { double x; double y; };
  @final struct Rich {
    @key long id; string name; Color color; Point pos; sequence<long> vals; sequence<string> tags;
    sequence<Point> path; octet raw[4]; boolean flag; long long stamp;
  };
};
"""


def participants(capture: str) -> list[bytes]:
    """The GUID prefixes in a capture, in order of appearance."""
    datagrams = (datagram.payload for datagram in pcap.read_pcap(pcap.CAPTURES / f"{capture}.pcap"))
    return list(dict.fromkeys(each[8:20] for each in datagrams if each[:4] == b"RTPS"))


def replay(capture: str, prefix: bytes) -> tuple[RtpsParticipant, list[Struct | str]]:
    """A participant of ours in the place of the one with this prefix, with a reader; and what it was told of the types
    of others, or why not."""
    here = (Locator("127.0.0.1", 7410),)
    participant = RtpsParticipant(
        ParticipantConfig(prefix, metatraffic_unicast=here, default_unicast=here), now=0
    )
    participant.create_reader(ReaderSpec("lab_Rich", "lab::Rich", qos(), keyed=True, type=rich()), now=0)
    reported: dict[Guid, Struct | str] = {}
    now = 0
    for datagram in pcap.read_pcap(pcap.CAPTURES / f"{capture}.pcap"):
        now += MILLISECOND
        data = np.frombuffer(bytearray(datagram.payload), np.uint8)
        participant.receive(data, [(0, len(data), datagram.source)], now=now)
        timer = participant.get_timer()
        if timer is not None and timer <= now:
            participant.handle_timer(now)
        participant.datagrams_to_send(now)
        for each in participant.database.endpoints:
            found = participant.database.type_of(each.guid) or participant.database.type_failure(each.guid)
            if found is not None and each.kind == "writer" and each.topic == "lab_Rich":
                reported[each.guid] = found
    return participant, list(reported.values())


def rich() -> Struct:
    found = parse_idl(RICH)["lab::Rich"]
    assert isinstance(found, Struct)
    return found


def test_type_lookup_of_cyclone_in_a_capture() -> None:
    """Replies to another's questions are none to ours: this is what that one was told."""
    reported = [replay("c19_typelookup_rich", prefix)[1] for prefix in participants("c19_typelookup_rich")]
    assert [rich()] in reported


@pytest.mark.parametrize("capture", ["f01_rich_typeobject", "x03_fast_typeinfo_rejected"])
def test_types_of_fast_dds_in_a_capture(capture: str) -> None:
    """Its type information is none, and its type object refers to others that nobody tells: so the name decides."""
    failed = 0
    for prefix in participants(capture):
        participant, reported = replay(capture, prefix)
        events = list(iter(participant.next_event, None))
        for failure in reported:
            assert isinstance(failure, str)
            assert "missing" in failure
            assert participant.drops[DropReason.BAD_PARAMETER] >= 2  # the information, and the object
            assert any(isinstance(each, Matched) and each.topic == "lab_Rich" for each in events)
            failed += 1
    assert failed
