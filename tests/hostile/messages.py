"""RTPS messages as an unmatched participant writes them: bytes from `struct`, without a line of the product.

So an attack does not share the product's mistakes, and runs against any version of it. All of them are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

VENDOR = b"\x01\x7e"
UNKNOWN = bytes(4)
PARTICIPANT = b"\x00\x00\x01\xc1"
SPDP_WRITER = b"\x00\x01\x00\xc2"
PUBLICATIONS_WRITER, PUBLICATIONS_READER = b"\x00\x00\x03\xc2", b"\x00\x00\x03\xc7"
SUBSCRIPTIONS_WRITER, SUBSCRIPTIONS_READER = b"\x00\x00\x04\xc2", b"\x00\x00\x04\xc7"
LIVELINESS_WRITER, LIVELINESS_READER = b"\x00\x02\x00\xc2", b"\x00\x02\x00\xc7"
TYPE_REQUEST_WRITER, TYPE_REQUEST_READER = b"\x00\x03\x00\xc3", b"\x00\x03\x00\xc4"
TYPE_REPLY_WRITER, TYPE_REPLY_READER = b"\x00\x03\x01\xc3", b"\x00\x03\x01\xc4"

FINAL, LIVELINESS = 0x02, 0x04
INFINITE_LEASE = (0x7FFFFFFF, 0xFFFFFFFF)

#: (address, port)
Address = tuple[str, int]


def message(prefix: bytes, *submessages: bytes, vendor: bytes = VENDOR) -> bytes:
    return b"RTPS\x02\x05" + vendor + prefix + b"".join(submessages)


def submessage(kind: int, flags: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    return struct.pack("<BBH", kind, flags | 1, len(body)) + body


def number(sn: int) -> bytes:
    """A sequence number."""
    return struct.pack("<iI", sn >> 32, sn & 0xFFFFFFFF)


def number_set(base: int, count: int) -> bytes:
    """The ``count`` numbers from ``base`` on, at most 256."""
    bits = ((1 << count) - 1) << (256 - count)
    words = [bits >> (224 - 32 * i) & 0xFFFFFFFF for i in range((count + 31) // 32)]
    return number(base) + struct.pack(f"<I{len(words)}I", count, *words)


# --- submessages --------------------------------------------------------------------------------------


def info_destination(prefix: bytes) -> bytes:
    return submessage(0x0E, 0, prefix)


def info_source(prefix: bytes, vendor: bytes = VENDOR) -> bytes:
    return submessage(0x0C, 0, struct.pack("<IBB2s12s", 0, 2, 5, vendor, prefix))


def info_timestamp(seconds: float) -> bytes:
    return submessage(0x09, 0, struct.pack("<II", int(seconds), int(seconds % 1 * (1 << 32))))


def info_reply(*locators: Address) -> bytes:
    return submessage(0x0F, 0, struct.pack("<I", len(locators)) + b"".join(map(locator, locators)))


def data(
    writer: bytes,
    sn: int,
    payload: bytes | None,
    *,
    reader: bytes = UNKNOWN,
    inline_qos: Iterable[tuple[int, bytes]] = (),
    key: bool = False,
) -> bytes:
    flags, qos = 0, list(inline_qos)
    if qos:
        flags |= 0x02
    if payload is not None:
        flags |= 0x08 if key else 0x04
    body = struct.pack("<HH4s4s", 0, 16, reader, writer) + number(sn)
    body += (parameters(qos) if qos else b"") + (payload or b"")
    return submessage(0x15, flags, body)


def data_frag(
    writer: bytes,
    sn: int,
    first: int,
    count: int,
    size: int,
    total: int,
    payload: bytes,
    reader: bytes = UNKNOWN,
) -> bytes:
    body = struct.pack("<HH4s4s", 0, 28, reader, writer) + number(sn)
    return submessage(0x16, 0, body + struct.pack("<IHHI", first, count, size, total) + payload)


def heartbeat(
    writer: bytes, first: int, last: int, count: int, *, flags: int = 0, reader: bytes = UNKNOWN
) -> bytes:
    return submessage(0x07, flags, reader + writer + number(first) + number(last) + struct.pack("<I", count))


def heartbeat_batch(writer: bytes, batches: tuple[int, int], samples: tuple[int, int], count: int) -> bytes:
    ends = b"".join(map(number, (*batches, *samples)))
    return submessage(0x19, 0, UNKNOWN + writer + ends + struct.pack("<I", count))


def heartbeat_frag(writer: bytes, sn: int, last: int, count: int) -> bytes:
    return submessage(0x13, 0, UNKNOWN + writer + number(sn) + struct.pack("<II", last, count))


def gap(writer: bytes, start: int, base: int, more: int = 0, reader: bytes = UNKNOWN) -> bytes:
    """All from ``start`` to ``base`` - 1, and ``more`` behind."""
    return submessage(0x08, 0, reader + writer + number(start) + number_set(base, more))


def acknack(
    reader: bytes, writer: bytes, base: int, missing: int, count: int, *, flags: int = 0, kind: int = 0x06
) -> bytes:
    """All below ``base`` is acknowledged, the ``missing`` numbers from there on are requested."""
    return submessage(kind, flags, reader + writer + number_set(base, missing) + struct.pack("<I", count))


def acknack_batch(reader: bytes, writer: bytes, base: int, missing: int, count: int) -> bytes:
    return acknack(reader, writer, base, missing, count, kind=0x17)


def nack_frag(reader: bytes, writer: bytes, sn: int, base: int, missing: int, count: int) -> bytes:
    fragments = number_set(base, missing)[4:]
    return submessage(0x12, 0, reader + writer + number(sn) + fragments + struct.pack("<I", count))


def status_message(
    reader: bytes, writer: bytes, consumed: int, window: int, count: int, *, end: bool = False
) -> bytes:
    """Ours: all up to ``consumed`` is consumed, and so many bytes beyond it find room."""
    body = reader + writer + number(consumed) + struct.pack("<II", window, count)
    return submessage(0xB1, 0x04 if end else 0, body)


def rtt_measurement(reader: bytes, writer: bytes, echo: int, held: int = 0, *, reply: bool = False) -> bytes:
    return submessage(0xB2, 0x02 if reply else 0, reader + writer + struct.pack("<qq", echo, held))


def compressed(inside: bytes, codec: str = "lz4") -> bytes:
    import pyarrow

    body = inside[4:]
    packed = pyarrow.Codec({"lz4": "lz4_raw", "zstd": "zstd"}[codec]).compress(body, asbytes=True)
    head = struct.pack(
        "<BBBBII", {"lz4": 1, "zstd": 2}[codec], inside[0], inside[1], 0, len(body), len(packed)
    )
    return submessage(0xB0, 0, head + packed)


def data_batch(
    writer: bytes, batch_sn: int, first_sn: int, infos: list[bytes], payload: bytes, reader: bytes = UNKNOWN
) -> bytes:
    listed = b"".join(infos)
    count = len(infos)
    body = struct.pack("<HH4s4s", 0, 32, reader, writer) + number(batch_sn) + number(first_sn)
    body += struct.pack("<III", count - 1, count, len(listed)) + listed + b"\0\1\0\0" + payload
    return submessage(0x18, 0, body)


def sample_info(
    length: int, *, timestamp: bool = False, inline_qos: bytes = b"", removed: bool = False
) -> bytes:
    """Of a sample in a batch."""
    bits = (0x01 if timestamp else 0) | (0x02 if inline_qos else 0) | 0x08 | (0x10 if removed else 0)
    stamp = struct.pack("<II", 1_700_000_000, 0) if timestamp else b""
    return struct.pack("<BBHI", 0, bits, 4 + len(stamp), length) + stamp + inline_qos


# --- parameter lists ----------------------------------------------------------------------------------


def parameters(listed: Iterable[tuple[int, bytes]]) -> bytes:
    parts = []
    for pid, value in listed:
        value += bytes(-len(value) % 4)
        parts.append(struct.pack("<HH", pid, len(value)) + value)
    return b"".join(parts) + b"\1\0\0\0"


def parameter_payload(listed: Iterable[tuple[int, bytes]]) -> bytes:
    return b"\0\3\0\0" + parameters(listed)


def string(text: str) -> bytes:
    raw = text.encode() + b"\0"
    return struct.pack("<I", len(raw)) + raw


def locator(address: Address) -> bytes:
    raw = bytes(map(int, address[0].split(".")))
    return struct.pack("<iI", 1, address[1]) + bytes(12) + raw


def status_info(*, disposed: bool = False, unregistered: bool = False) -> tuple[int, bytes]:
    return 0x0071, bytes((0, 0, 0, disposed | unregistered << 1))


def key_hash(guid: bytes) -> tuple[int, bytes]:
    return 0x0070, guid


def announced_participant(
    prefix: bytes,
    metatraffic: Iterable[Address],
    default: Iterable[Address],
    *,
    multicast: Iterable[Address] = (),
    lease: tuple[int, int] = (10, 0),
    name: str = "",
    more: Iterable[tuple[int, bytes]] = (),
) -> bytes:
    """The payload of an SPDP sample."""
    listed = [
        (0x0015, b"\x02\x05\0\0"),
        (0x0016, VENDOR + b"\0\0"),
        (0x0050, prefix + PARTICIPANT),
        (0x0058, struct.pack("<I", 0xFC3F)),
        (0x0002, struct.pack("<iI", *lease)),
        *((0x0032, locator(each)) for each in metatraffic),
        *((0x0031, locator(each)) for each in default),
        *((0x0048, locator(each)) for each in multicast),
        *more,
    ]
    if name:
        listed.append((0x0062, string(name)))
    return parameter_payload(listed)


def announced_endpoint(
    guid: bytes,
    topic: str,
    type_name: str,
    *,
    reliable: bool = True,
    transient_local: bool = False,
    unicast: Iterable[Address] = (),
    multicast: Iterable[Address] = (),
    more: Iterable[tuple[int, bytes]] = (),
) -> bytes:
    """The payload of an SEDP sample of a reader, or a writer."""
    listed = [
        (0x005A, guid),
        (0x0050, guid[:12] + PARTICIPANT),
        (0x0005, string(topic)),
        (0x0007, string(type_name)),
        (0x001A, struct.pack("<IiI", 2 if reliable else 1, 0, 429_496_729)),
        (0x001D, struct.pack("<I", int(transient_local))),
        (0x0040, struct.pack("<II", 1, 1)),
        *((0x002F, locator(each)) for each in unicast),
        *((0x0030, locator(each)) for each in multicast),
        *more,
    ]
    return parameter_payload(listed)


def endpoint_key(guid: bytes) -> bytes:
    return parameter_payload([(0x005A, guid)])
