"""Samples that KEEP_LAST keeps for late joiners on keyed topics, once every matched reader has them.

Replaced samples are scattered, so mostly single samples remain. They are stored in parts of some thousands, with an
array that marks those still kept. So many replaced samples are dropped by one array operation.

Invariants: numbers rise within a part and from part to part; every part has a kept sample; at least half of the samples
of a part are kept; two adjacent parts of similar size do not fit one part.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ....limits import GSO_BYTES_MAX
from ....value_classes import slotted
from ....wire.framing import DataBlock, gather, spread
from ....wire.samples import I64, U8
from ..changes import Change, DataContent

Bools = npt.NDArray[np.bool_]

#: The most samples, and bytes, of a part, unless one change has more.
_SAMPLES: Final = 8_192
_BYTES: Final = 4 << 20
#: Parts are not merged if the first is larger by more than this factor, so each sample is copied only a few times.
_ALIKE: Final = 8


@slotted
class _Part:
    """DATA submessages end to end, with their numbers, source timestamps and end offsets; ``kept`` marks those kept."""

    numbers: I64
    timestamps: I64
    ends: I64
    data: U8
    kept: Bools
    samples: int
    nbytes: int

    @classmethod
    def of_changes(cls, changes: Sequence[Change]) -> _Part:
        rows = [change.content.rows(change.first_sn, change.last_sn) for change in changes]
        counts = [change.count for change in changes]
        first = np.array([change.first_sn for change in changes], np.int64)
        lengths = np.concatenate([each for _, each in rows])
        stamps = np.array([change.timestamp for change in changes], np.int64)
        data = np.concatenate([each for each, _ in rows])
        numbers = spread(first, np.array(counts, np.int64))
        kept = np.ones(len(numbers), np.bool_)
        return cls(
            numbers, np.repeat(stamps, counts), np.cumsum(lengths), data, kept, len(numbers), data.nbytes
        )

    @property
    def first_sn(self) -> int:
        """The first number, kept or not."""
        return int(self.numbers[0])

    @property
    def last_sn(self) -> int:
        """The last number, kept or not."""
        return int(self.numbers[-1])

    @property
    def is_hollow(self) -> bool:
        """Whether less than half of the samples, or of the bytes, is kept."""
        return 2 * self.samples < len(self.numbers) or 2 * self.nbytes < self.data.nbytes

    @property
    def lengths(self) -> I64:
        return np.diff(self.ends, prepend=0)

    def drop(self, firsts: I64, lasts: I64) -> tuple[int, int]:
        """Drop these ranges; returns the number of dropped samples and bytes."""
        low = np.searchsorted(self.numbers, firsts)
        found = spread(low, np.searchsorted(self.numbers, lasts, side="right") - low)
        found = found[self.kept[found]]
        self.kept[found] = False
        nbytes = int((self.ends[found] - np.where(found > 0, self.ends[found - 1], 0)).sum())
        self.samples -= len(found)
        self.nbytes -= nbytes
        return len(found), nbytes

    def compact(self) -> _Part:
        """The kept samples in memory of their own."""
        if self.samples == len(self.numbers):
            return self
        kept, lengths = self.kept, self.lengths
        mine = lengths[kept]
        if (lengths == lengths[0]).all():
            data = self.data.reshape(len(lengths), -1)[kept].reshape(-1)
        else:
            data = gather(self.data, (self.ends[kept] - mine) // 4, mine // 4).view(np.uint8)
        return _Part(
            self.numbers[kept],
            self.timestamps[kept],
            np.cumsum(mine),
            data,
            np.ones(len(mine), np.bool_),
            len(mine),
            data.nbytes,
        )

    def together(self, other: _Part) -> _Part:
        """This part and the next one, merged."""
        a, b = self.compact(), other.compact()
        return _Part(
            np.concatenate((a.numbers, b.numbers)),
            np.concatenate((a.timestamps, b.timestamps)),
            np.concatenate((a.ends, b.ends + a.nbytes)),
            np.concatenate((a.data, b.data)),
            np.ones(a.samples + b.samples, np.bool_),
            a.samples + b.samples,
            a.nbytes + b.nbytes,
        )

    def change_from(self, sn: int) -> Change | None:
        """The kept samples from ``sn`` or the next kept one on, up to a gap in the numbers or another timestamp."""
        numbers, stamps = self.numbers, self.timestamps
        low = int(np.searchsorted(numbers, sn))
        low += int(self.kept[low:].argmax()) if low < len(numbers) else 0
        if low == len(numbers) or not self.kept[low]:
            return None
        begin = int(self.ends[low - 1]) if low else 0
        most = max(low + 1, int(np.searchsorted(self.ends, begin + GSO_BYTES_MAX, side="right")))
        goes_on = (
            self.kept[low + 1 : most]
            & (np.diff(numbers[low:most]) == 1)
            & (stamps[low + 1 : most] == stamps[low])
        )
        high = most if goes_on.all() else low + 1 + int(goes_on.argmin())
        ends = self.ends[low:high] - begin
        first, size = int(numbers[low]), int(ends[0])
        is_uniform = ends[-1] == size * len(ends) and bool((np.diff(ends) == size).all())
        data = self.data[begin : int(self.ends[high - 1])]
        block = DataBlock(first, high - low, data, size if is_uniform else ends.tolist())
        return Change(first, int(numbers[high - 1]), int(stamps[low]), DataContent(block))


class KeptSamples:
    """The samples of one writer that are stored in parts."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def first_sn(self) -> int:
        """The lowest kept number; there must be one."""
        part = self._parts[0]
        return int(part.numbers[part.kept.argmax()])

    @property
    def last_sn(self) -> int:
        """The highest number in the parts, kept or not; 0 if there is none."""
        return self._parts[-1].last_sn if self._parts else 0

    def total(self) -> tuple[int, int]:
        """How many samples and bytes are kept."""
        return sum(part.samples for part in self._parts), sum(part.nbytes for part in self._parts)

    @staticmethod
    def takes(change: Change) -> bool:
        """Whether the samples can be stored here: framed one by one, not claimed, and not behind batches."""
        return change.content.has_rows and not (change.batch_sn or change.is_claimed)

    def append(self, changes: Sequence[Change]) -> tuple[int, int]:
        """Add the next changes, for which :meth:`takes` is true; returns the number of samples and bytes."""
        part = _Part.of_changes(changes)
        _push(self._parts, part)
        return part.samples, part.nbytes

    def drop(self, firsts: I64, lasts: I64) -> tuple[int, int]:
        """Drop ascending ranges; returns the number of dropped samples and bytes."""
        if not self._parts or not len(firsts):
            return 0, 0
        low = bisect_left(self._parts, int(firsts[0]), key=_last_sn)
        high = bisect_left(self._parts, int(lasts[-1]) + 1, low, key=_first_sn)
        touched, behind = self._parts[low:high], self._parts[high:]
        del self._parts[low:]
        samples = nbytes = 0
        for part in touched:
            begin = int(np.searchsorted(lasts, part.first_sn))
            end = int(np.searchsorted(firsts, part.last_sn, side="right"))
            dropped = part.drop(firsts[begin:end], lasts[begin:end])
            samples, nbytes = samples + dropped[0], nbytes + dropped[1]
            if part.samples:
                _push(self._parts, part.compact() if part.is_hollow else part)
        if behind:
            _push(self._parts, behind[0])
            self._parts += behind[1:]
        return samples, nbytes

    def drop_oldest(self, count: int, last_sn: int) -> tuple[int, int]:
        """Drop at most ``count`` samples of the first part, none above ``last_sn``; returns samples and bytes."""
        part = self._parts[0]
        numbers = part.numbers[part.kept][:count]
        numbers = numbers[numbers <= last_sn]
        return self.drop(numbers[:1], numbers[-1:])

    def find_change(self, sn: int) -> Change | None:
        """The samples from ``sn`` on, or from the next higher one, as a change; None if there is none."""
        for i in range(bisect_left(self._parts, sn, key=_last_sn), len(self._parts)):
            if (found := self._parts[i].change_from(sn)) is not None:
                return found
        return None

    def changes(self) -> Iterator[Change]:
        """All samples."""
        sn = 0
        while (found := self.find_change(sn)) is not None:
            yield found
            sn = found.last_sn + 1


def _push(parts: list[_Part], part: _Part) -> None:
    """Append a part, and merge parts that fit one."""
    parts.append(part)
    while len(parts) > 1 and _are_one(parts[-2], parts[-1]):
        parts[-2:] = [parts[-2].together(parts[-1])]


def _are_one(part: _Part, following: _Part) -> bool:
    """Whether two adjacent parts are to be merged."""
    if part.samples + following.samples > _SAMPLES or part.nbytes + following.nbytes > _BYTES:
        return False
    return part.samples <= _ALIKE * following.samples


def _first_sn(part: _Part) -> int:
    return part.first_sn


def _last_sn(part: _Part) -> int:
    return part.last_sn
