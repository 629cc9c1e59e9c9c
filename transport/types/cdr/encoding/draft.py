"""The layout of samples: one walk finds where every value goes, then memory is allocated and filled.

A position column holds, for each lane, an offset from the origin to which CDR aligns: the start of the sample, or of a
parameter's value in XCDR1. Cursors are the samples, or elements inside them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np

from ....value_classes import value
from ....wire.samples import Samples
from ..cursors import I64, LONG_PIECE, U8, Values, align, anywhere, copy_pieces, offsets_of
from ..table import Table
from .columns import Column

#: Puts values into a table whose first row is the lane with that number.
Fill: TypeAlias = Callable[[Table, int], None]
_HEADER = 4
#: Bytes of records that are filled at once.
_PART = 1 << 20


class ValueEncoder(Protocol):
    """How values of one type lie. ``first``: the alignment of its first part; ``widest``: the greatest alignment of
    any part, so that only the position modulo ``widest`` decides how a value lies."""

    first: int
    widest: int

    def lay_out(self, walk: LayoutPass, column: Column, pos: I64) -> I64:
        """Put the column's values, one for each lane, at ``pos``; returns the positions behind them."""
        ...


class LayoutPass:
    """A walk that only measures."""

    def __init__(self, tables: dict[int, I64] | None = None) -> None:
        self.tables: dict[int, I64] = {} if tables is None else tables

    def numbers(self, code: str, pos: I64, values: Values | int) -> None:
        """Put numbers at aligned positions."""

    def pieces(self, pos: I64, counts: I64, data: Callable[[str], U8]) -> None:
        """Put ``counts[i]`` bytes each, which lie one after the other in the result of ``data`` for a byte order."""

    def records(self, pos: I64, size: int, fill: Fill) -> None:
        """Put records of ``size`` bytes, which ``fill`` puts into a table of zeros, from a row of the lanes on."""

    def pick(self, index: I64) -> LayoutPass:
        """A walk of the lanes of ``index``."""
        return self

    def within(self, start: I64) -> LayoutPass:
        """A walk of values that have an origin of their own at ``start``."""
        return self

    def ends(self, node: ValueEncoder, column: Column, count: int) -> I64:
        """Where ``count`` values of a column end that start at 0, ``first``, 2 * ``first`` ... below ``widest``:
        (starts, count). Found once for a column."""
        found = self.tables.get(id(column))
        if found is None:
            walk = LayoutPass(self.tables)
            starts = range(0, node.widest, node.first)
            found = np.stack([node.lay_out(walk, column, np.full(count, at, np.int64)) for at in starts])
            self.tables[id(column)] = found
        return found


@value
class _Numbers:
    code: str
    cursors: I64 | None
    at: I64
    values: Values | int


@value
class _Pieces:
    cursors: I64 | None
    at: I64
    counts: I64
    data: U8


@value
class _Records:
    cursors: I64 | None
    at: I64
    size: int
    fill: Fill


class Draft(LayoutPass):
    """A walk that keeps what is put; ``cursors`` has the sample of each lane (None: one lane for each sample)."""

    def __init__(self, order: str) -> None:
        super().__init__()
        self.order = order
        self._cursors: I64 | None = None
        self._origin: I64 | None = None
        self._puts: list[_Numbers | _Pieces | _Records] = []

    def numbers(self, code: str, pos: I64, values: Values | int) -> None:
        self._puts.append(_Numbers(code, self._cursors, self._at(pos), values))

    def pieces(self, pos: I64, counts: I64, data: Callable[[str], U8]) -> None:
        self._puts.append(_Pieces(self._cursors, self._at(pos), counts, data(self.order)))

    def records(self, pos: I64, size: int, fill: Fill) -> None:
        self._puts.append(_Records(self._cursors, self._at(pos), size, fill))

    def pick(self, index: I64) -> Draft:
        cursors = index if self._cursors is None else self._cursors[index]
        return self._child(cursors, None if self._origin is None else self._origin[index])

    def within(self, start: I64) -> Draft:
        return self._child(self._cursors, self._at(start))

    def _child(self, cursors: I64 | None, origin: I64 | None) -> Draft:
        child = Draft.__new__(Draft)
        child.tables, child.order, child._puts = self.tables, self.order, self._puts
        child._cursors, child._origin = cursors, origin
        return child

    def _at(self, pos: I64) -> I64:
        return pos if self._origin is None else self._origin + pos

    def samples(self, ends: I64, identifier: int) -> Samples:
        """The samples, whose bodies end at ``ends``, behind encapsulation headers."""
        lengths = _HEADER + align(ends, 4)
        first = ends[:1]
        if len(ends) and int(lengths[0]) <= _PART and (ends == first).all():
            return self._alike(len(ends), int(lengths[0]), identifier << 8 | (-int(first[0]) & 3) << 24)
        offsets = offsets_of(lengths)
        data = self._memory(offsets)
        if len(ends) and (lengths == lengths[0]).all():
            samples = Samples.uniform(data, len(ends), int(lengths[0]))
        else:
            samples = Samples.ragged(data, offsets[:-1], lengths)
        anywhere(data, "<u4")[offsets[:-1]] = identifier << 8 | (-ends & 3) << 24
        body = offsets[:-1] + _HEADER
        for put in self._puts:
            if samples.is_uniform and _place(put) is not None:
                _put_rows(put, Table(data, samples.count, 0, samples.stride, self.order), 0)
            else:
                self._put_anywhere(put, data, put.at + (body if put.cursors is None else body[put.cursors]))
        return samples

    def _alike(self, rows: int, size: int, header: int) -> Samples:
        """Samples that end at the same place."""
        placed = [put for put in self._puts if _place(put) is not None]
        table = Table(np.empty(rows * size, np.uint8), rows, 0, size, self.order)

        def fill(part: Table, first: int) -> None:
            Table(part.data, part.rows, part.start, size, "<").column("u4", 0)[...] = header
            for put in placed:
                _put_rows(put, part, first)

        blank_and_fill(fill, table)
        for put in self._puts:
            if _place(put) is None:
                cursors = np.arange(rows) if put.cursors is None else put.cursors
                self._put_anywhere(put, table.data, put.at + (_HEADER + size * cursors))
        return Samples.uniform(table.data, rows, size)

    def _put_anywhere(self, put: _Numbers | _Pieces | _Records, data: U8, at: I64) -> None:
        if isinstance(put, _Numbers):
            anywhere(data, self.order + put.code)[at] = put.values
        elif isinstance(put, _Pieces):
            copy_pieces(data, at, put.data, offsets_of(put.counts)[:-1], put.counts)
        else:
            table = blank_records(len(at), put.size, self.order)
            fill_in_parts(put.fill, table)
            kind = f"V{put.size}"
            anywhere(data, kind)[at] = table.data.view(kind)

    def _memory(self, offsets: I64) -> U8:
        """Memory that is zero where nothing is put: paddings and NULs need no care then. Long pieces are left
        out, so that they cost no more than their copy."""
        total = int(offsets[-1])
        starts, sizes = [], []
        for put in self._puts:
            if isinstance(put, _Pieces) and len(put.data) > LONG_PIECE:
                long = np.flatnonzero(put.counts > LONG_PIECE)
                cursors = long if put.cursors is None else put.cursors[long]
                starts.append(offsets[cursors] + _HEADER + put.at[long])
                sizes.append(put.counts[long])
        if not starts or 2 * sum(int(size.sum()) for size in sizes) < total:
            return np.zeros(total, np.uint8)
        data = np.empty(total, np.uint8)
        start = np.concatenate(starts)
        order = np.argsort(start)
        end = (start + np.concatenate(sizes))[order]
        for a, b in zip([0, *end.tolist()], [*start[order].tolist(), total], strict=True):
            data[a:b] = 0
        return data


def _place(put: _Numbers | _Pieces | _Records) -> int | None:
    """Where it lies in all samples, if those are of one size and it lies alike in each."""
    if put.cursors is not None or not bool((put.at == put.at[0]).all()):
        return None
    if isinstance(put, _Pieces) and not bool((put.counts == put.counts[0]).all()):
        return None
    return int(put.at[0])


def _put_rows(put: _Numbers | _Pieces | _Records, table: Table, first: int) -> None:
    """What lies at one place in all samples, into those from ``first`` on."""
    start, rows = table.start + _HEADER + int(put.at[0]), table.rows
    inner = Table(table.data, rows, start, table.stride, table.order)
    if isinstance(put, _Numbers):
        values = put.values if isinstance(put.values, int) else put.values[first : first + rows]
        inner.column(put.code, 0)[...] = values
    elif isinstance(put, _Records):
        put.fill(inner, first)
    elif size := int(put.counts[0]):
        strided = np.ndarray((rows,), f"V{size}", table.data, start, (table.stride,))
        strided[...] = put.data[first * size : (first + rows) * size].view(f"V{size}")


def blank_and_fill(fill: Fill, table: Table) -> None:
    """Fill a table in new memory, which is made zero by the same parts: paddings need no care then."""

    def blank(part: Table, first: int) -> None:
        part.data[part.start : part.start + part.rows * part.stride] = 0
        fill(part, first)

    fill_in_parts(blank, table)


def fill_in_parts(fill: Fill, table: Table) -> None:
    """Fill a table by parts that a cache holds, for each of its columns touches all of its lines."""
    rows = max(1, _PART // table.stride)
    for first in range(0, table.rows, rows):
        start, count = table.start + first * table.stride, min(rows, table.rows - first)
        fill(Table(table.data, count, start, table.stride, table.order), first)


def blank_records(rows: int, size: int, order: str) -> Table:
    return Table(np.zeros(rows * size, np.uint8), rows, 0, size, order)


def as_bytes(values: Values, dtype: Any) -> U8:
    """The values' bytes, converted if they are of another type."""
    return np.ascontiguousarray(values.astype(dtype, copy=False)).view(np.uint8).reshape(-1)
