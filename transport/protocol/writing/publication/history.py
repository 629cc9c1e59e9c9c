"""A writer's history: the samples that can still be sent again (RTPS 2.5 §8.4.8, DDS 1.4 §2.2.3.18).

Invariants:
* changes are sorted, disjoint, and hold only numbers that may be sent; a number at or below ``last_sn`` that no change
  holds is irrelevant (a GAP);
* samples that a matched reliable reader has not acknowledged are never dropped, even if newer ones replace them, before
  their LIFESPAN is over: KEEP_LAST decides what late joiners find, the send window what is in flight;
* samples whose LIFESPAN is over are not found.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import merge
from typing import Final

import numpy as np
import numpy.typing as npt

from ....qos import HistoryKind
from ....structure import INFINITE
from ..changes import Change
from ..state import WriterState
from .held_batches import HeldBatches
from .keep_last import KeepLast
from .kept_samples import KeptSamples
from .lifespan import Lifespan
from .skipped_numbers import SkippedNumbers

U32 = npt.NDArray[np.uint32]

#: If more ranges than this are replaced at a time, or more changes are held, samples move to `KeptSamples`.
_REPLACED_MAX: Final = 16
_CHANGES_MAX: Final = 256


class WriterHistory:
    """The changes of one writer, kept as its QoS says."""

    def __init__(self, state: WriterState) -> None:
        qos = state.qos
        self.state = state
        #: Samples held, now and at most.
        self.samples = self.samples_peak = 0
        self.nbytes = 0
        #: Batches held.
        self.batches = 0
        #: TRANSIENT_LOCAL: samples are kept for late joiners.
        self.is_for_late_joiners = qos.is_transient_local
        #: Which samples KEEP_LAST has replaced for late joiners; None: it replaces none.
        self.keep_last: KeepLast | None = None
        self._is_bounded = qos.history is not HistoryKind.KEEP_LAST and qos.max_samples < INFINITE
        if qos.is_transient_local and qos.history is HistoryKind.KEEP_LAST:
            self.keep_last = KeepLast(state, max(1, qos.history_depth))
        self._max_samples = qos.max_samples
        #: The number of changes from which all of them are searched for a LIFESPAN that is over.
        self._look_through_at = _CHANGES_MAX
        self._changes: list[Change] = []
        #: Other samples, if KEEP_LAST replaces many that are scattered.
        self._kept = KeptSamples()
        #: Decides for which changes LIFESPAN is over.
        self.lifespan = Lifespan(qos.lifespan, self._changes)
        #: Which batches are held.
        self.held_batches = HeldBatches(state, self._changes, self._kept)
        #: Numbers that never had a sample.
        self.skipped = SkippedNumbers(self.keep_last)

    @property
    def first_sn(self) -> int:
        """The lowest number that can be sent; last_sn + 1 if there is none."""
        first_sn = self._changes[0].first_sn if self._changes else self.state.last_sn + 1
        return min(first_sn, self._kept.first_sn) if self._kept else first_sn

    @property
    def first_announced(self) -> int:
        """The lowest number that HEARTBEATs announce. It includes skipped numbers: they are not lost, and readers that
        request them get a GAP."""
        return self.skipped.lowest(self.first_sn)

    @property
    def lost_before(self) -> int:
        """Numbers below this one are lost to a reader that lacks them: they were dropped because others acknowledged
        them, or because they were given up. 0 if LIFESPAN or KEEP_LAST may have dropped them."""
        return 0 if self.is_for_late_joiners or self.lifespan.is_finite else self.first_announced

    @property
    def capacity(self) -> int:
        """Samples that may be added under RESOURCE_LIMITS max_samples."""
        return max(0, self._max_samples - self.samples) if self._is_bounded else INFINITE

    def append(self, change: Change) -> None:
        """Add the next samples; ``change`` starts after ``last_sn``."""
        self._changes.append(change)
        self._account(change, 1)
        if self.samples > self.samples_peak:
            self.samples_peak = self.samples
        self.state.last_sn = change.last_sn

    def settle(self) -> None:
        """Recount after an exception interrupted a change of the history; drop changes that have no number."""
        last_sn = self.state.last_sn
        while self._changes and self._changes[-1].last_sn > last_sn:
            self._changes.pop()
        self.skipped.settle(last_sn)
        if self.keep_last is not None:
            self.keep_last.settle()
        self.samples, self.nbytes = self._kept.total()
        self.batches = 0
        for change in self._changes:
            self._account(change, 1)

    def _account(self, change: Change, sign: int) -> None:
        """Count a change that was added (``sign`` 1) or removed (-1)."""
        self.samples += sign * change.live
        self.nbytes += sign * change.nbytes
        self.batches += sign * change.batches

    # --- numbers that never come ------------------------------------------------------------------

    def abort_set(self, begun: int) -> int:
        """Drop the open set, which begins at ``begun``, and skip one number, so that the set is incomplete for every
        reader; returns that number."""
        while self._changes and self._changes[-1].first_sn >= begun:
            self._account(self._changes.pop(), -1)
        last_sn = self.state.last_sn + 1
        self.skipped.note_aborted_set(begun, last_sn)
        self.state.last_sn = last_sn
        if self.keep_last is not None:
            self.keep_last.abort_set()
        return self.state.last_sn

    def divide(self, change: Change, parts: Sequence[Change]) -> None:
        """Replace a change by its two parts, if it is held."""
        i = bisect_left(self._changes, change.first_sn, key=_first_sn)
        if i < len(self._changes) and self._changes[i] is change:
            self._changes[i : i + 1] = parts

    def withdraw(self, change: Change) -> None:
        """A claim was aborted: its number will never come."""
        if self.keep_last is not None:
            self.keep_last.abort_claim(change.first_sn)
        i = bisect_left(self._changes, change.first_sn, key=_first_sn)
        if i < len(self._changes) and self._changes[i] is change:
            try:
                del self._changes[i]
                self._account(change, -1)
            except BaseException:
                self.settle()
                raise
        self.skipped.skip_numbers(change.first_sn, change.last_sn)

    # --- removal ----------------------------------------------------------------------------------

    def trim(self, acknowledged: int) -> None:
        """Drop samples up to ``acknowledged``, which every matched reader has, unless QoS keeps them."""
        self.skipped.forget(acknowledged)
        if not self.is_for_late_joiners:
            self._drop(1, acknowledged)
        elif (keep_last := self.keep_last) is None:
            return
        elif not keep_last.is_keyed:
            self._drop(1, min(acknowledged, keep_last.newest_replaced()))
        else:
            firsts, lasts = keep_last.take_replaced(acknowledged)
            if len(firsts) > _REPLACED_MAX or len(self._changes) > _CHANGES_MAX:
                self._set_apart(acknowledged)
            samples, nbytes = self._kept.drop(firsts, lasts)
            self.samples -= samples
            self.nbytes -= nbytes
            if self._changes:
                low = int(np.searchsorted(lasts, self._changes[0].first_sn))
                for first, last in zip(firsts[low:].tolist(), lasts[low:].tolist(), strict=True):
                    self._drop(first, last)
            excess = self.samples - self._max_samples
            if excess > 0:
                self._drop_oldest(excess, acknowledged)
            keep_last.forget_before(self.first_sn)

    def _set_apart(self, acknowledged: int) -> None:
        """Move samples that every reader has to `KeptSamples`, where many can be replaced at once."""
        if self.lifespan.is_finite or self.state.set_begun:
            return
        i = bisect_left(self._changes, acknowledged + 1, key=_last_sn)
        # Not beyond a claim: when it is committed later, higher numbers would already have been moved.
        i = next((k for k in range(i) if self._changes[k].is_claimed), i)
        settled = [change for change in self._changes[:i] if self._kept.takes(change)]
        if not settled:
            return
        self._changes[:i] = [change for change in self._changes[:i] if not self._kept.takes(change)]
        for change in settled:
            self._account(change, -1)
        samples, nbytes = self._kept.append(settled)
        self.samples += samples
        self.nbytes += nbytes

    def expire(self, now: int) -> int:
        """Drop samples whose LIFESPAN is over, oldest first; returns how many.

        Such samples behind one with a later timestamp are not found any more. They are dropped together with it, or
        earlier when the history has many changes or is full.
        """
        if not self.lifespan.advance(now):
            return 0
        changes, is_over = self._changes, self.lifespan.is_over
        over, samples = 0, self.samples
        while over < len(changes) and is_over(changes[over]):
            self._account(changes[over], -1)
            over += 1
        del changes[:over]
        if changes:
            self.samples -= changes[0].content.expire(self.lifespan.expired_before)
        if len(changes) >= self._look_through_at or not self.capacity:
            # Users set source timestamps: one that is ahead must not keep the samples behind it for as long.
            live = [change for change in changes if not is_over(change)]
            if len(live) < len(changes):
                for change in changes:
                    if is_over(change):
                        self._account(change, -1)
                changes[:] = live
            self._look_through_at = max(_CHANGES_MAX, 2 * len(live))
        return samples - self.samples

    def _drop(self, first: int, last: int) -> None:
        changes = self._changes
        self._take_apart(first)
        self._take_apart(last + 1)
        i = low = bisect_left(changes, first, key=_last_sn)
        kept: list[Change] = []
        while i < len(changes) and changes[i].first_sn <= last:
            change = changes[i]
            self._account(change, -1)
            kept += change.without(first, last)
            i += 1
        if i > low:
            changes[low:i] = kept
            for change in kept:
                self._account(change, 1)

    def _take_apart(self, sn: int) -> None:
        """Make each batch a change by itself if ``sn`` lies within a batch of a GSO buffer."""
        i = bisect_left(self._changes, sn, key=_last_sn)
        change = self._changes[i] if i < len(self._changes) else None
        if change is not None and change.first_sn < sn and change.content.splits_batch(sn):
            self._account(change, -1)
            parts = list(change.apart())
            self._changes[i : i + 1] = parts
            for part in parts:
                self._account(part, 1)

    def _drop_oldest(self, excess: int, acknowledged: int) -> None:
        while excess > 0 and self.first_sn <= acknowledged:
            if self._kept and self._kept.first_sn == self.first_sn:
                last = self._changes[0].first_sn - 1 if self._changes else acknowledged
                samples, nbytes = self._kept.drop_oldest(excess, last)
                self.samples -= samples
                self.nbytes -= nbytes
                excess -= samples
                continue
            oldest, before = self._changes[0], self.samples
            last = min(oldest.last_sn, oldest.first_sn + excess - 1, acknowledged)
            self._drop(oldest.first_sn, oldest.content.end_of_batch(last))  # no batch in part
            excess -= before - self.samples

    def find_change(self, sn: int) -> Change | None:
        """The change that holds ``sn``, or the next higher one; None if there is none."""
        i = bisect_left(self._changes, sn, key=_last_sn)
        while i < len(self._changes) and self.lifespan.is_over(self._changes[i]):
            i += 1
        found = self._changes[i] if i < len(self._changes) else None
        if self._kept and (found is None or found.first_sn > sn):
            kept = self._kept.find_change(sn)
            if found is None or (kept is not None and kept.first_sn < found.first_sn):
                return kept
        return found

    def changes(self) -> Iterator[Change]:
        """All changes, in order."""
        return merge(self._kept.changes(), self._changes, key=_first_sn)

    def changes_from(self, sn: int) -> Iterator[Change]:
        """The changes that end at ``sn`` or later, without those in `KeptSamples`, which has memory of its own."""
        for i in range(bisect_left(self._changes, sn, key=_last_sn), len(self._changes)):
            yield self._changes[i]


def _first_sn(change: Change) -> int:
    return change.first_sn


def _last_sn(change: Change) -> int:
    return change.last_sn
