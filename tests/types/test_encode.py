"""From Arrow to wire values: which Arrow types a member takes, and what is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.options.explanations import explained
from spark_rtps.transport.errors import EncodeError
from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.types.arrow import arrow_schema
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.cdr.encoding.encoder import Encoder, least_representation
from spark_rtps.transport.types.mapping import Mapping
from spark_rtps.transport.types.model import (
    Alias,
    Array,
    BitField,
    Bitmask,
    Bitset,
    Case,
    Enum,
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
    WString,
)

XCDR1, XCDR2 = DataRepresentation.XCDR1, DataRepresentation.XCDR2
INT32, UINT64 = Primitive(PrimitiveKind.INT32), Primitive(PrimitiveKind.UINT64)
INT64, DOUBLE = Primitive(PrimitiveKind.INT64), Primitive(PrimitiveKind.FLOAT64)
COLOR = Enum("Color", (("RED", 0), ("BLUE", 5)))
FLAGS = Bitmask("Flags", (("a", 0), ("b", 1), ("top", 63)), 64)
TIME_MEMBERS = (Member("sec", INT32, 0), Member("nanosec", Primitive(PrimitiveKind.UINT32), 1))
TIME = Struct("builtin_interfaces::msg::Time", TIME_MEMBERS)
DURATION = Struct("builtin_interfaces::msg::dds_::Duration_", TIME_MEMBERS)
BITS = Bitset(
    "Bits",
    (
        BitField("low", 0, 3, PrimitiveKind.BYTE),
        BitField("sign", 3, 4, PrimitiveKind.INT8),
        BitField("on", 9, 1, PrimitiveKind.BOOLEAN),
    ),
    12,
)
CHOICE = Union(
    "Choice",
    INT32,
    (Case("number", INT32, 1, (1,)), Case("text", String(), 2, (2,)), Case("rest", DOUBLE, 3, (), True)),
)


def one(t: Type, *, optional: bool = False) -> Encoder:
    return Encoder(Struct("S", (Member("x", t, 0, optional=optional),)))


def body(t: Type, array: pa.Array, representation: DataRepresentation = XCDR1) -> list[bytes]:
    """The bodies of a struct of one member, little-endian, without padding."""
    batch = pa.RecordBatch.from_arrays([array], ["x"])
    samples = one(t).encode_batch(batch, representation=representation)
    payloads = [bytes(samples.payload(i)) for i in range(samples.count)]
    return [payload[4 : len(payload) - payload[3]] for payload in payloads]


def numbers(t: Type, array: pa.Array, code: str) -> list[Any]:
    return [np.frombuffer(each, code).tolist() for each in body(t, array)]


def test_times() -> None:
    stamps = [0, 1_500_000_001, -1, -1_000_000_000]
    wanted = [[0, 0], [1, 500_000_001], [-1, 999_999_999], [-1, 0]]
    for t, kind in ((TIME, pa.timestamp("ns", "UTC")), (DURATION, pa.duration("ns"))):
        assert numbers(t, pa.array(stamps, pa.int64()).cast(kind), "<i4") == wanted
    for unit, ticks in (("s", 1), ("ms", 1000), ("us", 1_000_000)):
        array = pa.array([-1, ticks + 0, 3 * ticks], pa.int64())
        assert numbers(TIME, array.cast(pa.timestamp(unit)), "<i4")[1:] == [[1, 0], [3, 0]]
    assert numbers(TIME, pa.array([-1], pa.timestamp("us")), "<i4") == [[-1, 999_999_000]]
    parts = pa.array([{"sec": 5, "nanosec": 6}])
    assert numbers(TIME, parts, "<i4") == [[5, 6]]
    late = pa.array([0, 1 << 31], pa.timestamp("s"))
    with pytest.raises(EncodeError, match=r"column 'x', row 1: outside the int32 of seconds"):
        body(TIME, late)
    with pytest.raises(EncodeError, match=r"cannot be written as the struct builtin_interfaces::msg::Time"):
        body(TIME, pa.array([1], pa.duration("s")))
    with pytest.raises(EncodeError, match=r"timestamp.* cannot be written as the struct S"):
        body(Struct("S", TIME_MEMBERS), late)


def test_integers_from_other_types() -> None:
    assert numbers(UINT64, pa.array([Decimal(2**64 - 1)], pa.decimal128(20, 0)), "<u8") == [[2**64 - 1]]
    assert numbers(UINT64, pa.array([Decimal(7)], pa.decimal128(5, 0)), "<u8") == [[7]]
    assert numbers(UINT64, pa.array([2**63 - 1, 0], pa.int64()), "<u8") == [[2**63 - 1], [0]]
    assert numbers(INT32, pa.array([3], pa.date32()), "<i4") == [[3]]
    assert numbers(INT32, pa.array([86_400_000 * 3], pa.date64()), "<i4") == [[3]]
    for unit, microseconds in (("s", -1_000_000), ("ms", -1000), ("us", -1), ("ns", -1)):
        assert numbers(INT64, pa.array([-1], pa.timestamp(unit)), "<i8") == [[microseconds]]
        assert numbers(INT64, pa.array([-1], pa.duration(unit)), "<i8") == [[microseconds]]
    for array in (pa.array([0, -1], pa.int64()), pa.array([Decimal(0), Decimal(-1)], pa.decimal128(20, 0))):
        with pytest.raises(EncodeError, match=r"column 'x', row 1: outside uint64: 0 to"):
            body(UINT64, array)
    for sign in (1, -1):
        with pytest.raises(EncodeError, match="too far for an int64 of microseconds"):
            body(INT64, pa.array([sign << 62], pa.timestamp("s")))
    with pytest.raises(EncodeError, match=r"decimal128\(5, 1\) cannot be written as int64"):
        body(INT64, pa.array([Decimal("0.5")], pa.decimal128(5, 1)))


def test_enums() -> None:
    assert numbers(COLOR, pa.array(["BLUE", "RED"]), "<i4") == [[5], [0]]
    assert numbers(COLOR, pa.array([5, 0], pa.int64()), "<i4") == [[5], [0]]
    assert numbers(COLOR, pa.array(["BLUE"]).dictionary_encode(), "<i4") == [[5]]
    with pytest.raises(EncodeError, match=r"column 'x', row 1: 'GREEN' is no literal of Color"):
        body(COLOR, pa.array(["RED", "GREEN"]))
    with pytest.raises(EncodeError, match=r"column 'x', row 0: 4 is no literal of Color"):
        body(COLOR, pa.array([4], pa.int8()))
    with pytest.raises(EncodeError, match="double cannot be written as the enum Color"):
        body(COLOR, pa.array([1.0]))


@pytest.mark.parametrize("representation", [XCDR1, XCDR2])
def test_a_null_in_a_dictionary_is_an_absent_value(representation: DataRepresentation) -> None:
    """As pandas and Parquet may have it: the index is there, and what it leads to is null."""
    cases = (Case("a", String(), 1, (1,)), Case("b", String(), 2, (2,)))
    members = (Member("x", String(), 0, optional=True), Member("u", Union("U", INT32, cases), 1))
    codec = Codec(Struct("T", members, Extensibility.FINAL))
    x = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["one", None]))
    a = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["one", None]))
    which, b = pa.array([1, 2, 1], pa.int32()), pa.array([None, "two", None])
    u = pa.StructArray.from_arrays([which, a, b], ["discriminator", "a", "b"])
    encoded = codec.encode_batch(
        pa.RecordBatch.from_arrays([x, u], ["x", "u"]), representation=representation
    )
    one, two = ({"discriminator": n, "a": a, "b": b} for n, a, b in ((1, "one", None), (2, None, "two")))
    wanted = [{"x": "one", "u": one}, {"x": None, "u": two}, {"x": None, "u": one}]
    assert codec.decode_samples(encoded).batch.to_pylist() == wanted


def test_bitmasks() -> None:
    lists = pa.array([["a"], [], ["top", "b", "b"]], pa.list_(pa.string()))
    assert numbers(FLAGS, lists, "<u8") == [[1], [0], [2**63 + 2]]
    assert numbers(FLAGS, lists.slice(2), "<u8") == [[2**63 + 2]]
    assert numbers(FLAGS, lists.cast(pa.large_list(pa.large_string())), "<u8") == [[1], [0], [2**63 + 2]]
    # the last of 64 bits is an int64's sign
    assert numbers(FLAGS, pa.array([3, -(2**63)], pa.int64()), "<u8") == [[3], [2**63]]
    for array in (pa.array([3, 4], pa.int64()), pa.array([0, -1], pa.int64())):
        with pytest.raises(EncodeError, match=r"column 'x', row 1: has bits that no flag of Flags names"):
            body(FLAGS, array)
    with pytest.raises(EncodeError, match=r"column 'x\[\]', row 1: 'c' is no flag of Flags"):
        body(FLAGS, pa.array([["a", "b"], ["c"]]))
    with pytest.raises(EncodeError, match=r"column 'x\[\]', row 0: null is no flag"):
        body(FLAGS, pa.array([["a", None]]))


def test_bitsets() -> None:
    rows = [{"low": 5, "sign": -3, "on": True}, {"low": 7, "sign": 7, "on": False}]
    assert numbers(BITS, pa.array(rows), "<u2") == [[5 | 0b1101 << 3 | 1 << 9], [7 | 7 << 3]]
    for bad in ({"low": 8}, {"low": -1}, {"sign": 8}, {"sign": -9}):
        with pytest.raises(EncodeError, match=f"column 'x.{next(iter(bad))}', row 1"):
            body(BITS, pa.array([rows[0], rows[0] | bad]))
    with pytest.raises(EncodeError, match=r"column 'x.on', row 1: null in a bitset"):
        body(BITS, pa.array([rows[0], rows[0] | {"on": None}]))
    with pytest.raises(EncodeError, match="column 'x' has no field 'on', which Bits needs"):
        body(BITS, pa.array([{"low": 1, "sign": 1}]))


def test_wide_text() -> None:
    array = pa.array(["", "aé", "€😀"])
    assert body(WString(), array) == [
        bytes(4),
        b"\4\0\0\0" + "aé".encode("utf-16-le"),
        b"\6\0\0\0" + "€😀".encode("utf-16-le"),
    ]
    assert body(WString(), array.slice(1, 1)) == [b"\4\0\0\0" + "aé".encode("utf-16-le")]
    wchar = Primitive(PrimitiveKind.CHAR16)
    assert numbers(wchar, pa.array(["a", "€"]), "<u2") == [[0x61], [0x20AC]]
    for bad in ("", "ab", "😀"):
        with pytest.raises(EncodeError, match=r"row 1: a wchar holds one UTF-16 code unit"):
            body(wchar, pa.array(["a", bad]))
    with pytest.raises(EncodeError, match=r"row 1: longer than the wstring's bound of 2 UTF-16 code units"):
        body(WString(2), pa.array(["ab", "a😀"]))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        # sign, 15 bits of exponent with bias 0x3fff, 112 of fraction
        (0.0, "0000 0000000000000000000000000000"),
        (-0.0, "8000 0000000000000000000000000000"),
        (1.0, "3fff 0000000000000000000000000000"),
        (-1.5, "bfff 8000000000000000000000000000"),
        (1.7976931348623157e308, "43fe fffffffffffff000000000000000"),
        (2.2250738585072014e-308, "3c01 0000000000000000000000000000"),  # the least normal double: 2**-1022
        (5e-324, "3bcd 0000000000000000000000000000"),  # the least of all: 2**-1074
        (1.5e-323, "3bce 8000000000000000000000000000"),  # thrice that
        (2.225073858507201e-308, "3c00 ffffffffffffe000000000000000"),  # the greatest subnormal
        (float("inf"), "7fff 0000000000000000000000000000"),
        (float("nan"), "7fff 8000000000000000000000000000"),
    ],
)
def test_binary128(value: float, text: str) -> None:
    t = Primitive(PrimitiveKind.FLOAT128)
    wanted = bytes.fromhex(text)
    assert body(t, pa.array([value]))[0] == wanted[::-1]
    assert body(Sequence(t), pa.array([[value]]), XCDR2)[0] == b"\1\0\0\0" + wanted[::-1]
    batch = pa.RecordBatch.from_arrays([pa.array([value])], ["x"])
    assert bytes(one(t).encode_batch(batch, big_endian=True).payload(0))[4:] == wanted


def test_unions() -> None:
    kind = arrow_schema(Struct("S", (Member("x", CHOICE, 0),))).field("x").type
    rows = [
        {"discriminator": 2, "text": "hi"},
        {"discriminator": 1, "number": 7},
        {"discriminator": -9, "rest": 0.5},
    ]
    assert body(CHOICE, pa.array(rows, kind)) == [
        bytes.fromhex("02000000 03000000 686900"),
        bytes.fromhex("01000000 07000000"),
        bytes.fromhex("f7ffffff 00000000 00000000 0000e03f"),
    ]
    # fields of branches that are not selected may be missing
    assert body(CHOICE, pa.array(rows[1:2])) == [bytes.fromhex("01000000 07000000")]
    refused = [
        ({"discriminator": 1}, r"column 'x.number', row 1: null, but the discriminator selects it"),
        (
            {"discriminator": 1, "number": 2, "text": "no"},
            r"column 'x.text', row 1: has a value, but the discriminator does not select it",
        ),
        ({"discriminator": None}, r"column 'x.discriminator', row 1: null"),
    ]
    for row, why in refused:
        with pytest.raises(EncodeError, match=why):
            body(CHOICE, pa.array([rows[0], row], kind))
    with pytest.raises(
        EncodeError, match="row 0: the discriminator selects it, and there is no field 'rest'"
    ):
        body(CHOICE, pa.array([{"discriminator": 3}]))
    with pytest.raises(EncodeError, match="has no field 'discriminator', which Choice needs"):
        body(CHOICE, pa.array([{"number": 1}]))
    # a row inside a branch is told by the row of the batch
    lists = Union("L", INT32, (Case("v", Sequence(COLOR), 1, (1,)), Case("n", INT32, 2, (2,))))
    values = [
        {"discriminator": 2, "n": 1},
        {"discriminator": 1, "v": ["RED"]},
        {"discriminator": 1, "v": ["NO"]},
    ]
    with pytest.raises(EncodeError, match=r"column 'x.v\[\]', row 2: 'NO' is no literal"):
        body(lists, pa.array(values))


@pytest.mark.parametrize(
    ("kind", "least", "greatest"),
    [
        (PrimitiveKind.BYTE, 0, 255),
        (PrimitiveKind.INT8, -128, 127),
        (PrimitiveKind.INT64, -(1 << 63), (1 << 63) - 1),
    ],
)
def test_labels_at_the_limits_of_the_discriminator(kind: PrimitiveKind, least: int, greatest: int) -> None:
    union = Union("U", Primitive(kind), (Case("x", INT32, 1, (least,)), Case("y", INT32, 2, (greatest,))))
    codec = Codec(Struct("S", (Member("u", union, 0),)))
    rows = [{"u": {"discriminator": least, "x": 1}}, {"u": {"discriminator": greatest, "y": 2}}]
    batch = pa.RecordBatch.from_pylist(rows, schema=codec.arrow_schema)
    assert codec.decode_samples(codec.encode_batch(batch)).batch == batch


def test_texts_of_several_lengths_with_the_same_padding() -> None:
    codec = Codec(Struct("S", (Member("a", String(), 0), Member("b", INT32, 1))))
    batch = pa.RecordBatch.from_pydict({"a": ["", "abc", "x"], "b": pa.array([1, 2, 3], pa.int32())})
    assert codec.decode_samples(codec.encode_batch(batch)).batch == batch


def test_extension_types_are_written_as_what_they_store() -> None:
    codec = Codec(Struct("S", (Member("a", INT32, 0), Member("b", String(), 1, optional=True))))
    stored = pa.array([1, 2], pa.int32()), pa.array(["x", None])
    columns = [pa.ExtensionArray.from_storage(pa.opaque(each.type, "thing", "user"), each) for each in stored]
    written = codec.encode_batch(pa.RecordBatch.from_arrays(columns, ["a", "b"]))
    assert codec.decode_samples(written).batch.columns == list(stored)


def test_labels_that_the_discriminator_cannot_have() -> None:
    """A peer's type may have them; what its samples hold is written again for key hashes."""
    cases = Case("x", INT32, 1, (0,)), Case("y", INT32, 2, (1000, -1000)), Case("z", INT32, 3, (), True)
    union = Union("U", Enum("E", (("A", 0), ("B", 1)), 8), cases)
    codec = Codec(Struct("S", (Member("u", union, 0),)))
    rows = [{"u": {"discriminator": "A", "x": 1}}, {"u": {"discriminator": "B", "z": 2}}]
    batch = pa.RecordBatch.from_pylist(rows, schema=codec.arrow_schema)
    assert codec.decode_samples(codec.encode_batch(batch)).batch == batch


def test_maps() -> None:
    t = Map(String(), INT32, 2)
    kind = pa.map_(pa.string(), pa.int32())
    rows = [[("b", 2), ("a", 1)], [], [("c", 3)]]
    assert body(t, pa.array(rows, kind)) == [
        bytes.fromhex("02000000 02000000 62000000 02000000 02000000 61000000 01000000"),
        bytes(4),
        bytes.fromhex("01000000 02000000 63000000 03000000"),
    ]
    assert body(t, pa.array(rows, kind).slice(2)) == [bytes.fromhex("01000000 02000000 63000000 03000000")]
    with pytest.raises(EncodeError, match=r"column 'x', row 1: more than the map's bound of 2"):
        body(t, pa.array([rows[0], [("a", 1), ("b", 2), ("c", 3)]], kind))
    with pytest.raises(EncodeError, match=r"column 'x\[\].value', row 1: outside int8"):
        body(Map(String(), Primitive(PrimitiveKind.INT8)), pa.array([rows[0], [("c", 300)]], kind))
    with pytest.raises(EncodeError, match="cannot be written as a map"):
        body(t, pa.array([1]))


@pytest.mark.parametrize(
    ("t", "value", "output"),
    [
        (
            INT32,
            None,
            r"'x', row 0: null, but the member is not @optional; .* type.file, .*nullable=optional",
        ),
        (Sequence(INT32), [1, None], r"'x\[\]', row 0: null, but an element .*\(filter\).*\(transform\)"),
        (Array(INT32, (2,)), [1, None], r"'x\[\]', row 0: null, but an element "),
        (
            Map(String(), INT32),
            [("a", None)],
            r"'x\[\]\.value', row 0: null, but a value of a map .*\(transform_values\)",
        ),
        (
            Sequence(Struct("K", (Member("key", INT32, 0),))),
            [{"key": None}],
            r"'x\[\]\.key', row 0: null, but the member",
        ),
    ],
)
def test_a_null_says_what_to_do(t: Type, value: object, output: str) -> None:
    kind = arrow_schema(Struct("S", (Member("x", t, 0),))).field("x").type
    with pytest.raises(EncodeError, match=output), explained():
        body(t, pa.array([value], kind))


def test_a_key_is_never_optional() -> None:
    struct = Struct("S", (Member("id", INT32, 0, key=True),))
    with pytest.raises(EncodeError, match="column 'id', row 0: null, but a key is never optional"):
        Encoder(struct).encode_batch(pa.RecordBatch.from_pylist([{"id": None}], arrow_schema(struct)))


def test_optional_columns() -> None:
    encoder = one(Sequence(INT32), optional=True)
    rows = pa.array([None, [1, 2], [], None], pa.list_(pa.int32()))
    batch = pa.RecordBatch.from_arrays([rows], ["x"])
    for representation in (XCDR1, XCDR2):
        all_there = encoder.encode_batch(batch.slice(1, 2), representation=representation)
        samples = encoder.encode_batch(batch, representation=representation)
        assert [bytes(samples.payload(i)) for i in (1, 2)] == [bytes(all_there.payload(i)) for i in (0, 1)]
    # a column of nothing but nulls, or none at all
    absent = pa.RecordBatch.from_arrays([pa.nulls(1)], ["x"])
    other = pa.RecordBatch.from_arrays([pa.array([1])], ["y"])
    for each in (absent, other):
        assert bytes(encoder.encode_batch(each, representation=XCDR2).payload(0)) == b"\0\7\0\3\0\0\0\0"
    holed = pa.RecordBatch.from_arrays([pa.array([None, [1], [2, None]])], ["x"])
    with pytest.raises(EncodeError, match=r"column 'x\[\]', row 2: null"):
        encoder.encode_batch(holed)


def test_no_rows() -> None:
    for t in (
        INT32,
        String(),
        Sequence(CHOICE),
        Map(String(), String()),
        CHOICE,
        BITS,
        FLAGS,
        TIME,
        WString(),
    ):
        for optional in (False, True):
            struct = Struct("S", (Member("x", t, 0, optional=optional),), Extensibility.MUTABLE)
            batch = pa.RecordBatch.from_pylist([], schema=arrow_schema(struct))
            for representation in (XCDR1, XCDR2):
                assert Encoder(struct).encode_batch(batch, representation=representation).count == 0


def test_every_mapping_is_taken_back() -> None:
    struct = Struct(
        "S",
        (
            Member("u", UINT64, 0),
            Member("e", COLOR, 1),
            Member("f", FLAGS, 2),
            Member("t", Alias("Stamp", TIME), 3),
        ),
    )
    values = [
        (Mapping(), {"u": Decimal(7), "e": "BLUE", "f": ["b"], "t": {"sec": 1, "nanosec": 2000}}),
        (
            Mapping(uint64="long", enums="int", bitmasks="long", times="timestamp"),
            {"u": 7, "e": 5, "f": 2, "t": np.datetime64(1_000_002, "us").item()},
        ),
    ]
    found = []
    for mapping, row in values:
        batch = pa.RecordBatch.from_pylist([row], schema=arrow_schema(struct, mapping))
        found.append(bytes(Encoder(struct).encode_batch(batch).payload(0)))
    assert found[0] == found[1]


def test_booleans_that_start_anywhere() -> None:
    values = [i % 3 == 0 for i in range(40)]
    for first, last in ((0, 40), (19, 40), (8, 9), (3, 3)):
        array = pa.array(values).slice(first, last - first)
        assert body(Primitive(PrimitiveKind.BOOLEAN), array) == [bytes([x]) for x in values[first:last]]


def test_lists_that_start_anywhere() -> None:
    """Elements whose size depends on where they start: each must lie as if it were walked to."""
    inner = Struct(
        "I", (Member("a", Primitive(PrimitiveKind.BYTE), 0), Member("b", String(), 1), Member("c", DOUBLE, 2))
    )
    outer = Struct("O", (Member("s", String(), 0), Member("v", Sequence(Sequence(inner)), 1)))
    rng = np.random.default_rng(5)
    rows = [
        {
            "s": "x" * int(rng.integers(9)),
            "v": [
                [
                    {"a": i, "b": "y" * int(rng.integers(9)), "c": float(i)}
                    for i in range(int(rng.integers(6)))
                ]
                for _ in range(int(rng.integers(4)))
            ],
        }
        for _ in range(60)
    ]
    for representation, eight in ((XCDR1, 8), (XCDR2, 4)):
        samples = Encoder(outer).encode_batch(
            pa.RecordBatch.from_pylist(rows, schema=arrow_schema(outer)), representation=representation
        )
        for i, row in enumerate(rows):
            out = bytearray()

            def put(data: bytes, alignment: int, out: bytearray = out) -> None:
                out += bytes(-len(out) % alignment) + data

            def text(value: str) -> None:
                put((len(value) + 1).to_bytes(4, "little") + value.encode() + b"\0", 4)

            text(row["s"])
            headers = []
            if eight == 4:
                put(bytes(4), 4)
                headers.append(len(out))
            put(len(row["v"]).to_bytes(4, "little"), 4)
            for each in row["v"]:
                if eight == 4:
                    put(bytes(4), 4)
                    headers.append(len(out))
                put(len(each).to_bytes(4, "little"), 4)
                for value in each:
                    put(bytes([value["a"]]), 1)
                    text(value["b"])
                    put(np.float64(value["c"]).tobytes(), eight)
                if eight == 4:
                    at = headers.pop()
                    out[at - 4 : at] = (len(out) - at).to_bytes(4, "little")
            if eight == 4:
                at = headers.pop()
                out[at - 4 : at] = (len(out) - at).to_bytes(4, "little")
            payload = bytes(samples.payload(i))
            assert payload[4 : len(payload) - payload[3]] == bytes(out)


def test_long_and_short_pieces_together() -> None:
    t = Struct("S", (Member("a", String(), 0), Member("b", Sequence(Primitive(PrimitiveKind.BYTE)), 1)))
    sizes = [0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 33, 255, 256, 257, 5000, 100_000]
    rows = [{"a": "t" * a, "b": bytes([a % 251 + 1]) * b} for a in sizes for b in reversed(sizes)]
    samples = Encoder(t).encode_batch(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(t)))
    for i, row in enumerate(rows):
        text = (len(row["a"]) + 1).to_bytes(4, "little") + row["a"].encode() + b"\0"  # type: ignore[attr-defined]
        text += bytes(-len(text) % 4)
        wanted = text + len(row["b"]).to_bytes(4, "little") + row["b"]
        assert bytes(samples.payload(i)) == b"\0\1\0" + bytes([-len(wanted) % 4]) + wanted + bytes(
            -len(wanted) % 4
        )


@pytest.mark.parametrize(
    ("struct", "wanted"),
    [
        (Struct("S", (Member("x", INT32, 0),)), XCDR1),
        (Struct("S", (Member("x", INT32, 0),), Extensibility.APPENDABLE), XCDR1),
        (Struct("S", (Member("x", INT32, 0, optional=True),)), XCDR2),
        (Struct("S", (Member("x", INT32, 0),), Extensibility.MUTABLE), XCDR2),
        (
            Struct(
                "S",
                (Member("x", Alias("A", Sequence(Struct("T", (Member("y", INT32, 0, optional=True),)))), 0),),
            ),
            XCDR2,
        ),
        (
            Struct(
                "S", (Member("x", Array(Union("U", INT32, CHOICE.cases, Extensibility.MUTABLE), (2,)), 0),)
            ),
            XCDR2,
        ),
    ],
)
def test_least_representation(struct: Struct, wanted: DataRepresentation) -> None:
    assert least_representation(struct) is wanted
