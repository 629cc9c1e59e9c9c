"""Tables of records, strings and lists as Arrow arrays, straight from buffers: no Python object per value."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....errors import TooManySamplesError
from ...model import Primitive, PrimitiveKind, is_bytes, number_code
from ..cursors import I64, U8, Mask, Position, Values, offsets_of
from ..layout import Fixed, Repeat, ScalarLayout
from ..table import Table
from .scalars import COLUMN_BYTES_MAX, fault, scalar_converter

#: Length and stride of each array around a value, the outermost first.
Repeats: TypeAlias = tuple[tuple[int, int], ...]
#: One column of a record table as an Arrow array.
Read: TypeAlias = Callable[[Table, Repeats], pa.Array]


def fixed_reader(fixed: Fixed, target: pa.DataType) -> Read:
    """A function that reads a column of a record table as an array of the type ``target``."""
    if isinstance(fixed, ScalarLayout):
        return _number_reader(fixed, target)
    if isinstance(fixed, Repeat):
        return _repeat_reader(fixed, target)
    if not pa.types.is_struct(target):
        read_time = fixed_reader(fixed, TIME_FIELDS)
        return lambda table, repeats: time_of(read_time(table, repeats), target)
    members = dict(zip((member.name for member in fixed.type.members), fixed.members, strict=True))
    readers = [fixed_reader(members[f.name], f.type) if f.name in members else None for f in target]
    kinds = [field.type for field in target]

    def read(table: Table, repeats: Repeats) -> pa.Array:
        rows = table.rows * prod(length for length, _ in repeats)
        children = [
            pa.nulls(rows, kind) if reader is None else reader(table, repeats)
            for reader, kind in zip(readers, kinds, strict=True)
        ]
        return pa.Array.from_buffers(target, rows, [None], children=children)

    return read


def _number_reader(fixed: ScalarLayout, target: pa.DataType) -> Read:
    t, offset = fixed.type, fixed.offset
    convert, code = scalar_converter(t, target), number_code(t)

    def read(table: Table, repeats: Repeats) -> pa.Array:
        array, bad = convert(table.column(code, offset, repeats), table.owned)
        if bad is not None:
            table.mark(bad, fault(t))
        return array

    def read_binary128(table: Table, repeats: Repeats) -> pa.Array:
        words = table.column("u8", offset, (*repeats, (2, 8)))
        return convert(words if table.order == "<" else words[..., ::-1], False)[0]

    return read_binary128 if isinstance(t, Primitive) and t.kind is PrimitiveKind.FLOAT128 else read


def _repeat_reader(fixed: Repeat, target: pa.DataType) -> Read:
    t, element = fixed.type, fixed.element
    kinds = [target]
    if isinstance(element, ScalarLayout) and is_bytes(t.element):
        width, dimensions = t.dimensions[-1], t.dimensions[:-1]
        for _ in dimensions:
            kinds.append(kinds[-1].value_type)

        def read_bytes(table: Table, repeats: Repeats) -> pa.Array:
            column = table.column("u1", element.offset, (*repeats, (t.length, fixed.stride)))
            values = column.copy().reshape(-1)
            inner = binary_array(values, constant_offsets(len(values) // width, width), kinds[-1])
            return nested_lists(inner, dimensions, kinds)

        return read_bytes
    for _ in t.dimensions:
        kinds.append(kinds[-1].value_type)
    read_element = fixed_reader(element, kinds[-1])

    def read(table: Table, repeats: Repeats) -> pa.Array:
        inner = read_element(table, (*repeats, (t.length, fixed.stride)))
        return nested_lists(inner, t.dimensions, kinds)

    return read


def constant_offsets(rows: int, length: int) -> I64:
    return np.arange(rows + 1, dtype=np.int64) * length


def offsets_of_lengths(lengths: Position, rows: int) -> I64:
    """The starts of consecutive pieces and the end of the last one."""
    if isinstance(lengths, int):
        return constant_offsets(rows, lengths)
    return offsets_of(lengths)


def arrow_offsets(offsets: I64) -> pa.Buffer:
    if int(offsets[-1]) > COLUMN_BYTES_MAX:
        raise TooManySamplesError("a column would exceed 2 GiB in one batch; decode fewer samples at once")
    return pa.py_buffer(offsets.astype(np.int32))


def binary_array(data: U8, offsets: I64, target: pa.DataType) -> pa.Array:
    if pa.types.is_large_binary(target) or pa.types.is_large_string(target):
        bounds = pa.py_buffer(np.ascontiguousarray(offsets))
    else:
        bounds = arrow_offsets(offsets)
    return pa.Array.from_buffers(target, len(offsets) - 1, [None, bounds, pa.py_buffer(data)])


def string_array(data: U8, offsets: I64, target: pa.DataType) -> tuple[pa.Array, Mask | None]:
    """Strings, and a mask of those that are not UTF-8. These are empty, not null, because a string may be the key of a
    map, and Arrow ends the process if keys have nulls."""
    array = binary_array(data, offsets, target)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        # This is rare and may be slow: find the invalid strings one by one and leave them out.
        raw = binary_array(data, offsets, pa.large_binary())
        bad = np.fromiter((not _is_utf8(value.as_py()) for value in raw), np.bool_, len(raw))
        lengths = np.diff(offsets)
        known = data[np.repeat(~bad, lengths)]
        return binary_array(known, offsets_of(np.where(bad, 0, lengths)), target), bad
    return array, None


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def wstring_array(units: Values, offsets: I64, target: pa.DataType) -> tuple[pa.Array, Mask | None]:
    """UTF-16 code units as strings, and a mask of those that have half a surrogate pair, which are empty."""
    count, rows = len(units), len(offsets) - 1
    kind = units & 0xFC00
    high, low = kind == 0xD800, kind == 0xDC00
    if not (high.any() or low.any()):
        bad = None
    else:
        # a high half must be followed by a low one in the same string, and each low one follow a high one
        follows = np.zeros(count + 1, np.bool_)
        follows[1:] = high
        follows[offsets[:-1]] = False
        ends = np.zeros(count + 1, np.bool_)
        ends[offsets] = True
        lone = (low != follows[:-1]) | (high & ends[1:])
        bad = None
        if lone.any():
            owners = np.repeat(np.arange(rows), np.diff(offsets))
            bad = np.zeros(rows, np.bool_)
            bad[owners[lone]] = True
            keep = ~bad[owners]
            units, high, low = units[keep], high[keep], low[keep]
            offsets = offsets_of(np.where(bad, 0, np.diff(offsets)))
    sizes = np.where(units < 0x80, 1, np.where((units < 0x800) | high | low, 2, 3))
    ends_of_units = offsets_of(sizes)
    text = units.astype("<u2").tobytes().decode("utf-16-le").encode()
    return binary_array(np.frombuffer(text, np.uint8), ends_of_units[offsets], target), bad


def list_array(inner: pa.Array, offsets: I64, target: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(target, len(offsets) - 1, [None, arrow_offsets(offsets)], children=[inner])


def nested_lists(inner: pa.Array, dimensions: tuple[int, ...], kinds: list[pa.DataType]) -> pa.Array:
    """Wrap a flat array as a multi-dimensional one; ``kinds`` are the types of the lists, the outermost first."""
    for i in reversed(range(len(dimensions))):
        inner = list_array(inner, constant_offsets(len(inner) // dimensions[i], dimensions[i]), kinds[i])
    return inner


def struct_array(arrays: dict[str, pa.Array], target: pa.DataType, rows: int) -> pa.Array:
    """A struct array with the fields of ``target`` in order; fields that ``arrays`` lacks are null."""
    children = [arrays[f.name] if f.name in arrays else pa.nulls(rows, f.type) for f in target]
    return pa.Array.from_buffers(target, rows, [None], children=children)


#: The fields of ROS 2's Time and Duration before they become one column.
TIME_FIELDS: Final = pa.struct([("sec", pa.int64()), ("nanosec", pa.int64())])


def time_of(array: pa.Array, target: pa.DataType) -> pa.Array:
    """``TIME_FIELDS`` in microseconds, rounded down; a nanosecond field of a billion or more counts in full."""
    seconds, nanoseconds = array.field(0), array.field(1)
    fraction = np.asarray(nanoseconds.fill_null(0)) // 1000
    ticks = np.asarray(seconds.fill_null(0)) * 1_000_000 + fraction
    times = pa.Array.from_buffers(target, len(ticks), [None, pa.py_buffer(ticks)])
    if not seconds.null_count and not nanoseconds.null_count:
        return times
    return pc.if_else(pc.and_(seconds.is_valid(), nanoseconds.is_valid()), times, pa.scalar(None, target))
