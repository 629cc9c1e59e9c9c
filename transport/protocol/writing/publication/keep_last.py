"""KEEP_LAST for readers to come: which numbers newer samples of their instances have replaced (DDS 1.4 §2.2.3.18).

A topic without key is one instance. Numbers are only noted here; the history drops the samples once every matched
reader has acknowledged them.

Invariants:
* while a coherent set is open nothing of it replaces anything; what is noted of it counts at its end;
* neither does a claimed sample, before it is committed: it may be aborted; without key, nothing behind it does, either;
* of what has a number nothing stays unnoted: what an exception stops is noted from its beginning by the next call, and
  noting anything twice changes nothing;
* an instance of which the history holds nothing any more is forgotten, sooner or later.
"""

from __future__ import annotations

from itertools import repeat
from typing import Final

import numpy as np
import numpy.typing as npt

from ....structure import INFINITE
from ....wire.samples import I64, U8, UNREGISTERED, equal_ranges
from ...instances import Groups
from ...intervals import IntervalSet
from ..state import WriterState

U32 = npt.NDArray[np.uint32]

#: Fewer instances than these are not looked through for what is no longer held.
_INSTANCES_MIN: Final = 4_096


class KeepLast:
    """The newest ``depth`` samples of each instance of one writer, by their numbers."""

    def __init__(self, state: WriterState, depth: int) -> None:
        self._state = state
        self._depth = depth
        #: Whether samples were written with key hashes.
        self.is_keyed = False
        #: The newest numbers of each key hash; with a depth of 1 only _newest has them: a million lists of one number
        #: would be looked through by each garbage collection.
        self._instances: dict[bytes, list[int]] = {}
        self._newest: dict[bytes, int] = {}
        #: How many instances there are when those are next looked for of which nothing is held.
        self._sweep_at = _INSTANCES_MIN
        #: The numbers of the open claims, ascending; and, while there are any, the instances that were unregistered,
        #: each with the number that did so.
        self._claimed: dict[int, None] = {}
        self._unregistered: dict[bytes, int] = {}
        #: What is being written: its first number, key hashes and flags.
        self._expected: list[tuple[int, U8, int | U32]] = []
        #: Numbers replaced and not taken yet.
        self._replaced = IntervalSet()
        #: What is noted of the open coherent set.
        self._noted: list[tuple[int, U8, int]] = []
        #: Newest numbers that are no samples, and the end marker of the last set.
        self._hollow = IntervalSet()
        self._end_marker = 0

    # --- what is written -------------------------------------------------------------------------

    def expect(self, first_sn: int, key_hashes: U8, flags: int | U32) -> None:
        """Samples of these instances are about to get the numbers from ``first_sn`` on; :meth:`note` follows."""
        self.note_numbered(first_sn)
        self._expected.append((first_sn, key_hashes.copy(), flags))

    def note_numbered(self, before: int = INFINITE) -> None:
        """Note which instances belong to what has got numbers, if these are below ``before``."""
        while self._noted and not self._state.set_begun:
            self.note_instances(*self._noted[0])
            del self._noted[0]
        while self._expected:
            first_sn, key_hashes, flags = self._expected[0]
            if (count := min(before, self._state.last_sn + 1) - first_sn) > 0:
                flags = flags if isinstance(flags, int) else flags[:count]
                self.note_instances(first_sn, key_hashes[:count], flags)
            del self._expected[0]

    def note_instances(self, first_sn: int, key_hashes: U8, flags: int | U32) -> None:
        """Note which instances the newest samples, from ``first_sn`` on, belong to; the cost is per instance."""
        if not isinstance(flags, int):
            for start, stop in equal_ranges(flags[1:] != flags[:-1]):
                self.note_instances(first_sn + start, key_hashes[start:stop], int(flags[start]))
            return
        if 0 < self._state.set_begun <= first_sn:
            self._noted.append((first_sn, key_hashes.copy(), flags))
            return
        self.is_keyed = True
        groups = Groups.group_by_key(np.arange(len(key_hashes)), key_hashes)  # by instance, oldest first
        note = self._note_newest if self._depth == 1 else self._note_newest_few
        note(groups, first_sn, is_kept=not flags & UNREGISTERED)

    def _note_newest(self, groups: Groups, first_sn: int, *, is_kept: bool) -> None:
        """With a depth of 1."""
        names, written, last = _names(groups), first_sn + groups.positions, groups.stops() - 1
        newest = written[last]
        known = np.fromiter(map(self._newest.get, names, repeat(0)), np.int64, len(names))
        if not is_kept:  # the instance is forgotten: late joiners need not hear of it
            self._replace(np.concatenate((written, known[known > 0])))
            self._note_unregistered(names, newest.tolist())
            for name in names:
                self._newest.pop(name, None)
            return
        # a claim is committed after what was written behind it
        replaced = np.minimum(known, newest)[(known > 0) & (known != newest)]
        self._replace(np.concatenate((np.delete(written, last), replaced)))
        self._newest.update(zip(names, np.maximum(known, newest).tolist(), strict=True))

    def _note_newest_few(self, groups: Groups, first_sn: int, *, is_kept: bool) -> None:
        """With any depth."""
        written = (first_sn + groups.positions).tolist()
        instances, keep = self._instances, self._depth if is_kept else 0
        replaced: list[int] = []
        held: dict[bytes, list[int]] = {}
        forgotten: list[bytes] = []
        start = 0
        for name, stop in zip(_names(groups), groups.stops().tolist(), strict=True):
            numbers = written[start:stop]
            start = stop
            if known := instances.get(name):
                numbers = known + numbers
                if (
                    known[-1] >= first_sn
                ):  # a claim, committed after what was written behind it; or noted in part
                    numbers = sorted(set(numbers))
            if len(numbers) > keep:
                replaced += numbers[: len(numbers) - keep]
                numbers = numbers[len(numbers) - keep :]
            if keep:
                held[name] = numbers
            elif known:  # the instance is forgotten: late joiners need not hear of it
                forgotten.append(name)
        self._replace(np.array(replaced, np.int64))
        if not is_kept:
            self._note_unregistered(_names(groups), [written[stop - 1] for stop in groups.stops().tolist()])
        instances.update(held)
        for name in forgotten:
            del instances[name]

    def _note_unregistered(self, names: list[bytes], numbers: list[int]) -> None:
        if self._claimed:  # a claim with a lower number may be of that instance
            self._unregistered.update(zip(names, numbers, strict=True))

    def _replace(self, replaced: I64) -> None:
        """Note replaced numbers, one interval per stretch."""
        if not len(replaced):
            return
        numbers = np.sort(replaced)
        ends = np.append(numbers[1:] - numbers[:-1] != 1, True)
        begins = np.append(True, ends[:-1])
        self._replaced.update(numbers[begins].tolist(), numbers[ends].tolist())

    def note_hollow(self, first_sn: int, last_sn: int) -> None:
        """The newest numbers, first_sn..last_sn, are no samples."""
        self.note_numbered(first_sn)
        if not self.is_keyed:  # nothing looks at them where instances are told apart
            self._hollow.add_range(first_sn, last_sn)

    def settle(self) -> None:
        """Only numbers that were given away are no samples."""
        self._hollow.remove_range(self._state.last_sn + 1, INFINITE)

    def forget_before(self, first_sn: int) -> None:
        """The history holds nothing below ``first_sn``: forget the instances that have no newer sample."""
        if len(self._newest) + len(self._instances) < self._sweep_at:
            return
        self._newest = {name: newest for name, newest in self._newest.items() if newest >= first_sn}
        self._instances = {name: all for name, all in self._instances.items() if all[-1] >= first_sn}
        self._sweep_at = max(_INSTANCES_MIN, 2 * (len(self._newest) + len(self._instances)))

    # --- claims ----------------------------------------------------------------------------------

    def begin_claim(self, sn: int) -> None:
        """The newest number is that of a sample which is not complete yet."""
        self.note_numbered(sn)
        self._claimed[sn] = None

    def end_claim(self, sn: int, key_hash: U8 | None) -> None:
        """The claimed sample is complete."""
        if sn not in self._claimed:
            return  # it was complete before
        unregistered = 0 if key_hash is None else self._unregistered.get(key_hash.tobytes(), 0)
        if key_hash is not None:
            if unregistered > sn:
                self._replaced.add_range(sn, sn)  # what unregistered the instance was written behind it
            else:
                self.note_instances(sn, key_hash, 0)
        self.abort_claim(sn)  # the last of it: what an exception stops is done once more

    def abort_claim(self, sn: int) -> None:
        """There will be no such sample."""
        self._claimed.pop(sn, None)
        if not self._claimed:
            self._unregistered.clear()

    # --- coherent sets ---------------------------------------------------------------------------

    def note_end_marker(self, sn: int) -> None:
        """``sn`` ends a set, and is no sample; it replaces the marker before it, whose set is also ended by what
        follows."""
        self.note_hollow(sn, sn)
        if self._end_marker:
            self._replaced.add_range(self._end_marker, self._end_marker)
        self._end_marker = sn

    def abort_set(self) -> None:
        """The set is aborted: it replaces nothing."""
        self._noted.clear()

    # --- what is replaced ------------------------------------------------------------------------

    def take_replaced(self, last_sn: int) -> tuple[I64, I64]:
        """The ranges up to ``last_sn`` that are replaced, each once; of a keyed topic."""
        self.note_numbered()
        firsts, lasts = self._replaced.take_up_to(last_sn)
        return np.array(firsts, np.int64), np.array(lasts, np.int64)

    def newest_replaced(self) -> int:
        """The number above which ``depth`` samples lie, of a topic without key."""
        behind = min(
            self._state.set_begun or INFINITE, next(iter(self._claimed), INFINITE), self._state.last_sn + 1
        )
        newest = below = behind - 1 - self._depth
        while self._hollow:
            hollow = sum(
                last - first + 1 for first, last in self._hollow.within(below + 1, newest + self._depth)
            )
            if newest - hollow == below:
                self._hollow.remove_range(0, below)
                break
            below = newest - hollow
        return below


def _names(groups: Groups) -> list[bytes]:
    """The key hash of each group."""
    names: list[bytes] = np.ascontiguousarray(groups.keys).view("V16").ravel().tolist()
    return names
