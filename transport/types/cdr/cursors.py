"""Many byte streams side by side: all samples of a batch (or all elements in them) are read at once, a cursor each.

A position is an offset from the origin to which CDR aligns. It is one number while all cursors agree, otherwise a
column with one number for each cursor. Samples mostly agree, down to the length of their strings; then they form one
table, which is read with a stride. Otherwise reads and writes go through views with a stride of one byte, so that one
fancy index moves a value of any alignment, or a whole record.
"""

from __future__ import annotations

import struct
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...errors import TooManySamplesError
from ...limits import (
    DECODE_LEAVES_MAX,
    DECODE_STEPS_MAX,
    LIST_LEAVES_MAX,
    LIST_LEAVES_PER_BYTE_MAX,
    SAMPLE_LEAVES_MAX,
)
from ...wire.samples import Samples

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Values = npt.NDArray[Any]
#: One position for all cursors, or one for each cursor.
Position: TypeAlias = int | I64
_P = TypeVar("_P", int, I64, int | I64)

#: Above this many bytes per piece, Python copies as fast as any gathering call, and needs no growing buffer.
_BLOB = 2048
#: Above this many bytes per piece, copying piece by piece is faster than an index for every byte.
LONG_PIECE = 255
#: Up to this number of pieces, copying piece by piece is faster, whatever their length.
_FEW_PIECES = 16


def anywhere(data: U8, dtype: npt.DTypeLike) -> Values:
    """The values of a type that start at each byte of ``data``, without a copy."""
    kind = np.dtype(dtype)
    return np.ndarray((max(0, data.nbytes - kind.itemsize + 1),), kind, data, 0, (1,))


def align(pos: _P, alignment: int) -> _P:
    aligned: _P = (pos + (alignment - 1)) & -alignment
    return aligned


def agreed(values: Values) -> Position:
    """The position as one number if it is the same for all cursors."""
    if len(values) and values[0] == values[-1] and bool((values == values[0]).all()):
        return int(values[0])
    return values.astype(np.int64)


def some(mask: Mask | bool) -> bool:
    """Whether the mask holds for any cursor."""
    return bool(mask) if isinstance(mask, bool | np.bool_) else bool(mask.any())


def each(pos: Position, count: int) -> I64:
    """A position as a column with one number for each cursor."""
    return np.full(count, pos, np.int64) if isinstance(pos, int) else pos


def at(pos: Position, index: Values) -> Position:
    """The positions of the cursors that ``index`` selects."""
    return pos if isinstance(pos, int) else pos[index]


def offsets_of(counts: I64) -> I64:
    """The starts of consecutive pieces, and the end of the last one: (n + 1,) int64."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def spread(starts: I64, counts: I64, stride: int = 1) -> I64:
    """For each piece, ``count`` positions from its start in steps of ``stride``; all pieces one after the other."""
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
    if total > _BLOB * n:
        # NumPy asks for huge pages, which halves the cost of fresh memory
        out, done = np.empty(total, np.uint8), 0
        into, source = memoryview(out), memoryview(data)
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            into[done : done + length] = source[start : start + length]
            done += length
        return out
    if first and bool((lengths == first).all()):
        return anywhere(data, f"V{first}")[starts].view(np.uint8)
    # an empty piece may start behind the end, at the position to which its first byte would be aligned
    starts = np.minimum(starts, data.nbytes)
    ends = starts + lengths
    low, high = int(starts[0]), int(ends[-1])
    if high - low >= 1 << 31 or bool((starts[1:] < ends[:-1]).any()):
        return data[spread(starts, lengths)]
    # pieces and the gaps between them are adjacent strings, of which Arrow takes every second one: this is three times
    # as fast as an index of bytes
    bounds = np.empty(2 * n, np.int32)
    bounds[0::2] = starts - low
    bounds[1::2] = ends - low
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data[low:high])]
    everything = pa.Array.from_buffers(pa.binary(), 2 * n - 1, buffers)
    taken = everything.take(pa.array(np.arange(0, 2 * n - 1, 2, dtype=np.int32)))
    return np.frombuffer(taken.buffers()[2], np.uint8, total)


def copy_pieces(out: U8, targets: I64, data: U8, starts: I64, lengths: I64) -> None:
    """Copy the pieces of ``data`` to ``targets`` in ``out``: long ones one by one, short ones grouped by length."""
    if len(lengths) <= _FEW_PIECES:
        _copy_each(out, targets, data, starts, lengths)
        return
    long = lengths > LONG_PIECE
    if long.any():
        _copy_each(out, targets[long], data, starts[long], lengths[long])
        targets, starts, lengths = targets[~long], starts[~long], lengths[~long]
    counts = np.bincount(lengths)
    # NumPy's stable sort of bytes is a radix sort
    order = np.argsort(lengths.astype(np.uint8), kind="stable")
    ends = np.cumsum(counts)
    for size in np.flatnonzero(counts).tolist():
        if size:
            some = order[ends[size] - counts[size] : ends[size]]
            anywhere(out, f"V{size}")[targets[some]] = anywhere(data, f"V{size}")[starts[some]]


def _copy_each(out: U8, targets: I64, data: U8, starts: I64, lengths: I64) -> None:
    into, source = memoryview(out), memoryview(data)
    for at, start, length in zip(targets.tolist(), starts.tolist(), lengths.tolist(), strict=True):
        into[at : at + length] = source[start : start + length]


#: The cost of moving all cursors by one step, as a number of elements in a Python loop; for fewer cursors the Python
#: loop is faster.
CURSORS_STEP = 64
_BEYOND = 1 << 40
#: NumPy's type codes as those of struct.
_FORMATS = {"u1": "B", "i1": "b", "u2": "H", "i2": "h", "u4": "I", "i4": "i", "u8": "Q", "i8": "q"}
TOO_SHORT = "length beyond the sample"
#: The encapsulation header before a sample's body.
HEADER = 4


class Budget:
    """The bounded cost of one call. All samples share the remaining steps, which are spent on values that can only be
    found one after the other, and the remaining leaves. Each sample also has its own remaining leaves for lists."""

    __slots__ = ("_leaves", "_of_samples", "_samples", "_starts", "is_shared", "left")

    def __init__(self, samples: Samples) -> None:
        self.left = DECODE_STEPS_MAX
        self.is_shared = samples.count > 1
        self._leaves = DECODE_LEAVES_MAX if self.is_shared else SAMPLE_LEAVES_MAX
        self._samples = samples
        self._starts: I64 | None = None
        self._of_samples: I64 | None = None

    def charge(self, leaves: int) -> None:
        """Take leaves from the call's budget. Raises TooManySamplesError if it is used up."""
        self._leaves -= leaves
        if self._leaves < 0:
            raise self._too_many()

    @property
    def longest(self) -> int:
        """The steps that one list may take."""
        return (DECODE_STEPS_MAX if self.is_shared else self.left) // 2

    def walk(self, steps: int, reserve: int = 0) -> bool:
        """Take steps. Returns False if a call for a single sample has less than ``reserve`` left: its list is too long.

        With several samples it raises TooManySamplesError instead, since whether one sample is malformed must not
        depend on the others.
        """
        self.left -= steps
        if self.left >= reserve:
            return True
        if self.is_shared:
            raise self._too_many()
        return False

    def _too_many(self) -> TooManySamplesError:
        return TooManySamplesError(
            f"{self._samples.count} samples are too many for one call; decode fewer at once"
        )

    def take_leaves(self, where: I64, leaves: I64) -> Mask:
        """Take leaves from the samples that contain the offsets ``where``. Returns a mask of exhausted samples."""
        if self._of_samples is None or self._starts is None:
            starts = self._samples.all_offsets() + HEADER
            order = np.argsort(starts, kind="stable")
            sizes = (self._samples.all_lengths() - HEADER)[order]
            self._starts, self._of_samples = starts[order], LIST_LEAVES_MAX + LIST_LEAVES_PER_BYTE_MAX * sizes
        owners = np.maximum(np.searchsorted(self._starts, where, "right") - 1, 0)
        np.subtract.at(self._of_samples, owners, leaves)
        used_up: Mask = (leaves > 0) & (self._of_samples[owners] < 0)
        return used_up


class Stepper:
    """One cursor, moved value by value. A number read outside the payload is so large that the next step ends."""

    __slots__ = ("_u2", "_u4", "base", "left", "limit", "order", "view")

    def __init__(self, view: memoryview, base: int, limit: int, order: str, left: int) -> None:
        self.view, self.base, self.limit, self.order, self.left = view, base, limit, order, left
        self._u2 = struct.Struct(order + "H").unpack_from
        self._u4 = struct.Struct(order + "I").unpack_from

    def u1(self, at: int) -> int:
        return self.view[self.base + at] if at < self.limit else _BEYOND

    def u2(self, at: int) -> int:
        return int(self._u2(self.view, self.base + at)[0]) if at + 2 <= self.limit else _BEYOND

    def u4(self, at: int) -> int:
        return int(self._u4(self.view, self.base + at)[0]) if at + 4 <= self.limit else _BEYOND

    def number(self, code: str, at: int) -> int:
        """A number of a NumPy type code."""
        if at + int(code[1:]) > self.limit:
            return _BEYOND
        return int(struct.unpack_from(self.order + _FORMATS[code], self.view, self.base + at)[0])

    def behind_header(self, at: int) -> int:
        """The end of the bytes that the DHEADER at ``at`` counts."""
        at += -at & 3
        return at + 4 + self.u4(at)

    def charge(self, steps: int) -> bool:
        """Take steps from the remaining ones; False if they are used up."""
        self.left -= steps
        return self.left >= 0


class Words:
    """Reasons, numbered from 1 on in the order of their first use."""

    __slots__ = ("_codes",)

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def code(self, reason: str) -> int:
        return self._codes.setdefault(reason, len(self._codes) + 1)

    def all(self) -> tuple[str, ...]:
        return tuple(self._codes)


class Marks:
    """Which payloads are malformed. A ``bad`` payload ends before its values do; a ``wrong`` payload has bytes that
    are no value of the type. Only ``bad`` decides where reading continues; ``why`` contains the codes of reasons."""

    __slots__ = ("any_bad", "any_wrong", "bad", "why", "wrong")

    def __init__(self, count: int) -> None:
        self.any_bad = self.any_wrong = False
        self.bad: Mask = np.zeros(count, np.bool_)
        self.wrong: Mask = np.zeros(count, np.bool_)
        self.why = np.zeros(count, np.int32)


class Cursors:
    """The reading positions of many payloads. They never read outside the payloads.

    ``found`` keeps the results of the first pass over these payloads for the second pass.
    """

    __slots__ = (
        "_base",
        "budget",
        "count",
        "data",
        "found",
        "limit",
        "marks",
        "order",
        "start",
        "stride",
        "words",
    )

    def __init__(
        self,
        data: U8,
        base: I64,
        limit: Position,
        order: str,
        *,
        budget: Budget | None = None,
        words: Words | None = None,
    ) -> None:
        self.data = data
        self._base: I64 | None = base
        self.count = len(base)
        self.start = self.stride = 0  # stride 0: the payloads have no constant stride
        self.limit = limit  # position of the end
        self.order = order  # "<" or ">"
        self.budget = budget  # None: these payloads are known to be well-formed
        self.words = words or Words()
        self.marks = Marks(self.count)
        self.found: dict[object, Any] | None = None

    @classmethod
    def strided(
        cls,
        data: U8,
        count: int,
        start: int,
        stride: int,
        limit: Position,
        order: str,
        budget: Budget,
        words: Words,
    ) -> Cursors:
        """Cursors that start at a constant stride."""
        cursors = cls(data, np.empty(0, np.int64), limit, order, budget=budget, words=words)
        cursors.count, cursors.start, cursors.stride, cursors.marks = count, start, stride, Marks(count)
        cursors._base = None
        return cursors

    def __len__(self) -> int:
        return self.count

    @property
    def base(self) -> I64:
        """The offset of position 0 in ``data``, for each cursor."""
        if self._base is None:
            self._base = self.start + self.stride * np.arange(self.count, dtype=np.int64)
        return self._base

    @property
    def bad(self) -> Mask:
        return self.marks.bad

    @property
    def any_bad(self) -> bool:
        return self.marks.any_bad

    def pick(self, index: Values) -> Cursors:
        """A selection of the cursors, with marks of its own."""
        limit = at(self.limit, index)
        return Cursors(self.data, self.base[index], limit, self.order, budget=self.budget, words=self.words)

    def good(self) -> Cursors:
        """The cursors whose payloads are not bad."""
        return self.pick(~self.bad)

    def adopt(self, index: I64, child: Cursors) -> None:
        """Copy the marks of ``child`` to the cursors that it was picked or repeated from."""
        marks = child.marks
        if not (marks.any_bad or marks.any_wrong):
            return
        marked = marks.why != 0
        self.marks.any_bad |= marks.any_bad
        self.marks.any_wrong |= marks.any_wrong
        self.marks.bad[index[marks.bad]] = True
        self.marks.wrong[index[marks.wrong]] = True
        self.marks.why[index[marked]] = marks.why[marked]

    def fork(self) -> Cursors:
        """The same cursors, to be read as another type; the marks are shared."""
        inner = Cursors.__new__(Cursors)
        inner.data, inner._base, inner.order, inner.budget = self.data, self._base, self.order, self.budget
        inner.count, inner.start, inner.stride, inner.limit = self.count, self.start, self.stride, self.limit
        inner.words, inner.marks, inner.found = self.words, self.marks, None
        return inner

    def narrow(self, limit: Position) -> Cursors:
        """The same cursors with a nearer end; the marks are shared."""
        inner = self.fork()
        inner.found = self.found
        inner.limit = nearer(self.limit, limit)
        return inner

    def within(self, start: Position, end: Position) -> Cursors:
        """The same cursors for the bytes from ``start`` to ``end``, with ``start`` as origin; the marks are shared."""
        inner = self.narrow(end)
        inner.limit = inner.limit - start
        if isinstance(start, int) and self.stride:
            inner.start, inner._base = self.start + start, None
        else:
            inner._base, inner.stride = self.base + start, 0
        return inner

    def fail(self, where: Mask | bool, reason: str) -> None:
        """Mark the payloads of ``where`` as bad."""
        new = where & ~self.marks.bad
        if new.any():
            self.marks.any_bad = True
            self.marks.bad |= new
            self.marks.why[new] = self.words.code(reason)

    def refuse(self, where: Mask, reason: str) -> None:
        """Mark the payloads of ``where`` as wrong."""
        self.marks.any_wrong = True
        self.marks.wrong |= where
        self.marks.why[where & (self.marks.why == 0)] = self.words.code(reason)

    def require(self, end: Position, reason: str = TOO_SHORT) -> Position:
        """Mark payloads shorter than ``end`` as bad. Returns ``end``, limited so that sums of positions fit."""
        over = end > self.limit
        if some(over):
            self.fail(over, reason)
            # so that no sum of positions overflows
            return nearer(end, _BEYOND)
        return end

    def read_numbers(self, code: str, pos: Position) -> Values:
        """The values at positions that are known to lie inside the payloads."""
        if isinstance(pos, int) and self.stride and self.count:
            return np.ndarray((self.count,), self.order + code, self.data, self.start + pos, (self.stride,))
        values: Values = anywhere(self.data, self.order + code)[self.base + pos]
        return values

    def checked(self, code: str, pos: Position) -> Values:
        """The values at positions that are not checked yet; zero for payloads that are malformed."""
        self.require(pos + int(code[1:]))
        if not self.marks.any_bad:
            return self.read_numbers(code, pos)
        values = np.zeros(self.count, self.order + code)
        good = ~self.bad
        values[good] = anywhere(self.data, self.order + code)[self.base[good] + at(pos, good)]
        return values

    def counts(self, pos: Position) -> Position:
        """The uint32 counts at positions that are known to lie inside the payloads."""
        return agreed(self.read_numbers("u4", pos))

    def checked_counts(self, pos: Position) -> Position:
        return agreed(self.checked("u4", pos))

    def gather(self, pos: Position, lengths: Position) -> U8:
        """A copy of the next bytes of every payload, one after the other."""
        if isinstance(lengths, int):
            if not lengths or not self.count:
                return np.empty(0, np.uint8)
            if isinstance(pos, int) and self.stride:
                shape, strides = (self.count, lengths), (self.stride, 1)
                rows = np.ndarray(shape, np.uint8, self.data, self.start + pos, strides)
                return rows.copy().reshape(-1)
        return gather_bytes(self.data, self.base + pos, each(lengths, self.count))


def nearer(a: Position, b: Position) -> Position:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else np.minimum(a, b)
