"""Fields of a type by the names that filters use, and their values in the columns of a batch."""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...errors import FilterError, UsageError
from ...value_classes import value
from ..arrow import time_type
from ..model import (
    LENGTH_MAX,
    Array,
    Bitmask,
    Bitset,
    Enum,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
    Type,
    Union,
    WString,
    fields_of,
    is_blob,
    resolve,
)
from .truth import NumberValues

_STEP: Final = re.compile(r"\.?(\w+)|\[(\d+)\]")
_FLOATS: Final = {PrimitiveKind.FLOAT32, PrimitiveKind.FLOAT64, PrimitiveKind.FLOAT128}
_CHARS: Final = {PrimitiveKind.CHAR8, PrimitiveKind.CHAR16}
_MICROSECONDS: Final = 1_000_000


class FieldKind(enum.Enum):
    """The kind of a field for a filter; the value names it in messages."""

    BOOLEAN = "a boolean"
    INTEGER = "an integer"
    FLOAT = "a float"
    TEXT = "a string"
    ENUM = "an enum"
    OCTETS = "octets"


@value
class Field:
    """``steps``: names, and indices into sequences and arrays. ``needed``: the dotted path of the column that a batch
    must have; it ends before an index, and before the parts of a time, which may be one column."""

    path: str
    steps: tuple[str | int, ...]
    type: Type
    kind: FieldKind
    needed: str

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """The field's column; null in rows that do not have the field."""
        name = str(self.steps[0])
        if name not in batch.schema.names:
            raise UsageError(f"filter: the batch has no column {name!r}")
        array = batch.column(name)
        for step in self.steps[1:]:
            array = _element(array, step) if isinstance(step, int) else self._member(array, step)
        return array

    def numbers(self, batch: pa.RecordBatch) -> NumberValues:
        """Integers, floats, booleans; the values of enums and bitmasks."""
        array = self.evaluate(batch)
        t = resolve(self.type)
        if isinstance(t, Enum) and _is_text(array.type):
            return _enum_values(array, t)
        if isinstance(t, Bitmask):
            return _bitmask_values(array, t)
        return _numbers(array)

    def _member(self, array: pa.Array, name: str) -> pa.Array:
        if pa.types.is_struct(array.type):
            index = array.type.get_field_index(name)
            if index < 0:
                raise UsageError(f"filter: the batch has no column {self.path!r}")
            return pc.struct_field(array, [index])
        # a time as one column of microseconds
        numbers = _numbers(array)
        seconds, rest = np.divmod(numbers.values, _MICROSECONDS)
        return pa.array(seconds if name == "sec" else rest * 1_000, mask=~numbers.valid)


def find_field(path: str, struct: Struct) -> Field:
    """The field of a path. Raises FilterError for a field that does not exist, or has no value to compare."""
    steps: list[str | int] = []
    needed: list[str] = []
    whole = False
    t: Type = struct
    for match in _STEP.finditer(path):
        name, index = match.groups()
        before = path[: match.start()]
        if index is not None:
            t = _indexed(t, int(index), before)
            steps.append(int(index))
            whole = True
            continue
        whole = whole or time_type(t) is not None
        name, t = _named(t, name, before)
        steps.append(name)
        if not whole:
            needed.append(name)
    return Field(path, tuple(steps), t, _kind(t, path), ".".join(needed))


def nearest(word: str, known: Iterable[str]) -> str:
    """The nearest known word, as the end of a message."""
    names = list(known)
    folded = {name.lower(): name for name in names}
    found = difflib.get_close_matches(word.lower(), folded, 1, 0.6)
    if found:
        return f"; did you mean {folded[found[0]]!r}?"
    return f"; there are {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}"


def _named(t: Type, name: str, before: str) -> tuple[str, Type]:
    t = resolve(t)
    if not isinstance(t, Struct | Union | Bitset):
        raise FilterError(f"{before!r} has no fields")
    inner = fields_of(t)
    if isinstance(t, Union) and name == "_d" and name not in inner:  # RTI Connext's name of the discriminator
        name = t.discriminator_name
    if name not in inner:
        place = f"{before!r}" if before else f"type {t.name}"
        raise FilterError(f"{place} has no field {name!r}{nearest(name, inner)}")
    return name, inner[name]


def _indexed(t: Type, index: int, before: str) -> Type:
    t = resolve(t)
    if isinstance(t, Array):
        if index >= t.dimensions[0]:
            raise FilterError(f"{before!r} has {t.dimensions[0]} elements: no [{index}]")
        return Array(t.element, t.dimensions[1:]) if len(t.dimensions) > 1 else t.element
    if isinstance(t, Sequence):
        most = t.bound or LENGTH_MAX
        if index >= most:
            raise FilterError(f"{before!r} has at most {most} elements: no [{index}]")
        return t.element
    raise FilterError(f"{before!r} is no sequence or array: it has no [{index}]")


def _kind(t: Type, path: str) -> FieldKind:
    t = resolve(t)
    if isinstance(t, Primitive):
        if t.kind is PrimitiveKind.BOOLEAN:
            return FieldKind.BOOLEAN
        return (
            FieldKind.FLOAT
            if t.kind in _FLOATS
            else FieldKind.TEXT
            if t.kind in _CHARS
            else FieldKind.INTEGER
        )
    if isinstance(t, String | WString):
        return FieldKind.TEXT
    if isinstance(t, Enum):
        return FieldKind.ENUM
    if isinstance(t, Bitmask):
        return FieldKind.INTEGER
    if isinstance(t, Sequence | Array):
        if is_blob(t):
            return FieldKind.OCTETS
        raise FilterError(f"{path!r} is a sequence or array: compare an element of it, such as {path}[0]")
    if isinstance(t, Struct | Union | Bitset):
        raise FilterError(f"{path!r} is a {type(t).__name__.lower()}: compare a field of it")
    raise FilterError(f"{path!r} is a map: filters cannot compare its entries")


# --- columns ----------------------------------------------------------------------------------------


def _is_text(t: pa.DataType) -> bool:
    return bool(pa.types.is_string(t) or pa.types.is_large_string(t))


def _element(array: pa.Array, index: int) -> pa.Array:
    """The element at ``index`` of each list or binary; null if it is shorter."""
    binary = pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type)
    lengths = pc.binary_length(array) if binary else pc.list_value_length(array)
    is_there = pc.fill_null(pc.greater(lengths, index), False).to_numpy(zero_copy_only=False)
    positions = np.where(is_there, _starts(array, binary) + index, 0)
    if not binary:
        return array.values.take(pa.array(positions, mask=~is_there))
    octets = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    values = octets[positions] if octets.size else np.zeros(len(array), np.uint8)
    return pa.array(values, mask=~is_there)


def _starts(array: pa.Array, binary: bool) -> NDArray[Any]:
    """The start of each list or binary in the array of all values."""
    if pa.types.is_fixed_size_list(array.type):
        return np.arange(array.offset, array.offset + len(array)) * int(array.type.list_size)
    large = pa.types.is_large_binary(array.type) or pa.types.is_large_list(array.type)
    offsets = array.buffers()[1]
    if offsets is None:
        return np.zeros(len(array), np.int64)
    ends = array.offset + len(array)
    starts: NDArray[Any] = np.frombuffer(offsets, np.int64 if large else np.int32)[array.offset : ends]
    return starts.astype(np.int64)


def _valid(array: pa.Array) -> NDArray[np.bool_]:
    valid: NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _numbers(array: pa.Array) -> NumberValues:
    valid = _valid(array)
    if pa.types.is_decimal(array.type):
        # uint64 as decimal(20, 0): the lower half of its 128 bits is the number
        halves = np.frombuffer(array.buffers()[1] or b"", "<u8")
        return NumberValues(halves[2 * array.offset : 2 * (array.offset + len(array)) : 2], valid)
    if pa.types.is_temporal(array.type):
        array = array.cast(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
    return NumberValues(
        array.fill_null(False if pa.types.is_boolean(array.type) else 0).to_numpy(zero_copy_only=False), valid
    )


def _enum_values(array: pa.Array, t: Enum) -> NumberValues:
    places = pc.index_in(array, value_set=pa.array([name for name, _ in t.literals], array.type))
    values = np.array([value for _, value in t.literals], np.int64)
    return NumberValues(values[places.fill_null(0).to_numpy(zero_copy_only=False)], _valid(places))


def _bitmask_values(array: pa.Array, t: Bitmask) -> NumberValues:
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        numbers = _numbers(array)
        return NumberValues(numbers.values.astype(np.int64).view(np.uint64), numbers.valid)
    names = array.flatten()
    places = pc.index_in(names, value_set=pa.array([name for name, _ in t.flags], names.type))
    bits = np.array([1 << position for _, position in t.flags] + [0], np.uint64)
    each = bits[places.fill_null(len(t.flags)).to_numpy(zero_copy_only=False)]
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths)
    # No bit comes twice, so that their sum is the mask. It wraps around in between, and back.
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(each, dtype=np.uint64)))
    return NumberValues(sums[ends] - sums[ends - lengths], _valid(array))
