"""Against another implementation: random types and values, byte for byte with Cyclone DDS."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.types.arrow import arrow_schema
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_idl, print_idl
from spark_rtps.transport.types.model import (
    Array,
    Bitmask,
    Case,
    Enum,
    Extensibility,
    Member,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
    Type,
    Union,
    WString,
    traverse,
)
from spark_rtps.transport.types.xtypes.type_objects import type_objects_of
from spark_rtps.transport.types.xtypes.type_reading import struct_of
from spark_rtps.transport.wire.samples import Samples
from tests.types import cyclone_library, idl_types
from tests.types.cyclone_oracle import cyclone_bytes, supports, supports_key

XCDR = {1: DataRepresentation.XCDR1, 2: DataRepresentation.XCDR2}
COLOR = Enum("lab::Color", (("RED", 0), ("GREEN", 1), ("BLUE", 2)))
#: What Cyclone's Python has.
FEATURES = idl_types.FEATURES - {"map", "bitset", "wide", "float128"}


@st.composite
def batches(draw: st.DrawFn, features: frozenset[str] = FEATURES) -> tuple[Struct, pa.RecordBatch]:
    struct = draw(idl_types.structs(features=features))
    if features <= FEATURES:
        assume(supports(struct))
    last_char = 127 if features <= FEATURES else 255
    rows = draw(st.lists(idl_types.values(struct, last_char=last_char), min_size=1, max_size=4))
    return struct, pa.RecordBatch.from_pylist(rows, schema=arrow_schema(struct))


_FORMS = [(1, False), (1, True), (2, False), (2, True)]


def _relaxed(examples: int) -> settings:
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        # types this large shrink for minutes; the one that failed is printed
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
    )


def _bodies(samples: Samples) -> list[bytes]:
    """The payloads without the padding their headers announce."""
    payloads = [bytes(samples.payload(i)) for i in range(samples.count)]
    return [p[:2] + b"\0\0" + p[4 : len(p) - p[3]] for p in payloads]


def _gathered(payloads: list[bytes]) -> Samples:
    """Payloads of a peer, each at a multiple of 4, with bytes between them that are nobody's."""
    padded = [payload + b"\xa5" * (4 + -len(payload) % 4) for payload in payloads]
    offsets = np.cumsum([0] + [len(piece) for piece in padded[:-1]], dtype=np.int64)
    lengths = np.array([len(payload) for payload in payloads], np.int64)
    return Samples.ragged(np.frombuffer(b"".join(padded), np.uint8), offsets, lengths)


@_relaxed(400)
@given(batches())
def test_same_bytes_as_cyclone(case: tuple[Struct, pa.RecordBatch]) -> None:
    struct, batch = case
    codec = Codec(struct)
    for version, big_endian in _FORMS:
        if not supports(struct, version):
            continue
        samples = codec.encode_batch(batch, representation=XCDR[version], big_endian=big_endian)
        rows = batch.to_pylist()
        theirs = [cyclone_bytes(struct, row, version=version, big_endian=big_endian) for row in rows]
        assert _bodies(samples) == theirs
        size = codec.uniform_size(XCDR[version])
        assert size is None or (samples.is_uniform and samples.size == size)
        for read in (samples, _gathered(theirs)):
            decoded = codec.decode_samples(read)
            assert decoded.malformed is None
            assert decoded.batch.equals(batch)
            decoded.batch.validate(full=True)


@pytest.mark.parametrize("bits", [8, 16])
def test_enums_whose_values_need_all_bits(bits: int) -> None:
    top = (1 << bits) - 1
    texts = f"@value({top // 2}) LOW, @value({top // 2 + 1}) HIGH, @value({top}) LAST"
    struct = parse_idl(
        f"""@bit_bound({bits}) enum E {{ ZERO, {texts} }};
        union U switch (E) {{ case HIGH: long x; case LAST: string s; default: octet o; }};
        @final struct S {{ @key E e; sequence<E> many; U u; octet end; }};"""
    )["S"]
    assert isinstance(struct, Struct)
    assert supports(struct)
    schema = arrow_schema(struct)
    selector = schema.field("u").type.field(0).name
    rows = [
        {
            "e": e,
            "many": ["LAST", e, "LOW"],
            "u": {"x": None, "s": None, "o": None, selector: label} | u,
            "end": 7,
        }
        for e, label, u in (
            ("HIGH", "HIGH", {"x": -1}),
            ("LAST", "LAST", {"s": "hi"}),
            ("ZERO", "LOW", {"o": 3}),
        )
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    codec = Codec(struct)
    for version, big_endian in _FORMS:
        samples = codec.encode_batch(batch, representation=XCDR[version], big_endian=big_endian)
        if supports(struct, version):
            assert _bodies(samples) == [
                cyclone_bytes(struct, row, version=version, big_endian=big_endian) for row in rows
            ]
        decoded = codec.decode_samples(samples)
        assert decoded.malformed is None
        assert decoded.batch.equals(batch)
    assert parse_idl(print_idl(struct))["S"] == struct
    objects = type_objects_of(struct)
    assert objects.information.complete is not None
    assert struct_of(objects.information.complete.type.id, objects.objects) == struct


@_relaxed(200)
@given(batches())
def test_same_keys_as_cyclone(case: tuple[Struct, pa.RecordBatch]) -> None:
    struct, batch = case
    if not struct.is_keyed:
        return
    codec = Codec(struct)
    for version, big_endian in _FORMS:
        if not supports_key(struct, version):
            continue
        keys = codec.encode_keys(batch, representation=XCDR[version], big_endian=big_endian)
        rows = batch.to_pylist()
        assert _bodies(keys) == [
            cyclone_bytes(struct, row, version=version, big_endian=big_endian, keys=True) for row in rows
        ]
        decoded = codec.decode_samples(keys, keys_only=True)
        assert decoded.malformed is None


@_relaxed(200)
@given(batches(idl_types.FEATURES | {idl_types.ANONYMOUS_ARRAYS}))
def test_all_kinds_round_trip(case: tuple[Struct, pa.RecordBatch]) -> None:
    struct, batch = case
    codec = Codec(struct)
    for version, big_endian in _FORMS:
        samples = codec.encode_batch(batch, representation=XCDR[version], big_endian=big_endian)
        decoded = codec.decode_samples(samples)
        assert decoded.malformed is None
        assert decoded.batch.equals(batch)
        # a sample's bytes do not depend on those around it
        last = batch.slice(batch.num_rows - 1)
        alone = codec.encode_batch(last, representation=XCDR[version], big_endian=big_endian)
        assert _bodies(alone) == _bodies(samples)[-1:]


# --- Cyclone's C library ------------------------------------------------------------------------------

_P = {kind: Primitive(kind) for kind in PrimitiveKind}
_INT32, _DOUBLE, _CHAR = _P[PrimitiveKind.INT32], _P[PrimitiveKind.FLOAT64], _P[PrimitiveKind.CHAR8]
_SMALL = Enum("lab::Small", (("LOW", 0), ("HIGH", 1)), 8)
_MIDDLE = Enum("lab::Middle", (("LITTLE", 0), ("MUCH", 1)), 16)
_FLAGS = Bitmask("lab::Flags", (("first", 0), ("ninth", 8)), 16)
_POINT = Struct("lab::Point", (Member("x", _DOUBLE, 0), Member("name", String(), 1)), Extensibility.MUTABLE)
_SHAPE = Union(
    "lab::Shape",
    _SMALL,
    (Case("side", _DOUBLE, 1, (0,)), Case("corners", Sequence(_INT32), 2, (1,))),
)
_NEWER = Union(
    "lab::Newer",
    _INT32,
    (Case("a", String(), 1, (3,)), Case("b", _SMALL, 2, (5, 7))),
    Extensibility.APPENDABLE,
)

#: Members, extensibility, versions and values. What Cyclone's Python does not do as its library does, or at all.
_LIBRARY: list[tuple[str, list[tuple[str, Type]], Extensibility, tuple[int, ...], list[dict[str, Any]]]] = [
    (
        "EnumsOfFewBits",
        [("a", _SMALL), ("b", _MIDDLE), ("c", COLOR), ("d", Sequence(_SMALL)), ("e", Array(_MIDDLE, (2,)))],
        Extensibility.FINAL,
        (1, 2),
        [{"a": "HIGH", "b": "MUCH", "c": "BLUE", "d": ["LOW", "HIGH", "LOW"], "e": ["LITTLE", "MUCH"]}],
    ),
    (
        "EnumsOfFewBitsMutable",
        [("a", _SMALL), ("b", _MIDDLE), ("c", _FLAGS), ("d", Sequence(_SMALL))],
        Extensibility.MUTABLE,
        (1, 2),
        [{"a": "HIGH", "b": "MUCH", "c": ["ninth"], "d": ["HIGH"]}],
    ),
    (
        "Chars",
        [("a", _CHAR), ("b", Sequence(_CHAR)), ("c", Array(_CHAR, (3,))), ("d", String())],
        Extensibility.APPENDABLE,
        (1, 2),
        [{"a": "é", "b": ["ÿ", "\0"], "c": ["a", "\x80", "z"], "d": "é€😀"}],
    ),
    (
        "LengthCodes",
        [
            ("bools", Sequence(_P[PrimitiveKind.BOOLEAN])),
            ("shorts", Sequence(_P[PrimitiveKind.INT16])),
            ("words", Sequence(_P[PrimitiveKind.UINT32])),
            ("doubles", Sequence(_DOUBLE)),
            ("flags", Sequence(_FLAGS)),
            ("grid", Array(_DOUBLE, (2, 2))),
            ("points", Sequence(_POINT)),
            ("s", _SHAPE),
        ],
        Extensibility.MUTABLE,
        (1, 2),
        [
            {
                "bools": [True],
                "shorts": [1, 2, 3],
                "words": [],
                "doubles": [1.5, 2.5],
                "flags": [["first"], []],
                "grid": [[1.0, 2.0], [3.0, 4.0]],
                "points": [{"x": 1.0, "name": "a"}, {"x": 2.0, "name": "bcdef"}],
                "s": {"discriminator": "HIGH", "side": None, "corners": [4, 5]},
            }
        ],
    ),
    (
        "Unions",
        [
            ("a", _P[PrimitiveKind.BYTE]),
            ("b", _SHAPE),
            ("c", Sequence(_SHAPE)),
            ("d", _P[PrimitiveKind.INT16]),
        ],
        Extensibility.FINAL,
        (1, 2),
        [
            {
                "a": 1,
                "b": {"discriminator": "LOW", "side": 1.5, "corners": None},
                "c": [
                    {"discriminator": "HIGH", "side": None, "corners": [7]},
                    {"discriminator": "LOW", "side": -1.0, "corners": None},
                ],
                "d": 2,
            }
        ],
    ),
    (
        "AppendableUnions",
        [("a", _NEWER), ("b", Sequence(_NEWER)), ("c", _P[PrimitiveKind.BYTE])],
        Extensibility.APPENDABLE,
        (2,),
        [
            {
                "a": {"discriminator": 3, "a": "xyz", "b": None},
                "b": [
                    {"discriminator": 7, "a": None, "b": "HIGH"},
                    {"discriminator": 1, "a": None, "b": None},
                    {"discriminator": 3, "a": "", "b": None},
                ],
                "c": 9,
            }
        ],
    ),
    (
        "WideStrings",
        [("a", WString()), ("b", Sequence(WString())), ("c", WString(5))],
        Extensibility.FINAL,
        (1, 2),
        [{"a": "aé😀", "b": ["", "xy"], "c": "12345"}],
    ),
    (
        "WideStringsMutable",
        [("a", WString()), ("b", _P[PrimitiveKind.CHAR16])],
        Extensibility.MUTABLE,
        (1, 2),
        [{"a": "aé", "b": "€"}],
    ),
]


def _library_struct(name: str, members: list[tuple[str, Type]], extensibility: Extensibility) -> Struct:
    return Struct(f"lab::{name}", tuple(Member(*m, i) for i, m in enumerate(members)), extensibility)


@pytest.mark.parametrize("case", _LIBRARY, ids=[case[0] for case in _LIBRARY])
def test_cyclones_library_writes_the_same(case: Any) -> None:
    name, members, extensibility, versions, rows = case
    struct = _library_struct(name, members, extensibility)
    wide = any(isinstance(t, WString) for t in traverse(struct))
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(struct))
    serializer = cyclone_library.Serializer(struct)
    for version in versions:
        # wstrings it writes in the byte order of the machine, whatever it is asked for
        for big_endian in (False,) if wide else (False, True):
            samples = Codec(struct).encode_batch(batch, representation=XCDR[version], big_endian=big_endian)
            for payload in _bodies(samples):
                body = payload[4:]
                assert serializer.rewritten(body, version=version, big_endian=big_endian).hex() == body.hex()


_INNER = Struct(
    "lab::Inner",
    (
        Member("b", _P[PrimitiveKind.INT16], 5, key=True),
        Member("a", _INT32, 2, key=True),
        Member("c", String(), 1),
    ),
)
_KEYED = Struct(
    "lab::Keyed",
    (
        Member("color", COLOR, 4, key=True),
        Member("inner", _INNER, 3, key=True),
        Member("text", String(), 1),
        Member("flags", _FLAGS, 2, key=True),
        Member("small", _SMALL, 0, key=True),
    ),
)
_KEYED_ROWS = [
    {
        "color": "BLUE",
        "inner": {"b": 258, "a": 7, "c": "no key"},
        "text": "nor this",
        "flags": ["ninth"],
        "small": "HIGH",
    }
]


@pytest.mark.parametrize("extensibility", list(Extensibility))
@pytest.mark.parametrize("version", [1, 2])
def test_cyclones_library_takes_the_same_keys(version: int, extensibility: Extensibility) -> None:
    struct = replace(_KEYED, name=f"lab::Keyed{extensibility.value}", extensibility=extensibility)
    batch = pa.RecordBatch.from_pylist(_KEYED_ROWS, schema=arrow_schema(struct))
    codec, serializer = Codec(struct), cyclone_library.Serializer(struct)
    body = _bodies(codec.encode_batch(batch, representation=XCDR[version]))[0][4:]
    key = _bodies(codec.encode_keys(batch, representation=XCDR[version]))[0][4:]
    assert key.hex(" ") == serializer.key(body, version=version).hex(" ")
    hashed = codec.key_hashes(batch, representation=XCDR[version])[0].tobytes()
    holder = serializer.hashed_key(body, version=version)
    assert hashed in (holder.ljust(16, b"\0"), hashlib.md5(holder).digest())


# --- what is broken, and IDL --------------------------------------------------------------------------


@_relaxed(40)
@given(idl_types.structs())
def test_printed_idl_reads_back(struct: Struct) -> None:
    assert parse_idl(print_idl(struct))[struct.name] == struct


@_relaxed(100)
@given(batches(idl_types.FEATURES), st.data())
def test_damaged_payloads_never_raise(case: tuple[Struct, pa.RecordBatch], data: st.DataObject) -> None:
    struct, batch = case
    codec = Codec(struct)
    version, big_endian = data.draw(st.sampled_from(_FORMS))
    written = codec.encode_batch(batch, representation=XCDR[version], big_endian=big_endian)
    samples = _gathered([bytes(written.payload(i)) for i in range(written.count)])
    raw, lengths = samples.data.copy(), samples.all_lengths()
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=6)):
        raw[at] = data.draw(st.sampled_from([0, 1, 127, 128, 255]))
    lengths = np.maximum(lengths - data.draw(st.integers(0, 8)), 0)
    decoded = codec.decode_samples(Samples.ragged(raw, samples.all_offsets(), lengths))
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
    whole = bytes(codec.encode_batch(batch, representation=representation).payload(0))
    # every cut payload at once, each followed by bytes that must not be read, between whole ones
    pieces = [whole] + [whole[:n] for n in range(len(whole))] + [whole]
    starts, data = [], bytearray()
    for piece in pieces:
        starts.append(len(data))
        data += piece + b"\xff" * (8 - len(piece) % 4)
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    raw = np.frombuffer(bytes(data), np.uint8)
    decoded = codec.decode_samples(Samples.ragged(raw, np.array(starts, np.int64), lengths))
    assert decoded.malformed is not None
    assert decoded.malformed.tolist() == [False] + [True] * len(whole) + [False]
    assert decoded.batch.to_pylist() == [row, row]
