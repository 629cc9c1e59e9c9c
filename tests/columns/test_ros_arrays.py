"""Images and point clouds as NumPy arrays, against an implementation that takes one value at a time."""

from __future__ import annotations

import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Row

from spark_rtps.columns.ros_arrays import image_array, pointcloud_points
from spark_rtps.transport.errors import UsageError
from spark_rtps.transport.types.arrow import arrow_schema
from spark_rtps.transport.types.ros import ros_type
from tests.support.campaigns import seeds

IMAGE = arrow_schema(ros_type("sensor_msgs/msg/Image"))
CLOUD = arrow_schema(ros_type("sensor_msgs/msg/PointCloud2"))
HEADER = {"stamp": {"sec": 0, "nanosec": 0}, "frame_id": "f"}
CODES = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "f", 8: "d"}


def image(
    encoding: str, code: str, channels: int, *, big: bool, more: int, rng: random.Random
) -> dict[str, Any]:
    height, width = rng.randrange(1, 6), rng.randrange(1, 6)
    step = width * channels * struct.calcsize(code) + more
    return {
        "header": HEADER,
        "height": height,
        "width": width,
        "encoding": encoding,
        "is_bigendian": int(big),
        "step": step,
        "data": rng.randbytes(height * step),
    }


def plain_pixels(message: dict[str, Any], code: str, channels: int) -> list[Any]:
    order, size = "<>"[message["is_bigendian"]], struct.calcsize(code)
    rows = []
    for y in range(message["height"]):
        row = []
        for x in range(message["width"]):
            at = y * message["step"] + x * channels * size
            values = list(struct.unpack_from(f"{order}{channels}{code}", message["data"], at))
            row.append(values if channels > 1 else values[0])
        rows.append(row)
    return rows


def same(found: Any, expected: Any) -> None:
    """NaN is NaN."""
    np.testing.assert_array_equal(found, np.array(expected, found.dtype))


@pytest.mark.parametrize(
    ("encoding", "code", "channels"),
    [
        ("rgb8", "B", 3),
        ("bgra8", "B", 4),
        ("rgb16", "H", 3),
        ("mono8", "B", 1),
        ("mono16", "H", 1),
        ("bayer_rggb8", "B", 1),
        ("yuv422", "B", 2),
        ("8UC3", "B", 3),
        ("8SC", "b", 1),
        ("16SC2", "h", 2),
        ("32SC1", "i", 1),
        ("32FC1", "f", 1),
        ("64FC4", "d", 4),
    ],
)
@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("more", [0, 5])
def test_images(encoding: str, code: str, channels: int, big: bool, more: int) -> None:
    rng = random.Random(f"{encoding}{big}{more}")
    messages = [image(encoding, code, channels, big=big, more=more, rng=rng) for _ in range(4)]
    table = pa.Table.from_pylist(messages, schema=IMAGE)
    many = image_array(table)
    for message, pixels in zip(messages, many, strict=True):
        same(pixels, plain_pixels(message, code, channels))
        assert not pixels.flags.writeable
        same(image_array(message), plain_pixels(message, code, channels))
        same(image_array(Row(**message)), plain_pixels(message, code, channels))
    column = table.to_struct_array()
    for pixels, message in zip(image_array(column.chunk(0).slice(1, 2)), messages[1:3], strict=True):
        same(pixels, plain_pixels(message, code, channels))
    assert len(image_array(column)) == 4
    same(image_array(column[2]), plain_pixels(messages[2], code, channels))


def test_images_view_the_column() -> None:
    rng = random.Random(1)
    batch = pa.RecordBatch.from_pylist([image("rgb8", "B", 3, big=False, more=0, rng=rng)], schema=IMAGE)
    (pixels,) = image_array(batch)
    address = batch.column("data").buffers()[2].address
    assert pixels.__array_interface__["data"][0] == address


def test_null_and_none() -> None:
    struct_type = pa.struct(list(IMAGE))
    message = image("mono8", "B", 1, big=False, more=0, rng=random.Random(2))
    found = image_array(pa.array([None, message, None], struct_type))
    assert found[0] is None
    assert found[2] is None
    same(found[1], plain_pixels(message, "B", 1))
    assert image_array(None) is None
    assert image_array(pa.array([], struct_type)) == []


def cloud(rng: random.Random, *, height: int, big: bool, more: int) -> dict[str, Any]:
    fields, at = [], rng.randrange(3)
    for name in ("x", "y", "intensity", "ring", "covariance"):
        datatype, count = rng.choice(list(CODES)), 3 if name == "covariance" else 1
        fields.append({"name": name, "offset": at, "datatype": datatype, "count": count})
        at += count * struct.calcsize(CODES[datatype]) + rng.randrange(3)
    width, point_step = rng.randrange(1, 6), at + 2
    row_step = width * point_step + more
    return {
        "header": HEADER,
        "height": height,
        "width": width,
        "fields": fields,
        "is_bigendian": big,
        "point_step": point_step,
        "row_step": row_step,
        "data": rng.randbytes(height * row_step),
        "is_dense": True,
    }


def plain_values(message: dict[str, Any], field: dict[str, Any]) -> list[Any]:
    order, found = "<>"[message["is_bigendian"]], []
    for y in range(message["height"]):
        row: list[Any] = []
        for x in range(message["width"]):
            at = y * message["row_step"] + x * message["point_step"] + field["offset"]
            values = struct.unpack_from(
                f"{order}{field['count']}{CODES[field['datatype']]}", message["data"], at
            )
            row.append(values if field["count"] > 1 else values[0])
        found.append(row)
    return found if message["height"] > 1 else found[0]


@pytest.mark.parametrize("seed", seeds(20))
@pytest.mark.parametrize("height", [1, 3])
@pytest.mark.parametrize("big", [False, True])
def test_points(seed: int, height: int, big: bool) -> None:
    rng = random.Random(f"{seed}{height}{big}")
    messages = [cloud(rng, height=height, big=big, more=rng.choice((0, 7))) for _ in range(3)]
    table = pa.Table.from_pylist(messages, schema=CLOUD)
    for points, message in zip(pointcloud_points(table), messages, strict=True):
        for field in message["fields"]:
            same(points[field["name"]], plain_values(message, field))
            same(pointcloud_points(message)[field["name"]], plain_values(message, field))


@pytest.mark.parametrize(
    ("changes", "output"),
    [
        ({"encoding": "jpeg"}, "encoding 'jpeg' is not known"),
        ({"encoding": "8FC1"}, "is not known"),
        ({"encoding": "8UC0"}, "is not known"),
        ({"data": b"123"}, "has 3 bytes"),
        ({"height": None, "step": None}, "the message has no height, step: null"),
        ({"step": 1, "height": 2, "width": 2}, "step=1 is less than the 2 bytes of a row"),
    ],
)
def test_images_that_cannot_be(changes: dict[str, bytes | int | str | None], output: str) -> None:
    message = image("mono8", "B", 1, big=False, more=0, rng=random.Random(3)) | {
        "height": 3,
        "width": 3,
        "step": 3,
    }
    with pytest.raises(UsageError, match=output):
        image_array({**message, **changes})
    with pytest.raises(UsageError, match=output):
        image_array(pa.RecordBatch.from_pylist([{**message, **changes}], schema=IMAGE))


@pytest.mark.parametrize(
    ("changes", "output"),
    [
        ({"fields": None}, "the message has no fields: null"),
        (
            {"fields": [{"name": "x", "offset": None, "datatype": 1, "count": 1}]},
            "point field has no offset: null",
        ),
        ({"point_step": 2}, "does not lie in the 2 bytes of a point"),
        ({"fields": [{"name": "x", "offset": 0, "datatype": 9, "count": 1}]}, "unknown datatype 9"),
        (
            {"fields": [{"name": "x", "offset": 0, "datatype": 1, "count": 1}] * 2},
            "two point fields have the same name",
        ),
        ({"data": b""}, "has 0 bytes"),
        ({"row_step": 1}, "row_step=1 is less than"),
        ({"point_step": (1 << 32) - 1}, "point_step=4294967295 is more than 2147483647"),
    ],
)
def test_clouds_that_cannot_be(changes: dict[str, Any], output: str) -> None:
    with pytest.raises(UsageError, match=output):
        pointcloud_points({**cloud(random.Random(4), height=2, big=False, more=0), **changes})


def test_invalid_messages_are_none_or_refused() -> None:
    message = image("mono8", "B", 1, big=False, more=0, rng=random.Random(3)) | {"data": None}
    assert image_array(message) is None
    assert image_array(pa.RecordBatch.from_pylist([message], schema=IMAGE)) == [None]
    with pytest.raises(UsageError, match="the message lacks encoding"):
        image_array(cloud(random.Random(5), height=1, big=False, more=0) | {"step": 1})
    with pytest.raises(UsageError, match="not int64"):
        image_array(pa.array([1]))
    with pytest.raises(UsageError, match="the messages lack fields, point_step, row_step"):
        pointcloud_points(pa.Table.from_pylist([], schema=IMAGE).to_struct_array().combine_chunks())
