"""DATA_BATCH: the fast road against a plain one that steps from sample to sample; bytes counted, cut, damaged."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_rtps.transport.errors import DecodeError, DropReason, UsageError
from spark_rtps.transport.structure import ENTITYID_UNKNOWN, Guid
from spark_rtps.transport.wire.batch import DATA_BATCH, Batch, BatchBlock, frame_batch, scan_batch
from spark_rtps.transport.wire.batch_scan import SAMPLE_INFO_FLAGS, _alike
from spark_rtps.transport.wire.framing import frame
from spark_rtps.transport.wire.ntp import from_ntp, to_ntp
from spark_rtps.transport.wire.runs import Words
from spark_rtps.transport.wire.samples import (
    DISPOSED,
    HAS_KEY_HASH,
    KEY_ONLY,
    NO_TIMESTAMP,
    REMOVED,
    UNREGISTERED,
    Run,
    Samples,
)

PREFIX, WRITER, READER = bytes(range(12)), b"\x00\x00\x01\x02", b"\x00\x00\x02\x07"
T, Q, O, D, I, K = SAMPLE_INFO_FLAGS  # noqa: E741 -- their names in the layout
CDR_LE = b"\x00\x01"
NOON = 1_700_000_000_000_000_000  # INFO_TS, in the tests
BOTH_ORDERS = pytest.mark.parametrize("little", [True, False], ids=["LE", "BE"])


@dataclass(frozen=True)
class Sample:
    """What a sample is, whichever way it travels; None: there is none of it."""

    payload: bytes | None = b"\x2a\x00\x00\x00"  # without encapsulation header and padding
    key: bool = False
    status: int = 0
    key_hash: bytes | None = None
    timestamp: int | None = None  # its own; None: that of the sample before
    offset: int | None = None
    removed: bool = False
    coherent_set: int = 0


# --- the plain road: one sample after the other ------------------------------------------------------


def encode(
    samples: list[Sample],
    little: bool = True,
    *,
    batch_sn: int = 5,
    first_sn: int = 100,
    to_last: int | None = None,
    qos: bytes = b"",
    padded: bool = True,
    last_padded: bool = True,
    count: int | None = None,
    reader_id: bytes = READER,
) -> bytes:
    """A DATA_BATCH as another vendor might write it: exact lengths, everything that the layout has."""
    e = "<" if little else ">"
    infos, payloads, number = b"", b"", -1
    for at, sample in enumerate(samples):
        number = number + 1 if sample.offset is None else sample.offset
        bits, own, inline = 0, b"", b""
        if sample.timestamp is not None:
            bits, own = bits | T, struct.pack(e + "II", *to_ntp(sample.timestamp))
        if sample.offset is not None:
            bits, own = bits | O, own + struct.pack(e + "I", sample.offset)
        if sample.key_hash is not None:
            inline += struct.pack(e + "HH", 0x70, 16) + sample.key_hash
        if sample.coherent_set:
            high, low = sample.coherent_set >> 32, sample.coherent_set & 0xFFFFFFFF
            inline += struct.pack(e + "HHiI", 0x56, 8, high, low)
        if sample.status:
            inline += struct.pack(e + "HH", 0x71, 4) + bytes((0, 0, 0, sample.status))
        if inline:
            bits, inline = bits | Q, inline + struct.pack(e + "HH", 1, 0)
        bits |= I if sample.removed else 0
        if sample.payload is not None:
            bits |= K if sample.key else D
        payload = sample.payload or b""
        infos += bytes((0, bits)) + struct.pack(e + "HI", 4 + len(own), len(payload)) + own + inline
        payloads += payload
        if padded and (last_padded or at < len(samples) - 1):
            payloads += bytes(-len(payload) & 3)
    to_last = number if to_last is None else to_last
    body = struct.pack(e + "HH", 0, 32) + reader_id + WRITER
    body += struct.pack(
        e + "iIiI", batch_sn >> 32, batch_sn & 0xFFFFFFFF, first_sn >> 32, first_sn & 0xFFFFFFFF
    )
    body += struct.pack(e + "II", to_last, len(samples) if count is None else count)
    body += qos + struct.pack(e + "I", len(infos)) + infos + CDR_LE + b"\x00\x00" + payloads
    return bytes((DATA_BATCH, little | (Q if qos else 0))) + struct.pack(e + "H", len(body)) + body


Row = tuple[int, bytes, int, int, bytes]


def expected(samples: list[Sample], first_sn: int = 100, timestamp: int = NOON) -> list[Row]:
    """(sequence number, payload as a run has it, flags, timestamp, key hash) of each sample."""
    rows, number = [], -1
    for sample in samples:
        number = number + 1 if sample.offset is None else sample.offset
        timestamp = timestamp if sample.timestamp is None else sample.timestamp
        payload = b""
        if sample.payload is not None:
            padding = -len(sample.payload) & 3
            payload = CDR_LE + bytes((0, padding)) + sample.payload + bytes(padding)
        flags = sample.status | (KEY_ONLY if sample.key and sample.payload is not None else 0)
        flags |= (HAS_KEY_HASH if sample.key_hash else 0) | (REMOVED if sample.removed else 0)
        rows.append((first_sn + number, payload, flags, timestamp, sample.key_hash or bytes(16)))
    return rows


def rows_of(runs: list[Run]) -> list[Row]:
    rows = []
    for run in runs:
        samples, stamps, flags, numbers = (
            run.samples(), run.timestamps(), run.sample_flags(), run.sequence_numbers()
        )  # fmt: skip
        hashes = run.key_hashes()
        for i in range(run.count):
            key_hash = bytes(16) if hashes is None else hashes[i].tobytes()
            rows.append((int(numbers[i]), bytes(samples.payload(i)), int(flags[i]), int(stamps[i]), key_hash))
    return rows


def scanned(submessage: bytes, timestamp: int = NOON) -> Batch:
    """What becomes of it somewhere inside a message."""
    data = np.frombuffer(b"\xee" * 8 + submessage + b"\xee" * 12, np.uint8)
    return scan_batch(data, 8, len(data) - 12, PREFIX, timestamp)


def ragged(payloads: list[bytes]) -> Samples:
    lengths = np.array([len(payload) for payload in payloads], np.int64)
    return Samples.ragged(np.frombuffer(b"".join(payloads), np.uint8), np.cumsum(lengths) - lengths, lengths)


def framed(samples: list[Sample], *, uniform: bool = False, **options: object) -> BatchBlock:
    """The samples through frame_batch, as a writer hands them over: timestamps of all, flags of each."""
    rows = expected(samples)
    payloads = [row[1] for row in rows]
    made = ragged(payloads)
    if uniform:
        made = Samples.uniform(made.data, len(rows), len(payloads[0]))
    hashes = np.frombuffer(b"".join(row[4] for row in rows), np.uint8).reshape(-1, 16)
    return frame_batch(
        made,
        WRITER,
        5,
        100,
        flags=np.array([row[2] for row in rows], np.uint32),
        key_hashes=hashes if samples[0].key_hash else None,
        timestamps=np.array([row[3] for row in rows], np.int64),
        removed=np.array([sample.removed for sample in samples]),
        **options,  # type: ignore[arg-type]
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
        sizes.append(frame_batch(samples, WRITER, 1, 1, **given_).nbytes)  # type: ignore[arg-type]
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


# --- there and back ---------------------------------------------------------------------------------

key_hashes = st.binary(min_size=16, max_size=16)
stamps = st.integers(0, (2**32 - 2) * 10**9)
contents = st.none() | st.sampled_from([0, 1, 4, 8, 13]).map(lambda n: bytes(range(7, 7 + n)))


@st.composite
def foreign_samples(draw: st.DrawFn) -> list[Sample]:
    """Stretches of samples that look alike, now and then with one that does not."""
    samples: list[Sample] = []
    number = -1
    for _ in range(draw(st.integers(1, 5))):
        like = Sample(
            draw(contents),
            draw(st.booleans()),
            draw(st.sampled_from([0, 0, DISPOSED, UNREGISTERED])),
            draw(st.none() | key_hashes),
            draw(st.none() | stamps),
        )
        with_offsets = draw(st.booleans())
        for _ in range(draw(st.integers(1, 9))):
            number += 1
            sample = replace(like, removed=draw(st.integers(0, 5)) == 0)
            if draw(st.integers(0, 5)) == 0:
                sample = replace(sample, payload=draw(contents))
            if with_offsets:
                number += draw(st.sampled_from([0, 0, 0, 1, 1000]))
                sample = replace(sample, offset=number)
            if sample.key_hash is not None:
                sample = replace(sample, key_hash=draw(key_hashes))
            if sample.timestamp is not None:
                sample = replace(sample, timestamp=draw(stamps))
            samples.append(sample)
    return samples


@given(
    samples=foreign_samples(),
    little=st.booleans(),
    first_sn=st.sampled_from([1, 100, 2**32 - 3, 2**62]),
    count=st.none() | st.integers(0, 2**32 - 1),
)
@example([Sample()] * 40, True, 100, None)
@example([Sample(), *[Sample(timestamp=NOON + i) for i in range(40)]], True, 100, None)
def test_whatever_others_write_is_read(
    samples: list[Sample], little: bool, first_sn: int, count: int | None
) -> None:
    found = scanned(encode(samples, little, first_sn=first_sn, count=count))
    assert rows_of(found.runs) == expected(samples, first_sn)
    assert found.last_sn == found.runs[-1].last_sn
    assert all(run.batch_sn == 5 and not run.sparse for run in found.runs)
    for run in found.runs:
        assert run.sequence_numbers().tolist() == list(range(run.first_sn, run.last_sn + 1))


@st.composite
def our_samples(draw: st.DrawFn) -> list[Sample]:
    """What frame_batch can be asked for: key hashes of all or none, no offsets."""
    keyed = draw(st.booleans())
    alike = draw(st.booleans())
    sample = Sample(draw(contents), draw(st.booleans()), draw(st.sampled_from([0, 0, DISPOSED, 3])))
    samples = []
    for i in range(draw(st.integers(1, 30))):
        if not alike:
            sample = Sample(draw(contents), draw(st.booleans()), draw(st.sampled_from([0, 0, DISPOSED, 3])))
        if sample.status and not sample.key:
            sample = replace(sample, payload=None)  # it would not be sent
        samples.append(
            replace(
                sample,
                key_hash=draw(key_hashes) if keyed else None,
                timestamp=draw(st.none() | stamps) if i else None,
                removed=draw(st.booleans()),
            )
        )
    return samples


@given(samples=our_samples())
def test_what_we_write_we_read(samples: list[Sample]) -> None:
    """Byte for byte: padding that the encapsulation headers told is told again."""
    block = framed(samples)
    assert rows_of(block.to_run(PREFIX, NOON)) == expected(samples)
    uniform = len({0 if sample.payload is None else 4 + len(sample.payload) for sample in samples}) == 1
    if uniform and samples[0].payload is not None and len({bool(s.status) for s in samples}) == 1:
        assert (
            framed(samples, uniform=len(samples[0].payload) % 4 == 0).data.tobytes() == block.data.tobytes()
        )


@given(samples=our_samples(), lengths=st.data())
def test_removed_later_is_as_if_removed_before(samples: list[Sample], lengths: st.DataObject) -> None:
    first = lengths.draw(st.integers(90, 140))
    last = lengths.draw(st.integers(first - 1, 140))
    block = framed([replace(sample, removed=False) for sample in samples])
    block.mark_removed(first, last)
    marked = [replace(s, removed=first <= 100 + i <= last) for i, s in enumerate(samples)]
    assert block.data.tobytes() == framed(marked).data.tobytes()
    assert (block.last_sn, block.nbytes) == (99 + len(samples), len(block.data))


def test_a_batch_becomes_plain_data_again() -> None:
    payloads = [CDR_LE + bytes((0, i & 3)) + bytes([i] * 8) for i in range(6)]
    block = frame_batch(ragged(payloads), WRITER, 1, 7)
    [run] = block.to_run(PREFIX, NOON)
    [plain] = frame(run.samples(), WRITER, run.first_sn, budget=1000)
    assert plain.data.tobytes() == frame(ragged(payloads), WRITER, 7, budget=1000)[0].data.tobytes()


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
    assert rows_of([run.take(3, 9)]) == expected(samples)[3:9]


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


# --- what is wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("submessage", "reason"),
    [
        (encode([Sample()], batch_sn=0), DropReason.BAD_SEQUENCE_NUMBER),
        (encode([Sample()], batch_sn=-5), DropReason.BAD_SEQUENCE_NUMBER),
        (encode([Sample()], first_sn=0), DropReason.BAD_SEQUENCE_NUMBER),
        (encode([Sample()], first_sn=2**63 - 1, to_last=1), DropReason.BAD_SEQUENCE_NUMBER),
        (encode([Sample()] * 3, to_last=1), DropReason.BAD_SEQUENCE_NUMBER),
        (encode([Sample(offset=3), Sample(offset=3)]), DropReason.BAD_SEQUENCE_NUMBER),
        (encode([Sample(offset=3), Sample(offset=2)], to_last=9), DropReason.BAD_SEQUENCE_NUMBER),
        (encode([], to_last=0), DropReason.TRUNCATED_SUBMESSAGE),
        (encode([Sample()], qos=b"\x56\x00\x08\x00" + bytes(4)), DropReason.BAD_PARAMETER_LIST),
    ],
)
def test_refused(submessage: bytes, reason: DropReason) -> None:
    with pytest.raises(DecodeError) as refused:
        scanned(submessage)
    assert refused.value.reason is reason


@pytest.mark.parametrize("at", [0, 1])
def test_data_and_key_together_are_refused(at: int) -> None:
    whole = bytearray(encode([Sample(), Sample()]))
    for i in range(at, 2):
        whole[44 + 8 * i + 1] |= D | K
    with pytest.raises(DecodeError):
        scanned(bytes(whole))


def test_a_declared_size_allocates_nothing() -> None:
    """Lengths of 4 GiB each, in a batch that has room for none."""
    whole = bytearray(encode([Sample()] * 1000))
    infos = np.frombuffer(whole, np.uint8)[44 : 44 + 8000].reshape(1000, 8)
    infos[:, 4:] = 0xFF
    with pytest.raises(DecodeError):
        scanned(bytes(whole))
    infos[500:, 4:] = 0
    with pytest.raises(DecodeError):
        scanned(bytes(whole))


def test_a_list_of_many_shapes_is_read_in_bounded_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """No two neighbours alike: each is then compared with a few only."""
    samples = [Sample(b"", timestamp=NOON + i if i % 2 else None) for i in range(4000)]
    compared = 0

    def alike(words: Words, shape: Any, ahead: int, little: int) -> Words:
        nonlocal compared
        compared += min(len(words) // shape.size, ahead)
        return _alike(words, shape, ahead, little)

    monkeypatch.setattr(f"{scan_batch.__module__}._alike", alike)
    assert rows_of(scanned(encode(samples)).runs) == expected(samples)
    assert compared < 2 * 6000 + 4 * 4000


@given(samples=foreign_samples(), little=st.booleans(), data=st.data())
def test_damage_is_a_decode_error_or_another_batch(
    samples: list[Sample], little: bool, data: st.DataObject
) -> None:
    whole = bytearray(encode(samples, little))
    for _ in range(data.draw(st.integers(1, 6))):
        whole[data.draw(st.integers(1, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DecodeError):
        found = scanned(bytes(whole))
        rows = rows_of(found.runs)
        assert sum(len(row[1]) for row in rows) <= 8 * len(whole)
        assert all(found.first_sn <= row[0] <= found.last_sn for row in rows)


@given(flags=st.integers(0, 255), body=st.binary(max_size=200))
def test_noise_is_a_decode_error_or_a_batch(flags: int, body: bytes) -> None:
    with suppress(DecodeError):
        scanned(bytes((DATA_BATCH, flags, 0, 0)) + body)


# --- misuse ------------------------------------------------------------------------------------------


def test_misuse() -> None:
    def uniform(count: int, size: int) -> Samples:
        return Samples.uniform(np.zeros(count * size, np.uint8), count, size)

    with pytest.raises(UsageError, match="without samples"):
        frame_batch(uniform(0, 8), WRITER, 1, 1)
    with pytest.raises(UsageError, match="a submessage has at most"):
        frame_batch(uniform(1000, 64), WRITER, 1, 1)
    with pytest.raises(UsageError, match="not padded"):
        frame_batch(uniform(4, 6), WRITER, 1, 1)
    with pytest.raises(UsageError, match="not padded"):
        frame_batch(ragged([bytes(6)]), WRITER, 1, 1)
    mixed = [CDR_LE + bytes(6), b"\x00\x07" + bytes(6)]
    for samples in (ragged(mixed), Samples.uniform(np.frombuffer(b"".join(mixed), np.uint8), 2, 8)):
        with pytest.raises(UsageError, match="encapsulations"):
            frame_batch(samples, WRITER, 1, 1)
    with pytest.raises(UsageError, match="timestamp"):
        frame_batch(uniform(2, 8), WRITER, 1, 1, timestamps=np.array([0, -5]))


def test_a_timestamp_that_is_none_goes_as_time_invalid() -> None:
    samples = Samples.uniform(np.zeros(16, np.uint8), 2, 8)
    block = frame_batch(samples, WRITER, 1, 1, timestamps=np.array([NOON, NO_TIMESTAMP]))
    assert block.to_run(PREFIX, NOON)[0].timestamps().tolist() == [NOON, NO_TIMESTAMP]


def test_reader_id() -> None:
    samples = Samples.uniform(np.zeros(16, np.uint8), 2, 8)
    assert frame_batch(samples, WRITER, 1, 1).to_run(PREFIX, NOON)[0].reader_id == ENTITYID_UNKNOWN
    assert frame_batch(samples, WRITER, 1, 1, reader_id=READER).to_run(PREFIX, NOON)[0].reader_id == READER
