"""The message header, and where submessages lie."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.errors import DecodeError, DropReason
from spark_rtps.transport.structure import PROTOCOL_VERSION, VENDOR_ID
from spark_rtps.transport.wire.message import Header, header_at, iter_submessages

PREFIX = bytes(range(12))
HEADER = bytes.fromhex("52545053 0205 017e") + PREFIX


def read_header(message: bytes) -> Header:
    minor, vendor, prefix = header_at(memoryview(message), 0, len(message))
    return Header((2, minor), vendor, prefix)


def spans(*submessages: str) -> list[tuple[int, int, int, int]]:
    return list(iter_submessages(memoryview(HEADER + bytes.fromhex("".join(submessages)))))


def reason(*submessages: str) -> DropReason:
    with pytest.raises(DecodeError) as caught:
        spans(*submessages)
    return caught.value.reason


def test_header_bytes() -> None:
    header = Header((2, 5), b"\x01\x7e", PREFIX)
    assert header.encode() == HEADER
    assert read_header(HEADER) == header
    assert Header(prefix=PREFIX) == Header(PROTOCOL_VERSION, VENDOR_ID, PREFIX)


@given(minor=st.integers(0, 255), vendor=st.binary(min_size=2, max_size=2))
def test_any_minor_version_and_vendor(minor: int, vendor: bytes) -> None:
    header = Header((2, minor), vendor, PREFIX)
    assert read_header(header.encode()) == header


@pytest.mark.parametrize("major", [0, 1, 3, 255])
def test_other_major_versions(major: int) -> None:
    with pytest.raises(DecodeError) as caught:
        read_header(Header((major, 0), b"\x01\x7e", PREFIX).encode())
    assert caught.value.reason is DropReason.UNSUPPORTED_VERSION


def test_header_cut_at_every_length() -> None:
    for length in range(20):
        with pytest.raises(DecodeError) as caught:
            read_header(HEADER[:length])
        assert caught.value.reason is DropReason.SHORT_MESSAGE


@pytest.mark.parametrize("data", [b"RTPX" + bytes(16), b"rtps" + bytes(16), bytes(20), b"\x16" * 2000])
def test_data_that_is_not_rtps_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        read_header(data)
    assert caught.value.reason is DropReason.NOT_RTPS


def test_submessages_in_both_orders() -> None:
    assert spans("0e010c00" + "00" * 12, "07000004 aabbccdd", "80010000") == [
        (0x0E, 1, 24, 36),
        (0x07, 0, 40, 44),
        (0x80, 1, 48, 48),
    ]


def test_a_message_without_submessages() -> None:
    assert spans() == []


@pytest.mark.parametrize("kind", ["15", "06", "0e", "80"])
def test_length_zero_reaches_to_the_end(kind: str) -> None:
    assert spans("09010000", f"{kind}010000", "0102030405060708") == [
        (9, 1, 24, 24),
        (int(kind, 16), 1, 28, 36),
    ]


@pytest.mark.parametrize("kind", ["01", "09"])
def test_length_zero_is_empty_for_pad_and_info_ts(kind: str) -> None:
    assert spans(f"{kind}010000", "0e010400 01020304") == [(int(kind, 16), 1, 24, 24), (0x0E, 1, 28, 32)]
    assert spans(f"{kind}010000") == [(int(kind, 16), 1, 24, 24)]


def test_the_last_submessage_may_end_anywhere() -> None:
    assert spans("15010500 0102030405") == [(0x15, 1, 24, 29)]


def test_another_may_not() -> None:
    assert reason("15010500 0102030405", "01010000") is DropReason.TRUNCATED_SUBMESSAGE


@pytest.mark.parametrize("left", ["0e", "0e01", "0e010c"])
def test_a_header_cut_short(left: str) -> None:
    assert reason("01010000", left) is DropReason.TRUNCATED_SUBMESSAGE


def test_lengths_past_the_end() -> None:
    assert reason("0e010c00" + "00" * 11) is DropReason.TRUNCATED_SUBMESSAGE
    assert reason("1501ffff" + "00" * 100) is DropReason.TRUNCATED_SUBMESSAGE
    assert (
        reason("15000400" + "00" * 4) is DropReason.TRUNCATED_SUBMESSAGE
    )  # 4 in the wrong byte order is 1024
    assert reason("01010400") is DropReason.TRUNCATED_SUBMESSAGE


def test_submessages_before_a_bad_one_count() -> None:
    message = memoryview(HEADER + bytes.fromhex("01010000 0e010c00 00"))
    found = iter_submessages(message)
    assert next(found) == (1, 1, 24, 24)
    with pytest.raises(DecodeError):
        next(found)


@given(noise=st.binary(max_size=300))
def test_noise(noise: bytes) -> None:
    """Spans are in order, within the message, and come to an end."""
    at = 20
    message = memoryview(HEADER + noise)
    with suppress(DecodeError):
        for _, _, start, stop in iter_submessages(message):
            assert start == at + 4
            assert start <= stop <= len(message)
            at = stop
