"""TypeIdentifier: the hash of a type, or the full description of a simple one (XTypes 1.3 §7.3.4.2)."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from ...value_classes import value
from ..model import PrimitiveKind
from .xcdr2 import I32, U8, U16, U32, OctetsLayout, XcdrCursor, appendable, encode, final, layout_of, union

EK_MINIMAL: Final = 0xF1
EK_COMPLETE: Final = 0xF2
#: The equivalence kind of a plain collection without a hash, which is the same in both forms.
EK_BOTH: Final = 0xF3

TK_NONE: Final = 0x00
TK_ALIAS: Final = 0x30
TK_ENUM: Final = 0x40
TK_BITMASK: Final = 0x41
TK_STRUCTURE: Final = 0x51
TK_UNION: Final = 0x52
TK_BITSET: Final = 0x53
TK_SEQUENCE: Final = 0x60
TK_ARRAY: Final = 0x61
TK_MAP: Final = 0x62
TK_STRING8: Final = 0x20
TK_STRING16: Final = 0x21

TI_STRING8_SMALL: Final = 0x70
TI_STRING8_LARGE: Final = 0x71
TI_STRING16_SMALL: Final = 0x72
TI_STRING16_LARGE: Final = 0x73
TI_PLAIN_SEQUENCE_SMALL: Final = 0x80
TI_PLAIN_SEQUENCE_LARGE: Final = 0x81
TI_PLAIN_ARRAY_SMALL: Final = 0x90
TI_PLAIN_ARRAY_LARGE: Final = 0x91
TI_PLAIN_MAP_SMALL: Final = 0xA0
TI_PLAIN_MAP_LARGE: Final = 0xA1
TI_STRONGLY_CONNECTED_COMPONENT: Final = 0xB0

#: The largest bound of the small kinds.
SMALL_MAX: Final = 255

PRIMITIVES: Final = {
    0x01: PrimitiveKind.BOOLEAN,
    0x02: PrimitiveKind.BYTE,
    0x03: PrimitiveKind.INT16,
    0x04: PrimitiveKind.INT32,
    0x05: PrimitiveKind.INT64,
    0x06: PrimitiveKind.UINT16,
    0x07: PrimitiveKind.UINT32,
    0x08: PrimitiveKind.UINT64,
    0x09: PrimitiveKind.FLOAT32,
    0x0A: PrimitiveKind.FLOAT64,
    0x0B: PrimitiveKind.FLOAT128,
    0x0C: PrimitiveKind.INT8,
    0x0D: PrimitiveKind.UINT8,
    0x10: PrimitiveKind.CHAR8,
    0x11: PrimitiveKind.CHAR16,
}
PRIMITIVE_KINDS: Final = {primitive: kind for kind, primitive in PRIMITIVES.items()}

#: MemberFlag and TypeFlag (XTypes 1.3 §7.3.4.4).
TRY_CONSTRUCT: Final = 0x03
IS_EXTERNAL: Final = 0x04
IS_OPTIONAL: Final = 0x08
IS_MUST_UNDERSTAND: Final = 0x10
IS_KEY: Final = 0x20
IS_DEFAULT: Final = 0x40
IS_FINAL: Final = 0x01
IS_APPENDABLE: Final = 0x02
IS_MUTABLE: Final = 0x04
IS_NESTED: Final = 0x08
IS_AUTOID_HASH: Final = 0x10

HASH_SIZE: Final = 14
EquivalenceHash: TypeAlias = Annotated[bytes, OctetsLayout(HASH_SIZE)]


@final
class SmallString:
    bound: U8


@final
class LargeString:
    bound: U32


@final
class PlainCollectionHeader:
    equiv_kind: U8
    element_flags: U16


@final
class SmallSequence:
    header: PlainCollectionHeader
    bound: U8
    element: TypeIdentifier


@final
class LargeSequence:
    header: PlainCollectionHeader
    bound: U32
    element: TypeIdentifier


@final
class SmallArray:
    header: PlainCollectionHeader
    bounds: tuple[U8, ...]
    element: TypeIdentifier


@final
class LargeArray:
    header: PlainCollectionHeader
    bounds: tuple[U32, ...]
    element: TypeIdentifier


@final
class SmallMap:
    header: PlainCollectionHeader
    bound: U8
    element: TypeIdentifier
    key_flags: U16
    key: TypeIdentifier


@final
class LargeMap:
    header: PlainCollectionHeader
    bound: U32
    element: TypeIdentifier
    key_flags: U16
    key: TypeIdentifier


@union({EK_MINIMAL: EquivalenceHash, EK_COMPLETE: EquivalenceHash})
@value
class TypeObjectHashId:
    kind: int
    value: bytes


@appendable
class StronglyConnectedComponentId:
    """One of ``scc_length`` types that refer to each other."""

    sc_component_id: TypeObjectHashId
    scc_length: I32
    scc_index: I32


PlainCollection: TypeAlias = SmallSequence | LargeSequence | SmallArray | LargeArray | SmallMap | LargeMap


@union(
    {
        TK_NONE: None,
        **dict.fromkeys(PRIMITIVES),
        TI_STRING8_SMALL: SmallString,
        TI_STRING8_LARGE: LargeString,
        TI_STRING16_SMALL: SmallString,
        TI_STRING16_LARGE: LargeString,
        TI_PLAIN_SEQUENCE_SMALL: SmallSequence,
        TI_PLAIN_SEQUENCE_LARGE: LargeSequence,
        TI_PLAIN_ARRAY_SMALL: SmallArray,
        TI_PLAIN_ARRAY_LARGE: LargeArray,
        TI_PLAIN_MAP_SMALL: SmallMap,
        TI_PLAIN_MAP_LARGE: LargeMap,
        TI_STRONGLY_CONNECTED_COMPONENT: StronglyConnectedComponentId,
        EK_MINIMAL: EquivalenceHash,
        EK_COMPLETE: EquivalenceHash,
    }
)
@value
class TypeIdentifier:
    kind: int
    value: SmallString | LargeString | PlainCollection | StronglyConnectedComponentId | bytes | None = None

    @property
    def is_hashed(self) -> bool:
        return self.kind in (EK_MINIMAL, EK_COMPLETE)

    @property
    def is_fully_descriptive(self) -> bool:
        """Whether the identifier alone describes the type (XTypes 1.3 §7.3.4.1)."""
        if isinstance(self.value, PlainCollection):
            return self.value.header.equiv_kind == EK_BOTH
        return not self.is_hashed and self.kind != TI_STRONGLY_CONNECTED_COMPONENT

    def to_bytes(self) -> bytes:
        """The serialized identifier; that of a hashed type has 15 bytes, its kind and its hash."""
        return encode(TypeIdentifier, self)


class _IdentifierBytes:
    """An identifier kept in its bytes on the wire. It must begin at an aligned position."""

    def write_value(self, out: bytearray, value: bytes) -> None:
        out.extend(value)

    def read_value(self, cursor: XcdrCursor) -> bytes:
        start = cursor.at
        layout_of(TypeIdentifier).read_value(cursor)
        return bytes(cursor.data[start : cursor.at])


#: A TypeIdentifier as bytes, in a structure in which only other identifiers come before it.
Identifier: TypeAlias = Annotated[bytes, _IdentifierBytes()]
