"""TypeObject: the description of a type for peers (XTypes 1.3 §7.3.4.4, annex B).

The minimal form of each structure has hashes instead of names, and no annotations; otherwise it equals the complete
form. Each structure is therefore declared once, generic in its details: T of a type, M of a member, E of an element.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar

from ...errors import DecodeError, DropReason
from ...limits import TYPE_OBJECT_BYTES_MAX
from ...value_classes import value
from .type_identifiers import (
    EK_COMPLETE,
    EK_MINIMAL,
    HASH_SIZE,
    PRIMITIVES,
    TK_ALIAS,
    TK_ARRAY,
    TK_BITMASK,
    TK_BITSET,
    TK_ENUM,
    TK_MAP,
    TK_NONE,
    TK_SEQUENCE,
    TK_STRING8,
    TK_STRING16,
    TK_STRUCTURE,
    TK_UNION,
    TypeIdentifier,
)
from .xcdr2 import (
    DEFAULT,
    I32,
    U8,
    U16,
    U32,
    Buffer,
    OctetsLayout,
    PrimitiveLayout,
    Text16Layout,
    TextLayout,
    appendable,
    decode,
    encode,
    final,
    union,
)

T = TypeVar("T")
M = TypeVar("M")
E = TypeVar("E")

NAME_MAX: Final = 256
Name: TypeAlias = Annotated[str, TextLayout(NAME_MAX)]
NameHash: TypeAlias = Annotated[bytes, OctetsLayout(4)]

# --- annotations ----------------------------------------------------------------------------------------

#: The struct format of numbers in annotations, by the kind of primitive.
_CODES: Final = dict(zip(PRIMITIVES, "?BhiqHIQfd_bBBH", strict=True))


@appendable
class ExtendedAnnotationParameterValue:
    """A placeholder for extensions of later versions."""


@union(
    {kind: Annotated[Any, PrimitiveLayout(code)] for kind, code in _CODES.items() if code != "_"}
    | {
        TK_NONE: None,
        TK_ENUM: I32,
        TK_STRING8: Annotated[str, TextLayout(128)],
        TK_STRING16: Annotated[str, Text16Layout()],
        0x0B: Annotated[bytes, OctetsLayout(16)],
        DEFAULT: ExtendedAnnotationParameterValue,
    }
)
@value
class AnnotationParameterValue:
    kind: int
    value: int | float | str | bool | bytes | ExtendedAnnotationParameterValue | None


@appendable
class AppliedAnnotationParameter:
    paramname_hash: NameHash
    value: AnnotationParameterValue


@appendable
class AppliedAnnotation:
    annotation_typeid: TypeIdentifier
    param_seq: tuple[AppliedAnnotationParameter, ...] | None


@final
class AppliedVerbatimAnnotation:
    placement: Annotated[str, TextLayout(32)]
    language: Annotated[str, TextLayout(32)]
    text: Annotated[str, TextLayout()]


@appendable
class AppliedBuiltinMemberAnnotations:
    unit: Annotated[str, TextLayout()] | None = None
    min: AnnotationParameterValue | None = None
    max: AnnotationParameterValue | None = None
    hash_id: Annotated[str, TextLayout()] | None = None


@appendable
class AppliedBuiltinTypeAnnotations:
    verbatim: AppliedVerbatimAnnotation | None = None


# --- details --------------------------------------------------------------------------------------------


@final
class NoDetail:
    """The details of a type, an element or a discriminator in the minimal form."""


@final
class MinimalMemberDetail:
    name_hash: NameHash


@final
class CompleteTypeDetail:
    ann_builtin: AppliedBuiltinTypeAnnotations | None
    ann_custom: tuple[AppliedAnnotation, ...] | None
    type_name: Name


@final
class CompleteMemberDetail:
    name: Name
    ann_builtin: AppliedBuiltinMemberAnnotations | None
    ann_custom: tuple[AppliedAnnotation, ...] | None


@final
class CompleteElementDetail:
    ann_builtin: AppliedBuiltinMemberAnnotations | None = None
    ann_custom: tuple[AppliedAnnotation, ...] | None = None


@final
class CompleteDiscriminatorDetail:
    ann_builtin: AppliedBuiltinTypeAnnotations | None = None
    ann_custom: tuple[AppliedAnnotation, ...] | None = None


# --- aliases --------------------------------------------------------------------------------------------


@appendable
class TypeHeader(Generic[T]):
    """The header of aliases, unions and bitsets."""

    detail: T


@final
class CommonAliasBody:
    related_flags: U16
    related_type: TypeIdentifier


@appendable
class AliasBody(Generic[E]):
    common: CommonAliasBody
    detail: E


@final
class AliasType(Generic[T, E]):
    flags: U16
    header: TypeHeader[T]
    body: AliasBody[E]


# --- structs --------------------------------------------------------------------------------------------


@appendable
class StructHeader(Generic[T]):
    base_type: TypeIdentifier
    detail: T


@final
class CommonStructMember:
    member_id: U32
    member_flags: U16
    member_type_id: TypeIdentifier


@appendable
class StructMember(Generic[M]):
    common: CommonStructMember
    detail: M


@final
class StructType(Generic[T, M]):
    flags: U16
    header: StructHeader[T]
    member_seq: tuple[StructMember[M], ...]


# --- unions ---------------------------------------------------------------------------------------------


@final
class CommonUnionMember:
    member_id: U32
    member_flags: U16
    type_id: TypeIdentifier
    label_seq: tuple[I32, ...]


@appendable
class UnionMember(Generic[M]):
    common: CommonUnionMember
    detail: M


@final
class CommonDiscriminatorMember:
    member_flags: U16
    type_id: TypeIdentifier


@appendable
class DiscriminatorMember(Generic[E]):
    common: CommonDiscriminatorMember
    detail: E


@final
class UnionType(Generic[T, M, E]):
    flags: U16
    header: TypeHeader[T]
    discriminator: DiscriminatorMember[E]
    member_seq: tuple[UnionMember[M], ...]


# --- collections that are not plain ---------------------------------------------------------------------


@appendable
class CollectionHeader(Generic[T]):
    bound: U32
    detail: T


@appendable
class ArrayHeader(Generic[T]):
    bound_seq: tuple[U32, ...]
    detail: T


@final
class CommonCollectionElement:
    element_flags: U16
    type: TypeIdentifier


@appendable
class CollectionElement(Generic[E]):
    common: CommonCollectionElement
    detail: E


@final
class SequenceType(Generic[T, E]):
    flags: U16
    header: CollectionHeader[T]
    element: CollectionElement[E]


@final
class MinimalArrayType:
    flags: U16
    header: ArrayHeader[NoDetail]
    element: CollectionElement[NoDetail]


@appendable
class CompleteArrayType:
    """The one structure whose two forms differ in extensibility."""

    flags: U16
    header: ArrayHeader[CompleteTypeDetail]
    element: CollectionElement[CompleteElementDetail]


@final
class MapType(Generic[T, E]):
    flags: U16
    header: CollectionHeader[T]
    key: CollectionElement[E]
    element: CollectionElement[E]


# --- enums, bitmasks, bitsets ---------------------------------------------------------------------------


@appendable
class EnumeratedHeader(Generic[T]):
    bit_bound: U16
    detail: T


@appendable
class CommonEnumeratedLiteral:
    value: I32
    flags: U16


@appendable
class EnumeratedLiteral(Generic[M]):
    common: CommonEnumeratedLiteral
    detail: M


@final
class EnumeratedType(Generic[T, M]):
    flags: U16
    header: EnumeratedHeader[T]
    literal_seq: tuple[EnumeratedLiteral[M], ...]


@final
class CommonBitflag:
    position: U16
    flags: U16


@appendable
class Bitflag(Generic[M]):
    common: CommonBitflag
    detail: M


@appendable
class BitmaskType(Generic[T, M]):
    flags: U16
    header: EnumeratedHeader[T]
    flag_seq: tuple[Bitflag[M], ...]


@final
class CommonBitfield:
    position: U16
    flags: U16
    bitcount: U8
    holder_type: U8


@appendable
class Bitfield(Generic[M]):
    common: CommonBitfield
    detail: M


@appendable
class BitsetType(Generic[T, M]):
    """The specification has no place for a bitset's base: its fields are listed with the others."""

    flags: U16
    header: TypeHeader[T]
    field_seq: tuple[Bitfield[M], ...]


# --- type objects ---------------------------------------------------------------------------------------

Description: TypeAlias = (
    AliasType[Any, Any]
    | StructType[Any, Any]
    | UnionType[Any, Any, Any]
    | BitsetType[Any, Any]
    | SequenceType[Any, Any]
    | MinimalArrayType
    | CompleteArrayType
    | MapType[Any, Any]
    | EnumeratedType[Any, Any]
    | BitmaskType[Any, Any]
)


@union(
    {
        TK_ALIAS: AliasType[NoDetail, NoDetail],
        TK_STRUCTURE: StructType[NoDetail, MinimalMemberDetail],
        TK_UNION: UnionType[NoDetail, MinimalMemberDetail, NoDetail],
        TK_BITSET: BitsetType[NoDetail, MinimalMemberDetail],
        TK_SEQUENCE: SequenceType[NoDetail, NoDetail],
        TK_ARRAY: MinimalArrayType,
        TK_MAP: MapType[NoDetail, NoDetail],
        TK_ENUM: EnumeratedType[NoDetail, MinimalMemberDetail],
        TK_BITMASK: BitmaskType[NoDetail, MinimalMemberDetail],
    }
)
@value
class MinimalTypeObject:
    kind: int
    value: Description


@union(
    {
        TK_ALIAS: AliasType[CompleteTypeDetail, CompleteElementDetail],
        TK_STRUCTURE: StructType[CompleteTypeDetail, CompleteMemberDetail],
        TK_UNION: UnionType[CompleteTypeDetail, CompleteMemberDetail, CompleteDiscriminatorDetail],
        TK_BITSET: BitsetType[CompleteTypeDetail, CompleteMemberDetail],
        TK_SEQUENCE: SequenceType[CompleteTypeDetail | None, CompleteElementDetail],
        TK_ARRAY: CompleteArrayType,
        TK_MAP: MapType[CompleteTypeDetail | None, CompleteElementDetail],
        TK_ENUM: EnumeratedType[CompleteTypeDetail, CompleteMemberDetail],
        TK_BITMASK: BitmaskType[CompleteTypeDetail, CompleteMemberDetail],
    }
)
@value
class CompleteTypeObject:
    kind: int
    value: Description


@union({EK_MINIMAL: MinimalTypeObject, EK_COMPLETE: CompleteTypeObject}, delimited=True)
@value
class TypeObject:
    kind: int
    value: MinimalTypeObject | CompleteTypeObject


#: The offset of the form in a serialized TypeObject: after its DHEADER.
_FORM_AT: Final = 4


def normalized(type_object: Buffer) -> bytes:
    """A serialized TypeObject in the form from which its identifier is computed: padding is zero. Raises DecodeError.

    Fast DDS 3 hashes this form, but sends padding with arbitrary bytes of its memory.
    """
    return encode(TypeObject, decode(TypeObject, type_object))


def identifier_of(type_object: Buffer) -> bytes:
    """The identifier that a serialized TypeObject hashes to. Raises DecodeError if it is not a TypeObject."""
    if not _FORM_AT < len(type_object) <= TYPE_OBJECT_BYTES_MAX:
        raise DecodeError(DropReason.BAD_PARAMETER, f"the TypeObject has {len(type_object)} bytes")
    form = type_object[_FORM_AT]
    if form not in (EK_MINIMAL, EK_COMPLETE):
        raise DecodeError(DropReason.BAD_PARAMETER, f"the TypeObject has the unknown form {form:#04x}")
    return bytes((form,)) + hashlib.md5(type_object, usedforsecurity=False).digest()[:HASH_SIZE]
