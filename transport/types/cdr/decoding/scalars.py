"""Numbers from the wire as Arrow arrays of the wanted type, straight from buffers: no Python object per value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from ....errors import TooManySamplesError
from ...arrow import UINT64_DECIMAL
from ...model import Bitmask, Bitset, Enum, Primitive, PrimitiveKind, Scalar, number_code, number_size
from ..cursors import Mask, Values, offsets_of

#: The largest size that 32-bit offsets can address.
COLUMN_BYTES_MAX: Final = (1 << 31) - 1


def _latin1() -> pa.Array:
    """Built from buffers: ``pa.array`` imports pandas, which takes longer than all other imports of a source."""
    characters = [chr(i).encode() for i in range(256)]
    ends = offsets_of(np.array([len(each) for each in characters])).astype(np.int32)
    return pa.Array.from_buffers(
        pa.string(), 256, [None, pa.py_buffer(ends), pa.py_buffer(b"".join(characters))]
    )


#: A char is one byte of an unnamed character set; Latin-1 maps each byte to one character.
LATIN1: Final = _latin1()

_NUMPY: Final[dict[pa.DataType, str]] = {pa.float32(): "f4", pa.float64(): "f8"}


#: Converts values of any shape to a flat Arrow array, and returns a mask of those that are not values of the type. The
#: flag states whether the array may keep the memory of the values.
Convert: TypeAlias = Callable[[Values, bool], tuple[pa.Array, Mask | None]]


class _LiteralNames:
    """The names of literals or flags."""

    def __init__(self, names: list[str]) -> None:
        self.array = pa.array(names, pa.string())
        self.lengths = np.array([len(name.encode()) for name in names], np.int64)
        self.longest = int(self.lengths.max(initial=0))

    def select(self, index: Values, target: pa.DataType) -> pa.Array:
        """The names at these indices. Raises TooManySamplesError if they exceed the size of a column."""
        if len(index) * self.longest > COLUMN_BYTES_MAX:
            counts = np.bincount(index, minlength=len(self.lengths))
            if int(counts @ self.lengths) > COLUMN_BYTES_MAX:
                raise TooManySamplesError(
                    "a column of names would exceed 2 GiB in one batch; decode fewer samples at once"
                )
        return _typed(self.array.take(pa.array(index)), target)


def scalar_converter(t: Scalar, target: pa.DataType) -> Convert:
    """The conversion of values of a scalar type to arrays of type ``target`` that own their memory."""
    if isinstance(t, Enum):
        known, names = _literals(t)
        return lambda values, owned: _enum_array(known, names, values.reshape(-1), target)
    if isinstance(t, Bitmask):
        return _bitmask_converter(t, target)
    if isinstance(t, Bitset):
        return lambda values, owned: _bitset_array(t, values.reshape(-1), target)
    if t.kind is PrimitiveKind.BOOLEAN:
        return lambda values, owned: (pa.array((values != 0).reshape(-1)), None)
    if t.kind is PrimitiveKind.CHAR8:
        return lambda values, owned: (_typed(LATIN1.take(pa.array(values.reshape(-1))), target), None)
    if t.kind is PrimitiveKind.CHAR16:
        return lambda values, owned: _wchar_array(values.reshape(-1), target)
    if t.kind is PrimitiveKind.UINT64:
        return lambda values, owned: _uint64_array(values.reshape(-1), target)
    code = _code(target)
    if t.kind is PrimitiveKind.FLOAT128:
        return lambda values, owned: (_numbers(doubles(values), target, code, True), None)
    return lambda values, owned: (_numbers(values, target, code, owned), None)


def fault(t: Scalar) -> str:
    """The reason for refusing bytes that are not a value of the type."""
    if isinstance(t, Enum):
        return f"no literal of enum {t.name}"
    if isinstance(t, Primitive) and t.kind is PrimitiveKind.CHAR16:
        return "a wchar is half a surrogate pair"
    return "uint64 beyond LONG"


def _code(target: pa.DataType) -> str:
    # NumPy holds dates and times as integers
    return _NUMPY.get(target) or f"i{target.bit_width // 8}"


def _numbers(values: Values, target: pa.DataType, code: str, owned: bool) -> pa.Array:
    native = values.astype(code, order="C", copy=not owned)
    return pa.Array.from_buffers(target, values.size, [None, pa.py_buffer(native)])


def _typed(array: pa.Array, target: pa.DataType) -> pa.Array:
    return array if array.type == target else array.cast(target)


def _uint64_array(values: Values, target: pa.DataType) -> tuple[pa.Array, Mask | None]:
    if target == UINT64_DECIMAL:
        words = np.zeros((values.size, 2), np.uint64)
        words[:, 0] = values
        return pa.Array.from_buffers(target, values.size, [None, pa.py_buffer(words)]), None
    native = values.astype("u8")
    bad = native > (1 << 63) - 1
    return _numbers(native.view("i8"), target, "i8", True), bad if bad.any() else None


def _literals(t: Enum) -> tuple[Values, _LiteralNames]:
    """The values in ascending order, and their names; a value with two names has the first."""
    names = {value: name for name, value in reversed(t.literals)}
    known = np.array(sorted(names), np.int64)
    return known, _LiteralNames([names[value] for value in known.tolist()])


def _enum_array(
    known: Values, names: _LiteralNames, values: Values, target: pa.DataType
) -> tuple[pa.Array, Mask | None]:
    numbers = values.astype(np.int64)
    index, bad = find(known, numbers)
    if pa.types.is_integer(target):
        array = _numbers(numbers, target, _code(target), True)
    else:
        array = names.select(index, target)
    return array, bad if bad.any() else None


def find(known: Values, numbers: Values) -> tuple[Values, Mask]:
    """The index of each number in the sorted array ``known``, and a mask of numbers not in it (their index is 0)."""
    if int(known[-1]) - int(known[0]) == len(known) - 1:
        index = numbers - known[0]
        bad: Mask = (index < 0) | (index >= len(known))
    else:
        index = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
        bad = known[index] != numbers
    index[bad] = 0
    return index, bad


def _bitmask_converter(t: Bitmask, target: pa.DataType) -> Convert:
    """Bits without a name are kept in an integer (bit 63 is its sign) and left out of a list."""
    if pa.types.is_integer(target):
        code = _code(target)
        return lambda values, owned: (_numbers(values.astype("u8").view("i8"), target, code, True), None)
    flags = sorted(t.flags, key=lambda flag: flag[1])
    names, size = _LiteralNames([name for name, _ in flags]), number_size(t)
    positions = np.array([position for _, position in flags], np.int64)

    def convert(values: Values, owned: bool) -> tuple[pa.Array, None]:
        octets = values.reshape(-1).astype(f"<u{size}").view(np.uint8).reshape(-1, size)
        # one byte for each bit of the type
        is_set = np.unpackbits(octets, axis=1, bitorder="little")[:, positions]
        offsets = offsets_of(is_set.sum(axis=1, dtype=np.int64))
        buffers = [None, pa.py_buffer(offsets.astype(np.int32))]
        inner = names.select(np.flatnonzero(is_set) % max(1, len(flags)), target.value_type)
        return pa.Array.from_buffers(target, len(octets), buffers, children=[inner]), None

    return convert


def _bitset_array(t: Bitset, values: Values, target: pa.DataType) -> tuple[pa.Array, Mask | None]:
    children, fields = [], {field.name: field for field in t.fields}
    words, wrong = values.astype(np.uint64), None
    for wanted in target:
        field = fields[wanted.name]
        kind = Primitive(field.kind)
        code = number_code(kind)
        # to the left end and back, for the sign
        left = (words << np.uint64(64 - field.position - field.bits)).view("i8" if code[0] == "i" else "u8")
        numbers = (left >> left.dtype.type(64 - field.bits)).astype(code)
        array, bad = scalar_converter(kind, wanted.type)(numbers, True)
        children.append(array)
        if bad is not None:
            wrong = bad if wrong is None else wrong | bad
    return pa.Array.from_buffers(target, len(values), [None], children=children), wrong


def _wchar_array(values: Values, target: pa.DataType) -> tuple[pa.Array, Mask | None]:
    units, index = np.unique(values.astype(np.uint16), return_inverse=True)
    halves = (units >= 0xD800) & (units < 0xE000)
    units[halves] = 0
    characters = pa.array([chr(unit) for unit in units.tolist()], pa.string())
    array = _typed(characters.take(pa.array(index.reshape(-1))), target)
    return array, halves[index].reshape(-1) if halves.any() else None


_FRACTION: Final = np.uint64((1 << 48) - 1)


def doubles(words: Values) -> Values:
    """IEEE 754 binary128, two words each with the low one first, as the nearest binary64, ties to even."""
    low, high = words[..., 0].astype(np.uint64).reshape(-1), words[..., 1].astype(np.uint64).reshape(-1)
    negative = high >> np.uint64(63) != 0
    exponent = (high >> np.uint64(48) & np.uint64(0x7FFF)).astype(np.int64)
    # the first 61 bits of the significand; the last bit is set if any of the remaining bits is
    significand = (high & _FRACTION) << np.uint64(12) | low >> np.uint64(52) | np.uint64(1 << 60)
    significand |= (low << np.uint64(12) != 0).astype(np.uint64)
    # the number of significant bits, of 53, for values below the least normal number
    lost = np.clip(-1022 - (exponent - 16383), 0, 54).astype(np.uint64) + np.uint64(8)
    half = np.uint64(1) << (lost - np.uint64(1))
    rest = significand & ((np.uint64(1) << lost) - np.uint64(1))
    rounded = significand >> lost
    rounded += (rest > half) | ((rest == half) & (rounded & np.uint64(1) != 0))
    scale = np.where(exponent == 0x7FFF, 0, exponent - 16383 - 60 + lost.astype(np.int64))
    with np.errstate(over="ignore"):
        numbers = np.ldexp(rounded.astype(np.float64), np.clip(scale, -5000, 5000).astype(np.int32))
    special = exponent == 0x7FFF
    is_nan = special & ((high & _FRACTION != 0) | (low != 0))
    numbers[special] = np.inf
    numbers[is_nan] = np.nan
    numbers[exponent == 0] = 0.0
    return np.where(negative, -numbers, numbers)
