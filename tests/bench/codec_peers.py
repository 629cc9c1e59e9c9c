"""Other codecs in Python: each takes a type and values as our columns hold them, and gives functions of one sample."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, Optional

import cyclonedds.idl
import cyclonedds.idl._support
import pycdr2
import pycdr2._support
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from spark_rtps.transport.types.model import (
    Array,
    Extensibility,
    Member,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
    Type,
    is_bytes,
)
from spark_rtps.transport.types.ros_names import ros_type_name
from tests.support.ros_oracle import to_rosbags


@dataclass(frozen=True)
class Peer:
    """``serialize`` takes what ``sample`` makes of a row; ``deserialize`` takes a payload."""

    sample: Callable[[Any], Any]
    serialize: Callable[[Any], bytes | memoryview]
    deserialize: Callable[[bytes], Any]


_KINDS: Final = {
    PrimitiveKind.BOOLEAN: "bool",
    PrimitiveKind.BYTE: "byte",
    **{kind: kind.value for kind in PrimitiveKind if kind.value.startswith(("int", "uint"))},
    PrimitiveKind.FLOAT32: "float32",
    PrimitiveKind.FLOAT64: "float64",
}


class IdlClasses:
    """Classes of ``cyclonedds.idl``, or of pycdr2, which is that as a package of its own."""

    def __init__(self, idl: ModuleType) -> None:
        self.idl = idl
        self.struct = functools.cache(self._struct)

    def type(self, t: Type) -> Any:
        types = self.idl.types
        if isinstance(t, Primitive):
            return bool if t.kind is PrimitiveKind.BOOLEAN else getattr(types, _KINDS[t.kind])
        if isinstance(t, String):
            return str
        if isinstance(t, Struct):
            return self.struct(t)
        assert isinstance(t, Sequence | Array)
        if isinstance(t, Array):
            return types.array[self.type(t.element), t.length]
        # a sequence[uint8] would be a list of integers to them
        return bytes if is_bytes(t.element) else types.sequence[self.type(t.element)]

    def _struct(self, t: Struct) -> Any:
        made = self.idl.make_idl_struct(
            t.name.split("::")[-1], t.name.replace("::", "."), {m.name: self._member(m) for m in t.members}
        )
        made.__idl_annotations__["extensibility"] = t.extensibility.value
        return made

    def _member(self, member: Member) -> Any:
        kind = self.type(member.type)
        return Optional[kind] if member.optional else kind  # noqa: UP045

    def value(self, t: Type, value: Any) -> Any:
        if value is None or not isinstance(t, Struct | Sequence | Array):
            return value
        if isinstance(t, Struct):
            return self.struct(t)(**{m.name: self.value(m.type, value[m.name]) for m in t.members})
        return value if is_bytes(t.element) else [self.value(t.element, each) for each in value]

    def peer(self, struct: Struct, little_endian: Any, version: int) -> Peer:
        made, version_2 = self.struct(struct), version == 2
        return Peer(
            lambda row: self.value(struct, row),
            lambda sample: sample.serialize(endianness=little_endian, use_version_2=version_2),
            made.deserialize,
        )


def cyclonedds_peer(struct: Struct, definition: str | None, version: int) -> Peer | None:
    return IdlClasses(cyclonedds.idl).peer(struct, cyclonedds.idl._support.Endianness.Little, version)


def pycdr2_peer(struct: Struct, definition: str | None, version: int) -> Peer | None:
    return IdlClasses(pycdr2).peer(struct, pycdr2._support.Endianness.Little, version)


def rosbags_peer(struct: Struct, definition: str | None, version: int) -> Peer | None:
    """``definition``: the .msg text of a message that ROS does not have."""
    if struct.extensibility is not Extensibility.FINAL:
        return None  # ROS has no such types
    store, name = get_typestore(Stores.ROS2_JAZZY), ros_type_name(struct.name)
    if definition is not None:
        store.register(get_types_from_msg(definition, name))
    return Peer(
        lambda row: to_rosbags(struct, row, store),
        lambda message: store.serialize_cdr(message, name),
        lambda payload: store.deserialize_cdr(payload, name),
    )


PEERS: Final = {"cyclonedds": cyclonedds_peer, "rosbags": rosbags_peer, "pycdr2": pycdr2_peer}
