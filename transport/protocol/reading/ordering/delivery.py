"""Delivery of samples to the owner of a reader: in order per writer, complete, and within the owner's window.

Runs go in by :meth:`Delivery.accept`; the next one in order becomes ``ready``, others are held. Batches and coherent
sets are handed out whole. Sequence numbers that will never come are passed.

The invariants are those of :mod:`..reader`; the state of one writer is in its :mod:`.writer_proxy`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ....limits import FRAGMENTED_SAMPLE_MAX
from ....structure import INFINITE, Guid
from ....wire.samples import Run
from ...policies import LossCause, ReaderCounters
from .coherent_access import Verdict, sets_of
from .losses import Losses
from .reassembly import Reassembly
from .reorder_buffer import ReorderBudget
from .writer_proxy import WriterProxy

#: This many bytes of window open a closed writer, even if its refused run was longer.
_LITTLE: Final = 4_096


class Delivery:
    """The way from arrival to the owner, for all writers of one reader."""

    __slots__ = (
        "closed",
        "counters",
        "losses",
        "ready",
        "reassembly",
        "reorder_budget",
        "sample_size_max",
        "window",
    )

    def __init__(self, counters: ReaderCounters, writers: Mapping[Guid, WriterProxy]) -> None:
        self.counters = counters
        #: Bytes the owner can take.
        self.window = INFINITE
        self.sample_size_max = FRAGMENTED_SAMPLE_MAX
        self.ready: list[Run] = []
        #: Closed writers, of which a run did not fit, with the window in bytes that opens them.
        self.closed: dict[Guid, int] = {}
        self.losses = Losses(counters)
        self.reassembly = Reassembly(writers, counters)
        self.reorder_budget = ReorderBudget()

    def forget_writer(self, proxy: WriterProxy) -> None:
        """Forget a writer; its announced but missing samples and incomplete samples are lost."""
        self.losses.lose(proxy, proxy.undelivered, LossCause.WRITER_GONE)
        if proxy.sets is not None:
            self.counters.coherent_sets_lost += sets_of(proxy.held)
        self._clear(proxy)

    # --- what arrived ----------------------------------------------------------------------------

    def accept(self, proxy: WriterProxy, run: Run, *, owned: bool = False) -> None:
        """Take a run that is not the next one in order; ``owned``: it was reassembled, and views no receive buffer."""
        is_marker = run.coherent_set < 0 and run.ends_coherent_set
        # An end marker that arrived before its set is kept: only the marker shows where the set ends.
        is_next = not proxy.held and (run.first_sn <= proxy.expected if proxy.synced else not proxy.reliable)
        if is_marker and (proxy.sets is None or is_next):
            self.pass_over(proxy, run.first_sn, run.last_sn, lost=False)
            return
        if run.last_sn < proxy.expected:
            self.counters.duplicate_samples += run.count
            return
        if run.first_sn < proxy.expected:
            known = proxy.expected - run.first_sn
            self.counters.duplicate_samples += known
            run = run.take_range(known, run.count)
        if proxy.sets is not None and (run.coherent_set > 0 or is_marker or proxy.held):
            self._accept_coherent(proxy, run, owned=owned)
        elif not proxy.reliable:
            self._deliver_best_effort(proxy, run)
        elif not proxy.synced or run.first_sn != proxy.expected:
            self._hold(proxy, run, owned=owned)
        elif run.nbytes <= self.window:
            self._deliver(proxy, run)
            self.drain(proxy)
        else:
            if (fits := _fitting(run, self.window)) > 0:
                self._deliver(proxy, run.take_range(0, fits))
                run = run.take_range(fits, run.count)
            self.refuse(proxy, run.count, _needed(run), run.last_sn)
            if owned:  # sending it again would be expensive
                self._hold(proxy, run, owned=True)

    def is_next(self, proxy: WriterProxy, run: Run) -> bool:
        """Whether :meth:`accept` hands a run out at once, and keeps nothing of it."""
        return (
            proxy.synced
            and run.first_sn == proxy.expected
            and run.nbytes <= self.window
            and not proxy.held
            and not run.coherent_set
        )

    def takes_next(self, proxy: WriterProxy, first_sn: int, nbytes: int, runs: int = 1) -> bool:
        """Whether ``runs`` runs of ``nbytes`` each, of no coherent set, are the next ones and no other rule applies."""
        return (
            first_sn == proxy.expected
            and proxy.synced
            and runs * nbytes <= self.window
            and nbytes <= self.sample_size_max
            and not proxy.held
            and not proxy.fragments
            and not proxy.resting
        )

    def _accept_coherent(self, proxy: WriterProxy, run: Run, *, owned: bool) -> None:
        """Take a run of a coherent set, or one that arrives while a set waits for its end."""
        held, sets = proxy.held, proxy.sets
        if not proxy.reliable:
            self._skip_to(proxy, run.first_sn)
        if sets is not None and proxy.synced and proxy.expected in held and run.first_sn == held.first_hole:
            if sets.end(held, run):
                self.drain(proxy)
                if not held and proxy.expected == run.first_sn and run.coherent_set <= 0:
                    self.accept(proxy, run, owned=owned)
                    return
        is_of_next = proxy.synced and 0 < run.coherent_set <= proxy.expected
        fits = self._hold(proxy, run, owned=owned, is_sent_again=proxy.reliable and not is_of_next)
        if proxy.synced:
            if not fits and is_of_next:
                self._give_up_set(proxy, run)
            self.drain(proxy)

    def _give_up_set(self, proxy: WriterProxy, run: Run) -> None:
        """The set at ``expected``, to which ``run`` belongs, is larger than the buffer: it would wait for ever."""
        held, sets, counters = proxy.held, proxy.sets, self.counters
        if sets is None:
            return
        sets.lose(run.coherent_set, run.coherent_set)
        counters.coherent_sets_lost += sets.count(run.coherent_set)
        known = sum(last + 1 - first for first, last in held.covered.within(proxy.expected, run.last_sn))
        irrelevant = known - held.discard_below(run.last_sn + 1)
        counters.irrelevant_samples += irrelevant
        self.losses.lose(proxy, proxy.move_to(run.last_sn + 1) - irrelevant, LossCause.COHERENT_SET)

    def _deliver_best_effort(self, proxy: WriterProxy, run: Run) -> None:
        if run.nbytes > self.window:
            self.reject(proxy, run.first_sn, run.last_sn, run.count)
            return
        self._skip_to(proxy, run.first_sn)
        self._deliver(proxy, run)
        self.reassembly.discard_below(proxy, proxy.expected)

    def reject(self, proxy: WriterProxy, first_sn: int, last_sn: int, count: int) -> None:
        """Reject ``count`` new samples, first_sn..last_sn, of a best-effort writer for lack of space.

        They were received, so they do not count as lost, too.
        """
        self._skip_to(proxy, first_sn)
        self.counters.window_closed += count
        self.counters.irrelevant_samples += proxy.move_to(last_sn + 1) - count
        self.reassembly.discard_below(proxy, proxy.expected)

    def _skip_to(self, proxy: WriterProxy, sn: int) -> None:
        """Move to ``sn`` of a best-effort writer: earlier samples will not come any more."""
        held = proxy.held
        behind = held.first_hole if held else proxy.expected
        if sn <= behind:
            return
        if proxy.sets is not None:
            proxy.sets.lose(behind, sn - 1)
            last = held.last_before_hole
            if last is not None:  # its set may have ended there, or continued
                proxy.sets.lose(last.coherent_set, last.coherent_set)
            self.drain(proxy)
        if not held and self.losses.pass_missed(proxy, sn - 1):
            return
        self.losses.lose_range(proxy, behind, sn - 1, LossCause.NOT_RECEIVED)
        proxy.move_to(sn)

    def _hold(self, proxy: WriterProxy, run: Run, *, owned: bool, is_sent_again: bool = True) -> bool:
        """Keep a run until its turn; False if not all of it fits.

        Samples that do not fit and are not sent again are lost, and do not count as rejected, too.
        """
        new, kept, lost = proxy.held.add_run(run, owned=owned or run.batch_sn > 0)
        self.counters.duplicate_samples += run.count - new
        self.counters.held_samples += kept
        if not lost:
            return True
        rejected = lost if is_sent_again else lost - (new - kept)
        if proxy.held.window.is_full:
            self.counters.receive_window_overflow += rejected
        self.counters.reorder_overflow += rejected
        # Samples that are given up are requested again, because they were announced.
        proxy.last_sn = max(proxy.last_sn, run.last_sn)
        return kept == new

    def refuse(self, proxy: WriterProxy, count: int, nbytes: int, last_sn: int) -> None:
        """Refuse the next samples, which do not fit the window; a reliable writer sends them again later."""
        self.counters.window_closed += count
        if proxy.reliable:
            self.closed[proxy.guid] = nbytes
            proxy.last_sn = max(proxy.last_sn, last_sn)

    # --- what will never come --------------------------------------------------------------------

    def sync(self, proxy: WriterProxy, expected: int) -> None:
        """Begin with a writer at ``expected``."""
        proxy.begin_at(expected)
        if proxy.sets is not None:  # a set that began earlier is known only in part
            proxy.sets.lose(1, expected - 1)
        proxy.held.discard_below(expected)
        self.reassembly.discard_below(proxy, expected)

    def skip_range(self, proxy: WriterProxy, first: int, last: int) -> None:
        """first..last will never come."""
        first = max(first, proxy.expected)
        if first > last:
            return
        if proxy.synced and first == proxy.expected and not proxy.held:
            self.losses.pass_irrelevant(proxy, last)
        elif proxy.reliable or (proxy.held and first == proxy.held.first_hole):
            if not proxy.held.add_irrelevant(first, last):
                self.counters.gap_overflow += 1
                if proxy.synced and first == proxy.expected:
                    self.losses.pass_irrelevant(proxy, last)

    def give_up_sets(self, proxy: WriterProxy, first: int, last: int) -> None:
        """first..last will never come; a coherent set of which a part had come was aborted by its writer."""
        if proxy.sets is None or not proxy.held:
            return
        for number in proxy.held.discard_sets(first, last):
            proxy.sets.lose(number, number)

    def pass_over(self, proxy: WriterProxy, first: int, last: int, *, lost: bool = True) -> bool:
        """Skip the arrived first..last, which are not for the user; False if they are known already.

        ``lost``: the coherent set to which it belongs is lost.
        """
        if first < proxy.expected or first in proxy.held:
            self.counters.duplicate_samples += last + 1 - first
            return False
        if not proxy.reliable:
            self._skip_to(proxy, first)
        if proxy.sets is not None and lost:
            proxy.sets.lose(first, last)
        self.skip_range(proxy, first, last)
        if proxy.synced:
            self.drain(proxy)
        return True

    def pass_by(self, proxy: WriterProxy, last_sn: int) -> None:
        """Count samples up to ``last_sn`` of a resting writer as lost."""
        if proxy.synced and last_sn >= proxy.expected:
            if proxy.sets is not None:
                proxy.sets.lose(proxy.expected, last_sn)
            self.losses.lose(proxy, proxy.move_to(last_sn + 1), LossCause.UNTETHERED)

    def let_go(self, proxy: WriterProxy) -> None:
        """Drop all held samples of a resting writer."""
        self.pass_by(proxy, proxy.announced)
        self._clear(proxy)

    def _clear(self, proxy: WriterProxy) -> None:
        self.closed.pop(proxy.guid, None)
        self.reassembly.discard_below(proxy, INFINITE + 1)
        proxy.held.clear()

    # --- out -------------------------------------------------------------------------------------

    def drain(self, proxy: WriterProxy) -> None:
        """Hand out held samples that follow ``expected`` without a hole; pass numbers that will never come."""
        held, counters = proxy.held, self.counters
        while True:
            # First of all, so that held samples lie above ``expected``, which each turn of the loop moves up.
            counters.duplicate_samples += held.discard_below(proxy.expected)
            step = held.peek(proxy.expected)
            if step is None:
                if proxy.expected >= proxy.first_sn:
                    break
                # The writer no longer has the samples missing before first_sn (RTPS 2.5 §8.4.12.2.6).
                skipped_to = min(proxy.first_sn, held.covered.lowest[0]) if held else proxy.first_sn
                if proxy.sets is not None:
                    proxy.sets.lose(proxy.expected, skipped_to - 1)
                if proxy.info.filters:
                    counters.irrelevant_samples += proxy.move_to(skipped_to)
                elif not self.losses.pass_missed(proxy, skipped_to - 1):
                    if (first := max(proxy.expected, proxy.counts_losses_from)) < skipped_to:
                        self.losses.lose_range(proxy, first, skipped_to - 1, LossCause.HISTORY)
                    proxy.move_to(skipped_to)
                continue
            after, run = step
            if run is None:
                self.losses.pass_irrelevant(proxy, after - 1)
                continue
            verdict = self._judge(proxy, run)
            if verdict is Verdict.OPEN:
                break
            if verdict is Verdict.WHOLE and not self._hand_out(proxy, run):
                break
            if verdict is Verdict.LOST:
                self.losses.lose(proxy, run.count, LossCause.COHERENT_SET)
                self._move_on(proxy, [run])
        self.reassembly.discard_below(proxy, proxy.expected)

    def _judge(self, proxy: WriterProxy, run: Run) -> Verdict:
        sets = proxy.sets
        if sets is None or run.coherent_set <= 0:
            return Verdict.WHOLE
        if self.closed.get(proxy.guid, 0) > self.window:
            return Verdict.OPEN  # it was complete, and still does not fit
        bytes_max = min(proxy.held.bytes_max, self.sample_size_max)
        verdict = sets.judge(proxy.held, proxy.expected, first_sn=proxy.first_sn, bytes_max=bytes_max)
        if verdict is Verdict.LOST:
            self.counters.coherent_sets_lost += sets.count(run.coherent_set)
        return verdict

    def _hand_out(self, proxy: WriterProxy, run: Run) -> bool:
        """Deliver the first held run and the runs that belong to it; False if they do not fit the window."""
        runs = proxy.held.group(proxy.expected, coherent=proxy.sets is not None)
        if run.ends_coherent_set:
            self.counters.irrelevant_samples += run.count
            self._move_on(proxy, [run])
            return True
        nbytes = sum(each.nbytes for each in runs)
        if nbytes <= self.window:
            for each in runs:
                if each.coherent_set >= 0 or not each.ends_coherent_set:
                    self._deliver(proxy, each)
            if proxy.expected <= runs[-1].last_sn:
                self.counters.irrelevant_samples += proxy.move_to(runs[-1].last_sn + 1)
            proxy.held.pop(len(runs))
            return True
        if len(runs) == 1:
            if (fits := _fitting(run, self.window)) > 0:
                self._deliver(proxy, run.take_range(0, fits))
                return True  # the rest comes next
            nbytes = _needed(run)
        self.refuse(proxy, sum(each.count for each in runs), nbytes, runs[-1].last_sn)
        if not proxy.reliable:
            self._move_on(proxy, runs)
        return not proxy.reliable

    def _move_on(self, proxy: WriterProxy, runs: list[Run]) -> None:
        """Move past the first held runs, which are counted already; numbers before or between them are irrelevant."""
        passed = proxy.move_to(runs[-1].last_sn + 1)
        self.counters.irrelevant_samples += passed - sum(run.count for run in runs)
        proxy.held.pop(len(runs))

    def _deliver(self, proxy: WriterProxy, run: Run) -> None:
        """Hand out a run; the numbers between ``expected`` and the run are irrelevant."""
        self.window -= run.nbytes
        proxy.stream.rcv_pos += run.nbytes
        self.counters.received_samples += run.count
        if run.first_sn > proxy.expected:
            self.losses.pass_irrelevant(proxy, run.first_sn - 1)
        proxy.expected = run.last_sn + 1
        self.ready.append(run)


def waits_for_set(proxy: WriterProxy, runs: Sequence[Run]) -> bool:
    """Whether runs are held for the end of a coherent set before the window counts."""
    return proxy.sets is not None and (bool(proxy.held) or any(run.coherent_set > 0 for run in runs))


def _fitting(run: Run, window: int) -> int:
    """How many of the run's first samples fit ``window``; 0 if its samples must be handed out together."""
    if run.batch_sn or run.coherent_set or run.count == 1:
        return 0
    fits = min(run.count * max(window, 0) // run.nbytes, run.count - 1)
    while fits and run.take_range(0, fits).nbytes > window:
        fits = fits * 7 // 8
    return fits


def _needed(run: Run) -> int:
    """The window that a run needs: all of its bytes, or less if it may be handed out in parts."""
    if run.batch_sn or run.coherent_set:
        return run.nbytes
    return max(run.take_range(0, 1).nbytes, min(run.nbytes, _LITTLE))
