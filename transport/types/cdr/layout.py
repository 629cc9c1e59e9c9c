"""Where CDR puts things (RTPS 2.5 §10.2, XTypes 1.3 §7.4): alignment, and layouts that are known beforehand.

What lies at constant offsets from an aligned origin, whatever the values, is *fixed*: such stretches are
read and written as columns of one record table. Everything else is found by walking positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ..model import (
    SCALARS,
    Array,
    Enum,
    Extensibility,
    Member,
    Primitive,
    Sequence,
    String,
    Struct,
    Type,
    has_dheader,
    number_size,
    walk,
)


@dataclass(frozen=True, slots=True)
class Number:
    """One scalar at ``offset`` from the origin."""

    type: Primitive | Enum
    offset: int


@dataclass(frozen=True, slots=True)
class Group:
    """The members of a struct, each at its own offset."""

    type: Struct
    members: tuple[Fixed, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The elements of an array, ``stride`` bytes apart; ``element`` is the first one."""

    type: Array
    element: Fixed
    stride: int


Fixed: TypeAlias = Number | Group | Repeat


@dataclass(frozen=True, slots=True)
class Regular:
    """Sequence elements of one fixed layout: ``element`` from an origin aligned to ``alignment``."""

    element: Fixed
    alignment: int
    size: int
    stride: int


@dataclass(frozen=True, slots=True)
class Rules:
    """The alignment rules of one XCDR version."""

    version: int  # 1 or 2

    def alignment(self, t: Primitive | Enum) -> int:
        return min(number_size(t), 8 if self.version == 1 else 4)

    def is_delimited(self, struct: Struct) -> bool:
        return self.version == 2 and struct.extensibility is not Extensibility.FINAL

    def starts_with_header(self, t: Sequence | Array) -> bool:
        return self.version == 2 and has_dheader(t)

    def first_alignment(self, t: Type) -> int:
        """Alignment of the first thing a value of the type puts on the wire."""
        if isinstance(t, SCALARS):
            return self.alignment(t)
        if isinstance(t, Array) and not self.starts_with_header(t):
            return self.first_alignment(t.element)
        if isinstance(t, Struct) and not self.is_delimited(t):
            first = t.members[0]
            if not first.optional:
                return self.first_alignment(first.type)
            return 1 if self.version == 2 else 4
        return 4

    def _widest(self, fixed: Fixed) -> int:
        if isinstance(fixed, Number):
            return self.alignment(fixed.type)
        if isinstance(fixed, Repeat):
            return self._widest(fixed.element)
        return max(self._widest(member) for member in fixed.members)

    def place(self, t: Type, at: int, modulus: int) -> tuple[Fixed, int] | None:
        """Lay a value ``at`` bytes from an origin that is aligned to ``modulus``: the layout and its end.

        None if that depends on values or on more than we know of the origin.
        """
        if isinstance(t, SCALARS):
            alignment = self.alignment(t)
            if alignment > modulus:
                return None
            at += -at % alignment
            return Number(t, at), at + number_size(t)
        if isinstance(t, Struct):
            if self.is_delimited(t) or t.extensibility is Extensibility.MUTABLE:
                return None
            members = []
            for member in t.members:
                placed = None if member.optional else self.place(member.type, at, modulus)
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

        CDR gives a struct no alignment of its own, so equal elements need not lie equally: None then.
        """
        first = self.place(t, at, modulus)
        second = None if first is None else self.place(t, first[1], modulus)
        if first is None or second is None:
            return None
        stride = origin(second[0]) - origin(first[0])
        if stride % self._widest(first[0]) or second[1] - first[1] != stride:
            return None
        return first[0], first[1], stride

    def regular(self, t: Type) -> Regular | None:
        """The layout of sequence elements, which follow an uint32 that is aligned to 4."""
        alignment = self.first_alignment(t)
        repeated = self.repeat(t, 0, max(alignment, 4))
        if repeated is None:
            return None
        element, end, stride = repeated
        return Regular(element, alignment, end, stride)

    def least_size(self, t: Type) -> int:
        """No value of the type takes fewer bytes: what bounds a count before anything is allocated."""
        if isinstance(t, SCALARS):
            return number_size(t)
        if isinstance(t, String):
            return 4
        if isinstance(t, Sequence):
            return 8 if self.starts_with_header(t) else 4
        if isinstance(t, Array):
            return t.length * self.least_size(t.element) + (4 if self.starts_with_header(t) else 0)
        # a delimited struct of an older type may hold less than all members
        if self.is_delimited(t) or t.extensibility is Extensibility.MUTABLE:
            return 4
        return sum(self._least_member(member) for member in t.members)

    def _least_member(self, member: Member) -> int:
        if member.optional:
            return 1 if self.version == 2 else 4
        return self.least_size(member.type)

    def greatest_size(self, t: Type, at: int = 0) -> int | None:
        """Where the largest value ends that starts ``at`` bytes from the origin; None if unbounded."""
        end: int | None = at
        if isinstance(t, SCALARS):
            return at + -at % self.alignment(t) + number_size(t)
        if isinstance(t, String):
            return at + -at % 4 + 4 + t.bound + 1 if t.bound else None
        if isinstance(t, Struct):
            for member in t.members:
                end = None if end is None else self.greatest_size(member.type, end)
            return end
        count = t.length if isinstance(t, Array) else t.bound
        if isinstance(t, Sequence):
            end = at + -at % 4 + 4 if count else None
        if self.starts_with_header(t) and end is not None:
            end += -end % 4 + 4
        for _ in range(count):
            # only asked whether it stays below 17, so the loop ends soon
            if end is None or end > 4096:
                return None
            end = self.greatest_size(t.element, end)
        return end


def origin(fixed: Fixed) -> int:
    """Offset of the first byte of a layout."""
    if isinstance(fixed, Number):
        return fixed.offset
    if isinstance(fixed, Repeat):
        return origin(fixed.element)
    return origin(fixed.members[0])


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive members of fixed layout, from an origin aligned to ``alignment``."""

    alignment: int
    size: int
    members: tuple[tuple[str, Fixed], ...]


def fuse(rules: Rules, members: tuple[Member, ...], modulus: int) -> list[Block | Member]:
    """Fuse stretches of fixed members into blocks; the struct starts aligned to ``modulus``."""
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
                placed = rules.place(member.type, end, modulus)
            if placed is None:
                close()
                alignment = rules.first_alignment(member.type)
                if steps:
                    modulus = alignment
                placed = rules.place(member.type, 0, max(modulus, alignment))
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
    """Whether all values of a final type are written alike in both XCDR versions (so far as we can tell)."""
    placed = Rules(1).place(t, 0, 8)
    if placed is not None:
        return placed == Rules(2).place(t, 0, 8)
    for inner in walk(t):
        if isinstance(inner, SCALARS) and number_size(inner) == 8:
            return False
        if isinstance(inner, Sequence | Array) and has_dheader(inner):
            return False
        if isinstance(inner, Struct) and any(member.optional for member in inner.members):
            return False
    return True
