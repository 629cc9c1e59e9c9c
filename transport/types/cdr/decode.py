"""CDR to Arrow columns: a type is compiled into nodes, each of which walks all samples at once.

A node has two passes. ``skip`` moves the position column behind a value and marks every lane in which the
value does not lie wholly inside the payload; it is the only place that meets unchecked bytes. ``decode``
runs on the lanes that passed and builds the Arrow array; it can still meet bytes that are no value (of an
enum, of UTF-8) and marks those lanes ``wrong``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ..arrow import arrow_type
from ..model import (
    Array,
    Extensibility,
    Member,
    Sequence,
    String,
    Struct,
    Type,
    is_bytes,
)
from .lanes import I64, LANES_STEP, Lanes, Stepper, align, anywhere, gather_bytes, offsets_of, spread
from .layout import Block, Fixed, Number, Regular, Rules, fuse
from .parameters import (
    MutableRecord,
    Node,
    OptionalFlag,
    OptionalParameter,
    ParameterList,
    decode_some,
    skip_some,
)
from .values import (
    Table,
    binary_array,
    fixed_array,
    list_array,
    nested_lists,
    string_array,
    struct_array,
)


class FixedValue:
    """A value of fixed layout that no block took in."""

    def __init__(self, fixed: Fixed, alignment: int, size: int) -> None:
        self.fixed = fixed
        self.alignment = alignment
        self.size = size

    def skip(self, lanes: Lanes, pos: I64) -> I64:
        return lanes.require(align(pos, self.alignment) + self.size)

    def decode(self, lanes: Lanes, pos: I64) -> tuple[pa.Array, I64]:
        pos = align(pos, self.alignment)
        table = gather_records(lanes, pos, self.size)
        array = fixed_array(self.fixed, table)
        if table.bad is not None:
            lanes.wrong |= table.bad
        return array, pos + self.size

    def step(self, stepper: Stepper, at: int) -> int:
        return at + -at % self.alignment + self.size


def gather_records(lanes: Lanes, pos: I64, size: int) -> Table:
    """The next ``size`` bytes of every lane, as a table."""
    data = anywhere(lanes.data, f"V{size}")[lanes.base + pos].view(np.uint8)
    return Table(data, len(lanes), 0, size, lanes.order)


class Text:
    """A string: uint32 length with its NUL, bytes, NUL (RTPS 2.5 §10.2.1.2). Length 0 is taken as empty."""

    def skip(self, lanes: Lanes, pos: I64) -> I64:
        pos = align(pos, 4)
        lengths = lanes.checked_counts(pos)
        end = lanes.require(pos + 4 + lengths)
        lanes.bad |= (lanes.checked("u1", np.maximum(end - 1, 0)) != 0) & (lengths > 0)
        return end

    def decode(self, lanes: Lanes, pos: I64) -> tuple[pa.Array, I64]:
        pos = align(pos, 4)
        lengths = lanes.counts(pos)
        text = np.maximum(lengths - 1, 0)
        array, bad = string_array(gather_bytes(lanes.data, lanes.base + pos + 4, text), offsets_of(text))
        if bad is not None:
            lanes.wrong |= bad
        return array, pos + 4 + lengths

    def step(self, stepper: Stepper, at: int) -> int:
        return stepper.behind_header(at)


class Collection:
    """Sequences, and arrays whose layout is not fixed: [DHEADER], [count], elements."""

    def __init__(self, rules: Rules, t: Sequence | Array) -> None:
        self.element_type = t.element
        self.length = t.length if isinstance(t, Array) else None
        self.dimensions = t.dimensions if isinstance(t, Array) else ()
        self.has_header = rules.starts_with_header(t)
        self.regular = rules.regular(t.element) if self.length is None or self.has_header else None
        self.element = compile_node(rules, t.element)
        self.least = max(1, rules.least_size(t.element))
        self.width = _width(self.element)

    def skip(self, lanes: Lanes, pos: I64) -> I64:
        inner = lanes
        if self.has_header:
            pos = align(pos, 4) + 4
            header_end = lanes.require(pos + lanes.checked_counts(pos - 4))
            inner = lanes.narrow(header_end)
        pos, counts = self._counts(pos, inner.checked_counts)
        inner.bad |= counts * self.least > inner.limit - pos
        counts = np.where(inner.bad, 0, counts)
        if self.regular is not None:
            pos = inner.require(_regular_end(self.regular, pos, counts))
        else:
            pos = self._walk(inner, pos, counts, None)
        # what a newer element type may have added behind its end is nobody's: trust the DHEADER
        return header_end if self.has_header else pos

    def decode(self, lanes: Lanes, pos: I64) -> tuple[pa.Array, I64]:
        header_end = None
        inner = lanes
        if self.has_header:
            pos = align(pos, 4) + 4
            header_end = pos + lanes.counts(pos - 4)
            inner = lanes.narrow(header_end)
        pos, counts = self._counts(pos, inner.counts)
        offsets = offsets_of(counts)
        if self.regular is not None:
            array = _regular_array(self, self.regular, inner, pos, counts)
            end = _regular_end(self.regular, pos, counts)
        else:
            starts = np.empty(int(offsets[-1]), np.int64)
            end = self._walk(inner, pos, counts, starts)
            owners = np.repeat(np.arange(len(lanes)), counts)
            elements = inner.pick(owners)
            array, _ = self.element.decode(elements, starts)
            lanes.adopt(owners, elements)
        end = end if header_end is None else header_end
        if self.length is not None:
            return nested_lists(array, self.dimensions), end
        return (array if is_bytes(self.element_type) else list_array(array, offsets)), end

    def step(self, stepper: Stepper, at: int) -> int:
        if self.has_header:
            return stepper.behind_header(at)
        count = self.length
        if count is None:
            at += -at & 3
            count = stepper.u4(at)
            at += 4
        if count * self.least > stepper.limit - at:
            return stepper.limit + 1
        if self.regular is not None:
            start = at + -at % self.regular.alignment
            return start + (count - 1) * self.regular.stride + self.regular.size if count else at
        for _ in range(count):
            at = self.element.step(stepper, at)
            if at > stepper.limit or not stepper.charge(self.width):
                return stepper.limit + 1
        return at

    def _counts(self, pos: I64, read: Callable[[I64], I64]) -> tuple[I64, I64]:
        if self.length is not None:
            return pos, np.full(len(pos), self.length, np.int64)
        pos = align(pos, 4)
        return pos + 4, read(pos)

    def _walk(self, lanes: Lanes, pos: I64, counts: I64, starts: I64 | None) -> I64:
        """Step over the elements, the k-th of all lanes at once; note where they start."""
        pos = pos.copy()
        offsets = offsets_of(counts)
        budget = lanes.budget
        # half of it at most, so that one bad sample does not use up what the others need
        reserve = 0 if budget is None else budget.left // 2
        k = 0
        active = np.flatnonzero(counts > 0)
        while len(active):
            if len(active) <= LANES_STEP:
                self._walk_few(lanes, pos, active, k, counts, starts)
                break
            if budget is not None:
                budget.left -= LANES_STEP * self.width
                if budget.left < reserve:
                    lanes.bad[active] = True
                    break
            if starts is not None:
                starts[offsets[active] + k] = pos[active]
            child = lanes.pick(active)
            pos[active] = self.element.skip(child, pos[active])
            lanes.adopt(active, child)
            k += 1
            active = active[(counts[active] > k) & ~child.bad]
        return pos

    def _walk_few(self, lanes: Lanes, pos: I64, active: I64, k: int, counts: I64, starts: I64 | None) -> None:
        """The rest of a few long lists, element by element; then all elements are checked at once."""
        view = memoryview(lanes.data)
        offsets = offsets_of(counts)
        budget = lanes.budget
        found: list[int] = []
        owners: list[int] = []
        # the short ones first: they shall not starve because of a long one
        for lane in active[np.argsort(counts[active], kind="stable")].tolist():
            left = (1 << 62) if budget is None else budget.left // 2
            stepper = Stepper(view, int(lanes.base[lane]), int(lanes.limit[lane]), lanes.order, left)
            at, own = int(pos[lane]), []
            for _ in range(k, int(counts[lane])):
                own.append(at)
                at = self.element.step(stepper, at)
                if at > stepper.limit or not stepper.charge(self.width):
                    lanes.bad[lane] = True
                    break
            if budget is not None:
                budget.left -= left - stepper.left
            if lanes.bad[lane]:
                continue
            pos[lane] = at
            if starts is not None:
                starts[offsets[lane] + k : offsets[lane + 1]] = own
            elif own:
                found += own
                owners += [lane] * len(own)
        if found:
            index = np.array(owners, np.int64)
            child = lanes.pick(index)
            self.element.skip(child, np.array(found, np.int64))
            lanes.adopt(index, child)


def _width(node: Node) -> int:
    """How many things of varying size or place are met in stepping over a value."""
    if isinstance(node, OptionalFlag | OptionalParameter):
        return _width(node.node)
    if isinstance(node, MutableRecord):
        return sum(_width(inner) for _, inner in node.members)
    if isinstance(node, Record):
        return sum(1 if isinstance(step, Block) else _width(step[1]) for step in node.steps)
    return 1


def _regular_end(regular: Regular, pos: I64, counts: I64) -> I64:
    # No padding before the elements of an empty sequence.
    end = align(pos, regular.alignment) + (counts - 1) * regular.stride + regular.size
    return np.where(counts > 0, end, pos)


def _regular_array(node: Collection, regular: Regular, lanes: Lanes, pos: I64, counts: I64) -> pa.Array:
    starts = lanes.base + align(pos, regular.alignment)
    if is_bytes(node.element_type):
        return binary_array(gather_bytes(lanes.data, starts, counts), offsets_of(counts))
    if isinstance(regular.element, Number):
        data = gather_bytes(lanes.data, starts, counts * regular.size)
        total, stride = len(data) // regular.size, regular.size
    else:
        at = spread(starts, counts, regular.stride)
        data = anywhere(lanes.data, f"V{regular.size}")[at].view(np.uint8)
        total, stride = len(at), regular.size
    table = Table(data, total, 0, stride, lanes.order)
    array = fixed_array(regular.element, table)
    if table.bad is not None:
        lanes.wrong[np.repeat(np.arange(len(counts)), counts)[table.bad]] = True
    return array


class Record:
    """A struct. With a DHEADER (appendable in XCDR2), what lies behind the known members is skipped, and
    members behind its end, which the writer's older type lacks, are null; those of the key must be there, and
    all of a struct that is ``complete``."""

    def __init__(self, rules: Rules, struct: Struct, modulus: int = 1) -> None:
        self.struct = struct
        self.delimited = rules.is_delimited(struct)
        self.complete = False
        steps = fuse(rules, struct.members, 4 if self.delimited else modulus)
        self.steps = [s if isinstance(s, Block) else (s, _member_node(rules, s)) for s in steps]
        self.members = [(m, _member_node(rules, m)) for m in struct.members] if self.delimited else []

    @property
    def block(self) -> Block | None:
        """The layout of the whole struct if it is fixed."""
        if len(self.steps) == 1 and isinstance(self.steps[0], Block) and not self.delimited:
            return self.steps[0]
        return None

    def skip(self, lanes: Lanes, pos: I64) -> I64:
        if not self.delimited:
            return self._skip_steps(lanes, pos)
        pos = align(pos, 4) + 4
        end = lanes.require(pos + lanes.checked_counts(pos - 4))
        whole = lanes.narrow(end)
        whole.bad = lanes.bad.copy()
        self._skip_steps(whole, pos)
        partial = np.flatnonzero(whole.bad & ~lanes.bad)
        if len(partial):
            child = lanes.narrow(end).pick(partial)
            at = pos[partial]
            for member, node in self.members:
                present = at < child.limit
                if member.key or self.complete:
                    child.bad |= ~present
                at = skip_some(node, child, at, present)
            lanes.adopt(partial, child)
        return end

    def step(self, stepper: Stepper, at: int) -> int:
        if self.delimited:
            return stepper.behind_header(at)
        for step in self.steps:
            if isinstance(step, Block):
                at += -at % step.alignment + step.size
            else:
                at = step[1].step(stepper, at)
        return at

    def decode(self, lanes: Lanes, pos: I64) -> tuple[pa.Array, I64]:
        arrays, pos = self.decode_members(lanes, pos)
        names = [member.name for member in self.struct.members]
        return struct_array([arrays[name] for name in names], names), pos

    def decode_members(
        self, lanes: Lanes, pos: I64, wanted: frozenset[str] | None = None
    ) -> tuple[dict[str, pa.Array], I64]:
        """The arrays of the members (of the wanted ones), by name."""
        if not self.delimited:
            return self._decode_steps(lanes, pos, wanted)
        pos = align(pos, 4) + 4
        end = pos + lanes.counts(pos - 4)
        inner = lanes.narrow(end)
        probe = lanes.narrow(end)
        probe.bad = np.zeros(len(lanes), np.bool_)
        self._skip_steps(probe, pos)
        if not probe.bad.any():
            return self._decode_steps(inner, pos, wanted)[0], end
        arrays = {}
        for member, node in self.members:
            array, pos = decode_some(node, arrow_type(member.type), inner, pos, pos < inner.limit)
            arrays[member.name] = array
        return arrays, end

    def _skip_steps(self, lanes: Lanes, pos: I64) -> I64:
        for step in self.steps:
            if isinstance(step, Block):
                pos = lanes.require(align(pos, step.alignment) + step.size)
            else:
                pos = step[1].skip(lanes, pos)
        return pos

    def _decode_steps(
        self, lanes: Lanes, pos: I64, wanted: frozenset[str] | None
    ) -> tuple[dict[str, pa.Array], I64]:
        arrays: dict[str, pa.Array] = {}
        for step in self.steps:
            if isinstance(step, Block):
                pos = align(pos, step.alignment)
                if wanted is None or any(name in wanted for name, _ in step.members):
                    table = gather_records(lanes, pos, step.size)
                    arrays.update(block_arrays(step, table, wanted))
                    if table.bad is not None:
                        lanes.wrong |= table.bad
                pos = pos + step.size
                continue
            member, node = step
            if wanted is None or member.name in wanted:
                arrays[member.name], pos = node.decode(lanes, pos)
            else:
                pos = node.skip(lanes, pos)
        return arrays, pos


def block_arrays(block: Block, table: Table, wanted: frozenset[str] | None) -> dict[str, pa.Array]:
    return {
        name: fixed_array(fixed, table) for name, fixed in block.members if wanted is None or name in wanted
    }


def _member_node(rules: Rules, member: Member) -> Node:
    node = compile_node(rules, member.type)
    if not member.optional:
        return node
    kind = arrow_type(member.type)
    return OptionalParameter(node, kind) if rules.version == 1 else OptionalFlag(node, kind)


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


def compile_struct(rules: Rules, struct: Struct, modulus: int = 1) -> Record | MutableRecord:
    """The node of a struct that starts at a position aligned to ``modulus``."""
    if struct.extensibility is not Extensibility.MUTABLE:
        return Record(rules, struct, modulus)
    nodes = [compile_node(rules, member.type) for member in struct.members]
    return ParameterList(struct, nodes) if rules.version == 1 else MutableRecord(struct, nodes)
