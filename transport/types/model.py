"""The DDS type model (XTypes 1.3 §7.2), into which IDL, ROS definitions, type objects and Arrow schemas are read.

A type is a tree of frozen values; constants are resolved while reading. Aliases are kept, because they are part of a
type's identity; codecs work with the tree that :func:`without_aliases` returns. Recursive types have no such tree, and
no columns either.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Final, TypeAlias

from ..value_classes import value


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
    FLOAT128 = "long double"
    CHAR8 = "char"
    CHAR16 = "wchar"


#: NumPy type code of each primitive; booleans are read as bytes because any nonzero one is true. NumPy has no IEEE 754
#: binary128.
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
    PrimitiveKind.FLOAT128: "V16",
    PrimitiveKind.CHAR8: "u1",
    PrimitiveKind.CHAR16: "u2",
}


#: The least and the greatest value of each integer type.
INTEGER_RANGES: Final = {
    PrimitiveKind.BYTE: (0, 0xFF),
    PrimitiveKind.INT8: (-0x80, 0x7F),
    PrimitiveKind.UINT8: (0, 0xFF),
    PrimitiveKind.INT16: (-0x8000, 0x7FFF),
    PrimitiveKind.UINT16: (0, 0xFFFF),
    PrimitiveKind.INT32: (-(1 << 31), (1 << 31) - 1),
    PrimitiveKind.UINT32: (0, (1 << 32) - 1),
    PrimitiveKind.INT64: (-(1 << 63), (1 << 63) - 1),
    PrimitiveKind.UINT64: (0, (1 << 64) - 1),
}
#: The greatest member id.
MEMBER_ID_MAX: Final = (1 << 28) - 1
#: The greatest bound or length, the limit of Arrow and Java.
LENGTH_MAX: Final = (1 << 31) - 1


class Extensibility(enum.Enum):
    """How a struct or union may evolve, and thereby how XCDR2 writes it (XTypes 1.3 §7.2.3)."""

    FINAL = "final"
    APPENDABLE = "appendable"
    MUTABLE = "mutable"


@value
class Primitive:
    kind: PrimitiveKind


@value
class String:
    """``string`` or ``string<bound>``; the bound counts UTF-8 bytes, 0 is unbounded."""

    bound: int = 0


@value
class WString:
    """``wstring`` or ``wstring<bound>``; the bound counts UTF-16 code units, 0 is unbounded."""

    bound: int = 0


@value
class Enum:
    """An enum; ``default`` is the literal that @default_literal marks. Without an annotation an enum is final, as in
    Cyclone DDS."""

    name: str
    literals: tuple[tuple[str, int], ...]
    bit_bound: int = 32
    default: str | None = None
    extensibility: Extensibility = Extensibility.FINAL

    @property
    def type_code(self) -> str:
        """NumPy type code of the integer on the wire (XTypes 1.3 §7.4.3.5: by bit bound).

        It is unsigned if a value requires that, as in Cyclone DDS: 8 bits then reach 255.
        """
        size = 1 if self.bit_bound <= 8 else 2 if self.bit_bound <= 16 else 4
        most = max((value for _, value in self.literals), default=0)
        return f"{'i' if most < 1 << 8 * size - 1 else 'u'}{size}"


def _unsigned_code(bits: int) -> str:
    return "u1" if bits <= 8 else "u2" if bits <= 16 else "u4" if bits <= 32 else "u8"


@value
class Bitmask:
    """Named bits of an unsigned integer, each as (name, position)."""

    name: str
    flags: tuple[tuple[str, int], ...]
    bit_bound: int = 32

    @property
    def type_code(self) -> str:
        """NumPy type code of the integer on the wire."""
        return _unsigned_code(self.bit_bound)


@value
class BitField:
    """``bits`` bits from ``position`` on, as an integer (or boolean) of ``kind``; the unnamed ones are not listed."""

    name: str
    position: int
    bits: int
    kind: PrimitiveKind


@value
class Bitset:
    """Integers packed into one; ``size`` counts all bits, unnamed ones included. Inherited fields are included too."""

    name: str
    fields: tuple[BitField, ...]
    size: int
    base: Bitset | None = None

    @property
    def type_code(self) -> str:
        """NumPy type code of the integer on the wire."""
        return _unsigned_code(self.size)


@value
class Sequence:
    element: Type
    bound: int = 0


@value
class Array:
    """A fixed array; ``double m[3][4]`` has dimensions (3, 4) and 12 elements in C order."""

    element: Type
    dimensions: tuple[int, ...]

    @property
    def length(self) -> int:
        return prod(self.dimensions)


@value
class Map:
    """``map<key, value>`` or ``map<key, value, bound>``."""

    key: Type
    value: Type
    bound: int = 0


class TryConstruct(enum.Enum):
    """What happens to a value that its type cannot hold (XTypes 1.3 §7.2.2.7)."""

    DISCARD = "DISCARD"
    USE_DEFAULT = "USE_DEFAULT"
    TRIM = "TRIM"


@value
class Member:
    """A member of a struct. ``notes`` are the annotations that describe values, as they are written: @default, @unit,
    @min, @max, @hashid."""

    name: str
    type: Type
    id: int
    key: bool = False
    optional: bool = False
    must_understand: bool = False
    external: bool = False
    try_construct: TryConstruct = TryConstruct.DISCARD
    notes: tuple[tuple[str, int | float | str | bool], ...] = ()


@value
class Struct:
    """A struct; ``name`` is fully qualified (``a::b::C``). ``members`` begin with those of ``base``."""

    name: str
    members: tuple[Member, ...]
    extensibility: Extensibility = Extensibility.FINAL
    base: Struct | None = None
    nested: bool = False
    autoid_hash: bool = False

    def __hash__(self) -> int:
        # the hash is kept, because types are large and are keys of caches that are used for each range of samples
        return hash((self.name, len(self.members)))

    @property
    def is_keyed(self) -> bool:
        return any(member.key for member in self.members)

    @property
    def own_members(self) -> tuple[Member, ...]:
        """The members that are not inherited."""
        return self.members[len(self.base.members) :] if self.base is not None else self.members

    def member(self, name: str) -> Member | None:
        return next((member for member in self.members if member.name == name), None)


@value
class Case:
    """A branch of a union. ``labels`` are the values of the discriminator that select it, as integers (a char's code, 0
    or 1 of a boolean, an enum literal's value); a ``default`` branch has all values that are no label."""

    name: str
    type: Type
    id: int
    labels: tuple[int, ...]
    default: bool = False
    external: bool = False
    try_construct: TryConstruct = TryConstruct.DISCARD
    notes: tuple[tuple[str, int | float | str | bool], ...] = ()


@value
class Union:
    """A union; ``key``: the discriminator is @key."""

    name: str
    discriminator: Type
    cases: tuple[Case, ...]
    extensibility: Extensibility = Extensibility.FINAL
    key: bool = False
    nested: bool = False
    autoid_hash: bool = False

    @property
    def discriminator_name(self) -> str:
        """The name of the discriminator's column, which differs from those of the branches."""
        name = "discriminator"
        while any(case.name.lower() == name for case in self.cases):
            name = f"_{name}"
        return name


@value
class Alias:
    """``typedef type name``."""

    name: str
    type: Type


Type: TypeAlias = (
    Primitive | String | WString | Enum | Bitmask | Bitset | Sequence | Array | Map | Struct | Union | Alias
)
Scalar: TypeAlias = Primitive | Enum | Bitmask | Bitset

#: Types that are one number on the wire.
SCALARS: Final = (Primitive, Enum, Bitmask, Bitset)


def number_code(t: Scalar) -> str:
    """NumPy type code of a scalar, without byte order."""
    return TYPE_CODES[t.kind] if isinstance(t, Primitive) else t.type_code


def number_size(t: Scalar) -> int:
    return int(number_code(t)[1:])


def is_bytes(t: Type) -> bool:
    """Whether a collection of elements of this type, octet or uint8, is one binary value.

    Images and point clouds of ROS 2 are sequences of uint8.
    """
    t = resolve(t)
    return isinstance(t, Primitive) and t.kind in (PrimitiveKind.BYTE, PrimitiveKind.UINT8)


def has_int8(t: Type) -> bool:
    """Whether the type has int8 or uint8 inside, which are new in XTypes 1.3."""
    kinds = (PrimitiveKind.INT8, PrimitiveKind.UINT8)
    return any(isinstance(each, Primitive) and each.kind in kinds for each in traverse(t))


def is_blob(t: Sequence | Array) -> bool:
    """Whether a value of this sequence or array is one binary string."""
    return is_bytes(t.element) and (isinstance(t, Sequence) or len(t.dimensions) == 1)


def fields_of(t: Struct | Union | Bitset) -> dict[str, Type]:
    """The types of the fields of the type's column, by name."""
    if isinstance(t, Struct):
        return {member.name: member.type for member in t.members}
    if isinstance(t, Bitset):
        return {field.name: Primitive(field.kind) for field in t.fields}
    return {t.discriminator_name: t.discriminator} | {case.name: case.type for case in t.cases}


_REALS: Final = (PrimitiveKind.FLOAT32, PrimitiveKind.FLOAT64, PrimitiveKind.FLOAT128)


def is_map_key(t: Type) -> bool:
    """Whether maps can have keys of the type: only types whose values compare exactly (XTypes 1.3 §7.2.2.4.3)."""
    t = resolve(t)
    if isinstance(t, Primitive):
        return t.kind not in _REALS
    return isinstance(t, String | WString | Enum | Bitmask | Bitset)


def has_dheader(t: Sequence | Array | Map) -> bool:
    """Whether XCDR2 puts a DHEADER before this collection: it does unless elements are primitive.

    Enums are not primitive here (XTypes 1.3 §7.4.3.5.3 rules 9-12; Cyclone DDS agrees).
    """
    inner = (t.key, t.value) if isinstance(t, Map) else (t.element,)
    return not all(isinstance(resolve(each), Primitive) for each in inner)


def hash_id(name: str) -> int:
    """Member id of @hashid (XTypes 1.3 §7.3.1.2.1.1)."""
    return (
        int.from_bytes(hashlib.md5(name.encode(), usedforsecurity=False).digest()[:4], "little")
        & MEMBER_ID_MAX
    )


def resolve(t: Type) -> Type:
    """The type that an alias stands for, through any number of aliases."""
    while isinstance(t, Alias):
        t = t.type
    return t


def without_aliases(t: Type) -> Type:
    """The type with each alias inside replaced by its type. An array of aliases of arrays stays an array of arrays."""
    t = resolve(t)
    if isinstance(t, Sequence | Array):
        return replace(t, element=without_aliases(t.element))
    if isinstance(t, Map):
        return replace(t, key=without_aliases(t.key), value=without_aliases(t.value))
    if isinstance(t, Struct):
        members = tuple(replace(member, type=without_aliases(member.type)) for member in t.members)
        base = None if t.base is None else without_aliases(t.base)
        assert base is None or isinstance(base, Struct)
        return replace(t, members=members, base=base)
    if isinstance(t, Union):
        cases = tuple(replace(case, type=without_aliases(case.type)) for case in t.cases)
        return replace(t, discriminator=without_aliases(t.discriminator), cases=cases)
    return t


def traverse(t: Type) -> Iterator[Type]:
    """The type and all types inside it, outermost first; a shared type appears as often as it is used."""
    yield t
    if isinstance(t, Sequence | Array):
        yield from traverse(t.element)
    elif isinstance(t, Map):
        yield from traverse(t.key)
        yield from traverse(t.value)
    elif isinstance(t, Struct):
        for member in t.members:
            yield from traverse(member.type)
    elif isinstance(t, Union):
        yield from traverse(t.discriminator)
        for case in t.cases:
            yield from traverse(case.type)
    elif isinstance(t, Alias):
        yield from traverse(t.type)
