"""Waiting for the type of a topic."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from spark_rtps.transport.errors import UnknownTypeError
from spark_rtps.transport.net import topic_types
from spark_rtps.transport.net.directory import Directory
from spark_rtps.transport.net.topic_types import await_type, await_types
from spark_rtps.transport.protocol.discovery.topic_selection import TopicSelection
from spark_rtps.transport.protocol.participant.participant import RemoteEndpoint
from spark_rtps.transport.qos import DataRepresentation, Qos, ReliabilityKind
from spark_rtps.transport.structure import KIND_WRITER_NO_KEY, Guid
from spark_rtps.transport.types.model import Member, Primitive, PrimitiveKind, Struct

STRUCT = Struct("T", (Member("x", Primitive(PrimitiveKind.INT32), 0),))


class FakeParticipant:
    """It counts how often somebody lists its endpoints."""

    def __init__(self) -> None:
        self.changes = self.listed = 0
        self.endpoints: list[RemoteEndpoint] = []
        self.types: dict[Guid, Struct] = {}
        self.participants: dict[bytes, object] = {}
        self.database = self

    def own_endpoints_on(self, topic: str) -> list[RemoteEndpoint]:
        return []

    def endpoints_on(self, topic: str) -> list[RemoteEndpoint]:
        self.listed += 1
        return [each for each in self.endpoints if each.topic == topic]

    def type_of(self, guid: Guid) -> Struct | None:
        return self.types.get(guid)

    def type_failure(self, guid: Guid) -> str | None:
        return None


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(topic_types, "_SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(topic_types, "_LOOK_AGAIN_SECONDS", 0.0)
    return Directory(SimpleNamespace(lock=threading.RLock()), FakeParticipant(), 0)


def test_endpoints_are_listed_when_something_changed(directory: Any) -> None:
    """An endpoint is found at the third look, its type at the sixth."""
    participant, looks = directory.participant, 0
    guid = Guid(b"w" * 12, bytes((0, 0, 1, KIND_WRITER_NO_KEY)))

    def stopping() -> bool:
        nonlocal looks
        looks += 1
        if looks == 3:
            participant.endpoints.append(RemoteEndpoint(guid, "writer", "t", "T", Qos(), "", b""))
            participant.changes += 1
        if looks == 6:
            participant.types[guid] = STRUCT
            participant.changes += 1
        return False

    assert await_type(directory, "t", timeout=60, stopping=stopping).struct == STRUCT
    assert (looks, participant.listed) == (6, 3)


def test_the_first_writer_is_one_that_can_be_matched_if_there_is_any(directory: Any) -> None:
    def endpoint(number: int, kind: str, topic: str, type_name: str, qos: Qos) -> RemoteEndpoint:
        guid = Guid(b"w" * 12, bytes((0, 0, number, KIND_WRITER_NO_KEY)))
        return RemoteEndpoint(guid, kind, topic, type_name, qos, "", b"")

    best_effort, reliable = Qos(), Qos(reliability=ReliabilityKind.RELIABLE)
    xcdr2 = replace(reliable, data_representation=(DataRepresentation.XCDR2,))
    directory.participant.endpoints += [
        endpoint(1, "reader", "t", "A", reliable),
        endpoint(2, "writer", "u", "B", reliable),
    ]
    assert directory.first_writer("t", reliable) is None
    for number, (type_name, qos, first) in enumerate(
        [("C", best_effort, "C"), ("D", best_effort, "C"), ("E", xcdr2, "E"), ("F", reliable, "E")], start=3
    ):
        directory.participant.endpoints.append(endpoint(number, "writer", "t", type_name, qos))
        found = directory.first_writer("t", reliable)
        assert found is not None
        assert found.type_name == first
    for wanted, first in (("C", "C"), ("F", "F"), ("Z", "E")):
        found = directory.first_writer("t", reliable, wanted)
        assert found is not None and found.type_name == first


def test_nothing_to_wait_for(directory: Any) -> None:
    with pytest.raises(UnknownTypeError, match="nothing is written there"):
        await_type(directory, "t", timeout=60, stopping=lambda: True)


def test_topics_of_a_list_are_waited_for(directory: Any) -> None:
    """Those of a pattern are not: nobody knows which there will be."""
    participant, looks = directory.participant, 0

    def write(topic: str, number: int) -> None:
        guid = Guid(b"w" * 12, bytes((0, 0, number, KIND_WRITER_NO_KEY)))
        participant.endpoints.append(RemoteEndpoint(guid, "writer", topic, "T", Qos(), "", b""))
        participant.types[guid] = STRUCT
        participant.changes += 1

    def stopping() -> bool:
        nonlocal looks
        looks += 1
        if looks == 3:
            write("u", 2)
        return False

    write("t", 1)
    by_pattern = await_types(directory, TopicSelection(pattern="t|u"), timeout=60, stopping=stopping)
    assert ([each.endpoint.topic for each in by_pattern], looks) == (["t"], 0)
    by_name = await_types(directory, TopicSelection(names=("t", "u")), timeout=60, stopping=stopping)
    assert ([each.endpoint.topic for each in by_name], looks) == (["t", "u"], 3)


@pytest.mark.parametrize(
    ("selection", "type_name", "output"),
    [
        (
            TopicSelection(names=("t",)),
            None,
            "nobody on topic 't' of domain 0 announced a type within 60 s (writer 777",
        ),
        (
            TopicSelection(names=("t", "v")),
            None,
            "nobody on the topics 't,v' of domain 0 announced a type within 60 s",
        ),
        (TopicSelection(pattern="t.*"), None, "of 't', type 'T': has not answered yet)"),
        (
            TopicSelection(pattern="t.*"),
            "S",
            "nobody on the topics 't.*' of domain 0 has the type 'S'; there are 'T'",
        ),
        (
            TopicSelection(pattern="v"),
            None,
            "after 60 s; 0 participants were seen, topics written there: 't' (T)",
        ),
    ],
)
def test_unknown_type_errors_name_the_endpoints_seen(
    directory: Any, selection: TopicSelection, type_name: str | None, output: str
) -> None:
    guid = Guid(b"w" * 12, bytes((0, 0, 1, KIND_WRITER_NO_KEY)))
    directory.participant.endpoints.append(RemoteEndpoint(guid, "writer", "t", "T", Qos(), "", b""))
    with pytest.raises(UnknownTypeError) as failed:
        await_types(directory, selection, timeout=60, type_name=type_name, stopping=lambda: True)
    assert output in str(failed.value)
