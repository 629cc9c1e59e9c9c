"""Types and values as words, as ``peer.cpp`` reads and writes them: in the order of IDL and of XCDR."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote, unquote

from spark_rtps.transport.types.model import (
    Alias,
    Array,
    Bitmask,
    Enum,
    Map,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
    Type,
    Union,
    is_blob,
    resolve,
)

_PRIMITIVES: Final = {
    PrimitiveKind.BOOLEAN: "boolean",
    PrimitiveKind.BYTE: "octet",
    PrimitiveKind.INT8: "int8",
    PrimitiveKind.UINT8: "uint8",
    PrimitiveKind.INT16: "short",
    PrimitiveKind.UINT16: "unsigned_short",
    PrimitiveKind.INT32: "long",
    PrimitiveKind.UINT32: "unsigned_long",
    PrimitiveKind.INT64: "long_long",
    PrimitiveKind.UINT64: "unsigned_long_long",
    PrimitiveKind.FLOAT32: "float",
    PrimitiveKind.FLOAT64: "double",
    PrimitiveKind.FLOAT128: "long_double",
    PrimitiveKind.CHAR8: "char",
}
_REALS: Final = (PrimitiveKind.FLOAT32, PrimitiveKind.FLOAT64, PrimitiveKind.FLOAT128)


def text(value: str) -> str:
    return "'" + quote(value, safe="")


def type_words(t: Type) -> Iterator[str]:
    """A type, those it is made of inside it."""
    match t:
        case Primitive():
            yield _PRIMITIVES[t.kind]
        case String():
            yield from ("string", str(t.bound))
        case Sequence():
            yield from ("sequence", str(t.bound), *type_words(t.element))
        case Array():
            yield from ("array", str(len(t.dimensions)), *map(str, t.dimensions), *type_words(t.element))
        case Map():
            yield from ("map", str(t.bound), *type_words(t.key), *type_words(t.value))
        case Enum():
            yield from ("enum", text(t.name), str(len(t.literals)))
            for name, value in t.literals:
                yield from (text(name), str(value))
        case Bitmask():
            yield from ("bitmask", text(t.name), str(t.bit_bound), str(len(t.flags)))
            for name, position in t.flags:
                yield from (text(name), str(position))
        case Alias():
            yield from ("alias", text(t.name), *type_words(t.type))
        case Struct():
            yield from ("struct", text(t.name), t.extensibility.value)
            yield from ("nobase",) if t.base is None else ("base", *type_words(t.base))
            yield str(len(t.own_members))
            for member in t.own_members:
                flags = "key" if member.key else "optional" if member.optional else "plain"
                yield from (text(member.name), str(member.id), flags, *type_words(member.type))
        case Union():
            yield from ("union", text(t.name), *type_words(t.discriminator), str(len(t.cases)))
            for case in t.cases:
                yield from (text(case.name), str(case.id), "default" if case.default else "labelled")
                yield from (str(len(case.labels)), *map(str, case.labels), *type_words(case.type))
        case _:
            raise AssertionError(f"no words for {t}")


def value_words(t: Type, value: Any) -> Iterator[str]:
    """A value as our columns have it."""
    t = resolve(t)
    match t:
        case Primitive(PrimitiveKind.CHAR8):
            yield str(ord(value))
        case Primitive():
            yield float(value).hex() if t.kind in _REALS else str(int(value))
        case String():
            yield text(value)
        case Enum():
            yield str(dict(t.literals)[value])
        case Bitmask():
            yield str(sum(1 << dict(t.flags)[name] for name in value))
        case Sequence():
            yield str(len(value))
            for each in value:
                yield from value_words(t.element, each)
        case Array():
            for each in _flat(value, len(t.dimensions)):
                yield from value_words(t.element, each)
        case Map():
            yield str(len(value))
            for key, each in value:
                yield from (*value_words(t.key, key), *value_words(t.value, each))
        case Struct():
            for member in t.members:
                if member.optional:
                    yield "absent" if value[member.name] is None else "present"
                if not member.optional or value[member.name] is not None:
                    yield from value_words(member.type, value[member.name])
        case Union():
            yield from value_words(t.discriminator, value[t.discriminator_name])
            (taken,) = (case for case in t.cases if value[case.name] is not None)
            yield from value_words(taken.type, value[taken.name])
        case _:
            raise AssertionError(f"no words for a {t}")


def value_of(t: Type, words: Iterator[str]) -> Any:
    """The value in the next words, as our columns have it."""
    t = resolve(t)
    match t:
        case Primitive(PrimitiveKind.CHAR8):
            return chr(int(next(words)))
        case Primitive(PrimitiveKind.BOOLEAN):
            return next(words) == "1"
        case Primitive():
            return float.fromhex(next(words)) if t.kind in _REALS else int(next(words))
        case String():
            return unquote(next(words)[1:])
        case Enum():
            number = int(next(words))
            return next(name for name, value in t.literals if value == number)
        case Bitmask():
            bits = int(next(words))
            return [name for name, position in t.flags if bits >> position & 1]
        case Sequence():
            values = [value_of(t.element, words) for _ in range(int(next(words)))]
            return bytes(values) if is_blob(t) else values
        case Array():
            values = [value_of(t.element, words) for _ in range(t.length)]
            return bytes(values) if is_blob(t) else _nested(values, t.dimensions)
        case Map():
            return [(value_of(t.key, words), value_of(t.value, words)) for _ in range(int(next(words)))]
        case Struct():
            return {
                member.name: None
                if member.optional and next(words) == "absent"
                else value_of(member.type, words)
                for member in t.members
            }
        case Union():
            discriminator = value_of(t.discriminator, words)
            (label,) = map(int, value_words(t.discriminator, discriminator))
            taken = next((case for case in t.cases if label in case.labels), None)
            taken = taken or next(case for case in t.cases if case.default)
            found: dict[str, Any] = dict.fromkeys(case.name for case in t.cases)
            return {t.discriminator_name: discriminator} | found | {taken.name: value_of(taken.type, words)}
        case _:
            raise AssertionError(f"no words for a {t}")


def _flat(value: Any, depth: int) -> Iterator[Any]:
    if depth == 0:
        yield value
    else:
        for each in value:
            yield from _flat(each, depth - 1)


def _nested(values: list[Any], dimensions: tuple[int, ...]) -> list[Any]:
    for size in reversed(dimensions[1:]):
        values = [values[i : i + size] for i in range(0, len(values), size)]
    return values
