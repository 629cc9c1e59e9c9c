"""Applies a reader's QoS to samples between the protocol and the log (DDS 1.4 §2.2.3).

These rules apply to a run, in this order; each works on whole runs, and on groups of samples of one instance:

1. samples that the writer removed from their batch are dropped, unless they are wanted;
2. LIFESPAN of the writer: samples that are too old are dropped;
3. DESTINATION_ORDER BY_SOURCE_TIMESTAMP: samples stamped more than source_timestamp_tolerance ahead of their reception
   are dropped, as by RTI Connext: accepted, one would be the newest of its instance until that time comes;
4. RESOURCE_LIMITS max_instances: samples of instances beyond this limit are rejected;
5. OWNERSHIP EXCLUSIVE: samples of writers other than the owner are dropped;
6. DESTINATION_ORDER BY_SOURCE_TIMESTAMP: samples older than the newest of their instance are dropped;
7. TIME_BASED_FILTER: samples less than minimum_separation after the one before are dropped;
8. HISTORY KEEP_LAST: of a batch, all but the newest ``depth`` samples of an instance are lost;
9. RESOURCE_LIMITS max_samples_per_instance, max_samples: the samples of a batch beyond these limits are rejected.

The log takes samples as they arrive, so a cache never holds any. Rules 8 and 9 apply only to the samples of one batch,
because these arrive at once. Rejected samples count as received: no writer sends them again.

Changes of an instance's state (dispose, unregister) are exempt from rules 2 and 7: they do not age, and are no values.
A sample without a source timestamp counts as written when it was received. So does a sample that is stamped more than
source_timestamp_tolerance ahead, if only TIME_BASED_FILTER uses the time. Times of an instance that lie this far ahead
are forgotten: they show that the reader's clock was set back.

There are two clocks: ``reception`` is wall-clock time, like timestamps, and ``now`` is monotonic time, for DEADLINE.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Final

import numpy as np
import numpy.typing as npt

from ....limits import INSTANCES_MAX
from ....qos import DestinationOrderKind, HistoryKind, OwnershipKind, Qos
from ....structure import INFINITE, Guid
from ....value_classes import slotted
from ....wire.samples import DISPOSED, I64, NO_TIMESTAMP, REMOVED, U8, UNREGISTERED, Run
from ...deadlines import Deadlines
from ...instances import Bools, Groups, InstanceTable, running_maximum, separated
from .ownership import NOBODY, Ownership

_ROW: Final = np.dtype(
    [
        ("owner", "<i4"),
        ("lapsed", "?"),
        ("newest", "<i8"),  # source timestamp, for DESTINATION_ORDER
        ("passed", "<i8"),  # timestamp of the last sample that TIME_BASED_FILTER let through
        ("deadline", "<i8"),  # when it ends, monotonic
    ]
)
_NEW_ROW: Final = np.array([(NOBODY, False, NO_TIMESTAMP, NO_TIMESTAMP, INFINITE)], _ROW)
#: Longer than the time between any two timestamps; a timestamp plus this fits 64 bits.
_FOREVER: Final = 1 << 62
_STATE_CHANGE: Final = DISPOSED | UNREGISTERED


@slotted
class ReaderCacheCounters:
    """Samples that each rule dropped; the names are those of RTI's DATA_READER_CACHE_STATUS where it has the
    counter."""

    writer_removed_batch_sample_dropped_sample_count: int = 0
    expired_dropped_sample_count: int = 0
    tolerance_source_timestamp_dropped_sample_count: int = 0
    #: Samples for which TIME_BASED_FILTER used the reception time, because their own time lies too far ahead.
    refused_source_timestamp_sample_count: int = 0
    ownership_dropped_sample_count: int = 0
    old_source_timestamp_dropped_sample_count: int = 0
    time_based_filter_dropped_sample_count: int = 0
    lost_by_history: int = 0
    rejected_by_instances_limit: int = 0
    rejected_by_samples_limit: int = 0
    rejected_by_samples_per_instance_limit: int = 0
    requested_deadline_missed: int = 0
    #: Known instances that have a writer now; counted only if a rule needs the instances.
    alive_instance_count: int = 0

    def snapshot(self) -> dict[str, int]:
        return asdict(self)


class ReaderCache:
    """The rules of one reader; ``keys(run)`` returns (n, 16) key hashes; None: the topic has no key."""

    def __init__(
        self,
        qos: Qos,
        *,
        keys: Callable[[Run], U8] | None,
        writer_qos: Callable[[Guid], Qos | None],
        accept_writer_removed_batch_samples: bool = False,
    ) -> None:
        self.qos = qos
        self._counters = ReaderCacheCounters()
        self._keys = keys
        self._writer_qos = writer_qos
        self._accept_removed = accept_writer_removed_batch_samples
        self._instances = InstanceTable(min(qos.max_instances, INSTANCES_MAX), _NEW_ROW)
        exclusive = qos.ownership is OwnershipKind.EXCLUSIVE
        self._ownership = Ownership(self._instances, writer_qos, exclusive=exclusive)
        self._deadlines = Deadlines(qos.deadline, self._instances) if qos.deadline < INFINITE else None
        self._by_source = qos.destination_order is DestinationOrderKind.BY_SOURCE_TIMESTAMP
        self._tolerance = min(max(qos.source_timestamp_tolerance, 0), _FOREVER)
        self._separation = min(max(qos.time_based_filter, 0), _FOREVER)
        #: Whether a rule needs to know the instances.
        self._knows_instances = (
            exclusive
            or self._by_source
            or self._separation > 0
            or self._deadlines is not None
            or (keys is not None and qos.max_instances < INFINITE)
        )
        self._depth = qos.history_depth if qos.history is HistoryKind.KEEP_LAST else INFINITE

    @property
    def counters(self) -> ReaderCacheCounters:
        """The counters as they are now."""
        self._counters.alive_instance_count = self._instances.alive
        if self._deadlines is not None:
            self._counters.requested_deadline_missed = self._deadlines.missed
        return self._counters

    # --- writers and time ------------------------------------------------------------------------

    def writer_lost(self, guid: Guid) -> None:
        """A writer is unmatched, or lost its liveliness: it no longer owns instances, and the deadlines of the
        instances that it wrote last are no longer watched. Call this after the writer's delivered samples were
        accepted."""
        rows = self._ownership.lose(guid)
        self._instances.release(rows.tolist())
        if self._deadlines is not None:
            self._deadlines.stop(rows)

    def get_timer(self) -> int | None:
        """When :meth:`handle_timer` has to be called; None: never."""
        return None if self._deadlines is None else self._deadlines.get_timer()

    def handle_timer(self, now: int) -> None:
        if self._deadlines is not None:
            self._ownership.lapse(self._deadlines.handle_timer(now))

    # --- samples ---------------------------------------------------------------------------------

    def accept(self, run: Run, *, reception: int, now: int) -> Run | None:
        """The part of a run that goes to the log; None if none does."""
        writer_qos = self._writer_qos(run.writer)
        lifespan = INFINITE if writer_qos is None else writer_qos.lifespan
        may_be_removed = (
            run.batch_sn != 0
            and not self._accept_removed
            and (run.index is not None or run.flags & REMOVED != 0)
        )
        by_instance = self._knows_instances or (run.batch_sn != 0 and self._binds_batch(run.count))
        if not (may_be_removed or by_instance or lifespan < INFINITE):
            return run
        flags, counters = run.sample_flags(), self._counters
        keep = np.ones(run.count, np.bool_)
        if may_be_removed:
            keep = flags & REMOVED == 0
            counters.writer_removed_batch_sample_dropped_sample_count += _false(keep)
        if lifespan < INFINITE:
            stamps = run.timestamps()
            fresh = (stamps == NO_TIMESTAMP) | (stamps + min(lifespan, _FOREVER) > reception)
            fresh |= ~keep | (flags & _STATE_CHANGE != 0)
            counters.expired_dropped_sample_count += _false(fresh)
            keep &= fresh
        if self._by_source:
            near = ~keep | (run.timestamps() <= reception + self._tolerance)
            counters.tolerance_source_timestamp_dropped_sample_count += _false(near)
            keep &= near
        if by_instance:
            positions = np.flatnonzero(keep)
            if len(positions):
                keep[:] = False
                keep[self._accept_by_instance(run, positions, flags, reception, now)] = True
        return run if keep.all() else run.select(keep)

    def _binds_batch(self, count: int) -> bool:
        """Whether HISTORY or RESOURCE_LIMITS may let less than ``count`` samples of a batch through."""
        return min(self._depth, self.qos.max_samples, self.qos.max_samples_per_instance) < count

    def _accept_by_instance(
        self, run: Run, positions: I64, flags: npt.NDArray[np.uint32], reception: int, now: int
    ) -> I64:
        """The positions among these that pass the rules that look at instances."""
        groups = Groups.group_by_key(positions, None if self._keys is None else self._keys(run)[positions])
        if self._knows_instances:
            rows = self._instances.find(groups.keys)
            groups = self._own(run.writer, groups, rows, flags, now)
            if self._by_source or self._separation:
                stamps, latest = run.timestamps(), reception + self._tolerance
                stamps[stamps == NO_TIMESTAMP] = reception
                groups = self._order_by_source(groups, rows, stamps, latest)
                groups = self._separate(groups, rows, stamps, flags, reception)
        return self._bound_batch(groups) if run.batch_sn else groups.positions

    def _own(
        self, writer: Guid, groups: Groups, rows: I64, flags: npt.NDArray[np.uint32], now: int
    ) -> Groups:
        """RESOURCE_LIMITS max_instances and OWNERSHIP; ``rows`` are the rows of the groups, -1 if the table was
        full."""
        known = rows >= 0
        owned = known.copy()
        owned[known] = self._ownership.admits(writer, rows[known])
        self._counters.rejected_by_instances_limit += _false(known[groups.group])
        self._counters.ownership_dropped_sample_count += _false((owned | ~known)[groups.group])
        groups = groups.filter(owned[groups.group])
        if not len(groups.positions):
            return groups
        starts = groups.starts()
        rows = rows[groups.group[starts]]
        flags = flags[groups.positions]
        last = flags[groups.stops() - 1]
        leaves = last & UNREGISTERED != 0
        wrote = np.logical_or.reduceat(flags & UNREGISTERED == 0, starts)
        # A writer that does not own an instance, and did not write it just now, leaves no state.
        left = rows[leaves & (wrote | self._ownership.is_owner(writer, rows))]
        self._ownership.take_over(writer, rows[~leaves])
        self._ownership.give_up(left)
        self._instances.release(left.tolist())
        if self._deadlines is not None:
            disposed = ~leaves & (last & DISPOSED != 0)
            self._deadlines.stop(np.concatenate((left, rows[disposed])))
            self._deadlines.renew(rows[~leaves & ~disposed], now=now)
        return groups

    def _order_by_source(self, groups: Groups, rows: I64, stamps: I64, latest: int) -> Groups:
        """DESTINATION_ORDER BY_SOURCE_TIMESTAMP; samples of the same time pass."""
        if not self._by_source or not len(groups.positions):
            return groups
        newest = self._instances.rows["newest"]
        _forget(newest, rows[groups.group], latest)
        values = stamps[groups.positions]
        highest = running_maximum(values, groups.group)
        in_order = (values == highest) & (values >= newest[rows[groups.group]])
        self._counters.old_source_timestamp_dropped_sample_count += _false(in_order)
        ends = groups.stops() - 1
        changed = rows[groups.group[ends]]
        newest[changed] = np.maximum(newest[changed], highest[ends])
        return groups.filter(in_order)

    def _separate(
        self, groups: Groups, rows: I64, stamps: I64, flags: npt.NDArray[np.uint32], reception: int
    ) -> Groups:
        """TIME_BASED_FILTER."""
        is_value = flags[groups.positions] & _STATE_CHANGE == 0
        if not self._separation or not is_value.any():
            return groups
        passed, latest = self._instances.rows["passed"], reception + self._tolerance
        _forget(passed, rows[groups.group], latest)
        values = groups.filter(is_value)
        times = stamps[values.positions]
        ahead = times > latest
        self._counters.refused_source_timestamp_sample_count += int(np.count_nonzero(ahead))
        times[ahead] = reception
        thresholds = passed[rows[values.group[values.starts()]]] + self._separation
        kept = separated(values, times, thresholds, self._separation)
        self._counters.time_based_filter_dropped_sample_count += _false(kept)
        passing, times = values.filter(kept), times[kept]
        ends = passing.stops() - 1
        passed[rows[passing.group[ends]]] = times[ends]
        keep = ~is_value
        keep[is_value] = kept
        return groups.filter(keep)

    def _bound_batch(self, groups: Groups) -> I64:
        """HISTORY KEEP_LAST and the limits on samples, for the samples of a batch; returns what passes."""
        counters = self._counters
        if self._depth < INFINITE:
            newest = groups.ranks_from_end() < self._depth
            counters.lost_by_history += _false(newest)
            groups = groups.filter(newest)
        if self.qos.max_samples_per_instance < INFINITE:
            fits = groups.ranks() < self.qos.max_samples_per_instance
            counters.rejected_by_samples_per_instance_limit += _false(fits)
            groups = groups.filter(fits)
        positions = np.sort(groups.positions)
        if self.qos.max_samples < INFINITE:
            counters.rejected_by_samples_limit += max(0, len(positions) - self.qos.max_samples)
            positions = positions[: self.qos.max_samples]
        return positions


def _forget(times: I64, rows: I64, latest: int) -> None:
    """What these rows remember of times after ``latest``."""
    times[rows[times[rows] > latest]] = NO_TIMESTAMP


def _false(mask: Bools) -> int:
    return len(mask) - int(np.count_nonzero(mask))
