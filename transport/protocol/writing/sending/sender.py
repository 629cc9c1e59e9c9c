"""The sender of a writer, as in Aeron: published changes up to the limit of flow control, HEARTBEATs, and answers.

Invariant: HEARTBEATs and repairs never cover changes that still wait in ``UnsentChanges.queue``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ....structure import INFINITE, Guid
from ...outgoing import Outgoing, Packer
from ..changes import Change
from ..publication import UnsentChanges, WriterHistory
from ..readers import Acknowledgments, ReaderProxy
from ..state import WriterState
from .broadcast import Broadcast
from .heartbeats import Heartbeats

#: Bytes framed before they are handed over, so that they are sent while they are in the processor's cache.
HAND_OVER_BYTES: Final = 1 << 20


class Sender:
    """The sending side of one writer; ``readers`` are all matched readers, ``acks`` covers the reliable ones."""

    def __init__(
        self,
        state: WriterState,
        history: WriterHistory,
        unsent: UnsentChanges,
        readers: Mapping[Guid, ReaderProxy],
        acks: Acknowledgments,
        broadcast: Broadcast,
    ) -> None:
        self._state = state
        self._history = history
        self._lifespan = history.lifespan
        self._unsent = unsent
        self._positions = unsent.positions
        self._readers = readers
        self._acks = acks
        self._reliable = acks.readers
        #: Readers that must acknowledge samples.
        self._active = acks.activity.active
        self._window = acks.window
        self._pacing = acks.pacing
        self._schedule = acks.schedule
        self._broadcast = broadcast
        self.heartbeats = Heartbeats(state, history, acks, broadcast, self.queue)
        self._out: list[Outgoing] = []

    # --- published changes -----------------------------------------------------------------------

    def write_changes(
        self, changes: Iterable[Change], count: int, now: int, hand_over: Callable[[], object] | None = None
    ) -> None:
        """Send and keep the next ``count`` samples if there is a reader, a spy, or a history for late joiners.

        ``hand_over`` is called after each HAND_OVER_BYTES while more is to be framed.
        """
        state = self._state
        before, last_sn = state.last_sn, state.last_sn + count
        try:
            if self._readers or self._active or self._history.is_for_late_joiners or self._unsent.spies:
                framed = 0
                for change in changes:
                    self._unsent.publish(change)
                    self.published(change)
                    framed += change.nbytes
                    if framed >= HAND_OVER_BYTES and hand_over is not None and change.last_sn < last_sn:
                        framed = 0
                        self.transmit(now)
                        state.touch()
                        hand_over()
            state.last_sn = last_sn
        except BaseException:
            self.complete()
            raise
        finally:
            state.counters.written_samples += state.last_sn - before
        self.transmit(now)

    def published(self, change: Change) -> None:
        """Assign its numbers to a published change, and add it to the send window and the history."""
        state = self._state
        if self._active:
            self._window.add_change(change)
        state.last_batch_sn = change.batch_sn
        if self._active or self._history.is_for_late_joiners:
            self._history.append(change)
        state.last_sn = change.last_sn
        state.counters.written_bytes += change.nbytes

    def complete(self) -> None:
        """Complete a write that an exception interrupted: a change that readers may have is published, and no other
        change has a number."""
        change = self._unsent.complete()
        self._acks.settle()
        if change is not None:
            self.published(change)

    def transmit(self, now: int) -> None:
        """Send published changes up to the limit of flow control."""
        unsent, pacing = self._unsent, self._pacing
        if self._broadcast.reaches_groups is not pacing.is_multicast:
            pacing.reaches(groups=not pacing.is_multicast)
        sent_before, has_consumed = self._state.sent_sn, pacing.has_consumed
        while (change := unsent.take_next(pacing.limit, has_consumed)) is not None:
            self._schedule.data_sent(now)
            if not self._lifespan.is_over(change):
                self._send(change, now)
        if self._state.sent_sn > sent_before:
            self._acks.sent(now)
        unsent.conduct()
        self._positions.on_limit(self._limit_to_show())

    def _limit_to_show(self) -> int:
        """The value of ``snd_lmt``; without status messages it is derived from the free send window."""
        limit = self._pacing.limit
        if limit < INFINITE:
            return limit
        free = self._state.policy.window_bytes - self._window.nbytes if self._active else 0
        return self._positions.pub_pos + max(0, free)

    def _send(self, change: Change, now: int) -> None:
        """Queue a change for its one sending to all readers, with piggybacked HEARTBEATs where they are due."""
        if not self._broadcast.has_readers:
            return
        state = self._state
        if state.is_asynchronous:
            state.backlog += change.nbytes
        content = change.content
        if not content.sends_in_parts:
            self._broadcast.samples(change, change.first_sn, change.last_sn)
            self._sent(change.units, change.nbytes, change.last_sn, now)
            return
        first = change.first_sn
        while first <= change.last_sn:
            last = min(change.last_sn, first + self._window.until_heartbeat - 1)
            self._broadcast.samples(change, first, last)
            self._sent(last - first + 1, content.nbytes_of(first, last), last, now)
            first = last + 1

    def _sent(self, count: int, nbytes: int, last_sn: int, now: int) -> None:
        if self._window.sent(count, nbytes) and self._reliable:
            self.heartbeats.piggyback(now, last_sn)

    def gap(self, first_sn: int, last_sn: int) -> None:
        """Announce to all readers, by a GAP, that first_sn..last_sn will never come."""
        self._broadcast.gap(first_sn, last_sn)

    # --- out -------------------------------------------------------------------------------------

    def send_to_reader(self, proxy: ReaderProxy, submessage: bytes) -> None:
        """Send a submessage to one reader alone."""
        packer = Packer(self._state.message_size, proxy.info.destinations, proxy.guid.prefix)
        packer.add_submessage(submessage)
        self.queue(packer)

    def queue(self, packer: Packer) -> None:
        """Send these datagrams with the next :meth:`outgoing`."""
        if packer.destinations:
            self._out += packer.packed

    def outgoing(self) -> list[Outgoing]:
        """Take the datagrams to send now."""
        out, self._out = self._out, []
        self._unsent.handed_over()
        return out + self._broadcast.take_datagrams()
