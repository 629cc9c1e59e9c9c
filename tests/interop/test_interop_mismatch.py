"""Endpoints that must not match, and what we say about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.participant.events import IncompatibleQos
from spark_rtps.transport.qos import DataRepresentation
from tests.interop.cyclone_peer import CyclonePeer
from tests.interop.cyclone_types import Number, Point
from tests.interop.subscription import Subscription, qos
from tests.support.waiting import wait_until

XCDR2 = (DataRepresentation.XCDR2,)


@pytest.mark.parametrize(
    ("written", "offered", "requested", "reason"),
    [
        pytest.param(
            Number,
            {"reliable": False},
            {"reliable": True},
            "RELIABILITY: the writer offers BEST_EFFORT, the reader requests RELIABLE",
            id="reliability",
        ),
        pytest.param(
            Number,
            {},
            {"transient_local": True},
            "DURABILITY: the writer offers VOLATILE, the reader requests TRANSIENT_LOCAL",
            id="durability",
        ),
        pytest.param(
            Number,
            {},
            {"data_representation": XCDR2},
            "DATA_REPRESENTATION: the writer offers [XCDR1], the reader requests [XCDR2]",
            id="representation",
        ),
        pytest.param(
            Point,
            {},
            {},
            "TYPE: the writer's is 'interop::Point', the reader's is 'interop::Number'",
            id="type",
        ),
    ],
)
def test_our_reader_says_why(
    written: type,
    offered: dict[str, Any],
    requested: dict[str, Any],
    reason: str,
    cyclone: Callable[..., CyclonePeer],
    subscribe: Callable[..., Subscription],
    capfd: pytest.CaptureFixture[str],
) -> None:
    peer = cyclone()
    peer.writer("t", written, **offered)
    receiver = subscribe("t", "Number", subscribe=qos(**requested))
    wait_until(lambda: receiver.process.counters()["reader.incompatible_qos"] == 1, "a mismatch")
    output = ""

    def is_logged() -> bool:
        nonlocal output
        output += capfd.readouterr().err
        return reason in output

    wait_until(is_logged, lambda: f"{reason!r} in {output!r}")
    assert "topic 't': no match with 0110" in output
    assert peer.matched("t") == []
    assert receiver.process.counters()["reader.matched_writers"] == 0
    assert receiver.process.counters()["reader.incompatible_qos"] == 1


def test_our_writer_says_why(cyclone: Callable[..., CyclonePeer], participate: Callable[..., Node]) -> None:
    peer = cyclone()
    peer.reader("t", Number, reliable=True)
    node = participate()
    writer = node.create_writer(WriterSpec("t", "interop::Number", qos(reliable=False)))
    found: list[IncompatibleQos] = []

    def is_reported() -> bool:
        found.extend(event for event in node.events() if isinstance(event, IncompatibleQos))
        return bool(found)

    wait_until(is_reported, "a mismatch")
    assert [event.reasons for event in found] == [
        ("RELIABILITY: the writer offers BEST_EFFORT, the reader requests RELIABLE",)
    ]
    assert found[0].local == writer.guid
    assert found[0].topic == "t"
    assert not writer.readers.has_ready()
    assert peer.matched("t") == []
