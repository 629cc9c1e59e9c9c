"""What a peer may send to keep us busy, or to have values made up."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from time import perf_counter

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.types.arrow import struct_from_arrow
from spark_rtps.transport.types.cdr import cursors
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.cdr.decoding.arrays import string_array
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.wire.samples import Samples

XCDR1, PLAIN2, DELIMITED2 = b"\0\1\0\0", b"\0\7\0\0", b"\0\x09\0\0"
ELEMENTS = "@appendable struct E { string s; long a; }; @final struct S { sequence<E> e; };"
UNIONS = (
    "@final union U switch (unsigned short) { case 1: string s; case 2: case 4: octet o; default: long long n; };"
    "@final struct S { sequence<U> e; };"
)
STRUCTS = "@final struct E { string s; long a; }; @final struct S { sequence<E> e; };"


def codec(idl: str) -> Codec:
    found = parse_idl(idl)["S"]
    assert isinstance(found, Struct)
    return Codec(found)


def samples(*payloads: bytes) -> Samples:
    lengths = np.array([len(payload) for payload in payloads], np.int64)
    data = np.frombuffer(b"".join(payloads), np.uint8)
    return Samples.ragged(data, np.concatenate([[0], lengths[:-1].cumsum()]), lengths)


def u4(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def malformed(c: Codec, *payloads: bytes) -> list[bool]:
    found = c.decode_samples(samples(*payloads)).malformed
    return [False] * len(payloads) if found is None else found.tolist()


def test_many_empty_elements_take_no_time() -> None:
    n = 20_000
    payload = PLAIN2 + u4(4 + 4 * n, n) + u4(0) * n
    start = perf_counter()
    batch = codec(ELEMENTS).decode_samples(samples(payload)).batch
    assert perf_counter() - start < 2
    assert len(batch["e"][0]) == n and batch["e"][0][n - 1].as_py() == {"s": None, "a": None}


def test_steps_are_limited() -> None:
    """What goes on stepping is malformed; the sample beside it is not."""
    n = 3_000_000
    long = XCDR1 + u4(n) + u4(0, 7) * n
    short = XCDR1 + u4(2) + u4(0, 7) * 2
    start = perf_counter()
    assert malformed(codec(STRUCTS), long, short) == [True, False]
    assert perf_counter() - start < 8


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize(("elements", "reason"), [(500, ""), (5_000, "too many elements of varying size")])
def test_steps_of_a_sample_are_its_own(
    count: int, elements: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many samples of so many elements lie beside it."""
    monkeypatch.setattr(cursors, "DECODE_STEPS_MAX", 1 << 14)
    many, few = (XCDR1 + u4(n) + u4(0, 7) * n for n in (elements, 2))
    parts = list(codec(STRUCTS).parts(samples(*[many] * count, few)))
    assert [part.reason(i) for part in parts for i in range(part.count)] == [reason] * count + [""]
    assert sum(part.batch.num_rows for part in parts) == 1 + (0 if reason else count)


def test_members_of_many_lists_are_a_samples_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The headers of members are stepped over as well."""
    monkeypatch.setattr(cursors, "DECODE_STEPS_MAX", 1 << 12)
    members = " ".join(f"@optional octet m{i};" for i in range(8))
    c = codec(f"@mutable struct E {{ {members} }}; @final struct S {{ E e[3]; long a; }};")
    element = u4(8 * 8 - 3) + b"".join(u4(i, 1) for i in range(8))
    payload = PLAIN2 + u4(3 * len(element)) + element * 3 + u4(7)
    for count in (1, 100):
        parts = list(c.parts(samples(*[payload] * count)))
        assert [part.malformed for part in parts] == [None] * len(parts)
        assert sum(part.batch.num_rows for part in parts) == count


@pytest.mark.parametrize(
    "idl",
    [
        STRUCTS,
        ELEMENTS,
        "@final struct E { sequence<string> s; long a[2]; }; @final struct S { sequence<E> e; };",
        "@final struct E { @optional string s; octet a; }; @final struct S { sequence<E> e; };",
        "@mutable struct E { @optional string s; octet a; }; @final struct S { sequence<E> e; };",
        "@final struct S { map<octet, wstring> e; };",
        "@final struct S { map<string, short> e; };",
        UNIONS,
        UNIONS.replace("@final union", "@appendable union"),
        UNIONS.replace("@final union", "@mutable union"),
        "enum C { @value(1) A, @value(4) B }; @final union U switch (C) { case A: string s; };"
        "@final struct S { sequence<U> e; };",
    ],
)
@pytest.mark.parametrize("encapsulation", [XCDR1, PLAIN2])
def test_few_and_many_cursors_agree(idl: str, encapsulation: bytes) -> None:
    """Stepping value by value finds what stepping lane by lane finds, whatever the bytes are."""
    c = codec(idl)
    random = np.random.default_rng(7)
    values = np.array([0, 0, 0, 1, 1, 2, 4, 5, 8, 0x3F02, 0x4000_0001], "<u4")
    payloads = [
        encapsulation + u4(*head) + random.choice(values, 24).tobytes()
        for head in [(3,), (96, 3), (40, 1), (8, 1)]
        for _ in range(50)
    ]
    together = c.decode_samples(samples(*payloads))
    alone = [c.decode_samples(samples(payload)) for payload in payloads]
    assert [d.malformed is not None for d in alone] == malformed(c, *payloads)
    assert together.batch.to_pylist() == [row for d in alone for row in d.batch.to_pylist()]


def test_steps_over_unions_are_limited() -> None:
    n = 2_000_000
    long = XCDR1 + u4(n) + u4(1, 1, 0) * n
    start = perf_counter()
    assert malformed(codec(UNIONS), long) == [True]
    assert perf_counter() - start < 8


def test_headers_of_many_members_are_limited() -> None:
    """Each of the unknown members before the end, of a type that has many."""
    members = " ".join(f"octet m{i};" for i in range(300))
    c = codec(f"@mutable struct E {{ {members} }}; @final struct S {{ sequence<E> e; }};")
    element = u4(1000 * 8) + u4(*[0x7000_0FFF, 0] * 1000)
    payload = PLAIN2 + u4(4 + 100 * len(element), 100) + element * 100
    start = perf_counter()
    assert malformed(c, payload, payload) == [False, False]
    assert perf_counter() - start < 8


def test_unknown_encapsulations_take_no_time() -> None:
    payloads = [struct.pack(">HHI", i, 0, 0) for i in range(1 << 16)]
    start = perf_counter()
    bad = malformed(codec("@final struct S { long x; };"), *payloads)
    assert perf_counter() - start < 2
    assert [i for i, b in enumerate(bad) if not b] == [0, 1, 6, 7, 10, 11]


def test_keys_must_be_there() -> None:
    keyed = codec("@appendable struct S { @key long k; long a; };")
    empty, short, whole = (DELIMITED2 + u4(*words) for words in ((0,), (4, 1), (8, 1, 2)))
    assert malformed(keyed, empty, short, whole) == [True, False, False]
    final = codec("@final struct S { long k; long a; };")
    assert malformed(final, empty, short, whole) == [True, True, False]
    older = codec("@appendable struct S { long k; long a; };")
    assert malformed(older, empty, short, whole) == [False, False, False]


def test_keys_of_hashes() -> None:
    c = codec("@final struct S { @id(9) @key short a; long other; @id(3) @key long b; };")
    rows = pa.RecordBatch.from_pylist([{"a": 1, "other": 5, "b": 2}, {"a": 3, "other": 6, "b": -4}])
    decoded = c.decode_key_hashes(c.key_hashes(rows))
    assert decoded is not None and decoded.malformed is None
    assert decoded.batch.to_pylist() == [{"a": 1, "other": None, "b": 2}, {"a": 3, "other": None, "b": -4}]
    assert decoded.batch.schema == c.arrow_schema
    text = codec("@final struct S { @key string<8> k; long a; };")
    hashes = text.key_hashes(pa.RecordBatch.from_pylist([{"k": "abc", "a": 1}]))
    known = text.decode_key_hashes(np.concatenate([hashes, np.full((1, 16), 255, np.uint8)]))
    assert known is not None and known.malformed is not None and known.malformed.tolist() == [False, True]
    assert known.batch.to_pylist() == [{"k": "abc", "a": None}]


@pytest.mark.parametrize(
    "members",
    [
        "long a",  # no key
        "@key string a",  # an MD5
        "@key string<12> a",
        "@key long a; @key int64 b",  # at 8 in XCDR1, at 4 in XCDR2
        "@key string<2> a; @key int64 b",
    ],
)
def test_hashes_that_give_no_key(members: str) -> None:
    assert codec(f"@final struct S {{ {members}; }};").decode_key_hashes(np.zeros((1, 16), np.uint8)) is None


def test_names_of_structs_are_unique() -> None:
    x, y = pa.struct([("x", pa.int32())]), pa.struct([("y", pa.int32())])
    found = struct_from_arrow(pa.schema([("a", pa.struct([("b", x)])), ("a_b", y)]), "T")
    a, a_b = found.members[0].type, found.members[1].type
    assert isinstance(a, Struct) and isinstance(a_b, Struct)
    b = a.members[0].type
    assert isinstance(b, Struct)
    assert len({found.name, a.name, b.name, a_b.name}) == 4


def wide(kind: str, members: int) -> Codec:
    fields = " ".join(f"long m{i};" for i in range(members))
    return codec(f"@{kind} struct E {{ {fields} }}; @final struct S {{ sequence<E> e; sequence<E> f; }};")


def peak_of(work: Callable[[], object]) -> int:
    """Bytes that NumPy and Arrow held at most."""
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    work()
    held = tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - before
    tracemalloc.stop()
    return held  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["mutable", "appendable"])
def test_absent_members_are_limited(kind: str) -> None:
    c, n = wide(kind, 1000), 100_000
    long = PLAIN2 + u4(4 + 4 * n, n, *[0] * n) + u4(4, 0)
    short = PLAIN2 + u4(8, 1, 0) + u4(4, 0)
    found = []

    def decode() -> None:
        found.append(c.decode_samples(samples(short, long, short)))

    assert peak_of(decode) < 400 << 20
    assert found[0].malformed is not None and found[0].malformed.tolist() == [False, True, False]
    assert found[0].reason(1) == "more absent members than its size allows"
    assert found[0].batch["e"][0][0].as_py() == dict.fromkeys(f"m{i}" for i in range(1000))


def test_absent_members_of_all_lists_of_a_sample_are_limited() -> None:
    c, n = wide("appendable", 1000), 300
    one, none = u4(4 + 4 * n, n, *[0] * n), u4(4, 0)
    payloads = [PLAIN2 + one + none, PLAIN2 + one + one, PLAIN2 + none + one]
    assert malformed(c, *payloads) == [False, True, False]


@pytest.mark.parametrize("kind", ["mutable", "appendable"])
def test_elements_of_an_older_writer_pass(kind: str) -> None:
    older, newer, n = wide(kind, 2), wide(kind, 200), 5_000
    rows = [{"e": [{"m0": i, "m1": -i} for i in range(n)], "f": []}] * 2
    batch = pa.RecordBatch.from_pylist(rows, schema=older.arrow_schema)
    decoded = newer.decode_samples(older.encode_batch(batch, representation=DataRepresentation.XCDR2))
    assert decoded.malformed is None
    read = decoded.batch["e"].values.field("m0")
    assert read.to_pylist() == list(range(n)) * 2
    assert decoded.batch["e"].values.field("m199").null_count == 2 * n


MAPS = [
    ("@final struct S { map<string, long> m; };", [("k\u00e4", 7), ("", 1)]),
    ("@final struct S { map<wstring, string> m; };", [("k\U0001d11e", "v"), ("", "")]),
    ("@final struct S { map<char, octet> m; };", [("k", 7)]),
    ("@final struct S { map<wchar, string> m; };", [("k", "v")]),
    ("@final struct S { map<boolean, string> m; };", [(True, "v")]),
    ("enum E { A, B }; @final struct S { map<E, string> m; };", [("B", "v")]),
    ("bitmask F { A, B }; @final struct S { map<F, string> m; };", [(["A", "B"], "v")]),
    ("@final struct S { sequence<map<string, string> > m; };", [[("k", "v")], [], [("l", "w"), ("m", "")]]),
    ("@mutable struct S { @optional map<string, map<string, long> > m; };", [("k", [("l", 1)])]),
    (
        "@appendable union U switch (boolean) { case TRUE: map<string, long> m; };"
        "@appendable struct S { map<string, U> m; };",
        [("k", {"discriminator": True, "m": [("l", 1)]})],
    ),
]


def test_strings_that_are_not_utf8_are_empty_and_not_null() -> None:
    """Arrow ends the process where the key of a map is null."""
    data = np.frombuffer(b"ab\xffcd", np.uint8)
    array, bad = string_array(data, np.array([0, 1, 1, 3, 5]), pa.string())
    assert array.null_count == 0 and array.to_pylist() == ["a", "", "", "cd"]
    assert bad is not None and bad.tolist() == [False, False, True, False]


@pytest.mark.parametrize(("idl", "value"), MAPS, ids=[idl for idl, _ in MAPS])
def test_maps_whatever_byte_of_them_is_damaged_are_refused_or_read(idl: str, value: object) -> None:
    c = codec(idl)
    row = pa.RecordBatch.from_pylist([{"m": value}], schema=c.arrow_schema)
    for version in (DataRepresentation.XCDR1, DataRepresentation.XCDR2):
        whole = bytes(c.encode_batch(row, representation=version).payload(0))
        damaged = [
            whole[:at] + bytes([octet]) + whole[at + 1 :]
            for at in range(4, len(whole))
            for octet in (0, 1, 0x40, 0x80, 0xC3, 0xD8, 0xFF)
        ]
        found = c.decode_samples(samples(*damaged))
        found.batch.validate(full=True)
        assert found.count == len(damaged) and found.malformed is not None
        alone = [row for payload in damaged for row in c.decode_samples(samples(payload)).batch.to_pylist()]
        assert found.batch.to_pylist() == alone
