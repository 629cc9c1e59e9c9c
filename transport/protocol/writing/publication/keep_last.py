"""KEEP_LAST for late joiners: the numbers whose samples are replaced by newer ones of their instance (DDS 1.4
§2.2.3.18).

A topic without key is one instance. This class only notes numbers; the history drops the samples once every matched
reader has acknowledged them.

Invariants:
* samples of an open coherent set replace nothing before the set ends;
* a claimed sample replaces nothing before it is committed, since it may be aborted; on a topic without key, neither do
  the samples behind it;
* every sample that has a number is noted: after an exception the next call notes it again from the beginning, and
  noting a sample twice changes nothing;
* an instance of which the history holds no sample is forgotten eventually.
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

#: Fewer instances than this are not searched for those without samples.
_INSTANCES_MIN: Final = 4_096


class KeepLast:
    """The newest ``depth`` samples of each instance of one writer, by their numbers."""

    def __init__(self, state: WriterState, depth: int) -> None:
        self._state = state
        self._depth = depth
        #: Whether samples were written with key hashes.
        self.is_keyed = False
        #: The newest numbers of each key hash. With a depth of 1 only _newest has them, since each garbage collection
        #: would traverse a million lists of one number.
        self._instances: dict[bytes, list[int]] = {}
        self._newest: dict[bytes, int] = {}
        #: The number of instances from which those without samples are searched for and forgotten.
        self._sweep_at = _INSTANCES_MIN
        #: The numbers of the open claims, ascending. While there are any: the instances that were unregistered, each
        #: with the number of the sample that did so.
        self._claimed: dict[int, None] = {}
        self._unregistered: dict[bytes, int] = {}
        #: Samples that are being written: first number, key hashes and flags.
        self._expected: list[tuple[int, U8, int | U32]] = []
        #: Replaced numbers that were not taken yet.
        self._replaced = IntervalSet()
        #: Samples of the open coherent set, in the same form.
        self._noted: list[tuple[int, U8, int]] = []
        #: Newest numbers without a sample, and the end marker of the last set.
        self._hollow = IntervalSet()
        self._end_marker = 0

    # --- writes ----------------------------------------------------------------------------------

    def expect(self, first_sn: int, key_hashes: U8, flags: int | U32) -> None:
        """Samples of these instances will get the numbers from ``first_sn`` on; :meth:`note_numbered` follows."""
        self.note_numbered(first_sn)
        self._expected.append((first_sn, key_hashes.copy(), flags))

    def note_numbered(self, before: int = INFINITE) -> None:
        """Note the instances of the expected samples that have numbers below ``before``."""
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
        """Note the instances of the newest samples, from ``first_sn`` on; the cost is per instance."""
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
        """Note samples with a depth of 1."""
        names, written, last = _names(groups), first_sn + groups.positions, groups.stops() - 1
        newest = written[last]
        known = np.fromiter(map(self._newest.get, names, repeat(0)), np.int64, len(names))
        if not is_kept:  # forget the instance: late joiners need not receive it
            self._replace(np.concatenate((written, known[known > 0])))
            self._note_unregistered(names, newest.tolist())
            for name in names:
                self._newest.pop(name, None)
            return
        # a claim is committed after samples with higher numbers
        replaced = np.minimum(known, newest)[(known > 0) & (known != newest)]
        self._replace(np.concatenate((np.delete(written, last), replaced)))
        self._newest.update(zip(names, np.maximum(known, newest).tolist(), strict=True))

    def _note_newest_few(self, groups: Groups, first_sn: int, *, is_kept: bool) -> None:
        """Note samples with any depth."""
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
                ):  # a claim that is committed after samples with higher numbers; or samples that were noted in part
                    numbers = sorted(set(numbers))
            if len(numbers) > keep:
                replaced += numbers[: len(numbers) - keep]
                numbers = numbers[len(numbers) - keep :]
            if keep:
                held[name] = numbers
            elif known:  # forget the instance: late joiners need not receive it
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
        """Note replaced numbers, one interval per contiguous range."""
        if not len(replaced):
            return
        numbers = np.sort(replaced)
        ends = np.append(numbers[1:] - numbers[:-1] != 1, True)
        begins = np.append(True, ends[:-1])
        self._replaced.update(numbers[begins].tolist(), numbers[ends].tolist())

    def note_hollow(self, first_sn: int, last_sn: int) -> None:
        """The newest numbers, first_sn..last_sn, have no samples."""
        self.note_numbered(first_sn)
        if not self.is_keyed:  # a keyed topic does not use them
            self._hollow.add_range(first_sn, last_sn)

    def settle(self) -> None:
        """Forget numbers above ``last_sn`` after an exception: they were not assigned."""
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
        """The sample with the newest number is claimed, and not complete yet."""
        self.note_numbered(sn)
        self._claimed[sn] = None

    def end_claim(self, sn: int, key_hash: U8 | None) -> None:
        """The claimed sample is complete."""
        if sn not in self._claimed:
            return  # it was complete before
        unregistered = 0 if key_hash is None else self._unregistered.get(key_hash.tobytes(), 0)
        if key_hash is not None:
            if unregistered > sn:
                self._replaced.add_range(sn, sn)  # a sample with a higher number unregistered the instance
            else:
                self.note_instances(sn, key_hash, 0)
        self.abort_claim(sn)  # last: after an exception, the whole method is repeated

    def abort_claim(self, sn: int) -> None:
        """The claim is closed; if it was not committed, there will be no such sample."""
        self._claimed.pop(sn, None)
        if not self._claimed:
            self._unregistered.clear()

    # --- coherent sets ---------------------------------------------------------------------------

    def note_end_marker(self, sn: int) -> None:
        """``sn`` is the end marker of a set, and has no sample. It replaces the marker before it: the samples behind
        that marker end its set as well."""
        self.note_hollow(sn, sn)
        if self._end_marker:
            self._replaced.add_range(self._end_marker, self._end_marker)
        self._end_marker = sn

    def abort_set(self) -> None:
        """The set is aborted: it replaces nothing."""
        self._noted.clear()

    # --- replaced numbers ------------------------------------------------------------------------

    def take_replaced(self, last_sn: int) -> tuple[I64, I64]:
        """Take the replaced ranges up to ``last_sn``, each once; for a keyed topic."""
        self.note_numbered()
        firsts, lasts = self._replaced.take_up_to(last_sn)
        return np.array(firsts, np.int64), np.array(lasts, np.int64)

    def newest_replaced(self) -> int:
        """The number above which there are ``depth`` samples, for a topic without key."""
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
