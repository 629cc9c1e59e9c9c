"""Serialized keys without DHEADERs, as Cyclone DDS 0.10 writes those of appendable types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.receiver.instance_keys import InstanceKeys
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.keys import undelimited_key
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.wire.samples import KEY_ONLY, Samples

XCDR2 = DataRepresentation.XCDR2
IDL = """
@appendable struct Keyed { @key long id; string note; };
@appendable struct KeyedS { @key long n; @key string s; double v; };
@appendable struct In { @key long a; long b; };
@appendable struct KeyedN { @key In in; @key short z; string note; };
@final struct Outer { @key In in; string note; };
"""
#: The same keys without appendable structs.
FLAT = IDL.replace("@appendable", "@final")
#: What Cyclone DDS 0.10.2 sent in disposes.
SENT: list[tuple[str, str, dict[str, Any]]] = [
    ("Keyed", "00090000 05000000", {"id": 5}),
    ("KeyedS", "00090003 08000000 01000000 00000000", {"n": 8, "s": ""}),
    ("KeyedS", "00090000 07000000 04000000 61626300", {"n": 7, "s": "abc"}),
    ("KeyedN", "00090002 03000000 02000000", {"in": {"a": 3, "b": None}, "z": 2}),
]


def struct(name: str, idl: str = IDL) -> Struct:
    found = parse_idl(idl)[name]
    assert isinstance(found, Struct)
    return found


def samples(*payloads: bytes) -> Samples:
    lengths = np.array([len(each) for each in payloads])
    data = np.frombuffer(b"".join(payloads), np.uint8).copy()
    return Samples.ragged(data, np.cumsum(lengths) - lengths, lengths)


def keys(codec: Codec, rows: list[dict[str, Any]]) -> Samples:
    names = [member.name for member in codec.struct.members if member.key]
    schema = pa.schema([codec.arrow_schema.field(name) for name in names])
    return codec.encode_keys(pa.RecordBatch.from_pylist(rows, schema=schema), representation=XCDR2)


def without_headers(rows: list[dict[str, Any]], name: str = "KeyedS", *, identifier: int = 9) -> Samples:
    """The keys as Cyclone DDS 0.10 writes them."""
    flat = keys(Codec(struct(name, FLAT)), rows)
    flat.data[flat.all_offsets() + 1] = identifier
    return flat


def read(codec: Codec, found: Samples) -> list[dict[str, Any]]:
    decoded = codec.decode_samples(found, keys_only=True)
    assert decoded.malformed is None, decoded.reason(int(np.flatnonzero(decoded.malformed)[0]))
    names = [member.name for member in codec.struct.members if member.key]
    return decoded.batch.select(names).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("name", "payload", "row"), SENT)
def test_keys_captured_from_cyclone_dds_are_read(name: str, payload: str, row: dict[str, Any]) -> None:
    codec, sent = Codec(struct(name)), samples(bytes.fromhex(payload))
    assert read(codec, sent) == [row]
    found = InstanceKeys(codec.struct).hashes(sent, np.array([KEY_ONLY], np.uint32), None, codec)
    expected = InstanceKeys(codec.struct).hashes(
        keys(codec, [row]), np.array([KEY_ONLY], np.uint32), None, codec
    )
    assert found.any() and (found == expected).all()


def test_both_forms_in_one_run() -> None:
    codec = Codec(struct("KeyedS"))
    rows = [{"n": i, "s": "x" * (i % 5)} for i in range(40)]
    ours, theirs = keys(codec, rows), without_headers(rows)
    mixed = [bytes((theirs if i % 3 else ours).payload(i)) for i in range(40)]
    mixed.insert(7, b"\0\x09\0\0\xff\xff\xff\xff")
    decoded = codec.decode_samples(samples(*mixed), keys_only=True)
    assert decoded.malformed is not None and np.flatnonzero(decoded.malformed).tolist() == [7]
    assert decoded.reason(7)
    assert decoded.batch.select(["n", "s"]).to_pylist() == rows


def test_a_final_type_with_an_appendable_struct_in_its_key() -> None:
    rows = [{"in": {"a": 4, "b": None}}, {"in": {"a": -1, "b": None}}]
    codec = Codec(struct("Outer"))
    assert read(codec, keys(codec, rows)) == rows
    assert read(codec, without_headers(rows, "Outer", identifier=7)) == rows


@given(st.lists(st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), st.text(max_size=9)), min_size=1))
def test_neither_form_is_taken_for_the_other(pairs: list[tuple[int, str]]) -> None:
    rows = [{"n": n, "s": s.replace("\0", "")} for n, s in pairs]
    codec = Codec(struct("KeyedS"))
    assert read(codec, without_headers(rows)) == rows
    assert read(codec, keys(codec, rows)) == rows
    numbers = [{"id": n} for n, _ in pairs]
    assert read(Codec(struct("Keyed")), without_headers(numbers, "Keyed")) == numbers


@given(st.integers(0, 11), st.binary(max_size=40))
def test_whatever_comes_is_read_or_malformed(identifier: int, body: bytes) -> None:
    sent = samples(bytes((0, identifier, 0, 0)) + body + bytes(-len(body) % 4))
    for name in ("Keyed", "KeyedS", "KeyedN", "Outer"):
        decoded = Codec(struct(name)).decode_samples(sent, keys_only=True)
        assert decoded.batch.num_rows == (0 if decoded.malformed is not None else 1)


@pytest.mark.parametrize("length", range(17))
def test_cut_and_lengthened_keys_are_malformed(length: int) -> None:
    """Those that end at another place than the payload, but for padding."""
    whole = bytes.fromhex("07000000 04000000 61626300") + bytes(8)
    payload = b"\0\x09\0\0" + whole[: 4 * length]
    decoded = Codec(struct("KeyedS")).decode_samples(samples(payload), keys_only=True)
    assert (decoded.malformed is None) is (length == 3)


@pytest.mark.parametrize(
    "members",
    [
        "@key sequence<long> a;",  # Cyclone DDS has no such keys
        "@key map<long, long> a;",
        "@key @id(20) long a; @key @id(10) long b;",  # it writes members by id
        "@key M a;",
    ],
)
def test_other_keys_have_no_other_form(members: str) -> None:
    idl = f"@mutable struct M {{ long x; }}; @appendable struct S {{ {members} string note; }};"
    assert undelimited_key(struct("S", idl)) is None


def test_types_without_dheaders_have_no_other_form() -> None:
    assert undelimited_key(struct("Keyed", FLAT)) is None
    assert undelimited_key(struct("S", "@appendable struct S { long a; };")) is None
    mutable = struct("S", "@mutable struct S { @key long a; };")
    assert undelimited_key(mutable) is None
    assert (
        Codec(mutable).decode_samples(samples(bytes.fromhex("000b0000 05000000")), keys_only=True).malformed
        is not None
    )
