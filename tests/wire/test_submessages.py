"""Each submessage: its bytes in both orders, cut at every length, and what the types promise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_rtps.transport.errors import DecodeError, UsageError
from spark_rtps.transport.structure import Locator
from spark_rtps.transport.wire.parameters import ParameterList
from spark_rtps.transport.wire.submessages import (
    SUBMESSAGES,
    Data,
    DataFrag,
    Heartbeat,
    InfoReply,
    InfoReplyIp4,
    InfoTimestamp,
    Pad,
    decode_submessage,
)
from tests.wire.submessage_vectors import (
    EACH_ORDER,
    QOS,
    READER,
    VECTORS,
    WRITER,
    Vector,
    bytes_of,
    decode,
    in_order,
    raw,
)

EACH = pytest.mark.parametrize("vector", VECTORS, ids=[v.name for v in VECTORS])


def test_every_submessage_has_a_vector() -> None:
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


# --- what the types promise -------------------------------------------------------------------------


def test_payloads_are_views_not_copies() -> None:
    encoded = Data(READER, WRITER, 1, b"\x00\x01\x00\x00abcd").encode()
    found = decode_submessage(encoded[0], encoded[1], memoryview(encoded)[4:])
    assert isinstance(found, Data)
    assert isinstance(found.payload, memoryview)
    assert found.payload.obj is encoded


def test_fragments_have_their_offset_in_the_sample() -> None:
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
