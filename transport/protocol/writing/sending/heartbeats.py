"""HEARTBEATs and HEARTBEAT_BATCHes of one writer: which numbers they announce, and their destinations (RTPS 2.5
§8.3.8.6).

:mod:`..readers.heartbeat_schedule` decides when a reader gets one; others are piggybacked on data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ....structure import ENTITYID_UNKNOWN, Locator
from ....wire.submessages import Heartbeat, HeartbeatBatch
from ...counts import next_count
from ...outgoing import Packer, union_of
from ..changes import DATA
from ..publication import WriterHistory
from ..readers import Acknowledgments, ReaderProxy, destinations_of
from ..state import WriterState
from .broadcast import Broadcast

#: A reader that leaves more HEARTBEATs unanswered than this gets them by unicast instead of by its group.
_UNANSWERED_MAX: Final = 2


class Heartbeats:
    """Encodes, counts and sends the HEARTBEATs of one writer.

    HEARTBEATs to all readers are packed by ``broadcast`` behind its data, all others are passed to ``send``.
    """

    def __init__(
        self,
        state: WriterState,
        history: WriterHistory,
        acks: Acknowledgments,
        broadcast: Broadcast,
        send: Callable[[Packer], None],
    ) -> None:
        self._state = state
        self._writer_id = state.guid.entity
        self._history = history
        self._count = 0
        #: Whether the next HEARTBEATs also assert liveliness.
        self._asserts_liveliness = False
        self._window = acks.window
        self._schedule = acks.schedule
        self._broadcast = broadcast
        self._send = send

    # --- contents --------------------------------------------------------------------------------

    def next(self, now: int) -> int:
        """The count of the next HEARTBEAT, which is the same in all forms."""
        self._count = next_count(self._count, now)
        self._state.counters.heartbeats_sent += 1
        return self._count

    def to_all(self, form: str, count: int, last_sn: int | None = None) -> bytes:
        """A HEARTBEAT to all readers of a form; ``last_sn`` is its last number if samples are packed behind it."""
        return self._encode(ENTITYID_UNKNOWN, form, count, 1, last_sn)

    def to_one(self, proxy: ReaderProxy, now: int) -> bytes:
        """A HEARTBEAT to one reader. It begins where the reader joined, so the reader does not count as lost the
        earlier samples that only other readers still lack."""
        return self._encode(proxy.guid.entity, proxy.form, self.next(now), proxy.first_relevant, None)

    def _encode(self, reader_id: bytes, form: str, count: int, first_sn: int, last_sn: int | None) -> bytes:
        state, history, me = self._state, self._history, self._writer_id
        liveliness = self._asserts_liveliness
        last = state.sent_sn if last_sn is None else last_sn
        first = min(max(history.first_announced, first_sn), last + 1)
        if form == DATA:
            return Heartbeat(reader_id, me, first, last, count, liveliness=liveliness).encode()
        # LIFESPAN may be over for samples that still wait: the history then begins behind the last sent number.
        last_batch = state.sent_batch_sn
        first_batch = min(history.held_batches.first_from(first), last_batch + 1)
        return HeartbeatBatch(
            reader_id, me, first_batch, last_batch, first, last, count, liveliness=liveliness
        ).encode()

    # --- destinations ----------------------------------------------------------------------------

    def piggyback(self, now: int, last_sn: int | None = None) -> None:
        """Pack a HEARTBEAT to all readers behind the data that is packed so far."""
        count = self.next(now)
        self._broadcast.heartbeat(lambda form: self.to_all(form, count, last_sn))
        self._window.announced()
        self._schedule.sent_to_all(self._state.sent_sn, now)

    def request_acknowledgment(self, now: int) -> None:
        """Ask every reader that is behind to acknowledge now."""
        if self._schedule.waiting:
            self.piggyback(now)

    def send_to(self, readers: Iterable[ReaderProxy], now: int) -> None:
        """Send one HEARTBEAT to these readers."""
        due = list(readers)
        if len(due) == 1:
            packer = Packer(self._state.message_size, due[0].info.destinations, due[0].guid.prefix)
            packer.add_submessage(self.to_one(due[0], now))
            self._send(packer)
        elif due:
            count = self.next(now)
            for form in dict.fromkeys(proxy.form for proxy in due):
                packer = Packer(self._state.message_size, self._to(due, form), None)
                packer.add_submessage(self.to_all(form, count))
                self._send(packer)

    def _to(self, due: Iterable[ReaderProxy], form: str) -> tuple[Locator, ...]:
        """Destinations of a HEARTBEAT to the due readers of this form.

        A reader that has not answered for a while gets it at its own address, since the group may not reach it.
        """
        answering: list[ReaderProxy] = []
        silent: list[tuple[Locator, ...]] = []
        for proxy in due:
            if proxy.form != form:
                continue
            if proxy.activity.unanswered > _UNANSWERED_MAX:
                silent.append(proxy.info.destinations)
            else:
                answering.append(proxy)
        return union_of([destinations_of(answering), *silent])

    def assert_liveliness(self, now: int) -> None:
        """Announce to all readers, by a HEARTBEAT, that this MANUAL_BY_TOPIC writer lives (RTPS 2.5 §8.3.8.6)."""
        self._asserts_liveliness = True
        self.piggyback(now)
        self._asserts_liveliness = False
