"""The checksums of a stream log's frames.

Each bit of the short header decides how the frame is read: its checksum is the CRC-32 of zlib, as is that of a body
below 16 KiB. The CRC of a longer body would cost a receiver an eighth of its time, so that the body is folded first:
its 64-bit words, in rows of 509, are combined column by column with XOR, four times as fast, and the CRC covers the 509
words and the bytes behind the last whole row.

Damage that a folded body's checksum finds

- One damaged bit, and any damage within 32 bits, always: it changes one or two neighbouring words of the fold, which
  the CRC never misses. So it does with the pages and sectors of a disk that come back as zeros, as bytes of something
  else, or old, except by the chance of 1 in 2^32 that each CRC of 32 bits has.
- Words that are swapped, as with pages: 509 is prime, so that words at a distance of any number of pages, or of any
  power of two, lie in different columns (up to 509 times that distance).
- Two damaged bits at random places escape if they have the same bit number in the same column, which is 1 case of
  32,576. CRC-32 would find those. Below 16 KiB it does.

Both start from the log's own seed. A frame of another log, or one that a peer copied into its payload, does not pass
for a frame of this log.
"""

from __future__ import annotations

import zlib
from typing import Final

import numpy as np
import numpy.typing as npt

from ..wire.samples import U8

#: Bodies of this length and longer are folded.
FOLDED_FROM: Final = 16 << 10
_COLUMNS: Final = 509
_ROW_BYTES: Final = 8 * _COLUMNS
_WORD: Final = np.dtype(np.uint64)


def header_checksum(header: bytes | memoryview, seed: int) -> int:
    """The checksum of the header's bytes that come before it."""
    return zlib.crc32(header, seed)


def body_checksum(body: U8, seed: int) -> int:
    """The checksum of a body, which begins at a multiple of 8 in the log."""
    rows = body.size // _ROW_BYTES if body.size >= FOLDED_FROM else 0
    if not rows:
        return zlib.crc32(body, seed)
    words: npt.NDArray[np.uint64] = np.ndarray((rows, _COLUMNS), _WORD, body)
    folded = np.bitwise_xor.reduce(words)
    return zlib.crc32(body[rows * _ROW_BYTES :], zlib.crc32(folded, seed))
