"""Samples whose payload holds their source and their number."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from spark_rtps.transport.wire.samples import Samples


def numbered(first: int, count: int, *, source: int = 0, size: int = 12) -> Samples:
    """``count`` samples of ``size`` bytes each: encapsulation header, source, number, then zeros."""
    data = np.zeros((count, size), np.uint8)
    data[:, 1] = 1
    data[:, 4:8] = np.frombuffer(source.to_bytes(4, "little"), np.uint8)
    data[:, 8:12] = np.arange(first, first + count, dtype="<u4").view(np.uint8).reshape(count, 4)
    return Samples.uniform(data.reshape(-1), count, size)


def one_instance(count: int) -> npt.NDArray[np.uint8]:
    """The key hashes of ``count`` samples of one instance."""
    return np.zeros((count, 16), np.uint8)


def numbers_of(samples: Samples) -> list[tuple[int, int]]:
    """Source and number of each sample, in order; samples too short to hold them are left out."""
    payloads = (bytes(samples.payload(i)) for i in range(samples.count))
    return [
        (int.from_bytes(payload[4:8], "little"), int.from_bytes(payload[8:12], "little"))
        for payload in payloads
        if len(payload) >= 12
    ]
