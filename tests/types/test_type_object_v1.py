"""Type objects of XTypes 1.1, as RTI Connext announces them: written here, judged by Wireshark, read by us."""

from __future__ import annotations

import bz2
import contextlib
import zlib
from collections.abc import Callable
from dataclasses import replace
from struct import pack

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from spark_rtps.transport.errors import DecodeError
from spark_rtps.transport.limits import TYPE_DEPTH_MAX, TYPE_OBJECT_BYTES_MAX
from spark_rtps.transport.structure import ENTITYID_SEDP_PUBLICATIONS_WRITER, VENDOR_RTI
from spark_rtps.transport.types.model import (
    Alias,
    Array,
    Case,
    Enum,
    Extensibility,
    Member,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
    Type,
    Union,
    WString,
    traverse,
)
from spark_rtps.transport.types.xtypes.structures import StructType, TypeObject
from spark_rtps.transport.types.xtypes.type_object_v1 import decompress_type_object, struct_of_v1
from spark_rtps.transport.types.xtypes.xcdr2 import decode, layout_of
from tests.support.pcap import CAPTURES, read_pcap, write_pcap
from tests.support.wireshark import tshark
from tests.types.idl_types import structs
from tests.types.type_library_v1 import KINDS, Library, Value

BOTH_ORDERS = pytest.mark.parametrize("little_endian", [True, False], ids=["LE", "BE"])
LONG = Primitive(PrimitiveKind.INT32)
COLOR = Enum("lab::Color", (("RED", -1), ("GREEN", 6)))
BASE = Struct("lab::Base", (Member("id", LONG, 0, key=True),), Extensibility.APPENDABLE)
EVERYTHING = Struct(
    "lab::Everything",
    (
        *BASE.members,
        Member("color", COLOR, 1, key=True),
        Member("words", Array(String(5), (4, 2)), 2),
        Member("wide", WString(), 3),
        Member("colors", Alias("lab::Colors", Sequence(COLOR, 300)), 5, external=True),
        Member(
            "choice",
            Union(
                "lab::Choice",
                COLOR,
                (Case("number", LONG, 1, (-1,)), Case("text", String(), 2, (6, 7), default=True)),
                Extensibility.MUTABLE,
                key=True,
            ),
            70,
            optional=True,
        ),
        *(Member(kind.name.lower(), Primitive(kind), 100 + i) for i, kind in enumerate(KINDS)),
    ),
    Extensibility.APPENDABLE,
    BASE,
    nested=True,
)


@BOTH_ORDERS
@pytest.mark.parametrize("extended", [False, True], ids=["short", "long"])
def test_everything(little_endian: bool, extended: bool) -> None:
    value = Library(little_endian, extended).type_object(EVERYTHING)
    assert struct_of_v1(value, little_endian) == EVERYTHING


PLAIN = frozenset({"optional", "mutable", "union", "wide", "alias", "inheritance", "enum", "float128"})


def is_known(t: Type) -> bool:
    """Whether XTypes 1.1 has it: no integers of 8 bits, nor labels of more than 32."""
    if isinstance(t, Primitive):
        return t.kind in KINDS
    labels = [label for case in t.cases for label in case.labels] if isinstance(t, Union) else []
    return all(-(1 << 31) <= label < 1 << 31 for label in labels)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)
@given(structs(features=PLAIN), st.booleans())
def test_generated(struct: Struct, little_endian: bool) -> None:
    assume(all(map(is_known, traverse(struct))))
    value = Library(little_endian).type_object(struct)
    assert struct_of_v1(value, little_endian) == struct


def test_modules() -> None:
    """Types in a module are named with it, unless they are already."""
    little = True
    writer = Library(little)
    inner = Struct("Inner", (Member("x", LONG, 0),))
    value = writer.type_object(inner)
    module = Value(little).text("lab").put("I", 1)
    module.out += writer.elements[0].out
    element = Value(little).parameter(0, Value(little).put("I", 24)).parameter(1, module).end()
    library = Value(little).put("I", 1)
    library.out += element.out
    meant = Value(little).put("H", 22).put("Q", writer.ids[inner])
    whole = Value(little).parameter(0, library).parameter(1, meant).end()
    assert struct_of_v1(bytes(whole.out), little).name == "lab::Inner"
    assert struct_of_v1(value, little).name == "Inner"


# --- Wireshark ------------------------------------------------------------------------------------------


def announcement(parameters: list[tuple[int, bytes]]) -> bytes:
    """A publication as RTI announces it: these parameters in a message that has RTI's vendor id."""
    body = b"\0\3\0\0"
    for pid, value in (*parameters, (1, b"")):
        padded = value + bytes(-len(value) % 4)
        body += pack("<HH", pid, len(padded)) + padded
    head = pack("<HH", 0, 16) + bytes(4) + ENTITYID_SEDP_PUBLICATIONS_WRITER + pack("<iI", 0, 1)
    submessage = b"\x15\x05" + pack("<H", len(head) + len(body)) + head + body
    return b"RTPS\2\3" + VENDOR_RTI + bytes(range(12)) + submessage


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "zlib"])
def test_wireshark_reads_the_same(compressed: bool) -> None:
    """What we read is written as RTI writes it: Wireshark's reader of it, by RTI, finds the same."""
    value = Library(True).type_object(EVERYTHING)
    parameter = (0x8021, packed(1, value, zlib.compress(value))) if compressed else (0x0072, value)
    message = announcement([(0x0005, b"\2\0\0\0T\0\0\0"), parameter])
    output = tshark(write_pcap([message]), "-V")
    assert "Malformed" not in output
    assert tshark(write_pcap([message]), "-Y", "_ws.expert || _ws.malformed") == ""
    for member in EVERYTHING.own_members:
        assert f"{member.name} (ID: {member.id})" in output
    for name in ("lab::Everything", "lab::Base", "lab::Choice", "lab::Color", "lab::Colors"):
        assert name in output
    for literal in ("RED", "GREEN"):
        assert f"Enum name: {literal}" in output


# --- compressed -----------------------------------------------------------------------------------------


def packed(method: int, value: bytes, raw: bytes, *, order: str = "<", size: int | None = None) -> bytes:
    return pack(f"{order}III", method, len(value) if size is None else size, len(raw)) + raw


METHODS: dict[int, Callable[[bytes], bytes]] = {
    0: bytes,
    1: zlib.compress,
    2: bz2.compress,
    4: lambda value: pa.Codec("lz4_raw").compress(value, asbytes=True),
}


@BOTH_ORDERS
@pytest.mark.parametrize("method", METHODS)
def test_compressed(method: int, little_endian: bool) -> None:
    value = Library(little_endian).type_object(EVERYTHING)
    order = "<" if little_endian else ">"
    raw = packed(method, value, METHODS[method](value), order=order) + b"\0\0"
    assert decompress_type_object(raw, little_endian) == value
    assert struct_of_v1(decompress_type_object(raw, little_endian), little_endian) == EVERYTHING


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("more", [-1, 1, 5])
def test_another_size_than_it_says(method: int, more: int) -> None:
    value = Library(True).type_object(EVERYTHING)
    raw = packed(method, value, METHODS[method](value), size=len(value) + more)
    with pytest.raises(DecodeError):
        decompress_type_object(raw, True)


@pytest.mark.parametrize("method", [1, 2, 4])
def test_bomb(method: int) -> None:
    """No more is unpacked than the value says, and no more than a type object takes."""
    bomb = METHODS[method](bytes(30 << 20))
    for size in (TYPE_OBJECT_BYTES_MAX, TYPE_OBJECT_BYTES_MAX + 1, 0, 0xFFFFFFFF):
        with pytest.raises(DecodeError):
            decompress_type_object(packed(method, b"", bomb, size=size), True)


@pytest.mark.parametrize("method", [1, 2, 3, 4, 7])
def test_data_that_is_not_compressed_is_refused(method: int) -> None:
    with pytest.raises(DecodeError):
        decompress_type_object(packed(method, bytes(100), b"no such thing"), True)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 5), st.integers(0, 200), st.binary(max_size=100))
def test_compressed_garbage(method: int, size: int, raw: bytes) -> None:
    with contextlib.suppress(DecodeError):
        assert len(decompress_type_object(packed(method, b"", raw, size=size), True)) == size


# --- hostile --------------------------------------------------------------------------------------------


def test_cut_short() -> None:
    value = Library(True).type_object(EVERYTHING)
    for size in range(len(value) - 4):
        with pytest.raises(DecodeError):
            struct_of_v1(value[:size], True)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged(data: st.DataObject) -> None:
    little_endian = data.draw(st.booleans())
    value = bytearray(Library(little_endian).type_object(EVERYTHING))
    for _ in range(data.draw(st.integers(1, 4))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DecodeError):
        struct_of_v1(bytes(value), little_endian)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=100), st.booleans())
def test_garbage(value: bytes, little_endian: bool) -> None:
    with contextlib.suppress(DecodeError):
        struct_of_v1(value, little_endian)
    with contextlib.suppress(DecodeError):
        struct_of_v1(b"\0\1\0\0\xf2" + value, little_endian)


class Loops(Library):
    """Its aliases stand for themselves."""

    def body(self, t: Type) -> list[Value]:
        if isinstance(t, Alias):
            return [self.value().put("H", self.kind(t)).put("Q", self.following)]
        return super().body(t)


def test_recursive() -> None:
    """Ids, unlike hashes, can refer to each other."""
    struct = Struct("S", (Member("m", Alias("Loop", LONG), 0),))
    with pytest.raises(DecodeError, match="recursive"):
        struct_of_v1(Loops(True).type_object(struct), True)


class Bare(Library):
    """Its unions have no members, not even a discriminator."""

    def sequence(self, elements: list[Value]) -> Value:
        return self.value().put("I", 0)


def test_union_of_nothing() -> None:
    union = Union("U", LONG, (Case("a", LONG, 1, (1,)),))
    writer = Bare(True)
    loose = Alias("A", union)
    with pytest.raises(DecodeError, match="no discriminator"):
        struct_of_v1(writer.type_object(loose), True)


def test_parameters_missing() -> None:
    for count in (0, 1):
        value = Value(True)
        for number in range(count):
            value.parameter(number, Value(True).put("I", 0))
        with pytest.raises(DecodeError, match=f"{count} parameters"):
            struct_of_v1(bytes(value.end().out), True)


def test_modules_nested_deeply() -> None:
    library = Value(True).put("I", 0)
    for _ in range(TYPE_DEPTH_MAX + 2):
        module = Value(True).text("m")
        module.out += library.out
        library = Value(True).put("I", 1)
        element = Value(True).parameter(0, Value(True).put("I", 24)).parameter(1, module).end()
        library.out += element.out
    whole = Value(True).parameter(0, library).parameter(1, Value(True).put("H", 5, 5)).end()
    with pytest.raises(DecodeError, match="nested too deeply"):
        struct_of_v1(bytes(whole.out), True)


class Orphans(Library):
    """It leaves out what is named by its first alias."""

    def element(self, t: Type) -> None:
        super().element(t)
        if isinstance(t, Alias):
            self.elements.pop()


def test_missing() -> None:
    struct = Struct("S", (Member("m", Alias("Gone", LONG), 0),))
    with pytest.raises(DecodeError, match="missing"):
        struct_of_v1(Orphans(True).type_object(struct), True)


def test_no_struct() -> None:
    writer = Library(True)
    for meant in (COLOR, LONG):
        with pytest.raises(DecodeError, match="not a struct"):
            struct_of_v1(writer.type_object(meant), True)


def test_deep() -> None:
    t: Type = LONG
    for i in range(TYPE_DEPTH_MAX + 2):
        t = Struct(f"S{i}", (Member("m", t, 0),))
    assert isinstance(t, Struct)
    with pytest.raises(DecodeError, match="too many parts"):
        struct_of_v1(Library(True).type_object(t), True)


def test_too_large() -> None:
    with pytest.raises(DecodeError, match="over_limit"):
        struct_of_v1(bytes(TYPE_OBJECT_BYTES_MAX + 1), True)


# --- Fast DDS -------------------------------------------------------------------------------------------


def type_objects_in(stem: str) -> set[bytes]:
    """The values of PID_TYPE_OBJECT in a capture."""
    found = set()
    for datagram in read_pcap(CAPTURES / f"{stem}.pcap"):
        at = datagram.payload.find(b"\x72\0")
        while at > 0:
            size = int.from_bytes(datagram.payload[at + 2 : at + 4], "little")
            value = datagram.payload[at + 4 : at + 4 + size]
            if value[:6] == b"\0\1\0\0\xf2\x51":
                found.add(value)
            at = datagram.payload.find(b"\x72\0", at + 1)
    return found


def test_fast_dds_names_types_that_it_does_not_send() -> None:
    (value,) = type_objects_in("f01_rich_typeobject")
    with pytest.raises(DecodeError, match="f26b654c4d1f3d4da9f5bf62e163bd is missing"):
        struct_of_v1(value, True)


def test_fast_dds_types_without_others_are_read() -> None:
    """The captured value without its members of named types."""
    (value,) = type_objects_in("f01_rich_typeobject")
    described = decode(TypeObject, value[4:], bare=True)
    assert value == b"\0\1\0\0" + bare(described)
    rich = described.value.value
    assert isinstance(rich, StructType)
    rest = tuple(m for m in rich.member_seq if m.detail.name not in ("color", "pos", "path"))
    described = replace(described, value=replace(described.value, value=replace(rich, member_seq=rest)))
    assert struct_of_v1(b"\0\1\0\0" + bare(described), True) == Struct(
        "Rich",
        (
            Member("id", LONG, 0, key=True),
            Member("name", String(), 1),
            Member("vals", Sequence(LONG), 4),
            Member("tags", Sequence(String()), 5),
            Member("raw", Array(Primitive(PrimitiveKind.BYTE), (4,)), 7),
            Member("flag", Primitive(PrimitiveKind.BOOLEAN), 8),
            Member("stamp", Primitive(PrimitiveKind.INT64), 9),
        ),
        Extensibility.APPENDABLE,
    )


#: What the dynamic types of Fast DDS 2.9.1 announce of ``@final struct Number { @key unsigned long id; unsigned long
#: seq; string name; }``: its extensibility is a custom annotation as well, of a kind of value for later versions.
ANNOTATED = """
00010000 f2510100 00000000 01000000 00000000 01000000 00000000 01000000 00000000 01000000 f21a71d3 6a8a3f19
612d2f38 e1005d00 01000000 2063c160 50000000 0f000000 73686170 65733a3a 4e756d62 65720000 03000000 00000000
20000700 03000000 69640000 01000000 00000000 01000000 00000000 00000000 01000000 00000700 04000000 73657100
01000000 00000000 01000000 00000000 00000000 02000000 000070ff 05000000 6e616d65 00000000 01000000 00000000
01000000 00000000 00000000
"""


def test_fast_dds_types_with_annotations_are_read() -> None:
    assert struct_of_v1(bytes.fromhex(ANNOTATED), True) == Struct(
        "shapes::Number",
        (
            Member("id", Primitive(PrimitiveKind.UINT32), 0, key=True),
            Member("seq", Primitive(PrimitiveKind.UINT32), 1),
            Member("name", String(), 2),
        ),
        Extensibility.FINAL,
    )


def bare(described: TypeObject) -> bytes:
    out = bytearray()
    layout_of(TypeObject, bare=True).write_value(out, described)
    return bytes(out + bytes(-len(out) % 4))
