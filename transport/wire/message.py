"""The RTPS message: its header, and the offsets of its submessages (RTPS 2.5 §8.3.3, §9.4.4, §9.4.5.1)."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from ..errors import DecodeError, DropReason, UsageError
from ..structure import PROTOCOL_VERSION, VENDOR_ID
from ..value_classes import value
from .numbers import pair

MAGIC: Final = b"RTPS"
HEADER_SIZE: Final = 20
SUBMESSAGE_HEADER_SIZE: Final = 4
#: EndiannessFlag, the same bit in every submessage (RTPS 2.5 §9.4.5.1.2).
FLAG_E: Final = 0x01

Buffer = bytes | memoryview

_HEADER: Final = Struct("4sBB2s12s")
_SUBMESSAGE_HEADER: Final = pair("BBH")
#: Kinds for which octetsToNextHeader = 0 means "empty", not "up to the end": PAD and INFO_TS.
_EMPTY_IF_ZERO: Final = (0x01, 0x09)


@value
class Header:
    """RTPS message header to be sent: 20 bytes, independent of byte order."""

    version: tuple[int, int] = PROTOCOL_VERSION
    vendor: bytes = VENDOR_ID
    prefix: bytes = bytes(12)

    def encode(self) -> bytes:
        return _HEADER.pack(MAGIC, *self.version, self.vendor, self.prefix)


def header_at(data: memoryview, at: int, end: int) -> tuple[int, bytes, bytes]:
    """(minor version, vendor, GUID prefix) of the message ``data[at:end]``; any minor version of RTPS 2 is accepted
    (RTPS 2.5 §8.6.1)."""
    if end - at < HEADER_SIZE:  # RTI's keep-alives are 16 bytes
        raise DecodeError(DropReason.SHORT_MESSAGE, f"{end - at} bytes")
    magic, major, minor, vendor, prefix = _HEADER.unpack_from(data, at)
    if magic != MAGIC:
        raise DecodeError(DropReason.NOT_RTPS)
    if major != 2:
        raise DecodeError(DropReason.UNSUPPORTED_VERSION, f"{major}.{minor}")
    return minor, vendor, prefix


def submessage_at(data: memoryview, at: int, end: int) -> tuple[int, int, int]:
    """(kind, flags, stop) of the submessage at ``data[at]``, in a message that ends at ``end``; its body begins 4 bytes
    behind ``at``. After a DecodeError, the rest of the message is unreadable (RTPS 2.5 §8.3.4.1)."""
    start = at + SUBMESSAGE_HEADER_SIZE
    if start > end:
        raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, f"{end - at} bytes left at {at}")
    kind, flags = data[at], data[at + 1]
    length = data[at + 2] | data[at + 3] << 8 if flags & FLAG_E else data[at + 2] << 8 | data[at + 3]
    # RTPS 2.5 §9.4.5.1.3: zero octetsToNextHeader
    stop = end if length == 0 and kind not in _EMPTY_IF_ZERO else start + length
    if stop > end:
        raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, f"{kind:#04x}: {length} bytes, {end - start} left")
    if length % 4 and stop != end:
        # RTPS 2.5 §9.4.1: submessages are 4-aligned in the message; only the last may end anywhere.
        raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, f"{kind:#04x} ends unaligned at {stop}")
    return kind, flags, stop


def iter_submessages(data: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """(kind, flags, body start, body stop) of each submessage of a message, in order; the submessages before a
    malformed one are yielded before the DecodeError."""
    at, end = HEADER_SIZE, len(data)
    while at < end:
        kind, flags, stop = submessage_at(data, at, end)
        yield kind, flags, at + SUBMESSAGE_HEADER_SIZE, stop
        at = stop


def encode_submessage(kind: int, flags: int, little_endian: bool, *parts: Buffer) -> bytes:
    """A submessage of the given body parts: header in front, padded to 4; the E flag is added here."""
    length = sum(map(len, parts))
    header = encode_submessage_header(kind, flags, little_endian, length)
    return b"".join((header, *parts, bytes(-length & 3)))


def encode_submessage_header(kind: int, flags: int, little_endian: bool, length: int) -> bytes:
    """The header of a submessage with a body of ``length`` bytes, which is to be padded to 4."""
    padding = -length & 3
    if length + padding > 0xFFFF:
        raise UsageError(f"submessage {kind:#04x} of {length} bytes; at most 65532 fit")
    flags |= FLAG_E if little_endian else 0
    return _SUBMESSAGE_HEADER[little_endian].pack(kind, flags, length + padding)


def short_submessage(what: str) -> DecodeError:
    """The error of a submessage that ends before its fields do."""
    return DecodeError(DropReason.TRUNCATED_SUBMESSAGE, what)
