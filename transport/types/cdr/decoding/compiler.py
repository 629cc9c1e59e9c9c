"""Pairs of a DDS type and the Arrow type to decode it into, compiled into nodes; see :mod:`.nodes`."""

from __future__ import annotations

import pyarrow as pa

from ...model import (
    Alias,
    Array,
    Extensibility,
    Map,
    Member,
    Sequence,
    String,
    Struct,
    Type,
    Union,
    WString,
)
from ..layout import Block, Rules, fuse
from .arrays import TIME_FIELDS
from .lists import Collection
from .members import MemberList, MutableRecord, OptionalFlag, OptionalParameter, ParameterList
from .nodes import FixedValue, Node, Text, Time, WideText
from .records import Part, Record, Single, Stretch
from .unions import MutableUnion, PlainUnion


def compile_node(rules: Rules, t: Type, target: pa.DataType | None) -> Node:
    """The node of a value that may start anywhere; without a target the value is only skipped."""
    alignment = rules.first_alignment(t)
    placed = rules.place(t, 0, alignment)
    if placed is not None:
        return FixedValue(placed[0], alignment, placed[1], target)
    if isinstance(t, String):
        return Text(target)
    if isinstance(t, WString):
        return WideText(target)
    if isinstance(t, Map):
        return _map(rules, t, target)
    if isinstance(t, Sequence | Array):
        return _list(rules, t, target)
    if isinstance(t, Union):
        return _union(rules, t, target)
    assert isinstance(t, Struct)  # scalars are fixed, and aliases are gone
    if target is not None and not pa.types.is_struct(target):
        return Time(compile_struct(rules, t, TIME_FIELDS), target)
    return compile_struct(rules, t, target)


def compile_struct(
    rules: Rules,
    struct: Struct,
    target: pa.DataType | None,
    *,
    modulus: int = 1,
    open_ended: bool = False,
    complete: bool = False,
) -> Record | MutableRecord:
    """The node of a struct that starts at a position aligned to ``modulus``.

    ``open_ended``: members may be missing at its end, as in delimited structs; ``complete``: none may be missing.
    """
    wanted = {} if target is None else {field.name: field.type for field in target}
    if struct.extensibility is Extensibility.MUTABLE:
        nodes = [compile_node(rules, member.type, wanted.get(member.name)) for member in struct.members]
        return MutableRecord(struct, _member_list(rules), nodes, target)
    delimited = rules.is_delimited(struct)
    members = {member.name: member for member in struct.members}
    may_end_early = delimited or open_ended
    steps: list[Stretch | Single] = []
    parts: list[Part] = []
    for i, step in enumerate(fuse(rules, struct.members, 4 if delimited else modulus)):
        alone: dict[str, Node] = {}
        if isinstance(step, Block):
            columns = [(name, fixed, wanted[name]) for name, fixed in step.members if name in wanted]
            steps.append(Stretch(step, columns))
            if may_end_early:
                alone = {name: _member(rules, members[name], wanted.get(name)) for name, _ in step.members}
        else:
            # the node of the step is that of the part too: twice compiled, each level would double those inside it
            node = alone[step.name] = _member(rules, step, wanted.get(step.name))
            steps.append(Single(step.name, node, rules.member_alignment(step)))
        if may_end_early:
            for name, node in alone.items():
                member = members[name]
                parts.append(Part(name, node, rules.member_alignment(member), i, member.key or complete))
    return Record(struct, steps, parts, target, delimited=delimited)


def _member(rules: Rules, member: Member, target: pa.DataType | None) -> Node:
    node = compile_node(rules, member.type, target)
    if not member.optional:
        return node
    return OptionalParameter(node) if rules.version == 1 else OptionalFlag(node)


def _list(rules: Rules, t: Sequence | Array, target: pa.DataType | None) -> Collection:
    inner = target
    if target is not None:
        depth = len(t.dimensions) if isinstance(t, Array) else 1
        for _ in range(depth):
            inner = inner.value_type if inner is not None and pa.types.is_list(inner) else None
    return Collection(rules, t, t.element, compile_node(rules, t.element, inner), target)


def _map(rules: Rules, t: Map, target: pa.DataType | None) -> Collection:
    """A list of entries, which are final structs without a name."""
    names, entries = ("key", "value"), None
    if target is not None:
        names = target.key_field.name, target.item_field.name
        entries = pa.struct([target.key_field, target.item_field])
    members = tuple(
        Member(name, inner, i) for i, (name, inner) in enumerate(zip(names, (t.key, t.value), strict=True))
    )
    entry = Struct("", members)
    return Collection(rules, t, entry, compile_node(rules, entry, entries), target)


def _union(rules: Rules, t: Union, target: pa.DataType | None) -> PlainUnion | MutableUnion:
    wanted = {} if target is None else {field.name: field.type for field in target}
    nodes = [compile_node(rules, case.type, wanted.get(case.name)) for case in t.cases]
    if t.extensibility is Extensibility.MUTABLE:
        return MutableUnion(t, _member_list(rules), nodes, target)
    assert not isinstance(t.discriminator, Alias)
    alignment = rules.first_alignment(t.discriminator)
    return PlainUnion(t, nodes, alignment, target, delimited=rules.is_delimited(t))


def _member_list(rules: Rules) -> MemberList:
    return ParameterList() if rules.version == 1 else MemberList()
