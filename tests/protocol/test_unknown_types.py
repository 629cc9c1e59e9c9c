"""Peers that do not know the types of all members which we announce to them."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from spark_rtps.transport.net.event_queue import EventWarnings
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.discovery.participant_data import (
    ParticipantData,
    decode_participant,
    encode_participant,
)
from spark_rtps.transport.protocol.participant.events import TypeNotKnown
from spark_rtps.transport.structure import (
    ENTITYID_SPDP_WRITER,
    VENDOR_CYCLONE,
    VENDOR_FAST_DDS,
    Guid,
)
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Struct, has_int8
from spark_rtps.transport.wire import parameters as p
from spark_rtps.transport.wire.message import iter_submessages
from spark_rtps.transport.wire.submessages import Data, decode_submessage
from tests.protocol.type_pair import Pair, reader
from tests.support.pcap import CAPTURES, read_pcap


def parse(idl: str, name: str) -> Struct:
    found = parse_idl(idl)[name]
    assert isinstance(found, Struct)
    return found


CYCLONE = ParticipantData(bytes(range(12)), VENDOR_CYCLONE, (2, 1))
SMALL = parse("@final struct Small { int8 a; };", "Small")
PLAIN = parse("@final struct Plain { octet a; short b; };", "Plain")


def version_info(text: str, *, little: bool = True) -> bytes:
    value = bytes(20) + len(text.encode() + b"\0").to_bytes(4, "little" if little else "big")
    return value + text.encode() + b"\0"


def announced(value: bytes | None, data: ParticipantData = CYCLONE) -> ParticipantData:
    """What is read of a participant that announces these version infos."""
    payload = encode_participant(data)
    listed = p.decode_parameter_payload(memoryview(payload))
    more = [] if value is None else [(p.PID_PARTICIPANT_VERSION_INFO, value + bytes(-len(value) % 4))]
    return decode_participant(p.encode_parameter_payload([*listed, *more]))


@pytest.mark.parametrize(
    ("text", "version", "crashes"),
    [
        ("robot/0.10.2/Linux/x86_64", "0.10.2", True),
        ("robot/0.9.1/Linux/x86_64", "0.9.1", True),
        (
            "robot/0.11.0/Linux/x86_64",
            "0.11.0",
            False,
        ),  # a build on the way to release 11 speaks RTPS 2.1 too
        ("robot/11.0.1/Linux/Linux", "11.0.1", False),
        ("robot/later/Linux/Linux", "later", True),
        ("robot/0.10.2", "", True),
        ("a/robot/0.10.2/Linux/x86_64", "", True),
        (f"robot/{'1' * 40}.0/Linux/Linux", "", True),
    ],
)
def test_the_version_of_cyclone_dds(text: str, version: str, crashes: bool) -> None:
    found = announced(version_info(text))
    assert (found.product_version, found.crashes_on_int8) == (version, crashes)


@pytest.mark.parametrize("length", range(28))
def test_version_infos_that_are_cut_are_none(length: int) -> None:
    assert announced(version_info("robot/0.10.2/Linux/x86_64")[:length]).product_version == ""


def test_an_rtps_2_1_peer_without_a_version_is_old() -> None:
    assert announced(None).crashes_on_int8
    assert not announced(None, replace(CYCLONE, version=(2, 5))).crashes_on_int8


def test_other_vendors_have_no_such_version() -> None:
    fast = replace(CYCLONE, vendor=VENDOR_FAST_DDS)
    found = announced(version_info("robot/0.10.2/Linux/x86_64"), fast)
    assert (found.product_version, found.crashes_on_int8) == ("", False)


@pytest.mark.parametrize(
    ("capture", "version"), [("c12_py_small_dispose", "11.0.1"), ("f05_small_dispose", "")]
)
def test_captured_participants(capture: str, version: str) -> None:
    found = set()
    for datagram in read_pcap(CAPTURES / f"{capture}.pcap"):
        view = memoryview(datagram.payload)
        if bytes(view[:4]) != b"RTPS":
            continue
        for kind, flags, start, stop in iter_submessages(view):
            data = decode_submessage(kind, flags, view[start:stop])
            if (
                isinstance(data, Data)
                and data.writer_id == ENTITYID_SPDP_WRITER
                and data.payload is not None
                and not data.key
            ):
                found.add(decode_participant(data.payload))
    assert {(each.product_version, each.crashes_on_int8) for each in found} == {(version, False)}


# --- what is said -----------------------------------------------------------------------------------


def reported(pair: Pair) -> list[TypeNotKnown]:
    """What both participants reported, endpoints that join later included."""
    reader(pair.one, pair.network.now, SMALL, topic="other")
    pair.run()
    return [
        event
        for events in pair.network.events.values()
        for event in events
        if isinstance(event, TypeNotKnown)
    ]


@pytest.fixture
def all_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every participant is an old one."""
    monkeypatch.setattr(ParticipantData, "crashes_on_int8", property(lambda _: True))


@pytest.mark.usefixtures("all_crash")
def test_each_endpoint_that_announces_such_a_type_is_reported_once() -> None:
    pair = Pair(SMALL, SMALL)
    found = reported(pair)
    assert {(each.local, each.remote, each.topic) for each in found} == {
        (pair.reader.guid, pair.writer.guid, "t"),
        (pair.writer.guid, pair.reader.guid, "t"),
    }
    more = reader(pair.two, pair.network.now, SMALL)
    pair.run()
    assert more.guid not in {each.remote for each in reported(pair)}  # the writer was reported


@pytest.mark.usefixtures("all_crash")
def test_a_peer_that_does_not_match_may_ask_too() -> None:
    assert len(reported(Pair(SMALL, parse("@final struct Other { uint8 b; string c; };", "Other")))) == 2


@pytest.mark.usefixtures("all_crash")
def test_other_types_are_no_matter() -> None:
    assert reported(Pair(PLAIN, PLAIN)) == []
    assert reported(Pair(None, None)) == []


def test_peers_that_know_the_types_are_no_matter() -> None:
    assert reported(Pair(SMALL, SMALL)) == []


def test_members_at_any_depth() -> None:
    deep = "struct In { sequence<uint8> b; }; struct Out { sequence<In, 3> many; };"
    assert has_int8(parse(deep, "Out"))
    assert has_int8(parse("union U switch (long) { case 1: int8 a; }; struct S { U u; };", "S"))
    assert not has_int8(PLAIN)


def test_an_unknown_type_is_logged_once_for_each_topic_with_its_hint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warnings = EventWarnings(NodeConfig(type_hint="mend it"))
    local, remote = Guid(bytes(12), b"\0\0\1\4"), Guid(bytes(range(12)), b"\0\0\1\7")
    with caplog.at_level(logging.WARNING):
        for topic in ("a", "a", "b"):
            warnings.on_event(TypeNotKnown(local, remote, topic, "0.10.2" if topic == "a" else ""))
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("topic 'a': the announced type has int8 or uint8 members; Cyclone DDS 0.10.2 of ")
    assert str(remote) in first and first.endswith("(mend it)")
    assert second.startswith("topic 'b'") and "Cyclone DDS of " in second


def test_reported_types_are_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("spark_rtps.transport.net.event_queue.MISMATCHES_LOGGED_MAX", 2)
    warnings = EventWarnings(NodeConfig())
    guid = Guid(bytes(12), b"\0\0\1\4")
    for topic in "abc":
        warnings.on_event(TypeNotKnown(guid, guid, topic, ""))
    assert len(caplog.records) == 2
