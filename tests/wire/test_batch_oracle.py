"""DATA_BATCH, damaged and odd ones too, against a decoder that follows the layout in `batch` sample by sample."""

from __future__ import annotations

import struct
from dataclasses import replace
from random import Random

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spark_rtps.transport.errors import DecodeError
from spark_rtps.transport.wire import batch_scan
from spark_rtps.transport.wire.batch import scan_batch
from spark_rtps.transport.wire.samples import HAS_KEY_HASH, KEY_ONLY, NO_TIMESTAMP, REMOVED
from tests.wire.plain_batches import (
    CDR_LE,
    PREFIX,
    READER,
    WRITER,
    D,
    I,
    K,
    O,
    Q,
    Sample,
    T,
)
from tests.wire.plain_data import Row, rows_of

#: Wire form of a sample info's own parts, odd ones too.
KEY_HASH, STATUS, COHERENT_SET, PAD, SENTINEL, MUST_UNDERSTAND = 0x70, 0x71, 0x56, 0, 1, 0x4000
Found = tuple[int, int, int, list[Row]]


class Refused(Exception):
    """The layout is broken."""


def need(held: bool) -> None:
    if not held:
        raise Refused


class _Walk:
    """Takes a submessage apart from its beginning, in one byte order."""

    def __init__(self, data: bytes, order: str) -> None:
        self.data, self.order, self.at = data, order, 0

    def take(self, form: str) -> int:
        size = struct.calcsize(form)
        need(self.at + size <= len(self.data))
        (value,) = struct.unpack_from(self.order + form, self.data, self.at)
        self.at += size
        return int(value)

    def raw(self, size: int) -> bytes:
        need(self.at + size <= len(self.data))
        self.at += size
        return self.data[self.at - size : self.at]

    def inline_qos(self) -> tuple[int, bytes, int]:
        """Status, key hash, coherent set."""
        status, key_hash, coherent_set = 0, b"", 0
        while (pid := self.take("H") & ~MUST_UNDERSTAND) != SENTINEL or self.data[
            self.at - 2 : self.at
        ] not in (
            b"\1\0",
            b"\0\1",
        ):
            value = self.raw(self._length())
            if pid == STATUS and len(value) >= 4:
                status = value[3] & 7
            elif pid == KEY_HASH and len(value) >= 16:
                key_hash = value[:16]
            elif pid == COHERENT_SET and len(value) >= 8:
                high, low = struct.unpack_from(self.order + "iI", value)
                coherent_set = max(high << 32 | low, 0) or -1
        self.take("H")
        return status, key_hash, coherent_set

    def _length(self) -> int:
        length = self.take("H")
        need(length % 4 == 0)
        return length


def seconds(high: int, low: int) -> int:
    if (high, low) == (0xFFFF_FFFF, 0xFFFF_FFFF):
        return NO_TIMESTAMP
    return high * 10**9 + ((low * 10**9 + (1 << 31)) >> 32)


def read_plainly(submessage: bytes, timestamp: int) -> Found:
    """Batch number, first and last sequence number, and the samples."""
    order = "<" if submessage[1] & 1 else ">"
    whole = _Walk(submessage, order)
    whole.at = 2
    length = whole.take("H")
    need(length + 4 <= len(submessage))
    whole.data = submessage = submessage[: length + 4] if length else submessage
    whole.take("H")
    behind = whole.take("H")
    behind += whole.at
    need((behind - 8) % 4 == 0 and behind >= 40)
    reader_id, writer_id = whole.raw(4), whole.raw(4)
    batch_sn, first_sn = (whole.take("i") << 32 | whole.take("I") for _ in range(2))
    last_sn = first_sn + whole.take("I")
    whole.take("I")
    need(batch_sn >= 1 and first_sn >= 1 and last_sn < 1 << 63)
    whole.at = behind
    of_batch = whole.inline_qos()[2] if submessage[1] & Q else 0
    size = whole.take("I")
    need(size > 0 and size % 4 == 0)
    infos = _Walk(whole.raw(size), order)
    rest = submessage[whole.at :]
    parts, number = [], -1
    while infos.at < size:
        begin, (padding, bits) = infos.at, infos.raw(2)
        octets = infos.take("H")
        behind = infos.at + octets
        length = infos.take("I")
        if bits & T:
            timestamp = seconds(infos.take("I"), infos.take("I"))
        before, number = number, infos.take("I") if bits & O else number + 1
        need(octets % 4 == 0 and infos.at <= behind <= size and number > before and begin % 4 == 0)
        infos.at = behind
        status, key_hash, own_set = infos.inline_qos() if bits & Q else (0, b"", 0)
        need(bits & (D | K) != D | K)
        flags = status | (KEY_ONLY if bits & K else 0) | (REMOVED if bits & I else 0)
        flags |= HAS_KEY_HASH if key_hash else 0
        parts.append((number, bits, length, padding & 3, timestamp, flags, key_hash, own_set or of_batch))
    need(first_sn + number <= last_sn)
    padded = sum(length + 3 & -4 for _, _, length, *_ in parts)
    exact, last = sum(length for _, _, length, *_ in parts), parts[-1][2]
    room = len(rest) - 4
    carries = any(bits & (D | K) for _, bits, *_ in parts)
    need(padded <= room or exact <= room or (not carries and not padded))
    unpadded = padded > room and padded - (-last & 3) > room  # the sender leaves out all padding
    rows, at = [], 4
    for number, bits, length, padding, stamp, flags, key_hash, coherent_set in parts:
        payload = b""
        if bits & (D | K):
            padding = -length & 3 or min(padding, length)
            header = rest[:3] + bytes((rest[3] & 0xFC | padding,))
            payload = header + rest[at : at + length] + _behind(rest, at + length, -length & 3, unpadded)
        at += length if unpadded else length + 3 & -4
        rows.append(
            Row(writer_id, first_sn + number, payload, stamp, flags, key_hash, coherent_set, reader_id)
        )
    return batch_sn, first_sn, last_sn, rows


def _behind(rest: bytes, at: int, size: int, unpadded: bool) -> bytes:
    """What stands in the place of padding."""
    return bytes(size) if unpadded else rest[at : at + size].ljust(size, b"\0")


# --- what is written -----------------------------------------------------------------------------


def write(random: Random, samples: list[Sample], little: bool) -> bytes:
    """As `plain_batches.encode` does, with more than one way to say it: parameters nobody knows, room behind."""
    e = "<" if little else ">"

    def qos(*known: tuple[int, bytes]) -> bytes:
        some = [
            *known,
            *[(0x8000 | random.randrange(9), b"some" * random.randrange(3))] * random.randrange(2),
        ]
        random.shuffle(some)
        must = MUST_UNDERSTAND * (random.random() < 0.1)
        listed = b"".join(struct.pack(e + "HH", pid | must, len(value)) + value for pid, value in some)
        return listed + struct.pack(e + "HH", SENTINEL, random.choice((0, 0, 7)))

    def number(of: int) -> bytes:
        return struct.pack(e + "II", of >> 32 & 0xFFFF_FFFF, of & 0xFFFF_FFFF)

    infos, payloads, no, room = b"", b"", -1, random.choice((b"", b"", b"room"))
    padded = random.random() < 0.8
    for sample in samples:
        no = no + 1 if sample.offset is None else sample.offset
        bits, own, known = 0, b"", []
        if sample.timestamp is not None:
            bits, own = T, number(sample.timestamp)
        if sample.offset is not None:
            bits, own = bits | O, own + struct.pack(e + "I", sample.offset)
        if sample.key_hash is not None:
            known.append((KEY_HASH, sample.key_hash))
        if sample.coherent_set:
            known.append((COHERENT_SET, number(sample.coherent_set)))
        if sample.status:
            known.append((STATUS, bytes((0, 0, 0, sample.status))))
        inline = qos(*known) if known else b""
        bits |= (Q if known else 0) | (I if sample.removed else 0)
        payload = b"" if sample.payload is None else sample.payload
        bits |= 0 if sample.payload is None else K if sample.key else D
        head = bytes((random.choice((0, 0, 0, 1, 3)), bits))
        infos += head + struct.pack(e + "HI", 4 + len(own + room), len(payload)) + own + room + inline
        payloads += payload + b"pad"[: -len(payload) & 3 if padded else 0]
    extension = random.choice((b"", b"", b"more"))
    body = struct.pack(e + "HH", 0, 32 + len(extension)) + READER + WRITER + number(5) + number(100)
    body += struct.pack(e + "II", no, len(samples)) + extension
    with_qos = random.random() < 0.2
    if with_qos:
        body += qos((COHERENT_SET, number(random.choice((90, 0, 1 << 63)))))
    body += struct.pack(e + "I", len(infos)) + infos
    if payloads or random.random() < 0.5:
        body += CDR_LE + bytes((0, random.randrange(256))) + payloads
    return bytes((0x18, little | Q * with_qos)) + struct.pack(e + "H", len(body)) + body


def some_samples(random: Random, count: int) -> list[Sample]:
    samples: list[Sample] = []
    odd_one_in, number, like = random.choice((2, 12, 1_000)), -1, Sample()
    for i in range(count):
        if not i or random.randrange(odd_one_in) == 0:
            like = Sample(
                random.choice((None, b"", b"abcd", b"abcdefgh" * 3, b"odd")),
                random.random() < 0.3,
                random.choice((0, 0, 1, 3)),
                random.choice((None, bytes(16))),
                random.choice((None, None, 1)),
                random.choice((None, None, 1)),
                random.random() < 0.1,
                random.choice((0, 0, 0, 0, 100, -1)),
            )
        number += 1 if like.offset is None else random.choice((1, 1, 1, 9))
        samples.append(
            replace(
                like,
                key_hash=None if like.key_hash is None else random.randbytes(16),
                timestamp=None
                if like.timestamp is None
                else random.choice((random.getrandbits(63), (1 << 64) - 1)),
                offset=None if like.offset is None else number,
            )
        )
    return samples


def check(submessage: bytes, timestamp: int) -> bool:
    """Both roads of the scan; returns whether it was taken."""
    try:
        plain = read_plainly(submessage, timestamp)
    except Refused:
        plain = None
    data = np.frombuffer(b"\xee" * 8 + submessage, np.uint8)
    for many in (batch_scan._PARTS_MANY, 0):
        batch_scan._PARTS_MANY, kept = many, batch_scan._PARTS_MANY  # type: ignore[misc]
        try:
            found = scan_batch(data, 8, len(data), PREFIX, timestamp)
            assert plain is not None
            rows = [row for run in found.runs for row in rows_of(run)]
            assert (found.batch_sn, found.first_sn, found.last_sn, rows) == plain
        except DecodeError:
            assert plain is None
        finally:
            batch_scan._PARTS_MANY = kept  # type: ignore[misc]
    return plain is not None


@settings(max_examples=400, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    count=st.sampled_from([1, 2, 5, 12, 40]),
    little=st.booleans(),
    timestamp=st.sampled_from([NO_TIMESTAMP, 1_700_000_000_000_000_000]),
)
# of the last sample's padding a part is there
@example(seed=27384, count=1, little=True, timestamp=NO_TIMESTAMP)
def test_whatever_a_batch_holds(seed: int, count: int, little: bool, timestamp: int) -> None:
    random = Random(seed)
    whole = write(random, some_samples(random, count), little)
    check(whole, timestamp)
    for _ in range(6):
        damaged = bytearray(whole)
        at = random.randrange(4, min(len(damaged), random.choice((60, 120, 4_000))))
        damaged[at] ^= 1 << random.randrange(8)
        check(bytes(damaged), timestamp)
