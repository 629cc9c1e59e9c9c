"""Sequences, maps, and arrays whose layout is not fixed: [DHEADER], [count], elements."""

from __future__ import annotations

from functools import partial

import numpy as np

from ...model import Array, Map, Member, Sequence, Struct, Type, number_code
from ..cursors import I64, U8, align, offsets_of
from ..layout import Regular, Rules, ScalarLayout
from .columns import Bytes, Column, Lists, NumberColumn
from .draft import LayoutPass, ValueEncoder, as_bytes, blank_records, fill_in_parts
from .nodes import fill, widest


class CollectionEncoder:
    """The elements of a list are one column; ``element`` is their node."""

    def __init__(self, rules: Rules, t: Sequence | Array | Map, element: ValueEncoder) -> None:
        self.is_counted = not isinstance(t, Array)
        self.has_header = rules.starts_with_header(t)
        self.first, self.widest = rules.first_alignment(t), widest(rules, t)
        self.regular = rules.regular(element_of(t)) if self.is_counted or self.has_header else None
        self.element = element

    def lay_out(self, walk: LayoutPass, column: Column, pos: I64) -> I64:
        assert isinstance(column, Bytes | Lists)
        if self.has_header:
            pos = align(pos, 4) + 4
        header = pos
        if self.is_counted:
            pos = align(pos, 4) + 4
            walk.numbers("u4", pos - 4, column.counts)
        lay = self._lay_each if self.regular is None else partial(_lay_regular, self.regular)
        end = lay(walk, column, pos)
        if self.has_header:
            walk.numbers("u4", header - 4, end - header)
        return end

    def _lay_each(self, walk: LayoutPass, column: Bytes | Lists, pos: I64) -> I64:
        assert isinstance(column, Lists)
        counts, node = column.counts, self.element
        owners = np.repeat(np.arange(len(counts)), counts)
        if not len(owners):
            return pos
        ends = walk.ends(node, column.elements, len(owners))
        at, end = _chain(ends, node.first, node.widest, pos, counts)
        node.lay_out(walk.pick(owners), column.elements, at)
        return end


def element_of(t: Sequence | Array | Map) -> Type:
    """The types of the parts of each element: for a map key and value, else the element itself."""
    if isinstance(t, Map):
        return Struct("", (Member("key", t.key, 0), Member("value", t.value, 1)))
    return t.element


def _lay_regular(regular: Regular, walk: LayoutPass, column: Bytes | Lists, pos: I64) -> I64:
    """Elements of one fixed layout; an empty list has no padding before it either."""
    counts, start = column.counts, align(pos, regular.alignment)
    sizes = np.where(counts > 0, (counts - 1) * regular.stride + regular.size, 0)
    walk.pieces(start, sizes, partial(_regular_bytes, regular, column))
    return np.where(counts > 0, start + sizes, pos)


def _regular_bytes(regular: Regular, column: Bytes | Lists, order: str) -> U8:
    """The encoded elements, ``stride`` bytes apart, without the padding behind the last one of each list."""
    if isinstance(column, Bytes):
        return column.data
    element = regular.element
    if isinstance(element, ScalarLayout) and isinstance(column.elements, NumberColumn):
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
    """The starts of elements that follow one another from ``pos`` on, and the end of each list.

    ``ends`` has the end of each element for the starts 0, ``first``, 2 * ``first`` ..., because the length of an
    element may depend on its start modulo ``modulus``.
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

    An element maps its own start to the start of the next one. These maps are composed by doubling, in log2(count)
    passes; a pass leaves out elements whose start no longer depends on the start of the list.
    """
    total = ends.shape[1]
    follow = (align(ends, first) & (modulus - 1)) // first
    if (follow == follow[0]).all():
        state = np.empty(total, np.int64)
        state[1:] = follow[0, :-1]
        state[head] = start
        return state
    index = np.arange(total) - np.repeat(head, counts)
    # the number of elements before this one whose maps have been composed
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
