"""Samples that will never be handed out: lost ones, by writer and cause, and irrelevant ones.

A missing sample was sent while the writer was not matched, if its proxy shows this (``away``), or else is lost for the
cause that the reader knows. Losses that the reader counted before a restart are not counted again.
"""

from __future__ import annotations

from collections import Counter

from ....limits import WRITERS_MAX
from ....structure import Guid
from ...policies import LossCause, ReaderCounters
from .writer_proxy import WriterProxy


class Losses:
    """The losses of one reader, until its owner takes them."""

    __slots__ = ("_by_cause", "_counters")

    def __init__(self, counters: ReaderCounters) -> None:
        self._counters = counters
        self._by_cause: Counter[tuple[Guid, LossCause]] = Counter()

    def take(self) -> dict[tuple[Guid, LossCause], int]:
        """How many samples of each writer were lost since the last call, by cause."""
        losses = dict(self._by_cause)
        self._by_cause.clear()
        return losses

    def lose(self, proxy: WriterProxy, count: int, cause: LossCause) -> None:
        """Count ``count`` samples of a writer as lost."""
        self._counters.lost_samples += count
        each = proxy.guid, cause
        if count > 0 and (each in self._by_cause or len(self._by_cause) < WRITERS_MAX):
            self._by_cause[each] += count

    def lose_range(self, proxy: WriterProxy, first: int, last: int, cause: LossCause) -> None:
        """Count first..last as lost: the part sent while the writer was away for that reason, the rest for
        ``cause``."""
        first = min(max(first, proxy.announced_until + 1), last + 1)
        away = proxy.away_in(first, last)
        if proxy.away is not None:
            self.lose(proxy, away, proxy.away)
        self.lose(proxy, last + 1 - first - away, cause)

    def pass_missed(self, proxy: WriterProxy, last: int) -> bool:
        """Pass missed samples up to ``last``; returns whether these are all."""
        count = proxy.missed_in(last)
        if count and proxy.away is not None:
            announced = min(max(proxy.announced_until + 1 - proxy.expected, 0), count)
            proxy.move_to(proxy.expected + count)
            self._counters.missed_samples += count - announced if proxy.away is LossCause.MOVED else 0
            self.lose(proxy, count - announced, proxy.away)
        return proxy.expected > last

    def pass_irrelevant(self, proxy: WriterProxy, last: int) -> None:
        """Pass all numbers up to ``last`` as irrelevant, except those that were missed before the match."""
        if not proxy.info.filters and self.pass_missed(proxy, last):
            return
        self._counters.irrelevant_samples += proxy.move_to(last + 1)
