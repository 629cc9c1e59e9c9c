"""Pairs of a writer's and a reader's type, and whether the reader's can read the writer's."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_rtps.transport.qos import TypeConsistency, TypeConsistencyKind
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
    Type,
    Union,
    WString,
)

FINAL, APPENDABLE, MUTABLE = Extensibility.FINAL, Extensibility.APPENDABLE, Extensibility.MUTABLE
(
    BOOLEAN,
    BYTE,
    INT8,
    UINT8,
    INT16,
    UINT16,
    INT32,
    UINT32,
    INT64,
    UINT64,
    FLOAT,
    DOUBLE,
    LONG_DOUBLE,
    CHAR,
    WCHAR,
) = (Primitive(kind) for kind in PrimitiveKind)
TEXT = String()


def m(name: str, t: Type = INT32, id_: int = -1, **marks: bool) -> Member:
    return Member(name, t, id_, **marks)


def struct(
    extensibility: Extensibility, *members: Member, name: str = "T", base: Struct | None = None
) -> Struct:
    """Members without an id are numbered on."""
    numbered = list(base.members) if base else []
    for member in members:
        next_id = numbered[-1].id + 1 if numbered else 0
        numbered.append(member if member.id >= 0 else replace(member, id=next_id))
    return Struct(name, tuple(numbered), extensibility, base)


def final(*members: Member, name: str = "T", base: Struct | None = None) -> Struct:
    return struct(FINAL, *members, name=name, base=base)


def appendable(*members: Member, name: str = "T", base: Struct | None = None) -> Struct:
    return struct(APPENDABLE, *members, name=name, base=base)


def mutable(*members: Member, name: str = "T", base: Struct | None = None) -> Struct:
    return struct(MUTABLE, *members, name=name, base=base)


def at(id_: int, name: str) -> Member:
    return m(name, INT32, id_)


def key(name: str, t: Type = INT32) -> Member:
    return m(name, t, key=True)


def opt(name: str) -> Member:
    return m(name, optional=True)


def must(name: str) -> Member:
    return m(name, must_understand=True)


def color(**literals: int) -> Enum:
    return Enum("Color", tuple(literals.items()), extensibility=APPENDABLE)


def union(
    *cases: Case,
    disc: Type = INT32,
    extensibility: Extensibility = APPENDABLE,
    key: bool = False,
) -> Union:
    return Union("U", disc, tuple(cases), extensibility, key)


def c(name: str, t: Type, id_: int, *labels: int, default: bool = False) -> Case:
    return Case(name, t, id_, labels, default)


@dataclass(frozen=True)
class Pair:
    """``cyclone`` where it judges otherwise, with ``why``."""

    id: str
    writer: Struct
    reader: Struct
    assignable: bool
    consistency: TypeConsistency
    cyclone: bool | None = None
    why: str = ""


def pair(id_: str, writer: Struct, reader: Struct, assignable: bool, **options: object) -> Pair:
    known = {name: options.pop(name) for name in ("cyclone", "why") if name in options}
    return Pair(id_, writer, reader, assignable, TypeConsistency(**options), **known)


def member(id_: str, writer: Type, reader: Type, assignable: bool, **options: object) -> Pair:
    """The two as members of an appendable struct."""
    return pair(id_, appendable(m("v", writer)), appendable(m("v", reader)), assignable, **options)


DISALLOW = {"kind": TypeConsistencyKind.DISALLOW_TYPE_COERCION}
BOUNDS = {"ignore_sequence_bounds": False, "ignore_string_bounds": False}
NAMES = {"ignore_member_names": True}
NARROW = {"prevent_type_widening": True}
RG = color(RED=0, GREEN=1)
RGB = color(RED=0, GREEN=1, BLUE=2)
RG_F, RGB_F = (replace(t, extensibility=FINAL) for t in (RG, RGB))
POINT = final(m("x"), m("y"), name="P")
POINT_A = appendable(m("x"), m("y"), name="P")
POINT_A3 = appendable(m("x"), m("y"), m("z"), name="P")
POINT_M = mutable(m("x"), m("y"), name="P")
POINT_M3 = mutable(m("z", id_=7), m("x", id_=0), name="P")
OTHER = final(m("x"), m("z"), name="P")
LONG = final(m("s", TEXT), name="P")
SHORT = final(m("s", String(4)), name="P")
FLAGS = Bitmask("Flags", (("A", 0), ("B", 3)), 8)
BITS = Bitset("B", (BitField("a", 0, 3, UINT8.kind),), 8)
A, B, D = c("a", INT32, 1, 1), c("b", TEXT, 2, 2), c("d", INT32, 3, default=True)

# Where Cyclone DDS 11.0.1 judges otherwise.
BY_VALUE = {"cyclone": True, "why": "it compares the names of equal values only"}
ANY_SIZE = {"cyclone": True, "why": "it would read 1 byte as 4"}
FLAGLESS = {
    "cyclone": False,
    "why": "it takes the flags of enums, which XTypes 1.3 leaves unused, as they are",
}
BY_ID = {"cyclone": True, "why": "it compares the names of equal ids only; its successors do both"}
COUNTS = {
    "cyclone": True,
    "why": "it looks whether all keys are there, not whether they are keys at both sides",
}
NOT_LAST = {"cyclone": True, "why": "it overlooks literals beyond the reader's last"}
#: Types that differ in what their keys are, and how a member may hold one.
KEYED, KEYLESS = (appendable(m("x"), m("y", key=keyed), name="Inner") for keyed in (True, False))
KEY_LACKING = appendable(m("x"), name="Inner")
INSIDE = {
    "alone": lambda t: t,
    "in a sequence": Sequence,
    "in an array": lambda t: Array(t, (2,)),
    "in a struct": lambda t: appendable(m("inner", t), name="Between"),
    "in a union": lambda t: Union("Choice", INT32, (c("inner", t, 1, 0),), APPENDABLE),
}

PAIRS = [
    # primitives: the same, and no other
    member("int32", INT32, INT32, True),
    member("int32 to int64", INT32, INT64, False),
    member("int64 to int32", INT64, INT32, False),
    member("int32 to uint32", INT32, UINT32, False),
    member("float to double", FLOAT, DOUBLE, False),
    member("uint8 to octet", UINT8, BYTE, False),
    member("octet to uint8", BYTE, UINT8, False),
    member("char to uint8", CHAR, UINT8, False),
    member("boolean to octet", BOOLEAN, BYTE, False),
    member("int32 to string", INT32, TEXT, False),
    # strings: bounds
    member("string to string<8>", TEXT, String(8), True),
    member("string<8> to string", String(8), TEXT, True),
    member("string to string<8>, bounds count", TEXT, String(8), False, **BOUNDS),
    member("string<8> to string, bounds count", String(8), TEXT, True, **BOUNDS),
    member("string<8> to string<9>, bounds count", String(8), String(9), True, **BOUNDS),
    member("string<9> to string<8>, bounds count", String(9), String(8), False, **BOUNDS),
    # sequences and arrays: bounds, and elements that are strongly assignable
    member("sequence<4> to sequence<3>", Sequence(INT32, 4), Sequence(INT32, 3), True),
    member("longer sequence, bounds count", Sequence(INT32, 4), Sequence(INT32, 3), False, **BOUNDS),
    member("shorter sequence, bounds count", Sequence(INT32, 3), Sequence(INT32, 4), True, **BOUNDS),
    member("unbounded sequence, bounds count", Sequence(INT32), Sequence(INT32, 4), False, **BOUNDS),
    member("sequence of another", Sequence(INT32), Sequence(UINT32), False),
    member("sequence of longer strings", Sequence(TEXT), Sequence(String(3)), True),
    member("array", Array(INT32, (3,)), Array(INT32, (3,)), True),
    member("array of another length", Array(INT32, (3,)), Array(INT32, (4,)), False),
    member("array of other dimensions", Array(INT32, (2, 3)), Array(INT32, (3, 2)), False),
    member("array to sequence", Array(INT32, (3,)), Sequence(INT32, 3), False),
    member("array of longer strings", Array(TEXT, (2,)), Array(String(3), (2,)), True),
    member("sequence of a final struct", Sequence(POINT), Sequence(POINT), True),
    member("sequence of another final struct", Sequence(POINT), Sequence(OTHER), False),
    member("sequence of a longer appendable", Sequence(POINT_A3), Sequence(POINT_A), True),
    member("sequence of a shorter appendable", Sequence(POINT_A), Sequence(POINT_A3), True),
    member("sequence of other mutables", Sequence(POINT_M3), Sequence(POINT_M), True),
    member("sequence of sequences of longer ones", Sequence(Sequence(POINT_A3)), Sequence(Sequence(POINT_A)), True),
    member("sequence of other enums", Sequence(RGB), Sequence(RG), True),
    # enums
    member("enum with more literals", RGB, RG, True),
    member("enum with fewer literals", RG, RGB, True),
    member("enum with another name for a value", RG, color(RED=0, BLUE=1), False),
    member("enum with another value of a name", RG, color(RED=0, GREEN=2), False, **BY_VALUE),
    member("enum without a common literal", color(RED=0), color(GREEN=1), True),
    member("enum of other bits", RG, replace(RG, bit_bound=8), False, **ANY_SIZE),
    member("final enum", RG_F, RG_F, True),
    member("final enum with more literals", RGB_F, RG_F, False),
    member("final enum with fewer literals", RG_F, RGB_F, False),
    member("final enum to appendable", RG_F, RG, True, **FLAGLESS),
    member("appendable enum to final", RGB, RG_F, True, **FLAGLESS),
    member("enum to int32", RG, INT32, False),
    member("int32 to enum", INT32, RG, False),
    # bitmasks
    member("bitmask with other flags", FLAGS, replace(FLAGS, flags=(("C", 1),)), True),
    member("bitmask of another bound", FLAGS, replace(FLAGS, bit_bound=16), False),
    member("bitmask to uint8", FLAGS, UINT8, True),
    member("uint8 to bitmask", UINT8, FLAGS, True),
    member("bitmask<16> to uint8", replace(FLAGS, bit_bound=16), UINT8, False),
    member("bitmask<16> to uint16", replace(FLAGS, bit_bound=16), UINT16, True),
    member("uint64 to bitmask<40>", UINT64, replace(FLAGS, bit_bound=40), True),
    member("bitmask to octet", FLAGS, BYTE, False),
    # aliases: what they stand for
    member("alias to its type", Alias("Speed", INT32), INT32, True),
    member("type to alias", POINT, Alias("Place", POINT), True),
    member("alias of another", Alias("Speed", INT32), Alias("Speed", INT64), False),
    pair("alias in final struct", final(m("p", final(m("s", Alias("A", TEXT)), name="P"))), final(m("p", LONG)), False),
    # structs: extensibility, members, order
    pair("final, the same", final(m("x"), m("y")), final(m("x"), m("y")), True),
    pair("names of types do not count", final(m("x"), name="A"), final(m("x"), name="b::B"), True),
    pair("final, one more", final(m("x"), m("y")), final(m("x")), False),
    pair("final, one less", final(m("x")), final(m("x"), m("y")), False),
    pair("final to appendable", final(m("x")), appendable(m("x")), False),
    pair("appendable to final", appendable(m("x")), final(m("x")), False),
    pair("appendable to mutable", appendable(m("x")), mutable(m("x")), False),
    pair("appendable, one more", appendable(m("x"), m("y")), appendable(m("x")), True),
    pair("appendable, one less", appendable(m("x")), appendable(m("x"), m("y")), True),
    pair("appendable, others at the end", appendable(m("x"), at(1, "y")), appendable(m("x"), at(2, "z")), False),
    pair("appendable, another order", appendable(at(0, "x"), at(1, "y")), appendable(at(1, "y"), at(0, "x")), False),
    pair("mutable, another order", mutable(at(0, "x"), at(1, "y")), mutable(at(1, "y"), at(0, "x")), True),
    pair("mutable, others", mutable(at(0, "x"), at(1, "y")), mutable(at(2, "z"), at(0, "x")), True),
    pair("mutable, nothing in common", mutable(at(0, "x")), mutable(at(1, "y")), False),
    pair("another name", appendable(m("x"), m("y")), appendable(m("x"), m("z")), False),
    pair("another name, ignored", appendable(m("x"), m("y")), appendable(m("x"), m("z")), True, **NAMES),
    pair("another id", mutable(at(1, "x"), at(2, "y")), mutable(at(1, "x"), at(3, "y")), False, **BY_ID),
    pair("another id, names ignored", mutable(at(1, "x"), at(2, "y")), mutable(at(1, "x"), at(3, "y")), True, **NAMES),
    pair("names exchanged, ignored", final(m("x"), m("y")), final(m("y"), m("x")), True, **NAMES),
    pair("names exchanged", final(m("x"), m("y")), final(m("y"), m("x")), False),
    # inheritance: the base's members come first
    pair("inherited to own", appendable(m("y"), base=appendable(m("x"), name="B")), appendable(m("x"), m("y")), True),
    pair("own to inherited", appendable(m("x"), m("y")), appendable(m("y"), base=appendable(m("x"), name="B")), True),
    pair("derived to base", appendable(m("w"), base=POINT_A), POINT_A, True),
    pair("base to derived", POINT_A, appendable(m("w"), base=POINT_A), True),
    pair("final, derived to base", final(m("w"), base=POINT), POINT, False),
    # optional, must_understand
    pair("optional to not", appendable(opt("x")), appendable(m("x")), False),
    pair("not to optional", appendable(m("x")), appendable(opt("x")), False),
    pair("final, optional to not", final(opt("x")), final(m("x")), False),
    pair("mutable, optional to not", mutable(opt("x")), mutable(m("x")), True),
    pair("mutable, not to optional", mutable(m("x")), mutable(opt("x")), True),
    pair("must_understand at the writer", mutable(m("x"), must("y")), mutable(m("x")), False),
    pair("must_understand at the reader", mutable(m("x")), mutable(m("x"), must("y")), False),
    pair("must_understand and optional",
         mutable(m("x"), m("y", must_understand=True, optional=True)), mutable(m("x")), True),
    pair("must_understand at both", mutable(must("x")), mutable(must("x"), m("z")), True),
    # keys
    pair("key", appendable(key("x"), m("y")), appendable(key("x")), True),
    pair("key of the writer only", appendable(key("x")), appendable(m("x")), False),
    pair("key of the reader only", appendable(m("x")), appendable(key("x")), False),
    pair("another key", appendable(key("x"), m("y")), appendable(m("x"), key("y")), False, **COUNTS),
    pair("a key more", mutable(key("x"), key("y")), mutable(key("x")), False),
    pair("key string<8> to string<9>", mutable(key("x", String(8))), mutable(key("x", String(9))), True),
    pair("key string<9> to string<8>", mutable(key("x", String(9))), mutable(key("x", String(8))), False),
    pair("key string to string<8>", mutable(key("x", TEXT)), mutable(key("x", String(8))), False),
    pair("key enum with more literals", mutable(key("x", RGB)), mutable(key("x", RG)), False, **NOT_LAST),
    pair("key enum with more literals between", mutable(key("x", RGB)), mutable(key("x", color(RED=0, BLUE=2))), False),
    pair("key enum with fewer literals", mutable(key("x", RG)), mutable(key("x", RGB)), True),
    pair("key sequence, longer", mutable(key("x", Sequence(INT32, 4))), mutable(key("x", Sequence(INT32, 3))), False),
    pair("key sequence, shorter", mutable(key("x", Sequence(INT32, 3))), mutable(key("x", Sequence(INT32, 4))), True),
    pair("key struct with more members", mutable(key("p", POINT_A3)), mutable(key("p", POINT_A)), False),
    pair("key struct with more members that are no keys",
         mutable(key("p", appendable(key("x"), m("y"), name="P"))),
         mutable(key("p", appendable(key("x"), name="P"))), True),
    pair("nested keys of a member that is none",
         mutable(m("p", appendable(key("x"), m("y"), name="P"))),
         mutable(m("p", appendable(m("x"), key("y"), name="P"))), True),
    pair("a member more is a key", appendable(key("x"), m("y")), appendable(key("x"), key("y")), False, **COUNTS),
    *(pair(f"nested keys of a member that is none, {place} in @{outer.value}, {side}",
           struct(outer, key("k"), m("p", inside(types[0]))), struct(outer, key("k"), m("p", inside(types[1]))), True)  # type: ignore[no-untyped-call]
      for place, inside in INSIDE.items()
      for outer in Extensibility
      for side, types in (("of the writer", (KEYED, KEYLESS)), ("of the reader", (KEYLESS, KEYED)))),
    pair("nested keys that only the writer has", appendable(m("p", KEYED)), appendable(m("p", KEY_LACKING)), False),
    # prevent_type_widening
    pair("narrow, the same", POINT_A, POINT_A, True, **NARROW),
    pair("narrow, wider writer", POINT_A3, POINT_A, False, **NARROW),
    pair("narrow, wider reader", POINT_A, POINT_A3, False, **NARROW),
    pair("narrow, reader wider by an optional", POINT_A, appendable(m("x"), m("y"), opt("z")), False, **NARROW),
    # what is nested
    member("nested final, another", POINT, OTHER, False),
    member("nested appendable, longer", POINT_A3, POINT_A, True),
    member("nested appendable, another type", POINT_A, replace(POINT_A3, members=(m("x", INT64, 0),)), False),
    pair("final in mutable, longer strings", mutable(m("p", LONG)), mutable(m("p", SHORT)), True),
    pair("final in appendable, longer strings", appendable(m("p", LONG)), appendable(m("p", SHORT)), False),
    pair("final in final, longer strings", final(m("p", LONG)), final(m("p", SHORT)), False),
    member("string to struct", TEXT, POINT, False),
    # unions
    member("union", union(A, B), union(A, B), True),
    member("union with another branch", union(A, B), union(A), True),
    member("union with a branch less", union(A), union(A, B), True),
    member("union with another type", union(A), union(c("a", INT64, 1, 1)), False),
    member("union, no common label", union(A), union(c("b", INT32, 2, 2)), False),
    member("union of another discriminator", union(A), union(A, disc=INT64), False),
    member("union with another name", union(A), union(c("b", INT32, 1, 1)), False),
    member("union with another name, ignored", union(A), union(c("b", INT32, 1, 1)), True, **NAMES),
    member("union, label to another default", union(A, B), union(A, D), False),
    member("union, label to default", union(A, c("b", INT32, 2, 2)), union(A, D), True),
    member("union, default to another label", union(A, D), union(A, B), False),
    member("union, other defaults", union(A, D), union(A, c("d", TEXT, 3, default=True)), False),
    member("final union with another branch", union(A, B, extensibility=FINAL), union(A, extensibility=FINAL), False),
    member("final union to appendable", union(A, extensibility=FINAL), union(A), False),
    member("narrow, wider union", union(A, B), union(A), False, **NARROW),
    member("narrow, narrower union", union(A), union(A, B), False, **NARROW),
    # types that must be equal
    pair("equal", POINT_A, POINT_A, True, **DISALLOW),
    pair("equal but for the name", POINT_A, replace(POINT_A, name="Q"), True, **DISALLOW),
    pair("not equal: longer", POINT_A3, POINT_A, False, **DISALLOW),
    pair("not equal: bound", appendable(m("s", TEXT)), appendable(m("s", String(3))), False, **DISALLOW),
    pair("equal but for an alias", appendable(m("s", Alias("A", TEXT))), appendable(m("s", TEXT)), False, **DISALLOW),
    pair("equal but for the name of an alias",
         appendable(m("s", Alias("A", TEXT))), appendable(m("s", Alias("B", TEXT))), True, **DISALLOW),
    pair("not equal: nested", final(m("p", POINT)), final(m("p", OTHER)), False, **DISALLOW),
    pair("not equal: enum", final(m("e", RG)), final(m("e", RGB)), False, **DISALLOW),
]  # fmt: skip


# What Cyclone's Python has no types for.
OTHERS = [
    member("wstring", WString(), WString(3), True),
    member("longer wstring", WString(), WString(3), False, **BOUNDS),
    member("wstring to string", WString(), TEXT, False),
    member("map", Map(TEXT, POINT_A3), Map(String(3), POINT_A, 2), True),
    member("map of another key", Map(INT32, TEXT), Map(INT64, TEXT), False),
    member("map of another value", Map(INT32, POINT), Map(INT32, OTHER), False),
    member("bitset", BITS, UINT8, False),
    member("bitset of other fields", BITS, replace(BITS, fields=()), False),
    member("external", POINT, final(Member("x", INT32, 0, external=True), m("y"), name="P"), False),
    member("long double", LONG_DOUBLE, DOUBLE, False),
    member("wchar", WCHAR, CHAR, False),
    pair("key map, longer", mutable(key("x", Map(INT32, TEXT, 4))), mutable(key("x", Map(INT32, TEXT, 3))), False),
    pair("key union", mutable(key("x", union(A, B))), mutable(key("x", union(A, D))), False),
    pair("key union whose discriminator is the key",
         mutable(key("x", union(A, B, key=True))), mutable(key("x", union(A, key=True))), True),
    pair("union's key", appendable(m("x", union(A, B, key=True))), appendable(m("x", union(A, B))), False),
    pair("union's key, erased", mutable(m("x", union(A, B, key=True))), mutable(m("x", union(A, B))), True),
]  # fmt: skip
