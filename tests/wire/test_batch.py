"""DATA_BATCH: its bytes in both orders, what a sample costs, and the shapes that count."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from spark_rtps.transport.errors import DecodeError
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.batch import frame_batch, scan_batch
from spark_rtps.transport.wire.ntp import from_ntp
from spark_rtps.transport.wire.samples import DISPOSED, NO_TIMESTAMP, REMOVED, UNREGISTERED, Samples
from tests.wire.plain_batches import (
    BOTH_ORDERS,
    CDR_LE,
    NOON,
    PREFIX,
    READER,
    WRITER,
    Sample,
    encode,
    expected,
    framed,
    rows_of,
    scanned,
)

# --- bytes, in both orders ---------------------------------------------------------------------------


def raw(text: str) -> bytes:
    return bytes.fromhex("".join(line.partition("#")[0] for line in text.splitlines()))


#: Two samples: one of 4 bytes with a timestamp of its own, one disposed with a key hash, removed.
VECTOR = [
    Sample(b"\x2a\x00\x00\x00", timestamp=5_500_000_000),
    Sample(None, status=DISPOSED, key_hash=bytes(range(16)), removed=True),
]
LITTLE = """
    18 01 68 00                # DATA_BATCH, E, 104 bytes
    00 00 20 00                # extraFlags 0, octetsToInlineQos 32
    00 00 02 07  00 00 01 02   # readerId, writerId
    00 00 00 00  05 00 00 00   # batch 5
    00 00 00 00  64 00 00 00   # first sample 100
    01 00 00 00  02 00 00 00   # offset to the last, count
    38 00 00 00                # 56 bytes of sample infos
    00 09 0c 00  04 00 00 00   # D | T, big-endian; octetsToInlineQos 12; 4 bytes
    05 00 00 00  00 00 00 80   # 5.5 s
    00 12 04 00  00 00 00 00   # I | Q; octetsToInlineQos 4; no bytes
    70 00 10 00  00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f
    71 00 04 00  00 00 00 01   # disposed
    01 00 00 00
    00 01 00 00  2a 00 00 00   # CDR_LE; 42
"""
BIG = """
    18 00 00 68
    00 00 00 20
    00 00 02 07  00 00 01 02
    00 00 00 00  00 00 00 05
    00 00 00 00  00 00 00 64
    00 00 00 01  00 00 00 02
    00 00 00 38
    00 09 00 0c  00 00 00 04   # the flags as above
    00 00 00 05  80 00 00 00
    00 12 00 04  00 00 00 00
    00 70 00 10  00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f
    00 71 00 04  00 00 00 01
    00 01 00 00
    00 01 00 00  2a 00 00 00
"""


@BOTH_ORDERS
def test_vector(little: bool) -> None:
    vector = raw(LITTLE if little else BIG)
    assert encode(VECTOR, little).hex(" ", 4) == vector.hex(" ", 4)
    found = scanned(vector)
    assert found[:3] == (5, 100, 101)
    assert found.end == 8 + len(vector)
    assert (found.reader_id, found.writer) == (READER, Guid(PREFIX, WRITER))
    [run] = found.runs
    assert (run.batch_sn, run.writer, run.reader_id, run.coherent_set) == (5, found.writer, READER, 0)
    assert rows_of([run]) == expected(VECTOR)


def test_we_write_the_vector_too() -> None:
    """But for the key hash, which all or none have, and the first timestamp, which is INFO_TS's."""
    samples = [replace(VECTOR[0], timestamp=None), replace(VECTOR[1], key_hash=None)]
    assert framed(samples, reader_id=READER).data.tobytes().hex(" ", 4) == encode(samples).hex(" ", 4)


@BOTH_ORDERS
def test_cut_at_every_length(little: bool) -> None:
    whole = encode([*VECTOR, Sample(bytes(5))], little, qos=coherent(100, little))
    for length in range(len(whole)):
        data = np.frombuffer(whole[:length], np.uint8)
        with pytest.raises(DecodeError):
            scan_batch(data, 0, length, PREFIX, NOON)
        if length < 8:
            continue
        # the same with a header that fits; the last three bytes are padding
        data = data.copy()
        data[2:4] = np.frombuffer(struct.pack("<H" if little else ">H", length - 4), np.uint8)
        if length < len(whole) - 3:
            with pytest.raises(DecodeError):
                scan_batch(data, 0, length, PREFIX, NOON)
        else:
            assert len(rows_of(scan_batch(data, 0, length, PREFIX, NOON).runs)) == 3


def test_zero_octets_to_next_header_reaches_to_the_end() -> None:
    whole = bytearray(encode(VECTOR))
    whole[2:4] = b"\x00\x00"
    found = scan_batch(np.frombuffer(bytes(whole), np.uint8), 0, len(whole), PREFIX, NOON)
    assert found.end == len(whole)
    assert rows_of(found.runs) == expected(VECTOR)


# --- what a sample costs ----------------------------------------------------------------------------


def overhead(**options: object) -> int:
    """Bytes that one sample more adds, its payload apart."""
    sizes = []
    for count in (10, 11):
        samples = Samples.uniform(np.tile(np.frombuffer(CDR_LE + bytes(10), np.uint8), count), count, 12)
        given_ = {name: option(count) if callable(option) else option for name, option in options.items()}
        sizes.append(frame_batch(samples, WRITER, 1, 1, **given_).nbytes)
    dataless = options.get("flags", 0) in (DISPOSED, UNREGISTERED)
    return sizes[1] - sizes[0] - (0 if dataless else 8)


def hashes_of(count: int) -> np.ndarray:
    return np.arange(16 * count, dtype=np.uint8).reshape(count, 16)


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, 8),
        ({"key_hashes": hashes_of}, 32),
        ({"key_hashes": None}, 8),  # keyed, with disable_inline_keyhash
        ({"flags": DISPOSED, "key_hashes": hashes_of}, 40),
        ({"flags": UNREGISTERED, "key_hashes": hashes_of}, 40),
        ({"flags": DISPOSED}, 20),
        ({"flags": UNREGISTERED}, 20),
        ({"timestamps": np.arange}, 16),
        ({"key_hashes": hashes_of, "timestamps": np.arange}, 40),
        ({"flags": DISPOSED, "key_hashes": hashes_of, "timestamps": np.arange}, 48),
        ({"removed": lambda n: np.ones(n, bool)}, 8),
        ({"coherent_set": 1}, 8),
    ],
)
def test_overhead_per_sample(options: dict[str, object], size: int) -> None:
    assert overhead(**options) == size


def test_overhead_per_batch() -> None:
    one = Samples.uniform(np.frombuffer(CDR_LE + bytes(2), np.uint8), 1, 4)
    assert frame_batch(one, WRITER, 1, 1).nbytes == 48 + 8
    assert frame_batch(one, WRITER, 1, 1, coherent_set=1).nbytes == 48 + 8 + 16


# --- the shapes that count ---------------------------------------------------------------------------


@pytest.mark.parametrize("little", [True, False], ids=["LE", "BE"])
@pytest.mark.parametrize("size", [0, 3, 4, 60])
@pytest.mark.parametrize("key_hash", [None, b"k" * 16], ids=["unkeyed", "keyed"])
@pytest.mark.parametrize("own", ["none", "all", "all but the first"])
def test_usual_batches_are_uniform_runs(little: bool, size: int, key_hash: bytes | None, own: str) -> None:
    samples = [Sample(bytes([i] * size), key_hash=key_hash) for i in range(50)]
    if own != "none":
        samples = [replace(s, timestamp=NOON + i) for i, s in enumerate(samples)]
    if own == "all but the first":
        samples[0] = replace(samples[0], timestamp=None)
    [run] = scanned(encode(samples, little)).runs
    assert run.stride == (16 if key_hash else 0) + (8 if own != "none" else 0) + 4 + size + (-size & 3)
    assert run.data.nbytes == 50 * run.stride
    assert rows_of([run]) == expected(samples)
    assert rows_of([run.take_range(3, 9)]) == expected(samples)[3:9]


def test_a_run_has_memory_of_its_own() -> None:
    for samples in ([Sample()] * 3, [Sample(), Sample(bytes(8))], [Sample(None)] * 3):
        data = np.frombuffer(encode(samples), np.uint8).copy()
        found = scan_batch(data, 0, len(data), PREFIX, NOON)
        data[:] = 0xFF
        assert rows_of(found.runs) == expected(samples)


def test_removed_samples_stay_in_a_run() -> None:
    samples = [Sample(bytes([i] * 4), removed=i in (2, 3)) for i in range(6)]
    [run] = scanned(encode(samples)).runs
    assert [int(flags) for flags in run.sample_flags()] == [0, 0, REMOVED, REMOVED, 0, 0]
    kept = run.select(run.sample_flags() & REMOVED == 0)
    assert kept is not None
    assert rows_of([kept]) == [row for row in expected(samples) if not row[2] & REMOVED]
    assert kept.batch_sn == 5


def test_offsets_cut_a_batch_into_runs() -> None:
    samples = [Sample(offset=offset) for offset in (0, 1, 5, 6, 9)]
    found = scanned(encode(samples))
    assert [(run.first_sn, run.last_sn) for run in found.runs] == [(100, 101), (105, 106), (109, 109)]


def test_the_last_sample_may_be_beyond_those_listed() -> None:
    found = scanned(encode([Sample()] * 3, to_last=9))
    assert (found.last_sn, found.runs[-1].last_sn) == (109, 102)


@BOTH_ORDERS
@pytest.mark.parametrize("size", [5, 6, 7])
def test_padding_left_out(little: bool, size: int) -> None:
    """By the last sample, or by all: tshark reads the latter, RTI is said to write the padding."""
    samples = [Sample(bytes([i + 1] * size)) for i in range(9)]
    assert rows_of(scanned(encode(samples, little, last_padded=False)).runs) == expected(samples)
    assert rows_of(scanned(encode(samples, little, padded=False)).runs) == expected(samples)
    samples[4] = Sample(bytes(2))
    assert rows_of(scanned(encode(samples, little, last_padded=False)).runs) == expected(samples)
    assert rows_of(scanned(encode(samples, little, padded=False)).runs) == expected(samples)


def test_no_payload_no_encapsulation_header() -> None:
    whole = bytearray(encode([Sample(None, status=DISPOSED)] * 2)[:-4])
    whole[2:4] = struct.pack("<H", len(whole) - 4)
    found = scanned(bytes(whole))
    assert rows_of(found.runs) == expected([Sample(None, status=DISPOSED)] * 2)


def test_the_first_timestamp_may_be_none_at_all() -> None:
    samples = [Sample(), Sample(timestamp=NOON)]
    [run] = scanned(encode(samples), NO_TIMESTAMP).runs
    assert run.timestamps().tolist() == [NO_TIMESTAMP, NOON]
    # A time that INFO_TS can carry and to_ntp cannot: 2 ** 32 s after rounding
    [run] = scanned(encode(samples), from_ntp(0xFFFFFFFF, 0xFFFFFFFF)).runs
    assert run.timestamps().tolist() == [NO_TIMESTAMP, NOON]


def coherent(sn: int, little: bool = True) -> bytes:
    e = "<" if little else ">"
    return struct.pack(e + "HHiIHH", 0x56, 8, sn >> 32, sn & 0xFFFFFFFF, 1, 0)
