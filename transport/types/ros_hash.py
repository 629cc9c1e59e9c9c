"""The hash that differs between ROS 2 definitions of one name: RIHS01 (REP-2016, rosidl_generator_type_description)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any, Final

from ..errors import TypeDefinitionError
from .model import Array, Primitive, PrimitiveKind, Sequence, String, Struct, Type, WString
from .ros_names import ros_type_name

#: Codes of type_description_interfaces/msg/FieldType for single values; arrays and sequences add an offset.
_NESTED: Final = 1
_IDS: Final = {
    PrimitiveKind.INT8: 2,
    PrimitiveKind.UINT8: 3,
    PrimitiveKind.INT16: 4,
    PrimitiveKind.UINT16: 5,
    PrimitiveKind.INT32: 6,
    PrimitiveKind.UINT32: 7,
    PrimitiveKind.INT64: 8,
    PrimitiveKind.UINT64: 9,
    PrimitiveKind.FLOAT32: 10,
    PrimitiveKind.FLOAT64: 11,
    PrimitiveKind.BOOLEAN: 15,
    PrimitiveKind.BYTE: 16,
}
_STRING, _WSTRING, _BOUNDED_STRING, _BOUNDED_WSTRING = 17, 18, 21, 22
_ARRAY, _BOUNDED, _UNBOUNDED = 48, 96, 144

#: The hash in the USER_DATA of a reader or writer, from ROS 2 Iron on.
_TYPE_HASH: Final = re.compile(rb"(?:^|;)typehash=(RIHS01_[0-9a-f]{64});")


def type_hash(struct: Struct) -> str:
    """The hash of a ROS 2 message: ``RIHS01_`` and 64 hexadecimal digits.

    Raises TypeDefinitionError for a type that cannot be a message of ROS 2.
    """
    structs = {ros_type_name(each.name): each for each in _structs(struct)}
    own = ros_type_name(struct.name)
    description = {
        "type_description": _described(own, struct),
        "referenced_type_descriptions": [
            _described(name, structs[name]) for name in sorted(structs) if name != own
        ],
    }
    return f"RIHS01_{hashlib.sha256(json.dumps(description).encode()).hexdigest()}"


def user_data_of(struct: Struct) -> bytes:
    """USER_DATA by which ROS 2's readers and writers announce the hash of their type; empty if it is not a message."""
    try:
        return f"typehash={type_hash(struct)};".encode()
    except TypeDefinitionError:
        return b""


def hash_in(user_data: bytes) -> str | None:
    """The hash that a peer announces in USER_DATA; None: it announces none."""
    found = _TYPE_HASH.search(user_data)
    return None if found is None else found[1].decode()


def _structs(t: Type) -> Iterator[Struct]:
    if isinstance(t, Struct):
        yield t
        for member in t.members:
            yield from _structs(member.type)
    elif isinstance(t, Sequence | Array):
        yield from _structs(t.element)


def _described(name: str, struct: Struct) -> dict[str, Any]:
    return {
        "type_name": name,
        "fields": [{"name": each.name, "type": _field_type(each.type)} for each in struct.members],
    }


def _field_type(t: Type) -> dict[str, Any]:
    kind, capacity = 0, 0
    if isinstance(t, Array):
        if len(t.dimensions) != 1:
            raise TypeDefinitionError("ROS 2 has no arrays of more than one dimension")
        kind, capacity, t = _ARRAY, t.length, t.element
    elif isinstance(t, Sequence):
        kind, capacity, t = (_BOUNDED if t.bound else _UNBOUNDED), t.bound, t.element
    nested, string_capacity = "", 0
    match t:
        case Struct():
            kind, nested = kind + _NESTED, ros_type_name(t.name)
        case String():
            kind, string_capacity = kind + (_BOUNDED_STRING if t.bound else _STRING), t.bound
        case WString():
            kind, string_capacity = kind + (_BOUNDED_WSTRING if t.bound else _WSTRING), t.bound
        case Primitive() if t.kind in _IDS:
            kind += _IDS[t.kind]
        case _:
            raise TypeDefinitionError(f"ROS 2 has no equivalent of the type {t}")
    return {
        "type_id": kind,
        "capacity": capacity,
        "string_capacity": string_capacity,
        "nested_type_name": nested,
    }
