"""The vectors of @foxglove/cdr, another implementation of CDR, as messages: see ``vectors/foxglove_cdr.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Array, Sequence, Struct, Type, is_bytes
from spark_rtps.transport.types.ros import ros_type
from spark_rtps.transport.wire.samples import Samples

FILE = Path(__file__).with_name("vectors") / "foxglove_cdr.json"
VECTORS: list[dict[str, Any]] = json.loads(FILE.read_text())["vectors"]
REPRESENTATIONS = {"xcdr1": DataRepresentation.XCDR1, "xcdr2": DataRepresentation.XCDR2}


def struct_of(vector: dict[str, Any]) -> Struct:
    if "ros" in vector:
        return ros_type(vector["ros"])
    struct = parse_idl(vector["idl"])["S"]
    assert isinstance(struct, Struct)
    return struct


def value_of(t: Type, value: Any) -> Any:
    """What is written as numbers in JSON is one binary string if they are octets."""
    if isinstance(t, Struct):
        return {member.name: value_of(member.type, value[member.name]) for member in t.members}
    if isinstance(t, Sequence | Array):
        return bytes(value) if is_bytes(t.element) else [value_of(t.element, each) for each in value]
    return value


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["title"] for vector in VECTORS])
def test_read(vector: dict[str, Any]) -> None:
    struct = struct_of(vector)
    payload = np.frombuffer(bytes.fromhex(vector["payload"]), np.uint8)
    decoded = Codec(struct).decode_samples(Samples.uniform(payload, 1, len(payload)))
    assert decoded.malformed is None
    assert decoded.batch.to_pylist() == [value_of(struct, vector["value"])]


WRITTEN = [vector for vector in VECTORS if vector["written"]]


@pytest.mark.parametrize("vector", WRITTEN, ids=[vector["title"] for vector in WRITTEN])
def test_write(vector: dict[str, Any]) -> None:
    struct = struct_of(vector)
    codec = Codec(struct)
    batch = pa.RecordBatch.from_pylist([value_of(struct, vector["value"])], schema=codec.arrow_schema)
    representation = REPRESENTATIONS[vector["representation"]]
    written = codec.encode_batch(
        batch, representation=representation, big_endian=vector["big_endian"]
    ).payload(0)
    # the encapsulation header's last bits count the padding at the end, which the vectors lack
    padding = written[3] & 3
    assert bytes(written[: len(written) - padding]).hex(" ", 4) == with_padding(vector["payload"], padding)


def with_padding(payload: str, padding: int) -> str:
    data = bytearray.fromhex(payload)
    data[3] |= padding
    return bytes(data).hex(" ", 4)


def test_vectors_of_each_kind_exist() -> None:
    encapsulations = {bytes.fromhex(vector["payload"])[1] for vector in VECTORS}
    assert encapsulations == {0, 1, 2, 3, 6, 7, 0xB}
    assert len(VECTORS) > 50
