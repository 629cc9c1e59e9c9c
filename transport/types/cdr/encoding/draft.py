"""The layout of samples: one pass computes where every value goes, then memory is allocated and filled.

A position column has one offset for each row, from the origin to which CDR aligns: the start of the sample, or of a
parameter's value in XCDR1. Rows are samples, or elements inside them.
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

#: Writes values into a table whose first row is the row with that number.
Fill: TypeAlias = Callable[[Table, int], None]
_HEADER = 4
#: Bytes of records that are filled at once.
_PART = 1 << 20


class ValueEncoder(Protocol):
    """Encodes values of one type. ``first``: the alignment of its first part; ``widest``: the greatest alignment of any
    part. The layout of a value depends on its position modulo ``widest`` alone."""

    first: int
    widest: int

    def lay_out(self, walk: LayoutPass, column: Column, pos: I64) -> I64:
        """Put the column's values, one for each row, at ``pos``; returns the positions behind them."""
        ...


class LayoutPass:
    """A pass that only measures."""

    def __init__(self, tables: dict[int, I64] | None = None) -> None:
        self.tables: dict[int, I64] = {} if tables is None else tables

    def numbers(self, code: str, pos: I64, values: Values | int) -> None:
        """Put numbers at aligned positions."""

    def pieces(self, pos: I64, counts: I64, data: Callable[[str], U8]) -> None:
        """Put ``counts[i]`` bytes for each row; ``data`` returns all of them, one after the other, for a byte order."""

    def records(self, pos: I64, size: int, fill: Fill) -> None:
        """Put records of ``size`` bytes; ``fill`` writes them into a table of zeros whose first row it is given."""

    def pick(self, index: I64) -> LayoutPass:
        """The pass for the rows that ``index`` selects."""
        return self

    def within(self, start: I64) -> LayoutPass:
        """The pass for values that have an origin of their own at ``start``."""
        return self

    def ends(self, node: ValueEncoder, column: Column, count: int) -> I64:
        """The ends of ``count`` values of a column for each start 0, ``first``, 2 * ``first`` ... below ``widest``,
        (starts, count). Computed once for a column."""
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
    """A pass that keeps what is put; ``cursors`` has the sample of each row (None: one row for each sample)."""

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
        """The samples: encapsulation headers, and bodies which end at ``ends``."""
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
            if samples.is_uniform and _common_offset(put) is not None:
                _put_rows(put, Table(data, samples.count, 0, samples.stride, self.order), 0)
            else:
                self._put_anywhere(put, data, put.at + (body if put.cursors is None else body[put.cursors]))
        return samples

    def _alike(self, rows: int, size: int, header: int) -> Samples:
        """Samples of one size."""
        placed = [put for put in self._puts if _common_offset(put) is not None]
        table = Table(np.empty(rows * size, np.uint8), rows, 0, size, self.order)

        def fill(part: Table, first: int) -> None:
            Table(part.data, part.rows, part.start, size, "<").column("u4", 0)[...] = header
            for put in placed:
                _put_rows(put, part, first)

        blank_and_fill(fill, table)
        for put in self._puts:
            if _common_offset(put) is None:
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
        """Memory that is zero where nothing is put, so that padding and NULs need not be written. Long pieces are left
        unset, so that they cost no more than their copy."""
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


def _common_offset(put: _Numbers | _Pieces | _Records) -> int | None:
    """The offset of ``put`` if it is the same in every sample, and so is its size."""
    if put.cursors is not None or not bool((put.at == put.at[0]).all()):
        return None
    if isinstance(put, _Pieces) and not bool((put.counts == put.counts[0]).all()):
        return None
    return int(put.at[0])


def _put_rows(put: _Numbers | _Pieces | _Records, table: Table, first: int) -> None:
    """Write what has the same offset in all samples into the samples from ``first`` on."""
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
    """Fill a table in new memory, part by part; each part is zeroed first, so that padding need not be written."""

    def blank(part: Table, first: int) -> None:
        part.data[part.start : part.start + part.rows * part.stride] = 0
        fill(part, first)

    fill_in_parts(blank, table)


def fill_in_parts(fill: Fill, table: Table) -> None:
    """Fill a table by parts that fit a cache, because each column of a part touches all its cache lines."""
    rows = max(1, _PART // table.stride)
    for first in range(0, table.rows, rows):
        start, count = table.start + first * table.stride, min(rows, table.rows - first)
        fill(Table(table.data, count, start, table.stride, table.order), first)


def blank_records(rows: int, size: int, order: str) -> Table:
    return Table(np.zeros(rows * size, np.uint8), rows, 0, size, order)


def as_bytes(values: Values, dtype: Any) -> U8:
    """The values' bytes, converted if they are of another type."""
    return np.ascontiguousarray(values.astype(dtype, copy=False)).view(np.uint8).reshape(-1)
