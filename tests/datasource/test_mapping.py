"""Every row of the tables in docs/types.md, forth and back."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from spark_rtps.datasource.schema import plan_sink, to_spark
from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.transport.errors import TypeDefinitionError
from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.types.arrow import arrow_schema
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.idl.printer import print_idl
from spark_rtps.transport.types.mapping import Mapping
from spark_rtps.transport.types.model import Struct

TYPES = (Path(__file__).parents[2] / "docs" / "types.md").read_text(encoding="utf-8")

PRELUDE = """
module builtin_interfaces { module msg {
  @final struct Time { long sec; unsigned long nanosec; };
  @final struct Duration { long sec; unsigned long nanosec; };
}; };
enum Color { RED, GREEN, BLUE };
bitmask Flags { LOW, HIGH };
bitset Bits { bitfield<3> a; bitfield<1> b; };
@final struct Point { long x; long y; };
@final union Shape switch (long) { case 1: long side; case 2: string name; };
"""

#: What a cell of the first column means in IDL, a value of it, and what other columns it can have by option.
Choice = tuple[Mapping, str, object]
CELLS: dict[str, tuple[str, object, Choice | None]] = {
    "boolean": ("boolean m", True, None),
    "int8": ("int8 m", -5, None),
    "octet": ("octet m", 200, None),
    "uint8": ("uint8 m", 200, None),
    "short": ("short m", -300, None),
    "unsigned short": ("unsigned short m", 65_535, None),
    "long": ("long m", -70_000, None),
    "unsigned long": ("unsigned long m", 4_294_967_295, None),
    "long long": ("long long m", -(1 << 63), None),
    "unsigned long long": (
        "unsigned long long m",
        Decimal((1 << 64) - 1),
        (Mapping(uint64="long"), "bigint", (1 << 63) - 1),
    ),
    "float": ("float m", 1.5, None),
    "double": ("double m", 0.1, None),
    "long double": ("long double m", 0.1, None),
    "char": ("char m", "ä", None),
    "wchar": ("wchar m", "€", None),
    "string": ("string m", "größe", None),
    "wstring": ("wstring m", "größe 😀", None),
    "enum": ("Color m", "GREEN", (Mapping(enums="int"), "int", 1)),
    "bitmask": ("Flags m", ["LOW", "HIGH"], (Mapping(bitmasks="long"), "bigint", 2)),
    "bitset": ("Bits m", {"a": 5, "b": True}, None),
    "struct": ("Point m", {"x": 1, "y": 2}, None),
    "union": ("Shape m", {"discriminator": 2, "side": None, "name": "n"}, None),
    "@optional": ("@optional long m", None, None),
    "sequence<T>": ("sequence<long> m", [1, 2, 3], None),
    "T[N]": ("long m[2][2]", [[1, 2], [3, 4]], None),
    "sequence<octet>": ("sequence<octet> m", b"\x00\xff", None),
    "octet[N]": ("octet m[3]", b"abc", None),
    "map<K, V>": ("map<string, long> m", [("a", 1), ("b", 2)], None),
    "builtin_interfaces/Time": (
        "builtin_interfaces::msg::Time m",
        {"sec": 5, "nanosec": 1_000},
        (
            Mapping(times="timestamp"),
            "timestamp",
            datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC),
        ),
    ),
    "builtin_interfaces/Duration": (
        "builtin_interfaces::msg::Duration m",
        {"sec": -5, "nanosec": 1_000},
        (Mapping(times="timestamp"), "interval day to second", datetime.timedelta(days=-1, microseconds=7)),
    ),
}

#: What Spark calls a column of a type, as docs/types.md spells it.
SPARK_WORDS = {"BYTE": "TINYINT", "SHORT": "SMALLINT", "LONG": "BIGINT"}


def rows(heading: str) -> list[list[str]]:
    table = TYPES.split(heading, 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()[1:]]


FORTH = rows("| DDS | Spark | Arrow | |\n")
BACK = rows("| Spark | DDS | |\n")


def cells() -> list[tuple[str, str, str]]:
    return [(name, row[1], row[2]) for row in FORTH for name in re.findall(r"`([^`]+)`", row[0])]


def struct_of(declaration: str) -> Struct:
    found = parse_idl(PRELUDE + f"@final struct S {{ octet before; {declaration}; }};")["S"]
    assert isinstance(found, Struct)
    return found


def test_every_row_is_known() -> None:
    assert {name for name, _, _ in cells()} == set(CELLS)


@pytest.mark.parametrize(("name", "spark", "arrow"), cells())
def test_columns(name: str, spark: str, arrow: str) -> None:
    declaration, value, choice = CELLS[name]
    struct = struct_of(declaration)
    schema = arrow_schema(struct)
    if spark != "nullable":
        shown = to_spark(schema)["m"].dataType.simpleString().upper()
        assert shown.startswith(SPARK_WORDS.get(spark, spark).replace("STRUCT", "STRUCT<"))
        assert str(schema.field("m").type).startswith(arrow.replace("list<string>", "list<item: string>"))
    if choice is None:
        assert "=" not in next(row[3] for row in FORTH if f"`{name}`" in row[0])
    round_trip(struct, Mapping(), value)


@pytest.mark.parametrize("name", [name for name, (_, _, choice) in CELLS.items() if choice])
def test_columns_by_option(name: str) -> None:
    declaration, _, choice = CELLS[name]
    assert choice is not None
    mapping, spark, value = choice
    struct = struct_of(declaration)
    assert to_spark(arrow_schema(struct, mapping))["m"].dataType.simpleString() == spark
    output = next(row[3] for row in FORTH if f"`{name}`" in row[0])
    options = dict(re.findall(r"`(\w+)=(\w+)`", output))
    assert parse_options({"topic": "T", **options}, AppliesTo.READ).mapping == mapping
    round_trip(struct, mapping, value)


def round_trip(struct: Struct, mapping: Mapping, value: object) -> None:
    codec = Codec(struct, mapping=mapping)
    batch = pa.RecordBatch.from_pylist([{"before": 1, "m": value}] * 3, schema=arrow_schema(struct, mapping))
    for representation in (DataRepresentation.XCDR1, DataRepresentation.XCDR2):
        decoded = codec.decode_samples(codec.encode_batch(batch, representation=representation))
        assert decoded.malformed is None
        assert decoded.batch.equals(batch)


BY_SPARK = {
    "TIMESTAMP": ("timestamp", "int64"),
    "TIMESTAMP_NTZ": ("timestamp_ntz", "int64"),
    "DATE": ("date", "int32"),
    "INTERVAL DAY TO SECOND": ("interval day to second", "int64"),
    "DECIMAL(20,0)": ("decimal(20,0)", "uint64"),
}


def test_columns_that_make_a_type() -> None:
    output = {name.strip(): row[1].strip("`") for row in BACK for name in row[0].split(", ")}
    for name, (spark, dds) in BY_SPARK.items():
        assert output[name] == dds
        given = parse_options({"topic": "T", "nullable": "required"}, AppliesTo.WRITE)
        plan = plan_sink(given, StructType().add("m", spark)).plan
        assert plan.struct is not None
        assert f"{dds} m;" in print_idl(plan.struct)


@pytest.mark.parametrize(
    "spark", ["decimal(10,2)", "decimal(38,0)", "interval year to month", "variant", "void"]
)
def test_columns_that_make_none(spark: str) -> None:
    with pytest.raises(TypeDefinitionError, match="cast"):
        plan_sink(parse_options({"topic": "T"}, AppliesTo.WRITE), StructType().add("m", spark))
