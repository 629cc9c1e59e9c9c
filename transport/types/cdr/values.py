"""NumPy values as Arrow arrays, straight from buffers: no Python object per value."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from ...errors import UsageError
from ..arrow import UINT64_DECIMAL, arrow_type
from ..model import Enum, Primitive, PrimitiveKind, is_bytes, number_code
from .lanes import I64, U8, Mask, Values
from .layout import Fixed, Group, Number

_OFFSET_MAX: Final = (1 << 31) - 1
#: A char is one byte of an unnamed character set; Latin-1 maps each byte to one character.
LATIN1: Final = pa.array([chr(i) for i in range(256)], pa.string())


class Table:
    """Records at a constant stride in some buffer; columns are read, or written, through strided views."""

    __slots__ = ("bad", "data", "order", "rows", "start", "stride")

    def __init__(self, data: U8, rows: int, start: int, stride: int, order: str) -> None:
        self.data = data
        self.rows = rows
        self.start = start
        self.stride = stride
        self.order = order
        self.bad: Mask | None = None  # records with values that do not exist

    def column(self, code: str, offset: int, repeats: tuple[tuple[int, int], ...] = ()) -> Values:
        """A (rows, *lengths) view; ``repeats`` holds length and stride of each array around the value."""
        shape = (self.rows, *(length for length, _ in repeats))
        strides = (self.stride, *(stride for _, stride in repeats))
        if 0 in shape:
            return np.empty(shape, self.order + code)
        return np.ndarray(shape, self.order + code, self.data, self.start + offset, strides)

    def mark(self, bad_values: Mask) -> None:
        bad: Mask = np.logical_or.reduce(bad_values.reshape(self.rows, -1), axis=1)
        self.bad = bad if self.bad is None else self.bad | bad


def fixed_array(fixed: Fixed, table: Table, repeats: tuple[tuple[int, int], ...] = ()) -> pa.Array:
    """One column of a record table as an Arrow array of its DDS type."""
    if isinstance(fixed, Number):
        array, bad = number_array(fixed.type, table.column(number_code(fixed.type), fixed.offset, repeats))
        if bad is not None:
            table.mark(bad)
        return array
    if isinstance(fixed, Group):
        return struct_array(
            [fixed_array(member, table, repeats) for member in fixed.members],
            [member.name for member in fixed.type.members],
        )
    t = fixed.type
    repeats = (*repeats, (t.length, fixed.stride))
    if isinstance(fixed.element, Number) and is_bytes(t.element):
        values = table.column("u1", fixed.element.offset, repeats).copy().reshape(-1)
        width = t.dimensions[-1]
        inner = binary_array(values, constant_offsets(len(values) // width, width))
        dimensions = t.dimensions[:-1]
    else:
        inner, dimensions = fixed_array(fixed.element, table, repeats), t.dimensions
    return nested_lists(inner, dimensions)


def number_array(t: Primitive | Enum, values: Values) -> tuple[pa.Array, Mask | None]:
    """Values of a scalar type, of any shape, as a flat Arrow array, and which of them are no value of it.

    The array has memory of its own, whatever ``values`` is a view of.
    """
    if isinstance(t, Enum):
        return _enum_array(t, values.reshape(-1))
    if t.kind is PrimitiveKind.BOOLEAN:
        return pa.array((values != 0).reshape(-1)), None
    if t.kind is PrimitiveKind.CHAR8:
        return LATIN1.take(pa.array(values.reshape(-1))), None
    if t.kind is PrimitiveKind.UINT64:
        words = np.zeros((values.size, 2), np.uint64)
        words[:, 0] = values.reshape(-1)
        return pa.Array.from_buffers(UINT64_DECIMAL, values.size, [None, pa.py_buffer(words)]), None
    target = arrow_type(t)
    native = values.astype(target.to_pandas_dtype(), order="C")
    return pa.Array.from_buffers(target, values.size, [None, pa.py_buffer(native)]), None


def _enum_array(t: Enum, values: Values) -> tuple[pa.Array, Mask | None]:
    known = np.array([value for _, value in t.literals], np.int64)
    order = np.argsort(known)
    names = pa.array([t.literals[i][0] for i in order], pa.string())
    known = known[order]
    numbers = values.astype(np.int64)
    if known[-1] - known[0] == len(known) - 1:
        index = numbers - known[0]
        bad = (index < 0) | (index >= len(known))
    else:
        index = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
        bad = known[index] != numbers
    if not bad.any():
        return names.take(pa.array(index)), None
    index[bad] = 0
    return names.take(pa.array(index)), bad


def constant_offsets(rows: int, length: int) -> I64:
    return np.arange(rows + 1, dtype=np.int64) * length


def arrow_offsets(offsets: I64) -> pa.Buffer:
    if int(offsets[-1]) > _OFFSET_MAX:
        raise UsageError("a column would hold more than 2 GiB in one batch; decode fewer samples at once")
    return pa.py_buffer(offsets.astype(np.int32))


def binary_array(data: U8, offsets: I64) -> pa.Array:
    buffers = [None, arrow_offsets(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def string_array(data: U8, offsets: I64) -> tuple[pa.Array, Mask | None]:
    """Strings, and which of them are not UTF-8 (those are null in the array)."""
    rows = len(offsets) - 1
    buffers = [None, arrow_offsets(offsets), pa.py_buffer(data)]
    array = pa.Array.from_buffers(pa.string(), rows, buffers)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        # Rare and slow on purpose: find the culprits one by one and leave them out.
        raw = binary_array(data, offsets).to_pylist()
        bad = np.fromiter((not _is_utf8(value) for value in raw), np.bool_, rows)
        known = [None if b else value for value, b in zip(raw, bad, strict=True)]
        return pa.array(known, pa.binary()).cast(pa.string()), bad
    return array, None


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def list_array(inner: pa.Array, offsets: I64) -> pa.Array:
    kind = pa.list_(inner.type)
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, arrow_offsets(offsets)], children=[inner])


def nested_lists(inner: pa.Array, dimensions: tuple[int, ...]) -> pa.Array:
    """Wrap a flat array as a multi-dimensional one, innermost dimension last."""
    for length in reversed(dimensions):
        inner = list_array(inner, constant_offsets(len(inner) // length, length))
    return inner


def struct_array(arrays: list[pa.Array], names: list[str]) -> pa.Array:
    return pa.StructArray.from_arrays(arrays, names=names)
