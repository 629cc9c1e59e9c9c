"""Samples in fragments from a reader's writers: begun, completed, or given up where there is no room."""

from __future__ import annotations

from collections.abc import Mapping

from ....errors import DecodeError
from ....structure import Guid
from ....wire.samples import Run
from ....wire.submessages import DataFrag
from ...policies import ReaderCounters
from .fragments import FragmentBudget, FragmentedSample
from .writer_proxy import WriterProxy


class Reassembly:
    """The unfinished samples of one reader's writers; ``writers`` is the reader's own."""

    def __init__(self, writers: Mapping[Guid, WriterProxy], counters: ReaderCounters) -> None:
        self.budget = FragmentBudget()
        self._writers = writers
        self._counters = counters

    def add(self, proxy: WriterProxy, frag: DataFrag, timestamp: int, now: int) -> Run | None:
        """Put in fragments; returns the sample if they complete it."""
        sample = proxy.fragments.get(frag.sn) or self._start(proxy, frag, timestamp, now)
        if sample is None:
            self._counters.fragment_overflow += 1
            return None
        try:
            fits = sample.add(frag, now)
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
        return sample.to_run()

    def _start(self, proxy: WriterProxy, frag: DataFrag, timestamp: int, now: int) -> FragmentedSample | None:
        while self.budget.admits(frag):
            sample, evicted = self.budget.start(proxy.guid, frag, timestamp, now)
            for old in evicted:
                self._writers[old.writer].fragments.pop(old.sn, None)
                self._counters.fragment_overflow += 1
            if sample is not None:
                proxy.fragments[frag.sn] = sample
                return sample
            # No room. Of a best-effort writer the oldest sample is the least likely to be completed; of a reliable
            # writer the lowest is needed first.
            victim = None
            if proxy.fragments:
                victim = max(proxy.fragments) if proxy.reliable else min(proxy.fragments)
            if victim is None or (victim > frag.sn) != proxy.reliable:
                return None
            self.give_up(proxy, victim)
            self._counters.fragment_overflow += 1
        return None

    def give_up(self, proxy: WriterProxy, sn: int) -> None:
        """Forget an unfinished sample."""
        self.budget.release(proxy.fragments.pop(sn))

    def discard_below(self, proxy: WriterProxy, sn: int) -> None:
        """Forget a writer's unfinished samples below ``sn``."""
        if proxy.fragments:
            for old in [old for old in proxy.fragments if old < sn]:
                self.give_up(proxy, old)
