"""What reading makes of bytes: kinds of types by hand, types wanted otherwise, evolution, and what is wrong."""

from __future__ import annotations

import struct as packing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.transport.errors import UsageError
from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.types.cdr.codec import Codec, Decoded
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.mapping import Mapping
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.wire.samples import Samples

LE1, BE1, PL1, LE2, BE2, D2, PL2 = (
    bytes.fromhex(text)
    for text in ("00010000", "00000000", "00030000", "00070000", "00060000", "00090000", "000b0000")
)
TIMES = """
module builtin_interfaces { module msg {
  @final struct Time { long sec; unsigned long nanosec; };
  @final struct Duration { long sec; unsigned long nanosec; };
}; };
"""
LONGS = Mapping(uint64="long", enums="int", bitmasks="long", times="timestamp")


def codec(idl: str, schema: pa.Schema | None = None, mapping: Mapping | None = None) -> Codec:
    found = parse_idl(idl)["S"]
    assert isinstance(found, Struct)
    return Codec(found, arrow_schema=schema, mapping=mapping or Mapping())


def samples(*payloads: bytes) -> Samples:
    padded = [payload + bytes(-len(payload) % 4) for payload in payloads]
    offsets = np.cumsum([0, *map(len, padded)])[:-1].astype(np.int64)
    lengths = np.array([len(payload) for payload in payloads], np.int64)
    return Samples.ragged(np.frombuffer(b"".join(padded), np.uint8), offsets, lengths)


def rows(found: Decoded) -> list[dict[str, Any]]:
    found.batch.validate(full=True)
    assert found.malformed is None
    return list(found.batch.to_pylist())


def reasons(found: Decoded, count: int) -> list[str]:
    return [found.reason(i) for i in range(count)]


def u4(*numbers: int) -> bytes:
    return packing.pack(f"<{len(numbers)}I", *numbers)


# --- kinds ------------------------------------------------------------------------------------------

COLOR = "enum Color { @value(1) RED, @value(5) BLUE }; "
UNIONS = COLOR + (
    "%s union U switch (Color) { case RED: long r; case BLUE: string b; }; @final struct S { U u; octet t; };"
)
OPEN = "union U switch (long) { case 1: case 2: octet r; default: string b; }; @final struct S { U u; octet t; };"
NONE = "%s union U switch (long) { case 1: octet r; }; @final struct S { U u; octet t; };"
RED = {"u": {"discriminator": "RED", "r": 9, "b": None}, "t": 7}

BRANCHLESS = {"u": {"discriminator": "RED", "r": None, "b": None}, "t": 7}


@pytest.mark.parametrize(
    ("idl", "payload", "value"),
    [
        # a wstring counts bytes and has no terminator
        ("struct S { wstring s; octet t; };", LE1 + u4(6) + "hé€".encode("utf-16-le") + b"\x07", ("hé€", 7)),
        ("struct S { wstring s; octet t; };", BE2 + b"\0\0\0\x04" + "😀".encode("utf-16-be") + b"\x07", ("😀", 7)),
        ("struct S { wstring s; octet t; };", LE1 + u4(0) + b"\x07", ("", 7)),
        ("struct S { wchar s; octet t; };", BE1 + "€".encode("utf-16-be") + b"\x07", ("€", 7)),
        ("struct S { string s; octet t; };", LE1 + u4(4) + b"a\0b\0\x07", ("a\0b", 7)),
        # binary128: 1.5, aligned to 8 and to 4
        ("struct S { octet s; long double t; };", LE1 + bytes([7, *[0] * 7, *[0] * 13, 0x80, 0xFF, 0x3F]), (7, 1.5)),
        ("struct S { octet s; long double t; };", BE2 + bytes([7, 0, 0, 0, 0x3F, 0xFF, 0x80, *[0] * 13]), (7, 1.5)),
        ("bitset B { bitfield<3> a; bitfield<2>; bitfield<4, short> b; bitfield<1> c; }; struct S { B s; octet t; };",
         LE1 + packing.pack("<HB", 0b1_1110_10_101, 7), ({"a": 5, "b": -2, "c": True}, 7)),
        ("@bit_bound(12) bitmask M { @position(0) a, @position(11) l }; struct S { M s; octet t; };",
         LE1 + packing.pack("<HB", 0x8801, 7), (["a", "l"], 7)),
        ("struct S { map<short, octet> s; octet t; };",
         LE2 + u4(2) + bytes([1, 0, 5, 0, 2, 0, 6, 7]), ([(1, 5), (2, 6)], 7)),
        # keys or values that are not primitive have a DHEADER before the map in XCDR2
        ("struct S { map<octet, string> s; octet t; };",
         LE2 + u4(14, 1) + b"\x01\0\0\0" + u4(2) + b"a\0\x07", ([(1, "a")], 7)),
        ("struct S { map<octet, string> s; octet t; };",
         LE1 + u4(1) + b"\x01\0\0\0" + u4(2) + b"a\0\x07", ([(1, "a")], 7)),
        ("struct S { map<octet, string> s; octet t; };", LE2 + u4(4, 0) + b"\x07", ([], 7)),
    ],
)  # fmt: skip
def test_kinds(idl: str, payload: bytes, value: tuple[Any, Any]) -> None:
    c = codec(idl.replace("struct S", "@final struct S"))
    assert rows(c.decode_samples(samples(payload))) == [{"s": value[0], "t": value[1]}]


@pytest.mark.parametrize(
    ("idl", "payload", "value"),
    [
        (UNIONS % "@final", LE1 + u4(1, 9) + b"\x07", RED),
        (UNIONS % "@appendable", LE1 + u4(1, 9) + b"\x07", RED),
        (UNIONS % "@appendable", LE2 + u4(8, 1, 9) + b"\x07", RED),
        # the branch of a newer type is behind the DHEADER's end: it is skipped
        (UNIONS % "@appendable", LE2 + u4(12, 1, 9, 0) + b"\x07", RED),
        (UNIONS % "@mutable", LE2 + u4(16, 0xA000_0000, 1, 0x2000_0001, 9) + b"\x07", RED),
        (UNIONS % "@mutable", LE2 + u4(8, 0xA000_0000, 1) + b"\x07", BRANCHLESS),
        (UNIONS % "@mutable", LE1 + u4(0x0004_4000, 1, 0x0004_0001, 9, 0x0000_7F02) + b"\x07", RED),
        ("@final " + OPEN, LE1 + u4(2) + b"\x05\x07", {"u": {"discriminator": 2, "r": 5, "b": None}, "t": 7}),
        ("@final " + OPEN, LE1 + u4(3, 2) + b"x\0\x07", {"u": {"discriminator": 3, "r": None, "b": "x"}, "t": 7}),
        # no branch, and no default: only the discriminator
        (NONE % "@final", LE1 + u4(3) + b"\x07", {"u": {"discriminator": 3, "r": None}, "t": 7}),
        (NONE % "@appendable", LE2 + u4(4, 3) + b"\x07", {"u": {"discriminator": 3, "r": None}, "t": 7}),
        (NONE % "@appendable", LE2 + u4(4, 1) + b"\x07", {"u": {"discriminator": 1, "r": None}, "t": 7}),
    ],
)  # fmt: skip
def test_unions(idl: str, payload: bytes, value: dict[str, Any]) -> None:
    assert rows(codec(idl).decode_samples(samples(payload))) == [value]


def test_unions_of_many_samples() -> None:
    """Cursors are grouped by branch, and go on where each ends."""
    red, blue = LE1 + u4(1, 9) + b"\x07", LE1 + u4(5, 3) + b"hi\0\x08"
    found = rows(codec(UNIONS % "@final").decode_samples(samples(*[red, blue, blue] * 100)))
    assert found == [RED, *[{"u": {"discriminator": "BLUE", "r": None, "b": "hi"}, "t": 8}] * 2] * 100


@pytest.mark.parametrize("exponent", [0, -1, 1000, 1023, -1022, -1023, -1050, -1074, -1075, -1076])
@pytest.mark.parametrize(
    "fraction", [0, 1 << 59, 3 << 59, (1 << 59) + 1, (1 << 59) - 1, 1 << 111, (1 << 112) - 1, 5 << 80]
)
def test_binary128_is_rounded_to_the_nearest(exponent: int, fraction: int) -> None:
    """Ties go to the even one; below the least normal number too."""
    exact = Fraction((1 << 112) + fraction, 1 << 112) * Fraction(2) ** exponent
    try:
        expected = float(exact)
    except OverflowError:
        expected = float("inf")
    bits = exponent + 16383 << 112 | fraction
    c = codec("@final struct S { long double x; };")
    found = rows(
        c.decode_samples(samples(BE1 + bits.to_bytes(16, "big"), BE1 + (bits | 1 << 127).to_bytes(16, "big")))
    )
    assert [row["x"] for row in found] == [expected, -expected]


def test_binary128_that_is_no_number() -> None:
    c = codec("@final struct S { long double x; };")
    special = [0x7FFF << 112, 0xFFFF << 112, 0, 1, 1 << 112, 0x7FFF << 112 | 1]
    found = rows(c.decode_samples(samples(*(BE1 + bits.to_bytes(16, "big") for bits in special))))
    assert str([row["x"] for row in found]) == "[inf, -inf, 0.0, 0.0, 0.0, nan]"


# --- what is wanted ---------------------------------------------------------------------------------


def test_choices_of_the_mapping() -> None:
    c = codec(
        TIMES
        + COLOR
        + "@bit_bound(64) bitmask M { @position(1) b }; @final struct S { Color c; M m; uint64 u;"
        " builtin_interfaces::msg::Time t; sequence<builtin_interfaces::msg::Duration> d; };",
        mapping=LONGS,
    )
    nanos = [500_001_999, 999_999_999, 1_500_000_000]
    payloads = [
        LE1 + u4(5, 0) + packing.pack("<QQ", (1 << 63) + 3, 7) + packing.pack("<iI", -2, n) + u4(1) + u4(1, n)
        for n in nanos
    ]
    found = rows(c.decode_samples(samples(*payloads)))
    assert c.arrow_schema.types == [
        *(pa.int32(), pa.int64(), pa.int64(), pa.timestamp("us", tz="UTC"), pa.list_(pa.duration("us")))
    ]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    for row, n in zip(found, nanos, strict=True):
        # bits without a name are kept
        assert (row["c"], row["m"], row["u"]) == (5, 3 - (1 << 63), 7)
        assert row["t"] == epoch + timedelta(seconds=-2, microseconds=n // 1000)
        assert row["d"] == [timedelta(seconds=1, microseconds=n // 1000)]
    large = samples(LE1 + u4(5, 0) + packing.pack("<QQ", 0, 1 << 63) + u4(0, 0, 0))
    assert reasons(c.decode_samples(large), 1) == ["uint64 beyond LONG"]


def test_times_that_are_missing() -> None:
    idl = TIMES.replace("@final", "@appendable") + (
        "@appendable struct S { @optional builtin_interfaces::msg::Time a; builtin_interfaces::msg::Time b; };"
    )
    # a is absent; b lacks its nanoseconds; the second sample ends before b
    payloads = [D2 + u4(12) + bytes(4) + u4(4, 3), D2 + u4(1) + b"\0"]
    assert rows(codec(idl, mapping=LONGS).decode_samples(samples(*payloads))) == [{"a": None, "b": None}] * 2


def test_wider_types_at_any_depth() -> None:
    c = codec(
        COLOR + "@final struct P { float f; short n; string s; Color c; sequence<octet> o; };"
        "@final struct S { sequence<P> p; map<string, P> m; };",
        pa.schema(
            [
                ("m", pa.map_(pa.large_string(), pa.struct([("c", pa.int64()), ("o", pa.large_binary())]))),
                ("p", pa.list_(pa.field("element", pa.struct([("n", pa.int64()), ("f", pa.float64())])))),
            ]
        ),
    )
    p = packing.pack("<fh2x", 0.5, -3) + u4(2) + b"x\0\0\0" + u4(5, 2) + b"ab"
    payload = LE1 + u4(1) + p + b"\0\0" + u4(1, 2) + b"k\0\0\0" + p
    found = rows(c.decode_samples(samples(payload)))
    assert found == [{"m": [("k", {"c": 5, "o": b"ab"})], "p": [{"n": -3, "f": 0.5}]}]


@pytest.mark.parametrize(
    ("member", "wanted", "message"),
    [
        ("P x", pa.struct([("a", pa.int16()), ("z", pa.int16())]), "P has no member 'z'; it has a"),
        ("P x", pa.struct([("a", pa.int8())]), "member 'x.a' of S is int16, not int8"),
        ("P x", pa.struct([]), "a struct without fields"),
        ("P x", pa.struct([("a", pa.int16()), ("a", pa.int32())]), "requested twice"),
        ("sequence<octet> x", pa.list_(pa.int16()), "is binary, not list"),
        ("M x", pa.int8(), "is list"),
        ("uint64 x", pa.timestamp("us"), "is decimal"),
        ("int64 x", pa.timestamp("ms"), "is int64, not timestamp"),
        ("P x", pa.timestamp("us"), "is struct"),
        ("map<long, P> x", pa.map_(pa.int16(), pa.struct([("a", pa.int16())])), "'x.key' of S is int32"),
        ("long x[2][3]", pa.list_(pa.int32()), "is list"),
    ],
)
def test_columns_that_a_member_cannot_fill_are_refused(
    member: str, wanted: pa.DataType, message: str
) -> None:
    idl = f"@bit_bound(8) bitmask M {{ f }}; struct P {{ short a; }}; struct S {{ {member}; }};"
    with pytest.raises(UsageError, match=message):
        codec(idl, pa.schema([("x", wanted)]))


def test_nothing_is_wanted() -> None:
    """Rows are counted, and checked."""
    c = codec("@final struct S { long a; string s; };", pa.schema([]))
    found = c.decode_samples(samples(LE1 + u4(1, 2) + b"a\0", LE1 + u4(1, 9) + b"a\0"))
    assert reasons(found, 2) == ["", "length beyond the sample"] and found.batch.num_columns == 0


# --- evolution --------------------------------------------------------------------------------------


def test_older_and_newer_writers_in_xcdr1() -> None:
    """Without a DHEADER only the end of the sample tells; padding that the header announces is not of it."""
    c = codec("@appendable struct S { octet a; octet b; long c; };")
    older = [b"\x01", b"\x01\x02", b"\x01\x02\0\0" + u4(3), b"\x01\x02\0\0" + u4(3, 99)]
    payloads = [LE1[:3] + bytes([-len(body) % 4]) + body + bytes(-len(body) % 4) for body in older]
    assert rows(c.decode_samples(samples(*payloads))) == [
        {"a": 1, "b": None, "c": None},
        {"a": 1, "b": 2, "c": None},
        {"a": 1, "b": 2, "c": 3},
        {"a": 1, "b": 2, "c": 3},
    ]
    cut = c.decode_samples(samples(LE1 + b"\x01\x02\0\0\x03\0"))
    assert reasons(cut, 1) == ["length beyond the sample"]
    final = codec("@final struct S { octet a; octet b; long c; };").decode_samples(samples(payloads[0]))
    assert reasons(final, 1) == ["length beyond the sample"]


def test_older_writers_among_newer_ones() -> None:
    c = codec("@appendable struct S { @key octet a; string s; @optional long c; };")
    whole, short = D2 + u4(16) + b"\x01\0\0\0" + u4(2) + b"x\0\x01\0" + u4(5), D2 + u4(1) + b"\x02"
    found = rows(c.decode_samples(samples(*[whole, short] * 70)))
    assert found == [{"a": 1, "s": "x", "c": 5}, {"a": 2, "s": None, "c": None}] * 70
    assert reasons(c.decode_samples(samples(D2 + u4(0))), 1) == ["member 'a' is missing"]


def test_mutable_within_final() -> None:
    idl = "@mutable struct M { @id(7) @key octet a; @id(9) string s; }; @final struct S { octet x; M m; octet y; };"
    value = {"x": 1, "m": {"a": 3, "s": "hi"}, "y": 2}
    xcdr2 = LE2 + b"\x01\0\0\0" + u4(20, 0x0000_0007) + b"\x03\0\0\0" + u4(0x5000_0009, 3) + b"hi\0\0"[:4]
    xcdr2 = xcdr2[:-4] + b"hi\0" + b"\x02"
    assert rows(codec(idl).decode_samples(samples(xcdr2.replace(u4(20), u4(19))))) == [value]
    xcdr1 = LE1 + b"\x01\0\0\0" + u4(0x0007_0009) + u4(3) + b"hi\0\0" + u4(0x0001_0007) + b"\x03\0\0\0"
    assert rows(codec(idl).decode_samples(samples(xcdr1 + u4(0x0000_3F02) + b"\x02"))) == [value]
    unknown = xcdr1 + u4(0x0004_4008, 0, 0x0000_3F02) + b"\x02"
    assert reasons(codec(idl).decode_samples(samples(unknown)), 1) == ["must-understand member unknown"]
    keyless = LE1 + b"\x01\0\0\0" + u4(0x0000_3F02) + b"\x02"
    assert reasons(codec(idl).decode_samples(samples(keyless)), 1) == ["member 'a' is missing"]
    endless = codec(idl).decode_samples(samples(xcdr1))
    assert reasons(endless, 1) == ["length beyond the sample"]


# --- reasons ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("idl", "payload", "reason"),
    [
        ("struct S { long a; };", b"\0\1", "shorter than an encapsulation header"),
        ("struct S { long a; };", b"\0\x04\0\0" + u4(1), "unknown encapsulation 0x0004"),
        ("struct S { long a; };", LE1 + b"\1", "length beyond the sample"),
        ("struct S { string s; };", LE1 + u4(2) + b"ab", "string not terminated"),
        ("struct S { string s; };", LE1 + u4(2) + b"\xff\0", "not UTF-8"),
        ("struct S { wstring s; };", LE1 + u4(3) + b"abcd", "wstring of an odd number of bytes"),
        ("struct S { wstring s; };", LE1 + u4(2) + b"\0\xd8", "not UTF-16"),
        ("struct S { wstring s; };", LE1 + u4(4) + b"\0\xdc\0\xd8", "not UTF-16"),
        ("struct S { wchar s; };", LE1 + b"\0\xd8", "a wchar is half a surrogate pair"),
        ("struct S { sequence<long> s; };", LE1 + u4(2, 0), "more elements than the sample has room for"),
        ("struct S { sequence<string> s; };", LE1 + u4(1 << 31, 0), "more elements than the sample has room for"),
        ("struct S { Color c; };", LE1 + u4(2), "no literal of enum Color"),
        ("struct S { sequence<Color> c; };", LE1 + u4(2, 1, 2), "no literal of enum Color"),
        ("struct S { octet o; Color c[2][2]; };", LE1 + u4(7, 1, 5, 5, 4), "no literal of enum Color"),
        ("union U switch (Color) { case RED: octet r; default: octet o; }; @final struct S { U u; };",
         LE1 + u4(2) + b"\1", "no literal of enum Color"),
    ],
)  # fmt: skip
def test_reasons(idl: str, payload: bytes, reason: str) -> None:
    """Of one sample, and of many; the good ones beside them are not touched."""
    c = codec(COLOR + (idl if idl.startswith("union") else f"@final {idl}"))
    assert reasons(c.decode_samples(samples(payload)), 1) == [reason]
    assert reasons(c.decode_samples(samples(*[payload] * 100)), 100) == [reason] * 100
    found = c.decode_samples(samples(payload, b"\0\x21\0\0", payload))
    assert reasons(found, 3) == [reason, "unknown encapsulation 0x0021", reason]
    assert found.malformed is not None and found.malformed.all()


def test_reasons_of_some() -> None:
    c = codec("@final struct S { string s; string t; };")
    good = LE1 + u4(2) + b"a\0\0\0" + u4(1) + b"\0"
    bad = [
        LE1 + u4(9) + b"a\0",
        LE1 + u4(2) + b"\xff\0\0\0" + u4(1) + b"\0",
        LE1 + u4(2) + b"a\0\0\0" + u4(2) + b"bc",
    ]
    found = c.decode_samples(samples(good, bad[0], good, bad[1], bad[2]))
    assert reasons(found, 5) == ["", "length beyond the sample", "", "not UTF-8", "string not terminated"]
    assert found.batch.to_pylist() == [{"s": "a", "t": ""}] * 2
    assert c.decode_samples(samples(good)).reason(0) == ""


@pytest.mark.parametrize(
    ("idl", "value"),
    [
        ("@final struct S { @optional string v; octet o; };", {"v": "BAD!"}),
        ("@final struct S { sequence<string> v; octet o; };", {"v": ["good", "BAD!", ""]}),
        ("@final struct S { string v[2]; octet o; };", {"v": ["good", "BAD!"]}),
        ("@final struct S { map<long, string> v; octet o; };", {"v": [(1, "good"), (2, "BAD!")]}),
        ("@mutable struct S { @optional string v; octet o; };", {"v": "BAD!"}),
        (
            "union U switch (octet) { case 1: string s; case 2: octet t; }; @final struct S { U v; octet o; };",
            {"v": {"discriminator": 1, "s": "BAD!", "t": None}},
        ),
        (
            "@final struct E { string s; @optional string t; }; @final struct S { sequence<E> v; octet o; };",
            {"v": [{"s": "good", "t": None}, {"s": "good", "t": "BAD!"}]},
        ),
    ],
    ids=["optional", "sequence", "array", "map", "mutable", "union", "optional in elements"],
)
@pytest.mark.parametrize("representation", [DataRepresentation.XCDR1, DataRepresentation.XCDR2])
def test_invalid_nested_values_are_malformed(
    idl: str, value: dict[str, Any], representation: DataRepresentation
) -> None:
    """Found in the values that only some samples have, or that are elements; the samples beside it are read."""
    c = codec(idl)
    other = {
        "v": None
        if "@optional string v" in idl
        else {"discriminator": 2, "s": None, "t": 1}
        if "union" in idl
        else value["v"]
    }
    batch = pa.RecordBatch.from_pylist([other | {"o": 7}, value | {"o": 8}], schema=c.arrow_schema)
    written = c.encode_batch(batch, representation=representation)
    good, bad = (bytes(written.payload(i)) for i in range(2))
    good, bad = good.replace(b"BAD!", b"text"), bad.replace(b"BAD!", b"\xff\xff\xff\xff")
    found = c.decode_samples(samples(good, bad, good))
    assert reasons(found, 3) == ["", "not UTF-8", ""]
    assert found.batch["o"].to_pylist() == [7, 7]


def test_no_key_in_the_type() -> None:
    found = codec("@final struct S { string s; };").decode_samples(samples(LE1), keys_only=True)
    assert reasons(found, 1) == ["the type has no key"]


def test_unknown_encapsulations_are_distinguished_up_to_a_bound() -> None:
    payloads = [packing.pack(">HH", 0x100 + i, 0) for i in range(100)]
    found = reasons(codec("@final struct S { long a; };").decode_samples(samples(*payloads)), 100)
    assert found[0] == "unknown encapsulation 0x0100" and found[99] == "unknown encapsulation"
    assert len(set(found)) == 17


# --- keys -------------------------------------------------------------------------------------------


def test_union_in_a_key() -> None:
    """Of a union with a @key discriminator only that is in the key; of another, all."""
    idl = "@final union U switch (@key long) { case 1: octet a; }; @final union V switch (long) { case 1: octet a; };"
    c = codec(idl + "@final struct S { @key U u; @key V v; octet o; };")
    rows_in = [{"u": {"discriminator": 1, "a": 5}, "v": {"discriminator": 1, "a": 6}, "o": 7}]
    batch = pa.RecordBatch.from_pylist(rows_in, schema=c.arrow_schema)
    keys = c.encode_keys(batch, representation=DataRepresentation.XCDR2)
    assert bytes(keys.payload(0))[4:13] == u4(1, 1) + b"\x06"
    assert rows(c.decode_samples(keys, keys_only=True)) == [
        {"u": {"discriminator": 1, "a": None}, "v": {"discriminator": 1, "a": 6}, "o": None}
    ]
    found = c.decode_key_hashes(c.key_hashes(batch))
    assert found is not None and rows(found)[0]["v"] == {"discriminator": 1, "a": 6}


def test_keys_with_fewer_columns() -> None:
    idl = "@final struct P { @key long a; long b; }; @final struct S { @key P p; @key string s; };"
    c = codec(idl, pa.schema([("p", pa.struct([("b", pa.int32())])), ("s", pa.string())]))
    key = LE1 + u4(4, 2) + b"x\0"
    assert rows(c.decode_samples(samples(key), keys_only=True)) == [{"p": {"b": None}, "s": "x"}]


def test_uint64_defaults_to_decimal() -> None:
    found = rows(codec("@final struct S { uint64 u; };").decode_samples(samples(LE1 + b"\xff" * 8)))
    assert found == [{"u": Decimal((1 << 64) - 1)}]
