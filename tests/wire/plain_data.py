"""DATA, plainly: written byte by byte, and read one submessage after the other, as the oracle of the fast road."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from spark_rtps.transport.errors import DecodeError, DropReason
from spark_rtps.transport.wire import parameters as p
from spark_rtps.transport.wire.message import submessage_at
from spark_rtps.transport.wire.samples import HAS_KEY_HASH, KEY_ONLY, NO_TIMESTAMP, Run
from spark_rtps.transport.wire.submessages import Data, InfoTimestamp

E, Q, D, K, N = 1, 2, 4, 8, 16  # the flags of a DATA
WRITER, ANYBODY = b"\0\0\1\2", bytes(4)


class Row(NamedTuple):
    """All that a reader is told of a sample."""

    writer_id: bytes
    sn: int
    payload: bytes
    timestamp: int
    flags: int
    key_hash: bytes
    coherent_set: int
    reader_id: bytes


def info_ts(little: bool, seconds: int, fraction: int = 0, flags: int = 0) -> bytes:
    """An INFO_TS of twelve bytes, whatever its flags."""
    return struct.pack("<BB" if little else ">BB", 0x09, flags | little) + struct.pack(
        "<HII" if little else ">HII", 8, seconds, fraction
    )


def data(
    little: bool,
    sn: int,
    payload: bytes | None,
    *,
    qos: tuple[tuple[int, bytes], ...] | None = None,
    flags: int | None = None,
    writer_id: bytes = WRITER,
    reader_id: bytes = ANYBODY,
    extra_flags: int = 0,
    extension: bytes = b"",
    to_the_end: bool = False,
) -> bytes:
    """A DATA as any vendor might write it. ``extension`` lies between its sequence number and its inline QoS;
    ``flags``: those that say what its payload is."""
    e = "<" if little else ">"
    kind = (0 if payload is None else D) if flags is None else flags
    body = struct.pack(e + "HH", extra_flags, 16 + len(extension)) + reader_id + writer_id
    body += struct.pack(e + "II", sn >> 32, sn & 0xFFFF_FFFF) + extension
    if qos is not None:
        body += p.encode_parameters(qos, little)
    body += payload or b""
    return bytes((0x15, little | kind | (0 if qos is None else Q))) + (
        struct.pack(e + "H", 0 if to_the_end else len(body)) + body
    )


def status(value: int) -> tuple[int, bytes]:
    """Its status is big-endian, whatever the submessage is."""
    return p.PID_STATUS_INFO, bytes((0, 0, 0, value))


def coherent(little: bool, first_sn: int) -> tuple[int, bytes]:
    return p.PID_COHERENT_SET, struct.pack("<II" if little else ">II", first_sn >> 32, first_sn & 0xFFFF_FFFF)


def _rows(flags: int, body: memoryview, timestamp: int) -> Iterator[Row]:
    sample = Data.decode(flags, body)
    _check_alignment(flags, body)
    kind = KEY_ONLY if sample.key else 0
    key_hash, coherent_set = b"", 0
    for pid, value in sample.inline_qos or ():
        match pid & ~p.PID_MUST_UNDERSTAND:
            case p.PID_STATUS_INFO if len(value) >= 4:
                kind = kind & KEY_ONLY | value[3] & 7
            case p.PID_KEY_HASH if len(value) >= 16:
                key_hash = value[:16]
            case p.PID_COHERENT_SET if len(value) >= 8:
                (first,) = struct.unpack(">q", _halves(value, flags & E))
                coherent_set = first if first > 0 else -1
    kind |= HAS_KEY_HASH if key_hash else 0
    payload = b"" if sample.payload is None else bytes(sample.payload)
    yield Row(sample.writer_id, sample.sn, payload, timestamp, kind, key_hash, coherent_set, sample.reader_id)


def _check_alignment(flags: int, body: memoryview) -> None:
    """Of samples it is asked that lengths are multiples of 4 (RTPS 2.5 §9.4.2.11); `Data.decode` is milder."""
    e = "<" if flags & E else ">"
    (octets,) = struct.unpack_from(e + "H", body, 2)
    lengths, at, pid = [octets], 4 + octets, 0
    while flags & Q and pid != p.PID_SENTINEL:
        pid, length = struct.unpack_from(e + "HH", body, at)
        lengths += [length] if pid != p.PID_SENTINEL else []
        at += 4 + length + (-length & 3)
    if any(length % 4 for length in lengths):
        raise DecodeError(DropReason.BAD_PARAMETER_LIST)


def _halves(value: bytes, little: int) -> bytes:
    """A sequence number as one big-endian number."""
    return value[3::-1] + value[7:3:-1] if little else value[:8]


def read_plainly(message: bytes) -> list[Row]:
    """The samples of a message without its header, one submessage after the other; malformed ones are left out."""
    view, pos, timestamp = memoryview(message), 0, NO_TIMESTAMP
    rows: list[Row] = []
    try:
        while pos < len(message):
            kind, flags, end = submessage_at(view, pos, len(message))
            body = view[pos + 4 : end]
            try:
                if kind == Data.KIND:
                    rows += _rows(flags, body, timestamp)
                elif kind == InfoTimestamp.KIND:
                    stamp = InfoTimestamp.decode(flags, body).timestamp
                    timestamp = NO_TIMESTAMP if stamp is None else stamp
            except DecodeError:
                pass
            pos = end
    except DecodeError:  # of the framing: what follows cannot be found
        pass
    return rows


def rows_of(run: Run) -> list[Row]:
    samples, stamps, hashes, flags = run.samples(), run.timestamps(), run.key_hashes(), run.sample_flags()
    return [
        Row(
            run.writer.entity,
            sn,
            bytes(samples.payload(i)),
            int(stamps[i]),
            int(flags[i]),
            hashes[i].tobytes() if hashes is not None and flags[i] & HAS_KEY_HASH else b"",
            run.coherent_set,
            run.reader_id,
        )
        for i, sn in enumerate(run.sequence_numbers().tolist())
    ]
