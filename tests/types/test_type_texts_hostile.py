"""Texts of types that mean ill, or were made by a broken tool: one kind of error, and never much work or memory."""

from __future__ import annotations

import pytest

from spark_rtps.transport.errors import TypeDefinitionError
from spark_rtps.transport.types.idl.parser import parse_idl, print_idl
from spark_rtps.transport.types.model import Member, Primitive, PrimitiveKind, Struct
from spark_rtps.transport.types.ros import parse_msg
from spark_rtps.transport.types.type_size import TypeSizes
from spark_rtps.transport.types.xtypes.type_objects import type_objects_of

LONG = Primitive(PrimitiveKind.INT32)
PLAIN = "struct S { long x; };"


def refused(text: str, message: str) -> None:
    with pytest.raises(TypeDefinitionError, match=message):
        parse_idl(text, "a.idl")


def chained(first: str, following: str, count: int) -> str:
    """``following`` with its number and the one before it, so often."""
    return first + "".join(following.format(i, i - 1) for i in range(1, count + 1))


# --- numbers and texts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "const long N = {};",
        "const double D = -{};",
        "const string S = {};",
        "const long N = {} / 0xfffff;",
        "struct S {{ long x[{}]; }};",
        "struct S {{ @range(min = {}) float x; }};",
        "enum E {{ A = {} }};",
        "union U switch (long) {{ case {}: long x; }};",
    ],
)
def test_numbers_of_any_length(text: str) -> None:
    refused(text.format("0x" + "f" * 100_000), "a.idl:1:.*0xff.* has more than 64 bits")
    refused(text.format("7" * 100_000), "a.idl:1:.*7 is no number")


def test_numbers_of_64_bits() -> None:
    found = parse_idl(
        "struct S { @default(0xFFFFFFFFFFFFFFFF) uint64 x; @default(-9223372036854775808) int64 y; };"
    )
    assert isinstance(found["S"], Struct)
    assert [member.notes for member in found["S"].members] == [
        (("default", (1 << 64) - 1),),
        (("default", -(1 << 63)),),
    ]


@pytest.mark.parametrize("member", ['@unit("{}") long x', '@hashid("{}") long x', '@default("{}") string x'])
def test_half_a_character(member: str) -> None:
    refused(f"struct S {{ {member.format(chr(92) + 'uD83D')}; }};", "1:.*half a surrogate pair")


def test_two_halves_make_a_character() -> None:
    struct = parse_idl('struct S { @default(L"\\uD83D\\uDE00") wstring x; };')["S"]
    assert isinstance(struct, Struct)
    assert struct.members[0].notes == (("default", "\U0001f600"),)
    assert parse_idl(print_idl(struct))["S"] == struct


# --- words, comments and macros -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("#if 0\n" + "/* " * 100_000 + "\n#endif\n", "2:1"),
        ("#if 0 " + "/* " * 100_000 + "\n#endif\n", "1:7"),
        ("/* " * 100_000, "1:1"),
    ],
    ids=["left out", "in a directive", "open"],
)
def test_comments_without_an_end(text: str, place: str) -> None:
    refused(text, f"a.idl:{place}: this comment has no end")


@pytest.mark.parametrize(
    "text",
    [
        "#if 0\n" + '\\"' * 100_000 + "\n#endif\n",
        "#define A " + '\\"' * 100_000 + "\n",
        "/*" + "*x" * 1_000_000 + "*/",
        "#if " + "1+" * 50_000 + "1\n#endif\n",
    ],
    ids=["quotes left out", "quotes of a macro", "comment", "condition"],
)
def test_long_texts_are_read_once(text: str) -> None:
    assert list(parse_idl(text + PLAIN)) == ["S"]


@pytest.mark.parametrize(
    "directive",
    [
        "#define N 3 // see /* there",
        '#define T "/*"\n#define N 3',
        "#define N /* two\nlines */ 3",
        "#define N \\\n 3 // a comment \\\n of two lines",
        "#if 0\n don't /* a\n comment */\n#endif\n#define N 3",
    ],
)
def test_comments_of_directives(directive: str) -> None:
    struct = parse_idl(f"{directive}\nstruct S {{ long x[N]; }}; /* end */")["S"]
    assert parse_idl("struct S { long x[3]; };") == {"S": struct}


@pytest.mark.parametrize("start", ["", "+ 1", f'"{"x" * 10_000}"'], ids=["nothing", "words", "text"])
def test_macros_that_double_each_other(start: str) -> None:
    text = chained(f"#define A0 {start}\n", "#define A{0} A{1} A{1}\n", 40)
    refused(f'{text}const long N = "" A40;', "a.idl:42:19: macros expand to more than")


# --- types that explode ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        chained("struct T0 { long x; };", "struct T{0} {{ T{1} a, b; }};", 60),
        chained(
            "union T0 switch (long) { case 1: long x; };",
            "union T{0} switch (long) {{ case 1: T{1} a; case 2: T{1} b; }};",
            60,
        ),
        chained(
            "struct T0 { long x; };", "typedef map<long, T{1}> M{0}; struct T{0} {{ M{0} a[2], b; }};", 60
        ),
        chained("typedef long T0;", "typedef T{1} T{0};", 5_000),
        chained("struct T0 { long x; };", "struct T{0} {{ T{1} a; }};", 1_000),
        chained("struct T0 { long x; };", "struct T{0} : T{1} {{ long x{0}; }};", 1_000),
    ],
    ids=["structs", "unions", "collections", "aliases", "depth", "inheritance"],
)
def test_types_of_too_many_parts(text: str) -> None:
    refused(text, r"a.idl:1:\d+: \w+ is too large a type")


def test_messages_of_too_many_parts() -> None:
    parts = [f"a/B{i} x\na/B{i} y\n" for i in range(1, 41)] + ["int32 x\n"]
    heads = ["", *(f"===\nMSG: a/B{i}\n" for i in range(1, 41))]
    text = "".join(head + part for head, part in zip(heads, parts, strict=True))
    with pytest.raises(TypeDefinitionError, match="is too large a type"):
        parse_msg(text, "a/msg/A")


def test_a_type_is_measured_once_however_often_it_is_used() -> None:
    struct = Struct("S", (Member("a", LONG, 0), Member("b", LONG, 1)))
    sizes = TypeSizes()
    for depth in range(1, 200):
        struct = Struct("S", (Member("a", struct, 0), Member("b", struct, 1)))
        assert sizes.is_too_large(struct) is (depth > 14)  # 2^16 - 1 structs, and their primitives


def test_more_members_than_a_type_object_holds() -> None:
    struct = Struct("S", tuple(Member(f"{'m' * 240}{i}", LONG, i) for i in range(4_500)))
    with pytest.raises(TypeDefinitionError, match=r"S has a TypeObject of \d+ bytes"):
        type_objects_of(struct)


# --- ROS values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        'string s "' + '\\"' * 50_000,
        'string[] s ["' + '\\"' * 50_000 + "]",
        "int32[] x [1" + " " * 50_000 + "x ]",
    ],
    ids=["quotes", "quotes of a list", "spaces of a list"],
)
def test_values_are_read_once(line: str) -> None:
    try:
        parse_msg(line, "a/msg/A")
    except TypeDefinitionError:
        assert "[]" in line


@pytest.mark.parametrize(
    ("line", "default"),
    [
        ('string s "a # b" # c', "a # b"),
        ("string s 'it''s' # c", None),
        ('string s "a # b', '"a'),
        ("string s it's # c", "it's"),
    ],
)
def test_comments_after_values(line: str, default: str | None) -> None:
    if default is None:
        with pytest.raises(TypeDefinitionError, match="must be written"):
            parse_msg(line, "a/msg/A")
    else:
        assert parse_msg(line, "a/msg/A").members[0].notes == (("default", default),)


@pytest.mark.parametrize(
    "line", ["""string[] s ["a, # b" , 'c' ,d ]  # e""", "int32[3] x [ 1 , 2,3 ] # [", "bool[] b [true,]"]
)
def test_lists_of_values(line: str) -> None:
    assert parse_msg(line, "a/msg/A").members[0].notes == ()
