"""Reads the inline QoS of samples: status, key hash, coherent set (RTPS 2.5 §8.7, §9.6.4).

There are two readers: one of the bytes of a parameter list, and one of words that a scan of many samples has as Python
numbers.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ..errors import DecodeError, DropReason
from .numbers import pair
from .parameters import (
    PID_COHERENT_SET,
    PID_KEY_HASH,
    PID_MUST_UNDERSTAND,
    PID_SENTINEL,
    PID_STATUS_INFO,
    decode_coherent_set,
)
from .samples import DISPOSED, FILTERED, HAS_KEY_HASH, U8, UNREGISTERED

STATUS_MASK: Final = DISPOSED | UNREGISTERED | FILTERED
_PARAMETER: Final = pair("HH")
#: Any sender may set the must-understand bit, as in `ParameterList`.
_ID: Final = 0xFFFF ^ PID_MUST_UNDERSTAND


class InlineQos(NamedTuple):
    """The parts of an inline QoS that are read, and its end."""

    stop: int
    status: int  # StatusInfo_t
    key_hash_at: int  # -1: there is none
    coherent_set: int  # as in Run


def scan_inline_qos(data: U8, at: int, end: int, little: int) -> InlineQos:
    """Read the parameter list at ``at``."""
    status, key_hash_at, coherent_set = 0, -1, 0
    parameter = _PARAMETER[little]
    while True:
        if end - at < 4:
            raise DecodeError(DropReason.BAD_PARAMETER_LIST, "inline QoS without a sentinel")
        pid, length = parameter.unpack_from(data, at)
        at += 4
        if pid == PID_SENTINEL:
            return InlineQos(at, status, key_hash_at, coherent_set)
        if length > end - at or length % 4:
            raise DecodeError(DropReason.BAD_PARAMETER_LIST, f"parameter {pid:#06x} of {length} bytes")
        pid &= _ID
        if pid == PID_KEY_HASH and length >= 16:
            key_hash_at = at
        elif pid == PID_STATUS_INFO and length >= 4:
            status = int(data[at + 3]) & STATUS_MASK  # always big-endian: RTPS 2.5 §9.6.4.9
        elif pid == PID_COHERENT_SET and length >= 8:
            coherent_set = decode_coherent_set(data, at, little)
        at += length


def walk_inline_qos(words: list[int], w: int, end: int, little: int) -> tuple[int, int, int, int]:
    """The result of :func:`scan_inline_qos` for the words of a parameter list: its end, status and HAS_KEY_HASH, the
    word of the key hash (-1: none), the coherent set."""
    status, key_hash, coherent_set = 0, -1, 0
    while w < end:
        word = words[w]
        pid, length = (word & 0xFFFF, word >> 16) if little else (word >> 16, word & 0xFFFF)
        w += 1
        if pid == PID_SENTINEL:
            return w, status | (HAS_KEY_HASH if key_hash >= 0 else 0), key_hash, coherent_set
        if length > 4 * (end - w) or length % 4:
            raise DecodeError(DropReason.BAD_PARAMETER_LIST, f"parameter {pid:#06x} of {length} bytes")
        pid &= _ID
        if pid == PID_KEY_HASH and length >= 16:
            key_hash = w
        elif pid == PID_STATUS_INFO and length >= 4:
            status = words[w] >> (24 if little else 0) & STATUS_MASK  # always big-endian: RTPS 2.5 §9.6.4.9
        elif pid == PID_COHERENT_SET and length >= 8:
            first = words[w] << 32 | words[w + 1]  # as in `decode_coherent_set`
            coherent_set = first if 0 < first < 1 << 63 else -1
        w += length // 4
    raise DecodeError(DropReason.BAD_PARAMETER_LIST, "inline QoS without a sentinel")
