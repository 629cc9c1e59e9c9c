"""COMPRESSED: this product's own submessage, a compressed form of another one; only its own readers get it.

Body: codec (u8), kind and flags of the submessage inside (u8 each), a zero, length of its body (u32), length of the
compressed body (u32), and the compressed body, padded to 4. With the kind SERIES, which no submessage has, the body is
whole DATA and INFO_TS submessages, one behind another. Other vendors skip it, as RTPS 2.5 §8.3.4.1 requires for kinds
from 0x80 on.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from ..errors import DecodeError, DropReason, UsageError
from ..limits import UDP_PAYLOAD_MAX
from .message import FLAG_E, HEADER_SIZE, SUBMESSAGE_HEADER_SIZE, Buffer, encode_submessage, short_submessage
from .numbers import pair

COMPRESSED: Final = 0xB0
SERIES: Final = 0x00

#: Codec numbers on the wire; lz4 is the block format, which needs no memory except for the result.
_NUMBERS: Final = {"lz4": 1, "zstd": 2}
#: The codecs that this product's readers announce.
CODECS: Final = frozenset(_NUMBERS)
_ARROW_NAMES: Final = {1: "lz4_raw", 2: "zstd"}
_HEAD: Final = pair("BBBBII")
_SUBMESSAGE_HEADER: Final = pair("BBH")
_SERIES_HEADER: Final = bytes((SERIES, FLAG_E, 0, 0))
_BODY_MAX: Final = UDP_PAYLOAD_MAX - HEADER_SIZE - SUBMESSAGE_HEADER_SIZE


@lru_cache(maxsize=64)
def _codec(number: int, level: int | None = None) -> Any:
    import pyarrow as pa  # most participants do not use compression

    return pa.Codec(_ARROW_NAMES[number], compression_level=level)


def compress(submessage: Buffer, codec: str, level: int | None = None) -> bytes | None:
    """The COMPRESSED form of ``submessage``; None if it would not be smaller.

    ``codec``: lz4 or zstd; ``level``: the codec's own, None: its default.
    """
    number = _NUMBERS.get(codec)
    if number is None:
        raise UsageError(f"no codec {codec!r}; there are {', '.join(_NUMBERS)}")
    view = memoryview(submessage)
    body = view[SUBMESSAGE_HEADER_SIZE:]
    if not 0 < len(body) <= _BODY_MAX:
        return None
    packed = _codec(number, level).compress(body, asbytes=True)
    size = SUBMESSAGE_HEADER_SIZE + _HEAD[1].size + len(packed)
    if size + (-size & 3) >= len(view):
        return None
    head = _HEAD[1].pack(number, view[0], view[1], 0, len(body), len(packed))
    return encode_submessage(COMPRESSED, 0, True, head, packed)


def compress_series(submessages: bytes, codec: str, level: int | None = None) -> bytes | None:
    """As :func:`compress`, for DATA and INFO_TS submessages that lie one behind another."""
    return compress(_SERIES_HEADER + submessages, codec, level)


def decompress(body: Buffer, *, little_endian: bool = True) -> bytes:
    """The submessage, or the SERIES, with its header, from the body of a COMPRESSED one.

    It is no larger than a datagram.

    Raises DecodeError unless it is exactly what its header declares.
    """
    head = _HEAD[little_endian]
    if len(body) < head.size:
        raise short_submessage("COMPRESSED")
    number, kind, flags, _, size, packed_size = head.unpack_from(body)
    if not 0 < size <= _BODY_MAX:
        raise DecodeError(DropReason.OVER_LIMIT, f"COMPRESSED: {size} bytes")
    packed = memoryview(body)[head.size :][:packed_size]
    if len(packed) < packed_size:
        raise DecodeError(
            DropReason.TRUNCATED_SUBMESSAGE, f"COMPRESSED: {len(packed)} bytes of {packed_size}"
        )
    if number not in _ARROW_NAMES or kind == COMPRESSED:
        raise DecodeError(DropReason.BAD_ENCAPSULATION, f"COMPRESSED: codec {number}, kind {kind:#04x}")
    try:
        raw = _codec(number).decompress(packed, decompressed_size=size, asbytes=True)
    except OSError as error:
        raise DecodeError(DropReason.BAD_ENCAPSULATION, f"COMPRESSED: {error}") from None
    if number == _NUMBERS["lz4"] and _ends_early(packed, raw):
        raise DecodeError(DropReason.BAD_ENCAPSULATION, f"COMPRESSED: less than {size} bytes")
    return b"".join((_SUBMESSAGE_HEADER[flags & FLAG_E].pack(kind, flags, size), raw))


def _ends_early(packed: memoryview, raw: bytes) -> bool:
    """Whether an LZ4 block is shorter than ``raw``: Arrow leaves the rest of the memory unchanged.

    (Arrow checks the size itself for zstd.) A block that fits into one byte less is too short, and a block that is
    as long as declared ends with five literals.
    """
    tail = raw[-5:]
    if packed[-len(tail) :] != tail:
        return True
    try:
        _codec(_NUMBERS["lz4"]).decompress(packed, decompressed_size=len(raw) - 1)
    except OSError:
        return False
    return True
