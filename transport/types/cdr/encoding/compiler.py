"""DDS types compiled into nodes; see :mod:`.nodes`."""

from __future__ import annotations

from ...model import Array, Extensibility, Map, Member, Sequence, String, Struct, Type, Union, WString
from ..layout import Block, Rules, fuse
from .draft import ValueEncoder
from .lists import CollectionEncoder, element_of
from .members import MutableRecordEncoder, MutableUnionEncoder, OptionalFlagEncoder, OptionalParameterEncoder
from .nodes import ChoiceEncoder, FixedValueEncoder, RecordEncoder, TextEncoder, WideTextEncoder


def compile_node(rules: Rules, t: Type) -> ValueEncoder:
    """The node of a value that may start anywhere."""
    alignment = rules.first_alignment(t)
    placed = rules.lay_out_value(t, 0, alignment)
    if placed is not None:
        return FixedValueEncoder(placed[0], alignment, placed[1])
    if isinstance(t, String):
        return TextEncoder()
    if isinstance(t, WString):
        return WideTextEncoder()
    if isinstance(t, Sequence | Array | Map):
        return CollectionEncoder(rules, t, compile_node(rules, element_of(t)))
    assert isinstance(t, Struct | Union)  # scalars are fixed
    return compile_aggregated(rules, t)


def compile_aggregated(rules: Rules, t: Struct | Union, modulus: int = 1) -> ValueEncoder:
    """The node of a struct or union that starts at a position aligned to ``modulus``."""
    mutable = t.extensibility is Extensibility.MUTABLE
    if isinstance(t, Union):
        discriminator = compile_node(rules, t.discriminator)
        branches = [compile_node(rules, case.type) for case in t.cases]
        return (MutableUnionEncoder if mutable else ChoiceEncoder)(rules, t, discriminator, branches)
    if mutable:
        return MutableRecordEncoder(rules, t, [compile_node(rules, member.type) for member in t.members])
    steps = fuse(rules, t.members, 4 if rules.is_delimited(t) else modulus)
    return RecordEncoder(
        rules, t, [step if isinstance(step, Block) else (step.name, _member(rules, step)) for step in steps]
    )


def _member(rules: Rules, member: Member) -> ValueEncoder:
    node = compile_node(rules, member.type)
    if not member.optional:
        return node
    return OptionalParameterEncoder(node, member) if rules.version == 1 else OptionalFlagEncoder(node)
