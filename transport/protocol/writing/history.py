"""A writer's history: what can still be sent again (RTPS 2.5 §8.4.8, DDS 1.4 §2.2.3.18).

A :class:`Change` is a stretch of samples already framed for the wire, or one sample too large for a datagram.

Invariants: changes are sorted, disjoint, and hold only numbers that may be sent; a number at or below
``last_sn`` that no change holds is irrelevant (a GAP). What a matched reliable reader has not acknowledged is
never dropped, replaced or not, before its LIFESPAN is over: KEEP_LAST decides what late joiners find, the send
window what is in flight. Nothing whose LIFESPAN is over is found.
A change cut down to little is copied out of its block, so at most four times the live bytes are held.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ...limits import REORDER_RUNS_MAX
from ...qos import LENGTH_UNLIMITED, HistoryKind, Qos
from ...structure import INFINITE
from ...wire.framing import Block, Train
from ...wire.numbers import SequenceNumberSet
from ...wire.samples import NO_TIMESTAMP, U8, UNREGISTERED, stretches
from ..intervals import IntervalSet
from .batch_content import BatchContent, MissingSamples
from .large_sample import LargeSample

U32 = npt.NDArray[np.uint32]

_COMPACT_BELOW: Final = 4
#: Of readerId in a DATA submessage (RTPS 2.5 §9.4.5.4).
_READER_ID_OFFSET: Final = 8


def addressed_to(reader_id: bytes, block: Block, first: int, last: int) -> U8:
    """A copy of the submessages first..last with ``reader_id`` in them.

    A repair is for who asks for it, not for volatile readers of the same participant that were matched later.
    """
    data = np.array(np.frombuffer(block.slice(first, last), np.uint8))
    if isinstance(block.ends, int):
        starts = block.ends * np.arange(last - first + 1)
    else:
        ends = np.array([0, *block.ends])[first - block.first_sn : last - block.first_sn + 1]
        starts = ends - ends[0]
    data[(starts + _READER_ID_OFFSET)[:, None] + np.arange(4)] = np.frombuffer(reader_id, np.uint8)
    return data


@dataclass(slots=True)
class Change:
    """Samples first_sn..last_sn as they go on the wire, with their common source timestamp.

    Only their :class:`~.publication.Publication` moves what they hold, into its log and out of it.
    """

    first_sn: int
    last_sn: int
    timestamp: int
    content: Block | Train | LargeSample | BatchContent
    #: The last batch up to and including this change; 0: there is none.
    batch_sn: int = 0
    #: Its frame in the publication log: where it begins, -1 if it is not there; where the one behind it begins.
    start: int = -1
    position: int = 0
    #: It is being written yet (:mod:`.claims`).
    is_claimed: bool = False

    @property
    def count(self) -> int:
        return self.last_sn - self.first_sn + 1

    @property
    def newest(self) -> int:
        """The last sample's timestamp."""
        return self.content.newest if isinstance(self.content, BatchContent) else self.timestamp

    @property
    def units(self) -> int:
        """Samples, but a batch is one: it is acknowledged as one."""
        return 1 if isinstance(self.content, BatchContent) else self.count

    @property
    def nbytes(self) -> int:
        content = self.content
        if isinstance(content, LargeSample):
            return content.data.nbytes
        if isinstance(content, BatchContent):
            return content.nbytes
        if content.count == self.last_sn - self.first_sn + 1:
            return content.data.nbytes
        if isinstance(content, Train):
            return self.count * content.stride
        return content.end_of(self.last_sn) - content.end_of(self.first_sn - 1)

    def cut(self, first: int, last: int) -> Change:
        """The part first..last, with memory of its own once it is small."""
        block = self.content
        if isinstance(block, LargeSample | BatchContent) or (first == self.first_sn and last == self.last_sn):
            return self
        part = replace(self, first_sn=first, last_sn=last)
        if part.nbytes * _COMPACT_BELOW >= block.nbytes:
            return part
        if isinstance(block, Train):
            messages = block.part(first, last)
            messages.data = messages.data.copy()
            return replace(part, content=messages, start=-1)
        before = block.end_of(first - 1)
        ends = block.ends
        if not isinstance(ends, int):
            ends = [block.end_of(sn) - before for sn in range(first, last + 1)]
        data = np.array(block.data[before : block.end_of(last)])
        return replace(part, content=Block(first, last - first + 1, data, ends), start=-1)


class WriterHistory:
    """The changes of one writer, kept as its QoS says."""

    def __init__(self, qos: Qos, first_sn: int = 1) -> None:
        self.last_sn = first_sn - 1
        #: What was sent so far: the last number, the last batch.
        self.sent_sn = first_sn - 1
        self.sent_batch_sn = first_sn - 1
        self.samples = 0
        self.nbytes = 0
        #: Batches held, and the number of the newest one.
        self.batches = 0
        self.last_batch_sn = first_sn - 1
        #: TRANSIENT_LOCAL: what is written is kept for readers to come.
        self.is_for_late_joiners = qos.is_transient_local
        self._keep_last = qos.history is HistoryKind.KEEP_LAST
        self._depth = max(1, qos.history_depth)
        self._max_samples = qos.max_samples
        self._lifespan = qos.lifespan
        self.is_mortal = qos.lifespan < INFINITE
        #: Source timestamps minus ``now``, as of the newest one; those up to _expired are over.
        self._wall_offset: int | None = None
        self._expired = NO_TIMESTAMP
        self._changes: list[Change] = []
        # KEEP_LAST by instance: newest numbers of each key hash, and numbers replaced but not dropped yet
        self._keyed = False
        self._instances: dict[bytes, list[int]] = {}
        self._replaced = IntervalSet()
        #: What is noted of the open coherent set, which begins here: as long as it is open, it replaces nothing.
        self._set_begun = 0
        self._noted: list[tuple[int, U8, int | U32]] = []
        #: Newest numbers that are no samples, and the end marker of the last set.
        self._hollow = IntervalSet()
        self._end_marker = 0
        #: Sets that were given up, each with the number behind its last one.
        self._aborted = IntervalSet()
        #: Numbers that were never to be had, and that somebody may not know of.
        self._skipped = IntervalSet()

    @property
    def first_sn(self) -> int:
        """The lowest number that can be sent; last_sn + 1 if there is none."""
        return self._changes[0].first_sn if self._changes else self.last_sn + 1

    @property
    def first_announced(self) -> int:
        """The lowest number that HEARTBEATs tell of: what was skipped is no loss, so readers are to ask for it."""
        return min(self.first_sn, self._skipped.lowest[0]) if self._skipped else self.first_sn

    @property
    def room(self) -> int | None:
        """Samples that may be added under RESOURCE_LIMITS max_samples; None: any number."""
        if self._keep_last or self._max_samples == LENGTH_UNLIMITED:
            return None
        return max(0, self._max_samples - self.samples)

    def append(self, change: Change) -> None:
        """Add the next samples; ``change`` starts after ``last_sn``."""
        self._changes.append(change)
        self.last_sn = change.last_sn
        self._account(change, 1)

    def _account(self, change: Change, sign: int) -> None:
        """A change came, or goes."""
        content = change.content
        is_batch = isinstance(content, BatchContent)
        self.samples += sign * (content.live if isinstance(content, BatchContent) else change.count)
        self.nbytes += sign * change.nbytes
        self.batches += sign * is_batch

    def batch(self, batch_sn: int) -> Change | None:
        """The change that holds a batch, or the next one; None if there is none."""
        changes = self._changes
        i = bisect_left(changes, batch_sn, key=_batch_sn)
        while i < len(changes) and not isinstance(changes[i].content, BatchContent):
            # what followed a batch that is no more; the next one comes first of its number
            i = bisect_left(changes, changes[i].batch_sn + 1, i, key=_batch_sn)
        return changes[i] if i < len(changes) else None

    def first_batch_sn(self, first_sn: int) -> int:
        """The lowest batch from ``first_sn`` on that can be sent; last_batch_sn + 1 if there is none."""
        i = bisect_left(self._changes, first_sn, key=_first_sn)
        first = self._changes[i] if i < len(self._changes) else None
        if first is not None and not isinstance(first.content, BatchContent):
            first = self.batch(first.batch_sn + 1)
        return self.last_batch_sn + 1 if first is None else first.batch_sn

    def samples_of(self, batches: SequenceNumberSet, acked: int) -> MissingSamples:
        """What an ACKNACK_BATCH says in numbers of samples; ``acked`` is what its reader has at least."""
        # All that is known to have come is the batch before: samples behind it may have gone without a batch.
        before = self.batch(batches.base - 1)
        known = before is not None and before.batch_sn == batches.base - 1
        next_sn = before.last_sn + 1 if before is not None and known else acked + 1
        newest = self._changes[-1].content if self._changes else None
        if batches.base > self.last_batch_sn and (newest is None or isinstance(newest, BatchContent)):
            next_sn = self.last_sn + 1
        base = max(next_sn, acked + 1)
        spans = [
            span
            for first, last in batches.ranges()
            for span in self._spans(first, min(last, self.last_batch_sn))
        ]
        return MissingSamples(base, tuple(spans))

    def _spans(self, batch_sn: int, last_batch_sn: int) -> Iterator[tuple[int, int]]:
        """The samples of those batches, or the hole that is where a batch was."""
        changes, i = self._changes, 0
        while batch_sn <= last_batch_sn:
            i = bisect_left(changes, batch_sn, i, key=_batch_sn)
            here = changes[i] if i < len(changes) else None
            if here is not None and here.batch_sn == batch_sn and isinstance(here.content, BatchContent):
                yield here.first_sn, here.last_sn
                batch_sn += 1
                continue
            first = changes[i - 1].last_sn + 1 if i else 1
            last = self.last_sn if here is None else here.first_sn - 1
            if first <= last:
                yield first, last
            if here is None:
                return
            batch_sn = max(here.batch_sn, batch_sn + 1)

    # --- coherent sets --------------------------------------------------------------------------

    def begin_set(self) -> None:
        self._set_begun = self.last_sn + 1

    def end_set(self) -> None:
        self._set_begun = 0
        noted, self._noted = self._noted, []
        for first_sn, key_hashes, flags in noted:
            self.note_instances(first_sn, key_hashes, flags)

    def abort_set(self) -> int:
        """Drop the open set, and skip a number, so that every reader lacks something of it; returns that."""
        while self._changes and self._changes[-1].first_sn >= self._set_begun:
            self._account(self._changes.pop(), -1)
        self.last_sn += 1
        self._aborted.add(self._set_begun, self.last_sn)
        if len(self._aborted) > REORDER_RUNS_MAX:
            self._aborted.remove(*self._aborted.lowest)
        self.note_skipped(self._set_begun, self.last_sn)
        self._noted.clear()
        self._set_begun = 0
        return self.last_sn

    def divide(self, change: Change, parts: Sequence[Change]) -> None:
        """Two changes stand for that one from now on, if it is held."""
        i = bisect_left(self._changes, change.first_sn, key=_first_sn)
        if i < len(self._changes) and self._changes[i] is change:
            self._changes[i : i + 1] = parts

    def withdraw(self, change: Change) -> None:
        """A claim was given up: its number will never come."""
        i = bisect_left(self._changes, change.first_sn, key=_first_sn)
        if i < len(self._changes) and self._changes[i] is change:
            del self._changes[i]
            self._account(change, -1)
        self.note_skipped(change.first_sn, change.last_sn)

    def note_end_marker(self, sn: int) -> None:
        """``sn`` ends a set; it replaces the marker before, for what follows that ends its set, too."""
        self.note_hollow(sn, sn)
        if self.is_for_late_joiners and self._keep_last and self._end_marker:
            self._replaced.add(self._end_marker, self._end_marker)
        self._end_marker = sn

    def note_skipped(self, first_sn: int, last_sn: int) -> None:
        """Those newest numbers will never come."""
        self.note_hollow(first_sn, last_sn)
        self._skipped.add(first_sn, last_sn)

    def note_hollow(self, first_sn: int, last_sn: int) -> None:
        """Those newest numbers are no samples."""
        if self.is_for_late_joiners and self._keep_last:
            self._hollow.add(first_sn, last_sn)

    def start_of_gap(self, sn: int) -> int:
        """Where a GAP begins that tells of ``sn``: a set that was given up is told of as a whole."""
        aborted = self._aborted.around(sn)
        return sn if aborted is None else aborted[0]

    @property
    def expired_before(self) -> int:
        """Samples with this source timestamp or an older one have outlived their LIFESPAN."""
        return self._expired

    def note_instances(self, first_sn: int, key_hashes: U8, flags: int | U32) -> None:
        """Which instances the newest samples, from ``first_sn`` on, belong to; costs by instance."""
        if not isinstance(flags, int):
            for start, stop in stretches(flags[1:] != flags[:-1]):
                self.note_instances(first_sn + start, key_hashes[start:stop], int(flags[start]))
            return
        if not (self.is_for_late_joiners and self._keep_last):
            return
        if self._set_begun:
            self._noted.append((first_sn, key_hashes.copy(), flags))
            return
        self._keyed = True
        count = len(key_hashes)
        keys = np.ascontiguousarray(key_hashes).view("V16").reshape(count)
        unique, instance = np.unique(keys, return_inverse=True)
        order = np.argsort(instance, kind="stable")  # by instance, oldest first
        ends = np.cumsum(np.bincount(instance, minlength=len(unique)))
        start = 0
        for key, stop in zip(unique, ends.tolist(), strict=True):
            fresh = order[max(start, stop - self._depth) : stop]
            # what an instance's own later samples of this batch replaced
            self._replace(first_sn + order[start : stop - len(fresh)])
            start = stop
            numbers = [*self._instances.get(key.tobytes(), ()), *(first_sn + fresh).tolist()]
            keep = 0 if flags & UNREGISTERED else self._depth
            self._replace(np.array(numbers[: max(0, len(numbers) - keep)], np.int64))
            if flags & UNREGISTERED:  # the instance is forgotten: late joiners need not hear of it
                self._instances.pop(key.tobytes(), None)
            else:
                self._instances[key.tobytes()] = numbers[-self._depth :]

    def _replace(self, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        """Note replaced numbers, ascending, one interval per stretch."""
        if not len(numbers):
            return
        breaks = np.flatnonzero(np.diff(numbers) != 1)
        firsts = numbers[np.concatenate(([0], breaks + 1))]
        lasts = numbers[np.concatenate((breaks, [len(numbers) - 1]))]
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            self._replaced.add(first, last)

    def trim(self, acknowledged: int) -> None:
        """Drop what every matched reader has acknowledged (``acknowledged``) and QoS does not keep."""
        if self._skipped:
            self._skipped.remove(0, acknowledged)
        if not self.is_for_late_joiners:
            self._drop(1, acknowledged)
        elif self._keep_last and not self._keyed:
            self._drop(1, min(acknowledged, self._newest_replaced()))
        elif self._keep_last:
            for first, last in list(self._replaced.within(1, acknowledged)):
                self._replaced.remove(first, last)
                self._drop(first, last)
            excess = self.samples - self._max_samples
            if self._max_samples != LENGTH_UNLIMITED and excess > 0:
                self._drop_oldest(excess, acknowledged)

    def _newest_replaced(self) -> int:
        """Above it are ``depth`` samples; of an open set none counts yet."""
        newest = below = (self._set_begun or self.last_sn + 1) - 1 - self._depth
        while self._hollow:
            hollow = sum(
                last - first + 1 for first, last in self._hollow.within(below + 1, newest + self._depth)
            )
            if newest - hollow == below:
                self._hollow.remove(0, below)
                break
            below = newest - hollow
        return below

    def note_time(self, timestamp: int, now: int) -> None:
        """A source timestamp, ns since the epoch, was given at ``now``: so the wall clock is known."""
        if timestamp != NO_TIMESTAMP:
            self._wall_offset = timestamp - now

    def expire(self, now: int) -> int:
        """Drop what has outlived its LIFESPAN, oldest first; returns how many samples that was.

        What lies behind a sample with a later timestamp waits for it, but is found no more.
        """
        if not self.is_mortal or self._wall_offset is None:
            return 0
        self._expired = now + self._wall_offset - self._lifespan
        over, samples = 0, self.samples
        while over < len(self._changes) and self.is_over(self._changes[over]):
            self._account(self._changes[over], -1)
            over += 1
        del self._changes[:over]
        if self._changes and isinstance(content := self._changes[0].content, BatchContent):
            self._account(self._changes[0], -1)
            content.expire(self._expired)
            self._account(self._changes[0], 1)
        return samples - self.samples

    def get_timer(self) -> int | None:
        """When the LIFESPAN of the oldest change is over."""
        if not self.is_mortal or self._wall_offset is None or not self._changes:
            return None
        timestamp = self._changes[0].newest
        return None if timestamp == NO_TIMESTAMP else timestamp + self._lifespan - self._wall_offset

    def is_over(self, change: Change) -> bool:
        """Whether its LIFESPAN is over."""
        return NO_TIMESTAMP != change.newest <= self._expired

    def _drop(self, first: int, last: int) -> None:
        changes = self._changes
        i = low = bisect_left(changes, first, key=_last_sn)
        kept: list[Change] = []
        while i < len(changes) and changes[i].first_sn <= last:
            change = changes[i]
            self._account(change, -1)
            if isinstance(change.content, BatchContent):
                whole = first <= change.first_sn and change.last_sn <= last
                if not whole and change.content.remove(first, last):
                    kept.append(change)
                i += 1
                continue
            if change.first_sn < first:
                kept.append(change.cut(change.first_sn, first - 1))
            if change.last_sn > last:
                kept.append(change.cut(last + 1, change.last_sn))
            i += 1
        if i > low:
            changes[low:i] = kept
            for change in kept:
                self._account(change, 1)

    def _drop_oldest(self, excess: int, acknowledged: int) -> None:
        while excess > 0 and self._changes and self._changes[0].first_sn <= acknowledged:
            oldest = self._changes[0]
            if isinstance(oldest.content, BatchContent):
                excess -= oldest.content.live
                self._drop(oldest.first_sn, oldest.last_sn)
                continue
            last = min(oldest.last_sn, oldest.first_sn + excess - 1, acknowledged)
            excess -= last - oldest.first_sn + 1
            self._drop(oldest.first_sn, last)

    def find(self, sn: int) -> Change | None:
        """The change that holds ``sn``, or the next higher one; None if there is none."""
        i = bisect_left(self._changes, sn, key=_last_sn)
        while i < len(self._changes) and self.is_over(self._changes[i]):
            i += 1
        return self._changes[i] if i < len(self._changes) else None

    def changes(self) -> Iterator[Change]:
        return iter(self._changes)

    def changes_from(self, sn: int) -> Iterator[Change]:
        """The changes that end at ``sn`` or behind it."""
        for i in range(bisect_left(self._changes, sn, key=_last_sn), len(self._changes)):
            yield self._changes[i]

    def all_sent(self) -> None:
        """Nothing waits to be sent."""
        self.sent_sn, self.sent_batch_sn = self.last_sn, self.last_batch_sn


def _first_sn(change: Change) -> int:
    return change.first_sn


def _last_sn(change: Change) -> int:
    return change.last_sn


def _batch_sn(change: Change) -> int:
    return change.batch_sn
