"""A writer's history: what can still be sent again (RTPS 2.5 §8.4.8, DDS 1.4 §2.2.3.18).

Invariants: changes are sorted, disjoint, and hold only numbers that may be sent; a number at or below
``last_sn`` that no change holds is irrelevant (a GAP). What a matched reliable reader has not acknowledged is
never dropped, replaced or not, before its LIFESPAN is over: KEEP_LAST decides what late joiners find, the send
window what is in flight. Nothing whose LIFESPAN is over is found.
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

#: Where more than so many stretches are replaced at a time, or more changes are held, they come to lie apart.
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
        #: TRANSIENT_LOCAL: what is written is kept for readers to come.
        self.is_for_late_joiners = qos.is_transient_local
        #: What KEEP_LAST has replaced for them; None: nothing.
        self.keep_last: KeepLast | None = None
        self._is_bounded = qos.history is not HistoryKind.KEEP_LAST and qos.max_samples < INFINITE
        if qos.is_transient_local and qos.history is HistoryKind.KEEP_LAST:
            self.keep_last = KeepLast(state, max(1, qos.history_depth))
        self._max_samples = qos.max_samples
        #: So many changes are looked through for what is over.
        self._look_through_at = _CHANGES_MAX
        self._changes: list[Change] = []
        #: What of the rest lies apart, where KEEP_LAST replaces much here and there.
        self._kept = KeptSamples()
        #: Which of the changes are over.
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
        """The lowest number that HEARTBEATs announce: what was skipped is no loss, so readers are to ask for it."""
        return self.skipped.lowest(self.first_sn)

    @property
    def lost_before(self) -> int:
        """A reader that still lacks numbers below has lost them: nothing but acknowledgements, or that they were given
        up, lets them go. 0: QoS may have, LIFESPAN or what late joiners find."""
        return 0 if self.is_for_late_joiners or self.lifespan.is_finite else self.first_announced

    @property
    def room(self) -> int:
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
        """An exception has stopped what changed it: hold nothing that has got no number, and count anew."""
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
        """A change came, or goes."""
        self.samples += sign * change.live
        self.nbytes += sign * change.nbytes
        self.batches += sign * change.batches

    # --- numbers that never come ------------------------------------------------------------------

    def abort_set(self, begun: int) -> int:
        """Drop the open set, which begins at ``begun``, and skip a number, so that every reader lacks something of
        the set; returns that number."""
        while self._changes and self._changes[-1].first_sn >= begun:
            self._account(self._changes.pop(), -1)
        last_sn = self.state.last_sn + 1
        self.skipped.note_aborted_set(begun, last_sn)
        self.state.last_sn = last_sn
        if self.keep_last is not None:
            self.keep_last.abort_set()
        return self.state.last_sn

    def divide(self, change: Change, parts: Sequence[Change]) -> None:
        """Replace a change by two that stand for it, if it is held."""
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

    # --- what is no longer kept -------------------------------------------------------------------

    def trim(self, acknowledged: int) -> None:
        """Drop what every matched reader has acknowledged (``acknowledged``) and QoS does not keep."""
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
        """Let what every reader has lie where much can be replaced at once."""
        if self.lifespan.is_finite or self.state.set_begun:
            return
        i = bisect_left(self._changes, acknowledged + 1, key=_last_sn)
        # A claim that is committed later must not come to lie behind higher numbers.
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
        """Drop what has outlived its LIFESPAN, oldest first; returns how many samples that was.

        What lies behind a sample with a later timestamp is no longer found, and dropped with that one, or when there is
        much of it, or no room for more.
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
        if len(changes) >= self._look_through_at or not self.room:
            # Source timestamps are the user's: one that is ahead must not keep what is written behind it for as long.
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
        """Let each batch be a change by itself where ``sn`` lies within a batch of a train."""
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
        """All that is held, in order."""
        return merge(self._kept.changes(), self._changes, key=_first_sn)

    def changes_from(self, sn: int) -> Iterator[Change]:
        """The changes that end at ``sn`` or behind it, without those that lie apart in memory of their own."""
        for i in range(bisect_left(self._changes, sn, key=_last_sn), len(self._changes)):
            yield self._changes[i]


def _first_sn(change: Change) -> int:
    return change.first_sn


def _last_sn(change: Change) -> int:
    return change.last_sn
