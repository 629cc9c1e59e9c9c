"""Waiting for the type of a topic."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from spark_rtps.transport.errors import UnknownTypeError
from spark_rtps.transport.net import topic_types
from spark_rtps.transport.net.topic_types import await_type, first_writer
from spark_rtps.transport.protocol.participant import RemoteEndpoint
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
        self.remote_participants: dict[bytes, object] = {}

    @property
    def remote_endpoints(self) -> list[RemoteEndpoint]:
        return self.endpoints

    def endpoints_on(self, topic: str) -> list[RemoteEndpoint]:
        self.listed += 1
        return [each for each in self.endpoints if each.topic == topic]

    def type_of(self, guid: Guid) -> Struct | None:
        return self.types.get(guid)

    def type_failure(self, guid: Guid) -> str | None:
        return None


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(topic_types, "_SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(topic_types, "_LOOK_AGAIN_SECONDS", 0.0)
    return SimpleNamespace(
        lock=threading.RLock(), participant=FakeParticipant(), config=SimpleNamespace(domain=0)
    )


def test_endpoints_are_listed_when_something_changed(node: Any) -> None:
    """An endpoint is found at the third look, its type at the sixth."""
    participant, looks = node.participant, 0
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

    assert await_type(node, "t", timeout=60, stopping=stopping).struct == STRUCT
    assert (looks, participant.listed) == (6, 3)


def test_the_first_writer_is_one_that_can_be_matched_if_there_is_any(node: Any) -> None:
    def endpoint(number: int, kind: str, topic: str, type_name: str, qos: Qos) -> RemoteEndpoint:
        guid = Guid(b"w" * 12, bytes((0, 0, number, KIND_WRITER_NO_KEY)))
        return RemoteEndpoint(guid, kind, topic, type_name, qos, "", b"")

    best_effort, reliable = Qos(), Qos(reliability=ReliabilityKind.RELIABLE)
    xcdr2 = replace(reliable, data_representation=(DataRepresentation.XCDR2,))
    node.participant.endpoints += [
        endpoint(1, "reader", "t", "A", reliable),
        endpoint(2, "writer", "u", "B", reliable),
    ]
    assert first_writer(node, "t", reliable) is None
    for number, (type_name, qos, first) in enumerate(
        [("C", best_effort, "C"), ("D", best_effort, "C"), ("E", xcdr2, "E"), ("F", reliable, "E")], start=3
    ):
        node.participant.endpoints.append(endpoint(number, "writer", "t", type_name, qos))
        found = first_writer(node, "t", reliable)
        assert found is not None
        assert found.type_name == first


def test_nothing_to_wait_for(node: Any) -> None:
    with pytest.raises(UnknownTypeError, match="nothing is written there"):
        await_type(node, "t", timeout=60, stopping=lambda: True)
