"""Content filters: what passes them, what they need, and what is said of those that are wrong."""

from __future__ import annotations

import math
import pickle
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.transport.errors import FilterError, UsageError
from spark_rtps.transport.limits import STRING_MAX
from spark_rtps.transport.types.arrow import arrow_schema
from spark_rtps.transport.types.filter import parse_filter
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

BOOLEAN, BYTE, INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT, DOUBLE, _, CHAR, WCHAR = (
    Primitive(kind) for kind in PrimitiveKind
)
COLOR = Enum("m::Color", (("RED", 0), ("GREEN", 7), ("BLUE", 1), ("DARK", -1)))
FLAGS = Bitmask("m::Flags", (("LOW", 0), ("MID", 4), ("TOP", 63)), 64)
BITS = Bitset(
    "m::Bits", (BitField("a", 0, 3, PrimitiveKind.UINT8), BitField("b", 3, 1, PrimitiveKind.BOOLEAN)), 8
)


def struct(qualified: str, /, **members: Type) -> Struct:
    return Struct(qualified, tuple(Member(n, t, i) for i, (n, t) in enumerate(members.items())))


POINT = struct("m::Point", x=INT32, y=DOUBLE)
LINE = struct("m::Line", name=String(), points=Sequence(POINT), grid=Array(INT16, (2, 3)))
TIME = struct("builtin_interfaces::msg::Time", sec=INT32, nanosec=UINT32)
EITHER = Union(
    "m::Either", INT32, (Case("number", INT32, 1, (1,)), Case("text", String(), 2, (), True))
)  # fmt: skip
ALL = Struct(
    "m::All",
    tuple(
        Member(name, t, i, key=name == "id", optional=name == "maybe")
        for i, (name, t) in enumerate(
            {
                "id": INT32,
                "b": BOOLEAN,
                "o": BYTE,
                "i8": INT8,
                "i64": INT64,
                "u64": UINT64,
                "f": FLOAT,
                "d": DOUBLE,
                "c": CHAR,
                "w": WCHAR,
                "s": String(8),
                "ws": WString(),
                "color": Alias("m::Paint", COLOR),
                "flags": FLAGS,
                "bits": BITS,
                "point": POINT,
                "line": LINE,
                "u": EITHER,
                "raw": Sequence(BYTE),
                "maybe": DOUBLE,
                "stamp": TIME,
                "map": Map(String(), INT32),
                "codes": Sequence(Sequence(COLOR)),
                "raws": Array(BYTE, (2, 3)),
                "few": Sequence(INT32, 2),
            }.items()
        )
    ),
    Extensibility.APPENDABLE,
)

ROWS: list[dict[str, Any]] = [
    {
        "id": 0, "b": True, "o": 200, "i8": -5, "i64": 2**53 + 1, "u64": Decimal(2**64 - 1), "f": 0.1, "d": 0.1,
        "c": "a", "w": "ö", "s": "it's", "ws": "übel", "color": "GREEN", "flags": ["LOW", "TOP"],
        "bits": {"a": 3, "b": True}, "point": {"x": 1, "y": 1.5},
        "line": {"name": "l", "points": [{"x": 1, "y": 0.0}, {"x": 2, "y": 0.0}], "grid": [[1, 2, 3], [4, 5, 6]]},
        "u": {"discriminator": 1, "number": 5, "text": None}, "raw": b"\x07\x08", "maybe": None,
        "stamp": {"sec": -1, "nanosec": 500_000_000}, "map": [("a", 1)], "codes": [["RED"], ["BLUE", "GREEN"]],
        "raws": [b"abc", b"def"], "few": [1, 2],
    },
    {
        "id": 1, "b": False, "o": 0, "i8": 5, "i64": -(2**63), "u64": Decimal(3), "f": math.nan, "d": math.inf,
        "c": "b", "w": "z", "s": "50%", "ws": "a\nb", "color": "BLUE", "flags": [],
        "bits": {"a": 0, "b": False}, "point": {"x": -1, "y": -0.0},
        "line": {"name": "m", "points": [], "grid": [[0, 0, 0], [0, 0, 9]]},
        "u": {"discriminator": 2, "number": None, "text": "t"}, "raw": b"", "maybe": 2.0,
        "stamp": {"sec": 3, "nanosec": 0}, "map": [], "codes": [], "raws": [b"xyz", b"uvw"], "few": [],
    },
    {
        "id": 2, "b": None, "o": None, "i8": None, "i64": None, "u64": None, "f": None, "d": None, "c": None,
        "w": None, "s": None, "ws": None, "color": None, "flags": None, "bits": None, "point": None, "line": None,
        "u": None, "raw": None, "maybe": None, "stamp": None, "map": None, "codes": None, "raws": None, "few": None,
    },
    {
        "id": 3, "b": True, "o": 7, "i8": 0, "i64": 0, "u64": Decimal(0), "f": 0.5, "d": 1e300,
        "c": "A", "w": "A", "s": "a\\b", "ws": "\U0001f600", "color": "DARK", "flags": ["MID"],
        "bits": {"a": 7, "b": None}, "point": {"x": None, "y": 2.0},
        "line": {"name": None, "points": [None, {"x": 9, "y": 1.0}], "grid": [None, [1, None, 1]]},
        "u": {"discriminator": 0, "number": None, "text": "zero"}, "raw": b"\x07", "maybe": -1.0,
        "stamp": {"sec": 0, "nanosec": 1_000}, "map": None, "codes": [None, [None, "DARK"]],
        "raws": [None, b"\x00\xff\x80"], "few": [5],
    },
]  # fmt: skip

#: An expression and the ids of the rows that pass.
PASSING: list[tuple[str, set[int]]] = [
    ("id = 1", {1}),
    ("id <> 1", {0, 2, 3}),
    ("id != 1", {0, 2, 3}),
    ("1 < id", {2, 3}),
    ("id >= 0x2", {2, 3}),
    ("id BETWEEN 1 AND 2", {1, 2}),
    ("id NOT BETWEEN 1 AND 2", {0, 3}),
    ("id not between 1 and 2 and id > 0", {3}),
    ("NOT id = 1 AND NOT id = 2", {0, 3}),
    ("id = 0 OR id = 1 AND id = 2", {0}),
    ("(id = 0 OR id = 1) AND id <> 0", {1}),
    ("id < 1.5", {0, 1}),
    ("id <= 1.0", {0, 1}),
    ("id = 1.5", set()),
    # booleans
    ("b = TRUE", {0, 3}),
    ("b <> true", {1}),
    ("NOT b = TRUE", {1}),
    ("b = bits.b", {0, 1}),
    # integers, exactly
    ("o = 200", {0}),
    ("i8 < 0", {0}),
    ("i8 > -5.5", {0, 1, 3}),
    ("i8 > 1000", set()),
    ("i64 = 9007199254740993", {0}),
    ("i64 = 9007199254740992.0", set()),
    ("i64 > 9007199254740992.0", {0}),
    ("i64 >= -9223372036854775808", {0, 1, 3}),
    ("i64 < -1e30", set()),
    ("i64 < 18446744073709551615", {0, 1, 3}),
    ("u64 = 18446744073709551615", {0}),
    ("u64 = 18446744073709551616.0", set()),
    ("u64 < 18446744073709551616.0", {0, 1, 3}),
    ("u64 > 9223372036854775808.0", {0}),
    ("u64 > -1", {0, 1, 3}),
    ("u64 > -0.5", {0, 1, 3}),
    ("u64 > i64", {0, 1}),
    ("i64 < u64", {0, 1}),
    ("i64 = u64", {3}),
    ("u64 <= i8", {1, 3}),
    # floats: a float is what it is as a double
    ("d = 0.1", {0}),
    ("f = 0.1", set()),
    ("f > 0.1", {0, 3}),
    ("f = 0.5", {3}),
    ("f <> 0.5", {0, 1}),
    ("NOT f = 0.5", {0, 1}),
    ("f < 0.5 OR f >= 0.5", {0, 3}),
    ("f <> id", {0, 1, 3}),
    ("NOT id >= f", {0, 1}),
    ("d > 18446744073709551615", {1, 3}),
    ("d >= .5e0", {1, 3}),
    ("point.y = 0", {1}),
    ("point.y > i8", {0, 3}),
    # texts
    ("s = 'it''s'", {0}),
    ("s = `it''s'", {0}),
    ("s LIKE 'it%'", {0}),
    ("s like '5_%'", {1}),
    ("s LIKE 'a\\b'", {3}),
    ("s LIKE 'a\\%'", {3}),
    ("s LIKE '%\\b'", {3}),
    ("s LIKE '%\\_'", {3}),
    ("s LIKE '%.\\b'", set()),
    ("NOT s LIKE '%t%'", {1, 3}),
    ("ws LIKE 'a_b'", {1}),
    ("ws LIKE 'a%b'", {1}),
    ("ws LIKE '_'", {3}),
    ("ws > '\uffff'", {3}),
    ("ws LIKE '.*'", set()),
    ("c = 'a'", {0}),
    ("c < 'a'", {3}),
    ("c BETWEEN 'a' AND 'b'", {0, 1}),
    ("w = 'ö'", {0}),
    ("c = w", {3}),
    ("s <> ws", {0, 1, 3}),
    # enums: by value
    ("color = GREEN", {0}),
    ("color = 'GREEN'", {0}),
    ("color = 7", {0}),
    ("color = 0x7", {0}),
    ("color > RED", {0, 1}),
    ("color >= 'BLUE'", {0, 1}),
    ("color < 0", {3}),
    ("RED > color", {3}),
    ("color BETWEEN RED AND BLUE", {1}),
    ("color NOT BETWEEN 'RED' AND 'BLUE'", {0, 3}),
    ("color = codes[1][1]", {0, 3}),
    ("color <= id", {1, 3}),
    # bitmasks and bitsets
    ("flags = 0x8000000000000001", {0}),
    ("flags = 0", {1}),
    ("flags = 16", {3}),
    ("bits.a >= 3", {0, 3}),
    ("bits.b = FALSE", {1}),
    # inside
    ("point.x > 0", {0}),
    ("NOT point.x > 0", {1}),
    ("line.points[0].x = 1", {0}),
    ("line.points[1].x > 1", {0, 3}),
    ("line.points[7].x > 1 OR id = 2", {2}),
    ("line.grid[1][2] >= 6", {0, 1}),
    ("line.grid[0][0] < 9", {0, 1}),
    ("line.name = 'm'", {1}),
    ("codes[1][0] = 'BLUE'", {0}),
    ("few[1] = 2", {0}),
    ("u.number = 5", {0}),
    ("u.text LIKE '%'", {1, 3}),
    ("u.discriminator = 2 OR u._d = 0", {1, 3}),
    ("stamp.sec < 0", {0}),
    ("stamp.nanosec = 1000", {3}),
    # octets
    ("raw = &hex(07 08)", {0}),
    ("raw <> &HEX(0708)", {1, 3}),
    ("raw = &hex()", {1}),
    ("raw[0] = 7", {0, 3}),
    ("raw[1] > 7", {0}),
    ("raws[1] = &hex(00FF80)", {3}),
    ("raws[1][1] = 255", {3}),
    ("raws[0][2] > 0x60", {0, 1}),
    # nulls: unknown, and what follows from it
    ("maybe > 0", {1}),
    ("NOT maybe > 0", {3}),
    ("maybe <= 0 OR maybe > 0", {1, 3}),
    ("maybe > 0 OR id = 2", {1, 2}),
    ("NOT (maybe > 0 AND id = 7)", {0, 1, 2, 3}),
    ("NOT (maybe > 0 OR id = 7)", {3}),
    ("maybe = maybe", {1, 3}),
]

#: Where uint64 is a long the greatest is less than these.
NO_LONGS = {"u64 = 18446744073709551615", "u64 > 9223372036854775808.0"}

MAPPINGS = [
    Mapping(),
    Mapping(enums="int", bitmasks="array", times="timestamp"),
    Mapping(uint64="long", bitmasks="long"),
]


def batch_of(rows: list[dict[str, Any]], mapping: Mapping) -> pa.RecordBatch:
    """The rows with the Arrow types of a mapping."""
    values, bits = dict(COLOR.literals), dict(FLAGS.flags)

    def enum(name: str | None) -> int | str | None:
        return name if name is None or mapping.enums == "string" else values[name]

    def convert(row: dict[str, Any]) -> dict[str, Any]:
        row = dict(row)
        row["color"] = enum(row["color"])
        if row["codes"] is not None:
            row["codes"] = [
                codes if codes is None else [enum(name) for name in codes] for codes in row["codes"]
            ]
        if row["flags"] is not None and mapping.bitmasks == "long":
            mask = sum(1 << bits[name] for name in row["flags"])
            row["flags"] = mask - (1 << 64) if mask >> 63 else mask
        if row["u64"] is not None and mapping.uint64 == "long":
            row["u64"] = min(int(row["u64"]), 2**63 - 1)
        if row["stamp"] is not None and mapping.times == "timestamp":
            row["stamp"] = row["stamp"]["sec"] * 1_000_000 + row["stamp"]["nanosec"] // 1_000
        return row

    return pa.RecordBatch.from_pylist([convert(row) for row in rows], arrow_schema(ALL, mapping))


def passing(expression: str, batch: pa.RecordBatch, *parameters: str) -> set[int]:
    mask = parse_filter(expression, parameters, ALL).evaluate(batch)
    assert mask.dtype == np.bool_
    assert mask.shape == (batch.num_rows,)
    return set(batch.filter(pa.array(mask)).column("id").to_pylist())


@pytest.mark.parametrize("mapping", MAPPINGS, ids=["default", "other", "long"])
@pytest.mark.parametrize(("expression", "ids"), PASSING)
def test_rows_that_pass(expression: str, ids: set[int], mapping: Mapping) -> None:
    batch = batch_of(ROWS, mapping)
    if mapping.uint64 == "long" and expression in NO_LONGS:
        ids = set()  # no long is as large
    assert passing(expression, batch) == ids
    assert passing(f"NOT NOT ({expression})", batch) == ids
    # a batch may be a part of larger columns
    assert passing(expression, batch.slice(1, 2)) == ids & {1, 2}
    assert passing(expression, batch.slice(0, 0)) == set()


@pytest.mark.parametrize(
    ("expression", "parameters", "ids"),
    [
        ("id = %0", ("1",), {1}),
        ("id BETWEEN %1 AND %0", ("3", "0x2"), {2, 3}),
        ("%0 < id", ("1.5",), {2, 3}),
        ("b = %0", ("true",), {0, 3}),
        ("s = %0", (" 'it''s' ",), {0}),
        ("s LIKE %10", ("",) * 10 + ("'%0%'",), {1}),
        ("color = %0", ("'GREEN'",), {0}),
        ("color = %0", ("GREEN",), {0}),
        ("color = %0", ("7",), {0}),
        ("raw = %0", ("&hex(07)",), {3}),
    ],
)
def test_parameters(expression: str, parameters: tuple[str, ...], ids: set[int]) -> None:
    batch = batch_of(ROWS, Mapping())
    assert passing(expression, batch, *parameters) == ids
    made = parse_filter(expression, parameters, ALL)
    assert (made.expression, made.parameters) == (expression, parameters)
    # tasks get it from the driver
    sent = pickle.loads(pickle.dumps(made))
    assert sent == made
    assert sent.evaluate(batch).tolist() == made.evaluate(batch).tolist()


@pytest.mark.parametrize(
    ("expression", "fields"),
    [
        ("id = 1 AND b = TRUE OR id = 2", {"id", "b"}),
        ("point.x = 1 AND point.y > i64", {"point.x", "point.y", "i64"}),
        ("line.points[0].x BETWEEN 1 AND 2", {"line.points"}),
        ("line.grid[0][1] = 1", {"line.grid"}),
        ("u._d = 1", {"u.discriminator"}),
        ("stamp.sec = 1 AND bits.a = 0", {"stamp", "bits.a"}),
        ("color = RED", {"color"}),
        ("NOT s LIKE 'a%'", {"s"}),
    ],
)
def test_fields_that_are_needed_are_enough(expression: str, fields: set[str]) -> None:
    made = parse_filter(expression, (), ALL)
    assert made.fields == fields
    batch = batch_of(ROWS, Mapping())
    columns = {field.split(".")[0] for field in fields}
    projected = batch.select([name for name in batch.schema.names if name in columns])
    assert made.evaluate(projected).tolist() == made.evaluate(batch).tolist()


def test_a_batch_may_have_fewer_fields_in_other_order() -> None:
    made = parse_filter("point.y = 2", (), ALL)
    point = pa.array([{"y": 2.0}, {"y": 1.0}, None], pa.struct([("y", pa.float64())]))
    assert made.evaluate(pa.record_batch([point], ["point"])).tolist() == [True, False, False]
    with pytest.raises(UsageError, match=r"the batch has no column 'point'"):
        made.evaluate(pa.record_batch([point], ["other"]))
    with pytest.raises(UsageError, match=r"the batch has no column 'point\.x'"):
        parse_filter("point.x = 2", (), ALL).evaluate(pa.record_batch([point], ["point"]))


def test_columns_of_the_wider_types_that_spark_may_want() -> None:
    columns = {
        "s": pa.array(["ab", "b", None], pa.large_string()),
        "i64": pa.array([1, 2, None], pa.timestamp("us", "UTC")),
        "id": pa.array([1, 2, 3], pa.date32()),
        "f": pa.array([1.5, 2.5, 3.5], pa.float64()),
        "raw": pa.array([b"a", b"bc", None], pa.large_binary()),
        "few": pa.array([[1], [2, 3], None], pa.large_list(pa.int64())),
        "color": pa.array(["GREEN", "NONE", None], pa.large_string()),
    }
    batch = pa.record_batch(list(columns.values()), list(columns))
    for expression, wanted in {
        "s LIKE 'a%' AND s <> 'b'": [True, False, False],
        "i64 > 1": [False, True, False],
        "id > 1": [False, True, True],
        "f > 2": [False, True, True],
        "raw = &hex(6263) AND raw[1] = 99": [False, True, False],
        "few[1] = 3": [False, True, False],
        "color >= RED": [True, False, False],
        "NOT color >= RED": [False, False, False],
    }.items():
        assert parse_filter(expression, (), ALL).evaluate(batch).tolist() == wanted, expression


FIELDS = "id, b, o, i8, i64, u64, f, d, ..."
NOT_LIKE = "expected BETWEEN; write NOT (field LIKE pattern)"
OPERAND = "expected a field or a number or a 'text' or a parameter (%0)"


@pytest.mark.parametrize(
    ("expression", "parameters", "message"),
    [
        ("", (), "it is empty; leave it out to have all samples"),
        ("idd = 1", (), "character 1, idd: type m::All has no field 'idd'; did you mean 'id'?"),
        ("id = 1 AND zz = 1", (), f"character 12, zz: type m::All has no field 'zz'; there are {FIELDS}"),
        ("point.z = 1", (), "character 1, point.z: 'point' has no field 'z'; there are x, y"),
        ("point = 1", (), "character 1, point: 'point' is a struct: compare a field of it"),
        ("u = 1", (), "character 1, u: 'u' is a union: compare a field of it"),
        ("map = 1", (), "character 1, map: 'map' is a map: filters cannot compare its entries"),
        ("few = 1", (), "character 1, few: 'few' is a sequence or array: compare an element of it, such as few[0]"),
        ("few[2] = 1", (), "character 1, few[2]: 'few' has at most 2 elements: no [2]"),
        ("line.grid[2][0] = 1", (), "character 1, line.grid[2][0]: 'line.grid' has 2 elements: no [2]"),
        ("id[0] = 1", (), "character 1, id[0]: 'id' is no sequence or array: it has no [0]"),
        ("id.x = 1", (), "character 1, id.x: 'id' has no fields"),
        ("id = 'a'", (), "character 6, 'a': 'id' is an integer, 'a' is a string"),
        ("id = TRUE", (), "character 6, TRUE: 'id' is an integer, TRUE is a boolean"),
        ("id = s", (), "character 6, s: 'id' is an integer, 's' is a string"),
        ("color = 1.5", (), "character 9, 1.5: 'color' is an enum, 1.5 is a float"),
        ("color = d", (), "character 9, d: 'color' is an enum, 'd' is a float"),
        ("color = 'GREY'", (), "character 9, 'GREY': 'GREY' is no literal of enum m::Color; did you mean 'GREEN'?"),
        ("color = GREY", (), "character 9, GREY: 'GREY' is no literal of enum m::Color; did you mean 'GREEN'?"),
        ("b = 1", (), "character 5, 1: 'b' is a boolean, 1 is an integer; write TRUE or FALSE"),
        ("b > FALSE", (), "character 5, FALSE: a boolean can be compared by = and <> only"),
        ("raw = 'a'", (), "character 7, 'a': 'raw' is octets, 'a' is a string"),
        ("raw = &hex(1)", (), "character 7, &hex(1): octets are pairs of hexadecimal digits, as in &hex(07 08)"),
        ("s = RED", (), f"character 5, RED: type m::All has no field 'RED'; there are {FIELDS}"),
        ("id LIKE 'a'", (), "character 1, id: LIKE needs a string field before it, id is an integer"),
        ("s LIKE ws", (), "character 8, ws: LIKE needs a pattern in quotes, such as 'a%'"),
        ("1 BETWEEN 1 AND 2", (), "character 1, 1: BETWEEN needs a field before it"),
        ("1 = 1", (), "character 1, 1: a comparison needs a field of the type"),
        ("id = 18446744073709551616", (), "character 6, 18446744073709551616: an integer has at most 64 bits"),
        ("id = %0", (), "character 6, %0: the parameter is missing: none are given"),
        ("id = %2", ("1",), "character 6, %2: the parameter is missing: 1 is given"),
        ("s = %0", ("abc",), "character 5, %0: abc is no literal: a text must be in quotes"),
        ("s = %0", ("a b",), "character 5, %0: its value 'a b' is no literal: a text must be in quotes within it"),
        ("id = %0", ("%0",), "character 6, %0: its value '%0' is no literal: a text must be in quotes within it"),
        ("id = %0", ("'1'",), "character 6, %0: 'id' is an integer, %0 = '1' is a string"),
        ("color=%0", ("X",), "character 7, %0: 'X' is no literal of enum m::Color; there are RED, GREEN, BLUE, DARK"),
        ("id = ", (), f"character 6, the end: it cannot stand here; {OPERAND}"),
        ("id == 1", (), f"character 5, =: it cannot stand here; {OPERAND}"),
        ("(id = 1", (), "character 8, the end: it cannot stand here; expected ')'"),
        ("id = 1)", (), "character 7, ): it cannot stand here; expected the end"),
        ("id = 'a", (), "character 6, 'a: it cannot stand here; expected a closing quote"),
        ("s NOT LIKE 'k%'", (), f"character 7, LIKE: it cannot stand here; {NOT_LIKE}"),
        ("id 1", (), "character 4, 1: it cannot stand here; expected a comparison or LIKE or BETWEEN or NOT"),
    ],
)  # fmt: skip
def test_errors_of_a_filter_name_the_fault(
    expression: str, parameters: tuple[str, ...], message: str
) -> None:
    with pytest.raises(FilterError) as raised:
        parse_filter(expression, parameters, ALL)
    assert str(raised.value) == f"filter: {message}"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("NOT " * 100 + "id = 1", "nested more than 64 deep"),
        ("(id = 2 OR " * 100 + "id = 1" + ")" * 100, "nested more than 64 deep"),
        ("(" * 2_000 + "id = 1" + ")" * 2_000, None),
        ("id = 1" + " OR id = 1" * 408, None),
        ("id = 1" + " " * STRING_MAX, "it has 4102 characters, more than 4096"),
        ("NOT " * 1_000, "it cannot stand here"),
        ("id = " + "9" * 4_000, "an integer has at most 64 bits"),
        ("id < 1" + "0" * 4_000 + ".0", None),
        ("line.points" + "[0]" * 1_000 + " = 1", "is no sequence or array"),
        ("id[" + "9" * 4_000 + "] = 1", "is no sequence or array"),
        ("s LIKE '" + "%a" * 2_000 + "'", None),
    ],
)
def test_hostile_sizes(expression: str, message: str | None) -> None:
    batch = batch_of(ROWS, Mapping())
    if message is None:
        parse_filter(expression, (), ALL).evaluate(batch)
    else:
        with pytest.raises(FilterError, match=message):
            parse_filter(expression, (), ALL)


def test_too_many_parameters() -> None:
    with pytest.raises(FilterError, match="it has 101 parameters, more than 100"):
        parse_filter("id = %0", ("1",) * 101, ALL)


@pytest.mark.parametrize("index", [(1 << 31) - 1, 1 << 63, 10**30])
def test_an_index_that_no_sequence_has(index: int) -> None:
    with pytest.raises(FilterError, match="has at most 2147483647 elements"):
        parse_filter(f"points[{index}].x = 1", (), LINE)


def test_half_a_character_is_no_filter() -> None:
    for expression, parameters in (("name = '\ud800'", ()), ("name = %0", ("'\ud800'",))):
        with pytest.raises(FilterError, match="half a surrogate pair"):
            parse_filter(expression, parameters, LINE)
