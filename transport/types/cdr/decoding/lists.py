"""Sequences, arrays whose layout is not fixed, and maps: [DHEADER], [count], elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ....limits import LIST_LEAVES_PER_BYTE_MAX
from ...model import Array, Map, Sequence, Type, is_bytes
from ..cursors import (
    CURSORS_STEP,
    I64,
    Cursors,
    Mask,
    Position,
    Stepper,
    agreed,
    align,
    anywhere,
    each,
    offsets_of,
    some,
    spread,
)
from ..layout import Regular, Rules
from ..table import Table
from .arrays import binary_array, fixed_reader, list_array, nested_lists, offsets_of_lengths
from .leaves import absent_leaves, leaves
from .nodes import ValueDecoder

#: Bounds the least size of an element, so that its product with a 32-bit count fits 64 bits.
_LEAST_MAX = 1 << 30
TOO_MANY = "more elements than the sample has room for"
TOO_WIDE = "more absent members than its size allows"
TOO_LONG_TO_SCAN = "too many elements of varying size"


class CollectionDecoder:
    """``element`` is the node of the elements; the elements of a map are structs of key and value."""

    def __init__(
        self,
        rules: Rules,
        t: Sequence | Array | Map,
        element_type: Type,
        element: ValueDecoder,
        target: pa.DataType | None,
    ) -> None:
        self.target = target
        self.length = t.length if isinstance(t, Array) else None
        self.dimensions = t.dimensions if isinstance(t, Array) else ()
        self.has_header = rules.starts_with_header(t)
        self.regular = rules.regular(element_type) if self.length is None or self.has_header else None
        self.element = element
        self.read = None
        if self.regular is not None and element.target is not None:
            self.read = fixed_reader(self.regular.element, element.target)
        self.is_blob = is_bytes(element_type)
        self.least = min(max(1, rules.least_size(element_type)), _LEAST_MAX)
        absent, most = absent_leaves(element_type), leaves(element_type, element.target)
        #: Of an element, for its sample and for the call; 0: the sample's bytes bound them anyway
        self.absent_leaves = absent if absent > LIST_LEAVES_PER_BYTE_MAX * self.least else 0
        self.leaves = most if most > self.least else 0
        self.width = 1
        self.kinds = []  # of the lists around the elements of an array
        if target is not None:
            for _ in self.dimensions:
                self.kinds.append(target)
                target = target.value_type

    def skip_values(self, cursors: Cursors, pos: Position) -> Position:
        inner = cursors
        if self.has_header:
            pos = align(pos, 4) + 4
            header_end = cursors.require(pos + cursors.checked_counts(pos - 4))
            inner = cursors.narrow(header_end)
        pos, counts = self._counts(pos, inner.checked_counts)
        if some(over := counts * self.least > inner.limit - pos):
            inner.fail(over, TOO_MANY)
        if self.absent_leaves and inner.budget is not None:
            made = np.where(inner.bad, 0, each(counts, len(inner)) * self.absent_leaves)
            if some(over := inner.budget.take_leaves(inner.base + pos, made)):
                inner.fail(over, TOO_WIDE)
        if inner.any_bad:
            counts = np.where(inner.bad, 0, counts)
        if self.leaves and inner.budget is not None:
            elements = counts * len(inner) if isinstance(counts, int) else int(counts.sum())
            inner.budget.charge(elements * self.leaves)
        if self.regular is not None:
            pos = inner.require(_regular_end(self.regular, pos, counts))
        else:
            walk = _ElementPass(self.element, inner, counts, inner.found is not None)
            pos = walk.go(pos)
            if inner.found is not None:
                inner.found[self] = (walk.starts, pos)
        # a newer type may have added members at the end of elements: trust the DHEADER
        return header_end if self.has_header else pos

    def decode_values(self, cursors: Cursors, pos: Position) -> tuple[pa.Array, Position]:
        header_end = None
        inner = cursors
        if self.has_header:
            pos = align(pos, 4) + 4
            header_end = pos + cursors.counts(pos - 4)
            inner = cursors.narrow(header_end)
        pos, counts = self._counts(pos, inner.counts)
        offsets = offsets_of_lengths(counts, len(cursors))
        if self.regular is not None:
            end = _regular_end(self.regular, pos, counts)
            if self.is_blob and self.length is None:
                array = binary_array(inner.gather(pos, counts), offsets, self.target)
                return array, end if header_end is None else header_end
            array = self._regular_elements(self.regular, inner, pos, counts)
        else:
            array, end = self._elements(inner, pos, counts)
        end = end if header_end is None else header_end
        if self.length is not None:
            return nested_lists(array, self.dimensions, self.kinds), end
        return list_array(array, offsets, self.target), end

    def step_value(self, stepper: Stepper, at: int) -> int:
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
            at = self.element.step_value(stepper, at)
            if at > stepper.limit or not stepper.charge(self.element.width):
                return stepper.limit + 1
        return at

    def _counts(self, pos: Position, read: Callable[[Position], Position]) -> tuple[Position, Position]:
        if self.length is not None:
            return pos, self.length
        pos = align(pos, 4)
        return pos + 4, read(pos)

    def _elements(self, cursors: Cursors, pos: Position, counts: Position) -> tuple[pa.Array, Position]:
        """The elements of lists whose elements vary in size or alignment."""
        known = None if cursors.found is None else cursors.found.get(self)
        if known is None:
            walk = _ElementPass(self.element, cursors, counts, True)
            known = walk.starts, walk.go(pos)
        owners = np.repeat(np.arange(len(cursors)), counts)
        elements = cursors.pick(owners)
        array, _ = self.element.decode_values(elements, known[0])
        cursors.adopt(owners, elements)
        return array, known[1]

    def _regular_elements(
        self, regular: Regular, cursors: Cursors, pos: Position, counts: Position
    ) -> pa.Array:
        start = align(pos, regular.alignment)
        read = self.read
        assert read is not None
        if isinstance(start, int) and isinstance(counts, int) and cursors.stride:
            table = Table(cursors.data, len(cursors), cursors.start + start, cursors.stride, cursors.order)
            array = read(table, ((counts, regular.stride),))
            for where, reason in table.wrong:
                cursors.refuse(where, reason)
            return array
        if regular.size == regular.stride:
            data = cursors.gather(start, counts * regular.size)
        else:
            at = spread(cursors.base + start, each(counts, len(cursors)), regular.stride)
            data = anywhere(cursors.data, f"V{regular.size}")[at].view(np.uint8)
        table = Table(data, len(data) // regular.size, 0, regular.size, cursors.order, owned=True)
        array = read(table, ())
        if table.wrong:
            owners = np.repeat(np.arange(len(cursors)), counts)
            for where, reason in table.wrong:
                cursors.refuse(_of_owners(owners[where], len(cursors)), reason)
        return array


def _of_owners(owners: I64, count: int) -> Mask:
    marked = np.zeros(count, np.bool_)
    marked[owners] = True
    return marked


def _regular_end(regular: Regular, pos: Position, counts: Position) -> Position:
    # No padding before the elements of an empty sequence.
    end = align(pos, regular.alignment) + (counts - 1) * regular.stride + regular.size
    if isinstance(counts, int):
        return end if counts > 0 else pos
    return np.where(counts > 0, end, pos)


class _ElementPass:
    """Steps over elements, the k-th element of all lists at once, and records their starts if asked to."""

    def __init__(self, element: ValueDecoder, cursors: Cursors, counts: Position, notes: bool) -> None:
        self.element, self.cursors = element, cursors
        self.counts = each(counts, len(cursors))
        self.offsets = offsets_of(self.counts)
        self.starts = np.empty(int(self.offsets[-1]) if notes else 0, np.int64)
        self.notes = notes
        # at most half of the budget, so that one malformed list leaves enough for the others
        self.reserve = 0 if cursors.budget is None else cursors.budget.left // 2

    def go(self, start: Position) -> Position:
        """Step over all elements from ``start`` on. Returns the position of their end."""
        k = 0
        active = np.flatnonzero(self.counts > 0)
        if isinstance(start, int) and len(active) == len(self.cursors) > CURSORS_STEP:
            start, k = self._go_together(start, int(self.counts.min()))
            active = np.flatnonzero((self.counts > k) & ~self.cursors.bad)
            if not len(active):
                return start
        pos = each(start, len(self.cursors)).copy()
        while len(active):
            if len(active) <= CURSORS_STEP:
                self._go_singly(pos, active, k)
                break
            if not self._charge():
                self.cursors.fail(_of_owners(active, len(pos)), TOO_LONG_TO_SCAN)
                break
            if self.notes:
                self.starts[self.offsets[active] + k] = pos[active]
            child = self.cursors.pick(active)
            pos[active] = self.element.skip_values(child, pos[active])
            self.cursors.adopt(active, child)
            k += 1
            active = active[(self.counts[active] > k) & ~child.bad]
        return agreed(pos)

    def _go_together(self, start: int, count: int) -> tuple[Position, int]:
        """Step over elements while all lists agree. Returns the position, and the number of elements before it."""
        pos: Position = start
        for k in range(count):
            if not isinstance(pos, int) or self.cursors.any_bad or not self._charge():
                return pos, k
            if self.notes:
                self.starts[self.offsets[:-1] + k] = pos
            pos = self.element.skip_values(self.cursors.fork(), pos)
        return pos, count

    def _charge(self) -> bool:
        budget = self.cursors.budget
        return budget is None or budget.walk(CURSORS_STEP * self.element.width, self.reserve)

    def _go_singly(self, pos: I64, active: I64, k: int) -> None:
        """Step over the rest of a few long lists, element by element; then check all elements at once."""
        cursors, budget, width = self.cursors, self.cursors.budget, self.element.width
        view = memoryview(cursors.data)
        limits = each(cursors.limit, len(cursors))
        found: list[int] = []
        owners: list[int] = []
        # the short ones first, so that a long one does not use up their steps
        for lane in active[np.argsort(self.counts[active], kind="stable")].tolist():
            most = (1 << 62) if budget is None else budget.longest
            stepper = Stepper(view, int(cursors.base[lane]), int(limits[lane]), cursors.order, most)
            at, own, reason = int(pos[lane]), [], None
            for _ in range(k, int(self.counts[lane])):
                own.append(at)
                at = self.element.step_value(stepper, at)
                if at > stepper.limit or not stepper.charge(width):
                    reason = TOO_MANY if stepper.left >= 0 else TOO_LONG_TO_SCAN
                    break
            if budget is not None:
                steps = most - stepper.left
                if reason is TOO_LONG_TO_SCAN:
                    budget.left -= steps  # by itself, whatever the others are
                else:
                    budget.walk(steps, budget.left - budget.left // 2)
            if reason is not None:
                cursors.fail(_of_owners(np.array([lane]), len(cursors)), reason)
                continue
            pos[lane] = at
            if self.notes:
                self.starts[self.offsets[lane] + k : self.offsets[lane + 1]] = own
            if budget is not None:
                found += own
                owners += [lane] * len(own)
        if found:
            index = np.array(owners, np.int64)
            child = cursors.pick(index)
            self.element.skip_values(child, np.array(found, np.int64))
            cursors.adopt(index, child)
