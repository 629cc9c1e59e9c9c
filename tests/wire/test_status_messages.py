"""Status messages and RTT measurements, beyond what every submessage is tested for in test_submessages."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.errors import DecodeError, DropReason
from spark_rtps.transport.wire.message import Header
from spark_rtps.transport.wire.status_messages import RttMeasurement, StatusMessage
from spark_rtps.transport.wire.submessages import Heartbeat, decode_submessage
from tests.support.pcap import write_pcap
from tests.support.wireshark import tshark

PREFIX = bytes.fromhex("017e0102030405060708090a")
READER, WRITER = b"\x00\x00\x01\x07", b"\x00\x00\x02\x02"
EACH_ORDER = pytest.mark.parametrize("little_endian", [True, False], ids=["LE", "BE"])
PLAIN = StatusMessage(READER, WRITER, 2**32 + 5, 131_072, 7)
TAGGED = StatusMessage(READER, WRITER, 0, 0, 8, group_tag=-2, end_of_stream=True)
QUESTION = RttMeasurement(READER, WRITER, 1_000_000_007)
REPLY = RttMeasurement(READER, WRITER, -(2**63), 2**63 - 1, reply=True)
EVERY = pytest.mark.parametrize("message", [PLAIN, TAGGED, QUESTION, REPLY])


def reason(encoded: bytes) -> DropReason:
    with pytest.raises(DecodeError) as caught:
        decode_submessage(encoded[0], encoded[1], memoryview(encoded)[4:])
    return caught.value.reason


@EVERY
@EACH_ORDER
def test_no_part_of_one_is_one(message: StatusMessage | RttMeasurement, little_endian: bool) -> None:
    encoded = message.encode(little_endian)
    for length in range(4, len(encoded)):
        assert reason(encoded[:length]) is DropReason.TRUNCATED_SUBMESSAGE


def test_a_tag_that_is_announced_must_be_there() -> None:
    encoded = bytearray(PLAIN.encode())
    encoded[1] |= StatusMessage.FLAG_T
    assert reason(bytes(encoded)) is DropReason.TRUNCATED_SUBMESSAGE


def test_the_end_needs_no_tag() -> None:
    message = replace(PLAIN, end_of_stream=True)
    encoded = message.encode()
    assert encoded[1] == 0x05
    assert decode_submessage(encoded[0], encoded[1], memoryview(encoded)[4:]) == message


@EACH_ORDER
@given(number=st.integers(-(2**63), -1))
def test_nothing_is_consumed_below_nothing(little_endian: bool, number: int) -> None:
    encoded = replace(PLAIN, consumption_sn=number).encode(little_endian)
    assert reason(encoded) is DropReason.BAD_SEQUENCE_NUMBER


@EACH_ORDER
@given(delta=st.integers(-(2**63), -1))
def test_a_negative_reception_delta_is_refused(little_endian: bool, delta: int) -> None:
    assert reason(replace(REPLY, reception_delta=delta).encode(little_endian)) is DropReason.BAD_PARAMETER


def test_fields_that_are_too_small_for_what_they_say() -> None:
    encoded = replace(PLAIN, receiver_window=2**32 + 5, count=2**32 + 5).encode()
    found = decode_submessage(encoded[0], encoded[1], memoryview(encoded)[4:])
    assert found == replace(PLAIN, receiver_window=2**32 - 1, count=5)


@EACH_ORDER
def test_wireshark_skips_them(little_endian: bool) -> None:
    """Neither is anything to remark, and what follows is found."""
    head = Header(prefix=PREFIX).encode()
    encoded = [each.encode(little_endian) for each in (PLAIN, TAGGED, QUESTION, REPLY)]
    message = head + b"".join(encoded) + Heartbeat(bytes(4), WRITER, 1, 9, 1).encode(little_endian)
    alone = [head + each for each in encoded]
    assert tshark(write_pcap([message, *alone]), "-Y", "!rtps || _ws.malformed || _ws.expert") == ""
    assert tshark(write_pcap([message]), "-T", "fields", "-e", "rtps.sm.id") == "0xb1,0xb1,0xb2,0xb2,0x07\n"
