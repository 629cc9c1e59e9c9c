"""DDS types as Arrow types, and back, limited to what Spark can hold. :class:`~.mapping.Mapping` has the choices.

=====================================  =====================================
DDS                                    Arrow
=====================================  =====================================
boolean                                bool
int8                                   int8
octet, uint8, int16                    int16
uint16, int32                          int32
uint32, int64                          int64
uint64                                 decimal128(20, 0), or int64
float                                  float
double, long double                    double
char                                   string of one Latin-1 character
wchar                                  string of one character (a UTF-16 code unit)
string, wstring                        string
enum                                   string, the literal's name; or int32
bitmask                                list of the names of the bits that are set; or int64
bitset                                 struct of its named fields
sequence or array of octet or uint8    binary
other sequences and arrays             list
map                                    map
struct                                 struct
union                                  struct of the discriminator and all branches, all but one of them null
builtin_interfaces Time and Duration   struct; or timestamp (UTC) and duration, of microseconds
=====================================  =====================================

Arrays of several dimensions are nested lists. Every field is nullable, but nulls are read only for absent
optional members, members that the writer's older type lacks, branches that are not selected, and everything but the
key of a key-only sample.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from ..errors import TypeDefinitionError, UsageError
from .mapping import DEFAULT_MAPPING, Mapping
from .model import (
    Alias,
    Array,
    Bitmask,
    Enum,
    Map,
    Member,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
    Type,
    WString,
    fields_of,
    is_bytes,
    is_map_key,
    resolve,
)

UINT64_DECIMAL: Final = pa.decimal128(20, 0)
TIME: Final = pa.timestamp("us", tz="UTC")
DURATION: Final = pa.duration("us")

_PRIMITIVES: Final = {
    PrimitiveKind.BOOLEAN: pa.bool_(),
    PrimitiveKind.BYTE: pa.int16(),
    PrimitiveKind.INT8: pa.int8(),
    PrimitiveKind.UINT8: pa.int16(),
    PrimitiveKind.INT16: pa.int16(),
    PrimitiveKind.UINT16: pa.int32(),
    PrimitiveKind.INT32: pa.int32(),
    PrimitiveKind.UINT32: pa.int64(),
    PrimitiveKind.INT64: pa.int64(),
    PrimitiveKind.UINT64: UINT64_DECIMAL,
    PrimitiveKind.FLOAT32: pa.float32(),
    PrimitiveKind.FLOAT64: pa.float64(),
    PrimitiveKind.FLOAT128: pa.float64(),
    PrimitiveKind.CHAR8: pa.string(),
    PrimitiveKind.CHAR16: pa.string(),
}


def arrow_type(t: Type, mapping: Mapping = DEFAULT_MAPPING) -> pa.DataType:
    """The Arrow type that values of a DDS type are decoded into."""
    if isinstance(t, Primitive):
        if t.kind is PrimitiveKind.UINT64 and mapping.uint64 == "long":
            return pa.int64()
        return _PRIMITIVES[t.kind]
    if isinstance(t, String | WString):
        return pa.string()
    if isinstance(t, Enum):
        return pa.string() if mapping.enums == "string" else pa.int32()
    if isinstance(t, Bitmask):
        return pa.list_(pa.string()) if mapping.bitmasks == "array" else pa.int64()
    if isinstance(t, Sequence):
        return pa.binary() if is_bytes(t.element) else pa.list_(arrow_type(t.element, mapping))
    if isinstance(t, Array):
        inner = pa.binary() if is_bytes(t.element) else pa.list_(arrow_type(t.element, mapping))
        for _ in t.dimensions[1:]:
            inner = pa.list_(inner)
        return inner
    if isinstance(t, Map):
        return pa.map_(arrow_type(t.key, mapping), arrow_type(t.value, mapping))
    if isinstance(t, Alias):
        return arrow_type(t.type, mapping)
    if mapping.times == "timestamp" and (time := time_type(t)) is not None:
        return time
    return pa.struct([pa.field(name, arrow_type(inner, mapping)) for name, inner in fields_of(t).items()])


def arrow_schema(struct: Struct, mapping: Mapping = DEFAULT_MAPPING) -> pa.Schema:
    """The Arrow schema of a topic type: one column for each member."""
    return pa.schema([pa.field(member.name, arrow_type(member.type, mapping)) for member in struct.members])


_TIMES: Final = {"Time": TIME, "Duration": DURATION}
_TIME_MEMBERS: Final = (
    ("sec", Primitive(PrimitiveKind.INT32)),
    ("nanosec", Primitive(PrimitiveKind.UINT32)),
)


def time_type(t: Type) -> pa.DataType | None:
    """``TIME`` for ROS 2's Time, ``DURATION`` for its Duration, under the names they have in ROS and in DDS."""
    if not isinstance(t, Struct) or not t.name.startswith("builtin_interfaces::msg::"):
        return None
    if tuple((member.name, resolve(member.type)) for member in t.members) != _TIME_MEMBERS:
        return None
    return _TIMES.get(t.name.split("::")[-1].removesuffix("_"))


def projected(schema: pa.Schema, paths: Iterable[str]) -> pa.Schema:
    """The columns, and the fields of structs at any depth, that dotted paths name, in the order of the schema.

    Raises UsageError, which names the path, for a path without a column or field.
    """
    return pa.schema(_projected_fields(list(schema), [tuple(path.split(".")) for path in paths], ""))


def _projected_fields(fields: list[pa.Field], paths: list[tuple[str, ...]], outer: str) -> list[pa.Field]:
    names = [field.name for field in fields]
    for path in paths:
        if path[0] not in names:
            raise UsageError(f"there is no member {outer}{path[0]}; there are {', '.join(names)}")
    found = []
    for field in fields:
        inner = [path[1:] for path in paths if path[0] == field.name]
        if not inner:
            continue
        t = field.type if () in inner else _projected_type(field.type, inner, f"{outer}{field.name}.")
        found.append(pa.field(field.name, t, field.nullable))
    return found


def _projected_type(t: pa.DataType, paths: list[tuple[str, ...]], outer: str) -> pa.DataType:
    if pa.types.is_list(t):
        return pa.list_(_projected_type(t.value_type, paths, outer))
    if not pa.types.is_struct(t):
        raise UsageError(f"{outer.removesuffix('.')} is {t}, which has no member {paths[0][0]}")
    return pa.struct(_projected_fields([t.field(i) for i in range(t.num_fields)], paths, outer))


# --- Arrow to DDS -----------------------------------------------------------------------------------


def legal_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with names that IDL allows, at every depth: each character that is not a letter or digit becomes
    ``_``; names that would then be equal (IDL ignores case) get a number."""
    return pa.schema(_legal_fields(list(schema)))


def _legal_fields(fields: list[pa.Field]) -> list[pa.Field]:
    taken: set[str] = set()
    legal = []
    for field in fields:
        name = wanted = _legal_name(field.name)
        n = 1
        while name.lower() in taken:
            n += 1
            name = f"{wanted}_{n}"
        taken.add(name.lower())
        legal.append(pa.field(name, _legal_type(field.type), field.nullable))
    return legal


def _legal_name(name: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return name if name.lstrip("_")[:1].isalpha() else f"c{name}"


def _legal_type(t: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(t):
        return pa.struct(_legal_fields([t.field(i) for i in range(t.num_fields)]))
    if pa.types.is_list(t):
        return pa.list_(t.value_field.with_type(_legal_type(t.value_type)))
    if pa.types.is_map(t):
        key, item = (field.with_type(_legal_type(field.type)) for field in (t.key_field, t.item_field))
        return pa.map_(key, item, keys_sorted=t.keys_sorted)
    return t


def struct_from_arrow(
    schema: pa.Schema, name: str, *, key: tuple[str, ...] = (), optional: bool = True
) -> Struct:
    """The DDS type derived from an Arrow schema, named ``name`` (``a::b::C``); FINAL, with ``key`` columns as its key.

    bool, signed and unsigned integers, float, double and string keep their types. binary becomes sequence<octet>, list
    sequence, map map, struct a nested struct named after its column, date32 an int32 of days, timestamp an int64 of
    microseconds since the epoch, duration an int64 of microseconds, decimal(20, 0) a uint64. Nullable columns and
    fields become @optional, unless they are keys, or ``optional`` is false.

    Raises TypeDefinitionError for a column without a DDS type, or with a name that IDL does not allow (see
    :func:`legal_schema`).
    """
    struct = _Derivation(optional).struct(list(schema), name, key)
    missing = [column for column in key if struct.member(column) is None]
    if missing:
        raise TypeDefinitionError(f"{name}: the key {missing[0]!r} is no column")
    return struct


_FROM_ARROW: Final = {
    pa.bool_(): PrimitiveKind.BOOLEAN,
    pa.int8(): PrimitiveKind.INT8,
    pa.uint8(): PrimitiveKind.UINT8,
    pa.int16(): PrimitiveKind.INT16,
    pa.uint16(): PrimitiveKind.UINT16,
    pa.int32(): PrimitiveKind.INT32,
    pa.uint32(): PrimitiveKind.UINT32,
    pa.int64(): PrimitiveKind.INT64,
    pa.uint64(): PrimitiveKind.UINT64,
    pa.float32(): PrimitiveKind.FLOAT32,
    pa.float64(): PrimitiveKind.FLOAT64,
    pa.date32(): PrimitiveKind.INT32,
    UINT64_DECIMAL: PrimitiveKind.UINT64,
}


class _Derivation:
    """``taken`` has the names of structs already derived; the columns a<b> and a_b would give two the same name."""

    def __init__(self, optional: bool) -> None:
        self.optional = optional
        self.taken: set[str] = set()

    def struct(self, fields: list[pa.Field], name: str, key: tuple[str, ...] = (), outer: str = "") -> Struct:
        unique, n = name, 1
        while unique in self.taken:
            n += 1
            unique = f"{name}_{n}"
        name = unique
        self.taken.add(name)
        if not fields:
            raise TypeDefinitionError(f"{name}: a DDS struct needs at least one column")
        members = []
        for i, field in enumerate(fields):
            if not (field.name.isascii() and field.name.isidentifier()):
                raise TypeDefinitionError(f"{name}: column {field.name!r} is no IDL identifier; rename it")
            t = self.type(field.type, f"{name}_{field.name}", f"{outer}{field.name}")
            is_key = field.name in key
            absent = self.optional and field.nullable and not is_key
            members.append(Member(field.name, t, i, is_key, absent))
        if len({member.name for member in members}) < len(members):
            raise TypeDefinitionError(f"{name}: two columns have the same name")
        return Struct(name, tuple(members))

    def type(self, t: pa.DataType, struct_name: str, column: str) -> Type:
        """``column`` is its path, for messages."""
        kind = _FROM_ARROW.get(t)
        if kind is not None:
            return Primitive(kind)
        if pa.types.is_timestamp(t) or pa.types.is_duration(t):
            return Primitive(PrimitiveKind.INT64)
        if pa.types.is_string(t) or pa.types.is_large_string(t):
            return String()
        if pa.types.is_binary(t) or pa.types.is_large_binary(t):
            return Sequence(Primitive(PrimitiveKind.BYTE))
        if pa.types.is_list(t) or pa.types.is_large_list(t):
            return Sequence(self.type(t.value_type, struct_name, f"{column}[]"))
        if pa.types.is_fixed_size_list(t):
            return Array(self.type(t.value_type, struct_name, f"{column}[]"), (t.list_size,))
        if pa.types.is_map(t):
            key = self.type(t.key_type, f"{struct_name}_key", f"{column}[].key")
            if not is_map_key(key):
                raise TypeDefinitionError(f"column {column!r}: maps have no keys of {t.key_type}; cast them")
            return Map(key, self.type(t.item_type, struct_name, f"{column}[].value"))
        if pa.types.is_struct(t):
            return self.struct([t.field(i) for i in range(t.num_fields)], struct_name, outer=f"{column}.")
        if pa.types.is_decimal(t):
            fix = "cast it to string or double; decimal(20, 0) is uint64"
            raise TypeDefinitionError(f"column {column!r}: {t} has no DDS type; {fix}")
        raise TypeDefinitionError(f"column {column!r}: {t} has no DDS type; leave it out, or cast it")
