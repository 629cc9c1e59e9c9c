"""Types that are deep, or have many members, cost what they are: not twice as much for each level."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_rtps.transport.errors import TypeDefinitionError
from spark_rtps.transport.limits import TYPE_DEPTH_MAX
from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_idl, print_idl
from spark_rtps.transport.types.model import (
    Array,
    Case,
    Extensibility,
    Member,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
    Type,
    Union,
)

LONG = Primitive(PrimitiveKind.INT32)
DEPTH = TYPE_DEPTH_MAX - 8


def nested_structs(extensibility: Extensibility, innermost: Type) -> tuple[Struct, object]:
    t = Struct("S", (Member("m", innermost, 0),), extensibility)
    value: dict[str, object] = {"m": "text" if isinstance(innermost, String) else 5}
    for i in range(DEPTH):
        t = Struct(f"S{i}", (Member("m", t, 0),), extensibility)
        value = {"m": value}
    return t, value["m"]


def nested_arrays() -> tuple[Struct, object]:
    t: Type = LONG
    value: object = 5
    for _ in range(DEPTH):
        t = Array(t, (1,))
        value = [value]
    return Struct("A", (Member("m", t, 0),)), value


def nested_lists() -> tuple[Struct, object]:
    t: Type = String()
    value: object = "text"
    for i in range(DEPTH):
        t = Array(t, (2,)) if i == 0 else Sequence(t)
        value = [value, value] if i == 0 else [value]
    return Struct("L", (Member("m", t, 0),)), value


@pytest.mark.parametrize("representation", [DataRepresentation.XCDR1, DataRepresentation.XCDR2])
@pytest.mark.parametrize(
    "typed",
    [
        nested_arrays(),
        nested_lists(),
        *(nested_structs(e, t) for e in Extensibility for t in (LONG, String())),
    ],
    ids=lambda typed: typed[0].name,
)
def test_deep(typed: tuple[Struct, object], representation: DataRepresentation) -> None:
    struct, value = typed
    codec = Codec(struct)
    batch = pa.RecordBatch.from_pylist([{"m": value}] * 3, schema=codec.arrow_schema)
    decoded = codec.decode_samples(codec.encode_batch(batch, representation=representation))
    assert decoded.malformed is None
    assert decoded.batch.equals(batch)


def test_many_members() -> None:
    members = tuple(Member(f"m{i}", String(), i) for i in range(3_000))
    codec = Codec(Struct("Wide", members, Extensibility.APPENDABLE))
    batch = pa.RecordBatch.from_pylist(
        [{member.name: "x" for member in members}] * 2, schema=codec.arrow_schema
    )
    decoded = codec.decode_samples(codec.encode_batch(batch, representation=DataRepresentation.XCDR2))
    assert decoded.malformed is None
    assert decoded.batch.equals(batch)


def test_many_members_and_branches_in_lists() -> None:
    branches = tuple(Case(f"b{i}", LONG, i + 1, (i,)) for i in range(1_000))
    union = Union("Wide", LONG, branches, Extensibility.MUTABLE)
    codec = Codec(Struct("Holder", (Member("u", union, 0),)))
    rows = [
        {"discriminator": i, **{c.name: i if c.labels == (i,) else None for c in branches}} for i in (3, 999)
    ]
    batch = pa.RecordBatch.from_pylist([{"u": row} for row in rows], schema=codec.arrow_schema)
    for representation in (DataRepresentation.XCDR1, DataRepresentation.XCDR2):
        decoded = codec.decode_samples(codec.encode_batch(batch, representation=representation))
        assert decoded.malformed is None
        assert decoded.batch.equals(batch)


def test_many_members_in_idl() -> None:
    members = tuple(Member(f"m{i}", LONG, i) for i in range(5_000))
    struct = Struct("Wide", members)
    assert parse_idl(print_idl(struct))["Wide"] == struct
    with pytest.raises(TypeDefinitionError, match="two members are named a"):
        parse_idl("struct S { long a; long b; long a; };")
