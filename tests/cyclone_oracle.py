"""Cyclone DDS's Python serializer as an oracle: any type of our model as a class of theirs."""

from __future__ import annotations

import functools
import keyword
from enum import Enum as PythonEnum
from typing import Any, Optional

from cyclonedds.idl import IdlStruct, make_idl_enum, make_idl_struct, types
from cyclonedds.idl._support import Endianness

from spark_rtps.transport.types import model

_PRIMITIVES = {
    model.PrimitiveKind.BOOLEAN: bool,
    model.PrimitiveKind.BYTE: types.byte,
    model.PrimitiveKind.INT8: types.int8,
    model.PrimitiveKind.UINT8: types.uint8,
    model.PrimitiveKind.INT16: types.int16,
    model.PrimitiveKind.UINT16: types.uint16,
    model.PrimitiveKind.INT32: types.int32,
    model.PrimitiveKind.UINT32: types.uint32,
    model.PrimitiveKind.INT64: types.int64,
    model.PrimitiveKind.UINT64: types.uint64,
    model.PrimitiveKind.FLOAT32: types.float32,
    model.PrimitiveKind.FLOAT64: types.float64,
    model.PrimitiveKind.CHAR8: types.char,
}


def cyclone_type(t: model.Type) -> Any:
    if isinstance(t, model.Primitive):
        return _PRIMITIVES[t.kind]
    if isinstance(t, model.String):
        return types.bounded_str[t.bound] if t.bound else str
    if isinstance(t, model.Enum):
        return _enum(t)
    if isinstance(t, model.Sequence):
        element = cyclone_type(t.element)
        return types.sequence[element, t.bound] if t.bound else types.sequence[element]
    if isinstance(t, model.Array):
        result = cyclone_type(t.element)
        for length in reversed(t.dimensions):
            result = types.array[result, length]
        return result
    return cyclone_class(t)


@functools.cache
def _enum(t: model.Enum) -> type[PythonEnum]:
    return make_idl_enum(t.name.split("::")[-1], t.name.replace("::", "."), dict(t.literals))


@functools.cache
def cyclone_class(t: model.Struct) -> type[IdlStruct]:
    fields, annotations = {}, {}
    for member in t.members:
        assert not keyword.iskeyword(member.name)
        kind = cyclone_type(member.type)
        fields[member.name] = Optional[kind] if member.optional else kind  # noqa: UP045
        annotations[member.name] = {"id": member.id} | ({"key": True} if member.key else {})
    made = make_idl_struct(
        t.name.split("::")[-1], t.name.replace("::", "."), fields, field_annotations=annotations
    )
    made.__idl_annotations__["extensibility"] = t.extensibility.value
    return made


def cyclone_value(t: model.Type, value: Any) -> Any:
    """A value as ``RecordBatch.to_pylist`` gives it, as Cyclone's classes want it."""
    if value is None:
        return None
    if isinstance(t, model.Primitive) and t.kind is model.PrimitiveKind.UINT64:
        return int(value)
    if isinstance(t, model.Enum):
        return _enum(t)[value]
    if isinstance(t, model.Struct):
        members = {member.name: cyclone_value(member.type, value[member.name]) for member in t.members}
        return cyclone_class(t)(**members)
    if isinstance(t, model.Sequence | model.Array):
        inner = t.element
        if isinstance(t, model.Array) and len(t.dimensions) > 1:
            inner = model.Array(t.element, t.dimensions[1:])
        return [cyclone_value(inner, element) for element in value]
    return value


def cyclone_bytes(
    t: model.Struct, value: Any, *, version: int, big_endian: bool, keys: bool = False
) -> bytes:
    """A serialized sample (or key) with its encapsulation header; without padding at the end."""
    sample = cyclone_value(t, value)
    order = Endianness.Big if big_endian else Endianness.Little
    write = sample.serialize_key if keys else sample.serialize
    return bytes(write(endianness=order, use_version_2=version == 2))
