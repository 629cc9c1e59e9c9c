"""Vendor submessages from this product's readers to its writers (Aeron's status message and RTT measurement).

Both have an ordinary header; other vendors skip them (RTPS 2.5 §8.3.4.1 for kinds from 0x80 on). Numbers are in the
byte order of the E flag.

STATUS_MESSAGE, 0xB1; flags T 0x02: there is a tag, X 0x04: end of stream::

    readerId 4 octets | writerId 4 octets
    consumption SN    i32 high, u32 low     all samples up to it are consumed; 0: none yet
    receiver window   u32                   bytes the reader takes beyond them
    count             u32                   rises with each
    [group tag        i64]

RTT_MEASUREMENT, 0xB2; flags R 0x02: it is the reply, W 0x04: other readers wait for the one that asked::

    readerId 4 octets | writerId 4 octets
    echo timestamp    i64                   the asker's clock, ns; comes back as it went
    reception delta   i64                   ns for which the replying side held it
"""

from __future__ import annotations

from typing import ClassVar, Final, Self

from ..errors import DecodeError, DropReason
from ..value_classes import value
from .message import FLAG_E, encode_submessage, short_submessage
from .numbers import pair

_STATUS_MESSAGE: Final = pair("4s4siIII")
_GROUP_TAG: Final = pair("q")
_RTT_MEASUREMENT: Final = pair("4s4sqq")
_WINDOW_MAX: Final = 0xFFFFFFFF


@value
class StatusMessage:
    """All samples up to ``consumption_sn`` are consumed, and the reader has space for ``receiver_window`` more
    bytes."""

    KIND: ClassVar[int] = 0xB1
    FLAG_T: ClassVar[int] = 0x02
    FLAG_X: ClassVar[int] = 0x04

    reader_id: bytes
    writer_id: bytes
    consumption_sn: int
    receiver_window: int
    count: int
    group_tag: int | None = None
    #: Whether the reader is leaving: writers need not wait for it any more.
    end_of_stream: bool = False

    def encode(self, little_endian: bool = True) -> bytes:
        """A window too large for its field is sent as the largest that fits."""
        tag = self.group_tag
        flags = (0 if tag is None else self.FLAG_T) | (self.FLAG_X if self.end_of_stream else 0)
        body = _STATUS_MESSAGE[little_endian].pack(
            self.reader_id,
            self.writer_id,
            self.consumption_sn >> 32,
            self.consumption_sn & 0xFFFFFFFF,
            min(self.receiver_window, _WINDOW_MAX),
            self.count & 0xFFFFFFFF,
        )
        tail = b"" if tag is None else _GROUP_TAG[little_endian].pack(tag)
        return encode_submessage(self.KIND, flags, little_endian, body, tail)

    @classmethod
    def decode(cls, flags: int, body: memoryview) -> Self:
        layout = _STATUS_MESSAGE[flags & FLAG_E]
        if len(body) < layout.size:
            raise short_submessage("STATUS_MESSAGE")
        reader_id, writer_id, high, low, window, count = layout.unpack_from(body)
        if high < 0:
            raise DecodeError(DropReason.BAD_SEQUENCE_NUMBER, f"STATUS_MESSAGE up to {(high << 32) + low}")
        tag: int | None = None
        if flags & cls.FLAG_T:
            if len(body) < layout.size + 8:
                raise short_submessage("STATUS_MESSAGE")
            tag = _GROUP_TAG[flags & FLAG_E].unpack_from(body, layout.size)[0]
        end_of_stream = bool(flags & cls.FLAG_X)
        return cls(reader_id, writer_id, (high << 32) + low, window, count, tag, end_of_stream)


@value
class RttMeasurement:
    """A request of a reader; the writer returns it as its reply, with the time for which it held it."""

    KIND: ClassVar[int] = 0xB2
    FLAG_R: ClassVar[int] = 0x02
    FLAG_W: ClassVar[int] = 0x04

    reader_id: bytes
    writer_id: bytes
    echo_timestamp: int
    reception_delta: int = 0
    reply: bool = False
    #: In a reply: other readers have consumed everything, and the writer has more samples, which only the requesting
    #: reader holds back from them.
    others_wait: bool = False

    def encode(self, little_endian: bool = True) -> bytes:
        body = _RTT_MEASUREMENT[little_endian].pack(
            self.reader_id, self.writer_id, self.echo_timestamp, self.reception_delta
        )
        flags = (self.FLAG_R if self.reply else 0) | (self.FLAG_W if self.others_wait else 0)
        return encode_submessage(self.KIND, flags, little_endian, body)

    @classmethod
    def decode(cls, flags: int, body: memoryview) -> Self:
        layout = _RTT_MEASUREMENT[flags & FLAG_E]
        if len(body) < layout.size:
            raise short_submessage("RTT_MEASUREMENT")
        reader_id, writer_id, echo_timestamp, reception_delta = layout.unpack_from(body)
        if reception_delta < 0:
            raise DecodeError(DropReason.BAD_PARAMETER, f"RTT_MEASUREMENT held for {reception_delta} ns")
        reply, others_wait = bool(flags & cls.FLAG_R), bool(flags & cls.FLAG_W)
        return cls(reader_id, writer_id, echo_timestamp, reception_delta, reply, others_wait)
