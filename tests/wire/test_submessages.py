"""Each submessage: its bytes in both orders, cut at every length, and there and back."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.errors import DecodeError, UsageError
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
    SUBMESSAGES,
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
]

EACH = pytest.mark.parametrize("vector", VECTORS, ids=[v.name for v in VECTORS])
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


def test_there_is_a_vector_for_every_submessage() -> None:
    assert {v.message.KIND for v in VECTORS} == set(SUBMESSAGES)


@EACH
@EACH_ORDER
def test_encode(vector: Vector, little_endian: bool) -> None:
    message = in_order(vector.message, little_endian)
    assert message.encode(little_endian).hex(" ", 4) == bytes_of(vector, little_endian).hex(" ", 4)


@EACH
@EACH_ORDER
def test_decode(vector: Vector, little_endian: bool) -> None:
    assert decode(bytes_of(vector, little_endian)) == in_order(vector.message, little_endian)


@EACH
@EACH_ORDER
def test_cut_at_every_length(vector: Vector, little_endian: bool) -> None:
    """A body that ends too early is a DecodeError, nothing else; only padding and payload may lack."""
    encoded = bytes_of(vector, little_endian)
    kind, flags = encoded[0], encoded[1]
    for length in range(len(encoded) - 4):
        try:
            found = decode_submessage(kind, flags, memoryview(encoded)[4 : 4 + length])
        except DecodeError:
            continue
        message = in_order(vector.message, little_endian)
        if isinstance(found, Data) and isinstance(message, Data) and message.payload is not None:
            assert found == replace(message, payload=message.payload[: length - len(encoded) + 4])
        elif isinstance(found, DataFrag):
            assert found == message
        else:
            assert isinstance(found, Pad)


@EACH
@EACH_ORDER
def test_more_at_the_end_is_ignored(vector: Vector, little_endian: bool) -> None:
    """A later minor version may append fields (RTPS 2.5 §8.6.1); in DATA they cannot be told from payload."""
    encoded = bytes_of(vector, little_endian)
    found = decode_submessage(encoded[0], encoded[1], memoryview(encoded[4:] + b"\xff" * 8))
    if not isinstance(found, Pad) and not (isinstance(found, Data) and found.payload):
        assert found == in_order(vector.message, little_endian)


# --- there and back ---------------------------------------------------------------------------------

ids = st.binary(min_size=4, max_size=4)
prefixes = st.binary(min_size=12, max_size=12)
sequence_numbers = st.one_of(st.integers(1, 1000), st.integers(1, 2**63 - 1))
counts = st.integers(0, 2**32 - 1)
payloads = st.integers(1, 50).flatmap(lambda words: st.binary(min_size=4 * words, max_size=4 * words))
values = st.integers(0, 8).flatmap(lambda words: st.binary(min_size=4 * words, max_size=4 * words))
pids = st.integers(2, 0xFFFF)
qos = st.none() | st.builds(ParameterList, st.lists(st.tuples(pids, values), max_size=4).map(tuple))
ports = st.integers(1, 65535)
locators4 = st.builds(Locator, st.ip_addresses(v=4).map(str), ports, st.just(1))
locators = locators4 | st.builds(Locator, st.ip_addresses(v=6).map(str), ports, st.just(2))
locator_lists = st.lists(locators, max_size=16).map(tuple)


@st.composite
def sequence_sets(draw: st.DrawFn, least: int = 1) -> SequenceNumberSet:
    base = draw(st.one_of(st.integers(least, 1000), st.integers(least, 2**63 - 256)))
    return SequenceNumberSet.from_numbers(base, draw(st.sets(st.integers(max(base, 1), base + 255))))


@st.composite
def fragment_sets(draw: st.DrawFn) -> FragmentNumberSet:
    base = draw(st.integers(1, 2**32 - 256))
    return FragmentNumberSet.from_numbers(base, draw(st.sets(st.integers(base, base + 255))))


@st.composite
def data_submessages(draw: st.DrawFn) -> Data:
    payload = draw(st.none() | payloads)
    key = draw(st.booleans()) if payload is not None else False
    return Data(draw(ids), draw(ids), draw(sequence_numbers), payload, draw(qos), key)


@st.composite
def data_frag_submessages(draw: st.DrawFn) -> DataFrag:
    size = draw(st.integers(1, 64))
    total = draw(st.integers(size, 2000))
    count = -(-total // size)
    first = draw(st.integers(1, count))
    fragments = draw(st.integers(1, min(count - first + 1, 8)))
    length = min((first - 1 + fragments) * size, total) - (first - 1) * size
    payload = draw(st.binary(min_size=length, max_size=length))
    sn, key = draw(sequence_numbers), draw(st.booleans())
    return DataFrag(draw(ids), draw(ids), sn, first, fragments, size, total, payload, draw(qos), key)


@st.composite
def heartbeats(draw: st.DrawFn) -> Heartbeat:
    first = draw(sequence_numbers)
    last = draw(st.integers(first - 1, 2**63 - 1))
    return Heartbeat(
        draw(ids), draw(ids), first, last, draw(counts), draw(st.booleans()), draw(st.booleans())
    )


@st.composite
def heartbeat_batches(draw: st.DrawFn) -> HeartbeatBatch:
    one, two = draw(heartbeats()), draw(heartbeats())
    return HeartbeatBatch(
        one.reader_id,
        one.writer_id,
        one.first_sn,
        one.last_sn,
        two.first_sn,
        two.last_sn,
        one.count,
        one.final,
    )


submessages: st.SearchStrategy[Submessage] = st.one_of(
    data_submessages(),
    data_frag_submessages(),
    heartbeats(),
    heartbeat_batches(),
    st.builds(AckNackBatch, ids, ids, sequence_sets(least=0), counts, st.booleans()),
    st.builds(HeartbeatFrag, ids, ids, sequence_numbers, st.integers(1, 2**32 - 1), counts),
    st.builds(AckNack, ids, ids, sequence_sets(least=0), counts, st.booleans()),
    st.builds(NackFrag, ids, ids, sequence_numbers, fragment_sets(), counts),
    st.builds(Gap, ids, ids, sequence_numbers, sequence_sets()),
    st.builds(InfoTimestamp, st.none() | st.integers(0, 2**32 * 10**9 - 1)),
    st.builds(InfoDestination, prefixes),
    st.builds(
        InfoSource,
        st.tuples(st.integers(0, 255), st.integers(0, 255)),
        st.binary(min_size=2, max_size=2),
        prefixes,
    ),
    st.builds(InfoReply, locator_lists, st.none() | locator_lists),
    st.builds(InfoReplyIp4, locators4, st.none() | locators4),
    st.builds(Pad, st.integers(0, 10).map(lambda words: 4 * words)),
    st.builds(
        StatusMessage,
        ids,
        ids,
        st.integers(0, 2**63 - 1),
        counts,
        counts,
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.booleans(),
    ),
    st.builds(
        RttMeasurement,
        ids,
        ids,
        st.integers(-(2**63), 2**63 - 1),
        st.integers(0, 2**63 - 1),
        st.booleans(),
    ),
)


@given(message=submessages, little_endian=st.booleans())
def test_round_trip(message: Submessage, little_endian: bool) -> None:
    message = in_order(message, little_endian)
    encoded = message.encode(little_endian)
    assert len(encoded) % 4 == 0
    assert int.from_bytes(encoded[2:4], "little" if little_endian else "big") == len(encoded) - 4
    assert decode(encoded) == message


@given(message=submessages, little_endian=st.booleans(), data=st.data())
def test_damage_is_a_decode_error_or_another_message(
    message: Submessage, little_endian: bool, data: st.DataObject
) -> None:
    encoded = bytearray(in_order(message, little_endian).encode(little_endian))
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(4, len(encoded)))
    with suppress(DecodeError):
        decode_submessage(encoded[0], encoded[1], memoryview(encoded)[4:cut])


@given(kind=st.sampled_from(sorted(SUBMESSAGES)), flags=st.integers(0, 255), body=st.binary(max_size=200))
def test_noise_is_a_decode_error_or_a_message(kind: int, flags: int, body: bytes) -> None:
    with suppress(DecodeError):
        decode_submessage(kind, flags, memoryview(body))


# --- what the types promise -------------------------------------------------------------------------


def test_payloads_are_views_not_copies() -> None:
    encoded = Data(READER, WRITER, 1, b"\x00\x01\x00\x00abcd").encode()
    found = decode_submessage(encoded[0], encoded[1], memoryview(encoded)[4:])
    assert isinstance(found, Data)
    assert isinstance(found.payload, memoryview)
    assert found.payload.obj is encoded


def test_where_fragments_belong() -> None:
    frag = DataFrag(READER, WRITER, 9, 3, 1, 4, 10, b"\x08\x09")
    assert frag.offset == 8


def test_later_versions_may_put_more_before_the_inline_qos() -> None:
    """octetsToInlineQos leads past fields this version does not know (RTPS 2.5 §9.4.5.4.2)."""
    encoded = Data(READER, WRITER, 1, b"\x00\x01\x00\x00", ParameterList(QOS)).encode()
    body = encoded[4:6] + b"\x14\x00" + encoded[8:24] + b"new!" + encoded[24:]
    assert decode_submessage(encoded[0], encoded[1], memoryview(body)) == decode(encoded)


def test_a_submessage_that_fits_no_length_field() -> None:
    with pytest.raises(UsageError, match="65532"):
        Data(READER, WRITER, 1, bytes(65_533 - 20)).encode()
    assert len(Data(READER, WRITER, 1, bytes(65_532 - 20)).encode()) == 65_536


def test_inline_qos_in_the_other_byte_order() -> None:
    with pytest.raises(UsageError, match="byte order"):
        Data(READER, WRITER, 1, None, ParameterList(QOS, little_endian=False)).encode()


def test_counts_wrap() -> None:
    assert decode(Heartbeat(READER, WRITER, 1, 1, 2**32 + 5).encode()) == Heartbeat(READER, WRITER, 1, 1, 5)


def test_time_invalid_is_no_time() -> None:
    assert decode(raw("09 01 08 00 ffffffff ffffffff")) == InfoTimestamp(None)


def test_only_ipv4_has_a_short_form() -> None:
    with pytest.raises(UsageError, match="UDPv4"):
        InfoReplyIp4(Locator("::1", 7400, 2)).encode()


def test_info_reply_leaves_out_other_transports() -> None:
    encoded = bytearray(InfoReply((Locator("10.1.2.3", 7411), Locator("10.1.2.4", 7412))).encode())
    encoded[8] = 16  # shared memory of Fast DDS
    assert decode(bytes(encoded)) == InfoReply((Locator("10.1.2.4", 7412),))
