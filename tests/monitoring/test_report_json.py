"""Streams, errors and losses of another host: read as they were written, bounded, and refused where they are not."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.monitoring import report_json
from spark_rtps.monitoring.report_json import (
    errors_as_json,
    losses_as_json,
    parse_errors,
    parse_losses,
    parse_streams,
    streams_as_json,
)
from spark_rtps.monitoring.reports import ErrorReport, LossesOfLog
from spark_rtps.monitoring.seen_topics import SeenTopics
from spark_rtps.monitoring.stream_counters import read_streams
from spark_rtps.transport.log.error_log import DistinctError
from spark_rtps.transport.log.loss_report import Loss
from spark_rtps.transport.protocol.discovery.participant_data import ParticipantData
from spark_rtps.transport.protocol.participant.participant import RemoteEndpoint
from spark_rtps.transport.qos import DataRepresentation, Qos
from spark_rtps.transport.structure import Guid
from tests.commands.stat_scene import sink, source

WRITER = Guid(bytes(range(12)), b"\0\0\1\2")
ERRORS = [
    ErrorReport(Path("/a/errors"), "Square", 7, [DistinctError("WARNING", "x", "soon", 3, 5, 6)], 2),
    ErrorReport(Path("/errors/8-9.errors"), "", 8, [], 0),
]
LOSSES = [
    LossesOfLog(
        Path("/a/losses"),
        "Square",
        [Loss(WRITER, "Square", 1, 2, 3, 4, 5), Loss(None, "Square", 1, 0, 0, 4, 5, "log lost", 1)],
        9,
    )
]


def raw(found: object) -> bytes:
    return json.dumps(found).encode()


def test_streams_come_back_as_they_were(tmp_path: Path) -> None:
    source(tmp_path, log__rows=5, stream__0__guid_high=-1, stream__0__guid_low=7, receiver__domain=3)
    sink(tmp_path, writer__written_samples=9)
    streams = read_streams([tmp_path], now=time.monotonic_ns())
    assert len(streams) == 2 and streams[1].writers
    assert parse_streams(raw(streams_as_json(streams, [tmp_path], 1))) == streams


def test_errors_and_losses_come_back_as_they_were() -> None:
    assert parse_errors(raw(errors_as_json(ERRORS, ["/a"]))) == ERRORS
    assert parse_losses(raw(losses_as_json(LOSSES, ["/a"]))) == LOSSES


def test_topics_come_back_as_they_were() -> None:
    seen = SeenTopics.describe(
        3,
        [ParticipantData(WRITER.prefix, name="listener")],
        [
            RemoteEndpoint(WRITER, "writer", "Square", "ShapeType", Qos(), "", b"\1\x10"),
            RemoteEndpoint(Guid(bytes(12), b"\0\0\1\2"), "reader", "Circle", "T", Qos(), "", b"\1\x10"),
        ],
    )
    assert [e.participant for e in seen.endpoints] == ["listener", "00" * 12]
    assert SeenTopics.parse(raw(seen.as_json())) == seen


def test_the_words_of_qos_are_those_that_decide_about_a_match() -> None:
    qos = Qos(deadline=2_000_000_000, partition=("a", "b"), data_representation=(DataRepresentation.XCDR2,))
    endpoint = RemoteEndpoint(WRITER, "writer", "Square", "ShapeType", qos, "", b"\1\x10")
    (seen,) = SeenTopics.describe(0, [], [endpoint]).endpoints
    assert seen.qos[3:] == ("deadline=2s", "partition=a,b", "xcdr2")


def _stream(**changed: object) -> dict[str, Any]:
    reported: dict[str, Any] = {
        "kind": "source",
        "path": "/a",
        "topic": "Square",
        "type": None,
        "domain": None,
        "guid_prefix": "",
        "pid": 0,
        "state": "alive",
        "counters": {},
    }
    return reported | changed


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "sewer"},
        {"state": None},
        {"topic": 7},
        {"type": []},
        {"path": None},
        {"domain": -1},
        {"pid": True},
        {"pid": 1 << 63},
        {"counters": []},
        {"counters": {"a": 1.5}},
        {"counters": {"a": -(1 << 63) - 1}},
        {"counters": {str(n): 0 for n in range(report_json._COUNTERS_MAX + 1)}},
    ],
)
def test_a_stream_that_cannot_be_is_refused(changed: dict[str, object]) -> None:
    assert parse_streams(raw({"streams": [_stream()]}))
    with pytest.raises(ValueError, match=r"has to be|not a valid"):
        parse_streams(raw({"streams": [_stream(**changed)]}))


@pytest.mark.parametrize(
    "reported", [b"", b"[]", b"{", b'{"streams": {}}', b'{"streams": [7]}', b"[" * 100_000, b"\xff"]
)
def test_invalid_answers_are_refused(reported: bytes) -> None:
    for read in (parse_streams, parse_errors, parse_losses, SeenTopics.parse):
        with pytest.raises(ValueError):
            read(reported)


def test_more_entries_than_there_can_be_are_refused() -> None:
    assert len(parse_streams(raw({"streams": [_stream()] * 2}))) == 2
    with pytest.raises(ValueError, match="at most 4096 entries"):
        parse_streams(raw({"streams": [_stream()] * 4_097}))


def test_texts_are_cut() -> None:
    (stream,) = parse_streams(raw({"streams": [_stream(topic="x" * 10_000)]}))
    assert stream.topic == "x" * 4_096


@pytest.mark.parametrize("name", ["first_ns", "count", "text"])
def test_an_error_that_cannot_be_is_refused(name: str) -> None:
    reported = errors_as_json(ERRORS, [])
    reported["logs"][0]["errors"][0][name] = None
    with pytest.raises(ValueError, match="None has to be"):
        parse_errors(raw(reported))


@pytest.mark.parametrize("change", [{"writer": "me"}, {"bytes": -1}, {"cause": 3}, {"unknown": "1"}])
def test_a_loss_that_cannot_be_is_refused(change: dict[str, object]) -> None:
    reported = losses_as_json(LOSSES, [])
    reported["reports"][0]["losses"][0] |= change
    with pytest.raises(ValueError, match=r"has to be|not a GUID"):
        parse_losses(raw(reported))


@pytest.mark.parametrize(
    ("which", "change"),
    [
        ("participants", {"lease_duration_s": "long"}),
        ("participants", {"lease_duration_s": 10**400}),
        ("participants", {"addresses": ["a"] * 65}),
        ("participants", {"addresses": [1]}),
        ("endpoints", {"qos": None}),
        ("endpoints", {"topic": None}),
    ],
)
def test_topics_that_cannot_be_are_refused(which: str, change: dict[str, object]) -> None:
    endpoint = RemoteEndpoint(WRITER, "writer", "Square", "ShapeType", Qos(), "", b"\1\x10")
    reported = json.loads(raw(SeenTopics.describe(0, [ParticipantData(WRITER.prefix)], [endpoint]).as_json()))
    reported[which][0] |= change
    with pytest.raises(ValueError, match="has to be"):
        SeenTopics.parse(raw(reported))
