"""Against another implementation: random types and values, byte for byte with Cyclone DDS."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cyclone_oracle import cyclone_bytes
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from spark_rtps.transport.errors import TypeDefinitionError
from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.types.arrow import arrow_schema
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_idl, print_idl
from spark_rtps.transport.types.model import (
    Array,
    Enum,
    Extensibility,
    Member,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
    Type,
    is_bytes,
    walk,
)
from spark_rtps.transport.wire.samples import Samples

_RANGES = {
    PrimitiveKind.BYTE: (0, 255),
    PrimitiveKind.INT8: (-128, 127),
    PrimitiveKind.UINT8: (0, 255),
    PrimitiveKind.INT16: (-(1 << 15), (1 << 15) - 1),
    PrimitiveKind.UINT16: (0, (1 << 16) - 1),
    PrimitiveKind.INT32: (-(1 << 31), (1 << 31) - 1),
    PrimitiveKind.UINT32: (0, (1 << 32) - 1),
    PrimitiveKind.INT64: (-(1 << 63), (1 << 63) - 1),
    PrimitiveKind.UINT64: (0, (1 << 64) - 1),
}
COLOR = Enum("lab::Color", (("RED", 0), ("GREEN", 1), ("BLUE", 2)))
SPARSE = Enum("lab::Sparse", (("HIGH", 100), ("LOW", 3), ("MID", 40)))
#: Cyclone's Python reads char as a signed byte.
_CHARS = st.characters(min_codepoint=0, max_codepoint=127)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)


@st.composite
def structs(draw: st.DrawFn, depth: int = 2, prefix: str = "T", free: bool = False) -> Struct:
    """Structs; ``free``: with optional members and mutable ones, which we cannot all write."""
    extensibility = draw(st.sampled_from(list(Extensibility) if free else list(Extensibility)[:2]))
    kinds = draw(st.lists(types(depth, prefix, free), min_size=1, max_size=5))
    keys = draw(st.lists(st.booleans(), min_size=len(kinds), max_size=len(kinds)))
    members = []
    for i, (kind, key) in enumerate(zip(kinds, keys, strict=True)):
        absent = free and not key and draw(st.booleans())
        members.append(Member(f"m{i}", kind, i, key, absent))
    return Struct(f"lab::{prefix}", tuple(members), extensibility)


def types(depth: int, prefix: str, free: bool) -> st.SearchStrategy[Type]:
    scalars: st.SearchStrategy[Type] = st.one_of(
        st.sampled_from(list(PrimitiveKind)).map(Primitive),
        st.sampled_from([COLOR, SPARSE]),
        st.just(String()),
        st.just(String(30)),
    )
    if depth == 0:
        return scalars
    inner = types(depth - 1, prefix + "i", free)
    # an array of arrays is written in one, as in IDL: our model keeps a typedef'd one apart
    elements = inner.filter(lambda t: not isinstance(t, Array))
    return st.one_of(
        scalars,
        st.builds(Sequence, elements),
        st.builds(Sequence, elements, st.just(4)),
        st.builds(Array, elements, st.sampled_from([(1,), (3,), (2, 2)])),
        st.integers(0, 1 << 30).flatmap(lambda n: structs(depth - 1, f"{prefix}_{n}", free)),
    )


def values(t: Type) -> st.SearchStrategy[Any]:
    if isinstance(t, Primitive):
        if t.kind is PrimitiveKind.BOOLEAN:
            return st.booleans()
        if t.kind is PrimitiveKind.CHAR8:
            return _CHARS
        if t.kind in (PrimitiveKind.FLOAT32, PrimitiveKind.FLOAT64):
            return st.floats(width=32, allow_nan=False)
        return st.integers(*_RANGES[t.kind])
    if isinstance(t, Enum):
        return st.sampled_from([name for name, _ in t.literals])
    if isinstance(t, String):
        return _TEXTS.filter(lambda text: len(text.encode()) <= (t.bound or 99))
    if isinstance(t, Struct):
        return st.fixed_dictionaries(
            {
                member.name: st.none() | values(member.type) if member.optional else values(member.type)
                for member in t.members
            }
        )
    element = values(t.element)
    if isinstance(t, Sequence):
        if is_bytes(t.element):
            return st.binary(max_size=4)
        return st.lists(element, max_size=4)
    dimensions = t.dimensions
    if is_bytes(t.element):
        element, dimensions = st.binary(min_size=dimensions[-1], max_size=dimensions[-1]), dimensions[:-1]
    for length in reversed(dimensions):
        element = st.lists(element, min_size=length, max_size=length)
    return element


@st.composite
def batches(draw: st.DrawFn, free: bool = False) -> tuple[Struct, pa.RecordBatch]:
    struct = draw(structs(free=free))
    rows = draw(st.lists(values(struct), min_size=1, max_size=4))
    return struct, pa.RecordBatch.from_pylist(rows, schema=arrow_schema(struct))


_FORMS = [(1, False), (1, True), (2, False), (2, True)]
_RELAXED = settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def _bodies(samples: Samples) -> list[bytes]:
    """The payloads without the padding their headers announce."""
    payloads = [bytes(samples.payload(i)) for i in range(samples.count)]
    return [p[:2] + b"\0\0" + p[4 : len(p) - p[3]] for p in payloads]


@_RELAXED
@given(batches())
def test_same_bytes_as_cyclone(case: tuple[Struct, pa.RecordBatch]) -> None:
    struct, batch = case
    codec = Codec(struct)
    for version, big_endian in _FORMS:
        representation = DataRepresentation.XCDR1 if version == 1 else DataRepresentation.XCDR2
        samples = codec.encode(batch, representation=representation, big_endian=big_endian)
        expected = [
            cyclone_bytes(struct, row, version=version, big_endian=big_endian) for row in batch.to_pylist()
        ]
        assert _bodies(samples) == expected
        decoded = codec.decode(samples)
        assert decoded.malformed is None
        assert decoded.batch.equals(batch)
        decoded.batch.validate(full=True)
        size = codec.uniform_size(representation)
        assert size is None or (samples.is_uniform and samples.size == size)


def _gathered(payloads: list[bytes]) -> Samples:
    """Payloads of a peer, each at a multiple of 4, with bytes between them that are nobody's."""
    padded = [payload + b"\xa5" * (4 + -len(payload) % 4) for payload in payloads]
    offsets = np.cumsum([0] + [len(piece) for piece in padded[:-1]], dtype=np.int64)
    lengths = np.array([len(payload) for payload in payloads], np.int64)
    return Samples.ragged(np.frombuffer(b"".join(padded), np.uint8), offsets, lengths)


@_RELAXED
@given(batches(free=True))
def test_reads_optional_and_mutable_of_cyclone(case: tuple[Struct, pa.RecordBatch]) -> None:
    struct, batch = case
    codec = Codec(struct)
    for version, big_endian in _FORMS:
        rows = batch.to_pylist()
        samples = _gathered(
            [cyclone_bytes(struct, row, version=version, big_endian=big_endian) for row in rows]
        )
        decoded = codec.decode(samples)
        assert decoded.malformed is None
        assert decoded.batch.equals(batch)


@_RELAXED
@given(batches(free=True))
def test_writes_optional_members(case: tuple[Struct, pa.RecordBatch]) -> None:
    struct, batch = case
    codec = Codec(struct)
    if any(isinstance(t, Struct) and t.extensibility is Extensibility.MUTABLE for t in walk(struct)):
        with pytest.raises(TypeDefinitionError, match="mutable"):
            codec.encode(batch, representation=DataRepresentation.XCDR2)
        return
    for big_endian in (False, True):
        samples = codec.encode(batch, representation=DataRepresentation.XCDR2, big_endian=big_endian)
        expected = [cyclone_bytes(struct, row, version=2, big_endian=big_endian) for row in batch.to_pylist()]
        assert _bodies(samples) == expected


@_RELAXED
@given(batches())
def test_same_keys_as_cyclone(case: tuple[Struct, pa.RecordBatch]) -> None:
    struct, batch = case
    if not struct.is_keyed:
        return
    codec = Codec(struct)
    for version, big_endian in _FORMS:
        representation = DataRepresentation.XCDR1 if version == 1 else DataRepresentation.XCDR2
        keys = codec.encode_keys(batch, representation=representation, big_endian=big_endian)
        expected = [
            cyclone_bytes(struct, row, version=version, big_endian=big_endian, keys=True)
            for row in batch.to_pylist()
        ]
        assert _bodies(keys) == expected
        decoded = codec.decode(keys, keys_only=True)
        assert decoded.malformed is None
        again = codec.encode_keys(decoded.batch, representation=representation, big_endian=big_endian)
        assert _bodies(again) == expected


@settings(max_examples=40, derandomize=True, deadline=None)
@given(structs(free=True))
def test_printed_idl_reads_back(struct: Struct) -> None:
    structs_inside = {t for t in walk(struct) if isinstance(t, Struct)}
    assume(len({t.name for t in structs_inside}) == len(structs_inside))
    assert parse_idl(print_idl(struct))[struct.name] == struct


@_RELAXED
@given(batches(free=True), st.data())
def test_damaged_payloads_never_raise(case: tuple[Struct, pa.RecordBatch], data: st.DataObject) -> None:
    struct, batch = case
    codec = Codec(struct)
    version, big_endian = data.draw(st.sampled_from(_FORMS))
    rows = batch.to_pylist()
    samples = _gathered([cyclone_bytes(struct, row, version=version, big_endian=big_endian) for row in rows])
    raw, lengths = samples.data.copy(), samples.all_lengths()
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=6)):
        raw[at] = data.draw(st.sampled_from([0, 1, 127, 128, 255]))
    lengths = np.maximum(lengths - data.draw(st.integers(0, 8)), 0)
    decoded = codec.decode(Samples.ragged(raw, samples.all_offsets(), lengths))
    bad = 0 if decoded.malformed is None else int(decoded.malformed.sum())
    assert decoded.batch.num_rows + bad == samples.count
    decoded.batch.validate(full=True)


@pytest.mark.parametrize("version", [1, 2])
def test_truncation_at_every_length(version: int) -> None:
    point = Struct(
        "lab::P",
        (Member("x", Primitive(PrimitiveKind.FLOAT64), 0), Member("n", String(), 1)),
        Extensibility.APPENDABLE,
    )
    struct = Struct(
        "lab::S",
        (
            Member("a", Primitive(PrimitiveKind.INT16), 0),
            Member("s", String(), 1),
            Member("p", Sequence(point), 2),
            Member("e", Array(COLOR, (2,)), 3),
            Member("v", Sequence(Primitive(PrimitiveKind.FLOAT64)), 4),
            Member("t", Primitive(PrimitiveKind.INT32), 5),
        ),
    )
    row = {"a": 1, "s": "hello", "p": [{"x": 1.5, "n": "ü"}, {"x": 2.5, "n": ""}], "e": ["RED", "BLUE"]}
    row |= {"v": [1.0, 2.0], "t": 7}
    codec = Codec(struct)
    representation = DataRepresentation.XCDR1 if version == 1 else DataRepresentation.XCDR2
    batch = pa.RecordBatch.from_pylist([row], schema=codec.arrow_schema)
    whole = bytes(codec.encode(batch, representation=representation).payload(0))
    # every cut payload at once, each followed by bytes that must not be read, between whole ones
    pieces = [whole] + [whole[:n] for n in range(len(whole))] + [whole]
    starts, data = [], bytearray()
    for piece in pieces:
        starts.append(len(data))
        data += piece + b"\xff" * (8 - len(piece) % 4)
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    raw = np.frombuffer(bytes(data), np.uint8)
    decoded = codec.decode(Samples.ragged(raw, np.array(starts, np.int64), lengths))
    assert decoded.malformed is not None
    assert decoded.malformed.tolist() == [False] + [True] * len(whole) + [False]
    assert decoded.batch.to_pylist() == [row, row]
