"""Exact bytes of what has a header of its own, and of the kinds that no other implementation here writes.

Written out by hand from XTypes 1.3 §7.4, in the form that Cyclone DDS 11 gives it where the specification leaves a
choice: XCDR1 parameters always in their long form, and the length codes of XCDR2.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.model import (
    Array,
    BitField,
    Bitset,
    Case,
    Extensibility,
    Map,
    Member,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
    Type,
    Union,
    WString,
)

FINAL, APPENDABLE, MUTABLE = Extensibility
BYTE, INT16, INT32 = (
    Primitive(kind) for kind in (PrimitiveKind.BYTE, PrimitiveKind.INT16, PrimitiveKind.INT32)
)
DOUBLE, QUAD = Primitive(PrimitiveKind.FLOAT64), Primitive(PrimitiveKind.FLOAT128)
LE1, BE1 = (DataRepresentation.XCDR1, False), (DataRepresentation.XCDR1, True)
LE2, BE2 = (DataRepresentation.XCDR2, False), (DataRepresentation.XCDR2, True)


def struct(*types: Type, extensibility: Extensibility = FINAL, optional: bool = False) -> Struct:
    members = [Member(f"m{i}", t, i, optional=optional) for i, t in enumerate(types)]
    return Struct("S", tuple(members), extensibility)


LIST = Struct(
    "S",
    (
        Member("a", BYTE, 3, must_understand=True),
        Member("b", DOUBLE, 0x3F01),
        Member("c", String(), 0x0ABC_DEF0, optional=True),
    ),
    MUTABLE,
)
CODES = struct(
    *(BYTE, INT16, INT32, DOUBLE, QUAD, String(), WString()),
    *(Sequence(BYTE), Sequence(INT16), Sequence(INT32), Sequence(DOUBLE), Sequence(String())),
    *(Array(INT32, (1,)), Map(INT32, BYTE), Map(INT32, String()), struct(BYTE, extensibility=APPENDABLE)),
    extensibility=MUTABLE,
)
CHOICE = Union("U", INT16, (Case("a", DOUBLE, 7, (1,)), Case("b", String(), 9, (2,))))
BITS = Bitset(
    "B",
    (
        BitField("low", 0, 4, PrimitiveKind.BYTE),
        BitField("high", 10, 7, PrimitiveKind.INT8),
    ),
    20,
)


def choice(extensibility: Extensibility) -> Struct:
    return struct(BYTE, Union("U", INT16, CHOICE.cases, extensibility), BYTE)


A = {"m0": 1, "m1": {"discriminator": 1, "a": 1.5, "b": None}, "m2": 2}
B = {"m0": 1, "m1": {"discriminator": 2, "a": None, "b": "x"}, "m2": 2}
NONE = {"m0": 1, "m1": {"discriminator": 3, "a": None, "b": None}, "m2": 2}

#: (title, type, value, representation, big-endian, payload in hex; after # what it is)
VECTORS: list[tuple[str, Struct, dict[str, Any], tuple[DataRepresentation, bool], str]] = [
    (
        "PL_CDR",
        LIST,
        {"a": 5, "b": 1.5, "c": "hey"},
        LE1,
        """0003 0000
        017f0800 03000040 04000000  05000000            # extended, 8; id 3, must be understood; 4: padding counted
        017f0800 013f0000 08000000  00000000 0000f83f   # id 0x3f01; the value is aligned from its own start
        017f0800 f0debc0a 08000000  04000000 68657900   # id 0xabcdef0
        027f0000                                        # the list's end""",
    ),
    (
        "PL_CDR, optional absent",
        LIST,
        {"a": 5, "b": 1.5, "c": None},
        BE1,
        """0002 0000
        7f010008 40000003 00000004  05000000
        7f010008 00003f01 00000008  3ff80000 00000000
        7f020000""",
    ),
    (
        "PL_CDR2",
        LIST,
        {"a": 5, "b": 1.5, "c": "hey"},
        LE2,
        """000b 0000
        20000000                       # DHEADER
        03000080 05 000000             # LC 0: one byte; must be understood
        013f0030 00000000 0000f83f     # LC 3: eight
        f0debc5a 04000000 68657900     # LC 5: the string's length is the NEXTINT""",
    ),
    (
        "PL_CDR2, optional absent",
        LIST,
        {"a": 5, "b": 1.5, "c": None},
        BE2,
        """000a 0000
        00000014
        80000003 05 000000
        30003f01 3ff80000 00000000""",
    ),
    (
        "length codes",
        CODES,
        {
            "m0": 1,
            "m1": 2,
            "m2": 3,
            "m3": 0.0,
            "m4": 1.0,
            "m5": "a",
            "m6": "b",
            "m7": b"\1\2\3",
            "m8": [1],
            "m9": [1],
            "m10": [0.0],
            "m11": [""],
            "m12": [1],
            "m13": [(1, 2)],
            "m14": [(1, "")],
            "m15": {"m0": 1},
        },
        LE2,
        """000b 0003
        e5000000                             # DHEADER: 229 bytes, those below
        00000000 01 000000
        01000010 0200 0000
        02000020 03000000
        03000030 00000000 00000000
        04000040 10000000 00000000 00000000 00000000 0000ff3f   # no code for 16 bytes
        05000050 02000000 6100 0000
        06000050 02000000 6200 0000
        07000050 03000000 010203 00          # its count is that of bytes
        08000040 06000000 01000000 0100 0000 # no code for elements of 2 bytes
        09000060 01000000 01000000           # elements of 4
        0a000070 01000000 00000000 00000000  # elements of 8
        0b000050 09000000 01000000 01000000 00 000000           # its DHEADER is the NEXTINT
        0c000040 04000000 01000000
        0d000040 09000000 01000000 01000000 02 000000           # a map of primitives has no DHEADER
        0e000050 0d000000 01000000 01000000 01000000 00         # of others it has
        000000
        0f000040 05000000 01000000 01 000000""",
    ),
    (
        "@optional in XCDR1",
        struct(BYTE, DOUBLE, DOUBLE, BYTE, optional=True),
        {"m0": 1, "m1": 1.5, "m2": None, "m3": 2},
        LE1,
        """0001 0003
        017f0800 00000000 01000000 01 000000            # the length is that of the value
        017f0800 01000000 08000000 00000000 0000f83f    # 28 bytes behind the sample's start, and aligned to 8
        017f0800 02000000 00000000                      # absent
        017f0800 03000000 01000000 02 000000""",
    ),
    (
        "@optional in XCDR2",
        struct(BYTE, DOUBLE, DOUBLE, BYTE, optional=True),
        {"m0": 1, "m1": 1.5, "m2": None, "m3": 2},
        BE2,
        "0006 0001  01 01 01 00 3ff80000 00000000 00 01 02 00",
    ),
    (
        "final union, XCDR1",
        choice(FINAL),
        A,
        LE1,
        "0001 0003 01 00 0100 00000000 00000000 0000f83f 02 000000",
    ),
    ("final union, XCDR2", choice(FINAL), A, LE2, "0007 0003 01 00 0100 00000000 0000f83f 02 000000"),
    ("final union, another branch", choice(FINAL), B, BE2, "0006 0001 01 00 0002 00000002 7800 02 00"),
    ("final union, no branch", choice(FINAL), NONE, LE1, "0001 0003 01 00 0300 02 000000"),
    (
        "appendable union",
        choice(APPENDABLE),
        B,
        LE2,
        "0007 0001 01 000000 0a000000 0200 0000 02000000 7800 02 00",
    ),
    ("appendable union in XCDR1", choice(APPENDABLE), B, LE1, "0001 0001 01 00 0200 02000000 7800 02 00"),
    (
        "mutable union",
        choice(MUTABLE),
        A,
        LE2,
        """0007 0003 01 000000
        1c000000                                  # DHEADER
        000000c0 02000000 0100 0000               # the discriminator is member 0 and must be understood
        07000040 08000000 00000000 0000f83f
        02 000000""",
    ),
    (
        "mutable union in XCDR1",
        choice(MUTABLE),
        B,
        LE1,
        """0001 0003 01 000000
        017f0800 00000040 02000000 0200 0000            # lengths without padding here
        017f0800 09000000 06000000 02000000 7800 0000
        027f0000 02 000000""",
    ),
    (
        "map of primitives",
        struct(Map(BYTE, DOUBLE)),
        {"m0": [(2, 1.5), (1, 0.0)]},
        LE1,
        """0001 0000 02000000
        02 000000 00000000 0000f83f       # 4 is not a multiple of 8: but behind count and key it is 8
        01 000000 00000000 00000000 00000000""",
    ),
    (
        "map of primitives in XCDR2",
        struct(Map(BYTE, DOUBLE)),
        {"m0": [(2, 1.5), (1, 0.0)]},
        LE2,
        "0007 0000 02000000  02 000000 00000000 0000f83f  01 000000 00000000 00000000",
    ),
    (
        "map of strings",
        struct(Map(String(), String())),
        {"m0": [("b", "x"), ("a", "")]},
        BE2,
        """0006 0003 00000021 00000002
        00000002 6200 0000 00000002 7800 0000
        00000002 6100 0000 00000001 00 000000""",
    ),
    ("empty map", struct(Map(String(), String())), {"m0": []}, LE2, "0007 0000 04000000 00000000"),
    (
        "wstring",
        struct(WString(), BYTE),
        {"m0": "é😀", "m1": 1},
        LE1,
        "0001 0001 06000000 e900 3dd8 00de 01 00",
    ),
    (
        "wstring",
        struct(WString(), BYTE),
        {"m0": "é😀", "m1": 1},
        BE2,
        "0006 0001 00000006 00e9 d83d de00 01 00",
    ),
    (
        "long double in XCDR1",
        struct(BYTE, QUAD),
        {"m0": 1, "m1": -2.0},
        LE1,
        "0001 0000 01 000000 00000000 00000000 00000000 00000000 000000c0",
    ),
    (
        "long double in XCDR2",
        struct(BYTE, Sequence(QUAD)),
        {"m0": 1, "m1": [-2.0]},
        BE2,
        "0006 0000 01 000000 00000001 c0000000 00000000 00000000 00000000",
    ),
    # 20 bits lie in an uint32: 5 | (-3 & 0x7f) << 10
    (
        "bitset",
        struct(BYTE, BITS),
        {"m0": 1, "m1": {"low": 5, "high": -3}},
        LE1,
        "0001 0000 01 000000 05f40100",
    ),
    (
        "bitsets",
        struct(Array(BITS, (1,))),
        {"m0": [{"low": 5, "high": -3}]},
        BE2,
        "0006 0000 00000004 0001f405",
    ),
]


@pytest.mark.parametrize("case", VECTORS, ids=[case[0] for case in VECTORS])
def test_vector(case: tuple[str, Struct, dict[str, Any], tuple[DataRepresentation, bool], str]) -> None:
    _, t, value, (representation, big_endian), text = case
    payload = bytes.fromhex("".join(line.split("#")[0] for line in text.splitlines()))
    codec = Codec(t)
    batch = pa.RecordBatch.from_pylist([value, value], schema=codec.arrow_schema)
    samples = codec.encode_batch(batch, representation=representation, big_endian=big_endian)
    assert bytes(samples.payload(0)).hex(" ", -4) == payload.hex(" ", -4)
    assert bytes(samples.payload(1)) == payload
    decoded = codec.decode_samples(samples)
    assert decoded.malformed is None
    assert decoded.batch.equals(batch)


#: Encapsulation by extensibility and representation (XTypes 1.3 table 60): CDR, PL_CDR, PLAIN_CDR2, D_CDR2, PL_CDR2
IDENTIFIERS = [
    (FINAL, 0x0000, 0x0006),
    (APPENDABLE, 0x0000, 0x0008),
    (MUTABLE, 0x0002, 0x000A),
]


@pytest.mark.parametrize(("extensibility", "first", "second"), IDENTIFIERS)
def test_encapsulation(extensibility: Extensibility, first: int, second: int) -> None:
    for types in ((INT32,), (String(),)):  # of one size, and of any
        codec = Codec(struct(*types, extensibility=extensibility))
        row = {"m0": "abc" if types == (String(),) else 1}
        batch = pa.RecordBatch.from_pylist([row], schema=codec.arrow_schema)
        for representation, wanted in ((DataRepresentation.XCDR1, first), (DataRepresentation.XCDR2, second)):
            for big_endian in (False, True):
                samples = codec.encode_batch(batch, representation=representation, big_endian=big_endian)
                payload = bytes(samples.payload(0))
                assert payload[:3] == bytes([0, wanted + (0 if big_endian else 1), 0])
                assert len(payload) % 4 == 0
                size = codec.uniform_size(representation)
                assert size is None or size == len(payload)
