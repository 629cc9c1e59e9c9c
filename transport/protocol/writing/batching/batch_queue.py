"""The parts of batching: samples of one write, the queue of the batch in progress, and the batch to be sent."""

from __future__ import annotations

import enum
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ....structure import INFINITE
from ....value_classes import slotted
from ....wire.samples import I64, U8, Samples

U32 = npt.NDArray[np.uint32]

_BUFFER_MIN: Final = 4_096
_NONE: Final = np.empty(0, np.int64)
_ZERO: Final = np.zeros(1, np.int64)


class FlushReason(enum.Enum):
    """Why a batch was sent; the values are counter labels."""

    MAX_DATA_BYTES = "max_data_bytes"
    MAX_SAMPLES = "max_samples"
    MAX_FLUSH_DELAY = "max_flush_delay"
    FLUSH = "flush"
    COHERENT_SET = "coherent_set"
    RESOURCE_LIMITS = "resource_limits"
    #: The policy's ``auto_flush_size``, or the size of the peers' datagrams.
    AUTO_FLUSH_SIZE = "auto_flush_size"
    INTERCEPTOR = "interceptor"
    TURBO = "turbo"
    #: The next samples cannot share the batch: they have another encapsulation, or only one side has key hashes.
    FORMAT = "format"


@slotted
class PendingBatch:
    """Samples that are sent as one batch, or as several uniform batches.

    Unless ``is_own``, they may view the caller's memory, and must be sent before that changes.
    """

    samples: Samples
    #: Source timestamp of the first sample, or of all samples if ``timestamps`` is None.
    timestamp: int
    timestamps: I64 | None
    #: Sample flags: one value for all samples, or one for each.
    flags: int | U32
    key_hashes: U8 | None
    #: A sample that is sent outside of a batch, since it is too large for one.
    alone: bool
    reason: FlushReason
    #: Samples of each batch if these are several full, uniform batches; 0 for a single batch.
    per_batch: int = 0
    #: Whether it is compressed for readers that know the codec; None: if it reaches the policy's threshold.
    compress: bool | None = None
    #: The samples have memory of their own.
    is_own: bool = False

    @property
    def count(self) -> int:
        return self.samples.count

    def copy(self) -> PendingBatch:
        """The same samples with memory of their own."""
        samples = self.samples
        return replace(
            self,
            samples=replace(samples, data=samples.data.copy()),
            key_hashes=None if self.key_hashes is None else self.key_hashes.copy(),
            is_own=True,
        )

    @property
    def batches(self) -> int:
        return self.count // self.per_batch if self.per_batch else 1

    def apart(self) -> list[PendingBatch]:
        """Each batch by itself."""
        if not (per := self.per_batch):
            return [self]
        return [
            replace(
                self,
                samples=self.samples.take_range(i, i + per),
                key_hashes=None if self.key_hashes is None else self.key_hashes[i : i + per],
                per_batch=0,
            )
            for i in range(0, self.count, per)
        ]

    def behind(self, count: int) -> list[PendingBatch]:
        """The samples behind the first ``count``, with memory of their own."""
        per, found = self.per_batch, []
        stops = (min(count + -count % per, self.count), self.count) if per else (self.count,)
        for stop in stops:  # the rest of a divided batch by itself, the whole batches behind it together
            if count < stop:
                part = replace(
                    self,
                    samples=self.samples.take_range(count, stop),
                    flags=self.flags
                    if isinstance(self.flags, int)
                    else _common_flags(self.flags[count:stop]),
                    key_hashes=None if self.key_hashes is None else self.key_hashes[count:stop],
                    per_batch=per if per and (stop - count) % per == 0 else 0,
                )
                if self.timestamps is not None:
                    part.timestamp = int(self.timestamps[count])
                    part.timestamps = _own_timestamps(self.timestamps[count:stop])
                found.append(part.copy())
            count = stop
        return found

    @property
    def nbytes(self) -> int:
        """Serialized bytes."""
        lengths = self.samples.lengths
        return self.samples.size * self.count if lengths is None else int(lengths.sum())


class Write:
    """Samples written together that may share a batch; computes how many of them fit.

    ``overhead`` is the number of bytes that each sample takes in a datagram besides its payload. Payload and overhead
    together are the *wire* bytes of a sample.
    """

    __slots__ = (
        "_bytes",
        "_wire",
        "encapsulation",
        "flags",
        "key_hashes",
        "overhead",
        "samples",
        "timestamp",
    )

    def __init__(
        self,
        samples: Samples,
        overhead: int,
        timestamp: int = 0,
        flags: int = 0,
        key_hashes: U8 | None = None,
        encapsulation: int | None = None,
    ) -> None:
        self.samples = samples
        self.overhead = overhead
        self.timestamp = timestamp
        self.flags = flags
        self.key_hashes = key_hashes
        self.encapsulation = encapsulation
        #: For ragged samples: the bytes before each sample, and the sum of all.
        self._bytes = self._wire = _NONE
        if samples.lengths is not None:
            self._bytes = np.zeros(samples.count + 1, np.int64)
            np.cumsum(samples.lengths, out=self._bytes[1:])
            self._wire = self._bytes + overhead * np.arange(samples.count + 1)

    def end(self, i: int, limit: int) -> int:
        """The end of the samples [i, end) that have at most ``limit`` bytes; it may exceed the number of samples."""
        if self.samples.lengths is not None:
            return int(self._bytes.searchsorted(min(int(self._bytes[i]) + limit, INFINITE), side="right")) - 1
        return i + limit // self.samples.size if self.samples.size else INFINITE

    def wire_end(self, i: int, limit: int) -> int:
        """The end of the samples [i, end) that have at most ``limit`` wire bytes; it may exceed their number."""
        limit = max(limit, 0)
        if self.samples.lengths is not None:
            return int(self._wire.searchsorted(min(int(self._wire[i]) + limit, INFINITE), side="right")) - 1
        return i + limit // (self.samples.size + self.overhead)

    def nbytes(self, i: int, j: int) -> int:
        if self.samples.lengths is not None:
            return int(self._bytes[j] - self._bytes[i])
        return (j - i) * self.samples.size

    def wire_nbytes(self, i: int, j: int) -> int:
        return self.nbytes(i, j) + (j - i) * self.overhead

    def copy_to(self, out: U8, i: int, j: int) -> None:
        """Copy the payloads of samples [i, j) end to end."""
        samples = self.samples
        if samples.lengths is None or samples.offsets is None:
            at, size = samples.start + i * samples.stride, samples.size
            if samples.stride == size:
                out[:] = samples.data[at : at + (j - i) * size]
            else:
                out.reshape(j - i, size)[:] = samples.rows()[i:j]
            return
        offsets, lengths = samples.offsets[i:j], samples.lengths[i:j]
        if (offsets[1:] == offsets[:-1] + lengths[:-1]).all():
            out[:] = samples.data[offsets[0] : offsets[0] + out.nbytes]
            return
        source = samples.data[: samples.data.nbytes & ~3].view(np.uint32)
        before = (self._bytes[i:j] - self._bytes[i]) >> 2
        words = np.arange(out.nbytes >> 2) + np.repeat((offsets >> 2) - before, lengths >> 2)
        out.view(np.uint32)[:] = source[words]

    def batch(self, i: int, j: int, reason: FlushReason, *, alone: bool = False) -> PendingBatch:
        """Samples [i, j) as a batch that views them."""
        hashes = None if self.key_hashes is None else self.key_hashes[i:j]
        return PendingBatch(
            part_of(self.samples, i, j), self.timestamp, None, self.flags, hashes, alone, reason
        )


class Queue:
    """The samples of the batch in progress, with their flags, timestamps and key hashes; cheap to append to."""

    def __init__(self, buffer: U8 | None = None) -> None:
        """``buffer``: memory of a queue that no longer needs it."""
        self._buffer: U8 = np.empty(_BUFFER_MIN, np.uint8) if buffer is None else buffer
        self.count = self.nbytes = self.wire_bytes = 0
        self.encapsulation: int | None = None
        self.last_timestamp = 0
        self._keyed = False
        self._lengths = array("q")
        self._timestamps = array("q")
        self._flags = array("I")
        self._key_hashes = bytearray()

    def takes(self, encapsulation: int | None, keyed: bool) -> bool:
        """Whether samples of that kind may join the queue."""
        if not self.count:
            return True
        return keyed == self._keyed and (
            encapsulation is None or self.encapsulation is None or encapsulation == self.encapsulation
        )

    def append(self, write: Write, i: int, j: int, timestamp: int) -> None:
        """Add samples [i, j) of a write."""
        # Remove what an earlier call left that an exception interrupted.
        known = self.count
        if len(self._key_hashes) > 16 * known or max(map(len, self._columns)) > known:
            for column in self._columns:
                del column[known:]
            del self._key_hashes[16 * known :]
        count, nbytes = j - i, write.nbytes(i, j)
        end = self.nbytes + nbytes
        if end > self._buffer.nbytes:
            larger = np.empty(max(end, 2 * self._buffer.nbytes), np.uint8)
            larger[: self.nbytes] = self._buffer[: self.nbytes]
            self._buffer = larger
        write.copy_to(self._buffer[self.nbytes : end], i, j)
        if write.samples.lengths is None:
            self._lengths.extend(array("q", (write.samples.size,)) * count)
        else:
            self._lengths.frombytes(np.ascontiguousarray(write.samples.lengths[i:j]).tobytes())
        self._timestamps.extend(array("q", (timestamp,)) * count)
        self._flags.extend(array("I", (write.flags,)) * count)
        if write.key_hashes is not None:
            self._key_hashes += write.key_hashes[i:j].tobytes()
        self._keyed = write.key_hashes is not None
        if write.encapsulation is not None:
            self.encapsulation = write.encapsulation
        self.last_timestamp = timestamp
        wire_bytes = self.wire_bytes + nbytes + count * write.overhead
        self.count, self.nbytes, self.wire_bytes = known + count, end, wire_bytes

    @property
    def _columns(self) -> tuple[array[int], array[int], array[int]]:
        return self._lengths, self._timestamps, self._flags

    def batch(self, reason: FlushReason) -> tuple[PendingBatch, Queue]:
        """The queue as a batch, and an empty queue that replaces this one."""
        count, data, buffer = self.count, self._buffer[: self.nbytes], self._buffer
        if 2 * self.nbytes <= self._buffer.nbytes:
            data = data.copy()
        else:
            buffer = np.empty(self._buffer.nbytes, np.uint8)
        # Copies: the arrays cannot grow while there are views of them, which a traceback may keep.
        timestamps = np.frombuffer(self._timestamps[:count], np.int64)
        hashes = np.frombuffer(self._key_hashes[: 16 * count], np.uint8)
        batch = PendingBatch(
            _one_by_one(data, np.frombuffer(self._lengths[:count], np.int64)),
            int(timestamps[0]),
            _own_timestamps(timestamps),
            _common_flags(np.frombuffer(self._flags[:count], np.uint32)),
            hashes.reshape(-1, 16) if self._keyed else None,
            False,
            reason,
            is_own=True,
        )
        return batch, Queue(buffer)


class InstanceEnds:
    """Finds where the samples of one call fill a batch for an instance: at its ``limit``-th sample in the batch.

    ``queued``: the number of samples of each instance in the batch in progress.
    """

    def __init__(self, key_hashes: U8, limit: int, queued: Counter[bytes]) -> None:
        self._queued_end, self._ends = INFINITE, np.empty(0, np.int64)
        if len(key_hashes) == 1:
            if queued[key_hashes.tobytes()] + 1 >= limit:
                self._queued_end = 1
            self._ends = np.array([1 if limit <= 1 else INFINITE])
            return
        count = len(key_hashes)
        halves = np.ascontiguousarray(key_hashes).view(np.uint64)
        order = np.lexsort((halves[:, 1], halves[:, 0]))  # by instance, oldest first
        ordered = halves[order]
        # the limit-th sample of an instance, counted from each one
        fills = np.full(count, INFINITE, np.int64)
        span = min(limit - 1, count)
        same = (ordered[span:] == ordered[: count - span]).all(axis=1)
        fills[order[: count - span][same]] = order[span:][same] + 1
        self._ends = np.minimum.accumulate(fills[::-1])[::-1]
        if queued:
            starts = np.flatnonzero(np.r_[True, (ordered[1:] != ordered[:-1]).any(axis=1)])
            stops = [*starts[1:].tolist(), count]
            keys = keys_of(key_hashes[order[starts]])
            for key, start, stop in zip(keys, starts.tolist(), stops, strict=True):
                at = start + max(limit - 1 - queued[key], 0)
                if at < stop:
                    self._queued_end = min(self._queued_end, int(order[at]) + 1)

    def end(self, i: int, *, fresh: bool) -> int:
        """The end of the samples [i, end) that fill a batch; ``fresh``: the batch has no samples before them."""
        return int(self._ends[i]) if fresh else self._queued_end


def encapsulations(samples: Samples) -> Iterator[tuple[int, int, int | None]]:
    """[first, last) ranges with one encapsulation identifier; None for samples without payload."""
    count, data = samples.count, samples.data
    if not count:
        return
    if samples.lengths is None or samples.offsets is None:
        if not samples.size:
            yield 0, count, None
            return
        at = np.arange(count) if count > 1 else _ZERO
        ids = np.ndarray((count,), ">u2", data, samples.start, (samples.stride,))
    else:
        at = np.flatnonzero(samples.lengths)
        if not len(at):
            yield 0, count, None
            return
        where = samples.offsets[at]
        ids = data[where].astype(np.uint16) << 8 | data[where + 1]
    first = 0
    if len(at) > 1 and not (ids == ids[0]).all():
        changes = np.flatnonzero(ids[1:] != ids[:-1])
        for change in changes.tolist():
            last = int(at[change + 1])
            yield first, last, int(ids[change])
            first = last
    yield first, count, int(ids[-1])


def split(batch: PendingBatch, limit: int, overhead: int) -> Iterator[PendingBatch]:
    """A batch cut into batches that fit ``limit``."""
    write = Write(batch.samples, overhead)
    i = 0
    while i < batch.count:
        j = min(write.wire_end(i, limit), batch.count)
        alone = i == j
        j = max(j, i + 1)
        piece = write.batch(i, j, batch.reason, alone=alone)
        piece.timestamp = batch.timestamp
        if batch.timestamps is not None:
            piece.timestamp = int(batch.timestamps[i])
            piece.timestamps = _own_timestamps(batch.timestamps[i:j])
        piece.flags = batch.flags if isinstance(batch.flags, int) else _common_flags(batch.flags[i:j])
        piece.key_hashes = None if batch.key_hashes is None else batch.key_hashes[i:j]
        piece.is_own = batch.is_own
        yield piece
        i = j


def part_of(samples: Samples, first: int, last: int) -> Samples:
    """Samples [first, last); a single one is uniform."""
    if last - first == 1 and samples.lengths is not None and samples.offsets is not None:
        return _uniform(samples.data, 1, int(samples.lengths[first]), int(samples.offsets[first]))
    return samples.take_range(first, last)


def _uniform(data: U8, count: int, size: int, start: int = 0) -> Samples:
    return Samples(data, count, start, size, size)


def _own_timestamps(timestamps: I64) -> I64 | None:
    """The timestamps, or None if all are the same; within a batch they never decrease."""
    return None if timestamps[0] == timestamps[-1] else timestamps


def _common_flags(flags: U32) -> int | U32:
    return int(flags[0]) if (flags == flags[0]).all() else flags


def _one_by_one(data: U8, lengths: I64) -> Samples:
    """Samples whose payloads lie end to end."""
    if (lengths == lengths[0]).all():
        return _uniform(data, len(lengths), int(lengths[0]))
    return Samples.ragged(data, np.cumsum(lengths) - lengths, lengths)


def keys_of(key_hashes: U8) -> list[bytes]:
    raw = key_hashes.tobytes()
    return [raw[i : i + 16] for i in range(0, len(raw), 16)]
