"""Sets of sequence and fragment numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.errors import DecodeError, DropReason
from spark_rtps.transport.wire.numbers import (
    FRAGMENT_NUMBER_MAX,
    SEQUENCE_NUMBER_MAX,
    FragmentNumberSet,
    SequenceNumberSet,
)

BOTH = pytest.mark.parametrize("kind", [SequenceNumberSet, FragmentNumberSet])
Set = type[SequenceNumberSet] | type[FragmentNumberSet]


def test_the_specification_s_example() -> None:
    """RTPS 2.5 §9.4.2.6: the set 1234:/12:00110 holds 1236 and 1237."""
    found = SequenceNumberSet(1234, 12, (0x30_00_00_00,))
    assert list(found.numbers()) == [1236, 1237]
    assert found.encode() == bytes.fromhex("00000000 d2040000 0c000000 00000030")
    assert found.encode(False) == bytes.fromhex("00000000 000004d2 0000000c 30000000")


@BOTH
def test_a_set_ends_at_its_highest_number(kind: Set) -> None:
    found = kind.from_numbers(10, [10, 12, 41, 42])
    assert (found.num_bits, found.words) == (33, (0xA000_0001, 0x8000_0000))
    assert found.ranges() == [(10, 10), (12, 12), (41, 42)]


@BOTH
def test_numbers_a_set_cannot_hold_are_left_out(kind: Set) -> None:
    found = kind.from_numbers(100, [99, 100, 355, 356, 10**12])
    assert list(found.numbers()) == [100, 355]
    assert found.num_bits == 256


@BOTH
def test_an_empty_set(kind: Set) -> None:
    empty = kind.from_numbers(7, [])
    assert empty == kind(7)
    assert empty.is_empty
    assert list(empty.numbers()) == []
    assert kind(7, 3, (0,)).is_empty


@BOTH
@given(data=st.data())
def test_from_numbers_and_back(kind: Set, data: st.DataObject) -> None:
    base = data.draw(st.integers(1, 2**31))
    numbers = data.draw(st.sets(st.integers(base, base + 255)))
    found = kind.from_numbers(base, numbers)
    assert list(found.numbers()) == sorted(numbers)
    assert found.is_empty == (not numbers)
    covered = [n for first, last in found.ranges() for n in range(first, last + 1)]
    assert covered == sorted(numbers)


@BOTH
@given(data=st.data())
def test_wire_round_trip(kind: Set, data: st.DataObject) -> None:
    base = data.draw(st.integers(1, 2**31))
    found = kind.from_numbers(base, data.draw(st.sets(st.integers(base, base + 255))))
    for little_endian in (True, False):
        raw = b"...." + found.encode(little_endian)
        assert kind.decode(memoryview(raw), 4, little_endian) == (found, len(raw))


def sequence_set(base: int, num_bits: int, *words: int) -> memoryview:
    return memoryview(SequenceNumberSet(base, num_bits, words).encode())


def test_more_than_256_bits_are_refused() -> None:
    raw = sequence_set(1, 257, *[0] * 8)
    with pytest.raises(DecodeError) as caught:
        SequenceNumberSet.decode(raw, 0, True)
    assert caught.value.reason is DropReason.BAD_NUMBER_SET
    raw = memoryview(FragmentNumberSet(1, 0xFFFF_FFFF).encode())
    with pytest.raises(DecodeError) as caught:
        FragmentNumberSet.decode(raw, 0, True)
    assert caught.value.reason is DropReason.BAD_NUMBER_SET


@pytest.mark.parametrize("base", [0, -1, -(2**63)])
def test_a_base_below_one_is_refused(base: int) -> None:
    with pytest.raises(DecodeError) as caught:
        SequenceNumberSet.decode(sequence_set(base, 0), 0, True)
    assert caught.value.reason is DropReason.BAD_NUMBER_SET


def test_base_zero_where_it_is_tolerated_names_no_number_zero() -> None:
    found, _ = SequenceNumberSet.decode(sequence_set(0, 0), 0, True, allow_base_zero=True)
    assert found == SequenceNumberSet(0)
    found, _ = SequenceNumberSet.decode(sequence_set(0, 2, 0xC000_0000), 0, True, allow_base_zero=True)
    assert list(found.numbers()) == [1]
    with pytest.raises(DecodeError):
        SequenceNumberSet.decode(sequence_set(-1, 0), 0, True, allow_base_zero=True)


def test_numbers_beyond_the_largest_are_refused() -> None:
    found, _ = SequenceNumberSet.decode(sequence_set(SEQUENCE_NUMBER_MAX, 1, 0x8000_0000), 0, True)
    assert list(found.numbers()) == [SEQUENCE_NUMBER_MAX]
    with pytest.raises(DecodeError):
        SequenceNumberSet.decode(sequence_set(SEQUENCE_NUMBER_MAX, 2, 0x4000_0000), 0, True)
    with pytest.raises(DecodeError):
        FragmentNumberSet.decode(
            memoryview(FragmentNumberSet(FRAGMENT_NUMBER_MAX, 2, (0,)).encode()), 0, True
        )
    with pytest.raises(DecodeError):
        FragmentNumberSet.decode(memoryview(FragmentNumberSet(0).encode()), 0, True)


def test_bits_past_the_end_of_a_set_are_masked() -> None:
    """Cyclone DDS leaves such bits set."""
    found, _ = SequenceNumberSet.decode(sequence_set(1, 33, 0x8000_0000, 0xFFFF_FFFF), 0, True)
    assert found.words == (0x8000_0000, 0x8000_0000)
    assert list(found.numbers()) == [1, 33]


@BOTH
def test_a_bitmap_past_the_end_of_the_bytes(kind: Set) -> None:
    raw = kind.from_numbers(1, range(1, 257)).encode()
    for length in range(len(raw)):
        with pytest.raises(DecodeError) as caught:
            kind.decode(memoryview(raw)[:length], 0, True)
        assert caught.value.reason is DropReason.TRUNCATED_SUBMESSAGE
