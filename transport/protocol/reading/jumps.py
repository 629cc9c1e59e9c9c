"""What becomes of messages with sequence numbers far from where their writers are.

Each writer's own machine decides (:mod:`.ordering.sequence_jumps`); what it confirms is let in here, what it undoes is
taken back, and the owner is told of both. The invariants are those of :mod:`.reader`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

from ...limits import JUMP_REPORTS_MAX
from ...slotted import frozen
from ...structure import INFINITE, Guid
from ...wire.samples import Run
from ...wire.submessages import Heartbeat, HeartbeatBatch
from ..policies import ReaderCounters
from .arrivals import Arrivals
from .ordering.delivery import Delivery
from .ordering.sequence_jumps import REACH, Rumour
from .ordering.writer_proxy import WriterProxy
from .response.responder import Responder


class OnHeartbeat(Protocol):
    """What the HEARTBEATs of a reader's writers lead to (:mod:`.history_messages`)."""

    def on_heartbeat(self, proxy: WriterProxy, heartbeat: Heartbeat | HeartbeatBatch, now: int) -> None: ...


class JumpKind(enum.Enum):
    #: The writer may have jumped: nothing from there is delivered yet.
    HELD = "held"
    CONFIRMED = "confirmed"
    #: It never was there.
    REFUTED = "refuted"
    #: What was passed or resumed wrongly is taken back.
    UNDONE = "undone"


@frozen
class JumpReport:
    """A writer's number jumped; ``expected`` is the number that was next, ``number`` the one that came instead."""

    writer: Guid
    kind: JumpKind
    expected: int
    number: int


class Jumps:
    """The jumps of all writers of one reader; ``begins_anew``: the reader does, with each lower HEARTBEAT."""

    __slots__ = ("_arrivals", "_begins_anew", "_counters", "_delivery", "_responder", "history", "reports")

    def __init__(
        self,
        counters: ReaderCounters,
        delivery: Delivery,
        responder: Responder,
        arrivals: Arrivals,
        *,
        begins_anew: bool,
    ) -> None:
        self.history: OnHeartbeat
        #: Not fetched yet; at most JUMP_REPORTS_MAX.
        self.reports: list[JumpReport] = []
        self._counters = counters
        self._delivery = delivery
        self._responder = responder
        self._arrivals = arrivals
        self._begins_anew = begins_anew

    # --- ahead -----------------------------------------------------------------------------------

    def admits(self, proxy: WriterProxy, last_sn: int) -> bool:
        """Whether a number is in reach, so that it is believed at once."""
        return last_sn <= proxy.announced + REACH or (self._begins_anew and not proxy.synced)

    def admits_runs(self, proxy: WriterProxy, runs: Sequence[Run], last_sn: int, now: int) -> bool:
        """Whether samples up to ``last_sn`` are let in; else they are kept back, or dropped."""
        if self.admits(proxy, last_sn):
            return True
        first_sn = runs[0].first_sn if runs else last_sn
        if proxy.jumps.hears(first_sn, last_sn, proxy.announced, now):
            self._confirm(proxy, now)
            return True
        if (rumour := proxy.jumps.rumour) is not None:
            for run in runs:
                rumour.keep(run)
        self._hold(proxy, last_sn, now)
        return False

    def admits_heartbeat(self, proxy: WriterProxy, heartbeat: Heartbeat | HeartbeatBatch, now: int) -> bool:
        """Whether a HEARTBEAT is believed; if it is, it may refute what was believed before."""
        jumps, last_sn = proxy.jumps, heartbeat.last_sn
        if self.admits(proxy, last_sn):
            if jumps.rumour is not None:
                self._report(proxy, JumpKind.REFUTED, jumps.rumour.last)
                jumps.drop()
            self._compare(proxy, last_sn, now)
            return True
        if jumps.hears(last_sn, last_sn, proxy.announced, now, is_heartbeat=True):
            self._confirm(proxy, now)
            return True
        if jumps.rumour is not None:
            jumps.rumour.note(heartbeat)
        self._hold(proxy, last_sn, now)
        return False

    def admits_number(self, proxy: WriterProxy, last_sn: int) -> bool:
        """Whether a GAP or a HEARTBEAT_FRAG up to ``last_sn`` is believed; it is dropped if not."""
        admitted = self.admits(proxy, last_sn)
        self._counters.jumps_held += not admitted
        return admitted

    def _hold(self, proxy: WriterProxy, number: int, now: int) -> None:
        self._counters.jumps_held += 1
        self._report(proxy, JumpKind.HELD, number)
        self._responder.on_rumour(proxy, now)

    def _confirm(self, proxy: WriterProxy, now: int) -> None:
        rumour = proxy.jumps.rumour
        if rumour is None:
            return
        proxy.jumps.drop()
        self._counters.jumps_confirmed += 1
        self._report(proxy, JumpKind.CONFIRMED, rumour.first)
        self._let_in(proxy, rumour.runs[: rumour.runs_before], now)
        if rumour.heartbeat is not None:
            self.history.on_heartbeat(proxy, rumour.heartbeat, now)
        self._let_in(proxy, rumour.runs[rumour.runs_before :], now)

    def _let_in(self, proxy: WriterProxy, runs: Sequence[Run], now: int) -> None:
        for run in runs:
            if proxy.resting:
                self._delivery.pass_by(proxy, run.last_sn)
            elif run.nbytes > self._delivery.sample_size_max:
                self._arrivals.accept_small(proxy, run, now)
            else:
                self._arrivals.accept(proxy, run, now, owned=True)

    # --- back ------------------------------------------------------------------------------------

    def goes_back(self, proxy: WriterProxy, run: Run, now: int) -> None:
        """A run of a best-effort writer came from before ``expected``, where something was passed."""
        jumps, expected = proxy.jumps, proxy.expected
        if not jumps.goes_back(run, expected, now) or jumps.back is None:
            self._counters.duplicate_samples += run.count
            return
        back: Rumour = jumps.back
        jumps.drop_back()
        if back.runs and self._delivery.take_back(proxy, back.runs[0].first_sn - 1):
            self._undone(proxy, expected)
            self._let_in(proxy, back.runs, now)

    def _compare(self, proxy: WriterProxy, last_sn: int, now: int) -> None:
        """A HEARTBEAT announces ``last_sn`` as the highest number used: more than that was not."""
        jumps, expected = proxy.jumps, proxy.expected
        proxy.acks_below = INFINITE
        if proxy.held or proxy.fragments:
            highest = max(proxy.held.highest, max(proxy.fragments, default=0))
            if jumps.doubts_held(highest, last_sn, now):
                self._delivery.discard_above(proxy, last_sn)
                self._undone(proxy, highest)
        if last_sn >= expected - 1:
            jumps.resumed, jumps.resumed_since = 0, -1
        elif self._delivery.take_back(proxy, last_sn):
            self._undone(proxy, expected)
        elif proxy.held or proxy.fragments:
            jumps.resumed_since = -1
        elif jumps.doubts_resumed(expected, now):
            jumps.resumed, jumps.resumed_since = 0, -1
            proxy.go_back_to(last_sn + 1)
            self._undone(proxy, expected)
        elif jumps.resumed:
            self._hold(proxy, last_sn, now)
        if last_sn < proxy.expected - 1:
            proxy.acks_below = last_sn + 1

    def _undone(self, proxy: WriterProxy, number: int) -> None:
        self._counters.jumps_undone += 1
        self._report(proxy, JumpKind.UNDONE, number)
        self._responder.on_go_back(proxy)

    # --- the owner -------------------------------------------------------------------------------

    def take_reports(self) -> list[JumpReport]:
        reports, self.reports = self.reports, []
        return reports

    def _report(self, proxy: WriterProxy, kind: JumpKind, number: int) -> None:
        if len(self.reports) >= JUMP_REPORTS_MAX:
            return
        if not any(each.writer == proxy.guid and each.kind is kind for each in self.reports):
            self.reports.append(JumpReport(proxy.guid, kind, proxy.expected, number))
