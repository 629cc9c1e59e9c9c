"""IDL in, types out; and what is wrong is told with its place."""

from __future__ import annotations

import pytest

from spark_rtps.transport.errors import TypeDefinitionError
from spark_rtps.transport.types.idl.parser import parse_idl, print_idl
from spark_rtps.transport.types.model import (
    Array,
    Enum,
    Extensibility,
    Member,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
    hash_id,
)

LONG, DOUBLE = Primitive(PrimitiveKind.INT32), Primitive(PrimitiveKind.FLOAT64)


def struct(text: str, name: str = "S") -> Struct:
    found = parse_idl(text)[name]
    assert isinstance(found, Struct)
    return found


@pytest.mark.parametrize(
    ("spelled", "kind"),
    [
        ("boolean", PrimitiveKind.BOOLEAN),
        ("octet", PrimitiveKind.BYTE),
        ("char", PrimitiveKind.CHAR8),
        ("int8", PrimitiveKind.INT8),
        ("uint8", PrimitiveKind.UINT8),
        ("short", PrimitiveKind.INT16),
        ("int16", PrimitiveKind.INT16),
        ("unsigned short", PrimitiveKind.UINT16),
        ("uint16", PrimitiveKind.UINT16),
        ("long", PrimitiveKind.INT32),
        ("int32", PrimitiveKind.INT32),
        ("unsigned  long", PrimitiveKind.UINT32),
        ("uint32", PrimitiveKind.UINT32),
        ("long long", PrimitiveKind.INT64),
        ("int64", PrimitiveKind.INT64),
        ("unsigned long /* really */ long", PrimitiveKind.UINT64),
        ("uint64", PrimitiveKind.UINT64),
        ("float", PrimitiveKind.FLOAT32),
        ("double", PrimitiveKind.FLOAT64),
    ],
)
def test_primitives(spelled: str, kind: PrimitiveKind) -> None:
    assert struct(f"struct S {{ {spelled} x; }};").members == (Member("x", Primitive(kind), 0),)


def test_everything_at_once() -> None:
    types = parse_idl(
        """
        #ifndef GUARD_IDL
        #define GUARD_IDL
        #include "std_msgs/msg/Header.idl"
        // a comment
        const long N = (1 << 3) + 2 * -1;  /* 6 */
        module a { module b {
          const string<8> NAME = "x" "y";
          typedef double Vec[3];
          @bit_bound(16) enum E { A, @value(N) B, C };
          typedef sequence<sequence<Vec, ::N>> Matrix;
          struct Forward;
          @final @topic(name="t") @verbatim(language="c", text="/* \\"; */")
          struct S {
            @key @unit("m") long x, y[N][2];
            @range(min=-1.5, max=5) @default(value=1.5) float f;
            @optional string<N> s;
            Matrix m;
            b::E e;
            @id(40) long _struct;
            char c;
          };
        }; };
        module a { struct T : b::S { @key(FALSE) ::a::b::Vec v; }; };
        #endif
        """
    )
    vec = Array(DOUBLE, (3,))
    e = Enum("a::b::E", (("A", 0), ("B", 6), ("C", 7)), 16)
    members = (
        Member("x", LONG, 0, key=True),
        Member("y", Array(LONG, (6, 2)), 1, key=True),
        Member("f", Primitive(PrimitiveKind.FLOAT32), 2),
        Member("s", String(6), 3, optional=True),
        Member("m", Sequence(Sequence(vec, 6)), 4),
        Member("e", e, 5),
        Member("struct", LONG, 40),
        Member("c", Primitive(PrimitiveKind.CHAR8), 41),
    )
    assert types["a::b::S"] == Struct("a::b::S", members, Extensibility.FINAL)
    assert types["a::T"] == Struct("a::T", (*members, Member("v", vec, 42)), Extensibility.APPENDABLE)
    assert list(types) == ["a::b::Vec", "a::b::E", "a::b::Matrix", "a::b::S", "a::T"]
    for name in ("a::b::S", "a::T"):
        printed = types[name]
        assert isinstance(printed, Struct)
        assert parse_idl(print_idl(printed))[name] == printed


@pytest.mark.parametrize(
    ("annotation", "extensibility"),
    [
        ("", Extensibility.APPENDABLE),
        ("@final", Extensibility.FINAL),
        ("@mutable", Extensibility.MUTABLE),
        ("@extensibility(FINAL)", Extensibility.FINAL),
        ("@extensibility(value=MUTABLE_EXTENSIBILITY)", Extensibility.MUTABLE),
    ],
)
def test_extensibility(annotation: str, extensibility: Extensibility) -> None:
    assert struct(f"{annotation} struct S {{ long x; }};").extensibility is extensibility


def test_member_ids() -> None:
    members = struct('struct S { long a; @hashid long b; @hashid("q") long c; @id(0x10) long d; long e; };')
    assert [m.id for m in members.members] == [0, hash_id("b"), hash_id("q"), 16, 17]
    assert struct("@autoid(HASH) struct S { long color; };").members[0].id == hash_id("color")
    # XTypes 1.3 §7.3.1.2.1.1 has this example
    assert hash_id("color") == 0x0FA5DD70


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("-7 / 2 + 10", 7),
        ("-7 % 4 + 10", 7),
        ("1 << 4 | 3 & 2 ^ 1", 19),
        ("256 >> 4", 16),
        ("~0 + 8", 7),
        ("0x1F", 31),
        ("017", 15),
        ("K", 5),
        ("LITERAL + 1", 2),
    ],
)
def test_constants(expression: str, value: int) -> None:
    known = "const long K = 5; enum E { ZERO, LITERAL };"
    text = f"{known} const long N = {expression}; struct S {{ long x[N]; }};"
    assert struct(text).members[0].type == Array(LONG, (value,))


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("struct A { long x };", "1:19", "unexpected '}'"),
        ("struct A {\n wstring x; };", "2:2", "wstring is not supported"),
        ("union U switch(long) { case 1: long x; };", "1:1", "union is not supported"),
        ("struct A { B x; };", "1:12", "B is not defined"),
        ("struct A; struct B { sequence<A> x; };", "1:31", "recursive types are not supported"),
        ("struct A { long x; long x; };", "1:25", "two members are named x"),
        ("struct A { long x; };\nstruct A { long x; };", "2:8", "A is defined twice"),
        ("struct A {\n", "1:11", "unexpected end of the text"),
        ("struct A { map<long, string> x; };", "1:16", "map is not supported"),
        ("struct A { long double x; };", "1:12", "long double is not supported"),
        ("struct A { long x[0]; };", "1:19", "must be a positive number, not 0"),
        ("struct A { string<-1> x; };", "1:19", "must be a positive number, not -1"),
        ("struct A { long x; //@key\n};", "1:20", "write @key before the member"),
        ("#define N 5\n", "1:1", "preprocessed"),
        ("#pragma keylist A x\n", "1:1", "write @key"),
        ("const long N = 1 / 0;", "1:18", "cannot calculate /"),
        ("const long N = 1 << 99;", "1:18", "shift by 99"),
        ('const string N = -"x";', "1:18", "- needs numbers"),
        ("const long N = 09;", "1:16", "09 is no number"),
        ("struct A { long $x; };", "1:17", "unexpected character '$'"),
        ("struct A {};", "1:8", "no members"),
        ("struct A { @key @optional long x; };", "1:32", "a key cannot be @optional"),
        ("struct A { @id(1) long x; @id(1) long y; };", "1:39", "two members have the id 1"),
        ("@extensibility(SOME) struct A { long x; };", "1:29", "@extensibility needs"),
        ("@final @mutable struct A { long x; };", "1:24", "more than one extensibility"),
        ("enum E { A, A };", "1:13", "has that name or value already"),
        ("@bit_bound(64) enum E { A };", "1:21", "@bit_bound"),
        ("@bit_bound(8) enum E { A, @value(200) B };", "1:39", "B = 200 does not fit @bit_bound(8)"),
        ("struct A { @id(TRUE) long x; };", "1:27", "@id needs a number"),
        ("const long N = 1; struct A { N x; };", "1:30", "N is a constant, not a type"),
        ("struct A { long x; }; struct B { long y[A]; };", "1:41", "A is a type, not a constant"),
        ("enum E { A }; struct B : E { long y; };", "1:26", "only inherit from a struct"),
    ],
)
def test_errors_tell_the_place(text: str, place: str, message: str) -> None:
    with pytest.raises(TypeDefinitionError) as caught:
        parse_idl(text, "robot.idl")
    assert str(caught.value).startswith(f"robot.idl:{place}: ")
    assert message in str(caught.value)


def test_default_extensibility() -> None:
    types = parse_idl("struct S { long x; };", extensibility=Extensibility.FINAL)
    assert isinstance(types["S"], Struct) and types["S"].extensibility is Extensibility.FINAL
