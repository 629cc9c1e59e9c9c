"""Type objects of XTypes 1.1, which RTI Connext announces in SEDP: plain or compressed, with all types they refer to.

A TypeObject is a mutable structure in XCDR1's parameter lists: a library of types, and the id of one of them. Members
of lists come in the order of the specification, which Wireshark's dissector expects too. Annotations are skipped, since
keys and optional members are flags here.

Fast DDS 2 sends another structure under the same parameter id: see ``type_object_fast_dds``.
"""

from __future__ import annotations

import bz2
import zlib
from typing import Final

from ...errors import DecodeError, DropReason, TypeDefinitionError
from ...limits import TYPE_DEPTH_MAX, TYPE_OBJECT_BYTES_MAX
from ...value_classes import value
from ..cdr.member_headers import PID_EXTENDED, PID_LIST_END, PID_MASK
from ..model import (
    Case,
    Enum,
    Extensibility,
    Member,
    Primitive,
    PrimitiveKind,
    String,
    Struct,
    Union,
    WString,
    resolve,
)
from . import assembly
from .assembly import TypeTree
from .type_object_fast_dds import is_of_fast_dds, struct_of_fast_dds

#: TypeKind (XTypes 1.1 §7.3.4.1).
_PRIMITIVES: Final = dict(
    enumerate(
        (
            PrimitiveKind.BOOLEAN,
            PrimitiveKind.BYTE,
            PrimitiveKind.INT16,
            PrimitiveKind.UINT16,
            PrimitiveKind.INT32,
            PrimitiveKind.UINT32,
            PrimitiveKind.INT64,
            PrimitiveKind.UINT64,
            PrimitiveKind.FLOAT32,
            PrimitiveKind.FLOAT64,
            PrimitiveKind.FLOAT128,
            PrimitiveKind.CHAR8,
            PrimitiveKind.CHAR16,
        ),
        start=1,
    )
)
_NO_TYPE: Final = 0
_ENUMERATION: Final = 14
_ALIAS: Final = 16
_ARRAY: Final = 17
_SEQUENCE: Final = 18
_STRING: Final = 19
_UNION: Final = 21
_STRUCTURE: Final = 22
_MODULE: Final = 24

_TYPE_FINAL: Final = 1
_TYPE_MUTABLE: Final = 2
_TYPE_NESTED: Final = 4
_MEMBER_KEY: Final = 1
_MEMBER_OPTIONAL: Final = 2
_MEMBER_SHAREABLE: Final = 4
_MEMBER_UNION_DEFAULT: Final = 8

_ZLIB, _BZIP2, _LZ4 = 1, 2, 4


def struct_of_v1(value: bytes, little_endian: bool) -> Struct:
    """The struct in a value of PID_TYPE_OBJECT of XTypes 1.1. Raises DecodeError."""
    if len(value) > TYPE_OBJECT_BYTES_MAX:
        raise DecodeError(DropReason.OVER_LIMIT, f"the TypeObject has {len(value)} bytes")
    try:
        if is_of_fast_dds(value):
            return struct_of_fast_dds(value)
        library, meant = _take(_Cursor(memoryview(value), little_endian).parameters(), 2)
        described = resolve(_Library(library).part(meant.type_id()).type)
    except TypeDefinitionError as error:
        raise DecodeError(DropReason.BAD_PARAMETER, str(error)) from None
    if not isinstance(described, Struct):
        raise DecodeError(DropReason.BAD_PARAMETER, "the type is not a struct")
    return described


def decompress_type_object(value: bytes, little_endian: bool) -> bytes:
    """The value of PID_TYPE_OBJECT from RTI's PID_TYPE_OBJECT_LB, which compresses it. Raises DecodeError."""
    cursor = _Cursor(memoryview(value), little_endian)
    method, size, packed_size = cursor.u32(), cursor.u32(), cursor.u32()
    if not 0 < size <= TYPE_OBJECT_BYTES_MAX:
        raise DecodeError(DropReason.OVER_LIMIT, f"the TypeObject has {size} bytes")
    packed = cursor.take_bytes(packed_size)
    try:
        raw = _decompressed(method, packed, size)
    except (OSError, zlib.error, EOFError) as error:
        raise DecodeError(
            DropReason.BAD_PARAMETER, f"the TypeObject cannot be decompressed: {error}"
        ) from None
    if len(raw) != size:
        raise DecodeError(DropReason.BAD_PARAMETER, f"the TypeObject has {len(raw)} bytes, not {size}")
    return raw


def _decompressed(method: int, packed: memoryview, size: int) -> bytes:
    """The decompressed bytes, at most ``size`` + 1: one byte too many shows that the size is wrong."""
    if method == 0:
        return bytes(packed)
    if method == _ZLIB:
        return zlib.decompressobj().decompress(packed, size + 1)
    if method == _BZIP2:
        return bz2.BZ2Decompressor().decompress(packed, size + 1)
    if method == _LZ4:
        import pyarrow as pa  # imported here, because few peers compress their TypeObjects

        codec = pa.Codec("lz4_raw")
        raw: bytes = codec.decompress(packed, decompressed_size=size, asbytes=True)
        try:
            # Arrow does not return the number of bytes that an LZ4 block decompresses to
            codec.decompress(packed, decompressed_size=size - 1)
        except OSError:
            return raw
        raise OSError("the LZ4 block is too short")
    raise DecodeError(DropReason.BAD_PARAMETER, f"the TypeObject has the unknown compression class {method}")


class _Cursor:
    """Reads one parameter's value; alignment counts from its start."""

    def __init__(self, data: memoryview, little_endian: bool) -> None:
        self.data = data
        self.little_endian = little_endian
        self.at = 0

    def take_bytes(self, size: int) -> memoryview:
        if size > len(self.data) - self.at:
            raise DecodeError(DropReason.BAD_PARAMETER, "the TypeObject ends early")
        self.at += size
        return self.data[self.at - size : self.at]

    def align(self, alignment: int) -> None:
        self.at = min(self.at + (-self.at % alignment), len(self.data))

    def number(self, size: int, *, signed: bool = False) -> int:
        self.align(size)
        return int.from_bytes(self.take_bytes(size), "little" if self.little_endian else "big", signed=signed)

    def u16(self) -> int:
        return self.number(2)

    def u32(self) -> int:
        return self.number(4)

    def i32(self) -> int:
        return self.number(4, signed=True)

    def text(self) -> str:
        raw = bytes(self.take_bytes(self.u32()))
        try:
            return raw.rstrip(b"\0").decode()
        except UnicodeDecodeError:
            raise DecodeError(DropReason.BAD_PARAMETER, "a name in the TypeObject is not UTF-8") from None

    def type_id(self) -> int:
        """A type's id; 1 to 13 are primitives, 0 is no type."""
        kind = self.u16()
        return self.u16() if kind <= max(_PRIMITIVES) else self.number(8)

    def count(self) -> int:
        """The length of a sequence, whose elements have at least four bytes."""
        count = self.u32()
        if count > (len(self.data) - self.at) // 4:
            raise DecodeError(
                DropReason.BAD_PARAMETER, f"the TypeObject declares a sequence of {count} elements"
            )
        return count

    def parameters(self) -> list[_Cursor]:
        """The values of a parameter list, up to its end."""
        values: list[_Cursor] = []
        while True:
            self.align(4)
            identity, size = self.u16() & PID_MASK, self.u16()
            if identity == PID_EXTENDED:
                identity, size = self.u32(), self.u32()
            if identity == PID_LIST_END:
                return values
            values.append(_Cursor(self.take_bytes(size), self.little_endian))


def _take(values: list[_Cursor], count: int) -> list[_Cursor]:
    """The first ``count`` values of a parameter list; later versions may have more."""
    if len(values) < count:
        raise DecodeError(
            DropReason.BAD_PARAMETER, f"the TypeObject has {len(values)} parameters, not {count}"
        )
    return values[:count]


@value
class _Described:
    """A type of the library: its kind, its qualified name, and the parameters after its properties."""

    kind: int
    name: str
    flags: int
    parameters: list[_Cursor]


class _Library:
    """The types of a TypeLibrary, by id."""

    def __init__(self, library: _Cursor) -> None:
        self.described: dict[int, _Described] = {}
        self.known: dict[int, TypeTree] = {}
        #: The ids of types that are being read.
        self.open: set[int] = set()
        self.add_library(library, "", 0)

    def add_library(self, library: _Cursor, scope: str, depth: int) -> None:
        if depth > TYPE_DEPTH_MAX:
            raise DecodeError(DropReason.OVER_LIMIT, "the modules are nested too deeply")
        for _ in range(library.count()):
            discriminator, element = _take(library.parameters(), 2)
            kind = discriminator.u32() if len(discriminator.data) >= 4 else discriminator.u16()
            if kind == _MODULE:
                self.add_library(element, f"{scope}{element.text()}::", depth + 1)
                continue
            parameters = element.parameters()
            (properties,) = _take(parameters, 1)
            flags, type_id, name = properties.u16(), properties.type_id(), properties.text()
            qualified = name if "::" in name else scope + name
            # annotations come second
            self.described[type_id] = _Described(kind, qualified, flags, parameters[2:])

    def part(self, type_id: int) -> TypeTree:
        if type_id in _PRIMITIVES:
            return TypeTree(Primitive(_PRIMITIVES[type_id]))
        part = self.known.get(type_id)
        if part is None:
            described = self.described.get(type_id)
            if described is None:
                raise TypeDefinitionError(f"type {type_id:#x} is missing")
            if type_id in self.open:
                raise TypeDefinitionError("the type is recursive")
            if len(self.open) >= TYPE_DEPTH_MAX:
                raise TypeDefinitionError("a type of too many parts")
            self.open.add(type_id)
            part = self.known[type_id] = self.read(described)
            self.open.remove(type_id)
        return part

    def read(self, described: _Described) -> TypeTree:
        parameters = described.parameters
        if described.kind == _ENUMERATION:
            return _enum(described)
        if described.kind == _ALIAS:
            return assembly.alias(described.name, self.part(_take(parameters, 1)[0].type_id()))
        if described.kind == _STRUCTURE:
            return self.struct(described)
        if described.kind == _UNION:
            return self.union(described)
        if described.kind not in (_ARRAY, _SEQUENCE, _STRING):
            raise TypeDefinitionError(f"{described.name}: kind {described.kind} is not supported")
        element, _, bound = _take(parameters, 3)
        if described.kind == _ARRAY:
            dimensions = tuple(bound.u32() for _ in range(bound.count()))
            return assembly.array(self.part(element.type_id()), dimensions)
        if described.kind == _SEQUENCE:
            return assembly.sequence(self.part(element.type_id()), bound.u32())
        limit = assembly.bound(bound.u32())
        is_narrow = _PRIMITIVES.get(element.type_id()) is PrimitiveKind.CHAR8
        return TypeTree(String(limit) if is_narrow else WString(limit))

    def struct(self, described: _Described) -> TypeTree:
        base_type, sequence = _take(described.parameters, 2)
        base_id = base_type.type_id()
        base = None if base_id == _NO_TYPE else self.part(base_id)
        properties = [_properties(sequence.parameters()) for _ in range(sequence.count())]
        parts = [self.part(each.type_id) for each in properties]
        members = tuple(
            Member(
                each.name,
                part.type,
                each.id,
                key=bool(each.flags & _MEMBER_KEY),
                optional=bool(each.flags & _MEMBER_OPTIONAL),
                external=bool(each.flags & _MEMBER_SHAREABLE),
            )
            for each, part in zip(properties, parts, strict=True)
        )
        nested = bool(described.flags & _TYPE_NESTED)
        made = Struct(described.name, members, _extensibility(described.flags), nested=nested)
        return assembly.struct(base, made, parts)

    def union(self, described: _Described) -> TypeTree:
        (sequence,) = _take(described.parameters, 1)
        properties, labels = [], []
        for _ in range(sequence.count()):
            parameters = sequence.parameters()
            properties.append(_properties(parameters))
            selecting = _take(parameters, 3)[2]
            labels.append(tuple(selecting.i32() for _ in range(selecting.count())))
        if not properties:
            raise TypeDefinitionError(f"{described.name}: the union has no discriminator")
        # the first one is the discriminator
        discriminator, *parts = (self.part(each.type_id) for each in properties)
        cases = tuple(
            Case(
                each.name,
                part.type,
                each.id,
                selecting,
                default=bool(each.flags & _MEMBER_UNION_DEFAULT),
                external=bool(each.flags & _MEMBER_SHAREABLE),
            )
            for each, part, selecting in zip(properties[1:], parts, labels[1:], strict=True)
        )
        made = Union(
            described.name,
            discriminator.type,
            cases,
            _extensibility(described.flags),
            key=bool(properties[0].flags & _MEMBER_KEY),
            nested=bool(described.flags & _TYPE_NESTED),
        )
        return assembly.union(made, discriminator, parts)


@value
class _Properties:
    """The properties of a member."""

    flags: int
    id: int
    type_id: int
    name: str


def _properties(parameters: list[_Cursor]) -> _Properties:
    (value,) = _take(parameters, 1)
    return _Properties(value.u16(), value.u32(), value.type_id(), value.text())


def _enum(described: _Described) -> TypeTree:
    bit_bound, sequence = _take(described.parameters, 2)
    literals = []
    for _ in range(sequence.count()):
        number = sequence.i32()
        literals.append((sequence.text(), number))
    return assembly.enum(Enum(described.name, tuple(literals), bit_bound.u32()))


def _extensibility(flags: int) -> Extensibility:
    if flags & _TYPE_MUTABLE:
        return Extensibility.MUTABLE
    return Extensibility.FINAL if flags & _TYPE_FINAL else Extensibility.APPENDABLE
