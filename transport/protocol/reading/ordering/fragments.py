"""Reassembly of fragmented samples (RTPS 2.5 §8.3.8.3, §8.4.14.1).

Invariants: the bytes and the number of unfinished samples of one reader stay within its :class:`FragmentBudget`; a
sample's buffer is allocated only after its declared size was found to fit the budget; what was received is an interval
set of at most REORDER_RUNS_MAX intervals, whatever the declared fragment size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ....limits import (
    FRAGMENTED_BYTES_MAX,
    FRAGMENTED_SAMPLE_MAX,
    FRAGMENTED_SAMPLES_MAX,
    NUMBER_SET_BITS,
    REORDER_RUNS_MAX,
)
from ....structure import Guid
from ....wire.numbers import FragmentNumberSet
from ....wire.samples import HAS_KEY_HASH, KEY_ONLY, U8, Run
from ....wire.submessages import DataFrag
from ...intervals import IntervalSet

#: An unfinished sample that got no fragment for this long may be discarded to make room for another.
_IDLE_NS: Final = 1_000_000_000


@dataclass(slots=True)
class FragmentedSample:
    """One sample of which some fragments have arrived."""

    writer: Guid
    sn: int
    size: int
    fragment_size: int
    key: bool
    timestamp: int
    data: U8
    flags: int = 0
    key_hash: bytes | None = None
    coherent_set: int = 0
    received: IntervalSet = field(default_factory=IntervalSet)
    #: Highest fragment the writer is known to have sent.
    announced: int = 0
    touched: int = 0

    @property
    def fragments(self) -> int:
        return -(-self.size // self.fragment_size)

    @property
    def is_complete(self) -> bool:
        return len(self.received) == 1 and self.received.lowest == (1, self.fragments)

    def add(self, frag: DataFrag, now: int) -> bool:
        """Put in the fragments of a DATA_FRAG; False if they contradict earlier ones, or scatter too much.

        Raises DecodeError if its inline QoS is malformed.
        """
        if frag.sample_size != self.size or frag.fragment_size != self.fragment_size or frag.key != self.key:
            return False
        last = min(frag.first_fragment + frag.fragments - 1, self.fragments)
        start, stop = frag.offset, min(last * self.fragment_size, self.size)
        if frag.first_fragment < 1 or start >= stop or len(frag.payload) < stop - start:
            return False
        if len(self.received) >= REORDER_RUNS_MAX and frag.first_fragment - 1 not in self.received:
            return False
        if frag.inline_qos is not None:  # RTPS 2.5 §8.7: any fragment may carry it, the first one has to
            self.flags, self.key_hash = frag.inline_qos.status_info, frag.inline_qos.key_hash
            self.coherent_set = frag.inline_qos.coherent_set
        self.data[start:stop] = np.frombuffer(frag.payload, np.uint8, stop - start)
        self.received.add(frag.first_fragment, last)
        self.announced = max(self.announced, last)
        self.touched = now
        return True

    def missing(self, last: int) -> FragmentNumberSet | None:
        """The set of a NACK_FRAG that requests what is missing up to fragment ``last``; None if nothing is."""
        last = min(last, self.fragments)
        first = next(self.received.holes(1, last), None)
        if first is None:
            return None
        base = first[0]
        holes = self.received.holes(base, min(last, base + NUMBER_SET_BITS - 1))
        return FragmentNumberSet.from_numbers(base, (n for a, b in holes for n in range(a, b + 1)))

    def to_run(self) -> Run:
        """The finished sample; its memory is its own."""
        flags = self.flags | (KEY_ONLY if self.key else 0) | (HAS_KEY_HASH if self.key_hash else 0)
        run = Run.single(
            self.writer,
            self.sn,
            self.data,
            timestamp=self.timestamp,
            flags=flags,
            key_hash=self.key_hash,
        )
        run.coherent_set = self.coherent_set
        return run


class FragmentBudget:
    """The bytes and the number of the unfinished samples of one reader."""

    __slots__ = ("_samples", "nbytes")

    def __init__(self) -> None:
        self._samples: dict[tuple[Guid, int], FragmentedSample] = {}
        self.nbytes = 0

    @staticmethod
    def admits(frag: DataFrag) -> bool:
        """Whether the sizes that a fragment declares are possible at all."""
        return 0 < frag.fragment_size <= frag.sample_size <= FRAGMENTED_SAMPLE_MAX

    def start(
        self, writer: Guid, frag: DataFrag, timestamp: int, now: int
    ) -> tuple[FragmentedSample | None, list[FragmentedSample]]:
        """Begin a sample: (the sample, or None if there is no room; idle samples discarded to make room)."""
        size = frag.sample_size
        evicted: list[FragmentedSample] = []
        while not self._has_room(size):
            oldest = min(self._samples.values(), key=lambda s: s.touched, default=None)
            if oldest is None or now - oldest.touched < _IDLE_NS:
                return None, evicted
            self.release(oldest)
            evicted.append(oldest)
        # np.empty maps memory but touches none: a declared size costs address space until bytes arrive.
        data = np.empty(-(-size // 4) * 4, np.uint8)[:size]
        sample = FragmentedSample(
            writer, frag.sn, size, frag.fragment_size, frag.key, timestamp, data, touched=now
        )
        self._samples[writer, frag.sn] = sample
        self.nbytes += size
        return sample, evicted

    def release(self, sample: FragmentedSample) -> None:
        """A sample is finished, or given up."""
        if self._samples.pop((sample.writer, sample.sn), None) is not None:
            self.nbytes -= sample.size

    def _has_room(self, size: int) -> bool:
        return len(self._samples) < FRAGMENTED_SAMPLES_MAX and self.nbytes + size <= FRAGMENTED_BYTES_MAX
