"""What an IDL text means: the same as for Cyclone DDS's compiler, by the type objects of either.

They hold names, member ids, keys, labels, extensibility and most annotations; equal identifiers are equal objects.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, assume, given, settings

from spark_rtps.transport.errors import TypeDefinitionError
from spark_rtps.transport.types.idl.parser import parse_idl, print_idl
from spark_rtps.transport.types.model import (
    Enum,
    Extensibility,
    Primitive,
    PrimitiveKind,
    Struct,
    Union,
    resolve,
    traverse,
)
from spark_rtps.transport.types.xtypes.information import decode_type_information
from spark_rtps.transport.types.xtypes.type_objects import type_objects_of
from tests.types import cyclone_idlc, idl_types

#: Each has a struct S. That compiler counts a union's members from 0, which XTypes does not: so they have an @id.
TEXTS = {
    "primitives": "struct S { boolean a; octet b; char c; wchar d; int8 e; uint8 f; short g; unsigned short h; long i;"
    " unsigned long j; long long k; unsigned long long l; float m; double n; int16 o; uint16 p; int32 q; uint32 r;"
    " int64 t; uint64 u; long double v; };",
    "strings": "struct S { string a; string<5> b; string<300> c; wstring d; wstring<7> e; };",
    "collections": "struct S { sequence<long> a; sequence<string<3>, 5> b; long c[3]; double d[2][300];"
    " sequence<sequence<octet>, 300> e; string f[2]; };",
    "ids": 'struct S { long a; @id(10) long b; long c; @hashid long d; long e; @hashid("colour") long f; };',
    "autoid": '@autoid(HASH) struct S { long color; @id(3) long b; @hashid("x") long c; };',
    "autoid alone": "@autoid struct S { long color; long b; };",
    "autoid sequential": "@autoid(SEQUENTIAL) struct S { long color; long b; };",
    "autoid of a module": "@autoid(HASH) module m { struct T { long color; };"
    " @autoid(SEQUENTIAL) struct U { long color; }; }; struct S { m::T t; m::U u; };",
    "keys": "struct S { @key long a; @key(FALSE) long b; @key(TRUE) string c; };",
    "member flags": "@mutable struct S { @optional long a; @optional(FALSE) long b; @must_understand long c;"
    " @external long d; };",
    "extensibility": "@final struct F { long x; }; @appendable struct A { F f; }; @mutable struct M { A a; };"
    " @extensibility(MUTABLE) struct S { M m; };",
    "nested": "@nested struct T { long a; }; @nested(FALSE) struct S { T t; };",
    "nested by default": "@default_nested module m { struct T { long a; }; @topic struct V { long a; };"
    " @nested(FALSE) struct W { long a; }; @default_nested(FALSE) module n { struct X { long a; }; }; };"
    " struct S { m::T t; m::V v; m::W w; m::n::X x; };",
    "inheritance": "struct A { @key long x; long y; }; struct B : A { long z; };"
    " struct S : B { @id(20) long d; long e; };",
    "inheritance and ids": "@mutable struct A { @id(7) long x; long y; };"
    " @mutable struct S : A { long c; @hashid long d; };",
    "inheritance and autoid": "@autoid(HASH) struct A { long x; }; struct B : A { long y; };"
    " @autoid(HASH) struct S : B { long c; };",
    "enum": "enum E { A, B, C }; struct S { E x; };",
    "enum with values": "@bit_bound(16) enum E { @value(3) A, B, @value(70) C }; struct S { E x; };",
    "enum with a default": "enum E { A, @default_literal B, C }; struct S { E x; };",
    "bitmask": "@bit_bound(8) bitmask M { A, @position(4) B, C }; struct S { M x; };",
    "bitmask of 64 bits": "@bit_bound(64) bitmask M { @position(63) A, @position(1) B }; struct S { M x; };",
    "typedefs": "typedef long L; typedef L LL; typedef sequence<LL, 3> Q; typedef double D[3][2];"
    " struct S { LL a; Q q[2]; D x; sequence<D> y; };",
    "typedef of a struct": "typedef struct T { long x; } TT; struct S { TT a; };",
    "constants": "const long N = (1 << 3) | 1; const unsigned short M = 0x10 + 010 - 5 * 2 / 3 % 2;"
    " struct S { long a[N]; long b[M]; };",
    "annotations of values": '@final struct S { @unit("m") long a; @min(1) @max(5) short b;'
    ' @range(min=-1, max=3) long long c; @default(4) long d; @unit("k") double e;'
    " @range(min=0.5, max=2.5) double f; @max(3.5) float g; };",
    "try_construct": "struct S { @try_construct(TRIM) string<3> a; @try_construct long b;"
    " @try_construct(USE_DEFAULT) long c; @try_construct(DISCARD) long d; };",
    "modules": "module a { struct T { long x; }; module b { struct T { long y; }; struct U { T t; ::a::T o; a::T p; };"
    " }; }; module a { struct V { b::U u; T t; }; }; struct S { a::V x; };",
    "forward declaration": "struct T; typedef sequence<T> Q; struct T { long x; }; struct S { Q a; T b; };",
    "escaped names": "struct S { long _struct; long _a; };",
    "union": "union U switch(long) { case 1: @id(0) long a; case 2: case 3: @id(1) string b;"
    " default: @id(2) double c; }; struct S { U x; };",
    "union of an enum": "enum E { A, B, C }; @appendable union U switch(@key E) { case A: case C: @id(0) long x;"
    " case B: @id(1) sequence<long> y; }; @appendable struct S { U x; };",
    "union of a boolean": "typedef boolean Bool; union U switch(Bool) { case TRUE: @id(0) long a[2];"
    " case FALSE: @id(1) @external string b; }; struct S { U x; };",
    "union of a char": "union U switch(char) { case 'a': @id(0) long a; case '\\n': case '\\x41': @id(4) long b; };"
    " struct S { U x; };",
    "union of an octet": "union U switch(octet) { case 3: @id(0) long a; default: @id(1) long b; }; struct S { U x; };",
    "union of an int64": "union U switch(int64) { case -3: @id(0) long a; case 1+1: @id(1) long b; };"
    " struct S { U x; };",
    "union with hashed ids": '@autoid(HASH) union U switch(long) { case 1: long a; case 2: @hashid("q") long b;'
    " case 3: @id(7) long c; }; struct S { U x; };",
    "union with a label beside default": "union U switch(long) { case 1: default: @id(0) long a;"
    " case 2: @id(1) long b; }; struct S { U x; };",
}


#: That compiler gives enums and bitmasks an extensibility too, which XTypes does not.
_CASES = [(name, Extensibility.FINAL) for name in TEXTS] + [
    (name, Extensibility.APPENDABLE) for name in TEXTS if not re.search("enum |bitmask ", TEXTS[name])
]


@pytest.mark.parametrize(("name", "extensibility"), _CASES)
def test_same_type_objects_as_cyclone(name: str, extensibility: Extensibility) -> None:
    text = TEXTS[name]
    unannotated = cyclone_idlc.FINAL if extensibility is Extensibility.FINAL else cyclone_idlc.APPENDABLE
    value, _ = cyclone_idlc.type_information(text, "S", extensibility=unannotated)
    theirs = decode_type_information(value)
    struct = parse_idl(text, extensibility=extensibility)["S"]
    assert isinstance(struct, Struct)
    for found in (struct, parse_idl(print_idl(struct))["S"]):
        assert isinstance(found, Struct)
        ours = type_objects_of(found).information
        assert ours.minimal is not None and theirs.minimal is not None
        assert ours.complete is not None and theirs.complete is not None
        assert ours.minimal.type == theirs.minimal.type
        assert ours.complete.type == theirs.complete.type


@pytest.mark.parametrize(
    "text",
    [
        "struct S { @key @optional long a; };",
        "struct S { long a; long A; };",
        "struct T { long a; }; struct t { long b; }; struct S { T x; };",
        "struct T { long a; }; struct S { t x; };",
        "struct S { T x; }; struct T { long a; };",
        "enum E { A, A }; struct S { E x; };",
        "@bit_bound(8) bitmask B { @position(3) A, @position(2) C, D }; struct S { B x; };",
        "union U switch(long) { case 1: long a; case 1: long b; }; struct S { U x; };",
        "union U switch(double) { case 1: long a; }; struct S { U x; };",
        "union U switch(long) { default: long a; default: long b; }; struct S { U x; };",
        "enum E { A }; union U switch(E) { case 0: long a; }; struct S { U x; };",
        "union U switch(octet) { case 300: long a; }; struct S { U x; };",
        "@final @mutable struct S { long x; };",
        "struct S { any x; };",
        "struct S { fixed<3, 2> x; };",
        "interface I { }; struct S { long x; };",
        "const octet X = 300; struct S { long x; };",
        "struct S { @id(1) long a; @id(1) long b; };",
        "struct S { struct T { long x; } t; };",
    ],
)
def test_both_refuse(text: str) -> None:
    with pytest.raises(ValueError, match="error"):
        cyclone_idlc.type_information(text, "S")
    with pytest.raises(TypeDefinitionError):
        parse_idl(text)


#: That compiler has neither maps nor bitsets; flags of two bitmasks of one module it takes for the same name.
_FEATURES = idl_types.FEATURES - {"map", "bitset", "bitmask", "wide", "annotations"}


def _selects_nothing(t: Union) -> bool:
    """Whether the default of a union is never taken, for all values have a label."""
    discriminator = resolve(t.discriminator)
    size = len(discriminator.literals) if isinstance(discriminator, Enum) else 0
    if discriminator == Primitive(PrimitiveKind.BOOLEAN):
        size = 2
    return any(case.default for case in t.cases) and sum(len(case.labels) for case in t.cases) == size


@settings(max_examples=100, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(idl_types.structs(features=_FEATURES))
def test_cyclone_reads_what_is_printed(struct: Struct) -> None:
    types = list(traverse(struct))
    assume(not any(isinstance(t, Enum) and min(value for _, value in t.literals) < 0 for t in types))
    unions = [t for t in types if isinstance(t, Union)]
    # in type objects labels have 32 bits; that compiler refuses a default that selects nothing
    assume(all(-(1 << 31) <= label < 1 << 31 for t in unions for case in t.cases for label in case.labels))
    assume(not any(_selects_nothing(t) for t in unions))
    value, _ = cyclone_idlc.type_information(print_idl(struct), struct.name)
    theirs, ours = decode_type_information(value), type_objects_of(struct).information
    assert theirs.minimal is not None and ours.minimal is not None
    assert theirs.complete is not None and ours.complete is not None
    assert (theirs.minimal.type, theirs.complete.type) == (ours.minimal.type, ours.complete.type)


def test_a_union_of_cyclone_has_other_member_ids() -> None:
    """A union's first member has the id 1 (XTypes 1.3 §7.3.1.2.1.1), as Fast DDS has it; Cyclone DDS 11.0.1 has 0."""
    text = "union U switch(long) {{ case 1: {} long a; case 2: long b; }}; struct S {{ U x; }};"
    value, _ = cyclone_idlc.type_information(text.format(""), "S")
    for annotation, equal in (("", False), ("@id(0)", True)):
        struct = parse_idl(text.format(annotation), extensibility=Extensibility.FINAL)["S"]
        assert isinstance(struct, Struct)
        assert (type_objects_of(struct).information == decode_type_information(value)) is equal
