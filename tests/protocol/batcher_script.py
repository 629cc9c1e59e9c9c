"""A batcher written to step by step in virtual time, and samples of all shapes for it."""

from __future__ import annotations

import numpy as np

from spark_rtps.transport.protocol.policies import BatchPolicy
from spark_rtps.transport.protocol.writing.batching.batcher import Batcher, FlushReason, PendingBatch
from spark_rtps.transport.structure import INFINITE
from spark_rtps.transport.wire.samples import I64, U8, Samples

MS = 1_000_000
LIMIT = 60_000
#: Of a DATA_BATCH: all but sample infos and payloads.
DATA_BATCH_HEADER = 48
#: No limit but the datagram.
OPEN = BatchPolicy(enable=True, max_data_bytes=INFINITE)
CDR_LE, CDR2_LE = 0x0001, 0x0007


def payload(number: int, size: int, encapsulation: int = CDR_LE) -> bytes:
    head = encapsulation.to_bytes(2, "big") + b"\0\0"
    return (head + number.to_bytes(4, "little") * (size // 4))[:size]


def uniform(first: int, count: int, size: int = 16, encapsulation: int = CDR_LE) -> Samples:
    raw = b"".join(payload(first + i, size, encapsulation) for i in range(count))
    return Samples.uniform(np.frombuffer(raw, np.uint8), count, size)


def strided(first: int, count: int, size: int = 16) -> Samples:
    """Every second one of what lies in memory."""
    whole = uniform(first, 2 * count, size)
    data = np.concatenate((np.full(8, 0xEE, np.uint8), whole.data))
    rows = data[8:].reshape(-1, size)
    rows[::2] = uniform(first, count, size).data.reshape(-1, size)
    return Samples.uniform(data, count, size, start=8, stride=2 * size)


def ragged(first: int, sizes: list[int], *, backwards: bool = False, encapsulation: int = CDR_LE) -> Samples:
    lengths = np.array(sizes, np.int64)
    offsets = np.cumsum(lengths) - lengths
    if backwards:
        offsets = lengths.sum() - np.cumsum(lengths)
    data = np.zeros(int(lengths.sum()) + 3, np.uint8)
    for i, (at, size) in enumerate(zip(offsets.tolist(), sizes, strict=True)):
        data[at : at + size] = np.frombuffer(payload(first + i, size, encapsulation), np.uint8)
    return Samples.ragged(data, offsets, lengths)


def payloads(batch: PendingBatch) -> list[bytes]:
    sizes, data = batch.samples.all_lengths(), batch.samples.data.tobytes()
    return [
        data[at : at + size]
        for at, size in zip(batch.samples.all_offsets().tolist(), sizes.tolist(), strict=True)
    ]


def apart(batches: list[PendingBatch]) -> list[PendingBatch]:
    """Each batch by itself."""
    return [each for batch in batches for each in batch.apart()]


def counts(batches: list[PendingBatch]) -> list[int]:
    return [batch.count for batch in batches]


def reasons(batches: list[PendingBatch]) -> list[FlushReason]:
    return [batch.reason for batch in batches]


class Script:
    """A batcher written to step by step; checks that all comes out as it went in."""

    def __init__(self, policy: BatchPolicy = OPEN, limit: int = LIMIT, **options: object) -> None:
        self.batcher = Batcher(policy, limit=limit, **options)
        self.now = 1_000 * MS
        self.written: list[bytes] = []
        self.sent: list[PendingBatch] = []

    def add(self, samples: Samples, timestamp: int | None = None, **options: object) -> list[PendingBatch]:
        data = samples.data.tobytes()
        for at, size in zip(samples.all_offsets().tolist(), samples.all_lengths().tolist(), strict=True):
            self.written.append(data[at : at + size])
        stamp = self.now if timestamp is None else timestamp
        return self._out(self.batcher.add_samples(samples, timestamp=stamp, now=self.now, **options))

    def write(self, count: int, size: int = 16, **options: object) -> list[PendingBatch]:
        return self.add(uniform(len(self.written), count, size), **options)

    def flush(self, *reason: FlushReason) -> list[PendingBatch]:
        return self._out(self.batcher.flush_batch(*reason))

    def timer(self) -> list[PendingBatch]:
        return self._out(self.batcher.handle_timer(self.now))

    def _out(self, together: list[PendingBatch]) -> list[PendingBatch]:
        batches = apart(together)
        self.sent += batches
        self.batcher.leaving.sent()
        got = [each for batch in self.sent for each in payloads(batch)]
        assert got == self.written[: len(got)]
        assert len(got) + self.batcher.count == len(self.written)
        return batches


def hashes(*instances: int) -> U8:
    keys = np.zeros((len(instances), 16), np.uint8)
    keys[:, 15] = instances
    return keys


def timestamps(batch: PendingBatch) -> list[int]:
    stamps: I64 | None = batch.timestamps
    return [batch.timestamp] * batch.count if stamps is None else stamps.tolist()
