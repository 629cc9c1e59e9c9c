"""KEEP_LAST for readers to come: which numbers newer samples of their instances have replaced (DDS 1.4 §2.2.3.18).

A topic without key is one instance. Numbers are only noted here; the history drops the samples once every matched
reader has acknowledged them.

Invariant: while a coherent set is open nothing of it replaces anything; what is noted of it counts at its end.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....wire.samples import U8, UNREGISTERED, stretches
from ...instances import Groups
from ...intervals import IntervalSet
from ..state import WriterState

U32 = npt.NDArray[np.uint32]


class KeepLast:
    """The newest ``depth`` samples of each instance of one writer, by their numbers."""

    def __init__(self, state: WriterState, depth: int) -> None:
        self._state = state
        self._depth = depth
        #: Whether samples were written with key hashes.
        self.is_keyed = False
        #: The newest numbers of each key hash.
        self._instances: dict[bytes, list[int]] = {}
        #: Numbers replaced and not taken yet.
        self._replaced = IntervalSet()
        #: Where the open coherent set begins, and what is noted of it; 0: none is open.
        self._set_begun = 0
        self._noted: list[tuple[int, U8, int]] = []
        #: Newest numbers that are no samples, and the end marker of the last set.
        self._hollow = IntervalSet()
        self._end_marker = 0

    # --- what is written -------------------------------------------------------------------------

    def note_instances(self, first_sn: int, key_hashes: U8, flags: int | U32) -> None:
        """Note which instances the newest samples, from ``first_sn`` on, belong to; the cost is per instance."""
        if not isinstance(flags, int):
            for start, stop in stretches(flags[1:] != flags[:-1]):
                self.note_instances(first_sn + start, key_hashes[start:stop], int(flags[start]))
            return
        if self._set_begun:
            self._noted.append((first_sn, key_hashes.copy(), flags))
            return
        self.is_keyed = True
        groups = Groups.of(np.arange(len(key_hashes)), key_hashes)  # by instance, oldest first
        names = np.ascontiguousarray(groups.keys).view("V16").ravel().tolist()
        written = (first_sn + groups.positions).tolist()
        instances, keep = self._instances, 0 if flags & UNREGISTERED else self._depth
        replaced: list[int] = []
        start = 0
        for name, stop in zip(names, groups.stops().tolist(), strict=True):
            numbers = written[start:stop]
            start = stop
            if known := instances.get(name):
                numbers = known + numbers
                if known[-1] > first_sn:  # a claim, committed after what was written behind it
                    numbers.sort()
            if len(numbers) > keep:
                replaced += numbers[: len(numbers) - keep]
                numbers = numbers[len(numbers) - keep :]
            if keep:
                instances[name] = numbers
            elif known:  # the instance is forgotten: late joiners need not hear of it
                del instances[name]
        self._replace(replaced)

    def _replace(self, replaced: list[int]) -> None:
        """Note replaced numbers, one interval per stretch."""
        if not replaced:
            return
        numbers = np.sort(np.array(replaced, np.int64))
        ends = np.append(numbers[1:] - numbers[:-1] != 1, True)
        begins = np.append(True, ends[:-1])
        self._replaced.update(numbers[begins].tolist(), numbers[ends].tolist())

    def note_hollow(self, first_sn: int, last_sn: int) -> None:
        """The newest numbers, first_sn..last_sn, are no samples."""
        self._hollow.add(first_sn, last_sn)

    # --- coherent sets ---------------------------------------------------------------------------

    def begin_set(self) -> None:
        """What is written next belongs to a coherent set."""
        self._set_begun = self._state.last_sn + 1

    def note_end_marker(self, sn: int) -> None:
        """``sn`` ends a set; it replaces the marker before it, whose set is also ended by what follows."""
        if self._end_marker:
            self._replaced.add(self._end_marker, self._end_marker)
        self._end_marker = sn

    def end_set(self) -> None:
        """The set is complete: what is noted of it counts."""
        self._set_begun = 0
        noted, self._noted = self._noted, []
        for first_sn, key_hashes, flags in noted:
            self.note_instances(first_sn, key_hashes, flags)

    def abort_set(self) -> None:
        """The set is aborted: it replaces nothing."""
        self._set_begun = 0
        self._noted.clear()

    # --- what is replaced ------------------------------------------------------------------------

    def take_replaced(self, last_sn: int) -> list[tuple[int, int]]:
        """The ranges up to ``last_sn`` that are replaced, each once; of a keyed topic."""
        taken = list(self._replaced.within(1, last_sn))
        self._replaced.remove(1, last_sn)
        return taken

    def newest_replaced(self) -> int:
        """The number above which ``depth`` samples lie, of a topic without key."""
        newest = below = (self._set_begun or self._state.last_sn + 1) - 1 - self._depth
        while self._hollow:
            hollow = sum(
                last - first + 1 for first, last in self._hollow.within(below + 1, newest + self._depth)
            )
            if newest - hollow == below:
                self._hollow.remove(0, below)
                break
            below = newest - hollow
        return below
