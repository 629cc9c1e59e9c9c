"""Which types are equivalent (XTypes 1.3 §7.3.4.7, MINIMAL), and the first difference of two that are not.

Equivalent types are the same except for the names of types and for annotations that describe values. An alias is not
equivalent to its type, because it has a TypeObject of its own (Cyclone DDS agrees).
"""

from __future__ import annotations

from collections.abc import Hashable

from ..model import (
    Alias,
    Array,
    Bitmask,
    Bitset,
    Case,
    Enum,
    Map,
    Member,
    Primitive,
    Sequence,
    String,
    Struct,
    Type,
    Union,
    WString,
    fields_of,
)


class Equivalence:
    """Numbers types so that equivalent types have the same number. It stores types by identity: keep them alive."""

    def __init__(self) -> None:
        self._of_type: dict[int, int] = {}
        self._of_shape: dict[Hashable, int] = {}

    def number(self, t: Type) -> int:
        known = self._of_type.get(id(t))
        if known is None:
            shape = (_shape(t), tuple(self.number(inner) for _, inner in _inner(t)))
            known = self._of_type[id(t)] = self._of_shape.setdefault(shape, len(self._of_shape))
        return known

    def same(self, a: Type, b: Type) -> bool:
        return self.number(a) == self.number(b)

    def difference(self, path: str, writer: Type, reader: Type) -> tuple[str, str]:
        """The path of the first difference between two types that differ, and a sentence about it."""
        if _shape(writer) == _shape(reader):
            for (name, w), (_, r) in zip(_inner(writer), _inner(reader), strict=True):
                if not self.same(w, r):
                    return self.difference(join(path, name), w, r)
        return path, _contrast(writer, reader)


def join(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name and not name.startswith("[") else path + name


def describe(t: Type) -> str:
    """The description of a type in messages."""
    if isinstance(t, Primitive):
        return t.kind.value
    if isinstance(t, String | WString):
        name = "string" if isinstance(t, String) else "wstring"
        return f"{name}<{t.bound}>" if t.bound else name
    if isinstance(t, Sequence):
        return f"sequence<{describe(t.element)}{f', {t.bound}' if t.bound else ''}>"
    if isinstance(t, Map):
        return f"map<{describe(t.key)}, {describe(t.value)}{f', {t.bound}' if t.bound else ''}>"
    if isinstance(t, Array):
        return describe(t.element) + "".join(f"[{length}]" for length in t.dimensions)
    if isinstance(t, Alias):
        return f"{describe(t.type)} by the typedef {t.name}"
    return f"{type(t).__name__.lower()} {t.name}"


def _shape(t: Type) -> Hashable:
    """All properties of a type that matter for equivalence, except the types inside it."""
    if isinstance(t, Primitive):
        return t.kind
    if isinstance(t, Enum):
        return Enum, t.extensibility, t.bit_bound, tuple(sorted(t.literals, key=lambda literal: literal[1]))
    if isinstance(t, Bitmask):
        return Bitmask, t.bit_bound, tuple(sorted(t.flags, key=lambda flag: flag[1]))
    if isinstance(t, Bitset):
        return Bitset, t.size, t.fields
    if isinstance(t, Array):
        return Array, t.dimensions
    if isinstance(t, Struct):
        return Struct, t.extensibility, _bases(t), tuple(map(_declared, t.members))
    if isinstance(t, Union):
        return Union, t.extensibility, t.key, tuple(map(_declared_case, t.cases))
    return type(t), 0 if isinstance(t, Alias) else t.bound


def _bases(t: Struct) -> tuple[tuple[int, Hashable], ...]:
    """The number of members and the extensibility of each base."""
    return () if t.base is None else ((len(t.base.members), t.base.extensibility), *_bases(t.base))


def _declared(member: Member) -> tuple[Hashable, ...]:
    # a key member is must_understand (XTypes 1.3 §7.2.2.4.4.4.8)
    understood = member.must_understand or member.key
    return (
        member.name,
        member.id,
        member.key,
        member.optional,
        understood,
        member.external,
        member.try_construct,
    )


def _declared_case(case: Case) -> tuple[Hashable, ...]:
    return case.name, case.id, tuple(sorted(case.labels)), case.default, case.external, case.try_construct


def _inner(t: Type) -> list[tuple[str, Type]]:
    """The types directly inside a type, with their names in a path."""
    if isinstance(t, Sequence | Array):
        return [("[]", t.element)]
    if isinstance(t, Map):
        return [("[key]", t.key), ("[]", t.value)]
    if isinstance(t, Struct | Union):
        return list(fields_of(t).items())
    return [("", t.type)] if isinstance(t, Alias) else []


def _contrast(writer: Type, reader: Type) -> str:
    """The difference between two types of different shape, as a sentence."""
    if isinstance(writer, Struct) and isinstance(reader, Struct):
        if writer.extensibility is not reader.extensibility:
            return f"the writer's is @{writer.extensibility.value}, the reader's is @{reader.extensibility.value}"
        for w, r in zip(writer.members, reader.members, strict=False):
            if _declared(w) != _declared(r):
                return f"the writer's has {_declaration(w)} where the reader's has {_declaration(r)}"
        if len(writer.members) != len(reader.members):
            return f"the writer's has {len(writer.members)} members, the reader's has {len(reader.members)}"
        return "they inherit their members differently"
    of_writer, of_reader = describe(writer), describe(reader)
    if of_writer != of_reader:
        return f"the writer's is {of_writer}, the reader's is {of_reader}"
    return f"writer and reader define {of_writer} differently"


def _declaration(member: Member) -> str:
    marks = {
        "key": member.key,
        "optional": member.optional,
        "must_understand": member.must_understand,
        "external": member.external,
        f"try_construct({member.try_construct.value})": member.try_construct.value != "DISCARD",
    }
    return (
        "".join(f"@{mark} " for mark, is_set in marks.items() if is_set) + f"'{member.name}' (id {member.id})"
    )
