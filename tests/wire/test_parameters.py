"""Parameter lists, and the values in them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.errors import DecodeError, DropReason, UsageError
from spark_rtps.transport.limits import PARAMETERS_MAX, PARTITIONS_MAX, STRING_MAX, USER_DATA_MAX
from spark_rtps.transport.structure import INFINITE, Guid, Locator
from spark_rtps.transport.wire import parameters as p
from spark_rtps.transport.wire.parameters import ParameterList

EACH_ORDER = pytest.mark.parametrize("little_endian", [True, False], ids=["LE", "BE"])


def read(text: str, little_endian: bool = True) -> tuple[ParameterList, int]:
    return p.decode_parameters(memoryview(bytes.fromhex(text)), little_endian)


def reason_of(decode: object, *args: object) -> DropReason:
    assert callable(decode)
    with pytest.raises(DecodeError) as caught:
        decode(*args)
    return caught.value.reason


# --- lists --------------------------------------------------------------------------------------------

LITTLE = """
0500 0c00  04000000 53717500 00000000
5000 1000  000102030405060708090a0b000001c1
0100 0000
"""
BIG = """
0005 000c  00000004 53717500 00000000
0050 0010  000102030405060708090a0b000001c1
0001 0000
"""


def test_a_list_in_both_orders() -> None:
    for text, little_endian in ((LITTLE, True), (BIG, False)):
        found, consumed = read(text, little_endian)
        assert consumed == len(bytes.fromhex(text))
        assert [pid for pid, _ in found] == [p.PID_TOPIC_NAME, p.PID_PARTICIPANT_GUID]
        assert len(found) == 2
        assert p.decode_string(found.get(p.PID_TOPIC_NAME) or b"", little_endian) == "Squ"
        assert found.get(p.PID_TYPE_NAME) is None
        assert found.encode() == bytes.fromhex(text)


def test_bytes_behind_the_sentinel_are_left() -> None:
    assert read(LITTLE + "deadbeef")[1] == len(bytes.fromhex(LITTLE))
    assert read("0100 ffff")[1] == 4  # the sentinel's length means nothing


def test_pads_are_passed_over() -> None:
    assert list(read("0000 0400 00000000  7100 0400 00000001  0000 0000  0100 0000")[0]) == [
        (p.PID_STATUS_INFO, b"\x00\x00\x00\x01")
    ]


def test_a_list_cut_at_every_length() -> None:
    raw = bytes.fromhex(LITTLE)
    for length in range(len(raw)):
        assert reason_of(p.decode_parameters, memoryview(raw)[:length], True) is DropReason.BAD_PARAMETER_LIST


def test_lengths_past_the_end() -> None:
    assert reason_of(read, "0500 ffff 00000000 0100 0000") is DropReason.BAD_PARAMETER_LIST
    assert reason_of(read, "0500 0500 00000000 00") is DropReason.BAD_PARAMETER_LIST


def test_a_length_that_does_not_count_its_padding() -> None:
    found, _ = read("2c00 0500 01000000 aa000000  0100 0000")
    assert found.get(p.PID_USER_DATA) == b"\x01\x00\x00\x00\xaa"


def test_too_many_parameters() -> None:
    many = b"\x00\x80\x00\x00" * (PARAMETERS_MAX + 1) + b"\x01\x00\x00\x00"
    assert reason_of(p.decode_parameters, memoryview(many), True) is DropReason.OVER_LIMIT
    assert len(p.decode_parameters(memoryview(many)[4:], True)[0]) == PARAMETERS_MAX


def test_repeated_parameters() -> None:
    found = ParameterList(
        ((p.PID_UNICAST_LOCATOR, b"a"), (p.PID_TYPE_NAME, b"b"), (p.PID_UNICAST_LOCATOR, b"c"))
    )
    assert found.get(p.PID_UNICAST_LOCATOR) == b"a"
    assert found.all(p.PID_UNICAST_LOCATOR) == [b"a", b"c"]
    assert found.all(p.PID_DEADLINE) == []


def test_must_understand() -> None:
    known = {p.PID_TOPIC_NAME, p.PID_DOMAIN_TAG}
    found = ParameterList(
        (
            (p.PID_DOMAIN_TAG, b"x"),  # known, the bit is part of its id
            (p.PID_TOPIC_NAME | p.PID_MUST_UNDERSTAND, b"y"),  # known, this sender insists
            (0x3FFF, b""),  # unknown, but nobody insists
            (p.PID_VENDOR_SPECIFIC | 0x0007, b""),
            (p.PID_MUST_UNDERSTAND | 0x0FFF, b""),
            (p.PID_VENDOR_SPECIFIC | p.PID_MUST_UNDERSTAND | 0x0006, b""),
        )
    )
    assert found.unknown_must_understand(known) == [0x4FFF, 0xC006]
    assert found.get(p.PID_TOPIC_NAME) == b"y"
    assert found.all(p.PID_TOPIC_NAME) == [b"y"]
    assert found.get(p.PID_DOMAIN_TAG) == b"x"


def test_key_hash_and_status_info() -> None:
    assert ParameterList().key_hash is None
    assert ParameterList().status_info == 0
    found = ParameterList(((p.PID_KEY_HASH, bytes(range(16))), (p.PID_STATUS_INFO, p.encode_status_info(3))))
    assert found.key_hash == bytes(range(16))
    assert found.status_info == 3
    bad = ParameterList(((p.PID_KEY_HASH, bytes(12)), (p.PID_STATUS_INFO, b"\x01")))
    assert reason_of(lambda: bad.key_hash) is DropReason.BAD_PARAMETER
    assert reason_of(lambda: bad.status_info) is DropReason.BAD_PARAMETER


def test_status_info_has_no_byte_order() -> None:
    assert p.encode_status_info(2) == b"\x00\x00\x00\x02"
    assert p.decode_status_info(b"\xff\xff\xff\xf9") == 1  # only DISPOSED, UNREGISTERED, FILTERED


def test_values_are_padded() -> None:
    assert p.encode_parameters([(p.PID_PROTOCOL_VERSION, b"\x02\x05")]) == bytes.fromhex(
        "1500 0400 02050000  0100 0000"
    )


def test_a_value_too_long() -> None:
    with pytest.raises(UsageError, match="65532"):
        p.encode_parameters([(p.PID_USER_DATA, bytes(65_533))])
    assert len(p.encode_parameters([(p.PID_USER_DATA, bytes(65_532))])) == 65_540


@given(
    items=st.lists(
        st.tuples(
            st.integers(2, 0xFFFF),
            st.integers(0, 9).flatmap(lambda n: st.binary(min_size=4 * n, max_size=4 * n)),
        ),
        max_size=20,
    ),
    little_endian=st.booleans(),
)
def test_lists_there_and_back(items: list[tuple[int, bytes]], little_endian: bool) -> None:
    raw = p.encode_parameters(items, little_endian)
    assert p.decode_parameters(memoryview(raw), little_endian) == (
        ParameterList(tuple(items), little_endian),
        len(raw),
    )


# --- payloads -----------------------------------------------------------------------------------------


@EACH_ORDER
def test_payloads(little_endian: bool) -> None:
    raw = p.encode_parameter_payload([(p.PID_DOMAIN_ID, p.encode_u32(7, little_endian))], little_endian)
    assert raw[:4] == (b"\x00\x03\x00\x00" if little_endian else b"\x00\x02\x00\x00")
    found = p.decode_parameter_payload(memoryview(raw))
    assert found.little_endian is little_endian
    assert p.decode_u32(found.get(p.PID_DOMAIN_ID) or b"", found.little_endian) == 7


@pytest.mark.parametrize("head", ["", "00", "0003", "000300", "00010000", "000b0000", "03000000", "ffffffff"])
def test_other_encapsulations(head: str) -> None:
    raw = memoryview(bytes.fromhex(head) + (b"\x01\x00\x00\x00" if len(head) == 8 else b""))
    assert reason_of(p.decode_parameter_payload, raw) is DropReason.BAD_ENCAPSULATION


# --- values -------------------------------------------------------------------------------------------


def test_values_in_both_orders() -> None:
    locator = Locator("239.255.0.1", 7400)
    cases = [
        (p.encode_u32, 258, "02010000", "00000102"),
        (p.encode_i32, -2, "feffffff", "fffffffe"),
        (p.encode_duration, 1_500_000_000, "01000000 00000080", "00000001 80000000"),
        (p.encode_duration, INFINITE, "ffffff7f ffffffff", "7fffffff ffffffff"),
        (p.encode_string, "rt/é", "06000000 72742fc3a900 0000", "00000006 72742fc3a900 0000"),
        (p.encode_string, "", "01000000 00000000", "00000001 00000000"),
        (p.encode_octets, b"\x01\x02", "02000000 01020000", "00000002 01020000"),
        (p.encode_i16_sequence, (0, 2, -1), "03000000 00000200ffff0000", "00000003 00000002ffff0000"),
        (p.encode_strings, ("a", ""), "02000000 02000000 61000000 01000000 00000000", None),
        (p.encode_properties, (("a", "b"),), "01000000 02000000 61000000 02000000 62000000", None),
        (p.encode_locator, locator, "01000000 e81c0000" + "00" * 12 + "efff0001", None),
        (p.encode_locator, locator, None, "00000001 00001ce8" + "00" * 12 + "efff0001"),
    ]
    for encode, value, little, big in cases:
        if little is not None:
            assert encode(value, True) == bytes.fromhex(little), (encode, value)  # type: ignore[operator]
        if big is not None:
            assert encode(value, False) == bytes.fromhex(big), (encode, value)  # type: ignore[operator]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)


@given(
    little_endian=st.booleans(),
    number=st.integers(0, 2**32 - 1),
    signed=st.integers(-(2**31), 2**31 - 1),
    ns=st.integers(0, 2**31 * 10**9 - 10**9 - 1),
    octets=st.binary(max_size=100),
    shorts=st.lists(st.integers(-(2**15), 2**15 - 1), max_size=20).map(tuple),
    strings=st.lists(texts, max_size=10).map(tuple),
    properties=st.lists(st.tuples(texts, texts), max_size=5).map(tuple),
    guid=st.binary(min_size=16, max_size=16).map(Guid.from_bytes),
)
def test_values_there_and_back(
    little_endian: bool,
    number: int,
    signed: int,
    ns: int,
    octets: bytes,
    shorts: tuple[int, ...],
    strings: tuple[str, ...],
    properties: tuple[tuple[str, str], ...],
    guid: Guid,
) -> None:
    e = little_endian
    assert p.decode_u32(p.encode_u32(number, e), e) == number
    assert p.decode_i32(p.encode_i32(signed, e), e) == signed
    assert p.decode_duration(p.encode_duration(ns, e), e) == ns
    assert p.decode_octets(p.encode_octets(octets, e), e) == octets
    assert p.decode_i16_sequence(p.encode_i16_sequence(shorts, e), e) == shorts
    assert p.decode_strings(p.encode_strings(strings, e), e) == strings
    assert p.decode_properties(p.encode_properties(properties, e), e) == properties
    assert p.decode_guid(p.encode_guid(guid)) == guid
    for text in strings:
        assert p.decode_string(p.encode_string(text, e), e) == text
    assert all(len(each) % 4 == 0 for each in (p.encode_strings(strings, e), p.encode_octets(octets, e)))


@given(value=st.binary(max_size=80), little_endian=st.booleans())
def test_noise_is_a_decode_error_or_a_value(value: bytes, little_endian: bool) -> None:
    for decode in (
        p.decode_u32,
        p.decode_i32,
        p.decode_duration,
        p.decode_locator,
        p.decode_string,
        p.decode_octets,
        p.decode_i16_sequence,
        p.decode_strings,
        p.decode_properties,
    ):
        with suppress(DecodeError):
            decode(value, little_endian)
    with suppress(DecodeError):
        p.decode_parameter_payload(memoryview(b"\x00\x03\x00\x00" + value))


def test_values_cut_at_every_length() -> None:
    cases = [
        (p.decode_bool, b"\1\0\0\0", 1),
        (p.decode_guid, bytes(16), 16),
        (p.decode_status_info, bytes(4), 4),
    ]
    for decode, value, least in cases:
        for length in range(least):
            assert reason_of(decode, value[:length]) is DropReason.BAD_PARAMETER
    ordered = [
        (p.decode_u32, p.encode_u32(1), 4),
        (p.decode_i32, p.encode_i32(1), 4),
        (p.decode_duration, p.encode_duration(1), 8),
        (p.decode_string, p.encode_string("abc"), 8),
        (p.decode_octets, p.encode_octets(b"abcd"), 8),
        (p.decode_i16_sequence, p.encode_i16_sequence((1, 2)), 8),
        (p.decode_strings, p.encode_strings(("abc", "def")), 20),
        (p.decode_properties, p.encode_properties((("abc", "def"),)), 20),
    ]
    for decode, value, least in ordered:  # type: ignore[assignment]
        for length in range(least):
            assert reason_of(decode, value[:length], True) is DropReason.BAD_PARAMETER
        decode(value[:least], True)  # type: ignore[call-arg]
    for length in range(24):
        assert reason_of(p.decode_locator, bytes(length), True) is DropReason.BAD_LOCATOR


def test_booleans() -> None:
    assert p.decode_bool(b"\1\0\0\0") is True
    assert p.decode_bool(bytes(4)) is False


def test_strings_of_odd_peers() -> None:
    assert p.decode_string(bytes(4), True) == ""  # no NUL counted
    assert p.decode_string(bytes.fromhex("03000000 ff4100 00"), True) == "\ufffdA"  # not UTF-8
    assert reason_of(p.decode_string, bytes.fromhex("03000000 414243"), True) is DropReason.BAD_PARAMETER


def test_negative_duration() -> None:
    assert reason_of(p.decode_duration, bytes.fromhex("feffffff 00000000"), True) is DropReason.BAD_PARAMETER


def test_bytes_after_a_data_representation_are_ignored() -> None:
    """RTI appends a compression mask: 12 bytes in all."""
    assert p.decode_i16_sequence(bytes.fromhex("01000000 0200 0000 07000000"), True) == (2,)


def test_locators() -> None:
    for locator in (Locator("10.0.0.1", 7411), Locator("fe80::1", 7411, 2)):
        for little_endian in (True, False):
            raw = p.encode_locator(locator, little_endian)
            assert p.decode_locator(raw, little_endian) == locator
    raw = bytearray(p.encode_locator(Locator("10.0.0.1", 7411)))  # type: ignore[assignment]
    for kind in (16, 4, -1, 0, 0x01000000):  # shared memory, TCP, invalid, reserved, RTI's
        raw[:4] = kind.to_bytes(4, "little", signed=True)
        assert p.decode_locator(bytes(raw), True) is None
    with pytest.raises(UsageError, match="nowhere"):
        p.encode_locator(Locator("nowhere", 7411))


@pytest.mark.parametrize("port", [0, 65536, 0xFFFFFFFF])
def test_locators_nothing_can_be_sent_to(port: int) -> None:
    raw = p.encode_locator(Locator("10.0.0.1", 7411))
    raw = raw[:4] + port.to_bytes(4, "little") + raw[8:]
    assert reason_of(p.decode_locator, raw, True) is DropReason.BAD_LOCATOR


def test_over_limits() -> None:
    long = p.encode_string("a" * STRING_MAX)
    assert reason_of(p.decode_string, long, True) is DropReason.OVER_LIMIT
    assert (
        reason_of(p.decode_octets, p.encode_octets(bytes(USER_DATA_MAX + 1)), True) is DropReason.OVER_LIMIT
    )
    many = p.encode_strings([""] * (PARTITIONS_MAX + 1))
    assert reason_of(p.decode_strings, many, True) is DropReason.OVER_LIMIT
