"""Key hashes of serialized keys (RTPS 2.5 §9.6.4.8)."""

from __future__ import annotations

import hashlib

import numpy as np

from ....wire.samples import Samples
from ..cursors import I64, U8, copy_pieces


def hashes_of_keys(keys: Samples, offsets: I64, sizes: I64, greatest: int | None) -> U8:
    """Key hashes, (keys, 16) uint8; the keys are big-endian, ``sizes`` bytes at ``offsets`` of their data.

    A key is its own hash if the ``greatest`` one of its type has at most 16 bytes, else the hash is its MD5.
    """
    hashes = np.zeros((len(sizes), 16), np.uint8)
    if greatest is not None and greatest <= 16:
        copy_pieces(hashes.reshape(-1), np.arange(len(sizes)) * 16, keys.data, offsets, sizes)
        return hashes
    view = memoryview(keys.data)
    for i, (at, size) in enumerate(zip(offsets.tolist(), sizes.tolist(), strict=True)):
        key = view[at : at + size]
        hashes[i] = np.frombuffer(hashlib.md5(key, usedforsecurity=False).digest(), np.uint8)
    return hashes
