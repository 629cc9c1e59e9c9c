"""What attacks on DDS stacks did to the wire: every class ends in a DecodeError or in nothing, cheaply."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from spark_rtps.transport.errors import DecodeError, DropReason
from spark_rtps.transport.limits import FRAGMENTED_SAMPLE_MAX, LOCATORS_MAX
from spark_rtps.transport.wire import parameters as p
from spark_rtps.transport.wire.message import iter_submessages
from spark_rtps.transport.wire.submessages import SUBMESSAGES, DataFrag, Gap, decode_submessage

IDS = bytes.fromhex("00000107 00000202")
MAX = 2**63 - 1


def sn(number: int) -> bytes:
    return (number >> 32).to_bytes(4, "little", signed=True) + (number & 0xFFFFFFFF).to_bytes(4, "little")


def u32(number: int) -> bytes:
    return number.to_bytes(4, "little")


def u16(number: int) -> bytes:
    return number.to_bytes(2, "little")


def reason(kind: int, body: bytes, flags: int = 1) -> DropReason:
    with pytest.raises(DecodeError) as caught:
        decode_submessage(kind, flags, memoryview(body))
    return caught.value.reason


@contextmanager
def little_memory(limit: int = 1 << 20) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < limit


class TestLengths:
    """1: lengths beyond the datagram, of zero, short messages."""

    @pytest.mark.parametrize("kind", sorted(SUBMESSAGES))
    def test_empty_bodies(self, kind: int) -> None:
        if kind != 0x01:
            assert reason(kind, b"") is DropReason.TRUNCATED_SUBMESSAGE

    @pytest.mark.parametrize("octets", [0, 4, 15, 17, 0xFFFF])
    def test_octets_to_inline_qos(self, octets: int) -> None:
        body = u16(0) + u16(octets) + IDS + sn(1)
        assert reason(0x15, body, flags=0x05) in (
            DropReason.TRUNCATED_SUBMESSAGE,
            DropReason.BAD_ENCAPSULATION,
        )
        assert reason(0x15, body, flags=0x03) in (
            DropReason.TRUNCATED_SUBMESSAGE,
            DropReason.BAD_PARAMETER_LIST,
        )

    def test_a_payload_shorter_than_its_encapsulation_header(self) -> None:
        for length in range(4):
            assert (
                reason(0x15, u16(0) + u16(16) + IDS + sn(1) + bytes(length), 5)
                is DropReason.BAD_ENCAPSULATION
            )

    def test_a_message_of_nothing_but_empty_submessages_ends(self) -> None:
        message = memoryview(bytes(20) + b"\x01\x01\x00\x00" * 16_000)
        assert sum(1 for _ in iter_submessages(message)) == 16_000

    def test_inline_qos_without_end(self) -> None:
        qos = (u16(0x8000) + u16(0)) * 1000
        body = u16(0) + u16(16) + IDS + sn(1) + qos
        assert reason(0x15, body, flags=0x03) is DropReason.BAD_PARAMETER_LIST


class TestCounts:
    """2: strings, sequences and property lists with huge counts."""

    @pytest.mark.parametrize("count", [2, 1000, 0x3FFFFFFF, 0x40000000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
    @pytest.mark.parametrize(
        "decode",
        [p.decode_string, p.decode_octets, p.decode_i16_sequence, p.decode_strings, p.decode_properties],
    )
    def test_more_than_there_are_bytes(self, decode: Callable[[bytes, bool], object], count: int) -> None:
        with little_memory(), pytest.raises(DecodeError):
            decode(u32(count) + b"\x00", True)

    def test_strings_within_a_sequence(self) -> None:
        with little_memory(), pytest.raises(DecodeError):
            p.decode_strings(u32(2) + u32(0xFFFFFFFF) + bytes(100), True)

    def test_lists_out_of_reassembled_fragments(self) -> None:
        payload = b"\x00\x03\x00\x00" + (u16(0x8000) + u16(0)) * 2_000_000
        with little_memory(), pytest.raises(DecodeError) as caught:
            p.decode_parameter_payload(memoryview(payload))
        assert caught.value.reason is DropReason.OVER_LIMIT

    def test_locator_lists(self) -> None:
        assert reason(0x0F, u32(0xFFFFFFFF) + bytes(24)) is DropReason.OVER_LIMIT
        assert reason(0x0F, u32(LOCATORS_MAX) + bytes(24)) is DropReason.TRUNCATED_SUBMESSAGE


class TestNumberSets:
    """3: more than 256 bits, bits past the buffer, bases below 1, overflow."""

    @pytest.mark.parametrize("num_bits", [257, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
    def test_too_many_bits(self, num_bits: int) -> None:
        words = bytes(64)
        assert reason(0x06, IDS + sn(1) + u32(num_bits) + words) is DropReason.BAD_NUMBER_SET
        assert reason(0x08, IDS + sn(1) + sn(1) + u32(num_bits) + words) is DropReason.BAD_NUMBER_SET
        assert reason(0x12, IDS + sn(1) + u32(1) + u32(num_bits) + words) is DropReason.BAD_NUMBER_SET

    @pytest.mark.parametrize("num_bits", [1, 32, 33, 256])
    def test_bits_past_the_buffer(self, num_bits: int) -> None:
        words = bytes(((num_bits + 31) // 32 - 1) * 4)
        assert reason(0x06, IDS + sn(1) + u32(num_bits) + words) is DropReason.TRUNCATED_SUBMESSAGE
        assert reason(0x08, IDS + sn(1) + sn(1) + u32(num_bits) + words) is DropReason.TRUNCATED_SUBMESSAGE
        assert reason(0x12, IDS + sn(1) + u32(1) + u32(num_bits) + words) is DropReason.TRUNCATED_SUBMESSAGE

    @pytest.mark.parametrize("base", [0, -1, -(2**32), -(2**63)])
    def test_bases_below_one(self, base: int) -> None:
        if base:
            assert reason(0x06, IDS + sn(base) + u32(0) + u32(1)) is DropReason.BAD_NUMBER_SET
        assert reason(0x08, IDS + sn(1) + sn(base) + u32(0)) is DropReason.BAD_NUMBER_SET

    def test_overflow(self) -> None:
        assert reason(0x06, IDS + sn(MAX) + u32(2) + u32(0) + u32(1)) is DropReason.BAD_NUMBER_SET
        assert reason(0x08, IDS + sn(1) + sn(MAX - 254) + u32(256) + bytes(32)) is DropReason.BAD_NUMBER_SET
        assert reason(0x12, IDS + sn(1) + u32(2**32 - 1) + u32(2) + u32(0)) is DropReason.BAD_NUMBER_SET

    def test_a_fragment_base_of_zero(self) -> None:
        assert reason(0x12, IDS + sn(1) + u32(0) + u32(0) + u32(1)) is DropReason.BAD_NUMBER_SET

    @pytest.mark.parametrize("number", [0, -1, -(2**32), -(2**63)])
    def test_sequence_numbers_below_one(self, number: int) -> None:
        bad = DropReason.BAD_SEQUENCE_NUMBER
        assert reason(0x15, u16(0) + u16(16) + IDS + sn(number) + bytes(8), flags=5) is bad
        assert (
            reason(0x16, u16(0) + u16(28) + IDS + sn(number) + u32(1) + u32(0x40001) + u32(4) + u32(0)) is bad
        )
        assert reason(0x08, IDS + sn(number) + sn(1) + u32(0)) is bad
        assert reason(0x07, IDS + sn(number) + sn(1) + u32(1)) is bad
        assert reason(0x13, IDS + sn(number) + u32(1) + u32(1)) is bad
        assert reason(0x12, IDS + sn(number) + u32(1) + u32(0) + u32(1)) is bad

    @pytest.mark.parametrize(("first", "last"), [(1, -1), (3, 1), (2**40, 1), (0, 0), (1, -(2**63))])
    def test_heartbeats_that_end_before_they_begin(self, first: int, last: int) -> None:
        assert reason(0x07, IDS + sn(first) + sn(last) + u32(1)) is DropReason.BAD_SEQUENCE_NUMBER


def test_a_gap_over_everything_stays_two_numbers() -> None:
    """4: a loop over each number of a GAP took one stack to 64 GB."""
    body = IDS + sn(1) + sn(MAX - 255) + u32(256) + b"\xff" * 32
    with little_memory(64 << 10):
        found = decode_submessage(0x08, 1, memoryview(body))
        assert isinstance(found, Gap)
        assert (found.start_sn, found.irrelevant.base) == (1, MAX - 255)
        assert found.irrelevant.ranges() == [(MAX - 255, MAX)]


class TestFragments:
    """6: huge sample sizes, fragment 0, fragments of size 0, fragments outside the sample."""

    @staticmethod
    def reason(first: int, fragments: int, size: int, total: int, payload: int = 64) -> DropReason:
        head = u16(0) + u16(28) + IDS + sn(1) + u32(first) + u16(fragments) + u16(size) + u32(total)
        return reason(0x16, head + bytes(payload))

    def test_a_huge_sample(self) -> None:
        with little_memory():
            head = u16(0) + u16(28) + IDS + sn(1) + u32(1) + u16(1) + u16(64) + u32(0xFFFFFFFF)
            found = decode_submessage(0x16, 1, memoryview(head + bytes(64)))
            assert isinstance(found, DataFrag)  # the reader judges it, and allocates nothing before
            assert found.sample_size == 0xFFFFFFFF
            assert len(found.payload) == 64

    def test_zeros(self) -> None:
        assert self.reason(0, 1, 4, 64) is DropReason.BAD_FRAGMENT
        assert self.reason(1, 0, 4, 64) is DropReason.BAD_FRAGMENT
        assert self.reason(1, 1, 0, 64) is DropReason.BAD_FRAGMENT
        assert self.reason(1, 1, 0, 0) is DropReason.BAD_FRAGMENT
        assert self.reason(1, 1, 4, 0) is DropReason.BAD_FRAGMENT

    def test_outside_the_sample(self) -> None:
        assert self.reason(17, 1, 4, 64) is DropReason.BAD_FRAGMENT
        assert self.reason(16, 2, 4, 64) is DropReason.BAD_FRAGMENT
        assert self.reason(1, 0xFFFF, 4, 64) is DropReason.BAD_FRAGMENT
        assert self.reason(0xFFFFFFFF, 0xFFFF, 0xFFFF, FRAGMENTED_SAMPLE_MAX) is DropReason.BAD_FRAGMENT
        assert self.reason(1, 1, 65, 64) is DropReason.BAD_FRAGMENT  # RTPS 2.5 §8.3.8.3.3

    def test_fewer_bytes_than_declared(self) -> None:
        assert self.reason(1, 4, 16, 1000, payload=63) is DropReason.BAD_FRAGMENT

    def test_a_heartbeat_of_no_fragment(self) -> None:
        assert reason(0x13, IDS + sn(1) + u32(0) + u32(1)) is DropReason.BAD_FRAGMENT


def test_data_that_is_sample_and_key_at_once() -> None:
    """7: D and K together."""
    body = u16(0) + u16(16) + IDS + sn(1) + b"\x00\x01\x00\x00" + bytes(8)
    assert reason(0x15, body, flags=0x0D) is DropReason.BAD_ENCAPSULATION
    assert reason(0x15, body, flags=0x15) is DropReason.BAD_ENCAPSULATION  # not a standard payload


class TestUnknown:
    """11: unknown parameters, submessages and vendors are passed over."""

    @pytest.mark.parametrize("kind", [k for k in range(256) if k not in SUBMESSAGES])
    def test_submessages(self, kind: int) -> None:
        assert decode_submessage(kind, 0xFF, memoryview(b"whatever")) is None

    def test_parameters(self) -> None:
        known = p.encode_parameters([(p.PID_TOPIC_NAME, p.encode_string("t"))])
        unknown = p.encode_parameters([(pid, b"\xff" * 8) for pid in (0x3FFF, 0x7FFE, 0x8001, 0xFFFF)])[:-4]
        found, _ = p.decode_parameters(memoryview(unknown + known), True)
        assert p.decode_string(found.get(p.PID_TOPIC_NAME) or b"", True) == "t"

    @pytest.mark.parametrize("kind", sorted(SUBMESSAGES))
    def test_flags(self, kind: int) -> None:
        """Flags nobody has assigned change nothing but what they mean elsewhere."""
        for flags in range(256):
            try:
                decode_submessage(kind, flags, memoryview(bytes(100)))
            except DecodeError:
                continue
