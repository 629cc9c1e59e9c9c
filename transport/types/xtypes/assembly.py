"""Builds checked types of the model from announcements of peers (XTypes 1.3 §7.2.2).

A few type objects can describe a type of any size, because each use of a type inside another doubles the size of the
tree if it is used twice. Every type here therefore has its size as a tree, and is refused beyond the limits. All
functions raise TypeDefinitionError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from math import prod
from typing import Final

from ...errors import TypeDefinitionError
from ...limits import TYPE_DEPTH_MAX, TYPE_MEMBERS_MAX, TYPE_NODES_MAX
from ...value_classes import value
from ..model import (
    INTEGER_RANGES,
    LENGTH_MAX,
    MEMBER_ID_MAX,
    Alias,
    Array,
    BitField,
    Bitmask,
    Bitset,
    Enum,
    Map,
    Primitive,
    PrimitiveKind,
    Sequence,
    Struct,
    Type,
    Union,
    is_map_key,
    number_size,
    resolve,
)

_NAME: Final = re.compile(r"[^\W\d]\w*")
_QUALIFIED_NAME: Final = re.compile(r"[^\W\d]\w*(::[^\W\d]\w*)*")
#: The ranges of union labels and bit fields.
_RANGES: Final = INTEGER_RANGES | {
    PrimitiveKind.BOOLEAN: (0, 1),
    PrimitiveKind.CHAR8: (0, 0xFF),
    PrimitiveKind.CHAR16: (0, 0xFFFF),
}


@value
class TypeTree:
    """A type and its size as a tree: the number of types, and the depth. ``members``: the number of types in the
    members of a struct."""

    type: Type
    nodes: int = 1
    depth: int = 1
    members: int = 0


def _whole(t: Type, parts: Iterable[TypeTree], members: int = 0) -> TypeTree:
    parts = list(parts)
    whole = TypeTree(
        t, 1 + sum(part.nodes for part in parts), 1 + max((part.depth for part in parts), default=0), members
    )
    if whole.nodes > TYPE_NODES_MAX or whole.depth > TYPE_DEPTH_MAX:
        raise TypeDefinitionError("a type of too many parts")
    return whole


def bound(value: int) -> int:
    """The bound of a string or collection; 0 is unbounded, and so is the greatest length in RTI Connext."""
    return value if value < LENGTH_MAX else 0


def alias(name: str, part: TypeTree) -> TypeTree:
    return _whole(Alias(_qualified(name), part.type), [part])


def sequence(element: TypeTree, limit: int) -> TypeTree:
    return _whole(Sequence(element.type, bound(limit)), [element])


def array(element: TypeTree, dimensions: tuple[int, ...]) -> TypeTree:
    """Each dimension adds the depth of a sequence, because values are nested lists. Dimensions are counted before they
    are multiplied, which would take a minute for as many as a type object can hold."""
    depth = element.depth + len(dimensions)
    if depth > TYPE_DEPTH_MAX:
        raise TypeDefinitionError("a type of too many parts")
    if not dimensions or min(dimensions) < 1 or prod(dimensions) > LENGTH_MAX:
        raise TypeDefinitionError(f"an array has the dimensions {dimensions[:8]}")
    return replace(_whole(Array(element.type, dimensions), [element]), depth=depth)


def mapping(key: TypeTree, value: TypeTree, limit: int) -> TypeTree:
    if not is_map_key(key.type):
        raise TypeDefinitionError("a map has a key that is neither an integer nor a string")
    return _whole(Map(key.type, value.type, bound(limit)), [key, value])


def struct(base: TypeTree | None, made: Struct, parts: Iterable[TypeTree]) -> TypeTree:
    """The struct ``made`` with the members of ``base`` added; ``parts`` are the types of its own members."""
    parts = list(parts)
    inherited = 0
    if base is not None:
        parent = resolve(base.type)
        if not isinstance(parent, Struct):
            raise TypeDefinitionError(f"{made.name} inherits from a type that is not a struct")
        made = replace(made, members=parent.members + made.members, base=parent)
        inherited = base.members
        # the members of the base count twice: in the base, and in this struct
        parts += [base, TypeTree(parent, inherited, base.depth)]
    _qualified(made.name)
    _unique(made.name, (member.name for member in made.members), (member.id for member in made.members))
    for member in made.members:
        if member.key and member.optional:
            raise TypeDefinitionError(f"{made.name}: key {member.name} is optional")
    own = sum(part.nodes for part in parts[: len(made.own_members)])
    return _whole(made, parts, inherited + own)


def union(made: Union, discriminator: TypeTree, parts: Iterable[TypeTree]) -> TypeTree:
    """The union ``made``; ``parts`` are the types of its branches."""
    _qualified(made.name)
    _unique(made.name, (case.name for case in made.cases), (case.id for case in made.cases))
    labels = [label for case in made.cases for label in case.labels]
    if not made.cases or len(set(labels)) < len(labels) or sum(case.default for case in made.cases) > 1:
        raise TypeDefinitionError(
            f"{made.name}: the union has no branch, or two branches have the same label"
        )
    if not all(case.labels or case.default for case in made.cases):
        raise TypeDefinitionError(f"{made.name}: a branch has no label")
    kind = resolve(discriminator.type)
    if isinstance(kind, Enum):
        low, high = _RANGES[PrimitiveKind.INT32]
    elif isinstance(kind, Bitmask):
        low, high = 0, (1 << kind.bit_bound) - 1
    elif isinstance(kind, Primitive) and kind.kind in _RANGES:
        low, high = _RANGES[kind.kind]
    else:
        raise TypeDefinitionError(f"{made.name}: the discriminator is not an integer")
    if any(not low <= label <= high for label in labels):
        raise TypeDefinitionError(f"{made.name}: the discriminator cannot have some of the labels")
    return _whole(made, [discriminator, *parts])


def enum(made: Enum) -> TypeTree:
    _qualified(made.name)
    values = [value for _, value in made.literals]
    _unique(made.name, (name for name, _ in made.literals), values, "value")
    if not values or not 1 <= made.bit_bound <= 32:
        raise TypeDefinitionError(
            f"{made.name}: the enum has {len(values)} literals and {made.bit_bound} bits"
        )
    bits = 8 * number_size(made)
    low, high = (-1 << bits - 1, 1 << bits - 1) if min(values) < 0 else (0, 1 << bits)
    if not low <= min(values) <= max(values) < high:
        raise TypeDefinitionError(f"{made.name}: some values exceed the {made.bit_bound} bits")
    return TypeTree(made)


def bitmask(made: Bitmask) -> TypeTree:
    _qualified(made.name)
    positions = [position for _, position in made.flags]
    _unique(made.name, (name for name, _ in made.flags), positions, "position")
    if not 1 <= made.bit_bound <= 64 or not all(0 <= position < made.bit_bound for position in positions):
        raise TypeDefinitionError(f"{made.name}: some flags exceed the {made.bit_bound} bits")
    return TypeTree(made)


def bitset(name: str, fields: tuple[BitField, ...]) -> TypeTree:
    _qualified(name)
    _unique(name, (field.name for field in fields), ())
    end = 0
    for field in fields:
        if field.kind not in _RANGES or field.bits < 1 or field.position < end:
            raise TypeDefinitionError(
                f"{name}: the bit field {field.name} is empty, overlaps another, or is not an integer"
            )
        end = field.position + field.bits
        if end > 64 or field.bits > 8 * number_size(Primitive(field.kind)):
            raise TypeDefinitionError(f"{name}: the bit field {field.name} has {field.bits} bits")
    if not fields:
        raise TypeDefinitionError(f"{name}: the bitset has no fields")
    return TypeTree(Bitset(name, fields, end))


def _qualified(name: str) -> str:
    if not _QUALIFIED_NAME.fullmatch(name):
        raise TypeDefinitionError(f"{name!r} is not a valid type name")
    return name


def _unique(owner: str, names: Iterable[str], numbers: Iterable[int], noun: str = "id") -> None:
    names, numbers = list(names), list(numbers)
    if len(names) > TYPE_MEMBERS_MAX:
        raise TypeDefinitionError(f"{owner}: {len(names)} members, more than {TYPE_MEMBERS_MAX}")
    for name in names:
        if not _NAME.fullmatch(name):
            raise TypeDefinitionError(f"{owner}: {name!r} is not a valid member name")
    if len(set(names)) < len(names):
        raise TypeDefinitionError(f"{owner}: two members have the same name")
    if len(set(numbers)) < len(numbers) or (noun == "id" and max(numbers, default=0) > MEMBER_ID_MAX):
        raise TypeDefinitionError(f"{owner}: a member's {noun} is not unique, or too large")
