"""A writer's history: what can still be sent again (RTPS 2.5 §8.4.8, DDS 1.4 §2.2.3.18).

A :class:`Change` is a stretch of samples already framed for the wire, or one sample too large for a datagram.

Invariants: changes are sorted, disjoint, and hold only numbers that may be sent; a number at or below
``last_sn`` that no change holds is irrelevant (a GAP). What a matched reliable reader has not acknowledged is
never dropped, replaced or not, before its LIFESPAN is over: KEEP_LAST decides what late joiners find, the send
window what is in flight. Nothing whose LIFESPAN is over is found.
A change cut down to little is copied out of its block, so at most four times the live bytes are held.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ...qos import LENGTH_UNLIMITED, HistoryKind, Qos
from ...structure import ENTITYID_UNKNOWN, INFINITE
from ...wire.framing import Block
from ...wire.numbers import SequenceNumberSet
from ...wire.parameters import (
    PID_COHERENT_SET,
    PID_KEY_HASH,
    PID_STATUS_INFO,
    ParameterList,
    encode_sequence_number,
    encode_status_info,
)
from ...wire.samples import DISPOSED, FILTERED, KEY_ONLY, NO_TIMESTAMP, U8, UNREGISTERED
from ...wire.submessages import DataFrag
from ..intervals import IntervalSet
from .batch_content import BatchContent, MissingSamples

U32 = npt.NDArray[np.uint32]

_COMPACT_BELOW: Final = 4
#: Of readerId in a DATA submessage (RTPS 2.5 §9.4.5.4).
_READER_ID_OFFSET: Final = 8


@dataclass(frozen=True, slots=True)
class LargeSample:
    """A sample that travels as DATA_FRAGs of ``fragment_size`` bytes each."""

    payload: U8
    fragment_size: int
    flags: int
    key_hash: bytes | None
    coherent_set: int = 0

    @property
    def fragments(self) -> int:
        return -(-self.payload.nbytes // self.fragment_size)

    def encode(self, writer_id: bytes, sn: int, number: int, reader_id: bytes = ENTITYID_UNKNOWN) -> bytes:
        """The DATA_FRAG submessage of fragment ``number`` (from 1)."""
        start = (number - 1) * self.fragment_size
        piece = memoryview(self.payload)[start : start + self.fragment_size]
        return DataFrag(
            reader_id,
            writer_id,
            sn,
            number,
            1,
            self.fragment_size,
            self.payload.nbytes,
            piece,
            self._inline_qos(),
            bool(self.flags & KEY_ONLY),
        ).encode()

    def _inline_qos(self) -> ParameterList | None:
        parameters = []
        if self.key_hash is not None:
            parameters.append((PID_KEY_HASH, self.key_hash))
        status = self.flags & (DISPOSED | UNREGISTERED | FILTERED)
        if status:
            parameters.append((PID_STATUS_INFO, encode_status_info(status)))
        if self.coherent_set:
            parameters.append((PID_COHERENT_SET, encode_sequence_number(self.coherent_set)))
        return ParameterList(tuple(parameters)) if parameters else None


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


@dataclass(frozen=True, slots=True)
class Change:
    """Samples first_sn..last_sn as they go on the wire, with their common source timestamp."""

    first_sn: int
    last_sn: int
    timestamp: int
    content: Block | LargeSample | BatchContent
    #: The last batch up to and including this change; 0: there is none.
    batch_sn: int = 0

    @property
    def count(self) -> int:
        return self.last_sn - self.first_sn + 1

    @property
    def units(self) -> int:
        """Samples, but a batch is one: it is acknowledged as one."""
        return 1 if isinstance(self.content, BatchContent) else self.count

    @property
    def nbytes(self) -> int:
        content = self.content
        if isinstance(content, LargeSample):
            return content.payload.nbytes
        if isinstance(content, BatchContent):
            return content.nbytes
        if content.count == self.last_sn - self.first_sn + 1:
            return content.data.nbytes
        return content.end_of(self.last_sn) - content.end_of(self.first_sn - 1)

    def cut(self, first: int, last: int) -> Change:
        """The part first..last, with memory of its own once it is small."""
        block = self.content
        if isinstance(block, LargeSample | BatchContent) or (first == self.first_sn and last == self.last_sn):
            return self
        part = Change(first, last, self.timestamp, block, self.batch_sn)
        if part.nbytes * _COMPACT_BELOW >= block.nbytes:
            return part
        before = block.end_of(first - 1)
        ends = block.ends
        if not isinstance(ends, int):
            ends = [block.end_of(sn) - before for sn in range(first, last + 1)]
        data = np.array(block.data[before : block.end_of(last)])
        return Change(first, last, self.timestamp, Block(first, last - first + 1, data, ends), self.batch_sn)


class WriterHistory:
    """The changes of one writer, kept as its QoS says."""

    def __init__(self, qos: Qos, first_sn: int = 1) -> None:
        self.last_sn = first_sn - 1
        self.samples = 0
        self.nbytes = 0
        #: Batches held, and the number of the newest one.
        self.batches = 0
        self.last_batch_sn = first_sn - 1
        self._for_late_joiners = qos.is_transient_local
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

    @property
    def first_sn(self) -> int:
        """The lowest number that can be sent; last_sn + 1 if there is none."""
        return self._changes[0].first_sn if self._changes else self.last_sn + 1

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
        i = bisect_left(self._changes, batch_sn, key=_batch_sn)
        while i < len(self._changes) and not isinstance(self._changes[i].content, BatchContent):
            i += 1
        return self._changes[i] if i < len(self._changes) else None

    @property
    def first_batch_sn(self) -> int:
        """The lowest batch that can be sent; last_batch_sn + 1 if there is none."""
        first = self.batch(0)
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
        spans: list[tuple[int, int]] = []
        for first, last in batches.ranges():
            while (change := self.batch(first)) is not None and change.batch_sn <= last:
                spans.append((change.first_sn, change.last_sn))
                first = change.batch_sn + 1
        return MissingSamples(max(next_sn, acked + 1), tuple(spans))

    @property
    def expired_before(self) -> int:
        """Samples with this source timestamp or an older one have outlived their LIFESPAN."""
        return self._expired

    def note_instances(self, first_sn: int, key_hashes: U8, flags: int | U32) -> None:
        """Which instances the newest samples, from ``first_sn`` on, belong to; costs by instance."""
        if not isinstance(flags, int):
            edges = [0, *(np.flatnonzero(flags[1:] != flags[:-1]) + 1).tolist(), len(flags)]
            for start, stop in itertools.pairwise(edges):
                self.note_instances(first_sn + start, key_hashes[start:stop], int(flags[start]))
            return
        if not (self._for_late_joiners and self._keep_last):
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
        if not self._for_late_joiners:
            self._drop(1, acknowledged)
        elif self._keep_last and not self._keyed:
            self._drop(1, min(acknowledged, self.last_sn - self._depth))
        elif self._keep_last:
            for first, last in list(self._replaced.within(1, acknowledged)):
                self._replaced.remove(first, last)
                self._drop(first, last)
            excess = self.samples - self._max_samples
            if self._max_samples != LENGTH_UNLIMITED and excess > 0:
                self._drop_oldest(excess, acknowledged)

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
        while over < len(self._changes) and self._is_over(self._changes[over]):
            self._account(self._changes[over], -1)
            over += 1
        del self._changes[:over]
        return samples - self.samples

    def get_timer(self) -> int | None:
        """When the LIFESPAN of the oldest change is over."""
        if not self.is_mortal or self._wall_offset is None or not self._changes:
            return None
        timestamp = self._changes[0].timestamp
        return None if timestamp == NO_TIMESTAMP else timestamp + self._lifespan - self._wall_offset

    def _is_over(self, change: Change) -> bool:
        return NO_TIMESTAMP != change.timestamp <= self._expired

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
        while i < len(self._changes) and self._is_over(self._changes[i]):
            i += 1
        return self._changes[i] if i < len(self._changes) else None

    def changes(self) -> Iterator[Change]:
        return iter(self._changes)


def _last_sn(change: Change) -> int:
    return change.last_sn


def _batch_sn(change: Change) -> int:
    return change.batch_sn
