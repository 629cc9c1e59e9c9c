"""Members that carry a header of their own on the wire: @optional ones, and all of @mutable structs."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa

from ..arrow import arrow_type
from ..model import Struct
from .lanes import I64, LANES_STEP, Lanes, Mask, Stepper, align
from .values import struct_array

#: Members unknown to us that we step over in one struct, before we call it malformed.
_UNKNOWN_MAX = 1024

# Parameter headers of XCDR1 (XTypes 1.3 §7.4.1.2): 16-bit id with flags, 16-bit length
_PID_MASK = 0x3FFF
_PID_EXTENDED = 0x3F01  # a 32-bit id and length follow
_PID_LIST_END = 0x3F02
_MUST_UNDERSTAND = 0x4000
_MEMBER_ID_MASK = 0x0FFF_FFFF


class Node(Protocol):
    def skip(self, lanes: Lanes, pos: I64) -> I64: ...
    def decode(self, lanes: Lanes, pos: I64) -> tuple[pa.Array, I64]: ...
    def step(self, stepper: Stepper, at: int) -> int: ...


def skip_some(node: Node, lanes: Lanes, pos: I64, present: Mask) -> I64:
    """Skip a value where there is one."""
    if present.all():
        return node.skip(lanes, pos)
    index = np.flatnonzero(present)
    child = lanes.pick(index)
    pos = pos.copy()
    pos[index] = node.skip(child, pos[index])
    lanes.adopt(index, child)
    return pos


def decode_some(node: Node, kind: pa.DataType, lanes: Lanes, pos: I64, present: Mask) -> tuple[pa.Array, I64]:
    """Decode a value where there is one, null elsewhere."""
    if present.all():
        return node.decode(lanes, pos)
    index = np.flatnonzero(present)
    if not len(index):
        return pa.nulls(len(lanes), kind), pos
    child = lanes.pick(index)
    array, end = node.decode(child, pos[index])
    lanes.adopt(index, child)
    pos = pos.copy()
    pos[index] = end
    return array.take(pa.array(np.cumsum(present) - 1, mask=~present)), pos


class OptionalFlag:
    """An @optional member in XCDR2: one byte says whether it is there (XTypes 1.3 §7.4.3.5.3 rule 20)."""

    def __init__(self, node: Node, kind: pa.DataType) -> None:
        self.node = node
        self.kind = kind

    def skip(self, lanes: Lanes, pos: I64) -> I64:
        present = lanes.checked("u1", pos) != 0
        return skip_some(self.node, lanes, pos + 1, present)

    def decode(self, lanes: Lanes, pos: I64) -> tuple[pa.Array, I64]:
        present = lanes.read("u1", pos) != 0
        return decode_some(self.node, self.kind, lanes, pos + 1, present)

    def step(self, stepper: Stepper, at: int) -> int:
        return self.node.step(stepper, at + 1) if stepper.u1(at) else at + 1


class OptionalParameter:
    """An @optional member in XCDR1: a parameter header, and nothing behind it if it is not there."""

    def __init__(self, node: Node, kind: pa.DataType) -> None:
        self.node = node
        self.kind = kind

    def skip(self, lanes: Lanes, pos: I64) -> I64:
        _, start, end, _ = _parameter(lanes, pos)
        skip_some(self.node, lanes.within(start, end), np.zeros_like(pos), (end > start) & ~lanes.bad)
        return end

    def decode(self, lanes: Lanes, pos: I64) -> tuple[pa.Array, I64]:
        _, start, end, _ = _parameter(lanes, pos)
        inner = lanes.within(start, end)
        array, _ = decode_some(self.node, self.kind, inner, np.zeros_like(pos), end > start)
        return array, end

    def step(self, stepper: Stepper, at: int) -> int:
        return _step_parameter(stepper, at)[1]


def _parameter(lanes: Lanes, pos: I64) -> tuple[I64, I64, I64, Mask]:
    """Member id (an XCDR1 special id as it is), start and end of the value, whether it must be understood."""
    pos = align(pos, 4)
    head = lanes.checked("u2", pos).astype(np.int64)
    length = lanes.checked("u2", pos + 2).astype(np.int64)
    member_id, must_understand = head & _PID_MASK, head & _MUST_UNDERSTAND != 0
    start = pos + 4
    extended = np.flatnonzero(member_id == _PID_EXTENDED)
    if len(extended):
        child = lanes.pick(extended)
        long_id = child.checked_counts(start[extended])
        member_id[extended] = long_id & _MEMBER_ID_MASK
        must_understand[extended] = long_id & 0x4000_0000 != 0
        length[extended] = child.checked_counts(start[extended] + 4)
        start[extended] += 8
        lanes.adopt(extended, child)
    # the list's end is told from a member by its short form only
    member_id[(member_id == _PID_LIST_END) & (head & _PID_MASK == _PID_LIST_END)] = -1
    return member_id, start, lanes.require(start + length), must_understand


def _step_parameter(stepper: Stepper, at: int) -> tuple[int, int]:
    """The id as it is in the short header, and the end of the value."""
    at += -at & 3
    member_id, length = stepper.u2(at) & _PID_MASK, stepper.u2(at + 2)
    if member_id == _PID_EXTENDED:
        at, length = at + 8, stepper.u4(at + 8)
    return member_id, at + 4 + length


class MutableRecord:
    """A @mutable struct in XCDR2: a DHEADER, and members behind EMHEADERs (XTypes 1.3 §7.4.3.4.2)."""

    block = None  # nothing in it is fixed

    def __init__(self, struct: Struct, nodes: list[Node]) -> None:
        self.struct = struct
        self.members = list(zip(struct.members, nodes, strict=True))

    def skip(self, lanes: Lanes, pos: I64) -> I64:
        pos = align(pos, 4) + 4
        end = lanes.require(pos + lanes.checked_counts(pos - 4))
        inner = lanes.narrow(end)
        self._skip(inner, *self._find(inner, pos)[:2])
        return end

    def step(self, stepper: Stepper, at: int) -> int:
        return stepper.behind_header(at)

    def _skip(self, lanes: Lanes, starts: list[I64], ends: list[I64]) -> None:
        for i, (member, node) in enumerate(self.members):
            if member.key:
                lanes.bad |= starts[i] < 0
            present = (starts[i] >= 0) & ~lanes.bad
            inner, at = self._value(lanes, starts[i], ends[i])
            skip_some(node, inner, at, present)

    def decode(self, lanes: Lanes, pos: I64) -> tuple[pa.Array, I64]:
        arrays, pos = self.decode_members(lanes, pos)
        names = [member.name for member in self.struct.members]
        return struct_array([arrays[name] for name in names], names), pos

    def decode_members(
        self, lanes: Lanes, pos: I64, wanted: frozenset[str] | None = None
    ) -> tuple[dict[str, pa.Array], I64]:
        pos = align(pos, 4) + 4
        end = pos + lanes.counts(pos - 4)
        inner = lanes.narrow(end)
        return self._decode(inner, *self._find(inner, pos)[:2], wanted), end

    def _decode(
        self, lanes: Lanes, starts: list[I64], ends: list[I64], wanted: frozenset[str] | None
    ) -> dict[str, pa.Array]:
        arrays = {}
        for i, (member, node) in enumerate(self.members):
            if wanted is None or member.name in wanted:
                inner, at = self._value(lanes, starts[i], ends[i])
                kind = arrow_type(member.type)
                arrays[member.name], _ = decode_some(node, kind, inner, at, starts[i] >= 0)
        return arrays

    def _value(self, lanes: Lanes, start: I64, end: I64) -> tuple[Lanes, I64]:
        """The lanes and positions a member is read at."""
        return lanes.narrow(end), np.maximum(start, 0)

    def _find(self, lanes: Lanes, pos: I64) -> tuple[list[I64], list[I64], I64]:
        """Where each of our members starts (-1: absent) and ends, and the end of the list."""
        starts = [np.full(len(lanes), -1, np.int64) for _ in self.members]
        ends = [np.zeros(len(lanes), np.int64) for _ in self.members]
        pos = pos.copy()
        active = self._more(lanes, pos, np.arange(len(lanes)))
        for _ in range(len(self.members) + _UNKNOWN_MAX):
            if not len(active):
                return starts, ends, pos
            if lanes.budget is not None:
                lanes.budget.left -= LANES_STEP
                if lanes.budget.left < 0:
                    break
            child = lanes.pick(active)
            member_id, start, end, must_understand = self._header(child, pos[active])
            known = member_id < 0
            for i, (member, _) in enumerate(self.members):
                here = member_id == member.id
                known |= here
                starts[i][active[here]] = start[here]
                ends[i][active[here]] = end[here]
            child.bad |= ~known & must_understand
            lanes.adopt(active, child)
            pos[active] = end
            active = self._more(lanes, pos, active[(member_id >= 0) & ~child.bad])
        lanes.bad[active] = True
        return starts, ends, pos

    def _more(self, lanes: Lanes, pos: I64, active: I64) -> I64:
        """Which of the lanes go on; here, the DHEADER says how far."""
        return active[pos[active] < lanes.limit[active]]

    def _header(self, lanes: Lanes, pos: I64) -> tuple[I64, I64, I64, Mask]:
        pos = align(pos, 4)
        header = lanes.checked_counts(pos)
        length_code = (header >> 28) & 7
        pos = pos + 4
        next_int = np.zeros(len(pos), np.int64)
        long = np.flatnonzero(length_code >= 4)
        if len(long):
            child = lanes.pick(long)
            next_int[long] = child.checked_counts(pos[long])
            lanes.adopt(long, child)
        # LC 0..3: 1, 2, 4 or 8 bytes. 4: NEXTINT bytes behind it. 5..7: NEXTINT is the value's own first
        # word and counts elements of 1, 4 or 8 bytes.
        unit = np.array([1, 2, 4, 8, 1, 1, 4, 8], np.int64)[length_code]
        size = np.where(length_code < 4, unit, next_int * unit + np.where(length_code > 4, 4, 0))
        pos += np.where(length_code == 4, 4, 0)
        return header & _MEMBER_ID_MASK, pos, lanes.require(pos + size), header >> 31 != 0


class ParameterList(MutableRecord):
    """A @mutable struct in XCDR1: parameters up to a sentinel; each value has an origin of its own."""

    def skip(self, lanes: Lanes, pos: I64) -> I64:
        starts, ends, end = self._find(lanes, pos)
        self._skip(lanes, starts, ends)
        return end

    def step(self, stepper: Stepper, at: int) -> int:
        for _ in range(len(self.members) + _UNKNOWN_MAX):
            member_id, at = _step_parameter(stepper, at)
            if member_id == _PID_LIST_END or at > stepper.limit or not stepper.charge(1):
                return at
        return stepper.limit + 1

    def decode_members(
        self, lanes: Lanes, pos: I64, wanted: frozenset[str] | None = None
    ) -> tuple[dict[str, pa.Array], I64]:
        starts, ends, end = self._find(lanes, pos)
        return self._decode(lanes, starts, ends, wanted), end

    def _value(self, lanes: Lanes, start: I64, end: I64) -> tuple[Lanes, I64]:
        return lanes.within(np.maximum(start, 0), end), np.zeros_like(start)

    def _more(self, lanes: Lanes, pos: I64, active: I64) -> I64:
        return active

    def _header(self, lanes: Lanes, pos: I64) -> tuple[I64, I64, I64, Mask]:
        return _parameter(lanes, pos)
