"""More than thirty type shapes as Cyclone DDS's Python knows them, beside the IDL that means the same.

Cyclone resolves real annotations: no postponed ones in this module, and no ``X | None``.
"""
# ruff: noqa: UP045

from dataclasses import dataclass
from enum import auto
from typing import Optional

from cyclonedds.idl import IdlBitmask, IdlEnum, IdlStruct, IdlUnion
from cyclonedds.idl.annotations import (
    appendable,
    autoid,
    bit_bound,
    external,
    final,
    key,
    member_hash_id,
    member_id,
    must_understand,
    mutable,
    position,
)
from cyclonedds.idl.types import (
    array,
    bounded_str,
    byte,
    case,
    char,
    default,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    sequence,
    typedef,
    uint8,
    uint16,
    uint32,
    uint64,
    wchar,
)

IDL = """
module shapes {
  @final enum Color { RED, GREEN, BLUE };
  @final @bit_bound(8) enum Small { @value(3) LOW, @value(100) HIGH };
  @final @bit_bound(16) bitmask Flags { @position(0) ready, @position(3) armed, @position(15) broken };
  @final struct Point { double x; double y; };
  @appendable struct PointA { double x; double y; };
  @mutable struct PointM { double x; double y; };
  typedef double Meters;
  typedef sequence<long> Numbers;
  // Cyclone's Python numbers the members of a union from 0 on.
  @final union Choice switch (long) {
    case 0: @id(0) long number; case 1: case 2: @id(1) string text; default: @id(2) double rest;
  };
  @appendable union ByColor switch (Color) {
    case RED: @id(0) shapes::Point at; case BLUE: @id(1) sequence<octet> raw;
  };
  @final struct Base { @key long id; string name; };
  @appendable struct BaseA { @key long id; string name; };

  @final struct Primitives {
    boolean b; octet o; int8 i8; uint8 u8; short i16; unsigned short u16; long i32; unsigned long u32;
    long long i64; unsigned long long u64; float f; double d; char c;
  };
  @final struct Wide { wchar c; sequence<wchar> many; };
  @final struct Strings { string s; sequence<string> many; };
  @final struct Bounded { string<8> s; string<300> long_one; sequence<string<5>, 3> few; };
  @final struct Enums { Color c; sequence<Color> many; Color pair[2]; };
  @final struct SmallEnums { Small s; sequence<Small> many; };
  @final struct Bitmasks { Flags f; sequence<Flags> many; };
  @final struct Unions { Choice c; };
  @appendable struct UnionsByEnum { ByColor c; sequence<ByColor> many; };
  @final struct Nested { Point p; octet after; };
  @appendable struct NestedA { PointA p; octet after; };
  @mutable struct NestedM { PointM p; octet after; };
  @final struct Sequences { sequence<octet> raw; sequence<double> d; sequence<long, 7> few; sequence<long, 300> many; };
  @final struct SequencesOfStructs { sequence<Point> path; sequence<Point, 4> box; };
  @final struct DeepSequences { sequence<sequence<sequence<short> > > deep; };
  @final struct Arrays { double v[3]; long m[2][3]; octet raw[300]; };
  @final struct ArraysOfStructs { Point corners[4]; PointA others[2]; };
  @final struct Optionals { @optional long i; @optional string s; @optional Point p; };
  @appendable struct OptionalsA { @optional long i; @optional sequence<double> d; long last; };
  @mutable struct OptionalsM { @optional long i; @optional string s; long last; };
  @final struct Keyed { @key long id; @key string name; double value; };
  @mutable struct KeyedM { @key long id; double value; };
  @final struct Derived : Base { double value; };
  @appendable struct DerivedA : BaseA { double value; sequence<string> tags; };
  @final struct Typedefs { Meters height; Numbers numbers; sequence<Meters> heights; };
  @appendable struct Appendable { long a; string b; };
  @mutable struct Mutable { long a; string b; };
  @appendable struct AppendableMore { long a; string b; double more; };
  @appendable struct AppendableOther { string a; string b; };
  @mutable struct MemberIds { @id(7) long a; @id(3) string b; long c; };
  @mutable struct HashIds { @hashid long a; @hashid string b; };
  @mutable @autoid(HASH) struct AutoHash { long a; string b; };
  @mutable struct MustUnderstand { @must_understand long a; @key long id; string b; };
  @final struct External { @external Point p; long last; };
};
"""


class Color(IdlEnum, typename="shapes::Color"):
    RED = auto()
    GREEN = auto()
    BLUE = auto()


@bit_bound(8)
class Small(IdlEnum, typename="shapes::Small"):
    LOW = 3
    HIGH = 100


@bit_bound(16)
@dataclass
class Flags(IdlBitmask, typename="shapes::Flags"):
    ready: bool
    position("ready", 0)
    armed: bool
    position("armed", 3)
    broken: bool
    position("broken", 15)


@dataclass
@final
class Point(IdlStruct, typename="shapes::Point"):
    x: float64
    y: float64


@dataclass
@appendable
class PointA(IdlStruct, typename="shapes::PointA"):
    x: float64
    y: float64


@dataclass
@mutable
class PointM(IdlStruct, typename="shapes::PointM"):
    x: float64
    y: float64


Meters = typedef["shapes::Meters", float64]
Numbers = typedef["shapes::Numbers", sequence[int32]]


@final
class Choice(IdlUnion, discriminator=int32, typename="shapes::Choice"):
    number: case[[0], int32]
    text: case[[1, 2], str]
    rest: default[float64]


@appendable
class ByColor(IdlUnion, discriminator=Color, typename="shapes::ByColor"):
    at: case[[Color.RED], Point]
    raw: case[[Color.BLUE], sequence[byte]]


@dataclass
@final
class Base(IdlStruct, typename="shapes::Base"):
    id: int32
    key("id")
    name: str


@dataclass
@appendable
class BaseA(IdlStruct, typename="shapes::BaseA"):
    id: int32
    key("id")
    name: str


@dataclass
@final
class Primitives(IdlStruct, typename="shapes::Primitives"):
    b: bool
    o: byte
    i8: int8
    u8: uint8
    i16: int16
    u16: uint16
    i32: int32
    u32: uint32
    i64: int64
    u64: uint64
    f: float32
    d: float64
    c: char


@dataclass
@final
class Wide(IdlStruct, typename="shapes::Wide"):
    c: wchar
    many: sequence[wchar]


@dataclass
@final
class Strings(IdlStruct, typename="shapes::Strings"):
    s: str
    many: sequence[str]


@dataclass
@final
class Bounded(IdlStruct, typename="shapes::Bounded"):
    s: bounded_str[8]
    long_one: bounded_str[300]
    few: sequence[bounded_str[5], 3]


@dataclass
@final
class Enums(IdlStruct, typename="shapes::Enums"):
    c: Color
    many: sequence[Color]
    pair: array[Color, 2]


@dataclass
@final
class SmallEnums(IdlStruct, typename="shapes::SmallEnums"):
    s: Small
    many: sequence[Small]


@dataclass
@final
class Bitmasks(IdlStruct, typename="shapes::Bitmasks"):
    f: Flags
    many: sequence[Flags]


@dataclass
@final
class Unions(IdlStruct, typename="shapes::Unions"):
    c: Choice


@dataclass
@appendable
class UnionsByEnum(IdlStruct, typename="shapes::UnionsByEnum"):
    c: ByColor
    many: sequence[ByColor]


@dataclass
@final
class Nested(IdlStruct, typename="shapes::Nested"):
    p: Point
    after: byte


@dataclass
@appendable
class NestedA(IdlStruct, typename="shapes::NestedA"):
    p: PointA
    after: byte


@dataclass
@mutable
class NestedM(IdlStruct, typename="shapes::NestedM"):
    p: PointM
    after: byte


@dataclass
@final
class Sequences(IdlStruct, typename="shapes::Sequences"):
    raw: sequence[byte]
    d: sequence[float64]
    few: sequence[int32, 7]
    many: sequence[int32, 300]


@dataclass
@final
class SequencesOfStructs(IdlStruct, typename="shapes::SequencesOfStructs"):
    path: sequence[Point]
    box: sequence[Point, 4]


@dataclass
@final
class DeepSequences(IdlStruct, typename="shapes::DeepSequences"):
    deep: sequence[sequence[sequence[int16]]]


@dataclass
@final
class Arrays(IdlStruct, typename="shapes::Arrays"):
    v: array[float64, 3]
    m: array[array[int32, 3], 2]
    raw: array[byte, 300]


@dataclass
@final
class ArraysOfStructs(IdlStruct, typename="shapes::ArraysOfStructs"):
    corners: array[Point, 4]
    others: array[PointA, 2]


@dataclass
@final
class Optionals(IdlStruct, typename="shapes::Optionals"):
    i: Optional[int32]
    s: Optional[str]
    p: Optional[Point]


@dataclass
@appendable
class OptionalsA(IdlStruct, typename="shapes::OptionalsA"):
    i: Optional[int32]
    d: Optional[sequence[float64]]
    last: int32


@dataclass
@mutable
class OptionalsM(IdlStruct, typename="shapes::OptionalsM"):
    i: Optional[int32]
    s: Optional[str]
    last: int32


@dataclass
@final
class Keyed(IdlStruct, typename="shapes::Keyed"):
    id: int32
    key("id")
    name: str
    key("name")
    value: float64


@dataclass
@mutable
class KeyedM(IdlStruct, typename="shapes::KeyedM"):
    id: int32
    key("id")
    value: float64


@dataclass
@final
class Derived(Base, typename="shapes::Derived"):
    value: float64


@dataclass
@appendable
class DerivedA(BaseA, typename="shapes::DerivedA"):
    value: float64
    tags: sequence[str]


@dataclass
@final
class Typedefs(IdlStruct, typename="shapes::Typedefs"):
    height: Meters
    numbers: Numbers
    heights: sequence[Meters]


@dataclass
@appendable
class Appendable(IdlStruct, typename="shapes::Appendable"):
    a: int32
    b: str


@dataclass
@appendable
class AppendableMore(IdlStruct, typename="shapes::AppendableMore"):
    a: int32
    b: str
    more: float64


@dataclass
@appendable
class AppendableOther(IdlStruct, typename="shapes::AppendableOther"):
    a: str
    b: str


@dataclass
@mutable
class Mutable(IdlStruct, typename="shapes::Mutable"):
    a: int32
    b: str


@dataclass
@mutable
class MemberIds(IdlStruct, typename="shapes::MemberIds"):
    a: int32
    member_id("a", 7)
    b: str
    member_id("b", 3)
    c: int32


@dataclass
@mutable
class HashIds(IdlStruct, typename="shapes::HashIds"):
    a: int32
    member_hash_id("a")
    b: str
    member_hash_id("b")


@dataclass
@mutable
@autoid("hash")
class AutoHash(IdlStruct, typename="shapes::AutoHash"):
    a: int32
    b: str


@dataclass
@mutable
class MustUnderstand(IdlStruct, typename="shapes::MustUnderstand"):
    a: int32
    must_understand("a")
    id: int32
    key("id")
    b: str


@dataclass
@final
class External(IdlStruct, typename="shapes::External"):
    p: Point
    external("p")
    last: int32


SHAPES = (
    Primitives,
    Wide,
    Strings,
    Bounded,
    Enums,
    SmallEnums,
    Bitmasks,
    Unions,
    UnionsByEnum,
    Nested,
    NestedA,
    NestedM,
    Sequences,
    SequencesOfStructs,
    DeepSequences,
    Arrays,
    ArraysOfStructs,
    Optionals,
    OptionalsA,
    OptionalsM,
    Keyed,
    KeyedM,
    Derived,
    DerivedA,
    Typedefs,
    Appendable,
    Mutable,
    MemberIds,
    HashIds,
    AutoHash,
    MustUnderstand,
    External,
    AppendableMore,
    AppendableOther,
)
