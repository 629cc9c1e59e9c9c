"""ROS 2's images and point clouds as NumPy arrays, which view the samples' bytes.

A column of messages is read as a whole. Only the members that describe a message's layout become Python values; the
data stay in Arrow's buffers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..transport.errors import UsageError
from ..transport.wire.samples import U8

AnyArray: TypeAlias = npt.NDArray[Any]
#: One message, or a column of them.
Messages: TypeAlias = (
    "Mapping[str, Any] | tuple[Any, ...] | pa.Scalar | pa.Array | pa.ChunkedArray | pa.RecordBatch"
)

#: Encodings of sensor_msgs/image_encodings.hpp: the format of a value, and the number of values of a pixel.
_COLORS: Final = {
    **{f"{name}{8 * size}": (f"u{size}", 3) for name in ("rgb", "bgr") for size in (1, 2)},
    **{f"{name}{8 * size}": (f"u{size}", 4) for name in ("rgba", "bgra") for size in (1, 2)},
    **{f"mono{8 * size}": (f"u{size}", 1) for size in (1, 2)},
    **{
        f"bayer_{name}{8 * size}": (f"u{size}", 1)
        for name in ("rggb", "bggr", "gbrg", "grbg")
        for size in (1, 2)
    },
    **dict.fromkeys(("yuv422", "yuv422_yuy2", "uyvy", "yuyv"), ("u1", 2)),
}
#: OpenCV's names of encodings: 8UC3, 32FC1, 16SC.
_MATRIX: Final = re.compile(r"(8|16|32|64)([USF])C([0-9]{0,3})")
_MATRIX_KINDS: Final = {"U": "u", "S": "i", "F": "f"}
_MATRIX_FORMATS: Final = frozenset({"u1", "i1", "u2", "i2", "i4", "f4", "f8"})
#: The largest size of an element in NumPy.
_POINT_STEP_MAX: Final = (1 << 31) - 1
#: sensor_msgs/msg/PointField.
_POINT_FIELDS: Final = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}

_IMAGE: Final = ("height", "width", "encoding", "is_bigendian", "step")
_CLOUD: Final = ("height", "width", "fields", "is_bigendian", "point_step", "row_step")


def image_array(image: Messages) -> Any:
    """sensor_msgs/msg/Image as NumPy: (height, width) with one channel, else (height, width, channels).

    ``image`` is one message, as a Row, a mapping or an Arrow scalar; or many of them, as an Arrow column of structs or
    a table whose columns are the message's members, which give a list with None for null::

        pixels = image_array(df.first())
        frames = image_array(df.limit(10).toArrow())

    The arrays view the data, in the byte order and the row length (``step``) that the message says, and are read-only.
    Encodings are the colours, grey levels, Bayer patterns and packed YUV of sensor_msgs, and OpenCV's (``8UC3``,
    ``32FC1``).

    Raises UsageError for other encodings, and for data that are shorter than the message says.
    """
    return _each(image, _IMAGE, _image)


def pointcloud_points(cloud: Messages) -> Any:
    """sensor_msgs/msg/PointCloud2 as a structured NumPy array, whose fields are the cloud's: ``points["x"]``.

    An organized cloud has the shape (height, width), all others (width,). ``cloud`` is as for :func:`image_array`::

        for points in pointcloud_points(df.limit(10).toArrow()):
            print(points["x"].mean())

    The arrays view the data, with the offsets, ``point_step``, ``row_step`` and byte order that the message says, and
    are read-only. A field with a ``count`` above 1 has that many values.

    Raises UsageError for fields that lie outside a point, and for data that are shorter than the message says.
    """
    return _each(cloud, _CLOUD, _points)


def _image(described: Mapping[str, Any], data: U8) -> AnyArray:
    height, width, step = int(described["height"]), int(described["width"]), int(described["step"])
    form, channels = _pixel(str(described["encoding"]))
    dtype = np.dtype(form).newbyteorder(">" if described["is_bigendian"] else "<")
    row = width * channels * dtype.itemsize
    _check(data, height, row, step, "step")
    strides = (step, channels * dtype.itemsize, dtype.itemsize)
    pixels: AnyArray = np.ndarray((height, width, channels), dtype, data, strides=strides)
    return pixels[:, :, 0] if channels == 1 else pixels


def _pixel(encoding: str) -> tuple[str, int]:
    """The format of a value, and the number of values of a pixel."""
    if encoding in _COLORS:
        return _COLORS[encoding]
    if found := _MATRIX.fullmatch(encoding):
        form = f"{_MATRIX_KINDS[found[2]]}{int(found[1]) // 8}"
        if form in _MATRIX_FORMATS and found[3] != "0":
            return form, int(found[3] or 1)
    raise UsageError(
        f"image encoding {encoding!r} is not known; known are {', '.join(_COLORS)}, and OpenCV's 8UC3"
    )


def _points(described: Mapping[str, Any], data: U8) -> AnyArray:
    height, width = int(described["height"]), int(described["width"])
    point_step, row_step = int(described["point_step"]), int(described["row_step"])
    order: Literal[">", "<"] = ">" if described["is_bigendian"] else "<"
    if point_step > _POINT_STEP_MAX:
        raise UsageError(f"point_step={point_step} is more than {_POINT_STEP_MAX}")
    names, formats, offsets = [], [], []
    for field in described["fields"]:
        _known(field, ("name", "offset", "datatype", "count"), "point field")
        name, offset, count = str(field["name"]), int(field["offset"]), int(field["count"]) or 1
        if field["datatype"] not in _POINT_FIELDS:
            raise UsageError(f"point field {name!r} has the unknown datatype {field['datatype']}")
        form = np.dtype(_POINT_FIELDS[field["datatype"]]).newbyteorder(order)
        if offset + count * form.itemsize > point_step:
            raise UsageError(f"point field {name!r} does not lie in the {point_step} bytes of a point")
        names.append(name)
        formats.append(form if count == 1 else np.dtype((form, (count,))))
        offsets.append(offset)
    if len(set(names)) < len(names):
        raise UsageError(f"two point fields have the same name: {', '.join(names)}")
    dtype = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": point_step})
    _check(data, height, width * point_step, row_step if height > 1 else width * point_step, "row_step")
    points: AnyArray = np.ndarray((height, width), dtype, data, strides=(row_step, point_step))
    return points if height > 1 else points.reshape(-1)


def _check(data: U8, rows: int, row: int, step: int, name: str) -> None:
    """Raise UsageError if the data end before the last of the rows of ``row`` bytes, which are ``step`` bytes apart."""
    if step < row and rows > 1:
        raise UsageError(f"{name}={step} is less than the {row} bytes of a row")
    needed = (rows - 1) * step + row if rows else 0
    if len(data) < needed:
        raise UsageError(f"the data has {len(data)} bytes, and its rows {needed}")


# --- messages ---------------------------------------------------------------------------------------

_Made = TypeVar("_Made")


def _each(messages: Any, members: Sequence[str], make: Callable[[Mapping[str, Any], U8], _Made]) -> Any:
    if isinstance(messages, pa.Table):
        return [each for batch in messages.to_batches() for each in _each(batch, members, make)]
    if isinstance(messages, pa.ChunkedArray):
        return [each for chunk in messages.chunks for each in _each(chunk, members, make)]
    if isinstance(messages, pa.RecordBatch):
        messages = messages.to_struct_array()
    if isinstance(messages, pa.Array):
        return [
            None if described is None else make(_known(described, members), data)
            for described, data in _of_column(messages, members)
        ]
    if isinstance(messages, pa.Scalar):
        messages = messages.as_py()
    if messages is None:
        return None
    message = messages.asDict(recursive=True) if hasattr(messages, "asDict") else messages
    lacking = [name for name in (*members, "data") if name not in message]
    if lacking:
        raise UsageError(f"the message lacks {', '.join(lacking)}")
    if message["data"] is None:
        return None
    return make(_known(message, members), np.frombuffer(message["data"], np.uint8))


def _known(message: Mapping[str, Any], members: Iterable[str], what: str = "message") -> Mapping[str, Any]:
    """The message. Raises UsageError if a member is null, as it is if the writer's older type lacks the member."""
    if unknown := [name for name in members if message[name] is None]:
        raise UsageError(f"the {what} has no {', '.join(unknown)}: null")
    return message


def _of_column(column: pa.StructArray, members: Sequence[str]) -> Iterator[tuple[dict[str, Any] | None, U8]]:
    """The members that describe the layout of each message of a column, and its data; None for null."""
    if not pa.types.is_struct(column.type):
        raise UsageError(f"the column must have the type struct, not {column.type}")
    lacking = [name for name in (*members, "data") if column.type.get_field_index(name) < 0]
    if lacking:
        raise UsageError(f"the messages lack {', '.join(lacking)}")
    forms = pa.StructArray.from_arrays([column.field(name) for name in members], members)
    data = column.field("data")
    if not pa.types.is_binary(data.type):
        data = data.cast(pa.binary())
    if not len(data):
        return
    offsets = np.frombuffer(data.buffers()[1], np.int32, len(data) + 1, data.offset * 4)
    content = data.buffers()[2]
    octets = np.frombuffer(b"" if content is None else content, np.uint8)
    octets.flags.writeable = False  # the caller owns the column
    nulls = (
        column.is_null().to_numpy(zero_copy_only=False) | data.is_null().to_numpy(zero_copy_only=False)
    ).tolist()
    for i, described in enumerate(forms.to_pylist()):
        yield None if nulls[i] else described, octets[offsets[i] : offsets[i + 1]]
