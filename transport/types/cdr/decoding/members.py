"""Members that carry a header of their own on the wire: @optional members, and all members of @mutable structs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ....limits import UNKNOWN_MEMBERS_MAX
from ...model import Struct
from ..cursors import CURSORS_STEP, I64, TOO_SHORT, Cursors, Mask, Position, Stepper, agreed, align, each
from ..member_headers import (
    LONG_MUST_UNDERSTAND,
    MEMBER_ID_MASK,
    PID_EXTENDED,
    PID_LIST_END,
    PID_MASK,
    PID_MUST_UNDERSTAND,
)
from .arrays import struct_array
from .nodes import ValueDecoder, decode_some, skip_some
from .scalars import find

NOT_UNDERSTOOD = "must-understand member unknown"


class OptionalFlagDecoder:
    """An @optional member in XCDR2: one byte shows whether it is present (XTypes 1.3 §7.4.3.5.3 rule 20)."""

    def __init__(self, node: ValueDecoder) -> None:
        self.node, self.target, self.width = node, node.target, node.width

    def skip_values(self, cursors: Cursors, pos: Position) -> Position:
        present = cursors.checked("u1", pos) != 0
        return skip_some(self.node, cursors, pos + 1, present)

    def decode_values(self, cursors: Cursors, pos: Position) -> tuple[pa.Array, Position]:
        present = cursors.read_numbers("u1", pos) != 0
        return decode_some(self.node, cursors, pos + 1, present)

    def step_value(self, stepper: Stepper, at: int) -> int:
        return self.node.step_value(stepper, at + 1) if stepper.u1(at) else at + 1


class OptionalParameterDecoder:
    """An @optional member in XCDR1: a parameter header, with nothing behind it if the member is absent."""

    def __init__(self, node: ValueDecoder) -> None:
        self.node, self.target, self.width = node, node.target, node.width

    def skip_values(self, cursors: Cursors, pos: Position) -> Position:
        start, end = self._bounds(cursors, pos)
        present: Mask | bool = end > start
        if cursors.any_bad:
            present = present & ~cursors.bad
        skip_some(self.node, cursors.within(start, end), 0, present)
        return end

    def decode_values(self, cursors: Cursors, pos: Position) -> tuple[pa.Array, Position]:
        start, end = self._bounds(cursors, pos)
        return decode_some(self.node, cursors.within(start, end), 0, end > start)[0], end

    def step_value(self, stepper: Stepper, at: int) -> int:
        return _step_parameter(stepper, at)[1]

    def _bounds(self, cursors: Cursors, pos: Position) -> tuple[Position, Position]:
        _, start, end, _ = _parameter(cursors, each(pos, len(cursors)))
        # all alike or not, the values are read where they are: the origin is theirs
        return agreed(start), agreed(end)


def _parameter(cursors: Cursors, pos: I64) -> tuple[I64, I64, I64, Mask]:
    """The member id (special ids unchanged), start and end of the value, and the must-understand flag."""
    pos = align(pos, 4)
    head = cursors.checked("u2", pos).astype(np.int64)
    length = cursors.checked("u2", pos + 2).astype(np.int64)
    member_id, must_understand = head & PID_MASK, head & PID_MUST_UNDERSTAND != 0
    start = pos + 4
    extended = np.flatnonzero(member_id == PID_EXTENDED)
    if len(extended):
        child = cursors.pick(extended)
        long_id = child.checked("u4", start[extended]).astype(np.int64)
        member_id[extended] = long_id & MEMBER_ID_MASK
        must_understand[extended] = long_id & LONG_MUST_UNDERSTAND != 0
        length[extended] = child.checked("u4", start[extended] + 4)
        start[extended] += 8
        cursors.adopt(extended, child)
    # only the short form distinguishes the list's end from a member
    member_id[(member_id == PID_LIST_END) & (head & PID_MASK == PID_LIST_END)] = -1
    return member_id, start, each(cursors.require(start + length), len(cursors)), must_understand


def _step_parameter(stepper: Stepper, at: int) -> tuple[int, int]:
    """The id as it is in the short header, and the end of the value."""
    at += -at & 3
    member_id, length = stepper.u2(at) & PID_MASK, stepper.u2(at + 2)
    if member_id == PID_EXTENDED:
        at, length = at + 8, stepper.u4(at + 8)
    return member_id, at + 4 + length


class MemberIds:
    """The ids of the members to be found in a list, in ascending order, and the member of each."""

    def __init__(self, ids: list[int]) -> None:
        self.count = len(ids)
        self.own, self.members = np.unique(np.array(ids, np.int64), return_index=True)


class MemberListDecoder:
    """Finds the members of a mutable type in XCDR2: EMHEADERs after a DHEADER (XTypes 1.3 §7.4.3.4.2)."""

    def find(
        self, cursors: Cursors, pos: Position, ids: MemberIds
    ) -> tuple[list[Position], list[Position], Position]:
        """Starts of the members of these ids (-1: absent), their ends, and the end of the list."""
        pos = align(pos, 4) + 4
        end = cursors.require(pos + cursors.checked_counts(pos - 4))
        starts, ends, _ = self._find(cursors.narrow(end), pos, ids)
        return starts, ends, end

    def value(self, cursors: Cursors, start: Position, end: Position) -> tuple[Cursors, Position]:
        """The cursors and the position for reading a member; both are undefined where the member is absent."""
        return cursors.narrow(end), max(start, 0) if isinstance(start, int) else np.maximum(start, 0)

    def step_members(self, stepper: Stepper, at: int, members: int) -> int:
        return stepper.behind_header(at)

    def _find(
        self, cursors: Cursors, start: Position, ids: MemberIds
    ) -> tuple[list[Position], list[Position], Position]:
        starts = np.full((ids.count, len(cursors)), -1, np.int64)
        ends = np.zeros((ids.count, len(cursors)), np.int64)
        pos = each(start, len(cursors)).copy()
        limits = each(cursors.limit, len(cursors))
        active = self._more(pos, limits, np.arange(len(cursors)))
        for _ in range(ids.count + UNKNOWN_MEMBERS_MAX):
            if not len(active):
                break
            if cursors.budget is not None and not cursors.budget.walk(CURSORS_STEP):
                break
            child = cursors.pick(active)
            member_id, value, end, must_understand = self._header(child, pos[active])
            index, unknown = find(ids.own, member_id)
            known = ~unknown
            members = ids.members[index[known]]
            starts[members, active[known]] = value[known]
            ends[members, active[known]] = end[known]
            if (not_ours := unknown & must_understand & (member_id >= 0)).any():
                child.fail(not_ours, NOT_UNDERSTOOD)
            cursors.adopt(active, child)
            pos[active] = end
            active = self._more(pos, limits, active[(member_id >= 0) & ~child.bad])
        if len(active):
            endless = np.zeros(len(cursors), np.bool_)
            endless[active] = True
            cursors.fail(endless, "member list without an end")
        return [agreed(row) for row in starts], [agreed(row) for row in ends], agreed(pos)

    def _more(self, pos: I64, limits: I64, active: I64) -> I64:
        """The cursors whose lists have more members; in XCDR2 the DHEADER determines this."""
        return active[pos[active] < limits[active]]

    def _header(self, cursors: Cursors, pos: I64) -> tuple[I64, I64, I64, Mask]:
        pos = align(pos, 4)
        header = cursors.checked("u4", pos).astype(np.int64)
        length_code = (header >> 28) & 7
        pos = pos + 4
        next_int = np.zeros(len(pos), np.int64)
        long = np.flatnonzero(length_code >= 4)
        if len(long):
            child = cursors.pick(long)
            next_int[long] = child.checked("u4", pos[long])
            cursors.adopt(long, child)
        # LC 0..3: 1, 2, 4 or 8 bytes. 4: NEXTINT bytes behind it. 5..7: NEXTINT is the value's own first
        # word and counts elements of 1, 4 or 8 bytes.
        unit = np.array([1, 2, 4, 8, 1, 1, 4, 8], np.int64)[length_code]
        size = np.where(length_code < 4, unit, next_int * unit + np.where(length_code > 4, 4, 0))
        pos += np.where(length_code == 4, 4, 0)
        end = each(cursors.require(pos + size, TOO_SHORT), len(cursors))
        return header & MEMBER_ID_MASK, pos, end, header >> 31 != 0


class ParameterListDecoder(MemberListDecoder):
    """The same for XCDR1: parameters up to a sentinel; each value has an origin of its own."""

    def find(
        self, cursors: Cursors, pos: Position, ids: MemberIds
    ) -> tuple[list[Position], list[Position], Position]:
        return self._find(cursors, pos, ids)

    def value(self, cursors: Cursors, start: Position, end: Position) -> tuple[Cursors, Position]:
        return cursors.within(max(start, 0) if isinstance(start, int) else np.maximum(start, 0), end), 0

    def step_members(self, stepper: Stepper, at: int, members: int) -> int:
        for _ in range(members + UNKNOWN_MEMBERS_MAX):
            member_id, at = _step_parameter(stepper, at)
            if member_id == PID_LIST_END or at > stepper.limit or not stepper.charge(1):
                return at
        return stepper.limit + 1

    def _more(self, pos: I64, limits: I64, active: I64) -> I64:
        return active

    def _header(self, cursors: Cursors, pos: I64) -> tuple[I64, I64, I64, Mask]:
        return _parameter(cursors, pos)


class MutableRecordDecoder:
    """A @mutable struct. Members that are not in the list are null; key members must be present."""

    is_open_ended = False

    def __init__(
        self,
        struct: Struct,
        members: MemberListDecoder,
        nodes: list[ValueDecoder],
        target: pa.DataType | None,
    ) -> None:
        self.struct, self.members, self.nodes, self.target = struct, members, nodes, target
        self.ids = MemberIds([member.id for member in struct.members])
        self.width = sum(node.width for node in nodes)

    def skip_values(self, cursors: Cursors, pos: Position) -> Position:
        found = self.members.find(cursors, pos, self.ids)
        if cursors.found is not None:
            cursors.found[self] = found
        for member, node, start, end in zip(self.struct.members, self.nodes, *found[:2], strict=True):
            present: Mask | bool = start >= 0
            if member.key and not np.all(present):
                cursors.fail(~np.asarray(present), f"member {member.name!r} is missing")
            if cursors.any_bad:
                present = present & ~cursors.bad
            skip_some(node, *self.members.value(cursors, start, end), present)
        return found[2]

    def decode_values(self, cursors: Cursors, pos: Position) -> tuple[pa.Array, Position]:
        arrays, end = self.decode_members(cursors, pos)
        return struct_array(arrays, self.target, len(cursors)), end

    def decode_members(self, cursors: Cursors, pos: Position) -> tuple[dict[str, pa.Array], Position]:
        found = None if cursors.found is None else cursors.found.get(self)
        if found is None:
            found = self.members.find(cursors, pos, self.ids)
        arrays = {}
        for member, node, start, end in zip(self.struct.members, self.nodes, *found[:2], strict=True):
            if node.target is not None:
                inner, at = self.members.value(cursors, start, end)
                arrays[member.name], _ = decode_some(node, inner, at, start >= 0)
        return arrays, found[2]

    def step_value(self, stepper: Stepper, at: int) -> int:
        return self.members.step_members(stepper, at, len(self.nodes))
