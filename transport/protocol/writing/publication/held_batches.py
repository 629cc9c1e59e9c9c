"""The batches that a writer holds, and their samples: readers of batches acknowledge batch numbers (RTI's
DATA_BATCH)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from ....wire.numbers import SequenceNumberSet
from ..changes import Change, MissingSamples
from ..state import WriterState
from .kept_samples import KeptSamples


class HeldBatches:
    """The batches among the ``changes`` of a history; ``kept`` are its other samples, which are not in batches."""

    def __init__(self, state: WriterState, changes: Sequence[Change], kept: KeptSamples) -> None:
        self._state = state
        self._changes = changes
        self._kept = kept

    def find_batch(self, batch_sn: int) -> Change | None:
        """The change that holds the batch, or else the next batch; None if there is none."""
        changes = self._changes
        i = bisect_left(changes, batch_sn, key=_batch_sn)
        while i < len(changes) and not changes[i].batches:
            # a change behind a batch that is no longer held; the next batch is the first change of its number
            i = bisect_left(changes, changes[i].batch_sn + 1, i, key=_batch_sn)
        return changes[i] if i < len(changes) else None

    def first_from(self, first_sn: int) -> int:
        """The lowest batch that can be sent and begins at sample ``first_sn`` or later; last_batch_sn + 1 if none."""
        i = bisect_left(self._changes, first_sn, key=_first_sn)
        if i and (batch_sn := self._changes[i - 1].content.first_batch_from(first_sn)):
            return batch_sn
        first = self._changes[i] if i < len(self._changes) else None
        if first is not None and not first.batches:
            first = self.find_batch(first.batch_sn + 1)
        return self._state.last_batch_sn + 1 if first is None else first.batch_sn - first.batches + 1

    def missing_samples(self, batches: SequenceNumberSet, acked: int) -> MissingSamples:
        """An ACKNACK_BATCH translated into sample numbers; its reader has at least everything up to ``acked``."""
        # Only the batch before the base is known to have arrived: samples behind it may have been sent outside a batch.
        before = self.find_batch(batches.base - 1)
        span = None if before is None else before.content.span_of(batches.base - 1, batches.base - 1)
        next_sn = acked + 1 if span is None else span[1] + 1
        if batches.base > self._state.last_batch_sn and (not self._changes or self._changes[-1].batches):
            next_sn = self._state.last_sn + 1
        base = max(next_sn, acked + 1)
        spans = [
            span
            for first, last in batches.ranges()
            for span in self._spans(first, min(last, self._state.last_batch_sn))
        ]
        return MissingSamples(base, tuple(spans))

    def _spans(self, batch_sn: int, last_batch_sn: int) -> Iterator[tuple[int, int]]:
        """The samples of these batches; for a batch that is no longer held, the gap that it left."""
        changes, i = self._changes, 0
        while batch_sn <= last_batch_sn:
            i = bisect_left(changes, batch_sn, i, key=_batch_sn)
            here = changes[i] if i < len(changes) else None
            if here is not None and (span := here.content.span_of(batch_sn, last_batch_sn)) is not None:
                yield span
                batch_sn = here.batch_sn + 1
                continue
            first = max(changes[i - 1].last_sn if i else 0, self._kept.last_sn) + 1
            last = self._state.last_sn if here is None else here.first_sn - 1
            if first <= last:
                yield first, last
            if here is None:
                return
            batch_sn = max(here.batch_sn - max(here.batches - 1, 0), batch_sn + 1)


def _batch_sn(change: Change) -> int:
    return change.batch_sn


def _first_sn(change: Change) -> int:
    return change.first_sn
