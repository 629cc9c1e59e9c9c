"""Gathers samples into batches: RTI's BATCH QoS, Ice's automatic flush, turbo mode.

Sans I/O: samples come in by :meth:`Batcher.add_samples`, which returns full batches. Other samples stay queued until a
limit, a timer or a flush sends them. Costs are per batch and per call, never per sample, unless an interceptor sees
each sample. Uniform batches that fill up within one call are returned together, and cost no more than one.

Invariants:
* every sample is returned exactly once, whole and in order, except those that an interceptor drops, and the order in
  which it queues samples that it held;
* the queue fits one batch: within every limit, with one encapsulation, and with key hashes for all samples or none;
* no sample stays queued once a limit is reached, or longer than the flush delay after the first sample of the queue;
* the queue has memory of its own, at most twice the bytes of the largest batch so far; batches that fill up within one
  call view the samples of that call.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np

from ....errors import UsageError
from ....structure import GUID_UNKNOWN, INFINITE, Guid
from ....wire.parameters import KEY_HASH_SIZE, SENTINEL_SIZE, STATUS_INFO_SIZE
from ....wire.samples import DISPOSED, FILTERED, U8, UNREGISTERED, Samples
from ...policies import BatchPolicy, WriterCounters
from .batch_queue import (
    FlushReason,
    InstanceEnds,
    PendingBatch,
    Queue,
    Write,
    encapsulations,
    keys_of,
    part_of,
    split,
)
from .interceptor import BatchRequest, Gate, Interceptor
from .leaving_batches import LeavingBatches
from .turbo import BLOCKED_DELAY_MAX, Turbo

__all__ = ["Batcher", "FlushReason", "PendingBatch", "sample_metadata"]

#: Bytes of a SampleInfo in a DATA_BATCH: its flags, and the lengths of inline QoS and payload; and its timestamp.
_SAMPLE_INFO: Final = 8
_TIMESTAMP: Final = 8

#: Least number of batches in a GSO buffer.
_GSO_MIN: Final = 2


def sample_metadata(flags: int, *, key_hash: bool, own_timestamp: bool) -> int:
    """Bytes that a sample takes in a DATA_BATCH besides its payload (RTI's manual of BATCH, on bandwidth)."""
    qos = KEY_HASH_SIZE if key_hash else 0
    qos += STATUS_INFO_SIZE if flags & (DISPOSED | UNREGISTERED | FILTERED) else 0
    return _SAMPLE_INFO + (qos + SENTINEL_SIZE if qos else 0) + (_TIMESTAMP if own_timestamp else 0)


class Batcher:
    """The batch in progress of one writer.

    ``limit``: bytes that payloads and their metadata may take in a datagram; may be set at any time.
    ``max_samples``, ``max_samples_per_instance``: the writer's RESOURCE_LIMITS; the second needs key hashes.
    ``blocked``: set while the send window is closed, for turbo mode. An ``interceptor`` decides about each sample of
    the ``writer``; ``counters`` count the samples that it drops.
    """

    def __init__(
        self,
        policy: BatchPolicy,
        *,
        limit: int,
        interceptor: Interceptor | None = None,
        writer: Guid = GUID_UNKNOWN,
        counters: WriterCounters | None = None,
        max_samples: int = INFINITE,
        max_samples_per_instance: int = INFINITE,
    ) -> None:
        self.policy = policy
        self.flushes: Counter[FlushReason] = Counter()
        self.blocked = False
        self._turbo = Turbo() if policy.turbo_mode and not policy.enable else None
        self._limit = limit
        # Turbo mode chooses the number of bytes itself.
        data_bytes = INFINITE if self._turbo else _bound(policy.max_data_bytes)
        auto_flush_size = _bound(policy.auto_flush_size)
        self._max_bytes = min(data_bytes, auto_flush_size)
        self._bytes_reason = (
            FlushReason.MAX_DATA_BYTES if data_bytes <= auto_flush_size else FlushReason.AUTO_FLUSH_SIZE
        )
        self._max_samples = min(_bound(policy.max_samples), _bound(max_samples))
        self._samples_reason = (
            FlushReason.MAX_SAMPLES
            if _bound(policy.max_samples) <= _bound(max_samples)
            else FlushReason.RESOURCE_LIMITS
        )
        self._per_instance = _bound(max_samples_per_instance)
        self._instances: Counter[bytes] = Counter()
        self._gate = (
            None
            if interceptor is None
            else Gate(interceptor, self, writer=writer, counters=counters or WriterCounters())
        )
        #: The batch in progress.
        self.queue = Queue()
        self._max_delay = min(policy.max_flush_delay, BLOCKED_DELAY_MAX if self._turbo else INFINITE)
        self._now = self._first_written = 0
        self._deadline: int | None = None
        #: Full batches that are not known to be sent.
        self.leaving = LeavingBatches()

    @property
    def count(self) -> int:
        """Samples that wait: queued, or held by the interceptor."""
        return self.queue.count + (0 if self._gate is None else len(self._gate.held))

    @property
    def nbytes(self) -> int:
        """Serialized bytes of these."""
        return self.queue.nbytes + (0 if self._gate is None else self._gate.held_bytes)

    def fitting(self, samples: Samples, count: int, batches: int) -> int:
        """How many of the first ``count`` samples fit that many batches, including the one in progress.

        Other limits, such as those per instance, may end a batch earlier; they are not considered.
        """
        capacity = batches * min(self._max_bytes, self._limit) - self.nbytes
        if samples.is_uniform:
            by_bytes = max(0, capacity) // max(samples.size, 1)
        else:
            by_bytes = int(np.searchsorted(np.cumsum(samples.all_lengths()[:count]), capacity, side="right"))
        if not by_bytes and batches and not self.count:
            by_bytes = 1  # a sample larger than a batch is sent alone
        return max(0, min(count, by_bytes, batches * self._max_samples - self.count))

    @property
    def limit(self) -> int:
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = limit
        if self.queue.wire_bytes > limit:
            self._flush(FlushReason.AUTO_FLUSH_SIZE)

    # --- samples in ------------------------------------------------------------------------------

    def add_samples(
        self, samples: Samples, *, timestamp: int, now: int, flags: int = 0, key_hashes: U8 | None = None
    ) -> list[PendingBatch]:
        """Take all samples; returns the batches that became full, in order; they may view the samples.

        ``timestamp`` (ns since the epoch) and ``flags`` are those of all samples, ``key_hashes`` (n, 16) name their
        instances. Raises UsageError for a payload whose length is not a multiple of 4. An exception of an interceptor
        is raised too: its sample and those behind it are then not taken, and the next call returns full batches.
        """
        if samples.size % 4 or (samples.lengths is not None and (samples.lengths % 4).any()):
            raise UsageError("a payload is not padded to a multiple of 4 bytes: append the missing bytes")
        self._now = now
        self.leaving.take_back()
        if self._gate is None:
            self._add(samples, timestamp, now, flags, key_hashes)
        else:
            for i in range(samples.count):
                hashes = None if key_hashes is None else key_hashes[i : i + 1]
                try:
                    self._gate.ask(part_of(samples, i, i + 1), timestamp, flags, hashes)
                except BaseException:
                    self.leaving.own()
                    raise
        if self._turbo is not None and samples.count:
            self._steer(self._turbo, samples, now)
        return self.leaving.fetch()

    def resume(self, now: int) -> None:
        """The last batch has been sent: turbo mode does not count that time as a pause of the user's."""
        if self._turbo is not None:
            self._turbo.resume(now)

    def enqueue(self, request: BatchRequest) -> None:
        """Queue a sample that the interceptor lets through."""
        self._add(request.samples, request.timestamp, self._now, request.flags, request.key_hashes)

    def flush_intercepted(self) -> None:
        """End the batch in progress for the interceptor."""
        self._flush(FlushReason.INTERCEPTOR)

    def _add(self, samples: Samples, timestamp: int, now: int, flags: int, key_hashes: U8 | None) -> None:
        overhead = _overhead(self.policy, flags, keyed=key_hashes is not None)
        if samples.count == 1:
            samples = part_of(samples, 0, 1)
        for first, last, encapsulation in encapsulations(samples):
            if not self.queue.takes(encapsulation, key_hashes is not None):
                self._flush(FlushReason.FORMAT)
            part, hashes = samples, key_hashes
            if last - first < samples.count:
                part = part_of(samples, first, last)
                hashes = None if key_hashes is None else key_hashes[first:last]
            self._add_alike(Write(part, overhead, timestamp, flags, hashes, encapsulation), now)

    def _add_alike(self, write: Write, now: int) -> None:
        """Cut samples that may share a batch into batches."""
        queue = self.queue
        ends = None
        if write.key_hashes is not None and self._per_instance < INFINITE:
            ends = InstanceEnds(write.key_hashes, self._per_instance, self._instances)
        i, count = 0, write.samples.count
        while i < count:
            if ends is None and not queue.count and (gso_buffer := self._gso(write, i)) is not None:
                self._emit(gso_buffer)
                i += gso_buffer.count
            by_bytes = write.end(i, self._max_bytes - queue.nbytes)
            by_limit = write.wire_end(i, self._limit - queue.wire_bytes)
            reason = self._bytes_reason if by_bytes <= by_limit else FlushReason.AUTO_FLUSH_SIZE
            j = min(by_bytes, by_limit, count)
            if j == i:
                if queue.count:  # the next sample would exceed a limit: flush the queue first
                    self._flush(reason)
                    queue = self.queue
                else:
                    self._emit(write.batch(i, i + 1, reason, alone=True))
                    i += 1
                continue
            is_full = j < count
            if (last := i + self._max_samples - queue.count) <= j:
                j, is_full, reason = last, True, self._samples_reason
            if ends is not None and (last := ends.end(i, fresh=not queue.count)) <= j:
                j, is_full, reason = last, True, FlushReason.RESOURCE_LIMITS
            if not is_full:
                if queue.nbytes + write.nbytes(i, j) == self._max_bytes:
                    is_full, reason = True, self._bytes_reason
                elif queue.wire_bytes + write.wire_nbytes(i, j) == self._limit:
                    is_full, reason = True, FlushReason.AUTO_FLUSH_SIZE
            if is_full and not queue.count:
                self._emit(write.batch(i, j, reason))
            else:
                self._enqueue(write, i, j, now)
                if is_full:
                    self._flush(reason)
                    queue = self.queue
            i = j

    def _gso(self, write: Write, i: int) -> PendingBatch | None:
        """The batches that uniform samples from ``i`` on fill; samples that may not fill a batch are left."""
        if not write.samples.is_uniform:
            return None
        by_bytes, by_limit = write.end(0, self._max_bytes), write.wire_end(0, self._limit)
        per, reason = min(by_bytes, by_limit), self._bytes_reason
        if by_limit < by_bytes:
            reason = FlushReason.AUTO_FLUSH_SIZE
        if self._max_samples <= per:
            per, reason = self._max_samples, self._samples_reason
        # The last batch is left out: whether it is full may depend on more than the number of its samples.
        batches = (write.samples.count - i - 1) // per if per else 0
        if batches < _GSO_MIN:
            return None
        gso_buffer = write.batch(i, i + batches * per, reason)
        gso_buffer.per_batch = per
        return gso_buffer

    def _enqueue(self, write: Write, i: int, j: int, now: int) -> None:
        queue = self.queue
        stamp = write.timestamp
        if queue.count:
            # The previous sample's timestamp is inherited unless this one is later by more than the resolution.
            resolution = self.policy.source_timestamp_resolution
            if resolution >= INFINITE or stamp - queue.last_timestamp <= resolution:
                stamp = queue.last_timestamp
        else:
            self._first_written = now
            self._deadline = None if self._max_delay >= INFINITE else now + self._max_delay
        queue.append(write, i, j, stamp)
        if write.key_hashes is not None and self._per_instance < INFINITE:
            self._instances.update(keys_of(write.key_hashes[i:j]))

    def _steer(self, turbo: Turbo, samples: Samples, now: int) -> None:
        """Flush samples that a call has queued, unless more samples are expected soon."""
        lengths = samples.lengths
        nbytes = samples.size * samples.count if lengths is None else int(lengths.sum())
        limit, delay = turbo.limit(now, samples.count, nbytes, self.blocked)
        if self.queue.count:
            due = self._first_written + delay
            self._deadline = due if self._deadline is None else min(self._deadline, due)
            if self.queue.nbytes >= limit or self._deadline <= now:
                self._flush(FlushReason.TURBO)

    # --- batches out -----------------------------------------------------------------------------

    def flush_batch(self, reason: FlushReason = FlushReason.FLUSH) -> list[PendingBatch]:
        """End the batch in progress, with all samples that the interceptor holds; returns the batches to send."""
        self.leaving.take_back()
        if self._gate is not None:
            self._gate.release()
        self._flush(reason)
        return self.leaving.fetch()

    def discard(self) -> None:
        """Forget all samples that wait."""
        if self._gate is not None:
            self._gate.discard()
        self.queue, self.leaving = Queue(), LeavingBatches()
        self._deadline = None
        self._instances.clear()

    def get_timer(self) -> int | None:
        """When to call :meth:`handle_timer`; None: no timer runs."""
        return 0 if self.leaving.are_due else self._deadline

    def handle_timer(self, now: int) -> list[PendingBatch]:
        """End the batch in progress if its flush delay is over; returns the batches to send."""
        self.leaving.take_back()
        if self._deadline is not None and now >= self._deadline:
            self._flush(FlushReason.TURBO if self._turbo else FlushReason.MAX_FLUSH_DELAY)
        return self.leaving.fetch()

    def _flush(self, reason: FlushReason) -> None:
        if self.queue.count:
            batch, empty = self.queue.batch(reason)
            batches = [batch]
            if self.queue.wire_bytes > self._limit:  # the limit has become smaller meanwhile
                flags = (
                    batch.flags if isinstance(batch.flags, int) else int(np.bitwise_or.reduce(batch.flags))
                )
                overhead = _overhead(self.policy, flags, keyed=batch.key_hashes is not None)
                batches = list(split(batch, self._limit, overhead))
            # In one statement: after an exception the samples are either still queued or ready, never both.
            ready = self.leaving.ready
            ready[len(ready) :], self.queue = batches, empty
            self.flushes[reason] += len(batches)
        self._deadline = None
        self._instances.clear()

    def _emit(self, batch: PendingBatch) -> None:
        self.flushes[batch.reason] += batch.batches
        self.leaving.ready.append(batch)


def _bound(limit: int) -> int:
    return max(limit, 1)


def _overhead(policy: BatchPolicy, flags: int, *, keyed: bool) -> int:
    return sample_metadata(
        flags,
        key_hash=keyed and not policy.disable_inline_keyhash,
        own_timestamp=policy.source_timestamp_resolution < INFINITE,
    )
