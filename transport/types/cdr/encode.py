"""Arrow columns to CDR: nodes that measure all samples at once, and then write all samples at once.

``measure`` gives the position behind a value, ``write`` puts it there and gives the same. Both take ``rows``,
the column's rows that the lanes stand for (None: all, in order).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ...errors import TypeDefinitionError
from ..model import (
    Array,
    Extensibility,
    Member,
    Sequence,
    String,
    Struct,
    Type,
    number_code,
)
from .columns import Bytes, Column, Fields, Lists, Maybe, Numbers, take_rows
from .lanes import I64, Sink, align, anywhere, offsets_of, scatter_bytes, spread
from .layout import Block, Fixed, Group, Number, Regular, Rules, fuse
from .values import Table


class Node(Protocol):
    def measure(self, column: Column, rows: I64 | None, pos: I64) -> I64: ...
    def write(self, column: Column, rows: I64 | None, sink: Sink, pos: I64) -> I64: ...


class FixedValue:
    """A value of fixed layout that no block took in."""

    def __init__(self, fixed: Fixed, alignment: int, size: int) -> None:
        self.fixed = fixed
        self.alignment = alignment
        self.size = size

    def measure(self, column: Column, rows: I64 | None, pos: I64) -> I64:
        return align(pos, self.alignment) + self.size

    def write(self, column: Column, rows: I64 | None, sink: Sink, pos: I64) -> I64:
        pos = align(pos, self.alignment)
        table = blank_records(len(pos), self.size, sink.order)
        fill(self.fixed, column, rows, table)
        scatter_records(table, sink, sink.base + pos)
        return pos + self.size


def blank_records(rows: int, size: int, order: str) -> Table:
    return Table(np.zeros(rows * size, np.uint8), rows, 0, size, order)


def scatter_records(table: Table, sink: Sink, at: I64) -> None:
    kind = f"V{table.stride}"
    anywhere(sink.data, kind)[at] = table.data.view(kind)


class Text:
    def measure(self, column: Column, rows: I64 | None, pos: I64) -> I64:
        assert isinstance(column, Bytes)
        return align(pos, 4) + 5 + take_rows(rows, column.counts)

    def write(self, column: Column, rows: I64 | None, sink: Sink, pos: I64) -> I64:
        assert isinstance(column, Bytes)
        starts, counts = take_rows(rows, column.starts), take_rows(rows, column.counts)
        pos = align(pos, 4)
        sink.write("u4", pos, counts + 1)
        scatter_bytes(sink.data, sink.base + pos + 4, column.data, starts, counts)
        return pos + 5 + counts


class Collection:
    """Sequences, and arrays whose layout is not fixed: [DHEADER], [count], elements."""

    def __init__(self, rules: Rules, t: Sequence | Array) -> None:
        self.is_sequence = isinstance(t, Sequence)
        self.has_header = rules.starts_with_header(t)
        self.regular = rules.regular(t.element) if self.is_sequence or self.has_header else None
        self.element = compile_node(rules, t.element)

    def _first(self, pos: I64) -> tuple[I64, I64]:
        """Where DHEADER ends (or would), and where the elements start."""
        after_header = align(pos, 4) + 4 if self.has_header else pos
        return after_header, align(after_header, 4) + 4 if self.is_sequence else after_header

    def measure(self, column: Column, rows: I64 | None, pos: I64) -> I64:
        assert isinstance(column, Bytes | Lists)
        counts = take_rows(rows, column.counts)
        _, pos = self._first(pos)
        if self.regular is not None:
            return _regular_end(self.regular, pos, counts)
        assert isinstance(column, Lists)
        return self._walk(column, take_rows(rows, column.starts), counts, pos, None)

    def write(self, column: Column, rows: I64 | None, sink: Sink, pos: I64) -> I64:
        assert isinstance(column, Bytes | Lists)
        starts, counts = take_rows(rows, column.starts), take_rows(rows, column.counts)
        header, pos = self._first(pos)
        if self.is_sequence:
            sink.write("u4", pos - 4, counts)
        if self.regular is not None:
            self._write_regular(self.regular, column, rows, sink, pos)
            end = _regular_end(self.regular, pos, counts)
        else:
            assert isinstance(column, Lists)
            at = np.empty(int(counts.sum()), np.int64)
            end = self._walk(column, starts, counts, pos, at)
            owners = np.repeat(np.arange(len(counts)), counts)
            elements = None if rows is None else spread(starts, counts)
            self.element.write(column.elements, elements, sink.pick(owners), at)
        if self.has_header:
            sink.write("u4", header - 4, end - header)
        return end

    def _walk(self, column: Lists, starts: I64, counts: I64, pos: I64, at: I64 | None) -> I64:
        """Step over the elements, the k-th of all lanes at once; note where they go."""
        if isinstance(self.element, Text):
            return _walk_texts(column, starts, counts, pos, at)
        pos = pos.copy()
        offsets = offsets_of(counts)
        k = 0
        active = np.flatnonzero(counts > 0)
        while len(active):
            if at is not None:
                at[offsets[active] + k] = pos[active]
            pos[active] = self.element.measure(column.elements, starts[active] + k, pos[active])
            k += 1
            active = active[counts[active] > k]
        return pos

    def _write_regular(
        self, regular: Regular, column: Bytes | Lists, rows: I64 | None, sink: Sink, pos: I64
    ) -> None:
        starts, counts = take_rows(rows, column.starts), take_rows(rows, column.counts)
        first = sink.base + align(pos, regular.alignment)
        if isinstance(column, Bytes):
            scatter_bytes(sink.data, first, column.data, starts, counts)
            return
        elements = None if rows is None else spread(starts, counts)
        if isinstance(regular.element, Number) and isinstance(column.elements, Numbers):
            size = regular.size
            values = column.elements.values.astype(sink.order + number_code(regular.element.type), copy=False)
            data = np.ascontiguousarray(values).view(np.uint8)
            scatter_bytes(sink.data, first, data, starts * size, counts * size)
            return
        at = spread(first, counts, regular.stride)
        table = blank_records(len(at), regular.size, sink.order)
        fill(regular.element, column.elements, elements, table)
        scatter_records(table, sink, at)


def _walk_texts(column: Lists, starts: I64, counts: I64, pos: I64, at: I64 | None) -> I64:
    """Strings need no stepping: each begins aligned to 4, so their padded sizes add up."""
    assert isinstance(column.elements, Bytes)
    sizes = column.elements.counts[spread(starts, counts)] + 5
    ends, offsets = offsets_of(align(sizes, 4)), offsets_of(counts)
    first = align(pos, 4) - ends[offsets[:-1]]
    if at is not None:
        at[:] = np.repeat(first, counts) + ends[:-1]
    end = pos.copy()
    some = np.flatnonzero(counts > 0)
    last = offsets[1:][some] - 1
    end[some] = first[some] + ends[last] + sizes[last]
    return end


def _regular_end(regular: Regular, pos: I64, counts: I64) -> I64:
    end = align(pos, regular.alignment) + (counts - 1) * regular.stride + regular.size
    return np.where(counts > 0, end, pos)


class Record:
    """A struct, with a DHEADER if it is appendable in XCDR2."""

    def __init__(self, rules: Rules, struct: Struct, modulus: int = 1) -> None:
        self.delimited = rules.is_delimited(struct)
        index = {member.name: i for i, member in enumerate(struct.members)}
        steps = fuse(rules, struct.members, 4 if self.delimited else modulus)
        self.steps = [
            s if isinstance(s, Block) else (index[s.name], _member_node(rules, struct, s)) for s in steps
        ]
        self.index = index

    @property
    def size(self) -> int | None:
        """Bytes of a struct that starts at the origin, if all have the same size."""
        if len(self.steps) == 1 and isinstance(self.steps[0], Block):
            return self.steps[0].size + (4 if self.delimited else 0)
        return None

    def measure(self, column: Column, rows: I64 | None, pos: I64) -> I64:
        assert isinstance(column, Fields)
        if self.delimited:
            pos = align(pos, 4) + 4
        for step in self.steps:
            if isinstance(step, Block):
                pos = align(pos, step.alignment) + step.size
            else:
                i, node = step
                pos = node.measure(column.members[i], rows, pos)
        return pos

    def write(self, column: Column, rows: I64 | None, sink: Sink, pos: I64) -> I64:
        assert isinstance(column, Fields)
        if self.delimited:
            pos = align(pos, 4) + 4
        header = pos
        for step in self.steps:
            if isinstance(step, Block):
                pos = align(pos, step.alignment)
                table = blank_records(len(pos), step.size, sink.order)
                self.fill_block(step, column, rows, table)
                scatter_records(table, sink, sink.base + pos)
                pos = pos + step.size
            else:
                i, node = step
                pos = node.write(column.members[i], rows, sink, pos)
        if self.delimited:
            sink.write("u4", header - 4, pos - header)
        return pos

    def fill_block(self, block: Block, column: Fields, rows: I64 | None, table: Table) -> None:
        for name, fixed in block.members:
            fill(fixed, column.members[self.index[name]], rows, table)


def fill(
    fixed: Fixed, column: Column, rows: I64 | None, table: Table, repeats: tuple[tuple[int, int], ...] = ()
) -> None:
    """Write a column of fixed layout into a record table."""
    if isinstance(fixed, Number):
        assert isinstance(column, Bytes | Numbers)
        values = column.data if isinstance(column, Bytes) else column.values
        view = table.column(number_code(fixed.type), fixed.offset, repeats)
        view[...] = take_rows(rows, values).reshape(view.shape)
    elif isinstance(fixed, Group):
        assert isinstance(column, Fields)
        for member, inner in zip(fixed.members, column.members, strict=True):
            fill(member, inner, rows, table, repeats)
    else:
        assert isinstance(column, Bytes | Lists)
        length = fixed.type.length
        if rows is not None:
            rows = (column.starts[rows][:, None] + np.arange(length)).reshape(-1)
        elements = column.elements if isinstance(column, Lists) else column
        fill(fixed.element, elements, rows, table, (*repeats, (length, fixed.stride)))


class Optional:
    """An @optional member in XCDR2: one byte says whether it is there (XTypes 1.3 §7.4.3.5.3 rule 20)."""

    def __init__(self, rules: Rules, t: Type) -> None:
        self.node = compile_node(rules, t)

    def measure(self, column: Column, rows: I64 | None, pos: I64) -> I64:
        assert isinstance(column, Maybe)
        lanes, values = _present(column, rows)
        pos = pos + 1
        pos[lanes] = self.node.measure(column.values, values, pos[lanes])
        return pos

    def write(self, column: Column, rows: I64 | None, sink: Sink, pos: I64) -> I64:
        assert isinstance(column, Maybe)
        lanes, values = _present(column, rows)
        sink.write("u1", pos, take_rows(rows, column.present))
        pos = pos + 1
        pos[lanes] = self.node.write(column.values, values, sink.pick(lanes), pos[lanes])
        return pos


def _present(column: Maybe, rows: I64 | None) -> tuple[I64, I64]:
    """Lanes that hold a value, and the row of its value."""
    lanes = np.flatnonzero(take_rows(rows, column.present))
    return lanes, take_rows(rows, column.index)[lanes]


def _member_node(rules: Rules, struct: Struct, member: Member) -> Node:
    if not member.optional:
        return compile_node(rules, member.type)
    if rules.version == 1:
        raise TypeDefinitionError(
            f"{struct.name}: writing the @optional member {member.name!r} needs data representation XCDR2"
        )
    return Optional(rules, member.type)


def compile_node(rules: Rules, t: Type) -> Node:
    alignment = rules.first_alignment(t)
    placed = rules.place(t, 0, alignment)
    if placed is not None:
        return FixedValue(placed[0], alignment, placed[1])
    if isinstance(t, String):
        return Text()
    if isinstance(t, Sequence | Array):
        return Collection(rules, t)
    assert isinstance(t, Struct)  # scalars are fixed
    return compile_struct(rules, t)


def compile_struct(rules: Rules, struct: Struct, modulus: int = 1) -> Record:
    """The node of a struct that starts at a position aligned to ``modulus``."""
    if struct.extensibility is Extensibility.MUTABLE:
        raise TypeDefinitionError(f"{struct.name}: writing @mutable types is not supported")
    return Record(rules, struct, modulus)
