"""Reads TypeObjects of peers into types of the model (XTypes 1.3 §7.3.4). Every TypeObject is checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...errors import DecodeError, DropReason, TypeDefinitionError
from ...limits import TYPE_DEPTH_MAX
from ..model import (
    BitField,
    Bitmask,
    Case,
    Enum,
    Extensibility,
    Member,
    Primitive,
    String,
    Struct,
    TryConstruct,
    Type,
    Union,
    WString,
    resolve,
)
from . import assembly
from . import structures as x
from .assembly import TypeTree
from .structures import TypeObject, identifier_of
from .type_identifiers import (
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
    PRIMITIVES,
    TI_STRING8_LARGE,
    TI_STRING8_SMALL,
    TI_STRONGLY_CONNECTED_COMPONENT,
    TK_NONE,
    TRY_CONSTRUCT,
    LargeArray,
    LargeMap,
    LargeSequence,
    LargeString,
    SmallArray,
    SmallMap,
    SmallSequence,
    SmallString,
    TypeIdentifier,
)
from .xcdr2 import Buffer, decode

_EXTENSIBILITIES: Final = {
    0: Extensibility.APPENDABLE,  # a type without an extensibility flag
    IS_FINAL: Extensibility.FINAL,
    IS_APPENDABLE: Extensibility.APPENDABLE,
    IS_MUTABLE: Extensibility.MUTABLE,
}
_TRY_CONSTRUCT: Final = (
    TryConstruct.DISCARD,  # "invalid"
    TryConstruct.DISCARD,
    TryConstruct.USE_DEFAULT,
    TryConstruct.TRIM,
)


def dependencies_of(type_object: Buffer) -> frozenset[bytes]:
    """The hashed identifiers that a serialized TypeObject refers to directly; not those of annotations.

    Raises DecodeError.
    """
    return frozenset(
        each.to_bytes() for each in _identifiers(decode(TypeObject, type_object)) if each.is_hashed
    )


def struct_of(identifier: bytes, objects: Mapping[bytes, bytes]) -> Struct:
    """The struct that an identifier refers to, from serialized TypeObjects by identifier.

    A minimal TypeObject has hashes instead of names: its members are named by id (``m3``), literals by value, flags by
    position, and types by their own hash.

    Raises DecodeError for bytes that are not a TypeObject or not that of their identifier, TypeDefinitionError for
    types that are incomplete, recursive, not a struct, or too large.
    """
    described = resolve(_TypeReader(objects).serialized(identifier).type)
    if not isinstance(described, Struct):
        raise TypeDefinitionError("the type is not a struct")
    return described


def described_by(type_object: TypeObject) -> Type:
    """The type that a complete TypeObject describes without any other. Raises TypeDefinitionError."""
    return _TypeReader({}).described(type_object, "").type


def _identifiers(value: Any) -> Iterator[TypeIdentifier]:
    if isinstance(value, TypeIdentifier):
        yield value
    if isinstance(value, tuple):
        for each in value:
            yield from _identifiers(each)
    elif dataclasses.is_dataclass(value) and not isinstance(value, x.AppliedAnnotation):
        for field in dataclasses.fields(value):
            yield from _identifiers(getattr(value, field.name))


class _TypeReader:
    def __init__(self, objects: Mapping[bytes, bytes]) -> None:
        self.objects = objects
        self.known: dict[bytes, TypeTree] = {}
        #: The identifiers of types that are being read.
        self.open: set[bytes] = set()
        self.depth = 0

    # --- identifiers --------------------------------------------------------------------------------------

    def serialized(self, identifier: bytes) -> TypeTree:
        return self.part(decode(TypeIdentifier, identifier))

    def part(self, identifier: TypeIdentifier) -> TypeTree:
        # checked before the depth of the type is known, because Python's stack is limited
        if self.depth >= TYPE_DEPTH_MAX:
            raise TypeDefinitionError("a type of too many parts")
        self.depth += 1
        part = self.identified(identifier)
        self.depth -= 1
        return part

    def identified(self, identifier: TypeIdentifier) -> TypeTree:
        kind, value = identifier.kind, identifier.value
        if kind in PRIMITIVES:
            return TypeTree(Primitive(PRIMITIVES[kind]))
        match value:
            case bytes():
                return self.hashed(identifier.to_bytes())
            case SmallString() | LargeString():
                bound = assembly.bound(value.bound)
                is_narrow = kind in (TI_STRING8_SMALL, TI_STRING8_LARGE)
                return TypeTree(String(bound) if is_narrow else WString(bound))
            case SmallSequence() | LargeSequence():
                return assembly.sequence(self.part(value.element), value.bound)
            case SmallArray() | LargeArray():
                return assembly.array(self.part(value.element), value.bounds)
            case SmallMap() | LargeMap():
                return assembly.mapping(self.part(value.key), self.part(value.element), value.bound)
        if kind == TI_STRONGLY_CONNECTED_COMPONENT:
            raise TypeDefinitionError("the type is recursive")
        raise TypeDefinitionError("a member has no type")

    def hashed(self, key: bytes) -> TypeTree:
        part = self.known.get(key)
        if part is None:
            if key in self.open:
                raise TypeDefinitionError("the type is recursive")
            raw = self.objects.get(key)
            if raw is None:
                raise TypeDefinitionError(f"the type object {key.hex()} is missing")
            if identifier_of(raw) != key:
                raise DecodeError(
                    DropReason.BAD_PARAMETER, f"the TypeObject does not have the hash {key.hex()}"
                )
            self.open.add(key)
            part = self.known[key] = self.described(decode(TypeObject, raw), f"Type_{key[1:5].hex()}")
            self.open.remove(key)
        return part

    # --- descriptions -------------------------------------------------------------------------------------

    def described(self, type_object: TypeObject, fallback: str) -> TypeTree:
        """The type that a TypeObject describes; ``fallback`` is the name of a type that has none."""
        description = type_object.value.value
        match description:
            case x.AliasType():
                name = _type_name(description.header.detail, fallback)
                return assembly.alias(name, self.part(description.body.common.related_type))
            case x.StructType():
                return self.struct(description, _type_name(description.header.detail, fallback))
            case x.UnionType():
                return self.union(description, _type_name(description.header.detail, fallback))
            case x.EnumeratedType():
                return _enum(description, _type_name(description.header.detail, fallback))
            case x.BitmaskType():
                name = _type_name(description.header.detail, fallback)
                flags = tuple(
                    (_name(flag.detail, f"bit{flag.common.position}"), flag.common.position)
                    for flag in description.flag_seq
                )
                return assembly.bitmask(Bitmask(name, flags, description.header.bit_bound))
            case x.BitsetType():
                return _bitset(description, _type_name(description.header.detail, fallback))
            case x.SequenceType():
                return assembly.sequence(self.part(description.element.common.type), description.header.bound)
            case x.MinimalArrayType() | x.CompleteArrayType():
                return assembly.array(
                    self.part(description.element.common.type), description.header.bound_seq
                )
            case x.MapType():
                key, element = description.key.common.type, description.element.common.type
                return assembly.mapping(self.part(key), self.part(element), description.header.bound)

    def struct(self, description: x.StructType[Any, Any], name: str) -> TypeTree:
        base_type = description.header.base_type
        base = None if base_type.kind == TK_NONE else self.part(base_type)
        parts = [self.part(member.common.member_type_id) for member in description.member_seq]
        members = tuple(
            Member(
                _name(member.detail, f"m{member.common.member_id}"),
                part.type,
                member.common.member_id,
                key=bool(member.common.member_flags & IS_KEY),
                optional=bool(member.common.member_flags & IS_OPTIONAL),
                must_understand=bool(member.common.member_flags & IS_MUST_UNDERSTAND),
                external=bool(member.common.member_flags & IS_EXTERNAL),
                try_construct=_TRY_CONSTRUCT[member.common.member_flags & TRY_CONSTRUCT],
                notes=_notes(member.detail),
            )
            for member, part in zip(description.member_seq, parts, strict=True)
        )
        made = Struct(name, members, _extensibility(description.flags, name))
        made = dataclasses.replace(
            made,
            nested=bool(description.flags & IS_NESTED),
            autoid_hash=bool(description.flags & IS_AUTOID_HASH),
        )
        return assembly.struct(base, made, parts)

    def union(self, description: x.UnionType[Any, Any, Any], name: str) -> TypeTree:
        discriminator = self.part(description.discriminator.common.type_id)
        parts = [self.part(member.common.type_id) for member in description.member_seq]
        cases = tuple(
            Case(
                _name(member.detail, f"m{member.common.member_id}"),
                part.type,
                member.common.member_id,
                member.common.label_seq,
                default=bool(member.common.member_flags & IS_DEFAULT),
                external=bool(member.common.member_flags & IS_EXTERNAL),
                try_construct=_TRY_CONSTRUCT[member.common.member_flags & TRY_CONSTRUCT],
                notes=_notes(member.detail),
            )
            for member, part in zip(description.member_seq, parts, strict=True)
        )
        made = Union(
            name,
            discriminator.type,
            cases,
            _extensibility(description.flags, name),
            key=bool(description.discriminator.common.member_flags & IS_KEY),
            nested=bool(description.flags & IS_NESTED),
            autoid_hash=bool(description.flags & IS_AUTOID_HASH),
        )
        return assembly.union(made, discriminator, parts)


def _enum(description: x.EnumeratedType[Any, Any], name: str) -> TypeTree:
    literals = []
    default = None
    for literal in description.literal_seq:
        value = literal.common.value
        literal_name = _name(literal.detail, f"v{value}" if value >= 0 else f"v_{-value}")
        # those that Fast DDS 3 reads from IDL are qualified
        literals.append((literal_name.rpartition("::")[2], value))
        # the first one is the default anyway
        if literal.common.flags & IS_DEFAULT and len(literals) > 1:
            default = literals[-1][0]
    extensibility = _extensibility(description.flags, name)
    return assembly.enum(Enum(name, tuple(literals), description.header.bit_bound, default, extensibility))


def _bitset(description: x.BitsetType[Any, Any], name: str) -> TypeTree:
    fields = []
    for field in description.field_seq:
        common = field.common
        if common.holder_type not in PRIMITIVES:
            raise TypeDefinitionError(f"{name}: a bit field is not held by an integer")
        fields.append(
            BitField(
                _name(field.detail, f"bits{common.position}"),
                common.position,
                common.bitcount,
                PRIMITIVES[common.holder_type],
            )
        )
    return assembly.bitset(name, tuple(fields))


def _extensibility(flags: int, name: str) -> Extensibility:
    extensibility = _EXTENSIBILITIES.get(flags & (IS_FINAL | IS_APPENDABLE | IS_MUTABLE))
    if extensibility is None:
        raise TypeDefinitionError(f"{name}: more than one extensibility")
    return extensibility


def _type_name(detail: x.CompleteTypeDetail | x.NoDetail, fallback: str) -> str:
    return detail.type_name if isinstance(detail, x.CompleteTypeDetail) else fallback


def _name(detail: x.CompleteMemberDetail | x.MinimalMemberDetail, fallback: str) -> str:
    return detail.name if isinstance(detail, x.CompleteMemberDetail) else fallback


def _notes(
    detail: x.CompleteMemberDetail | x.MinimalMemberDetail,
) -> tuple[tuple[str, int | float | str | bool], ...]:
    if isinstance(detail, x.MinimalMemberDetail) or detail.ann_builtin is None:
        return ()
    annotations = detail.ann_builtin
    limits = (("max", annotations.max), ("min", annotations.min))
    notes = {
        "hashid": annotations.hash_id,
        **{name: limit.value for name, limit in limits if limit is not None},
        "unit": annotations.unit,
    }
    # a type with NaN would equal no type, not even itself in another process
    return tuple(
        (name, value)
        for name, value in notes.items()
        if not isinstance(value, bytes | x.ExtendedAnnotationParameterValue | None) and value == value
    )
