"""Frames samples as the changes of a writer: blocks of at most one datagram, and larger samples one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ....qos import HistoryKind, Qos
from ....structure import INFINITE
from ....value_classes import value
from ....wire.batch import frame_batch
from ....wire.framing import frame
from ....wire.parameters import COHERENT_SET_SIZE, KEY_HASH_SIZE, SENTINEL_SIZE, STATUS_INFO_SIZE
from ....wire.samples import DISPOSED, FILTERED, I64, NO_TIMESTAMP, U8, UNREGISTERED, Samples, equal_ranges
from ....wire.submessages import DATA_HEADER_SIZE
from ...instances import Groups
from ...policies import BatchPolicy
from ..batching import PendingBatch
from .batch_content import BatchContent
from .change import Change
from .data_content import DataContent
from .large_content import LargeContent
from .large_sample import LargeSample

Bools = npt.NDArray[np.bool_]


def overhead(flags: int, *, with_key_hash: bool, in_coherent_set: bool = False) -> int:
    """Bytes that a DATA submessage adds to its payload."""
    qos = KEY_HASH_SIZE if with_key_hash else 0
    qos += STATUS_INFO_SIZE if flags & (DISPOSED | UNREGISTERED | FILTERED) else 0
    qos += COHERENT_SET_SIZE if in_coherent_set else 0
    return DATA_HEADER_SIZE + (qos + SENTINEL_SIZE if qos else 0)


def fitting(samples: Samples, count: int, framing: int, capacity: int) -> int:
    """How many of ``count`` samples fit ``capacity`` bytes, with ``framing`` bytes around each; at least one."""
    if samples.is_uniform:
        return min(count, max(1, capacity // (samples.size + framing)))
    ends = np.cumsum(samples.all_lengths()[:count] + framing)
    return min(count, max(1, int(np.searchsorted(ends, capacity, side="right"))))


@value
class Framing:
    """How a writer frames: a datagram holds ``budget`` bytes of submessages, a fragment ``fragment_size`` bytes."""

    writer_id: bytes
    budget: int
    fragment_size: int
    policy: BatchPolicy


def data_changes(
    pending: PendingBatch, first_sn: int, framing: Framing, batch_sn: int = 0, coherent_set: int = 0
) -> Iterator[Change]:
    """Samples as DATA: one change for each datagram, and for each sample that is larger than a datagram."""
    flags, stamps = pending.flags, pending.timestamps
    changed = np.zeros(pending.count - 1, np.bool_)
    if not isinstance(flags, int):
        changed |= flags[1:] != flags[:-1]
    if stamps is not None:
        changed |= stamps[1:] != stamps[:-1]
    for start, stop in equal_ranges(changed):
        yield from _changes(
            pending.samples.take_range(start, stop),
            first_sn + start,
            framing,
            timestamp=pending.timestamp if stamps is None else int(stamps[start]),
            flags=flags if isinstance(flags, int) else int(flags[start]),
            key_hashes=None if pending.key_hashes is None else pending.key_hashes[start:stop],
            batch_sn=batch_sn,
            coherent_set=coherent_set,
        )


def batch_change(
    pending: PendingBatch,
    first_sn: int,
    framing: Framing,
    batch_sn: int,
    coherent_set: int = 0,
    *,
    removed: Bools | None = None,
) -> Change:
    """Samples as one DATA_BATCH."""
    keyless = framing.policy.disable_inline_keyhash
    block = frame_batch(
        pending.samples,
        framing.writer_id,
        batch_sn,
        first_sn,
        flags=pending.flags,
        key_hashes=None if keyless else pending.key_hashes,
        timestamps=pending.timestamps,
        removed=removed,
        coherent_set=coherent_set,
    )
    policy = framing.policy
    if pending.compress is not None:  # chosen at the flush, whatever the size
        policy = replace(policy, compression_threshold=0 if pending.compress else INFINITE)
    content = BatchContent(block, pending.timestamp, policy, framing.budget, pending.timestamps)
    return Change(first_sn, block.last_sn, pending.timestamp, content, batch_sn)


def removed_samples(pending: PendingBatch, qos: Qos, expired: int) -> Bools | None:
    """Which samples of a batch HISTORY or LIFESPAN removes before the batch is sent; None if all stay.

    ``expired``: samples with this source timestamp or an older one have outlived their LIFESPAN.
    """
    removed = np.zeros(pending.count, np.bool_)
    if qos.history is HistoryKind.KEEP_LAST and qos.history_depth < pending.count:
        groups = Groups.group_by_key(np.arange(pending.count), pending.key_hashes)
        removed[groups.positions] = groups.ranks_from_end() >= qos.history_depth
    if expired != NO_TIMESTAMP:
        stamps = np.array([pending.timestamp]) if pending.timestamps is None else pending.timestamps
        removed |= (stamps != NO_TIMESTAMP) & (stamps <= expired)
    return removed if removed.any() else None


def _changes(
    samples: Samples,
    first_sn: int,
    framing: Framing,
    *,
    timestamp: int,
    flags: int,
    key_hashes: U8 | None,
    batch_sn: int,
    coherent_set: int,
) -> Iterator[Change]:
    writer_id, budget = framing.writer_id, framing.budget
    largest = budget - overhead(
        flags, with_key_hash=key_hashes is not None, in_coherent_set=coherent_set != 0
    )
    for first, last, is_large in _segments(samples, largest):
        hashes = None if key_hashes is None else key_hashes[first:last]
        if is_large:
            payload = np.frombuffer(samples.payload(first), np.uint8)
            key_hash = None if hashes is None else hashes[0].tobytes()
            large = LargeSample(payload, framing.fragment_size, flags, key_hash, coherent_set)
            yield Change(first_sn + first, first_sn + first, timestamp, LargeContent(large), batch_sn)
            continue
        part = samples.take_range(first, last)
        for block in frame(
            part,
            writer_id,
            first_sn + first,
            budget=budget,
            flags=flags,
            key_hashes=hashes,
            coherent_set=coherent_set,
        ):
            yield Change(block.first_sn, block.last_sn, timestamp, DataContent(block), batch_sn)


def _segments(samples: Samples, largest: int) -> Iterator[tuple[int, int, bool]]:
    """[first, last) ranges of samples of at most ``largest`` bytes, and single larger samples (True)."""
    count = samples.count
    if samples.is_uniform:
        if samples.size <= largest:
            yield 0, count, False
        else:
            for i in range(count):
                yield i, i + 1, True
        return
    lengths: I64 = samples.all_lengths()
    start = 0
    for i in np.flatnonzero(lengths > largest).tolist():
        if start < i:
            yield start, i, False
        yield i, i + 1, True
        start = i + 1
    if start < count:
        yield start, count, False
