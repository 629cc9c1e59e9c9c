"""The DDS type model (XTypes 1.3 §7.2): what an IDL file, a ROS message or an Arrow schema is read into.

Aliases and constants are resolved while reading, so a type is a plain tree of frozen values.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Final, TypeAlias


class PrimitiveKind(enum.Enum):
    """Primitive types; the value is the name in IDL."""

    BOOLEAN = "boolean"
    BYTE = "octet"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    UINT32 = "uint32"
    INT64 = "int64"
    UINT64 = "uint64"
    FLOAT32 = "float"
    FLOAT64 = "double"
    CHAR8 = "char"


#: NumPy type code of each primitive; booleans are read as bytes because any nonzero one is true.
TYPE_CODES: Final = {
    PrimitiveKind.BOOLEAN: "u1",
    PrimitiveKind.BYTE: "u1",
    PrimitiveKind.INT8: "i1",
    PrimitiveKind.UINT8: "u1",
    PrimitiveKind.INT16: "i2",
    PrimitiveKind.UINT16: "u2",
    PrimitiveKind.INT32: "i4",
    PrimitiveKind.UINT32: "u4",
    PrimitiveKind.INT64: "i8",
    PrimitiveKind.UINT64: "u8",
    PrimitiveKind.FLOAT32: "f4",
    PrimitiveKind.FLOAT64: "f8",
    PrimitiveKind.CHAR8: "u1",
}


class Extensibility(enum.Enum):
    """How a struct may evolve, and thereby how XCDR2 writes it (XTypes 1.3 §7.2.3)."""

    FINAL = "final"
    APPENDABLE = "appendable"
    MUTABLE = "mutable"


@dataclass(frozen=True, slots=True)
class Primitive:
    kind: PrimitiveKind


@dataclass(frozen=True, slots=True)
class String:
    """``string`` or ``string<bound>``; the bound counts UTF-8 bytes, 0 is unbounded."""

    bound: int = 0


@dataclass(frozen=True, slots=True)
class Enum:
    name: str
    literals: tuple[tuple[str, int], ...]
    bit_bound: int = 32

    @property
    def type_code(self) -> str:
        """NumPy type code of the integer on the wire (XTypes 1.3 §7.4.3.5: by bit bound)."""
        return "i1" if self.bit_bound <= 8 else "i2" if self.bit_bound <= 16 else "i4"


@dataclass(frozen=True, slots=True)
class Sequence:
    element: Type
    bound: int = 0


@dataclass(frozen=True, slots=True)
class Array:
    """A fixed array; ``double m[3][4]`` has dimensions (3, 4) and 12 elements in C order."""

    element: Type
    dimensions: tuple[int, ...]

    @property
    def length(self) -> int:
        return prod(self.dimensions)


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    type: Type
    id: int
    key: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct; ``name`` is fully qualified (``a::b::C``)."""

    name: str
    members: tuple[Member, ...]
    extensibility: Extensibility = Extensibility.FINAL

    @property
    def is_keyed(self) -> bool:
        return any(member.key for member in self.members)

    def member(self, name: str) -> Member | None:
        return next((member for member in self.members if member.name == name), None)


Type: TypeAlias = Primitive | String | Enum | Sequence | Array | Struct

#: Types that go on the wire as one number.
SCALARS: Final = (Primitive, Enum)


def number_code(t: Primitive | Enum) -> str:
    """NumPy type code of a scalar, without byte order."""
    return t.type_code if isinstance(t, Enum) else TYPE_CODES[t.kind]


def number_size(t: Primitive | Enum) -> int:
    return int(number_code(t)[1:])


def is_bytes(t: Type) -> bool:
    """Whether a sequence's or array's elements are octets, so that a value is one binary string."""
    return isinstance(t, Primitive) and t.kind is PrimitiveKind.BYTE


def has_dheader(t: Sequence | Array) -> bool:
    """Whether XCDR2 puts a DHEADER before this collection: it does unless elements are primitive.

    Enums are not primitive here (XTypes 1.3 §7.4.3.5.3 rules 9-12; Cyclone DDS agrees).
    """
    return not isinstance(t.element, Primitive)


def hash_id(name: str) -> int:
    """Member id of @hashid (XTypes 1.3 §7.3.1.2.1.1)."""
    return (
        int.from_bytes(hashlib.md5(name.encode(), usedforsecurity=False).digest()[:4], "little") & 0x0FFF_FFFF
    )


def walk(t: Type) -> Iterator[Type]:
    """The type and all types inside it, outermost first; a shared type comes as often as it is used."""
    yield t
    if isinstance(t, Sequence | Array):
        yield from walk(t.element)
    elif isinstance(t, Struct):
        for member in t.members:
            yield from walk(member.type)
