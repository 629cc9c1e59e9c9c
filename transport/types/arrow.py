"""DDS types as Arrow types, and back.

=====================================  =====================================
DDS                                    Arrow (the same as Spark can hold)
=====================================  =====================================
boolean                                bool
int8                                   int8
octet, uint8, int16                    int16
uint16, int32                          int32
uint32, int64                          int64
uint64                                 decimal128(20, 0)
float, double                          float, double
char, string, enum                     string (of a char: one Latin-1 character; of an enum: the literal)
sequence or array of octet             binary
other sequences and arrays             list
struct                                 struct
=====================================  =====================================

Arrays of several dimensions are nested lists. Every field is nullable, but nulls are read only for absent
optional members, members that the writer's older type lacks, and all but the key of a key-only sample.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ..errors import TypeDefinitionError
from .model import Array, Enum, Member, Primitive, PrimitiveKind, Sequence, String, Struct, Type, is_bytes

UINT64_DECIMAL: Final = pa.decimal128(20, 0)

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
    PrimitiveKind.CHAR8: pa.string(),
}


def arrow_type(t: Type) -> pa.DataType:
    """The Arrow type that values of a DDS type are decoded into."""
    if isinstance(t, Primitive):
        return _PRIMITIVES[t.kind]
    if isinstance(t, String | Enum):
        return pa.string()
    if isinstance(t, Sequence):
        return pa.binary() if is_bytes(t.element) else pa.list_(arrow_type(t.element))
    if isinstance(t, Array):
        dimensions = t.dimensions
        inner = pa.binary() if is_bytes(t.element) else pa.list_(arrow_type(t.element))
        for _ in dimensions[1:]:
            inner = pa.list_(inner)
        return inner
    return pa.struct([pa.field(member.name, arrow_type(member.type)) for member in t.members])


def arrow_schema(struct: Struct) -> pa.Schema:
    """The Arrow schema of a topic type: one column a member."""
    return pa.schema([pa.field(member.name, arrow_type(member.type)) for member in struct.members])


def struct_from_arrow(schema: pa.Schema, name: str) -> Struct:
    """The DDS type an Arrow schema suggests, named ``name`` (``a::b::C``); FINAL, without keys.

    bool, int8 ... int64, float, double and string become themselves; unsigned integers too; binary
    sequence<octet>; list sequence; struct a nested struct named after its column; date32 an int32 of days and
    timestamp an int64 of microseconds since the epoch; decimal(20, 0) an uint64. Other decimals have no DDS
    type: cast them to string or double first.
    """
    return _struct(list(schema), name, set())


def _struct(fields: list[pa.Field], name: str, taken: set[str]) -> Struct:
    """``taken``: names of structs there are already; a<b> and a_b would give two of one name."""
    unique, n = name, 1
    while unique in taken:
        n += 1
        unique = f"{name}_{n}"
    name = unique
    taken.add(name)
    if not fields:
        raise TypeDefinitionError(f"{name}: a DDS struct needs at least one column")
    members = []
    for i, field in enumerate(fields):
        if not (field.name.isascii() and field.name.isidentifier()):
            raise TypeDefinitionError(f"{name}: column {field.name!r} is no IDL identifier; rename it")
        t = _type_from_arrow(field.type, f"{name}_{field.name}", field.name, taken)
        members.append(Member(field.name, t, i))
    if len({member.name for member in members}) < len(members):
        raise TypeDefinitionError(f"{name}: two columns have the same name")
    return Struct(name, tuple(members))


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


def _type_from_arrow(t: pa.DataType, struct_name: str, column: str, taken: set[str]) -> Type:
    kind = _FROM_ARROW.get(t)
    if kind is not None:
        return Primitive(kind)
    if pa.types.is_timestamp(t):
        return Primitive(PrimitiveKind.INT64)
    if pa.types.is_string(t) or pa.types.is_large_string(t):
        return String()
    if pa.types.is_binary(t) or pa.types.is_large_binary(t):
        return Sequence(Primitive(PrimitiveKind.BYTE))
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        return Sequence(_type_from_arrow(t.value_type, struct_name, column, taken))
    if pa.types.is_fixed_size_list(t):
        return Array(_type_from_arrow(t.value_type, struct_name, column, taken), (t.list_size,))
    if pa.types.is_struct(t):
        return _struct([t.field(i) for i in range(t.num_fields)], struct_name, taken)
    if pa.types.is_decimal(t):
        raise TypeDefinitionError(f"column {column!r}: {t} has no DDS type; cast it to string or double")
    raise TypeDefinitionError(f"column {column!r}: {t} has no DDS type; leave it out, or cast it")
