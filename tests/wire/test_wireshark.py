"""An independent judge: Wireshark's RTPS dissector must read what we write, and call none of it malformed."""

from __future__ import annotations

import pytest

from spark_rtps.transport.structure import Guid, Locator
from spark_rtps.transport.wire import parameters as p
from spark_rtps.transport.wire.message import Header
from spark_rtps.transport.wire.numbers import FragmentNumberSet, SequenceNumberSet
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
)
from tests.support.pcap import write_pcap
from tests.support.wireshark import tshark

PREFIX = bytes.fromhex("017e0102030405060708090a")
READER, WRITER = b"\x00\x00\x01\x07", b"\x00\x00\x02\x02"
SPDP_READER, SPDP_WRITER = b"\x00\x01\x00\xc7", b"\x00\x01\x00\xc2"
BOTH_ORDERS = pytest.mark.parametrize("little_endian", [True, False], ids=["LE", "BE"])


def discovery_payload(little_endian: bool) -> bytes:
    """SPDP data with a value of every sort."""
    e = little_endian
    return p.encode_parameter_payload(
        [
            (p.PID_PROTOCOL_VERSION, b"\x02\x05\x00\x00"),
            (p.PID_VENDOR_ID, b"\x01\x7e\x00\x00"),
            (p.PID_PARTICIPANT_GUID, p.encode_guid(Guid(PREFIX, b"\x00\x00\x01\xc1"))),
            (p.PID_DOMAIN_ID, p.encode_u32(3, e)),
            (p.PID_PARTICIPANT_LEASE_DURATION, p.encode_duration(10_500_000_000, e)),
            (p.PID_DEFAULT_UNICAST_LOCATOR, p.encode_locator(Locator("10.1.2.3", 7411), e)),
            (p.PID_METATRAFFIC_UNICAST_LOCATOR, p.encode_locator(Locator("fe80::1", 7410, 2), e)),
            (p.PID_BUILTIN_ENDPOINT_SET, p.encode_u32(0x0C3F, e)),
            (p.PID_ENTITY_NAME, p.encode_string("spark-rtps", e)),
            (p.PID_PROPERTY_LIST, p.encode_properties((("engine", "spark"), ("x", "")), e)),
            (p.PID_USER_DATA, p.encode_octets(b"enclave=/;", e)),
        ],
        little_endian,
    )


def every_submessage(little_endian: bool) -> list[Submessage]:
    payload = b"\x00\x01\x00\x00" + bytes(range(8))
    disposed = p.ParameterList(
        ((p.PID_KEY_HASH, bytes(range(16))), (p.PID_STATUS_INFO, p.encode_status_info(1))), little_endian
    )
    return [
        InfoTimestamp(1_700_000_000_123_456_789),
        InfoSource(prefix=PREFIX),
        InfoDestination(PREFIX),
        InfoReply((Locator("10.1.2.3", 7411),), (Locator("239.255.0.1", 7401), Locator("ff02::1", 7401, 2))),
        InfoReplyIp4(Locator("10.1.2.3", 7411), Locator("239.255.0.1", 7401)),
        InfoTimestamp(None),
        Pad(),
        Data(READER, WRITER, 4_294_967_301, payload),
        Data(READER, WRITER, 6, payload, disposed, key=True),
        Data(READER, WRITER, 7, None, disposed),
        Data(SPDP_READER, SPDP_WRITER, 1, discovery_payload(little_endian)),
        DataFrag(READER, WRITER, 8, 2, 2, 8, 30, bytes(range(16)), disposed),
        Heartbeat(READER, WRITER, 1, 4_294_967_301, 7, final=True, liveliness=True),
        HeartbeatFrag(READER, WRITER, 8, 4, 2),
        AckNack(READER, WRITER, SequenceNumberSet.from_numbers(1234, [1236, 1237, 1270]), 3, final=True),
        AckNack(READER, WRITER, SequenceNumberSet.from_numbers(5, range(5, 261)), 4),
        AckNack(READER, WRITER, SequenceNumberSet(9), 5),
        NackFrag(READER, WRITER, 8, FragmentNumberSet.from_numbers(3, [3, 4, 40]), 6),
        HeartbeatBatch(READER, WRITER, 3, 9, 100, 4_294_967_301, 8, final=True, liveliness=True),
        AckNackBatch(READER, WRITER, SequenceNumberSet.from_numbers(3, [4, 6]), 9, final=True),
        Gap(READER, WRITER, 2, SequenceNumberSet.from_numbers(38, [39, 41])),
        StatusMessage(READER, WRITER, 4_294_967_301, 131_072, 7),
        StatusMessage(READER, WRITER, 0, 0, 8, group_tag=-2, end_of_stream=True),
        RttMeasurement(READER, WRITER, 1_000_000_007),
    ]


def capture(little_endian: bool) -> bytes:
    """One datagram with every submessage, then each in a datagram of its own."""
    header = Header(prefix=PREFIX).encode()
    encoded = [each.encode(little_endian) for each in every_submessage(little_endian)]
    return write_pcap([header + b"".join(encoded), *(header + each for each in encoded)])


@BOTH_ORDERS
def test_nothing_is_malformed(little_endian: bool) -> None:
    assert {each.KIND for each in every_submessage(little_endian)} == set(SUBMESSAGES)
    assert tshark(capture(little_endian), "-Y", "!rtps || _ws.malformed || _ws.expert") == ""


def test_this_judge_can_condemn() -> None:
    """The filter finds what is wrong: here an ACKNACK cut in its bitmap, and bytes that are no RTPS."""
    header = Header(prefix=PREFIX).encode()
    acknack = AckNack(READER, WRITER, SequenceNumberSet.from_numbers(5, range(5, 261)), 4).encode()
    broken = header + acknack[:2] + b"\x18\x00" + acknack[4:28]
    found = tshark(write_pcap([broken, b"\x00" * 40]), "-Y", "!rtps || _ws.malformed || _ws.expert")
    assert len(found.splitlines()) == 2


@BOTH_ORDERS
def test_wireshark_reads_what_we_meant(little_endian: bool) -> None:
    text = tshark(capture(little_endian), "-V", "-Y", "frame.number == 1")
    for expected in (
        "Protocol version: 2.5",
        "Timestamp: Nov 14, 2023 22:13:20.123456789",
        "(LOCATOR_KIND_UDPV4, 10.1.2.3:7411)",
        "(LOCATOR_KIND_UDPV4, 239.255.0.1:7401)",
        "writerSeqNumber: 4294967301",
        "lastSeqNumber: 4294967301",
        "guid: 00010203:04050607:08090a0b:0c0d0e0f",  # what Wireshark calls a key hash
        "Flags: 0x00000001, Disposed",
        "lease_duration: 10.500000 sec",
        "PID_METATRAFFIC_UNICAST_LOCATOR (LOCATOR_KIND_UDPV6, fe80::1:7410)",
        "(LOCATOR_KIND_UDPV6, ff02::1:7401)",
        "entityName: spark-rtps",
        "PID_PROPERTY_LIST (2 properties)",
        "Property Name: engine",
        "userData: 656e636c6176653d2f3b",
        "fragmentStartingNum: 2",
        "fragmentsInSubmessage: 2",
        "fragmentSize: 8",
        "sampleSize: 30",
        "Lost samples 1236, 1237, 1270 in range [1234,1270]",
        "numBits: 256",
    ):
        assert expected in text, f"{expected!r} is not in:\n{text}"
    assert "Malformed" not in text
