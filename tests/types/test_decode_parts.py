"""Few bytes that become much: each sample may be within its bounds, but a call has one too."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.transport.errors import TooManySamplesError
from spark_rtps.transport.limits import DECODE_LEAVES_MAX
from spark_rtps.transport.types.cdr import cursors
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.cdr.decoding import scalars
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.wire.samples import Samples

XCDR1, PLAIN2, DELIMITED2, LIST2 = b"\0\1\0\0", b"\0\7\0\0", b"\0\x09\0\0", b"\0\x0b\0\0"
LONGS = " ".join(f"long m{i};" for i in range(100))
CASES = " ".join(f"case {i}: long m{i};" for i in range(1, 101))
LITERALS = ", ".join(f"{'L' * 100}{i}" for i in range(9))
FLAGS = ", ".join(f"{'F' * 100}{i}" for i in range(8))


def u4(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def codec(idl: str) -> Codec:
    found = parse_idl(idl)["S"]
    assert isinstance(found, Struct)
    return Codec(found)


def samples(*payloads: bytes) -> Samples:
    lengths = np.array([len(payload) for payload in payloads], np.int64)
    data = np.frombuffer(b"".join(payloads), np.uint8)
    return Samples.ragged(data, np.concatenate([[0], lengths[:-1].cumsum()]), lengths)


def leaves(array: pa.Array) -> int:
    """Values at the ends, null or not; 8 bytes of text are one more."""
    t = array.type
    if pa.types.is_struct(t):
        return sum(leaves(array.field(i)) for i in range(t.num_fields))
    if pa.types.is_map(t):
        return len(array) + leaves(array.keys) + leaves(array.items)
    if pa.types.is_list(t):
        return len(array) + leaves(array.flatten())
    text = sum(map(len, array.drop_null().to_pylist())) // 8 if pa.types.is_string(t) else 0
    return len(array) + text


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda most: monkeypatch.setattr(cursors, "DECODE_LEAVES_MAX", most)


#: A type, a sample of it that is small, and whether that is a key.
HOSTILE = {
    "absent members of structs in a list": (
        f"@appendable struct E {{ {LONGS} }}; @final struct S {{ sequence<E> e; }};",
        PLAIN2 + u4(4 + 4 * 10, 10, *[0] * 10),
    ),
    "of mutable ones": (
        f"@mutable struct E {{ {LONGS} }}; @final struct S {{ sequence<E> e; }};",
        PLAIN2 + u4(4 + 4 * 10, 10, *[0] * 10),
    ),
    "of those in an array": (
        f"@appendable struct E {{ {LONGS} }}; @final struct S {{ E e[10]; }};",
        PLAIN2 + u4(4 * 10, *[0] * 10),
    ),
    "of those in lists in a list": (
        f"@appendable struct E {{ {LONGS} }}; @final struct S {{ sequence<sequence<E> > e; }};",
        PLAIN2 + u4(4 + 2 * 28, 2) + u4(4 + 4 * 5, 5, *[0] * 5) * 2,
    ),
    "of optional structs": (
        f"@final struct I {{ {LONGS} }}; @final struct E {{ @optional I i; }}; @final struct S {{ sequence<E> e; }};",
        PLAIN2 + u4(4 + 10, 10) + bytes(10),
    ),
    "values of a map": (
        f"@appendable struct E {{ {LONGS} }}; @final struct S {{ map<octet, E> e; }};",
        PLAIN2 + u4(4 + 8 * 10, 10, *[1, 0] * 10),
    ),
    "branches of unions": (
        f"@final union U switch (octet) {{ {CASES} }}; @final struct S {{ sequence<U> e; }};",
        PLAIN2 + u4(4 + 10, 10) + bytes(10),
    ),
    "members of the sample itself": (f"@appendable struct S {{ {LONGS} }};", DELIMITED2 + u4(0)),
    "of a mutable one": (f"@mutable struct S {{ {LONGS} }};", LIST2 + u4(0)),
    "names of literals in a list": (
        f"@bit_bound(8) enum C {{ {LITERALS} }}; @final struct S {{ sequence<C> e; }};",
        XCDR1 + u4(80) + b"\1" * 80,
    ),
    "in an array": (
        f"@bit_bound(8) enum C {{ {LITERALS} }}; @final struct S {{ C e[8][10]; }};",
        XCDR1 + b"\1" * 80,
    ),
    "names of flags in a list": (
        f"@bit_bound(8) bitmask C {{ {FLAGS} }}; @final struct S {{ sequence<C> e; }};",
        XCDR1 + u4(10) + b"\xff" * 10,
    ),
}


@pytest.mark.parametrize("which", HOSTILE)
def test_large_results_are_decoded_in_parts(which: str, bound: Callable[[int], None]) -> None:
    idl, payload = HOSTILE[which]
    c, many = codec(idl), samples(*[payload] * 300)
    whole = c.decode_samples(many)
    assert whole.malformed is None
    bound(10_000)
    with pytest.raises(TooManySamplesError):
        c.decode_samples(many)
    parts = list(c.parts(many))
    assert sum(part.count for part in parts) == 300 and len(parts) < 300
    assert (
        pa.Table.from_batches([part.batch for part in parts]).combine_chunks().to_batches()[0] == whole.batch
    )
    assert max(leaves(part.batch.to_struct_array()) for part in parts) <= 10_000
    assert leaves(whole.batch.to_struct_array()) > 10_000


def test_keys_are_decoded_in_parts(bound: Callable[[int], None]) -> None:
    """Absent ones are malformed, but those there are have names."""
    c = codec(f"@bit_bound(8) enum C {{ {LITERALS} }}; @final struct S {{ @key C e[80]; long x; }};")
    many = samples(*[XCDR1 + b"\1" * 80] * 300)
    whole = c.decode_samples(many, keys_only=True)
    bound(10_000)
    parts = list(c.parts(many, keys_only=True))
    assert len(parts) > 1
    assert [part.count for part in parts] == [part.batch.num_rows for part in parts]
    assert pa.Table.from_batches([part.batch for part in parts]).to_pylist() == whole.batch.to_pylist()


def test_parts_are_in_order_and_name_malformed_samples(bound: Callable[[int], None]) -> None:
    """Of all encapsulations mixed."""
    c = codec(f"@appendable struct E {{ {LONGS} }}; @final struct S {{ long i; sequence<E> e; }};")
    good = [PLAIN2 + u4(i, 4 + 4 * 10, 10, *[0] * 10) for i in range(100)]
    other = [XCDR1 + u4(1000 + i, 0) for i in range(100)]
    bad = [XCDR1 + u4(7, 7), b"\0\x21\0\0", b""] * 33
    payloads = [payload for some in zip(good, other, bad, strict=False) for payload in some]
    whole = c.decode_samples(samples(*payloads))
    bound(10_000)
    parts = list(c.parts(samples(*payloads)))
    assert len(parts) > 1
    assert [i for part in parts for i in part.batch["i"].to_pylist()] == whole.batch["i"].to_pylist()
    reasons = [part.reason(i) for part in parts for i in range(part.count)]
    assert reasons == [whole.reason(i) for i in range(len(payloads))] and len(set(reasons)) == 4


def test_one_sample_is_decoded_whatever_it_becomes(
    bound: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to a bound of its own."""
    idl, payload = HOSTILE["absent members of structs in a list"]
    c = codec(idl)
    bound(10)
    assert [part.count for part in c.parts(samples(payload, payload, payload))] == [1, 1, 1]
    assert c.decode_samples(samples(payload)).malformed is None
    monkeypatch.setattr(cursors, "SAMPLE_LEAVES_MAX", 999)
    decoded = c.decode_samples(samples(payload))
    assert decoded.count == 1 and decoded.reason(0) == "it would become more than a row can hold"


@pytest.mark.parametrize("which", ["names of literals in a list", "names of flags in a list"])
def test_names_are_no_more_than_a_column_holds(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    idl, payload = HOSTILE[which]
    c = codec(idl)
    monkeypatch.setattr(scalars, "COLUMN_BYTES_MAX", 2 * 80 * 101)
    assert c.decode_samples(samples(payload, payload)).malformed is None
    with pytest.raises(TooManySamplesError):
        c.decode_samples(samples(payload, payload, payload))
    assert [part.batch.num_rows for part in c.parts(samples(*[payload] * 3))] == [1, 2]
    monkeypatch.setattr(scalars, "COLUMN_BYTES_MAX", 80 * 101 - 1)
    assert c.decode_samples(samples(payload)).reason(0) == "it would become more than a row can hold"


def test_the_bound_of_a_call() -> None:
    """Of samples just under that of each: without it, these few would be half a gigabyte."""
    members = " ".join(f"long m{i};" for i in range(1000))
    c, n = codec(f"@appendable struct E {{ {members} }}; @final struct S {{ sequence<E> e; }};"), 524
    many = samples(*[PLAIN2 + u4(4 + 4 * n, n, *[0] * n)] * 120)
    rows = 0
    for part in c.parts(many):
        assert part.malformed is None
        assert part.batch["e"].values.type.num_fields * len(part.batch["e"].values) <= DECODE_LEAVES_MAX
        rows += part.count
    assert rows == 120


@pytest.mark.parametrize(
    ("idl", "row", "count"),
    [
        ("@final struct S { octet a[64]; string s; };", {"a": b"x" * 64, "s": "abc"}, 1 << 15),
        (
            "@appendable struct E { string s; long a; @optional double b; }; struct S { sequence<E> e; };",
            {"e": [{"s": "abc", "a": 1, "b": 2.0}] * 8},
            1 << 15,
        ),
        (
            "enum C { RED, GREEN }; struct S { C c; sequence<C> d; };",
            {"c": "RED", "d": ["GREEN"] * 50},
            1 << 15,
        ),
        ("struct S { sequence<float> f; };", {"f": [1.0] * 1000}, 2048),
        ("struct S { sequence<string> f; };", {"f": ["abc"] * 1000}, 1024),
    ],
)
def test_usual_samples_are_decoded_in_one_call(idl: str, row: dict[str, object], count: int) -> None:
    """A chunk of the log, 8 MiB."""
    c = codec(idl)
    batch = pa.Table.from_batches(
        [pa.RecordBatch.from_pylist([row] * 64, schema=c.arrow_schema)] * (count // 64)
    )
    encoded = c.encode_batch(batch.combine_chunks().to_batches()[0])
    assert [part.count for part in c.parts(encoded)] == [count]
