"""QoS that decides who talks to whom, and what discovery tells of it, with Cyclone DDS at the other end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.recipients import Discard
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.events import IncompatibleQos
from spark_rtps.transport.protocol.participant.statuses import POLICY_IDS
from spark_rtps.transport.qos import (
    DestinationOrderKind,
    LivelinessKind,
    OwnershipKind,
    PresentationScope,
    Qos,
)
from tests.interop.cyclone_peer import CyclonePeer, number_row
from tests.interop.cyclone_types import Number
from tests.interop.subscription import LocalReader, batch_of, codec, qos
from tests.support.waiting import PATIENCE, wait_until

MS = 1_000_000
SECOND = 1_000_000_000
#: DDS_RETCODE_UNSUPPORTED, as the C library returns it.
UNSUPPORTED = -2


@pytest.fixture(scope="module")
def domain(shared_domain: int) -> int:
    return shared_domain


class Case(NamedTuple):
    """The standard's table of what an offer may be requested as (DDS 1.4 §2.2.3), one row of it."""

    policy: str
    offered: dict[str, Any]
    requested: dict[str, Any]
    matches: bool


MANUAL = LivelinessKind.MANUAL_BY_TOPIC
PARTICIPANT = LivelinessKind.MANUAL_BY_PARTICIPANT
BY_SOURCE = DestinationOrderKind.BY_SOURCE_TIMESTAMP
TOPIC_SCOPE = PresentationScope.TOPIC
CASES = {
    "deadline_same": Case("DEADLINE", {"deadline": SECOND}, {"deadline": SECOND}, True),
    "deadline_shorter": Case("DEADLINE", {"deadline": SECOND}, {"deadline": 2 * SECOND}, True),
    "deadline_longer": Case("DEADLINE", {"deadline": 2 * SECOND}, {"deadline": SECOND}, False),
    "deadline_none": Case("DEADLINE", {}, {"deadline": SECOND}, False),
    "latency_budget": Case("LATENCY_BUDGET", {"latency_budget": 5 * MS}, {}, False),
    "liveliness_stronger": Case(
        "LIVELINESS",
        {"liveliness": MANUAL, "liveliness_lease_duration": SECOND},
        {"liveliness": PARTICIPANT, "liveliness_lease_duration": SECOND},
        True,
    ),
    "liveliness_weaker": Case(
        "LIVELINESS",
        {"liveliness": PARTICIPANT, "liveliness_lease_duration": SECOND},
        {"liveliness": MANUAL, "liveliness_lease_duration": SECOND},
        False,
    ),
    "liveliness_slower": Case(
        "LIVELINESS",
        {"liveliness_lease_duration": 2 * SECOND},
        {"liveliness_lease_duration": SECOND},
        False,
    ),
    "ownership_same": Case(
        "OWNERSHIP", {"ownership": OwnershipKind.EXCLUSIVE}, {"ownership": OwnershipKind.EXCLUSIVE}, True
    ),
    "ownership_other": Case("OWNERSHIP", {"ownership": OwnershipKind.EXCLUSIVE}, {}, False),
    "destination_order_stronger": Case("DESTINATION_ORDER", {"destination_order": BY_SOURCE}, {}, True),
    "destination_order_weaker": Case("DESTINATION_ORDER", {}, {"destination_order": BY_SOURCE}, False),
    "presentation_wider": Case(
        "PRESENTATION",
        {"presentation_scope": TOPIC_SCOPE, "ordered_access": True},
        {"presentation_scope": PresentationScope.INSTANCE},
        True,
    ),
    "presentation_narrower": Case(
        "PRESENTATION",
        {"presentation_scope": PresentationScope.INSTANCE},
        {"presentation_scope": TOPIC_SCOPE},
        False,
    ),
    "presentation_not_coherent": Case(
        "PRESENTATION",
        {"presentation_scope": TOPIC_SCOPE},
        {"presentation_scope": TOPIC_SCOPE, "coherent_access": True},
        False,
    ),
}


def refusals(node: Node, topic: str) -> Callable[[], list[str]]:
    """Policies that kept endpoints of a topic from matching, so far."""
    found: list[str] = []

    def look() -> list[str]:
        for event in node.events():
            if isinstance(event, IncompatibleQos) and event.topic == topic:
                found.extend(reason.replace(":", " ").split()[0] for reason in event.reasons)
        return found

    return look


@pytest.mark.parametrize("name", list(CASES))
def test_offered_by_cyclone(
    name: str, shared_peer: CyclonePeer, participate: Callable[..., Node], topic: str
) -> None:
    """Both sides are of one opinion; Cyclone's status names the policy as ours does."""
    policy, offered, requested, matches = CASES[name]
    shared_peer.writer(topic, Number, **offered)
    node = participate()
    reader = LocalReader(node, topic, "Number", qos(**requested))
    if matches:
        shared_peer.wait_for_match(topic)
        shared_peer.call("write_numbers", topic, 0, 3)
        assert [sample.row for sample in reader.wait_for(3)] == [number_row(n) for n in range(3)]
        return
    refused = refusals(node, topic)
    wait_until(lambda: bool(refused()), "our refusal")
    assert set(refused()) == {policy}

    def status() -> dict[str, int]:
        return shared_peer.status(topic, "offered_incompatible_qos")

    wait_until(lambda: status()["total_count"] == 1, "Cyclone's refusal")
    assert status()["last_policy_id"] == POLICY_IDS[policy]
    assert shared_peer.matched(topic) == []


@pytest.mark.parametrize("name", list(CASES))
def test_requested_by_cyclone(
    name: str, shared_peer: CyclonePeer, participate: Callable[..., Node], topic: str
) -> None:
    policy, offered, requested, matches = CASES[name]
    shared_peer.reader(topic, Number, **requested)
    node = participate()
    writer = node.create_writer(WriterSpec(topic, "interop::Number", qos(**offered)))
    if matches:
        assert writer.wait_for_readers(PATIENCE)
        rows = [number_row(n) for n in range(3)]
        writer.write_samples(codec("Number").encode_batch(batch_of(codec("Number"), rows)))
        assert [sample.row for sample in shared_peer.take(topic, 3)] == rows
        return
    refused = refusals(node, topic)
    wait_until(lambda: bool(refused()), "our refusal")
    assert set(refused()) == {policy}

    def status() -> dict[str, int]:
        return shared_peer.status(topic, "requested_incompatible_qos")

    wait_until(lambda: status()["total_count"] == 1, "Cyclone's refusal")
    assert status()["last_policy_id"] == POLICY_IDS[policy]
    assert not writer.readers.has_ready()


PARTITIONS = {
    "same": (("left",), ("left",), True),
    "one_in_common": (("left", "middle"), ("middle", "right"), True),
    "other": (("left",), ("right",), False),
    "none_here": ((), ("left",), False),
    "none_there": (("left",), (), False),
    "empty_is_none": ((), ("",), True),
    "wildcard_requested": (("plant/7",), ("plant/*",), True),
    "wildcard_offered": (("plant/?",), ("plant/8",), True),
    "wildcard_is_not_the_default": ((), ("plant/*",), False),
    "star_is_the_default_too": ((), ("*",), True),
    "patterns_do_not_meet": (("plant/*",), ("plant/*",), False),
    "other_case": (("Left",), ("left",), False),
}


@pytest.mark.parametrize("name", list(PARTITIONS))
def test_partition(name: str, shared_peer: CyclonePeer, participate: Callable[..., Node], topic: str) -> None:
    """Both ways at once, beside a reader that takes what the others must not miss."""
    ours, theirs, matches = PARTITIONS[name]
    shared_peer.writer(f"{topic}_in", Number, partition=theirs)
    shared_peer.reader(f"{topic}_out", Number, partition=theirs)
    node = participate()
    reader = LocalReader(node, f"{topic}_in", "Number", qos(partition=ours))
    writer = node.create_writer(WriterSpec(f"{topic}_out", "interop::Number", qos(partition=ours)))
    if matches:
        shared_peer.wait_for_match(f"{topic}_in")
        assert writer.wait_for_readers(PATIENCE)
        shared_peer.call("write_numbers", f"{topic}_in", 0, 3)
        rows = [number_row(n) for n in range(3)]
        assert [sample.row for sample in reader.wait_for(3)] == rows
        writer.write_samples(codec("Number").encode_batch(batch_of(codec("Number"), rows)))
        assert [sample.row for sample in shared_peer.take(f"{topic}_out", 3)] == rows
        return
    # Who is in another partition is passed over without a word: what is announced later has matched before.
    for announced in (shared_peer.reader, shared_peer.writer):
        announced(f"{topic}_later_{announced.__name__}", Number)
    node.create_writer(WriterSpec(f"{topic}_later_reader", "interop::Number", qos()))
    node.create_reader(ReaderSpec(f"{topic}_later_writer", "interop::Number", qos()), Discard())
    for later in ("reader", "writer"):
        shared_peer.wait_for_match(f"{topic}_later_{later}")
    found = {f"{topic}_in", f"{topic}_out"}
    wait_until(lambda: found <= {e.topic for e in node.participant.database.endpoints}, "their endpoints")
    assert shared_peer.matched(f"{topic}_in") == shared_peer.matched(f"{topic}_out") == []
    assert not reader.reader.writers and not writer.writer.readers


ANNOUNCED = {
    "user_data": b"\0user\xff",
    "topic_data": b"topic",
    "group_data": b"group" * 20,
    "partition": ("a", "b/c"),
    "deadline": 1500 * MS,
    "latency_budget": 250 * MS,
    "liveliness": LivelinessKind.MANUAL_BY_TOPIC,
    "liveliness_lease_duration": 2 * SECOND,
    "ownership": OwnershipKind.EXCLUSIVE,
    "destination_order": BY_SOURCE,
    "presentation_scope": PresentationScope.TOPIC,
    "coherent_access": True,
    "ordered_access": True,
}
WRITER_ANNOUNCED = {**ANNOUNCED, "lifespan": 7 * SECOND, "ownership_strength": -3}
READER_ANNOUNCED = {**ANNOUNCED, "time_based_filter": 125 * MS}


@pytest.mark.parametrize(("kind", "reported"), [("writer", WRITER_ANNOUNCED), ("reader", READER_ANNOUNCED)])
def test_cyclone_sees_our_qos(
    kind: str,
    reported: dict[str, Any],
    shared_peer: CyclonePeer,
    participate: Callable[..., Node],
    topic: str,
) -> None:
    """USER_DATA, TOPIC_DATA, GROUP_DATA and every other policy that travels, in Cyclone's built-in topics."""
    node = participate()
    if kind == "writer":
        node.create_writer(WriterSpec(topic, "interop::Number", qos(**reported)))
    else:
        node.create_reader(ReaderSpec(topic, "interop::Number", qos(**reported)), Discard())
    seen = shared_peer.discovered("publication" if kind == "writer" else "subscription", topic)
    assert {name: _whole_ms(seen[name]) for name in reported} == reported


@pytest.mark.parametrize(("kind", "reported"), [("writer", WRITER_ANNOUNCED), ("reader", READER_ANNOUNCED)])
def test_we_see_cyclones_qos(
    kind: str,
    reported: dict[str, Any],
    shared_peer: CyclonePeer,
    participate: Callable[..., Node],
    topic: str,
) -> None:
    shared_peer.call(kind, topic, "Number", **reported)
    node = participate()
    found: list[Qos] = []

    def is_there() -> bool:
        found.extend(
            each.qos
            for each in node.participant.database.endpoints
            if each.topic == topic and each.kind == kind
        )
        return bool(found)

    wait_until(is_there, f"a {kind} on {topic}")
    assert {name: _whole_ms(getattr(found[0], name)) for name in reported} == reported


def _whole_ms(value: Any) -> Any:
    """Durations are rounded to the wire's 2**-32 s."""
    return round(value / MS) * MS if isinstance(value, int) and value > MS else value


def test_cyclone_has_no_coherent_sets(
    shared_peer: CyclonePeer, participate: Callable[..., Node], topic: str
) -> None:
    """Its policy travels and matches; sets it cannot begin, so what it writes belongs to none and passes."""
    level = {"presentation_scope": PresentationScope.TOPIC, "coherent_access": True}
    shared_peer.writer(topic, Number, **level)
    assert shared_peer.call("coherent", topic) == (UNSUPPORTED, UNSUPPORTED)
    reader = LocalReader(participate(), topic, "Number", qos(**level))
    shared_peer.wait_for_match(topic)
    shared_peer.call("write_numbers", topic, 0, 5)
    assert [sample.row for sample in reader.wait_for(5)] == [number_row(n) for n in range(5)]
    assert reader.reader.counters.coherent_sets_lost == 0
