"""Content filters, projections and reordered schemas on the way from the log to rows; each row keeps its metadata."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.columns.decoding import decode_range
from spark_rtps.columns.topic_plan import METADATA_SCHEMA, ContentFilter, TopicPlan
from spark_rtps.monitoring.decoding_report import read_decoding_report
from spark_rtps.options import Mode, Payload
from spark_rtps.transport.errors import MalformedSampleError
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.types.arrow import arrow_schema, projected
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.model import Enum, Member, Primitive, PrimitiveKind, Sequence, String, Struct
from spark_rtps.transport.wire.samples import DISPOSED, KEY_ONLY, Run, Samples
from tests.support.campaigns import seeds
from tests.support.stream_logs import OTHER, POINT, SOURCE, WRITER, encoded, points, run_of, write_log

RTPS = pa.field("_rtps", pa.struct(list(METADATA_SCHEMA)))
CORRUPT = pa.field("_corrupt_record", pa.binary())
INT, DOUBLE = Primitive(PrimitiveKind.INT32), Primitive(PrimitiveKind.FLOAT64)
COLOR = Enum("Color", (("RED", 0), ("GREEN", 1), ("BLUE", 2)))
POSE = Struct("Pose", (Member("x", DOUBLE, 0), Member("y", DOUBLE, 1), Member("color", COLOR, 2)))
ROBOT = Struct(
    "Robot",
    (
        Member("id", INT, 0, key=True),
        Member("name", String(), 1),
        Member("pose", POSE, 2),
        Member("path", Sequence(POSE), 3),
    ),
)


def robot(i: int) -> dict[str, Any]:
    pose = {"x": i / 2, "y": -float(i), "color": ("RED", "GREEN", "BLUE")[i % 3]}
    return {"id": i, "name": f"cpu{i}", "pose": pose, "path": [pose] * (i % 4)}


def robots(count: int) -> Samples:
    batch = pa.RecordBatch.from_pylist([robot(i) for i in range(count)], schema=arrow_schema(ROBOT))
    return Codec(ROBOT).encode_batch(batch)


def plan_of(struct: Struct, data: pa.Schema, expression: str | None, *parameters: str) -> TopicPlan:
    given = None if expression is None else ContentFilter(expression, parameters)
    return TopicPlan("T", struct.name, struct.is_keyed, Payload.CDR, struct, data, data, filter=given)


def decode(directory: Path, runs: list[Run], plan: TopicPlan) -> list[dict[str, Any]]:
    end = write_log(directory, runs)
    batches = list(decode_range(LogView(directory), Cursor(0), end, plan))
    for batch in batches:
        assert batch.schema.equals(plan.columns)
        batch.validate(full=True)
    return pa.Table.from_batches(batches, plan.columns).to_pylist()  # type: ignore[no-any-return]


class TestFilter:
    @pytest.mark.parametrize(
        ("expression", "parameters", "passes"),
        [
            ("id > 7", (), lambda r: r["id"] > 7),
            ("name LIKE 'cpu1%'", (), lambda r: r["name"].startswith("cpu1")),
            (
                "pose.x >= %0 AND pose.color = %1",
                ("2.5", "'BLUE'"),
                lambda r: r["pose"]["x"] >= 2.5 and r["id"] % 3 == 2,
            ),
            ("pose.color <> RED", (), lambda r: r["id"] % 3 != 0),
            ("id < 0", (), lambda r: False),
            ("id >= 0", (), lambda r: True),
        ],
    )
    @pytest.mark.parametrize("paths", [None, ("name",), ("pose.y", "path.x"), ("id", "pose.color")])
    def test_rows(
        self,
        tmp_path: Path,
        expression: str,
        parameters: tuple[str, ...],
        passes: Callable[[dict[str, Any]], bool],
        paths: tuple[str, ...] | None,
    ) -> None:
        data = arrow_schema(ROBOT) if paths is None else projected(arrow_schema(ROBOT), paths)
        rows = decode(tmp_path, [run_of(robots(20), 1)], plan_of(ROBOT, data, expression, *parameters))
        whole = [robot(i) for i in range(20) if passes(robot(i))]
        expected = whole if paths is None else [pick(row, data) for row in whole]
        assert rows == expected
        counters = read_decoding_report(tmp_path).counters()
        assert counters.get("cache.content_filter_dropped_sample_count", 0) == 20 - len(whole)

    def test_columns_of_other_types_than_the_filter_needs(self, tmp_path: Path) -> None:
        pose = pa.struct([("color", pa.int32()), ("y", pa.float64())])
        data = pa.schema([("pose", pose), ("id", pa.int64())])
        rows = decode(
            tmp_path, [run_of(robots(9), 1)], plan_of(ROBOT, data, "pose.color = 'GREEN' AND pose.x < 3")
        )
        assert rows == [{"pose": {"color": 1, "y": -float(i)}, "id": i} for i in (1, 4)]

    def test_samples_of_one_size(self, tmp_path: Path) -> None:
        plan = plan_of(POINT, arrow_schema(POINT), "x < 2 OR id = 9")
        runs = [run_of(encoded(points(i, 5)), i + 1) for i in (0, 5)]
        assert [row["id"] for row in decode(tmp_path, runs, plan)] == [0, 1, 2, 3, 9]

    def test_a_range_that_is_read_again_counts_once(self, tmp_path: Path) -> None:
        plan = plan_of(POINT, arrow_schema(POINT), "id < 2")
        end = write_log(tmp_path, [run_of(encoded(points(0, 10)), 1)])
        for start in (0, 4, 0):
            list(decode_range(LogView(tmp_path), Cursor(0, start), end, plan))
        assert read_decoding_report(tmp_path).filtered == 8

    def test_a_sample_that_the_filter_cannot_read_is_malformed(self, tmp_path: Path) -> None:
        bad = robots(3)
        bad.data[bad.all_offsets()[1] + 12] = 0xFF  # in the name
        plan = plan_of(ROBOT, projected(arrow_schema(ROBOT), ["id"]), "name <> 'cpu2'")
        assert [row["id"] for row in decode(tmp_path, [run_of(bad, 1)], plan)] == [0]
        report = read_decoding_report(tmp_path)
        assert (report.filtered, sum(m.count for m in report.malformed.values())) == (1, 1)

    def test_failfast(self, tmp_path: Path) -> None:
        bad = robots(3)
        bad.data[bad.all_offsets()[1] + 12] = 0xFF
        plan = plan_of(ROBOT, projected(arrow_schema(ROBOT), ["id"]), "name <> 'cpu2'")
        with pytest.raises(MalformedSampleError, match="sample 2 of writer"):
            decode(tmp_path, [run_of(bad, 1)], replace(plan, mode=Mode.FAILFAST))


def pick(value: Any, shape: pa.Schema | pa.DataType) -> Any:
    """What a projection leaves of a value."""
    if isinstance(shape, pa.Schema) or pa.types.is_struct(shape):
        fields = [
            shape.field(i) for i in range(len(shape) if isinstance(shape, pa.Schema) else shape.num_fields)
        ]
        return {field.name: pick(value[field.name], field.type) for field in fields}
    if pa.types.is_list(shape):
        return [pick(element, shape.value_type) for element in value]
    return value


class TestProjection:
    @pytest.mark.parametrize(
        "data",
        [
            pa.schema([("path", pa.list_(pa.struct([("y", pa.float64())]))), ("id", pa.int32())]),
            pa.schema(
                [("pose", pa.struct([("color", pa.string()), ("x", pa.float64())])), ("name", pa.string())]
            ),
            pa.schema([("name", pa.string())]),
        ],
        ids=["a list's fields", "a struct's, in another order", "one"],
    )
    def test_columns(self, tmp_path: Path, data: pa.Schema) -> None:
        rows = decode(tmp_path, [run_of(robots(12), 1)], plan_of(ROBOT, data, None))
        assert rows == [pick(robot(i), data) for i in range(12)]

    def test_keys_of_ended_instances(self, tmp_path: Path) -> None:
        data = pa.schema([("pose", pa.struct([("x", pa.float64())])), ("id", pa.int32())])
        plan = replace(plan_of(ROBOT, data, None), columns=data.append(RTPS))
        key = pa.RecordBatch.from_pylist([robot(1)], schema=arrow_schema(ROBOT))
        payload = np.frombuffer(Codec(ROBOT).encode_keys(key).payload(0), np.uint8)
        runs = [run_of(robots(1), 1), Run.single(WRITER, 2, payload, flags=DISPOSED | KEY_ONLY)]
        rows = decode(tmp_path, runs, plan)
        assert [(row["pose"], row["id"]) for row in rows] == [({"x": 0.0}, 0), (None, 1)]


class TestEverySampleInItsPlace:
    """Random runs of good, malformed and filtered samples and ends of instances, against one sample after the other."""

    @pytest.mark.parametrize("seed", seeds(40))
    def test_against_a_reference(self, tmp_path: Path, seed: int) -> None:
        chance = random.Random(seed)
        mode = chance.choice([Mode.DROPMALFORMED, Mode.PERMISSIVE])
        has_metadata, filters = chance.random() < 0.7, chance.random() < 0.6
        runs, expected = [], []
        malformed = filtered = 0
        for sn in range(1, chance.randrange(2, 60)):
            writer = chance.choice([WRITER, OTHER])
            kind = chance.choice(["good", "good", "run", "cut", "strange", "key", "nothing"])
            about = {"sn": sn * 10, "writer": str(writer)}
            if kind in ("good", "run"):
                first, count = chance.randrange(100), 1 if kind == "good" else chance.randrange(1, 6)
                runs.append(run_of(encoded(points(first, count)), sn * 10, writer=writer))
                for i in range(count):
                    if filters and (first + i) % 100 < 50:
                        filtered += 1
                        continue
                    row = {"id": first + i, "x": (first + i) / 2, "bad": None}
                    expected.append({**row, **about, "sn": sn * 10 + i, "state": "ALIVE"})
            elif kind in ("cut", "strange"):
                bad = b"\0\1\0\0\7" if kind == "cut" else b"\x77\x77\0\0" + bytes(16)
                runs.append(Run.single(writer, sn * 10, np.frombuffer(bad, np.uint8), timestamp=SOURCE))
                malformed += 1
                if mode is Mode.PERMISSIVE:
                    expected.append({"id": None, "x": None, "bad": bad, **about, "state": "ALIVE"})
            else:
                key = chance.randrange(100)
                payload = Codec(POINT).encode_keys(points(key, 1)).payload(0) if kind == "key" else b""
                flags = DISPOSED | (KEY_ONLY if kind == "key" else 0)
                runs.append(Run.single(writer, sn * 10, np.frombuffer(payload, np.uint8), flags=flags))
                if has_metadata:
                    row = {"id": key if kind == "key" else None, "x": None, "bad": None}
                    expected.append({**row, **about, "state": "NOT_ALIVE_DISPOSED"})
        data = arrow_schema(POINT)
        plan = plan_of(POINT, data, "id >= 50 AND id < 100 OR id >= 150" if filters else None)
        columns = pa.schema([CORRUPT, *data, RTPS] if has_metadata else [*data, CORRUPT])
        plan = replace(plan, mode=mode, corrupt=CORRUPT.name, columns=columns)
        rows = decode(tmp_path, runs, plan)
        found = [
            {"id": row["id"], "x": row["x"], "bad": row["_corrupt_record"], **reported(row.get("_rtps"))}
            for row in rows
        ]
        if not has_metadata:
            expected = [{name: row[name] for name in ("id", "x", "bad")} for row in expected]
        assert found == expected
        report = read_decoding_report(tmp_path)
        assert sum(m.count for m in report.malformed.values()) == malformed
        assert report.filtered == filtered


def reported(rtps: dict[str, Any] | None) -> dict[str, Any]:
    if rtps is None:
        return {}
    return {"sn": rtps["sequence_number"], "writer": rtps["writer"], "state": rtps["instance_state"]}
