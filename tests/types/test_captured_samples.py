"""Samples that Cyclone DDS and Fast DDS really sent, decoded to the values an independent decoder saw."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.structure import is_builtin
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.wire.message import iter_submessages
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.submessages import Data, decode_submessage
from tests.support.pcap import CAPTURES, captures, read_pcap

LAB = parse_idl(
    """
    module lab {
      @final enum Color { RED, GREEN, BLUE };
      @final struct Point { double x; double y; };
      @final @topic struct Rich {
        @key long id; string name; Color color; Point pos; sequence<long> vals; sequence<string> tags;
        sequence<Point> path; octet raw[4]; boolean flag; long long stamp; };
      @appendable struct PointA { double x; double y; };
      @appendable @topic struct RichA {
        @key long id; string name; Color color; PointA pos; sequence<long> vals; sequence<string> tags;
        sequence<PointA> path; octet raw[4]; boolean flag; long long stamp; };
      @final @topic struct Small { @key long id; unsigned long seq; double a; long long t; };
      @final @topic struct Blob { unsigned long seq; sequence<octet> data; };
      @final @topic struct SKey { @key string k; @key long long n; double v; };
      @final @topic struct OptFinal {
        @key long id; string name; @optional double extra; @optional string note; Color color; short tail; };
      @appendable @topic struct OptApp {
        @key long id; string name; @optional double extra; @optional string note; Color color; short tail; };
      @mutable @topic struct OptMut {
        @key long id; string name; @optional double extra; @optional string note; Color color; short tail; };
    };
    """
)
COLORS = ["RED", "GREEN", "BLUE"]
#: Captures whose user samples all fit DATA submessages.
WHOLE = [path for path in captures() if "blob" not in path.stem and "typelookup" not in path.stem]


def user_data(path: Path) -> Iterator[tuple[tuple[int, int], Data]]:
    """((frame, sequence number), DATA) of each user sample."""
    for datagram in read_pcap(path):
        message = memoryview(datagram.payload)
        if len(message) < 20 or bytes(message[:4]) != b"RTPS":
            continue
        for kind, flags, start, stop in iter_submessages(message):
            submessage = decode_submessage(kind, flags, message[start:stop])
            if isinstance(submessage, Data) and not is_builtin(submessage.writer_id):
                yield (datagram.frame, submessage.sn), submessage


def gather(payloads: list[bytes]) -> Samples:
    padded = [payload + bytes(-len(payload) % 4) for payload in payloads]
    offsets = np.cumsum([0] + [len(piece) for piece in padded[:-1]], dtype=np.int64)
    lengths = np.array([len(payload) for payload in payloads], np.int64)
    return Samples.ragged(np.frombuffer(b"".join(padded), np.uint8), offsets, lengths)


def expected_row(value: dict[str, Any]) -> dict[str, Any]:
    """A value of the independent decoder as a row."""
    row = dict(value)
    if "color" in row:
        row["color"] = COLORS[row["color"]]
    if "pos" in row:
        row["pos"] = dict(zip("xy", row["pos"], strict=True))
        row["path"] = [dict(zip("xy", point, strict=True)) for point in row["path"]]
        row["raw"] = bytes(row["raw"])
    return row


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: path.stem)
def test_values(path: Path) -> None:
    expected = json.loads(path.with_suffix(".expected.json").read_text())
    values = {(e["frame"], e["sn"]): e for e in expected if e["kind"] == "data"}
    type_name = next(iter(values.values()))["type"]
    struct = LAB[type_name]
    assert isinstance(struct, Struct)
    found = [(at, bytes(data.payload)) for at, data in user_data(path) if data.payload and not data.key]
    assert {at for at, _ in found} == set(values)
    codec = Codec(struct)
    samples = gather([payload for _, payload in found])
    decoded = codec.decode_samples(samples)
    assert decoded.malformed is None
    rows = decoded.batch.to_pylist()
    assert rows == [expected_row(values[at]["value"]) | {} for at, _ in found]


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: path.stem)
def test_written_the_same(path: Path) -> None:
    """Encoding what was decoded gives the bytes back (but for padding, which vendors count differently)."""
    found = [bytes(data.payload) for _, data in user_data(path) if data.payload and not data.key]
    expected = json.loads(path.with_suffix(".expected.json").read_text())
    struct = LAB[next(e["type"] for e in expected)]
    assert isinstance(struct, Struct)
    codec = Codec(struct)
    batch = codec.decode_samples(gather(found)).batch
    representation = DataRepresentation.XCDR1 if found[0][1] == 1 else DataRepresentation.XCDR2
    again = codec.encode_batch(batch, representation=representation)
    for i, payload in enumerate(found):
        ours = bytes(again.payload(i))
        assert ours[:2] == payload[:2]
        assert ours[4 : len(ours) - ours[3]] == payload[4 : 4 + len(ours) - ours[3] - 4]


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: path.stem)
def test_keys(path: Path) -> None:
    """Key hashes a peer sent are those we compute, and its key payloads are read as keys."""
    expected = json.loads(path.with_suffix(".expected.json").read_text())
    struct = LAB[next(e["type"] for e in expected)]
    assert isinstance(struct, Struct)
    codec = Codec(struct)
    data = list(user_data(path))
    hashed = [
        (d.payload, d.inline_qos.get(0x0070)) for _, d in data if d.payload and not d.key and d.inline_qos
    ]
    hashed = [(bytes(payload), key_hash) for payload, key_hash in hashed if key_hash]
    if hashed:
        hashes = codec.key_hashes(codec.decode_samples(gather([payload for payload, _ in hashed])).batch)  # type: ignore[misc]
        assert [bytes(h) for h in hashes] == [bytes(key_hash) for _, key_hash in hashed]
    keys = [bytes(d.payload) for _, d in data if d.payload and d.key]
    if keys:
        decoded = codec.decode_samples(gather(keys), keys_only=True)
        assert decoded.malformed is None
        assert decoded.batch.num_rows == len(keys)
        for member in struct.members:
            nulls = decoded.batch.column(member.name).null_count
            assert nulls == (0 if member.key else len(keys))
        again = codec.encode_keys(decoded.batch)
        assert [bytes(again.payload(i)) for i in range(len(keys))] == keys


@pytest.mark.parametrize(
    "stem", ["f05_small_dispose", "x05_fast_to_cyc_small_dispose", "x14_fast_to_cycC_skey_dispose"]
)
def test_key_hashes_of_fast_dds(stem: str) -> None:
    """Fast DDS disposes instance 0 and unregisters instance 1 by key hash alone; a string's is an MD5."""
    expected = json.loads((CAPTURES / f"{stem}.expected.json").read_text())
    hashes = [e["keyhash"] for e in expected if e["kind"] == "none"]
    struct = LAB[expected[0]["type"]]
    assert isinstance(struct, Struct)
    first_two = [e["value"] for e in expected[:2]]
    codec = Codec(struct)
    batch = pa.RecordBatch.from_pylist(first_two, schema=codec.arrow_schema)
    assert [bytes(h).hex() for h in codec.key_hashes(batch)] == hashes


def test_batch_of_mixed_encapsulations() -> None:
    """One call with samples in every form that the three peers' types were sent in."""
    form = {"c04_c_optfinal_xcdr2": 7, "c06_c_optapp_xcdr2": 9, "c07_c_optmut_xcdr2": 11}
    payloads, names = [], []
    for stem in form:
        for _, data in user_data(CAPTURES / f"{stem}.pcap"):
            if data.payload and not data.key:
                payloads.append(bytes(data.payload))
                names.append(form[stem])
    mixed = [payloads[i] for i in np.argsort(np.arange(len(payloads)) * 7 % len(payloads))]
    assert {payload[1] for payload in mixed} == set(names)
    struct = LAB["lab::OptMut"]
    assert isinstance(struct, Struct)
    codec = Codec(struct)
    one_by_one = [codec.decode_samples(gather([payload])).batch for payload in mixed]
    decoded = codec.decode_samples(gather([*mixed, b"\x00\x05\x00\x00abcd", b"\x00"]))
    assert decoded.malformed is not None
    assert decoded.malformed.tolist() == [False] * len(mixed) + [True, True]
    assert decoded.batch.to_pylist() == pa.Table.from_batches(one_by_one).to_pylist()
