"""Structs whose members follow one another."""

from __future__ import annotations

import pyarrow as pa

from ....value_classes import value
from ...model import Struct
from ..cursors import Cursors, Position, Stepper, align, some
from ..layout import Block, Fixed, origin
from .arrays import fixed_reader, struct_array
from .nodes import ValueDecoder, read_some, records, refuse_records, skip_some


class BlockDecoder:
    """Consecutive members of fixed layout; ``columns`` are those in the schema."""

    def __init__(self, block: Block, columns: list[tuple[str, Fixed, pa.DataType]]) -> None:
        self.columns = [(name, fixed_reader(fixed, target)) for name, fixed, target in columns]
        self.alignment, self.size = block.alignment, block.size
        self.needs = block.size
        self.wanted = bool(columns)
        self.width = 1
        # a block without columns in the schema is not copied
        names = [name for name, _ in block.members]
        ends = [origin(fixed) for _, fixed in block.members[1:]] + [block.size]
        wanted = [names.index(name) for name, _, _ in columns]
        self.low = origin(block.members[min(wanted)][1]) if wanted else 0
        self.high = ends[max(wanted)] if wanted else 0

    def skip_values(self, cursors: Cursors, pos: Position) -> Position:
        return cursors.require(align(pos, self.alignment) + self.size)

    def decode_values(self, cursors: Cursors, pos: Position, arrays: dict[str, pa.Array]) -> Position:
        pos = align(pos, self.alignment)
        table = records(cursors, pos, self.low, self.high)
        for name, read in self.columns:
            arrays[name] = read(table, ())
        refuse_records(cursors, table)
        return pos + self.size

    def step_value(self, stepper: Stepper, at: int) -> int:
        return at + -at % self.alignment + self.size


class SingleDecoder:
    """A member that needs a node of its own."""

    needs = 1

    def __init__(self, name: str, node: ValueDecoder, alignment: int) -> None:
        self.name, self.node, self.alignment = name, node, alignment
        self.wanted = node.target is not None
        self.width = node.width

    def skip_values(self, cursors: Cursors, pos: Position) -> Position:
        return self.node.skip_values(cursors, pos)

    def decode_values(self, cursors: Cursors, pos: Position, arrays: dict[str, pa.Array]) -> Position:
        arrays[self.name], pos = self.node.decode_values(cursors, pos)
        return pos

    def step_value(self, stepper: Stepper, at: int) -> int:
        return self.node.step_value(stepper, at)


@value
class PartDecoder:
    """One member of a block, for samples that end inside the block; ``needed``: a sample without it is malformed."""

    name: str
    node: ValueDecoder
    alignment: int
    step: int  # of the record, which it belongs to
    needed: bool


class RecordDecoder:
    """A struct whose members follow one another.

    With a DHEADER (appendable in XCDR2), bytes behind the known members are skipped. Members behind the end, which the
    writer's older type lacks, are null; so are ``parts``, the members of a block that the sample ends in.
    """

    def __init__(
        self,
        struct: Struct,
        steps: list[BlockDecoder | SingleDecoder],
        parts: list[PartDecoder],
        target: pa.DataType | None,
        *,
        delimited: bool,
    ) -> None:
        self.struct, self.steps, self.parts, self.target = struct, steps, parts, target
        self.delimited = delimited
        self.width = sum(step.width for step in steps)
        self.last = max((i for i, step in enumerate(steps) if step.wanted), default=-1)

    @property
    def is_open_ended(self) -> bool:
        return bool(self.parts)

    def skip_values(self, cursors: Cursors, pos: Position) -> Position:
        if not self.delimited:
            return self._skip_steps(cursors, pos)
        pos = align(pos, 4) + 4
        end = cursors.require(pos + cursors.checked_counts(pos - 4))
        self._skip_steps(cursors.narrow(end), pos)
        return end

    def step_value(self, stepper: Stepper, at: int) -> int:
        if self.delimited:
            return stepper.behind_header(at)
        for step in self.steps:
            at = step.step_value(stepper, at)
        return at

    def decode_values(self, cursors: Cursors, pos: Position) -> tuple[pa.Array, Position]:
        arrays, end = self.decode_members(cursors, pos)
        return struct_array(arrays, self.target, len(cursors)), end

    def decode_members(self, cursors: Cursors, pos: Position) -> tuple[dict[str, pa.Array], Position]:
        """The arrays of the wanted members, by name."""
        if not self.delimited:
            return self._decode_steps(cursors, pos)
        pos = align(pos, 4) + 4
        end = pos + cursors.counts(pos - 4)
        return self._decode_steps(cursors.narrow(end), pos)[0], end

    def _ends_before(self, i: int, cursors: Cursors, pos: Position) -> bool:
        """Whether any payload ends before the end of step ``i``."""
        if not self.parts:
            return False
        step = self.steps[i]
        missing = align(pos, step.alignment) + step.needs > cursors.limit
        return some(missing) and some(missing & ~cursors.bad)

    def _skip_steps(self, cursors: Cursors, pos: Position) -> Position:
        found = []
        for i, step in enumerate(self.steps):
            if self._ends_before(i, cursors, pos):
                return self._skip_parts(i, cursors, pos)
            found.append(pos)
            pos = step.skip_values(cursors, pos)
        if cursors.found is not None:
            cursors.found[self] = (found, pos)
        return pos

    def _skip_parts(self, first: int, cursors: Cursors, pos: Position) -> Position:
        present = ~cursors.bad
        for part in self.parts:
            if part.step >= first:
                present = present & (align(pos, part.alignment) < cursors.limit)
                if part.needed and not present.all():
                    cursors.fail(~present, f"member {part.name!r} is missing")
                pos = skip_some(part.node, cursors, pos, present)
        return pos

    def _decode_steps(self, cursors: Cursors, pos: Position) -> tuple[dict[str, pa.Array], Position]:
        arrays: dict[str, pa.Array] = {}
        known = None if cursors.found is None else cursors.found.get(self)
        if known is not None:
            for step, start in zip(self.steps, known[0], strict=True):
                if step.wanted:
                    step.decode_values(cursors, start, arrays)
            return arrays, known[1]
        for i, step in enumerate(self.steps):
            if self.delimited and i > self.last:
                break
            if self._ends_before(i, cursors, pos):
                self._decode_parts(i, cursors, pos, arrays)
                break
            pos = step.decode_values(cursors, pos, arrays) if step.wanted else step.skip_values(cursors, pos)
        return arrays, pos

    def _decode_parts(self, first: int, cursors: Cursors, pos: Position, arrays: dict[str, pa.Array]) -> None:
        present = ~cursors.bad
        for part in self.parts:
            if part.step >= first:
                present = present & (align(pos, part.alignment) < cursors.limit)
                array, pos = read_some(part.node, cursors, pos, present)
                if array is not None:
                    arrays[part.name] = array
