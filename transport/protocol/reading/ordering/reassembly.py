"""Fragmented samples of a reader's writers: begun, completed, or given up for lack of memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ....errors import DecodeError
from ....limits import FRAGMENTED_SAMPLES_MAX
from ....structure import Guid
from ....wire.fragment_ranges import ReservedFrames
from ....wire.samples import U8, Run
from ....wire.submessages import DataFrag
from ...policies import ReaderCounters
from .fragments import FragmentBudget, FragmentedSample
from .writer_proxy import WriterProxy


class Completed(NamedTuple):
    """A complete sample; ``in_place``: it lies in the owner's memory, otherwise in its own."""

    run: Run
    in_place: bool


class Reassembly:
    """The incomplete samples of one reader's writers; ``writers`` belongs to the reader.

    If the owner provides memory, the next sample of a writer is reassembled there, one at a time. It is moved when the
    owner needs that memory for other data.
    """

    def __init__(self, writers: Mapping[Guid, WriterProxy], counters: ReaderCounters) -> None:
        self.budget = FragmentBudget()
        self.places: ReservedFrames | None = None
        self._placed: FragmentedSample | None = None
        self._writers = writers
        self._counters = counters

    def add_fragments(self, proxy: WriterProxy, frag: DataFrag, timestamp: int, now: int) -> Completed | None:
        """Add fragments; returns the sample if they complete it."""
        sample = proxy.fragments.get(frag.sn) or self._start(proxy, frag, timestamp, now)
        if sample is None or not self._make_room(proxy, sample, frag, now):
            self._counters.fragment_overflow += 1
            return None
        try:
            fits = self.budget.add_fragments(sample, frag, now)
        except DecodeError:
            fits = False
        if not fits:
            self._counters.bad_fragments += 1
            if not sample.received:
                self.give_up(proxy, frag.sn)
            return None
        if not sample.is_complete:
            return None
        self.give_up(proxy, frag.sn)
        return Completed(sample.to_run(), sample.in_place)

    def place(self, nbytes: int, count: int = 1) -> U8 | None:
        """The owner's memory for the run that is delivered next; None: the run gets separate memory."""
        return None if self._placed is not None or self.places is None else self.places(nbytes, count)

    def takes_together(self, proxy: WriterProxy, frags: DataFrag) -> bool:
        """Whether adding these fragments at once gives the same result as adding them in several DATA_FRAGs."""
        sample, budget = proxy.fragments.get(frags.sn), self.budget
        if sample is None:
            has_place = budget.admits(frags) and len(budget) < FRAGMENTED_SAMPLES_MAX
            return has_place and budget.has_room(frags.sample_size)
        return sample.takes_together(frags) and budget.has_room(sample.grows(frags))

    def _start(self, proxy: WriterProxy, frag: DataFrag, timestamp: int, now: int) -> FragmentedSample | None:
        budget = self.budget
        while budget.admits(frag):
            place = None
            if len(budget) < FRAGMENTED_SAMPLES_MAX:
                is_next = proxy.synced and frag.sn == proxy.expected and not proxy.held
                place = self.place(frag.sample_size) if is_next else None
            sample = budget.start(proxy.guid, frag, timestamp, now, reliable=proxy.reliable, place=place)
            if sample is not None:
                self._placed = self._placed if place is None else sample
                proxy.fragments[frag.sn] = sample
                return sample
            victim = budget.victim(proxy.guid.prefix, 0, now)
            if victim is None or (victim.writer == proxy.guid and not _gives_way(victim, frag, now)):
                return None
            self._evict(victim)
        return None

    def _make_room(self, proxy: WriterProxy, sample: FragmentedSample, frag: DataFrag, now: int) -> bool:
        """Whether a fragment fits the budget, after other samples were given up."""
        grows = sample.grows(frag)
        while grows and not self.budget.has_room(grows):
            victim = self.budget.victim(proxy.guid.prefix, grows, now)
            if victim is sample and sample.received:
                return False  # it continues when other samples are complete
            if victim is None or victim is sample:
                self.give_up(proxy, sample.sn)
                return False
            self._evict(victim)
        return True

    def _evict(self, sample: FragmentedSample) -> None:
        self.give_up(self._writers[sample.writer], sample.sn)
        self._counters.fragment_overflow += 1

    def vacate(self) -> None:
        """Leave the owner's memory, which the owner needs for other data."""
        sample, self._placed = self._placed, None
        if sample is not None:
            try:
                sample.vacate()
            except MemoryError:
                self._evict(sample)

    def give_up(self, proxy: WriterProxy, sn: int) -> None:
        """Forget an incomplete sample."""
        sample = proxy.fragments.pop(sn)
        if sample is self._placed:
            self._placed = None
        self.budget.release(sample)

    def discard_below(self, proxy: WriterProxy, sn: int) -> None:
        """Forget a writer's incomplete samples below ``sn``."""
        if proxy.fragments:
            for old in [old for old in proxy.fragments if old < sn]:
                self.give_up(proxy, old)


def _gives_way(victim: FragmentedSample, frag: DataFrag, now: int) -> bool:
    """Whether an incomplete sample of the same writer is needed less than the one that a fragment begins."""
    return victim.is_idle(now) or (victim.sn > frag.sn) == victim.reliable
