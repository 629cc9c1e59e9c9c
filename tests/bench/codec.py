"""Decoding and encoding: ours, between payloads and Arrow columns, against other codecs, between payloads and objects.

Ours is called with a chunk as a task takes it from the stream log, theirs with one sample after the other; of each the
best call counts. The ceiling is a copy of the same bytes into new memory.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from rich.table import Table

from spark_rtps.columns.chunks import BIG, BIG_BYTES, BYTES, ROWS
from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.types.ros import parse_msg, ros_type
from spark_rtps.transport.wire.samples import Samples
from tests.bench.codec_peers import PEERS, Peer

Work = tuple[Callable[[], object], int]

#: Seconds each is called for, and how often it is its turn.
_SECONDS: Final = 0.08
_TURNS: Final = 5
#: Samples that the others are given.
_PEER_SAMPLES: Final = 200
#: INFO_TS and DATA before each payload.
_HEADERS: Final = 36
#: Wanted of each kind: samples a second, of the fastest other; for blobs time, of a copy's, at most.
_FIXED, _VARIABLE, _BLOB = 30.0, 10.0, 1.3


@dataclass(frozen=True)
class Shape:
    """A type and its values, by row. ``definition``: its .msg text, if it is no message of ROS."""

    title: str
    struct: Struct
    row: Callable[[int], dict[str, Any]]
    wanted: float
    definition: str | None = None
    version: int = 1


def _header(i: int, frame: str) -> dict[str, Any]:
    return {"stamp": {"sec": 1_700_000_000 + i, "nanosec": i * 1000}, "frame_id": frame}


def _vector(i: int, names: str = "xyz") -> dict[str, float]:
    return {name: i / (k + 1) for k, name in enumerate(names)}


def _text(i: int, low: int, high: int) -> str:
    return "".join(random.Random(i).choices("abcdefghij klmnop", k=low + i % (high - low)))


_OWN: Final = {
    "Numbers": "uint32 id\nuint32 seq\nfloat64[7] v\n",
    "Note": "int32 id\nstring name\nstring text\n",
    "Detection": "int32 label\nfloat32 x\nfloat32 y\nfloat32 width\nfloat32 height\nfloat64 confidence\n",
    "Detections": "builtin_interfaces/Time stamp\nlab/Detection[] detections\n"
    f"{'=' * 80}\nMSG: lab/Detection\n"
    "int32 label\nfloat32 x\nfloat32 y\nfloat32 width\nfloat32 height\nfloat64 confidence\n",
}
_APPENDABLE: Final = """
@appendable struct Reading {
  long id; long long stamp; @optional double value; @optional string note; @optional long quality;
};
"""


def _own(title: str, name: str, row: Callable[[int], dict[str, Any]], wanted: float) -> Shape:
    return Shape(title, parse_msg(_OWN[name], f"lab/msg/{name}"), row, wanted, _OWN[name])


def shapes() -> list[Shape]:
    reading = parse_idl(_APPENDABLE)["Reading"]
    assert isinstance(reading, Struct)
    blob = np.random.default_rng(0).integers(0, 256, 1920 * 1080 * 3, np.uint8).tobytes()
    return [
        _own(
            "64-byte numeric struct",
            "Numbers",
            lambda i: {"id": i, "seq": i * 3, "v": [i / (k + 1) for k in range(7)]},
            _FIXED,
        ),
        Shape("sensor_msgs/Imu", ros_type("sensor_msgs/Imu"), _imu, _FIXED),
        _own(
            "struct with two strings",
            "Note",
            lambda i: {"id": i, "name": _text(i, 4, 20), "text": _text(i + 1, 10, 60)},
            _VARIABLE,
        ),
        _own("sequence of structs", "Detections", _detections, _VARIABLE),
        Shape("sequence of structs with strings", ros_type("tf2_msgs/TFMessage"), _transforms, _VARIABLE),
        Shape("appendable with optionals, XCDR2", reading, _reading, _VARIABLE, version=2),
        Shape("PointCloud2, 3 MB", ros_type("sensor_msgs/PointCloud2"), lambda i: _cloud(i, blob), _BLOB),
        Shape("Image, 6 MB", ros_type("sensor_msgs/Image"), lambda i: _image(i, blob), _BLOB),
    ]


def _imu(i: int) -> dict[str, Any]:
    covariance = [k / 10 for k in range(9)]
    return {
        "header": _header(i, "imu"),
        "orientation": _vector(i, "xyzw"),
        "orientation_covariance": covariance,
        "angular_velocity": _vector(i),
        "angular_velocity_covariance": covariance,
        "linear_acceleration": _vector(i),
        "linear_acceleration_covariance": covariance,
    }


def _detections(i: int) -> dict[str, Any]:
    one = {"label": i, "x": 1.0, "y": 2.0, "width": 3.0, "height": 4.0, "confidence": 0.5}
    return {"stamp": {"sec": i, "nanosec": 0}, "detections": [one] * (i % 9)}


def _transforms(i: int) -> dict[str, Any]:
    one = {
        "header": _header(i, f"link{i % 30}"),
        "child_frame_id": f"joint{i % 200}",
        "transform": {"translation": _vector(i), "rotation": _vector(i, "xyzw")},
    }
    return {"transforms": [one] * (1 + i % 6)}


def _reading(i: int) -> dict[str, Any]:
    return {
        "id": i,
        "stamp": i * 1000,
        "value": None if i % 3 == 0 else i / 2,
        "note": _text(i, 4, 20) if i % 4 == 0 else None,
        "quality": i if i % 2 else None,
    }


def _cloud(i: int, blob: bytes) -> dict[str, Any]:
    points, step = 98_304, 32
    fields = [
        {"name": n, "offset": 4 * k, "datatype": 7, "count": 1} for k, n in enumerate(("x", "y", "z", "w"))
    ]
    return {
        "header": _header(i, "lidar"),
        "height": 1,
        "width": points,
        "fields": fields,
        "is_bigendian": False,
        "point_step": step,
        "row_step": points * step,
        "data": blob[: points * step],
        "is_dense": True,
    }


def _image(i: int, blob: bytes) -> dict[str, Any]:
    return {
        "header": _header(i, "camera"),
        "height": 1080,
        "width": 1920,
        "encoding": "bgr8",
        "is_bigendian": 0,
        "step": 5760,
        "data": blob,
    }


def codec() -> dict[str, Any]:
    """Of each shape, both ways: samples and bytes a second of each codec, and of a copy."""
    return {shape.title: _measured(shape) for shape in shapes()}


def _measured(shape: Shape) -> dict[str, Any]:
    ours = Codec(shape.struct)
    representation = DataRepresentation.XCDR2 if shape.version == 2 else DataRepresentation.XCDR1
    size = len(ours.encode_batch(_batch(ours, shape, 1), representation=representation).payload(0))
    # as many as a chunk ends with: the one that goes beyond is in it
    count = min(ROWS, -(-(BIG_BYTES if size > BIG else BYTES) // size))
    batch = _batch(ours, shape, count)
    encoded = ours.encode_batch(batch, representation=representation)
    ragged, uniform, total = _as_logged(encoded)
    if ours.decode_samples(ragged).batch.slice(0, 100).to_pylist() != batch.slice(0, 100).to_pylist():
        raise RuntimeError(f"{shape.title}: what is decoded is not what was encoded")
    peers = {
        name: peer
        for name, make in PEERS.items()
        if (peer := make(shape.struct, shape.definition, shape.version)) is not None
    }
    some = min(count, _PEER_SAMPLES)
    payloads = [_unpadded(bytes(encoded.payload(i))) for i in range(some)]
    rows = batch.slice(0, some).to_pylist()
    objects = {name: [peer.sample(row) for row in rows] for name, peer in peers.items()}
    for name, peer in peers.items():
        _check(shape, name, peer, objects[name][0], payloads[0])
    block = np.ascontiguousarray(ragged.data[:total])

    # work, and of how many samples
    decode: dict[str, Work] = {"ours": (lambda: ours.decode_samples(ragged), count)}
    encode: dict[str, Work] = {
        "ours": (lambda: ours.encode_batch(batch, representation=representation), count)
    }
    if uniform is not None:
        decode["ours, a run of equal samples"] = (lambda: ours.decode_samples(uniform), count)
    for name, peer in peers.items():
        decode[name] = (_each(peer.deserialize, payloads), some)
        encode[name] = (_each(peer.serialize, objects[name]), some)
    decode["copy"] = encode["copy"] = (block.copy, count)
    mean = total / count

    def measured(works: dict[str, Work]) -> dict[str, dict[str, float]]:
        return {
            name: {"samples": rate, "gigabytes": rate * mean / 1e9} for name, rate in _rates(works).items()
        }

    return {
        "bytes": mean,
        "wanted": shape.wanted,
        "decode": measured(decode),
        "encode": measured(encode),
    }


def _batch(ours: Codec, shape: Shape, count: int) -> pa.RecordBatch:
    # thousands of different rows are as good as all
    some = pa.RecordBatch.from_pylist(
        [shape.row(i) for i in range(min(count, 2048))], schema=ours.arrow_schema
    )
    return (
        pa.Table.from_batches([some] * -(-count // some.num_rows))
        .slice(0, count)
        .combine_chunks()
        .to_batches()[0]
    )


def _as_logged(samples: Samples) -> tuple[Samples, Samples | None, int]:
    """The payloads as they lie in a stream log, headers in between: one by one and, if they are of one size, as a
    run; and their bytes."""
    lengths = samples.all_lengths()
    starts = np.cumsum(lengths + -lengths % 4 + _HEADERS) - lengths - -lengths % 4
    data = np.zeros(int(starts[-1] + lengths[-1]) + 8, np.uint8)
    for start, i in zip(starts.tolist(), range(samples.count), strict=True):
        payload = np.frombuffer(samples.payload(i), np.uint8)
        data[start : start + len(payload)] = payload
    uniform = None
    if (lengths == lengths[0]).all():
        size = int(lengths[0])
        uniform = Samples.uniform(data, samples.count, size, start=_HEADERS, stride=size + _HEADERS)
    return Samples.ragged(data, starts, lengths), uniform, int(lengths.sum())


def _unpadded(payload: bytes) -> bytes:
    return payload[: len(payload) - (payload[3] & 3)]


def _check(shape: Shape, name: str, peer: Peer, sample: Any, payload: bytes) -> None:
    """That they do the same work."""
    theirs = peer.serialize(sample)
    if theirs[4 : len(payload)] != payload[4:]:
        raise RuntimeError(f"{shape.title}: {name} writes other bytes")
    peer.deserialize(payload)


def _each(work: Callable[[Any], Any], items: list[Any]) -> Callable[[], object]:
    def run() -> None:
        for item in items:
            work(item)

    return run


def _rates(works: dict[str, Work]) -> dict[str, float]:
    """Samples a second of each: its best call. They take turns, so that the machine is as busy for all."""
    best = dict.fromkeys(works, float("inf"))
    for _ in range(_TURNS):
        for name, (work, _samples) in works.items():
            until = time.perf_counter() + _SECONDS
            while (started := time.perf_counter()) < until:
                work()
                best[name] = min(best[name], time.perf_counter() - started)
    return {name: samples / best[name] for name, (_work, samples) in works.items()}


def tables(found: dict[str, Any]) -> list[Table]:
    return [_table(found, direction) for direction in ("decode", "encode")]


def _table(found: dict[str, Any], direction: str) -> Table:
    table = Table(title=f"{direction}: columns here, objects there")
    columns = ("type", "bytes", "thousand/s", "GB/s", "in runs", "copy GB/s", *PEERS, "ratio", "wanted")
    for column in columns:
        table.add_column(column, justify="left" if column == "type" else "right", no_wrap=column != "type")
    for title, shape in found.items():
        rates = shape[direction]
        mine = rates["ours"]
        runs = rates.get("ours, a run of equal samples")
        best = max(mine["samples"], runs["samples"] if runs else 0.0)
        if shape["wanted"] == _BLOB:
            ratio, wanted = rates["copy"]["samples"] / best, f"≤ {_BLOB:g} copies"
        else:
            ratio, wanted = (
                best / max(rates[n]["samples"] for n in PEERS if n in rates),
                f"≥ {shape['wanted']:g}",
            )
        table.add_row(
            title,
            f"{shape['bytes']:,.0f}",
            _thousands(mine),
            f"{mine['gigabytes']:.2f}",
            _thousands(runs),
            f"{rates['copy']['gigabytes']:.2f}",
            *(_thousands(rates.get(name)) for name in PEERS),
            f"{ratio:.2f}",
            wanted,
        )
    return table


def _thousands(rate: dict[str, float] | None) -> str:
    return "" if rate is None else f"{rate['samples'] / 1e3:,.{0 if rate['samples'] > 1e5 else 2}f}"
