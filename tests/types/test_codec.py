"""The codec as its callers see it: schemas, errors with their place, runs of samples of all shapes."""

from __future__ import annotations

import hashlib
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.transport.errors import EncodeError, TypeDefinitionError, UsageError
from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.types.arrow import arrow_schema, struct_from_arrow
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.wire.samples import Samples

XCDR1, XCDR2 = DataRepresentation.XCDR1, DataRepresentation.XCDR2


def codec(idl: str, schema: pa.Schema | None = None) -> Codec:
    struct = parse_idl(idl)["S"]
    assert isinstance(struct, Struct)
    return Codec(struct, arrow_schema=schema)


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_arrow_types() -> None:
    c = codec(
        """
        enum E { A };
        struct P { double x; };
        struct S {
          boolean b; octet o; int8 i8; uint8 u8; int16 i16; uint16 u16; int32 i32; uint32 u32; int64 i64;
          uint64 u64; float f; double d; char c; string s; E e; P p; sequence<octet> so; octet ao[4];
          octet aao[2][4]; sequence<P> sp; double m[2][3]; sequence<uint8> su;
        };
        """
    )
    p = pa.struct([("x", pa.float64())])
    assert c.arrow_schema.types == [
        *(pa.bool_(), pa.int16(), pa.int8(), pa.int16(), pa.int16(), pa.int32(), pa.int32(), pa.int64()),
        *(
            pa.int64(),
            pa.decimal128(20, 0),
            pa.float32(),
            pa.float64(),
            pa.string(),
            pa.string(),
            pa.string(),
        ),
        *(p, pa.binary(), pa.binary(), pa.list_(pa.binary()), pa.list_(p)),
        *(pa.list_(pa.list_(pa.float64())), pa.binary()),
    ]


def test_type_from_a_schema() -> None:
    schema = pa.schema(
        [
            *(("b", pa.bool_()), ("i8", pa.int8()), ("i16", pa.int16()), ("i32", pa.int32())),
            *(("i64", pa.int64()), ("f", pa.float32()), ("d", pa.float64()), ("s", pa.string())),
            *(("x", pa.binary()), ("l", pa.list_(pa.list_(pa.int32()))), ("t", pa.timestamp("us", "UTC"))),
            *(("day", pa.date32()), ("u", pa.decimal128(20, 0)), ("p", pa.struct([("q", pa.string())]))),
        ]
    )
    struct = struct_from_arrow(schema, "app::Row")
    assert struct.name == "app::Row"
    row = {
        "b": True,
        "i8": -8,
        "i16": -16,
        "i32": -32,
        "i64": -64,
        "f": 0.5,
        "d": 0.25,
        "s": "é",
        "x": b"\0\1",
        "l": [[1, 2], []],
        "t": datetime(2024, 1, 2, tzinfo=UTC),
        "day": date(2024, 1, 2),
        "u": Decimal(2**64 - 1),
        "p": {"q": "r"},
    }
    rows = pa.RecordBatch.from_pylist([row, row], schema=schema)
    c = Codec(struct, arrow_schema=schema)
    for representation in (XCDR1, XCDR2):
        assert c.decode_samples(c.encode_batch(rows, representation=representation)).batch.equals(rows)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema([("a", pa.decimal128(10, 2))]), "cast it to string or double"),
        (
            pa.schema([("items", pa.list_(pa.struct([("p", pa.decimal128(10, 2))])))]),
            r"column 'items\[\]\.p': decimal128\(10, 2\) has no DDS type.*; decimal\(20, 0\) is uint64",
        ),
        (pa.schema([("m", pa.map_(pa.string(), pa.time64("us")))]), r"column 'm\[\]\.value': "),
        (pa.schema([("a", pa.time64("us"))]), "has no DDS type"),
        (pa.schema([("a b", pa.int32())]), "no IDL identifier"),
        (pa.schema([("a", pa.struct([]))]), "at least one column"),
        (pa.schema([("a", pa.int32()), ("a", pa.int32())]), "the same name"),
    ],
)
def test_schemas_without_a_type(schema: pa.Schema, message: str) -> None:
    with pytest.raises(TypeDefinitionError, match=message):
        struct_from_arrow(schema, "T")


POINTS = "@final struct P { double x; short n; }; @final struct S { long id; string s; P p; sequence<P> v; };"


def points(n: int) -> list[dict[str, Any]]:
    return [
        {
            "id": i,
            "s": "x" * (i % 9),
            "p": {"x": i / 2, "n": i},
            "v": [{"x": k, "n": i} for k in range(i % 4)],
        }
        for i in range(n)
    ]


def test_columns_are_found_by_name_and_pruned() -> None:
    whole = codec(POINTS)
    rows = pa.RecordBatch.from_pylist(points(20), schema=whole.arrow_schema)
    shuffled = rows.select(["v", "p", "s", "id"])
    samples = whole.encode_batch(shuffled)
    assert whole.decode_samples(samples).batch.equals(rows)
    some = codec(POINTS, pa.schema([("p", whole.arrow_schema.field("p").type), ("id", pa.int64())]))
    decoded = some.decode_samples(samples).batch
    assert decoded.schema == some.arrow_schema
    assert decoded.column("id").to_pylist() == list(range(20))
    assert decoded.column("p").equals(rows.column("p"))


def test_slices_and_other_layouts_of_arrow() -> None:
    c = codec(POINTS)
    rows = pa.RecordBatch.from_pylist(points(50), schema=c.arrow_schema)
    middle = rows.slice(11, 20)
    assert c.decode_samples(c.encode_batch(middle)).batch.equals(middle)
    other = middle.set_column(1, "s", middle.column("s").cast(pa.large_string()))
    other = other.set_column(
        3, "v", middle.column("v").cast(pa.large_list(rows.schema.field("v").type.value_type))
    )
    other = other.set_column(0, "id", middle.column("id").cast(pa.uint8()))
    assert c.decode_samples(c.encode_batch(other)).batch.equals(middle)
    words = codec("enum E { A, B }; struct S { E e; };")
    named = pa.RecordBatch.from_arrays([pa.array(["B", "A", "B"]).dictionary_encode()], names=["e"])
    assert words.decode_samples(words.encode_batch(named)).batch.column("e").to_pylist() == ["B", "A", "B"]


@pytest.mark.parametrize("representation", [XCDR1, XCDR2])
def test_no_rows(representation: DataRepresentation) -> None:
    for idl in (POINTS, "struct S { long x; };"):
        c = codec(idl)
        none = pa.RecordBatch.from_pylist([], schema=c.arrow_schema)
        samples = c.encode_batch(none, representation=representation)
        assert samples.count == 0
        decoded = c.decode_samples(samples)
        assert decoded.malformed is None and decoded.batch.equals(none)


def test_long_values() -> None:
    """Above some length, pieces are copied one by one."""
    c = codec("@final struct S { octet n; sequence<octet> b; sequence<double> v; string s; };")
    rng = np.random.default_rng(1)
    rows = [
        {"n": i, "b": rng.bytes(3000 + i), "v": list(rng.random(900 + 5 * i)), "s": "y" * (2000 + i)}
        for i in range(9)
    ]
    table = pa.RecordBatch.from_pylist(rows, schema=c.arrow_schema)
    for big_endian in (False, True):
        assert c.decode_samples(c.encode_batch(table, big_endian=big_endian)).batch.equals(table)


def test_uniform_samples_inside_submessages() -> None:
    """Payloads of one size at a stride, between headers, are read where they lie."""
    c = codec("@final struct S { long id; double v[3]; };")
    n = 100
    table = pa.RecordBatch.from_pylist(
        [{"id": i, "v": [i, i + 1, i + 2]} for i in range(n)], schema=c.arrow_schema
    )
    packed = c.encode_batch(table)
    assert c.uniform_size(XCDR1) == packed.size == 4 + 8 + 24
    assert c.uniform_size(XCDR2) == 4 + 4 + 24
    assert codec(POINTS).uniform_size(XCDR1) is None
    stride, start = packed.size + 24, 20
    data = np.full(start + n * stride, 0xFF, np.uint8)
    at = (start + stride * np.arange(n))[:, None] + np.arange(packed.size)
    data[at] = packed.data.reshape(n, packed.size)
    uniform = Samples.uniform(data, n, packed.size, start=start, stride=stride)
    assert c.decode_samples(uniform).batch.equals(table)
    assert c.decode_samples(uniform.take_range(10, 20)).batch.equals(table.slice(10, 10))
    short = Samples.uniform(data, n, packed.size - 4, start=start, stride=stride)
    malformed = c.decode_samples(short).malformed
    assert malformed is not None and malformed.all()
    # one sample of another kind among them
    data[start + 3 * stride + 1] = 5
    decoded = c.decode_samples(uniform)
    assert decoded.malformed is not None and np.flatnonzero(decoded.malformed).tolist() == [3]
    assert decoded.batch.num_rows == n - 1


@pytest.mark.parametrize(
    ("idl", "columns", "message"),
    [
        ("struct S { long a; };", {"a": [1, None]}, "column 'a', row 1: null"),
        ("struct S { octet a; };", {"a": [1, 2, 256]}, "column 'a', row 2: outside octet: 0 to 255"),
        ("struct S { uint64 a; };", {"a": [1, -1]}, "column 'a', row 1: outside uint64"),
        ("struct S { string<3> a; };", {"a": ["abc", "äö"]}, "column 'a', row 1: longer than .* 3 bytes"),
        ("struct S { sequence<long, 2> a; };", {"a": [[1], [1, 2, 3]]}, "column 'a', row 1: more than"),
        ("struct S { double a[2]; };", {"a": [[1.0, 2.0], [1.0]]}, "row 1: an array of 2 elements is needed"),
        ("struct S { octet a[2]; };", {"a": [b"ab", b"a"]}, "row 1: an array of 2 elements is needed"),
        (
            "enum E { A, B }; struct S { E a; };",
            {"a": ["A", "C"]},
            "column 'a', row 1: 'C' is no literal of E",
        ),
        ("struct S { char a; };", {"a": ["x", "xy"]}, "column 'a', row 1: a char holds one"),
        ("struct S { float a; };", {"a": [1.0, 1e300]}, "column 'a', row 1: too large for float"),
        ("struct S { float a; };", {"a": [1 << 24, (1 << 24) + 1]}, "column 'a', row 1: not exactly a float"),
        ("struct S { double a; };", {"a": [-(1 << 63), (1 << 63) - 1]}, "column 'a', row 1: not exactly a"),
        ("struct S { long a; };", {"b": [1]}, "exactly one column 'a'"),
        ("struct S { long a; };", {"a": ["x"]}, "column 'a': string cannot be written as int32"),
        ("struct P { long x; }; struct S { P a; };", {"a": [{"y": 1}]}, "column 'a' has no field 'x'"),
        (
            "struct P { octet x; }; struct S { sequence<P> a; };",
            {"a": [[{"x": 1}], [], [{"x": 2}, {"x": 256}]]},
            r"column 'a\[\].x', row 2: outside octet",
        ),
    ],
)
def test_values_that_do_not_fit(idl: str, columns: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(EncodeError, match=message):
        codec(idl).encode_batch(batch(**columns))


def test_misuse() -> None:
    with pytest.raises(UsageError, match="has no member 'z'; it has x"):
        codec("struct S { long x; };", pa.schema([("z", pa.int32())]))
    with pytest.raises(UsageError, match="is int64, not int32"):
        codec("struct S { int64 x; };", pa.schema([("x", pa.int32())]))
    c = codec("struct S { long x; };")
    with pytest.raises(UsageError, match="S has no key"):
        c.key_hashes(batch(x=[1]))
    with pytest.raises(UsageError, match="XML"):
        c.encode_batch(batch(x=[1]), representation=DataRepresentation.XML)


def test_key_hashes() -> None:
    rows = batch(a=[1, 258], b=[2, 3], c=["x", "y"], d=[0, 0])
    short = codec("struct S { @key long a; @key int64 b; long d; };")
    # XCDR1 aligns the int64 to 8, XCDR2 to 4
    assert short.key_hashes(rows)[1].tobytes().hex() == "0000010200000000" + "0000000000000003"
    assert (
        short.key_hashes(rows, representation=XCDR2)[1].tobytes().hex()
        == "00000102" + "0000000000000003" + "00000000"
    )
    bounded = codec("struct S { @key string<11> c; };").key_hashes(rows)
    assert bounded[0].tobytes().hex() == "000000027800" + "00" * 10
    hashed = codec("struct S { @key string<12> c; };").key_hashes(rows)
    assert hashed[0].tobytes() == hashlib.md5(b"\0\0\0\2x\0").digest()
    # the order of the hash is that of the member ids
    ids = codec("struct S { @id(9) @key long a; @id(3) @key long b; };").key_hashes(rows)
    assert ids[1].tobytes().hex() == "0000000300000102" + "00" * 8


def test_keys_of_nested_structs() -> None:
    idl = """
        @final struct Key { @key short k; string text; };
        @final struct Plain { short p; short q; };
        @final struct S { @key Key a; long other; @key sequence<Plain> b; };
    """
    c = codec(idl)
    row = {"a": {"k": 1, "text": "t"}, "other": 5, "b": [{"p": 2, "q": 3}]}
    keys = c.encode_keys(pa.RecordBatch.from_pylist([row], schema=c.arrow_schema))
    assert bytes(keys.payload(0)).hex() == "00010000" + "01000000" + "01000000" + "02000300"
    decoded = c.decode_samples(keys, keys_only=True).batch
    assert decoded.to_pylist() == [{"a": {"k": 1, "text": None}, "other": None, "b": [{"p": 2, "q": 3}]}]
    assert decoded.schema == arrow_schema(c.struct)


def test_lists_of_strings_of_any_length() -> None:
    """Many lanes are stepped over together, the last few string by string."""
    c = codec("@final struct S { short n; sequence<string> v; octet t; };")
    rows = [{"n": i, "v": ["s" * (k % 7) for k in range(i * i % 90)], "t": i} for i in range(60)]
    table = pa.RecordBatch.from_pylist(rows, schema=c.arrow_schema)
    for representation in (XCDR1, XCDR2):
        for part in (table, table.slice(3, 1), table.slice(0, 20)):
            samples = c.encode_batch(part, representation=representation)
            assert c.decode_samples(samples).batch.equals(part)
            damaged = Samples.ragged(
                samples.data, samples.all_offsets(), np.maximum(samples.all_lengths() - 9, 4)
            )
            malformed = c.decode_samples(damaged).malformed
            assert malformed is not None and malformed.all()


_ENDS = {
    "string": ("", "string", ["", "ab", "c"]),
    "optional": (
        "@final struct E { @optional octet a; @optional string b; };",
        "E",
        [{"a": None, "b": "x"}, {"a": 7, "b": None}],
    ),
    "mutable": ("@mutable struct E { long a; @optional string b; };", "E", [{"a": 1, "b": None}, {"a": 2, "b": "x"}]),
    "appendable": ("@appendable struct E { string a; octet b; };", "E", [{"a": "x", "b": 1}, {"a": "", "b": 2}]),
    "numbers": ("", "sequence<double>", [[], [1.5], []]),
    "octets": ("", "sequence<octet>", [b"", b"a", b""]),
    "strings": ("", "sequence<string>", [[], ["a", ""], []]),
    "map": ("", "map<octet, long>", [[], [(1, 2)], []]),
    "union": (
        "union E switch (octet) { case 1: octet a; case 2: string b; };",
        "E",
        [{"discriminator": 2, "a": None, "b": "x"}, {"discriminator": 3, "a": None, "b": None}],
    ),
    "array": (
        "@final struct I { string a; octet b; }; typedef I E[2];",
        "E",
        [[{"a": "", "b": 1}, {"a": "x", "b": 2}]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("element", _ENDS)
@pytest.mark.parametrize("representation", [XCDR1, XCDR2])
@pytest.mark.parametrize("follows", [False, True], ids=["last", "within"])
def test_lists_that_end_with_their_sample(
    element: str, representation: DataRepresentation, follows: bool
) -> None:
    """The last element ends where the payload does, without padding; and it does not."""
    idl, name, elements = _ENDS[element]
    c = codec(f"{idl} @final struct S {{ octet o; sequence<{name}> v; {'octet p;' * follows} }};")
    rows = [
        {"o": 1, "v": elements[:count]} | ({"p": 2} if follows else {}) for count in range(len(elements) + 1)
    ]
    given = pa.RecordBatch.from_pylist(rows, schema=c.arrow_schema)
    written = c.encode_batch(given, representation=representation)
    payloads = [bytes(written.payload(i)) for i in range(written.count)]
    bare = [each[:3] + b"\0" + each[4 : len(each) - each[3]] for each in payloads]
    for times in (1, 30):
        data = b"".join(each + b"\xff" * (8 - len(each) % 4) for each in bare * times)
        lengths = np.array([len(each) for each in bare * times], np.int64)
        sizes = lengths + 8 - lengths % 4
        decoded = c.decode_samples(
            Samples.ragged(np.frombuffer(data, np.uint8), np.cumsum(sizes) - sizes, lengths)
        )
        assert decoded.malformed is None
        assert decoded.batch.to_pylist() == given.to_pylist() * times


def test_columns_own_their_memory() -> None:
    """Also those of a single sample, whose every view is contiguous."""
    c = codec("@final struct S { int64 a; octet b[4]; double v[2]; sequence<long> s; string t; };")
    rows = pa.RecordBatch.from_pylist(
        [{"a": 1, "b": b"abcd", "v": [1.0, 2.0], "s": [1, 2], "t": "text"}], schema=c.arrow_schema
    )
    fixed = codec("@final struct S { int64 a; octet b[4]; double v[2]; };")
    for reader, table in ((c, rows), (fixed, rows.select(["a", "b", "v"]))):
        samples = reader.encode_batch(table)
        decoded = reader.decode_samples(samples).batch
        samples.data[:] = 0xFF
        assert decoded.equals(table)


def test_a_codec_travels() -> None:
    c = codec(POINTS)
    rows = pa.RecordBatch.from_pylist(points(5), schema=c.arrow_schema)
    samples = c.encode_batch(rows)
    assert pickle.loads(pickle.dumps(c)).decode_samples(samples).batch.equals(rows)
