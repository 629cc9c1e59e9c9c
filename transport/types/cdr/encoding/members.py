"""Writing members that carry a header of their own: @optional members, and all members of @mutable types."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...model import (
    SCALARS,
    Array,
    Case,
    Map,
    Member,
    Sequence,
    String,
    Struct,
    Type,
    Union,
    WString,
    has_dheader,
    number_size,
)
from ..cursors import I64, align
from ..layout import Rules
from ..member_headers import (
    LENGTH_CODE,
    LONG_MUST_UNDERSTAND,
    MUST_UNDERSTAND,
    NEXTINT,
    PID_EXTENDED,
    PID_LIST_END,
    PID_MUST_UNDERSTAND,
)
from .columns import Column, Fields, Maybe, Selected
from .draft import LayoutPass, ValueEncoder

#: The long form of a parameter's header, which Cyclone DDS always writes: any length and any member id fit, so that the
#: size of the header does not depend on the value. The must-understand flag is part of this form.
_LONG_FORM: Final = PID_EXTENDED | PID_MUST_UNDERSTAND
_LIST_END: Final = PID_LIST_END | PID_MUST_UNDERSTAND


def lay_some(node: ValueEncoder, walk: LayoutPass, column: Maybe, pos: I64) -> I64:
    """Put the values that are present; the positions of other rows do not change."""
    if len(column.rows) == len(pos):
        return node.lay_out(walk, column.values, pos)
    end = pos.copy()
    if len(column.rows):
        end[column.rows] = node.lay_out(walk.pick(column.rows), column.values, pos[column.rows])
    return end


class OptionalFlagEncoder:
    """An @optional member in XCDR2: one byte shows whether it is there (XTypes 1.3 §7.4.3.5.3 rule 20)."""

    first = 1

    def __init__(self, node: ValueEncoder) -> None:
        self.node = node
        self.widest = node.widest

    def lay_out(self, walk: LayoutPass, column: Column, pos: I64) -> I64:
        assert isinstance(column, Maybe)
        present = np.zeros(len(pos), np.uint8)
        present[column.rows] = 1
        walk.numbers("u1", pos, present)
        return lay_some(self.node, walk, column, pos + 1)


class OptionalParameterEncoder:
    """An @optional member in XCDR1: a parameter, of length 0 if it is absent."""

    first = widest = 4

    def __init__(self, node: ValueEncoder, member: Member) -> None:
        self.node = node
        self.word = parameter_word(member)

    def lay_out(self, walk: LayoutPass, column: Column, pos: I64) -> I64:
        assert isinstance(column, Maybe)
        return _lay_parameter(walk, pos, self.word, self.node, column)


def parameter_word(member: Member | Case) -> int:
    """Flags and member id of the long form. Keys are not marked must-understand: RTI Connext refuses the flag there,
    and Cyclone DDS leaves it out too."""
    must_understand = isinstance(member, Member) and member.must_understand
    return member.id | (LONG_MUST_UNDERSTAND if must_understand else 0)


def _lay_parameter(walk: LayoutPass, pos: I64, word: int, node: ValueEncoder, column: Maybe) -> I64:
    """Put a parameter in each row, of length 0 where there is no value; each value has an origin of its own."""
    start = align(pos, 4) + 12
    size = lay_some(node, walk.within(start), column, np.zeros_like(start))
    _lay_parameter_header(walk, start, word, size)
    return start + size


def _lay_parameter_header(walk: LayoutPass, start: I64, word: int, size: I64) -> None:
    walk.numbers("u2", start - 12, _LONG_FORM)
    walk.numbers("u2", start - 10, 8)
    walk.numbers("u4", start - 8, word)
    walk.numbers("u4", start - 4, size)


class _MemberList:
    """The members of a @mutable struct or union: behind EMHEADERs after a DHEADER in XCDR2, as parameters up to a
    sentinel in XCDR1 (PL_CDR2 and PL_CDR)."""

    first = widest = 4
    #: Whether XCDR1's parameter lengths include padding, as in XTypes 1.1; RTI Connext reads no other form.
    pads = True

    def __init__(self, version: int) -> None:
        self.version = version

    def _open(self, pos: I64) -> I64:
        return align(pos, 4) + 4 if self.version == 2 else align(pos, 4)

    def _close(self, walk: LayoutPass, start: I64, pos: I64) -> I64:
        if self.version == 2:
            walk.numbers("u4", start - 4, pos - start)
            return pos
        pos = align(pos, 4) + 4
        walk.numbers("u2", pos - 4, _LIST_END)
        return pos

    def _lay_member(
        self,
        walk: LayoutPass,
        pos: I64,
        member_id: int,
        must: bool,
        code: int,
        node: ValueEncoder,
        column: Column,
    ) -> I64:
        pos = align(pos, 4)
        if self.version == 1:
            start = pos + 12
            size = node.lay_out(walk.within(start), column, np.zeros_like(start))
            size = align(size, 4) if self.pads else size
            _lay_parameter_header(walk, start, member_id | (LONG_MUST_UNDERSTAND if must else 0), size)
            return start + size
        walk.numbers("u4", pos, (MUST_UNDERSTAND if must else 0) | code << LENGTH_CODE | member_id)
        start = pos + (8 if code == NEXTINT else 4)
        end = node.lay_out(walk, column, start)
        if code == NEXTINT:
            walk.numbers("u4", start - 4, end - start)
        return end


class MutableRecordEncoder(_MemberList):
    """A @mutable struct; optional members that are absent are left out."""

    def __init__(self, rules: Rules, struct: Struct, nodes: list[ValueEncoder]) -> None:
        super().__init__(rules.version)
        self.members = [
            (member, _length_code(member.type), node)
            for member, node in zip(struct.members, nodes, strict=True)
        ]

    def lay_out(self, walk: LayoutPass, column: Column, pos: I64) -> I64:
        assert isinstance(column, Fields)
        start = pos = self._open(pos)
        for (member, code, node), inner in zip(self.members, column.members, strict=True):
            if not isinstance(inner, Maybe) or len(inner.rows) == len(pos):
                values = inner.values if isinstance(inner, Maybe) else inner
                pos = self._lay_member(walk, pos, member.id, member.must_understand, code, node, values)
            elif len(inner.rows):
                some, pos = walk.pick(inner.rows), pos.copy()
                pos[inner.rows] = self._lay_member(
                    some, pos[inner.rows], member.id, member.must_understand, code, node, inner.values
                )
        return self._close(walk, start, pos)


class MutableUnionEncoder(_MemberList):
    """A @mutable union: the discriminator as member 0, and the branch that it selects, both with a length of their
    own, as Cyclone DDS writes them."""

    pads = False

    def __init__(
        self, rules: Rules, union: Union, discriminator: ValueEncoder, branches: list[ValueEncoder]
    ) -> None:
        super().__init__(rules.version)
        self.discriminator = discriminator
        self.branches = list(zip(union.cases, branches, strict=True))

    def lay_out(self, walk: LayoutPass, column: Column, pos: I64) -> I64:
        assert isinstance(column, Selected)
        start = pos = self._open(pos)
        pos = self._lay_member(walk, pos, 0, True, NEXTINT, self.discriminator, column.discriminator)
        for (case, node), branch in zip(self.branches, column.branches, strict=True):
            if len(branch.rows):
                some, pos = walk.pick(branch.rows), pos.copy()
                pos[branch.rows] = self._lay_member(
                    some, pos[branch.rows], case.id, False, NEXTINT, node, branch.values
                )
        return self._close(walk, start, pos)


def _length_code(t: Type) -> int:
    """The EMHEADER's length code, as Cyclone DDS chooses it: 0 to 3 are sizes; 4 has a NEXTINT that counts bytes; with
    5, 6 and 7 the value's own first word counts bytes, or elements of 4 or 8 bytes."""
    if isinstance(t, SCALARS):
        return {1: 0, 2: 1, 4: 2, 8: 3}.get(number_size(t), NEXTINT)
    if isinstance(t, String | WString):
        return 5
    if isinstance(t, Sequence | Array | Map) and has_dheader(t):
        return 5
    if isinstance(t, Sequence):
        assert isinstance(t.element, SCALARS)
        return {1: 5, 4: 6, 8: 7}.get(number_size(t.element), NEXTINT)
    return NEXTINT
