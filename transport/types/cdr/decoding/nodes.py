"""A type is compiled into a tree of nodes, each of which reads all samples at once.

A node has two passes. ``skip`` moves the position behind a value and marks as ``bad`` every payload that does not
contain the whole value; it is the only pass that reads unchecked bytes. ``decode`` runs on the payloads that passed and
builds the Arrow array; it can still find bytes that are not a value (of an enum, of UTF-8) and marks those payloads
``wrong``. Values outside the schema are only skipped.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa

from ..cursors import Cursors, Mask, Position, Stepper, align, anywhere, at, each, some
from ..layout import Fixed, origin
from ..table import Table
from .arrays import (
    TIME_FIELDS,
    fixed_reader,
    offsets_of_lengths,
    string_array,
    time_of,
    wstring_array,
)


class ValueDecoder(Protocol):
    target: pa.DataType | None  # None: the value is only skipped
    width: int  # the number of parts of varying size or alignment that a step over a value passes

    def skip_values(self, cursors: Cursors, pos: Position) -> Position: ...
    def decode_values(self, cursors: Cursors, pos: Position) -> tuple[pa.Array, Position]: ...
    def step_value(self, stepper: Stepper, at: int) -> int: ...


def settled(present: Mask | bool) -> Mask | bool:
    """A mask, or one bool if it is the same for all."""
    if isinstance(present, bool):
        return present
    return True if present.all() else present if present.any() else False


def skip_some(node: ValueDecoder, cursors: Cursors, pos: Position, present: Mask | bool) -> Position:
    """Skip a value where it is present."""
    present = settled(present)
    if isinstance(present, bool):
        return node.skip_values(cursors, pos) if present else pos
    index = np.flatnonzero(present)
    child = cursors.pick(index)
    end = node.skip_values(child, at(pos, index))
    cursors.adopt(index, child)
    pos = each(pos, len(cursors)).copy()
    pos[index] = end
    return pos


def decode_some(
    node: ValueDecoder, cursors: Cursors, pos: Position, present: Mask | bool
) -> tuple[pa.Array, Position]:
    """Decode a value where it is present; null elsewhere."""
    present = settled(present)
    if isinstance(present, bool):
        return node.decode_values(cursors, pos) if present else (pa.nulls(len(cursors), node.target), pos)
    index = np.flatnonzero(present)
    child = cursors.pick(index)
    array, end = node.decode_values(child, at(pos, index))
    cursors.adopt(index, child)
    pos = each(pos, len(cursors)).copy()
    pos[index] = end
    return array.take(pa.array(np.cumsum(present) - 1, mask=~present)), pos


def read_some(
    node: ValueDecoder, cursors: Cursors, pos: Position, present: Mask | bool
) -> tuple[pa.Array | None, Position]:
    """Decode a value if the schema has it, else skip it."""
    if node.target is None:
        return None, skip_some(node, cursors, pos, present)
    return decode_some(node, cursors, pos, present)


def records(cursors: Cursors, pos: Position, low: int, high: int) -> Table:
    """The bytes from ``low`` to ``high`` after a position, as a table."""
    if isinstance(pos, int) and cursors.stride:
        return Table(cursors.data, len(cursors), cursors.start + pos, cursors.stride, cursors.order)
    data = anywhere(cursors.data, f"V{high - low}")[cursors.base + (pos + low)].view(np.uint8)
    return Table(data, len(cursors), -low, high - low, cursors.order, owned=True)


def refuse_records(cursors: Cursors, table: Table) -> None:
    """Mark the payloads whose records are wrong."""
    for where, reason in table.wrong:
        cursors.refuse(where, reason)


class FixedValueDecoder:
    """A value of fixed layout that is not part of a block."""

    width = 1

    def __init__(self, fixed: Fixed, alignment: int, size: int, target: pa.DataType | None) -> None:
        self.alignment, self.size, self.target = alignment, size, target
        self.read = None if target is None else fixed_reader(fixed, target)
        self.low = origin(fixed)

    def skip_values(self, cursors: Cursors, pos: Position) -> Position:
        return cursors.require(align(pos, self.alignment) + self.size)

    def decode_values(self, cursors: Cursors, pos: Position) -> tuple[pa.Array, Position]:
        pos = align(pos, self.alignment)
        assert self.read is not None
        table = records(cursors, pos, self.low, self.size)
        array = self.read(table, ())
        refuse_records(cursors, table)
        return array, pos + self.size

    def step_value(self, stepper: Stepper, at: int) -> int:
        return at + -at % self.alignment + self.size


class TextDecoder:
    """A string: uint32 length including the NUL, bytes, NUL (RTPS 2.5 §10.2.1.2). Length 0 is an empty string; NULs
    inside are ordinary characters."""

    width = 1

    def __init__(self, target: pa.DataType | None) -> None:
        self.target = target

    def skip_values(self, cursors: Cursors, pos: Position) -> Position:
        pos = align(pos, 4) + 4
        end = cursors.require(pos + cursors.checked_counts(pos - 4))
        # of a length of 0 this is its own last byte
        open_ended = cursors.checked("u1", end - 1) != 0
        if some(open_ended):
            cursors.fail(open_ended, "string not terminated")
        return end

    def decode_values(self, cursors: Cursors, pos: Position) -> tuple[pa.Array, Position]:
        pos = align(pos, 4) + 4
        lengths = cursors.counts(pos - 4)
        text = max(lengths - 1, 0) if isinstance(lengths, int) else np.maximum(lengths - 1, 0)
        offsets = offsets_of_lengths(text, len(cursors))
        array, bad = string_array(cursors.gather(pos, text), offsets, self.target)
        if bad is not None:
            cursors.refuse(bad, "not UTF-8")
        return array, pos + lengths

    def step_value(self, stepper: Stepper, at: int) -> int:
        return stepper.behind_header(at)


class WideTextDecoder:
    """A wstring: uint32 count of bytes, UTF-16 code units (see :mod:`..layout`)."""

    width = 1

    def __init__(self, target: pa.DataType | None) -> None:
        self.target = target

    def skip_values(self, cursors: Cursors, pos: Position) -> Position:
        pos = align(pos, 4) + 4
        sizes = cursors.checked_counts(pos - 4)
        if some(odd := sizes & 1 != 0):
            cursors.fail(odd, "wstring of an odd number of bytes")
        return cursors.require(pos + sizes)

    def decode_values(self, cursors: Cursors, pos: Position) -> tuple[pa.Array, Position]:
        pos = align(pos, 4) + 4
        sizes = cursors.counts(pos - 4)
        units = cursors.gather(pos, sizes).view(f"{cursors.order}u2").astype(np.uint16)
        array, bad = wstring_array(units, offsets_of_lengths(sizes, len(cursors)) // 2, self.target)
        if bad is not None:
            cursors.refuse(bad, "not UTF-16")
        return array, pos + sizes

    def step_value(self, stepper: Stepper, at: int) -> int:
        return stepper.behind_header(at)


class TimeDecoder:
    """ROS 2's Time or Duration as one column; ``node`` reads its ``TIME_FIELDS``."""

    def __init__(self, node: ValueDecoder, target: pa.DataType) -> None:
        assert node.target == TIME_FIELDS
        self.node, self.target, self.width = node, target, node.width

    def skip_values(self, cursors: Cursors, pos: Position) -> Position:
        return self.node.skip_values(cursors, pos)

    def decode_values(self, cursors: Cursors, pos: Position) -> tuple[pa.Array, Position]:
        array, end = self.node.decode_values(cursors, pos)
        return time_of(array, self.target), end

    def step_value(self, stepper: Stepper, at: int) -> int:
        return self.node.step_value(stepper, at)
