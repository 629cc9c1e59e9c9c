"""``event_time``: the TIMESTAMP column that a watermark can be put on, of a time somewhere in the message."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.columns.decoding import decode_range
from spark_rtps.columns.topic_plan import TopicPlan, plan_reading, schema_to_read, topic_type
from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.transport.errors import OptionError
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.types.arrow import arrow_schema
from spark_rtps.transport.types.ros import ros_type
from spark_rtps.transport.wire.samples import Run
from tests.support.stream_logs import WRITER, encoded, run_of, write_log

IMU = ros_type("sensor_msgs/msg/Temperature")


def planned(given_columns: pa.Schema | None = None, **options: str) -> TopicPlan:
    given = {"topic": "t", "type": "sensor_msgs/msg/Temperature", "event_time": "header.stamp", **options}
    settings = parse_options(given, AppliesTo.READ)
    found = topic_type(settings)
    return plan_reading(settings, given_columns or schema_to_read(settings, found), found)


def message(second: int, nanosecond: int) -> dict[str, Any]:
    stamp = {"sec": second, "nanosec": nanosecond}
    return {"header": {"stamp": stamp, "frame_id": "f"}, "temperature": 1.5, "variance": 0.0}


def rows(directory: Path, plan: TopicPlan, runs: list[Run]) -> list[dict[str, Any]]:
    end = write_log(directory, runs)
    batches = list(decode_range(LogView(directory), Cursor(0), end, plan))
    assert all(batch.schema.equals(plan.columns) for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("time", ["struct", "timestamp"])
def test_the_stamp_is_a_timestamp(tmp_path: Path, time: str) -> None:
    messages = [message(1_700_000_000, 123_456_789), message(-1, 999_999_999)]
    batch = pa.RecordBatch.from_pylist(messages, schema=arrow_schema(IMU))
    run = run_of(encoded(batch, IMU), 1)
    found = rows(tmp_path, planned(time=time, metadata="true"), [run])
    assert [row["event_time"] for row in found] == [
        datetime(2023, 11, 14, 22, 13, 20, 123_456, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ]
    assert [row["temperature"] for row in found] == [1.5, 1.5]
    assert [*found[0]] == ["header", "temperature", "variance", "event_time", "_rtps"]


def test_a_malformed_sample_has_no_event_time(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pylist([message(5, 0)], schema=arrow_schema(IMU))
    good = run_of(encoded(batch, IMU), 1)
    bad = Run.single(WRITER, 2, np.frombuffer(b"\0\1\0\0\7\0\0\0", np.uint8))
    found = rows(tmp_path, planned(mode="permissive"), [good, bad])
    assert [row["event_time"] for row in found] == [datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC), None]


@pytest.mark.parametrize(
    ("options", "output"),
    [
        ({"event_time": "temperature"}, "is not a time"),
        ({"event_time": "header"}, "is not a time"),
        ({"event_time": "header.time"}, "there is no member 'time'"),
        ({"columns": "temperature"}, "there is no member 'header'"),
    ],
)
def test_an_invalid_event_time_is_refused(options: dict[str, str], output: str) -> None:
    with pytest.raises(OptionError, match=output):
        planned(**options)


def test_a_schema_declares_it() -> None:
    columns = arrow_schema(IMU)
    with pytest.raises(OptionError, match="event_time TIMESTAMP"):
        planned(columns)
    assert planned(columns.append(pa.field("event_time", pa.timestamp("us", "UTC")))).event_time
