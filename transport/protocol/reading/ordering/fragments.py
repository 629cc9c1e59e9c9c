"""Reassembly of fragmented samples (RTPS 2.5 §8.3.8.3, §8.4.14.1).

Invariants: the memory and the number of incomplete samples of one reader stay within its :class:`FragmentBudget`; a
sample takes memory as its fragments arrive, whatever size it declares; the received fragments are an interval set of at
most REORDER_RUNS_MAX intervals, whatever the declared fragment size.

Memory is counted in the blocks that fragments fall into, as the kernel commits it. When the budget is used up, a sample
of the participant with most memory is given up, so that no participant keeps the others from their share.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
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
from ....value_classes import slotted
from ....wire.numbers import FragmentNumberSet
from ....wire.samples import HAS_KEY_HASH, KEY_ONLY, U8, Run
from ....wire.submessages import DataFrag
from ...intervals import IntervalSet

#: An incomplete sample without a new fragment for this long may be discarded in favour of another.
_IDLE_NS: Final = 1_000_000_000
#: Memory is counted in blocks of this size, which are several pages.
_BLOCK_BITS: Final = 16
#: From this size on, NumPy and other allocators request huge pages: a fragment of a few bytes would take megabytes and
#: milliseconds.
_LARGE: Final = 4 << 20


@slotted
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
    reliable: bool = True
    #: The blocks of memory that fragments have fallen into.
    blocks: set[int] = field(default_factory=set)
    #: The sample is reassembled in the memory of the reader's owner.
    in_place: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of its memory in use."""
        return min(len(self.blocks) << _BLOCK_BITS, self.size)

    def is_idle(self, now: int) -> bool:
        """Whether it got no fragment for so long that it may be discarded."""
        return now - self.touched >= _IDLE_NS

    def grows(self, frag: DataFrag) -> int:
        """Maximum of further bytes that a DATA_FRAG would use."""
        if frag.sample_size != self.size or frag.fragment_size != self.fragment_size:
            return 0  # it is refused
        blocks = self._blocks(frag)
        return 0 if blocks <= self.blocks else len(blocks - self.blocks) << _BLOCK_BITS

    def _blocks(self, frag: DataFrag) -> set[int]:
        stop = min(frag.offset + frag.fragments * self.fragment_size, self.size)
        return set(range(frag.offset >> _BLOCK_BITS, (max(stop - 1, frag.offset) >> _BLOCK_BITS) + 1))

    @property
    def fragments(self) -> int:
        return -(-self.size // self.fragment_size)

    @property
    def is_complete(self) -> bool:
        return len(self.received) == 1 and self.received.lowest == (1, self.fragments)

    def add_fragments(self, frag: DataFrag, now: int) -> bool:
        """Add the fragments of a DATA_FRAG; False if they contradict earlier ones, or make too many intervals.

        Raises DecodeError if its inline QoS is malformed.
        """
        if frag.sample_size != self.size or frag.fragment_size != self.fragment_size or frag.key != self.key:
            return False
        last = min(frag.first_fragment + frag.fragments - 1, self.fragments)
        start, stop = frag.offset, min(last * self.fragment_size, self.size)
        payloads = frag.payloads
        if frag.first_fragment < 1 or start >= stop or sum(map(len, payloads)) < stop - start:
            return False
        if len(self.received) >= REORDER_RUNS_MAX and frag.first_fragment - 1 not in self.received:
            return False
        if frag.inline_qos is not None:  # RTPS 2.5 §8.7: any fragment may carry it, the first one has to
            self.flags, self.key_hash = frag.inline_qos.status_info, frag.inline_qos.key_hash
            self.coherent_set = frag.inline_qos.coherent_set
        for payload in payloads:
            end = min(start + len(payload), stop)
            self.data[start:end] = np.frombuffer(payload, np.uint8, end - start)
            start = end
        self.received.add_range(frag.first_fragment, last)
        self.blocks |= self._blocks(frag)
        self.announced = max(self.announced, last)
        self.touched = now
        return True

    def takes_together(self, frags: DataFrag) -> bool:
        """Whether adding these fragments at once gives the same result as adding them in several DATA_FRAGs."""
        last = frags.first_fragment + frags.fragments - 1
        return (
            (frags.sample_size, frags.fragment_size, frags.key) == (self.size, self.fragment_size, self.key)
            and len(self.received) < REORDER_RUNS_MAX
            and next(self.received.within(frags.first_fragment, last), None) is None
        )

    def vacate(self) -> None:
        """Move the received fragments to separate memory. Raises MemoryError."""
        data = _memory(self.size)
        for first, last in self.received:
            part = slice((first - 1) * self.fragment_size, last * self.fragment_size)
            data[part] = self.data[part]
        self.data, self.in_place = data, False

    def missing(self, last: int) -> FragmentNumberSet | None:
        """The set of a NACK_FRAG that requests the missing fragments up to ``last``; None if none is missing."""
        last = min(last, self.fragments)
        first = next(self.received.holes(1, last), None)
        if first is None:
            return None
        base = first[0]
        holes = self.received.holes(base, min(last, base + NUMBER_SET_BITS - 1))
        return FragmentNumberSet.from_numbers(base, (n for a, b in holes for n in range(a, b + 1)))

    def to_run(self) -> Run:
        """The complete sample; it owns its memory, unless it is in place."""
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


def _memory(size: int) -> U8:
    """Memory for a sample of this size; none of it is touched: it costs address space until bytes arrive."""
    room = -(-size // 4) * 4
    if size < _LARGE:
        return np.empty(room, np.uint8)[:size]
    import pyarrow as pa  # imported here because few topics have such samples

    return np.frombuffer(pa.allocate_buffer(room, memory_pool=pa.system_memory_pool()), np.uint8)[:size]


class FragmentBudget:
    """The memory and the number of incomplete samples of one reader, and the share of each participant."""

    __slots__ = ("_samples", "nbytes", "taken")

    def __init__(self) -> None:
        #: By participant.
        self._samples: dict[bytes, dict[tuple[Guid, int], FragmentedSample]] = {}
        self.nbytes = 0
        #: Bytes that samples have taken in total.
        self.taken = 0

    @staticmethod
    def admits(frag: DataFrag) -> bool:
        """Whether the sizes that a fragment declares are possible."""
        return 0 < frag.fragment_size <= frag.sample_size <= FRAGMENTED_SAMPLE_MAX

    def __len__(self) -> int:
        return sum(map(len, self._samples.values()))

    def start(
        self,
        writer: Guid,
        frag: DataFrag,
        timestamp: int,
        now: int,
        *,
        reliable: bool = True,
        place: U8 | None = None,
    ) -> FragmentedSample | None:
        """Begin a sample, in the memory ``place`` if given, else in new memory that is not committed yet; None if there
        are too many samples, or no memory."""
        if len(self) >= FRAGMENTED_SAMPLES_MAX:
            return None
        try:
            data = _memory(frag.sample_size) if place is None else place
        except MemoryError:
            return None
        sample = FragmentedSample(
            writer,
            frag.sn,
            frag.sample_size,
            frag.fragment_size,
            frag.key,
            timestamp,
            data,
            touched=now,
            reliable=reliable,
            in_place=place is not None,
        )
        self._samples.setdefault(writer.prefix, {})[writer, frag.sn] = sample
        return sample

    def add_fragments(self, sample: FragmentedSample, frag: DataFrag, now: int) -> bool:
        """As :meth:`FragmentedSample.add_fragments`; the budget must suffice."""
        before = sample.nbytes
        fits = sample.add_fragments(frag, now)
        self.nbytes += sample.nbytes - before
        self.taken += sample.nbytes - before
        return fits

    def has_room(self, nbytes: int) -> bool:
        return self.nbytes + nbytes <= FRAGMENTED_BYTES_MAX

    def release(self, sample: FragmentedSample) -> None:
        """Release a sample that is complete, or given up."""
        samples = self._samples.get(sample.writer.prefix, {})
        if samples.pop((sample.writer, sample.sn), None) is not None:
            self.nbytes -= sample.nbytes
            if not samples:
                del self._samples[sample.writer.prefix]

    def victim(self, prefix: bytes, nbytes: int, now: int) -> FragmentedSample | None:
        """The sample to give up in favour of one more of participant ``prefix``, or of ``nbytes`` more of one.

        The longest idle one; if none is idle, one of the participant with most memory, including the request: of its
        writer with most memory, the sample that is needed last.
        """
        everything = [each for samples in self._samples.values() for each in samples.values()]
        oldest = min(everything, key=lambda each: each.touched, default=None)
        if oldest is None or oldest.is_idle(now):
            return oldest

        def part(samples: Iterable[FragmentedSample]) -> int:
            return sum(each.nbytes for each in samples) if nbytes else sum(1 for _ in samples)

        def share(each: bytes) -> int:
            return part(self._samples.get(each, {}).values()) + (nbytes or 1) * (each == prefix)

        # Among equals, the participant that makes the request.
        offender = max(self._samples, key=lambda each: (share(each), each == prefix))
        if offender != prefix and share(offender) <= share(prefix):
            offender = prefix
        writers: dict[Guid, list[FragmentedSample]] = {}
        for sample in self._samples.get(offender, {}).values():
            writers.setdefault(sample.writer, []).append(sample)
        if not writers:
            return None
        of_writer = max(writers.values(), key=part)
        # Of a best-effort writer the oldest sample is the least likely to be completed; of a reliable one the lowest is
        # needed first.
        return max(of_writer, key=lambda each: each.sn if each.reliable else -each.sn)
