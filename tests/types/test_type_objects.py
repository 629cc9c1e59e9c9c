"""Type objects, byte for byte with those of Cyclone DDS: its IDL compiler's, and its Python's."""

from __future__ import annotations

import hashlib
import math
import random
from dataclasses import replace

import pytest
from cyclonedds.idl._support import Endianness
from cyclonedds.idl._xt_builder import XTBuilder
from hypothesis import HealthCheck, assume, given, settings

from spark_rtps.transport.errors import DecodeError, TypeDefinitionError
from spark_rtps.transport.types.model import (
    Alias,
    Array,
    BitField,
    Bitmask,
    Bitset,
    Case,
    Enum,
    Extensibility,
    Map,
    Member,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
    TryConstruct,
    Type,
    Union,
    WString,
    hash_id,
    traverse,
)
from spark_rtps.transport.types.xtypes import structures as x
from spark_rtps.transport.types.xtypes.information import decode_type_information, encode_type_information
from spark_rtps.transport.types.xtypes.type_identifiers import (
    EK_BOTH,
    EK_COMPLETE,
    TK_MAP,
    TK_SEQUENCE,
    TypeIdentifier,
)
from spark_rtps.transport.types.xtypes.type_objects import (
    dependencies_of,
    identifier_of,
    struct_of,
    type_objects_of,
)
from spark_rtps.transport.types.xtypes.xcdr2 import decode, encode
from tests.types.cyclone_idlc import type_information
from tests.types.cyclone_oracle import cyclone_class, supports
from tests.types.idl_for_cyclone import idl_text
from tests.types.idl_types import ANONYMOUS_ARRAYS, FEATURES, structs

LONG, DOUBLE = Primitive(PrimitiveKind.INT32), Primitive(PrimitiveKind.FLOAT64)
COLOR = Enum("lab::Color", (("RED", 5), ("GREEN", 6), ("BLUE", 12)), default="GREEN")
STATE = Bitmask("lab::State", (("ON", 0), ("HOT", 3), ("LATE", 7)), 12)
BASE = Struct("lab::Base", (Member("id", LONG, 0, key=True),), Extensibility.MUTABLE)
DERIVED = Struct(
    "lab::inner::Derived",
    (
        *BASE.members,
        Member("words", Array(String(5), (4,)), 1, try_construct=TryConstruct.TRIM),
        Member("colors", Alias("lab::Colors", Sequence(COLOR, 300)), 5, external=True),
        Member("state", STATE, 6, optional=True),
        Member("grid", Alias("Grid", Array(LONG, (3, 400))), 7),
        Member("limited", DOUBLE, 8, notes=(("max", 1.5), ("min", -7.5), ("unit", "m/s"))),
        Member("hashed", LONG, hash_id("other"), notes=(("hashid", "other"),)),
        Member("needed", Primitive(PrimitiveKind.BYTE), 9, must_understand=True),
        Member("nested", Sequence(Sequence(BASE, 3)), 10),
        Member("text", String(300), 11),
        Member("large", Primitive(PrimitiveKind.UINT32), 12, notes=(("min", 3_000_000_000),)),
    ),
    Extensibility.MUTABLE,
    BASE,
)
CHOICE = Union(
    "lab::Choice",
    COLOR,
    (
        Case("number", DOUBLE, 1, (5,)),
        Case("derived", DERIVED, 2, (6,), external=True),
        Case("bases", Sequence(BASE), 3, (), default=True),
    ),
    Extensibility.APPENDABLE,
    key=True,
)
#: One of everything that Cyclone's IDL compiler has.
EVERYTHING = Struct(
    "lab::Everything",
    (Member("choice", CHOICE, 1), Member("bases", Array(BASE, (2,)), 3), Member("c", STATE, 4)),
    nested=True,
    autoid_hash=True,
)
GENERATED = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


def check_with_compiler(struct: Struct, information: bytes, mapping: bytes) -> None:
    ours = type_objects_of(struct)
    assert encode_type_information(ours.information) == information
    assert decode_type_information(information) == ours.information
    assert all(each in mapping for each in ours.objects.values())


def test_everything_as_the_idl_compiler_has_it() -> None:
    check_with_compiler(EVERYTHING, *type_information(idl_text(EVERYTHING), EVERYTHING.name))


@settings(GENERATED, max_examples=150)
@given(structs(features=FEATURES - {"map", "bitset", "wide", "float128"}))
def test_generated_as_the_idl_compiler_has_it(struct: Struct) -> None:
    assume(not any(map(has_large_labels, traverse(struct))))
    try:
        information, mapping = type_information(idl_text(struct), struct.name)
    except ValueError:  # it wants @must_understand in mutable types only, and has other such rules
        assume(False)
    check_with_compiler(struct, information, mapping)


@settings(GENERATED, max_examples=40)
@given(structs(features=FEATURES - {"map", "bitset", "wide", "float128", "annotations"}))
def test_generated_as_python_has_it(struct: Struct) -> None:
    """Cyclone's Python agrees with its C library, but knows no annotations like @try_construct and @unit."""
    assume(supports(struct) and not any(has_large_labels(t) or is_beyond_python(t) for t in traverse(struct)))
    information, _ = XTBuilder.process_type(cyclone_class(struct))
    theirs = decode_type_information(
        information.serialize(endianness=Endianness.Little, use_version_2=True)[4:]
    )
    ours = type_objects_of(struct).information
    for their, our in ((theirs.minimal, ours.minimal), (theirs.complete, ours.complete)):
        assert their is not None
        assert our is not None
        assert their.type == our.type
        # theirs come more than once
        assert set(their.dependents) == set(our.dependents)


def has_large_labels(t: Type) -> bool:
    """Whether a union has labels that are no 32-bit integers, the only ones that type objects know."""
    labels = [label for case in t.cases for label in case.labels] if isinstance(t, Union) else []
    return any(not -(1 << 31) <= label < 1 << 31 for label in labels)


def is_beyond_python(t: Type) -> bool:
    """Cyclone's Python cannot write labels that are characters, drops those of a default branch, and forgets that a
    union needs the alias of its discriminator."""
    if not isinstance(t, Union):
        return False
    chars = [Primitive(kind) for kind in (PrimitiveKind.CHAR8, PrimitiveKind.CHAR16)]
    labelled = any(case.default and case.labels for case in t.cases)
    return labelled or isinstance(t.discriminator, Alias) or t.discriminator in chars


def carried(t: Type) -> Type:
    """What complete type objects say of a type: all but the comment in ``type_objects``."""
    if isinstance(t, Sequence | Array):
        return replace(t, element=carried(t.element))
    if isinstance(t, Map):
        return replace(t, key=carried(t.key), value=carried(t.value))
    if isinstance(t, Alias):
        return replace(t, type=carried(t.type))
    if isinstance(t, Bitset):
        return replace(t, base=None, size=t.fields[-1].position + t.fields[-1].bits)
    if isinstance(t, Enum):
        literals = tuple(sorted(t.literals, key=lambda literal: literal[1]))
        default = t.default or t.literals[0][0]
        return replace(t, literals=literals, default=None if default == literals[0][0] else default)
    if isinstance(t, Struct):
        base = None if t.base is None else carried(t.base)
        assert base is None or isinstance(base, Struct)
        return replace(t, members=tuple(map(carried_member, t.members)), base=base)
    if isinstance(t, Union):
        cases = tuple(replace(case, type=carried(case.type)) for case in t.cases)
        return replace(t, discriminator=carried(t.discriminator), cases=cases)
    return t


def carried_member(member: Member) -> Member:
    notes = tuple(note for note in member.notes if note[0] != "default")
    return replace(member, type=carried(member.type), notes=notes)


@settings(GENERATED, max_examples=150)
@given(structs(features=FEATURES | {ANONYMOUS_ARRAYS}))
def test_read_back(struct: Struct) -> None:
    if any(map(has_large_labels, traverse(struct))):
        with pytest.raises(TypeDefinitionError, match="at most 32 bits"):
            type_objects_of(struct)
        return
    made = type_objects_of(struct)
    complete, minimal = made.information.complete, made.information.minimal
    assert complete is not None
    assert minimal is not None
    assert struct_of(complete.type.id, made.objects) == carried(struct)
    unnamed = struct_of(minimal.type.id, made.objects)
    assert [(m.name, m.id, m.key) for m in unnamed.members] == [
        (f"m{m.id}", m.id, m.key) for m in struct.members
    ]
    for information in (complete, minimal):
        assert information.dependent_count == len(information.dependents)
        for each in (information.type, *information.dependents):
            assert identifier_of(made.objects[each.id]) == each.id
            assert each.size == len(made.objects[each.id])
    needed = frozenset[bytes]().union(*map(dependencies_of, made.objects.values()))
    assert needed == made.objects.keys() - {complete.type.id, minimal.type.id}


def test_deterministic() -> None:
    assert list(type_objects_of(EVERYTHING).objects.items()) == list(
        type_objects_of(replace(EVERYTHING)).objects.items()
    )


def test_equal_but_for_names() -> None:
    """Types that differ in their names only have one minimal object."""
    other = Struct("lab::Other", BASE.members, BASE.extensibility)
    both = Struct("lab::Both", (Member("a", BASE, 0), Member("b", other, 1)))
    information = type_objects_of(both).information
    assert information.minimal is not None
    assert information.minimal.dependent_count == 1
    assert information.complete is not None
    assert information.complete.dependent_count == 2


def test_identifier_is_the_hash() -> None:
    for identifier, raw in type_objects_of(EVERYTHING).objects.items():
        assert identifier[1:] == hashlib.md5(raw).digest()[:14]
        assert identifier[:1] == raw[4:5]


PLAIN = {
    "map": (Map(LONG, String()), "a0f30100 00 7000 0001 0004"),
    "bounded map": (Map(String(), LONG, 7), "a0f30100 07 04 0100 7000"),
    "large map": (Map(LONG, LONG, 300), "a1f30100 2c010000 04 00 0100 04"),
    "wide string": (WString(3), "7203"),
    "large wide string": (WString(256), "73000000 00010000"),
    "long double": (Primitive(PrimitiveKind.FLOAT128), "0b"),
    "array of an array": (
        Array(Array(LONG, (2,)), (3, 4)),
        "90f30100 02000000 0304 90f3 0100 0000 01000000 02 04",
    ),
    "large array": (Array(LONG, (2, 256)), "91f30100 02000000 02000000 00010000 04"),
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_identifiers(name: str) -> None:
    """Types that Cyclone's IDL compiler does not have, as XTypes 1.3 annex B lays them out."""
    t, expected = PLAIN[name]
    made = type_objects_of(Struct("S", (Member("m", t, 0),)))
    assert made.information.complete is not None
    top = decode(x.TypeObject, made.objects[made.information.complete.type.id])
    identifier = top.value.value.member_seq[0].common.member_type_id
    assert identifier.to_bytes() == bytes.fromhex(expected)
    assert struct_of(made.information.complete.type.id, made.objects).members[0].type == t


def test_bitset() -> None:
    """XTypes 1.3 annex B: position, flags, bit count, holder; the name or its hash."""
    fields = (BitField("a", 0, 3, PrimitiveKind.BYTE), BitField("b", 5, 12, PrimitiveKind.UINT16))
    struct = Struct("S", (Member("bits", Bitset("lab::Bits", fields, 17), 0),))
    made = type_objects_of(struct)
    minimal = next(raw for raw in made.objects.values() if raw[4:6] == b"\xf1\x53")
    a, b = (hashlib.md5(name).hexdigest()[:8] for name in (b"a", b"b"))
    first, second = f"0a000000 0000 0000 03 02 {a}", f"0a000000 0500 0000 0c 06 {b}"
    expected = f"36000000 f153 0000 2e000000 0000 0000 00000000 22000000 02000000 {first} 0000 {second}"
    assert minimal == bytes.fromhex(expected)
    assert made.information.complete is not None
    assert struct_of(made.information.complete.type.id, made.objects) == struct


def test_collections_that_are_not_plain() -> None:
    """Peers may give any collection an object of its own, named or not."""
    element = x.CollectionElement(
        x.CommonCollectionElement(1, TypeIdentifier(0x04)), x.CompleteElementDetail()
    )
    sequence = x.SequenceType(0, x.CollectionHeader(300, None), element)
    detail = x.CompleteTypeDetail(None, None, "Named")
    array = x.CompleteArrayType(0, x.ArrayHeader((2, 3), detail), element)
    mapping = x.MapType(0, x.CollectionHeader(0, detail), element, element)
    objects: dict[bytes, bytes] = {}
    members = []
    for i, (kind, each) in enumerate(((TK_SEQUENCE, sequence), (0x61, array), (TK_MAP, mapping))):
        raw = encode(x.TypeObject, x.TypeObject(EK_COMPLETE, x.CompleteTypeObject(kind, each)))
        key = identifier_of(raw)
        objects[key] = raw
        common = x.CommonStructMember(i, 1, TypeIdentifier(key[0], key[1:]))
        members.append(x.StructMember(common, x.CompleteMemberDetail(f"m{i}", None, None)))
    header = x.StructHeader(TypeIdentifier(0), x.CompleteTypeDetail(None, None, "S"))
    struct = x.CompleteTypeObject(0x51, x.StructType(1, header, tuple(members)))
    raw = encode(x.TypeObject, x.TypeObject(EK_COMPLETE, struct))
    assert dependencies_of(raw) == objects.keys()
    objects[identifier_of(raw)] = raw
    read = struct_of(identifier_of(raw), objects)
    assert [member.type for member in read.members] == [
        Sequence(LONG, 300),
        Array(LONG, (2, 3)),
        Map(LONG, LONG),
    ]


def test_missing_and_wrong_objects() -> None:
    made = type_objects_of(EVERYTHING)
    assert made.information.complete is not None
    top = made.information.complete.type.id
    with pytest.raises(TypeDefinitionError, match="missing"):
        struct_of(top, {top: made.objects[top]})
    swapped = dict(made.objects)
    some = made.information.complete.dependents[0].id
    swapped[some] = made.objects[top]
    with pytest.raises(DecodeError, match="hash " + some.hex()):
        struct_of(top, swapped)
    color = next(key for key, raw in made.objects.items() if raw[4:6] == b"\xf2\x40")
    with pytest.raises(TypeDefinitionError, match="not a struct"):
        struct_of(color, made.objects)


def test_objects_are_found_in_any_order() -> None:
    made = type_objects_of(EVERYTHING)
    assert made.information.complete is not None
    shuffled = list(made.objects.items())
    random.Random(1).shuffle(shuffled)
    assert struct_of(made.information.complete.type.id, dict(shuffled)) == EVERYTHING


def test_names_too_long() -> None:
    with pytest.raises(TypeDefinitionError, match="256 bytes"):
        type_objects_of(Struct("S", (Member("m" * 257, LONG, 0),)))


def test_equivalence_kinds() -> None:
    """A collection without hashes inside is the same in both forms."""
    plain = Struct("S", (Member("m", Sequence(Sequence(LONG)), 0), Member("n", Sequence(COLOR), 1)))
    objects = type_objects_of(plain).objects
    kinds = []
    for raw in objects.values():
        described = decode(x.TypeObject, raw).value.value
        if isinstance(described, x.StructType):
            kinds.append([m.common.member_type_id.value.header.equiv_kind for m in described.member_seq])
    assert kinds == [[EK_BOTH, 0xF1], [EK_BOTH, 0xF2]]


def test_annotations_of_peers() -> None:
    """What a peer says in annotations is read, whatever it is, and of no consequence but for units and limits."""
    values = [x.AnnotationParameterValue(kind, 1) for kind in (*range(1, 0x0B), 0x0C, 0x0D, 0x10, 0x11, 0x40)]
    values += [
        x.AnnotationParameterValue(0x20, "text"),
        x.AnnotationParameterValue(0x21, "wide \u00e9\u6f22"),
    ]
    values.append(x.AnnotationParameterValue(0x0B, bytes(16)))
    parameters = tuple(x.AppliedAnnotationParameter(b"hash", value) for value in values)
    annotations = (
        x.AppliedAnnotation(TypeIdentifier(EK_COMPLETE, b"an annotation."), parameters),
        x.AppliedAnnotation(TypeIdentifier(EK_COMPLETE, b"another one..."), None),
    )
    verbatim = x.AppliedBuiltinTypeAnnotations(x.AppliedVerbatimAnnotation("BEFORE", "c", "// text"))
    members = tuple(
        x.StructMember(
            x.CommonStructMember(i, 1, TypeIdentifier(0x04)),
            x.CompleteMemberDetail(f"m{i}", x.AppliedBuiltinMemberAnnotations(min=value), annotations),
        )
        for i, value in enumerate(values)
    )
    header = x.StructHeader(TypeIdentifier(0), x.CompleteTypeDetail(verbatim, annotations, "S"))
    described = x.CompleteTypeObject(0x51, x.StructType(1, header, members))
    raw = encode(x.TypeObject, x.TypeObject(EK_COMPLETE, described))
    assert decode(x.TypeObject, raw).value == described
    assert dependencies_of(raw) == frozenset()
    read = struct_of(identifier_of(raw), {identifier_of(raw): raw})
    assert [dict(member.notes).get("min") for member in read.members] == [
        *([1] * 15),
        "text",
        "wide \u00e9\u6f22",
        None,
    ]


def test_limits() -> None:
    """@min and @max have the first of IDL's literal types that holds them."""
    for value in (-1, 1 << 31, 1 << 32, 1 << 63, -(1 << 40), 0.25, True, "text"):
        struct = Struct("S", (Member("m", LONG, 0, notes=(("max", value),)),))
        made = type_objects_of(struct)
        assert made.information.complete is not None
        (member,) = struct_of(made.information.complete.type.id, made.objects).members
        assert member.notes == (("max", value),)
        assert type(member.notes[0][1]) is type(value)
    with pytest.raises(TypeDefinitionError, match="64 bits"):
        type_objects_of(Struct("S", (Member("m", LONG, 0, notes=(("max", 1 << 64),)),)))


def test_limits_that_are_not_numbers_make_no_types_differ() -> None:
    """NaN equals nothing, and types are keys of caches."""
    made = type_objects_of(Struct("S", (Member("m", DOUBLE, 0, notes=(("max", math.nan),)),)))
    assert made.information.complete is not None
    identifier = made.information.complete.type.id
    read = struct_of(identifier, made.objects)
    assert read == struct_of(identifier, made.objects) and not read.members[0].notes


def test_large_labels() -> None:
    union = Union("U", Primitive(PrimitiveKind.UINT32), (Case("a", LONG, 1, (1 << 31,)),))
    with pytest.raises(TypeDefinitionError, match="at most 32 bits"):
        type_objects_of(Struct("S", (Member("m", union, 0),)))
