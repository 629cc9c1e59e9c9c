"""Arrow columns as plain NumPy arrays of wire values, checked against their DDS type: what encoding writes.

Children lie in one compact array in the order of their parents, whatever slices and offsets the Arrow
arrays had.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import EncodeError
from ..arrow import UINT64_DECIMAL, arrow_type
from ..model import (
    Array,
    Enum,
    Member,
    Primitive,
    PrimitiveKind,
    String,
    Struct,
    Type,
    is_bytes,
    number_code,
)
from .lanes import I64, U8, Mask, Values, offsets_of
from .values import LATIN1


@dataclass(frozen=True, slots=True)
class Numbers:
    values: Values


@dataclass(frozen=True, slots=True)
class Bytes:
    """Strings (without NUL) and octet sequences: pieces of ``data``, one after the other."""

    data: U8
    starts: I64
    counts: I64


@dataclass(frozen=True, slots=True)
class Lists:
    """Elements [starts[i], starts[i] + counts[i]) of ``elements`` are those of row i, without gaps."""

    starts: I64
    counts: I64
    elements: Column


@dataclass(frozen=True, slots=True)
class Fields:
    members: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Maybe:
    """``values`` holds a row for each present one; ``index`` says which, for present rows."""

    present: Mask
    index: I64
    values: Column


Column: TypeAlias = Numbers | Bytes | Lists | Fields | Maybe


@dataclass(frozen=True, slots=True)
class Place:
    """Where we are, for messages: the column's path, and the row of the batch an element belongs to."""

    path: str
    row: Callable[[int], int]

    def inner(self, name: str) -> Place:
        return Place(f"{self.path}.{name}", self.row)

    def element(self, counts: I64) -> Place:
        ends = offsets_of(counts)[1:]
        return Place(f"{self.path}[]", lambda i: self.row(int(np.searchsorted(ends, i, "right"))))

    def refuse(self, bad: Mask, why: str) -> None:
        """Raise for the first row that is marked, if there is one."""
        if bad.any():
            raise EncodeError(f"column {self.path!r}, row {self.row(int(np.argmax(bad)))}: {why}")

    def mistyped(self, array: pa.Array, wanted: str) -> EncodeError:
        return EncodeError(f"column {self.path!r}: {array.type} cannot be written as {wanted}")


def struct_columns(batch: pa.RecordBatch, struct: Struct) -> Fields:
    """The columns of a batch that a struct asks for, by name."""
    columns = []
    for member in struct.members:
        index = batch.schema.get_field_index(member.name)
        if index < 0:
            missing = f"the batch has no column {member.name!r} (once), which {struct.name} needs"
            if not member.optional:
                raise EncodeError(missing)
            array: pa.Array = pa.nulls(batch.num_rows)
        else:
            array = batch.column(index)
        columns.append(_member_column(array, member, Place(member.name, int)))
    return Fields(tuple(columns))


def _member_column(array: pa.Array, member: Member, place: Place) -> Column:
    if not member.optional:
        return column_of(array, member.type, place)
    present = np.asarray(array.is_valid())
    if array.type == pa.null():
        array = pa.nulls(len(array), arrow_type(member.type))
    rows = np.flatnonzero(present)
    values = column_of(array.drop_null(), member.type, Place(place.path, lambda i: place.row(int(rows[i]))))
    return Maybe(present, np.cumsum(present) - 1, values)


def column_of(array: pa.Array, t: Type, place: Place) -> Column:
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.null_count:
        place.refuse(
            np.asarray(array.is_null()),
            "null, but the member is not @optional; fill it (coalesce), or use an IDL with @optional",
        )
    if isinstance(t, Enum):
        return Numbers(_enum_values(array, t, place))
    if isinstance(t, Primitive):
        return Numbers(_primitive_values(array, t.kind, place))
    if isinstance(t, String):
        return _text(array, t.bound, place)
    if isinstance(t, Struct):
        return _fields(array, t, place)
    if isinstance(t, Array):
        return _array(array, t, t.dimensions, place)
    column = _elements(array, t.element, place)
    if t.bound:
        place.refuse(column.counts > t.bound, f"more than the sequence's bound of {t.bound}")
    return column


def _fields(array: pa.Array, t: Struct, place: Place) -> Fields:
    if not pa.types.is_struct(array.type):
        raise place.mistyped(array, f"the struct {t.name}")
    columns: list[Column] = []
    children = array.flatten()
    for member in t.members:
        index = array.type.get_field_index(member.name)
        if index >= 0:
            child = children[index]
        elif member.optional:
            child = pa.nulls(len(array))
        else:
            raise EncodeError(f"column {place.path!r} has no field {member.name!r}, which {t.name} needs")
        columns.append(_member_column(child, member, place.inner(member.name)))
    return Fields(tuple(columns))


def _elements(array: pa.Array, element: Type, place: Place) -> Bytes | Lists:
    if is_bytes(element) and _is_binary(array.type):
        return _bytes(array.cast(pa.binary()))
    if pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    if not pa.types.is_list(array.type):
        raise place.mistyped(array, "a sequence or array")
    offsets = np.asarray(array.offsets).astype(np.int64)
    counts = np.diff(offsets)
    inner = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    elements = column_of(inner, element, place.element(counts))
    if is_bytes(element) and isinstance(elements, Numbers):
        return Bytes(elements.values, offsets[:-1] - offsets[0], counts)
    return Lists(offsets[:-1] - offsets[0], counts, elements)


def _array(array: pa.Array, t: Array, dimensions: tuple[int, ...], place: Place) -> Bytes | Lists:
    """A fixed array; several dimensions are flattened into one list of all elements."""
    length, rest = dimensions[0], dimensions[1:]
    column = _elements(array, Array(t.element, rest) if rest else t.element, place)
    place.refuse(column.counts != length, f"an array of {length} elements is needed")
    if not rest:
        return column
    assert isinstance(column, Lists)
    inner = column.elements
    assert isinstance(inner, Bytes | Lists)
    rows, size = len(column.counts), t.length
    starts, counts = np.arange(rows, dtype=np.int64) * size, np.full(rows, size, np.int64)
    if isinstance(inner, Bytes):
        return Bytes(inner.data, starts, counts)
    return Lists(starts, counts, inner.elements)


def _is_binary(t: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(t)
        or pa.types.is_large_binary(t)
        or pa.types.is_fixed_size_binary(t)
        or pa.types.is_binary_view(t)
    )


def _bytes(array: pa.Array) -> Bytes:
    """The bytes of a binary or string array (32-bit offsets)."""
    _, offset_buffer, data_buffer = array.buffers()
    if not len(array) or offset_buffer is None:
        return Bytes(np.empty(0, np.uint8), np.zeros(len(array), np.int64), np.zeros(len(array), np.int64))
    first, count = array.offset, len(array) + 1
    offsets = np.frombuffer(offset_buffer, np.int32)[first : first + count].astype(np.int64)
    data = np.empty(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    return Bytes(data[offsets[0] : offsets[-1]], offsets[:-1] - offsets[0], np.diff(offsets))


def _text(array: pa.Array, bound: int, place: Place) -> Bytes:
    array = _as_string(array, place, "a string")
    text = _bytes(array)
    if bound:
        place.refuse(text.counts > bound, f"longer than the string's bound of {bound} bytes")
    return text


def _as_string(array: pa.Array, place: Place, wanted: str) -> pa.Array:
    if pa.types.is_string(array.type):
        return array
    if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        return array.cast(pa.string())
    raise place.mistyped(array, wanted)


def _enum_values(array: pa.Array, t: Enum, place: Place) -> Values:
    names = pa.array([name for name, _ in t.literals], pa.string())
    array = _as_string(array, place, f"the enum {t.name}")
    index = pc.index_in(array, value_set=names)
    if index.null_count:
        unknown = np.asarray(index.is_null())
        name = array[int(np.argmax(unknown))].as_py()
        place.refuse(unknown, f"{name!r} is no literal of {t.name}")
    known = np.array([value for _, value in t.literals], f"={number_code(t)}")
    numbers: Values = known[np.asarray(index)]
    return numbers


def _primitive_values(array: pa.Array, kind: PrimitiveKind, place: Place) -> Values:
    t = array.type
    if kind is PrimitiveKind.BOOLEAN:
        if not pa.types.is_boolean(t):
            raise place.mistyped(array, "boolean")
        return np.asarray(array.cast(pa.uint8()))
    if kind is PrimitiveKind.CHAR8:
        array = _as_string(array, place, "char")
        index = pc.index_in(array, value_set=LATIN1)
        if index.null_count:
            place.refuse(np.asarray(index.is_null()), "a char holds one Latin-1 character")
        return np.asarray(index).astype(np.uint8)
    code = np.dtype("=" + number_code(Primitive(kind)))
    if code.kind == "f":
        if not (pa.types.is_floating(t) or pa.types.is_integer(t)):
            raise place.mistyped(array, kind.value)
        numbers = np.asarray(array)
        with np.errstate(over="ignore", invalid="ignore"):
            floats: Values = numbers.astype(code, copy=False)
            if numbers.dtype.kind in "iu":
                # the float above the greatest integer casts back to anything
                inexact = floats.astype(numbers.dtype) != numbers
                inexact |= floats >= float(np.iinfo(numbers.dtype).max) + 1
                place.refuse(inexact, f"not exactly a {kind.value}")
        if floats.itemsize < numbers.itemsize:
            place.refuse(np.isinf(floats) & ~np.isinf(numbers), f"too large for {kind.value}")
        return floats
    return _integers(array, code, kind, place)


def _integers(array: pa.Array, code: np.dtype[Any], kind: PrimitiveKind, place: Place) -> Values:
    t = array.type
    limits = np.iinfo(code.name)
    why = f"outside {kind.value}: {limits.min} to {limits.max}"
    if t == UINT64_DECIMAL:
        _, buffer = array.buffers()
        words = np.frombuffer(buffer, np.int64).reshape(-1, 2)[array.offset : array.offset + len(array)]
        low = words[:, 0].view() if kind is PrimitiveKind.UINT64 else words[:, 0]
        if kind is PrimitiveKind.UINT64:
            place.refuse(words[:, 1] != 0, why)
            return low.copy().view(np.uint64)
        place.refuse(words[:, 1] != low >> 63, why)
        values: Values = low
    elif pa.types.is_timestamp(t):
        values = np.asarray(array.cast(pa.timestamp("us", t.tz), safe=False).cast(pa.int64()))
    elif pa.types.is_date32(t):
        values = np.asarray(array.cast(pa.int32()))
    elif pa.types.is_integer(t):
        values = np.asarray(array)
    else:
        raise place.mistyped(array, kind.value)
    if values.dtype == code:
        return values
    held = np.iinfo(values.dtype)
    if held.min < limits.min:
        place.refuse(values < limits.min, why)
    if held.max > limits.max:
        place.refuse(values > limits.max, why)
    return values.astype(code)


def take_rows(rows: I64 | None, values: Values) -> Values:
    """Rows of a column; all of them, without a copy, if ``rows`` is None."""
    return values if rows is None else values[rows]
