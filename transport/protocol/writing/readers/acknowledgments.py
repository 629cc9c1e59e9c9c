"""Acknowledgements of readers, and what they decide: samples in flight, samples kept, and who gets HEARTBEATs.

Invariants:
* the send window holds the samples that were written and not acknowledged by every *active* reader
  (:mod:`.reader_activity`) that paces the writer (:mod:`..flow.flow_control`); all of them are in the history, unless
  their LIFESPAN is over;
* samples that a reader lacks which does not pace the writer are kept for a term behind the sender; then the reader is
  dropped, and continues with the next sample that is sent;
* a reader is in the schedule (:mod:`.heartbeat_schedule`) until it has everything and is ready;
* samples sent to a reader without positive acknowledgements count as acknowledged once the keep duration is
  over (:mod:`.keep_duration`).
"""

from __future__ import annotations

from collections.abc import Iterable

from ....structure import Guid
from ....wire.status_messages import StatusMessage
from ..flow import FlowControl
from ..publication import UnsentChanges, WriterHistory
from ..state import WriterState
from .heartbeat_schedule import HeartbeatSchedule
from .keep_duration import KeepDuration
from .pacing import Pacing
from .reader_activity import ReaderActivity
from .reader_proxy import ReaderProxy
from .reader_repairs import Missing
from .send_window import SendWindow


class Acknowledgments:
    """Tracks what the reliable readers of one writer have acknowledged, and updates window, pacing and history."""

    def __init__(
        self,
        state: WriterState,
        history: WriterHistory,
        unsent: UnsentChanges,
        flow_control: FlowControl,
    ) -> None:
        policy, counters = state.policy, state.counters
        self.readers: dict[Guid, ReaderProxy] = {}
        self.window = SendWindow(policy, counters)
        self.activity = ReaderActivity(policy, counters, flow_control.policy.receiver_timeout)
        self.pacing = Pacing(
            policy, flow_control, unsent.numbers, self.activity.active, unsent.positions.term_window
        )
        #: Readers that fell behind and were dropped; a HEARTBEAT is to announce where they rejoin.
        self._dropped: list[ReaderProxy] = []
        self._state = state
        self._unsent = unsent
        self._keep = KeepDuration(policy)
        self.schedule = HeartbeatSchedule(policy, self._keep)
        self._history = history
        self._blocked = False
        #: Acknowledgements or readers changed, and an exception interrupted :meth:`_progress`.
        self._owes_progress = False

    # --- readers ---------------------------------------------------------------------------------

    def add_reader(self, proxy: ReaderProxy, now: int) -> None:
        owed, self._owes_progress = self._owes_progress, True
        self.pacing.join(proxy)
        self.readers[proxy.guid] = proxy
        self.activity.add_reader(proxy)
        self.window.reaches(self.pacing.window)
        if not proxy.positive_acks:
            self._keep.sent(self._state.sent_sn, now)
        self.schedule.begin(proxy, now)
        self.pacing.update()  # last, because a user's own strategy may raise
        self._owes_progress = owed

    def remove_reader(self, proxy: ReaderProxy) -> None:
        """Stop waiting for a reader that is not matched any more."""
        if self.readers.pop(proxy.guid, None) is not None:
            owed, self._owes_progress = self._owes_progress, True
            self.schedule.end(proxy)
            self.activity.remove_reader(proxy.guid)
            self.pacing.leave(proxy)
            self.window.reaches(self.pacing.window)
            if not self.pacing.is_held_up_without(proxy):
                self._progress()
                return
            if not self.activity.unacknowledging:
                self._keep.forget_readers()
            self._owes_progress = owed

    def on_status(self, proxy: ReaderProxy, message: StatusMessage, now: int) -> None:
        """A reader reports how far it has consumed, which acknowledges that too, and the size of its window."""
        has_more = self._advance(proxy, min(message.consumption_sn, self._state.sent_sn))
        self.pacing.on_status(proxy, message, self._state.sent_sn)
        if self.activity.rest(proxy, rests=message.end_of_stream) or has_more:
            self._progress()
            self._set_pace(now)
        else:
            self.pacing.update()

    def unacknowledged(self, sn: int) -> dict[Guid, int]:
        """Active readers that have not acknowledged all up to ``sn``, with the highest number each has acknowledged."""
        return {guid: proxy.acked for guid, proxy in self.activity.active.items() if proxy.acked < sn}

    # --- events ----------------------------------------------------------------------------------

    def written(self, now: int) -> None:
        """Samples were written: drop them if no reader is waited for, else wait for their acknowledgement."""
        if not self.activity.active:
            self._history.trim(self._state.last_sn)
            self._unsent.numbers.forget_up_to(self._state.last_sn)
        self.sent(now)
        self.await_all(now)
        self._leave_silent(now)
        self._set_pace(now)

    def await_all(self, now: int) -> None:
        """Wait for each reader that lacks something."""
        if len(self.schedule.waiting) < len(self.readers):
            for proxy in self.readers.values():
                if proxy.acked < self._state.last_sn:
                    self.schedule.begin(proxy, now)

    def sent(self, now: int) -> None:
        """Samples were sent: readers without positive acknowledgements get time to request them."""
        if self.activity.unacknowledging:
            self._keep.sent(self._state.sent_sn, now)

    def left(self, now: int) -> None:
        """All datagrams that waited for tokens have left: the time in which readers without positive acknowledgements
        can request them begins now."""
        self._keep.left(now)

    def irrelevant(self, readers: Iterable[ReaderProxy], now: int) -> None:
        """Everything sent so far is irrelevant to these readers: if they request it, the answer is a GAP."""
        for proxy in readers:
            proxy.first_relevant = self._state.sent_sn + 1
            self._advance(proxy, self._state.sent_sn)
        self._progress()
        self._set_pace(now)

    def given_up(self, first_sn: int, now: int) -> None:
        """Samples from ``first_sn`` on were aborted."""
        self.window.give_up(first_sn)
        self._progress()
        self._set_pace(now)

    def blocked(self, blocked: bool, now: int) -> None:
        """Note whether the last write took only part of its samples."""
        self._blocked = blocked
        self._set_pace(now)

    def on_acknack(self, proxy: ReaderProxy, missing: Missing, now: int, *, final: bool) -> None:
        """RTPS 2.5 §8.4.7.5 acked_changes_set."""
        last_sn = self._state.sent_sn
        proxy.acknacks_received += 1
        proxy.heartbeats.received()
        if final or missing.base > 1 or not missing.is_empty:
            proxy.settled = True
        self.activity.received(proxy, missing, last_sn)
        # No reader can have samples that were never sent.
        acked = min(missing.base - 1, last_sn)
        if missing.base > proxy.rejoins_at:
            proxy.rejoins_at = 0
        if self._advance(proxy, acked):
            self._progress()
            self._set_pace(now)
        else:
            self._release(proxy)
        self.schedule.received(proxy, now)

    def on_loss(self, proxy: ReaderProxy, sn: int, now: int) -> None:
        """A reader lacks ``sn``. This is no loss if ``sn`` was written before the match."""
        if proxy.joined_sn < sn <= self._state.sent_sn:
            self.window.on_loss(sn, self._state.last_sn, now)
            if not proxy.positive_acks:
                self._keep.on_nack(now)

    def take_dropped(self) -> list[ReaderProxy]:
        """Readers that were dropped since the last call: a HEARTBEAT is to announce where they rejoin."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def get_timer(self) -> int | None:
        """When to call :meth:`handle_timer`; the schedule has a timer of its own."""
        if self._owes_progress:
            return 0
        return None if self._state.is_congested else self._keep.get_timer()

    def handle_timer(self, now: int) -> None:
        if self._owes_progress:
            self._progress()
            self._set_pace(now)
        # No reader can have requested samples that still wait for tokens.
        if not self._state.is_congested and (given_up := self._keep.expired(now)):
            for proxy in self.readers.values():
                if not proxy.positive_acks:
                    self._advance(proxy, given_up)
            self._progress()
            self._set_pace(now)

    def due(self, now: int) -> list[ReaderProxy]:
        """The readers that are due a HEARTBEAT now."""
        due = self.schedule.due(self._state.sent_sn, now)
        self._leave_silent(now)
        return due

    # --- effects ---------------------------------------------------------------------------------

    def _advance(self, proxy: ReaderProxy, acked: int) -> bool:
        """Note that the reader has everything up to ``acked``; returns whether it had less before."""
        if acked <= proxy.acked:
            return False
        self._owes_progress = True
        proxy.advance(acked)
        self.pacing.on_acknowledgment(proxy)
        return True

    def _leave_silent(self, now: int) -> None:
        """Stop waiting for readers that do not answer."""
        if self.activity.gives_up and self.activity.silent(now):
            self._owes_progress = True
            self._progress()
            self._set_pace(now)

    def settle(self) -> None:
        """Recount the window and the history after an exception interrupted a change of them."""
        self.window.settle(self._state.last_sn)
        self._history.settle()

    def _progress(self) -> None:
        """Remove samples that every active reader has from the window and, as QoS allows, from the history."""
        try:
            self._let_go()
        except BaseException:
            self.settle()
            raise

    def _let_go(self) -> None:
        for waiting in list(self.schedule.waiting.values()):
            self._release(waiting)
        self.pacing.update()
        self.window.reaches(self.pacing.window)
        acked = self.pacing.acknowledged(none=self._state.last_sn)
        self.window.acknowledge(acked)
        self._trim(acked)
        if not self.window.samples:
            self._blocked = False
        if not self.activity.unacknowledging:
            self._keep.forget_readers()
        self._owes_progress = False

    def _trim(self, acked: int) -> None:
        """Drop samples up to ``acked``, which all pacing readers have; they are kept for other readers for a term."""
        kept = min((proxy.acked for proxy in self.activity.active.values()), default=acked)
        if kept < acked:
            unsent = self._unsent
            kept = max(kept, min(acked, unsent.numbers.number_at(unsent.positions.cleanable)))
            for proxy in self.activity.active.values():
                if proxy.acked < kept:
                    self._drop(proxy)
        self._history.trim(kept)
        self._unsent.numbers.forget_up_to(min(kept, self.pacing.consumed(none=kept)))

    def _drop(self, proxy: ReaderProxy) -> None:
        """Drop a reader that fell behind: it rejoins at the newest sample."""
        proxy.acked = self._state.sent_sn
        proxy.first_relevant = proxy.rejoins_at = proxy.acked + 1
        proxy.repairs.gone()
        self.pacing.on_acknowledgment(proxy)
        self._state.counters.dropped_readers += 1
        self._dropped.append(proxy)

    def _release(self, proxy: ReaderProxy) -> None:
        if proxy.is_ready and proxy.acked >= self._state.last_sn:
            self.schedule.end(proxy)

    def _set_pace(self, now: int) -> None:
        fast = self._blocked or self.window.is_high or bool(self._unsent.queue)
        if fast != self.schedule.fast:
            self.schedule.set_fast(fast, now)
