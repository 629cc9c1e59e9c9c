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
from .lists import CollectionDecoder
from .members import (
    MemberListDecoder,
    MutableRecordDecoder,
    OptionalFlagDecoder,
    OptionalParameterDecoder,
    ParameterListDecoder,
)
from .nodes import FixedValueDecoder, TextDecoder, TimeDecoder, ValueDecoder, WideTextDecoder
from .records import BlockDecoder, PartDecoder, RecordDecoder, SingleDecoder
from .unions import MutableUnionDecoder, PlainUnionDecoder


def compile_node(rules: Rules, t: Type, target: pa.DataType | None) -> ValueDecoder:
    """The node of a value that may start anywhere; without a target the value is only skipped."""
    alignment = rules.first_alignment(t)
    placed = rules.lay_out_value(t, 0, alignment)
    if placed is not None:
        return FixedValueDecoder(placed[0], alignment, placed[1], target)
    if isinstance(t, String):
        return TextDecoder(target)
    if isinstance(t, WString):
        return WideTextDecoder(target)
    if isinstance(t, Map):
        return _map(rules, t, target)
    if isinstance(t, Sequence | Array):
        return _list(rules, t, target)
    if isinstance(t, Union):
        return _union(rules, t, target)
    assert isinstance(t, Struct)  # scalars are fixed, and aliases are gone
    if target is not None and not pa.types.is_struct(target):
        return TimeDecoder(compile_struct(rules, t, TIME_FIELDS), target)
    return compile_struct(rules, t, target)


def compile_struct(
    rules: Rules,
    struct: Struct,
    target: pa.DataType | None,
    *,
    modulus: int = 1,
    open_ended: bool = False,
    complete: bool = False,
) -> RecordDecoder | MutableRecordDecoder:
    """The node of a struct that starts at a position aligned to ``modulus``.

    ``open_ended``: members may be missing at its end, as in delimited structs; ``complete``: no member may be missing.
    """
    wanted = {} if target is None else {field.name: field.type for field in target}
    if struct.extensibility is Extensibility.MUTABLE:
        nodes = [compile_node(rules, member.type, wanted.get(member.name)) for member in struct.members]
        return MutableRecordDecoder(struct, _member_list(rules), nodes, target)
    delimited = rules.is_delimited(struct)
    members = {member.name: member for member in struct.members}
    may_end_early = delimited or open_ended
    steps: list[BlockDecoder | SingleDecoder] = []
    parts: list[PartDecoder] = []
    for i, step in enumerate(fuse(rules, struct.members, 4 if delimited else modulus)):
        alone: dict[str, ValueDecoder] = {}
        if isinstance(step, Block):
            columns = [(name, fixed, wanted[name]) for name, fixed in step.members if name in wanted]
            steps.append(BlockDecoder(step, columns))
            if may_end_early:
                alone = {name: _member(rules, members[name], wanted.get(name)) for name, _ in step.members}
        else:
            # the step and the part share one node: compiling it twice would double the work at each level of nesting
            node = alone[step.name] = _member(rules, step, wanted.get(step.name))
            steps.append(SingleDecoder(step.name, node, rules.member_alignment(step)))
        if may_end_early:
            for name, node in alone.items():
                member = members[name]
                parts.append(
                    PartDecoder(name, node, rules.member_alignment(member), i, member.key or complete)
                )
    return RecordDecoder(struct, steps, parts, target, delimited=delimited)


def _member(rules: Rules, member: Member, target: pa.DataType | None) -> ValueDecoder:
    node = compile_node(rules, member.type, target)
    if not member.optional:
        return node
    return OptionalParameterDecoder(node) if rules.version == 1 else OptionalFlagDecoder(node)


def _list(rules: Rules, t: Sequence | Array, target: pa.DataType | None) -> CollectionDecoder:
    inner = target
    if target is not None:
        depth = len(t.dimensions) if isinstance(t, Array) else 1
        for _ in range(depth):
            inner = inner.value_type if inner is not None and pa.types.is_list(inner) else None
    return CollectionDecoder(rules, t, t.element, compile_node(rules, t.element, inner), target)


def _map(rules: Rules, t: Map, target: pa.DataType | None) -> CollectionDecoder:
    """A list of entries, which are final structs without a name."""
    names, entries = ("key", "value"), None
    if target is not None:
        names = target.key_field.name, target.item_field.name
        entries = pa.struct([target.key_field, target.item_field])
    members = tuple(
        Member(name, inner, i) for i, (name, inner) in enumerate(zip(names, (t.key, t.value), strict=True))
    )
    entry = Struct("", members)
    return CollectionDecoder(rules, t, entry, compile_node(rules, entry, entries), target)


def _union(rules: Rules, t: Union, target: pa.DataType | None) -> PlainUnionDecoder | MutableUnionDecoder:
    wanted = {} if target is None else {field.name: field.type for field in target}
    nodes = [compile_node(rules, case.type, wanted.get(case.name)) for case in t.cases]
    if t.extensibility is Extensibility.MUTABLE:
        return MutableUnionDecoder(t, _member_list(rules), nodes, target)
    assert not isinstance(t.discriminator, Alias)
    alignment = rules.first_alignment(t.discriminator)
    return PlainUnionDecoder(t, nodes, alignment, target, delimited=rules.is_delimited(t))


def _member_list(rules: Rules) -> MemberListDecoder:
    return ParameterListDecoder() if rules.version == 1 else MemberListDecoder()
