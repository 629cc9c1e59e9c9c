"""Instances of a topic: the samples of a run grouped by key, and a bounded table with a row for each instance.

Groups are ranges of positions sorted by instance, so that a rule "per instance" is one pass over an array, whatever the
number of instances. Only the look-up of a key's table row is a step per distinct instance.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..value_classes import slotted
from ..wire.samples import I64, U8

Bools = npt.NDArray[np.bool_]

_FIRST_ROWS: Final = 16


@slotted
class Groups:
    """Positions in a run, sorted by instance; those of one instance stay in their order."""

    positions: I64
    #: The group of each position, ascending from 0.
    group: I64
    #: The key of each group, (groups, 16).
    keys: U8

    @classmethod
    def group_by_key(cls, positions: I64, keys: U8 | None) -> Groups:
        """Group ``positions``; ``keys`` (n, 16) are theirs, None: all one instance."""
        one_group = np.zeros(len(positions), np.int64)
        if keys is None:
            return cls(positions, one_group, np.zeros((1, 16), np.uint8))
        words = np.ascontiguousarray(keys).view(np.uint64)
        if (words == words[0]).all():
            return cls(positions, one_group, keys[:1])
        order = np.lexsort((words[:, 1], words[:, 0]))
        words = words[order]
        begins = np.concatenate(([True], (words[1:] != words[:-1]).any(axis=1)))
        return cls(positions[order], np.cumsum(begins) - 1, keys[order[begins]])

    def filter(self, keep: Bools) -> Groups:
        """Only the positions where ``keep`` is true; groups keep their numbers."""
        return Groups(self.positions[keep], self.group[keep], self.keys)

    def starts(self) -> I64:
        """Where each group that is not empty begins."""
        if not len(self.group):
            return np.zeros(0, np.int64)
        return np.concatenate(([0], np.flatnonzero(np.diff(self.group)) + 1))

    def stops(self) -> I64:
        """Where each group that is not empty ends."""
        return np.append(self.starts(), len(self.group))[1:]

    def ranks(self) -> I64:
        """For each position, the number of positions of its group before it."""
        starts = self.starts()
        sizes = np.diff(np.append(starts, len(self.group)))
        return np.arange(len(self.group)) - np.repeat(starts, sizes)

    def ranks_from_end(self) -> I64:
        """For each position, the number of positions of its group behind it."""
        starts, stops = self.starts(), self.stops()
        return np.repeat(stops, stops - starts) - 1 - np.arange(len(self.group))


class InstanceTable:
    """A row of values for each known instance, at most ``limit`` of them.

    The owner releases instances that it no longer needs; a released one stays known until its row is needed.
    Invariant: ``ids`` has each key once; a row is in use iff its key is in ``ids``.
    """

    def __init__(self, limit: int, initial: npt.NDArray[Any]) -> None:
        """``initial``: structured array of one element, the row of a new instance."""
        self.limit = limit
        self.rows: npt.NDArray[Any] = np.repeat(initial, _FIRST_ROWS)
        self._initial = initial
        self._ids: dict[bytes, int] = {}
        self._keys: list[bytes] = []
        self._released: dict[int, None] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def used(self) -> npt.NDArray[Any]:
        """The rows of all instances known; a view."""
        return self.rows[: len(self._keys)]

    @property
    def alive(self) -> int:
        """Instances that were not released."""
        return len(self._keys) - len(self._released)

    def find(self, keys: U8) -> I64:
        """The rows of these distinct instances; new ones are added, -1 where the table is full."""
        names = np.ascontiguousarray(keys).view("V16").ravel().tolist()
        found = [self._ids.get(name, -1) for name in names]
        if -1 in found or self._released:
            for row in found:
                self._released.pop(row, None)
            found = [self._add(name) if row < 0 else row for name, row in zip(names, found, strict=True)]
        return np.array(found, np.int64)

    def release(self, rows: Iterable[int]) -> None:
        """Allow these instances to be forgotten when the table is full."""
        self._released.update(dict.fromkeys(rows))

    def _add(self, key: bytes) -> int:
        row = len(self._keys)
        if row < self.limit:
            self._keys.append(key)
            if row == len(self.rows):
                self.rows = np.concatenate((self.rows, np.repeat(self._initial, row)))
        elif self._released:
            row = next(iter(self._released))
            del self._released[row]
            del self._ids[self._keys[row]]
            self._keys[row] = key
        else:
            return -1
        self._ids[key] = row
        self.rows[row] = self._initial[0]
        return row


def running_maximum(values: I64, group: I64) -> I64:
    """For each value, the maximum of its group up to it."""
    if not len(values) or group[0] == group[-1]:
        return np.maximum.accumulate(values)
    # Ranks instead of values, so that a group's number and the rank fit one integer.
    distinct, rank = np.unique(values, return_inverse=True)
    highest = np.maximum.accumulate(group * len(distinct) + rank) - group * len(distinct)
    return distinct[highest]


def separated(groups: Groups, values: I64, thresholds: I64, separation: int) -> Bools:
    """Which values to keep: each at least ``separation`` above the one kept before it in its group.

    ``thresholds``: for each group that is not empty, the least value that is kept first. ``values`` plus
    ``separation`` must fit 64 bits.
    """
    count = len(values)
    highest = running_maximum(values, groups.group)
    distinct, rank = np.unique(highest, return_inverse=True)
    starts, stops = groups.starts(), groups.stops()
    width = len(distinct) + 1
    ladder = groups.group * width + rank  # rises all the way

    def first_from(lowest: I64, group: I64, stop: I64) -> I64:
        """The first position of the group whose value reaches ``lowest``; ``count``: none."""
        at = np.searchsorted(ladder, group * width + np.searchsorted(distinct, lowest))
        return np.where(at < stop, at, count)

    # Each value points to the next one to keep; the values reached from the first ones are kept.
    stop_of = np.repeat(stops, stops - starts)
    jump = np.append(first_from(values + separation, groups.group, stop_of), count)
    kept = np.zeros(count + 1, np.bool_)
    kept[first_from(thresholds, groups.group[starts], stops)] = True
    for _ in range(count.bit_length()):  # the steps double each time
        kept[jump[kept]] = True
        jump = jump[jump]
    return kept[:count]
