"""The key of a type (DDS 1.4 §2.2.1.2.2, XTypes 1.3 §7.2.2.4.4.4.9 and §7.6.8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..errors import TypeDefinitionError
from .model import (
    SCALARS,
    Array,
    Extensibility,
    Map,
    Sequence,
    String,
    Struct,
    Type,
    Union,
    resolve,
    traverse,
)


def key_struct(struct: Struct) -> Struct | None:
    """The type of the serialized key: only key members, at every level. None without a key."""
    if not struct.is_keyed:
        return None
    members = []
    for member in struct.members:
        if not member.key:
            continue
        if member.optional:
            raise TypeDefinitionError(f"{struct.name}: the key member {member.name!r} cannot be @optional")
        members.append(replace(member, type=_key_of(member.type)))
    return replace(struct, members=tuple(members), base=None)


def _key_of(t: Type) -> Type:
    """The key of a type that is itself a key member. A struct is reduced to its key members, or keeps all if it has
    none; a union is reduced to its discriminator if that is @key, else it keeps all."""
    t = resolve(t)
    if isinstance(t, Struct):
        own = key_struct(t)
        if own is not None:
            return own
        members = (replace(m, type=_key_of(m.type), key=not m.optional) for m in t.members)
        return replace(t, members=tuple(members), base=None)
    if isinstance(t, Union) and t.key:
        return replace(t, cases=())
    return _each(t, _key_of)


def _each(t: Type, change: Callable[[Type], Type]) -> Type:
    """The type with the types in it changed, if it is a collection or a union."""
    if isinstance(t, Sequence | Array):
        return replace(t, element=change(t.element))
    if isinstance(t, Map):
        return replace(t, key=change(t.key), value=change(t.value))
    if isinstance(t, Union):
        return replace(t, cases=tuple(replace(case, type=change(case.type)) for case in t.cases))
    return t


def key_holder(struct: Struct) -> Struct | None:
    """The type whose big-endian form gives the key hash: every type is final, members are in the order of their ids
    (XTypes 1.3 §7.6.8.3.1)."""
    key = key_struct(struct)
    return None if key is None else _final_struct(key)


def undelimited_key(struct: Struct) -> Struct | None:
    """The type of the serialized key as Cyclone DDS 0.10 writes it: without the DHEADERs of appendable structs.

    None if that form is the serialized key itself, because there are no such structs, or if it is not certain: Cyclone
    DDS has no keys with sequences or unions, and it writes members in the order of their ids.
    """
    key = key_struct(struct)
    if key is None:
        return None
    inside = [t for t in map(resolve, traverse(key)) if not isinstance(t, (*SCALARS, String))]
    structs = [t for t in inside if isinstance(t, Struct)]
    if any(not isinstance(t, Struct | Array) for t in inside) or any(map(_is_mutable_or_unordered, structs)):
        return None
    return _final_struct(key) if any(t.extensibility is Extensibility.APPENDABLE for t in structs) else None


def _is_mutable_or_unordered(struct: Struct) -> bool:
    ids = [member.id for member in struct.members]
    return struct.extensibility is Extensibility.MUTABLE or ids != sorted(ids)


def _final_struct(struct: Struct) -> Struct:
    members = sorted(struct.members, key=lambda member: member.id)
    members = [replace(member, type=_final(member.type)) for member in members]
    return replace(struct, members=tuple(members), base=None, extensibility=Extensibility.FINAL)


def _final(t: Type) -> Type:
    t = resolve(t)
    if isinstance(t, Struct):
        return _final_struct(t)
    t = _each(t, _final)
    return replace(t, extensibility=Extensibility.FINAL) if isinstance(t, Union) else t
