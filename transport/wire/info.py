"""Interpreter submessages, which hold for the submessages after them: INFO_* and PAD (RTPS 2.5 §8.3.8, §9.4.5).

Decoding and encoding are as in ``submessages``.
"""

from __future__ import annotations

from typing import ClassVar, Final, Self

from ..errors import DecodeError, DropReason, UsageError
from ..limits import LOCATORS_MAX
from ..structure import LOCATOR_KIND_UDPV4, PROTOCOL_VERSION, VENDOR_ID, Locator
from ..value_classes import value
from .message import FLAG_E, Buffer, encode_submessage, short_submessage
from .ntp import TIME_INVALID, from_ntp, to_ntp
from .numbers import pair
from .parameters import decode_locator, encode_locator

#: Bytes of an INFO_DST, and of an INFO_TS with a time in it.
INFO_DST_SIZE: Final = 16
INFO_TS_SIZE: Final = 12

_COUNT: Final = pair("I")
_TIME: Final = pair("II")
_INFO_SOURCE: Final = pair("IBB2s12s")
_LOCATOR_UDP4: Final = pair("II")


@value
class InfoTimestamp:
    """INFO_TS (RTPS 2.5 §9.4.5.12): ns since the epoch; None: the following submessages have no source timestamp."""

    KIND: ClassVar[int] = 0x09
    FLAG_I: ClassVar[int] = 0x02

    timestamp: int | None

    def encode(self, little_endian: bool = True) -> bytes:
        if self.timestamp is None:
            return encode_submessage(self.KIND, self.FLAG_I, little_endian)
        return encode_submessage(
            self.KIND, 0, little_endian, _TIME[little_endian].pack(*to_ntp(self.timestamp))
        )

    @classmethod
    def decode(cls, flags: int, body: memoryview) -> Self:
        if flags & cls.FLAG_I:
            return cls(None)
        if len(body) < 8:
            raise short_submessage("INFO_TS")
        time = _TIME[flags & FLAG_E].unpack_from(body)
        return cls(None if time == TIME_INVALID else from_ntp(*time))


@value
class InfoDestination:
    """INFO_DST (RTPS 2.5 §9.4.5.9): the destination of the following submessages; an unknown prefix means all."""

    KIND: ClassVar[int] = 0x0E

    prefix: bytes

    def encode(self, little_endian: bool = True) -> bytes:
        return encode_submessage(self.KIND, 0, little_endian, self.prefix)

    @classmethod
    def decode(cls, flags: int, body: memoryview) -> Self:
        if len(body) < 12:
            raise short_submessage("INFO_DST")
        return cls(bytes(body[:12]))


@value
class InfoSource:
    """INFO_SRC (RTPS 2.5 §9.4.5.11): the source participant of the following submessages."""

    KIND: ClassVar[int] = 0x0C

    version: tuple[int, int] = PROTOCOL_VERSION
    vendor: bytes = VENDOR_ID
    prefix: bytes = bytes(12)

    def encode(self, little_endian: bool = True) -> bytes:
        body = _INFO_SOURCE[little_endian].pack(0, *self.version, self.vendor, self.prefix)
        return encode_submessage(self.KIND, 0, little_endian, body)

    @classmethod
    def decode(cls, flags: int, body: memoryview) -> Self:
        if len(body) < 20:
            raise short_submessage("INFO_SRC")
        _, major, minor, vendor, prefix = _INFO_SOURCE[flags & FLAG_E].unpack_from(body)
        return cls((major, minor), vendor, prefix)


@value
class InfoReply:
    """INFO_REPLY (RTPS 2.5 §9.4.5.10): the destination of answers to the following submessages.

    Locators of unsupported transports are left out; ``multicast`` is None if there is no such list.
    """

    KIND: ClassVar[int] = 0x0F
    FLAG_M: ClassVar[int] = 0x02

    unicast: tuple[Locator, ...]
    multicast: tuple[Locator, ...] | None = None

    def encode(self, little_endian: bool = True) -> bytes:
        flags = 0 if self.multicast is None else self.FLAG_M
        lists = [self.unicast] if self.multicast is None else [self.unicast, self.multicast]
        parts: list[Buffer] = []
        for locators in lists:
            parts.append(_COUNT[little_endian].pack(len(locators)))
            parts += (encode_locator(locator, little_endian) for locator in locators)
        return encode_submessage(self.KIND, flags, little_endian, *parts)

    @classmethod
    def decode(cls, flags: int, body: memoryview) -> Self:
        unicast, at = _decode_locators(body, 0, flags & FLAG_E)
        multicast = _decode_locators(body, at, flags & FLAG_E)[0] if flags & cls.FLAG_M else None
        return cls(unicast, multicast)


@value
class InfoReplyIp4:
    """INFO_REPLY_IP4 (RTPS 2.5 §9.4.5.15): the short form of INFO_REPLY, with one UDPv4 locator of each kind."""

    KIND: ClassVar[int] = 0x0D
    FLAG_M: ClassVar[int] = 0x02

    unicast: Locator
    multicast: Locator | None = None

    def encode(self, little_endian: bool = True) -> bytes:
        flags = 0 if self.multicast is None else self.FLAG_M
        parts = [_encode_udp4(self.unicast, little_endian)]
        if self.multicast is not None:
            parts.append(_encode_udp4(self.multicast, little_endian))
        return encode_submessage(self.KIND, flags, little_endian, *parts)

    @classmethod
    def decode(cls, flags: int, body: memoryview) -> Self:
        unicast = _decode_udp4(body, 0, flags & FLAG_E)
        multicast = _decode_udp4(body, 8, flags & FLAG_E) if flags & cls.FLAG_M else None
        return cls(unicast, multicast)


@value
class Pad:
    """PAD (RTPS 2.5 §9.4.5.13): no content."""

    KIND: ClassVar[int] = 0x01

    size: int = 0

    def encode(self, little_endian: bool = True) -> bytes:
        return encode_submessage(self.KIND, 0, little_endian, bytes(self.size))

    @classmethod
    def decode(cls, flags: int, body: memoryview) -> Self:
        return cls(len(body))


def _decode_locators(body: memoryview, at: int, little_endian: int) -> tuple[tuple[Locator, ...], int]:
    if len(body) < at + 4:
        raise short_submessage("INFO_REPLY")
    count: int = _COUNT[little_endian].unpack_from(body, at)[0]
    if count > LOCATORS_MAX:
        raise DecodeError(DropReason.OVER_LIMIT, f"{count} locators")
    stop = at + 4 + 24 * count
    if len(body) < stop:
        raise short_submessage(f"INFO_REPLY, {count} locators")
    found = (decode_locator(body[i : i + 24], bool(little_endian)) for i in range(at + 4, stop, 24))
    return tuple(locator for locator in found if locator is not None), stop


# LocatorUDPv4_t is an address as one number and a port (RTPS 2.5 §9.4.5.15): a Locator_t without kind.


def _decode_udp4(body: memoryview, at: int, little_endian: int) -> Locator:
    if len(body) < at + 8:
        raise short_submessage("INFO_REPLY_IP4")
    address, port = _LOCATOR_UDP4[little_endian].unpack_from(body, at)
    if not 0 < port < 65536:
        raise DecodeError(DropReason.BAD_LOCATOR, f"port {port}")
    return Locator(".".join(map(str, address.to_bytes(4, "big"))), port)


def _encode_udp4(locator: Locator, little_endian: bool) -> bytes:
    if locator.kind != LOCATOR_KIND_UDPV4:
        raise UsageError(f"locator {locator} is not UDPv4")
    address = int.from_bytes(encode_locator(locator)[20:], "big")
    return _LOCATOR_UDP4[little_endian].pack(address, locator.port)
