"""Against another implementation: every message of ROS 2's distributions, byte for byte with rosbags."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from spark_rtps.transport.types.arrow import DURATION, TIME, time_type
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_idl, print_idl
from spark_rtps.transport.types.model import Struct, traverse
from spark_rtps.transport.types.ros import PRIMITIVES, distributions, parse_msg, ros_type
from spark_rtps.transport.types.ros_names import dds_type_name
from spark_rtps.transport.wire.samples import Samples
from tests.support.ros_oracle import from_rosbags, random_value, rosbags_bytes, typestore

JAZZY = sorted(typestore().fielddefs)
VALUES = 6


@pytest.mark.parametrize("name", JAZZY)
def test_same_bytes_and_values_as_rosbags(name: str) -> None:
    check(ros_type(name), name, typestore(), random.Random(name))


def check(struct: Struct, name: str, store: Typestore, rng: random.Random) -> None:
    codec = Codec(struct)
    values = [random_value(struct, rng) for _ in range(VALUES)]
    batch = pa.RecordBatch.from_pylist(values, schema=codec.arrow_schema)
    for big_endian in (False, True):
        theirs = [rosbags_bytes(struct, value, store, big_endian=big_endian) for value in values]
        samples = codec.encode_batch(batch, big_endian=big_endian)
        ours = [bytes(samples.payload(i)) for i in range(VALUES)]
        assert [without_padding(payload) for payload in ours] == theirs
        decoded = codec.decode_samples(samples_of(theirs))
        assert decoded.malformed is None
        assert decoded.batch.to_pylist() == values
        read = [store.deserialize_cdr(memoryview(payload), name) for payload in ours]
        assert [from_rosbags(struct, message) for message in read] == values


TYPES = [*PRIMITIVES, "string", "string<=12", "Inner", "std_msgs/Header", "geometry_msgs/Point32"]
FIELD_TYPES = st.tuples(st.sampled_from(TYPES), st.sampled_from(["", "", "[]", "[<=3]", "[2]"])).map("".join)
MESSAGES = st.lists(FIELD_TYPES, min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(outer=MESSAGES, inner=MESSAGES, seed=st.integers(0, 1 << 30))
def test_generated_definitions(outer: list[str], inner: list[str], seed: int) -> None:
    inner = [t.replace("Inner", "float64") for t in inner]
    outer_text, inner_text = (
        "".join(f"{t} f{i}\n" for i, t in enumerate(fields)) for fields in (outer, inner)
    )
    store = get_typestore(Stores.ROS2_JAZZY)
    for name, text in (("Inner", inner_text), ("Outer", outer_text)):
        store.register(get_types_from_msg(text, f"lab/msg/{name}"))
    struct = parse_msg(outer_text, "lab/msg/Outer", definitions={"lab/msg/Inner": inner_text}.get)
    check(struct, "lab/msg/Outer", store, random.Random(seed))


def without_padding(payload: bytes) -> bytes:
    """The payload as rosbags writes it: what makes it a multiple of 4, and says by how much, is left out."""
    padding = payload[3] & 3
    return payload[:3] + bytes(1) + payload[4 : len(payload) - padding]


def samples_of(payloads: list[bytes]) -> Samples:
    data = b"".join(payload + bytes(-len(payload) % 4) for payload in payloads)
    lengths = np.array([len(payload) for payload in payloads], np.int64)
    offsets = np.cumsum([0, *(lengths[:-1] + -lengths[:-1] % 4)])
    return Samples.ragged(np.frombuffer(data, np.uint8), offsets, lengths)


@pytest.mark.parametrize("distribution", distributions())
def test_all_distributions(distribution: str) -> None:
    for name in typestore(distribution).fielddefs:
        assert ros_type(name, distribution).name == dds_type_name(name)


@pytest.mark.parametrize("distribution", ["foxy", "jazzy"])
def test_definitions_with_all_they_use_are_read_as_the_same_type(distribution: str) -> None:
    # as MCAP files hold them
    store = typestore(distribution)
    for name in store.fielddefs:
        text, _ = store.generate_msgdef(name, ros_version=2)
        assert parse_msg(text, name, definitions=lambda _: None) == ros_type(name, distribution), text


def test_printed_idl_reads_back() -> None:
    for name in JAZZY:
        struct = ros_type(name)
        assert parse_idl(print_idl(struct))[struct.name] == struct


def test_times_are_known() -> None:
    assert time_type(ros_type("builtin_interfaces/Time")) == TIME
    assert time_type(ros_type("builtin_interfaces/Duration")) == DURATION
    structs = [t for t in traverse(ros_type("sensor_msgs/msg/Imu")) if isinstance(t, Struct)]
    assert [t.name for t in structs if time_type(t) is not None] == ["builtin_interfaces::msg::dds_::Time_"]
