"""Sequence numbers, fragment numbers, and sets of them (RTPS 2.5 §9.4.2.5, §9.4.2.6, §9.4.2.8).

A set is a base and at most 256 bits; bit 0 of the set is the most significant bit of the first word, in both
byte orders. Sets stay bits: nothing here makes a list as long as a range that came off the wire.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, Self

from ..errors import DecodeError, DropReason
from ..limits import NUMBER_SET_BITS
from ..value_classes import value

#: Largest SequenceNumber_t: a signed high word and an unsigned low word.
SEQUENCE_NUMBER_MAX: Final = (1 << 63) - 1
FRAGMENT_NUMBER_MAX: Final = (1 << 32) - 1

#: One layout in both byte orders; index it with the E flag, or with ``little_endian``.
Pair = tuple[Struct, Struct]


def pair(layout: str) -> Pair:
    """The (big-endian, little-endian) structs of an unpadded layout."""
    return Struct(">" + layout), Struct("<" + layout)


_WORDS: Final = tuple(pair(f"{count}I") for count in range(NUMBER_SET_BITS // 32 + 1))
_SEQUENCE_SET: Final = pair("iII")
_FRAGMENT_SET: Final = pair("II")
_ONES: Final = re.compile("1+")


@value
class _NumberSet:
    """Numbers out of [base, base + num_bits); ``words`` are the bitmap's 32-bit words."""

    base: int
    num_bits: int = 0
    words: tuple[int, ...] = ()

    @classmethod
    def from_numbers(cls, base: int, numbers: Iterable[int]) -> Self:
        """The given numbers; numbers outside a set with this base (not in base..base+255) are ignored."""
        bits = 0
        for number in numbers:
            if 0 <= number - base < NUMBER_SET_BITS:
                bits |= 1 << (NUMBER_SET_BITS - 1 - (number - base))
        # The set ends at its highest number: bits beyond a writer's last SN make Fast DDS ignore an ACKNACK.
        num_bits = NUMBER_SET_BITS - ((bits & -bits).bit_length() - 1) if bits else 0
        count = (num_bits + 31) >> 5
        words = tuple((bits >> (NUMBER_SET_BITS - 32 - 32 * i)) & 0xFFFFFFFF for i in range(count))
        return cls(base, num_bits, words)

    @property
    def is_empty(self) -> bool:
        return not any(self.words)

    @property
    def ranges_max(self) -> int:
        """An upper bound of the number of ranges in it; faster than :meth:`ranges`."""
        return sum((word & ~(word << 1)).bit_count() for word in self.words)

    def ranges(self) -> list[tuple[int, int]]:
        """The numbers as inclusive (first, last) ranges, ascending."""
        bits = "".join(f"{word:032b}" for word in self.words)
        return [(self.base + ones.start(), self.base + ones.end() - 1) for ones in _ONES.finditer(bits)]

    def numbers(self) -> Iterator[int]:
        """The numbers, ascending."""
        for first, last in self.ranges():
            yield from range(first, last + 1)


@value
class SequenceNumberSet(_NumberSet):
    """SequenceNumberSet (RTPS 2.5 §9.4.2.6)."""

    @classmethod
    def decode(
        cls, body: memoryview, at: int, little_endian: int, *, allow_base_zero: bool = False
    ) -> tuple[Self, int]:
        """The set at ``at`` and the offset after it.

        Base 0 is for ACKNACK only: Fast DDS and others open with an empty set of base 0.
        """
        if len(body) < at + 12:
            raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, "sequence number set")
        high, low, num_bits = _SEQUENCE_SET[little_endian].unpack_from(body, at)
        base = (high << 32) + low
        if base < (0 if allow_base_zero else 1) or base + num_bits - 1 > SEQUENCE_NUMBER_MAX:
            raise DecodeError(DropReason.BAD_NUMBER_SET, f"base {base}, {num_bits} bits")
        words, stop = _decode_words(body, at + 12, num_bits, little_endian)
        if base == 0 and words:
            words = (words[0] & 0x7FFFFFFF, *words[1:])  # there is no sequence number 0
        return cls(base, num_bits, words), stop

    def encode(self, little_endian: bool = True) -> bytes:
        head = _SEQUENCE_SET[little_endian].pack(self.base >> 32, self.base & 0xFFFFFFFF, self.num_bits)
        return head + _WORDS[len(self.words)][little_endian].pack(*self.words)


@value
class FragmentNumberSet(_NumberSet):
    """FragmentNumberSet (RTPS 2.5 §9.4.2.8)."""

    @classmethod
    def decode(cls, body: memoryview, at: int, little_endian: int) -> tuple[Self, int]:
        """The set at ``at`` and the offset after it."""
        if len(body) < at + 8:
            raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, "fragment number set")
        base, num_bits = _FRAGMENT_SET[little_endian].unpack_from(body, at)
        if base < 1 or base + num_bits - 1 > FRAGMENT_NUMBER_MAX:
            raise DecodeError(DropReason.BAD_NUMBER_SET, f"base {base}, {num_bits} bits")
        words, stop = _decode_words(body, at + 8, num_bits, little_endian)
        return cls(base, num_bits, words), stop

    def encode(self, little_endian: bool = True) -> bytes:
        head = _FRAGMENT_SET[little_endian].pack(self.base, self.num_bits)
        return head + _WORDS[len(self.words)][little_endian].pack(*self.words)


def _decode_words(body: memoryview, at: int, num_bits: int, little: int) -> tuple[tuple[int, ...], int]:
    if num_bits > NUMBER_SET_BITS:
        raise DecodeError(DropReason.BAD_NUMBER_SET, f"{num_bits} bits")
    count = (num_bits + 31) >> 5
    stop = at + 4 * count
    if len(body) < stop:
        raise DecodeError(DropReason.TRUNCATED_SUBMESSAGE, "number set bitmap")
    words = _WORDS[count][little].unpack_from(body, at)
    spare = -num_bits & 31
    if spare:  # senders may leave the bits past numBits set
        words = (*words[:-1], words[-1] >> spare << spare)
    return words, stop
