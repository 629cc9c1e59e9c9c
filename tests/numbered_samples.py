"""Samples that tell who wrote them, and as which of his."""

from __future__ import annotations

import numpy as np

from spark_rtps.transport.wire.samples import Samples


def numbered(first: int, count: int, *, source: int = 0, size: int = 12) -> Samples:
    """Samples of ``size`` bytes with their encapsulation header: source, number, and nothing."""
    data = np.zeros((count, size), np.uint8)
    data[:, 1] = 1
    data[:, 4:8] = np.frombuffer(source.to_bytes(4, "little"), np.uint8)
    data[:, 8:12] = np.arange(first, first + count, dtype="<u4").view(np.uint8).reshape(count, 4)
    return Samples.uniform(data.reshape(-1), count, size)


def numbers_of(samples: Samples) -> list[tuple[int, int]]:
    """Source and number of each, in order."""
    payloads = (bytes(samples.payload(i)) for i in range(samples.count))
    return [
        (int.from_bytes(payload[4:8], "little"), int.from_bytes(payload[8:12], "little"))
        for payload in payloads
        if len(payload) >= 12
    ]
