"""Arrow arrays of one DDS scalar as NumPy arrays of its wire values, each checked against its type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ....errors import EncodeError, NullPlace
from ....value_classes import value
from ...model import Bitmask, Bitset, Enum, Primitive, PrimitiveKind, Scalar, number_code
from ..cursors import I64, U8, Mask, Values, offsets_of
from ..decoding.scalars import LATIN1

#: Arrow's units in a second.
TICKS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def _themselves(rows: I64) -> I64:
    return rows


@value
class ValueLocation:
    """The location of values for messages: the column's path, and the batch row of each value."""

    path: str
    rows: Callable[[I64], I64] = _themselves

    def inner(self, name: str) -> ValueLocation:
        return ValueLocation(f"{self.path}.{name}", self.rows)

    def element(self, counts: I64, name: str = "") -> ValueLocation:
        ends = offsets_of(counts)[1:]
        path = f"{self.path}[]{name}"
        return ValueLocation(path, lambda index: self.rows(np.searchsorted(ends, index, "right")))

    def at(self, rows: I64, name: str = "") -> ValueLocation:
        """The location of some of the rows, in the field ``name``."""
        return ValueLocation(f"{self.path}{name}", lambda index: self.rows(rows[index]))

    def refuse(self, bad: Mask, why: str | NullPlace) -> None:
        """Raise EncodeError if any row is marked in ``bad``; the message names the first one."""
        if bad.any():
            null, text = (why, why.value) if isinstance(why, NullPlace) else (None, why)
            rows = tuple(self.rows(np.flatnonzero(bad)).tolist())
            raise EncodeError(f"column {self.path!r}, row {rows[0]}: {text}", null=null, rows=rows)

    def mistyped(self, array: pa.Array, wanted: str) -> EncodeError:
        return EncodeError(f"column {self.path!r}: {array.type} cannot be written as {wanted}")


def scalar_values(array: pa.Array, t: Scalar, place: ValueLocation) -> Values:
    """Wire values in native byte order; binary128 as two words each, the low one first."""
    if isinstance(t, Enum):
        return _enum_values(array, t, place)
    if isinstance(t, Bitmask):
        return _bitmask_values(array, t, place)
    if isinstance(t, Bitset):
        return _bitset_values(array, t, place)
    if t.kind is PrimitiveKind.BOOLEAN:
        if not pa.types.is_boolean(array.type):
            raise place.mistyped(array, "boolean")
        return _booleans(array)
    if t.kind is PrimitiveKind.CHAR8:
        index = pc.index_in(as_string(array, place, "char"), value_set=LATIN1)
        if index.null_count:
            place.refuse(np.asarray(index.is_null()), "a char holds one Latin-1 character")
        return np.asarray(index).astype(np.uint8)
    if t.kind is PrimitiveKind.CHAR16:
        units, counts = utf16(as_string(array, place, "wchar"))
        place.refuse(counts != 1, "a wchar holds one UTF-16 code unit")
        return units
    if t.kind is PrimitiveKind.FLOAT128:
        return binary128(_floats(array, Primitive(PrimitiveKind.FLOAT64), place))
    if number_code(t)[0] == "f":
        return _floats(array, t, place)
    return _integers(array, number_code(t), t.kind.value, place)


def _booleans(array: pa.Array) -> U8:
    """Octets of 0 and 1. Arrow's cast is slower: it would dominate the encoding of a message with two booleans."""
    if not len(array):
        return np.empty(0, np.uint8)
    first, bit = divmod(array.offset, 8)
    octets = np.frombuffer(array.buffers()[1], np.uint8)[first:]
    return np.unpackbits(octets, count=bit + len(array), bitorder="little")[bit:]


def as_string(array: pa.Array, place: ValueLocation, wanted: str) -> pa.Array:
    if pa.types.is_string(array.type):
        return array
    if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        return array.cast(pa.string())
    raise place.mistyped(array, wanted)


def utf8(array: pa.Array) -> tuple[U8, I64]:
    """The bytes of a binary or string array (32-bit offsets) without nulls, and the length of each value."""
    _, offset_buffer, data_buffer = array.buffers()
    if not len(array) or offset_buffer is None:
        return np.empty(0, np.uint8), np.zeros(len(array), np.int64)
    offsets = np.frombuffer(offset_buffer, np.int32)[array.offset : array.offset + len(array) + 1]
    data = np.empty(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    return data[offsets[0] : offsets[-1]], np.diff(offsets).astype(np.int64)


def utf16(array: pa.Array) -> tuple[npt.NDArray[np.uint16], I64]:
    """The UTF-16 code units of a string array, and the number of them in each value."""
    data, counts = utf8(array)
    # a character has one unit, two if it takes four bytes in UTF-8
    units = ((data & 0xC0) != 0x80).astype(np.int64) + (data >= 0xF0)
    ends = offsets_of(units)[offsets_of(counts)]
    return np.frombuffer(data.tobytes().decode().encode("utf-16-le"), "<u2"), np.diff(ends)


def ticks(array: pa.Array) -> I64:
    """The integers of a timestamp or duration array, in its own unit."""
    return np.asarray(array.cast(pa.int64()))


def _enum_values(array: pa.Array, t: Enum, place: ValueLocation) -> Values:
    known = np.array([value for _, value in t.literals], f"={number_code(t)}")
    if pa.types.is_integer(array.type):
        numbers = np.asarray(array)
        bad = ~np.isin(numbers, known.astype(np.int64))
        if bad.any():
            place.refuse(bad, f"{numbers[np.argmax(bad)]} is no literal of {t.name}")
        return numbers.astype(known.dtype)
    names = pa.array([name for name, _ in t.literals], pa.string())
    array = as_string(array, place, f"the enum {t.name}")
    found: Values = known[_index_in(array, names, f"is no literal of {t.name}", place)]
    return found


def _index_in(array: pa.Array, names: pa.Array, why: str, place: ValueLocation) -> Values:
    index = pc.index_in(array, value_set=names)
    if index.null_count:
        unknown = np.asarray(index.is_null())
        place.refuse(unknown, f"{array[int(np.argmax(unknown))].as_py()!r} {why}")
    return np.asarray(index)


def _bitmask_values(array: pa.Array, t: Bitmask, place: ValueLocation) -> Values:
    """Bits without a flag are refused, because Cyclone DDS treats a sample that has one as malformed."""
    code = f"={number_code(t)}"
    if pa.types.is_integer(array.type):
        named = np.uint64(sum(1 << position for _, position in t.flags))
        # of the greatest bitmask as an int64 the last bit is its sign
        bits = np.asarray(array).astype(np.int64).astype(np.uint64)
        place.refuse(bits & ~named != 0, f"has bits that no flag of {t.name} names")
        return bits.astype(code)
    if pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    if not pa.types.is_list(array.type):
        raise place.mistyped(array, f"the bitmask {t.name}")
    offsets = np.asarray(array.offsets)
    counts = np.diff(offsets).astype(np.int64)
    flags, inner = array.flatten(), place.element(counts)
    if flags.null_count:
        inner.refuse(np.asarray(flags.is_null()), "null is no flag")
    values = np.zeros(len(counts), code)
    if len(flags):
        masks = np.array([1 << position for _, position in t.flags], code)
        names = pa.array([name for name, _ in t.flags], pa.string())
        flags = as_string(flags, inner, f"a flag of {t.name}")
        bits = masks[_index_in(flags, names, f"is no flag of {t.name}", inner)]
        some = np.flatnonzero(counts)
        values[some] = np.bitwise_or.reduceat(bits, (offsets - offsets[0])[some])
    return values


def _bitset_values(array: pa.Array, t: Bitset, place: ValueLocation) -> Values:
    if not pa.types.is_struct(array.type):
        raise place.mistyped(array, f"the bitset {t.name}")
    values = np.zeros(len(array), np.uint64)
    children = array.flatten()
    for field in t.fields:
        index = array.type.get_field_index(field.name)
        if index < 0:
            raise EncodeError(f"column {place.path!r} has no field {field.name!r}, which {t.name} needs")
        inner = place.inner(field.name)
        if children[index].null_count:
            inner.refuse(np.asarray(children[index].is_null()), "null in a bitset")
        numbers = scalar_values(children[index], Primitive(field.kind), inner)
        wide = numbers.astype(np.int64 if numbers.dtype.kind == "i" else np.uint64)
        # the remaining bits of a value that fits are copies of its sign
        rest = wide >> wide.dtype.type(min(field.bits - (wide.dtype.kind == "i"), 63))
        fits = (rest == 0) if wide.dtype.kind == "u" else (rest == 0) | (rest == -1)
        if field.bits < 64:
            inner.refuse(~fits, f"does not fit {field.bits} bits")
        mask = np.uint64((1 << field.bits) - 1)
        values |= (wide.astype(np.uint64) & mask) << np.uint64(field.position)
    return values.astype(f"={number_code(t)}")


def _floats(array: pa.Array, t: Primitive, place: ValueLocation) -> Values:
    if not (pa.types.is_floating(array.type) or pa.types.is_integer(array.type)):
        raise place.mistyped(array, t.kind.value)
    numbers = np.asarray(array)
    with np.errstate(over="ignore", invalid="ignore"):
        floats: Values = numbers.astype("=" + number_code(t), copy=False)
        if numbers.dtype.kind in "iu":
            # the cast of the float above the greatest integer is undefined
            inexact = floats.astype(numbers.dtype) != numbers
            inexact |= floats >= float(np.iinfo(numbers.dtype).max) + 1
            place.refuse(inexact, f"not exactly a {t.kind.value}")
    if floats.itemsize < numbers.itemsize:
        place.refuse(np.isinf(floats) & ~np.isinf(numbers), f"too large for {t.kind.value}")
    return floats


def binary128(floats: Values) -> npt.NDArray[np.uint64]:
    """float64 as IEEE 754 binary128, exactly: (n, 2) words, the low one first.

    A double is a sign, 11 bits of exponent (bias 1023) and 52 of fraction; a binary128 has 15 (16383) and 112.
    """
    bits = np.ascontiguousarray(floats, np.float64).view(np.uint64)
    u8 = np.uint64
    exponent, fraction = ((bits >> u8(52)) & u8(0x7FF)).astype(np.int64), bits & u8((1 << 52) - 1)
    wide = exponent + (16383 - 1023)
    wide[exponent == 0x7FF] = 0x7FFF  # infinities and NaN
    wide[(exponent == 0) & (fraction == 0)] = 0
    small = np.flatnonzero((exponent == 0) & (fraction != 0))
    if len(small):  # subnormal as doubles: fraction * 2**-1074, which a binary128 has as a normal number
        shift = 53 - np.frexp(fraction[small].astype(np.float64))[1].astype(np.int64)
        fraction[small] = (fraction[small] << shift.astype(u8)) & u8((1 << 52) - 1)
        wide[small] += 1 - shift
    words = np.empty((len(bits), 2), u8)
    words[:, 0] = fraction << u8(60)
    words[:, 1] = (bits >> u8(63)) << u8(63) | wide.astype(u8) << u8(48) | fraction >> u8(4)
    return words


def _integers(array: pa.Array, code: str, name: str, place: ValueLocation) -> Values:
    t, wanted = array.type, np.dtype(f"={code}")
    if pa.types.is_integer(t):
        values: Values = np.asarray(array)
    elif pa.types.is_decimal128(t) and t.scale == 0:
        _, buffer = array.buffers()
        words = np.frombuffer(buffer, np.int64).reshape(-1, 2)[array.offset : array.offset + len(array)]
        if wanted == np.uint64:
            place.refuse(words[:, 1] != 0, _outside(name, wanted))
            return words[:, 0].copy().view(np.uint64)
        place.refuse(words[:, 1] != words[:, 0] >> 63, _outside(name, wanted))
        values = words[:, 0]
    elif pa.types.is_timestamp(t) or pa.types.is_duration(t):
        values = _microseconds(array, place)
    elif pa.types.is_date(t):
        values = np.asarray(array.cast(pa.date32()).cast(pa.int32()))
    else:
        raise place.mistyped(array, name)
    if values.dtype == wanted:
        return values
    numbers: Values = values.astype(wanted)
    # exact in NumPy 2, whatever the two types are
    bad = numbers != values
    if bad.any():
        place.refuse(bad, _outside(name, wanted))
    return numbers


def _outside(name: str, wanted: np.dtype[Any]) -> str:
    limits = np.iinfo(wanted)
    return f"outside {name}: {limits.min} to {limits.max}"


def _microseconds(array: pa.Array, place: ValueLocation) -> I64:
    """The times in microseconds, rounded towards the past."""
    values, per_second = ticks(array), TICKS[array.type.unit]
    if per_second > 1_000_000:
        return values // (per_second // 1_000_000)
    factor = 1_000_000 // per_second
    most = np.iinfo(np.int64).max // factor
    place.refuse((values > most) | (values < -most), "too far for an int64 of microseconds")
    return values * factor


def seconds_and_nanoseconds(array: pa.Array, place: ValueLocation) -> tuple[Values, Values]:
    """A timestamp or duration as int32 seconds, rounded down, and the uint32 nanoseconds after them."""
    values, per_second = ticks(array), TICKS[array.type.unit]
    seconds = values // per_second
    limits = np.iinfo(np.int32)
    place.refuse(
        (seconds < limits.min) | (seconds > limits.max),
        f"outside the int32 of seconds: {limits.min} to {limits.max}",
    )
    nanoseconds = (values - seconds * per_second) * (1_000_000_000 // per_second)
    return seconds.astype(np.int32), nanoseconds.astype(np.uint32)
