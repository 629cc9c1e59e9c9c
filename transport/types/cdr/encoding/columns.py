"""Arrow columns as NumPy arrays of wire values, checked against their DDS type, for the encoder to write.

The inner values of a column are in one compact array in the order of their parents, without slices, offsets and values
that are not written. Nodes therefore need no row numbers.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa

from ....errors import EncodeError, NullPlace
from ....value_classes import value
from ...arrow import DURATION, TIME, arrow_type, time_type
from ...model import (
    SCALARS,
    Array,
    Map,
    Member,
    Sequence,
    String,
    Struct,
    Type,
    Union,
    WString,
    is_bytes,
)
from ..cursors import I64, U8, Mask, Values
from .scalars import ValueLocation, as_string, scalar_values, seconds_and_nanoseconds, utf8, utf16


@value
class NumberColumn:
    """One value for each row; two words for binary128."""

    values: Values


@value
class Bytes:
    """Strings (without NUL) and octet sequences: ``counts[i]`` bytes each, one after the other."""

    data: U8
    counts: I64


@value
class Wide:
    """Wide strings: ``counts[i]`` UTF-16 code units each, one after the other."""

    units: Values
    counts: I64


@value
class Lists:
    """``counts[i]`` elements each, one after the other."""

    counts: I64
    elements: Column


@value
class Fields:
    members: tuple[Column, ...]


@value
class Maybe:
    """``values`` belong to ``rows``, the rows that are not null."""

    rows: I64
    values: Column


@value
class Selected:
    """A union: its discriminators, and for each branch the rows that select it and their values."""

    discriminator: NumberColumn
    branches: tuple[Maybe, ...]


Column: TypeAlias = NumberColumn | Bytes | Wide | Lists | Fields | Maybe | Selected


def struct_columns(batch: pa.RecordBatch, struct: Struct) -> Fields:
    """The columns of a batch for the members of a struct, by name."""
    columns, schema = [], batch.schema
    for member in struct.members:
        index = schema.get_field_index(member.name)
        if index < 0:
            if not member.optional:
                raise EncodeError(
                    f"the batch does not have exactly one column {member.name!r}, which {struct.name} needs"
                )
            array: pa.Array = pa.nulls(batch.num_rows)
        else:
            array = batch.column(index)
        columns.append(_member_column(array, member, ValueLocation(member.name)))
    return Fields(tuple(columns))


def _member_column(array: pa.Array, member: Member, place: ValueLocation) -> Column:
    if not member.optional:
        return column_of(array, member.type, place, NullPlace.KEY if member.key else NullPlace.MEMBER)
    array = _plain(array)
    rows = np.flatnonzero(np.asarray(array.is_valid()))
    if len(rows) < len(array):
        array, place = array.drop_null(), place.at(rows)
    return Maybe(rows, column_of(array, member.type, place))


def _plain(array: pa.Array) -> pa.Array:
    """The array without dictionary encoding, which hides nulls of the dictionary, and without an extension type."""
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def column_of(array: pa.Array, t: Type, place: ValueLocation, null: NullPlace = NullPlace.MEMBER) -> Column:
    """The wire values of an array; ``null`` describes in errors what a null in it would be."""
    array = _plain(array)
    if array.null_count:
        place.refuse(np.asarray(array.is_null()), null)
    if array.type == pa.null():
        array = pa.nulls(0, arrow_type(t))
    if isinstance(t, SCALARS):
        return NumberColumn(scalar_values(array, t, place))
    if isinstance(t, String):
        data, counts = utf8(as_string(array, place, "a string"))
        if t.bound:
            place.refuse(counts > t.bound, f"longer than the string's bound of {t.bound} bytes")
        return Bytes(data, counts)
    if isinstance(t, WString):
        units, counts = utf16(as_string(array, place, "a wstring"))
        if t.bound:
            place.refuse(counts > t.bound, f"longer than the wstring's bound of {t.bound} UTF-16 code units")
        return Wide(units, counts)
    if isinstance(t, Struct):
        return _fields(array, t, place)
    if isinstance(t, Union):
        return _selected(array, t, place)
    if isinstance(t, Map):
        return _map(array, t, place)
    if isinstance(t, Array):
        return _array(array, t, t.dimensions, place)
    assert isinstance(t, Sequence)  # aliases are resolved
    column = _elements(array, t.element, place)
    if t.bound:
        place.refuse(column.counts > t.bound, f"more than the sequence's bound of {t.bound}")
    return column


def _fields(array: pa.Array, t: Struct, place: ValueLocation) -> Fields:
    if _is_time(array.type, t):
        return Fields(tuple(NumberColumn(values) for values in seconds_and_nanoseconds(array, place)))
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


def _is_time(have: pa.DataType, t: Struct) -> bool:
    if pa.types.is_timestamp(have):
        return bool(time_type(t) == TIME)
    return bool(pa.types.is_duration(have) and time_type(t) == DURATION)


def _selected(array: pa.Array, t: Union, place: ValueLocation) -> Selected:
    if not pa.types.is_struct(array.type):
        raise place.mistyped(array, f"the union {t.name}")
    names = [field.name for field in array.type]
    children = dict(zip(names, array.flatten(), strict=True))
    if t.discriminator_name not in children:
        raise EncodeError(
            f"column {place.path!r} has no field {t.discriminator_name!r}, which {t.name} needs"
        )
    inner = place.inner(t.discriminator_name)
    column = column_of(children[t.discriminator_name], t.discriminator, inner, NullPlace.DISCRIMINATOR)
    assert isinstance(column, NumberColumn)
    which = column.values
    named = [_is_label(which, case.labels) for case in t.cases]
    unreported = ~np.logical_or.reduce(named)
    branches = []
    for case, selected in zip(t.cases, named, strict=True):
        if case.default:
            selected |= unreported
        rows, inner = np.flatnonzero(selected), place.inner(case.name)
        child = children.get(case.name)
        if child is None:
            inner.refuse(selected, f"the discriminator selects it, and there is no field {case.name!r}")
            child = pa.nulls(len(array), arrow_type(case.type))
        child = _plain(child)
        given = np.asarray(child.is_valid())
        inner.refuse(selected & ~given, "null, but the discriminator selects it")
        inner.refuse(given & ~selected, "has a value, but the discriminator does not select it")
        values = column_of(child.filter(pa.array(selected)), case.type, inner.at(rows))
        branches.append(Maybe(rows, values))
    return Selected(column, tuple(branches))


def _is_label(values: Values, labels: tuple[int, ...]) -> Mask:
    """A peer's enum may have labels that its integer cannot hold."""
    limits = np.iinfo(values.dtype)
    possible = [label for label in labels if limits.min <= label <= limits.max]
    return np.isin(values, np.array(possible, values.dtype))


def _map(array: pa.Array, t: Map, place: ValueLocation) -> Lists:
    if not pa.types.is_map(array.type):
        raise place.mistyped(array, "a map")
    offsets = np.asarray(array.offsets).astype(np.int64)
    counts, first, size = np.diff(offsets), int(offsets[0]), int(offsets[-1] - offsets[0])
    if t.bound:
        place.refuse(counts > t.bound, f"more than the map's bound of {t.bound}")
    keys = column_of(array.keys.slice(first, size), t.key, place.element(counts, ".key"), NullPlace.MAP_KEY)
    items = array.items.slice(first, size)
    items = column_of(items, t.value, place.element(counts, ".value"), NullPlace.MAP_VALUE)
    return Lists(counts, Fields((keys, items)))


def _elements(array: pa.Array, element: Type, place: ValueLocation) -> Bytes | Lists:
    if is_bytes(element) and _is_binary(array.type):
        return Bytes(*utf8(array if pa.types.is_binary(array.type) else array.cast(pa.binary())))
    if pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    if not pa.types.is_list(array.type):
        raise place.mistyped(array, "a sequence or array")
    offsets = np.asarray(array.offsets).astype(np.int64)
    counts = np.diff(offsets)
    inner = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    elements = column_of(inner, element, place.element(counts), NullPlace.ELEMENT)
    if is_bytes(element) and isinstance(elements, NumberColumn):
        return Bytes(elements.values, counts)
    return Lists(counts, elements)


def _array(array: pa.Array, t: Array, dimensions: tuple[int, ...], place: ValueLocation) -> Bytes | Lists:
    """A fixed array; several dimensions are flattened into one list of all elements."""
    length, rest = dimensions[0], dimensions[1:]
    column = _elements(array, Array(t.element, rest) if rest else t.element, place)
    place.refuse(column.counts != length, f"an array of {length} elements is needed")
    if not rest:
        return column
    assert isinstance(column, Lists)
    inner = column.elements
    assert isinstance(inner, Bytes | Lists)
    counts = np.full(len(column.counts), int(np.prod(dimensions)), np.int64)
    return Bytes(inner.data, counts) if isinstance(inner, Bytes) else Lists(counts, inner.elements)


def _is_binary(t: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(t)
        or pa.types.is_large_binary(t)
        or pa.types.is_fixed_size_binary(t)
        or pa.types.is_binary_view(t)
    )
