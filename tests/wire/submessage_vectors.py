"""The bytes of each submessage in both orders, made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest

from spark_rtps.transport.structure import Locator
from spark_rtps.transport.wire.message import iter_submessages
from spark_rtps.transport.wire.numbers import FragmentNumberSet, SequenceNumberSet
from spark_rtps.transport.wire.parameters import (
    PID_KEY_HASH,
    PID_STATUS_INFO,
    ParameterList,
    encode_status_info,
)
from spark_rtps.transport.wire.submessages import (
    AckNack,
    AckNackBatch,
    Data,
    DataFrag,
    Gap,
    Heartbeat,
    HeartbeatBatch,
    HeartbeatFrag,
    InfoDestination,
    InfoReply,
    InfoReplyIp4,
    InfoSource,
    InfoTimestamp,
    NackFrag,
    Pad,
    RttMeasurement,
    StatusMessage,
    Submessage,
    decode_submessage,
)

READER, WRITER = b"\x00\x00\x01\x07", b"\x00\x00\x02\x02"
PREFIX = bytes(range(12))
QOS = ((PID_STATUS_INFO, encode_status_info(3)),)


class Vector(NamedTuple):
    name: str
    message: Submessage
    little: str
    big: str


# Hand-made from RTPS 2.5 §9.4.5; what follows # is a comment, and a blank line means nothing.
VECTORS = [
    Vector(
        "DATA",
        Data(READER, WRITER, (5 << 32) + 7, b"\x00\x01\x00\x00\x2a\x00\x00\x00"),
        """
        15 05 1c 00               # DATA, E | D, 28 bytes
        00 00 10 00               # extraFlags 0, octetsToInlineQos 16
        00 00 01 07  00 00 02 02  # readerId, writerId: octets, free of byte order
        05 00 00 00  07 00 00 00  # writerSN: high 5, low 7
        00 01 00 00  2a 00 00 00  # payload: CDR_LE, no options; 42
        """,
        """
        15 04 00 1c               # DATA, D, 28 bytes
        00 00 00 10
        00 00 01 07  00 00 02 02
        00 00 00 05  00 00 00 07
        00 01 00 00  2a 00 00 00  # the payload has a byte order of its own
        """,
    ),
    Vector(
        "DATA with inline QoS and key",
        Data(READER, WRITER, 1, b"\x00\x01\x00\x00\x2a\x00\x00\x00", ParameterList(QOS), key=True),
        """
        15 0b 28 00               # DATA, E | Q | K, 40 bytes
        00 00 10 00
        00 00 01 07  00 00 02 02
        00 00 00 00  01 00 00 00
        71 00 04 00  00 00 00 03  # PID_STATUS_INFO, 4 bytes: disposed and unregistered
        01 00 00 00               # PID_SENTINEL
        00 01 00 00  2a 00 00 00  # serialized key
        """,
        """
        15 0a 00 28               # DATA, Q | K, 40 bytes
        00 00 00 10
        00 00 01 07  00 00 02 02
        00 00 00 00  00 00 00 01
        00 71 00 04  00 00 00 03  # the status info is four octets in both
        00 01 00 00
        00 01 00 00  2a 00 00 00
        """,
    ),
    Vector(
        "DATA without payload",
        Data(READER, WRITER, 1, None, ParameterList(((PID_KEY_HASH, bytes(range(16))), *QOS))),
        """
        15 03 34 00               # DATA, E | Q, 52 bytes
        00 00 10 00
        00 00 01 07  00 00 02 02
        00 00 00 00  01 00 00 00
        70 00 10 00  00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f  # PID_KEY_HASH
        71 00 04 00  00 00 00 03
        01 00 00 00
        """,
        """
        15 02 00 34               # DATA, Q, 52 bytes
        00 00 00 10
        00 00 01 07  00 00 02 02
        00 00 00 00  00 00 00 01
        00 70 00 10  00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f
        00 71 00 04  00 00 00 03
        00 01 00 00
        """,
    ),
    Vector(
        "DATA_FRAG",
        DataFrag(READER, WRITER, 9, 2, 2, 4, 10, b"\x04\x05\x06\x07\x08\x09"),
        """
        16 01 28 00               # DATA_FRAG, E, 40 bytes
        00 00 1c 00               # extraFlags 0, octetsToInlineQos 28
        00 00 01 07  00 00 02 02
        00 00 00 00  09 00 00 00  # writerSN
        02 00 00 00               # fragmentStartingNum
        02 00 04 00               # fragmentsInSubmessage, fragmentSize
        0a 00 00 00               # sampleSize
        04 05 06 07  08 09        # bytes 4 to 9 of 10
        00 00                     # padding
        """,
        """
        16 00 00 28
        00 00 00 1c
        00 00 01 07  00 00 02 02
        00 00 00 00  00 00 00 09
        00 00 00 02
        00 02 00 04
        00 00 00 0a
        04 05 06 07  08 09  00 00
        """,
    ),
    Vector(
        "DATA_FRAG with inline QoS, of a key",
        DataFrag(READER, WRITER, 9, 1, 1, 4, 8, b"\x00\x01\x00\x00", ParameterList(QOS), key=True),
        """
        16 07 30 00               # DATA_FRAG, E | Q | K, 48 bytes
        00 00 1c 00
        00 00 01 07  00 00 02 02
        00 00 00 00  09 00 00 00
        01 00 00 00  01 00 04 00  08 00 00 00
        71 00 04 00  00 00 00 03  # PID_STATUS_INFO
        01 00 00 00               # PID_SENTINEL
        00 01 00 00
        """,
        """
        16 06 00 30
        00 00 00 1c
        00 00 01 07  00 00 02 02
        00 00 00 00  00 00 00 09
        00 00 00 01  00 01 00 04  00 00 00 08
        00 71 00 04  00 00 00 03
        00 01 00 00
        00 01 00 00
        """,
    ),
    Vector(
        "HEARTBEAT",
        Heartbeat(READER, WRITER, 1, (1 << 32) + 2, 3, final=True, liveliness=True),
        """
        07 07 1c 00               # HEARTBEAT, E | F | L, 28 bytes
        00 00 01 07  00 00 02 02
        00 00 00 00  01 00 00 00  # firstSN
        01 00 00 00  02 00 00 00  # lastSN: high 1, low 2
        03 00 00 00               # count
        """,
        """
        07 06 00 1c
        00 00 01 07  00 00 02 02
        00 00 00 00  00 00 00 01
        00 00 00 01  00 00 00 02
        00 00 00 03
        """,
    ),
    Vector(
        "HEARTBEAT_FRAG",
        HeartbeatFrag(READER, WRITER, 9, 30, 4),
        """
        13 01 18 00               # HEARTBEAT_FRAG, E, 24 bytes
        00 00 01 07  00 00 02 02
        00 00 00 00  09 00 00 00  # writerSN
        1e 00 00 00               # lastFragmentNum
        04 00 00 00               # count
        """,
        """
        13 00 00 18
        00 00 01 07  00 00 02 02
        00 00 00 00  00 00 00 09
        00 00 00 1e
        00 00 00 04
        """,
    ),
    Vector(
        "ACKNACK",
        AckNack(READER, WRITER, SequenceNumberSet.from_numbers(5, [5, 7, 37]), 2, final=True),
        """
        06 03 20 00               # ACKNACK, E | F, 32 bytes
        00 00 01 07  00 00 02 02
        00 00 00 00  05 00 00 00  # bitmapBase
        21 00 00 00               # numBits 33: 5 to 37
        00 00 00 a0  00 00 00 80  # bits 0 and 2; bit 32
        02 00 00 00               # count
        """,
        """
        06 02 00 20
        00 00 01 07  00 00 02 02
        00 00 00 00  00 00 00 05
        00 00 00 21
        a0 00 00 00  80 00 00 00
        00 00 00 02
        """,
    ),
    Vector(
        "HEARTBEAT_BATCH",
        HeartbeatBatch(READER, WRITER, 2, 3, 20, (1 << 32) + 34, 5, final=True, liveliness=True),
        """
        19 07 2c 00               # HEARTBEAT_BATCH, E | F | L, 44 bytes
        00 00 01 07  00 00 02 02
        00 00 00 00  02 00 00 00  # firstBatchSN
        00 00 00 00  03 00 00 00  # lastBatchSN
        00 00 00 00  14 00 00 00  # firstSN
        01 00 00 00  22 00 00 00  # lastSN
        05 00 00 00               # count
        """,
        """
        19 06 00 2c
        00 00 01 07  00 00 02 02
        00 00 00 00  00 00 00 02
        00 00 00 00  00 00 00 03
        00 00 00 00  00 00 00 14
        00 00 00 01  00 00 00 22
        00 00 00 05
        """,
    ),
    Vector(
        "ACKNACK_BATCH",
        AckNackBatch(READER, WRITER, SequenceNumberSet.from_numbers(5, [5, 7]), 2, final=True),
        """
        17 03 1c 00               # ACKNACK_BATCH, E | F, 28 bytes
        00 00 01 07  00 00 02 02
        00 00 00 00  05 00 00 00  # bitmapBase, a batch number
        03 00 00 00               # numBits 3: 5 to 7
        00 00 00 a0
        02 00 00 00               # count
        """,
        """
        17 02 00 1c
        00 00 01 07  00 00 02 02
        00 00 00 00  00 00 00 05
        00 00 00 03
        a0 00 00 00
        00 00 00 02
        """,
    ),
    Vector(
        "NACK_FRAG",
        NackFrag(READER, WRITER, 9, FragmentNumberSet.from_numbers(3, [3, 4]), 6),
        """
        12 01 20 00               # NACK_FRAG, E, 32 bytes
        00 00 01 07  00 00 02 02
        00 00 00 00  09 00 00 00  # writerSN
        03 00 00 00  02 00 00 00  # bitmapBase, numBits
        00 00 00 c0
        06 00 00 00               # count
        """,
        """
        12 00 00 20
        00 00 01 07  00 00 02 02
        00 00 00 00  00 00 00 09
        00 00 00 03  00 00 00 02
        c0 00 00 00
        00 00 00 06
        """,
    ),
    Vector(
        "GAP",
        Gap(READER, WRITER, 2, SequenceNumberSet.from_numbers(38, [39])),
        """
        08 01 20 00               # GAP, E, 32 bytes
        00 00 01 07  00 00 02 02
        00 00 00 00  02 00 00 00  # gapStart
        00 00 00 00  26 00 00 00  # gapList: base 38
        02 00 00 00  00 00 00 40  # two bits: 39
        """,
        """
        08 00 00 20
        00 00 01 07  00 00 02 02
        00 00 00 00  00 00 00 02
        00 00 00 00  00 00 00 26
        00 00 00 02  40 00 00 00
        """,
    ),
    Vector(
        "INFO_TS",
        InfoTimestamp(1_500_000_000),
        """
        09 01 08 00               # INFO_TS, E, 8 bytes
        01 00 00 00  00 00 00 80  # 1 s, half of 2^32
        """,
        """
        09 00 00 08
        00 00 00 01  80 00 00 00
        """,
    ),
    Vector("INFO_TS invalidate", InfoTimestamp(None), "09 03 00 00  # E | I", "09 02 00 00"),
    Vector(
        "INFO_DST",
        InfoDestination(PREFIX),
        "0e 01 0c 00  00 01 02 03 04 05 06 07 08 09 0a 0b",
        "0e 00 00 0c  00 01 02 03 04 05 06 07 08 09 0a 0b",
    ),
    Vector(
        "INFO_SRC",
        InfoSource((2, 3), b"\x01\x7e", PREFIX),
        """
        0c 01 14 00               # INFO_SRC, E, 20 bytes
        00 00 00 00               # unused
        02 03  01 7e              # version, vendor
        00 01 02 03 04 05 06 07 08 09 0a 0b
        """,
        "0c 00 00 14  00 00 00 00  02 03 01 7e  00 01 02 03 04 05 06 07 08 09 0a 0b",
    ),
    Vector(
        "INFO_REPLY",
        InfoReply((Locator("10.1.2.3", 7411),), (Locator("239.255.0.1", 7401), Locator("ff02::1", 7401, 2))),
        """
        0f 03 50 00               # INFO_REPLY, E | M, 80 bytes
        01 00 00 00               # unicastLocatorList: one
        01 00 00 00  f3 1c 00 00  # UDPv4, port 7411
        00 00 00 00 00 00 00 00 00 00 00 00  0a 01 02 03
        02 00 00 00               # multicastLocatorList: two
        01 00 00 00  e9 1c 00 00
        00 00 00 00 00 00 00 00 00 00 00 00  ef ff 00 01
        02 00 00 00  e9 1c 00 00  # UDPv6
        ff 02 00 00 00 00 00 00 00 00 00 00 00 00 00 01
        """,
        """
        0f 02 00 50
        00 00 00 01
        00 00 00 01  00 00 1c f3
        00 00 00 00 00 00 00 00 00 00 00 00  0a 01 02 03
        00 00 00 02
        00 00 00 01  00 00 1c e9
        00 00 00 00 00 00 00 00 00 00 00 00  ef ff 00 01
        00 00 00 02  00 00 1c e9
        ff 02 00 00 00 00 00 00 00 00 00 00 00 00 00 01
        """,
    ),
    Vector(
        "INFO_REPLY_IP4",
        InfoReplyIp4(Locator("10.1.2.3", 7411), Locator("239.255.0.1", 7401)),
        """
        0d 03 10 00               # INFO_REPLY_IP4, E | M, 16 bytes
        03 02 01 0a  f3 1c 00 00  # the address is one number here
        01 00 ff ef  e9 1c 00 00
        """,
        """
        0d 02 00 10
        0a 01 02 03  00 00 1c f3
        ef ff 00 01  00 00 1c e9
        """,
    ),
    Vector("PAD", Pad(), "01 01 00 00", "01 00 00 00"),
    Vector("PAD with 4 bytes", Pad(4), "01 01 04 00  00 00 00 00", "01 00 00 04  00 00 00 00"),
    # Ours: see wire/status_messages.
    Vector(
        "STATUS_MESSAGE",
        StatusMessage(READER, WRITER, (5 << 32) + 7, 0x20000, 3),
        """
        b1 01 18 00               # STATUS_MESSAGE, E, 24 bytes
        00 00 01 07  00 00 02 02
        05 00 00 00  07 00 00 00  # consumption SN: high 5, low 7
        00 00 02 00  03 00 00 00  # receiver window 128 KiB, count
        """,
        """
        b1 00 00 18
        00 00 01 07  00 00 02 02
        00 00 00 05  00 00 00 07
        00 02 00 00  00 00 00 03
        """,
    ),
    Vector(
        "STATUS_MESSAGE with a tag, at the end of the stream",
        StatusMessage(READER, WRITER, 0, 0, 0xFFFFFFFF, group_tag=-2, end_of_stream=True),
        """
        b1 07 20 00               # STATUS_MESSAGE, E | T | X, 32 bytes
        00 00 01 07  00 00 02 02
        00 00 00 00  00 00 00 00  # nothing consumed yet
        00 00 00 00  ff ff ff ff  # nor any room
        fe ff ff ff  ff ff ff ff  # group tag: one number of 64 bits
        """,
        """
        b1 06 00 20
        00 00 01 07  00 00 02 02
        00 00 00 00  00 00 00 00
        00 00 00 00  ff ff ff ff
        ff ff ff ff  ff ff ff fe
        """,
    ),
    Vector(
        "RTT_MEASUREMENT",
        RttMeasurement(READER, WRITER, 0x0102030405060708),
        """
        b2 01 18 00               # RTT_MEASUREMENT, E, 24 bytes
        00 00 01 07  00 00 02 02
        08 07 06 05  04 03 02 01  # echo timestamp
        00 00 00 00  00 00 00 00  # reception delta: nobody held it yet
        """,
        """
        b2 00 00 18
        00 00 01 07  00 00 02 02
        01 02 03 04  05 06 07 08
        00 00 00 00  00 00 00 00
        """,
    ),
    Vector(
        "RTT_MEASUREMENT, the reply",
        RttMeasurement(READER, WRITER, -1, 500, reply=True),
        """
        b2 03 18 00               # RTT_MEASUREMENT, E | R, 24 bytes
        00 00 01 07  00 00 02 02
        ff ff ff ff  ff ff ff ff  # a clock may be anywhere
        f4 01 00 00  00 00 00 00
        """,
        """
        b2 02 00 18
        00 00 01 07  00 00 02 02
        ff ff ff ff  ff ff ff ff
        00 00 00 00  00 00 01 f4
        """,
    ),
    Vector(
        "RTT_MEASUREMENT, the reply to one whom others wait for",
        RttMeasurement(READER, WRITER, 1, reply=True, others_wait=True),
        """
        b2 07 18 00               # RTT_MEASUREMENT, E | R | W, 24 bytes
        00 00 01 07  00 00 02 02
        01 00 00 00  00 00 00 00
        00 00 00 00  00 00 00 00
        """,
        """
        b2 06 00 18
        00 00 01 07  00 00 02 02
        00 00 00 00  00 00 00 01
        00 00 00 00  00 00 00 00
        """,
    ),
]


EACH_ORDER = pytest.mark.parametrize("little_endian", [True, False], ids=["LE", "BE"])


def raw(text: str) -> bytes:
    return bytes.fromhex("".join(line.partition("#")[0] for line in text.splitlines()))


def bytes_of(vector: Vector, little_endian: bool) -> bytes:
    return raw(vector.little if little_endian else vector.big)


def in_order(message: Submessage, little_endian: bool) -> Submessage:
    """The message as one of that byte order: inline QoS has the submessage's."""
    if isinstance(message, Data | DataFrag) and message.inline_qos is not None:
        return replace(message, inline_qos=replace(message.inline_qos, little_endian=little_endian))
    return message


def decode(encoded: bytes) -> Submessage | None:
    """What iter_submessages and decode_submessage make of a message of this one submessage."""
    message = bytes(20) + encoded
    [(kind, flags, start, stop)] = iter_submessages(memoryview(message))
    return decode_submessage(kind, flags, memoryview(message)[start:stop])
