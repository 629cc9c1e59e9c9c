"""Every submessage of RTPS 2.5 §9.4.5, of batches, and this product's own: decode from a body, encode whole.

``decode(flags, body)`` takes the bytes between this submessage's header and the next one's; fields that a later minor
version may have added at the end are ignored (RTPS 2.5 §8.6.1). Malformed bytes raise DecodeError. ``encode`` returns
the submessage with its header, padded to 4. Runs of DATA are read by ``runs`` instead, which is faster, and DATA_BATCH
by ``batch``. The INFO_* submessages are defined in ``info``, this product's own in ``status_messages``; both are
exported here, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, Self

from ..errors import DecodeError, DropReason, UsageError
from ..value_classes import value
from .info import InfoDestination, InfoReply, InfoReplyIp4, InfoSource, InfoTimestamp, Pad
from .message import FLAG_E, Buffer, encode_submessage, encode_submessage_header, short_submessage
from .numbers import FragmentNumberSet, SequenceNumberSet, pair
from .parameters import ParameterList, decode_parameters
from .status_messages import RttMeasurement, StatusMessage

__all__ = [
    "SUBMESSAGES",
    "AckNack",
    "AckNackBatch",
    "Data",
    "DataFrag",
    "Gap",
    "Heartbeat",
    "HeartbeatBatch",
    "HeartbeatFrag",
    "InfoDestination",
    "InfoReply",
    "InfoReplyIp4",
    "InfoSource",
    "InfoTimestamp",
    "NackFrag",
    "Pad",
    "RttMeasurement",
    "StatusMessage",
    "Submessage",
    "decode_submessage",
]

_COUNT: Final = pair("I")
_IDS: Final = pair("4s4s")
_IDS_SN: Final = pair("4s4siI")
_DATA: Final = pair("HH4s4siI")
_DATA_FRAG: Final = pair("HH4s4siIIHHI")
_HEARTBEAT: Final = pair("4s4siIiII")
_HEARTBEAT_FRAG: Final = pair("4s4siIII")
_HEARTBEAT_BATCH: Final = pair("4s4siIiIiIiII")

# octetsToInlineQos: from behind that field to the inline QoS (RTPS 2.5 §9.4.5.4.2, §9.4.5.5.3)
DATA_FRAG_OCTETS_TO_INLINE_QOS: Final = 28

#: Bytes of a DATA before its inline QoS or payload, and the matching value of octetsToInlineQos.
DATA_HEADER_SIZE: Final = 24
#: Bytes of a DATA_FRAG before its inline QoS or payload.
DATA_FRAG_HEADER_SIZE: Final = 36
#: Offset of the sequence number in a DATA_FRAG, high word first, and of its fragment's number (RTPS 2.5 §9.4.5.5).
DATA_FRAG_SN_AT: Final = 16
DATA_FRAG_NUMBER_AT: Final = 24
#: Bytes of a HEARTBEAT, its own header included.
HEARTBEAT_SIZE: Final = 32
DATA_OCTETS_TO_INLINE_QOS: Final = 16


@value
class Data:
    """DATA (RTPS 2.5 §9.4.5.4). ``payload`` starts with its encapsulation header; ``key``: it is a key only.

    A decoded payload is a view and keeps the padding at its end, which DATA does not mark.
    """

    KIND: ClassVar[int] = 0x15
    FLAG_Q: ClassVar[int] = 0x02
    FLAG_D: ClassVar[int] = 0x04
    FLAG_K: ClassVar[int] = 0x08
    FLAG_N: ClassVar[int] = 0x10

    reader_id: bytes
    writer_id: bytes
    sn: int
    payload: Buffer | None
    inline_qos: ParameterList | None = None
    key: bool = False

    def encode(self, little_endian: bool = True) -> bytes:
        flags = 0
        if self.inline_qos is not None:
            flags |= self.FLAG_Q
        if self.payload is not None:
            flags |= self.FLAG_K if self.key else self.FLAG_D
        head = _DATA[little_endian].pack(
            0, DATA_OCTETS_TO_INLINE_QOS, self.reader_id, self.writer_id, *_halves(self.sn)
        )
        qos = _encode_inline_qos(self.inline_qos, little_endian)
        return encode_submessage(self.KIND, flags, little_endian, head, qos, self.payload or b"")

    @classmethod
    def decode(cls, flags: int, body: memoryview) -> Self:
        little_endian = flags & FLAG_E
        if len(body) < 20:
            raise short_submessage("DATA")
        _, octets, reader_id, writer_id, high, low = _DATA[little_endian].unpack_from(body)
        with_data, key = flags & cls.FLAG_D, bool(flags & cls.FLAG_K)
        # RTPS 2.5 §9.4.5.4.1: D and K together are invalid; N is a payload in a form that is not supported.
        if (with_data and key) or flags & cls.FLAG_N:
            raise DecodeError(DropReason.BAD_ENCAPSULATION, f"DATA with flags {flags:#04x}")
        inline_qos, rest = _decode_inline_qos(
            body, octets, DATA_OCTETS_TO_INLINE_QOS, little_endian, bool(flags & cls.FLAG_Q)
        )
        payload = None
        if with_data or key:
            if len(rest) < 4:
                raise DecodeError(DropReason.BAD_ENCAPSULATION, f"DATA payload of {len(rest)} bytes")
            payload = rest
        return cls(reader_id, writer_id, _sn(high, low), payload, inline_qos, key)


@value
class DataFrag:
    """DATA_FRAG (RTPS 2.5 §9.4.5.5): ``fragments`` fragments from number ``first_fragment`` (1-based) on.

    All but the sample's last have ``fragment_size`` bytes. A decoded payload is a view, exactly as long as these
    fragments, and lies within ``sample_size``, which may be any number: check it before allocating.
    """

    KIND: ClassVar[int] = 0x16
    FLAG_Q: ClassVar[int] = 0x02
    FLAG_K: ClassVar[int] = 0x04
    FLAG_N: ClassVar[int] = 0x08

    reader_id: bytes
    writer_id: bytes
    sn: int
    first_fragment: int
    fragments: int
    fragment_size: int
    sample_size: int
    payload: Buffer
    inline_qos: ParameterList | None = None
    key: bool = False

    @property
    def offset(self) -> int:
        """The offset of the payload in the sample."""
        return (self.first_fragment - 1) * self.fragment_size

    @property
    def payloads(self) -> Sequence[Buffer]:
        """The payload, as it lies in memory."""
        return (self.payload,)

    def encode(self, little_endian: bool = True) -> bytes:
        padding = -len(self.payload) & 3
        return b"".join((self.encode_head(little_endian), self.payload, bytes(padding)))

    def encode_head(self, little_endian: bool = True) -> bytes:
        """All bytes before the payload."""
        flags = self.FLAG_K if self.key else 0
        if self.inline_qos is not None:
            flags |= self.FLAG_Q
        fields = _DATA_FRAG[little_endian].pack(
            0,
            DATA_FRAG_OCTETS_TO_INLINE_QOS,
            self.reader_id,
            self.writer_id,
            *_halves(self.sn),
            self.first_fragment,
            self.fragments,
            self.fragment_size,
            self.sample_size,
        )
        qos = _encode_inline_qos(self.inline_qos, little_endian)
        length = len(fields) + len(qos) + len(self.payload)
        return encode_submessage_header(self.KIND, flags, little_endian, length) + fields + qos

    @classmethod
    def decode(cls, flags: int, body: memoryview) -> Self:
        little_endian = flags & FLAG_E
        if len(body) < 32:
            raise short_submessage("DATA_FRAG")
        _, octets, reader_id, writer_id, high, low, first, fragments, size, total = _DATA_FRAG[
            little_endian
        ].unpack_from(body)
        if flags & cls.FLAG_N:
            raise DecodeError(DropReason.BAD_ENCAPSULATION, f"DATA_FRAG with flags {flags:#04x}")
        sn = _sn(high, low)
        # RTPS 2.5 §8.3.8.3.3. The offset of the last fragment below the total also bounds first + fragments.
        if not (first and fragments and 0 < size <= total and (first + fragments - 2) * size < total):
            raise DecodeError(
                DropReason.BAD_FRAGMENT, f"fragments {first}+{fragments} of {size} bytes, sample of {total}"
            )
        inline_qos, rest = _decode_inline_qos(
            body, octets, DATA_FRAG_OCTETS_TO_INLINE_QOS, little_endian, bool(flags & cls.FLAG_Q)
        )
        start = (first - 1) * size
        length = min(start + fragments * size, total) - start
        if len(rest) < length:
            raise DecodeError(DropReason.BAD_FRAGMENT, f"{len(rest)} bytes of {length}")
        key = bool(flags & cls.FLAG_K)
        return cls(reader_id, writer_id, sn, first, fragments, size, total, rest[:length], inline_qos, key)


@value
class DataFrags(DataFrag):
    """Consecutive fragments of several DATA_FRAGs, as if they had come in one; ``payload`` is that of the first."""

    pieces: Sequence[Buffer] = ()

    @property
    def payloads(self) -> Sequence[Buffer]:
        return self.pieces


@value
class Heartbeat:
    """HEARTBEAT (RTPS 2.5 §9.4.5.7); last_sn = first_sn - 1: the writer has no samples."""

    KIND: ClassVar[int] = 0x07
    FLAG_F: ClassVar[int] = 0x02
    FLAG_L: ClassVar[int] = 0x04

    reader_id: bytes
    writer_id: bytes
    first_sn: int
    last_sn: int
    count: int
    final: bool = False
    liveliness: bool = False

    def encode(self, little_endian: bool = True) -> bytes:
        flags = (self.FLAG_F if self.final else 0) | (self.FLAG_L if self.liveliness else 0)
        body = _HEARTBEAT[little_endian].pack(
            self.reader_id,
            self.writer_id,
            *_halves(self.first_sn),
            *_halves(self.last_sn),
            self.count & 0xFFFFFFFF,
        )
        return encode_submessage(self.KIND, flags, little_endian, body)

    @classmethod
    def decode(cls, flags: int, body: memoryview) -> Self:
        if len(body) < 28:
            raise short_submessage("HEARTBEAT")
        reader_id, writer_id, high, low, last_high, last_low, count = _HEARTBEAT[flags & 1].unpack_from(body)
        first, last = (high << 32) + low, (last_high << 32) + last_low
        if first < 1 or last < first - 1:  # RTPS 2.5 §8.3.8.6.3
            raise DecodeError(DropReason.BAD_SEQUENCE_NUMBER, f"HEARTBEAT {first}..{last}")
        return cls(reader_id, writer_id, first, last, count, bool(flags & 0x02), bool(flags & 0x04))


@value
class HeartbeatFrag:
    """HEARTBEAT_FRAG (RTPS 2.5 §9.4.5.8): fragments 1..last_fragment of sample ``sn`` are available."""

    KIND: ClassVar[int] = 0x13

    reader_id: bytes
    writer_id: bytes
    sn: int
    last_fragment: int
    count: int

    def encode(self, little_endian: bool = True) -> bytes:
        body = _HEARTBEAT_FRAG[little_endian].pack(
            self.reader_id,
            self.writer_id,
            *_halves(self.sn),
            self.last_fragment,
            self.count & 0xFFFFFFFF,
        )
        return encode_submessage(self.KIND, 0, little_endian, body)

    @classmethod
    def decode(cls, flags: int, body: memoryview) -> Self:
        if len(body) < 24:
            raise short_submessage("HEARTBEAT_FRAG")
        reader_id, writer_id, high, low, last, count = _HEARTBEAT_FRAG[flags & FLAG_E].unpack_from(body)
        if last < 1:  # RTPS 2.5 §8.3.8.7.3
            raise DecodeError(DropReason.BAD_FRAGMENT, "HEARTBEAT_FRAG up to fragment 0")
        return cls(reader_id, writer_id, _sn(high, low), last, count)


@value
class _Acknowledgment:
    """All numbers below ``missing.base`` are acknowledged, those in ``missing`` are requested."""

    KIND: ClassVar[int]
    FLAG_F: ClassVar[int] = 0x02

    reader_id: bytes
    writer_id: bytes
    missing: SequenceNumberSet
    count: int
    final: bool = False

    def encode(self, little_endian: bool = True) -> bytes:
        flags = self.FLAG_F if self.final else 0
        ids = _IDS[little_endian].pack(self.reader_id, self.writer_id)
        count = _COUNT[little_endian].pack(self.count & 0xFFFFFFFF)
        return encode_submessage(
            self.KIND, flags, little_endian, ids, self.missing.encode(little_endian), count
        )

    @classmethod
    def decode(cls, flags: int, body: memoryview) -> Self:
        little_endian = flags & FLAG_E
        missing, at = SequenceNumberSet.decode(body, 8, little_endian, allow_base_zero=True)
        reader_id, writer_id = _IDS[little_endian].unpack_from(body)
        return cls(reader_id, writer_id, missing, _count(body, at, little_endian), bool(flags & cls.FLAG_F))


class AckNack(_Acknowledgment):
    """ACKNACK (RTPS 2.5 §9.4.5.3), in numbers of samples."""

    KIND = 0x06
    __slots__ = ()


class AckNackBatch(_Acknowledgment):
    """ACKNACK_BATCH (RTI): an ACKNACK in numbers of batches."""

    KIND = 0x17
    __slots__ = ()


@value
class NackFrag:
    """NACK_FRAG (RTPS 2.5 §9.4.5.14): fragments requested of sample ``sn``."""

    KIND: ClassVar[int] = 0x12

    reader_id: bytes
    writer_id: bytes
    sn: int
    missing: FragmentNumberSet
    count: int

    def encode(self, little_endian: bool = True) -> bytes:
        head = _IDS_SN[little_endian].pack(self.reader_id, self.writer_id, *_halves(self.sn))
        count = _COUNT[little_endian].pack(self.count & 0xFFFFFFFF)
        return encode_submessage(self.KIND, 0, little_endian, head, self.missing.encode(little_endian), count)

    @classmethod
    def decode(cls, flags: int, body: memoryview) -> Self:
        little_endian = flags & FLAG_E
        missing, at = FragmentNumberSet.decode(body, 16, little_endian)
        reader_id, writer_id, high, low = _IDS_SN[little_endian].unpack_from(body)
        return cls(reader_id, writer_id, _sn(high, low), missing, _count(body, at, little_endian))


@value
class Gap:
    """GAP (RTPS 2.5 §9.4.5.6): start_sn..irrelevant.base-1, however many, and the set are irrelevant."""

    KIND: ClassVar[int] = 0x08

    reader_id: bytes
    writer_id: bytes
    start_sn: int
    irrelevant: SequenceNumberSet

    def encode(self, little_endian: bool = True) -> bytes:
        head = _IDS_SN[little_endian].pack(self.reader_id, self.writer_id, *_halves(self.start_sn))
        return encode_submessage(self.KIND, 0, little_endian, head, self.irrelevant.encode(little_endian))

    @classmethod
    def decode(cls, flags: int, body: memoryview) -> Self:
        little_endian = flags & FLAG_E
        irrelevant, _ = SequenceNumberSet.decode(body, 16, little_endian)
        reader_id, writer_id, high, low = _IDS_SN[little_endian].unpack_from(body)
        return cls(reader_id, writer_id, _sn(high, low), irrelevant)


@value
class HeartbeatBatch:
    """HEARTBEAT_BATCH (RTI): a HEARTBEAT that announces the writer's batches besides its samples."""

    KIND: ClassVar[int] = 0x19
    FLAG_F: ClassVar[int] = 0x02
    FLAG_L: ClassVar[int] = 0x04

    reader_id: bytes
    writer_id: bytes
    first_batch_sn: int
    last_batch_sn: int
    first_sn: int
    last_sn: int
    count: int
    final: bool = False
    liveliness: bool = False

    def encode(self, little_endian: bool = True) -> bytes:
        flags = (self.FLAG_F if self.final else 0) | (self.FLAG_L if self.liveliness else 0)
        body = _HEARTBEAT_BATCH[little_endian].pack(
            self.reader_id,
            self.writer_id,
            *_halves(self.first_batch_sn),
            *_halves(self.last_batch_sn),
            *_halves(self.first_sn),
            *_halves(self.last_sn),
            self.count & 0xFFFFFFFF,
        )
        return encode_submessage(self.KIND, flags, little_endian, body)

    @classmethod
    def decode(cls, flags: int, body: memoryview) -> Self:
        if len(body) < 44:
            raise short_submessage("HEARTBEAT_BATCH")
        reader_id, writer_id, *halves, count = _HEARTBEAT_BATCH[flags & FLAG_E].unpack_from(body)
        first_batch, last_batch, first_sn, last_sn = (
            (high << 32) + low for high, low in zip(halves[::2], halves[1::2], strict=True)
        )
        for first, last in ((first_batch, last_batch), (first_sn, last_sn)):
            if first < 1 or last < first - 1:  # as RTPS 2.5 §8.3.8.6.3
                raise DecodeError(DropReason.BAD_SEQUENCE_NUMBER, f"HEARTBEAT_BATCH {first}..{last}")
        final, liveliness = bool(flags & cls.FLAG_F), bool(flags & cls.FLAG_L)
        return cls(reader_id, writer_id, first_batch, last_batch, first_sn, last_sn, count, final, liveliness)


_Entity = (
    Data | DataFrag | Heartbeat | HeartbeatFrag | HeartbeatBatch | AckNack | AckNackBatch | NackFrag | Gap
)
_Vendor = StatusMessage | RttMeasurement
_Interpreter = InfoTimestamp | InfoDestination | InfoSource | InfoReply | InfoReplyIp4 | Pad
Submessage = _Entity | _Interpreter | _Vendor

SUBMESSAGES: Final[dict[int, type[Submessage]]] = {kind.KIND: kind for kind in Submessage.__args__}


def decode_submessage(kind: int, flags: int, body: memoryview) -> Submessage | None:
    """The submessage, or None for a kind to skip: unknown, or another vendor's own (RTPS 2.5 §8.3.4.1)."""
    known = SUBMESSAGES.get(kind)
    return None if known is None else known.decode(flags, body)


def _halves(sn: int) -> tuple[int, int]:
    """The two words of a SequenceNumber_t on the wire: signed high word, unsigned low word (RTPS 2.5 §9.4.2.5)."""
    return sn >> 32, sn & 0xFFFFFFFF


def _sn(high: int, low: int) -> int:
    """A SequenceNumber_t of a sample: from 1 up (RTPS 2.5 §8.3.8.2.3)."""
    sn = (high << 32) + low
    if sn < 1:
        raise DecodeError(DropReason.BAD_SEQUENCE_NUMBER, str(sn))
    return sn


def _count(body: memoryview, at: int, little_endian: int) -> int:
    if len(body) < at + 4:
        raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, "count")
    count: int = _COUNT[little_endian].unpack_from(body, at)[0]
    return count


def _encode_inline_qos(qos: ParameterList | None, little_endian: bool) -> bytes:
    if qos is None:
        return b""
    if qos.little_endian != little_endian:
        raise UsageError("inline QoS values are in the other byte order than the submessage")
    return qos.encode()


def _decode_inline_qos(
    body: memoryview, octets: int, least: int, little_endian: int, present: bool
) -> tuple[ParameterList | None, memoryview]:
    """The inline QoS, and the bytes behind it. ``octets`` may exceed ours: later versions may add fields."""
    if octets < least or 4 + octets > len(body):
        raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, f"octetsToInlineQos {octets}")
    rest = body[4 + octets :]
    if not present:
        return None, rest
    qos, consumed = decode_parameters(rest, bool(little_endian))
    return qos, rest[consumed:]
