"""Where CDR puts values (RTPS 2.5 §10.2, XTypes 1.3 §7.4): alignment, and layouts that are known beforehand.

Values that always lie at constant offsets from an aligned origin are *fixed*: a block of them is read and written as
columns of one record table. All others are found by moving positions value by value.

Where the specifications leave a choice, the layout is that of Cyclone DDS:

- wstring: an uint32 that counts the *bytes* that follow, then UTF-16 code units in the byte order of the rest; no
  terminator, no BOM; alike in both XCDR versions (XTypes 1.3 §7.4.1.1.2; Fast CDR counts code units). wchar: one
  UTF-16 code unit.
- long double: binary128 in the byte order of the rest, aligned to 8 in XCDR1 and to 4 in XCDR2.
- bitmasks and bitsets: the smallest unsigned integer with enough bits.
- map: a sequence of pairs; a DHEADER before it in XCDR2 unless keys and values are primitive.
- union: the discriminator, then the selected branch, if there is one. Appendable in XCDR2, a DHEADER before it.
  Mutable, a member list of at most two: the discriminator has member id 0 and must be understood, the branch its own.
"""

from __future__ import annotations

from typing import TypeAlias

from ...value_classes import value
from ..model import (
    SCALARS,
    Alias,
    Array,
    Extensibility,
    Map,
    Member,
    Scalar,
    Sequence,
    String,
    Struct,
    Type,
    Union,
    WString,
    has_dheader,
    number_size,
    traverse,
)


@value
class ScalarLayout:
    """One scalar at ``offset`` from the origin."""

    type: Scalar
    offset: int


@value
class Group:
    """The members of a struct, each at its own offset."""

    type: Struct
    members: tuple[Fixed, ...]


@value
class Repeat:
    """The elements of an array, ``stride`` bytes apart; ``element`` is the first one."""

    type: Array
    element: Fixed
    stride: int


Fixed: TypeAlias = ScalarLayout | Group | Repeat


@value
class Regular:
    """Sequence elements of one fixed layout: ``element`` from an origin aligned to ``alignment``."""

    element: Fixed
    alignment: int
    size: int
    stride: int


@value
class Rules:
    """The alignment rules of one XCDR version."""

    version: int  # 1 or 2

    def alignment(self, t: Scalar) -> int:
        return min(number_size(t), 8 if self.version == 1 else 4)

    def is_delimited(self, t: Struct | Union) -> bool:
        """Whether a DHEADER holds the size."""
        return self.version == 2 and t.extensibility is not Extensibility.FINAL

    def is_plain(self, t: Struct | Union) -> bool:
        """Whether the members follow one another, without a header before all or before each of them."""
        return not self.is_delimited(t) and t.extensibility is not Extensibility.MUTABLE

    def starts_with_header(self, t: Sequence | Array | Map) -> bool:
        return self.version == 2 and has_dheader(t)

    def first_alignment(self, t: Type) -> int:
        """Alignment of the first part of a value of the type on the wire."""
        if isinstance(t, SCALARS):
            return self.alignment(t)
        if isinstance(t, Array) and not self.starts_with_header(t):
            return self.first_alignment(t.element)
        if isinstance(t, Struct) and self.is_plain(t):
            return self.member_alignment(t.members[0])
        if isinstance(t, Union) and self.is_plain(t):
            return self.first_alignment(t.discriminator)
        return 4

    def member_alignment(self, member: Member) -> int:
        """Alignment of the first part of a member of a plain struct on the wire."""
        if member.optional:
            return 1 if self.version == 2 else 4
        return self.first_alignment(member.type)

    def _widest(self, fixed: Fixed) -> int:
        if isinstance(fixed, ScalarLayout):
            return self.alignment(fixed.type)
        if isinstance(fixed, Repeat):
            return self._widest(fixed.element)
        return max(self._widest(member) for member in fixed.members)

    def lay_out_value(self, t: Type, at: int, modulus: int) -> tuple[Fixed, int] | None:
        """Lay a value ``at`` bytes from an origin that is aligned to ``modulus``: the layout and its end.

        None if the layout depends on values, or on an alignment of the origin beyond ``modulus``.
        """
        if isinstance(t, SCALARS):
            alignment = self.alignment(t)
            if alignment > modulus:
                return None
            at += -at % alignment
            return ScalarLayout(t, at), at + number_size(t)
        if isinstance(t, Struct):
            if not self.is_plain(t):
                return None
            members = []
            for member in t.members:
                placed = None if member.optional else self.lay_out_value(member.type, at, modulus)
                if placed is None:
                    return None
                members.append(placed[0])
                at = placed[1]
            return Group(t, tuple(members)), at
        if isinstance(t, Array) and not self.starts_with_header(t):
            regular = self.repeat(t.element, at, modulus)
            if regular is None:
                return None
            element, end, stride = regular
            return Repeat(t, element, stride), end + (t.length - 1) * stride
        return None

    def repeat(self, t: Type, at: int, modulus: int) -> tuple[Fixed, int, int] | None:
        """The layout of the first of many elements, its end, and the stride to the next ones.

        None if elements of the same value may lie differently, because CDR gives a struct no alignment of its own.
        """
        first = self.lay_out_value(t, at, modulus)
        if first is None:
            return None
        element, end = first
        # laying out the second one too would double the work for each array inside an array
        stride = end + -end % self.first_alignment(t) - origin(element)
        return None if stride % self._widest(element) else (element, end, stride)

    def regular(self, t: Type) -> Regular | None:
        """The layout of sequence elements, which follow an uint32 that is aligned to 4."""
        alignment = self.first_alignment(t)
        repeated = self.repeat(t, 0, max(alignment, 4))
        if repeated is None:
            return None
        element, end, stride = repeated
        return Regular(element, alignment, end, stride)

    def least_size(self, t: Type) -> int:
        """The least number of bytes that a value of the type takes; it bounds a count before anything is allocated."""
        if isinstance(t, SCALARS):
            return number_size(t)
        if isinstance(t, String | WString):
            return 4
        if isinstance(t, Sequence | Map):
            return 8 if self.starts_with_header(t) else 4
        assert not isinstance(t, Alias)  # codecs see types without them
        if isinstance(t, Array):
            return t.length * self.least_size(t.element) + (4 if self.starts_with_header(t) else 0)
        # a delimited struct of an older type may hold less than all members
        if not self.is_plain(t):
            return 4
        if isinstance(t, Union):
            return self.least_size(t.discriminator)
        return sum(self._least_member(member) for member in t.members)

    def _least_member(self, member: Member) -> int:
        if member.optional:
            return 1 if self.version == 2 else 4
        return self.least_size(member.type)

    def greatest_size(self, t: Type, at: int = 0) -> int | None:
        """The end of the largest value of a type of plain structs that starts ``at`` bytes from the origin; None if
        unbounded."""
        if isinstance(t, SCALARS):
            return at + -at % self.alignment(t) + number_size(t)
        if isinstance(t, String | WString):
            size = t.bound + 1 if isinstance(t, String) else 2 * t.bound
            return at + -at % 4 + 4 + size if t.bound else None
        if isinstance(t, Struct):
            return self._greatest_end([member.type for member in t.members], at)
        if isinstance(t, Union):
            greatest = self.greatest_size(t.discriminator, at)
            for case in t.cases:
                branch = self._greatest_end([t.discriminator, case.type], at)
                greatest = None if branch is None or greatest is None else max(greatest, branch)
            return greatest
        assert not isinstance(t, Alias)
        if self.starts_with_header(t):
            at += -at % 4 + 4
        inner = [t.key, t.value] if isinstance(t, Map) else [t.element]
        count = t.length if isinstance(t, Array) else t.bound
        if not isinstance(t, Array):
            if not t.bound:
                return None
            at += -at % 4 + 4
        end: int | None = at
        for _ in range(count):
            # callers only ask whether it stays below 17, so the loop ends soon
            if end is None or end > 4096:
                return None
            end = self._greatest_end(inner, end)
        return end

    def _greatest_end(self, types: list[Type], at: int) -> int | None:
        end: int | None = at
        for t in types:
            end = None if end is None else self.greatest_size(t, end)
        return end


def origin(fixed: Fixed) -> int:
    """Offset of the first byte of a layout."""
    if isinstance(fixed, ScalarLayout):
        return fixed.offset
    if isinstance(fixed, Repeat):
        return origin(fixed.element)
    return origin(fixed.members[0])


@value
class Block:
    """Consecutive members of fixed layout, from an origin aligned to ``alignment``."""

    alignment: int
    size: int
    members: tuple[tuple[str, Fixed], ...]


def fuse(rules: Rules, members: tuple[Member, ...], modulus: int) -> list[Block | Member]:
    """Combine adjacent fixed members into blocks; the struct starts aligned to ``modulus``."""
    steps: list[Block | Member] = []
    fixed: list[tuple[str, Fixed]] = []
    alignment = end = 0

    def close() -> None:
        if fixed:
            steps.append(Block(alignment, end, tuple(fixed)))
            fixed.clear()

    for member in members:
        placed = None
        if not member.optional:
            if fixed:
                placed = rules.lay_out_value(member.type, end, modulus)
            if placed is None:
                close()
                alignment = rules.first_alignment(member.type)
                if steps:
                    modulus = alignment
                placed = rules.lay_out_value(member.type, 0, max(modulus, alignment))
                modulus = max(modulus, alignment)
        if placed is None:
            close()
            steps.append(member)
            modulus = 1
        else:
            fixed.append((member.name, placed[0]))
            end = placed[1]
    close()
    return steps


def is_alike_in_xcdr(t: Type) -> bool:
    """Whether all values of a final type are known to have the same encoding in both XCDR versions."""
    placed = Rules(1).lay_out_value(t, 0, 8)
    if placed is not None:
        return placed == Rules(2).lay_out_value(t, 0, 8)
    for inner in traverse(t):
        if isinstance(inner, SCALARS) and number_size(inner) >= 8:
            return False
        if isinstance(inner, Sequence | Array | Map) and has_dheader(inner):
            return False
        if isinstance(inner, Struct) and any(member.optional for member in inner.members):
            return False
    return True
