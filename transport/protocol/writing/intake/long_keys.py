"""Serialized keys that nobody takes for a key hash.

Fast DDS 2.9 takes the payload of a dispose for the key hash if it has 16 bytes or fewer, its encapsulation header
included, although the key hash stands beside it; a longer payload it ignores. Cyclone DDS, on the other hand, needs the
key where it cannot be told from the hash. Zeros behind a short key suit both, and readers of ours: whoever reads a key
stops where it ends.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ....wire.framing import KEY_HASH_SIZE
from ....wire.samples import Samples

#: Bytes of a payload that is longer than a key hash, padded as all payloads are.
_LONG: Final = KEY_HASH_SIZE + 4


def lengthened(keys: Samples) -> Samples:
    """The serialized keys, with zeros behind those that a reader might take for the key hash."""
    lengths = keys.all_lengths()
    short = (lengths > 0) & (lengths < _LONG)
    if not short.any():
        return keys
    offsets, sizes = keys.all_offsets(), np.where(short, _LONG, lengths)
    starts = np.cumsum(sizes) - sizes
    data = np.zeros(int(sizes.sum()), np.uint8)
    for length in np.unique(lengths).tolist():
        rows, octets = np.flatnonzero(lengths == length), np.arange(length)
        data[starts[rows, None] + octets] = keys.data[offsets[rows, None] + octets]
    if keys.is_uniform:
        return Samples.uniform(data, keys.count, _LONG)
    return Samples.ragged(data, starts, sizes)
