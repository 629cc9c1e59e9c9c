"""Types of the model as TypeObjects, and the identifiers that follow from them (XTypes 1.3 §7.3.4).

Complete and minimal objects, and their identifiers, equal those of Cyclone DDS's C library byte for byte. They cannot
express @default, the order in which the literals of an enum were written, the base of a bitset, or its unnamed bits at
the end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...errors import TypeDefinitionError
from ...limits import TYPE_OBJECT_BYTES_MAX
from ..model import (
    Alias,
    Array,
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
    TryConstruct,
    Type,
    Union,
    WString,
)
from . import structures as x
from .information import Dependencies, SizedIdentifier, TypeInformation
from .structures import identifier_of
from .type_identifiers import (
    EK_BOTH,
    EK_COMPLETE,
    EK_MINIMAL,
    IS_APPENDABLE,
    IS_AUTOID_HASH,
    IS_DEFAULT,
    IS_EXTERNAL,
    IS_FINAL,
    IS_KEY,
    IS_MUST_UNDERSTAND,
    IS_MUTABLE,
    IS_NESTED,
    IS_OPTIONAL,
    PRIMITIVE_KINDS,
    SMALL_MAX,
    TI_PLAIN_ARRAY_LARGE,
    TI_PLAIN_ARRAY_SMALL,
    TI_PLAIN_MAP_LARGE,
    TI_PLAIN_MAP_SMALL,
    TI_PLAIN_SEQUENCE_LARGE,
    TI_PLAIN_SEQUENCE_SMALL,
    TI_STRING8_LARGE,
    TI_STRING8_SMALL,
    TI_STRING16_LARGE,
    TI_STRING16_SMALL,
    TK_ALIAS,
    TK_BITMASK,
    TK_BITSET,
    TK_ENUM,
    TK_NONE,
    TK_STRING8,
    TK_STRUCTURE,
    TK_UNION,
    LargeArray,
    LargeMap,
    LargeSequence,
    LargeString,
    PlainCollectionHeader,
    SmallArray,
    SmallMap,
    SmallSequence,
    SmallString,
    TypeIdentifier,
)
from .type_reading import dependencies_of, struct_of
from .xcdr2 import encode

__all__ = ["TypeObjects", "dependencies_of", "identifier_of", "name_hash", "struct_of", "type_objects_of"]

#: XTypes 1.3 §7.3.4.4: bits of MemberFlag.
_TRY_CONSTRUCT: Final = {TryConstruct.DISCARD: 1, TryConstruct.USE_DEFAULT: 2, TryConstruct.TRIM: 3}
_EXTENSIBILITIES: Final = {
    Extensibility.FINAL: IS_FINAL,
    Extensibility.APPENDABLE: IS_APPENDABLE,
    Extensibility.MUTABLE: IS_MUTABLE,
}
_DISCARD: Final = _TRY_CONSTRUCT[TryConstruct.DISCARD]


@dataclass(frozen=True)
class TypeObjects:
    """All objects of a type: identifier to serialized TypeObject, in both forms."""

    information: TypeInformation
    objects: Mapping[bytes, bytes]


def type_objects_of(struct: Struct) -> TypeObjects:
    """The type objects of a struct and of all types on which it depends.

    Raises TypeDefinitionError for a type that XTypes cannot express: with names beyond 256 bytes, labels beyond 32
    bits, or more members than fit into a TypeObject.
    """
    minimal, complete = _Builder(EK_MINIMAL), _Builder(EK_COMPLETE)
    information = TypeInformation(minimal.dependencies(struct), complete.dependencies(struct))
    return TypeObjects(information, minimal.objects | complete.objects)


def name_hash(name: str) -> bytes:
    """The hash that replaces a member's name in minimal objects."""
    return hashlib.md5(name.encode(), usedforsecurity=False).digest()[:4]


class _Builder:
    """Builds the objects of one form, minimal or complete."""

    def __init__(self, form: int) -> None:
        self.form = form
        self.is_complete = form == EK_COMPLETE
        self.objects: dict[bytes, bytes] = {}
        #: Identifiers in the order of traversal, which is Cyclone's; None for types that are being described.
        self.known: dict[Type, TypeIdentifier | None] = {}

    def dependencies(self, struct: Struct) -> Dependencies:
        self.hashed(struct)
        # types that differ only in names have one minimal object
        met = dict.fromkeys(each.to_bytes() for each in self.known.values() if each is not None)
        top, *others = (SizedIdentifier(each, len(self.objects[each])) for each in met)
        return Dependencies(top, len(others), tuple(others))

    # --- identifiers --------------------------------------------------------------------------------------

    def identifier(self, t: Type) -> TypeIdentifier:
        if isinstance(t, Primitive):
            return TypeIdentifier(PRIMITIVE_KINDS[t.kind])
        if isinstance(t, String):
            return _string(t.bound, TI_STRING8_SMALL, TI_STRING8_LARGE)
        if isinstance(t, WString):
            return _string(t.bound, TI_STRING16_SMALL, TI_STRING16_LARGE)
        if isinstance(t, Sequence):
            element = self.identifier(t.element)
            header = self.collection(element)
            if t.bound <= SMALL_MAX:
                return TypeIdentifier(TI_PLAIN_SEQUENCE_SMALL, SmallSequence(header, t.bound, element))
            return TypeIdentifier(TI_PLAIN_SEQUENCE_LARGE, LargeSequence(header, t.bound, element))
        if isinstance(t, Array):
            element = self.identifier(t.element)
            header = self.collection(element)
            if max(t.dimensions) <= SMALL_MAX:
                return TypeIdentifier(TI_PLAIN_ARRAY_SMALL, SmallArray(header, t.dimensions, element))
            return TypeIdentifier(TI_PLAIN_ARRAY_LARGE, LargeArray(header, t.dimensions, element))
        if isinstance(t, Map):
            # Cyclone's C compiler has no maps; its Python writes other flags and an infinite bound. This is the
            # specification's form, where no bound is 0.
            key, element = self.identifier(t.key), self.identifier(t.value)
            header = self.collection(key, element)
            if t.bound <= SMALL_MAX:
                return TypeIdentifier(TI_PLAIN_MAP_SMALL, SmallMap(header, t.bound, element, _DISCARD, key))
            return TypeIdentifier(TI_PLAIN_MAP_LARGE, LargeMap(header, t.bound, element, _DISCARD, key))
        return self.hashed(t)

    def collection(self, *parts: TypeIdentifier) -> PlainCollectionHeader:
        descriptive = all(part.is_fully_descriptive for part in parts)
        return PlainCollectionHeader(EK_BOTH if descriptive else self.form, _DISCARD)

    def hashed(self, t: Enum | Bitmask | Bitset | Struct | Union | Alias) -> TypeIdentifier:
        identifier = self.known.setdefault(t, None)
        if identifier is None:
            kind, description = self.description(t)
            inner = x.CompleteTypeObject if self.is_complete else x.MinimalTypeObject
            raw = encode(x.TypeObject, x.TypeObject(self.form, inner(kind, description)))
            if len(raw) > TYPE_OBJECT_BYTES_MAX:
                raise TypeDefinitionError(
                    f"{t.name} has a TypeObject of {len(raw)} bytes, more than readers accept"
                )
            key = identifier_of(raw)
            self.objects[key] = raw
            self.known[t] = identifier = TypeIdentifier(key[0], key[1:])
        return identifier

    # --- descriptions -------------------------------------------------------------------------------------

    def description(self, t: Enum | Bitmask | Bitset | Struct | Union | Alias) -> tuple[int, x.Description]:
        detail = self.type_detail(t.name)
        if isinstance(t, Alias):
            body = x.AliasBody(x.CommonAliasBody(0, self.identifier(t.type)), self.element_detail())
            return TK_ALIAS, x.AliasType(0, x.TypeHeader(detail), body)
        if isinstance(t, Struct):
            base = TypeIdentifier(TK_NONE) if t.base is None else self.hashed(t.base)
            members = tuple(map(self.member, t.own_members))
            return TK_STRUCTURE, x.StructType(_type_flags(t), x.StructHeader(base, detail), members)
        if isinstance(t, Union):
            return TK_UNION, self.union(t, detail)
        if isinstance(t, Enum):
            # By the specification flags of enums are not used; Cyclone sets the one that it takes for default.
            header = x.EnumeratedHeader(t.bit_bound, detail)
            return TK_ENUM, x.EnumeratedType(_EXTENSIBILITIES[t.extensibility], header, self.literals(t))
        if isinstance(t, Bitmask):
            flags = tuple(
                x.Bitflag(x.CommonBitflag(position, 0), self.member_detail(name))
                for name, position in sorted(t.flags, key=lambda flag: flag[1])
            )
            return TK_BITMASK, x.BitmaskType(IS_FINAL, x.EnumeratedHeader(t.bit_bound, detail), flags)
        fields = tuple(
            x.Bitfield(
                x.CommonBitfield(field.position, 0, field.bits, PRIMITIVE_KINDS[field.kind]),
                self.member_detail(field.name),
            )
            for field in t.fields
        )
        return TK_BITSET, x.BitsetType(0, x.TypeHeader(detail), fields)

    def member(self, member: Member) -> x.StructMember[Any]:
        try_construct = _TRY_CONSTRUCT[member.try_construct]
        # XTypes 1.3 §7.2.2.4.4.4.8 has keys always as must-understand; Cyclone's C library does not.
        flags = (
            try_construct
            | IS_EXTERNAL * member.external
            | IS_OPTIONAL * member.optional
            | IS_MUST_UNDERSTAND * member.must_understand
            | IS_KEY * member.key
        )
        identifier = self.identifier(member.type)
        common = x.CommonStructMember(member.id, flags, identifier)
        return x.StructMember(common, self.member_detail(member.name, member))

    def union(self, t: Union, detail: Any) -> x.UnionType[Any, Any, Any]:
        flags = _DISCARD | IS_MUST_UNDERSTAND | IS_KEY * t.key
        discriminator = x.DiscriminatorMember(
            x.CommonDiscriminatorMember(flags, self.identifier(t.discriminator)),
            x.CompleteDiscriminatorDetail() if self.is_complete else x.NoDetail(),
        )
        cases = tuple(map(self.case, t.cases))
        return x.UnionType(_type_flags(t), x.TypeHeader(detail), discriminator, cases)

    def case(self, case: Case) -> x.UnionMember[Any]:
        if any(not -(1 << 31) <= label < 1 << 31 for label in case.labels):
            raise TypeDefinitionError(f"union branch {case.name}: XTypes labels have at most 32 bits")
        try_construct = _TRY_CONSTRUCT[case.try_construct]
        flags = try_construct | IS_EXTERNAL * case.external | IS_DEFAULT * case.default
        identifier = self.identifier(case.type)
        common = x.CommonUnionMember(case.id, flags, identifier, case.labels)
        return x.UnionMember(common, self.member_detail(case.name, case))

    def literals(self, t: Enum) -> tuple[x.EnumeratedLiteral[Any], ...]:
        default = t.default or t.literals[0][0]
        return tuple(
            x.EnumeratedLiteral(
                x.CommonEnumeratedLiteral(value, IS_DEFAULT * (name == default)), self.member_detail(name)
            )
            for name, value in sorted(t.literals, key=lambda literal: literal[1])
        )

    # --- details ------------------------------------------------------------------------------------------

    def type_detail(self, name: str) -> x.CompleteTypeDetail | x.NoDetail:
        return x.CompleteTypeDetail(None, None, name) if self.is_complete else x.NoDetail()

    def element_detail(self) -> x.CompleteElementDetail | x.NoDetail:
        return x.CompleteElementDetail() if self.is_complete else x.NoDetail()

    def member_detail(
        self, name: str, member: Member | Case | None = None
    ) -> x.CompleteMemberDetail | x.MinimalMemberDetail:
        if not self.is_complete:
            return x.MinimalMemberDetail(name_hash(name))
        return x.CompleteMemberDetail(name, None if member is None else _annotations(member), None)


def _string(bound: int, small: int, large: int) -> TypeIdentifier:
    if bound <= SMALL_MAX:
        return TypeIdentifier(small, SmallString(bound))
    return TypeIdentifier(large, LargeString(bound))


def _type_flags(t: Struct | Union) -> int:
    return _EXTENSIBILITIES[t.extensibility] | IS_NESTED * t.nested | IS_AUTOID_HASH * t.autoid_hash


def _annotations(member: Member | Case) -> x.AppliedBuiltinMemberAnnotations | None:
    notes = dict(member.notes)
    unit, hash_id = notes.get("unit"), notes.get("hashid")
    annotations = x.AppliedBuiltinMemberAnnotations(
        None if unit is None else str(unit),
        _limit(notes.get("min")),
        _limit(notes.get("max")),
        None if hash_id is None else hash_id if isinstance(hash_id, str) else "",
    )
    return None if annotations == x.AppliedBuiltinMemberAnnotations() else annotations


#: An integer literal of IDL has the first of these types that can hold it.
_INTEGERS: Final = (
    (PrimitiveKind.INT32, -1 << 31, 1 << 31),
    (PrimitiveKind.UINT32, 0, 1 << 32),
    (PrimitiveKind.INT64, -1 << 63, 1 << 63),
    (PrimitiveKind.UINT64, 0, 1 << 64),
)


def _limit(value: int | float | str | bool | None) -> x.AnnotationParameterValue | None:
    """@min or @max, with the type of the literal, which may differ from the member's type, as in Cyclone DDS."""
    if value is None:
        return None
    if isinstance(value, bool):
        return x.AnnotationParameterValue(PRIMITIVE_KINDS[PrimitiveKind.BOOLEAN], value)
    if isinstance(value, float):
        return x.AnnotationParameterValue(PRIMITIVE_KINDS[PrimitiveKind.FLOAT64], value)
    if isinstance(value, str):
        return x.AnnotationParameterValue(TK_STRING8, value)
    for kind, low, high in _INTEGERS:
        if low <= value < high:
            return x.AnnotationParameterValue(PRIMITIVE_KINDS[kind], value)
    raise TypeDefinitionError(f"@min or @max of {value}: it has more than 64 bits")
