"""Runs as a reader hands them out, made from a few numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.samples import HAS_KEY_HASH, NO_TIMESTAMP, SAMPLE_INDEX, U8, Run

SECOND = 1_000_000_000
#: Wall-clock time at which tests begin.
WALL = 1_700_000_000 * SECOND


@dataclass(frozen=True)
class Sample:
    """``time``: seconds after WALL at which it was written, None: it does not say."""

    key: int = 0
    time: float | None = 0.0
    flags: int = 0


def writer(number: int) -> Guid:
    """Writers of higher numbers have higher GUIDs."""
    return Guid(bytes((number,)) * 12, b"\0\0\1\2")


def key_hash(key: int) -> bytes:
    return key.to_bytes(16, "big")


def timestamp(sample: Sample) -> int:
    return NO_TIMESTAMP if sample.time is None else WALL + round(sample.time * SECOND)


def run_of(
    source: int, first_sn: int, samples: Sequence[Sample], *, batch_sn: int = 0, hashes: bool = True
) -> Run:
    """An indexed run; the payload of each sample is its sequence number."""
    count = len(samples)
    data = np.zeros((count, 8), np.uint8)
    data[:, 4:] = np.arange(first_sn, first_sn + count, dtype="<u4").view(np.uint8).reshape(count, 4)
    index = np.zeros(count, SAMPLE_INDEX)
    index["offset"], index["length"] = 8 * np.arange(count), 8
    for i, sample in enumerate(samples):
        index[i]["timestamp"] = timestamp(sample)
        index[i]["flags"] = sample.flags | (HAS_KEY_HASH if hashes else 0)
        if hashes:
            index[i]["key_hash"] = key_hash(sample.key)
    return Run(writer(source), first_sn, count, data.reshape(-1), index=index, batch_sn=batch_sn)


def uniform_run(source: int, first_sn: int, count: int, *, time: float = 0.0, batch_sn: int = 0) -> Run:
    """A uniform run without keys whose samples were all written at ``time``."""
    data = np.zeros((count, 8), np.uint8)
    data[:, 4:] = np.arange(first_sn, first_sn + count, dtype="<u4").view(np.uint8).reshape(count, 4)
    stamp = WALL + round(time * SECOND)
    return Run(
        writer(source),
        first_sn,
        count,
        data.reshape(-1),
        stride=8,
        payload_length=8,
        timestamp=stamp,
        batch_sn=batch_sn,
    )


def keys_of(run: Run) -> U8:
    """What a caller gives a cache: the hashes of the wire."""
    hashes = run.key_hashes()
    assert hashes is not None
    return hashes


def numbers(run: Run | None) -> list[int]:
    """The sequence numbers of a run, which its payloads confirm."""
    if run is None:
        return []
    found = run.sequence_numbers().tolist()
    samples = run.samples()
    assert [int.from_bytes(samples.payload(i)[4:8], "little") for i in range(run.count)] == found
    return found  # type: ignore[no-any-return]
