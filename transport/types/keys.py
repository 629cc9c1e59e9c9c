"""What of a type is its key (DDS 1.4 §2.2.1.2.2, XTypes 1.3 §7.2.2.4.4.4.9 and §7.6.8)."""

from __future__ import annotations

from dataclasses import replace

from ..errors import TypeDefinitionError
from .model import Array, Extensibility, Sequence, Struct, Type


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
    return replace(struct, members=tuple(members))


def _key_of(t: Type) -> Type:
    """A struct that is itself a key member: of its own key members, or of all if it names none."""
    if isinstance(t, Sequence | Array):
        return replace(t, element=_key_of(t.element))
    if isinstance(t, Struct):
        own = key_struct(t)
        if own is not None:
            return own
        members = (replace(m, type=_key_of(m.type), key=not m.optional) for m in t.members)
        return replace(t, members=tuple(members))
    return t


def key_holder(struct: Struct) -> Struct | None:
    """The type whose big-endian form makes the key hash: everything final, members by id
    (XTypes 1.3 §7.6.8.3.1)."""
    key = key_struct(struct)
    return None if key is None else _final(key)


def _final(struct: Struct) -> Struct:
    def inner(t: Type) -> Type:
        if isinstance(t, Sequence | Array):
            return replace(t, element=inner(t.element))
        return _final(t) if isinstance(t, Struct) else t

    members = sorted(struct.members, key=lambda member: member.id)
    members = [replace(member, type=inner(member.type)) for member in members]
    return replace(struct, members=tuple(members), extensibility=Extensibility.FINAL)
