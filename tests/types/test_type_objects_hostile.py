"""Type objects that are broken, or that recurse or explode: errors of two kinds, and never much work."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rtps.transport.errors import DecodeError, TypeDefinitionError
from spark_rtps.transport.limits import TYPE_DEPTH_MAX, TYPE_NODES_MAX, TYPE_OBJECT_BYTES_MAX
from spark_rtps.transport.types.model import (
    Alias,
    Array,
    BitField,
    Bitmask,
    Bitset,
    Case,
    Enum,
    Map,
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
from spark_rtps.transport.types.xtypes import structures as x
from spark_rtps.transport.types.xtypes.information import (
    Dependencies,
    SizedIdentifier,
    TypeInformation,
    decode_type_information,
    encode_type_information,
)
from spark_rtps.transport.types.xtypes.type_identifiers import (
    EK_COMPLETE,
    TI_PLAIN_SEQUENCE_SMALL,
    TI_STRONGLY_CONNECTED_COMPONENT,
    TK_ALIAS,
    TK_BITSET,
    TK_STRUCTURE,
    PlainCollectionHeader,
    SmallSequence,
    StronglyConnectedComponentId,
    TypeIdentifier,
    TypeObjectHashId,
)
from spark_rtps.transport.types.xtypes.type_objects import (
    dependencies_of,
    identifier_of,
    struct_of,
    type_objects_of,
)
from spark_rtps.transport.types.xtypes.xcdr2 import encode

LONG, DOUBLE = Primitive(PrimitiveKind.INT32), Primitive(PrimitiveKind.FLOAT64)
WIDE = Struct(
    "lab::Wide",
    (
        Member("a", Enum("lab::E", (("x", 0), ("y", 1))), 0, key=True),
        Member("b", Bitmask("lab::M", (("p", 0), ("q", 3))), 1),
        Member("c", Bitset("lab::B", (BitField("u", 0, 3, PrimitiveKind.BYTE),), 3), 2),
        Member(
            "d", Union("lab::U", LONG, (Case("i", DOUBLE, 1, (1, 2)), Case("j", String(9), 2, (), True))), 3
        ),
        Member("e", Map(String(), Alias("lab::A", Array(WString(300), (2, 3)))), 4, optional=True),
        Member("f", Sequence(LONG, 300), 5, notes=(("max", 7.5), ("unit", "m"))),
    ),
    base=None,
)


def read(struct: Struct, *, minimal: bool = False) -> Struct:
    """Whatever is wrong with it, it is written, and read as if a peer had sent it."""
    made = type_objects_of(struct)
    information = made.information.minimal if minimal else made.information.complete
    assert information is not None
    return struct_of(information.type.id, made.objects)


def complete_objects(struct: Struct) -> tuple[bytes, dict[bytes, bytes]]:
    made = type_objects_of(struct)
    assert made.information.complete is not None
    return made.information.complete.type.id, dict(made.objects)


# --- broken bytes ---------------------------------------------------------------------------------------


def test_cut_short() -> None:
    for raw in type_objects_of(WIDE).objects.values():
        for size in range(len(raw)):
            with pytest.raises(DecodeError):
                dependencies_of(raw[:size])
    information = encode_type_information(type_objects_of(WIDE).information)
    for size in range(len(information)):
        with pytest.raises(DecodeError):
            decode_type_information(information[:size])


def try_all(raw: bytes) -> None:
    """No other errors than these two, whatever the bytes."""
    with contextlib.suppress(DecodeError, TypeDefinitionError):
        objects = {**type_objects_of(WIDE).objects, identifier_of(raw): raw}
        type_objects_of(struct_of(identifier_of(raw), objects))
    with contextlib.suppress(DecodeError):
        dependencies_of(raw)
    with contextlib.suppress(DecodeError):
        decode_type_information(raw)
    with contextlib.suppress(DecodeError, TypeDefinitionError):
        struct_of(raw, {})


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=120), st.sampled_from([b"", b"\xf1", b"\xf2\x51", b"\xf2\x52"]))
def test_garbage(tail: bytes, kind: bytes) -> None:
    body = kind + tail
    try_all(len(body).to_bytes(4, "little") + body)


def test_damaged() -> None:
    """Each byte of each object, changed in some way."""
    ways = random.Random(5)
    made = type_objects_of(WIDE)
    for raw in [*made.objects.values(), encode_type_information(made.information)]:
        for at in range(len(raw)):
            damaged = bytearray(raw)
            damaged[at] = ways.choice([0, 1, 255, raw[at] ^ 1, raw[at] ^ 128, ways.randrange(256)])
            try_all(bytes(damaged))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damaged_in_places(data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from(list(type_objects_of(WIDE).objects.values()))))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try_all(bytes(raw))


def test_counts_are_checked_before_anything_is_made_of_them() -> None:
    identifier, objects = complete_objects(WIDE)
    raw = objects[identifier]
    at = raw.index((6).to_bytes(4, "little"), 4)
    huge = raw[:at] + b"\xff\xff\xff\x7f" + raw[at + 4 :]
    with pytest.raises(DecodeError, match="a sequence of 2147483647"):
        dependencies_of(huge)


@pytest.mark.parametrize(
    "raw",
    [b"", b"\1\0\0\0", b"\1\0\0\0\xf3", bytes(TYPE_OBJECT_BYTES_MAX + 1)],
    ids=["empty", "no form", "both", "huge"],
)
def test_no_type_object(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        identifier_of(raw)


def test_identifiers_nested_deeply() -> None:
    nested = b"\x80" * 100_000  # each a sequence of the next
    with pytest.raises(DecodeError, match="nested too deeply"):
        struct_of(nested, {})


# --- types that recurse or explode ----------------------------------------------------------------------


def test_recursive() -> None:
    """Types that refer to each other are identified as strongly connected components."""
    component = StronglyConnectedComponentId(TypeObjectHashId(EK_COMPLETE, bytes(14)), 2, 1)
    identifier = TypeIdentifier(TI_STRONGLY_CONNECTED_COMPONENT, component)
    common = x.CommonStructMember(0, 1, identifier)
    header = x.StructHeader(TypeIdentifier(0), x.CompleteTypeDetail(None, None, "Node"))
    member = x.StructMember(common, x.CompleteMemberDetail("next", None, None))
    described = x.CompleteTypeObject(TK_STRUCTURE, x.StructType(1, header, (member,)))
    raw = encode(x.TypeObject, x.TypeObject(EK_COMPLETE, described))
    assert dependencies_of(raw) == frozenset()
    for start in (identifier_of(raw), identifier.to_bytes()):
        with pytest.raises(TypeDefinitionError, match="recursive"):
            struct_of(start, {identifier_of(raw): raw})
    sized = SizedIdentifier(identifier.to_bytes(), 100)
    information = TypeInformation(None, Dependencies(sized, 0, ()))
    assert decode_type_information(encode_type_information(information)) == information


#: What Cyclone DDS announces of ``struct Node { long value; @optional Node next; }``.
NODE = bytes.fromhex(
    "d000000001100040600000005c00000024000000b000000018000000f1a8ea5cc2fb20668183527c08ed640001000000"
    "0100000054000000010000002c0000000100000024000000b000000018000000f1a8ea5cc2fb20668183527c08ed6400"
    "01000000000000005c00000002100040600000005c00000024000000b000000018000000f2bf961cb2cbdfa630adb344"
    "3bac7c00010000000100000073000000010000002c0000000100000024000000b000000018000000f2bf961cb2cbdfa6"
    "30adb3443bac7c0001000000000000007b000000"
)


def test_recursive_as_cyclone_has_it() -> None:
    information = decode_type_information(NODE)
    assert encode_type_information(information) == NODE
    assert information.complete is not None
    assert len(information.complete.type.id) == 32
    with pytest.raises(TypeDefinitionError, match="recursive"):
        struct_of(information.complete.type.id, {})


def doubled(t: Type, depth: int, wrap: Callable[[str, Type], Type]) -> Struct:
    for i in range(depth):
        t = wrap(f"S{i}", t)
    return Struct("Top", (Member("m", t, 0),))


def two_members(name: str, t: Type) -> Struct:
    return Struct(name, (Member("a", t, 0), Member("b", t, 1)))


def test_exploding() -> None:
    """Forty small objects would be a type of 2^40 members."""
    small = doubled(LONG, 10, two_members)
    assert len(list(traverse(read(small)))) == 1 + 2**11 - 1
    objects: dict[bytes, bytes] = {}
    identifier = TypeIdentifier(0x04)
    for i in range(40):
        detail = [x.CompleteMemberDetail(name, None, None) for name in "ab"]
        members = tuple(
            x.StructMember(x.CommonStructMember(n, 1, identifier), each) for n, each in enumerate(detail)
        )
        header = x.StructHeader(TypeIdentifier(0), x.CompleteTypeDetail(None, None, f"S{i}"))
        raw = encode(
            x.TypeObject,
            x.TypeObject(EK_COMPLETE, x.CompleteTypeObject(TK_STRUCTURE, x.StructType(1, header, members))),
        )
        key = identifier_of(raw)
        objects[key] = raw
        identifier = TypeIdentifier(key[0], key[1:])
    with pytest.raises(TypeDefinitionError, match="too many parts"):
        struct_of(identifier.to_bytes(), objects)


def test_deep_chain() -> None:
    def one_member(name: str, t: Type) -> Struct:
        return Struct(name, (Member("m", t, 0),))

    read(doubled(LONG, TYPE_DEPTH_MAX - 2, one_member))
    with pytest.raises(TypeDefinitionError, match="too many parts"):
        read(doubled(LONG, TYPE_DEPTH_MAX - 1, one_member))
    with pytest.raises(TypeDefinitionError, match="too many parts"):
        read(doubled(LONG, TYPE_DEPTH_MAX + 20, one_member))


def test_an_array_of_many_dimensions_is_refused_before_they_are_multiplied() -> None:
    """Each is a level of nested lists; to multiply all that a type object has room for takes a minute."""

    def array(length: int, dimensions: int) -> Struct:
        return Struct("T", (Member("m", Array(LONG, (length,) * dimensions), 0),))

    read(array(1, TYPE_DEPTH_MAX - 2))
    for length, dimensions in ((1, TYPE_DEPTH_MAX - 1), (1, 2_000), (0x7FFF_FFFF, 2_000)):
        with pytest.raises(TypeDefinitionError, match="too many parts"):
            read(array(length, dimensions))


def test_deep_identifiers_in_a_deep_chain() -> None:
    """Neither is too deep by itself; together they would be at the end of Python's stack."""
    objects: dict[bytes, bytes] = {}
    identifier = TypeIdentifier(0x04)
    for i in range(TYPE_DEPTH_MAX - 4):
        for _ in range(TYPE_DEPTH_MAX - 8):
            sequence = SmallSequence(PlainCollectionHeader(EK_COMPLETE, 1), 0, identifier)
            identifier = TypeIdentifier(TI_PLAIN_SEQUENCE_SMALL, sequence)
        header = x.TypeHeader(x.CompleteTypeDetail(None, None, f"A{i}"))
        body = x.AliasBody(x.CommonAliasBody(0, identifier), x.CompleteElementDetail())
        described = x.CompleteTypeObject(TK_ALIAS, x.AliasType(0, header, body))
        raw = encode(x.TypeObject, x.TypeObject(EK_COMPLETE, described))
        key = identifier_of(raw)
        objects[key] = raw
        identifier = TypeIdentifier(key[0], key[1:])
    with pytest.raises(TypeDefinitionError, match="too many parts"):
        struct_of(identifier.to_bytes(), objects)


def test_inheritance_costs_what_it_is() -> None:
    """Each of thirty levels has its members and all above: a sum, not a product."""
    struct = Struct("S0", (Member("m0", LONG, 0),))
    for i in range(1, 30):
        members = (*struct.members, Member(f"m{i}", LONG, i))
        struct = Struct(f"S{i}", members, base=struct)
    assert read(struct) == struct


def test_many_members() -> None:
    most = Struct("S", tuple(Member(f"m{i}", LONG, i) for i in range(2000)))
    assert read(most) == most
    assert TYPE_NODES_MAX > 2000


# --- types that cannot be -------------------------------------------------------------------------------


def members(*made: Member) -> Struct:
    return Struct("S", made)


def one(t: Type) -> Struct:
    return members(Member("m", t, 0))


BROKEN = {
    "name": members(Member("a b", LONG, 0)),
    "empty name": members(Member("", LONG, 0)),
    "control character": members(Member("a\nb", LONG, 0)),
    "type name": replace(one(LONG), name="a::"),
    "two members of one name": members(Member("a", LONG, 0), Member("a", LONG, 1)),
    "two members of one id": members(Member("a", LONG, 0), Member("b", LONG, 0)),
    "large id": members(Member("a", LONG, 1 << 28)),
    "optional key": members(Member("a", LONG, 0, key=True, optional=True)),
    "array of none": one(Array(LONG, (3, 0))),
    "huge array": one(Array(LONG, (65536, 65536))),
    "map by doubles": one(Map(DOUBLE, LONG)),
    "map by structs": one(Map(Struct("T", (Member("m", LONG, 0),)), LONG)),
    "bits of an enum": one(Enum("E", (("a", 0),), 33)),
    "value of an enum": one(Enum("E", (("a", 256),), 8)),
    "negative value of an enum": one(Enum("E", (("a", -129),), 8)),
    "values of an enum with and without sign": one(Enum("E", (("a", -1), ("b", 128)), 8)),
    "two literals of one value": one(Enum("E", (("a", 1), ("b", 1)))),
    "two literals of one name": one(Enum("E", (("a", 1), ("a", 2)))),
    "bits of a bitmask": one(Bitmask("M", (("a", 0),), 65)),
    "no bits of a bitmask": one(Bitmask("M", (), 0)),
    "position of a flag": one(Bitmask("M", (("a", 8),), 8)),
    "two flags of one position": one(Bitmask("M", (("a", 1), ("b", 1)), 8)),
    "overlap of bit fields": one(
        Bitset("B", (BitField("a", 0, 4, PrimitiveKind.BYTE), BitField("b", 3, 4, PrimitiveKind.BYTE)), 7)
    ),
    "holder of a bit field": one(Bitset("B", (BitField("a", 0, 4, PrimitiveKind.FLOAT32),), 4)),
    "bits of a bit field": one(Bitset("B", (BitField("a", 0, 9, PrimitiveKind.BYTE),), 9)),
    "end of a bit field": one(Bitset("B", (BitField("a", 60, 5, PrimitiveKind.BYTE),), 65)),
    "no bit fields": one(Bitset("B", (), 0)),
    "label of a bitmask": one(Union("U", Bitmask("M", (("a", 0),), 8), (Case("a", LONG, 1, (256,)),))),
    "no branches": one(Union("U", LONG, ())),
    "branch without label": one(Union("U", LONG, (Case("a", LONG, 1, ()),))),
    "two branches of one label": one(Union("U", LONG, (Case("a", LONG, 1, (1,)), Case("b", LONG, 2, (1,))))),
    "two default branches": one(
        Union("U", LONG, (Case("a", LONG, 1, (), True), Case("b", LONG, 2, (), True)))
    ),
    "label of a discriminator": one(
        Union("U", Primitive(PrimitiveKind.UINT8), (Case("a", LONG, 1, (256,)),))
    ),
    "discriminator": one(Union("U", DOUBLE, (Case("a", LONG, 1, (1,)),))),
}


@pytest.mark.parametrize("name", BROKEN)
def test_types_that_cannot_be(name: str) -> None:
    with pytest.raises(TypeDefinitionError):
        read(BROKEN[name])


def test_base_that_is_no_struct() -> None:
    identifier, objects = complete_objects(one(Enum("E", (("a", 0),))))
    key = next(iter(dependencies_of(objects[identifier])))
    header = x.StructHeader(TypeIdentifier(key[0], key[1:]), x.CompleteTypeDetail(None, None, "S"))
    for flags, match in ((1, "inherits"), (3, "extensibility")):
        described = x.CompleteTypeObject(TK_STRUCTURE, x.StructType(flags, header, ()))
        raw = encode(x.TypeObject, x.TypeObject(EK_COMPLETE, described))
        with pytest.raises(TypeDefinitionError, match=match):
            struct_of(identifier_of(raw), {**objects, identifier_of(raw): raw})


def test_bit_field_held_by_nothing() -> None:
    field = x.Bitfield(x.CommonBitfield(0, 0, 3, 0x51), x.CompleteMemberDetail("a", None, None))
    header = x.TypeHeader(x.CompleteTypeDetail(None, None, "B"))
    described = x.CompleteTypeObject(TK_BITSET, x.BitsetType(0, header, (field,)))
    raw = encode(x.TypeObject, x.TypeObject(EK_COMPLETE, described))
    with pytest.raises(TypeDefinitionError, match="not held by an integer"):
        struct_of(identifier_of(raw), {identifier_of(raw): raw})
