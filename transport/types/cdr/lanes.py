"""Many byte streams side by side: all samples of a batch (or all elements in them) are walked at once.

A position column holds, for each lane, an offset from the origin CDR aligns to. Reads and writes go through
views with a stride of one byte, so that one fancy index moves a value of any alignment, or a whole record.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Values = npt.NDArray[Any]

#: Above this many bytes a piece, copying piece by piece beats an index for every byte.
_LONG_PIECE = 256


def anywhere(data: U8, dtype: npt.DTypeLike) -> Values:
    """All values of a type that start at any byte of ``data``; no copy."""
    kind = np.dtype(dtype)
    return np.ndarray((max(0, data.nbytes - kind.itemsize + 1),), kind, data, 0, (1,))


def align(pos: I64, alignment: int) -> I64:
    aligned: I64 = (pos + (alignment - 1)) & -alignment
    return aligned


def offsets_of(counts: I64) -> I64:
    """Where each of consecutive pieces starts, and the end: (n + 1,) int64."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def spread(starts: I64, counts: I64, stride: int = 1) -> I64:
    """start, start + stride, ... ``count`` times, for all pieces one after the other."""
    offsets = offsets_of(counts)
    steps = np.arange(offsets[-1], dtype=np.int64) * stride
    positions: I64 = np.repeat(starts - offsets[:-1] * stride, counts) + steps
    return positions


def gather_bytes(data: U8, starts: I64, lengths: I64) -> U8:
    """The pieces of ``data``, one after the other."""
    total, n = int(lengths.sum()), len(lengths)
    if total == 0:
        return np.empty(0, np.uint8)
    first = int(lengths[0])
    if first and bool((lengths == first).all()):
        return anywhere(data, f"V{first}")[starts].view(np.uint8)
    if total > _LONG_PIECE * n:
        view = memoryview(data)
        pieces = [view[a:b] for a, b in zip(starts.tolist(), (starts + lengths).tolist(), strict=True)]
        return np.frombuffer(b"".join(pieces), np.uint8)
    return data[spread(starts, lengths)]


def scatter_bytes(out: U8, targets: I64, data: U8, starts: I64, lengths: I64) -> None:
    """Copy the pieces of ``data`` to ``targets`` in ``out``."""
    total, n = int(lengths.sum()), len(lengths)
    if total == 0:
        return
    if total > _LONG_PIECE * n:
        into, source = memoryview(out), memoryview(data)
        for at, start, length in zip(targets.tolist(), starts.tolist(), lengths.tolist(), strict=True):
            into[at : at + length] = source[start : start + length]
    else:
        out[spread(targets, lengths)] = data[spread(starts, lengths)]


#: What stepping may cost in one decode call, in elements stepped over by Python (about half a microsecond).
_STEPS_MAX = 1 << 22
#: What a step of lanes costs in those; Python's own loop is faster for fewer lanes.
LANES_STEP = 64
_BEYOND = 1 << 40


class Budget:
    """Steps that are left for values that can only be found one after the other, shared by all lanes."""

    __slots__ = ("left",)

    def __init__(self, left: int = _STEPS_MAX) -> None:
        self.left = left


class Stepper:
    """One lane, stepped through value by value. Whatever lies outside of it is found beyond its end."""

    __slots__ = ("_u2", "_u4", "base", "left", "limit", "view")

    def __init__(self, view: memoryview, base: int, limit: int, order: str, left: int) -> None:
        self.view, self.base, self.limit, self.left = view, base, limit, left
        self._u2 = struct.Struct(order + "H").unpack_from
        self._u4 = struct.Struct(order + "I").unpack_from

    def u1(self, at: int) -> int:
        return self.view[self.base + at] if at < self.limit else _BEYOND

    def u2(self, at: int) -> int:
        return int(self._u2(self.view, self.base + at)[0]) if at + 2 <= self.limit else _BEYOND

    def u4(self, at: int) -> int:
        return int(self._u4(self.view, self.base + at)[0]) if at + 4 <= self.limit else _BEYOND

    def behind_header(self, at: int) -> int:
        """The end of what a DHEADER counts."""
        at += -at & 3
        return at + 4 + self.u4(at)

    def charge(self, steps: int) -> bool:
        """Take steps from what is left; False if they are used up."""
        self.left -= steps
        return self.left >= 0


class Lanes:
    """Payloads being read; nothing outside them is ever read.

    ``bad`` marks lanes whose values do not lie inside the payload, ``wrong`` those that do but whose bytes
    are no value of the type. Only ``bad`` decides where to go on reading.
    """

    __slots__ = ("bad", "base", "budget", "data", "limit", "order", "wrong")

    def __init__(self, data: U8, base: I64, limit: I64, order: str, budget: Budget | None = None) -> None:
        self.data = data
        self.base = base  # of position 0 in data
        self.limit = limit  # position of the end
        self.order = order  # "<" or ">"
        self.budget = budget  # None: these lanes are well-formed
        self.bad: Mask = np.zeros(len(base), np.bool_)
        self.wrong: Mask = np.zeros(len(base), np.bool_)

    def __len__(self) -> int:
        return len(self.base)

    def pick(self, index: Values) -> Lanes:
        return Lanes(self.data, self.base[index], self.limit[index], self.order, self.budget)

    def adopt(self, index: I64, child: Lanes) -> None:
        """What is marked in picked or repeated lanes is marked in those they came from."""
        if child.bad.any():
            self.bad[index[child.bad]] = True
        if child.wrong.any():
            self.wrong[index[child.wrong]] = True

    def narrow(self, limit: I64) -> Lanes:
        """The same lanes with a nearer end; the marks are shared."""
        inner = Lanes.__new__(Lanes)
        inner.data, inner.base, inner.order, inner.budget = self.data, self.base, self.order, self.budget
        inner.bad, inner.wrong = self.bad, self.wrong
        inner.limit = np.minimum(self.limit, limit)
        return inner

    def within(self, start: I64, end: I64) -> Lanes:
        """Values that have an origin of their own, from ``start`` to ``end``; the marks are shared."""
        inner = self.narrow(self.limit)
        inner.base = self.base + start
        inner.limit = np.minimum(self.limit, end) - start
        return inner

    def require(self, end: I64) -> I64:
        """Mark lanes that are shorter than ``end``."""
        self.bad |= end > self.limit
        return end

    def read(self, code: str, pos: I64) -> Values:
        """Values at positions that are known to lie inside."""
        values: Values = anywhere(self.data, self.order + code)[self.base + pos]
        return values

    def checked(self, code: str, pos: I64) -> Values:
        """Values at positions not checked yet; zero where the lane is malformed."""
        self.require(pos + int(code[1:]))
        if not self.bad.any():
            return self.read(code, pos)
        values = np.zeros(len(pos), self.order + code)
        good = ~self.bad
        values[good] = anywhere(self.data, self.order + code)[(self.base + pos)[good]]
        return values

    def counts(self, pos: I64) -> I64:
        """uint32 counts at positions that are known to lie inside."""
        return self.read("u4", pos).astype(np.int64)

    def checked_counts(self, pos: I64) -> I64:
        return self.checked("u4", pos).astype(np.int64)


class Sink:
    """Payloads being written; zeroed memory, so padding and NULs are there already."""

    __slots__ = ("base", "data", "order")

    def __init__(self, data: U8, base: I64, order: str) -> None:
        self.data = data
        self.base = base
        self.order = order

    def __len__(self) -> int:
        return len(self.base)

    def pick(self, index: Values) -> Sink:
        return Sink(self.data, self.base[index], self.order)

    def write(self, code: str, pos: I64, values: Values) -> None:
        anywhere(self.data, self.order + code)[self.base + pos] = values
