"""What is wrong with an IDL text is told with its place, and with what to write instead."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rtps.transport.errors import TypeDefinitionError
from spark_rtps.transport.types.idl.parser import parse_idl


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("struct A { long x };", "1:19", "unexpected '}'"),
        ("struct A {\n any x; };", "2:2", "any is not supported: not a data type of a topic"),
        (
            "struct A { map<double, long> m; };",
            "1:16",
            "a map's keys are integers, characters, strings or enums",
        ),
        ("interface I { };", "1:1", "interface is not supported: not a data type of a topic"),
        ("abstract valuetype V { };", "1:1", "abstract is not supported"),
        ("exception E { long x; };", "1:1", "exception is not supported"),
        ("struct A { fixed<3, 2> x; };", "1:12", "fixed is not supported"),
        ("struct A { sequence<any> x; };", "1:21", "any is not supported"),
        ("struct A { Object x; };", "1:12", "Object is not supported"),
        ("struct A { long struct; };", "1:17", "as a name write _struct"),
        ("struct A { struct B { long x; } b; };", "1:12", "unexpected 'struct'"),
        ("struct A : { long x; };", "1:12", "unexpected '{'; expected '::' or a name"),
        ("struct A { long x; } struct B { long x; };", "1:22", "unexpected 'struct'; expected ';'"),
        ("/* no end\nstruct A { long x; };", "1:1", "this comment has no end"),
        ('const string S = "no end;\n', "1:18", "this text has no end"),
        ("@annotation A { long x", "1:1", "this @annotation has no end"),
        ("struct A { B x; };", "1:12", "B is not defined"),
        ("struct A; struct B { sequence<A> x; };", "1:31", "recursive types are not supported"),
        ("struct A { long x; long x; };", "1:25", "two members are named x"),
        ("struct A { long x; };\nstruct A { long x; };", "2:8", "A is defined twice"),
        ("struct A {\n", "1:11", "unexpected end of the text"),
        ("struct A { long x[0]; };", "1:19", "must be a positive number, not 0"),
        ("struct A { string<-1> x; };", "1:19", "must be a positive number, not -1"),
        ("struct A { long x //@key\n; };", "1:19", "write @key before the member"),
        ("#pragma keylist A x\n", "1:1", "write @key"),
        ("const long N = 1 / 0;", "1:18", "cannot calculate /"),
        ("const long N = 1 << 99;", "1:18", "shift by 99"),
        ('const string N = -"x";', "1:18", "- needs numbers"),
        ("const long N = 09;", "1:16", "09 is no number"),
        ("struct A { long $x; };", "1:17", "unexpected character '$'"),
        ("struct A {};", "1:8", "no members"),
        ("struct A { @key @optional long x; };", "1:32", "a key cannot be @optional"),
        ("struct A { @id(1) long x; @id(1) long y; };", "1:39", "two members have the id 1"),
        ("struct A { @id(1) @id(2) long x; };", "1:19", "@id is here twice"),
        ("@bitbound(8) @bit_bound(16) enum E { A };", "1:14", "@bit_bound is here twice"),
        ("@extensibility(SOME) struct A { long x; };", "1:16", "@extensibility needs"),
        ("@final @mutable struct A { long x; };", "1:24", "more than one extensibility"),
        ("enum E { A, A };", "1:13", "has that name or value already"),
        ("@bit_bound(64) enum E { A };", "1:1", "@bit_bound"),
        ("@bit_bound(8) enum E { A, @value(256) B };", "1:39", "B = 256 does not fit @bit_bound(8)"),
        (
            "@bit_bound(8) enum E { @value(-1) A, @value(128) B };",
            "1:50",
            "B = 128 does not fit @bit_bound(8)",
        ),
        (
            "@bit_bound(8) enum E { @value(128) A, @value(-1) B };",
            "1:50",
            "B = -1 does not fit @bit_bound(8)",
        ),
        ("struct A { @id(TRUE) long x; };", "1:12", "@id needs a number"),
        ("const long N = 1; struct A { N x; };", "1:30", "N is a constant, not a type"),
        ("struct A { long x; }; struct B { long y[A]; };", "1:41", "A is a type, not a constant"),
        ("enum E { A }; struct B : E { long y; };", "1:26", "only inherit from a struct"),
        ("struct A { sequence<A> x; };", "1:21", "recursive types are not supported"),
        ("struct A; struct B { A x; }; struct A { B x; };", "1:41", "recursive types are not supported"),
        ("struct A; struct B { A x; };", "1:22", "used before its definition"),
        ("union A switch(long) { case 1: sequence<A> x; };", "1:41", "recursive types are not supported"),
        (
            "struct A { long x; }; struct a { long x; };",
            "1:30",
            "a and A (at robot.idl:1:8) are the same name",
        ),
        ("struct A { long x, X; };", "1:20", "members x and X have the same name"),
        ("struct A { long x; }; struct B { a x; };", "1:34", "a is spelled A in its definition"),
        ("module A { struct B { long x; }; }; struct A { long x; };", "1:44", "A is defined twice"),
        ("const long A = 1; const long A = 2;", "1:30", "A is defined twice, first at robot.idl:1:12"),
        ("struct A { long x; }; const long A = 2;", "1:34", "A is defined twice"),
        ("module A { struct B { long x; }; }; struct C { A x; };", "1:48", "A is not defined"),
        ("enum E { A, @value(0) B };", "1:23", "has that name or value already"),
        (
            "enum E { @default_literal A, @default_literal B };",
            "1:47",
            "only one literal is @default_literal",
        ),
        ('enum E { @value("x") A };', "1:22", "@value of an enum literal needs a 32-bit number"),
        ("enum E { A }; enum F { A }; struct S { long x[A]; };", "1:47", "write E::A or F::A"),
        ("@bit_bound(65) bitmask M { A };", "1:1", "@bit_bound needs a number from 1 to 64"),
        ("@bit_bound(8) bitmask M { @position(7) A, B };", "1:43", "B at bit 8 does not fit @bit_bound(8)"),
        ("bitmask M { @position(1) A, @position(1) B };", "1:42", "two bits have @position(1)"),
        ("bitmask M { A, a };", "1:16", "members A and a have the same name"),
        ("bitset B { bitfield<40> a; bitfield<30> b; };", "1:37", "at most 64 bits"),
        ("bitset B { bitfield<9, octet> a; };", "1:24", "octet does not hold 9 bits"),
        ("bitset B { bitfield<9, double> a; };", "1:24", "double does not hold 9 bits"),
        ("bitset B { bitfield<9>; };", "1:8", "bitset B has no fields"),
        ("enum E { A }; bitset B : E { bitfield<9> a; };", "1:26", "only inherit from a bitset"),
        ("union U switch(double) { case 1: long x; };", "1:16", "a union is switched by"),
        ("union U switch(string) { case 1: long x; };", "1:16", "a union is switched by"),
        ("union U switch(long) { };", "1:24", "unexpected '}'; expected 'case' or 'default'"),
        (
            "union U switch(long) { case 1: long x; case 1: long y; };",
            "1:45",
            "this label already selects x",
        ),
        ("union U switch(long) { case 1: long x; case 2: long x; };", "1:53", "two members are named x"),
        ("union U switch(octet) { case 256: long x; };", "1:30", "write an integer from 0 to 255"),
        ("union U switch(boolean) { case 1: long x; };", "1:32", "write TRUE or FALSE"),
        ("union U switch(char) { case 1: long x; };", "1:29", "1 is no char: write such as 'x'"),
        (
            "enum E { A }; union U switch(E) { case 0: long x; };",
            "1:40",
            "0 is no literal of E: write one of A",
        ),
        ("union U switch(long) { default: long x; default: long y; };", "1:55", "one default at most"),
        ("const octet N = 256;", "1:17", "256 is no octet: write an integer from 0 to 255"),
        ("const long N = 1.5;", "1:16", "1.5 is no int32"),
        ("const boolean N = 1;", "1:19", "1 is no boolean: write TRUE or FALSE"),
        ("const char C = 'ab';", "1:16", "this text has no end: write ' in the same line"),
        ("const string S = 5;", "1:18", '5 is no text: write "..."'),
        ("enum E { A }; const E X = 0;", "1:27", "0 is no literal of E"),
        ("struct A { long x; }; const A X = 0;", "1:35", "a constant is a number, a boolean"),
        ("const double D = 5.0 % 2;", "1:22", "not for floating-point numbers"),
        ("const long long N = 1 << 63 << 3;", "1:29", "more than 64 bits"),
        ("struct A { @default(TRUE) long x; };", "1:21", "TRUE is no number"),
        ("struct A { @default long x; };", "1:12", "@default needs a value"),
        ("struct A { @range(low=1) long x; };", "1:12", "@range needs @range(min=..., max=...)"),
        ("struct A { @unit(5) long x; };", "1:12", "@unit needs a text"),
        ("struct A { @key(5) long x; };", "1:12", "@key needs TRUE or FALSE"),
        ("struct A { @try_construct(SOME) long x; };", "1:27", "DISCARD, USE_DEFAULT or TRIM"),
        ("@autoid(SOME) struct A { long x; };", "1:9", "@autoid needs SEQUENTIAL or HASH"),
        ("struct A { @id long x; };", "1:12", "@id needs a number from 0 to 268435455"),
        ("struct A { @id(0x0FFFFFFF) long x; long y; };", "1:41", "no id is left after 268435455: give y"),
        (
            "union U switch(long) { case 1: @id(0x0FFFFFFF) long x; case 2: long y; };",
            "1:69",
            "give y an @id",
        ),
    ],
)
def test_errors_name_the_position(text: str, place: str, message: str) -> None:
    with pytest.raises(TypeDefinitionError) as caught:
        parse_idl(text, "robot.idl")
    assert str(caught.value).startswith(f"robot.idl:{place}: ")
    assert message in str(caught.value)


def test_nesting_has_an_end() -> None:
    with pytest.raises(TypeDefinitionError, match="nested too deeply"):
        parse_idl(
            f"const long N = {'(' * 5000}1{')' * 5000} + 1; struct S {{ {'sequence<' * 3000}long{'>' * 3000} x; }};"
        )


TEXT = """
#ifndef A
#define A 3
module m {
  const long N = (A << 2) | ~1 & 1;
  @bit_bound(8) enum E { X, @value(5) Y };
  @bit_bound(16) bitmask B { F, @position(9) G };
  bitset C { bitfield<3> a; bitfield<2>; bitfield<9, short> b; };
  typedef sequence<map<string<N>, wstring, 4>> D[2][N];
  struct Later;
  @final union U switch (@key E) { case X: Later l; case E::Y: default: octet o; };
  @mutable @nested struct Later { @id(4) @optional long double x; @default('\\x41') char c; };
};
@autoid(HASH) struct S : m::Later { @key @unit("m") m::D d; m::U u; //@Optional
  m::C e[2]; };
#endif
"""
_PIECES = re.findall(r"\w+|\s+|\S", TEXT)
_OTHERS = [
    "\n#if A\n",
    "\n#include <x>\n",
    "/*",
    '"',
    "'",
    "@",
    "::",
    "<",
    "//@key\n",
    "\n#pragma keylist S c\n",
]


def test_the_text_is_right() -> None:
    assert "S" in parse_idl(TEXT)


@settings(max_examples=300, derandomize=True, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, len(_PIECES) - 1), st.sampled_from([*_PIECES, *_OTHERS, ""])), max_size=3
    )
)
def test_damaged_texts_raise_nothing_else(changes: list[tuple[int, str]]) -> None:
    pieces = list(_PIECES)
    for at, piece in changes:
        pieces[at] = piece
    raised = None
    try:
        parse_idl("".join(pieces), "a.idl")
    except TypeDefinitionError as error:
        raised = error
    assert raised is None or re.match(r"a\.idl:\d+:\d+: ", str(raised))
