"""Unions: a discriminator, and the branch that it selects, if it selects one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from ...model import Enum, Primitive, PrimitiveKind, Union, number_code, number_size
from ...model import Scalar as ScalarType
from ..cursors import Cursors, Position, Stepper, Values, agreed, align
from .arrays import struct_array
from .members import MemberIds, MemberListDecoder
from .nodes import ValueDecoder, decode_some, read_some, skip_some
from .scalars import fault, find, scalar_converter

#: Returns the column of the discriminator by its name; empty if the schema does not have it.
ReadDiscriminator: TypeAlias = Callable[[Cursors, Values], dict[str, pa.Array]]


class Selection:
    """The branch that a discriminator selects; that of an enum must be one of its literals."""

    def __init__(self, union: Union) -> None:
        assert isinstance(union.discriminator, ScalarType)
        self.type: ScalarType = union.discriminator
        self.by_label = {label: i for i, case in enumerate(union.cases) for label in case.labels}
        # labels of a uint64 wrap around, as its values do
        labels = {(label + (1 << 63)) % (1 << 64) - (1 << 63): i for label, i in self.by_label.items()}
        self.labels = np.array(sorted(labels), np.int64)
        self.branches = np.array([labels[label] for label in sorted(labels)], np.int64)
        self.is_boolean = self.type == Primitive(PrimitiveKind.BOOLEAN)
        self.default = next((i for i, case in enumerate(union.cases) if case.default), -1)
        literals = union.discriminator.literals if isinstance(union.discriminator, Enum) else ()
        self.literals = np.array(sorted({value for _, value in literals}), np.int64)

    def check(self, cursors: Cursors, values: Values) -> None:
        if len(self.literals):
            unknown = find(self.literals, values.astype(np.int64))[1]
            if unknown.any():
                cursors.fail(unknown, fault(self.type))

    def branch(self, values: Values) -> Position:
        """The number of the branch, -1 for none."""
        numbers = values.astype(np.int64)
        if self.is_boolean:
            numbers = (numbers != 0).astype(np.int64)
        selector = agreed(numbers)
        if isinstance(selector, int):
            numbers = np.array([selector], np.int64)
        if not len(self.labels):
            return self.default
        index, other = find(self.labels, numbers)
        branches = np.where(other, self.default, self.branches[index])
        return int(branches[0]) if isinstance(selector, int) else agreed(branches)

    def branch_of(self, value: int) -> int:
        """The same for one value."""
        return self.by_label.get(int(value != 0) if self.is_boolean else value, self.default)


class PlainUnionDecoder:
    """A union whose branch follows the discriminator. In XCDR2 an appendable union has a DHEADER, and its branch may be
    missing."""

    def __init__(
        self,
        union: Union,
        nodes: list[ValueDecoder],
        alignment: int,
        target: pa.DataType | None,
        *,
        delimited: bool,
    ) -> None:
        self.union, self.nodes, self.target, self.delimited = union, nodes, target, delimited
        self.selection = Selection(union)
        self.read_discriminator = _discriminator_reader(union, self.selection.type, target)
        self.alignment = alignment
        self.code, self.size = number_code(self.selection.type), number_size(self.selection.type)
        self.width = 1 + max((node.width for node in nodes), default=0)

    def skip_values(self, cursors: Cursors, pos: Position) -> Position:
        inner, end = cursors, None
        if self.delimited:
            pos = align(pos, 4) + 4
            end = cursors.require(pos + cursors.checked_counts(pos - 4))
            inner = cursors.narrow(end)
        pos = align(pos, self.alignment)
        values = inner.checked(self.code, pos)
        if not cursors.any_bad:
            self.selection.check(inner, values)
        elif len(good := np.flatnonzero(~cursors.bad)):
            child = inner.pick(good)
            self.selection.check(child, values[good])
            inner.adopt(good, child)
        pos = pos + self.size
        branch = self.selection.branch(values)
        for i in _selected(branch):
            present = branch == i
            if cursors.any_bad:
                present = present & ~cursors.bad
            if self.delimited:
                present = present & (pos < inner.limit)
            pos = skip_some(self.nodes[i], inner, pos, present)
        return pos if end is None else end

    def decode_values(self, cursors: Cursors, pos: Position) -> tuple[pa.Array, Position]:
        inner, end = cursors, None
        if self.delimited:
            pos = align(pos, 4) + 4
            end = pos + cursors.counts(pos - 4)
            inner = cursors.narrow(end)
        pos = align(pos, self.alignment)
        values = inner.read_numbers(self.code, pos)
        arrays = self.read_discriminator(cursors, values)
        pos = pos + self.size
        branch = self.selection.branch(values)
        for case, node, i in zip(self.union.cases, self.nodes, range(len(self.nodes)), strict=True):
            present = branch == i
            if self.delimited:
                present = present & (pos < inner.limit)
            array, pos = read_some(node, inner, pos, present)
            if array is not None:
                arrays[case.name] = array
        return struct_array(arrays, self.target, len(cursors)), pos if end is None else end

    def step_value(self, stepper: Stepper, at: int) -> int:
        if self.delimited:
            return stepper.behind_header(at)
        at += -at % self.alignment
        branch = self.selection.branch_of(stepper.number(self.code, at))
        at += self.size
        return at if branch < 0 else self.nodes[branch].step_value(stepper, at)


class MutableUnionDecoder:
    """A @mutable union: the discriminator, with member id 0, and the branch are members of a list."""

    def __init__(
        self, union: Union, members: MemberListDecoder, nodes: list[ValueDecoder], target: pa.DataType | None
    ) -> None:
        self.union, self.members, self.nodes, self.target = union, members, nodes, target
        self.selection = Selection(union)
        self.read_discriminator = _discriminator_reader(union, self.selection.type, target)
        self.code = number_code(self.selection.type)
        self.ids = MemberIds([0, *(case.id for case in union.cases)])
        self.width = 2 + max((node.width for node in nodes), default=0)

    def skip_values(self, cursors: Cursors, pos: Position) -> Position:
        starts, ends, end = self.members.find(cursors, pos, self.ids)
        if not np.all(starts[0] >= 0):
            cursors.fail(~np.asarray(starts[0] >= 0), "union without a discriminator")
        inner, at = self.members.value(cursors, starts[0], ends[0])
        values = inner.checked(self.code, at)
        good = np.flatnonzero(~cursors.bad)
        if len(good):
            child = inner.pick(good)
            self.selection.check(child, values[good])
            inner.adopt(good, child)
        branch = self.selection.branch(values)
        for i in _selected(branch):
            present = (branch == i) & (starts[i + 1] >= 0) & ~cursors.bad
            skip_some(self.nodes[i], *self.members.value(cursors, starts[i + 1], ends[i + 1]), present)
        return end

    def decode_values(self, cursors: Cursors, pos: Position) -> tuple[pa.Array, Position]:
        starts, ends, end = self.members.find(cursors, pos, self.ids)
        inner, at = self.members.value(cursors, starts[0], ends[0])
        values = inner.read_numbers(self.code, at)
        arrays = self.read_discriminator(cursors, values)
        branch = self.selection.branch(values)
        for i, (case, node) in enumerate(zip(self.union.cases, self.nodes, strict=True)):
            if node.target is not None:
                inner, at = self.members.value(cursors, starts[i + 1], ends[i + 1])
                present = (branch == i) & (starts[i + 1] >= 0)
                arrays[case.name], _ = decode_some(node, inner, at, present)
        return struct_array(arrays, self.target, len(cursors)), end

    def step_value(self, stepper: Stepper, at: int) -> int:
        return self.members.step_members(stepper, at, 2)


def _selected(branch: Position) -> list[int]:
    """The branches that are selected by any sample: a union may have thousands."""
    numbers = [branch] if isinstance(branch, int) else np.unique(branch).tolist()
    return [number for number in numbers if number >= 0]


def _discriminator_reader(union: Union, t: ScalarType, target: pa.DataType | None) -> ReadDiscriminator:
    index = -1 if target is None else target.get_field_index(union.discriminator_name)
    if target is None or index < 0:
        return lambda cursors, values: {}
    convert = scalar_converter(t, target.field(index).type)

    def read(cursors: Cursors, values: Values) -> dict[str, pa.Array]:
        array, bad = convert(values, False)
        if bad is not None:
            cursors.refuse(bad, fault(t))
        return {union.discriminator_name: array}

    return read
