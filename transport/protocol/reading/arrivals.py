"""Samples as they arrive: the next ones in order, or early, late, too large, or with skipped numbers between them.

They are delivered or held (:mod:`.ordering.delivery`), and may lead to answers (:mod:`.response.responder`). The
invariants are those of :mod:`.reader`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ...wire.batch import Batch
from ...wire.samples import Run
from ..policies import ReaderCounters
from .ordering.delivery import Delivery, waits_for_set
from .ordering.writer_proxy import WriterProxy
from .response.responder import Responder


class OnRun(Protocol):
    """Takes a run at a time ``now``."""

    def __call__(self, run: Run, *, now: int) -> None: ...


class Arrivals:
    """The arriving samples of all writers of one reader; ``takes_history``: the reader is transient-local."""

    __slots__ = ("_counters", "_delivery", "_responder", "_takes_history")

    def __init__(
        self, counters: ReaderCounters, delivery: Delivery, responder: Responder, *, takes_history: bool
    ) -> None:
        self._counters = counters
        self._delivery = delivery
        self._responder = responder
        self._takes_history = takes_history

    def take_next(self, proxy: WriterProxy, runs: Sequence[Run], now: int) -> bool:
        """Hand out runs if they are the next ones in order, and no other rule applies; else return False.

        The runs follow one another and have equal lengths.
        """
        run = runs[0]
        if run.coherent_set:
            return False
        if not self._delivery.takes_next(proxy, run.first_sn, run.data.nbytes, len(runs)):
            return False
        self.hand_out(proxy, runs, now)
        return True

    def hand_out(self, proxy: WriterProxy, runs: Sequence[Run], now: int) -> None:
        """Hand out runs that `Delivery.takes_next` accepts."""
        run, delivery = runs[0], self._delivery
        nbytes, samples = len(runs) * run.data.nbytes, len(runs) * run.count
        proxy.expected += samples
        delivery.window -= nbytes
        self._counters.received_samples += samples
        delivery.ready += runs
        stream = proxy.stream
        stream.rcv_pos += nbytes
        if stream.rcv_pos >= stream.due:
            self._responder.on_progress(proxy, run, now)

    def accept(self, proxy: WriterProxy, run: Run, now: int, *, owned: bool = False) -> None:
        """Accept a run that is not the next one in order; ``owned``: it does not view the receive buffer."""
        if not proxy.synced:
            self.sync(proxy, run.first_sn)
        before = proxy.expected
        self._delivery.accept(proxy, run, owned=owned)
        if proxy.info.status_messages:
            self._responder.on_disorder(proxy, run, before, now)
        if proxy.reliable and proxy.synced:
            self._responder.on_arrival(proxy, run.first_sn, before, now)

    def accept_small(self, proxy: WriterProxy, run: Run, now: int) -> None:
        """Accept the samples of a run that are not too large, and skip the others."""
        start = 0
        for i in np.flatnonzero(run.samples().all_lengths() > self._delivery.sample_size_max).tolist():
            if start < i:
                self.accept(proxy, run.take_range(start, i), now)
            self.pass_oversized(proxy, run.first_sn + i, now)
            start = i + 1
        if start < run.count:
            self.accept(proxy, run.take_range(start, run.count), now)

    def pass_oversized(self, proxy: WriterProxy, sn: int, now: int) -> None:
        """Skip a sample that is too large for the owner and would otherwise block its writer for ever."""
        if not proxy.synced:
            self.sync(proxy, sn)
        before = proxy.expected
        if self._delivery.pass_over(proxy, sn, sn):
            self._counters.oversized_samples += 1
            if proxy.reliable and proxy.synced:
                self._responder.on_arrival(proxy, sn, before, now)

    def accept_pieces(self, proxy: WriterProxy, batch: Batch, on_run: OnRun, now: int) -> None:
        """Accept a batch that skips numbers, which will never come; ``on_run`` takes each of its runs."""
        delivery, counters = self._delivery, self._counters
        count, nbytes = sum(run.count for run in batch.runs), sum(run.nbytes for run in batch.runs)
        if not proxy.synced:
            self.sync(proxy, batch.first_sn)
        if batch.last_sn < proxy.expected:
            counters.duplicate_samples += count
            return
        if nbytes > delivery.window and not proxy.reliable and not waits_for_set(proxy, batch.runs):
            new = sum(max(run.last_sn + 1 - max(run.first_sn, proxy.expected), 0) for run in batch.runs)
            counters.duplicate_samples += count - new
            delivery.reject(proxy, batch.first_sn, batch.last_sn, new)
            return
        if nbytes > delivery.window and proxy.reliable and batch.first_sn <= proxy.expected:
            delivery.refuse(proxy, count, nbytes, batch.last_sn)
            return
        overflow, at = counters.reorder_overflow, batch.first_sn
        for run in batch.runs:
            delivery.skip_range(proxy, at, run.first_sn - 1)
            on_run(run, now=now)
            at = run.last_sn + 1
        delivery.skip_range(proxy, at, batch.last_sn)
        if counters.reorder_overflow > overflow:
            counters.reorder_overflow += proxy.held.give_up_batch(batch.batch_sn)
        if proxy.synced:
            delivery.drain(proxy)

    def sync(self, proxy: WriterProxy, sn: int) -> None:
        """Begin at ``sn``, the first data of a writer, unless the beginning depends on a HEARTBEAT."""
        if not proxy.reliable or (proxy.info.transient_local and not self._takes_history):
            self._delivery.sync(proxy, sn)
