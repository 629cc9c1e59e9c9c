"""Runs for the log's tests, all of whose bytes follow from writer and sequence number, and what they hold."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spark_rtps.transport.log.frame import Cursor, Frame
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.samples import DISPOSED, HAS_KEY_HASH, KEY_ONLY, SAMPLE_INDEX, Run

HEADER = 32  # of a sample in a uniform run, before its payload
RECEPTION = 1_700_000_000_000_000_000


class Sample(NamedTuple):
    """One sample as a reader of the log sees it."""

    writer: Guid
    sn: int
    payload: bytes
    timestamp: int
    flags: int
    key_hash: bytes | None


def guid(number: int) -> Guid:
    return Guid(b"\x01\x7e" + number.to_bytes(10, "big"), b"\x00\x00\x01\x03")


def payload(writer: Guid, sn: int, size: int) -> bytes:
    seed = hashlib.sha256(writer.to_bytes() + sn.to_bytes(8, "big")).digest()
    return (seed * (size // 32 + 1))[:size]


def uniform(writer: Guid, first_sn: int, count: int, size: int = 32) -> Run:
    """Samples with an INFO_TS of their own (big-endian seconds, no fraction) and a key hash."""
    rows = []
    for sn in range(first_sn, first_sn + count):
        ntp = sn.to_bytes(4, "big") + bytes(4)
        rows.append(ntp + sn.to_bytes(16, "big") + bytes(8) + payload(writer, sn, size))
    return Run(
        writer,
        first_sn,
        count,
        np.frombuffer(b"".join(rows), np.uint8),
        stride=HEADER + size,
        payload_offset=HEADER,
        payload_length=size,
        timestamp=5,
        timestamp_offset=0,
        timestamp_big_endian=True,
        key_hash_offset=8,
        flags=DISPOSED,
        reader_id=b"\x00\x00\x02\x04",
    )


def indexed(writer: Guid, first_sn: int, count: int, size: int = 32) -> Run:
    """Payloads of different sizes around ``size``, with gaps between them, one of them empty."""
    index = np.zeros(count, SAMPLE_INDEX)
    parts, at = [], 4
    for i in range(count):
        sn = first_sn + i
        length = 0 if i % 5 == 3 else size + 4 * (i % 3)
        index[i] = (at, length, sn * 1000, KEY_ONLY | HAS_KEY_HASH, 0, sn.to_bytes(16, "big"))
        parts.append(bytes(4) + payload(writer, sn, length))
        at += 4 + length
    return Run(writer, first_sn, count, np.frombuffer(b"".join(parts), np.uint8), index=index)


def single(writer: Guid, sn: int, size: int = 32) -> Run:
    return Run.single(
        writer, sn, np.frombuffer(payload(writer, sn, size), np.uint8), timestamp=sn, flags=DISPOSED
    )


def samples(run: Run) -> list[Sample]:
    payloads, timestamps, flags = run.samples(), run.timestamps(), run.sample_flags()
    hashes = run.key_hashes()
    return [
        Sample(
            run.writer,
            run.first_sn + i,
            bytes(payloads.payload(i)),
            int(timestamps[i]),
            int(flags[i]),
            None if hashes is None else hashes[i].tobytes(),
        )
        for i in range(run.count)
    ]


def all_samples(frames: Iterable[Frame]) -> list[Sample]:
    return [sample for frame in frames for sample in samples(frame.run)]


def read(directory: Path, start: Cursor | int, end: Cursor | int) -> list[Sample]:
    low = Cursor(start) if isinstance(start, int) else start
    high = Cursor(end) if isinstance(end, int) else end
    return all_samples(LogView(directory).frames(low, high))
