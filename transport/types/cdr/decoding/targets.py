"""Which Arrow types a DDS type can be read as: its own, a wider one, or fewer fields of it at any depth."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pyarrow as pa

from ....errors import UsageError
from ....value_classes import value
from ...arrow import arrow_schema, arrow_type, time_type
from ...mapping import Mapping
from ...model import (
    Array,
    Bitmask,
    Bitset,
    Enum,
    Map,
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
    number_size,
)

_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_TEXTS: Final = (pa.string(), pa.large_string())
_BINARIES: Final = (pa.binary(), pa.large_binary())


def readable_schema(
    struct: Struct, wanted: pa.Schema | None, mapping: Mapping, *, lacking: bool = False
) -> pa.Schema:
    """The schema into which samples are decoded; ``lacking``: the struct may lack fields of it, which are null then.

    Raises UsageError if the struct cannot be read by that schema.
    """
    if wanted is None:
        return arrow_schema(struct, mapping)
    _Check(struct.name, lacking).fields(struct, pa.struct(list(wanted)), "")
    return pa.schema([pa.field(field.name, field.type) for field in wanted])


@value
class _Check:
    owner: str
    lacking: bool

    def fields(self, t: Struct | Union | Bitset, wanted: pa.DataType, path: str) -> None:
        known = fields_of(t)
        if not wanted.num_fields and path:
            raise UsageError(f"member {path[:-1]!r} of {self.owner}: a struct without fields cannot be read")
        seen = set()
        for field in wanted:
            if field.name not in known:
                if self.lacking:
                    continue
                raise UsageError(f"{t.name} has no member {field.name!r}; it has {', '.join(known)}")
            if field.name in seen:
                raise UsageError(f"member {path + field.name!r} of {self.owner} is requested twice")
            seen.add(field.name)
            self.value(known[field.name], field.type, path + field.name)

    def value(self, t: Type, wanted: pa.DataType, path: str) -> None:
        if isinstance(t, Struct | Union | Bitset) and pa.types.is_struct(wanted):
            self.fields(t, wanted, f"{path}.")
        elif isinstance(t, Map) and pa.types.is_map(wanted):
            self.value(t.key, wanted.key_type, f"{path}.key")
            self.value(t.value, wanted.item_type, f"{path}.value")
        elif isinstance(t, Sequence | Array) and pa.types.is_list(wanted) and not is_blob(t):
            inner = t.element
            if isinstance(t, Array) and len(t.dimensions) > 1:
                inner = replace(t, dimensions=t.dimensions[1:])
            self.value(inner, wanted.value_type, path)
        elif not _is_readable(t, wanted):
            raise UsageError(f"member {path!r} of {self.owner} is {arrow_type(t)}, not {wanted}")


def _is_readable(t: Type, wanted: pa.DataType) -> bool:
    if isinstance(t, String | WString):
        return wanted in _TEXTS
    if isinstance(t, Enum):
        return wanted in (*_TEXTS, pa.int32(), pa.int64())
    if isinstance(t, Bitmask):
        if pa.types.is_list(wanted):
            return wanted.value_type in _TEXTS
        return wanted == pa.int64() or (wanted in _INTEGERS and wanted.bit_width > 8 * number_size(t))
    if isinstance(t, Sequence | Array):
        return is_blob(t) and wanted in _BINARIES
    if isinstance(t, Struct):
        time = time_type(t)
        return time is not None and time.id == wanted.id and wanted.unit == "us"
    return isinstance(t, Primitive) and _is_lossless(t, wanted)


def _is_lossless(t: Primitive, wanted: pa.DataType) -> bool:
    own = arrow_type(t)
    if own in _INTEGERS and wanted in _INTEGERS:
        return _INTEGERS.index(own) <= _INTEGERS.index(wanted)
    if own == pa.int64() and (pa.types.is_timestamp(wanted) or pa.types.is_duration(wanted)):
        return bool(wanted.unit == "us")
    if t.kind is PrimitiveKind.UINT64 and wanted == pa.int64():
        return True
    return own == wanted or (own, wanted) in (
        (pa.float32(), pa.float64()),
        (pa.int32(), pa.date32()),
        (pa.string(), pa.large_string()),
    )
