"""DATA_BATCH, plainly: one sample after the other, as the oracle of the fast road."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import pytest

from spark_rtps.transport.wire.batch import DATA_BATCH, Batch, BatchBlock, frame_batch, scan_batch
from spark_rtps.transport.wire.batch_scan import SAMPLE_INFO_FLAGS
from spark_rtps.transport.wire.ntp import to_ntp
from spark_rtps.transport.wire.samples import HAS_KEY_HASH, KEY_ONLY, REMOVED, Run, Samples

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
        **options,
    )
