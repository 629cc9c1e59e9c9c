"""The interop types as Cyclone DDS knows them, beside the IDL that we know them by.

Cyclone resolves real annotations: no postponed ones in this module.
"""

from dataclasses import dataclass
from enum import auto

from cyclonedds.idl import IdlEnum, IdlStruct
from cyclonedds.idl.annotations import appendable, final, key
from cyclonedds.idl.types import (
    array,
    bounded_str,
    byte,
    char,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    sequence,
    uint8,
    uint16,
    uint32,
    uint64,
)

IDL = """
module interop {
  enum Color { RED, GREEN, BLUE };

  @final struct Point { double x; double y; short tag; };

  @final struct Primitives {
    boolean b; octet o; int8 i8; uint8 u8; short i16; unsigned short u16; long i32; unsigned long u32;
    long long i64; unsigned long long u64; float f; double d; char c;
  };
  @appendable struct PrimitivesA {
    boolean b; octet o; int8 i8; uint8 u8; short i16; unsigned short u16; long i32; unsigned long u32;
    long long i64; unsigned long long u64; float f; double d; char c;
  };
  @final struct Texts {
    string s; string<8> bounded; sequence<string> many; string pair[2]; sequence<string<8>, 3> few;
  };
  @appendable struct TextsA {
    string s; string<8> bounded; sequence<string> many; string pair[2]; sequence<string<8>, 3> few;
  };
  @final struct Enums { octet before; Color c; sequence<Color> many; Color pair[2]; };
  @appendable struct EnumsA { octet before; Color c; sequence<Color> many; Color pair[2]; };
  @final struct Nested { octet before; Point p; sequence<Point> path; Point box[2]; };
  @appendable struct PointA { double x; double y; short tag; };
  @appendable struct NestedA { octet before; PointA p; sequence<PointA> path; PointA box[2]; };
  @final struct Arrays { octet before; double v[3]; long m[2][3]; octet raw[5]; char word[4]; short cube[2][2][2]; };
  @appendable struct ArraysA {
    octet before; double v[3]; long m[2][3]; octet raw[5]; char word[4]; short cube[2][2][2];
  };
  @final struct Sequences {
    sequence<octet> raw; sequence<boolean> b; sequence<int8> i8; sequence<short> i16; sequence<unsigned short> u16;
    sequence<long> i32; sequence<unsigned long, 4> u32; sequence<long long> i64; sequence<unsigned long long> u64;
    sequence<float> f; sequence<double> d; sequence<sequence<long> > deep;
  };
  @appendable struct SequencesA {
    sequence<octet> raw; sequence<boolean> b; sequence<int8> i8; sequence<short> i16; sequence<unsigned short> u16;
    sequence<long> i32; sequence<unsigned long, 4> u32; sequence<long long> i64; sequence<unsigned long long> u64;
    sequence<float> f; sequence<double> d; sequence<sequence<long> > deep;
  };
  struct Number { unsigned long id; unsigned long seq; double v[7]; };
  struct Blob { unsigned long id; sequence<octet> data; };
  struct Vehicle { @key long id; string note; double speed; };
  struct Part { @key string plant; @key long number; double weight; };
  @appendable struct PartA { @key long number; @key string plant; double weight; };
};
"""


class Color(IdlEnum, typename="interop::Color"):
    RED = auto()
    GREEN = auto()
    BLUE = auto()


@dataclass
class Point(IdlStruct, typename="interop::Point"):
    x: float64
    y: float64
    tag: int16


@dataclass
@appendable
class PointA(IdlStruct, typename="interop::PointA"):
    x: float64
    y: float64
    tag: int16


@dataclass
@final
class Primitives(IdlStruct, typename="interop::Primitives"):
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
@appendable
class PrimitivesA(IdlStruct, typename="interop::PrimitivesA"):
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
class Texts(IdlStruct, typename="interop::Texts"):
    s: str
    bounded: bounded_str[8]
    many: sequence[str]
    pair: array[str, 2]
    few: sequence[bounded_str[8], 3]


@dataclass
@appendable
class TextsA(IdlStruct, typename="interop::TextsA"):
    s: str
    bounded: bounded_str[8]
    many: sequence[str]
    pair: array[str, 2]
    few: sequence[bounded_str[8], 3]


@dataclass
@final
class Enums(IdlStruct, typename="interop::Enums"):
    before: byte
    c: Color
    many: sequence[Color]
    pair: array[Color, 2]


@dataclass
@appendable
class EnumsA(IdlStruct, typename="interop::EnumsA"):
    before: byte
    c: Color
    many: sequence[Color]
    pair: array[Color, 2]


@dataclass
@final
class Nested(IdlStruct, typename="interop::Nested"):
    before: byte
    p: Point
    path: sequence[Point]
    box: array[Point, 2]


@dataclass
@appendable
class NestedA(IdlStruct, typename="interop::NestedA"):
    before: byte
    p: PointA
    path: sequence[PointA]
    box: array[PointA, 2]


@dataclass
@final
class Arrays(IdlStruct, typename="interop::Arrays"):
    before: byte
    v: array[float64, 3]
    m: array[array[int32, 3], 2]
    raw: array[byte, 5]
    word: array[char, 4]
    cube: array[array[array[int16, 2], 2], 2]


@dataclass
@appendable
class ArraysA(IdlStruct, typename="interop::ArraysA"):
    before: byte
    v: array[float64, 3]
    m: array[array[int32, 3], 2]
    raw: array[byte, 5]
    word: array[char, 4]
    cube: array[array[array[int16, 2], 2], 2]


@dataclass
@final
class Sequences(IdlStruct, typename="interop::Sequences"):
    raw: sequence[byte]
    b: sequence[bool]
    i8: sequence[int8]
    i16: sequence[int16]
    u16: sequence[uint16]
    i32: sequence[int32]
    u32: sequence[uint32, 4]
    i64: sequence[int64]
    u64: sequence[uint64]
    f: sequence[float32]
    d: sequence[float64]
    deep: sequence[sequence[int32]]


@dataclass
@appendable
class SequencesA(IdlStruct, typename="interop::SequencesA"):
    raw: sequence[byte]
    b: sequence[bool]
    i8: sequence[int8]
    i16: sequence[int16]
    u16: sequence[uint16]
    i32: sequence[int32]
    u32: sequence[uint32, 4]
    i64: sequence[int64]
    u64: sequence[uint64]
    f: sequence[float32]
    d: sequence[float64]
    deep: sequence[sequence[int32]]


@dataclass
class Number(IdlStruct, typename="interop::Number"):
    id: uint32
    seq: uint32
    v: array[float64, 7]


@dataclass
class Blob(IdlStruct, typename="interop::Blob"):
    id: uint32
    data: sequence[byte]


@dataclass
class Vehicle(IdlStruct, typename="interop::Vehicle"):
    id: int32
    key("id")
    note: str
    speed: float64


@dataclass
class Part(IdlStruct, typename="interop::Part"):
    plant: str
    key("plant")
    number: int32
    key("number")
    weight: float64


@dataclass
@appendable
class PartA(IdlStruct, typename="interop::PartA"):
    number: int32
    key("number")
    plant: str
    key("plant")
    weight: float64


@dataclass
@appendable
class Growing(IdlStruct, typename="interop::Growing"):
    id: int32
    name: str


@dataclass
@appendable
class Grown(IdlStruct, typename="interop::Growing"):
    """The same type, later."""

    id: int32
    name: str
    weight: float64
    notes: sequence[str]


@dataclass
@appendable
class ShapeType(IdlStruct, typename="ShapeType"):
    """The type of the OMG's interoperability suite."""

    color: bounded_str[128]
    key("color")
    x: int32
    y: int32
    shapesize: int32
    additional_payload_size: sequence[uint8]


@dataclass
@final
class PlainShape(IdlStruct, typename="ShapeType"):
    """The same name with the members that older demonstrations have."""

    color: str
    key("color")
    x: int32
    y: int32
    shapesize: int32
