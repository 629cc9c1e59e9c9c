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

from ....limits import REORDER_RUNS_MAX
from ....qos import HistoryKind
from ....structure import INFINITE
from ....wire.numbers import SequenceNumberSet
from ....wire.samples import NO_TIMESTAMP, U8
from ...intervals import IntervalSet
from ..changes import Change, MissingSamples
from ..state import WriterState
from .keep_last import KeepLast
from .kept_samples import KeptSamples

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
        self._lifespan = qos.lifespan
        self.is_mortal = qos.lifespan < INFINITE
        #: The wall clock minus ``now``, as of the newest write; source timestamps up to _expired are over.
        self._wall_offset: int | None = None
        self._expired = NO_TIMESTAMP
        #: So many changes are looked through for what is over.
        self._look_through_at = _CHANGES_MAX
        self._changes: list[Change] = []
        #: What of the rest lies apart, where KEEP_LAST replaces much here and there.
        self._kept = KeptSamples()
        #: Sets that were aborted, each with the number behind its last one.
        self._aborted = IntervalSet()
        #: Numbers that never had a sample, which some reader may not know yet.
        self._skipped = IntervalSet()

    @property
    def first_sn(self) -> int:
        """The lowest number that can be sent; last_sn + 1 if there is none."""
        first_sn = self._changes[0].first_sn if self._changes else self.state.last_sn + 1
        return min(first_sn, self._kept.first_sn) if self._kept else first_sn

    @property
    def first_announced(self) -> int:
        """The lowest number that HEARTBEATs announce: what was skipped is no loss, so readers are to ask for it."""
        return min(self.first_sn, self._skipped.lowest[0]) if self._skipped else self.first_sn

    @property
    def lost_before(self) -> int:
        """A reader that still lacks numbers below has lost them: nothing but acknowledgements, or that they were given
        up, lets them go. 0: QoS may have, LIFESPAN or what late joiners find."""
        return 0 if self.is_for_late_joiners or self.is_mortal else self.first_announced

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
        self._aborted.remove(last_sn + 1, INFINITE)
        self._skipped.remove(last_sn + 1, INFINITE)
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

    def batch(self, batch_sn: int) -> Change | None:
        """The change that holds a batch, or the next one; None if there is none."""
        changes = self._changes
        i = bisect_left(changes, batch_sn, key=_batch_sn)
        while i < len(changes) and not changes[i].batches:
            # what followed a batch that is no more; the next one comes first of its number
            i = bisect_left(changes, changes[i].batch_sn + 1, i, key=_batch_sn)
        return changes[i] if i < len(changes) else None

    def first_batch_sn(self, first_sn: int) -> int:
        """The lowest batch from ``first_sn`` on that can be sent; last_batch_sn + 1 if there is none."""
        i = bisect_left(self._changes, first_sn, key=_first_sn)
        if i and (batch_sn := self._changes[i - 1].content.first_batch_from(first_sn)):
            return batch_sn
        first = self._changes[i] if i < len(self._changes) else None
        if first is not None and not first.batches:
            first = self.batch(first.batch_sn + 1)
        return self.state.last_batch_sn + 1 if first is None else first.batch_sn - first.batches + 1

    def samples_of(self, batches: SequenceNumberSet, acked: int) -> MissingSamples:
        """An ACKNACK_BATCH translated into numbers of samples; ``acked`` is what its reader has at least."""
        # Only the batch before is known to have arrived: samples behind it may have been sent outside a batch.
        before = self.batch(batches.base - 1)
        span = None if before is None else before.content.span_of(batches.base - 1, batches.base - 1)
        next_sn = acked + 1 if span is None else span[1] + 1
        if batches.base > self.state.last_batch_sn and (not self._changes or self._changes[-1].batches):
            next_sn = self.state.last_sn + 1
        base = max(next_sn, acked + 1)
        spans = [
            span
            for first, last in batches.ranges()
            for span in self._spans(first, min(last, self.state.last_batch_sn))
        ]
        return MissingSamples(base, tuple(spans))

    def _spans(self, batch_sn: int, last_batch_sn: int) -> Iterator[tuple[int, int]]:
        """The samples of those batches; of a batch that is no more, the hole that it left."""
        changes, i = self._changes, 0
        while batch_sn <= last_batch_sn:
            i = bisect_left(changes, batch_sn, i, key=_batch_sn)
            here = changes[i] if i < len(changes) else None
            if here is not None and (span := here.content.span_of(batch_sn, last_batch_sn)) is not None:
                yield span
                batch_sn = here.batch_sn + 1
                continue
            first = max(changes[i - 1].last_sn if i else 0, self._kept.last_sn) + 1
            last = self.state.last_sn if here is None else here.first_sn - 1
            if first <= last:
                yield first, last
            if here is None:
                return
            batch_sn = max(here.batch_sn - max(here.batches - 1, 0), batch_sn + 1)

    # --- coherent sets --------------------------------------------------------------------------

    def note_end_marker(self, sn: int) -> None:
        """``sn`` ends the set, and is no sample."""
        if self.keep_last is not None:
            self.keep_last.note_hollow(sn, sn)
            self.keep_last.note_end_marker(sn)

    def end_set(self) -> None:
        """The set is complete."""
        if self.keep_last is not None:
            self.keep_last.note()

    def abort_set(self, begun: int) -> int:
        """Drop the open set, which begins at ``begun``, and skip a number, so that every reader lacks something of
        the set; returns that number."""
        while self._changes and self._changes[-1].first_sn >= begun:
            self._account(self._changes.pop(), -1)
        last_sn = self.state.last_sn + 1
        self._aborted.add(begun, last_sn)
        if len(self._aborted) > REORDER_RUNS_MAX:
            self._aborted.remove(*self._aborted.lowest)
        self.note_skipped(begun, last_sn)
        self.state.last_sn = last_sn
        if self.keep_last is not None:
            self.keep_last.abort_set()
        return self.state.last_sn

    def divide(self, change: Change, parts: Sequence[Change]) -> None:
        """Replace a change by two that stand for it, if it is held."""
        i = bisect_left(self._changes, change.first_sn, key=_first_sn)
        if i < len(self._changes) and self._changes[i] is change:
            self._changes[i : i + 1] = parts

    def begin_claim(self, change: Change) -> None:
        """The newest sample is claimed, and not complete yet."""
        if self.keep_last is not None:
            self.keep_last.begin_claim(change.first_sn)

    def end_claim(self, change: Change, key_hash: U8 | None) -> None:
        """The claimed sample is complete; ``key_hash`` (1, 16) is its instance."""
        change.is_claimed = False
        if self.keep_last is not None:
            self.keep_last.end_claim(change.first_sn, key_hash)

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
        self.note_skipped(change.first_sn, change.last_sn)

    def note_skipped(self, first_sn: int, last_sn: int) -> None:
        """The newest numbers, first_sn..last_sn, will never come."""
        if self.keep_last is not None:
            self.keep_last.note_hollow(first_sn, last_sn)
        self._skipped.add(first_sn, last_sn)

    def start_of_gap(self, sn: int) -> int:
        """Where a GAP that covers ``sn`` begins: an aborted set is announced as a whole."""
        aborted = self._aborted.around(sn)
        return sn if aborted is None else aborted[0]

    @property
    def expired_before(self) -> int:
        """Samples with this source timestamp or an older one have outlived their LIFESPAN."""
        return self._expired

    def trim(self, acknowledged: int) -> None:
        """Drop what every matched reader has acknowledged (``acknowledged``) and QoS does not keep."""
        if self._skipped:
            self._skipped.remove(0, acknowledged)
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
            self._discount(self._kept.drop(firsts, lasts))
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
        if self.is_mortal or self.state.set_begun:
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
        self._discount((-samples, -nbytes))

    def _discount(self, gone: tuple[int, int]) -> None:
        self.samples -= gone[0]
        self.nbytes -= gone[1]

    def note_time(self, wall_clock: int, now: int) -> None:
        """The wall clock, ns since the epoch, at ``now``."""
        if wall_clock != NO_TIMESTAMP:
            self._wall_offset = wall_clock - now

    def expire(self, now: int) -> int:
        """Drop what has outlived its LIFESPAN, oldest first; returns how many samples that was.

        What lies behind a sample with a later timestamp is no longer found, and dropped with that one, or when there is
        much of it, or no room for more.
        """
        if not self.is_mortal or self._wall_offset is None:
            return 0
        self._expired = now + self._wall_offset - self._lifespan
        over, samples = 0, self.samples
        while over < len(self._changes) and self.is_over(self._changes[over]):
            self._account(self._changes[over], -1)
            over += 1
        del self._changes[:over]
        if self._changes:
            self.samples -= self._changes[0].content.expire(self._expired)
        if len(self._changes) >= self._look_through_at or not self.room:
            self._drop_all_over()
        return samples - self.samples

    def _drop_all_over(self) -> None:
        """Source timestamps are the user's: one that is ahead must not keep what is written behind it for as long."""
        live = [change for change in self._changes if not self.is_over(change)]
        if len(live) < len(self._changes):
            for change in self._changes:
                if self.is_over(change):
                    self._account(change, -1)
            self._changes = live
        self._look_through_at = max(_CHANGES_MAX, 2 * len(live))

    def get_timer(self) -> int | None:
        """When the LIFESPAN of the oldest change is over."""
        if not self.is_mortal or self._wall_offset is None or not self._changes:
            return None
        timestamp = self._changes[0].newest
        return None if timestamp == NO_TIMESTAMP else timestamp + self._lifespan - self._wall_offset

    def is_over(self, change: Change) -> bool:
        """Whether its LIFESPAN is over."""
        return self.is_mortal and NO_TIMESTAMP != change.newest <= self._expired

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
                gone = self._kept.drop_oldest(excess, last)
                self._discount(gone)
                excess -= gone[0]
                continue
            oldest, before = self._changes[0], self.samples
            last = min(oldest.last_sn, oldest.first_sn + excess - 1, acknowledged)
            self._drop(oldest.first_sn, oldest.content.end_of_batch(last))  # no batch in part
            excess -= before - self.samples

    def find(self, sn: int) -> Change | None:
        """The change that holds ``sn``, or the next higher one; None if there is none."""
        i = bisect_left(self._changes, sn, key=_last_sn)
        while i < len(self._changes) and self.is_over(self._changes[i]):
            i += 1
        found = self._changes[i] if i < len(self._changes) else None
        if self._kept and (found is None or found.first_sn > sn):
            kept = self._kept.find(sn)
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


def _batch_sn(change: Change) -> int:
    return change.batch_sn
