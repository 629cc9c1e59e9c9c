"""The RTPS message: its header, and where its submessages lie (RTPS 2.5 §8.3.3, §9.4.4, §9.4.5.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final, Self

from ..errors import DecodeError, DropReason, UsageError
from ..structure import PROTOCOL_VERSION, VENDOR_ID
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


@dataclass(frozen=True, slots=True)
class Header:
    """RTPS message header: 20 bytes, free of byte order."""

    version: tuple[int, int] = PROTOCOL_VERSION
    vendor: bytes = VENDOR_ID
    prefix: bytes = bytes(12)

    def encode(self) -> bytes:
        return _HEADER.pack(MAGIC, *self.version, self.vendor, self.prefix)

    @classmethod
    def decode(cls, data: memoryview) -> Self:
        """The header a message starts with; any minor version of RTPS 2 will do (RTPS 2.5 §8.6.1)."""
        if bytes(data[:4]) != MAGIC:
            raise DecodeError(DropReason.NOT_RTPS)
        if len(data) < HEADER_SIZE:
            raise DecodeError(DropReason.SHORT_MESSAGE, f"{len(data)} bytes")
        _, major, minor, vendor, prefix = _HEADER.unpack_from(data)
        if major != 2:
            raise DecodeError(DropReason.UNSUPPORTED_VERSION, f"{major}.{minor}")
        return cls((major, minor), vendor, prefix)


def iter_submessages(data: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """(kind, flags, body start, body stop) of each submessage of a message, in order.

    Those before a malformed one are yielded before the DecodeError: a receiver stops there and keeps what it
    has (RTPS 2.5 §8.3.4.1).
    """
    end = len(data)
    at = HEADER_SIZE
    while at < end:
        start = at + SUBMESSAGE_HEADER_SIZE
        if start > end:
            raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, f"{end - at} bytes left at {at}")
        kind, flags = data[at], data[at + 1]
        length = data[at + 2] | data[at + 3] << 8 if flags & FLAG_E else data[at + 2] << 8 | data[at + 3]
        # RTPS 2.5 §9.4.5.1.3: zero octetsToNextHeader
        at = end if length == 0 and kind not in _EMPTY_IF_ZERO else start + length
        if at > end:
            raise DecodeError(
                DropReason.TRUNCATED_SUBMESSAGE, f"{kind:#04x}: {length} bytes, {end - start} left"
            )
        if at % 4 and at != end:
            # RTPS 2.5 §9.4.1: submessages are 4-aligned in the message; only the last may end anywhere.
            raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, f"{kind:#04x} ends unaligned at {at}")
        yield kind, flags, start, at


def encode_submessage(kind: int, flags: int, little_endian: bool, *parts: Buffer) -> bytes:
    """A submessage of the given body parts: header in front, padded to 4; the E flag is added here."""
    length = sum(map(len, parts))
    padding = -length & 3
    if length + padding > 0xFFFF:
        raise UsageError(f"submessage {kind:#04x} of {length} bytes; at most 65532 fit")
    flags |= FLAG_E if little_endian else 0
    head = _SUBMESSAGE_HEADER[little_endian].pack(kind, flags, length + padding)
    return b"".join((head, *parts, bytes(padding)))


def short_submessage(what: str) -> DecodeError:
    """A submessage that ends before its fields do."""
    return DecodeError(DropReason.TRUNCATED_SUBMESSAGE, what)
