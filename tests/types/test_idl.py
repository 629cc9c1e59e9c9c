"""IDL in, types out; and what is wrong is told with its place."""

from __future__ import annotations

import pytest

from spark_rtps.transport.errors import TypeDefinitionError
from spark_rtps.transport.types.idl.parser import parse_idl, print_idl
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
    Union,
    WString,
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
        ("long  double", PrimitiveKind.FLOAT128),
        ("wchar", PrimitiveKind.CHAR16),
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
    vec = Alias("a::b::Vec", Array(DOUBLE, (3,)))
    matrix = Alias("a::b::Matrix", Sequence(Sequence(vec, 6)))
    e = Enum("a::b::E", (("A", 0), ("B", 6), ("C", 7)), 16)
    members = (
        Member("x", LONG, 0, key=True, notes=(("unit", "m"),)),
        Member("y", Array(LONG, (6, 2)), 1, key=True, notes=(("unit", "m"),)),
        Member(
            "f", Primitive(PrimitiveKind.FLOAT32), 2, notes=(("min", -1.5), ("max", 5.0), ("default", 1.5))
        ),
        Member("s", String(6), 3, optional=True),
        Member("m", matrix, 4),
        Member("e", e, 5),
        Member("struct", LONG, 40),
        Member("c", Primitive(PrimitiveKind.CHAR8), 41),
    )
    base = Struct("a::b::S", members, Extensibility.FINAL)
    assert types["a::b::S"] == base
    assert types["a::T"] == Struct("a::T", (*members, Member("v", vec, 42)), Extensibility.APPENDABLE, base)
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


def test_default_extensibility() -> None:
    types = parse_idl("struct S { long x; };", extensibility=Extensibility.FINAL)
    assert isinstance(types["S"], Struct) and types["S"].extensibility is Extensibility.FINAL


def test_unions() -> None:
    types = parse_idl(
        """
        enum Kind { ONE, TWO, THREE };
        typedef Kind K;
        @final union U switch (@key K) {
          case ONE: case Kind::THREE: long number;
          case TWO: @try_construct(TRIM) string<3> text;
        };
        @mutable @nested @autoid(HASH) union V switch (char) {
          case 'a': case '\\'': @external long a;
          default: case '\\n': @id(4) sequence<octet> b;
        };
        union W switch (boolean) { case TRUE: @default(2) long x[2]; };
        union X switch (wchar) { case L'\\u20AC': @hashid long x; case 'b': long y; };
        """
    )
    kind = Alias("K", Enum("Kind", (("ONE", 0), ("TWO", 1), ("THREE", 2))))
    number, text = (
        Case("number", LONG, 1, (0, 2)),
        Case("text", String(3), 2, (1,), try_construct=TryConstruct.TRIM),
    )
    assert types["U"] == Union("U", kind, (number, text), Extensibility.FINAL, key=True)
    a = Case("a", LONG, hash_id("a"), (97, 39), external=True)
    b = Case("b", Sequence(Primitive(PrimitiveKind.BYTE)), 4, (10,), default=True)
    char = Primitive(PrimitiveKind.CHAR8)
    assert types["V"] == Union("V", char, (a, b), Extensibility.MUTABLE, nested=True, autoid_hash=True)
    x = Case("x", Array(LONG, (2,)), 1, (1,), notes=(("default", 2),))
    boolean = Primitive(PrimitiveKind.BOOLEAN)
    assert types["W"] == Union("W", boolean, (x,), Extensibility.APPENDABLE)
    wide = types["X"]
    assert isinstance(wide, Union)
    assert [(case.id, case.labels) for case in wide.cases] == [
        (hash_id("x"), (0x20AC,)),
        (hash_id("x") + 1, (98,)),
    ]


def test_enumerations() -> None:
    types = parse_idl(
        """
        const short LAST = 7;
        enum E { A, @value(LAST) @default_literal B, C = 20, };
        @bit_bound(8) bitmask M { @position(3) X, Y, @position(0) Z };
        bitset S { bitfield<3> a; bitfield<1> b; bitfield<4>; bitfield<10, short> c, d; };
        bitset T : S { bitfield<20> e; @position(60) bitfield<2> f; bitfield<1>; };
        """
    )
    assert types["E"] == Enum("E", (("A", 0), ("B", 7), ("C", 20)), default="B")
    assert types["M"] == Bitmask("M", (("X", 3), ("Y", 4), ("Z", 0)), 8)
    fields = (
        BitField("a", 0, 3, PrimitiveKind.BYTE),
        BitField("b", 3, 1, PrimitiveKind.BOOLEAN),
        BitField("c", 8, 10, PrimitiveKind.INT16),
        BitField("d", 18, 10, PrimitiveKind.INT16),
    )
    base = Bitset("S", fields, 28)
    assert types["S"] == base
    own = (BitField("e", 28, 20, PrimitiveKind.UINT32), BitField("f", 60, 2, PrimitiveKind.BYTE))
    assert types["T"] == Bitset("T", (*fields, *own), 63, base)


def test_collections_and_typedefs() -> None:
    types = parse_idl(
        """
        typedef map<string<4>, sequence<wstring<3>, 1 << 2>, (16 >> 3)> M;
        typedef long Row[3], Number;
        struct S { M m; map<long, map<long, wstring>> n; Row rows[2]; sequence<Row> more; Number x; };
        typedef struct P { double x; } Point, Points[2];
        """
    )
    m = Alias("M", Map(String(4), Sequence(WString(3), 4), 2))
    row = Alias("Row", Array(LONG, (3,)))
    assert types["S"] == Struct(
        "S",
        (
            Member("m", m, 0),
            Member("n", Map(LONG, Map(LONG, WString())), 1),
            Member("rows", Array(row, (2,)), 2),
            Member("more", Sequence(row), 3),
            Member("x", Alias("Number", LONG), 4),
        ),
        Extensibility.APPENDABLE,
    )
    point = Struct("P", (Member("x", DOUBLE, 0),), Extensibility.APPENDABLE)
    assert types["Point"] == Alias("Point", point)
    assert types["Points"] == Alias("Points", Array(point, (2,)))


def test_members_have_what_annotations_say() -> None:
    members = struct(
        """
        enum E { RED, GREEN };
        struct S {
          @must_understand @external(FALSE) @optional long a;
          @external @try_construct long b;
          @MustUnderstand @Shared @ID(9) @Key long old;
          @default(GREEN) E e;
          @default("x" " y") @unit("") string s;
          @default('\\x41') char c;
          @default(-1) sequence<short> l;
          @hashid("q") long h;
        };
        """
    ).members
    e = Enum("E", (("RED", 0), ("GREEN", 1)))
    assert members == (
        Member("a", LONG, 0, optional=True, must_understand=True),
        Member("b", LONG, 1, external=True, try_construct=TryConstruct.USE_DEFAULT),
        Member("old", LONG, 9, key=True, must_understand=True, external=True),
        Member("e", e, 10, notes=(("default", "GREEN"),)),
        Member("s", String(), 11, notes=(("default", "x y"), ("unit", ""))),
        Member("c", Primitive(PrimitiveKind.CHAR8), 12, notes=(("default", "A"),)),
        Member("l", Sequence(Primitive(PrimitiveKind.INT16)), 13, notes=(("default", -1),)),
        Member("h", LONG, hash_id("q"), notes=(("hashid", "q"),)),
    )


def test_a_forward_declared_type_may_be_used_before_its_definition() -> None:
    types = parse_idl(
        """
        module m {
          struct Later; union Also;
          struct S { sequence<Later> l; Also u; };
        };
        module m {
          enum Kind { A };
          struct Inner { Kind k; };
          struct Later { Inner i; };
          union Also switch (Kind) { case A: Later l; };
          struct Later;
        };
        """
    )
    later = types["m::Later"]
    found = types["m::S"]
    assert isinstance(found, Struct)
    assert [member.type for member in found.members] == [Sequence(later), types["m::Also"]]


@pytest.mark.parametrize(
    ("text", "name", "kind", "value"),
    [
        ("const char C = '\\0';", "C", "char", "\0"),
        ("const char C = '\\x7f';", "C", "char", "\x7f"),
        ("const char C = '\\'';", "C", "char", "'"),
        ('const wstring C = L"\\u20acx" L"y\\n";', "C", "wstring", "€xy\n"),
        ("const double C = 1e3 + .5 - 2.0f;", "C", "double", 998.5),
        ("const double C = 7 / 2;", "C", "double", 3.0),
        ("const unsigned short C = ~0xFFF0;", "C", "unsigned short", 15),
        ("const unsigned long long C = ~0;", "C", "unsigned long long", (1 << 64) - 1),
        ("const boolean C = TRUE;", "C", "boolean", True),
        ("module m { const long A = 3; }; const long C = ::m::A - -2;", "C", "long", 5),
        ("enum E { A, B }; const E C = B;", "C", "E", "B"),
        ("module m { enum E { A, B }; }; const long C = m::B + m::E::B;", "C", "long", 2),
    ],
)
def test_constants_of_each_type(text: str, name: str, kind: str, value: object) -> None:
    found = struct(f"{text} struct S {{ @default({name}) {kind} x; }};")
    assert found.members[0].notes == (("default", value),)


def test_ignored_idl_is_noted_once() -> None:
    notes: list[str] = []
    parse_idl(
        '@topic @data_representation(XCDR1) struct A { @my::own(a=1, b="x") long x; @my::own long y; };\n'
        "@annotation my { long a default 3; enum E { A, B }; };\n"
        'struct String { @verbatim(text="{") sequence<@external long> y; };\n'
        "enum E { RED }; enum F { RED };",
        "a.idl",
        notes=notes,
    )
    assert notes == [
        "a.idl:1:8: @data_representation is ignored",
        "a.idl:1:47: @my::own is ignored",
        "a.idl:3:17: @verbatim is ignored",
        "a.idl:3:46: @external is ignored",
        "a.idl:3:8: String is a keyword but for its case, which IDL refuses: write _String",
        "a.idl:4:26: RED is a literal of E too, which is not IDL",
    ]


def test_annotations_in_comments() -> None:
    found = struct(
        """
        struct S {
          long a; //@key
          string b; //@Optional //@ID 7
          long d; // @key is only read right after the slashes
        }; //@Extensibility MUTABLE_EXTENSIBILITY
        """
    )
    assert [(m.id, m.key, m.optional) for m in found.members] == [
        (0, True, False),
        (7, False, True),
        (8, False, False),
    ]
    assert found.extensibility is Extensibility.MUTABLE


def test_keylist() -> None:
    text = "module m { struct S { long a; string b; }; };\n#pragma keylist m::S b a\n"
    assert [member.key for member in struct(text, "m::S").members] == [True, True]
    assert struct("struct S { long a; };\n#pragma keylist S\n").is_keyed is False
    for keys in ("S c", "S a.b", "T a", ""):
        with pytest.raises(TypeDefinitionError, match=r"^<idl>:2:1: #pragma keylist"):
            parse_idl(f"struct S {{ long a; }};\n#pragma keylist {keys}\n")
    with pytest.raises(TypeDefinitionError, match="S is in use already"):
        parse_idl("struct S { long a; }; struct T { S s; };\n#pragma keylist S a\n")


def test_long_texts_are_read_in_one_pass() -> None:
    text = "".join(
        f"module m{i} {{ struct S {{ {' '.join(f'long x{j};' for j in range(100))} }}; }};\n"
        for i in range(100)
    )
    assert len(parse_idl(text)) == 100
