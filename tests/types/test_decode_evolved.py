"""Readers with an older or a newer type, whatever it is: what both types have is what the writer wrote."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.qos import DataRepresentation, TypeConsistency
from spark_rtps.transport.types.arrow import arrow_schema
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.model import (
    SCALARS,
    Alias,
    Array,
    Extensibility,
    Map,
    Member,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
    Type,
    Union,
    resolve,
)
from spark_rtps.transport.types.xtypes.assignability import incompatibilities_of_types
from tests.types import idl_types
from tests.types.test_decode_random import gathered, relaxed

_ADDED = (
    Primitive(PrimitiveKind.INT8),
    Primitive(PrimitiveKind.INT32),
    Primitive(PrimitiveKind.FLOAT64),
    String(),
    Sequence(String()),
    Sequence(Primitive(PrimitiveKind.INT16)),
)


@st.composite
def written(draw: st.DrawFn) -> tuple[Struct, list[dict[str, Any]], int]:
    struct = draw(idl_types.structs(features=idl_types.FEATURES))
    rows = draw(st.lists(idl_types.values(struct), min_size=1, max_size=4))
    return struct, rows, draw(st.integers(0, 1 << 30))


@relaxed(120)
@given(written())
def test_members_of_both_types_are_read(case: tuple[Struct, list[dict[str, Any]], int]) -> None:
    """Mutable structs at any depth, appendable ones where their end is known; what the writer lacks is null."""
    struct, rows, seed = case
    rng = random.Random(seed)
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(struct))
    for version in (DataRepresentation.XCDR1, DataRepresentation.XCDR2):
        may_change = _in_xcdr1(rng) if version is DataRepresentation.XCDR1 else lambda _: rng.random() < 0.6
        reader = _changed(struct, rng, may_change, is_top=True)
        assert isinstance(reader, Struct)
        assert not incompatibilities_of_types(struct, reader, TypeConsistency())
        in_xcdr1 = version is DataRepresentation.XCDR1
        if incompatibilities_of_types(struct, reader, TypeConsistency(), in_xcdr1=in_xcdr1):
            continue
        wanted = [_read_as(row, struct, reader) for row in batch.to_pylist()]
        for big_endian in (False, True):
            samples = Codec(struct).encode_batch(batch, representation=version, big_endian=big_endian)
            payloads = [bytes(samples.payload(i)) for i in range(samples.count)]
            decoded = Codec(reader).decode_samples(gathered(payloads))
            assert decoded.malformed is None
            decoded.batch.validate(full=True)
            assert repr(decoded.batch.to_pylist()) == repr(wanted)


def _in_xcdr1(rng: random.Random) -> Callable[[Struct], bool]:
    """There, an appendable struct inside of another type has no end of its own; it may be the last thing."""
    return lambda t: rng.random() < (0.6 if t.extensibility is Extensibility.MUTABLE else 0.2)


def _changed(
    t: Type, rng: random.Random, may_change: Callable[[Struct], bool], *, is_top: bool = False
) -> Type:
    """The type with members added, left out or in another order, as its structs allow it; keys are left alone."""

    def inner(part: Type) -> Type:
        return _changed(part, rng, may_change)

    if isinstance(t, Alias):
        return replace(t, type=_changed(t.type, rng, may_change, is_top=is_top))
    if isinstance(t, Sequence | Array):
        return replace(t, element=inner(t.element))
    if isinstance(t, Map):
        return replace(t, value=inner(t.value))
    if isinstance(t, Union):
        return replace(t, cases=tuple(replace(case, type=inner(case.type)) for case in t.cases))
    if not isinstance(t, Struct):
        return t
    members = [m if m.key else replace(m, type=inner(m.type)) for m in t.members]
    is_needed = [m.key or m.must_understand for m in members]
    free = next(i for i in range(len(members) + 1) if all(m.id != i for m in members))
    if is_top or may_change(t):
        if t.extensibility is Extensibility.APPENDABLE:
            last = max((i for i, needed in enumerate(is_needed) if needed), default=0)
            if rng.random() < 0.5:
                members = members[: rng.randint(last + 1, len(members))]
            else:
                members.append(_new(rng, max(m.id for m in members) + 1))
        elif t.extensibility is Extensibility.MUTABLE:
            kept = [m for m, needed in zip(members, is_needed, strict=True) if needed or rng.random() < 0.7]
            members = (kept or members[:1]) + [_new(rng, free)] * rng.randint(0, 1)
            rng.shuffle(members)
    return replace(t, members=tuple(members), base=None)


def _new(rng: random.Random, id: int) -> Member:
    return Member("zz_added", rng.choice(_ADDED), id, optional=rng.random() < 0.3)


def _read_as(value: Any, writer: Type, reader: Type) -> Any:
    """A value of the writer's type as one of the reader's."""
    writer, reader = resolve(writer), resolve(reader)
    if value is None:
        return None
    if isinstance(writer, Sequence | Array) and isinstance(reader, Sequence | Array):
        if isinstance(resolve(writer.element), SCALARS):
            return value
        depth = len(writer.dimensions) if isinstance(writer, Array) else 1
        return _elements(value, depth, writer.element, reader.element)
    if isinstance(writer, Map) and isinstance(reader, Map):
        return [(key, _read_as(item, writer.value, reader.value)) for key, item in value]
    if isinstance(writer, Struct) and isinstance(reader, Struct):
        types = {member.name: member.type for member in writer.members}
        return {
            m.name: _read_as(value[m.name], types[m.name], m.type) if m.name in types else None
            for m in reader.members
        }
    if isinstance(writer, Union) and isinstance(reader, Union):
        branches = {
            mine.name: (mine.type, its.type) for mine, its in zip(writer.cases, reader.cases, strict=True)
        }
        return {
            name: _read_as(part, *branches[name]) if name in branches else part
            for name, part in value.items()
        }
    return value


def _elements(value: list[Any], depth: int, writer: Type, reader: Type) -> list[Any]:
    if depth > 1:
        return [_elements(each, depth - 1, writer, reader) for each in value]
    return [_read_as(each, writer, reader) for each in value]
