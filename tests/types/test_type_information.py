"""TypeInformation: what Cyclone DDS and Fast DDS really announced, and what Cyclone looked up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_rtps.transport.errors import DecodeError
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.types.xtypes.information import (
    Dependencies,
    SizedIdentifier,
    TypeInformation,
    decode_type_information,
    encode_type_information,
)
from spark_rtps.transport.types.xtypes.type_objects import identifier_of, struct_of, type_objects_of
from spark_rtps.transport.wire.message import iter_submessages
from spark_rtps.transport.wire.submessages import Data, decode_submessage
from tests.support.pcap import CAPTURES, captures, read_pcap

#: As the writers of the captures have it, in IDL.
LAB = parse_idl(
    """
    module lab {
      @final enum Color { RED, GREEN, BLUE };
      @final struct Point { double x; double y; };
      @final struct Rich {
        @key long id; string name; Color color; Point pos; sequence<long> vals; sequence<string> tags;
        sequence<Point> path; octet raw[4]; boolean flag; long long stamp; };
      @appendable struct PointA { double x; double y; };
      @appendable struct RichA {
        @key long id; string name; Color color; PointA pos; sequence<long> vals; sequence<string> tags;
        sequence<PointA> path; octet raw[4]; boolean flag; long long stamp; };
      @final struct Small { @key long id; unsigned long seq; double a; long long t; };
      @final struct Blob { unsigned long seq; sequence<octet> data; };
      @final struct SKey { @key string k; @key long long n; double v; };
      @final struct OptFinal {
        @key long id; string name; @optional double extra; @optional string note; Color color; short tail; };
      @appendable struct OptApp {
        @key long id; string name; @optional double extra; @optional string note; Color color; short tail; };
      @mutable struct OptMut {
        @key long id; string name; @optional double extra; @optional string note; Color color; short tail; };
    };
    """
)
_TYPE_LOOKUP_REPLY_WRITER = bytes.fromhex("000301c3")
_SEDP_WRITERS = (bytes.fromhex("000003c2"), bytes.fromhex("000004c2"))
_PID_TYPE_NAME, _PID_TYPE_OBJECT, _PID_TYPE_INFORMATION, _PID_SENTINEL = 0x0007, 0x0072, 0x0075, 1


def data_of(stem: str) -> Iterator[Data]:
    for datagram in read_pcap(CAPTURES / f"{stem}.pcap"):
        message = memoryview(datagram.payload)
        if len(message) < 20 or bytes(message[:4]) != b"RTPS":
            continue
        for kind, flags, start, stop in iter_submessages(message):
            submessage = decode_submessage(kind, flags, message[start:stop])
            if isinstance(submessage, Data) and submessage.payload:
                yield submessage


def announced(stem: str) -> list[dict[int, bytes]]:
    """The parameters of each endpoint that a capture announces."""
    found = []
    for data in data_of(stem):
        if data.writer_id in _SEDP_WRITERS:
            payload, at, parameters = bytes(data.payload), 4, dict[int, bytes]()
            while at + 4 <= len(payload):
                pid, size = (int.from_bytes(payload[at + i : at + i + 2], "little") for i in (0, 2))
                if pid == _PID_SENTINEL:
                    break
                parameters[pid] = payload[at + 4 : at + 4 + size]
                at += 4 + size
            found.append(parameters)
    return found


def type_named(parameters: dict[int, bytes]) -> Struct:
    name = parameters[_PID_TYPE_NAME][4:].rstrip(b"\0").decode()
    struct = LAB[name]
    assert isinstance(struct, Struct)
    return struct


def by_cyclone(stem: str) -> list[dict[int, bytes]]:
    return [
        each for each in announced(stem) if _PID_TYPE_INFORMATION in each and _PID_TYPE_OBJECT not in each
    ]


CYCLONE = [path.stem for path in captures() if by_cyclone(path.stem)]


def test_captures_of_cyclone_exist() -> None:
    assert len(CYCLONE) > 20


@pytest.mark.parametrize("stem", CYCLONE)
def test_type_information_equals_that_of_cyclone(stem: str) -> None:
    """The identifiers are those that we compute from IDL; the size of the type itself is left at 0 there."""
    for parameters in by_cyclone(stem):
        value = parameters[_PID_TYPE_INFORMATION]
        information = decode_type_information(value)
        assert encode_type_information(information) == value
        ours = type_objects_of(type_named(parameters)).information
        for their, our in ((information.minimal, ours.minimal), (information.complete, ours.complete)):
            assert their is not None
            assert our is not None
            assert their.type.id == our.type.id
            assert their.dependents == our.dependents
            assert their.dependent_count == our.dependent_count


def test_types_that_cyclone_looked_up_are_found() -> None:
    """Replies carry complete objects of Rich and of all it is made of, as we make them."""
    rich = LAB["lab::Rich"]
    assert isinstance(rich, Struct)
    made = type_objects_of(rich)
    complete = [raw for key, raw in made.objects.items() if key[0] == 0xF2]
    replies = [
        bytes(d.payload) for d in data_of("c19_typelookup_rich") if d.writer_id == _TYPE_LOOKUP_REPLY_WRITER
    ]
    assert len(replies) == len(complete) == 3
    seen = {}
    for raw in complete:
        asked = b"\1\0\0\0" + identifier_of(raw)  # a sequence of one
        reply = next(reply for reply in replies if asked in reply)
        at = reply.index(asked) + len(asked)
        at += -at % 4
        found = reply[at : at + 4 + int.from_bytes(reply[at : at + 4], "little")]
        assert found == raw
        seen[identifier_of(found)] = found
    assert made.information.complete is not None
    assert struct_of(made.information.complete.type.id, seen) == rich


@pytest.mark.parametrize("stem", ["f01_rich_typeobject", "x03_fast_typeinfo_rejected"])
def test_fast_dds_sends_another_thing(stem: str) -> None:
    values = {p[_PID_TYPE_INFORMATION] for p in announced(stem) if _PID_TYPE_OBJECT in p}
    assert values
    for value in values:
        with pytest.raises(DecodeError):
            decode_type_information(value)


def test_one_form_only() -> None:
    rich = LAB["lab::Rich"]
    assert isinstance(rich, Struct)
    both = type_objects_of(rich).information
    for information in (TypeInformation(both.minimal, None), TypeInformation(None, both.complete)):
        assert decode_type_information(encode_type_information(information)) == information


def test_type_information_without_a_form() -> None:
    """A peer without one form can also say that its type is none."""
    none = Dependencies(SizedIdentifier(b"\0", 0), 0, ())
    information = decode_type_information(encode_type_information(TypeInformation(none, none)))
    assert information == TypeInformation(None, None)


def test_unknown_members_are_skipped() -> None:
    """A later version may add members, to mutable structures and at the end of appendable ones."""
    identifier = SizedIdentifier(b"\xf2" + bytes(14), 7)
    known = encode_type_information(TypeInformation(None, Dependencies(identifier, 0, ())))[4:]
    for extra in (
        "00200000 01000000",
        "01200010 0100 0000",
        "02200020 01000000",
        "03200030 0100000000000000",
        "04200040 05000000 0100000000 000000",
        "05200050 04000000 01000000",
        "06200060 01000000 01000000",
    ):
        body = bytes.fromhex(extra) + known
        assert decode_type_information(len(body).to_bytes(4, "little") + body).complete is not None
    needed = bytes.fromhex("002000a0 01000000") + known
    with pytest.raises(DecodeError, match="0x2000"):
        decode_type_information(len(needed).to_bytes(4, "little") + needed)
