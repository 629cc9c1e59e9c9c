"""Admits samples as far as the limits allow, and gathers them into batches to be sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from ....structure import KEY_HASH_BYTES
from ....wire.parameters import COHERENT_SET_SIZE, SENTINEL_SIZE
from ....wire.samples import KEY_ONLY, U8, Samples
from ..batching import Batcher, FlushReason, Interceptor, PendingBatch
from ..readers import MatchedReaders
from ..state import WriterState
from .admission import Admission

#: Bytes of the fixed part of a DATA_BATCH, with the inline QoS of a coherent set.
_BATCH_ROOM: Final = 48 + COHERENT_SET_SIZE + SENTINEL_SIZE
#: Bytes of the shortest padded payload that is longer than a key hash.
_LONG: Final = KEY_HASH_BYTES + 4


def batch_bytes_max(readers: MatchedReaders) -> int:
    """The most bytes of a batch, its metadata included, that all matched readers accept."""
    return readers.framing.budget - _BATCH_ROOM


def batcher_of(
    state: WriterState, readers: MatchedReaders, interceptor: Interceptor | None
) -> Batcher | None:
    """The batcher of a writer; None if the writer sends no batches."""
    if not state.batch.batches:
        return None
    return Batcher(
        state.batch,
        limit=batch_bytes_max(readers),
        interceptor=interceptor,
        writer=state.guid,
        counters=state.counters,
        max_samples=state.qos.max_samples,
        max_samples_per_instance=state.qos.max_samples_per_instance,
    )


class Intake:
    """Admits and batches the samples of one writer."""

    def __init__(
        self,
        batcher: Batcher | None,
        readers: MatchedReaders,
        admission: Admission,
    ) -> None:
        self._batcher = batcher
        self._readers = readers
        #: The framing that the batch in progress fits.
        self._framing = readers.framing
        self._admission = admission

    @property
    def count(self) -> int:
        """Samples in the batch in progress."""
        return 0 if self._batcher is None else self._batcher.count

    @property
    def batch_bytes_max(self) -> int:
        """The most bytes of a batch, its metadata included, that all matched readers accept."""
        return batch_bytes_max(self._readers)

    def take_samples(
        self,
        samples: Samples,
        *,
        timestamp: int,
        now: int,
        flags: int,
        key_hashes: U8 | None,
        whole: bool,
    ) -> tuple[int, list[PendingBatch]]:
        """Take samples; returns how many, and the batches to send; ``whole``: take all of them or none."""
        self._fit()
        if flags & KEY_ONLY and self._readers.mistake_keys:
            samples = lengthened(samples)
        if self._admission.waits_for_group():
            return 0, []
        count = self._admission.admit(samples, flags, keyed=key_hashes is not None, now=now)
        if whole and count < samples.count:
            count = 0
        taken = samples.take_range(0, count)
        hashes = None if key_hashes is None else key_hashes[:count]
        if self._batcher is None:
            one = PendingBatch(taken, timestamp, None, flags, hashes, True, FlushReason.FLUSH)
            return count, [one] if count else []
        is_stopped = bool(self._admission.stopped_by)
        self._batcher.blocked = is_stopped
        batches = self._batcher.add_samples(
            taken, timestamp=timestamp, now=now, flags=flags, key_hashes=hashes
        )
        if is_stopped and not batches:
            batches = self._batcher.flush_batch(FlushReason.RESOURCE_LIMITS)  # it cannot grow
        return count, batches

    def flush_batch(self, reason: FlushReason) -> list[PendingBatch]:
        """End the batch in progress; returns the batches to send."""
        self._fit()
        return [] if self._batcher is None else self._batcher.flush_batch(reason)

    def sent(self) -> None:
        """The batches that were returned last are sent."""
        if self._batcher is not None:
            self._batcher.leaving.sent()

    def put_back(self, batches: Iterable[PendingBatch], sent: int) -> None:
        """Keep these batches, without their first ``sent`` samples, for the next send after an exception.

        Without batching nothing is put back: all samples are those of the call that raises the exception.
        """
        if self._batcher is not None:
            parts: list[PendingBatch] = []
            for each in batches:
                parts += each.behind(sent)
                sent = max(0, sent - each.count)
            self._batcher.leaving.put_back(parts)

    def discard(self) -> None:
        """Forget the batch in progress."""
        if self._batcher is not None:
            self._batcher.discard()

    def resume(self, now: int) -> None:
        """The samples taken were sent: turbo mode does not count that time as a pause of the user's."""
        if self._batcher is not None:
            self._batcher.resume(now)

    def get_timer(self) -> int | None:
        """When the flush delay of the batch in progress is over."""
        return None if self._batcher is None else self._batcher.get_timer()

    def handle_timer(self, now: int) -> list[PendingBatch]:
        """End the batch in progress if its flush delay is over; returns the batches to send."""
        due = self.get_timer()
        if self._batcher is None or due is None or due > now:
            return []
        self._fit()
        return self._batcher.handle_timer(now)

    def _fit(self) -> None:
        """Fit the batch in progress to the readers that are matched now."""
        if self._batcher is not None and self._framing is not self._readers.framing:
            self._framing = self._readers.framing
            self._batcher.limit = self.batch_bytes_max


def lengthened(keys: Samples) -> Samples:
    """The serialized keys, with zeros appended to those that a reader might mistake for the key hash.

    Fast DDS 2.9 takes the payload of a dispose as the key hash if it has 16 bytes or fewer, its encapsulation header
    included, although the key hash is in the inline QoS; it ignores a longer payload. Cyclone DDS, in contrast, needs
    the key if it cannot be derived from the hash. Zeros behind a short key suit both, and our readers, which stop at
    the end of the key.
    """
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
