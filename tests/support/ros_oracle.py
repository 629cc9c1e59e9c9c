"""The CDR serializer of rosbags as an oracle: converts values of our model to its message classes and back."""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np
from rosbags.typesys import Stores, get_typestore
from rosbags.typesys.store import Typestore

from spark_rtps.transport.types.model import (
    TYPE_CODES,
    Array,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
    Type,
    is_bytes,
)
from spark_rtps.transport.types.ros_names import ros_type_name

_LETTERS = "abc xyz/é€😀"
_FLOATS = (0.0, -0.0, 1.5, -3.25 * 2.0**90, float("inf"), 2.0**-140)


@functools.cache
def typestore(distribution: str = "jazzy") -> Typestore:
    return get_typestore(Stores(f"ros2_{distribution}"))


def random_value(t: Type, rng: random.Random) -> Any:
    """A random value of a type, in the form in which ``RecordBatch.to_pylist`` gives it."""
    if isinstance(t, Struct):
        return {member.name: random_value(member.type, rng) for member in t.members}
    if isinstance(t, String):
        return "".join(rng.choices(_LETTERS, k=rng.randrange(min(t.bound // 4 or 9, 9))))
    if isinstance(t, Sequence | Array):
        count = t.length if isinstance(t, Array) else rng.randrange(min(t.bound or 4, 4) + 1)
        if is_bytes(t.element):
            return rng.randbytes(count)
        return [random_value(t.element, rng) for _ in range(count)]
    assert isinstance(t, Primitive)
    if t.kind is PrimitiveKind.BOOLEAN:
        return rng.random() < 0.5
    if t.kind in (PrimitiveKind.FLOAT32, PrimitiveKind.FLOAT64):
        return rng.choice(_FLOATS)
    bits, signed = int(TYPE_CODES[t.kind][1:]) * 8, TYPE_CODES[t.kind][0] == "i"
    # rosbags has bytes signed
    bits, low = (7, 0) if t.kind is PrimitiveKind.BYTE else (bits, -(1 << bits - 1) if signed else 0)
    return rng.choice((low, low + (1 << bits) - 1, low + rng.randrange(1 << bits)))


def to_rosbags(t: Type, value: Any, store: Typestore) -> Any:
    if isinstance(t, Struct):
        members = [to_rosbags(member.type, value[member.name], store) for member in t.members]
        return store.types[ros_type_name(t.name)](*members)
    if isinstance(t, Sequence | Array):
        if is_bytes(t.element):
            return np.frombuffer(value, np.uint8)
        if isinstance(t.element, Primitive):
            boolean = t.element.kind is PrimitiveKind.BOOLEAN
            return np.array(value, np.bool_ if boolean else TYPE_CODES[t.element.kind])
        return [to_rosbags(t.element, each, store) for each in value]
    return value


def from_rosbags(t: Type, value: Any) -> Any:
    if isinstance(t, Struct):
        return {member.name: from_rosbags(member.type, getattr(value, member.name)) for member in t.members}
    if isinstance(t, Sequence | Array):
        if is_bytes(t.element):
            return value.tobytes()
        if isinstance(t.element, Primitive):
            return value.tolist()
        return [from_rosbags(t.element, each) for each in value]
    return value


def rosbags_bytes(t: Struct, value: Any, store: Typestore, *, big_endian: bool = False) -> bytes:
    """A value serialized by rosbags, with its encapsulation header."""
    message = to_rosbags(t, value, store)
    return bytes(store.serialize_cdr(message, ros_type_name(t.name), little_endian=not big_endian))
