"""Parts of a segment that are fetched because they are looked at."""

from __future__ import annotations

import random
from typing import Any, cast

from spark_rtps.serving.client.prefetch import Arriving, WantedBytes
from spark_rtps.transport.log.frame import ALIGNMENT
from spark_rtps.transport.log.segment import SegmentFile

SIZE = 1 << 20


class Overwritten:
    """A server whose log is overwritten all the time: each answer has other bytes."""

    def __init__(self) -> None:
        self.answers = 0

    def fetch(self, _log: str, _start: int, into: memoryview, _arrived: object) -> None:
        self.answers += 1
        into[:] = bytes([self.answers % 251]) * len(into)


def test_prefetched_data_does_not_change_after_delivery() -> None:
    server, rng = Overwritten(), random.Random(5)
    client = cast("Any", server)
    arriving = Arriving("log", SegmentFile(0, SIZE), WantedBytes(0, 0), client, client, lambda: SIZE)
    handed_out: list[tuple[int, int, bytes]] = []
    for _ in range(60):
        start = rng.randrange(0, SIZE - 4096) // ALIGNMENT * ALIGNMENT
        stop = start + ALIGNMENT * rng.randrange(1, 100)
        arriving.need(start, stop)
        handed_out.append((start, stop, arriving.data[start:stop].tobytes()))
    assert server.answers > 8
    for start, stop, was in handed_out:
        assert arriving.data[start:stop].tobytes() == was
