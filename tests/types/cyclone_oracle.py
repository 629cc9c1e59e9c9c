"""Cyclone DDS's Python serializer as an oracle: any type of our model that it has, as a class of theirs.

Where that serializer is not what Cyclone's C library does, :func:`supports` leaves the type out:

- a char is a signed byte there (so: values below 128 only); an enum cannot be negative;
- in XCDR1 an enum takes 4 bytes whatever its bit bound; in XCDR2 other bounds than 8, 16 and 32 take too few;
- in XCDR1 the must-understand flag of an optional member of what is not mutable is the wrong bit;
- the key of an appendable union lacks its DHEADER; in a key that holds a union without key, structs are empty;
- a discriminator cannot have a typedef's name: it is resolved here, which changes no byte, but the type object;
- there are no mutable unions, wide discriminators, boolean ones with both values named, wstrings, bitsets and long
  doubles; maps lack their DHEADER.
"""

from __future__ import annotations

import functools
import keyword
from typing import Any, Optional

from cyclonedds.idl import (
    IdlBitmask,
    IdlEnum,
    IdlStruct,
    IdlUnion,
    make_idl_enum,
    make_idl_struct,
    make_idl_union,
    types,
)
from cyclonedds.idl._main import IdlBitmaskMeta
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
    model.PrimitiveKind.CHAR16: types.wchar,
}

_BOOLEAN = model.Primitive(model.PrimitiveKind.BOOLEAN)
_WCHAR = model.Primitive(model.PrimitiveKind.CHAR16)


def supports(t: model.Type, version: int = 2) -> bool:
    """Whether samples of the type are written by Cyclone's Python as by its C library, in an XCDR version."""
    for inner in model.traverse(t):
        if isinstance(inner, model.WString | model.Bitset | model.Map):
            return False
        if isinstance(inner, model.Primitive) and inner.kind not in _PRIMITIVES:
            return False
        if isinstance(inner, model.Enum):
            if any(value < 0 for _, value in inner.literals):
                return False
            if inner.bit_bound != 32 and (version == 1 or inner.bit_bound not in (8, 16)):
                return False
        if version == 1 and isinstance(inner, model.Struct):
            plain = inner.extensibility is not model.Extensibility.MUTABLE
            if plain and any(member.optional and member.must_understand for member in inner.members):
                return False
        if isinstance(inner, model.Sequence) and inner.bound > 65535:
            return False
        if isinstance(inner, model.Union) and inner.extensibility is model.Extensibility.MUTABLE:
            return False
        if isinstance(inner, model.Union):
            if model.resolve(inner.discriminator) == _WCHAR:
                return False
            if {"value", "discriminator"} & {case.name for case in inner.cases}:
                return False
            labels = [label for case in inner.cases for label in case.labels if not case.default]
            if model.resolve(inner.discriminator) == _BOOLEAN and len(labels) == 2:
                return False
    return True


def supports_key(t: model.Struct, version: int = 2) -> bool:
    """Whether the same holds for its serialized key."""
    keyed = [member.type for member in t.members if member.key]
    unions = [inner for t in keyed for inner in model.traverse(t) if isinstance(inner, model.Union)]
    return (
        bool(keyed)
        and supports(t, version)
        and all(u.key and u.extensibility is model.Extensibility.FINAL for u in unions)
    )


def cyclone_type(t: model.Type) -> Any:
    if isinstance(t, model.Primitive):
        return _PRIMITIVES[t.kind]
    if isinstance(t, model.String):
        return types.bounded_str[t.bound] if t.bound else str  # type: ignore[misc]
    if isinstance(t, model.Enum):
        return _enum(t)
    if isinstance(t, model.Bitmask):
        return _bitmask(t)
    if isinstance(t, model.Alias):
        return types.typedef[t.name.replace("::", "."), cyclone_type(t.type)]  # type: ignore[misc]
    if isinstance(t, model.Sequence):
        element = cyclone_type(t.element)
        return types.sequence[element, t.bound] if t.bound else types.sequence[element]  # type: ignore[misc]
    if isinstance(t, model.Array):
        result = cyclone_type(t.element)
        for length in reversed(t.dimensions):
            result = types.array[result, length]  # type: ignore[misc]
        return result
    if isinstance(t, model.Union):
        return _union(t)
    assert isinstance(t, model.Struct), f"Cyclone's Python has no {t}"
    return cyclone_class(t)


@functools.cache
def _enum(t: model.Enum) -> type[IdlEnum]:
    made = make_idl_enum(t.name.split("::")[-1], t.name.replace("::", "."), dict(t.literals))
    if t.bit_bound != 32:
        made.__idl_annotations__["bit_bound"] = t.bit_bound
    return made


@functools.cache
def _bitmask(t: model.Bitmask) -> type[IdlBitmask]:
    # make_idl_bitmask knows no bit bound
    name, bases = t.name.split("::")[-1], (IdlBitmask,)
    namespace = IdlBitmaskMeta.__prepare__(name, bases, typename=t.name.replace("::", "."))
    namespace["__annotations__"].update({flag: bool for flag, _ in t.flags})
    namespace["__idl_annotations__"]["bit_bound"] = t.bit_bound
    namespace["__idl_field_annotations__"] = {flag: {"position": position} for flag, position in t.flags}

    def initialize(self: Any, **flags: bool) -> None:
        self.__dict__.update(flags)

    namespace["__init__"] = initialize
    return IdlBitmaskMeta(name, bases, namespace)  # type: ignore[return-value]


def _annotations(member: model.Member | model.Case) -> dict[str, Any]:
    made: dict[str, Any] = {"id": member.id}
    if isinstance(member, model.Member):
        # Cyclone asks only whether they are there
        made |= {"key": True} if member.key else {}
        made |= {"must_understand": True} if member.must_understand else {}
    made |= {"external": True} if member.external else {}
    for name, value in member.notes:
        if name == "hashid":
            made["hash_id"] = value
    return made


@functools.cache
def _union(t: model.Union) -> type[IdlUnion]:
    fields: dict[str, Any] = {}
    for case in t.cases:
        assert not keyword.iskeyword(case.name)
        kind = cyclone_type(case.type)
        labels = [cyclone_value(t.discriminator, label_value(t, label)) for label in case.labels]
        fields[case.name] = types.default[kind] if case.default else types.case[labels, kind]  # type: ignore[misc]
    made = make_idl_union(
        t.name.split("::")[-1],
        t.name.replace("::", "."),
        fields,
        cyclone_type(model.resolve(t.discriminator)),
        discriminator_is_key=t.key,
        field_annotations={case.name: _annotations(case) for case in t.cases},
    )
    # one place for the class is read by the serializer, the other by the type objects
    made.__idl_annotations__["discriminator_is_key"] = t.key
    _annotate(made, t)
    return made


def _annotate(made: Any, t: model.Struct | model.Union) -> None:
    made.__idl_annotations__["extensibility"] = t.extensibility.value
    made.__idl_annotations__["nested"] = t.nested
    made.__idl_annotations__["autoid"] = "hash" if t.autoid_hash else "sequential"


@functools.cache
def cyclone_class(t: model.Struct) -> type[IdlStruct]:
    fields = {}
    for member in t.own_members:
        assert not keyword.iskeyword(member.name)
        kind = cyclone_type(member.type)
        fields[member.name] = Optional[kind] if member.optional else kind  # noqa: UP045
    made = make_idl_struct(
        t.name.split("::")[-1],
        t.name.replace("::", "."),
        fields,
        field_annotations={member.name: _annotations(member) for member in t.members},
        bases=() if t.base is None else (cyclone_class(t.base),),
    )
    _annotate(made, t)
    return made


def label_value(t: model.Union, label: int) -> Any:
    """A label as the discriminator's column has it."""
    disc = model.resolve(t.discriminator)
    if isinstance(disc, model.Enum):
        return next(name for name, value in disc.literals if value == label)
    if isinstance(disc, model.Primitive):
        if disc.kind is model.PrimitiveKind.BOOLEAN:
            return bool(label)
        if disc.kind in (model.PrimitiveKind.CHAR8, model.PrimitiveKind.CHAR16):
            return chr(label)
    return label


def selected_case(t: model.Union, discriminator: Any) -> model.Case | None:
    """The branch that a value of the discriminator's column selects."""
    for case in t.cases:
        if discriminator in [label_value(t, label) for label in case.labels]:
            return case
    return next((case for case in t.cases if case.default), None)


def cyclone_value(t: model.Type, value: Any) -> Any:
    """A value as ``RecordBatch.to_pylist`` gives it, as Cyclone's classes want it."""
    t = model.resolve(t)
    if value is None:
        return None
    if isinstance(t, model.Primitive):
        if t.kind is model.PrimitiveKind.UINT64:
            return int(value)
        if t.kind is model.PrimitiveKind.CHAR16:
            return (ord(value) ^ 0x8000) - 0x8000  # signed there
    if isinstance(t, model.Enum):
        return _enum(t)[value]
    if isinstance(t, model.Bitmask):
        return _bitmask(t)(**{flag: flag in value for flag, _ in t.flags})
    if isinstance(t, model.Struct):
        members = {member.name: cyclone_value(member.type, value[member.name]) for member in t.members}
        return cyclone_class(t)(**members)
    if isinstance(t, model.Union):
        discriminator = value[t.discriminator_name]
        case = selected_case(t, discriminator)
        branch = None if case is None else cyclone_value(case.type, value[case.name])
        return _union(t)(discriminator=cyclone_value(t.discriminator, discriminator), value=branch)
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
