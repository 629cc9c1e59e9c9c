"""Arrow columns to CDR: a type is compiled into nodes, each of which lays the values of a column all at once."""

from __future__ import annotations

from functools import partial

import numpy as np

from ..model import (
    SCALARS,
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
    number_code,
)
from .columns import Bytes, Column, Fields, Lists, Numbers, Selected, Wide
from .draft import Node, Walk, as_bytes, blank_records, fill_in_parts
from .encode_members import MutableRecord, MutableUnion, OptionalFlag, OptionalParameter, lay_some
from .lanes import I64, U8, Values, align, offsets_of
from .layout import Block, Fixed, Group, Number, Regular, Repeat, Rules, fuse
from .values import Table


def widest(rules: Rules, t: Type) -> int:
    """The greatest alignment of anything in a value that is told from the value's own origin."""
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


class FixedValue:
    """A value of fixed layout that no block took in."""

    def __init__(self, fixed: Fixed, alignment: int, size: int) -> None:
        self.fixed = fixed
        self.first = self.widest = alignment
        self.size = size

    def lay(self, walk: Walk, column: Column, pos: I64) -> I64:
        pos = align(pos, self.first)
        walk.records(pos, self.size, partial(fill, self.fixed, column))
        return pos + self.size


class Text:
    """A string: uint32 length with its NUL, bytes, NUL (RTPS 2.5 §10.2.1.2)."""

    first = widest = 4

    def lay(self, walk: Walk, column: Column, pos: I64) -> I64:
        assert isinstance(column, Bytes)
        pos = align(pos, 4)
        walk.numbers("u4", pos, column.counts + 1)
        walk.pieces(pos + 4, column.counts, lambda order: column.data)
        return pos + 5 + column.counts


class WideText:
    """A wstring: uint32 bytes, UTF-16 code units without NUL (XTypes 1.3 §7.4.4.2; Cyclone DDS agrees)."""

    first = widest = 4

    def lay(self, walk: Walk, column: Column, pos: I64) -> I64:
        assert isinstance(column, Wide)
        pos = align(pos, 4)
        size = 2 * column.counts
        walk.numbers("u4", pos, size)
        walk.pieces(pos + 4, size, lambda order: as_bytes(column.units, f"{order}u2"))
        return pos + 4 + size


class Collection:
    """Sequences, maps, and arrays whose layout is not fixed: [DHEADER], [count], elements."""

    def __init__(self, rules: Rules, t: Sequence | Array | Map) -> None:
        element = entry(t) if isinstance(t, Map) else t.element
        self.is_counted = not isinstance(t, Array)
        self.has_header = rules.starts_with_header(t)
        self.first, self.widest = rules.first_alignment(t), widest(rules, t)
        self.regular = rules.regular(element) if self.is_counted or self.has_header else None
        self.element = compile_node(rules, element)

    def lay(self, walk: Walk, column: Column, pos: I64) -> I64:
        assert isinstance(column, Bytes | Lists)
        if self.has_header:
            pos = align(pos, 4) + 4
        header = pos
        if self.is_counted:
            pos = align(pos, 4) + 4
            walk.numbers("u4", pos - 4, column.counts)
        lay = self._lay_each if self.regular is None else partial(lay_regular, self.regular)
        end = lay(walk, column, pos)
        if self.has_header:
            walk.numbers("u4", header - 4, end - header)
        return end

    def _lay_each(self, walk: Walk, column: Bytes | Lists, pos: I64) -> I64:
        assert isinstance(column, Lists)
        counts, node = column.counts, self.element
        owners = np.repeat(np.arange(len(counts)), counts)
        if not len(owners):
            return pos
        ends = walk.ends(node, column.elements, len(owners))
        at, end = _chain(ends, node.first, node.widest, pos, counts)
        node.lay(walk.pick(owners), column.elements, at)
        return end


def entry(t: Map) -> Struct:
    """A map's entry: key and value, one after the other."""
    return Struct("", (Member("key", t.key, 0), Member("value", t.value, 1)))


def lay_regular(regular: Regular, walk: Walk, column: Bytes | Lists, pos: I64) -> I64:
    """Elements of one fixed layout; before no elements there is no padding either."""
    counts, start = column.counts, align(pos, regular.alignment)
    sizes = np.where(counts > 0, (counts - 1) * regular.stride + regular.size, 0)
    walk.pieces(start, sizes, partial(_regular_bytes, regular, column))
    return np.where(counts > 0, start + sizes, pos)


def _regular_bytes(regular: Regular, column: Bytes | Lists, order: str) -> U8:
    """The elements as they lie, ``stride`` bytes apart, without the padding behind the last of each list."""
    if isinstance(column, Bytes):
        return column.data
    element = regular.element
    if isinstance(element, Number) and isinstance(column.elements, Numbers):
        if column.elements.values.ndim == 1:
            return as_bytes(column.elements.values, order + number_code(element.type))
    counts, padding = column.counts, regular.stride - regular.size
    table = blank_records(int(counts.sum()), regular.stride, order)
    fill_in_parts(partial(fill, element, column.elements), table)
    if not padding:
        return table.data
    last = np.zeros(table.rows, np.bool_)
    last[offsets_of(counts)[1:][counts > 0] - 1] = True
    keep = np.ones((table.rows, regular.stride), np.bool_)
    keep[last, regular.size :] = False
    return table.data[keep.reshape(-1)]


def _chain(ends: I64, first: int, modulus: int, pos: I64, counts: I64) -> tuple[I64, I64]:
    """Where elements start that follow each other from ``pos`` on, and the end of each list.

    ``ends`` says where each ends that starts at 0, ``first``, 2 * ``first`` ...: how long an element is may depend
    on where it starts modulo ``modulus``.
    """
    offsets = offsets_of(counts)
    heads = np.flatnonzero(counts > 0)
    head, tail = offsets[heads], offsets[heads + 1] - 1
    start = align(pos[heads], first)
    if len(ends) == 1:
        last = ends[0]
        steps = align(last, first)
    else:
        state = _states(ends, first, modulus, (start & (modulus - 1)) // first, head, counts[heads])
        reached = np.choose(state, ends)
        state *= first
        last, steps = reached - state, align(reached, first) - state
    at = offsets_of(steps)[:-1]
    at += np.repeat(start - at[head], counts[heads])
    end = pos.copy()
    end[heads] = at[tail] + last[tail]
    return at, end


def _states(ends: I64, first: int, modulus: int, start: I64, head: I64, counts: I64) -> I64:
    """Each element's start modulo ``modulus``, in units of ``first``; ``start`` has those of the first ones.

    An element maps the start of its own to that of the next one; such maps are composed by doubling: log2(count)
    passes over the elements, but for those where it is known by then, whatever the start of the list.
    """
    total = ends.shape[1]
    follow = (align(ends, first) & (modulus - 1)) // first
    if (follow == follow[0]).all():
        state = np.empty(total, np.int64)
        state[1:] = follow[0, :-1]
        state[head] = start
        return state
    index = np.arange(total) - np.repeat(head, counts)
    # of the elements before this one in its list, as many as have been composed
    maps = np.empty((len(ends), total), np.int64)
    maps[:, 1:] = follow[:, :-1]
    maps[:, head] = np.arange(len(ends))[:, None]
    step = 1
    later = np.flatnonzero((index > step) & (maps != maps[0]).any(axis=0))
    while len(later):
        maps[:, later] = composed = np.take_along_axis(maps[:, later], maps[:, later - step], axis=0)
        step *= 2
        later = later[(index[later] > step) & (composed != composed[0]).any(axis=0)]
    reached: I64 = maps[np.repeat(start, counts), np.arange(total)]
    return reached


class Record:
    """A struct, with a DHEADER if it is appendable in XCDR2."""

    def __init__(self, rules: Rules, struct: Struct, modulus: int = 1) -> None:
        self.is_delimited = rules.is_delimited(struct)
        self.first, self.widest = rules.first_alignment(struct), widest(rules, struct)
        self.index = {member.name: i for i, member in enumerate(struct.members)}
        steps = fuse(rules, struct.members, 4 if self.is_delimited else modulus)
        self.steps = [
            s if isinstance(s, Block) else (self.index[s.name], _member_node(rules, s)) for s in steps
        ]

    @property
    def block(self) -> Block | None:
        """The layout of all members, behind the DHEADER, if it is fixed."""
        return self.steps[0] if len(self.steps) == 1 and isinstance(self.steps[0], Block) else None

    def lay(self, walk: Walk, column: Column, pos: I64) -> I64:
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
                pos = node.lay(walk, column.members[i], pos)
        if self.is_delimited:
            walk.numbers("u4", header - 4, pos - header)
        return pos

    def fill_block(self, block: Block, column: Fields, table: Table, first: int) -> None:
        for name, fixed in block.members:
            fill(fixed, column.members[self.index[name]], table, first)


class Choice:
    """A union: [DHEADER], discriminator, and the branch that it selects."""

    def __init__(self, rules: Rules, union: Union) -> None:
        self.is_delimited = rules.is_delimited(union)
        self.first, self.widest = rules.first_alignment(union), widest(rules, union)
        self.discriminator = compile_node(rules, union.discriminator)
        self.branches = [compile_node(rules, case.type) for case in union.cases]

    def lay(self, walk: Walk, column: Column, pos: I64) -> I64:
        assert isinstance(column, Selected)
        if self.is_delimited:
            pos = align(pos, 4) + 4
        header = pos
        pos = self.discriminator.lay(walk, column.discriminator, pos)
        for node, branch in zip(self.branches, column.branches, strict=True):
            # rows of other branches keep their place
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
        assert isinstance(column, Bytes | Numbers)
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


def _member_node(rules: Rules, member: Member) -> Node:
    node = compile_node(rules, member.type)
    if not member.optional:
        return node
    return OptionalParameter(node, member) if rules.version == 1 else OptionalFlag(node)


def compile_node(rules: Rules, t: Type) -> Node:
    alignment = rules.first_alignment(t)
    placed = rules.place(t, 0, alignment)
    if placed is not None:
        return FixedValue(placed[0], alignment, placed[1])
    if isinstance(t, String):
        return Text()
    if isinstance(t, WString):
        return WideText()
    if isinstance(t, Sequence | Array | Map):
        return Collection(rules, t)
    assert isinstance(t, Struct | Union)  # scalars are fixed
    return compile_aggregated(rules, t)


def compile_aggregated(rules: Rules, t: Struct | Union, modulus: int = 1) -> Node:
    """The node of a struct or union that starts at a position aligned to ``modulus``."""
    if t.extensibility is not Extensibility.MUTABLE:
        return Record(rules, t, modulus) if isinstance(t, Struct) else Choice(rules, t)
    if isinstance(t, Struct):
        return MutableRecord(rules, t, [compile_node(rules, member.type) for member in t.members])
    nodes = [compile_node(rules, each) for each in (t.discriminator, *(case.type for case in t.cases))]
    return MutableUnion(rules, t, nodes)
