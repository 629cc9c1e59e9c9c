"""Columns whose names no IDL allows, written as members of other names, and read back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructType

from spark_rtps.columns.decoding import decode_range
from spark_rtps.columns.encoding import encoder_for
from spark_rtps.columns.relabelling import relabelled
from spark_rtps.columns.topic_plan import METADATA_SCHEMA, TopicPlan
from spark_rtps.datasource.schema import plan_sink, plan_source, to_arrow, to_spark
from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.types.arrow import legal_schema
from spark_rtps.transport.types.cdr.codec import Codec
from tests.support.stream_logs import run_of, write_log

SPOT = StructType().add("x (m)", "integer").add("y (m)", "integer")
COLUMNS = (
    StructType()
    .add("avg(x)", "double")
    .add("spot", SPOT)
    .add("all spots", ArrayType(SPOT))
    .add("by-name", MapType(StringType(), SPOT))
    .add("2nd", IntegerType())
)
ROWS = [
    {
        "avg(x)": 0.5,
        "spot": {"x (m)": 1, "y (m)": 2},
        "all spots": [{"x (m)": 3, "y (m)": 4}, {"x (m)": 5, "y (m)": 6}],
        "by-name": [("a", {"x (m)": 7, "y (m)": 8})],
        "2nd": 9,
    },
    {"avg(x)": 1.5, "spot": {"x (m)": 0, "y (m)": 0}, "all spots": [], "by-name": [], "2nd": 0},
]


def batch() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(ROWS, schema=to_arrow(COLUMNS))


def values(value: Any) -> Any:
    """Without the names."""
    if isinstance(value, dict):
        return [values(v) for v in value.values()]
    return [values(v) for v in value] if isinstance(value, list | tuple) else value


def addresses(array: pa.Array) -> list[int]:
    return [buffer.address for buffer in array.buffers() if buffer is not None]


class TestRelabelled:
    def test_names_at_every_depth(self) -> None:
        given = batch()
        renamed = relabelled(given, legal_schema(given.schema))
        renamed.validate(full=True)
        assert renamed.schema.equals(legal_schema(given.schema))
        assert renamed.schema.names == ["avg_x_", "spot", "all_spots", "by_name", "c2nd"]
        assert renamed.column("spot").type.names == ["x__m_", "y__m_"]
        assert values(renamed.to_pylist()) == values(ROWS)

    def test_nothing_is_copied(self) -> None:
        given = batch()
        renamed = relabelled(given, legal_schema(given.schema))
        assert [addresses(c) for c in renamed.columns] == [addresses(c) for c in given.columns]

    def test_relabelling_a_slice(self) -> None:
        given = batch().slice(1)
        renamed = relabelled(given, legal_schema(given.schema))
        assert values(renamed.to_pylist()) == values(ROWS[1:])

    @pytest.mark.parametrize(
        "column",
        [
            pa.array(["a", None, "a"]).dictionary_encode(),
            pa.array(["a", None, "bc"], pa.large_string()),
            pa.array([b"a", None, b"bc"], pa.large_binary()),
            pa.array([[1], None, [2, 3]], pa.large_list(pa.int32())),
            pa.array([[1, 2], None, [2, 3]], pa.list_(pa.int32(), 2)),
            pa.array(
                [{"p q": ["u"]}, None, {"p q": None}], pa.struct([("p q", pa.large_list(pa.large_string()))])
            ),
        ],
        ids=lambda column: str(column.type),
    )
    def test_types_stay_as_they_are(self, column: pa.Array) -> None:
        given = pa.record_batch([column], ["a b"])
        output = pa.schema([("a_b", column.type)])
        if pa.types.is_struct(column.type):
            output = pa.schema([("a_b", pa.struct([("p_q", pa.list_(pa.string()))]))])
        elif pa.types.is_large_string(column.type):
            output = pa.schema([("a_b", pa.string())])
        renamed = relabelled(given, output)
        assert renamed.schema.names == ["a_b"]
        assert values(renamed.to_pylist()) == values(given.to_pylist())
        if not pa.types.is_struct(column.type):
            assert renamed.column(0).equals(column)

    def test_columns_of_one_name_are_distinguished_by_position(self) -> None:
        given = pa.record_batch([pa.array([1]), pa.array([2])], ["a b", "a b"])
        assert relabelled(given, legal_schema(given.schema)).to_pylist() == [{"a_b": 1, "a_b_2": 2}]


class TestWriting:
    def plan(self, columns: StructType, **options: str) -> TopicPlan:
        given = {"topic": "T", **{name.replace("__", "."): value for name, value in options.items()}}
        return plan_sink(parse_options(given, AppliesTo.WRITE), columns).plan

    def test_there_and_back(self) -> None:
        plan = self.plan(COLUMNS)
        samples, hashes = encoder_for(plan)(batch())
        assert hashes is None
        decoded = Codec(plan.struct).decode_samples(samples)
        assert decoded.malformed is None
        assert decoded.batch.schema.names == ["avg_x_", "spot", "all_spots", "by_name", "c2nd"]
        assert values(decoded.batch.to_pylist()) == values(ROWS)

    def test_keys(self) -> None:
        columns = StructType().add("the id", IntegerType(), False).add("x", "double")
        plan = self.plan(columns, key="the_id")
        given = pa.RecordBatch.from_pylist([{"the id": 7, "x": 0.5}], schema=to_arrow(columns))
        samples, hashes = encoder_for(plan)(given)
        assert Codec(plan.struct).decode_samples(samples).batch.to_pylist() == [{"the_id": 7, "x": 0.5}]
        assert hashes.tobytes() == bytes([0, 0, 0, 7]) + bytes(12)

    @pytest.mark.parametrize("text", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
    def test_other_arrow_types_than_planned(self, text: pa.DataType) -> None:
        columns = StructType().add("a text", "string").add("some bytes", "binary")
        plan = self.plan(columns)
        given = pa.record_batch(
            [pa.array(["a", "bc", "a"]).cast(text), pa.array([b"x", b"", b"yz"], pa.large_binary())],
            ["a text", "some bytes"],
        )
        samples, _ = encoder_for(plan)(given)
        assert values(Codec(plan.struct).decode_samples(samples).batch.to_pylist()) == values(
            given.to_pylist()
        )

    def test_legal_names_stay(self) -> None:
        columns = StructType().add("a", "integer").add("B_2", SPOT.fields[0].dataType)
        plan = self.plan(columns)
        assert plan.data is plan.columns or plan.data.equals(plan.columns)

    @pytest.mark.parametrize("representation", ["xcdr1", "xcdr2"])
    def test_the_representation_is_the_plans(self, representation: str) -> None:
        columns = StructType().add("a", "integer", False)
        given = pa.RecordBatch.from_pylist([{"a": 1}], schema=to_arrow(columns))
        for payload in ("cdr", "arrow"):
            plan = self.plan(columns, payload=payload, data_representation=representation)
            samples, _ = encoder_for(plan)(given)
            assert samples.payload(0)[1] == (1 if representation == "xcdr1" else 7)


class TestReading:
    """With ``.schema(frame.schema)`` the frame comes back as it was."""

    def rows(
        self, directory: Path, samples: Any, columns: StructType, **options: str
    ) -> list[dict[str, object]]:
        given = {"topic": "T", **{name.replace("__", "."): value for name, value in options.items()}}
        plan = plan_source(parse_options(given, AppliesTo.READ), columns)
        end = write_log(directory, [run_of(samples, 1)])
        batches = list(decode_range(LogView(directory), Cursor(0), end, plan))
        for found in batches:
            assert found.schema.equals(to_arrow(columns))
            found.validate(full=True)
        return pa.Table.from_batches(batches).to_pylist()  # type: ignore[no-any-return]

    def samples(self) -> Any:
        given = {"topic": "T", "nullable": "required"}
        return encoder_for(plan_sink(parse_options(given, AppliesTo.WRITE), COLUMNS).plan)(batch())[0]

    def test_back_again(self, tmp_path: Path) -> None:
        assert self.rows(tmp_path, self.samples(), COLUMNS) == ROWS

    def test_a_filter_has_the_members_names(self, tmp_path: Path) -> None:
        assert self.rows(tmp_path, self.samples(), COLUMNS, filter="c2nd > 0 AND spot.x__m_ = 1") == ROWS[:1]

    def test_topic_columns_with_metadata(self, tmp_path: Path) -> None:
        columns = StructType([*COLUMNS]).add("_rtps", to_spark(METADATA_SCHEMA))
        (first, _) = self.rows(tmp_path, self.samples(), columns)
        assert first.pop("_rtps")["instance_state"] == "ALIVE"
        assert first == ROWS[0]

    def test_no_null_where_none_is_declared(self, tmp_path: Path) -> None:
        def texts(nullable: bool) -> StructType:
            spot = StructType().add("x (m)", "integer", nullable)
            return StructType().add("all spots", ArrayType(spot, containsNull=False))

        rows = [{"all spots": [{"x (m)": 1}]}, {"all spots": [{"x (m)": None}]}]
        given = pa.RecordBatch.from_pylist(rows, schema=to_arrow(texts(nullable=True)))
        plan = plan_sink(parse_options({"topic": "T"}, AppliesTo.WRITE), texts(nullable=True)).plan
        strict = plan_source(parse_options({"topic": "T"}, AppliesTo.READ), texts(nullable=False))
        end = write_log(tmp_path, [run_of(encoder_for(plan)(given)[0], 1)])
        read = replace(strict, struct=plan.struct)
        batches = list(decode_range(LogView(tmp_path), Cursor(0), end, read))
        assert pa.Table.from_batches(batches).to_pylist() == rows[:1]
