"""Exact bytes, written out by hand from the rules of CDR."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.wire.samples import Samples

XCDR1, XCDR2 = DataRepresentation.XCDR1, DataRepresentation.XCDR2

#: (IDL of struct S, value, representation, big-endian, payload in hex)
VECTORS: list[tuple[str, dict[str, Any], DataRepresentation, bool, str]] = [
    (
        "@final struct S { octet a; double b; };",
        {"a": 7, "b": 1.5},
        XCDR1,
        False,
        "0001 0000  07000000 00000000 00000000 0000f83f",
    ),
    (
        "@final struct S { octet a; double b; };",
        {"a": 7, "b": 1.5},
        XCDR2,
        True,
        "0006 0000  07000000 3ff80000 00000000",
    ),
    (
        "@final struct S { string s; short n; };",
        {"s": "hé", "n": -2},
        XCDR1,
        False,
        "0001 0002  04000000 68c3a900 feff0000",
    ),
    (
        "@final struct S { string s; };",
        {"s": ""},
        XCDR1,
        True,
        "0000 0003  00000001 00000000",
    ),
    (
        "@final struct S { sequence<double> v; octet t; };",
        {"v": [], "t": 9},
        XCDR1,
        False,
        "0001 0003  00000000 09000000",
    ),
    (
        "@final struct S { sequence<double> v; octet t; };",
        {"v": [2.0], "t": 9},
        XCDR1,
        False,
        "0001 0003  01000000 00000000 00000000 00000040 09000000",
    ),
    (
        "@final struct S { sequence<string> v; };",
        {"v": ["a", "bc"]},
        XCDR2,
        False,
        "0007 0001  13000000 02000000 02000000 61000000 03000000 62630000",
    ),
    (
        "enum E { A, B, C }; @final struct S { E e; sequence<E> v; E w[2]; };",
        {"e": "C", "v": ["B"], "w": ["A", "C"]},
        XCDR2,
        False,
        "0007 0000  02000000  08000000 01000000 01000000  08000000 00000000 02000000",
    ),
    (
        "@appendable struct P { short x; }; @appendable struct S { sequence<P> v; P p; };",
        {"v": [{"x": 1}, {"x": 2}], "p": {"x": 3}},
        XCDR2,
        False,
        "0009 0002  1e000000  12000000 02000000  02000000 01000000 02000000 02000000  02000000 03000000",
    ),
    (
        "@final struct S { @optional long a; @optional octet b; };",
        {"a": None, "b": 5},
        XCDR2,
        False,
        "0007 0001  00010500",
    ),
    (
        "@final struct S { unsigned long long u; boolean b; char c; };",
        {"u": 2**64 - 1, "b": True, "c": "é"},
        XCDR1,
        True,
        "0000 0002  ffffffff ffffffff 01e90000",
    ),
    (
        "@bit_bound(8) enum E { A, @value(5) B }; @final struct S { E e; octet m[2][2]; };",
        {"e": "B", "m": [b"\1\2", b"\3\4"]},
        XCDR1,
        False,
        "0001 0003  05010203 04000000",
    ),
]


@pytest.mark.parametrize("case", VECTORS, ids=[f"{v[4][:4]}-{v[0][-40:]}" for v in VECTORS])
def test_vector(case: tuple[str, dict[str, Any], DataRepresentation, bool, str]) -> None:
    idl, value, representation, big_endian, text = case
    struct = parse_idl(idl)["S"]
    assert isinstance(struct, Struct)
    codec = Codec(struct)
    batch = pa.RecordBatch.from_pylist([value, value], schema=codec.arrow_schema)
    samples = codec.encode_batch(batch, representation=representation, big_endian=big_endian)
    payload = bytes.fromhex(text)
    assert bytes(samples.payload(0)).hex(" ", 4) == payload.hex(" ", 4)
    assert bytes(samples.payload(1)) == payload
    assert codec.decode_samples(samples).batch.to_pylist() == [value, value]


def decode_one(idl: str, text: str, **options: bool) -> tuple[list[dict[str, Any]], list[bool] | None]:
    struct = parse_idl(idl)["S"]
    assert isinstance(struct, Struct)
    payload = bytes.fromhex(text)
    samples = Samples.uniform(np.frombuffer(payload, np.uint8), 1, len(payload))
    decoded = Codec(struct).decode_samples(samples, **options)
    return decoded.batch.to_pylist(), None if decoded.malformed is None else decoded.malformed.tolist()


def test_lenient_reading() -> None:
    # a string of length 0, without even a NUL; any nonzero boolean
    assert decode_one("@final struct S { string s; };", "00010000 00000000") == ([{"s": ""}], None)
    assert decode_one("@final struct S { boolean b; };", "00010000 80") == ([{"b": True}], None)


@pytest.mark.parametrize(
    ("idl", "text"),
    [
        ("@final struct S { string s; };", "00010000 02000000 6161"),  # no NUL
        ("@final struct S { string s; };", "00010000 03000000 c3ff00"),  # not UTF-8
        ("@final struct S { string s; };", "00010000 ffffffff 610000"),
        ("@final struct S { sequence<long> v; };", "00010000 ffffff7f 00000000"),
        ("@final struct S { sequence<string> v; };", "00010000 ffffffff 00000000"),
        ("enum E { A, B }; @final struct S { E e; };", "00010000 02000000"),
        ("enum E { A, B }; @final struct S { sequence<E> e; };", "00010000 02000000 00000000 ffffffff"),
        ("@final struct S { long x; };", "00050000 00000000"),  # no such encapsulation
        ("@appendable struct S { long x; };", "00090000 08000000 00000000"),  # DHEADER past the end
        ("@mutable struct S { @key long x; };", "000b0000 00000000"),  # the key is missing
        ("@mutable struct S { long x; };", "000b0000 08000000 070000a0 00000000"),  # must understand
    ],
)
def test_malformed(idl: str, text: str) -> None:
    assert decode_one(idl, text) == ([], [True])


def test_types_evolve() -> None:
    old = "@appendable struct S { long x; };"
    new = "@appendable struct S { long x; string s; sequence<double> v; };"
    # an older writer's sample: what it lacks is null; a newer one's: what we lack is skipped
    assert decode_one(new, "00090000 04000000 05000000") == ([{"x": 5, "s": None, "v": None}], None)
    assert decode_one(old, "00090000 0a000000 05000000 02000000 6100") == ([{"x": 5}], None)
    mutable = "@mutable struct S { @id(7) long x; @id(9) short y; };"
    # member 8 is unknown, member 9 absent
    text = "000b0000 10000000 08000000 ff000000 07000020 05000000"
    assert decode_one(mutable, text) == ([{"x": 5, "y": None}], None)


def test_evolved_and_plain_samples_in_one_call() -> None:
    struct = parse_idl("@appendable struct S { long x; double y; string s; };")["S"]
    assert isinstance(struct, Struct)
    whole = "00090000 12000000 05000000 00000000 0000f03f 02000000 6100 0000"
    payloads = [bytes.fromhex(text) for text in (whole, "00090000 04000000 06000000", whole)]
    offsets = np.array([0, 28, 40], np.int64)
    lengths = np.array([len(payload) for payload in payloads], np.int64)
    samples = Samples.ragged(np.frombuffer(b"".join(payloads), np.uint8), offsets, lengths)
    decoded = Codec(struct).decode_samples(samples)
    assert decoded.malformed is None
    assert decoded.batch.column("x").to_pylist() == [5, 6, 5]
    assert decoded.batch.column("y").to_pylist() == [1.0, None, 1.0]
    assert decoded.batch.column("s").to_pylist() == ["a", None, "a"]
