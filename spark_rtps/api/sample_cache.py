"""The samples of one subscription, from their arrival until they are taken (DDS 1.4 §2.2.2.5.3).

No lock, no clock, no network: frames in, frames out, and the time is a parameter. It works on whole runs and on arrays
of samples, never on one sample.

A sample leaves the cache when it is taken, when its LIFESPAN is over, or when HISTORY KEEP_LAST has newer ones of its
instance. A sample that was read stays, as long as no more than ``read_bytes_max`` of such are kept.

Invariants:
* ``_read`` and ``_unread`` are in the order of arrival, and all samples of the one arrived before all of the other:
  reading begins with the oldest sample that is unread, and reading a part of an entry divides it;
* ``nbytes`` is the memory of all entries;
* no entry is empty.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ..transport.log.frame import Frame
from ..transport.structure import INFINITE, Guid
from ..transport.types.cdr.cursors import gather_bytes
from ..transport.value_classes import slotted
from ..transport.wire.samples import DISPOSED, I64, NO_TIMESTAMP, SAMPLE_INDEX, UNREGISTERED, Run

_STATE_CHANGE: Final = DISPOSED | UNREGISTERED
#: A timestamp plus this fits 64 bits.
_LIFESPAN_MAX: Final = 1 << 61
#: Bytes of the Python objects of an entry.
_OBJECTS: Final = 512
#: HISTORY is applied when so many samples have come since the last time, or when samples are read or taken.
_UNBOUNDED_MAX: Final = 4096


@slotted
class _CachedRun:
    """A run in the cache, and what is known of all its samples."""

    frame: Frame
    nbytes: int
    #: Instance of each sample; None where the topic has no key.
    instances: I64 | None
    #: When each sample expires, ns since the epoch; None: never.
    expires: I64 | None

    @property
    def run(self) -> Run:
        return self.frame.run


@slotted
class Lent:
    """Samples that were handed out; :meth:`SampleCache.give_back` undoes that."""

    #: Those that were read before come first.
    entries: list[_CachedRun]
    #: How many of the entries were read before.
    read: int
    #: Whether they left the cache.
    removed: bool
    #: Samples that left the cache because these were read.
    forgotten: list[_CachedRun] = field(default_factory=list)

    @property
    def frames(self) -> list[Frame]:
        """In the order of arrival."""
        return [entry.frame for entry in self.entries]

    @property
    def samples(self) -> int:
        return sum(entry.run.count for entry in self.entries)


class SampleCache:
    """The samples that wait, or were read and not taken; see the module's text."""

    def __init__(self, *, depth: int = INFINITE, read_bytes_max: int = 1 << 62) -> None:
        """``depth`` is that of HISTORY KEEP_LAST, INFINITE is KEEP_ALL."""
        self.nbytes = 0
        #: Samples that HISTORY replaced by newer ones before they were taken.
        self.replaced = 0
        #: Samples whose LIFESPAN was over before they were taken.
        self.expired = 0
        #: Read samples that were dropped to free space.
        self.forgotten = 0
        self._depth = depth
        self._read_bytes_max = read_bytes_max
        self._read: deque[_CachedRun] = deque()
        self._unread: deque[_CachedRun] = deque()
        self._read_bytes = 0
        self._unbounded = 0
        self._kept = 0
        self._next_expiry = INFINITE

    def __len__(self) -> int:
        return sum(entry.run.count for entry in self._entries())

    # --- in -------------------------------------------------------------------------------------------

    def add_frames(self, frames: list[Frame], instances: list[I64] | None, lifespans: list[int]) -> None:
        """Add arrived frames.

        Args:
            frames: runs that own their memory, in the order of their arrival.
            instances: for each frame the instances of its samples, (count,) int64; None where there is no key.
            lifespans: for each frame the LIFESPAN of its writer, ns; INFINITE: its samples never expire.
        """
        entries = [
            _CachedRun(
                frame,
                memory_of(frame.run),
                None if instances is None else instances[i],
                None if lifespans[i] >= INFINITE else _expiries(frame, lifespans[i]),
            )
            for i, frame in enumerate(frames)
        ]
        ends = [int(entry.expires.min()) for entry in entries if entry.expires is not None]
        nbytes, count = sum(entry.nbytes for entry in entries), sum(frame.run.count for frame in frames)
        self._unread.extend(entries)  # all of them, or none after an error
        self._next_expiry = min([self._next_expiry, *ends])
        self.nbytes += nbytes
        self._unbounded += count

    def bound_if_due(self) -> None:
        """Apply HISTORY KEEP_LAST if many samples have arrived since the last time."""
        if self._unbounded > max(_UNBOUNDED_MAX, 2 * self._kept):
            self.bound()

    # --- out ------------------------------------------------------------------------------------------

    def read_samples(self, count: int, *, unread: bool, skip: int = 0) -> Lent:
        """Up to ``count`` samples, oldest first, which stay, and count as read from now on.

        ``unread``: only samples that were not read before; otherwise the first ``skip`` of the read ones are skipped.
        """
        self.bound()
        found: list[_CachedRun] = []
        if not unread:
            for entry in self._read:
                first, last = min(skip, entry.run.count), min(skip + count, entry.run.count)
                if first < last:
                    found.append(_part(entry, first, last))
                skip -= first
                count -= last - first
        lent = Lent(found, len(found), removed=False)
        fresh = self._leaving(self._unread, count)
        self._read.extend(fresh)
        found += fresh
        try:
            self._read_bytes += sum(entry.nbytes for entry in fresh)
            self._forget(lent)
        except BaseException:
            self.give_back(lent)
            raise
        return lent

    def _forget(self, lent: Lent) -> None:
        """Drop the oldest read samples beyond the limit."""
        while self._read_bytes > self._read_bytes_max:
            lent.forgotten.append(self._read[0])
            entry = self._read.popleft()
            self._read_bytes -= entry.nbytes
            self.nbytes -= entry.nbytes
            self.forgotten += entry.frame.run.count

    def take_samples(self, count: int, *, unread: bool) -> Lent:
        """Up to ``count`` samples, oldest first, which leave; ``unread``: only samples that were not read before."""
        self.bound()
        found = [] if unread else self._leaving(self._read, count)
        lent = Lent(found, len(found), removed=True)
        try:
            read = sum(entry.nbytes for entry in found)
            found += self._leaving(self._unread, count - lent.samples)
            nbytes = sum(entry.nbytes for entry in found)
        except BaseException:
            self.give_back(lent)
            raise
        self._read_bytes -= read
        self.nbytes -= nbytes
        return lent

    def give_back(self, lent: Lent) -> None:
        """Put lent samples back where they were: they did not reach the program."""
        self._unbounded += lent.samples  # newer samples may have come meanwhile
        here = set(map(id, self._entries()))
        gone = [
            entry for entry in (lent.entries if lent.removed else lent.forgotten) if id(entry) not in here
        ]
        ends = [int(entry.expires.min()) for entry in gone if entry.expires is not None]
        self._next_expiry = min([self._next_expiry, *ends])
        if not lent.removed:
            self.forgotten -= sum(entry.run.count for entry in gone)
        read, waiting = [*self._read, *gone], list(self._unread)
        if len(lent.entries) > lent.read:
            # Another thread may have read samples that arrived later: they are unread again, too.
            first = lent.entries[lent.read].frame.rows_before
            waiting += [entry for entry in read if entry.frame.rows_before >= first]
            read = [entry for entry in read if entry.frame.rows_before < first]
        self._read = deque(sorted(read, key=_arrival))
        self._unread = deque(sorted(waiting, key=_arrival))
        self._count_bytes()

    def drop(self, writer: Guid, number: int) -> None:
        """Drop one sample."""
        keep = [
            np.ones(entry.run.count, np.bool_)
            if entry.run.writer != writer
            else entry.run.sequence_numbers() != number
            for entry in self._entries()
        ]
        if keep:
            self._filter(np.concatenate(keep))

    def bound(self) -> None:
        """Apply HISTORY KEEP_LAST to the samples since the last time."""
        if self._depth == INFINITE or not self._unbounded:
            return
        entries = self._entries()
        if not entries:
            self._unbounded = 0
            return
        changes = [entry.run.sample_flags() & _STATE_CHANGE != 0 for entry in entries]
        change = np.concatenate(changes)
        known = [
            np.zeros(entry.run.count, np.int64) if entry.instances is None else entry.instances
            for entry in entries
        ]
        instance = np.concatenate(known)
        # the end of an instance replaces nothing but an earlier end of it
        rank = _ranks_from_end(2 * instance + change)
        keep = (rank < np.where(change, 1, self._depth)) | (instance < 0)
        before = len(keep)
        self._filter(keep)
        self._unbounded = 0
        self._kept = int(np.count_nonzero(keep))
        self.replaced += before - self._kept

    def expire(self, now: int) -> int:
        """Drop the samples whose LIFESPAN is over; ``now`` is ns since the epoch. Returns how many."""
        if now < self._next_expiry:
            return 0
        keep = [
            np.ones(entry.run.count, np.bool_) if entry.expires is None else entry.expires > now
            for entry in self._entries()
        ]
        kept = np.concatenate(keep) if keep else np.ones(0, np.bool_)
        gone = len(kept) - int(np.count_nonzero(kept))
        self._filter(kept)
        self.expired += gone
        ends = [int(entry.expires.min()) for entry in self._entries() if entry.expires is not None]
        self._next_expiry = min(ends, default=INFINITE)
        return gone

    @property
    def next_expiry(self) -> int:
        """When :meth:`expire` is next due, ns since the epoch; INFINITE: never."""
        return self._next_expiry

    # --- inside ---------------------------------------------------------------------------------------

    def _entries(self) -> list[_CachedRun]:
        """All of them, in the order of arrival."""
        return [*self._read, *self._unread]

    def _leaving(self, entries: deque[_CachedRun], count: int) -> list[_CachedRun]:
        """The first entries, ``count`` samples in all, which leave the deque; the last one may be divided.

        If something goes wrong, none leaves.
        """
        found: list[_CachedRun] = []
        rest: _CachedRun | None = None
        more = 0
        for entry in entries:
            if count <= 0:
                break
            if entry.frame.run.count > count:
                first, rest = _part(entry, 0, count), _part(entry, count, entry.frame.run.count)
                more = first.nbytes + rest.nbytes - entry.nbytes
                entry = first
            found.append(entry)
            count -= entry.frame.run.count
        for _ in found:
            entries.popleft()
        if rest is not None:
            entries.appendleft(rest)
            self._resize(entries, more)
        return found

    def _filter(self, keep: npt.NDArray[np.bool_]) -> None:
        """Drop the samples where ``keep`` is false; it covers all samples, in order."""
        if keep.all():
            return
        at = 0
        left: list[deque[_CachedRun]] = []
        for entries in (self._read, self._unread):
            kept: deque[_CachedRun] = deque()
            for entry in entries:
                part = keep[at : at + entry.run.count]
                at += entry.run.count
                if part.all():
                    kept.append(entry)
                elif part.any():
                    kept.append(_selected(entry, part))
            left.append(kept)
        self._read, self._unread = left
        self._count_bytes()

    def _count_bytes(self) -> None:
        self._read_bytes = sum(entry.nbytes for entry in self._read)
        self.nbytes = self._read_bytes + sum(entry.nbytes for entry in self._unread)

    def _resize(self, entries: deque[_CachedRun], more: int) -> None:
        """Add ``more`` bytes to the size of this deque's entries."""
        self.nbytes += more
        if entries is self._read:
            self._read_bytes += more


def _arrival(entry: _CachedRun) -> int:
    return entry.frame.rows_before


def memory_of(run: Run) -> int:
    """Bytes that a run keeps in memory, its Python objects included: a run may be one small sample."""
    return _OBJECTS + run.data.nbytes + (0 if run.index is None else run.index.nbytes)


def _expiries(frame: Frame, lifespan: int) -> I64 | None:
    """When each sample expires; the end of an instance never does."""
    run = frame.run
    stamps = run.timestamps()
    stamps[stamps == NO_TIMESTAMP] = frame.reception
    # A sample stamped ahead of its reception would otherwise stay until the time of its stamp.
    np.minimum(stamps, frame.reception, out=stamps)
    stamps += min(lifespan, _LIFESPAN_MAX)
    changes = run.sample_flags() & _STATE_CHANGE != 0
    stamps[changes] = INFINITE
    return stamps


def _part(entry: _CachedRun, first: int, last: int) -> _CachedRun:
    frame = entry.frame
    run = frame.run.take_range(first, last)
    return _CachedRun(
        Frame(frame.position, frame.length, frame.reception, frame.rows_before + first, run),
        memory_of(run),
        None if entry.instances is None else entry.instances[first:last],
        None if entry.expires is None else entry.expires[first:last],
    )


def _selected(entry: _CachedRun, keep: npt.NDArray[np.bool_]) -> _CachedRun:
    """Some samples of an entry, copied: otherwise a single sample would keep the whole run in memory."""
    frame, first = entry.frame, int(np.flatnonzero(keep)[0])
    run = frame.run.select(keep)
    assert run is not None
    run = _packed(run)
    return _CachedRun(
        Frame(frame.position, frame.length, frame.reception, frame.rows_before + first, run),
        memory_of(run),
        None if entry.instances is None else entry.instances[keep],
        None if entry.expires is None else entry.expires[keep],
    )


def _packed(run: Run) -> Run:
    """The run without the bytes between its payloads."""
    if run.stride:
        return run.copy()
    assert run.index is not None
    samples = run.samples()
    lengths = samples.all_lengths()
    padded = (lengths + 3) & -4
    starts = np.minimum(samples.all_offsets(), len(samples.data) - padded)
    if (starts < samples.all_offsets()).any():  # the padding of the last one lies outside
        return run.copy()
    index = run.index.copy()
    index["offset"] = np.cumsum(padded) - padded
    return replace(run, data=gather_bytes(samples.data, starts, padded), index=index.view(SAMPLE_INDEX))


def _ranks_from_end(groups: I64) -> I64:
    """For each element, how many elements of its group come after it."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    last = np.append(ordered[1:] != ordered[:-1], True)
    stops = np.flatnonzero(last)
    ranks = np.repeat(stops, np.diff(np.concatenate(([-1], stops)))) - np.arange(len(groups))
    found = np.empty(len(groups), np.int64)
    found[order] = ranks
    return found
