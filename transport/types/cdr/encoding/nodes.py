"""Nodes of the tree that a type is compiled into; each lays out all values of a column at once.

Nodes of lists are in :mod:`.lists`, nodes of members with headers of their own in :mod:`.members`.
"""

from __future__ import annotations

from functools import partial

from ...model import (
    SCALARS,
    Array,
    Extensibility,
    Map,
    Sequence,
    String,
    Struct,
    Type,
    Union,
    WString,
    number_code,
)
from ..cursors import I64, Values, align
from ..layout import Block, Fixed, Group, Repeat, Rules
from ..table import Table
from .columns import Bytes, Column, Fields, Lists, NumberColumn, Selected, Wide
from .draft import LayoutPass, ValueEncoder, as_bytes
from .members import lay_some


def widest(rules: Rules, t: Type) -> int:
    """The greatest alignment of any part of a value, not counting parts that have an origin of their own."""
    if isinstance(t, SCALARS):
        return rules.alignment(t)
    if isinstance(t, String | WString):
        return 4
    if isinstance(t, Sequence):
        return max(4, widest(rules, t.element))
    if isinstance(t, Map):
        return max(4, widest(rules, t.key), widest(rules, t.value))
    if isinstance(t, Array):
        return max(4 if rules.starts_with_header(t) else 1, widest(rules, t.element))
    assert isinstance(t, Struct | Union)
    if t.extensibility is Extensibility.MUTABLE:
        return 4
    header = 4 if rules.is_delimited(t) else 1
    if isinstance(t, Union):
        return max(header, *(widest(rules, each) for each in (t.discriminator, *(c.type for c in t.cases))))
    # a parameter's value has an origin of its own
    return max(
        header, *(4 if m.optional and rules.version == 1 else widest(rules, m.type) for m in t.members)
    )


class FixedValueEncoder:
    """A value of fixed layout that is not part of a block."""

    def __init__(self, fixed: Fixed, alignment: int, size: int) -> None:
        self.fixed = fixed
        self.first = self.widest = alignment
        self.size = size

    def lay_out(self, walk: LayoutPass, column: Column, pos: I64) -> I64:
        pos = align(pos, self.first)
        walk.records(pos, self.size, partial(fill, self.fixed, column))
        return pos + self.size


class TextEncoder:
    """A string: uint32 length with its NUL, bytes, NUL (RTPS 2.5 §10.2.1.2)."""

    first = widest = 4

    def lay_out(self, walk: LayoutPass, column: Column, pos: I64) -> I64:
        assert isinstance(column, Bytes)
        pos = align(pos, 4)
        walk.numbers("u4", pos, column.counts + 1)
        walk.pieces(pos + 4, column.counts, lambda order: column.data)
        return pos + 5 + column.counts


class WideTextEncoder:
    """A wstring: uint32 bytes, UTF-16 code units without NUL (XTypes 1.3 §7.4.4.2; Cyclone DDS agrees)."""

    first = widest = 4

    def lay_out(self, walk: LayoutPass, column: Column, pos: I64) -> I64:
        assert isinstance(column, Wide)
        pos = align(pos, 4)
        size = 2 * column.counts
        walk.numbers("u4", pos, size)
        walk.pieces(pos + 4, size, lambda order: as_bytes(column.units, f"{order}u2"))
        return pos + 4 + size


class RecordEncoder:
    """A struct, with a DHEADER if it is appendable in XCDR2."""

    def __init__(self, rules: Rules, struct: Struct, steps: list[Block | tuple[str, ValueEncoder]]) -> None:
        """``steps``: blocks of members of fixed layout, and by name the members that have none."""
        self.is_delimited = rules.is_delimited(struct)
        self.first, self.widest = rules.first_alignment(struct), widest(rules, struct)
        self.index = {member.name: i for i, member in enumerate(struct.members)}
        self.steps = [step if isinstance(step, Block) else (self.index[step[0]], step[1]) for step in steps]

    @property
    def block(self) -> Block | None:
        """The layout of all members, behind the DHEADER, if it is fixed."""
        return self.steps[0] if len(self.steps) == 1 and isinstance(self.steps[0], Block) else None

    def lay_out(self, walk: LayoutPass, column: Column, pos: I64) -> I64:
        assert isinstance(column, Fields)
        if self.is_delimited:
            pos = align(pos, 4) + 4
        header = pos
        for step in self.steps:
            if isinstance(step, Block):
                pos = align(pos, step.alignment)
                walk.records(pos, step.size, partial(self.fill_block, step, column))
                pos = pos + step.size
            else:
                i, node = step
                pos = node.lay_out(walk, column.members[i], pos)
        if self.is_delimited:
            walk.numbers("u4", header - 4, pos - header)
        return pos

    def fill_block(self, block: Block, column: Fields, table: Table, first: int) -> None:
        for name, fixed in block.members:
            fill(fixed, column.members[self.index[name]], table, first)


class ChoiceEncoder:
    """A union: [DHEADER], discriminator, and the branch that it selects."""

    def __init__(
        self, rules: Rules, union: Union, discriminator: ValueEncoder, branches: list[ValueEncoder]
    ) -> None:
        self.is_delimited = rules.is_delimited(union)
        self.first, self.widest = rules.first_alignment(union), widest(rules, union)
        self.discriminator, self.branches = discriminator, branches

    def lay_out(self, walk: LayoutPass, column: Column, pos: I64) -> I64:
        assert isinstance(column, Selected)
        if self.is_delimited:
            pos = align(pos, 4) + 4
        header = pos
        pos = self.discriminator.lay_out(walk, column.discriminator, pos)
        for node, branch in zip(self.branches, column.branches, strict=True):
            # the positions of rows with other branches do not change
            pos = lay_some(node, walk, branch, pos)
        if self.is_delimited:
            walk.numbers("u4", header - 4, pos - header)
        return pos


def fill(
    fixed: Fixed, column: Column, table: Table, first: int, repeats: tuple[tuple[int, int], ...] = ()
) -> None:
    """Write the rows of a column of fixed layout from ``first`` on into a record table."""
    if isinstance(fixed, Group):
        assert isinstance(column, Fields)
        for member, inner in zip(fixed.members, column.members, strict=True):
            fill(member, inner, table, first, repeats)
    elif isinstance(fixed, Repeat):
        assert isinstance(column, Bytes | Lists)
        elements = column.elements if isinstance(column, Lists) else column
        fill(fixed.element, elements, table, first, (*repeats, (fixed.type.length, fixed.stride)))
    else:
        assert isinstance(column, Bytes | NumberColumn)
        values = column.data if isinstance(column, Bytes) else column.values
        if values.ndim == 1:
            _fill_numbers(table.column(number_code(fixed.type), fixed.offset, repeats), values, first)
            return
        # the words of a binary128, the low one first
        for i in (0, 1):
            word = values[:, i if table.order == "<" else 1 - i]
            _fill_numbers(table.column("u8", fixed.offset + 8 * i, repeats), word, first)


def _fill_numbers(view: Values, values: Values, first: int) -> None:
    start = first * (view.size // len(view))
    view[...] = values[start : start + view.size].reshape(view.shape)
