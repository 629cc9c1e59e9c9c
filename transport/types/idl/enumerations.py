"""Enums, bitmasks and bitsets (IDL 4.2 §7.4.1.4.4.4.3, §7.4.13.4.3.3)."""

from __future__ import annotations

from typing import Final

from lark import Token

from ..model import (
    INTEGER_RANGES,
    BitField,
    Bitmask,
    Bitset,
    Enum,
    Extensibility,
    Primitive,
    PrimitiveKind,
    resolve,
)
from .aggregates import extensibility_of
from .annotations import Annotations
from .expressions import EnumLiteral
from .reader import MemberNames, Reader
from .scopes import Scope, qualified
from .syntax import Node, first_token, identifier, names, token, tree, trees
from .tokens import IdlError

_BITSET_BITS_MAX: Final = 64
#: Annotations that have no meaning here and need no note.
_SILENT: Final = ("topic", "nested", "final", "appendable", "mutable", "extensibility")


def read_enum(reader: Reader, node: Node, annotations: Annotations, scope: Scope) -> Enum:
    """An enum; its literals are declared in the scope of the enum (IDL 4.2 §7.5.2)."""
    annotations.ignore_but("bit_bound", *_SILENT)
    extensibility = extensibility_of(annotations, token(node.children[0]), Extensibility.FINAL)
    own_name = identifier(token(node.children[0]))
    name = qualified(scope, own_name)
    bit_bound = annotations.integer("bit_bound", 1, 32) or 32
    literals: list[tuple[str, int]] = []
    taken: set[str | int] = set()
    default = None
    for child in trees(node, "enumerator"):
        own = reader.annotations(child, scope)
        own.ignore_but("value", "default_literal")
        at = names(child)[0]
        value = _value(reader, child, own, at, literals, scope)
        least = min(value, *(known for _, known in literals), 0)
        most = max(value, *(known for _, known in literals), 0)
        # all values count as signed, or none
        if not -(1 << bit_bound - 1) <= least <= most < 1 << bit_bound - (least < 0):
            raise IdlError(at, f"{identifier(at)} = {value} does not fit @bit_bound({bit_bound})")
        if not taken.isdisjoint((value, identifier(at).lower())):
            raise IdlError(at, f"{identifier(at)} = {value}: the enum has that name or value already")
        if own.flag("default_literal"):
            if default is not None:
                raise IdlError(at, f"only one literal is @default_literal, and {default} is")
            default = identifier(at)
        taken.update((value, identifier(at).lower()))
        literals.append((identifier(at), value))
        for place in (scope, (*scope, own_name)):
            reader.names.declare(place, at, EnumLiteral(value, identifier(at), name))
    return Enum(name, tuple(literals), bit_bound, default, extensibility)


def _value(
    reader: Reader,
    node: Node,
    annotations: Annotations,
    at: Token,
    literals: list[tuple[str, int]],
    scope: Scope,
) -> int:
    expression = tree(node.children[-1]) if node.children[-1] is not at else None
    if "value" in annotations:
        expression = annotations["value"].arguments.get("value")
    elif expression is None:
        return literals[-1][1] + 1 if literals else 0
    value = None if expression is None else reader.evaluate(expression, scope)
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 31) <= value < 1 << 31:
        raise IdlError(at, "@value of an enum literal needs a 32-bit number")
    return int(value)


def read_bitmask(reader: Reader, node: Node, annotations: Annotations, scope: Scope) -> Bitmask:
    annotations.ignore_but("bit_bound", *_SILENT)
    bit_bound = annotations.integer("bit_bound", 1, 64) or 32
    flags: list[tuple[str, int]] = []
    members = MemberNames()
    for child in trees(node, "flag"):
        own = reader.annotations(child, scope)
        own.ignore_but("position")
        at = names(child)[0]
        name = members.add_name(at)
        position = own.integer("position", 0, bit_bound - 1)
        if position is None:
            position = flags[-1][1] + 1 if flags else 0
        if position >= bit_bound:
            raise IdlError(at, f"{identifier(at)} at bit {position} does not fit @bit_bound({bit_bound})")
        if any(position == known for _, known in flags):
            raise IdlError(at, f"two bits have @position({position})")
        flags.append((name, position))
    return Bitmask(qualified(scope, identifier(token(node.children[0]))), tuple(flags), bit_bound)


def read_bitset(reader: Reader, node: Node, annotations: Annotations, scope: Scope) -> Bitset:
    annotations.ignore_but(*_SILENT)
    at = token(node.children[0])
    base = None
    for scoped in trees(node, "scoped"):
        found = resolve(reader.named_type(scoped, scope))
        if not isinstance(found, Bitset):
            raise IdlError(first_token(scoped), "a bitset can only inherit from a bitset")
        base = found
    fields = list(base.fields) if base is not None else []
    members = MemberNames(field.name for field in fields)
    size = base.size if base is not None else 0
    for child in trees(node, "bitfield"):
        own = reader.annotations(child, scope)
        own.ignore_but("position")
        expression = next(tree(c) for c in child.children if c not in trees(child, "annotation"))
        bits = reader.size(expression, scope, "bitfield")
        position = own.integer("position", size, _BITSET_BITS_MAX - 1)
        size = size if position is None else position
        kind = bit_field_kind(bits)
        for primitive in trees(child, "primitive"):
            kind = _holder(reader.primitive(primitive), bits, first_token(primitive))
        for name in names(child):
            fields.append(BitField(members.add_name(name), size, bits, kind))
            size += bits
        size += 0 if names(child) else bits
        if size > _BITSET_BITS_MAX:
            raise IdlError(first_token(expression), f"a bitset has at most {_BITSET_BITS_MAX} bits")
    if not fields:
        raise IdlError(at, f"bitset {identifier(at)} has no fields: write such as bitfield<3> x;")
    return Bitset(qualified(scope, identifier(at)), tuple(fields), size, base)


def bit_field_kind(bits: int) -> PrimitiveKind:
    """The type of a bit field whose type is not given."""
    if bits == 1:
        return PrimitiveKind.BOOLEAN
    if bits <= 8:
        return PrimitiveKind.BYTE
    if bits <= 16:
        return PrimitiveKind.UINT16
    return PrimitiveKind.UINT32 if bits <= 32 else PrimitiveKind.UINT64


def _holder(t: Primitive, bits: int, at: Token | None) -> PrimitiveKind:
    most = 1 if t.kind is PrimitiveKind.BOOLEAN else 0
    if t.kind in INTEGER_RANGES:
        low, high = INTEGER_RANGES[t.kind]
        most = (high - low).bit_length()
    if bits > most:
        raise IdlError(at, f"{t.kind.value} does not hold {bits} bits: write an integer type that does")
    return t.kind
